//! Handles the StatsD lines of a listener: converts their names and tags to metric names and
//! labels, and stores their values in the intake.
//!
//! A line whose [form](super::forms) is cached takes a fast path. Both paths store the same values
//! in the same series. If there are rules, all lines take the slow path, because a rule can depend
//! on label values, and counts its actions.

use std::mem;

use quipu::intake::{InputValue, Intake, Mode, Rejection};
use quipu_wire::remote::statsd::{
    StatsdLine, StatsdLines, StatsdSample, StatsdType, StatsdValue, Tags,
};

use super::forms::{LineFormCache, TagValues};
use super::metrics::{StatsdCounters, StatsdCounts};
use crate::Shared;
use crate::list::Input;
use crate::listeners::mapping::{MetricClass, scaled};
use crate::listeners::{Common, NameResolver, Reader, Report, put_labels, recycle};

/// The state of a listener's reader.
pub(super) struct StatsdReader {
    names: NameResolver,
    /// The cache of forms; `None` if there are rules.
    forms: Option<LineFormCache>,
    metrics: StatsdCounters,
    /// The counts since the last flush.
    counts: StatsdCounts,
    /// A reused buffer for the labels of a line, empty between lines.
    labels: Vec<(&'static str, &'static str)>,
}

impl Reader for StatsdReader {
    const INPUT: Input = Input::named("statsd");
    const FRAMES: bool = true;

    fn read(&mut self, common: &mut Common, lines: &[u8], report: &Report<'_>) {
        for line in StatsdLines::new(lines, Tags::ALL) {
            common.counts.lines += 1;
            match line {
                Ok(StatsdLine::Sample(sample)) => self.sample(common, &sample, report),
                Ok(StatsdLine::Event(_)) => self.counts.events += 1,
                Ok(StatsdLine::ServiceCheck(_)) => self.counts.service_checks += 1,
                Err(error) => report.refuse(error.reason().as_str(), &error),
                Ok(_) => {}
            }
        }
    }

    fn flush(&mut self) -> u64 {
        let counts = mem::take(&mut self.counts);
        self.metrics.add(&counts);
        counts.samples.iter().sum()
    }
}

impl StatsdReader {
    pub(super) fn new(
        names: NameResolver,
        shared: &'static Shared,
        metrics: StatsdCounters,
    ) -> Self {
        let forms = shared.rules.is_none().then(LineFormCache::default);
        Self { names, forms, metrics, counts: StatsdCounts::default(), labels: Vec::new() }
    }

    #[inline]
    fn sample(&mut self, common: &mut Common, sample: &StatsdSample<'_>, report: &Report<'_>) {
        let Some(class) = class(sample.kind) else {
            let detail = format_args!("{:.100}: sets are not supported", sample.name);
            return report.refuse("set", &detail);
        };
        match self.take_known(common, sample, class, report) {
            Remainder::Nothing => {}
            remainder => self.take_any(common, (sample, class), &remainder, report),
        }
    }

    /// Stores the values of a line with a cached form. Returns the rest for the slow path.
    #[inline]
    fn take_known(
        &mut self,
        common: &mut Common,
        sample: &StatsdSample<'_>,
        class: MetricClass,
        report: &Report<'_>,
    ) -> Remainder {
        let Some(forms) = &self.forms else { return Remainder::From(0) };
        let mut tags = TagValues::default();
        let Some(form) = forms.find(sample, class, &mut tags) else { return Remainder::New };
        let mut room = Default::default();
        let labels = form.labels(&tags, &mut room);
        for (done, value) in sample.values().enumerate() {
            let given = match value {
                Ok(value) => given(sample, value, form.scale),
                Err(error) => {
                    report.refuse(error.reason().as_str(), &error);
                    continue;
                }
            };
            let taken = given.and_then(|(given, mode)| {
                let taken = common.intake.take_in(&form.handle, labels, &given, mode);
                taken.map_err(ValueError::Refused)
            });
            match taken {
                Ok(true) => self.counts.samples[sample.kind as usize] += 1,
                Ok(false) => return Remainder::From(done),
                Err(error) => report_error(report, &common.intake, sample, error),
            }
        }
        common.counts.tag_errors += tags.faults;
        Remainder::Nothing
    }

    /// Stores the remaining values of a line, without the cache.
    #[inline(never)]
    fn take_any(
        &mut self,
        common: &mut Common,
        (sample, class): (&StatsdSample<'_>, MetricClass),
        remainder: &Remainder,
        report: &Report<'_>,
    ) {
        let resolved = self.names.resolve(sample.name, class);
        let Some((metric, treatment)) = common.metric(&sample.name, &resolved, report) else {
            return;
        };
        // Declared before the labels, because they can borrow from it.
        let mut strange = Vec::new();
        let mut labels: Vec<(&str, &str)> = mem::take(&mut self.labels);
        let most = common.intake.limits().labels;
        let tags = put_labels(&resolved, || sample.tags(), most, &mut labels, &mut strange);
        common.counts.tag_errors += tags.faults;
        let (shared, intake) = (common.shared, &mut common.intake);
        let done = if let Remainder::From(done) = remainder { *done } else { 0 };
        let mut last = None;
        for value in sample.values().skip(done) {
            let taken = match value {
                // The mapping or a rule can remove labels, but not labels beyond the limit, which
                // were not read.
                Ok(_) if tags.are_cut => Err(ValueError::Refused(Rejection::Labels)),
                Ok(value) => given(sample, value, treatment.scale).and_then(|(given, mode)| {
                    let taken = shared.take(intake, metric, &labels, &given, mode, None);
                    taken.map_err(ValueError::Refused).map(|()| (given, mode))
                }),
                Err(error) => {
                    report.refuse(error.reason().as_str(), &error);
                    continue;
                }
            };
            match taken {
                Ok(taken) => {
                    self.counts.samples[sample.kind as usize] += 1;
                    last = Some(taken);
                }
                Err(refused) => report_error(report, intake, sample, refused),
            }
        }
        if let (Remainder::New, Some((given, mode)), Some(forms)) =
            (remainder, last, &mut self.forms)
            && forms.admits(sample, class)
            && let Some(handle) = intake.handle(metric, &labels, &given, mode)
        {
            forms.add(sample, class, &labels, treatment.scale, handle);
        }
        self.labels = recycle(labels);
    }
}

/// The part of a line that the fast path left to the slow path.
enum Remainder {
    /// No value: every value was accepted or refused.
    Nothing,
    /// All values, because the form is not cached.
    New,
    /// The values from this index on.
    From(usize),
}

/// The reason why a value was refused.
enum ValueError {
    /// A counter cannot decrease.
    Negative,
    /// The sample rate is so small, or a value so large, that the result would be infinite or
    /// meaningless.
    Rate,
    /// The value becomes infinite when it is multiplied by the `scale` of the mapping.
    Scale,
    /// The intake refused the value.
    Refused(Rejection),
}

/// Converts the value of a line, multiplied by `scale`, for the intake.
#[inline]
fn given(
    sample: &StatsdSample<'_>,
    value: StatsdValue,
    scale: Option<f64>,
) -> Result<(InputValue<'static>, Mode), ValueError> {
    let to_scale = |number: f64| scaled(number, scale).ok_or(ValueError::Scale);
    Ok(match sample.kind {
        StatsdType::Counter | StatsdType::Meter => {
            let amount = to_scale(value.number / sample.rate)?;
            if amount < 0.0 {
                return Err(ValueError::Negative);
            }
            if !amount.is_finite() {
                return Err(ValueError::Rate);
            }
            (InputValue::Counter(amount), Mode::Add)
        }
        StatsdType::Gauge => {
            let mode = if value.is_signed { Mode::Add } else { Mode::Set };
            (InputValue::Gauge(to_scale(value.number)?), mode)
        }
        kind => {
            // We convert milliseconds to seconds, the units of durations in StatsD and Prometheus.
            let unit = if kind == StatsdType::Timer { 1000.0 } else { 1.0 };
            let weight = sample.rate.recip();
            if weight > MAX_WEIGHT {
                return Err(ValueError::Rate);
            }
            (InputValue::Observation { value: to_scale(value.number / unit)?, weight }, Mode::Add)
        }
    })
}

#[cold]
fn report_error(
    report: &Report<'_>,
    intake: &Intake,
    sample: &StatsdSample<'_>,
    error: ValueError,
) {
    let name = sample.name;
    match error {
        ValueError::Negative => {
            let detail = format_args!("{name:.100}: a counter cannot decrease");
            report.refuse("illegal_negative_counter", &detail);
        }
        ValueError::Rate => {
            let detail = format_args!("{name:.100}: the sample rate is too small for the value");
            report.refuse("invalid_sample_factor", &detail);
        }
        ValueError::Scale => {
            let detail = format_args!("{name:.100}: its mapping's `scale` makes it infinite");
            report.refuse("malformed_value", &detail);
        }
        ValueError::Refused(refused) => {
            let explanation = intake.explain(refused);
            report.refuse(refused.reason(), &format_args!("{name:.100}: {explanation}"));
        }
    }
}

/// Returns the mapping class of a type; `None` for sets.
#[inline]
fn class(kind: StatsdType) -> Option<MetricClass> {
    match kind {
        StatsdType::Counter | StatsdType::Meter => Some(MetricClass::Counter),
        StatsdType::Gauge => Some(MetricClass::Gauge),
        StatsdType::Timer | StatsdType::Histogram | StatsdType::Distribution => {
            Some(MetricClass::Observer)
        }
        _ => None,
    }
}

/// The maximum number of observations that a line with a sample rate can represent.
const MAX_WEIGHT: f64 = 4_294_967_296.0;
