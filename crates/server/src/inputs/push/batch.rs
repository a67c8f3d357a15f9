//! What the body of a push holds, with the grouping labels in place: families, their label sets, and
//! a value for each. It is complete and checked in itself before anything of it is applied.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use quipu::intake::{Given, Limits};
use quipu::snapshot::{Native, Timestamp};
use quipu_wire::remote::exposition as wire;

use super::packed::{self, SeriesSet};
use super::path::Grouping;

/// The type of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
    Summary,
    Untyped,
}

/// A family of a push.
#[derive(Debug)]
pub(super) struct Family {
    /// The name, as the text format shows it.
    pub(super) name: Arc<str>,
    pub(super) help: String,
    pub(super) unit: String,
    pub(super) kind: Kind,
    /// The labels of its series that are not grouping labels.
    pub(super) series: SeriesSet,
    /// The values of the series, in the same order.
    pub(super) values: Vec<Held>,
}

/// A value of a series.
#[derive(Debug, Clone)]
pub(super) struct Held {
    form: Form,
    sum: f64,
    /// When the sender began to count, if it says so.
    pub(super) start: Option<Timestamp>,
}

#[derive(Debug, Clone)]
enum Form {
    Counter(f64),
    Gauge(f64),
    Untyped(f64),
    Histogram(Range<usize>),
    Native(usize),
    Summary(Range<usize>, f64),
}

/// The buckets of a native histogram.
#[derive(Debug)]
struct NativeBuckets {
    schema: i8,
    zero_threshold: f64,
    zero_count: u64,
    positive: Vec<(i32, u64)>,
    negative: Vec<(i32, u64)>,
}

/// The families of a push.
#[derive(Debug)]
pub(super) struct Batch {
    grouping: Grouping,
    limits: Limits,
    families: Vec<Family>,
    /// The number of series.
    len: usize,
    by_name: HashMap<Arc<str>, usize>,
    points: Vec<(f64, f64)>,
    natives: Vec<NativeBuckets>,
    /// Packed labels of the series that is being added.
    labels: Vec<u8>,
    fault: Option<Fault>,
}

/// Why a push is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fault {
    /// The body cannot be read. The group does not notice.
    Malformed(String),
    /// The series are not valid, or contradict each other or others. The group shows the time.
    Inconsistent(String),
}

impl Kind {
    pub(super) const ALL: [Self; 5] =
        [Self::Counter, Self::Gauge, Self::Histogram, Self::Summary, Self::Untyped];

    /// The name that Pushgateway's API has for it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Counter => "COUNTER",
            Self::Gauge => "GAUGE",
            Self::Histogram => "HISTOGRAM",
            Self::Summary => "SUMMARY",
            Self::Untyped => "UNTYPED",
        }
    }
}

impl Batch {
    /// An empty push to a group.
    pub(super) fn new(grouping: Grouping, limits: &Limits) -> Self {
        Self {
            grouping,
            limits: limits.clone(),
            families: Vec::new(),
            len: 0,
            by_name: HashMap::new(),
            points: Vec::new(),
            natives: Vec::new(),
            labels: Vec::new(),
            fault: None,
        }
    }

    /// The labels of the group.
    pub(super) fn grouping(&self) -> &Grouping {
        &self.grouping
    }

    /// The families, each name once.
    pub(super) fn families(&self) -> &[Family] {
        &self.families
    }

    /// The family of that name.
    pub(super) fn family(&self, name: &str) -> Option<&Family> {
        self.by_name.get(name).map(|at| &self.families[*at])
    }

    /// The number of series.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Ends the batch: returns the first fault that does not concern the form of the body.
    pub(super) fn finish(&mut self) -> Result<(), Fault> {
        self.fault.take().map_or(Ok(()), Err)
    }

    /// Notes a series that came twice.
    pub(super) fn twice(&mut self, name: &str) {
        self.note(format!(
            "a series of {name:?} was collected before with the same name and label values: push \
             each once, and note that the grouping labels replace those of the series"
        ));
    }

    /// Adds a family as it was read. `is_openmetrics` says that names lack their suffixes.
    ///
    /// # Errors
    /// [`Fault::Malformed`]
    pub(super) fn add(
        &mut self,
        family: wire::Family<'_>,
        is_openmetrics: bool,
    ) -> Result<(), Fault> {
        let (kind, suffix) = match family.kind() {
            wire::Kind::Counter => (Kind::Counter, "_total"),
            wire::Kind::Gauge | wire::Kind::StateSet => (Kind::Gauge, ""),
            wire::Kind::Info => (Kind::Gauge, "_info"),
            wire::Kind::Histogram => (Kind::Histogram, ""),
            wire::Kind::Summary => (Kind::Summary, ""),
            wire::Kind::Unknown => (Kind::Untyped, ""),
            _ => {
                let what = "the type of the family cannot be pushed: use counter, gauge, \
                            histogram, summary or untyped";
                return Err(malformed(family.name(), what));
            }
        };
        let suffix = if is_openmetrics { suffix } else { "" };
        let name = [family.name(), suffix].concat();
        if OWN.contains(&&*name) {
            // They are the gateway's.
            return Ok(());
        }
        if let Some(prefix) = self.limits.reserved.filter(|prefix| name.starts_with(*prefix)) {
            if LIBRARY.contains(&name.strip_suffix("_total").unwrap_or(&name)) {
                return Ok(());
            }
            let what =
                format!("names that begin with {prefix:?} are the daemon's: choose another name");
            return Err(malformed(&name, &what));
        }
        if name.len() > self.limits.name_bytes {
            let what = format!("the name is longer than {} bytes", self.limits.name_bytes);
            return Err(malformed(&name, &what));
        }
        let at = self.family_at(&name, kind, family)?;
        for metric in family.metrics() {
            self.series(at, metric)?;
        }
        Ok(())
    }

    /// The value of a series, as an intake takes it.
    pub(super) fn with_given<R>(&self, held: &Held, act: impl FnOnce(&Given<'_>) -> R) -> R {
        let sum = held.sum;
        match &held.form {
            Form::Counter(total) => act(&Given::Counter(*total)),
            Form::Gauge(value) => act(&Given::Gauge(*value)),
            Form::Untyped(value) => act(&Given::Unknown(*value)),
            Form::Histogram(points) => {
                act(&Given::Histogram { buckets: &self.points[points.clone()], sum })
            }
            Form::Summary(points, count) => {
                let quantiles = &self.points[points.clone()];
                act(&Given::Summary { quantiles, count: *count, sum })
            }
            Form::Native(at) => {
                let native = &self.natives[*at];
                let buckets = Native {
                    schema: native.schema,
                    zero_threshold: native.zero_threshold,
                    zero_count: native.zero_count,
                    positive: &native.positive,
                    negative: &native.negative,
                    exemplars: &[],
                };
                act(&Given::Native { buckets, sum })
            }
        }
    }

    /// The family of that name. A second part of a family adds to the first, if that is not
    /// ambiguous.
    fn family_at(
        &mut self,
        name: &str,
        kind: Kind,
        family: wire::Family<'_>,
    ) -> Result<usize, Fault> {
        if let Some(&at) = self.by_name.get(name) {
            let is_plain = !matches!(self.families[at].kind, Kind::Histogram | Kind::Summary);
            return match kind {
                Kind::Untyped if is_plain => Ok(at),
                _ => Err(malformed(name, "the lines of the family must come together")),
            };
        }
        if self.families.len() as u64 >= self.limits.families {
            let what = format!("a push has at most {} families", self.limits.families);
            return Err(malformed(name, &what));
        }
        let name: Arc<str> = name.into();
        let at = self.families.len();
        self.by_name.insert(name.clone(), at);
        self.families.push(Family {
            name,
            help: family.help().to_owned(),
            unit: family.unit().to_owned(),
            kind,
            series: SeriesSet::default(),
            values: Vec::new(),
        });
        Ok(at)
    }

    fn series(&mut self, at: usize, metric: wire::Metric<'_>) -> Result<(), Fault> {
        if metric.timestamp_ms().is_some() {
            self.note("pushed metrics must not have timestamps".to_owned());
        }
        self.labels(at, metric)?;
        let Some(held) = self.held(at, metric) else {
            let name = self.families[at].name.clone();
            let what = "a count is not a whole number that is at least zero, or cumulative counts \
                        of buckets fall";
            self.note(format!("{name:?} cannot be taken: {what}"));
            return Ok(());
        };
        let family = &mut self.families[at];
        if self.len as u64 >= self.limits.series {
            let what = format!("a push has at most {} series", self.limits.series);
            return Err(malformed(&family.name, &what));
        }
        if family.series.insert(&self.labels) {
            family.values.push(held);
            self.len += 1;
        } else {
            let name = family.name.clone();
            self.twice(&name);
        }
        Ok(())
    }

    /// Packs the labels of a series that are not the group's.
    fn labels(&mut self, at: usize, metric: wire::Metric<'_>) -> Result<(), Fault> {
        let Self { grouping, limits, labels, families, .. } = self;
        labels.clear();
        let mut count = grouping.labels().count() + 1;
        for (name, value) in metric.labels() {
            if grouping.value(name).is_some() {
                continue;
            }
            count += usize::from(name != "instance");
            let fault = if name.starts_with("__") {
                "names of labels that begin with two underscores are reserved"
            } else if name.len() > limits.name_bytes || value.len() > limits.value_bytes {
                "the name or the value of a label is too long"
            } else {
                packed::push(labels, [(name, value)].into_iter());
                continue;
            };
            return Err(malformed(&families[at].name, &format!("{fault}: {name:?}")));
        }
        if count > limits.labels {
            let what = format!("there are more than {} labels", limits.labels);
            return Err(malformed(&families[at].name, &what));
        }
        Ok(())
    }

    /// The value of a series. `None` if it is not possible.
    fn held(&mut self, at: usize, metric: wire::Metric<'_>) -> Option<Held> {
        let mut sum = 0.0;
        let form = match metric.value() {
            // The second part of a family has no type.
            wire::Value::Unknown(value) => match self.families[at].kind {
                Kind::Counter => Form::Counter(is_count(value).then_some(value)?),
                Kind::Gauge => Form::Gauge(value),
                _ => Form::Untyped(value),
            },
            wire::Value::Counter { total, .. } => Form::Counter(is_count(total).then_some(total)?),
            wire::Value::Gauge(value) => Form::Gauge(value),
            wire::Value::Histogram(histogram) => {
                sum = histogram.sum.unwrap_or(0.0);
                match histogram.native {
                    Some(native) if histogram.buckets().len() == 0 => self.native(native)?,
                    _ => self.histogram(histogram)?,
                }
            }
            wire::Value::Summary(summary) => {
                sum = summary.sum.unwrap_or(0.0);
                let start = self.points.len();
                self.points.extend(summary.quantiles());
                let count = summary.count.unwrap_or(0.0);
                Form::Summary(start..self.points.len(), is_count(count).then_some(count)?)
            }
            _ => return None,
        };
        let start = metric.created_ms().and_then(|ms| u64::try_from(ms).ok());
        let start = start.map(|ms| Timestamp(ms.saturating_mul(1_000_000)));
        Some(Held { form, sum, start })
    }

    /// The counts of buckets alone; the last bucket has no bound.
    fn histogram(&mut self, histogram: wire::Histogram<'_>) -> Option<Form> {
        let start = self.points.len();
        let mut before = 0.0;
        let mut is_ended = false;
        for bucket in histogram.buckets() {
            let count = bucket.cumulative_count;
            is_count(count).then_some(())?;
            (count >= before).then_some(())?;
            self.points.push((bucket.upper_bound, count - before));
            before = count;
            is_ended = bucket.upper_bound == f64::INFINITY;
        }
        if !is_ended {
            let count = histogram.count.unwrap_or(before).max(before);
            self.points.push((f64::INFINITY, is_count(count).then_some(count - before)?));
        }
        Some(Form::Histogram(start..self.points.len()))
    }

    fn native(&mut self, native: wire::Native<'_>) -> Option<Form> {
        let buckets = |buckets: &[(i32, f64)]| {
            let whole = buckets.iter().map(|(index, count)| Some((*index, whole(*count)?)));
            whole.collect::<Option<Vec<_>>>()
        };
        self.natives.push(NativeBuckets {
            schema: i8::try_from(native.schema).ok()?,
            zero_threshold: native.zero_threshold,
            zero_count: whole(native.zero_count)?,
            positive: buckets(native.positive)?,
            negative: buckets(native.negative)?,
        });
        Some(Form::Native(self.natives.len() - 1))
    }

    fn note(&mut self, what: String) {
        self.fault.get_or_insert(Fault::Inconsistent(what));
    }
}

fn is_count(count: f64) -> bool {
    count >= 0.0
}

/// A whole number of events.
fn whole(count: f64) -> Option<u64> {
    // Counts up to 2^53 are exact.
    let is_whole = (0.0..=9_007_199_254_740_992.0).contains(&count) && count.fract() == 0.0;
    is_whole.then_some(count as u64)
}

fn malformed(name: &str, what: &str) -> Fault {
    Fault::Malformed(format!("the metric {name:?} cannot be taken: {what}"))
}

/// The gateway's own metrics of each group.
pub(super) const PUSH_TIME: &str = "push_time_seconds";
pub(super) const FAILURE_TIME: &str = "push_failure_time_seconds";
pub(super) const PUSH_HELP: &str =
    "Last Unix time when changing this group in the Pushgateway succeeded.";
pub(super) const FAILURE_HELP: &str =
    "Last Unix time when changing this group in the Pushgateway failed.";
/// The time after which a group expires, if its pushes said so; in the segment to outlast a restart.
pub(super) const EXPIRY: &str = "push_expiry_seconds";
pub(super) const EXPIRY_HELP: &str =
    "Time after which this group expires if it is not pushed to; 0 for never.";
/// All of them. The times of pushes are last: a group without them is none.
pub(super) const OWN: [&str; 3] = [EXPIRY, FAILURE_TIME, PUSH_TIME];

/// What programs that use the library quipu expose of their own accord, without `_total`. It is left
/// out: their pushes are not to fail for it.
const LIBRARY: [&str; 2] = ["quipu_series_overflowed", "quipu_variants_not_shown"];

impl Fault {
    /// A word for it.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Malformed(_) => "malformed",
            Self::Inconsistent(_) => "inconsistent",
        }
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Malformed(what) => f.write_str(what),
            Self::Inconsistent(what) => write!(
                f,
                "pushed metrics are invalid or inconsistent with existing metrics: {what}"
            ),
        }
    }
}
