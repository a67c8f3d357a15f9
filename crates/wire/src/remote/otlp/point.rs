//! Data points as they are read.

use super::attributes::Attribute;

/// A data point, with everything that describes it.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Point<'r, 'a> {
    /// What it was measured on.
    pub resource: Resource<'r, 'a>,
    /// What measured it.
    pub scope: Instrumentation<'r, 'a>,
    /// The metric.
    pub metric: MetricDescription<'a>,
    /// Its attributes.
    pub attributes: &'r [Attribute<'a>],
    /// When a sum or a histogram began, in nanoseconds since 1970; 0 when it is not known.
    pub start_ns: u64,
    /// When it was measured, in nanoseconds since 1970; 0 when it is not known.
    pub time_ns: u64,
    /// Whether it only says that nothing was recorded: its series has ended, and its value means
    /// nothing.
    pub no_recorded_value: bool,
    /// The value.
    pub value: PointValue<'r>,
    /// Exemplars, in the order in which they were sent.
    pub exemplars: &'r [MetricsExemplar<'a>],
    pub(super) exemplar_attributes: &'r [Attribute<'a>],
}

impl<'r, 'a> Point<'r, 'a> {
    /// The attributes of one of its exemplars that are not among its own.
    pub fn exemplar_attributes(&self, exemplar: &MetricsExemplar<'a>) -> &'r [Attribute<'a>] {
        let (start, end) = exemplar.attributes;
        self.exemplar_attributes.get(start..end).unwrap_or_default()
    }
}

/// What metrics were measured on: a process, a service, a host.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Resource<'r, 'a> {
    /// Its place in the request, from 1.
    pub number: usize,
    /// Its attributes.
    pub attributes: &'r [Attribute<'a>],
}

/// What measured metrics: a library, in OpenTelemetry's terms an instrumentation scope.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Instrumentation<'r, 'a> {
    /// Its place in the request, from 1.
    pub number: usize,
    /// Its name; may be empty.
    pub name: &'a str,
    /// Its version; may be empty.
    pub version: &'a str,
    /// Where the schema of its metrics is described; may be empty.
    pub schema_url: &'a str,
    /// Its attributes.
    pub attributes: &'r [Attribute<'a>],
}

/// A metric.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct MetricDescription<'a> {
    /// Its place in the request, from 1.
    pub number: usize,
    /// Its name.
    pub name: &'a str,
    /// Its description; may be empty.
    pub description: &'a str,
    /// The unit of its values; may be empty.
    pub unit: &'a str,
}

/// The value of a point.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum PointValue<'r> {
    /// A value that goes up and down. `None` if nothing was measured.
    Gauge(Option<Number>),
    /// A sum.
    Sum {
        /// The sum. `None` if nothing was measured.
        value: Option<Number>,
        /// Whether it only grows.
        monotonic: bool,
        /// What it counts from.
        temporality: Temporality,
    },
    /// A histogram with explicit bounds.
    Histogram {
        /// The values.
        point: HistogramPoint<'r>,
        /// What it counts from.
        temporality: Temporality,
    },
    /// A histogram with exponential buckets.
    Exponential {
        /// The values.
        point: ExponentialPoint<'r>,
        /// What it counts from.
        temporality: Temporality,
    },
    /// A summary. It counts from its start.
    Summary(SummaryPoint<'r>),
}

/// An integer or a double. The enum is complete.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// An integer.
    Int(i64),
    /// A double.
    Double(f64),
}

impl Number {
    /// The number as a double, rounded if it is an integer beyond 2^53.
    pub fn as_f64(self) -> f64 {
        match self {
            Self::Int(number) => number as f64,
            Self::Double(number) => number,
        }
    }
}

/// What a point counts from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Temporality {
    /// Not known.
    #[default]
    Unknown,
    /// The point before it.
    Delta,
    /// The start.
    Cumulative,
}

/// How many values were measured, and their distribution over explicit bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct HistogramPoint<'r> {
    /// The number of values.
    pub count: u64,
    /// Their sum.
    pub sum: Option<f64>,
    /// The smallest.
    pub min: Option<f64>,
    /// The largest.
    pub max: Option<f64>,
    /// The number of values in each bucket. A valid point has none, or one more than bounds; that
    /// is not checked.
    pub buckets: &'r [u64],
    /// The inclusive upper bounds of the buckets; the last bucket has none.
    pub bounds: &'r [f64],
}

/// How many values were measured, and their distribution over exponential buckets. Bucket `i` of
/// scale `s` has the values above `2^(i * 2^-s)` and up to `2^((i+1) * 2^-s)`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ExponentialPoint<'r> {
    /// The number of values.
    pub count: u64,
    /// Their sum.
    pub sum: Option<f64>,
    /// The smallest.
    pub min: Option<f64>,
    /// The largest.
    pub max: Option<f64>,
    /// The resolution.
    pub scale: i32,
    /// The number of values whose magnitude is at most the threshold.
    pub zero_count: u64,
    /// The threshold of the zero bucket.
    pub zero_threshold: f64,
    /// The buckets of positive values.
    pub positive: ExponentialBuckets<'r>,
    /// The buckets of negative values, by magnitude.
    pub negative: ExponentialBuckets<'r>,
}

/// Consecutive exponential buckets.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ExponentialBuckets<'r> {
    /// The index of the first bucket.
    pub offset: i32,
    /// The number of values in each bucket.
    pub counts: &'r [u64],
}

/// Quantiles that the sender computed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct SummaryPoint<'r> {
    /// The number of values.
    pub count: u64,
    /// Their sum.
    pub sum: f64,
    /// Pairs of quantile (0 to 1) and value, in the order in which they were sent.
    pub quantiles: &'r [(f64, f64)],
}

/// One of the measured values.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct MetricsExemplar<'a> {
    /// When it was measured, in nanoseconds since 1970; 0 when it is not known.
    pub time_ns: u64,
    /// The value.
    pub value: Option<Number>,
    /// The id of the trace that measured it: 16 bytes, or none.
    pub trace_id: &'a [u8],
    /// The id of the span that measured it: 8 bytes, or none.
    pub span_id: &'a [u8],
    /// Where its attributes are among those of all exemplars of the point.
    pub(super) attributes: (usize, usize),
}
