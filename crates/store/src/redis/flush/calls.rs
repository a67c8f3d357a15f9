//! The calls to the server that write the changes, gathered into pipelines.

use ::redis::Value;
use quipu::snapshot::Number;

use super::diff::{Change, Handle, SentMetric, SentState};
use super::{MAX_CALLS, MAX_PAIRS};
use crate::redis::instance::Instance;
use crate::redis::key::NamespaceKeys;
use crate::redis::link::{Call, Failure, Link, items};
use crate::redis::number::push_number;
use crate::redis::script::{ADOPT, WRITE};

/// Series that were set back, or were removed and created again within the resolution of start
/// times: their fields, with the last values from before.
pub(super) struct Resets {
    /// The number that lets the server recognize a repeated list.
    number: u64,
    ended: Vec<(String, String)>,
}

/// The calls of one flush.
pub(super) struct Calls<'f> {
    link: &'f mut Link,
    global: &'f NamespaceKeys,
    instance: &'f Instance,
    sequence: u64,
    is_adopting: bool,
    chunk: Chunk,
    calls: Vec<Call>,
    /// For each call, the metric whose number of fields is in the response.
    of: Vec<Option<Handle>>,
    /// The greatest number of a write on the server that is newer than this flush; 0 for none.
    newer: u64,
    failure: Option<Failure>,
}

/// The fields and values that the next call writes.
#[derive(Default)]
struct Chunk {
    /// The fields and values, one after another.
    text: String,
    pairs: Vec<Pair>,
    /// The resets among them.
    ended: Vec<(String, String)>,
}

/// A field and its value in the string of a chunk.
struct Pair {
    /// Where the field ends, and the value begins.
    end_of_field: usize,
    end: usize,
    /// The value that was sent before.
    before: Option<Number>,
}

impl<'f> Calls<'f> {
    pub(super) fn new(
        link: &'f mut Link,
        global: &'f NamespaceKeys,
        instance: &'f Instance,
        is_adopting: bool,
    ) -> Self {
        Self {
            link,
            global,
            instance,
            sequence: instance.next_write(),
            is_adopting,
            chunk: Chunk::default(),
            calls: Vec::new(),
            of: Vec::new(),
            newer: 0,
            failure: None,
        }
    }

    /// Returns the name of this instance.
    pub(super) fn id(&self) -> &str {
        self.instance.id()
    }

    pub(super) fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// Adds a field and its value to the chunk; with `time`, the value follows this time. Returns
    /// whether the chunk is full.
    pub(super) fn add(
        &mut self,
        field: &str,
        time: Option<u64>,
        value: Number,
        change: &Change,
    ) -> bool {
        self.chunk.add(field, time, value, change);
        self.chunk.pairs.len() >= MAX_PAIRS
    }

    pub(super) fn has_pairs(&self) -> bool {
        !self.chunk.pairs.is_empty()
    }

    /// Turns the chunk into a call that writes it to a metric. The last call for a metric checks
    /// its number of fields.
    pub(super) fn write(&mut self, state: &mut SentState, handle: Handle, is_last: bool) {
        let metric = &mut state[handle];
        if !metric.is_known {
            metric.is_known = true;
            self.describe(metric);
        }
        let has_resets = !self.chunk.ended.is_empty();
        if has_resets {
            let number = self.instance.next_write();
            metric.resets.push(Resets { number, ended: std::mem::take(&mut self.chunk.ended) });
        }
        let how = metric.meta.how.fold();
        if self.is_adopting && how == "sum" && self.has_pairs() {
            self.adopt(metric);
        }
        let resets = metric.resets.last().filter(|_| has_resets);
        let mut call = metric.write(self.id(), how, self.sequence, resets, &[]);
        self.chunk.each(|field, value, _| {
            call.arg(field).arg(value);
        });
        self.chunk.clear();
        self.push(call, is_last.then_some(handle));
        self.send_if_full(state);
    }

    /// Repeats the resets that the server may have missed.
    pub(super) fn reset_again(&mut self, state: &mut SentState) {
        let (id, sequence) = (self.id(), self.sequence);
        let all = state.metrics().flat_map(|metric| {
            let how = metric.meta.how.fold();
            metric.resets.iter().map(move |r| metric.write(id, how, sequence, Some(r), &[]))
        });
        for call in all.collect::<Vec<_>>() {
            self.push(call, None);
            self.send_if_full(state);
        }
    }

    /// Sends the remaining calls. Returns the first error of the flush.
    pub(super) fn finish(mut self, state: &mut SentState) -> Result<(), Failure> {
        self.send(state);
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        if self.newer > 0 {
            // The server applied none of the refused writes: repeat them with greater numbers.
            self.instance.skip_writes(self.newer);
            return Err(Failure::other(
                "the segment went back to an older state; everything is written again",
            ));
        }
        Ok(())
    }

    /// Writes the description of a metric, and adds the metric to the list of all.
    fn describe(&mut self, metric: &SentMetric) {
        let mut describe = Call::plain("HSET", &metric.keys[4]);
        metric.meta.fields().iter().for_each(|(name, text)| {
            describe.arg(name).arg(text);
        });
        self.push(describe, None);
        let mut index = Call::plain("SADD", &self.global.metrics);
        index.arg(&metric.name);
        self.push(index, None);
    }

    /// Takes the earlier values of the chunk's fields out of the archive.
    fn adopt(&mut self, metric: &SentMetric) {
        let mut adopt = Call::in_order(&ADOPT, &metric.keys);
        adopt.arg(self.id());
        let mut number = String::new();
        self.chunk.each(|field, value, before| {
            number.clear();
            let value = before.map_or(value, |before| {
                push_number(&mut number, before);
                &number
            });
            adopt.arg(field).arg(value);
        });
        self.push(adopt, None);
    }

    fn push(&mut self, call: Call, of: Option<Handle>) {
        self.calls.push(call);
        self.of.push(of);
    }

    fn send_if_full(&mut self, state: &mut SentState) {
        if self.calls.len() >= MAX_CALLS {
            self.send(state);
        }
    }

    fn send(&mut self, state: &mut SentState) {
        let (calls, of) = (std::mem::take(&mut self.calls), std::mem::take(&mut self.of));
        if self.has_failed() {
            return;
        }
        let replies = match self.link.run(&calls) {
            Ok(replies) => replies,
            Err(failure) => return self.failure = Some(failure),
        };
        for (reply, of) in replies.iter().zip(of) {
            let [Value::Int(fields), Value::Int(newer)] = items(reply) else { continue };
            if *fields < 0 {
                self.newer = self.newer.max(newer.unsigned_abs());
            } else if let Some(handle) = of {
                state[handle].has_fields(fields.unsigned_abs());
            }
        }
    }
}

impl Chunk {
    fn add(&mut self, field: &str, time: Option<u64>, value: Number, change: &Change) {
        if let Some(ended) = change.ended {
            let mut number = String::new();
            push_number(&mut number, ended);
            self.ended.push((field.to_owned(), number));
        }
        self.text.push_str(field);
        let end_of_field = self.text.len();
        if let Some(time) = time {
            self.text.push_str(itoa::Buffer::new().format(time));
            self.text.push(':');
        }
        push_number(&mut self.text, value);
        self.pairs.push(Pair { end_of_field, end: self.text.len(), before: change.before });
    }

    /// Calls `visit` with each field, its value, and the value that was sent before.
    fn each(&self, mut visit: impl FnMut(&str, &str, Option<Number>)) {
        let mut begin = 0;
        for &Pair { end_of_field, end, before } in &self.pairs {
            visit(&self.text[begin..end_of_field], &self.text[end_of_field..end], before);
            begin = end;
        }
    }

    fn clear(&mut self) {
        self.text.clear();
        self.pairs.clear();
    }
}

impl SentMetric {
    /// Returns a call of [`WRITE`]; the caller appends fields and values.
    pub(super) fn write(
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
}
