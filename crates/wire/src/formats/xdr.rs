//! XDR, RFC 4506: <https://www.rfc-editor.org/rfc/rfc4506>. Fields follow the order of the schema.
//!
//! ```text
//! struct Counter     { opaque id<>; hyper value; };
//! struct BatchTimer  { opaque id<>; double values<>; };
//! struct Gauge       { opaque id<>; double value; };
//! struct MetricUnion { int type; opaque id<>; hyper counter; double timer<>; double gauge; };
//! ```
//!
//! Numbers are big-endian, lengths take 4 bytes, and an id is padded with zeros to a multiple of 4
//! bytes. go-xdr writes an `int8` as a 4-byte int.

use alloc::vec::Vec;

use quipu_arena::Scope;

use crate::error::Fault;
use crate::format::{Format, sealed};
use crate::message::{BatchTimer, Counter, Gauge, MetricUnion};
use crate::pieces::{Be32, Be64, BeDouble, Bytes, Each, Piece, Zeros, append};
use crate::reader::Reader;
use crate::values;

/// XDR as written by go-xdr.
///
/// ```
/// use quipu_wire::{Counter, Metric, Xdr};
///
/// let mut out = Vec::new();
/// Counter { id: b"hits", value: 7 }.encode::<Xdr>(&mut out)?;
/// assert_eq!(out, b"\0\0\0\x04hits\0\0\0\0\0\0\0\x07");
/// # Ok::<(), quipu_wire::Error>(())
/// ```
#[derive(Debug)]
pub struct Xdr(());

impl sealed::Sealed for Xdr {}

impl Format for Xdr {
    const NAME: &'static str = "xdr";
    type WriterState = ();
    type ReaderState = ();

    #[inline(always)]
    fn write_counter(message: &Counter<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        append(out, (id(message.id)?, Be64(message.value as u64)));
        Ok(())
    }

    #[inline(always)]
    fn write_batch_timer(message: &BatchTimer<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        append(out, (id(message.id)?, doubles(message.values)?));
        Ok(())
    }

    #[inline(always)]
    fn write_gauge(message: &Gauge<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        append(out, (id(message.id)?, BeDouble(message.value)));
        Ok(())
    }

    #[inline(always)]
    fn write_union(message: &MetricUnion<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        append(
            out,
            (
                Be32(i32::from(message.metric_type.0) as u32),
                id(message.id)?,
                Be64(message.counter as u64),
                doubles(message.timer)?,
                BeDouble(message.gauge),
            ),
        );
        Ok(())
    }

    #[inline(always)]
    fn read_counter<'m>(input: &mut Reader<'m>, _: &Scope<'m>) -> Result<Counter<'m>, Fault> {
        let id = read_id(input)?;
        Ok(Counter { id, value: read_hyper(input)? })
    }

    #[inline(always)]
    fn read_batch_timer<'m>(
        input: &mut Reader<'m>,
        scope: &Scope<'m>,
    ) -> Result<BatchTimer<'m>, Fault> {
        let id = read_id(input)?;
        Ok(BatchTimer { id, values: read_doubles(input, scope)? })
    }

    #[inline(always)]
    fn read_gauge<'m>(input: &mut Reader<'m>, _: &Scope<'m>) -> Result<Gauge<'m>, Fault> {
        let id = read_id(input)?;
        Ok(Gauge { id, value: read_double(input)? })
    }

    #[inline(always)]
    fn read_union<'m>(input: &mut Reader<'m>, scope: &Scope<'m>) -> Result<MetricUnion<'m>, Fault> {
        let before = *input;
        let number = i32::from_be_bytes(input.array("the type of a metric")?);
        let metric_type = input.metric_type(number, before)?;
        let id = read_id(input)?;
        let counter = read_hyper(input)?;
        let timer = read_doubles(input, scope)?;
        let gauge = read_double(input)?;
        Ok(MetricUnion { metric_type, id, counter, timer, gauge })
    }
}

/// Returns the number of zeros that pad this number of bytes.
#[inline(always)]
fn padding(len: usize) -> usize {
    len.wrapping_neg() % 4
}

#[inline(always)]
fn length(len: usize) -> Result<Be32, Fault> {
    match u32::try_from(len) {
        Ok(len) => Ok(Be32(len)),
        Err(_) => Err(Fault::unwritable("lengths must fit in 32 bits")),
    }
}

#[inline(always)]
fn id(id: &[u8]) -> Result<impl Piece + '_, Fault> {
    Ok((length(id.len())?, Bytes(id), Zeros(padding(id.len()))))
}

#[inline(always)]
fn doubles(values: &[f64]) -> Result<impl Piece + '_, Fault> {
    Ok((length(values.len())?, Each(values, BeDouble)))
}

#[inline(always)]
fn read_id<'m>(input: &mut Reader<'m>) -> Result<&'m [u8], Fault> {
    let len = u32::from_be_bytes(input.array("the length of an id")?);
    let id = input.take_long(u64::from(len), "an id as long as its length says")?;
    // XDR readers ignore the padding, because some writers leave bytes there that are not zero.
    input.take(padding(id.len()), "the padding of an id")?;
    Ok(id)
}

#[inline(always)]
fn read_hyper(input: &mut Reader<'_>) -> Result<i64, Fault> {
    Ok(i64::from_be_bytes(input.array("a counter's value")?))
}

#[inline(always)]
fn read_double(input: &mut Reader<'_>) -> Result<f64, Fault> {
    Ok(f64::from_be_bytes(input.array("a double")?))
}

#[inline(always)]
fn read_doubles<'m>(input: &mut Reader<'m>, scope: &Scope<'m>) -> Result<&'m [f64], Fault> {
    const EXPECTED: &str = "the announced number of doubles";
    let count = u32::from_be_bytes(input.array("the number of values")?);
    let count = input.count(u64::from(count), 8, EXPECTED)?;
    values::big_endian(input.take(8 * count, EXPECTED)?, scope)
}

#[cfg(test)]
mod tests {
    use quipu_arena::Arena;

    use super::*;
    use crate::Metric;

    #[test]
    fn lengths_and_types_are_checked() {
        let mut arena = Arena::new();
        let scope = arena.as_scope();
        let long = b"\xff\xff\xff\xffabcd";
        assert!(Counter::decode::<Xdr>(long, &scope).unwrap_err().is_incomplete());
        let long = b"\0\0\0\0\x7f\xff\xff\xff";
        assert!(BatchTimer::decode::<Xdr>(long, &scope).unwrap_err().is_incomplete());
        let large = b"\0\0\x01\0";
        let error = MetricUnion::decode::<Xdr>(large, &scope).unwrap_err();
        assert_eq!((error.offset(), error.is_incomplete()), (Some(0), false));
        // Padding can be any bytes.
        let filled = b"\0\0\0\x01aXYZ\0\0\0\0\0\0\0\x07";
        assert_eq!(Counter::decode::<Xdr>(filled, &scope).unwrap().value, 7);
    }
}
