//! What programs expose to scrapers and push to gateways: Prometheus' text format 0.0.4 and
//! OpenMetrics 1.0 ([`text`]), and Prometheus' protobuf format ([`read_families`]). [`Families`]
//! assembles the samples of text into families, as protobuf has them: [`Family`].

pub mod text;

mod families;
mod family;
mod protobuf;
mod store;

pub use families::{Families, FamilyError};
pub use family::{Bucket, Exemplar, Family, FamilyMetric, Histogram, MetricValue, Native, Summary};
pub use protobuf::read_families;

/// The type of a family of metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FamilyType {
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

/// How much of a family is kept at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "to be made by literals")]
pub struct Limits {
    /// How many samples a family may have: values, buckets and quantiles. Each takes at most about
    /// 150 bytes.
    pub samples: usize,
    /// How many bytes its names, labels and texts may have. Each label takes 16 bytes more.
    pub bytes: usize,
}

impl Limits {
    /// Both limits capped at `i32::MAX`.
    fn in_range(self) -> Limits {
        const MAX: usize = i32::MAX as usize;
        Limits { samples: self.samples.min(MAX), bytes: self.bytes.min(MAX) }
    }
}

/// A million samples, and 64 MiB of texts.
impl Default for Limits {
    fn default() -> Limits {
        Limits { samples: 1_000_000, bytes: 64 << 20 }
    }
}
