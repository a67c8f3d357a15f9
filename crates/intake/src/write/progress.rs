//! Stores the series of a remote write request as values of the daemon's families. Series in the
//! cache take a fast path, without parsing their labels.

use std::cell::RefMut;
use std::sync::Arc;

use quipu::intake::{InputExemplar, InputValue, Intake, Metric, Mode, Moment, Order, Rejection};
use quipu::snapshot::Native;
use quipu_wire::remote::write::{
    FamilyMetadata, HistogramSample, Metadata, ResetHint, Sample, Series, SeriesType, WriteVersion,
    encode_labels,
};

use super::metadata::OwnedMetadata;
use crate::outcome::{RequestOutcome, SeriesDisplay};
use crate::requests::Context;
use crate::series_cache::{self, NameType, SeriesCache, TimedValue, Version};
use crate::types::{self, SampleType};
use crate::{Inputs, Shared};

/// The state of a request between two steps.
pub(super) struct WriteProgress {
    version: WriteVersion,
    written: WrittenCounts,
    /// The index of the current series in the request, starting at 1, for error messages.
    number: u64,
    /// The name of the last series. It is reused with the fields below, because series with the
    /// same name are usually adjacent.
    last_name: String,
    /// The metadata of the family of `last_name`.
    known: Option<Arc<OwnedMetadata>>,
    /// The type of the daemon's family with this name.
    existing_type: SeriesType,
    buckets: Buckets,
    /// A reused buffer for encoded labels.
    bytes: Vec<u8>,
}

/// The numbers of written values, for the headers of a 2.0 response.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct WrittenCounts {
    pub(super) samples: u64,
    pub(super) histograms: u64,
    pub(super) exemplars: u64,
}

/// Reused buffers for the buckets of a histogram.
#[derive(Default)]
struct Buckets {
    negative: Vec<(i32, u64)>,
    positive: Vec<(i32, u64)>,
    classic: Vec<(f64, f64)>,
}

/// One step over a few series. It borrows the intake of the thread.
pub(super) struct WriteStep<'t> {
    inputs: &'t Inputs,
    intake: RefMut<'t, Intake>,
    /// The cache of series, by the bytes of their labels.
    cache: RefMut<'t, SeriesCache>,
    moment: Moment,
    outcome: &'t mut RequestOutcome,
    progress: &'t mut WriteProgress,
}

/// A series with its name, its type, and its metric.
struct NamedSeries<'s> {
    name: &'s str,
    labels: &'s [(&'s str, &'s str)],
    series_type: SeriesType,
    metric: Metric<'s>,
}

/// The reason of a refused value: the value of the label `reason`, and a message.
type Fault = (&'static str, String);

impl WriteProgress {
    pub(super) fn new(version: WriteVersion) -> Self {
        Self {
            version,
            written: WrittenCounts::default(),
            number: 0,
            last_name: String::new(),
            known: None,
            existing_type: SeriesType::Unknown,
            buckets: Buckets::default(),
            bytes: Vec::new(),
        }
    }

    /// Begins a step.
    pub(super) fn step<'t>(&'t mut self, context: &'t mut Context<'_>) -> WriteStep<'t> {
        let (inputs, intake) = (context.inputs, context.intake());
        let (cache, moment, outcome) = (inputs.write_cache(), Moment::now(), &mut *context.outcome);
        WriteStep { inputs, intake, cache, moment, outcome, progress: self }
    }

    pub(super) fn written(&self) -> WrittenCounts {
        self.written
    }
}

impl WriteStep<'_> {
    /// Refuses the rest of a request, which is unreadable.
    pub(super) fn refuse_request(&mut self, error: &quipu_wire::Error) {
        let number = self.progress.number;
        self.outcome.refuse("malformed", format_args!("{error}, after {number} series"));
    }

    /// Caches the metadata of a family, from a 1.0 sender.
    pub(super) fn family(&mut self, family: &FamilyMetadata<'_>) {
        self.inputs.shared().metadata.put(family);
        // The metadata of the last series may have changed.
        self.progress.last_name.clear();
    }

    /// Finds the cached series whose labels are a prefix of these bytes. Returns the length of the
    /// labels, and the index of the series.
    #[inline]
    pub(super) fn find(&mut self, bytes: &[u8]) -> Option<(usize, u32)> {
        let is_end = |rest: &[u8]| rest.first() != Some(&LABEL);
        self.cache.find(bytes, is_end, labels_end)
    }

    /// Stores samples of a cached series. Returns the number of accepted samples; pass the others
    /// to [`WriteStep::series`].
    #[inline]
    pub(super) fn known(
        &mut self,
        series: u32,
        samples: &[Sample],
        metadata: &Metadata<'_>,
    ) -> usize {
        let Self { inputs, intake, cache, moment, outcome, progress } = self;
        let (shared, cache) = (inputs.shared(), &mut **cache);
        let is_current = match stated(metadata) {
            Some(stated) => cache.series(series).is_some_and(|known| known.series_type == stated),
            None => {
                let version = version(shared, intake, progress.version);
                let look_up = |name: &str| name_type(shared, intake, progress.version, name);
                cache.is_current(series, version, look_up)
            }
        };
        let known = cache
            .series(series)
            .filter(|known| is_current && (metadata.help.is_empty() || known.has_help()));
        let Some(known) = known else { return 0 };
        let take = |sample: &&Sample| {
            let Sample { value, timestamp_ms, start_ms, .. } = **sample;
            let timed_value = TimedValue { value, timestamp_ms: Some(timestamp_ms), start_ms };
            !sample.is_stale() && shared.take_known(intake, known, timed_value, moment)
        };
        let taken = samples.iter().take_while(take).count();
        progress.number += u64::from(taken == samples.len());
        progress.written.samples += taken as u64;
        outcome.count_taken(taken as u64);
        taken
    }

    /// Caches the series of an accepted value, if possible.
    fn keep(
        &mut self,
        bytes: &[u8],
        named: &NamedSeries<'_>,
        stated: Option<SeriesType>,
        value: f64,
    ) {
        let shared = self.inputs.shared();
        if shared.rules.is_some() || !self.cache.has_room(bytes) {
            return;
        }
        // Look up the type only now, because the value may have created the family. A type that the
        // request declares does not apply to other requests.
        let (version, kind) = match stated {
            Some(series_type) => ([u64::MAX; 2], NameType { series_type, has_help: false }),
            None => {
                let version = version(shared, &self.intake, self.progress.version);
                let kind = name_type(shared, &mut self.intake, self.progress.version, named.name);
                (version, kind)
            }
        };
        let Some(sample_type) =
            types::lasting_type(kind.series_type, named.name, named.labels, value)
        else {
            return;
        };
        let (given, mode) = types::given(sample_type, value);
        if let Some(located) = self.intake.locate(named.metric, named.labels, &given, mode) {
            let known =
                series_cache::KnownSeries { located, series_type: kind.series_type, sample_type };
            self.cache.keep(bytes, (named.name, kind, version), known);
        }
    }

    /// Stores a series without the cache: its samples from index `taken` on, its histograms and its
    /// exemplars.
    pub(super) fn series(&mut self, series: &Series<'_, '_>, taken: usize) {
        self.progress.number += 1;
        let number = self.progress.number;
        if let Some(fault) = series.fault {
            self.outcome.refuse("labels", format_args!("series {number}: {fault}"));
            return;
        }
        let Some(name) = series.label(NAME).filter(|name| !name.is_empty()) else {
            let detail = format_args!("series {number}: it has no name; give the label {NAME}");
            self.outcome.refuse("name", detail);
            return;
        };
        // `__name__` sorts before labels in lower case.
        let others: Vec<_>;
        let labels = match series.labels {
            [(NAME, _), labels @ ..] => labels,
            labels => {
                others = labels.iter().copied().filter(|label| label.0 != NAME).collect();
                &others
            }
        };
        self.look_up(name);
        let known = self.progress.known.clone();
        let mut metadata = known.as_ref().map_or(series.metadata, |known| known.metadata());
        if metadata.series_type == SeriesType::Unknown {
            // The daemon's family may be known although its metadata is not, because 1.0 sends
            // metadata less often than samples.
            metadata.series_type = self.progress.existing_type;
        }
        let metric = Metric {
            help: metadata.help,
            unit: metadata.unit,
            exemplars: true,
            order: Order::Strict,
            replaces: true,
            ..self.inputs.metric(name)
        };
        let named = NamedSeries { name, labels, series_type: metadata.series_type, metric };
        let mut last = None;
        for sample in series.samples.iter().skip(taken) {
            let taken = self.sample(&named, sample);
            let is_taken = self.count(&named, taken);
            self.progress.written.samples += u64::from(is_taken);
            last = is_taken.then_some(sample);
        }
        let has_others = series.exemplars().len() > 0 || series.histograms().next().is_some();
        if let Some(last) = last.filter(|last| !has_others && !last.is_stale()) {
            let mut room = std::mem::take(&mut self.progress.bytes);
            if let Some(bytes) = encoded_labels(series, self.progress.version, &mut room) {
                self.keep(bytes, &named, stated(&series.metadata), last.value);
            }
            self.progress.bytes = room;
        }
        for histogram in series.histograms() {
            let taken = match histogram {
                Ok(histogram) => self.histogram(&named, &histogram),
                Err(fault) => Err(("histogram", fault.to_string())),
            };
            self.progress.written.histograms += u64::from(self.count(&named, taken));
        }
        if series.exemplars().len() > 0 {
            self.exemplars(series, &named);
        }
    }

    /// Stores the exemplars of a series. Call this after storing its values.
    fn exemplars(&mut self, series: &Series<'_, '_>, named: &NamedSeries<'_>) {
        let (shared, intake) = (self.inputs.shared(), &mut *self.intake);
        let mut kept = 0;
        for exemplar in series.exemplars() {
            let exemplar = InputExemplar {
                labels: exemplar.labels,
                value: exemplar.value,
                time: types::timestamp(exemplar.timestamp_ms),
            };
            kept += u64::from(shared.exemplify(intake, named.name, named.labels, &exemplar));
        }
        self.progress.written.exemplars += kept;
        // A 2.0 series must contain a sample or a histogram. However, Prometheus sends exemplars in
        // a separate series, after the samples. Also, a rule may have dropped the samples.
        let is_alone = series.samples.is_empty() && series.histograms().next().is_none();
        if kept == 0
            && is_alone
            && self.progress.version == WriteVersion::Two
            && shared.rules.is_none()
            && intake.read(named.name, named.labels, |_| {}).is_ok_and(|count| count == 0)
        {
            let number = self.progress.number;
            let display = SeriesDisplay { name: named.name, labels: named.labels };
            let detail = "it has exemplars and no value: send a sample or a histogram first";
            self.outcome.refuse("exemplar", format_args!("series {number}, {display}: {detail}"));
        }
    }

    /// Looks up the metadata and the type of the family for a series with this name.
    fn look_up(&mut self, name: &str) {
        if self.progress.last_name == name {
            return;
        }
        self.progress.last_name.clear();
        self.progress.last_name.push_str(name);
        if self.progress.version == WriteVersion::One {
            self.progress.known = self.inputs.shared().metadata.find(name);
        }
        self.progress.existing_type = types::existing_type(&mut self.intake, name);
    }

    /// Counts a value as written or refused. Returns whether it was accepted.
    fn count(&mut self, named: &NamedSeries<'_>, taken: Result<(), Fault>) -> bool {
        match taken {
            Ok(()) => self.outcome.count_taken(1),
            Err((reason, ref detail)) => {
                let number = self.progress.number;
                let display = SeriesDisplay { name: named.name, labels: named.labels };
                self.outcome.refuse(reason, format_args!("series {number}, {display}: {detail}"));
            }
        }
        taken.is_ok()
    }

    fn sample(&mut self, named: &NamedSeries<'_>, sample: &Sample) -> Result<(), Fault> {
        let has_bound = named.labels.iter().any(|label| label.0 == "le");
        // We use zero, because the value of a staleness marker does not determine a type.
        let value = if sample.is_stale() { 0.0 } else { sample.value };
        let sample_type = types::sample_type(named.series_type, named.name, has_bound, value);
        if sample.is_stale() {
            return match sample_type {
                // A total stays until it expires, because it continues when its series returns.
                SampleType::Counter => Ok(()),
                _ => self.end(named, sample.timestamp_ms),
            };
        }
        let (given, mode) = types::given(sample_type, sample.value);
        self.take(named, &given, mode, (sample.timestamp_ms, sample.start_ms))
    }

    fn histogram(
        &mut self,
        named: &NamedSeries<'_>,
        histogram: &HistogramSample<'_>,
    ) -> Result<(), Fault> {
        if histogram.is_stale() {
            // Like a total, a histogram stays until it expires.
            return Ok(());
        }
        let is_gauge = histogram.reset_hint == ResetHint::Gauge
            || named.series_type == SeriesType::GaugeHistogram;
        let mode = if is_gauge { Mode::Set } else { Mode::Follow };
        let mut buckets = std::mem::take(&mut self.progress.buckets);
        let given = buckets.given(histogram);
        let times = (histogram.timestamp_ms, histogram.start_ms);
        let taken = self.take(named, &given, mode, times);
        self.progress.buckets = buckets;
        taken
    }

    fn take(
        &mut self,
        named: &NamedSeries<'_>,
        given: &InputValue<'_>,
        mode: Mode,
        (timestamp_ms, start_ms): (i64, Option<i64>),
    ) -> Result<(), Fault> {
        let start = start_ms.and_then(types::timestamp);
        let metric = Metric { time: Some(types::sample_time(timestamp_ms)), ..named.metric };
        let (shared, intake) = (self.inputs.shared(), &mut self.intake);
        let taken = shared.take(intake, metric, named.labels, given, mode, start);
        taken.map_err(|refused| self.fault(refused))
    }

    fn end(&mut self, named: &NamedSeries<'_>, timestamp_ms: i64) -> Result<(), Fault> {
        let (shared, time) = (self.inputs.shared(), Some(types::sample_time(timestamp_ms)));
        let ended = shared.end(&mut self.intake, named.name, named.labels, time);
        ended.map(drop).map_err(|refused| self.fault(refused))
    }

    fn fault(&self, refused: Rejection) -> Fault {
        (refused.reason(), self.intake.explain(refused).to_string())
    }
}

impl OwnedMetadata {
    fn metadata(&self) -> Metadata<'_> {
        let mut metadata = Metadata::default();
        (metadata.series_type, metadata.help, metadata.unit) =
            (self.series_type, &self.help, &self.unit);
        metadata
    }
}

impl Buckets {
    /// Converts a histogram for the intake. Fractional counts are rounded.
    fn given(&mut self, histogram: &HistogramSample<'_>) -> InputValue<'_> {
        let whole = |side: &[(i32, f64)], out: &mut Vec<(i32, u64)>| {
            out.clear();
            let counts = side.iter().map(|(index, count)| (*index, count.round() as u64));
            out.extend(counts.filter(|bucket| bucket.1 > 0));
        };
        if histogram.schema == HistogramSample::CUSTOM {
            self.classic.clear();
            let bounds = histogram.custom_bounds.iter().copied().chain([f64::INFINITY]);
            self.classic.extend(bounds.map(|bound| (bound, 0.0)));
            for (index, count) in histogram.positive {
                let index = usize::try_from(*index).unwrap_or(usize::MAX);
                if let Some(bucket) = self.classic.get_mut(index) {
                    bucket.1 = *count;
                }
            }
            return InputValue::Histogram { buckets: &self.classic, sum: histogram.sum };
        }
        whole(histogram.negative, &mut self.negative);
        whole(histogram.positive, &mut self.positive);
        InputValue::Native {
            // The schema fits, because the reader checked that it is between -4 and 8.
            buckets: Native::new(histogram.schema as i8)
                .zero(histogram.zero_threshold, histogram.zero_count.round() as u64)
                .positive(&self.positive)
                .negative(&self.negative),
            sum: histogram.sum,
        }
    }
}

/// Returns the labels of a series in the encoding of remote write 1.0, if possible. `room` is a
/// reused buffer for the conversion from 2.0.
fn encoded_labels<'b>(
    series: &Series<'_, 'b>,
    version: WriteVersion,
    room: &'b mut Vec<u8>,
) -> Option<&'b [u8]> {
    if version == WriteVersion::One {
        return series.encoded;
    }
    room.clear();
    encode_labels(series.labels, room)?;
    Some(room)
}

/// Returns the type that a 2.0 series declares.
fn stated(metadata: &Metadata<'_>) -> Option<SeriesType> {
    Some(metadata.series_type).filter(|series_type| *series_type != SeriesType::Unknown)
}

/// Returns counters that change whenever the type of a name may have changed, for series that
/// declare no type.
fn version(shared: &Shared, intake: &Intake, version: WriteVersion) -> Version {
    let is_one = version == WriteVersion::One;
    let families = if is_one { shared.metadata.changes() } else { u64::MAX };
    [intake.version(), families]
}

/// Returns the type of a name, for series that declare no type.
fn name_type(shared: &Shared, intake: &mut Intake, version: WriteVersion, name: &str) -> NameType {
    let is_one = version == WriteVersion::One;
    let known = is_one.then(|| shared.metadata.find(name)).flatten();
    let known_type = known.as_ref().map(|known| known.series_type);
    let series_type = match known_type {
        None | Some(SeriesType::Unknown) => types::existing_type(intake, name),
        Some(series_type) => series_type,
    };
    NameType { series_type, has_help: known.is_some_and(|known| !known.help.is_empty()) }
}

/// Returns the end of the labels at the beginning of an encoded series.
fn labels_end(bytes: &[u8]) -> Option<usize> {
    let mut end = 0;
    while bytes.get(end) == Some(&LABEL) {
        // Longer labels are not cached.
        let length = *bytes.get(end + 1).filter(|length| **length < 0x80)?;
        end += 2 + usize::from(length);
    }
    Some(end)
}

/// The protobuf tag of a label in a 1.0 series.
const LABEL: u8 = 0x0a;
/// The label that contains the name of the metric.
const NAME: &str = "__name__";
