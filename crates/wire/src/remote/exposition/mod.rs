//! What programs expose to scrapers and push to gateways: Prometheus' text format 0.0.4 and
//! OpenMetrics 1.0 ([`text`]).

pub mod text;

/// The type of a family of metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// A value that only grows.
    Counter,
    /// A value that goes up and down.
    Gauge,
    /// Counts of current values in buckets, which go up and down.
    GaugeHistogram,
    /// Counts of observed values in buckets.
    Histogram,
    /// Facts in labels.
    Info,
    /// One of several states.
    StateSet,
    /// Quantiles of observed values.
    Summary,
    /// Not known: `untyped` in Prometheus' formats.
    #[default]
    Unknown,
}
