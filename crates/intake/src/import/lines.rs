//! Stores the lines of an import (text format or OpenMetrics) as values of the daemon's families.
//!
//! A histogram or a summary consists of several lines. If a `# TYPE` line declares it, its lines
//! are collected and stored together after the last one. All other samples are stored line by line.

use std::borrow::Cow;
use std::cell::RefMut;

use quipu::intake::{InputExemplar, InputValue, Intake, Metric, Mode, Moment, Order};
use quipu_wire::remote::exposition::text::{
    Item, Text, TextFormat, TextLineError, TextSample, Visitor, value_and_time,
};
use quipu_wire::remote::exposition::{Families, Family, FamilyType, Limits, MetricValue};
use quipu_wire::remote::write::SeriesType;

use crate::outcome::{RequestOutcome, SeriesDisplay};
use crate::requests::Context;
use crate::series_cache::{self, NameType, SeriesCache, TimedValue};
use crate::{Inputs, types};

/// The query parameters of a request, which modify its lines.
#[derive(Debug, Default)]
pub(super) struct ImportParameters {
    /// The timestamp of lines that contain none.
    pub(super) timestamp_ms: Option<i64>,
    /// Labels to add to all series. They replace labels with the same name.
    pub(super) labels: Vec<(String, String)>,
}

/// A parser of the lines of one body.
pub(super) struct Lines {
    families: Families,
    state: LineState,
}

/// The state that one line leaves for the next lines.
struct LineState {
    format: TextFormat,
    parameters: ImportParameters,
    /// The family that the last `# HELP`, `# TYPE` or `# UNIT` line named.
    family: FamilyHeader,
    /// Whether the samples of this family are collected: see [`is_whole`].
    is_whole: bool,
    /// The number of the last line with a sample.
    line: u64,
    buckets: Vec<(f64, f64)>,
    /// The exemplars of the current sample.
    exemplars: Vec<Exemplar>,
    cached_type: CachedType,
}

/// The type of the last sample that no `# TYPE` line declared. It stays valid until a family is
/// created.
#[derive(Default)]
struct CachedType {
    name: String,
    families: u64,
    series_type: SeriesType,
}

/// The metadata of a family, from its `# HELP`, `# TYPE` and `# UNIT` lines.
#[derive(Default)]
struct FamilyHeader {
    name: String,
    kind: FamilyType,
    help: String,
    unit: String,
}

/// One step over a few lines. It borrows the intake of the thread.
pub(super) struct ImportStep<'t> {
    families: &'t mut Families,
    writer: SampleWriter<'t>,
}

/// Stores samples in the intake.
struct SampleWriter<'t> {
    inputs: &'t Inputs,
    intake: RefMut<'t, Intake>,
    /// The cache of series, by the bytes of names and labels.
    cache: RefMut<'t, SeriesCache>,
    moment: Moment,
    outcome: &'t mut RequestOutcome,
    state: &'t mut LineState,
}

/// A value of a series, with its timestamp and its start time.
struct SeriesSample<'v> {
    given: InputValue<'v>,
    mode: Mode,
    timestamp_ms: Option<i64>,
    start_ms: Option<i64>,
}

/// An exemplar of the current sample.
struct Exemplar {
    labels: Vec<(String, String)>,
    value: f64,
    timestamp_ms: Option<i64>,
}

/// The reason of a refused line: the value of the label `reason`, and a message.
type Fault = (&'static str, String);

/// The limits for a collected histogram or summary. A larger one is refused, because it is stored
/// in a single step.
const LIMITS: Limits = Limits::new().samples(20_000).bytes(8 << 20);

impl Lines {
    pub(super) fn new(format: TextFormat, parameters: ImportParameters) -> Self {
        let state = LineState {
            format,
            parameters,
            family: FamilyHeader::default(),
            is_whole: false,
            line: 0,
            buckets: Vec::new(),
            exemplars: Vec::new(),
            cached_type: CachedType::default(),
        };
        Self { families: Families::new(format, LIMITS), state }
    }

    /// Begins a step.
    pub(super) fn step<'t>(&'t mut self, context: &'t mut Context<'_>) -> ImportStep<'t> {
        let Self { families, state } = self;
        let (inputs, intake) = (context.inputs, context.intake());
        let (cache, moment, outcome) =
            (inputs.import_cache(), Moment::now(), &mut *context.outcome);
        ImportStep {
            families,
            writer: SampleWriter { inputs, intake, cache, moment, outcome, state },
        }
    }
}

impl Visitor for ImportStep<'_> {
    #[inline]
    fn known(&mut self, line: &str, number: u64) -> bool {
        self.writer.known(line, number)
    }

    fn item(&mut self, item: Result<Item<'_, '_>, TextLineError>) {
        let item = match item {
            Ok(item) => item,
            Err(error) => {
                let detail = format_args!("{error}");
                return self.writer.outcome.refuse(error.reason().as_str(), detail);
            }
        };
        match &item {
            Item::Sample(sample) => {
                let state = &self.writer.state;
                if state.is_whole && !state.family.has(&sample.name.to_cow()) {
                    self.finish();
                }
                self.writer.state.line = sample.line;
                if !self.writer.state.is_whole {
                    return self.writer.sample(sample);
                }
            }
            Item::Help { name, text } => {
                self.announce(*name);
                self.writer.state.family.help = text.to_cow().into_owned();
            }
            Item::Unit { name, unit } => {
                self.announce(*name);
                self.writer.state.family.unit = (*unit).to_owned();
            }
            Item::Type { name, kind } => {
                self.announce(*name);
                self.writer.state.family.kind = *kind;
                self.writer.state.is_whole = is_whole(*kind);
            }
            _ => return,
        }
        // Pass the line to the families as well, because the help can be declared before the type.
        let writer = &mut self.writer;
        if let Err(error) = self.families.push(&item, |family| writer.family(family)) {
            let line = writer.state.line;
            let detail = format_args!("text: line {line} or the comments after it: {error}");
            writer.outcome.refuse("family", detail);
        }
    }
}

impl ImportStep<'_> {
    /// Stores the collected histograms and summaries.
    pub(super) fn finish(&mut self) {
        let writer = &mut self.writer;
        self.families.finish(|family| writer.family(family));
        writer.state.is_whole = false;
    }

    /// Begins the metadata of a family, unless it is the current family.
    fn announce(&mut self, name: Text<'_>) {
        if name != *self.writer.state.family.name {
            self.finish();
            self.writer.state.family =
                FamilyHeader { name: name.to_cow().into_owned(), ..Default::default() };
        }
    }
}

/// Returns the type of the daemon's family with this name, for samples that no `# TYPE` line
/// declares.
fn existing_name_type(intake: &mut Intake, name: &str) -> NameType {
    NameType { series_type: types::existing_type(intake, name), has_help: false }
}

/// Returns the position after the name and the labels at the beginning of a line. The labels end at
/// the last brace.
fn series_end(line: &[u8]) -> Option<usize> {
    let brace = line.iter().rposition(|byte| *byte == b'}').map(|at| at + 1);
    brace.or_else(|| line.iter().position(|byte| *byte == b' '))
}

/// Returns whether a metric of this type consists of several samples, which must be stored
/// together.
fn is_whole(kind: FamilyType) -> bool {
    matches!(kind, FamilyType::Histogram | FamilyType::GaugeHistogram | FamilyType::Summary)
}

impl FamilyHeader {
    /// Returns whether a sample with this name belongs to the family.
    fn has(&self, name: &str) -> bool {
        let Some(suffix) = name.strip_prefix(&*self.name) else { return false };
        match self.kind {
            FamilyType::Histogram => matches!(suffix, "_bucket" | "_count" | "_sum" | "_created"),
            FamilyType::GaugeHistogram => matches!(suffix, "_bucket" | "_gcount" | "_gsum"),
            FamilyType::Summary => matches!(suffix, "" | "_count" | "_sum" | "_created"),
            FamilyType::Counter => matches!(suffix, "" | "_total" | "_created"),
            FamilyType::Info => matches!(suffix, "" | "_info"),
            _ => suffix.is_empty(),
        }
    }

    /// Returns the type of a sample with this name, if it belongs to the family.
    fn type_of(&self, name: &str) -> Option<NameType> {
        let (series_type, has_help) = (types::series_type(self.kind), !self.help.is_empty());
        self.has(name).then_some(NameType { series_type, has_help })
    }

    /// Returns whether a sample with this name is the start time (`_created`) of a metric of the
    /// family.
    fn has_start(&self, name: &str) -> bool {
        name.strip_prefix(&*self.name) == Some("_created") && self.has(name)
    }
}

impl SampleWriter<'_> {
    /// Stores the sample of a line whose series is cached. Returns false for any other line.
    #[inline]
    fn known(&mut self, line: &str, number: u64) -> bool {
        let Self { inputs, intake, cache, moment, outcome, state } = self;
        let (shared, cache) = (inputs.shared(), &mut **cache);
        if state.is_whole || !state.parameters.labels.is_empty() {
            return false;
        }
        let is_end = |rest: &[u8]| rest.first() == Some(&b' ');
        let Some((end, series)) = cache.find(line.as_bytes(), is_end, series_end) else {
            return false;
        };
        let Some((value, timestamp_ms)) = line.get(end..).and_then(value_and_time) else {
            return false;
        };
        let is_current = match state.family.type_of(cache.name(series)) {
            Some(kind) => cache.series(series).is_some_and(|known| known.has_type(kind)),
            None => {
                let version = [intake.version(), 0];
                cache.is_current(series, version, |name| existing_name_type(intake, name))
            }
        };
        let Some(known) = cache.series(series).filter(|_| is_current) else { return false };
        let timestamp_ms = timestamp_ms.or(state.parameters.timestamp_ms);
        let timed_value = TimedValue { value, timestamp_ms, start_ms: None };
        let is_taken = shared.take_known(intake, known, timed_value, moment);
        if is_taken {
            state.line = number;
            outcome.count_taken(1);
        }
        is_taken
    }

    /// Caches the series of an accepted sample, if possible.
    fn keep(
        &mut self,
        sample: &TextSample<'_, '_>,
        name: &str,
        family: &FamilyHeader,
        labels: &mut [(&str, &str)],
    ) {
        let (shared, bytes) = (self.inputs.shared(), sample.encoded.as_bytes());
        let is_plain =
            self.state.format == TextFormat::Prometheus && self.state.parameters.labels.is_empty();
        if !is_plain || shared.rules.is_some() || !self.cache.has_room(bytes) {
            return;
        }
        // We read the type only now, because the sample may have created the family.
        let version = [self.intake.version(), 0];
        let declared = family.type_of(name);
        let kind = declared.unwrap_or_else(|| existing_name_type(&mut self.intake, name));
        let Some(sample_type) = types::lasting_type(kind.series_type, name, labels, sample.value)
        else {
            return;
        };
        let (given, mode) = types::given(sample_type, sample.value);
        if let Some(located) = self.intake.locate(self.inputs.metric(name), labels, &given, mode) {
            let known =
                series_cache::KnownSeries { located, series_type: kind.series_type, sample_type };
            // This type applies to no other body, because another body can declare another type.
            let version = if declared.is_some() { [u64::MAX; 2] } else { version };
            self.cache.keep(bytes, (name, kind, version), known);
        }
    }

    /// Stores a sample that is a metric by itself, in contrast to the samples of a histogram or a
    /// summary.
    fn sample(&mut self, sample: &TextSample<'_, '_>) {
        let name = sample.name.to_cow();
        let family = std::mem::take(&mut self.state.family);
        // We skip the start time of a counter, because it follows the value.
        if !(self.state.format == TextFormat::OpenMetrics && family.has_start(&name)) {
            let mut few = [("", ""); FEW_LABELS];
            let texts: Vec<(Cow<'_, str>, Cow<'_, str>)>;
            let mut many = Vec::new();
            let labels = match few_labels(sample, &mut few) {
                Some(labels) => labels,
                None => {
                    let labels = sample.labels.iter();
                    texts =
                        labels.map(|label| (label.name.to_cow(), label.value.to_cow())).collect();
                    many.extend(texts.iter().map(|(name, value)| (&**name, &**value)));
                    &mut many
                }
            };
            self.single(sample, &name, &family, labels);
        }
        self.state.family = family;
    }

    /// Stores a sample with these labels.
    fn single(
        &mut self,
        sample: &TextSample<'_, '_>,
        name: &str,
        family: &FamilyHeader,
        labels: &mut [(&str, &str)],
    ) {
        let (kind, help, unit) = match family.has(name) {
            true => (Some(family.kind), &*family.help, &*family.unit),
            false => (None, "", ""),
        };
        let series_type = match kind {
            Some(kind) => types::series_type(kind),
            None => self.cached_type(name),
        };
        let has_bound = labels.iter().any(|label| label.0 == "le");
        let sample_type = types::sample_type(series_type, name, has_bound, sample.value);
        let (given, mode) = types::given(sample_type, sample.value);
        let timestamp_ms = sample.timestamp_ms;
        let series_sample = SeriesSample { given, mode, timestamp_ms, start_ms: None };
        self.state.exemplars.clear();
        if let Some(exemplar) = &sample.exemplar {
            let owned = |text: Text<'_>| text.to_cow().into_owned();
            let labels = exemplar.labels.iter();
            self.state.exemplars.push(Exemplar {
                labels: labels.map(|label| (owned(label.name), owned(label.value))).collect(),
                value: exemplar.value,
                timestamp_ms: exemplar.timestamp_ms,
            });
        }
        if self.series(name, help, unit, labels, &series_sample) {
            self.keep(sample, name, family, labels);
        }
    }

    /// Returns the type of samples with this name that no `# TYPE` line declares. The last type is
    /// cached, because samples of a name are usually adjacent.
    fn cached_type(&mut self, name: &str) -> SeriesType {
        let cached_type = &mut self.state.cached_type;
        if cached_type.name != name || cached_type.families != self.intake.usage().families {
            cached_type.name.clear();
            cached_type.name.push_str(name);
            cached_type.series_type = types::existing_type(&mut self.intake, name);
            // We update this number, because the lookup may have discovered families that other
            // threads created.
            cached_type.families = self.intake.usage().families;
        }
        cached_type.series_type
    }

    /// Stores the metrics of a collected family.
    fn family(&mut self, family: Family<'_>) {
        if !is_whole(family.kind()) {
            return;
        }
        for metric in family.metrics() {
            let mut buckets = std::mem::take(&mut self.state.buckets);
            let series_sample =
                convert_value(metric.value(), &mut buckets).map(|given| SeriesSample {
                    given,
                    mode: match family.kind() {
                        FamilyType::GaugeHistogram => Mode::Set,
                        _ => Mode::Follow,
                    },
                    timestamp_ms: metric.timestamp_ms(),
                    start_ms: metric.created_ms(),
                });
            let mut labels: Vec<_> = metric.labels().collect();
            self.state.exemplars.clear();
            if let MetricValue::Histogram(histogram) = metric.value() {
                let found = histogram.buckets().filter_map(|bucket| bucket.exemplar);
                self.state.exemplars.extend(found.map(|exemplar| Exemplar {
                    labels: exemplar.labels().map(|(a, b)| (a.to_owned(), b.to_owned())).collect(),
                    value: exemplar.value,
                    timestamp_ms: exemplar.timestamp_ms,
                }));
            }
            match series_sample {
                Ok(series_sample) => {
                    let (name, help, unit) = (family.name(), family.help(), family.unit());
                    self.series(name, help, unit, &mut labels, &series_sample);
                }
                Err(detail) => {
                    let display = SeriesDisplay { name: family.name(), labels: &labels };
                    let line = self.state.line;
                    let detail = format_args!("text: up to line {line}: {display}: {detail}");
                    self.outcome.refuse("family", detail);
                }
            }
            self.state.buckets = buckets;
        }
    }

    fn series(
        &mut self,
        name: &str,
        help: &str,
        unit: &str,
        labels: &mut [(&str, &str)],
        series_sample: &SeriesSample<'_>,
    ) -> bool {
        let parameters = std::mem::take(&mut self.state.parameters);
        let order = Order::Strict;
        let metric = Metric { help, unit, exemplars: true, order, ..self.inputs.metric(name) };
        let timestamp_ms = series_sample.timestamp_ms.or(parameters.timestamp_ms);
        let is_taken = if parameters.labels.is_empty() {
            self.put(metric, labels, series_sample, timestamp_ms)
        } else {
            let is_own =
                |label: &&(&str, &str)| parameters.labels.iter().all(|(name, _)| name != label.0);
            let mut all: Vec<(&str, &str)> = labels.iter().filter(is_own).copied().collect();
            all.extend(parameters.labels.iter().map(|(name, value)| (&**name, &**value)));
            all.sort_unstable();
            self.put(metric, &all, series_sample, timestamp_ms)
        };
        self.state.parameters = parameters;
        is_taken
    }

    /// Stores a value, and counts it as accepted or refused. Returns whether it was accepted.
    fn put(
        &mut self,
        metric: Metric<'_>,
        labels: &[(&str, &str)],
        series_sample: &SeriesSample<'_>,
        timestamp_ms: Option<i64>,
    ) -> bool {
        let taken = self.take(metric, labels, series_sample, timestamp_ms);
        match taken {
            Ok(()) => {
                self.outcome.count_taken(1);
                self.exemplify(metric.name, labels);
            }
            Err((reason, ref detail)) => {
                let line = self.state.line;
                let display = SeriesDisplay { name: metric.name, labels };
                let is_whole = matches!(
                    series_sample.given,
                    InputValue::Histogram { .. } | InputValue::Summary { .. }
                );
                let place = if is_whole { "up to line" } else { "line" };
                self.outcome
                    .refuse(reason, format_args!("text: {place} {line}: {display}: {detail}"));
            }
        }
        taken.is_ok()
    }

    /// Stores the exemplars of the last value, which was accepted.
    fn exemplify(&mut self, name: &str, labels: &[(&str, &str)]) {
        for exemplar in self.state.exemplars.drain(..) {
            let own = exemplar.labels.iter().map(|(name, value)| (&**name, &**value));
            let own: Vec<(&str, &str)> = own.collect();
            let time = exemplar.timestamp_ms.and_then(types::timestamp);
            let exemplar = InputExemplar { labels: &own, value: exemplar.value, time };
            self.inputs.shared().exemplify(&mut self.intake, name, labels, &exemplar);
        }
    }

    fn take(
        &mut self,
        metric: Metric<'_>,
        labels: &[(&str, &str)],
        series_sample: &SeriesSample<'_>,
        timestamp_ms: Option<i64>,
    ) -> Result<(), Fault> {
        let (shared, intake) = (self.inputs.shared(), &mut *self.intake);
        let start = series_sample.start_ms.and_then(types::timestamp);
        let metric = Metric { time: timestamp_ms.map(types::sample_time), ..metric };
        let taken =
            shared.take(intake, metric, labels, &series_sample.given, series_sample.mode, start);
        taken.map_err(|refused| (refused.reason(), intake.explain(refused).to_string()))
    }
}

/// Returns the labels of a sample without allocating, if there are only a few and none is escaped.
fn few_labels<'r, 's>(
    sample: &TextSample<'_, 's>,
    room: &'r mut [(&'s str, &'s str); FEW_LABELS],
) -> Option<&'r mut [(&'s str, &'s str)]> {
    let labels = room.get_mut(..sample.labels.len())?;
    for (room, label) in labels.iter_mut().zip(sample.labels) {
        *room = (label.name.as_str()?, label.value.as_str()?);
    }
    Some(labels)
}

/// The maximum number of labels on the stack.
const FEW_LABELS: usize = 16;

/// Converts a histogram or a summary for the intake.
fn convert_value<'b>(
    value: MetricValue<'_>,
    buckets: &'b mut Vec<(f64, f64)>,
) -> Result<InputValue<'b>, &'static str> {
    buckets.clear();
    match value {
        MetricValue::Histogram(histogram) => {
            let mut below = 0.0;
            for bucket in histogram.buckets() {
                let count = bucket.cumulative_count;
                if !(count >= below && count.is_finite()) {
                    return Err("a bucket has fewer values than those below it");
                }
                buckets.push((bucket.upper_bound, count - below));
                below = count;
            }
            if buckets.last().is_none_or(|last| last.0 != f64::INFINITY) {
                let count = histogram.count.filter(|count| *count >= below && count.is_finite());
                let count = count.ok_or("it needs the bucket le=\"+Inf\", or a count")?;
                buckets.push((f64::INFINITY, count - below));
            }
            Ok(InputValue::Histogram { buckets, sum: histogram.sum.unwrap_or_default() })
        }
        MetricValue::Summary(summary) => {
            buckets.extend(summary.quantiles());
            let (count, sum) = (summary.count.unwrap_or_default(), summary.sum.unwrap_or_default());
            Ok(InputValue::Summary { quantiles: buckets, count, sum })
        }
        _ => Err("it is neither a histogram nor a summary"),
    }
}
