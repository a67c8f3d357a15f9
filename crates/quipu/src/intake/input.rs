//! The input of an intake: a metric, and a value of one of its series.

use std::time::Duration;

use super::class::Class;
#[cfg(doc)]
use super::rejection::Rejection;
use super::table::FamilyEntry;
use crate::snapshot::{Kind, Native, Timestamp, Value};

/// The metric that a value belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Metric<'a> {
    /// The name, as the text format shows it. For a counter, the suffix `_total` is optional.
    pub name: &'a str,
    /// The help; may be empty. The first help that is not empty is kept.
    pub help: &'a str,
    /// The unit; may be empty. It is kept if the name ends in it, before the `_total` of a counter:
    /// see [`unit_of`](crate::exposition::unit_of).
    pub unit: &'a str,
    /// Whether the series belongs to a group that is replaced as a whole. Such series are in other
    /// families than series without a group, and keep labels without a value.
    pub grouped: bool,
    /// The time of the sample, if the source states one. With [`Mode::Follow`], a sample of a
    /// counter, a classic histogram or a summary that is not later than the last one is omitted, so
    /// a sample that is sent twice counts once. [`Timestamp`] 0 is a time that is not after 1970:
    /// such a sample is earlier than any other.
    pub time: Option<Timestamp>,
    /// The meaning of the time for other values, and of the last sample of the series.
    pub order: Order,
    /// Whether a sample that begins the [order](Order) of its series removes the series of these
    /// labels with another type. It does so before the sample is put: if that is then refused, the
    /// other series is gone.
    pub replaces: bool,
    /// The time after which a series that did not change is hidden, if any. It counts when the
    /// family is made.
    pub expiry: Option<Duration>,
    /// The form that [observations](InputValue::Observation) are counted in.
    pub shape: Option<&'a Shape>,
    /// Whether its series keep exemplars: see [`Intake::exemplify`](super::Intake::exemplify). It
    /// counts when the family is made, and costs 8 bytes for each series. Summaries keep none.
    pub exemplars: bool,
    /// Whether its values are points of streams, as in OpenTelemetry's data model. Then an
    /// increment whose [time](Metric::time) repeats or precedes the time of the last increment is a
    /// [duplicate](Rejection::Duplicate), because a client sends an increment again if it did not
    /// get the response. Totals with different start times are from different senders, and the
    /// series is the sum of these totals, except for native histograms. To keep the time of an
    /// increment of a counter or a classic histogram costs 8 bytes for each series, in families
    /// that keep exemplars, and a hidden series for each series of other families.
    ///
    /// ```
    /// use quipu::Registry;
    /// use quipu::intake::{InputValue, Intake, Limits, Metric, Mode, Rejection};
    /// use quipu::snapshot::Timestamp;
    ///
    /// let registry = Registry::new();
    /// let mut intake = Intake::new(&registry, Limits::default())?;
    /// let mut take = |total: f64, start: u64, time: u64| {
    ///     let [start, time] = [start, time].map(|secs| Some(Timestamp::from_secs(secs)));
    ///     let jobs = Metric { streams: true, time, ..Metric::new("jobs_total") };
    ///     intake.take(jobs, &[], &InputValue::Counter(total), Mode::Follow, start)
    /// };
    /// // Two senders, which started at 100 and at 200.
    /// for (total, start, time) in [(5.0, 100, 210), (3.0, 200, 220), (7.0, 100, 230)] {
    ///     take(total, start, time)?;
    /// }
    /// assert!(registry.text().contains("jobs_total 10\n"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub streams: bool,
}

impl<'a> Metric<'a> {
    /// Creates a metric with this name.
    pub fn new(name: &'a str) -> Self {
        Self { name, ..Self::default() }
    }
}

/// A value for a series, which is complete in itself.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum InputValue<'a> {
    /// The total of a counter, or with [`Mode::Add`] an increment.
    Counter(f64),
    /// The value of a gauge, or with [`Mode::Add`] a change.
    Gauge(f64),
    /// A value of unknown type.
    Unknown(f64),
    /// A histogram with classic buckets.
    Histogram {
        /// Pairs of an upper bound and the number of observations of this bucket (not cumulative),
        /// by ascending bound. The last bound is `+Inf`.
        buckets: &'a [(f64, f64)],
        /// The sum of the observations.
        sum: f64,
    },
    /// A histogram with exponential buckets.
    Native {
        /// The buckets.
        buckets: Native<'a>,
        /// The sum of the observations.
        sum: f64,
    },
    /// A summary.
    Summary {
        /// Pairs of quantile (0 to 1) and value, by ascending quantile.
        quantiles: &'a [(f64, f64)],
        /// The number of observations.
        count: f64,
        /// The sum of the observations.
        sum: f64,
    },
    /// A single observation, which is always added, to a series of the metric's
    /// [shape](Metric::shape).
    Observation {
        /// The value.
        value: f64,
        /// How often the value counts. The weight is rounded to a whole number at random, which
        /// keeps the expected count right.
        weight: f64,
    },
}

/// A series that an intake holds.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct StoredSeries<'a> {
    /// The name of the metric, with the spelling of its source.
    pub name: &'a str,
    /// The help.
    pub help: &'a str,
    /// The unit.
    pub unit: &'a str,
    /// The type.
    pub kind: Kind,
    /// Whether the series belongs to a group.
    pub grouped: bool,
    /// The labels.
    pub labels: &'a [(&'a str, &'a str)],
    /// The value.
    pub value: &'a Value<'a>,
}

impl<'a> StoredSeries<'a> {
    pub(super) fn new(
        entry: &'a FamilyEntry,
        labels: &'a [(&'a str, &'a str)],
        value: &'a Value<'a>,
    ) -> Self {
        let schema = entry.family.schema();
        Self {
            name: &schema.name,
            help: &schema.help,
            unit: &schema.unit,
            kind: entry.kind.snapshot_kind(),
            grouped: Class::from_schema(schema).grouped,
            labels,
            value,
        }
    }
}

/// How a series keeps the order of samples with [times](Metric::time) that are followed or set. The
/// series stores the time of its last sample in its cells, so the order survives the process. A
/// sample that repeats or precedes the last one is ignored. A sample that is more than two hours
/// older, or more than ten minutes in the future, is refused.
///
/// ```
/// use quipu::Registry;
/// use quipu::intake::{InputValue, Intake, Limits, Metric, Mode, Order, Rejection};
/// use quipu::snapshot::Timestamp;
///
/// let registry = Registry::new();
/// let mut intake = Intake::new(&registry, Limits::default())?;
/// let mut take = |value: f64, time: u64| {
///     let time = Some(Timestamp::from_secs(time));
///     let metric = Metric { time, order: Order::Strict, ..Metric::new("level") };
///     intake.take(metric, &[], &InputValue::Gauge(value), Mode::Set, None)
/// };
/// assert_eq!([take(1.0, 100), take(2.0, 200), take(3.0, 100)], [Ok(()); 3]);
/// assert_eq!(take(3.0, 200), Err(Rejection::Duplicate));
/// assert!(registry.text().contains("level 2\n"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Order {
    /// Values are set in the order of their arrival, and no sample is refused for its time.
    #[default]
    Arrival,
    /// Of several values with one time, the last one to arrive counts.
    Latest,
    /// Another value with the time of the last one is a [duplicate](Rejection::Duplicate).
    Strict,
}

/// How a value changes its series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The value is added to the series; its quantiles replace the quantiles of the series.
    Add,
    /// The value is the current total of a source that may restart. The series keeps the counts
    /// from before a restart, so it only grows. A gauge is set.
    Follow,
    /// The value replaces the series' value. A counter or a classic histogram that other sources
    /// add to cannot be replaced: it follows the value.
    Set,
}

/// The form that single observations are counted in.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Shape {
    /// A histogram with these upper bounds, in ascending order; `+Inf` is added.
    Classic(Vec<f64>),
    /// A histogram with exponential buckets: the schema (-4 to 8), and the maximum number of
    /// buckets (8 to 384).
    Native(i8, u16),
    /// A summary with these quantiles, over this span of time.
    Summary(Vec<f64>, Duration),
}

/// A change of a series by a caller that does not know its metric: see
/// [`Intake::change`](super::Intake::change).
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Change<'a> {
    /// Adds to a counter or a gauge. A new metric is a counter.
    Add(f64),
    /// Sets a gauge. A new metric is a gauge.
    Set(f64),
    /// Observes a value in a histogram or a summary. A new metric gets these buckets.
    Observe(f64, Buckets<'a>),
}

/// The buckets that a value is observed in.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Buckets<'a> {
    /// The buckets of the metric; a new metric gets these.
    OrElse(&'a Shape),
    /// These buckets: a metric with other buckets is an error.
    Only(&'a Shape),
}
