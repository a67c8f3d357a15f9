//! Builds the [`Content`] of a push from the families that a parser finds in its body. The builder
//! validates each family, merges its parts, and packs the labels of its series.

use std::mem::take;
use std::ops::Range;
use std::sync::Arc;

use quipu::exposition::{Escaping, escape_name};
use quipu::intake::Limits;
use quipu::snapshot::Timestamp;
use quipu_process::text::cut;
use quipu_wire::remote::exposition as wire;

use super::content::{Content, NativeBuckets, PushFamilies, PushFamily, SeriesValue, Values};
use super::packed;
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

/// The content of a push under construction. Add all families, and then call [`Self::finish`].
#[derive(Debug)]
pub(super) struct ContentBuilder {
    grouping: Grouping,
    limits: Limits,
    families: PushFamilies,
    /// The values of the series of each family, in the order of `families`.
    values: Vec<Vec<SeriesValue>>,
    points: Vec<(f64, f64)>,
    natives: Vec<NativeBuckets>,
    /// A reused buffer for the packed labels of the current series.
    labels: Vec<u8>,
    /// The first error that does not concern the syntax; [`Self::finish`] returns it.
    fault: Option<PushError>,
}

/// The reason why a whole push is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PushError {
    /// The body is unreadable, and the group does not change.
    Malformed(String),
    /// The series are invalid, or conflict with each other or with other groups. The group stores
    /// the time of this failure.
    Inconsistent(String),
}

impl Kind {
    pub(super) const ALL: [Self; 5] =
        [Self::Counter, Self::Gauge, Self::Histogram, Self::Summary, Self::Untyped];

    /// Returns whether a value is valid for this type. For example, a counter cannot be negative.
    pub(super) fn has_value(self, value: f64) -> bool {
        !matches!(self, Self::Counter | Self::Summary) || is_count(value)
    }

    /// Returns the name of the type in Pushgateway's API.
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

impl ContentBuilder {
    /// Creates a builder for a push to a group.
    pub(super) fn new(grouping: Grouping, limits: &Limits) -> Self {
        Self {
            grouping,
            limits: limits.clone(),
            families: PushFamilies::default(),
            values: Vec::new(),
            points: Vec::new(),
            natives: Vec::new(),
            labels: Vec::new(),
            fault: None,
        }
    }

    pub(super) fn grouping(&self) -> &Grouping {
        &self.grouping
    }

    pub(super) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Returns the number of series so far.
    pub(super) fn len(&self) -> usize {
        self.families.len()
    }

    /// Returns the content, and resets the builder.
    ///
    /// # Errors
    /// Returns the first fault that does not concern the syntax of the body.
    pub(super) fn finish(&mut self) -> Result<Content, PushError> {
        if let Some(fault) = self.fault.take() {
            return Err(fault);
        }
        let values = Values {
            series: take(&mut self.values).into_iter().flatten().collect(),
            points: take(&mut self.points),
            natives: take(&mut self.natives),
        };
        let mut families = take(&mut self.families);
        families.shrink();
        let families = Arc::new(families);
        Ok(Content { job: self.grouping.job().to_owned(), families, values, form: None })
    }

    /// Records the error of a duplicate series.
    pub(super) fn note_duplicate(&mut self, name: &str) {
        self.note(format!(
            "a series of {name:?} was collected before with the same name and label values: push \
             each once, and note that the grouping labels replace those of the series"
        ));
    }

    /// Adds a family with its series. In OpenMetrics (`is_openmetrics`), names lack suffixes such
    /// as `_total`, which are then added.
    ///
    /// # Errors
    /// Returns [`PushError::Malformed`] if the family is unreadable.
    pub(super) fn add(
        &mut self,
        family: wire::Family<'_>,
        is_openmetrics: bool,
    ) -> Result<(), PushError> {
        let (kind, suffix) = match family.kind() {
            wire::FamilyType::Counter => (Kind::Counter, "_total"),
            wire::FamilyType::Gauge | wire::FamilyType::StateSet => (Kind::Gauge, ""),
            wire::FamilyType::Info => (Kind::Gauge, "_info"),
            wire::FamilyType::Histogram => (Kind::Histogram, ""),
            wire::FamilyType::Summary => (Kind::Summary, ""),
            wire::FamilyType::Unknown => (Kind::Untyped, ""),
            _ => {
                let detail = "the type of the family cannot be pushed: use counter, gauge, \
                            histogram, summary or untyped";
                return Err(malformed(family.name(), detail));
            }
        };
        let suffix = if is_openmetrics { suffix } else { "" };
        let name = [family.name(), suffix].concat();
        if OWN.contains(&&*name) {
            // The gateway writes these series itself.
            return Ok(());
        }
        let mut escaped = String::new();
        escape_name(&name, Escaping::Underscores, &mut escaped);
        if let Some(prefix) = self.limits.reserved.filter(|prefix| escaped.starts_with(*prefix)) {
            if LIBRARY_METRICS.contains(&name.strip_suffix("_total").unwrap_or(&name)) {
                return Ok(());
            }
            let detail = format!(
                "names that begin with {prefix:?}, or do so once escaped, are the daemon's: choose \
                 another name"
            );
            return Err(malformed(&name, &detail));
        }
        if name.len() > self.limits.name_bytes {
            let detail = format!("the name is longer than {} bytes", self.limits.name_bytes);
            return Err(malformed(&name, &detail));
        }
        let at = self.family_at(&name, kind, family)?;
        for metric in family.metrics() {
            self.series(at, metric)?;
        }
        Ok(())
    }

    /// Returns the index of the family with this name, and adds it if it is new. A second part of a
    /// family extends the first part, unless their types conflict.
    fn family_at(
        &mut self,
        name: &str,
        kind: Kind,
        family: wire::Family<'_>,
    ) -> Result<usize, PushError> {
        if let Some(at) = self.families.position(name) {
            let is_plain = !matches!(self.kind_at(at), Some(Kind::Histogram | Kind::Summary));
            return match kind {
                Kind::Untyped if is_plain => Ok(at),
                _ => Err(malformed(name, "the lines of the family must come together")),
            };
        }
        if self.families.count() as u64 >= self.limits.families {
            let detail = format!("a push has at most {} families", self.limits.families);
            return Err(malformed(name, &detail));
        }
        self.values.push(Vec::new());
        Ok(self.families.add(PushFamily {
            name: name.into(),
            help: family.help().to_owned(),
            unit: family.unit().to_owned(),
            kind,
            series: Arc::default(),
        }))
    }

    fn kind_at(&self, at: usize) -> Option<Kind> {
        self.families.at(at).map(|family| family.kind)
    }

    fn name_at(&self, at: usize) -> Arc<str> {
        self.families.at(at).map_or_else(|| "".into(), |family| family.name.clone())
    }

    fn series(&mut self, at: usize, metric: wire::FamilyMetric<'_>) -> Result<(), PushError> {
        if metric.timestamp_ms().is_some() {
            self.note("pushed metrics must not have timestamps".to_owned());
        }
        self.labels(at, metric)?;
        let Some(series_value) = self.value(at, metric) else {
            let name = self.name_at(at);
            let detail = "a count is not a whole number that is at least zero, or cumulative \
                        counts of buckets fall";
            self.note(format!("{name:?} cannot be taken: {detail}"));
            return Ok(());
        };
        if self.len() as u64 >= self.limits.series {
            let detail = format!("a push has at most {} series", self.limits.series);
            return Err(malformed(&self.name_at(at), &detail));
        }
        if self.families.add_series(at, &self.labels) {
            self.values[at].push(series_value);
        } else {
            self.note_duplicate(&self.name_at(at));
        }
        Ok(())
    }

    /// Packs the labels of a series into `self.labels`, without the labels of the group.
    fn labels(&mut self, at: usize, metric: wire::FamilyMetric<'_>) -> Result<(), PushError> {
        let Self { grouping, limits, labels, .. } = self;
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
            return Err(malformed(&self.name_at(at), &format!("{fault}: {name:?}")));
        }
        if count > limits.labels {
            let detail = format!("there are more than {} labels", limits.labels);
            return Err(malformed(&self.name_at(at), &detail));
        }
        Ok(())
    }

    /// Converts the value of a series; `None` if it is impossible for its type.
    fn value(&mut self, at: usize, metric: wire::FamilyMetric<'_>) -> Option<SeriesValue> {
        let start = self.points.len();
        let mut series_value = SeriesValue { points: start..start, ..SeriesValue::default() };
        match metric.value() {
            wire::MetricValue::Counter { total: value, .. }
            | wire::MetricValue::Gauge(value)
            | wire::MetricValue::Unknown(value) => series_value.value = value,
            wire::MetricValue::Histogram(histogram) => {
                series_value.sum = histogram.sum.unwrap_or(0.0);
                match histogram.native {
                    Some(native) if histogram.buckets().len() == 0 => {
                        series_value.native = Some(self.native(native)?);
                    }
                    _ => series_value.points = self.histogram(histogram)?,
                }
            }
            wire::MetricValue::Summary(summary) => {
                (series_value.value, series_value.sum) =
                    (summary.count.unwrap_or(0.0), summary.sum.unwrap_or(0.0));
                self.points.extend(summary.quantiles());
                series_value.points.end = self.points.len();
            }
            _ => return None,
        }
        let start = metric.created_ms().and_then(|ms| u64::try_from(ms).ok());
        series_value.start = start.map(Timestamp::from_millis);
        self.kind_at(at)?.has_value(series_value.value).then_some(series_value)
    }

    /// Converts the cumulative buckets of a histogram to counts per bucket. The last bucket has no
    /// upper bound.
    fn histogram(&mut self, histogram: wire::Histogram<'_>) -> Option<Range<usize>> {
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
        Some(start..self.points.len())
    }

    fn native(&mut self, native: wire::Native<'_>) -> Option<usize> {
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
        Some(self.natives.len() - 1)
    }

    fn note(&mut self, detail: String) {
        self.fault.get_or_insert(PushError::Inconsistent(detail));
    }
}

/// Returns whether a value can be a number of events.
fn is_count(count: f64) -> bool {
    count >= 0.0
}

/// Converts a value to an integer; `None` if it is negative, fractional or above 2^53.
fn whole(count: f64) -> Option<u64> {
    // Above 2^53, a float does not represent each integer.
    let is_whole = (0.0..=9_007_199_254_740_992.0).contains(&count) && count.fract() == 0.0;
    is_whole.then_some(count as u64)
}

/// Creates an error with the beginning of the name, because clients and logs cut long messages.
fn malformed(name: &str, detail: &str) -> PushError {
    let name = cut(name, MOST_SHOWN);
    PushError::Malformed(format!("the metric {name:?} cannot be taken: {detail}"))
}

/// The maximum length of a name in an error, in bytes.
const MOST_SHOWN: usize = 128;

/// The name of the metric with the time of the last successful push.
pub(super) const PUSH_TIME: &str = "push_time_seconds";
/// The name of the metric with the time of the last failed push.
pub(super) const FAILURE_TIME: &str = "push_failure_time_seconds";
/// The help of [`PUSH_TIME`].
pub(super) const PUSH_HELP: &str =
    "Last Unix time when changing this group in the Pushgateway succeeded.";
/// The help of [`FAILURE_TIME`].
pub(super) const FAILURE_HELP: &str =
    "Last Unix time when changing this group in the Pushgateway failed.";
/// The time after which a group expires, if its pushes set one. This is stored as a series, because
/// it must survive a restart of the daemon.
pub(super) const EXPIRY: &str = "push_expiry_seconds";
/// The help of [`EXPIRY`].
pub(super) const EXPIRY_HELP: &str =
    "Time after which this group expires if it is not pushed to; 0 for never.";
/// The names of the gateway's own metrics. The time of pushes is last, because removing it removes
/// the group.
pub(super) const OWN: [&str; 3] = [EXPIRY, FAILURE_TIME, PUSH_TIME];

/// The metrics of quipu's own library, without `_total`. A program that uses the library pushes
/// them too, so we skip them instead of refusing the push.
const LIBRARY_METRICS: [&str; 4] = [
    "quipu_series_omitted",
    "quipu_series_overflowed",
    "quipu_variants_not_shown",
    "quipu_families_unreadable",
];

impl PushError {
    /// Returns the reason as the value of a label.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Malformed(_) => "malformed",
            Self::Inconsistent(_) => "inconsistent",
        }
    }
}

impl std::fmt::Display for PushError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Malformed(detail) => f.write_str(detail),
            Self::Inconsistent(detail) => write!(
                f,
                "pushed metrics are invalid or inconsistent with existing metrics: {detail}"
            ),
        }
    }
}
