//! The changes since the last flush: the values that were last sent to the server, and the walk
//! over the segment that compares its current values with these.

use std::collections::{HashMap, HashSet};
use std::ops::{Index, IndexMut};

use quipu::snapshot::{
    CounterValue, FamilyHeader, HistogramValue, Kind, Number, Series, Sink, SummaryValue, Value,
};

use super::calls::{Calls, Resets};
use crate::redis::key::{MetricKeys, write_field};
use crate::redis::link::Failure;
use crate::redis::meta::{How, METRICS, Meta, OWN};
use crate::redis::number::{float_text, is_same};

/// The values that were last sent to the server.
#[derive(Default)]
pub(super) struct SentState {
    metrics: Vec<SentMetric>,
    handles: HashMap<Box<str>, Handle>,
    /// How gauges are combined, from the registry's metric [`METRICS`].
    specs: HashMap<Box<str>, How>,
    /// The number of this walk.
    round: u32,
}

/// The place of a metric in a [`SentState`]. A metric keeps its place, so a walk looks up its name
/// once, when its family begins.
#[derive(Debug, Clone, Copy)]
pub(super) struct Handle(usize);

/// A metric, and the values that were last sent to the server.
pub(super) struct SentMetric {
    pub(super) name: Box<str>,
    pub(super) keys: [String; 5],
    pub(super) meta: Meta,
    /// The values by the keys that [`Walk`] writes.
    pub(super) sent: HashMap<Box<[u8]>, SentValue>,
    /// The number of fields of its series that the walk visited so far.
    live: u64,
    /// Whether the server knows the metric's description.
    pub(super) is_known: bool,
    /// Whether the server holds strays: fields whose series no longer exist.
    pub(super) has_strays: bool,
    /// Whether strays are kept, because a series that is hidden while idle can return with all its
    /// counts.
    keeps_strays: bool,
    /// The fields of existing series; collected only when needed.
    pub(super) fields: Option<HashSet<String>>,
    /// Lists of resets that the server may have missed, in order. They are sent again unchanged,
    /// before any other call, until the server confirms them.
    pub(super) resets: Vec<Resets>,
}

/// A value that was sent to the server.
pub(super) struct SentValue {
    value: Number,
    /// Whether the series no longer exists, but the server still holds its field.
    pub(super) is_gone: bool,
    /// When the value last changed, for aggregations that select the most recent value.
    time: u64,
    /// The last walk that visited it.
    round: u32,
    is_written: bool,
}

/// The difference between a value and the last one that was sent.
pub(super) struct Change {
    /// Whether the value is to be written.
    is_due: bool,
    /// The value that was last sent.
    pub(super) before: Option<Number>,
    /// The value that was last sent before a reset, if the series was reset since.
    pub(super) ended: Option<Number>,
    /// When the value last changed.
    time: u64,
}

/// A number of a series. Some series consist of several numbers, for example histograms and
/// summaries.
#[derive(Clone, Copy)]
struct SeriesPart {
    /// Distinguishes it from the other parts of the series.
    number: u32,
    name: &'static str,
    /// The upper bound of a bucket.
    bound: Option<f64>,
}

/// The sink of a walk over the segment: passes on the values that changed, to be written.
pub(super) struct Walk<'f> {
    state: &'f mut SentState,
    calls: Calls<'f>,
    namespace: &'f str,
    /// The families that hide idle series.
    hiding: HashSet<String>,
    /// The time, by the server's clock.
    now: u64,
    /// The metric of the current family, if this family is written.
    metric: Option<Handle>,
    /// Whether some of its values were written, or its number of fields must be checked.
    is_touched: bool,
    key: Vec<u8>,
    field: String,
    /// The number of values that were written.
    series: u64,
}

impl SentState {
    /// Assumes that the server holds no data.
    pub(super) fn distrust(&mut self) {
        self.metrics.iter_mut().for_each(SentMetric::distrust);
    }

    /// Forgets the resets, because the server applied them.
    pub(super) fn trust(&mut self) {
        self.metrics.iter_mut().for_each(|metric| metric.resets.clear());
    }

    pub(super) fn metrics(&self) -> impl Iterator<Item = &SentMetric> {
        self.metrics.iter()
    }

    /// Returns the number of values of all metrics.
    pub(super) fn series(&self) -> u64 {
        self.metrics.iter().map(|metric| metric.sent.len() as u64).sum()
    }

    /// Returns the metrics with strays on the server.
    pub(super) fn strays(&self) -> Vec<Handle> {
        let all = self.metrics.iter().enumerate().filter(|(_, metric)| metric.has_strays);
        all.map(|(at, _)| Handle(at)).collect()
    }

    /// Notes how a gauge is combined.
    fn specify(&mut self, name: &str, how: How) {
        if self.specs.get(name) != Some(&how) {
            self.specs.insert(name.into(), how);
        }
    }

    /// Finds the metric of a family by name; `make` creates it if it does not exist.
    fn find(&mut self, name: &str, make: impl FnOnce() -> SentMetric) -> Handle {
        if let Some(&handle) = self.handles.get(name) {
            return handle;
        }
        let handle = Handle(self.metrics.len());
        self.metrics.push(make());
        self.handles.insert(name.into(), handle);
        handle
    }
}

impl Index<Handle> for SentState {
    type Output = SentMetric;

    fn index(&self, handle: Handle) -> &SentMetric {
        &self.metrics[handle.0]
    }
}

impl IndexMut<Handle> for SentState {
    fn index_mut(&mut self, handle: Handle) -> &mut SentMetric {
        &mut self.metrics[handle.0]
    }
}

impl SentMetric {
    fn new(name: &str, keys: [String; 5], meta: Meta) -> Self {
        Self {
            name: name.into(),
            keys,
            meta,
            sent: HashMap::new(),
            live: 0,
            is_known: false,
            has_strays: false,
            keeps_strays: false,
            fields: None,
            resets: Vec::new(),
        }
    }

    fn distrust(&mut self) {
        self.is_known = false;
        self.sent.values_mut().for_each(|sent| sent.is_written = false);
    }

    /// Prepares for the walk over its series.
    fn begin(&mut self, meta: Meta, hides: bool) {
        if self.meta != meta {
            self.meta = meta;
            self.distrust();
        }
        self.keeps_strays |= hides;
        self.live = 0;
        self.fields = self.has_strays.then(HashSet::new);
    }

    /// Compares a value with the last one that was sent, and notes it as written: if the flush
    /// fails, [`SentMetric::distrust`] undoes this.
    fn update(
        &mut self,
        key: &[u8],
        part: SeriesPart,
        value: Number,
        round: u32,
        now: u64,
    ) -> Change {
        self.live += 1;
        let Some(sent) = self.sent.get_mut(key) else {
            let sent = SentValue { value, is_gone: false, time: now, round, is_written: true };
            self.sent.insert(key.into(), sent);
            return Change { is_due: true, before: None, ended: None, time: now };
        };
        let before = sent.value;
        let is_new = !is_same(before, value);
        let is_again = sent.is_gone && !self.keeps_strays;
        // Observations below zero can lower a sum, too.
        let only_grows = self.meta.how == How::Counter && part.number != SeriesPart::SUM.number;
        let has_fallen = only_grows && value.as_f64() < before.as_f64();
        let has_ended = self.meta.how.is_sum() && (is_again || has_fallen);
        let is_due = is_new || !sent.is_written || has_ended;
        let time = if is_new { now } else { sent.time };
        *sent = SentValue { value, is_gone: false, time, round, is_written: true };
        Change { is_due, before: Some(before), ended: has_ended.then_some(before), time }
    }

    /// Marks the series that the walk did not visit. Returns whether one of them is newly gone.
    fn mark_gone(&mut self, round: u32) -> bool {
        let mut some_are_gone = false;
        for sent in self.sent.values_mut().filter(|sent| sent.round != round) {
            some_are_gone |= !std::mem::replace(&mut sent.is_gone, true);
        }
        some_are_gone
    }

    /// Compares the number of fields on the server, after all changes were written, with the number
    /// of live ones.
    pub(super) fn has_fields(&mut self, fields: u64) {
        if fields < self.live {
            self.distrust();
        }
        self.has_strays = fields > self.live && !self.keeps_strays;
    }
}

impl SeriesPart {
    const ONLY: Self = Self { number: 0, name: "", bound: None };
    const SUM: Self = Self { number: u32::MAX, name: "sum", bound: None };
    const COUNT: Self = Self { number: u32::MAX - 1, name: "count", bound: None };

    fn bucket(index: usize, bound: f64) -> Self {
        let number = u32::try_from(index).unwrap_or(u32::MAX - 2);
        Self { number, name: "bucket", bound: Some(bound) }
    }
}

impl<'f> Walk<'f> {
    /// Begins a walk. `now` is the time by the server's clock.
    pub(super) fn new(
        state: &'f mut SentState,
        mut calls: Calls<'f>,
        namespace: &'f str,
        hiding: HashSet<String>,
        now: u64,
    ) -> Self {
        state.round = state.round.wrapping_add(1);
        calls.reset_again(state);
        let (key, field) = (Vec::new(), String::new());
        let (metric, is_touched, series) = (None, false, 0);
        Self { state, calls, namespace, hiding, now, metric, is_touched, key, field, series }
    }

    /// Sends the remaining chunk. Returns the number of values that were written.
    pub(super) fn finish(mut self) -> Result<u64, Failure> {
        self.end_family();
        self.calls.finish(self.state)?;
        Ok(self.series)
    }

    fn value(
        &mut self,
        family: &FamilyHeader<'_>,
        series: &Series<'_>,
        part: SeriesPart,
        value: Number,
    ) {
        let Some(handle) = self.metric else { return };
        let round = self.state.round;
        let metric = &mut self.state[handle];
        // Only sums need start times, because an older value of a gauge does not count.
        let start = series.start.map_or(0, |start| start.as_nanos());
        let start = metric.meta.how.is_sum().then_some(start);
        write_key(&mut self.key, series, part, start);
        let change = metric.update(&self.key, part, value, round, self.now);
        if !change.is_due && metric.fields.is_none() {
            return;
        }
        self.field.clear();
        push_field(&mut self.field, family, series, part, start);
        if let Some(fields) = &mut metric.fields {
            fields.insert(self.field.clone());
        }
        if !change.is_due {
            return;
        }
        self.series += 1;
        let time = metric.meta.how.has_time().then_some(change.time);
        if self.calls.add(&self.field, time, value, &change) {
            self.is_touched = true;
            self.calls.write(self.state, handle, false);
        }
    }

    fn histogram(
        &mut self,
        family: &FamilyHeader<'_>,
        series: &Series<'_>,
        histogram: &HistogramValue<'_>,
    ) {
        for (i, bucket) in histogram.buckets.iter().enumerate() {
            let part = SeriesPart::bucket(i, bucket.bound);
            self.value(family, series, part, Number::Unsigned(bucket.count));
        }
        if histogram.buckets.is_empty() {
            self.value(family, series, SeriesPart::COUNT, Number::Unsigned(histogram.count));
        }
        self.value(family, series, SeriesPart::SUM, Number::Float(histogram.sum));
    }

    /// Ends a family: writes its last chunk, and marks the series that no longer exist.
    fn end_family(&mut self) {
        let Some(handle) = self.metric.take() else { return };
        let round = self.state.round;
        let some_are_gone = self.state[handle].mark_gone(round);
        if self.is_touched || self.calls.has_pairs() || some_are_gone {
            self.calls.write(self.state, handle, true);
        }
    }
}

impl Sink for Walk<'_> {
    fn family(&mut self, family: &FamilyHeader<'_>) {
        self.end_family();
        if !is_written(family) || self.calls.has_failed() {
            return;
        }
        let meta = Meta::from_family(family, self.state.specs.get(family.name).copied());
        let handle = self.state.find(family.name, || {
            let keys = MetricKeys::new(self.namespace, family.name).of_scripts(self.calls.id());
            SentMetric::new(family.name, keys, meta.clone())
        });
        let metric = &mut self.state[handle];
        metric.begin(meta, self.hiding.contains(family.name));
        self.is_touched = metric.has_strays;
        self.metric = Some(handle);
    }

    fn series(&mut self, family: &FamilyHeader<'_>, series: &Series<'_>) {
        if family.name == METRICS {
            // This family precedes all others.
            let mut texts = series.texts;
            if let (Some(name), Some(kind), Some(how)) = (texts.next(), texts.next(), texts.next())
            {
                self.state.specify(name, How::of_spec(kind, how));
            }
            return;
        }
        match series.value {
            Value::Counter(CounterValue { total: number, .. })
            | Value::Gauge(number)
            | Value::Unknown(number) => self.value(family, series, SeriesPart::ONLY, number),
            Value::Histogram(histogram) => self.histogram(family, series, &histogram),
            Value::Summary(SummaryValue { count, sum, .. }) => {
                self.value(family, series, SeriesPart::COUNT, Number::Unsigned(count));
                self.value(family, series, SeriesPart::SUM, Number::Float(sum));
            }
            _ => {}
        }
    }
}

/// Returns whether a family is written to the server: it contains numbers, and does not belong to
/// the store itself.
fn is_written(family: &FamilyHeader<'_>) -> bool {
    let is_own = family.name.starts_with(OWN) || family.name == "quipu_series_overflowed";
    let is_number = matches!(
        family.kind,
        Kind::Counter | Kind::Gauge | Kind::Histogram | Kind::Summary | Kind::Unknown
    );
    is_number && !is_own
}

/// Replaces the key by the key of a part of a series.
fn write_key(key: &mut Vec<u8>, series: &Series<'_>, part: SeriesPart, start: Option<u64>) {
    key.clear();
    key.extend_from_slice(&series.group.to_le_bytes());
    key.extend_from_slice(&part.number.to_le_bytes());
    key.extend_from_slice(&start.unwrap_or(0).to_le_bytes());
    for text in series.texts {
        key.extend_from_slice(text.as_bytes());
        key.push(0xff);
    }
}

/// Appends the name of the field that holds a part of a series.
fn push_field(
    out: &mut String,
    family: &FamilyHeader<'_>,
    series: &Series<'_>,
    part: SeriesPart,
    start: Option<u64>,
) {
    let bound = part.bound.map(float_text);
    let le = bound.as_deref().map(|bound| ("le", bound));
    write_field(out, part.name, series.labels(family).chain(le), start);
}
