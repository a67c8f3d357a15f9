//! BSON, the documents of MongoDB: <https://bsonspec.org/spec.html>.
//!
//! ```text
//! document    = length of all of it as int32, elements, 0
//! element     = kind (1 byte), name, 0, value; all numbers least significant byte first
//!
//! Counter     05 "id" bytes   12 "value" int64
//! BatchTimer  05 "id" bytes   04 "values" list
//! Gauge       05 "id" bytes   01 "value" double
//! MetricUnion 10 "type" int32   05 "id" bytes   12 "counterval" int64
//!             04 "batchtimerval" list   01 "gaugeval" double
//!
//! bytes       = length as int32, subtype 0, the bytes
//! list        = a document with the names "0", "1", ... "10", ...
//! ```
//!
//! You can read elements in any order; if a name repeats, the last one wins. A number can have any
//! kind with the same value (for example, a double with an integer value), and an id can be a
//! string. Unknown elements are skipped.

use alloc::vec::Vec;

use quipu_arena::{ArenaVec, Scope};

use crate::error::Fault;
use crate::format::{Format, sealed};
use crate::message::{BatchTimer, Counter, Gauge, MetricType, MetricUnion};
use crate::pieces::{Byte, Bytes, Le32, Le64, LeDouble, Literal, Piece, append};
use crate::reader::Reader;
use crate::values;

#[cfg(test)]
mod tests;

/// BSON as mgo writes structures: names in lower case, and the kind of each number chosen by its
/// Go type.
///
/// ```
/// use quipu_wire::{Counter, Metric, Bson};
///
/// let mut out = Vec::new();
/// Counter { id: b"hits", value: 7 }.encode::<Bson>(&mut out)?;
/// assert_eq!(out, b"!\0\0\0\x05id\0\x04\0\0\0\0hits\x12value\0\x07\0\0\0\0\0\0\0\0");
/// # Ok::<(), quipu_wire::Error>(())
/// ```
#[derive(Debug)]
pub struct Bson(());

impl sealed::Sealed for Bson {}

impl Format for Bson {
    const NAME: &'static str = "bson";
    type WriterState = ();
    type ReaderState = ();

    #[inline(always)]
    fn write_counter(message: &Counter<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        let Counter { id, value } = *message;
        let name = Literal(b"\x12value\0");
        write(out, id.len() as u64 + 15, (identity(id), name, Le64(value as u64)))
    }

    #[inline(always)]
    fn write_batch_timer(message: &BatchTimer<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        let BatchTimer { id, values } = *message;
        let list = list_len(values.len());
        let name = Literal(b"\x04values\0");
        write(out, id.len() as u64 + 8 + list, (identity(id), name, List(values, list)))
    }

    #[inline(always)]
    fn write_gauge(message: &Gauge<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        let Gauge { id, value } = *message;
        let name = Literal(b"\x01value\0");
        write(out, id.len() as u64 + 15, (identity(id), name, LeDouble(value)))
    }

    #[inline(always)]
    fn write_union(message: &MetricUnion<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        let MetricUnion { metric_type: MetricType(metric_type), id, counter, timer, gauge } =
            *message;
        let list = list_len(timer.len());
        let pieces = (
            Literal(b"\x10type\0"),
            Le32(i32::from(metric_type) as u32),
            identity(id),
            Literal(b"\x12counterval\0"),
            Le64(counter as u64),
            Literal(b"\x04batchtimerval\0"),
            List(timer, list),
            Literal(b"\x01gaugeval\0"),
            LeDouble(gauge),
        );
        write(out, id.len() as u64 + 63 + list, pieces)
    }

    #[inline(always)]
    fn read_counter<'m>(input: &mut Reader<'m>, _: &Scope<'m>) -> Result<Counter<'m>, Fault> {
        document(input, |input| {
            let mut message = Counter { id: &[], value: 0 };
            while !input.is_empty() {
                if input.skip_literal(b"\x05id\0") {
                    message.id = binary(input)?;
                } else if input.skip_literal(b"\x12value\0") {
                    message.value = int64(input)?;
                } else {
                    message = aside(input, move |input| {
                        let mut message = message;
                        match element(input)? {
                            (kind, b"id") => message.id = bytes(input, kind)?,
                            (kind, b"value") => message.value = integer(input, kind)?,
                            (kind, _) => skip(input, kind)?,
                        }
                        Ok(message)
                    })?;
                }
            }
            Ok(message)
        })
    }

    #[inline(always)]
    fn read_batch_timer<'m>(
        input: &mut Reader<'m>,
        scope: &Scope<'m>,
    ) -> Result<BatchTimer<'m>, Fault> {
        document(input, |input| {
            let mut message = BatchTimer { id: &[], values: &[] };
            while !input.is_empty() {
                if input.skip_literal(b"\x05id\0") {
                    message.id = binary(input)?;
                } else if input.skip_literal(b"\x04values\0") {
                    message.values = list(input, scope)?;
                } else {
                    message = aside(input, move |input| {
                        let mut message = message;
                        match element(input)? {
                            (kind, b"id") => message.id = bytes(input, kind)?,
                            (kind, b"values") => message.values = doubles(input, kind, scope)?,
                            (kind, _) => skip(input, kind)?,
                        }
                        Ok(message)
                    })?;
                }
            }
            Ok(message)
        })
    }

    #[inline(always)]
    fn read_gauge<'m>(input: &mut Reader<'m>, _: &Scope<'m>) -> Result<Gauge<'m>, Fault> {
        document(input, |input| {
            let mut message = Gauge { id: &[], value: 0.0 };
            while !input.is_empty() {
                if input.skip_literal(b"\x05id\0") {
                    message.id = binary(input)?;
                } else if input.skip_literal(b"\x01value\0") {
                    message.value = float64(input)?;
                } else {
                    message = aside(input, move |input| {
                        let mut message = message;
                        match element(input)? {
                            (kind, b"id") => message.id = bytes(input, kind)?,
                            (kind, b"value") => message.value = double(input, kind)?,
                            (kind, _) => skip(input, kind)?,
                        }
                        Ok(message)
                    })?;
                }
            }
            Ok(message)
        })
    }

    #[inline(always)]
    fn read_union<'m>(input: &mut Reader<'m>, scope: &Scope<'m>) -> Result<MetricUnion<'m>, Fault> {
        document(input, |input| {
            let mut message = MetricUnion::ZERO;
            while !input.is_empty() {
                if input.skip_literal(b"\x10type\0") {
                    message.metric_type = metric_type(input, INT32)?;
                } else if input.skip_literal(b"\x05id\0") {
                    message.id = binary(input)?;
                } else if input.skip_literal(b"\x12counterval\0") {
                    message.counter = int64(input)?;
                } else if input.skip_literal(b"\x04batchtimerval\0") {
                    message.timer = list(input, scope)?;
                } else if input.skip_literal(b"\x01gaugeval\0") {
                    message.gauge = float64(input)?;
                } else {
                    message = aside(input, move |input| {
                        let mut message = message;
                        match element(input)? {
                            (kind, b"type") => message.metric_type = metric_type(input, kind)?,
                            (kind, b"id") => message.id = bytes(input, kind)?,
                            (kind, b"counterval") => message.counter = integer(input, kind)?,
                            (kind, b"batchtimerval") => {
                                message.timer = doubles(input, kind, scope)?
                            }
                            (kind, b"gaugeval") => message.gauge = double(input, kind)?,
                            (kind, _) => skip(input, kind)?,
                        }
                        Ok(message)
                    })?;
                }
            }
            Ok(message)
        })
    }
}

const DOUBLE: u8 = 0x01;
const TEXT: u8 = 0x02;
const DOCUMENT: u8 = 0x03;
const LIST: u8 = 0x04;
const BINARY: u8 = 0x05;
const UNDEFINED: u8 = 0x06;
const OBJECT_ID: u8 = 0x07;
const BOOLEAN: u8 = 0x08;
const DATE: u8 = 0x09;
const NULL: u8 = 0x0a;
const PATTERN: u8 = 0x0b;
const POINTER: u8 = 0x0c;
const CODE: u8 = 0x0d;
const SYMBOL: u8 = 0x0e;
const CODE_WITH_SCOPE: u8 = 0x0f;
const INT32: u8 = 0x10;
const TIMESTAMP: u8 = 0x11;
const INT64: u8 = 0x12;
const DECIMAL: u8 = 0x13;
const LARGEST: u8 = 0x7f;
const SMALLEST: u8 = 0xff;

/// The longest document, because lengths are signed.
const LONGEST: u64 = i32::MAX as u64;

/// Appends a document. `len` is the length of the elements without the 9 bytes around the id.
#[inline(always)]
fn write(out: &mut Vec<u8>, len: u64, elements: impl Piece) -> Result<(), Fault> {
    // The document's own length and end, and the element of the id.
    let len = len + 5 + 9;
    if len > LONGEST {
        return Err(Fault::unwritable("a document must have less than 2 GiB"));
    }
    let start = out.len();
    append(out, (Le32(len as u32), elements, Byte(0)));
    debug_assert_eq!((out.len() - start) as u64, len, "the length was known before");
    Ok(())
}

#[inline(always)]
fn identity(id: &[u8]) -> impl Piece + '_ {
    (Literal(b"\x05id\0"), Le32(id.len() as u32), Byte(0), Bytes(id))
}

/// Returns the number of bytes in a list of `count` doubles.
#[inline(always)]
fn list_len(count: usize) -> u64 {
    let count = count as u64;
    let mut len = 5 + 11 * count;
    // Each further digit of a name adds a byte to all elements from there on.
    let mut first = 10;
    while count > first {
        len += count - first;
        first *= 10;
    }
    len
}

/// A list of doubles and its length in bytes.
struct List<'a>(&'a [f64], u64);

// SAFETY: This writes 5 bytes and, for each value, 1, 8 (keeping one per digit, at most 8), 2 and
// 8.
unsafe impl Piece for List<'_> {
    #[inline(always)]
    fn bound(&self) -> usize {
        self.0.len().saturating_mul(19).saturating_add(5)
    }

    #[inline(always)]
    unsafe fn put(&self, at: *mut u8) -> *mut u8 {
        // SAFETY: `at` is valid for 5 bytes and 19 for each value.
        unsafe {
            let mut at = Le32(self.1 as u32).put(at);
            for (tens, values) in self.0.chunks(10).enumerate() {
                let (digits, len) = decimal(tens);
                for (unit, value) in (b'0'..=b'9').zip(values) {
                    at = (Byte(DOUBLE), Le64(digits)).put(at).sub(8 - len);
                    at = (Byte(unit), Byte(0), LeDouble(*value)).put(at);
                }
            }
            Byte(0).put(at)
        }
    }
}

/// Returns the digits of a number and their count; zero yields no digits. The first digit is in the
/// least significant byte. A tenth of an index has at most 8 digits, because a list contains less
/// than 10^9 values.
#[inline(always)]
fn decimal(mut number: usize) -> (u64, usize) {
    let (mut digits, mut len) = (0, 0);
    while number > 0 && len < 8 {
        digits = digits << 8 | u64::from(b'0' + (number % 10) as u8);
        number /= 10;
        len += 1;
    }
    (digits, len)
}

/// Lets an out-of-line function read from a copy of the reader. The reader itself then never has an
/// address and stays in registers. Otherwise each copy of it would wait for the last store. The
/// same applies to the message, so `read` takes and returns it.
#[inline(always)]
fn aside<'m, T>(input: &mut Reader<'m>, read: impl FnOnce(&mut Reader<'m>) -> T) -> T {
    let mut copy = *input;
    let read = read(&mut copy);
    *input = copy;
    read
}

/// Reads a document. `read` handles each element.
#[inline(always)]
fn document<'m, T>(
    input: &mut Reader<'m>,
    read: impl FnOnce(&mut Reader<'m>) -> Result<T, Fault>,
) -> Result<T, Fault> {
    let before = *input;
    let mut elements = Reader::new(elements(input)?);
    read(&mut elements).map_err(|fault| {
        *input = before;
        let position = 4 + elements.position();
        aside(input, |input| within(input, position, fault))
    })
}

/// Returns the elements of a document, after checking that the document is complete and ends
/// correctly.
#[inline(always)]
fn elements<'m>(input: &mut Reader<'m>) -> Result<&'m [u8], Fault> {
    let before = *input;
    let len = u32::from_le_bytes(input.array("the length of a document")?);
    if len < 5 || u64::from(len) > LONGEST {
        *input = before;
        return Err(Fault::malformed("a length of a document: at least 5 bytes"));
    }
    let document = input.take_long(u64::from(len) - 4, "a document as long as its length says")?;
    match document.split_last() {
        Some((0, elements)) => Ok(elements),
        _ => {
            *input = before;
            let fault = Fault::malformed("a zero at the end of a document");
            Err(aside(input, |input| within(input, 3 + document.len(), fault)))
        }
    }
}

/// Moves the input to a fault within a complete item. More bytes cannot repair such a fault.
#[cold]
fn within(input: &mut Reader<'_>, position: usize, fault: Fault) -> Fault {
    let moved = input.take(position, "what was read before");
    debug_assert!(moved.is_ok(), "a fault lies within what is there");
    if fault.is_incomplete() {
        return Fault::malformed("elements that end before their document does");
    }
    fault
}

/// Reads the kind and the name of an element.
#[cold]
fn element<'m>(input: &mut Reader<'m>) -> Result<(u8, &'m [u8]), Fault> {
    let kind = input.byte("an element")?;
    Ok((kind, text_until_zero(input)?))
}

fn text_until_zero<'m>(input: &mut Reader<'m>) -> Result<&'m [u8], Fault> {
    const EXPECTED: &str = "a name that ends with a zero";
    let len = input.rest().iter().position(|byte| *byte == 0);
    let text = input.take(len.ok_or(Fault::incomplete(EXPECTED))?, EXPECTED)?;
    input.byte(EXPECTED)?;
    Ok(text)
}

#[inline(always)]
fn int64(input: &mut Reader<'_>) -> Result<i64, Fault> {
    Ok(i64::from_le_bytes(input.array("an int64")?))
}

#[inline(always)]
fn float64(input: &mut Reader<'_>) -> Result<f64, Fault> {
    Ok(f64::from_le_bytes(input.array("a double")?))
}

#[inline(always)]
fn int32(input: &mut Reader<'_>) -> Result<i64, Fault> {
    Ok(i64::from(i32::from_le_bytes(input.array("an int32")?)))
}

fn boolean(input: &mut Reader<'_>) -> Result<bool, Fault> {
    match input.peek() {
        Some(0 | 1) => Ok(input.byte("a boolean")? == 1),
        Some(_) => Err(Fault::malformed("a boolean: 0 or 1")),
        None => Err(Fault::incomplete("a boolean")),
    }
}

/// Reads a number of any kind whose value is an integer. Null and false are 0, as in mgo.
#[cold]
fn integer(input: &mut Reader<'_>, kind: u8) -> Result<i64, Fault> {
    let before = *input;
    match kind {
        INT64 | TIMESTAMP => int64(input),
        INT32 => int32(input),
        BOOLEAN => boolean(input).map(i64::from),
        NULL => Ok(0),
        DOUBLE => {
            let value = float64(input)?;
            // The first double that is too large is 2^63.
            let integer = value as i64;
            if integer as f64 == value && value < 9_223_372_036_854_775_808.0 {
                return Ok(integer);
            }
            *input = before;
            Err(Fault::malformed("a double that is a whole number of 64 bits"))
        }
        _ => Err(Fault::malformed("an integer, in any kind of number")),
    }
}

/// Reads a number of any kind that a double can represent.
#[cold]
fn double(input: &mut Reader<'_>, kind: u8) -> Result<f64, Fault> {
    if kind == DOUBLE {
        return float64(input);
    }
    let before = *input;
    let number = integer(input, kind)?;
    let value = number as f64;
    if value as i128 != i128::from(number) {
        *input = before;
        return Err(Fault::malformed("an int64 that a double can represent"));
    }
    Ok(value)
}

#[inline(always)]
fn metric_type(input: &mut Reader<'_>, kind: u8) -> Result<MetricType, Fault> {
    let before = *input;
    let number = match kind {
        INT32 => int32(input)?,
        _ => aside(input, |input| integer(input, kind))?,
    };
    input.metric_type(number, before)
}

#[inline(always)]
fn binary<'m>(input: &mut Reader<'m>) -> Result<&'m [u8], Fault> {
    let before = *input;
    let len = length(input)?;
    if input.byte("the subtype of bytes")? != 0 {
        *input = before;
        return aside(input, old_binary);
    }
    input.take_long(len, BYTES)
}

/// Reads bytes of subtype 2, which contain their length twice.
#[cold]
fn old_binary<'m>(input: &mut Reader<'m>) -> Result<&'m [u8], Fault> {
    let len = length(input)?;
    let before = *input;
    if input.byte("the subtype of bytes")? != 2 {
        *input = before;
        return Err(Fault::malformed("bytes of subtype 0 or 2"));
    }
    let before = *input;
    if length(input)?.checked_add(4) != Some(len) {
        *input = before;
        return Err(Fault::malformed("the length of the bytes again, without its own 4"));
    }
    input.take_long(len - 4, BYTES)
}

const BYTES: &str = "bytes as long as their length says";

#[inline(always)]
fn length(input: &mut Reader<'_>) -> Result<u64, Fault> {
    let before = *input;
    let len = u64::from(u32::from_le_bytes(input.array("the length of bytes")?));
    if len > LONGEST {
        *input = before;
        return Err(Fault::malformed("a length that is not negative"));
    }
    Ok(len)
}

/// Reads an id of any kind that mgo converts to bytes.
#[cold]
fn bytes<'m>(input: &mut Reader<'m>, kind: u8) -> Result<&'m [u8], Fault> {
    match kind {
        BINARY => binary(input),
        TEXT | SYMBOL => text(input),
        OBJECT_ID => input.take(12, "an object id"),
        NULL => Ok(&[]),
        _ => Err(Fault::malformed("an id as bytes or as text")),
    }
}

fn text<'m>(input: &mut Reader<'m>) -> Result<&'m [u8], Fault> {
    let before = *input;
    let len = length(input)?;
    match input.take_long(len, "text as long as its length says")?.split_last() {
        Some((0, text)) => Ok(text),
        _ => {
            *input = before;
            Err(Fault::malformed("text that ends with a zero"))
        }
    }
}

/// Reads a list with the names and kinds that all libraries write. For such a list, the length
/// determines the number of values. Any other list is read value by value.
#[inline(always)]
fn list<'m>(input: &mut Reader<'m>, scope: &Scope<'m>) -> Result<&'m [f64], Fault> {
    let before = *input;
    let elements = elements(input)?;
    match usual(elements, scope)? {
        Some(values) => Ok(values),
        None => {
            *input = before;
            aside(input, |input| unusual(input, scope))
        }
    }
}

#[inline(always)]
fn usual<'m>(elements: &[u8], scope: &Scope<'m>) -> Result<Option<&'m [f64]>, Fault> {
    let Some(count) = usual_count(elements.len()) else {
        return Ok(None);
    };
    let room = values::room(count, scope)?;
    let mut rest = elements;
    for (tens, places) in room.chunks_mut(10).enumerate() {
        let (digits, len) = decimal(tens);
        // The kind, the digits and the zero are all within the first 8 bytes.
        let mut expected = u64::from(DOUBLE) | (digits << 8) | (u64::from(b'0') << (8 + 8 * len));
        let mask = u64::MAX >> (8 * (5 - len));
        for place in places {
            let Some((element, behind)) = rest.split_at_checked(11 + len) else {
                return Ok(None);
            };
            let (Some(head), Some(value)) = (element.first_chunk(), element.last_chunk()) else {
                return Ok(None);
            };
            if (u64::from_le_bytes(*head) ^ expected) & mask != 0 {
                return Ok(None);
            }
            place.write(f64::from_le_bytes(*value));
            expected += 1 << (8 + 8 * len);
            rest = behind;
        }
    }
    // SAFETY: All places were written, because any failure above returned.
    Ok(Some(unsafe { values::assume_init(room) }))
}

/// Returns how many doubles with the usual names take `len` bytes, at most a million: up to there,
/// a name has at most 5 digits before the last.
#[inline(always)]
fn usual_count(len: usize) -> Option<usize> {
    if len <= 110 {
        return len.is_multiple_of(11).then_some(len / 11);
    }
    many_count(len)
}

fn many_count(mut len: usize) -> Option<usize> {
    let mut count = 0;
    for (size, of_this_size) in [(11, 10), (12, 90), (13, 900), (14, 9_000), (15, 90_000)] {
        if len <= size * of_this_size {
            return len.is_multiple_of(size).then_some(count + len / size);
        }
        len -= size * of_this_size;
        count += of_this_size;
    }
    (len <= 16 * 900_000 && len.is_multiple_of(16)).then_some(count + len / 16)
}

/// Reads a list with any names and any kinds of numbers.
#[cold]
#[inline(never)]
fn unusual<'m>(input: &mut Reader<'m>, scope: &Scope<'m>) -> Result<&'m [f64], Fault> {
    document(input, |input| {
        let mut values = ArenaVec::new_in(scope);
        while !input.is_empty() {
            let (kind, _) = element(input)?;
            values.try_push(double(input, kind)?).map_err(|_| Fault::memory())?;
        }
        Ok(&*values.into_slice())
    })
}

#[cold]
fn doubles<'m>(input: &mut Reader<'m>, kind: u8, scope: &Scope<'m>) -> Result<&'m [f64], Fault> {
    match kind {
        LIST => list(input, scope),
        NULL => Ok(&[]),
        _ => Err(Fault::malformed("a list of doubles")),
    }
}

/// Skips the value of an unknown element. Nested documents are skipped by their length, whatever
/// they contain.
#[cold]
#[inline(never)]
fn skip(input: &mut Reader<'_>, kind: u8) -> Result<(), Fault> {
    match kind {
        UNDEFINED | NULL | LARGEST | SMALLEST => Ok(()),
        BOOLEAN => boolean(input).map(drop),
        INT32 => int32(input).map(drop),
        DOUBLE | DATE | TIMESTAMP | INT64 => int64(input).map(drop),
        DECIMAL => input.take(16, "a decimal").map(drop),
        OBJECT_ID => input.take(12, "an object id").map(drop),
        TEXT | CODE | SYMBOL => text(input).map(drop),
        DOCUMENT | LIST | CODE_WITH_SCOPE => elements(input).map(drop),
        PATTERN => text_until_zero(input).and_then(|_| text_until_zero(input)).map(drop),
        POINTER => text(input).and_then(|_| input.take(12, "an object id")).map(drop),
        BINARY => {
            let len = length(input)?;
            input.take_long(len + 1, BYTES).map(drop)
        }
        _ => Err(Fault::malformed("a kind of element that exists in BSON")),
    }
}
