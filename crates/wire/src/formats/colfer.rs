//! Colfer: <https://github.com/pascaldekloe/colfer/wiki/Spec>. The header of a field is its number
//! in the schema. Zeros are omitted, fields are in the order of the schema, and 7f ends a message.
//!
//! ```text
//! Counter      0 id, 1 value
//! BatchTimer   0 id, 1 values
//! Gauge        0 id, 1 value
//! MetricUnion  0 type, 1 id, 2 counter, 3 timer, 4 gauge
//! ```
//!
//! A number is a varint of at most 9 bytes. The ninth byte carries 8 bits. If the number is
//! negative, its header has the bit 80 set and the magnitude follows. Doubles are big-endian.

use alloc::vec::Vec;

use quipu_arena::Scope;

use crate::error::Fault;
use crate::format::{Format, sealed};
use crate::message::{BatchTimer, Counter, Gauge, MetricType, MetricUnion};
use crate::pieces::{BeDouble, Byte, Bytes, Each, FixedPiece, Piece, Varint, append};
use crate::reader::Reader;
use crate::values;

/// Colfer as written by its generated code.
///
/// ```
/// use quipu_wire::{Counter, Metric, Colfer};
///
/// let mut out = Vec::new();
/// Counter { id: b"hits", value: 7 }.encode::<Colfer>(&mut out)?;
/// assert_eq!(out, b"\0\x04hits\x01\x07\x7f");
/// # Ok::<(), quipu_wire::Error>(())
/// ```
#[derive(Debug)]
pub struct Colfer(());

/// The end of a message.
const END: u8 = 0x7f;
/// Marks a negative number in the header of a field.
const NEGATIVE: u8 = 0x80;
/// The library refuses to read messages beyond 16 MiB and lists beyond 64 Ki values, even if it
/// wrote them. 64 Ki values take half a MiB.
const MAX_ID: usize = 15 << 20;
const MAX_LIST: usize = 64 << 10;

impl sealed::Sealed for Colfer {}

impl Format for Colfer {
    const NAME: &'static str = "colfer";
    type WriterState = ();
    type ReaderState = ();

    #[inline(always)]
    fn write_counter(message: &Counter<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        append(out, (id(0, message.id)?, integer(1, message.value), Byte(END)));
        Ok(())
    }

    #[inline(always)]
    fn write_batch_timer(message: &BatchTimer<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        append(out, (id(0, message.id)?, doubles(1, message.values)?, Byte(END)));
        Ok(())
    }

    #[inline(always)]
    fn write_gauge(message: &Gauge<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        append(out, (id(0, message.id)?, double(1, message.value), Byte(END)));
        Ok(())
    }

    #[inline(always)]
    fn write_union(message: &MetricUnion<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        let metric_type = message.metric_type.0 as u8;
        append(
            out,
            (
                (metric_type != 0).then_some((Byte(0), Byte(metric_type))),
                id(1, message.id)?,
                integer(2, message.counter),
                doubles(3, message.timer)?,
                double(4, message.gauge),
                Byte(END),
            ),
        );
        Ok(())
    }

    #[inline(always)]
    fn read_counter<'m>(input: &mut Reader<'m>, _: &Scope<'m>) -> Result<Counter<'m>, Fault> {
        let id = read_id(input, 0)?;
        let value = read_integer(input, 1)?;
        end(input)?;
        Ok(Counter { id, value })
    }

    #[inline(always)]
    fn read_batch_timer<'m>(
        input: &mut Reader<'m>,
        scope: &Scope<'m>,
    ) -> Result<BatchTimer<'m>, Fault> {
        let id = read_id(input, 0)?;
        let values = read_doubles(input, 1, scope)?;
        end(input)?;
        Ok(BatchTimer { id, values })
    }

    #[inline(always)]
    fn read_gauge<'m>(input: &mut Reader<'m>, _: &Scope<'m>) -> Result<Gauge<'m>, Fault> {
        let id = read_id(input, 0)?;
        let value = read_double(input, 1)?;
        end(input)?;
        Ok(Gauge { id, value })
    }

    #[inline(always)]
    fn read_union<'m>(input: &mut Reader<'m>, scope: &Scope<'m>) -> Result<MetricUnion<'m>, Fault> {
        let mut metric_type = 0;
        if header(input, 0) {
            metric_type = input.byte("the type of a metric")?;
        }
        let id = read_id(input, 1)?;
        let counter = read_integer(input, 2)?;
        let timer = read_doubles(input, 3, scope)?;
        let gauge = read_double(input, 4)?;
        end(input)?;
        Ok(MetricUnion { metric_type: MetricType(metric_type as i8), id, counter, timer, gauge })
    }
}

#[inline(always)]
fn id(field: u8, id: &[u8]) -> Result<impl Piece + '_, Fault> {
    if id.len() > MAX_ID {
        return Err(Fault::unwritable("an id can have at most 15 MiB"));
    }
    Ok((!id.is_empty()).then_some((Byte(field), Varint(id.len() as u64), Bytes(id))))
}

#[inline(always)]
fn integer(field: u8, value: i64) -> impl Piece {
    let header = if value < 0 { field | NEGATIVE } else { field };
    (value != 0).then(|| (Byte(header), Magnitude(value.unsigned_abs())))
}

#[inline(always)]
fn double(field: u8, value: f64) -> impl Piece {
    (value != 0.0).then_some((Byte(field), BeDouble(value)))
}

#[inline(always)]
fn doubles(field: u8, values: &[f64]) -> Result<impl Piece + '_, Fault> {
    if values.len() > MAX_LIST {
        return Err(Fault::unwritable("a batch timer can have at most 65536 values"));
    }
    Ok((!values.is_empty()).then_some((
        Byte(field),
        Varint(values.len() as u64),
        Each(values, BeDouble),
    )))
}

/// A varint with 8 bits in the ninth byte.
#[derive(Clone, Copy)]
struct Magnitude(u64);

// SAFETY: `bound` below is the same constant.
unsafe impl FixedPiece for Magnitude {
    const BOUND: usize = 9;
}

// SAFETY: This writes 8 groups of 7 bits and one of 8.
unsafe impl Piece for Magnitude {
    #[inline(always)]
    fn bound(&self) -> usize {
        Self::BOUND
    }

    #[inline(always)]
    unsafe fn put(&self, mut at: *mut u8) -> *mut u8 {
        let mut number = self.0;
        let mut groups = 0;
        // SAFETY: `at` is valid for 9 bytes, and at most 8 groups precede the last byte.
        unsafe {
            while number >= 0x80 && groups < 8 {
                at.write(number as u8 | 0x80);
                at = at.add(1);
                number >>= 7;
                groups += 1;
            }
            at.write(number as u8);
            at.add(1)
        }
    }
}

/// Returns whether the header of this field is next.
#[inline(always)]
fn header(input: &mut Reader<'_>, field: u8) -> bool {
    let here = input.peek() == Some(field);
    if here {
        input.advance(1);
    }
    here
}

#[inline(always)]
fn end(input: &mut Reader<'_>) -> Result<(), Fault> {
    input.literal(&[END], "the header of a later field, or the end of the message")
}

#[inline(always)]
fn read_id<'m>(input: &mut Reader<'m>, field: u8) -> Result<&'m [u8], Fault> {
    if !header(input, field) {
        return Ok(&[]);
    }
    let len = input.varint("the length of an id")?;
    input.take_long(len, "an id as long as its length says")
}

#[inline(always)]
fn read_integer(input: &mut Reader<'_>, field: u8) -> Result<i64, Fault> {
    if header(input, field) {
        Ok(read_magnitude(input)? as i64)
    } else if header(input, field | NEGATIVE) {
        Ok((read_magnitude(input)? as i64).wrapping_neg())
    } else {
        Ok(0)
    }
}

#[inline(always)]
fn read_magnitude(input: &mut Reader<'_>) -> Result<u64, Fault> {
    if let Some(byte @ ..0x80) = input.peek() {
        input.advance(1);
        return Ok(u64::from(byte));
    }
    let mut number = 0;
    for (index, &byte) in input.rest().iter().enumerate() {
        if index == 8 {
            input.advance(9);
            return Ok(number | u64::from(byte) << 56);
        }
        number |= u64::from(byte & 0x7f) << (7 * index);
        if byte < 0x80 {
            input.advance(index + 1);
            return Ok(number);
        }
    }
    Err(Fault::incomplete("a number"))
}

#[inline(always)]
fn read_double(input: &mut Reader<'_>, field: u8) -> Result<f64, Fault> {
    if !header(input, field) {
        return Ok(0.0);
    }
    Ok(f64::from_be_bytes(input.array("a double")?))
}

#[inline(always)]
fn read_doubles<'m>(
    input: &mut Reader<'m>,
    field: u8,
    scope: &Scope<'m>,
) -> Result<&'m [f64], Fault> {
    const EXPECTED: &str = "the announced number of doubles";
    if !header(input, field) {
        return Ok(&[]);
    }
    let count = input.varint("the number of values")?;
    let count = input.count(count, 8, EXPECTED)?;
    values::big_endian(input.take(8 * count, EXPECTED)?, scope)
}

#[cfg(test)]
mod tests {
    use quipu_arena::Arena;

    use super::*;
    use crate::Metric;

    #[test]
    fn numbers_have_9_bytes_at_most() {
        let mut arena = Arena::new();
        let scope = arena.as_scope();
        for value in [i64::MIN, i64::MAX, -1, 127, 128, -(1 << 56), 1 << 62] {
            let mut out = alloc::vec::Vec::new();
            let counter = Counter { id: b"", value };
            counter.encode::<Colfer>(&mut out).unwrap();
            assert!(out.len() <= 11);
            assert_eq!(Counter::decode::<Colfer>(&out, &scope).unwrap(), counter);
            for len in 0..out.len() {
                let error = Counter::decode::<Colfer>(&out[..len], &scope).unwrap_err();
                assert!(error.is_incomplete());
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "lists of 65536 values take minutes")]
    fn messages_that_the_library_refuses_are_refused() {
        let mut out = alloc::vec::Vec::new();
        let values = alloc::vec![0.0; MAX_LIST + 1];
        assert!(BatchTimer { id: b"", values: &values }.encode::<Colfer>(&mut out).is_err());
        assert!(BatchTimer { id: b"", values: &values[1..] }.encode::<Colfer>(&mut out).is_ok());
        let mut arena = Arena::new();
        let scope = arena.as_scope();
        for bytes in [&b"\x02\x7f"[..], b"\x01\x05\0\x01a\x7f", b"\x80\x01\x7f"] {
            assert!(Counter::decode::<Colfer>(bytes, &scope).is_err(), "{bytes:?}");
        }
    }
}
