//! MessagePack: <https://github.com/msgpack/msgpack/blob/master/spec.md>.
//!
//! Three libraries write three dialects:
//!
//! ```text
//! vmihailenco   the fields in sequence, without a map: bin id, int, array of float 64
//! tinylib msgp  a map from the fields' names in the order of declaration: ID, Value, Values,
//!               Type, CounterVal, BatchTimerVal, GaugeVal; ids as bin
//! ugorji        the same with the names sorted, and ids as raw (the str of today)
//! ```
//!
//! Numbers are written in the shortest form. For positive numbers this is an unsigned form, except
//! with msgp, which uses signed forms. You can read a number in any form with the same value (such
//! as a 32-bit float), ids as bin and as str, and maps in any order. Unknown fields are skipped.

use alloc::vec::Vec;
use core::marker::PhantomData;

use quipu_arena::Scope;

use crate::error::Fault;
use crate::format::dialects;
use crate::message::{BatchTimer, Counter, Gauge, MetricType, MetricUnion};
use crate::pieces::{
    Be16, Be32, Be64, BeDouble, Byte, Bytes, Each, FixedPiece, Literal, Piece, append,
};
use crate::reader::Reader;
use crate::values;

/// MessagePack as vmihailenco/msgpack writes hand-encoded fields, without names.
///
/// ```
/// use quipu_wire::{Counter, Metric, VmihailencoMsgpack};
///
/// let mut out = Vec::new();
/// Counter { id: b"hits", value: 7 }.encode::<VmihailencoMsgpack>(&mut out)?;
/// assert_eq!(out, b"\xc4\x04hits\x07");
/// # Ok::<(), quipu_wire::Error>(())
/// ```
#[derive(Debug)]
pub struct VmihailencoMsgpack(());

/// MessagePack as written by the code that tinylib/msgp generates.
///
/// ```
/// use quipu_wire::{Counter, Metric, TinylibMsgp};
///
/// let mut out = Vec::new();
/// Counter { id: b"hits", value: 7 }.encode::<TinylibMsgp>(&mut out)?;
/// assert_eq!(out, b"\x82\xa2ID\xc4\x04hits\xa5Value\x07");
/// # Ok::<(), quipu_wire::Error>(())
/// ```
#[derive(Debug)]
pub struct TinylibMsgp(());

/// MessagePack as written by ugorji's codec.
///
/// ```
/// use quipu_wire::{Counter, Metric, UgorjiMsgpack};
///
/// let mut out = Vec::new();
/// Counter { id: b"hits", value: 7 }.encode::<UgorjiMsgpack>(&mut out)?;
/// assert_eq!(out, b"\x82\xa2ID\xa4hits\xa5Value\x07");
/// # Ok::<(), quipu_wire::Error>(())
/// ```
#[derive(Debug)]
pub struct UgorjiMsgpack(());

dialects!(delimited: true, VmihailencoMsgpack, TinylibMsgp, UgorjiMsgpack);

/// The differences between the dialects.
trait Dialect: Sized + 'static {
    const NAME: &'static str;
    /// Whether fields are named.
    const NAMED: bool = true;
    /// Whether the names are sorted.
    const SORTED: bool = false;
    /// Whether ids are raw. This old type lacks the form with a one-byte length.
    const RAW: bool = false;
    /// Whether positive numbers use signed forms.
    const SIGNED: bool = false;
}

impl Dialect for VmihailencoMsgpack {
    const NAME: &'static str = "vmihailenco-msgpack";
    const NAMED: bool = false;
}

impl Dialect for TinylibMsgp {
    const NAME: &'static str = "tinylib-msgp";
    const SIGNED: bool = true;
}

impl Dialect for UgorjiMsgpack {
    const NAME: &'static str = "ugorji-msgpack";
    const SORTED: bool = true;
    const RAW: bool = true;
}

/// The code that the dialects share.
struct Codec<D>(PhantomData<D>);

impl<D: Dialect> Codec<D> {
    #[inline(always)]
    fn name<const N: usize>(name: &'static [u8; N]) -> impl Piece {
        D::NAMED.then_some(Literal(name))
    }

    #[inline(always)]
    fn id(id: &[u8]) -> Result<impl Piece + '_, Fault> {
        let len = length(id.len())?;
        Ok(((if D::RAW { Length::raw(len) } else { Length::bin(len) }), Bytes(id)))
    }

    #[inline(always)]
    fn integer(value: i64) -> Integer {
        Integer { value, signed: D::SIGNED }
    }

    #[inline(always)]
    fn write_counter(message: &Counter<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        let Counter { id, value } = *message;
        append(
            out,
            (
                Self::name(b"\x82\xa2ID"),
                Self::id(id)?,
                Self::name(b"\xa5Value"),
                Self::integer(value),
            ),
        );
        Ok(())
    }

    #[inline(always)]
    fn write_batch_timer(message: &BatchTimer<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        let BatchTimer { id, values } = *message;
        append(
            out,
            (Self::name(b"\x82\xa2ID"), Self::id(id)?, Self::name(b"\xa6Values"), doubles(values)?),
        );
        Ok(())
    }

    #[inline(always)]
    fn write_gauge(message: &Gauge<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        let Gauge { id, value } = *message;
        append(
            out,
            (Self::name(b"\x82\xa2ID"), Self::id(id)?, Self::name(b"\xa5Value"), double(value)),
        );
        Ok(())
    }

    #[inline(always)]
    fn write_union(message: &MetricUnion<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        let MetricUnion { metric_type: MetricType(metric_type), id, counter, timer, gauge } =
            *message;
        let metric_type = (Self::name(b"\xa4Type"), Self::integer(i64::from(metric_type)));
        let id = (Self::name(b"\xa2ID"), Self::id(id)?);
        let counter = (Self::name(b"\xaaCounterVal"), Self::integer(counter));
        let timer = (Self::name(b"\xadBatchTimerVal"), doubles(timer)?);
        let gauge = (Self::name(b"\xa8GaugeVal"), double(gauge));
        let map = Self::name(b"\x85");
        if D::SORTED {
            append(out, (map, timer, counter, gauge, id, metric_type));
        } else {
            append(out, (map, metric_type, id, counter, timer, gauge));
        }
        Ok(())
    }

    #[inline(always)]
    fn read_counter<'m>(input: &mut Reader<'m>, _: &Scope<'m>) -> Result<Counter<'m>, Fault> {
        if !D::NAMED {
            return Ok(Counter { id: bytes(input)?, value: integer(input)? });
        }
        let mut message = Counter { id: &[], value: 0 };
        for _ in 0..map(input)? {
            match bytes(input)? {
                b"ID" => message.id = bytes(input)?,
                b"Value" => message.value = integer(input)?,
                _ => input.apart(skip)?,
            }
        }
        Ok(message)
    }

    #[inline(always)]
    fn read_batch_timer<'m>(
        input: &mut Reader<'m>,
        scope: &Scope<'m>,
    ) -> Result<BatchTimer<'m>, Fault> {
        if !D::NAMED {
            return Ok(BatchTimer { id: bytes(input)?, values: read_doubles(input, scope)? });
        }
        let mut message = BatchTimer { id: &[], values: &[] };
        for _ in 0..map(input)? {
            match bytes(input)? {
                b"ID" => message.id = bytes(input)?,
                b"Values" => message.values = read_doubles(input, scope)?,
                _ => input.apart(skip)?,
            }
        }
        Ok(message)
    }

    #[inline(always)]
    fn read_gauge<'m>(input: &mut Reader<'m>, _: &Scope<'m>) -> Result<Gauge<'m>, Fault> {
        if !D::NAMED {
            return Ok(Gauge { id: bytes(input)?, value: read_double(input)? });
        }
        let mut message = Gauge { id: &[], value: 0.0 };
        for _ in 0..map(input)? {
            match bytes(input)? {
                b"ID" => message.id = bytes(input)?,
                b"Value" => message.value = read_double(input)?,
                _ => input.apart(skip)?,
            }
        }
        Ok(message)
    }

    #[inline(always)]
    fn read_union<'m>(input: &mut Reader<'m>, scope: &Scope<'m>) -> Result<MetricUnion<'m>, Fault> {
        if !D::NAMED {
            return Ok(MetricUnion {
                metric_type: metric_type(input)?,
                id: bytes(input)?,
                counter: integer(input)?,
                timer: read_doubles(input, scope)?,
                gauge: read_double(input)?,
            });
        }
        let mut message = MetricUnion::ZERO;
        for _ in 0..map(input)? {
            match bytes(input)? {
                b"Type" => message.metric_type = metric_type(input)?,
                b"ID" => message.id = bytes(input)?,
                b"CounterVal" => message.counter = integer(input)?,
                b"BatchTimerVal" => message.timer = read_doubles(input, scope)?,
                b"GaugeVal" => message.gauge = read_double(input)?,
                _ => input.apart(skip)?,
            }
        }
        Ok(message)
    }
}

#[inline(always)]
fn length(len: usize) -> Result<u32, Fault> {
    match u32::try_from(len) {
        Ok(len) => Ok(len),
        Err(_) => Err(Fault::unwritable("lengths must fit in 32 bits")),
    }
}

#[inline(always)]
fn double(value: f64) -> impl FixedPiece {
    (Byte(0xcb), BeDouble(value))
}

#[inline(always)]
fn doubles(values: &[f64]) -> Result<impl Piece + '_, Fault> {
    Ok((Length::array(length(values.len())?), Each(values, double)))
}

/// A length in one of up to four forms: within the first byte, or after it.
#[derive(Clone, Copy)]
struct Length {
    len: u32,
    /// The first byte of a length below `short_end`. The length is added to this byte.
    short: u8,
    short_end: u32,
    /// The first byte of an 8-bit length, if the kind supports it.
    byte: Option<u8>,
    /// The first byte of a 16-bit length. `word + 1` marks a 32-bit length.
    word: u8,
}

impl Length {
    #[inline(always)]
    fn bin(len: u32) -> Length {
        Length { len, short: 0, short_end: 0, byte: Some(0xc4), word: 0xc5 }
    }

    #[inline(always)]
    fn raw(len: u32) -> Length {
        Length { len, short: 0xa0, short_end: 32, byte: None, word: 0xda }
    }

    #[inline(always)]
    fn array(len: u32) -> Length {
        Length { len, short: 0x90, short_end: 16, byte: None, word: 0xdc }
    }
}

// SAFETY: The longest form has 5 bytes.
unsafe impl Piece for Length {
    #[inline(always)]
    fn bound(&self) -> usize {
        5
    }

    #[inline(always)]
    unsafe fn put(&self, at: *mut u8) -> *mut u8 {
        let Length { len, short, short_end, byte, word } = *self;
        // SAFETY: `at` is valid for 5 bytes.
        unsafe {
            match byte {
                _ if len < short_end => Byte(short | len as u8).put(at),
                Some(byte) if len < 0x100 => (Byte(byte), Byte(len as u8)).put(at),
                _ if len < 0x1_0000 => (Byte(word), Be16(len as u16)).put(at),
                _ => (Byte(word + 1), Be32(len)).put(at),
            }
        }
    }
}

/// A number in its shortest form.
#[derive(Clone, Copy)]
struct Integer {
    value: i64,
    signed: bool,
}

// SAFETY: The longest form has 9 bytes.
unsafe impl Piece for Integer {
    #[inline(always)]
    fn bound(&self) -> usize {
        9
    }

    #[inline(always)]
    unsafe fn put(&self, at: *mut u8) -> *mut u8 {
        let Integer { value, signed } = *self;
        // SAFETY: `at` is valid for 9 bytes.
        unsafe {
            if (-32..0x80).contains(&value) {
                return Byte(value as u8).put(at);
            }
            if signed || value < 0 {
                return match value {
                    -0x80..0x80 => (Byte(0xd0), Byte(value as u8)).put(at),
                    -0x8000..0x8000 => (Byte(0xd1), Be16(value as u16)).put(at),
                    -0x8000_0000..0x8000_0000 => (Byte(0xd2), Be32(value as u32)).put(at),
                    _ => (Byte(0xd3), Be64(value as u64)).put(at),
                };
            }
            match value {
                0..0x100 => (Byte(0xcc), Byte(value as u8)).put(at),
                0x100..0x1_0000 => (Byte(0xcd), Be16(value as u16)).put(at),
                0x1_0000..0x1_0000_0000 => (Byte(0xce), Be32(value as u32)).put(at),
                _ => (Byte(0xcf), Be64(value as u64)).put(at),
            }
        }
    }
}

#[inline(always)]
fn map(input: &mut Reader<'_>) -> Result<usize, Fault> {
    const EXPECTED: &str = "a map";
    let before = *input;
    let count = match input.byte(EXPECTED)? {
        byte @ 0x80..=0x8f => u64::from(byte & 15),
        0xde => u64::from(u16::from_be_bytes(input.array(EXPECTED)?)),
        0xdf => u64::from(u32::from_be_bytes(input.array(EXPECTED)?)),
        _ => {
            *input = before;
            return Err(Fault::malformed(EXPECTED));
        }
    };
    input.count(count, 2, "the announced number of fields")
}

/// Reads an id or a field name: bin, str, or nil.
#[inline(always)]
fn bytes<'m>(input: &mut Reader<'m>) -> Result<&'m [u8], Fault> {
    const EXPECTED: &str = "bin or str";
    let before = *input;
    let len = match input.byte(EXPECTED)? {
        byte @ 0xa0..=0xbf => u64::from(byte & 31),
        0xc4 | 0xd9 => u64::from(input.byte(EXPECTED)?),
        0xc5 | 0xda => u64::from(u16::from_be_bytes(input.array(EXPECTED)?)),
        0xc6 | 0xdb => u64::from(u32::from_be_bytes(input.array(EXPECTED)?)),
        0xc0 => 0,
        _ => {
            *input = before;
            return Err(Fault::malformed(EXPECTED));
        }
    };
    input.take_long(len, "bytes as long as their length says")
}

#[inline(always)]
fn integer(input: &mut Reader<'_>) -> Result<i64, Fault> {
    match input.peek() {
        Some(byte @ ..0x80) => {
            input.advance(1);
            Ok(i64::from(byte))
        }
        _ => input.apart(long_integer),
    }
}

#[inline(never)]
fn long_integer(input: &mut Reader<'_>) -> Result<i64, Fault> {
    const EXPECTED: &str = "a whole number that fits in 64 bits with a sign";
    let before = *input;
    Ok(match input.byte(EXPECTED)? {
        byte @ (0..=0x7f | 0xe0..=0xff) => i64::from(byte as i8),
        0xcc => i64::from(input.byte(EXPECTED)?),
        0xcd => i64::from(u16::from_be_bytes(input.array(EXPECTED)?)),
        0xce => i64::from(u32::from_be_bytes(input.array(EXPECTED)?)),
        0xcf => i64::try_from(u64::from_be_bytes(input.array(EXPECTED)?)).map_err(|_| {
            *input = before;
            Fault::malformed(EXPECTED)
        })?,
        0xd0 => i64::from(input.byte(EXPECTED)? as i8),
        0xd1 => i64::from(i16::from_be_bytes(input.array(EXPECTED)?)),
        0xd2 => i64::from(i32::from_be_bytes(input.array(EXPECTED)?)),
        0xd3 => i64::from_be_bytes(input.array(EXPECTED)?),
        _ => {
            *input = before;
            return Err(Fault::malformed(EXPECTED));
        }
    })
}

#[inline(always)]
fn metric_type(input: &mut Reader<'_>) -> Result<MetricType, Fault> {
    let before = *input;
    let number = integer(input)?;
    input.metric_type(number, before)
}

#[inline(always)]
fn read_double(input: &mut Reader<'_>) -> Result<f64, Fault> {
    if input.peek() == Some(0xcb) {
        let before = *input;
        input.advance(1);
        return match input.array("a double") {
            Ok(bytes) => Ok(f64::from_be_bytes(bytes)),
            Err(fault) => {
                *input = before;
                Err(fault)
            }
        };
    }
    input.apart(other_double)
}

/// Reads a double from a 32-bit float, or from a whole number that a double can represent.
#[inline(never)]
fn other_double(input: &mut Reader<'_>) -> Result<f64, Fault> {
    const EXPECTED: &str = "a number that a double can represent";
    let before = *input;
    if input.peek() == Some(0xca) {
        input.advance(1);
        return Ok(f64::from(f32::from_be_bytes(input.array(EXPECTED)?)));
    }
    let number = match long_integer(input) {
        Ok(number) => number,
        Err(fault) if fault.is_incomplete() => return Err(fault),
        Err(_) => return Err(Fault::malformed(EXPECTED)),
    };
    let double = number as f64;
    if double as i128 != i128::from(number) {
        *input = before;
        return Err(Fault::malformed(EXPECTED));
    }
    Ok(double)
}

#[inline(always)]
fn read_doubles<'m>(input: &mut Reader<'m>, scope: &Scope<'m>) -> Result<&'m [f64], Fault> {
    const EXPECTED: &str = "an array of doubles";
    let before = *input;
    let count = match input.byte(EXPECTED)? {
        byte @ 0x90..=0x9f => u64::from(byte & 15),
        0xdc => u64::from(u16::from_be_bytes(input.array(EXPECTED)?)),
        0xdd => u64::from(u32::from_be_bytes(input.array(EXPECTED)?)),
        0xc0 => 0,
        _ => {
            *input = before;
            return Err(Fault::malformed(EXPECTED));
        }
    };
    let count = input.count(count, 1, "the announced number of doubles")?;
    values::fill(count, scope, || read_double(input))
}

/// Skips a value. Nesting needs no stack, because this only counts the remaining values.
#[cold]
#[inline(never)]
fn skip(input: &mut Reader<'_>) -> Result<(), Fault> {
    const EXPECTED: &str = "a value";
    let mut left = 1;
    while left > 0 {
        left -= 1;
        let before = *input;
        // The number of bytes and the number of values that follow.
        let (bytes, values) = match input.byte(EXPECTED)? {
            0..=0x7f | 0xe0..=0xff | 0xc0 | 0xc2 | 0xc3 => (0, 0),
            byte @ 0x80..=0x8f => (0, 2 * u64::from(byte & 15)),
            byte @ 0x90..=0x9f => (0, u64::from(byte & 15)),
            byte @ 0xa0..=0xbf => (u64::from(byte & 31), 0),
            0xc4 | 0xd9 => (u64::from(input.byte(EXPECTED)?), 0),
            0xc5 | 0xda => (u64::from(u16::from_be_bytes(input.array(EXPECTED)?)), 0),
            0xc6 | 0xdb => (u64::from(u32::from_be_bytes(input.array(EXPECTED)?)), 0),
            0xc7 => (u64::from(input.byte(EXPECTED)?) + 1, 0),
            0xc8 => (u64::from(u16::from_be_bytes(input.array(EXPECTED)?)) + 1, 0),
            0xc9 => (u64::from(u32::from_be_bytes(input.array(EXPECTED)?)) + 1, 0),
            0xcc | 0xd0 => (1, 0),
            0xcd | 0xd1 | 0xd4 => (2, 0),
            0xd5 => (3, 0),
            0xca | 0xce | 0xd2 => (4, 0),
            0xd6 => (5, 0),
            0xcb | 0xcf | 0xd3 => (8, 0),
            0xd7 => (9, 0),
            0xd8 => (17, 0),
            0xdc => (0, u64::from(u16::from_be_bytes(input.array(EXPECTED)?))),
            0xdd => (0, u64::from(u32::from_be_bytes(input.array(EXPECTED)?))),
            0xde => (0, 2 * u64::from(u16::from_be_bytes(input.array(EXPECTED)?))),
            0xdf => (0, 2 * u64::from(u32::from_be_bytes(input.array(EXPECTED)?))),
            0xc1 => {
                *input = before;
                return Err(Fault::malformed(EXPECTED));
            }
        };
        input.take_long(bytes, "bytes as long as their length says")?;
        left = input.count(left as u64 + values, 1, "the announced number of values")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use quipu_arena::Arena;

    use super::*;
    use crate::Metric;

    fn counter(bytes: &[u8]) -> Result<i64, crate::Error> {
        let mut arena = Arena::new();
        Ok(Counter::decode::<TinylibMsgp>(bytes, &arena.as_scope())?.value)
    }

    #[test]
    fn numbers_of_any_width() {
        for (number, value) in [
            (&b"\x07"[..], 7),
            (b"\xff", -1),
            (b"\xcc\x07", 7),
            (b"\xcd\0\x07", 7),
            (b"\xce\0\0\0\x07", 7),
            (b"\xcf\0\0\0\0\0\0\0\x07", 7),
            (b"\xd0\xf9", -7),
            (b"\xd1\xff\xf9", -7),
            (b"\xd2\xff\xff\xff\xf9", -7),
            (b"\xd3\xff\xff\xff\xff\xff\xff\xff\xf9", -7),
        ] {
            let bytes = [b"\x82\xa2ID\xc4\x01a\xa5Value", number].concat();
            assert_eq!(counter(&bytes).unwrap(), value);
            for len in 0..bytes.len() {
                assert!(counter(&bytes[..len]).unwrap_err().is_incomplete(), "{len}");
            }
        }
        let error = counter(b"\x82\xa2ID\xa0\xa5Value\xcf\xff\xff\xff\xff\xff\xff\xff\xff");
        assert_eq!(error.unwrap_err().offset(), Some(11));
    }

    #[test]
    fn fields_in_any_order_and_of_any_name() {
        let unknown: &[&[u8]] = &[
            b"\xc0",
            b"\xc3",
            b"\x93\x01\x92\x02\x03\x81\x04\x05",
            b"\xd9\x03abc",
            b"\xc7\x02\x01ab",
            b"\xd8\x010123456789abcdef",
            b"\xca\0\0\0\0",
            b"\xde\0\x01\xa1x\xdd\0\0\0\x02\xc2\xcb\0\0\0\0\0\0\0\0",
        ];
        for value in unknown {
            let bytes = [b"\x83\xa5Value\x07\xa5other", *value, b"\xa2ID\xd9\x01a"].concat();
            assert_eq!(counter(&bytes).unwrap(), 7);
            for len in 0..bytes.len() {
                assert!(counter(&bytes[..len]).unwrap_err().is_incomplete(), "{len}");
            }
        }
        let bytes = b"\xdf\0\0\0\x02\xc4\x02ID\xc0\xda\0\x05Value\x07";
        assert_eq!(counter(bytes).unwrap(), 7);
    }

    #[test]
    fn nested_without_end_takes_no_stack() {
        let mut bytes = b"\x82\xa5other".to_vec();
        bytes.resize(if cfg!(miri) { 1 << 10 } else { 1 << 20 }, 0x91);
        assert!(counter(&bytes).unwrap_err().is_incomplete());
    }

    #[test]
    fn doubles_as_other_numbers() {
        let mut arena = Arena::new();
        let scope = arena.as_scope();
        for (number, value) in [
            (&b"\xca\x3f\x80\0\0"[..], Some(1.0)),
            (b"\x07", Some(7.0)),
            (b"\xd0\xf9", Some(-7.0)),
            (b"\xcf\x00\x20\0\0\0\0\0\x01", None),
            (b"\xa1a", None),
        ] {
            let bytes = [b"\xa1a", number].concat();
            let gauge = Gauge::decode::<VmihailencoMsgpack>(&bytes, &scope);
            assert_eq!(gauge.ok().map(|gauge| gauge.value), value);
        }
    }

    #[test]
    fn lengths_beyond_the_input() {
        for bytes in
            [&b"\xc6\xff\xff\xff\xff"[..], b"\xa1a\xdd\xff\xff\xff\xff\xcb", b"\xa1a\xdc\xff\xff"]
        {
            let mut arena = Arena::new();
            let error = BatchTimer::decode::<VmihailencoMsgpack>(bytes, &arena.as_scope());
            assert!(error.unwrap_err().is_incomplete());
            assert!(arena.stats().allocated < 1024);
        }
        let mut out = Vec::new();
        let id = [b'a'; 300];
        Counter { id: &id, value: 1 }.encode::<UgorjiMsgpack>(&mut out).unwrap();
        assert_eq!(counter(&out).unwrap(), 1);
    }
}
