//! Gencode: <https://github.com/andyleap/gencode>. Fields follow the order of the schema, without
//! tags.
//!
//! ```text
//! Counter      varint length, id, zigzag varint value
//! BatchTimer   varint length, id, varint count, doubles
//! Gauge        varint length, id, double
//! MetricUnion  type (1 byte), varint length, id, counter (8 bytes), varint count, doubles, double
//! ```
//!
//! Numbers are little-endian. In the schema, a union's counter is an `int64` (8 bytes), and a
//! counter's value is a `vint64` (zigzag varint).

use alloc::vec::Vec;

use quipu_arena::Scope;

use crate::error::Fault;
use crate::format::{Format, sealed};
use crate::message::{BatchTimer, Counter, Gauge, MetricType, MetricUnion};
use crate::pieces::{Byte, Bytes, Le64, LeDouble, LeDoubles, Piece, Varint, append};
use crate::reader::{Reader, unzigzag, zigzag};
use crate::values;

/// Gencode as written by its generated code.
///
/// ```
/// use quipu_wire::{Counter, Metric, Gencode};
///
/// let mut out = Vec::new();
/// Counter { id: b"hits", value: 7 }.encode::<Gencode>(&mut out)?;
/// assert_eq!(out, b"\x04hits\x0e");
/// # Ok::<(), quipu_wire::Error>(())
/// ```
#[derive(Debug)]
pub struct Gencode(());

impl sealed::Sealed for Gencode {}

impl Format for Gencode {
    const NAME: &'static str = "gencode";
    type WriterState = ();
    type ReaderState = ();

    #[inline(always)]
    fn write_counter(message: &Counter<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        append(out, (id(message.id), Varint(zigzag(message.value))));
        Ok(())
    }

    #[inline(always)]
    fn write_batch_timer(message: &BatchTimer<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        append(out, (id(message.id), doubles(message.values)));
        Ok(())
    }

    #[inline(always)]
    fn write_gauge(message: &Gauge<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        append(out, (id(message.id), LeDouble(message.value)));
        Ok(())
    }

    #[inline(always)]
    fn write_union(message: &MetricUnion<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        append(
            out,
            (
                Byte(message.metric_type.0 as u8),
                id(message.id),
                Le64(message.counter as u64),
                doubles(message.timer),
                LeDouble(message.gauge),
            ),
        );
        Ok(())
    }

    #[inline(always)]
    fn read_counter<'m>(input: &mut Reader<'m>, _: &Scope<'m>) -> Result<Counter<'m>, Fault> {
        let id = read_id(input)?;
        Ok(Counter { id, value: unzigzag(input.varint("a counter's value")?) })
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
        let metric_type = MetricType(input.byte("the type of a metric")? as i8);
        let id = read_id(input)?;
        let counter = i64::from_le_bytes(input.array("a counter's value")?);
        let timer = read_doubles(input, scope)?;
        let gauge = read_double(input)?;
        Ok(MetricUnion { metric_type, id, counter, timer, gauge })
    }
}

#[inline(always)]
fn id(id: &[u8]) -> impl Piece + '_ {
    (Varint(id.len() as u64), Bytes(id))
}

#[inline(always)]
fn doubles(values: &[f64]) -> impl Piece + '_ {
    (Varint(values.len() as u64), LeDoubles(values))
}

#[inline(always)]
fn read_id<'m>(input: &mut Reader<'m>) -> Result<&'m [u8], Fault> {
    let len = input.varint("the length of an id")?;
    input.take_long(len, "an id as long as its length says")
}

#[inline(always)]
fn read_double(input: &mut Reader<'_>) -> Result<f64, Fault> {
    Ok(f64::from_le_bytes(input.array("a double")?))
}

#[inline(always)]
fn read_doubles<'m>(input: &mut Reader<'m>, scope: &Scope<'m>) -> Result<&'m [f64], Fault> {
    const EXPECTED: &str = "the announced number of doubles";
    let count = input.varint("the number of values")?;
    let count = input.count(count, 8, EXPECTED)?;
    values::little_endian(input.take(8 * count, EXPECTED)?, scope)
}
