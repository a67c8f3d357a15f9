//! A family of metrics, the same for every format.

use core::fmt;

use super::FamilyType;
use super::store::{Form, MetricSlot, PointSlot, Span, Store};

/// A family: metrics that share a name and differ in their labels. It borrows from its reader.
#[derive(Clone, Copy)]
pub struct Family<'f> {
    pub(super) store: &'f Store,
}

/// A metric of a family.
#[derive(Clone, Copy)]
pub struct FamilyMetric<'f> {
    store: &'f Store,
    slot: &'f MetricSlot,
}

/// The value of a metric.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum MetricValue<'f> {
    /// Of a counter.
    Counter {
        /// The number of events.
        total: f64,
        /// An example of a counted event.
        exemplar: Option<Exemplar<'f>>,
    },
    /// Of a gauge, an info metric or a state.
    Gauge(f64),
    /// Of a histogram or a gauge histogram.
    Histogram(Histogram<'f>),
    /// Of a summary.
    Summary(Summary<'f>),
    /// Of a metric of unknown type.
    Unknown(f64),
}

/// A histogram: classic, native, or both.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Histogram<'f> {
    /// The number of observed values. If the input omits it, this is the count of the last bucket,
    /// provided that this bucket is unbounded.
    pub count: Option<f64>,
    /// The sum of the observed values.
    pub sum: Option<f64>,
    /// The native part.
    pub native: Option<Native<'f>>,
    store: &'f Store,
    points: &'f [PointSlot],
}

/// A bucket of a classic histogram.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Bucket<'f> {
    /// The greatest value that belongs to this bucket; infinite for the last one.
    pub upper_bound: f64,
    /// The number of values in this bucket and in all buckets before.
    pub cumulative_count: f64,
    /// An example of a value in this bucket.
    pub exemplar: Option<Exemplar<'f>>,
}

/// The native part of a histogram.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Native<'f> {
    /// The resolution: the bounds of the buckets are powers of `2^(2^-schema)`.
    pub schema: i32,
    /// The greatest absolute value of the zero bucket.
    pub zero_threshold: f64,
    /// The number of values in the zero bucket.
    pub zero_count: f64,
    /// The buckets of negative values: index and count, by index.
    pub negative: &'f [(i32, f64)],
    /// The buckets of positive values: index and count, by index.
    pub positive: &'f [(i32, f64)],
    store: &'f Store,
    exemplars: Span,
}

/// The values of a summary.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Summary<'f> {
    /// The number of observed values.
    pub count: Option<f64>,
    /// The sum of the observed values.
    pub sum: Option<f64>,
    points: &'f [PointSlot],
}

/// An example of the events that a metric counts.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Exemplar<'f> {
    /// The value of the event.
    pub value: f64,
    /// The time of the event in milliseconds since 1970.
    pub timestamp_ms: Option<i64>,
    store: &'f Store,
    labels: Span,
}

impl<'f> Family<'f> {
    /// Returns the name. A counter's name ends in `_total` in Prometheus' formats, but not in
    /// OpenMetrics.
    pub fn name(self) -> &'f str {
        self.store.text(self.store.name)
    }

    /// Returns the help text, which can be empty.
    pub fn help(self) -> &'f str {
        self.store.text(self.store.help)
    }

    /// Returns the unit, which can be empty.
    pub fn unit(self) -> &'f str {
        self.store.text(self.store.unit)
    }

    /// Returns the type.
    pub fn kind(self) -> FamilyType {
        self.store.kind
    }

    /// Returns the metrics in the order of the input.
    pub fn metrics(self) -> impl ExactSizeIterator<Item = FamilyMetric<'f>> {
        self.store.slots.iter().map(move |slot| FamilyMetric { store: self.store, slot })
    }
}

impl<'f> FamilyMetric<'f> {
    /// Returns the labels sorted by name. Each name occurs once, and labels with an empty value are
    /// omitted. A bound or a quantile is not among the labels.
    pub fn labels(self) -> impl ExactSizeIterator<Item = (&'f str, &'f str)> {
        self.store.labels(self.slot.labels)
    }

    /// Returns the time of the value in milliseconds since 1970, if the sender wrote one.
    pub fn timestamp_ms(self) -> Option<i64> {
        self.slot.timestamp_ms
    }

    /// Returns the time when counting began, in milliseconds since 1970, if it is known.
    pub fn created_ms(self) -> Option<i64> {
        self.slot.created_ms
    }

    /// Returns the value.
    pub fn value(self) -> MetricValue<'f> {
        let FamilyMetric { store, slot } = self;
        let points = slot.points.slice(&store.points);
        match slot.form {
            Form::Counter => MetricValue::Counter {
                total: slot.value,
                exemplar: slot.exemplar.and_then(|index| store.exemplar(index)),
            },
            Form::Gauge => MetricValue::Gauge(slot.value),
            Form::Histogram => {
                let last = points.last().filter(|point| point.bound == f64::INFINITY);
                MetricValue::Histogram(Histogram {
                    count: slot.count.or(last.map(|point| point.value)),
                    sum: slot.sum,
                    native: slot.native.and_then(|index| self.native(index)),
                    store,
                    points,
                })
            }
            Form::Summary => {
                MetricValue::Summary(Summary { count: slot.count, sum: slot.sum, points })
            }
            Form::Unknown => MetricValue::Unknown(slot.value),
        }
    }

    fn native(self, index: u32) -> Option<Native<'f>> {
        let store = self.store;
        let native = store.natives.get(index as usize)?;
        Some(Native {
            schema: native.schema,
            zero_threshold: native.zero_threshold,
            zero_count: native.zero_count,
            negative: native.negative.slice(&store.native_buckets),
            positive: native.positive.slice(&store.native_buckets),
            store,
            exemplars: native.exemplars,
        })
    }
}

impl<'f> Histogram<'f> {
    /// Returns the classic buckets sorted by bound. The last bucket, without a bound, contains all
    /// values and can be missing.
    pub fn buckets(self) -> impl ExactSizeIterator<Item = Bucket<'f>> {
        self.points.iter().map(move |point| Bucket {
            upper_bound: point.bound,
            cumulative_count: point.value,
            exemplar: point.exemplar.and_then(|index| self.store.exemplar(index)),
        })
    }
}

impl<'f> Native<'f> {
    /// Returns some of the observed events.
    pub fn exemplars(self) -> impl Iterator<Item = Exemplar<'f>> {
        let Span { start, len } = self.exemplars;
        (start..start + len).filter_map(move |index| self.store.exemplar(index))
    }
}

impl<'f> Summary<'f> {
    /// Returns pairs of quantile and value, sorted by quantile.
    pub fn quantiles(self) -> impl ExactSizeIterator<Item = (f64, f64)> + use<'f> {
        self.points.iter().map(|point| (point.bound, point.value))
    }
}

impl<'f> Exemplar<'f> {
    /// Returns the labels sorted by name. Each name occurs once.
    pub fn labels(self) -> impl ExactSizeIterator<Item = (&'f str, &'f str)> {
        self.store.labels(self.labels)
    }
}

impl Store {
    fn labels(&self, labels: Span) -> impl ExactSizeIterator<Item = (&str, &str)> {
        let pairs = labels.slice(&self.pairs).iter();
        pairs.map(|(name, value)| (self.text(*name), self.text(*value)))
    }

    fn exemplar(&self, index: u32) -> Option<Exemplar<'_>> {
        let exemplar = self.exemplars.get(index as usize)?;
        Some(Exemplar {
            value: exemplar.value,
            timestamp_ms: exemplar.timestamp_ms,
            store: self,
            labels: exemplar.labels,
        })
    }
}

/// Formats the items of an iterator as a list or a map.
struct Items<F>(F);

impl<T: fmt::Debug, I: Iterator<Item = T>, F: Fn() -> I> fmt::Debug for Items<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0()).finish()
    }
}

impl fmt::Debug for Family<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Family")
            .field("name", &self.name())
            .field("kind", &self.kind())
            .field("unit", &self.unit())
            .field("help", &self.help())
            .field("metrics", &Items(|| self.metrics()))
            .finish()
    }
}

impl fmt::Debug for FamilyMetric<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metric")
            .field("labels", &Items(|| self.labels()))
            .field("timestamp_ms", &self.timestamp_ms())
            .field("created_ms", &self.created_ms())
            .field("value", &self.value())
            .finish()
    }
}

impl fmt::Debug for Histogram<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Histogram")
            .field("count", &self.count)
            .field("sum", &self.sum)
            .field("buckets", &Items(|| self.buckets()))
            .field("native", &self.native)
            .finish()
    }
}

impl fmt::Debug for Native<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Native")
            .field("schema", &self.schema)
            .field("zero_threshold", &self.zero_threshold)
            .field("zero_count", &self.zero_count)
            .field("negative", &self.negative)
            .field("positive", &self.positive)
            .field("exemplars", &Items(|| self.exemplars()))
            .finish()
    }
}

impl fmt::Debug for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Summary")
            .field("count", &self.count)
            .field("sum", &self.sum)
            .field("quantiles", &Items(|| self.quantiles()))
            .finish()
    }
}

impl fmt::Debug for Exemplar<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exemplar")
            .field("labels", &Items(|| self.labels()))
            .field("value", &self.value)
            .field("timestamp_ms", &self.timestamp_ms)
            .finish()
    }
}
