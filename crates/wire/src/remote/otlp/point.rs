//! The data points that the OTLP reader returns, and their parts.

use super::attributes::Attribute;

/// A data point with its resource, scope and metric.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Point<'r, 'a> {
    /// The source of the measurement, such as a process.
    pub resource: Resource<'r, 'a>,
    /// The library that measured it.
    pub scope: Instrumentation<'r, 'a>,
    /// The metric.
    pub metric: MetricDescription<'a>,
    /// The attributes of this point.
    pub attributes: &'r [Attribute<'a>],
    /// The time when a sum or a histogram began, in nanoseconds since 1970, if known.
    pub start_ns: Option<u64>,
    /// The time of the measurement in nanoseconds since 1970, if known.
    pub time_ns: Option<u64>,
    /// Whether the point marks the end of its series. If so, no value was recorded, and you should
    /// ignore `value`.
    pub no_recorded_value: bool,
    /// The value.
    pub value: PointValue<'r>,
    /// Exemplars, in the order of the request.
    pub exemplars: &'r [MetricsExemplar<'a>],
    pub(super) exemplar_attributes: &'r [Attribute<'a>],
}

impl<'r, 'a> Point<'r, 'a> {
    /// Returns the attributes of one of this point's exemplars, without the point's own attributes.
    pub fn exemplar_attributes(&self, exemplar: &MetricsExemplar<'a>) -> &'r [Attribute<'a>] {
        let (start, end) = exemplar.attributes;
        self.exemplar_attributes.get(start..end).unwrap_or_default()
    }
}

/// The source of metrics, for example a process, a service or a host.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Resource<'r, 'a> {
    /// The position in the request, from 1.
    pub number: usize,
    /// The attributes of the resource.
    pub attributes: &'r [Attribute<'a>],
}

/// The library that measured metrics, called an instrumentation scope in OpenTelemetry.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Instrumentation<'r, 'a> {
    /// The position in the request, from 1.
    pub number: usize,
    /// The name; can be empty.
    pub name: &'a str,
    /// The version; can be empty.
    pub version: &'a str,
    /// The URL of the schema of its metrics; can be empty.
    pub schema_url: &'a str,
    /// The attributes of the scope.
    pub attributes: &'r [Attribute<'a>],
}

/// The name, description and unit of a metric.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct MetricDescription<'a> {
    /// The position in the request, from 1.
    pub number: usize,
    /// The name.
    pub name: &'a str,
    /// The description; can be empty.
    pub description: &'a str,
    /// The unit of the values; can be empty.
    pub unit: &'a str,
}

/// The value of a point.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum PointValue<'r> {
    /// A value that rises and falls. `None` if no value was measured.
    Gauge(Option<Number>),
    /// A sum.
    Sum {
        /// The sum. `None` if no value was measured.
        value: Option<Number>,
        /// Whether the sum only grows.
        monotonic: bool,
        /// The start of the interval that this sum covers.
        temporality: Temporality,
    },
    /// A histogram with explicit bounds.
    Histogram {
        /// The values.
        point: HistogramPoint<'r>,
        /// The start of the interval that this histogram covers.
        temporality: Temporality,
    },
    /// A histogram with exponential buckets.
    Exponential {
        /// The values.
        point: ExponentialPoint<'r>,
        /// The start of the interval that this histogram covers.
        temporality: Temporality,
    },
    /// A summary, which covers all values since its start.
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
    /// Returns the number as a double. An integer beyond 2^53 is rounded.
    pub fn as_f64(self) -> f64 {
        match self {
            Self::Int(number) => number as f64,
            Self::Double(number) => number,
        }
    }
}

/// The start of the interval that a point covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Temporality {
    /// Unknown.
    #[default]
    Unknown,
    /// The interval begins at the previous point.
    Delta,
    /// The interval begins at the start time, so values accumulate.
    Cumulative,
}

/// The number of measured values and their distribution over explicit bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct HistogramPoint<'r> {
    /// The number of values.
    pub count: u64,
    /// The sum of the values.
    pub sum: Option<f64>,
    /// The smallest value.
    pub min: Option<f64>,
    /// The largest value.
    pub max: Option<f64>,
    /// The number of values in each bucket. A valid point contains no buckets, or one more than
    /// bounds. This is not checked.
    pub buckets: &'r [u64],
    /// The inclusive upper bounds of the buckets. The last bucket is unbounded.
    pub bounds: &'r [f64],
}

/// The number of measured values and their distribution over exponential buckets. Bucket `i` of
/// scale `s` contains the values above `2^(i * 2^-s)` and up to `2^((i+1) * 2^-s)`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ExponentialPoint<'r> {
    /// The number of values.
    pub count: u64,
    /// The sum of the values.
    pub sum: Option<f64>,
    /// The smallest value.
    pub min: Option<f64>,
    /// The largest value.
    pub max: Option<f64>,
    /// The resolution: the scale `s` of the buckets.
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
    /// The sum of the values.
    pub sum: f64,
    /// Pairs of quantile (0 to 1) and value, in the order of the request.
    pub quantiles: &'r [(f64, f64)],
}

/// A single measured value.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct MetricsExemplar<'a> {
    /// The time of the measurement in nanoseconds since 1970, if known.
    pub time_ns: Option<u64>,
    /// The value.
    pub value: Option<Number>,
    /// The id of the trace: 16 bytes, or empty.
    pub trace_id: &'a [u8],
    /// The id of the span: 8 bytes, or empty.
    pub span_id: &'a [u8],
    /// The range of its attributes in the list of all exemplar attributes of the point.
    pub(super) attributes: (usize, usize),
}

/// Converts a time from the wire, where 0 means unknown.
#[inline]
pub(super) fn known(ns: u64) -> Option<u64> {
    (ns != 0).then_some(ns)
}
