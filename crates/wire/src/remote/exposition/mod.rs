//! Formats that programs expose to scrapers and push to gateways: Prometheus' text format 0.0.4 and
//! OpenMetrics 1.0 ([`text`]), and Prometheus' protobuf format ([`read_families`]). Use
//! [`Families`] to assemble the samples of the first two into families like those in protobuf:
//! [`Family`].

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
    /// A value that rises and falls.
    Gauge,
    /// Counts of current values in buckets, which rise and fall.
    GaugeHistogram,
    /// Counts of observed values in buckets.
    Histogram,
    /// Facts in labels.
    Info,
    /// A choice among several states.
    StateSet,
    /// Quantiles of observed values.
    Summary,
    /// Unknown, called `untyped` in Prometheus' formats.
    #[default]
    Unknown,
}

/// Limits on the memory of the family that is being read.
///
/// ```
/// use quipu_wire::remote::exposition::Limits;
///
/// let limits = Limits::default().samples(10_000);
/// assert_eq!((limits.samples, limits.bytes), (10_000, 64 << 20));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// The number of samples in a family: values, buckets and quantiles. Each takes at most about
    /// 150 bytes.
    pub samples: usize,
    /// The number of bytes in its names, labels and description. Each label takes 16 bytes more.
    pub bytes: usize,
}

impl Limits {
    /// Creates limits of a million samples and 64 MiB of strings.
    pub const fn new() -> Limits {
        Limits { samples: 1_000_000, bytes: 64 << 20 }
    }

    /// Returns these limits with another number of samples.
    #[must_use]
    pub const fn samples(self, samples: usize) -> Limits {
        Limits { samples, ..self }
    }

    /// Returns these limits with another number of bytes.
    #[must_use]
    pub const fn bytes(self, bytes: usize) -> Limits {
        Limits { bytes, ..self }
    }

    /// Caps both limits at `i32::MAX`.
    fn in_range(self) -> Limits {
        const MAX: usize = i32::MAX as usize;
        Limits { samples: self.samples.min(MAX), bytes: self.bytes.min(MAX) }
    }
}

/// A million samples and 64 MiB of strings.
impl Default for Limits {
    fn default() -> Limits {
        Limits::new()
    }
}
