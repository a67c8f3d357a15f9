//! Converts OTLP data points to samples of the intake. Resources, scopes and metrics are converted
//! once for consecutive points that share them.

use std::fmt;

use quipu::intake::{InputExemplar, InputValue, Intake, Limits, Metric, Mode, Rejection};
use quipu::snapshot::{Native, Timestamp};
use quipu_wire::remote::otlp::{
    ExponentialBuckets, ExponentialPoint, HistogramPoint, MetricsExemplar, Number, Point,
    PointValue, SummaryPoint, Temporality,
};

use super::labels::{self, LabelRules, Labels, Target};
use crate::Shared;
use quipu_process::address::Source;
use quipu_process::text::cut;
use quipu_translate::otlp::Kind;

/// The reason why a data point was refused. [`PointError::reason`] returns the value of the label
/// `reason`.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum PointError {
    /// The intake refused the point; the explanation is added later.
    Intake(Rejection),
    /// The intake refused the point, with its explanation.
    Explained(Rejection, String),
    /// The name of the metric is empty after translation.
    Name,
    /// The key of an attribute is empty after translation.
    Key(String),
    /// The point contains no value.
    Empty,
    /// The point contains no temporality (delta or cumulative).
    Temporality,
    /// The scale is less than -4, the minimum in Prometheus.
    Scale(i32),
    /// The buckets do not match the bounds or the count.
    Buckets,
}

impl From<Rejection> for PointError {
    fn from(refused: Rejection) -> Self {
        Self::Intake(refused)
    }
}

impl PointError {
    /// Adds the explanation of the intake that refused the point.
    pub(super) fn explained(self, intake: &Intake) -> Self {
        match self {
            Self::Intake(refused @ (Rejection::Collision | Rejection::Reserved)) => {
                Self::Explained(refused, intake.explain(refused).to_string())
            }
            other => other,
        }
    }

    /// Creates the error for a key that is empty after translation. Long keys are truncated.
    pub(super) fn key(key: &str) -> Self {
        Self::Key(cut(key, 100).into())
    }

    /// Returns whether the point is a duplicate of an accepted one.
    pub(super) fn is_duplicate(&self) -> bool {
        *self == Self::Intake(Rejection::Duplicate)
    }

    /// Returns the reason as the value of a label.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Intake(refused) | Self::Explained(refused, _) => refused.reason(),
            Self::Name => Rejection::Name.reason(),
            Self::Key(_) => Rejection::LabelName.reason(),
            Self::Empty => Rejection::Value.reason(),
            Self::Temporality => "temporality",
            Self::Scale(_) => "scale",
            Self::Buckets => Rejection::Buckets.reason(),
        }
    }
}

impl fmt::Display for PointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Intake(Rejection::Senders) => f.write_str(
                "too many processes send this series at once: set service.instance.id for each \
                 process",
            ),
            Self::Intake(refused) => refused.fmt(f),
            Self::Explained(_, explanation) => f.write_str(explanation),
            Self::Name => f.write_str("the name has no letter, digit or colon"),
            Self::Key(key) => write!(f, "the key {key:?} of an attribute has no letter or digit"),
            Self::Empty => f.write_str("the data point has no value"),
            Self::Temporality => {
                f.write_str("the aggregation temporality is missing: send delta or cumulative")
            }
            Self::Scale(scale) => write!(f, "the scale {scale} is too coarse: send -4 or more"),
            Self::Buckets => f.write_str(
                "the buckets do not fit: there is one more than bounds, and their sum is the count",
            ),
        }
    }
}

/// Converts points. It caches the results for the current resource, scope and metric.
pub(super) struct Translator {
    shared: &'static Shared,
    /// The indices of the current resource, scope and metric in the request.
    numbers: [usize; 3],
    target: Target,
    scope: Labels,
    name: String,
    unit: String,
    /// The errors of the current resource, scope and metric.
    faults: [Option<PointError>; 3],
    labels: Labels,
    /// A reused buffer for the labels of an exemplar.
    exemplar: Labels,
    buckets: Buckets,
}

/// Reused buffers for the buckets of a histogram.
#[derive(Debug, Default)]
struct Buckets {
    classic: Vec<(f64, f64)>,
    positive: Vec<(i32, u64)>,
    negative: Vec<(i32, u64)>,
    quantiles: Vec<(f64, f64)>,
}

impl Translator {
    pub(super) fn new(shared: &'static Shared) -> Self {
        Self {
            shared,
            numbers: [0; 3],
            target: Target::default(),
            scope: Labels::default(),
            name: String::new(),
            unit: String::new(),
            faults: [None, None, None],
            labels: Labels::default(),
            exemplar: Labels::default(),
            buckets: Buckets::default(),
        }
    }

    /// Returns the job of the current resource. It is the source of its points, for limits.
    pub(super) fn source(&self) -> &str {
        &self.target.job
    }

    /// Stores a point in the intake. A repeated point returns [`Rejection::Duplicate`].
    pub(super) fn take(
        &mut self,
        intake: &mut Intake,
        point: &Point<'_, '_>,
    ) -> Result<(), PointError> {
        self.describe(intake, point);
        if let Some(error) = self.faults.iter().flatten().next() {
            return Err(error.clone());
        }
        let name = &self.name;
        let labels = &mut self.labels;
        labels.clear();
        let rules = LabelRules {
            translation: self.shared.options.otlp.translation,
            limits: intake.limits(),
        };
        labels.add(rules, point.attributes, |_| true)?;
        self.target.add_to(labels);
        self.scope.iter().for_each(|(name, value)| labels.set(name, value));
        let pairs: Vec<(&str, &str)> = self.labels.iter().collect();
        if point.no_recorded_value {
            end(self.shared, intake, name, &pairs, &point.value);
            return Ok(());
        }
        let (given, mode) = self.buckets.given(&point.value)?;
        let metric = Metric {
            help: point.metric.description,
            unit: &self.unit,
            expiry: self.shared.options.common.expiry,
            exemplars: true,
            streams: true,
            time: point.time_ns.map(Timestamp::from_nanos),
            ..Metric::new(name)
        };
        let start = point.start_ns.filter(|_| mode == Mode::Follow).map(Timestamp::from_nanos);
        let taken = self.shared.take(intake, metric, &pairs, &given, mode, start);
        taken.map_err(PointError::Intake)?;
        for exemplar in point.exemplars {
            let Some(value) = exemplar.value else { continue };
            let limits = intake.limits();
            let rules = LabelRules { translation: self.shared.options.otlp.translation, limits };
            describe_exemplar(&mut self.exemplar, point, exemplar, rules);
            let labels: Vec<(&str, &str)> = self.exemplar.iter().collect();
            let time = exemplar.time_ns.map(Timestamp::from_nanos);
            let exemplar = InputExemplar { labels: &labels, value: value.as_f64(), time };
            self.shared.exemplify(intake, name, &pairs, &exemplar);
        }
        Ok(())
    }

    /// Converts the resource, the scope and the metric of a point, if they differ from the previous
    /// point.
    fn describe(&mut self, intake: &mut Intake, point: &Point<'_, '_>) {
        let shared = self.shared;
        let translation = shared.options.otlp.translation;
        let numbers = [point.resource.number, point.scope.number, point.metric.number];
        if self.numbers[0] != numbers[0] {
            let rules = LabelRules { translation, limits: intake.limits() };
            let read =
                self.target.read(point.resource.attributes, rules, &shared.options.otlp.promote);
            self.faults[0] = read.err();
            intake.set_source(&Source::Job(&self.target.job));
            if self.faults[0].is_none() && !self.target.info.is_empty() {
                let pairs: Vec<(&str, &str)> = self.target.info.iter().collect();
                let (help, expiry) = ("Target metadata", shared.options.common.expiry);
                let metric = Metric { help, expiry, ..Metric::new("target_info") };
                // Ignore the result: this series only describes the others, and the intake refuses
                // them for the same reason.
                let _ =
                    shared.take(intake, metric, &pairs, &InputValue::Gauge(1.0), Mode::Set, None);
            }
        }
        if self.numbers[1] != numbers[1] {
            let rules = LabelRules { translation, limits: intake.limits() };
            self.faults[1] = labels::set_scope_labels(&mut self.scope, &point.scope, rules).err();
        }
        if self.numbers[2] != numbers[2] {
            self.faults[2] = self.describe_metric(intake.limits(), point).err();
        }
        self.numbers = numbers;
    }

    fn describe_metric(
        &mut self,
        limits: &Limits,
        point: &Point<'_, '_>,
    ) -> Result<(), PointError> {
        let translation = self.shared.options.otlp.translation;
        let (name, unit) = (point.metric.name, point.metric.unit);
        // Check the length first, because the translation takes many times the memory of the name.
        if name.len() > limits.name_bytes || unit.len() > limits.name_bytes {
            return Err(PointError::Intake(Rejection::Name));
        }
        let kind = match point.value {
            PointValue::Sum { monotonic: true, .. } => Kind::Counter,
            PointValue::Gauge(_) => Kind::Gauge,
            _ => Kind::Other,
        };
        self.name = translation.metric(name, unit, kind).ok_or(PointError::Name)?;
        self.unit = translation.unit(unit);
        // The text formats allow a unit only if the metric name ends with this unit.
        let base = self.name.strip_suffix("_total").unwrap_or(&self.name);
        if !base.strip_suffix(&*self.unit).is_some_and(|rest| rest.ends_with('_')) {
            self.unit.clear();
        }
        Ok(())
    }
}

/// Sets the labels of an exemplar: the IDs of its trace and span, and its attributes if they are
/// short enough in total.
fn describe_exemplar(
    labels: &mut Labels,
    point: &Point<'_, '_>,
    exemplar: &MetricsExemplar<'_>,
    rules: LabelRules<'_>,
) {
    labels.clear();
    let attributes = point.exemplar_attributes(exemplar);
    let is_read = labels.add(rules, attributes, |_| true).is_ok();
    let length = |(name, value): (&str, &str)| name.chars().count() + value.chars().count();
    if !is_read || labels.iter().map(length).sum::<usize>() > ATTRIBUTE_CHARACTERS {
        labels.clear();
    }
    let ids = [("trace_id", exemplar.trace_id, 16), ("span_id", exemplar.span_id, 8)];
    for (name, id, length) in ids {
        if id.len() == length {
            let digits: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
            labels.set(name, &digits);
        }
    }
}

/// The maximum length of an exemplar's attributes in characters: the 128 characters of OpenMetrics,
/// minus the labels for the trace and the span.
const ATTRIBUTE_CHARACTERS: usize = 128 - ("trace_id".len() + 32 + "span_id".len() + 16);

/// Ends a series. A gauge is removed, but a total stays, because the series can continue later.
fn end(
    shared: &Shared,
    intake: &mut Intake,
    name: &str,
    labels: &[(&str, &str)],
    value: &PointValue<'_>,
) {
    if matches!(value, PointValue::Gauge(_) | PointValue::Sum { monotonic: false, .. }) {
        // Ignore the error: if the segment cannot be locked, the gauge only keeps its last value.
        let _ = shared.end(intake, name, labels, None);
    }
}

impl Buckets {
    /// Returns the value of a point, and the mode for storing it.
    fn given<'b>(
        &'b mut self,
        value: &PointValue<'_>,
    ) -> Result<(InputValue<'b>, Mode), PointError> {
        let number = |value: Option<Number>| value.map(Number::as_f64).ok_or(PointError::Empty);
        match *value {
            PointValue::Gauge(value) => Ok((InputValue::Gauge(number(value)?), Mode::Set)),
            PointValue::Sum { value, monotonic: true, temporality } => {
                Ok((InputValue::Counter(number(value)?), mode(temporality)?))
            }
            PointValue::Sum { value, monotonic: false, temporality } => {
                let mode = match mode(temporality)? {
                    Mode::Follow => Mode::Set,
                    other => other,
                };
                Ok((InputValue::Gauge(number(value)?), mode))
            }
            PointValue::Histogram { point, temporality } => {
                Ok((self.classic(&point)?, mode(temporality)?))
            }
            PointValue::Exponential { point, temporality } => {
                Ok((self.native(&point)?, mode(temporality)?))
            }
            PointValue::Summary(point) => Ok((self.summary(&point), Mode::Follow)),
            _ => Err(PointError::Empty),
        }
    }

    fn classic(&mut self, point: &HistogramPoint<'_>) -> Result<InputValue<'_>, PointError> {
        let HistogramPoint { buckets, bounds, .. } = *point;
        // Without buckets, a single one contains all values.
        let counts = if buckets.is_empty() { std::slice::from_ref(&point.count) } else { buckets };
        let total = counts.iter().try_fold(0_u64, |sum, count| sum.checked_add(*count));
        if total != Some(point.count) || counts.len() != bounds.len() + 1 {
            return Err(PointError::Buckets);
        }
        let bounds = bounds.iter().copied().chain([f64::INFINITY]);
        self.classic.clear();
        for (bound, count) in bounds.zip(counts) {
            match self.classic.last_mut() {
                // If the sender's last bound is infinite, there are no values above it.
                Some((last, sum)) if *last == f64::INFINITY => *sum += *count as f64,
                _ => self.classic.push((bound, *count as f64)),
            }
        }
        Ok(InputValue::Histogram { buckets: &self.classic, sum: point.sum.unwrap_or(0.0) })
    }

    fn native(&mut self, point: &ExponentialPoint<'_>) -> Result<InputValue<'_>, PointError> {
        const COARSEST: i32 = -4;
        const FINEST: i32 = 8;
        if point.scale < COARSEST {
            return Err(PointError::Scale(point.scale));
        }
        let schema = point.scale.min(FINEST);
        let merge = point.scale - schema;
        let sum = indexed(&mut self.positive, point.positive, merge)?
            .checked_add(indexed(&mut self.negative, point.negative, merge)?)
            .and_then(|sum| sum.checked_add(point.zero_count));
        if sum != Some(point.count) {
            return Err(PointError::Buckets);
        }
        let threshold = point.zero_threshold;
        let is_threshold = threshold > 0.0 && threshold.is_finite();
        // The schema is -4 to 8.
        let buckets = Native::new(schema as i8)
            .zero(if is_threshold { threshold } else { ZERO_THRESHOLD }, point.zero_count)
            .positive(&self.positive)
            .negative(&self.negative);
        Ok(InputValue::Native { buckets, sum: point.sum.unwrap_or(0.0) })
    }

    fn summary(&mut self, point: &SummaryPoint<'_>) -> InputValue<'_> {
        self.quantiles.clear();
        self.quantiles.extend_from_slice(point.quantiles);
        self.quantiles.sort_by(|a, b| a.0.total_cmp(&b.0));
        InputValue::Summary {
            quantiles: &self.quantiles,
            count: point.count as f64,
            sum: point.sum,
        }
    }
}

/// Fills `out` with buckets by Prometheus' index, which names the upper bound and is therefore
/// OpenTelemetry's index plus one. Neighbouring buckets are merged in pairs, `merge` times. Returns
/// the sum of the counts.
fn indexed(
    out: &mut Vec<(i32, u64)>,
    buckets: ExponentialBuckets<'_>,
    merge: i32,
) -> Result<u64, PointError> {
    out.clear();
    let mut sum = 0_u64;
    for (index, &count) in (i64::from(buckets.offset)..).zip(buckets.counts) {
        if count == 0 {
            continue;
        }
        sum = sum.checked_add(count).ok_or(PointError::Buckets)?;
        let index = (index >> merge.min(63)) + 1;
        let index = i32::try_from(index).map_err(|_| PointError::Buckets)?;
        match out.last_mut() {
            Some((last, total)) if *last == index => *total += count,
            _ => out.push((index, count)),
        }
    }
    Ok(sum)
}

fn mode(temporality: Temporality) -> Result<Mode, PointError> {
    match temporality {
        Temporality::Cumulative => Ok(Mode::Follow),
        Temporality::Delta => Ok(Mode::Add),
        _ => Err(PointError::Temporality),
    }
}

/// The width of the zero bucket if the sender specifies none, like in Prometheus.
const ZERO_THRESHOLD: f64 = 1e-128;

#[cfg(test)]
mod tests {
    use super::*;

    fn native(
        scale: i32,
        offset: i32,
        counts: &[u64],
    ) -> Result<(i8, Vec<(i32, u64)>), PointError> {
        let mut point = ExponentialPoint::default();
        (point.scale, point.count) = (scale, counts.iter().sum());
        (point.positive.offset, point.positive.counts) = (offset, counts);
        let mut scratch = Buckets::default();
        match scratch.native(&point)? {
            InputValue::Native { buckets, .. } => Ok((buckets.schema, buckets.positive.to_vec())),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn exponential_buckets_are_renumbered_and_merged() {
        assert_eq!(native(0, -1, &[1, 0, 2]), Ok((0, vec![(0, 1), (2, 2)])));
        // Two steps finer than Prometheus' finest scale: four buckets become one.
        assert_eq!(native(10, -5, &[1, 1, 1, 1, 1, 4]), Ok((8, vec![(-1, 1), (0, 4), (1, 4)])));
        assert_eq!(native(i32::MAX, -5, &[1, 1]), Ok((8, vec![(0, 2)])));
        assert_eq!(native(-4, i32::MAX - 1, &[1]), Ok((-4, vec![(i32::MAX, 1)])));
        assert_eq!(native(-4, i32::MAX, &[1]), Err(PointError::Buckets));
        assert_eq!(native(-5, 0, &[1]), Err(PointError::Scale(-5)));
        assert_eq!(native(0, 0, &[]), Ok((0, vec![])));
    }

    #[test]
    fn the_count_is_the_sum_of_the_buckets() {
        let mut scratch = Buckets::default();
        let mut classic = |count, buckets: &[u64], bounds: &[f64]| {
            let mut point = HistogramPoint::default();
            (point.count, point.buckets, point.bounds) = (count, buckets, bounds);
            match scratch.classic(&point) {
                Ok(InputValue::Histogram { buckets, .. }) => Ok(buckets.to_vec()),
                Ok(other) => panic!("{other:?}"),
                Err(error) => Err(error),
            }
        };
        let infinity = f64::INFINITY;
        assert_eq!(classic(3, &[1, 2], &[0.5]), Ok(vec![(0.5, 1.0), (infinity, 2.0)]));
        assert_eq!(classic(3, &[], &[]), Ok(vec![(infinity, 3.0)]));
        assert_eq!(classic(3, &[3, 0], &[infinity]), Ok(vec![(infinity, 3.0)]));
        for wrong in
            [classic(2, &[1, 2], &[0.5]), classic(3, &[1, 2], &[]), classic(3, &[], &[1.0])]
        {
            assert_eq!(wrong, Err(PointError::Buckets));
        }
        assert_eq!(classic(0, &[u64::MAX, 1], &[0.5]), Err(PointError::Buckets));
    }
}
