//! A block that was read. Everything is decoded and checked before the first message is returned.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;

use quipu_arena::Scope;

use super::dictionary::{Dictionary, KnownSeries, prefetch, read_decimal};
use super::header::Header;
use super::lists::{self, Lists};
use super::{BATCH_TIMER, COUNTER, GAUGE, KINDS, MAX_MESSAGES, UNION, bits};
use crate::error::Fault;
use crate::message::{BatchTimer, Counter, Gauge, Kind, Message, MetricType, MetricUnion};
use crate::quipu::message::read_union_body;
use crate::quipu::number::read_top_bytes;
use crate::reader::{Reader, unzigzag};

const OTHER_KIND: &str = "messages of the requested kind";

/// The columns of a block. The messages are indexed 0, 1, 2, ..., sorted by kind.
#[derive(Debug)]
pub(super) struct Block {
    /// The index range of each kind.
    kinds: [Range<usize>; 4],
    /// The index of the next message.
    next: usize,
    /// The series number of each message. Numbers from earlier blocks can follow the last; see
    /// `AHEAD`.
    numbers: [u64; MAX_MESSAGES + AHEAD],
    /// The changes of counters and gauges, by index.
    changes: [u64; MAX_MESSAGES],
    exceptions: Vec<Exception>,
    next_exception: usize,
    /// The lists of batch timers and unions, and their ranges by index.
    lists: Lists,
    spans: [(u32, u32); MAX_MESSAGES],
    unions: Vec<Union>,
}

/// A gauge that is written in full instead of as a change.
#[derive(Debug)]
struct Exception {
    index: usize,
    value: Exceptional,
}

#[derive(Debug)]
enum Exceptional {
    Decimal { places: u8, whole: i64 },
    Double(f64),
}

/// A union, except for its id and its list.
#[derive(Debug)]
struct Union {
    metric_type: MetricType,
    counter: i64,
    gauge: f64,
}

/// How many messages in advance a series is prefetched.
const AHEAD: usize = 16;
/// How many messages in advance its id is prefetched. By then, the series is in the cache.
const ID_AHEAD: usize = 8;

impl Block {
    /// Creates a block without messages.
    pub(super) fn empty() -> Box<Block> {
        Box::new(Block {
            kinds: [0..0, 0..0, 0..0, 0..0],
            next: 0,
            numbers: [0; MAX_MESSAGES + AHEAD],
            changes: [0; MAX_MESSAGES],
            exceptions: Vec::new(),
            next_exception: 0,
            lists: Lists::default(),
            spans: [(0, 0); MAX_MESSAGES],
            unions: Vec::new(),
        })
    }

    /// Returns how many messages remain.
    #[inline(always)]
    pub(super) fn left(&self) -> usize {
        self.kinds[UNION].end - self.next
    }

    /// Forgets all messages.
    pub(super) fn clear(&mut self) {
        self.kinds = [0..0, 0..0, 0..0, 0..0];
        self.next = 0;
    }

    /// Reads the body of a block whose checksum matches. On a fault, the input is at its position,
    /// and the caller must clear the block.
    pub(super) fn read(
        &mut self,
        header: &Header,
        dictionary: &mut Dictionary,
        kind: Kind,
        input: &mut Reader<'_>,
        scope: &Scope<'_>,
    ) -> Result<(), Fault> {
        let mut start = 0;
        for (range, count) in self.kinds.iter_mut().zip(header.counts) {
            *range = start..start + usize::from(count);
            start = range.end;
        }
        (self.next, self.next_exception) = (0, 0);
        for (range, of) in self.kinds.iter().zip(KINDS) {
            if !range.is_empty() && ![of, Kind::MetricUnion].contains(&kind) && of != KINDS[UNION] {
                return Err(Fault::malformed(OTHER_KIND));
            }
        }
        for _ in 0..header.definitions {
            input.apart(|input| dictionary.define(input))?;
        }
        self.read_numbers(dictionary, input)?;
        let [counters, timers, gauges, unions] = self.kinds.clone();
        bits::read(input, &mut self.changes[counters], "the changes of counters")?;
        bits::read(input, &mut self.changes[gauges.clone()], "the changes of gauges")?;
        let before = *input;
        let shapes = input.take(timers.len(), "the shapes of batch timers")?;
        if let Some(odd) = shapes.iter().position(|shape| !lists::is_shape(*shape)) {
            *input = before;
            input.advance(odd);
            return Err(Fault::malformed("the shape of a batch timer"));
        }
        self.exceptions.clear();
        for _ in 0..header.exceptions {
            input.apart(|input| self.read_exception(gauges.clone(), input))?;
        }
        self.lists.clear();
        self.read_lists(timers, shapes, dictionary, input, scope)?;
        self.unions.clear();
        for index in unions {
            input.apart(|input| self.read_union(index, kind, input, scope))?;
        }
        if !input.is_empty() {
            return Err(Fault::malformed("the end of the block after its last message"));
        }
        Ok(())
    }

    /// Reads the numbers of all series, and checks that the series were defined.
    #[inline(always)]
    fn read_numbers(
        &mut self,
        dictionary: &Dictionary,
        input: &mut Reader<'_>,
    ) -> Result<(), Fault> {
        for (range, series) in self.kinds.iter().zip(&dictionary.series) {
            let before = *input;
            let numbers = &mut self.numbers[range.clone()];
            bits::read(input, numbers, "the numbers of series")?;
            let unknown = |number: &u64| *number >= series.len() as u64;
            // This check takes a fraction of the time, because there is no early exit.
            if numbers.iter().fold(false, |any, number| any | unknown(number)) {
                *input = before;
                return Err(Fault::malformed("the numbers of series that were defined"));
            }
        }
        Ok(())
    }

    fn read_exception(
        &mut self,
        gauges: Range<usize>,
        input: &mut Reader<'_>,
    ) -> Result<(), Fault> {
        const EXPECTED: &str = "a gauge's value";
        let before = *input;
        let index = gauges.start + usize::from(input.byte("the index of a gauge")?);
        let first = self.exceptions.last().map_or(gauges.start, |last| last.index + 1);
        if !(first..gauges.end).contains(&index) {
            *input = before;
            return Err(Fault::malformed("the index of a gauge after the exception before"));
        }
        let value = match input.peek() {
            Some(lead @ 0xf0..=0xf8) => {
                input.advance(1);
                Exceptional::Double(read_top_bytes(input, lead, EXPECTED)?)
            }
            _ => {
                let (places, whole) = read_decimal(input, EXPECTED)?;
                Exceptional::Decimal { places, whole }
            }
        };
        self.exceptions.push(Exception { index, value });
        Ok(())
    }

    #[inline(always)]
    fn read_lists(
        &mut self,
        timers: Range<usize>,
        shapes: &[u8],
        dictionary: &mut Dictionary,
        input: &mut Reader<'_>,
        scope: &Scope<'_>,
    ) -> Result<(), Fault> {
        let Dictionary { series, ids, .. } = dictionary;
        let series = &mut series[BATCH_TIMER];
        for (index, shape) in timers.zip(shapes) {
            self.look_ahead(index, series, |known| ids.prefetch(known));
            // The number was already checked.
            let Some(known) = series.get_mut(self.numbers[index] as usize) else { continue };
            let start = self.lists.end();
            if shape >> 5 == 0 {
                known.set_places(*shape);
                self.lists.read_any(input, scope)?;
            } else {
                self.lists.read_short(input, *shape, known.places())?;
            }
            self.spans[index] = (start, self.lists.end());
        }
        Ok(())
    }

    fn read_union(
        &mut self,
        index: usize,
        kind: Kind,
        input: &mut Reader<'_>,
        scope: &Scope<'_>,
    ) -> Result<(), Fault> {
        let before = *input;
        let mut copy = Reader::new(input.rest());
        let read = read_union_body(&mut copy, &[], self.lists.left(), scope);
        input.advance(copy.position());
        let union = read?;
        if Message::MetricUnion(union).to_kind(kind).is_none() {
            *input = before;
            return Err(Fault::malformed(OTHER_KIND));
        }
        let start = self.lists.end();
        self.lists.append(union.timer)?;
        self.spans[index] = (start, self.lists.end());
        let MetricUnion { metric_type, counter, gauge, .. } = union;
        self.unions.push(Union { metric_type, counter, gauge });
        Ok(())
    }

    /// Returns the next message, converted to this kind if possible.
    #[inline(always)]
    pub(super) fn next<'b>(
        &'b mut self,
        dictionary: &'b mut Dictionary,
        kind: Kind,
    ) -> Option<Message<'b>> {
        let index = self.next;
        let [counters, timers, gauges, _] = &self.kinds;
        let of = if index < counters.end {
            COUNTER
        } else if index < timers.end {
            BATCH_TIMER
        } else if index < gauges.end {
            GAUGE
        } else {
            UNION
        };
        self.next += 1;
        let Dictionary { series, ids, .. } = dictionary;
        let known = series[of].get_mut(*self.numbers.get(index)? as usize)?;
        match of {
            COUNTER => {
                let value = known.add(unzigzag(self.changes[index]));
                Some(counter(ids.id(known), value, kind))
            }
            BATCH_TIMER => Some(batch_timer(ids.id(known), self.list(index), kind)),
            GAUGE => {
                let value = self.gauge(index, known);
                Some(gauge(ids.id(known), value, kind))
            }
            _ => self.union(index, ids.id(known)).to_kind(kind),
        }
    }

    /// Passes the remaining messages to a function.
    #[inline(always)]
    pub(super) fn for_each(
        &mut self,
        dictionary: &mut Dictionary,
        kind: Kind,
        take: &mut impl FnMut(Message<'_>),
    ) {
        let first = self.next;
        let [counters, timers, gauges, unions] =
            self.kinds.clone().map(|range| first.max(range.start)..range.end);
        self.next = unions.end;
        let Dictionary { series: [of_counters, of_timers, of_gauges, of_unions], ids, .. } =
            dictionary;
        // The numbers were already checked, so no loop ends early.
        for index in counters {
            self.look_ahead(index, of_counters, |known| ids.prefetch(known));
            let Some(known) = of_counters.get_mut(self.numbers[index] as usize) else { return };
            let value = known.add(unzigzag(self.changes[index]));
            take(counter(ids.id(known), value, kind));
        }
        for index in timers {
            let Some(known) = of_timers.get(self.numbers[index] as usize) else { return };
            take(batch_timer(ids.id(known), self.list(index), kind));
        }
        for index in gauges {
            self.look_ahead(index, of_gauges, |known| ids.prefetch(known));
            let Some(known) = of_gauges.get_mut(self.numbers[index] as usize) else { return };
            let value = self.gauge(index, known);
            take(gauge(ids.id(known), value, kind));
        }
        for index in unions {
            let Some(known) = of_unions.get(self.numbers[index] as usize) else { return };
            if let Some(message) = self.union(index, ids.id(known)).to_kind(kind) {
                take(message);
            }
        }
    }

    /// Prefetches a series that is needed soon, and the id of a series that is needed sooner.
    #[inline(always)]
    fn look_ahead(&self, index: usize, series: &[KnownSeries], id: impl Fn(&KnownSeries)) {
        // Numbers from another kind or block are harmless.
        let number = |ahead: usize| self.numbers[index + ahead] as usize;
        if let Some(known) = series.get(number(AHEAD)) {
            prefetch(known);
        }
        if let Some(known) = series.get(number(ID_AHEAD)) {
            id(known);
        }
    }

    #[inline(always)]
    fn gauge(&mut self, index: usize, known: &mut KnownSeries) -> f64 {
        match self.exceptions.get(self.next_exception) {
            Some(exception) if exception.index == index => {
                self.next_exception += 1;
                match exception.value {
                    Exceptional::Decimal { places, whole } => {
                        known.set_places(places);
                        known.set_last(whole);
                    }
                    Exceptional::Double(value) => return value,
                }
            }
            _ => {
                known.add(unzigzag(self.changes[index]));
            }
        }
        known.decimal()
    }

    /// Returns the list of a batch timer or a union.
    #[inline(always)]
    fn list(&self, index: usize) -> &[f64] {
        let (start, end) = self.spans[index];
        self.lists.get(start, end)
    }

    fn union<'b>(&'b self, index: usize, id: &'b [u8]) -> Message<'b> {
        let Some(union) = self.unions.get(index - self.kinds[UNION].start) else {
            return MetricUnion { id, ..MetricUnion::ZERO }.into();
        };
        let Union { metric_type, counter, gauge } = *union;
        MetricUnion { metric_type, id, counter, timer: self.list(index), gauge }.into()
    }
}

#[inline(always)]
fn counter(id: &[u8], value: i64, kind: Kind) -> Message<'_> {
    if kind == Kind::Counter {
        return Counter { id, value }.into();
    }
    let metric_type = MetricType::COUNTER;
    MetricUnion { metric_type, id, counter: value, ..MetricUnion::ZERO }.into()
}

#[inline(always)]
fn batch_timer<'m>(id: &'m [u8], values: &'m [f64], kind: Kind) -> Message<'m> {
    if kind == Kind::BatchTimer {
        return BatchTimer { id, values }.into();
    }
    let metric_type = MetricType::BATCH_TIMER;
    MetricUnion { metric_type, id, timer: values, ..MetricUnion::ZERO }.into()
}

#[inline(always)]
fn gauge(id: &[u8], value: f64, kind: Kind) -> Message<'_> {
    if kind == Kind::Gauge {
        return Gauge { id, value }.into();
    }
    let metric_type = MetricType::GAUGE;
    MetricUnion { metric_type, id, gauge: value, ..MetricUnion::ZERO }.into()
}
