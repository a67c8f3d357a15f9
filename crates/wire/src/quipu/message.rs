//! Single messages in quipu's own format.
//!
//! ```text
//! head    1 byte: kind in the two high bits, length of the id in the six low ones
//! length  varint, only if the head says so
//! id
//! body    counter      a whole number
//!         batch timer  values
//!         gauge        a double
//!         union        type (1 byte), which of the three follow (1 byte), these values
//! ```
//!
//! Kinds: 0 counter, 1 batch timer, 2 gauge, 3 union. A union is written as the metric of its type
//! if the values of the other types are zero.
//!
//! Lengths in the head:
//!
//! ```text
//! 0..59  the length of the id in bytes
//! 60     with the kind 3: begins a block of a stream
//! 61     the id is packed in 5 bits per character, and its length in characters follows
//! 62     the same in 6 bits per character
//! 63     the length of the id in bytes follows
//! ```

use alloc::vec::Vec;
use core::marker::PhantomData;

use quipu_arena::{Scope, ScopeGuard};

use super::id::{self, PackedId};
use super::number::{CompactDouble, Whole, read_double, read_whole};
use super::stream::{StreamReader, StreamWriter};
use super::values::{self, Values};
use crate::error::Fault;
use crate::format::{Format, forward, sealed};
use crate::message::{BatchTimer, Counter, Gauge, Kind, Message, MetricType, MetricUnion};
use crate::pieces::{Byte, Bytes, Piece, Varint, append};
use crate::reader::Reader;

/// quipu's own format, smaller than any other and faster than most. In its own framing, a stream
/// sends an id once and afterwards a number for this id. Its blocks sort messages by kind.
///
/// ```
/// use quipu_wire::{Counter, Metric, Quipu};
///
/// let mut out = Vec::new();
/// Counter { id: b"hits", value: 7 }.encode::<Quipu>(&mut out)?;
/// assert_eq!(out, b"\x04hits\x07");
/// # Ok::<(), quipu_wire::Error>(())
/// ```
#[derive(Debug)]
pub struct Quipu(());

/// quipu's format with ids in 5 or 6 bits per character, if their characters allow this. Use this
/// if size matters more than the time to write.
///
/// ```
/// use quipu_wire::{Counter, Metric, QuipuCompact};
///
/// let mut out = Vec::new();
/// Counter { id: b"hits", value: 7 }.encode::<QuipuCompact>(&mut out)?;
/// assert_eq!(out, b"=\x04\x07M\t\x07");
/// # Ok::<(), quipu_wire::Error>(())
/// ```
#[derive(Debug)]
pub struct QuipuCompact(());

trait Dialect: 'static {
    const COMPACT: bool;
}

impl Dialect for Quipu {
    const COMPACT: bool = false;
}

impl Dialect for QuipuCompact {
    const COMPACT: bool = true;
}

const COUNTER: u8 = 0;
const BATCH_TIMER: u8 = 1;
const GAUGE: u8 = 2;
const UNION: u8 = 3;

/// From here on, lengths in the head are special codes.
const LENGTHS_END: usize = 60;
const PACKED_5: u8 = 61;
const PACKED_6: u8 = 62;
const LONG: u8 = 63;

/// The values of a union that follow, as flags.
const HAS_COUNTER: u8 = 1;
const HAS_TIMER: u8 = 2;
const HAS_GAUGE: u8 = 4;

/// The code that the dialects share.
struct Codec<D>(PhantomData<D>);

impl<D: Dialect> Codec<D> {
    #[inline(always)]
    fn write_counter(message: &Counter<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        Self::message(COUNTER, message.id, Whole(message.value), out)
    }

    #[inline(always)]
    fn write_batch_timer(message: &BatchTimer<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        Self::message(BATCH_TIMER, message.id, Values::new(message.values), out)
    }

    #[inline(always)]
    fn write_gauge(message: &Gauge<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        Self::message(GAUGE, message.id, CompactDouble(message.value), out)
    }

    #[inline(always)]
    fn write_union(message: &MetricUnion<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        match message.to_metric() {
            Some(Message::BatchTimer(timer)) => Self::write_batch_timer(&timer, out),
            Some(Message::Counter(counter)) => Self::write_counter(&counter, out),
            Some(Message::Gauge(gauge)) => Self::write_gauge(&gauge, out),
            _ => Self::message(UNION, message.id, union_body(message), out),
        }
    }

    #[inline(always)]
    fn message(kind: u8, id: &[u8], body: impl Piece, out: &mut Vec<u8>) -> Result<(), Fault> {
        if D::COMPACT
            && id.len() > 3
            && let Some(width) = id::width(id)
        {
            let head = Byte(kind << 6 | if width == 5 { PACKED_5 } else { PACKED_6 });
            append(out, (head, Varint(id.len() as u64), PackedId { id, width }, body));
            return Ok(());
        }
        append(out, (Head { kind, id_len: id.len() }, Bytes(id), body));
        Ok(())
    }

    #[inline(always)]
    fn read_counter<'m>(input: &mut Reader<'m>, scope: &Scope<'m>) -> Result<Counter<'m>, Fault> {
        let id = head(input, COUNTER, "the head of a counter", scope)?;
        Ok(Counter { id, value: read_whole(input, "a counter's value")? })
    }

    #[inline(always)]
    fn read_batch_timer<'m>(
        input: &mut Reader<'m>,
        scope: &Scope<'m>,
    ) -> Result<BatchTimer<'m>, Fault> {
        let id = head(input, BATCH_TIMER, "the head of a batch timer", scope)?;
        Ok(BatchTimer { id, values: values::read(input, scope)? })
    }

    #[inline(always)]
    fn read_gauge<'m>(input: &mut Reader<'m>, scope: &Scope<'m>) -> Result<Gauge<'m>, Fault> {
        let id = head(input, GAUGE, "the head of a gauge", scope)?;
        Ok(Gauge { id, value: read_double(input, "a gauge's value")? })
    }

    #[inline(always)]
    fn read_union<'m>(input: &mut Reader<'m>, scope: &Scope<'m>) -> Result<MetricUnion<'m>, Fault> {
        let (kind, id) = any_head(input, "the head of a message", scope)?;
        let zero = MetricUnion { id, ..MetricUnion::ZERO };
        Ok(match kind {
            BATCH_TIMER => MetricUnion {
                metric_type: MetricType::BATCH_TIMER,
                timer: values::read(input, scope)?,
                ..zero
            },
            COUNTER => MetricUnion {
                metric_type: MetricType::COUNTER,
                counter: read_whole(input, "a counter's value")?,
                ..zero
            },
            GAUGE => MetricUnion {
                metric_type: MetricType::GAUGE,
                gauge: read_double(input, "a gauge's value")?,
                ..zero
            },
            _ => input.apart(|input| read_union_body(input, id, u64::MAX, scope))?,
        })
    }
}

/// The kind, and the length of an unpacked id.
#[derive(Clone, Copy)]
struct Head {
    kind: u8,
    id_len: usize,
}

// SAFETY: This writes a byte and a varint.
unsafe impl Piece for Head {
    #[inline(always)]
    fn bound(&self) -> usize {
        11
    }

    #[inline(always)]
    unsafe fn put(&self, at: *mut u8) -> *mut u8 {
        // SAFETY: `at` is valid for 11 bytes.
        unsafe {
            if self.id_len < LENGTHS_END {
                Byte(self.kind << 6 | self.id_len as u8).put(at)
            } else {
                (Byte(self.kind << 6 | LONG), Varint(self.id_len as u64)).put(at)
            }
        }
    }
}

/// Writes the rest of a union after its id, for a union that cannot be written as a metric.
#[inline(always)]
pub(super) fn union_body<'m>(message: &MetricUnion<'m>) -> impl Piece + use<'m> {
    let MetricUnion { metric_type, counter, timer, gauge, .. } = *message;
    let counter = (counter != 0).then_some(Whole(counter));
    let timer = (!timer.is_empty()).then(|| Values::new(timer));
    let gauge = (gauge.to_bits() != 0).then_some(CompactDouble(gauge));
    let present = if counter.is_some() { HAS_COUNTER } else { 0 }
        | if timer.is_some() { HAS_TIMER } else { 0 }
        | if gauge.is_some() { HAS_GAUGE } else { 0 };
    (Byte(metric_type.0 as u8), Byte(present), counter, timer, gauge)
}

/// Reads a head of this kind, and then the id.
#[inline(always)]
fn head<'m>(
    input: &mut Reader<'m>,
    kind: u8,
    expected: &'static str,
    scope: &Scope<'m>,
) -> Result<&'m [u8], Fault> {
    match input.peek() {
        Some(head) if head >> 6 != kind => Err(Fault::malformed(expected)),
        _ => Ok(any_head(input, expected, scope)?.1),
    }
}

/// Reads a head of any kind, and then the id.
#[inline(always)]
fn any_head<'m>(
    input: &mut Reader<'m>,
    expected: &'static str,
    scope: &Scope<'m>,
) -> Result<(u8, &'m [u8]), Fault> {
    let Some(head) = input.peek() else { return Err(Fault::incomplete(expected)) };
    let len = usize::from(head & 63);
    if len < LENGTHS_END {
        input.advance(1);
        return Ok((head >> 6, input.take(len, "an id as long as its length says")?));
    }
    let id = input.apart(|input| long_head(input, head & 63, scope))?;
    Ok((head >> 6, id))
}

#[inline(never)]
fn long_head<'m>(input: &mut Reader<'m>, len: u8, scope: &Scope<'m>) -> Result<&'m [u8], Fault> {
    if usize::from(len) == LENGTHS_END {
        return Err(Fault::malformed("a message that stands alone, not a block of a stream"));
    }
    input.byte("a head")?;
    let count = input.varint("the length of an id")?;
    match len {
        PACKED_5 => id::read(input, count, 5, scope),
        PACKED_6 => id::read(input, count, 6, scope),
        _ => input.take_long(count, "an id as long as its length says"),
    }
}

/// Reads the rest of a union after its id. The list can contain at most this number of values.
#[inline(never)]
pub(super) fn read_union_body<'m>(
    input: &mut Reader<'m>,
    id: &'m [u8],
    most: u64,
    scope: &Scope<'m>,
) -> Result<MetricUnion<'m>, Fault> {
    const EXPECTED: &str = "which values a union has";
    let mut message = MetricUnion::ZERO;
    message.id = id;
    message.metric_type = MetricType(input.byte("the type of a metric")? as i8);
    let before = *input;
    let present = input.byte(EXPECTED)?;
    if present > HAS_COUNTER | HAS_TIMER | HAS_GAUGE {
        *input = before;
        return Err(Fault::malformed(EXPECTED));
    }
    if present & HAS_COUNTER != 0 {
        message.counter = read_whole(input, "a counter's value")?;
    }
    if present & HAS_TIMER != 0 {
        message.timer = values::read_most(input, most, scope)?;
    }
    if present & HAS_GAUGE != 0 {
        message.gauge = read_double(input, "a gauge's value")?;
    }
    Ok(message)
}

macro_rules! format {
    ($name:ident, $text:literal) => {
        impl sealed::Sealed for $name {}

        impl Format for $name {
            const NAME: &'static str = $text;
            type WriterState = StreamWriter;
            type ReaderState = StreamReader;

            forward!(Codec::<$name>);

            fn write_next(
                stream: &mut StreamWriter,
                message: &Message<'_>,
                out: &mut Vec<u8>,
            ) -> Result<(), Fault> {
                stream.write(message, out)
            }

            fn flush(stream: &mut StreamWriter, out: &mut Vec<u8>) {
                stream.flush(out);
            }

            #[inline(always)]
            fn read_next<'m>(
                stream: &'m mut StreamReader,
                kind: Kind,
                input: &mut Reader<'m>,
                scope: &Scope<'m>,
            ) -> Result<Option<Message<'m>>, Fault> {
                stream.read(kind, input, scope)
            }

            #[inline(always)]
            fn read_usual(
                stream: &mut StreamReader,
                kind: Kind,
                input: &[u8],
                guard: &mut ScopeGuard<'_>,
                take: &mut impl FnMut(Message<'_>),
            ) -> usize {
                stream.read_usual(kind, input, guard, take)
            }
        }
    };
}

format!(Quipu, "quipu");
format!(QuipuCompact, "quipu-compact");
