//! gob, the streams of Go's `encoding/gob`: <https://pkg.go.dev/encoding/gob>.
//!
//! ```text
//! message     = length as uint, id of a type as int, value;
//!               or, after a negated id, its definition: definitions precede the first value
//! uint        = below 128 one byte, else the number of bytes negated, most significant byte first
//! int         = uint: the bits, inverted when negative, followed by the sign as the lowest bit
//! double      = uint: the bytes of the double in reverse order
//! structure   = for each field that is not zero its number less the one before (at first -1) as
//!               uint, value; 0
//!
//! Counter     type 64: ID bytes, Value int
//! BatchTimer  type 65: ID bytes, Values type 66
//! []float64   type 66: a count as uint, doubles
//! Gauge       type 67: ID bytes, Value double
//! MetricUnion type 68: Type int, ID bytes, CounterVal int, BatchTimerVal type 66, GaugeVal double
//! ```
//!
//! A single message begins with the definitions that it needs. A stream contains each definition
//! once, so later messages consist only of values.
//!
//! The reader follows the definitions in the stream, whatever their ids are. Fields are matched by
//! name, a number can have another type if the value is the same, and unknown fields are skipped.

use alloc::vec::Vec;

use quipu_arena::Scope;

use crate::error::Fault;
use crate::format::{Format, sealed};
use crate::message::{BatchTimer, Counter, Gauge, Kind, Message, MetricType, MetricUnion};
use crate::pieces::{Byte, Bytes, Literal, Piece, append};
use crate::reader::Reader;
use crate::values;

mod pieces;
#[cfg(test)]
mod tests;
mod types;

use pieces::{DelimitedMessage, FieldCursor};
use types::{FieldTarget, ReaderState};

/// gob as Go's library writes structures. Fields that are zero are omitted, including -0. The ids
/// are the same as in a program that uses only the four types, in this order.
///
/// ```
/// use quipu_wire::{Counter, Metric, Gob};
///
/// let mut out = Vec::new();
/// Counter { id: b"hits", value: 7 }.encode::<Gob>(&mut out)?;
/// assert_eq!(
///     out,
///     b"%\x7f\x03\x01\x01\x07Counter\x01\xff\x80\0\x01\x02\x01\x02ID\x01\n\0\x01\x05Valu\
///       e\x01\x04\0\0\0\x0b\xff\x80\x01\x04hits\x01\x0e\0"
/// );
/// # Ok::<(), quipu_wire::Error>(())
/// ```
#[derive(Debug)]
pub struct Gob(());

impl sealed::Sealed for Gob {}

impl Format for Gob {
    const NAME: &'static str = "gob";
    type WriterState = SentDefinitions;
    type ReaderState = ReaderState;

    #[inline(always)]
    fn write_counter(message: &Counter<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        write(out, Literal(COUNTER), counter(message))
    }

    #[inline(always)]
    fn write_batch_timer(message: &BatchTimer<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        write(out, (Literal(BATCH_TIMER), Literal(DOUBLES)), batch_timer(message))
    }

    #[inline(always)]
    fn write_gauge(message: &Gauge<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        write(out, Literal(GAUGE), gauge(message))
    }

    #[inline(always)]
    fn write_union(message: &MetricUnion<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        write(out, (Literal(METRIC_UNION), Literal(DOUBLES)), union(message))
    }

    #[inline(always)]
    fn read_counter<'m>(input: &mut Reader<'m>, scope: &Scope<'m>) -> Result<Counter<'m>, Fault> {
        let usual = (COUNTER.as_slice(), &[][..], 0x80, COUNTER_SLOTS);
        Ok(to_counter(read_alone(Kind::Counter, usual, input, scope)?))
    }

    #[inline(always)]
    fn read_batch_timer<'m>(
        input: &mut Reader<'m>,
        scope: &Scope<'m>,
    ) -> Result<BatchTimer<'m>, Fault> {
        let usual = (BATCH_TIMER.as_slice(), DOUBLES.as_slice(), 0x82, BATCH_TIMER_SLOTS);
        Ok(to_batch_timer(read_alone(Kind::BatchTimer, usual, input, scope)?))
    }

    #[inline(always)]
    fn read_gauge<'m>(input: &mut Reader<'m>, scope: &Scope<'m>) -> Result<Gauge<'m>, Fault> {
        let usual = (GAUGE.as_slice(), &[][..], 0x86, GAUGE_SLOTS);
        Ok(to_gauge(read_alone(Kind::Gauge, usual, input, scope)?))
    }

    #[inline(always)]
    fn read_union<'m>(input: &mut Reader<'m>, scope: &Scope<'m>) -> Result<MetricUnion<'m>, Fault> {
        let usual = (METRIC_UNION.as_slice(), DOUBLES.as_slice(), 0x88, METRIC_UNION_SLOTS);
        read_alone(Kind::MetricUnion, usual, input, scope)
    }

    #[inline(always)]
    fn write_next(
        sent: &mut SentDefinitions,
        message: &Message<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        let definitions = sent.missing(message.kind());
        match message {
            Message::Counter(message) => write(out, definitions, counter(message)),
            Message::BatchTimer(message) => write(out, definitions, batch_timer(message)),
            Message::Gauge(message) => write(out, definitions, gauge(message)),
            Message::MetricUnion(message) => write(out, definitions, union(message)),
        }?;
        sent.add(message.kind());
        Ok(())
    }

    #[inline(always)]
    fn read_next<'m>(
        state: &'m mut ReaderState,
        kind: Kind,
        input: &mut Reader<'m>,
        scope: &Scope<'m>,
    ) -> Result<Option<Message<'m>>, Fault> {
        if input.is_empty() {
            return Ok(None);
        }
        let union =
            match state.usual(kind).and_then(|(id, slots)| read_usual(id, slots, input, scope)) {
                Some(union) => union,
                None => {
                    let mut copy = *input;
                    let read = state.read(kind, &mut copy, scope);
                    *input = copy;
                    read?
                }
            };
        Ok(Some(match kind {
            Kind::Counter => to_counter(union).into(),
            Kind::BatchTimer => to_batch_timer(union).into(),
            Kind::Gauge => to_gauge(union).into(),
            Kind::MetricUnion => union.into(),
        }))
    }
}

/// The definitions of the types, encoded as messages.
const COUNTER: &[u8; 38] =
    b"\x25\x7f\x03\x01\x01\x07Counter\x01\xff\x80\0\x01\x02\x01\x02ID\x01\x0a\0\
      \x01\x05Value\x01\x04\0\0\0";
const BATCH_TIMER: &[u8; 44] =
    b"\x2b\xff\x81\x03\x01\x01\x0aBatchTimer\x01\xff\x82\0\x01\x02\x01\x02ID\x01\x0a\0\
      \x01\x06Values\x01\xff\x84\0\0\0";
const DOUBLES: &[u8; 24] = b"\x17\xff\x83\x02\x01\x01\x09[]float64\x01\xff\x84\0\x01\x08\0\0";
const GAUGE: &[u8; 37] =
    b"\x24\xff\x85\x03\x01\x01\x05Gauge\x01\xff\x86\0\x01\x02\x01\x02ID\x01\x0a\0\
      \x01\x05Value\x01\x08\0\0\0";
const METRIC_UNION: &[u8; 89] =
    b"\x58\xff\x87\x03\x01\x01\x0bMetricUnion\x01\xff\x88\0\x01\x05\x01\x04Type\x01\x04\0\
      \x01\x02ID\x01\x0a\0\x01\x0aCounterVal\x01\x04\0\
      \x01\x0dBatchTimerVal\x01\xff\x84\0\x01\x08GaugeVal\x01\x08\0\0\0";

const COUNTER_SLOTS: &[FieldTarget] = &[FieldTarget::Id, FieldTarget::Counter];
const BATCH_TIMER_SLOTS: &[FieldTarget] = &[FieldTarget::Id, FieldTarget::Timer];
const GAUGE_SLOTS: &[FieldTarget] = &[FieldTarget::Id, FieldTarget::Gauge];
const METRIC_UNION_SLOTS: &[FieldTarget] = &[
    FieldTarget::Type,
    FieldTarget::Id,
    FieldTarget::Counter,
    FieldTarget::Timer,
    FieldTarget::Gauge,
];

/// Go refuses messages of 8 GiB.
const TOO_LARGE: u64 = 1 << 33;

/// The definitions that a stream already contains.
#[derive(Debug, Default)]
pub struct SentDefinitions {
    kinds: u8,
    doubles: bool,
}

impl SentDefinitions {
    #[inline(always)]
    fn missing(&self, kind: Kind) -> impl Piece + use<> {
        let definition: &'static [u8] = if self.kinds >> kind as u8 & 1 == 1 {
            &[]
        } else {
            match kind {
                Kind::Counter => COUNTER,
                Kind::BatchTimer => BATCH_TIMER,
                Kind::Gauge => GAUGE,
                Kind::MetricUnion => METRIC_UNION,
            }
        };
        let doubles = !self.doubles && has_doubles(kind);
        (Bytes(definition), doubles.then_some(Literal(DOUBLES)))
    }

    #[inline(always)]
    fn add(&mut self, kind: Kind) {
        self.kinds |= 1 << kind as u8;
        self.doubles |= has_doubles(kind);
    }
}

fn has_doubles(kind: Kind) -> bool {
    matches!(kind, Kind::BatchTimer | Kind::MetricUnion)
}

#[inline(always)]
fn write(out: &mut Vec<u8>, definitions: impl Piece, value: impl Piece) -> Result<(), Fault> {
    if value.bound() as u64 >= TOO_LARGE {
        return Err(Fault::unwritable("a message must have less than 8 GiB"));
    }
    append(out, (definitions, DelimitedMessage(value)));
    Ok(())
}

#[inline(always)]
fn counter<'a>(message: &Counter<'a>) -> impl Piece + use<'a> {
    let Counter { id, value } = *message;
    let mut fields = FieldCursor(0);
    (Literal(b"\xff\x80"), fields.id(1, id), fields.int(2, value), Byte(0))
}

#[inline(always)]
fn batch_timer<'a>(message: &BatchTimer<'a>) -> impl Piece + use<'a> {
    let BatchTimer { id, values } = *message;
    let mut fields = FieldCursor(0);
    (Literal(b"\xff\x82"), fields.id(1, id), fields.doubles(2, values), Byte(0))
}

#[inline(always)]
fn gauge<'a>(message: &Gauge<'a>) -> impl Piece + use<'a> {
    let Gauge { id, value } = *message;
    let mut fields = FieldCursor(0);
    (Literal(b"\xff\x86"), fields.id(1, id), fields.double(2, value), Byte(0))
}

#[inline(always)]
fn union<'a>(message: &MetricUnion<'a>) -> impl Piece + use<'a> {
    let MetricUnion { metric_type: MetricType(metric_type), id, counter, timer, gauge } = *message;
    let mut fields = FieldCursor(0);
    (
        Literal(b"\xff\x88"),
        fields.int(1, i64::from(metric_type)),
        fields.id(2, id),
        fields.int(3, counter),
        fields.doubles(4, timer),
        fields.double(5, gauge),
        Byte(0),
    )
}

#[inline(always)]
fn to_counter(union: MetricUnion<'_>) -> Counter<'_> {
    Counter { id: union.id, value: union.counter }
}

#[inline(always)]
fn to_batch_timer(union: MetricUnion<'_>) -> BatchTimer<'_> {
    BatchTimer { id: union.id, values: union.timer }
}

#[inline(always)]
fn to_gauge(union: MetricUnion<'_>) -> Gauge<'_> {
    Gauge { id: union.id, value: union.gauge }
}

/// Reads a message with its definitions. This writer's own definitions, with the same ids and
/// fields, are only compared.
#[inline(always)]
fn read_alone<'m>(
    kind: Kind,
    (first, second, id, slots): (&[u8], &[u8], u64, &[FieldTarget]),
    input: &mut Reader<'m>,
    scope: &Scope<'m>,
) -> Result<MetricUnion<'m>, Fault> {
    let before = *input;
    if input.skip_literal(first)
        && input.skip_literal(second)
        && let Some(union) = read_usual(id, slots, input, scope)
    {
        return Ok(union);
    }
    // Out-of-line functions read from a copy. The reader itself then never has an address, and
    // stays in registers.
    let mut copy = before;
    let read = read_unusual(kind, &mut copy, scope);
    *input = copy;
    read
}

#[cold]
#[inline(never)]
fn read_unusual<'m>(
    kind: Kind,
    input: &mut Reader<'m>,
    scope: &Scope<'m>,
) -> Result<MetricUnion<'m>, Fault> {
    ReaderState::default().read(kind, input, scope)
}

/// Reads a value of a type without unusual fields. For any other type, this leaves the input
/// unchanged.
#[inline(always)]
fn read_usual<'m>(
    id: u64,
    slots: &[FieldTarget],
    input: &mut Reader<'m>,
    scope: &Scope<'m>,
) -> Option<MetricUnion<'m>> {
    let mut rest = *input;
    let mut message = Reader::new(message(&mut rest).ok()?);
    if uint(&mut message).ok()? != id {
        return None;
    }
    let unusual = |_: &mut Reader<'m>, _: &mut MetricUnion<'m>, _| Err(Fault::malformed(FIELD));
    let union = fields(slots, &mut message, scope, unusual).ok()?;
    *input = rest;
    message.is_empty().then_some(union)
}

const FIELD: &str = "the next field of a structure, or its end";

/// Reads a length and then the message.
#[inline(always)]
fn message<'m>(input: &mut Reader<'m>) -> Result<&'m [u8], Fault> {
    let before = *input;
    let len = uint(input)?;
    if len >= TOO_LARGE {
        *input = before;
        return Err(Fault::too_large("a message of less than 8 GiB"));
    }
    input.take_long(len, "a message as long as its length says")
}

/// Reads a structure. `read` handles the fields that need more than a few lines.
#[inline(always)]
fn fields<'m>(
    slots: &[FieldTarget],
    message: &mut Reader<'m>,
    scope: &Scope<'m>,
    mut unusual: impl FnMut(&mut Reader<'m>, &mut MetricUnion<'m>, FieldTarget) -> Result<(), Fault>,
) -> Result<MetricUnion<'m>, Fault> {
    let mut union = MetricUnion::ZERO;
    let mut left = slots;
    loop {
        let before = *message;
        let step = uint(message)?;
        if step == 0 {
            return Ok(union);
        }
        let index = usize::try_from(step - 1).unwrap_or(usize::MAX);
        let Some((slot, behind)) = left.get(index..).and_then(<[FieldTarget]>::split_first) else {
            *message = before;
            return Err(Fault::malformed("a field that the type has"));
        };
        left = behind;
        match *slot {
            FieldTarget::Id => union.id = bytes(message)?,
            FieldTarget::Type => union.metric_type = metric_type(message)?,
            FieldTarget::Counter => union.counter = int(message)?,
            FieldTarget::Timer => union.timer = doubles(message, scope)?,
            FieldTarget::Gauge => union.gauge = double(message)?,
            other => unusual(message, &mut union, other)?,
        }
    }
}

#[inline(always)]
fn uint(input: &mut Reader<'_>) -> Result<u64, Fault> {
    match input.peek() {
        Some(byte) if byte < 128 => input.byte(NUMBER).map(u64::from),
        _ => long_uint(input).map(|(number, len)| number.swap_bytes() >> (64 - 8 * len)),
    }
}

/// Reads a number of 1 to 8 bytes after its byte count.
#[inline(always)]
fn long_uint(input: &mut Reader<'_>) -> Result<(u64, usize), Fault> {
    let before = *input;
    let len = usize::from(input.byte(NUMBER)?.wrapping_neg());
    if !(1..=8).contains(&len) {
        *input = before;
        return Err(Fault::malformed("a number of at most 8 bytes"));
    }
    Ok((input.little_endian(len, NUMBER)?, len))
}

const NUMBER: &str = "a number";

#[inline(always)]
fn int(input: &mut Reader<'_>) -> Result<i64, Fault> {
    let number = uint(input)?;
    Ok((number >> 1) as i64 ^ -((number & 1) as i64))
}

#[inline(always)]
fn double(input: &mut Reader<'_>) -> Result<f64, Fault> {
    match input.peek() {
        Some(byte) if byte < 128 => {
            input.byte(NUMBER).map(|byte| f64::from_bits(u64::from(byte) << 56))
        }
        _ => long_uint(input).map(|(number, len)| f64::from_bits(number << (64 - 8 * len))),
    }
}

#[inline(always)]
fn metric_type(input: &mut Reader<'_>) -> Result<MetricType, Fault> {
    let before = *input;
    let number = int(input)?;
    input.metric_type(number, before)
}

#[inline(always)]
fn bytes<'m>(input: &mut Reader<'m>) -> Result<&'m [u8], Fault> {
    let len = uint(input)?;
    input.take_long(len, "bytes as long as their length says")
}

/// Reads the number of items that follow. Each item takes at least one byte.
#[inline(always)]
fn count(input: &mut Reader<'_>) -> Result<usize, Fault> {
    let count = uint(input)?;
    input.count(count, 1, "the announced number of items")
}

#[inline(always)]
fn doubles<'m>(input: &mut Reader<'m>, scope: &Scope<'m>) -> Result<&'m [f64], Fault> {
    let count = count(input)?;
    values::fill(count, scope, || double(input))
}
