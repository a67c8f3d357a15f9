//! Hprose: <https://github.com/hprose/hprose/wiki/Hprose-Serialization>, a textual format with a
//! tag before each value.
//!
//! ```text
//! c7"Counter"2{s2"iD"s5"value"}    a class: its name, how many fields, their names
//! o0{                              an object of the class that was defined first
//!   a2{i114;9}                     the id, a list of 2 integers
//!   i100;                          a counter's value
//! }
//! ```
//!
//! Integers are a digit, `i..;` within 32 bits, or `l..;`. Doubles are `d..;` in the shortest form,
//! `N`, `I+` or `I-`. An empty list is `a{}`. The length of a string counts UTF-16 units. The
//! classes:
//!
//! ```text
//! Counter      iD value
//! BatchTimer   iD values
//! Gauge        iD value
//! MetricUnion  type iD counterVal batchTimerVal gaugeVal
//! ```
//!
//! A single message begins with its class. In a stream, each class is defined before its first
//! object and numbered from 0. You can read fields in any order, and an id can also be bytes or a
//! string. Unknown fields are skipped. References to earlier values are not followed, because our
//! messages contain none.

use alloc::vec::Vec;

use quipu_arena::Scope;

use crate::error::Fault;
use crate::format::{Format, forward, sealed::Sealed};
use crate::message::{BatchTimer, Counter, Gauge, Kind, Message, MetricType, MetricUnion};
use crate::number::{Decimal, Double};
use crate::pieces::{Byte, Each, FixedPiece, Literal, Piece, append};
use crate::reader::Reader;

mod read;

use read::{
    BATCH_TIMER, COUNTER, Classes, GAUGE, METRIC_UNION, end, float, id, integer, list, metric_type,
};

/// Hprose as written by hprose-golang.
///
/// ```
/// use quipu_wire::{Counter, Metric, Hprose};
///
/// let mut out = Vec::new();
/// Counter { id: b"hits", value: 7 }.encode::<Hprose>(&mut out)?;
/// assert_eq!(out, b"c7\"Counter\"2{s2\"iD\"s5\"value\"}o0{a4{i104;i105;i116;i115;}7}");
/// # Ok::<(), quipu_wire::Error>(())
/// ```
#[derive(Debug)]
pub struct Hprose(());

impl Sealed for Hprose {}

impl Format for Hprose {
    const NAME: &'static str = "hprose";
    type WriterState = WrittenClasses;
    type ReaderState = Classes;

    forward!(Codec);

    #[inline]
    fn write_next(
        written: &mut WrittenClasses,
        message: &Message<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        let head = written.head(message.kind());
        match message {
            Message::Counter(message) => counter(head, message, out),
            Message::BatchTimer(message) => batch_timer(head, message, out),
            Message::Gauge(message) => gauge(head, message, out),
            Message::MetricUnion(message) => union(head, message, out),
        }
        Ok(())
    }

    #[inline]
    fn read_next<'m>(
        classes: &'m mut Classes,
        kind: Kind,
        input: &mut Reader<'m>,
        scope: &Scope<'m>,
    ) -> Result<Option<Message<'m>>, Fault> {
        if input.is_empty() {
            return Ok(None);
        }
        let before = classes.len;
        let fields = match kind {
            Kind::Counter => COUNTER,
            Kind::BatchTimer => BATCH_TIMER,
            Kind::Gauge => GAUGE,
            Kind::MetricUnion => METRIC_UNION,
        };
        let any = classes.object(fields, input, scope).inspect_err(|_| classes.len = before)?;
        Ok(Some(match kind {
            Kind::Counter => to_counter(any).into(),
            Kind::BatchTimer => to_batch_timer(any).into(),
            Kind::Gauge => to_gauge(any).into(),
            Kind::MetricUnion => any.into(),
        }))
    }
}

/// The classes that a stream already defined, with their numbers.
#[derive(Debug, Default)]
pub struct WrittenClasses {
    numbers: [Option<u8>; Kind::ALL.len()],
    len: u8,
}

/// The part of an object before its values.
#[derive(Clone, Copy)]
struct Head {
    number: u8,
    /// Whether the class must be defined first.
    define: bool,
}

/// The head of a single message.
const ALONE: Head = Head { number: 0, define: true };

impl WrittenClasses {
    fn head(&mut self, kind: Kind) -> Head {
        match &mut self.numbers[kind as usize] {
            Some(number) => Head { number: *number, define: false },
            none => {
                let number = *none.insert(self.len);
                self.len += 1;
                Head { number, define: true }
            }
        }
    }
}

impl Head {
    /// Adds the definition of the class.
    #[inline(always)]
    fn with_class<const N: usize>(self, class: &'static [u8; N]) -> impl Piece {
        let number = Byte(b'0' + self.number);
        (self.define.then_some(Literal(class)), Byte(b'o'), number, Byte(b'{'))
    }
}

const COUNTER_CLASS: &[u8; 29] = b"c7\"Counter\"2{s2\"iD\"s5\"value\"}";
const BATCH_TIMER_CLASS: &[u8; 34] = b"c10\"BatchTimer\"2{s2\"iD\"s6\"values\"}";
const GAUGE_CLASS: &[u8; 27] = b"c5\"Gauge\"2{s2\"iD\"s5\"value\"}";
const METRIC_UNION_CLASS: &[u8; 78] =
    b"c11\"MetricUnion\"5{s4\"type\"s2\"iD\"s10\"counterVal\"s13\"batchTimerVal\"s8\"gaugeVal\"}";

#[inline(always)]
fn counter(head: Head, message: &Counter<'_>, out: &mut Vec<u8>) {
    let Counter { id, value } = *message;
    append(out, (head.with_class(COUNTER_CLASS), id_list(id), Integer(value), Byte(b'}')));
}

#[inline(always)]
fn batch_timer(head: Head, message: &BatchTimer<'_>, out: &mut Vec<u8>) {
    let BatchTimer { id, values } = *message;
    append(out, (head.with_class(BATCH_TIMER_CLASS), id_list(id), floats(values), Byte(b'}')));
}

#[inline(always)]
fn gauge(head: Head, message: &Gauge<'_>, out: &mut Vec<u8>) {
    let Gauge { id, value } = *message;
    append(out, (head.with_class(GAUGE_CLASS), id_list(id), Float(value), Byte(b'}')));
}

#[inline(always)]
fn union(head: Head, message: &MetricUnion<'_>, out: &mut Vec<u8>) {
    let MetricUnion { metric_type: MetricType(metric_type), id, counter, timer, gauge } = *message;
    append(
        out,
        (
            head.with_class(METRIC_UNION_CLASS),
            Integer(i64::from(metric_type)),
            id_list(id),
            Integer(counter),
            floats(timer),
            Float(gauge),
            Byte(b'}'),
        ),
    );
}

/// Writes an id as a list of integers.
#[inline(always)]
fn id_list(id: &[u8]) -> impl Piece + '_ {
    (list_head(id.len()), Each(id, IdByte), Byte(b'}'))
}

#[inline(always)]
fn floats(values: &[f64]) -> impl Piece + '_ {
    (list_head(values.len()), Each(values, Float), Byte(b'}'))
}

/// Writes the length of a list, which is omitted if the list is empty.
#[inline(always)]
fn list_head(len: usize) -> impl Piece {
    (Byte(b'a'), (len > 0).then_some(Decimal(len as i64)), Byte(b'{'))
}

/// An integer in its shortest form.
#[derive(Clone, Copy)]
struct Integer(i64);

// SAFETY: This writes a digit, or the integer between two bytes.
unsafe impl Piece for Integer {
    #[inline(always)]
    fn bound(&self) -> usize {
        Self::BOUND
    }

    #[inline(always)]
    unsafe fn put(&self, at: *mut u8) -> *mut u8 {
        let Integer(number) = *self;
        // SAFETY: `at` is valid for both cases.
        unsafe {
            if (0..10).contains(&number) {
                return Byte(b'0' + number as u8).put(at);
            }
            let tag = if i32::try_from(number).is_ok() { b'i' } else { b'l' };
            (Byte(tag), Decimal(number), Byte(b';')).put(at)
        }
    }
}

// SAFETY: `bound` above is the same constant.
unsafe impl FixedPiece for Integer {
    const BOUND: usize = Decimal::BOUND + 2;
}

/// A double in the format of Hprose.
#[derive(Clone, Copy)]
struct Float(f64);

// SAFETY: This writes a letter, a letter and a sign, or the double between two bytes.
unsafe impl Piece for Float {
    #[inline(always)]
    fn bound(&self) -> usize {
        Self::BOUND
    }

    #[inline(always)]
    unsafe fn put(&self, at: *mut u8) -> *mut u8 {
        let Float(value) = *self;
        // SAFETY: `at` is valid for all cases.
        unsafe {
            if value.is_finite() {
                (Byte(b'd'), Double(value), Byte(b';')).put(at)
            } else if value.is_nan() {
                Byte(b'N').put(at)
            } else {
                Literal(if value > 0.0 { b"I+" } else { b"I-" }).put(at)
            }
        }
    }
}

// SAFETY: `bound` above is the same constant.
unsafe impl FixedPiece for Float {
    const BOUND: usize = Double::BOUND + 2;
}

/// A byte of an id, written as an integer.
#[derive(Clone, Copy)]
struct IdByte(u8);

// SAFETY: This writes 8 bytes, and its end is at most 5 bytes after its start.
unsafe impl Piece for IdByte {
    #[inline(always)]
    fn bound(&self) -> usize {
        Self::BOUND
    }

    #[inline(always)]
    unsafe fn put(&self, at: *mut u8) -> *mut u8 {
        let text = &INTEGERS[usize::from(self.0)];
        // SAFETY: `at` is valid for 8 bytes, and a length is at most 5.
        unsafe {
            at.cast::<[u8; 8]>().write_unaligned(*text);
            at.add(usize::from(text[7] & 7))
        }
    }
}

// SAFETY: `bound` above is the same constant.
unsafe impl FixedPiece for IdByte {
    const BOUND: usize = 8;
}

/// The integers from 0 to 255, each with its length in its last byte.
static INTEGERS: [[u8; 8]; 256] = {
    let mut table = [[0; 8]; 256];
    let mut number = 0;
    while number < 256 {
        let [hundreds, tens, ones] =
            [b'0' + number as u8 / 100, b'0' + number as u8 / 10 % 10, b'0' + number as u8 % 10];
        table[number] = match number {
            0..10 => [ones, 0, 0, 0, 0, 0, 0, 1],
            10..100 => [b'i', tens, ones, b';', 0, 0, 0, 4],
            _ => [b'i', hundreds, tens, ones, b';', 0, 0, 5],
        };
        number += 1;
    }
    table
};

struct Codec;

impl Codec {
    #[inline(always)]
    fn write_counter(message: &Counter<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        counter(ALONE, message, out);
        Ok(())
    }

    #[inline(always)]
    fn write_batch_timer(message: &BatchTimer<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        batch_timer(ALONE, message, out);
        Ok(())
    }

    #[inline(always)]
    fn write_gauge(message: &Gauge<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        gauge(ALONE, message, out);
        Ok(())
    }

    #[inline(always)]
    fn write_union(message: &MetricUnion<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        union(ALONE, message, out);
        Ok(())
    }

    #[inline(always)]
    fn read_counter<'m>(input: &mut Reader<'m>, scope: &Scope<'m>) -> Result<Counter<'m>, Fault> {
        if begins(input, COUNTER_CLASS) {
            let message = Counter { id: id(input, scope)?, value: integer(input)? };
            return end(input, message);
        }
        Classes::default().object(COUNTER, input, scope).map(to_counter)
    }

    #[inline(always)]
    fn read_batch_timer<'m>(
        input: &mut Reader<'m>,
        scope: &Scope<'m>,
    ) -> Result<BatchTimer<'m>, Fault> {
        if begins(input, BATCH_TIMER_CLASS) {
            let message = BatchTimer { id: id(input, scope)?, values: list(input, scope)? };
            return end(input, message);
        }
        Classes::default().object(BATCH_TIMER, input, scope).map(to_batch_timer)
    }

    #[inline(always)]
    fn read_gauge<'m>(input: &mut Reader<'m>, scope: &Scope<'m>) -> Result<Gauge<'m>, Fault> {
        if begins(input, GAUGE_CLASS) {
            let message = Gauge { id: id(input, scope)?, value: float(input)? };
            return end(input, message);
        }
        Classes::default().object(GAUGE, input, scope).map(to_gauge)
    }

    #[inline(always)]
    fn read_union<'m>(input: &mut Reader<'m>, scope: &Scope<'m>) -> Result<MetricUnion<'m>, Fault> {
        if begins(input, METRIC_UNION_CLASS) {
            let message = MetricUnion {
                metric_type: metric_type(input)?,
                id: id(input, scope)?,
                counter: integer(input)?,
                timer: list(input, scope)?,
                gauge: float(input)?,
            };
            return end(input, message);
        }
        Classes::default().object(METRIC_UNION, input, scope)
    }
}

/// Skips the class definition and the start of its first object, if both are in the form that the
/// library writes. Returns whether they were.
#[inline(always)]
fn begins<const N: usize>(input: &mut Reader<'_>, class: &[u8; N]) -> bool {
    let before = *input;
    let both = input.skip_literal(class) && input.skip_literal(b"o0{");
    if !both {
        *input = before;
    }
    both
}

fn to_counter(any: MetricUnion<'_>) -> Counter<'_> {
    Counter { id: any.id, value: any.counter }
}

fn to_batch_timer(any: MetricUnion<'_>) -> BatchTimer<'_> {
    BatchTimer { id: any.id, values: any.timer }
}

fn to_gauge(any: MetricUnion<'_>) -> Gauge<'_> {
    Gauge { id: any.id, value: any.gauge }
}

#[cfg(test)]
mod tests {
    use quipu_arena::Arena;

    use super::*;
    use crate::{Decoder, Encoder, Framing, Metric};

    #[test]
    fn a_stream_defines_a_class_once() {
        let mut encoder = Encoder::<Hprose>::new(Framing::Own);
        let mut out = Vec::new();
        for value in [1, 2] {
            encoder.append(&Counter { id: b"a", value }.into(), &mut out).unwrap();
        }
        encoder.append(&Gauge { id: b"a", value: 3.0 }.into(), &mut out).unwrap();
        assert_eq!(
            out,
            [
                &br#"c7"Counter"2{s2"iD"s5"value"}o0{a1{i97;}1}o0{a1{i97;}2}"#[..],
                br#"c5"Gauge"2{s2"iD"s5"value"}o1{a1{i97;}d3;}"#,
            ]
            .concat()
        );
        // Single messages can also follow each other.
        Gauge { id: b"a", value: 4.0 }.encode::<Hprose>(&mut out).unwrap();

        for size in 1..out.len() {
            let mut decoder = Decoder::<Hprose>::new(Kind::Gauge, Framing::Own);
            let mut arena = Arena::new();
            let mut seen = Vec::new();
            for piece in out.chunks(size) {
                decoder.push(piece);
                loop {
                    let mut guard = arena.guard();
                    let Some(message) = decoder.next(&guard.scope()).unwrap() else { break };
                    seen.push(message.to_union().gauge);
                }
            }
            decoder.finish().unwrap();
            assert_eq!(seen, [1.0, 2.0, 3.0, 4.0], "{size}");
        }
    }
}
