//! Snapshots: families, their series, and fixed values, as a scrape reads them.
//!
//! Instruments, collectors and callbacks produce these types; encoders consume them through a
//! [`Sink`]. This keeps both sides independent of each other. The types own no memory: a snapshot
//! borrows from the segment, or from buffers of the scrape that the next one reuses.

mod texts;
mod writer;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use crate::error::named;
#[doc(hidden)]
pub use crate::intake::class::ALONE;
use crate::label::Indices;
#[doc(hidden)]
#[cfg(unix)]
pub use crate::scrape::{Decoder, each_series, visit_inspected};
#[doc(hidden)]
pub use crate::scrape::{Source, Walk};
pub use texts::Texts;
pub use writer::FamilyWriter;

/// The kind of a family's values.
///
/// ```
/// use quipu::snapshot::Kind;
///
/// assert_eq!(Kind::StateSet.as_str(), "stateset");
/// assert_eq!("histogram".parse(), Ok(Kind::Histogram));
/// assert!("timer".parse::<Kind>().is_err());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// A sum that only grows.
    Counter,
    /// A value that goes up and down.
    Gauge,
    /// Counts of observations by upper bound, classic or exponential ("native").
    Histogram,
    /// Quantiles, a count and a sum of observations.
    Summary,
    /// Strings about the target, as labels.
    Info,
    /// States, which are on or off.
    StateSet,
    /// Unspecified.
    Unknown,
}

impl Kind {
    const ALL: [Self; 7] = [
        Self::Counter,
        Self::Gauge,
        Self::Histogram,
        Self::Summary,
        Self::Info,
        Self::StateSet,
        Self::Unknown,
    ];

    /// Returns the name in OpenMetrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Summary => "summary",
            Self::Info => "info",
            Self::StateSet => "stateset",
            Self::Unknown => "unknown",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }

    /// Returns the kind with its article, for a sentence.
    pub(crate) fn with_article(self) -> &'static str {
        match self {
            Self::Counter => "a counter",
            Self::Gauge => "a gauge",
            Self::Histogram => "a histogram",
            Self::Summary => "a summary",
            Self::Info => "an info",
            Self::StateSet => "a state set",
            Self::Unknown => "a value of unknown type",
        }
    }
}

named!(Kind, "kind", Kind::ALL);

/// A label of a family: its name and, if it is of fixed cardinality, its values.
///
/// ```
/// use quipu::LabelGroup;
/// use quipu::snapshot::Label;
///
/// #[derive(LabelGroup)]
/// struct Request<'a> { path: &'a str, is_cached: bool }
///
/// let labels = Request::LABELS;
/// assert_eq!(labels[0], Label::new("path"));
/// assert_eq!(labels[1], Label::new("is_cached").values(&["false", "true"]));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Label<'a> {
    /// The name.
    pub name: &'a str,
    /// The values in the order of their indices; `None` for a dynamic label.
    pub values: Option<&'a [&'a str]>,
}

impl<'a> Label<'a> {
    /// Creates a dynamic label. You can then set fixed values with `values`.
    pub const fn new(name: &'a str) -> Self {
        Self { name, values: None }
    }

    /// Creates a label, for the code that [`LabelGroup`](crate::LabelGroup)'s derive generates.
    #[doc(hidden)]
    pub const fn from_values(name: &'a str, values: Option<&'a [&'a str]>) -> Self {
        Self { name, values }
    }

    /// Makes the label one of fixed cardinality.
    #[must_use]
    pub const fn values(self, values: &'a [&'a str]) -> Self {
        Self { values: Some(values), ..self }
    }
}

/// The header of a family: the name, the metadata and the labels that all of its series share.
///
/// ```
/// use quipu::snapshot::{FamilyHeader, Kind};
///
/// const READ: FamilyHeader = FamilyHeader::new(Kind::Counter, "disk_read_bytes", "Bytes read.");
/// const READ_BYTES: FamilyHeader = READ.unit("bytes");
/// assert_eq!((READ_BYTES.name, READ_BYTES.unit), ("disk_read_bytes", "bytes"));
/// ```
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct FamilyHeader<'a> {
    /// The name, without any suffix that a format adds (`_total`, `_bucket`, `_info`).
    pub name: &'a str,
    /// The help; may be empty.
    pub help: &'a str,
    /// The unit, a suffix of the name (`seconds`); may be empty.
    pub unit: &'a str,
    /// The kind of the family's values.
    pub kind: Kind,
    pub(crate) labels: &'a [Label<'a>],
    /// The number of groups: the product of the numbers of values of all fixed labels, or 1 without
    /// fixed labels. A series stores one number, its *group*, for all fixed labels, and a string
    /// for each dynamic label.
    pub(crate) groups: u32,
    /// Whether the name of a counter is shown without `_total`, because its program follows another
    /// convention. OpenMetrics 1.0 requires the suffix of counters, so it shows such a counter as a
    /// metric of an unknown type.
    #[doc(hidden)]
    pub bare: bool,
}

impl<'a> FamilyHeader<'a> {
    /// Creates the header of a family without a unit and without labels.
    pub const fn new(kind: Kind, name: &'a str, help: &'a str) -> Self {
        Self { name, help, unit: "", kind, labels: &[], groups: 1, bare: false }
    }

    /// Sets the unit. The name must end in the unit, otherwise encoders omit the unit.
    #[must_use]
    pub const fn unit(self, unit: &'a str) -> Self {
        Self { unit, ..self }
    }

    /// Sets the labels, which can be dynamic or of fixed cardinality.
    #[must_use]
    pub const fn with_labels(self, labels: &'a [Label<'a>]) -> Self {
        let (mut groups, mut at) = (1_u32, 0);
        while at < labels.len() {
            if let Some(values) = labels[at].values {
                groups = groups.saturating_mul(values.len() as u32);
            }
            at += 1;
        }
        Self { labels, groups, ..self }
    }

    /// Sets whether the name of a counter is shown without `_total`.
    #[doc(hidden)]
    #[must_use]
    pub const fn bare(self, bare: bool) -> Self {
        Self { bare, ..self }
    }

    /// Returns the labels. [`Series::labels`] returns them with the values of a series.
    pub const fn labels(&self) -> &'a [Label<'a>] {
        self.labels
    }

    /// Returns the number of groups.
    #[doc(hidden)]
    pub const fn groups(&self) -> u32 {
        self.groups
    }

    /// Returns the names and values of the labels of fixed cardinality, for a group. The last label
    /// varies fastest.
    #[doc(hidden)]
    pub fn fixed(&self, group: u32) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        let mut indices = Indices::new(group, self.groups);
        self.labels.iter().filter_map(move |label| {
            let values = label.values?;
            Some((label.name, values.get(indices.next(values.len())).copied().unwrap_or("")))
        })
    }

    /// Returns the name in [`Format::Text`](crate::exposition::Format::Text).
    #[doc(hidden)]
    pub fn text_name(&self) -> String {
        let suffix = match self.kind {
            Kind::Counter if !self.bare => "_total",
            Kind::Info => "_info",
            _ => "",
        };
        format!("{}{suffix}", self.name)
    }

    /// Returns the names of the dynamic labels, in order. Each series stores a string for each of
    /// them.
    pub fn dynamic(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.labels.iter().filter(|label| label.values.is_none()).map(|label| label.name)
    }
}

/// A point in time: nanoseconds since 1970-01-01 00:00 UTC.
///
/// ```
/// use std::time::{Duration, UNIX_EPOCH};
///
/// use quipu::snapshot::Timestamp;
///
/// let time = UNIX_EPOCH + Duration::from_secs(2);
/// assert_eq!(Timestamp::from(time), Timestamp::from_secs(2));
/// assert_eq!(Timestamp::from(time).as_nanos(), 2_000_000_000);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// Creates the time that is this many nanoseconds after 1970.
    #[inline]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Creates the time that is this many milliseconds after 1970, at most the last representable
    /// time.
    #[inline]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// Creates the time that is this many seconds after 1970, at most the last representable time.
    #[inline]
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000_000))
    }

    /// Returns the nanoseconds since 1970.
    #[inline]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }
}

impl From<SystemTime> for Timestamp {
    /// Converts a time before 1970 to 0, and a time after the year 2554 to the last representable
    /// time.
    fn from(time: SystemTime) -> Self {
        let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }
}

/// One series at the time of the scrape.
///
/// ```
/// use quipu::snapshot::{CounterValue, FamilyHeader, Series, Sink, Value};
/// use quipu::{CounterFamily, Description};
///
/// /// The sum of all counters with the label `method="get"`.
/// struct Sum(f64);
///
/// impl Sink for Sum {
///     fn family(&mut self, _: &FamilyHeader<'_>) {}
///
///     fn series(&mut self, family: &FamilyHeader<'_>, series: &Series<'_>) {
///         let is_get = series.labels(family).any(|label| label == ("method", "get"));
///         if let (Value::Counter(CounterValue { total, .. }), true) = (series.value, is_get) {
///             self.0 += total.as_f64();
///         }
///     }
/// }
///
/// let registry = quipu::Registry::new();
/// let description = Description::new("requests", "Requests.").labels(["method"]);
/// let requests: CounterFamily<[&str; 1]> = registry.register(description)?;
/// requests.inc_by(&["get"], 3);
/// requests.inc_by(&["post"], 4);
/// let mut sum = Sum(0.0);
/// registry.visit(&mut sum)?;
/// assert_eq!(sum.0, 3.0);
/// # Ok::<(), quipu::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Series<'a> {
    /// The number of its combination of fixed label values; 0 without fixed labels.
    #[doc(hidden)]
    pub group: u32,
    /// The dynamic label values.
    #[doc(hidden)]
    pub texts: Texts<'a>,
    /// Whether no dynamic value contains a character that needs an escape: `"`, `\`, line feed.
    #[doc(hidden)]
    pub escape_free: bool,
    /// Whether this is the overflow series, which counts for all series beyond the family's limit.
    /// This series carries no labels of the family: formats show the single label `quipu_overflow`,
    /// with [`Series::overflow_value`].
    #[doc(hidden)]
    pub overflow: bool,
    /// When it started counting from zero, if known.
    pub start: Option<Timestamp>,
    /// The value of the series.
    pub value: Value<'a>,
    /// The last exemplar of a gauge or of a value of unknown type, if any. Counters and histograms
    /// store exemplars in the value instead. No format that scrapers read can represent this
    /// exemplar.
    pub exemplar: Option<Exemplar<'a>>,
}

impl<'a> Series<'a> {
    /// Creates a series of a family whose labels are all dynamic: `texts` are their values. Missing
    /// values are empty, and excess ones are not shown.
    pub fn new(texts: Texts<'a>, value: Value<'a>) -> Self {
        Self::checked(texts, texts.is_escape_free(), value)
    }

    /// Like [`Series::new`], for callers that know whether a label value needs an escape.
    #[doc(hidden)]
    #[inline]
    pub fn checked(texts: Texts<'a>, escape_free: bool, value: Value<'a>) -> Self {
        let (group, overflow, start, exemplar) = (0, false, None, None);
        Self { group, texts, escape_free, overflow, start, value, exemplar }
    }

    /// Sets the number of the combination of fixed label values.
    #[doc(hidden)]
    #[must_use]
    pub fn group(self, group: u32) -> Self {
        Self { group, ..self }
    }

    /// Sets the exemplar of a gauge or of a value of unknown type.
    #[must_use]
    pub fn exemplar(self, exemplar: impl Into<Option<Exemplar<'a>>>) -> Self {
        Self { exemplar: exemplar.into(), ..self }
    }

    /// Sets the time when the series started to count from zero.
    #[must_use]
    pub fn start(self, start: impl Into<Option<Timestamp>>) -> Self {
        Self { start: start.into(), ..self }
    }

    /// Returns the names and values of its labels, in the family's order. For an overflow series,
    /// this is only the label `quipu_overflow`.
    pub fn labels(
        &self,
        family: &FamilyHeader<'a>,
    ) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        let (mut fixed, mut texts) = (family.fixed(self.group), self.texts);
        let overflow = self.overflow.then(|| ("quipu_overflow", self.overflow_value()));
        let own = if self.overflow { &[] } else { family.labels };
        let own = own.iter().map(move |label| match label.values {
            None => (label.name, texts.next().unwrap_or("")),
            Some(_) => fixed.next().unwrap_or((label.name, "")),
        });
        overflow.into_iter().chain(own)
    }

    /// Returns the value of the label `quipu_overflow` of an overflow series: its string, which
    /// distinguishes the variants of a name, or `true`.
    #[doc(hidden)]
    pub fn overflow_value(&self) -> &'a str {
        self.texts.clone().next().unwrap_or("true")
    }
}

/// The number of a sample. The enum is complete: the cells of a series are integers or floats.
///
/// ```
/// use quipu::snapshot::Number;
///
/// assert_eq!(Number::from(7_usize), Number::Unsigned(7));
/// assert_eq!(Number::from(-1), Number::Signed(-1));
/// assert_eq!(Number::from(true).as_f64(), 1.0);
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    /// An unsigned integer.
    Unsigned(u64),
    /// A signed integer.
    Signed(i64),
    /// Any other number.
    Float(f64),
}

macro_rules! from {
    ($($variant:ident: $($number:ty),*;)*) => {$($(
        impl From<$number> for Number {
            #[inline]
            fn from(n: $number) -> Self {
                Self::$variant(n as _)
            }
        }
    )*)*};
}

from! {
    Unsigned: u8, u16, u32, u64, usize, bool;
    Signed: i8, i16, i32, i64, isize;
    Float: f32, f64;
}

impl Number {
    /// Returns the number as a float, rounded if it is an integer beyond 2^53.
    #[inline]
    pub fn as_f64(self) -> f64 {
        match self {
            Self::Unsigned(n) => n as f64,
            Self::Signed(n) => n as f64,
            Self::Float(n) => n,
        }
    }
}

/// An exemplar: one observation with additional labels, such as the ID of a trace.
///
/// ```
/// use quipu::snapshot::{Exemplar, Texts, Timestamp};
///
/// let mut buffer = Vec::new();
/// let labels = Texts::encode(["trace_id", "4bf92f35"], &mut buffer);
/// let exemplar = Exemplar::new(labels, 0.3).time(Timestamp::from_secs(1_700_000_000));
/// assert_eq!(exemplar.pairs().collect::<Vec<_>>(), [("trace_id", "4bf92f35")]);
/// ```
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Exemplar<'a> {
    /// Alternating names and values, encoded as [`Texts`].
    pub labels: Texts<'a>,
    /// The observed value.
    pub value: f64,
    /// When it was observed, if known.
    pub time: Option<Timestamp>,
}

impl<'a> Exemplar<'a> {
    /// Creates an exemplar with these alternating names and values of labels.
    #[inline]
    pub fn new(labels: Texts<'a>, value: f64) -> Self {
        Self { labels, value, time: None }
    }

    /// Returns the names and values of the labels.
    pub fn pairs(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        let mut texts = self.labels;
        std::iter::from_fn(move || Some((texts.next()?, texts.next()?)))
    }

    /// Sets the time of the observation.
    #[must_use]
    pub fn time(self, time: impl Into<Option<Timestamp>>) -> Self {
        Self { time: time.into(), ..self }
    }
}

/// The value of a series.
///
/// ```
/// use quipu::snapshot::{Kind, Number, Value};
///
/// assert_eq!(Value::counter(3).kind(), Kind::Counter);
/// assert!(matches!(Value::gauge(0.5), Value::Gauge(Number::Float(0.5))));
/// ```
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Value<'a> {
    /// A counter.
    Counter(CounterValue<'a>),
    /// A gauge's value.
    Gauge(Number),
    /// A value of unknown kind.
    Unknown(Number),
    /// A histogram.
    Histogram(HistogramValue<'a>),
    /// A summary.
    Summary(SummaryValue<'a>),
    /// An info: its strings are in the labels.
    Info,
    /// The states: the name of each, and whether it is on.
    StateSet(&'a [(&'a str, bool)]),
}

impl Value<'_> {
    /// Returns the total of a counter, without an exemplar.
    #[inline]
    pub fn counter(total: impl Into<Number>) -> Self {
        Self::Counter(CounterValue::new(total))
    }

    /// Returns the value of a gauge.
    #[inline]
    pub fn gauge(number: impl Into<Number>) -> Self {
        Self::Gauge(number.into())
    }

    /// Returns the kind of the value.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Counter(_) => Kind::Counter,
            Self::Gauge(_) => Kind::Gauge,
            Self::Unknown(_) => Kind::Unknown,
            Self::Histogram(_) => Kind::Histogram,
            Self::Summary(_) => Kind::Summary,
            Self::Info => Kind::Info,
            Self::StateSet(_) => Kind::StateSet,
        }
    }
}

/// The value of a counter.
///
/// ```
/// use quipu::snapshot::{CounterValue, Exemplar, Number, Texts};
///
/// let mut buffer = Vec::new();
/// let labels = Texts::encode(["trace_id", "4bf92f35"], &mut buffer);
/// let counter = CounterValue::new(3_u64).exemplar(Exemplar::new(labels, 1.0));
/// assert_eq!(counter.total, Number::Unsigned(3));
/// ```
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct CounterValue<'a> {
    /// The sum of all increments.
    pub total: Number,
    /// The last exemplar, if any.
    pub exemplar: Option<Exemplar<'a>>,
}

impl<'a> CounterValue<'a> {
    /// Creates the value of a counter with this total, without an exemplar.
    #[inline]
    pub fn new(total: impl Into<Number>) -> Self {
        Self { total: total.into(), exemplar: None }
    }

    /// Sets the exemplar.
    #[inline]
    #[must_use]
    pub fn exemplar(self, exemplar: impl Into<Option<Exemplar<'a>>>) -> Self {
        Self { exemplar: exemplar.into(), ..self }
    }
}

/// The value of a summary.
///
/// ```
/// use quipu::snapshot::SummaryValue;
///
/// let summary = SummaryValue::new(4, 1.75).quantiles(&[(0.5, 0.25), (0.99, 1.0)]);
/// assert_eq!(summary.quantiles[1], (0.99, 1.0));
/// ```
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct SummaryValue<'a> {
    /// Pairs of quantile (0 to 1) and value, by ascending quantile; NaN without observations.
    pub quantiles: &'a [(f64, f64)],
    /// The number of observations.
    pub count: u64,
    /// The sum of the observations.
    pub sum: f64,
}

impl<'a> SummaryValue<'a> {
    /// Creates the value of a summary with this number of observations, and with their sum, but
    /// without quantiles.
    pub const fn new(count: u64, sum: f64) -> Self {
        Self { quantiles: &[], count, sum }
    }

    /// Sets the quantiles: pairs of quantile (0 to 1) and value, by ascending quantile.
    #[must_use]
    pub const fn quantiles(self, quantiles: &'a [(f64, f64)]) -> Self {
        Self { quantiles, ..self }
    }
}

/// The value of a histogram: classic buckets, exponential buckets, or both.
///
/// ```
/// use quipu::snapshot::{Bucket, HistogramValue};
///
/// let buckets = [Bucket::new(0.1, 3), Bucket::new(f64::INFINITY, 1)];
/// let histogram = HistogramValue::new(4, 1.75).buckets(&buckets);
/// assert_eq!(histogram.buckets[1].count, 1);
/// ```
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct HistogramValue<'a> {
    /// The number of observations: the sum over all buckets.
    pub count: u64,
    /// The sum of the observations.
    pub sum: f64,
    /// The classic buckets by ascending bound, `+Inf` last; empty if there are none.
    pub buckets: &'a [Bucket<'a>],
    /// The exponential buckets, if there are any.
    pub native: Option<Native<'a>>,
}

impl<'a> HistogramValue<'a> {
    /// Creates the value of a histogram with this number of observations, and with their sum. You
    /// also need to set buckets.
    pub const fn new(count: u64, sum: f64) -> Self {
        Self { count, sum, buckets: &[], native: None }
    }

    /// Sets the classic buckets, by ascending bound. The last bound is `+Inf`. A histogram can
    /// contain exponential buckets, too.
    #[must_use]
    pub const fn buckets(self, buckets: &'a [Bucket<'a>]) -> Self {
        Self { buckets, ..self }
    }

    /// Sets the exponential buckets.
    #[must_use]
    pub fn native(self, native: impl Into<Option<Native<'a>>>) -> Self {
        Self { native: native.into(), ..self }
    }
}

/// A classic bucket.
///
/// ```
/// use quipu::snapshot::Bucket;
///
/// let bucket = Bucket::new(0.25, 12);
/// assert_eq!((bucket.bound, bucket.count), (0.25, 12));
/// assert!(bucket.exemplar.is_none());
/// ```
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Bucket<'a> {
    /// The upper bound, inclusive.
    pub bound: f64,
    /// The bound in another program's spelling, which the line-based formats copy, because the same
    /// bound in another spelling would be another series. `None` if the bound is not from another
    /// program.
    #[doc(hidden)]
    pub le: Option<&'a str>,
    /// The number of observations in this bucket only, without lower buckets.
    pub count: u64,
    /// The last exemplar in this bucket, if any.
    pub exemplar: Option<Exemplar<'a>>,
}

impl<'a> Bucket<'a> {
    /// Creates a bucket with an upper bound, and with the number of observations in this bucket,
    /// without those in lower buckets.
    pub const fn new(bound: f64, count: u64) -> Self {
        Self { bound, le: None, count, exemplar: None }
    }

    /// Sets the exemplar.
    #[must_use]
    pub fn exemplar(self, exemplar: impl Into<Option<Exemplar<'a>>>) -> Self {
        Self { exemplar: exemplar.into(), ..self }
    }

    /// Sets the bound in another program's spelling.
    #[doc(hidden)]
    #[must_use]
    pub fn le(self, le: impl Into<Option<&'a str>>) -> Self {
        Self { le: le.into(), ..self }
    }
}

/// Exponential buckets, as in Prometheus' native histograms. Bucket `i` of schema `s` counts values
/// above `2^((i-1) * 2^-s)` and up to `2^(i * 2^-s)`; negative buckets mirror the positive ones.
///
/// ```
/// use quipu::snapshot::{HistogramValue, Native};
///
/// // With schema 0, bucket 1 counts values above 1 and up to 2.
/// let native = Native::new(0).zero(0.001, 2).positive(&[(0, 3), (1, 5)]);
/// let histogram = HistogramValue::new(10, 9.5).native(native);
/// assert_eq!(histogram.native.unwrap().positive[1], (1, 5));
/// ```
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Native<'a> {
    /// The resolution, -4 to 8.
    pub schema: i8,
    /// The width of the zero bucket: it counts values at most this far from zero.
    pub zero_threshold: f64,
    /// The number of observations in the zero bucket.
    pub zero_count: u64,
    /// Pairs of index and count, by ascending index, without empty buckets.
    pub positive: &'a [(i32, u64)],
    /// Like `positive`, for values below zero.
    pub negative: &'a [(i32, u64)],
    /// Exemplars, in no particular order.
    pub exemplars: &'a [Exemplar<'a>],
}

impl<'a> Native<'a> {
    /// Creates empty buckets of this schema, -4 to 8.
    pub const fn new(schema: i8) -> Self {
        let (zero_threshold, zero_count) = (0.0, 0);
        Self { schema, zero_threshold, zero_count, positive: &[], negative: &[], exemplars: &[] }
    }

    /// Sets the zero bucket: `count` observations, at most `threshold` from zero.
    #[must_use]
    pub const fn zero(self, threshold: f64, count: u64) -> Self {
        Self { zero_threshold: threshold, zero_count: count, ..self }
    }

    /// Sets the buckets of positive values: pairs of index and count, by ascending index.
    #[must_use]
    pub const fn positive(self, positive: &'a [(i32, u64)]) -> Self {
        Self { positive, ..self }
    }

    /// Sets the buckets of negative values: pairs of index and count, by ascending index.
    #[must_use]
    pub const fn negative(self, negative: &'a [(i32, u64)]) -> Self {
        Self { negative, ..self }
    }

    /// Sets the exemplars, which can be in any order.
    #[must_use]
    pub const fn exemplars(self, exemplars: &'a [Exemplar<'a>]) -> Self {
        Self { exemplars, ..self }
    }

    /// Returns the number of observations.
    pub(crate) fn count(&self) -> u64 {
        let sides = self.positive.iter().chain(self.negative);
        sides.fold(self.zero_count, |all, (_, count)| all.saturating_add(*count))
    }
}

/// Identifies a family that never changes, in this process.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FamilyKey(u64);

impl FamilyKey {
    /// Returns a key that is unique to a family, and never used again.
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// Receives families and their series: for example, an encoder, a test, or a sender.
///
/// Every series belongs to the family passed last. In a collector, you pass families with
/// [`counter`](#method.counter), [`gauge`](#method.gauge) and [`begin`](#method.begin), which are
/// methods of `dyn Sink`.
///
/// ```
/// use quipu::snapshot::{FamilyHeader, Series, Sink};
///
/// /// The names of families, and the number of series.
/// #[derive(Default)]
/// struct Overview(Vec<String>, usize);
///
/// impl Sink for Overview {
///     fn family(&mut self, family: &FamilyHeader<'_>) {
///         self.0.push(family.name.to_owned());
///     }
///
///     fn series(&mut self, _: &FamilyHeader<'_>, _: &Series<'_>) {
///         self.1 += 1;
///     }
/// }
///
/// let registry = quipu::Registry::new();
/// registry.counter("jobs", "Completed jobs.")?;
/// let mut overview = Overview::default();
/// registry.visit(&mut overview)?;
/// assert_eq!((overview.0, overview.1), (vec!["jobs".to_owned()], 1));
/// # Ok::<(), quipu::Error>(())
/// ```
pub trait Sink {
    /// Starts a family.
    fn family(&mut self, family: &FamilyHeader<'_>);
    /// Starts a family that is equal in all calls with this key. A sink can use the key to cache
    /// results. By default, this calls [`Sink::family`].
    #[doc(hidden)]
    fn known_family(&mut self, key: FamilyKey, family: &FamilyHeader<'_>) {
        let _ = key;
        self.family(family);
    }
    /// Receives one series of the family. `family` is the same as in the last call of
    /// [`Sink::family`].
    fn series(&mut self, family: &FamilyHeader<'_>, series: &Series<'_>);
}

impl<S: Sink + ?Sized> Sink for Box<S> {
    fn family(&mut self, family: &FamilyHeader<'_>) {
        (**self).family(family);
    }

    fn known_family(&mut self, key: FamilyKey, family: &FamilyHeader<'_>) {
        (**self).known_family(key, family);
    }

    fn series(&mut self, family: &FamilyHeader<'_>, series: &Series<'_>) {
        (**self).series(family, series);
    }
}

impl<S: Sink + ?Sized> Sink for &mut S {
    fn family(&mut self, family: &FamilyHeader<'_>) {
        (**self).family(family);
    }

    fn known_family(&mut self, key: FamilyKey, family: &FamilyHeader<'_>) {
        (**self).known_family(key, family);
    }

    fn series(&mut self, family: &FamilyHeader<'_>, series: &Series<'_>) {
        (**self).series(family, series);
    }
}
