//! Apache Thrift's binary and compact protocols:
//! <https://github.com/apache/thrift/tree/master/doc/specs>.
//!
//! ```text
//! struct Counter     { 1: binary id, 2: i64 value }
//! struct BatchTimer  { 1: binary id, 2: list<double> values }
//! struct Gauge       { 1: binary id, 2: double value }
//! struct MetricUnion { 1: i8 type, 2: binary id, 3: i64 counterVal,
//!                      4: list<double> batchTimerVal, 5: double gaugeVal }
//! ```
//!
//! Both write every field. You can read fields in any order; if a field repeats, the last one wins.
//! Unknown fields of up to 64 levels are skipped.
//!
//! ```text
//! binary    field: type (1), id (2); then 4-byte lengths; numbers and doubles big-endian; 00 ends
//! compact   field: difference of ids and type (1), or type (1) and zigzag id; varint lengths;
//!           zigzag numbers; doubles little-endian; 00 ends
//! ```

use alloc::vec::Vec;
use core::marker::PhantomData;

use quipu_arena::Scope;

use crate::error::Fault;
use crate::format::dialects;
use crate::message::{BatchTimer, Counter, Gauge, MetricUnion};
use crate::pieces::{
    Be16, Be32, Be64, BeDouble, Byte, Bytes, Each, LeDoubles, Literal, Piece, Varint, append,
};
use crate::reader::{Reader, unzigzag, zigzag};
use crate::values;

/// Thrift's binary protocol.
///
/// ```
/// use quipu_wire::{Counter, Metric, Thrift};
///
/// let mut out = Vec::new();
/// Counter { id: b"hits", value: 7 }.encode::<Thrift>(&mut out)?;
/// assert_eq!(out, b"\x0b\0\x01\0\0\0\x04hits\n\0\x02\0\0\0\0\0\0\0\x07\0");
/// # Ok::<(), quipu_wire::Error>(())
/// ```
#[derive(Debug)]
pub struct Thrift(());

/// Thrift's compact protocol.
///
/// ```
/// use quipu_wire::{Counter, Metric, ThriftCompact};
///
/// let mut out = Vec::new();
/// Counter { id: b"hits", value: 7 }.encode::<ThriftCompact>(&mut out)?;
/// assert_eq!(out, b"\x18\x04hits\x16\x0e\0");
/// # Ok::<(), quipu_wire::Error>(())
/// ```
#[derive(Debug)]
pub struct ThriftCompact(());

dialects!(delimited: true, Thrift, ThriftCompact);

/// The type of a field.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Type {
    /// A boolean. In the compact protocol, the header of the field contains its value.
    Bool(Option<bool>),
    I8,
    I16,
    I32,
    I64,
    Double,
    Binary,
    Struct,
    Map,
    Set,
    List,
    Uuid,
}

/// The differences between the protocols.
trait Dialect: Sized + 'static {
    const NAME: &'static str;

    // Fields. The arguments are the difference from the previous field's id, and the id itself.
    fn id(step: u8, field: u8, id: &[u8]) -> Result<impl Piece + '_, Fault>;
    fn byte(step: u8, field: u8, value: i8) -> impl Piece;
    fn integer(step: u8, field: u8, value: i64) -> impl Piece;
    fn double(step: u8, field: u8, value: f64) -> impl Piece;
    fn doubles(step: u8, field: u8, values: &[f64]) -> Result<impl Piece + '_, Fault>;

    /// Reads the next field's type and id, given the last id. Returns `None` at the end.
    fn field(input: &mut Reader<'_>, last: i16) -> Result<Option<(Type, i16)>, Fault>;
    /// Reads a number of this many bytes. In the compact protocol, this is always a varint.
    fn number(input: &mut Reader<'_>, bytes: usize) -> Result<i64, Fault>;
    fn read_double(input: &mut Reader<'_>) -> Result<f64, Fault>;
    fn length(input: &mut Reader<'_>) -> Result<u64, Fault>;
    fn list(input: &mut Reader<'_>) -> Result<(Type, u64), Fault>;
    fn map(input: &mut Reader<'_>) -> Result<(Type, Type, u64), Fault>;
    fn read_doubles<'m>(bytes: &[u8], scope: &Scope<'m>) -> Result<&'m [f64], Fault>;
}

const LONG: Fault = Fault::unwritable("lengths must fit in 31 bits");

#[inline(always)]
fn length(len: usize) -> Result<u32, Fault> {
    match i32::try_from(len) {
        Ok(len) => Ok(len as u32),
        Err(_) => Err(LONG),
    }
}

impl Dialect for Thrift {
    const NAME: &'static str = "thrift";

    #[inline(always)]
    fn id(_: u8, field: u8, id: &[u8]) -> Result<impl Piece + '_, Fault> {
        Ok((Byte(11), Be16(field.into()), Be32(length(id.len())?), Bytes(id)))
    }

    #[inline(always)]
    fn byte(_: u8, field: u8, value: i8) -> impl Piece {
        (Byte(3), Be16(field.into()), Byte(value as u8))
    }

    #[inline(always)]
    fn integer(_: u8, field: u8, value: i64) -> impl Piece {
        (Byte(10), Be16(field.into()), Be64(value as u64))
    }

    #[inline(always)]
    fn double(_: u8, field: u8, value: f64) -> impl Piece {
        (Byte(4), Be16(field.into()), BeDouble(value))
    }

    #[inline(always)]
    fn doubles(_: u8, field: u8, values: &[f64]) -> Result<impl Piece + '_, Fault> {
        let len = length(values.len())?;
        Ok((Byte(15), Be16(field.into()), Byte(4), Be32(len), Each(values, BeDouble)))
    }

    #[inline(always)]
    fn field(input: &mut Reader<'_>, _: i16) -> Result<Option<(Type, i16)>, Fault> {
        let before = *input;
        let byte = input.byte(FIELD)?;
        if byte == 0 {
            return Ok(None);
        }
        let Some(kind) = binary_type(byte) else {
            *input = before;
            return Err(Fault::malformed(FIELD));
        };
        Ok(Some((kind, i16::from_be_bytes(input.array("the id of a field")?))))
    }

    #[inline(always)]
    fn number(input: &mut Reader<'_>, bytes: usize) -> Result<i64, Fault> {
        const EXPECTED: &str = "a number";
        Ok(match bytes {
            1 => i64::from(input.byte(EXPECTED)? as i8),
            2 => i64::from(i16::from_be_bytes(input.array(EXPECTED)?)),
            4 => i64::from(i32::from_be_bytes(input.array(EXPECTED)?)),
            _ => i64::from_be_bytes(input.array(EXPECTED)?),
        })
    }

    #[inline(always)]
    fn read_double(input: &mut Reader<'_>) -> Result<f64, Fault> {
        Ok(f64::from_be_bytes(input.array("a double")?))
    }

    #[inline(always)]
    fn length(input: &mut Reader<'_>) -> Result<u64, Fault> {
        let before = *input;
        let len = i32::from_be_bytes(input.array("a length")?);
        u64::try_from(len).map_err(|_| {
            *input = before;
            Fault::malformed("a length that is not negative")
        })
    }

    #[inline(always)]
    fn list(input: &mut Reader<'_>) -> Result<(Type, u64), Fault> {
        Ok((element(input)?, Self::length(input)?))
    }

    fn map(input: &mut Reader<'_>) -> Result<(Type, Type, u64), Fault> {
        let key = element(input)?;
        Ok((key, element(input)?, Self::length(input)?))
    }

    #[inline(always)]
    fn read_doubles<'m>(bytes: &[u8], scope: &Scope<'m>) -> Result<&'m [f64], Fault> {
        values::big_endian(bytes, scope)
    }
}

/// Reads the type of a list's items.
#[inline(always)]
fn element(input: &mut Reader<'_>) -> Result<Type, Fault> {
    const EXPECTED: &str = "the type of a list's items";
    let before = *input;
    let byte = input.byte(EXPECTED)?;
    binary_type(byte).ok_or_else(|| {
        *input = before;
        Fault::malformed(EXPECTED)
    })
}

#[inline(always)]
fn binary_type(byte: u8) -> Option<Type> {
    Some(match byte {
        2 => Type::Bool(None),
        3 => Type::I8,
        4 => Type::Double,
        6 => Type::I16,
        8 => Type::I32,
        10 => Type::I64,
        11 => Type::Binary,
        12 => Type::Struct,
        13 => Type::Map,
        14 => Type::Set,
        15 => Type::List,
        16 => Type::Uuid,
        _ => return None,
    })
}

impl Dialect for ThriftCompact {
    const NAME: &'static str = "thrift-compact";

    #[inline(always)]
    fn id(step: u8, _: u8, id: &[u8]) -> Result<impl Piece + '_, Fault> {
        Ok((Byte(step << 4 | 8), Varint(length(id.len())?.into()), Bytes(id)))
    }

    #[inline(always)]
    fn byte(step: u8, _: u8, value: i8) -> impl Piece {
        (Byte(step << 4 | 3), Byte(value as u8))
    }

    #[inline(always)]
    fn integer(step: u8, _: u8, value: i64) -> impl Piece {
        (Byte(step << 4 | 6), Varint(zigzag(value)))
    }

    #[inline(always)]
    fn double(step: u8, _: u8, value: f64) -> impl Piece {
        (Byte(step << 4 | 7), crate::pieces::LeDouble(value))
    }

    #[inline(always)]
    fn doubles(step: u8, _: u8, values: &[f64]) -> Result<impl Piece + '_, Fault> {
        let len = length(values.len())?;
        let short = (len < 15).then_some(Byte((len as u8) << 4 | 7));
        let long = (len >= 15).then_some((Literal(b"\xf7"), Varint(len.into())));
        Ok((Byte(step << 4 | 9), short, long, LeDoubles(values)))
    }

    #[inline(always)]
    fn field(input: &mut Reader<'_>, last: i16) -> Result<Option<(Type, i16)>, Fault> {
        let before = *input;
        let byte = input.byte(FIELD)?;
        if byte == 0 {
            return Ok(None);
        }
        let Some(kind) = compact_type(byte & 15) else {
            *input = before;
            return Err(Fault::malformed(FIELD));
        };
        let step = byte >> 4;
        if step != 0 {
            return Ok(Some((kind, last.wrapping_add(i16::from(step)))));
        }
        let id = unzigzag(input.varint("the id of a field")?);
        match i16::try_from(id) {
            Ok(id) => Ok(Some((kind, id))),
            Err(_) => {
                *input = before;
                Err(Fault::malformed("the id of a field in 16 bits"))
            }
        }
    }

    #[inline(always)]
    fn number(input: &mut Reader<'_>, bytes: usize) -> Result<i64, Fault> {
        if bytes == 1 {
            return Ok(i64::from(input.byte("a number")? as i8));
        }
        Ok(unzigzag(input.varint("a number")?))
    }

    #[inline(always)]
    fn read_double(input: &mut Reader<'_>) -> Result<f64, Fault> {
        Ok(f64::from_le_bytes(input.array("a double")?))
    }

    #[inline(always)]
    fn length(input: &mut Reader<'_>) -> Result<u64, Fault> {
        let before = *input;
        let len = input.varint("a length")?;
        if len > i32::MAX as u64 {
            *input = before;
            return Err(Fault::malformed("a length of 31 bits"));
        }
        Ok(len)
    }

    #[inline(always)]
    fn list(input: &mut Reader<'_>) -> Result<(Type, u64), Fault> {
        const EXPECTED: &str = "the header of a list";
        let before = *input;
        let byte = input.byte(EXPECTED)?;
        let Some(kind) = compact_type(byte & 15) else {
            *input = before;
            return Err(Fault::malformed(EXPECTED));
        };
        let len = if byte >> 4 == 15 { Self::length(input)? } else { u64::from(byte >> 4) };
        Ok((kind, len))
    }

    fn map(input: &mut Reader<'_>) -> Result<(Type, Type, u64), Fault> {
        const EXPECTED: &str = "the types of a map's keys and values";
        let len = Self::length(input)?;
        if len == 0 {
            return Ok((Type::I8, Type::I8, 0));
        }
        let before = *input;
        let byte = input.byte(EXPECTED)?;
        match (compact_type(byte >> 4), compact_type(byte & 15)) {
            (Some(key), Some(value)) => Ok((key, value, len)),
            _ => {
                *input = before;
                Err(Fault::malformed(EXPECTED))
            }
        }
    }

    #[inline(always)]
    fn read_doubles<'m>(bytes: &[u8], scope: &Scope<'m>) -> Result<&'m [f64], Fault> {
        values::little_endian(bytes, scope)
    }
}

#[inline(always)]
fn compact_type(nibble: u8) -> Option<Type> {
    Some(match nibble {
        1 => Type::Bool(Some(true)),
        2 => Type::Bool(Some(false)),
        3 => Type::I8,
        4 => Type::I16,
        5 => Type::I32,
        6 => Type::I64,
        7 => Type::Double,
        8 => Type::Binary,
        9 => Type::List,
        10 => Type::Set,
        11 => Type::Map,
        12 => Type::Struct,
        13 => Type::Uuid,
        _ => return None,
    })
}

const FIELD: &str = "the type of a field, or the end of the struct";

/// The code that the protocols share.
struct Codec<D>(PhantomData<D>);

impl<D: Dialect> Codec<D> {
    #[inline(always)]
    fn write_counter(message: &Counter<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        let Counter { id, value } = *message;
        append(out, (D::id(1, 1, id)?, D::integer(1, 2, value), Byte(0)));
        Ok(())
    }

    #[inline(always)]
    fn write_batch_timer(message: &BatchTimer<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        let BatchTimer { id, values } = *message;
        append(out, (D::id(1, 1, id)?, D::doubles(1, 2, values)?, Byte(0)));
        Ok(())
    }

    #[inline(always)]
    fn write_gauge(message: &Gauge<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        let Gauge { id, value } = *message;
        append(out, (D::id(1, 1, id)?, D::double(1, 2, value), Byte(0)));
        Ok(())
    }

    #[inline(always)]
    fn write_union(message: &MetricUnion<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        let MetricUnion { metric_type, id, counter, timer, gauge } = *message;
        append(
            out,
            (
                D::byte(1, 1, metric_type.0),
                D::id(1, 2, id)?,
                D::integer(1, 3, counter),
                D::doubles(1, 4, timer)?,
                D::double(1, 5, gauge),
                Byte(0),
            ),
        );
        Ok(())
    }

    #[inline(always)]
    fn read_counter<'m>(input: &mut Reader<'m>, _: &Scope<'m>) -> Result<Counter<'m>, Fault> {
        let mut message = Counter { id: &[], value: 0 };
        let mut last = 0;
        while let Some((kind, field)) = D::field(input, last)? {
            match field {
                1 => message.id = Self::id(input, kind)?,
                2 => message.value = Self::integer(input, kind)?,
                _ => input.apart(|input| skip::<D>(input, kind))?,
            }
            last = field;
        }
        Ok(message)
    }

    #[inline(always)]
    fn read_batch_timer<'m>(
        input: &mut Reader<'m>,
        scope: &Scope<'m>,
    ) -> Result<BatchTimer<'m>, Fault> {
        let mut message = BatchTimer { id: &[], values: &[] };
        let mut last = 0;
        while let Some((kind, field)) = D::field(input, last)? {
            match field {
                1 => message.id = Self::id(input, kind)?,
                2 => message.values = Self::doubles(input, kind, scope)?,
                _ => input.apart(|input| skip::<D>(input, kind))?,
            }
            last = field;
        }
        Ok(message)
    }

    #[inline(always)]
    fn read_gauge<'m>(input: &mut Reader<'m>, _: &Scope<'m>) -> Result<Gauge<'m>, Fault> {
        let mut message = Gauge { id: &[], value: 0.0 };
        let mut last = 0;
        while let Some((kind, field)) = D::field(input, last)? {
            match field {
                1 => message.id = Self::id(input, kind)?,
                2 => message.value = Self::double(input, kind)?,
                _ => input.apart(|input| skip::<D>(input, kind))?,
            }
            last = field;
        }
        Ok(message)
    }

    #[inline(always)]
    fn read_union<'m>(input: &mut Reader<'m>, scope: &Scope<'m>) -> Result<MetricUnion<'m>, Fault> {
        let mut message = MetricUnion::ZERO;
        let mut last = 0;
        while let Some((kind, field)) = D::field(input, last)? {
            match field {
                1 => {
                    let before = *input;
                    let number = Self::integer(input, kind)?;
                    message.metric_type = input.metric_type(number, before)?;
                }
                2 => message.id = Self::id(input, kind)?,
                3 => message.counter = Self::integer(input, kind)?,
                4 => message.timer = Self::doubles(input, kind, scope)?,
                5 => message.gauge = Self::double(input, kind)?,
                _ => input.apart(|input| skip::<D>(input, kind))?,
            }
            last = field;
        }
        Ok(message)
    }

    #[inline(always)]
    fn id<'m>(input: &mut Reader<'m>, kind: Type) -> Result<&'m [u8], Fault> {
        if kind != Type::Binary {
            return Err(Fault::malformed("an id as binary"));
        }
        let len = D::length(input)?;
        input.take_long(len, "an id as long as its length says")
    }

    #[inline(always)]
    fn integer(input: &mut Reader<'_>, kind: Type) -> Result<i64, Fault> {
        match kind {
            Type::I64 => D::number(input, 8),
            Type::I32 => D::number(input, 4),
            Type::I16 => D::number(input, 2),
            Type::I8 => D::number(input, 1),
            _ => Err(Fault::malformed("a whole number")),
        }
    }

    #[inline(always)]
    fn double(input: &mut Reader<'_>, kind: Type) -> Result<f64, Fault> {
        if kind != Type::Double {
            return Err(Fault::malformed("a double"));
        }
        D::read_double(input)
    }

    #[inline(always)]
    fn doubles<'m>(
        input: &mut Reader<'m>,
        kind: Type,
        scope: &Scope<'m>,
    ) -> Result<&'m [f64], Fault> {
        const EXPECTED: &str = "the announced number of doubles";
        if !matches!(kind, Type::List | Type::Set) {
            return Err(Fault::malformed("a list of doubles"));
        }
        let before = *input;
        let (element, count) = D::list(input)?;
        if element != Type::Double && count > 0 {
            *input = before;
            return Err(Fault::malformed("a list of doubles"));
        }
        let count = input.count(count, 8, EXPECTED)?;
        D::read_doubles(input.take(8 * count, EXPECTED)?, scope)
    }
}

/// A value that is partly skipped.
#[derive(Clone, Copy)]
enum PendingSkip {
    /// The fields of a struct, after the field with this id.
    Struct(i16),
    /// Items of one type, and how many remain.
    Items(Type, u64),
    /// Pairs, how many remain, and whether a key is next.
    Pairs(Type, Type, u64, bool),
}

/// Skips an unknown field.
#[cold]
#[inline(never)]
fn skip<D: Dialect>(input: &mut Reader<'_>, kind: Type) -> Result<(), Fault> {
    const DEPTH: usize = 64;
    let mut open = [PendingSkip::Struct(0); DEPTH];
    let mut depth = 0;
    let mut next = Some(kind);
    loop {
        if let Some(kind) = next.take() {
            let inner = match kind {
                // In a list, a boolean is a byte in both protocols.
                Type::Bool(known) => {
                    if known.is_none() {
                        input.byte("a boolean")?;
                    }
                    None
                }
                Type::I8 => D::number(input, 1).map(|_| None)?,
                Type::I16 => D::number(input, 2).map(|_| None)?,
                Type::I32 => D::number(input, 4).map(|_| None)?,
                Type::I64 => D::number(input, 8).map(|_| None)?,
                Type::Double => D::read_double(input).map(|_| None)?,
                Type::Uuid => input.array::<16>("16 bytes").map(|_| None)?,
                Type::Binary => {
                    let len = D::length(input)?;
                    input.take_long(len, "bytes as long as their length says")?;
                    None
                }
                Type::Struct => Some(PendingSkip::Struct(0)),
                Type::List | Type::Set => {
                    let (element, count) = D::list(input)?;
                    let count = input.count(count, 1, "the announced number of items")?;
                    Some(PendingSkip::Items(element, count as u64))
                }
                Type::Map => {
                    let (key, value, count) = D::map(input)?;
                    let count = input.count(count, 2, "the announced number of pairs")?;
                    Some(PendingSkip::Pairs(key, value, count as u64, true))
                }
            };
            if let Some(inner) = inner {
                if depth == DEPTH {
                    return Err(Fault::too_large("at most 64 values within another"));
                }
                open[depth] = inner;
                depth += 1;
            }
        }
        let Some(top) = depth.checked_sub(1) else { return Ok(()) };
        match &mut open[top] {
            PendingSkip::Struct(last) => match D::field(input, *last)? {
                Some((kind, field)) => {
                    *last = field;
                    next = Some(kind);
                }
                None => depth = top,
            },
            PendingSkip::Items(_, 0) | PendingSkip::Pairs(_, _, 0, true) => depth = top,
            PendingSkip::Items(kind, left) => {
                *left -= 1;
                next = Some(in_list(*kind));
            }
            PendingSkip::Pairs(key, value, left, is_key) => {
                next = Some(in_list(if *is_key { *key } else { *value }));
                if !*is_key {
                    *left -= 1;
                }
                *is_key = !*is_key;
            }
        }
    }
}

fn in_list(kind: Type) -> Type {
    if let Type::Bool(_) = kind { Type::Bool(None) } else { kind }
}

#[cfg(test)]
mod tests {
    use quipu_arena::Arena;

    use super::*;
    use crate::{Format, Metric};

    fn counter<F: Format>(bytes: &[u8]) -> Result<i64, crate::Error> {
        let mut arena = Arena::new();
        Ok(Counter::decode::<F>(bytes, &arena.as_scope())?.value)
    }

    fn takes<F: Format>(bytes: &[u8], value: i64) {
        assert_eq!(counter::<F>(bytes).unwrap(), value);
        for len in 0..bytes.len() {
            assert!(counter::<F>(&bytes[..len]).unwrap_err().is_incomplete(), "{len}");
        }
    }

    #[test]
    fn binary_fields_in_any_order_and_of_any_type() {
        // The value as an i32 before the id, with unknown fields of each type in between.
        let unknown: &[&[u8]] = &[
            b"\x02\0\x09\x01",
            b"\x03\0\x09\x01",
            b"\x04\0\x09\0\0\0\0\0\0\0\0",
            b"\x06\0\x09\0\0",
            b"\x0b\0\x09\0\0\0\x02ab",
            b"\x0c\0\x09\x08\0\x01\0\0\0\x01\x0c\0\x02\0\0",
            b"\x0d\0\x09\x08\x0b\0\0\0\x01\0\0\0\x05\0\0\0\x01x",
            b"\x0f\0\x09\x02\0\0\0\x02\x01\0",
            b"\x0e\0\x09\x0c\0\0\0\x02\0\0",
            b"\x10\0\x090123456789abcdef",
        ];
        for field in unknown {
            let bytes = [b"\x08\0\x02\0\0\0\x07", *field, b"\x0b\0\x01\0\0\0\x01a\0"].concat();
            takes::<Thrift>(&bytes, 7);
        }
    }

    #[test]
    fn compact_fields_in_any_order_and_of_any_type() {
        let unknown: &[&[u8]] = &[
            b"\x71",
            b"\x73\x01",
            b"\x77\0\0\0\0\0\0\0\0",
            b"\x74\x02",
            b"\x78\x02ab",
            b"\x7c\x15\x02\x1c\0\0",
            b"\x7b\x01\x58\x0a\x01x",
            b"\x7b\0",
            b"\x79\x21\x01\x02",
            b"\x7a\x2c\0\0",
            b"\x7d0123456789abcdef",
        ];
        for field in unknown {
            let bytes = [b"\x25\x0e", *field, b"\x08\x02\x01a\0"].concat();
            takes::<ThriftCompact>(&bytes, 7);
        }
    }

    #[test]
    fn hostile_lengths_and_depths() {
        for bytes in [
            &b"\x0b\0\x01\xff\xff\xff\xff"[..],
            b"\x0f\0\x09\x0c\x7f\xff\xff\xff\0",
            b"\x0d\0\x09\x02\x02\x7f\xff\xff\xff\0",
        ] {
            assert!(counter::<Thrift>(bytes).is_err());
        }
        let deep = b"\x0c\0\x09".repeat(100);
        assert!(!counter::<Thrift>(&deep).unwrap_err().is_incomplete());
        assert!(counter::<ThriftCompact>(b"\x18\xff\xff\xff\xff\xff\x01").is_err());
    }
}
