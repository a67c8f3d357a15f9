//! What a listener does with the lines that it receives: it reads them, finds their names and
//! labels, and puts their values into the intake. A line or a value that is refused is reported,
//! and does not take its neighbours along.
//!
//! There is a short way for lines whose [form](Forms) is known, and a long way for all others; both
//! put the same values into the same series. With rules, all lines go the long way: a rule may
//! decide by the values of labels, and counts what it does.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt::Display;
use std::mem;

use quipu::intake::{Given, Intake, Metric, Mode, Prepared, Refused};
use quipu_wire::remote::Cut;
use quipu_wire::remote::statsd::{Line, Lines, Sample, Tags, Type, Value};

use super::forms::{Forms, TagValues};
use super::mapping::{Class, Treatment};
use super::metrics::{Counts, ListenerMetrics};
use super::names::{Names, escaped, is_name};
use crate::client::Source;
use crate::inputs::Shared;
use crate::inputs::refusals::{Input, Refusals};

/// Takes the lines of one listener in.
pub(super) struct Receiver {
    intake: Intake,
    names: Names,
    /// `None` if there are rules.
    forms: Option<Forms>,
    shared: &'static Shared,
    metrics: ListenerMetrics,
    /// What was counted since [`Receiver::flush`].
    counts: Counts,
    /// The labels of a line; empty between lines, and kept for its memory.
    labels: Vec<(&'static str, &'static str)>,
}

/// Where lines come from; its text is for people.
pub(super) trait Sender: Display {
    /// Names it as the source of what the intake takes from now on.
    fn name_to(&self, intake: &mut Intake);
}

impl Sender for String {
    fn name_to(&self, intake: &mut Intake) {
        intake.set_source(&Source::named(self));
    }
}

/// Where refusals are reported, and for which client.
struct Report<'a> {
    refusals: &'static Refusals,
    source: &'a dyn Display,
}

impl Receiver {
    pub(super) fn new(
        intake: Intake,
        names: Names,
        shared: &'static Shared,
        metrics: ListenerMetrics,
    ) -> Self {
        let forms = shared.rules.is_none().then(Forms::default);
        let counts = Counts::default();
        Self { intake, names, forms, shared, metrics, counts, labels: Vec::new() }
    }

    /// Takes a datagram.
    pub(super) fn packet(&mut self, packet: &[u8], source: &dyn Sender) {
        self.counts.packets += 1;
        self.counts.bytes += packet.len() as u64;
        self.lines(packet, source);
    }

    /// Reports a datagram that is longer than any buffer for one.
    pub(super) fn packet_too_long(&mut self, source: &dyn Sender) {
        self.counts.packets += 1;
        let report = Report { refusals: &self.shared.refusals, source };
        report.refused("packet_too_long", &"the datagram has over 65,536 bytes");
    }

    /// Takes a part of a stream.
    pub(super) fn cut(&mut self, cut: Cut<'_>, source: &dyn Sender) {
        match cut {
            Cut::Lines(lines) => {
                self.counts.bytes += lines.len() as u64;
                self.lines(lines, source);
            }
            Cut::TooLong => {
                self.counts.lines += 1;
                let report = Report { refusals: &self.shared.refusals, source };
                report.refused("line_too_long", &"the line, or frame, is longer than the limit");
            }
        }
    }

    /// Counts the end of a connection, or a connection that was refused.
    pub(super) fn metrics(&self) -> &ListenerMetrics {
        &self.metrics
    }

    /// Adds what was counted to the metrics. Between the calls, counting costs no atomics.
    pub(super) fn flush(&mut self) {
        let counts = mem::take(&mut self.counts);
        let samples = counts.samples.iter().sum();
        if samples > 0 {
            self.shared.refusals.took(Input::Statsd, samples);
        }
        self.metrics.add(&counts);
    }

    fn lines(&mut self, input: &[u8], source: &dyn Sender) {
        source.name_to(&mut self.intake);
        let report = Report { refusals: &self.shared.refusals, source };
        let allowance = self.shared.rates.of(source);
        let before = self.counts.lines;
        if let Some(Err(excess)) = allowance.map(|allowance| allowance.check()) {
            for _ in input.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                self.counts.lines += 1;
                report.refused(excess.reason, &excess);
            }
            return;
        }
        for line in Lines::new(input, Tags::ALL) {
            self.counts.lines += 1;
            match line {
                Ok(Line::Sample(sample)) => self.sample(&sample, &report),
                Ok(Line::Event(_)) => self.counts.events += 1,
                Ok(Line::ServiceCheck(_)) => self.counts.service_checks += 1,
                Err(error) => report.refused(error.reason().as_str(), &error),
                Ok(_) => {}
            }
        }
        if let Some(allowance) = allowance {
            allowance.brought(self.counts.lines - before);
        }
    }

    #[inline]
    fn sample(&mut self, sample: &Sample<'_>, report: &Report<'_>) {
        let Some(class) = class(sample.kind) else {
            let what = format_args!("{:.100}: sets are not supported", sample.name);
            return report.refused("set", &what);
        };
        match self.take_known(sample, class, report) {
            Left::Nothing => {}
            left => self.take_any(sample, class, &left, report),
        }
    }

    /// Takes a line whose form is known.
    #[inline]
    fn take_known(&mut self, sample: &Sample<'_>, class: Class, report: &Report<'_>) -> Left {
        let Some(forms) = &self.forms else { return Left::From(0) };
        let mut tags = TagValues::default();
        let Some(form) = forms.find(sample, class, &mut tags) else { return Left::New };
        let mut room = Default::default();
        let labels = form.labels(&tags, &mut room);
        for (done, value) in sample.values().enumerate() {
            let asked = match value {
                Ok(value) => Asked::of(sample, value, form.scale),
                Err(error) => {
                    report.refused(error.reason().as_str(), &error);
                    continue;
                }
            };
            let (intake, prepared) = (&mut self.intake, &form.prepared);
            let taken = asked.and_then(|asked| {
                let taken = match asked {
                    Asked::Put(given, mode) => intake.take_prepared(prepared, labels, &given, mode),
                    Asked::Observe { value, weight } => {
                        intake.observe_prepared(prepared, labels, value, weight)
                    }
                };
                taken.map_err(NotTaken::Refused)
            });
            match taken {
                Ok(true) => self.counts.samples[sample.kind as usize] += 1,
                Ok(false) => return Left::From(done),
                Err(why) => report.not_taken(sample, why),
            }
        }
        self.counts.tag_errors += tags.faults;
        Left::Nothing
    }

    /// Takes what is left of a line.
    #[inline(never)]
    fn take_any(&mut self, sample: &Sample<'_>, class: Class, left: &Left, report: &Report<'_>) {
        let found = self.names.find(sample.name, class);
        let Some(treatment) = found.treatment else {
            self.counts.dropped += 1;
            return;
        };
        if found.name.is_empty() {
            let what = format_args!("{:.100}: its mapping makes an empty name", sample.name);
            return report.refused("empty_metric_name", &what);
        }
        // Declared before the labels, which may borrow from it.
        let mut strange = Vec::new();
        let mut labels: Vec<(&str, &str)> = mem::take(&mut self.labels);
        let tags = put_tags(sample, self.intake.limits().labels, &mut labels, &mut strange);
        self.counts.tag_errors += tags.faults;
        for (name, value) in found.labels {
            let is_there = found.honors_labels && labels.iter().any(|(other, _)| other == name);
            if !is_there {
                set_label(&mut labels, name.as_str(), value);
            }
        }
        let metric = Metric {
            help: &treatment.help,
            expiry: treatment.expiry.or(self.shared.expiry),
            ..Metric::new(found.name)
        };
        let (shared, intake) = (self.shared, &mut self.intake);
        let mut taking = Taking { shared, intake, metric, labels: &labels, treatment };
        let done = if let Left::From(done) = left { *done } else { 0 };
        let mut is_taken = false;
        for value in sample.values().skip(done) {
            let taken = match value {
                // The mapping or a rule may remove some labels, but not those that were not read.
                Ok(_) if tags.are_cut => Err(NotTaken::Refused(Refused::Labels)),
                Ok(value) => taking.take(sample, value),
                Err(error) => {
                    report.refused(error.reason().as_str(), &error);
                    continue;
                }
            };
            match taken {
                Ok(()) => {
                    self.counts.samples[sample.kind as usize] += 1;
                    is_taken = true;
                }
                Err(refused) => report.not_taken(sample, refused),
            }
        }
        if let (Left::New, true, Some(forms)) = (left, is_taken, &mut self.forms)
            && forms.admits(sample, class)
            && let Some(prepared) = taking.prepare(class)
        {
            forms.add(sample, class, &labels, treatment.scale, prepared);
        }
        self.labels = recycle(labels);
    }
}

/// What the short way leaves of a line.
enum Left {
    /// Nothing: all of its values were taken, or refused.
    Nothing,
    /// All of a line whose form is not known.
    New,
    /// The values from this one on.
    From(usize),
}

/// A metric and its labels, for the values of a line.
struct Taking<'a> {
    shared: &'static Shared,
    intake: &'a mut Intake,
    metric: Metric<'a>,
    labels: &'a [(&'a str, &'a str)],
    treatment: &'a Treatment,
}

/// Why a value was not taken.
enum NotTaken {
    /// A counter cannot decrease.
    Negative,
    /// The sample rate is so small, or a number so large, that the result is not finite or useful.
    Rate,
    /// By the intake.
    Refused(Refused),
}

/// What a value asks of its series.
enum Asked {
    Put(Given<'static>, Mode),
    Observe { value: f64, weight: f64 },
}

impl Asked {
    /// What a value of a line asks, if it is multiplied by `scale`.
    #[inline]
    fn of(sample: &Sample<'_>, value: Value, scale: Option<f64>) -> Result<Self, NotTaken> {
        let scaled = |number: f64| scale.map_or(number, |scale| number * scale);
        Ok(match sample.kind {
            Type::Counter | Type::Meter => {
                let amount = scaled(value.number / sample.rate);
                if amount < 0.0 {
                    return Err(NotTaken::Negative);
                }
                if !amount.is_finite() {
                    return Err(NotTaken::Rate);
                }
                Self::Put(Given::Counter(amount), Mode::Add)
            }
            Type::Gauge => {
                let mode = if value.is_signed { Mode::Add } else { Mode::Set };
                Self::Put(Given::Gauge(scaled(value.number)), mode)
            }
            kind => {
                // StatsD has durations in milliseconds, Prometheus in seconds.
                let unit = if kind == Type::Timer { 1000.0 } else { 1.0 };
                let weight = sample.rate.recip();
                if weight > MAX_WEIGHT {
                    return Err(NotTaken::Rate);
                }
                Self::Observe { value: scaled(value.number / unit), weight }
            }
        })
    }
}

impl Taking<'_> {
    fn take(&mut self, sample: &Sample<'_>, value: Value) -> Result<(), NotTaken> {
        let Self { shared, metric, labels, treatment, .. } = *self;
        let taken = match Asked::of(sample, value, treatment.scale)? {
            Asked::Put(given, mode) => shared.take(self.intake, metric, labels, &given, mode, None),
            Asked::Observe { value, weight } => {
                shared.observe(self.intake, metric, labels, &treatment.shape, value, weight)
            }
        };
        taken.map_err(NotTaken::Refused)
    }

    /// The family of values of that class.
    #[cold]
    fn prepare(&mut self, class: Class) -> Option<Prepared> {
        let Self { metric, labels, treatment, .. } = *self;
        match class {
            Class::Counter => self.intake.prepare(metric, labels, &Given::Counter(0.0), Mode::Add),
            Class::Gauge => self.intake.prepare(metric, labels, &Given::Gauge(0.0), Mode::Set),
            Class::Observer => self.intake.prepare_observations(metric, labels, &treatment.shape),
        }
    }
}

impl Report<'_> {
    #[cold]
    fn refused(&self, reason: &'static str, what: &dyn Display) {
        self.refusals.refused(Input::Statsd, &self.source.to_string(), reason, what);
    }

    #[cold]
    fn not_taken(&self, sample: &Sample<'_>, why: NotTaken) {
        let name = sample.name;
        match why {
            NotTaken::Negative => {
                let what = format_args!("{name:.100}: a counter cannot decrease");
                self.refused("illegal_negative_counter", &what);
            }
            NotTaken::Rate => {
                let what = format_args!("{name:.100}: the sample rate is too small for the value");
                self.refused("invalid_sample_factor", &what);
            }
            NotTaken::Refused(why) => {
                self.refused(why.reason(), &format_args!("{name:.100}: {why}"));
            }
        }
    }
}

/// What was found in the tags of a line.
#[derive(Debug, Default)]
struct TagsFound {
    /// Tags that have no name or no value.
    faults: u64,
    /// Whether there are more tags than were read.
    are_cut: bool,
}

/// Adds the tags of a line to its labels, up to one more than `most`, which the intake then
/// refuses. `strange` is memory for names that change.
#[inline]
fn put_tags<'s, 'a: 's>(
    sample: &Sample<'a>,
    most: usize,
    labels: &mut Vec<(&'s str, &'s str)>,
    strange: &'s mut Vec<(Cow<'a, str>, &'a str)>,
) -> TagsFound {
    let plain = |name| is_name(name).then_some(name);
    if let Some(found) = put_named_tags(sample, most, labels, plain) {
        return found;
    }
    // Names that differ may become one label, so they are changed before they are counted.
    let escape = |name| match is_name(name) {
        true => Some(Cow::Borrowed(name)),
        false => Some(Cow::Owned(escaped(name, ""))),
    };
    let found = put_named_tags(sample, most, strange, escape);
    labels.clear();
    labels.extend(strange.iter().map(|(name, value)| (&**name, *value)));
    found.unwrap_or_default()
}

/// Adds tags under the names that `named` makes of theirs. Returns `None` at the first one that has
/// none.
#[inline]
fn put_named_tags<'a, N: Ord>(
    sample: &Sample<'a>,
    most: usize,
    labels: &mut Vec<(N, &'a str)>,
    named: impl Fn(&'a str) -> Option<N>,
) -> Option<TagsFound> {
    let mut found = TagsFound::default();
    for tag in sample.tags() {
        match tag {
            Ok((name, value)) => {
                if labels.len() > most {
                    found.are_cut = true;
                    break;
                }
                set_label(labels, named(name)?, value);
            }
            Err(_) => found.faults += 1,
        }
    }
    Some(found)
}

/// Sets a label, and keeps all sorted by name, as the intake wants them. Of several tags with one
/// name, the last one counts, as in statsd_exporter.
#[inline]
fn set_label<'a, N: Ord>(labels: &mut Vec<(N, &'a str)>, name: N, value: &'a str) {
    let mut at = labels.len();
    while let Some((before, old)) = at.checked_sub(1).and_then(|before| labels.get_mut(before)) {
        match (*before).cmp(&name) {
            Ordering::Less => break,
            Ordering::Equal => {
                *old = value;
                return;
            }
            Ordering::Greater => at -= 1,
        }
    }
    labels.insert(at, (name, value));
}

/// What rules tell apart; a set is nothing that they know.
#[inline]
fn class(kind: Type) -> Option<Class> {
    match kind {
        Type::Counter | Type::Meter => Some(Class::Counter),
        Type::Gauge => Some(Class::Gauge),
        Type::Timer | Type::Histogram | Type::Distribution => Some(Class::Observer),
        _ => None,
    }
}

/// An empty vector in the memory of a vector of shorter-lived elements.
fn recycle(mut labels: Vec<(&str, &str)>) -> Vec<(&'static str, &'static str)> {
    labels.clear();
    // The standard library collects in place, so this neither loops nor allocates.
    labels.into_iter().map(|_| ("", "")).collect()
}

/// The greatest number of observations that one line may stand for.
const MAX_WEIGHT: f64 = 4_294_967_296.0;
