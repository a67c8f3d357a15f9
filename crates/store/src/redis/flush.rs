//! A flush: writes the values that changed to the server, and folds dead instances.
//!
//! All values are absolute, so a write whose response was lost can be repeated. After any error,
//! everything is written again: it is unknown which of the last writes the server has applied, and
//! it may have lost earlier ones as well.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use ::redis::Value;
use quipu::Registry;
use quipu::snapshot::{Family, Kind, Number, Series, Sink, Value as Shown};

use super::instance::{Instance, turn_text};
use super::key::{Global, Keys, write_field};
use super::link::{Call, Failure, Link, items, text};
use super::meta::{How, METRICS, Meta, OWN};
use super::number::{float_text, is_same, push_number};
use super::options::Options;
use super::script::{ADOPT, BEAT, FOLD, FORGET, WRITE};

/// The most pairs of field and value in one call, which the server runs as a unit.
const MOST_PAIRS: usize = 500;
/// The most calls in one pipeline, which bounds the memory for them.
const MOST_CALLS: usize = 32;
/// The most dead instances that one flush folds.
const MOST_FOLDED: usize = 8;

/// What the flushing process knows about the server's state.
pub(super) struct Flusher {
    options: Options,
    instance: Arc<Instance>,
    global: Global,
    link: Option<Link>,
    state: State,
    /// The time of this instance's last heartbeat, by the server's clock.
    beat: u64,
    refreshed: Instant,
    /// [`quipu_segment::Segment::newest`] at the last flush.
    newest: u64,
}

/// The result of a flush.
#[derive(Debug, Default)]
pub(super) struct Done {
    pub(super) series: u64,
    pub(super) folded: u64,
    /// Why a dead instance could not be folded.
    pub(super) unfolded: Option<Failure>,
}

#[derive(Default)]
struct State {
    metrics: HashMap<Box<str>, Metric>,
    /// How gauges are combined, from the registry's metric [`METRICS`].
    specs: HashMap<Box<str>, How>,
    round: u32,
}

/// A metric, and the values that were last sent to the server.
struct Metric {
    keys: [String; 5],
    meta: Meta,
    sent: HashMap<Box<[u8]>, Sent>,
    /// The number of fields of its series that the walk has visited so far.
    live: u64,
    /// Whether the server has the metric's description.
    is_known: bool,
    /// Whether the server has strays: fields whose series no longer exist.
    has_strays: bool,
    /// Whether strays are kept, because a series that is hidden while idle comes back with all its
    /// counts.
    keeps_strays: bool,
    /// The fields of existing series; collected only when needed.
    fields: Option<HashSet<String>>,
    /// Lists of resets that the server may not have applied, in order. They are sent again
    /// unchanged, before anything else, until it has.
    resets: Vec<Resets>,
}

/// Series that were set back, or were removed and created again within the resolution of start
/// times: their fields, with the last values from before.
struct Resets {
    /// The number by which the server recognizes a repeated list.
    number: u64,
    ended: Vec<(String, String)>,
}

struct Sent {
    value: Number,
    /// Whether the series no longer exists, but the server still has its field.
    is_gone: bool,
    /// When the value last changed, for aggregations in which the most recent one counts.
    time: u64,
    round: u32,
    is_written: bool,
}

impl Flusher {
    pub(super) fn new(options: Options, instance: Arc<Instance>) -> Self {
        let global = Global::new(&options.namespace);
        let (link, state, beat, refreshed) = (None, State::default(), 0, Instant::now());
        Self { options, instance, global, link, state, beat, refreshed, newest: 0 }
    }

    /// Writes the values that changed since the last flush.
    pub(super) fn flush(&mut self, registry: &Registry) -> Result<Done, Failure> {
        let asked = self.instance.asked();
        let result = self.try_flush(registry, asked);
        if result.is_err() {
            self.link = None;
            self.newest = 0;
            self.state.distrust();
            // Before the first walk over the registry, count everything in it.
            let known = match self.state.len() {
                0 => registry.segment().families().map_or(0, |families| {
                    let counted = families.iter().filter(|f| !f.schema().name.starts_with(OWN));
                    counted.map(|family| family.len()).sum()
                }),
                known => known,
            };
            self.instance.set_pending(known);
        }
        result
    }

    fn try_flush(&mut self, registry: &Registry, asked: u64) -> Result<Done, Failure> {
        let mut link = match self.link.take() {
            Some(link) => link,
            None => Link::connect(&self.options)?,
        };
        let dead_after = millis(self.options.dead_after);
        let turns = self.instance.turns().map_err(|error| Failure::other(&error.to_string()))?;
        let mut beat = Call::new(&BEAT, &self.global.of_instances());
        beat.arg(self.instance.id()).arg(&dead_after.to_string()).arg(&MOST_FOLDED.to_string());
        beat.arg(&turn_text(turns.0)).arg(&turn_text(turns.1));
        let answer = link.run(&[beat])?;
        if answer.first() == Some(&Value::Int(-1)) {
            return Err(Failure::copied());
        }
        self.instance.turned(turns.1);
        let answer = answer.first().map(items).unwrap_or_default();
        let heard = answer.first().and_then(text).and_then(|text| text.parse().ok()).unwrap_or(0);
        let now = answer.get(1).and_then(text).and_then(|text| text.parse().ok()).unwrap_or(0);
        let dead: Vec<&str> = answer.iter().skip(2).filter_map(text).collect();
        // Another time than that of the last heartbeat means that the server has lost its data, or
        // has gone back to an older state.
        let is_lost = heard != self.beat;
        if is_lost || self.refreshed.elapsed() >= self.options.refresh {
            self.state.distrust();
            self.refreshed = Instant::now();
        }
        self.beat = now;

        let acked = self.instance.acknowledged_there();
        let is_remembered = dead_after.saturating_add(millis(self.options.keep));
        let families = match registry.segment().newest() {
            newest if newest == self.newest => Vec::new(),
            newest => {
                self.newest = newest;
                registry.segment().families().map_err(|e| Failure::other(&e.to_string()))?
            }
        };
        let hiding = families.iter().map(|family| family.schema());
        let hiding = hiding.filter(|schema| schema.idle.is_some()).map(|s| s.name.clone());
        let mut writer = Writer {
            hiding: hiding.collect(),
            state: &mut self.state,
            link: &mut link,
            options: &self.options,
            global: &self.global,
            instance: &self.instance,
            sequence: self.instance.next_write(),
            now,
            is_adopting: acked != 0 && now.saturating_sub(acked) > is_remembered,
            metric: None,
            is_touched: false,
            calls: Vec::new(),
            of: Vec::new(),
            buffers: Buffers::default(),
            newer: 0,
            done: Done::default(),
            failure: None,
        };
        writer.state.round = writer.state.round.wrapping_add(1);
        writer.reset_again();
        if let Err(error) = registry.visit_segment(&mut writer) {
            return Err(Failure::other(&error.to_string()));
        }
        writer.finish()?;
        let (newer, mut done) = (writer.newer, writer.done);
        if newer > 0 {
            // The server applied none of the refused writes: repeat them with greater numbers.
            self.instance.skip_writes(newer);
            return Err(Failure::other(
                "the segment went back to an older state; everything is written again",
            ));
        }
        self.state.trust();
        let strays = self.state.strays();
        if !strays.is_empty() {
            self.retire(&mut link, &strays)?;
        }
        self.instance.acknowledge(asked, now, self.beat);
        // A failure to fold is retried later, and delays neither this instance nor the others.
        for id in &dead {
            match self.fold(&mut link, id) {
                Ok(was_there) => done.folded += u64::from(was_there),
                Err(failure) => {
                    let is_gone = failure.cause.is_of_link();
                    done.unfolded = Some(failure);
                    if is_gone {
                        break;
                    }
                }
            }
        }
        if done.unfolded.is_none() {
            self.link = Some(link);
        }
        Ok(done)
    }

    /// Moves fields whose series no longer exist into the archive.
    fn retire(&mut self, link: &mut Link, strays: &[Box<str>]) -> Result<(), Failure> {
        for name in strays {
            let Some(metric) = self.state.metrics.get_mut(name) else { continue };
            // If they were not collected yet, the next flush collects them.
            let Some(fields) = metric.fields.take() else { continue };
            metric.has_strays = false;
            let answer = link.run(&[Call::plain("HKEYS", &metric.keys[0])])?;
            let all = answer.first().map(items).unwrap_or_default();
            let gone: Vec<&str> = all
                .iter()
                .filter_map(text)
                .filter(|field| !is_note(field) && !fields.contains(*field))
                .collect();
            for gone in gone.chunks(MOST_PAIRS) {
                let how = if metric.meta.how.is_sum() { "sum" } else { "drop" };
                let (id, sequence) = (self.instance.id(), self.instance.next_write());
                link.run(&[metric.write(id, how, sequence, None, gone)])?;
            }
            metric.sent.retain(|_, sent| !sent.is_gone);
        }
        Ok(())
    }

    /// Folds a dead instance. Returns whether there was anything to fold. If this process dies
    /// meanwhile, another one folds the rest.
    fn fold(&self, link: &mut Link, id: &str) -> Result<bool, Failure> {
        let answer = link.run(&[Call::plain("SMEMBERS", &self.global.metrics)])?;
        let metrics: Vec<&str> =
            answer.first().map(items).unwrap_or_default().iter().filter_map(text).collect();
        let keep = millis(self.options.keep).max(1).to_string();
        let mut was_there = false;
        for metrics in metrics.chunks(MOST_CALLS) {
            let calls = metrics.iter().map(|metric| {
                let keys = keys_of(&Keys::new(&self.options.namespace, metric), id);
                let mut call = Call::new(&FOLD, &keys);
                call.arg(id).arg(&keep);
                call
            });
            let answers = link.run(&calls.collect::<Vec<_>>())?;
            was_there |= answers.contains(&Value::Int(1));
        }
        let mut forget = Call::new(&FORGET, &self.global.of_instances());
        forget.arg(id).arg(&millis(self.options.dead_after).to_string());
        forget.arg(if was_there { "1" } else { "0" });
        link.run(&[forget])?;
        Ok(was_there)
    }
}

impl State {
    fn distrust(&mut self) {
        self.metrics.values_mut().for_each(Metric::distrust);
    }

    /// Forgets the resets, which the server has applied.
    fn trust(&mut self) {
        self.metrics.values_mut().for_each(|metric| metric.resets.clear());
    }

    fn len(&self) -> u64 {
        self.metrics.values().map(|metric| metric.sent.len() as u64).sum()
    }

    fn strays(&self) -> Vec<Box<str>> {
        let all = self.metrics.iter().filter(|(_, metric)| metric.has_strays);
        all.map(|(name, _)| name.clone()).collect()
    }
}

impl Metric {
    fn distrust(&mut self) {
        self.is_known = false;
        self.sent.values_mut().for_each(|sent| sent.is_written = false);
    }

    /// A call of [`WRITE`]; the caller appends fields and values.
    fn write(
        &self,
        id: &str,
        how: &str,
        sequence: u64,
        resets: Option<&Resets>,
        gone: &[&str],
    ) -> Call {
        let mut call = Call::new(&WRITE, &self.keys);
        call.arg(id).arg(how);
        let ended = resets.map_or(&[][..], |resets| &resets.ended);
        let oldest = self.resets.first().map_or(0, |resets| resets.number);
        let number = resets.map_or(0, |resets| resets.number);
        let (resets, fields) = (ended.len() as u64, gone.len() as u64);
        for number in [sequence, number, oldest, resets, fields] {
            call.arg(itoa::Buffer::new().format(number));
        }
        for (field, value) in ended {
            call.arg(field).arg(value);
        }
        gone.iter().for_each(|field| {
            call.arg(field);
        });
        call
    }

    /// Compares the number of fields that the server has, after all changes were written, with the
    /// number of live ones.
    fn has_fields(&mut self, fields: i64) {
        if fields.unsigned_abs() < self.live {
            self.distrust();
        }
        self.has_strays = fields.unsigned_abs() > self.live && !self.keeps_strays;
    }
}

/// The sink of a walk over the segment: writes the values that changed.
struct Writer<'f> {
    /// The families that hide idle series.
    hiding: HashSet<String>,
    state: &'f mut State,
    link: &'f mut Link,
    options: &'f Options,
    global: &'f Global,
    instance: &'f Instance,
    sequence: u64,
    now: u64,
    is_adopting: bool,
    /// The current family, if it is one that is written.
    metric: Option<Box<str>>,
    /// Whether some of its values were written, or its number of fields is to be checked.
    is_touched: bool,
    calls: Vec<Call>,
    /// For each call, the metric whose number of fields is in the response.
    of: Vec<Option<Box<str>>>,
    buffers: Buffers,
    /// The greatest number of a write on the server that is newer than this flush; 0 for none.
    newer: u64,
    done: Done,
    failure: Option<Failure>,
}

#[derive(Default)]
struct Buffers {
    key: Vec<u8>,
    field: String,
    /// The fields and values to write for the family, one after another.
    text: String,
    /// For each pair, where its field ends in `text`, and where its value ends.
    pairs: Vec<(usize, usize)>,
    /// The resets among them.
    ended: Vec<(String, String)>,
    /// For each pair, the value that was written before; only while adopting.
    before: Vec<Option<Number>>,
}

/// The parts of a histogram or summary that are not buckets.
const SUM: u32 = u32::MAX;
const COUNT: u32 = u32::MAX - 1;

impl Sink for Writer<'_> {
    fn family(&mut self, family: &Family<'_>) {
        self.end_family();
        self.metric = None;
        let is_own = family.name.starts_with(OWN) || family.name == "quipu_series_overflowed";
        let is_number = matches!(
            family.kind,
            Kind::Counter | Kind::Gauge | Kind::Histogram | Kind::Summary | Kind::Unknown
        );
        if is_own || !is_number || self.failure.is_some() {
            return;
        }
        let how = self.state.specs.get(family.name).copied();
        let meta = Meta::of(family, how);
        let entry = self.state.metrics.entry(family.name.into());
        let metric = entry.or_insert_with(|| {
            let keys =
                keys_of(&Keys::new(&self.options.namespace, family.name), self.instance.id());
            Metric {
                keys,
                meta: meta.clone(),
                sent: HashMap::new(),
                live: 0,
                is_known: false,
                has_strays: false,
                keeps_strays: false,
                fields: None,
                resets: Vec::new(),
            }
        });
        if metric.meta != meta {
            metric.meta = meta;
            metric.distrust();
        }
        metric.keeps_strays |= self.hiding.contains(family.name);
        metric.live = 0;
        metric.fields = metric.has_strays.then(HashSet::new);
        self.is_touched = metric.has_strays;
        self.metric = Some(family.name.into());
    }

    fn series(&mut self, family: &Family<'_>, series: &Series<'_>) {
        if family.name == METRICS {
            // This family comes before all others.
            let mut texts = series.texts;
            if let (Some(name), Some(kind), Some(how)) = (texts.next(), texts.next(), texts.next())
            {
                self.state.specs.insert(name.into(), How::of_spec(kind, how));
            }
            return;
        }
        match series.value {
            Shown::Counter { total, .. } => self.value(family, series, 0, "", None, total),
            Shown::Gauge(number) | Shown::Unknown(number) => {
                self.value(family, series, 0, "", None, number);
            }
            Shown::Histogram(histogram) => {
                for (i, bucket) in histogram.buckets.iter().enumerate() {
                    let part = u32::try_from(i).unwrap_or(COUNT - 1);
                    let count = Number::Unsigned(bucket.count);
                    self.value(family, series, part, "bucket", Some(bucket.bound), count);
                }
                if histogram.buckets.is_empty() {
                    let count = Number::Unsigned(histogram.count);
                    self.value(family, series, COUNT, "count", None, count);
                }
                self.value(family, series, SUM, "sum", None, Number::Float(histogram.sum));
            }
            Shown::Summary { count, sum, .. } => {
                self.value(family, series, COUNT, "count", None, Number::Unsigned(count));
                self.value(family, series, SUM, "sum", None, Number::Float(sum));
            }
            _ => {}
        }
    }
}

impl Writer<'_> {
    fn value(
        &mut self,
        family: &Family<'_>,
        series: &Series<'_>,
        part: u32,
        part_name: &str,
        bound: Option<f64>,
        value: Number,
    ) {
        let Some(metric) = self.metric.as_ref().and_then(|name| self.state.metrics.get_mut(name))
        else {
            return;
        };
        let start = series.start.map_or(0, |start| start.0);
        let buffers = &mut self.buffers;
        buffers.key.clear();
        for number in [series.group, part] {
            buffers.key.extend_from_slice(&number.to_le_bytes());
        }
        // Only sums need start times: an older value of a gauge does not count.
        let start = metric.meta.how.is_sum().then_some(start);
        buffers.key.extend_from_slice(&start.unwrap_or(0).to_le_bytes());
        for text in series.texts {
            buffers.key.extend_from_slice(text.as_bytes());
            buffers.key.push(0xff);
        }
        let round = self.state.round;
        metric.live += 1;
        let sent = metric.sent.get_mut(&buffers.key[..]);
        let before = sent.as_deref().map(|sent| sent.value);
        let is_new = before.is_none_or(|before| !is_same(before, value));
        let time = if is_new { self.now } else { sent.as_deref().map_or(0, |sent| sent.time) };
        let is_written = sent.as_deref().is_some_and(|sent| sent.is_written);
        // This notes the value as written. If the flush fails, `distrust` undoes that.
        let ended = match sent {
            Some(sent) => {
                let is_again = sent.is_gone && !metric.keeps_strays;
                // Observations below zero lower a sum, too.
                let only_grows = metric.meta.how == How::Counter && part != SUM;
                let has_fallen = only_grows && value.as_f64() < sent.value.as_f64();
                let ended = start.is_some() && (is_again || has_fallen);
                let ended = ended.then_some(sent.value);
                (sent.value, sent.time, sent.round) = (value, time, round);
                (sent.is_written, sent.is_gone) = (true, false);
                ended
            }
            None => {
                let (is_gone, is_written) = (false, true);
                let sent = Sent { value, is_gone, time, round, is_written };
                metric.sent.insert(buffers.key[..].into(), sent);
                None
            }
        };
        let is_due = is_new || !is_written || ended.is_some();
        if !is_due && metric.fields.is_none() {
            return;
        }
        buffers.field.clear();
        let mut bound_text = String::new();
        if let Some(bound) = bound {
            bound_text = float_text(bound);
        }
        let overflow = series.overflow.then_some(("quipu_overflow", "true"));
        let own = (!series.overflow).then(|| labels(family, series));
        let le = bound.map(|_| ("le", bound_text.as_str()));
        let labels = own.into_iter().flatten().chain(overflow).chain(le);
        write_field(&mut buffers.field, part_name, labels, start);
        if let Some(fields) = &mut metric.fields {
            fields.insert(buffers.field.clone());
        }
        if !is_due {
            return;
        }
        if let Some(ended) = ended {
            let mut number = String::new();
            push_number(&mut number, ended);
            buffers.ended.push((buffers.field.clone(), number));
        }
        self.done.series += 1;
        buffers.text.push_str(&buffers.field);
        let end_of_field = buffers.text.len();
        if metric.meta.how.has_time() {
            buffers.text.push_str(&format!("{time}:"));
        }
        push_number(&mut buffers.text, value);
        buffers.pairs.push((end_of_field, buffers.text.len()));
        if self.is_adopting {
            buffers.before.push(before);
        }
        if buffers.pairs.len() >= MOST_PAIRS {
            self.end_chunk(false);
        }
    }

    /// Turns the pairs gathered so far into a call.
    fn end_chunk(&mut self, is_last: bool) {
        self.is_touched = true;
        let Some((name, metric)) =
            self.metric.as_ref().and_then(|name| Some((name, self.state.metrics.get_mut(name)?)))
        else {
            return;
        };
        if !metric.is_known {
            metric.is_known = true;
            let mut describe = Call::plain("HSET", &metric.keys[4]);
            metric.meta.fields().iter().for_each(|(name, text)| {
                describe.arg(name).arg(text);
            });
            self.calls.push(describe);
            self.of.push(None);
            let mut index = Call::plain("SADD", &self.global.metrics);
            index.arg(name);
            self.calls.push(index);
            self.of.push(None);
        }
        let Buffers { text, pairs, ended, before, .. } = &mut self.buffers;
        let resets = (!ended.is_empty()).then(|| {
            let number = self.instance.next_write();
            metric.resets.push(Resets { number, ended: std::mem::take(ended) });
            metric.resets.len() - 1
        });
        if self.is_adopting && metric.meta.how.fold() == "sum" && !pairs.is_empty() {
            let mut adopt = Call::in_order(&ADOPT, &metric.keys);
            adopt.arg(self.instance.id());
            let mut begin = 0;
            let mut number = String::new();
            for (&(end_of_field, end), before) in pairs.iter().zip(before.iter()) {
                adopt.arg(&text[begin..end_of_field]);
                match before {
                    Some(before) => {
                        number.clear();
                        push_number(&mut number, *before);
                        adopt.arg(&number);
                    }
                    None => drop(adopt.arg(&text[end_of_field..end])),
                }
                begin = end;
            }
            self.calls.push(adopt);
            self.of.push(None);
        }
        let resets = resets.and_then(|at| metric.resets.get(at));
        let (id, how) = (self.instance.id(), metric.meta.how.fold());
        let mut call = metric.write(id, how, self.sequence, resets, &[]);
        let mut begin = 0;
        for &(end_of_field, end) in pairs.iter() {
            call.arg(&text[begin..end_of_field]).arg(&text[end_of_field..end]);
            begin = end;
        }
        text.clear();
        pairs.clear();
        before.clear();
        self.calls.push(call);
        self.of.push(is_last.then(|| name.clone()));
        if self.calls.len() >= MOST_CALLS {
            self.send();
        }
    }

    /// Repeats the resets that the server may not have applied.
    fn reset_again(&mut self) {
        let (id, sequence) = (self.instance.id(), self.sequence);
        let all = self.state.metrics.values().flat_map(|metric| {
            let how = metric.meta.how.fold();
            metric.resets.iter().map(move |r| metric.write(id, how, sequence, Some(r), &[]))
        });
        for call in all.collect::<Vec<_>>() {
            self.calls.push(call);
            self.of.push(None);
            if self.calls.len() >= MOST_CALLS {
                self.send();
            }
        }
    }

    /// Ends a family: writes its last chunk, and marks the series that no longer exist.
    fn end_family(&mut self) {
        let round = self.state.round;
        let Some(metric) = self.metric.as_ref().and_then(|name| self.state.metrics.get_mut(name))
        else {
            return;
        };
        let mut some_are_gone = false;
        for sent in metric.sent.values_mut().filter(|sent| sent.round != round) {
            some_are_gone |= !std::mem::replace(&mut sent.is_gone, true);
        }
        if self.is_touched || !self.buffers.pairs.is_empty() || some_are_gone {
            self.end_chunk(true);
        }
    }

    fn send(&mut self) {
        let (calls, of) = (std::mem::take(&mut self.calls), std::mem::take(&mut self.of));
        if self.failure.is_some() {
            return;
        }
        match self.link.run(&calls) {
            Ok(answers) => {
                for (answer, of) in answers.iter().zip(of) {
                    let [Value::Int(fields), Value::Int(newer)] = items(answer) else { continue };
                    if *fields < 0 {
                        self.newer = self.newer.max(newer.unsigned_abs());
                    } else if let Some(metric) =
                        of.and_then(|name| self.state.metrics.get_mut(&name))
                    {
                        metric.has_fields(*fields);
                    }
                }
            }
            Err(failure) => self.failure = Some(failure),
        }
    }

    fn finish(&mut self) -> Result<(), Failure> {
        self.end_family();
        self.metric = None;
        self.send();
        self.failure.take().map_or(Ok(()), Err)
    }
}

/// Whether a field holds a note about the instance rather than a series.
pub(super) fn is_note(field: &str) -> bool {
    matches!(field, "#" | "!")
}

/// The keys of a script that works on a metric of an instance.
fn keys_of(keys: &Keys, id: &str) -> [String; 5] {
    let own = (keys.of(id), keys.instances.clone());
    [own.0, own.1, keys.folded(id), keys.archive.clone(), keys.meta.clone()]
}

/// The names and values of a series' labels, in the family's order.
fn labels<'a>(
    family: &Family<'a>,
    series: &Series<'a>,
) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
    let (mut fixed, mut texts) = (family.fixed(series.group), series.texts);
    family.labels.iter().map(move |label| match label.values {
        Some(_) => (label.name, fixed.next().map_or("", |(_, value)| value)),
        None => (label.name, texts.next().unwrap_or("")),
    })
}

fn millis(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
