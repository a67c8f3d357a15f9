//! FlatBuffers: <https://flatbuffers.dev/internals/>.
//!
//! ```text
//! table Counter     { ID:[ubyte]; Value:long; }
//! table BatchTimer  { ID:[ubyte]; Values:[double]; }
//! table Gauge       { ID:[ubyte]; Value:double; }
//! table MetricUnion { Type:byte; ID:[ubyte]; CounterVal:long; BatchTimerVal:[double];
//!                     GaugeVal:double; }
//! ```
//!
//! Numbers are little-endian. The builder works from the end to the start. In the order of its
//! bytes, a message consists of
//!
//! ```text
//! root      where the table is, from here: 32 bits
//! zeros     to align the rest
//! vtable    its own size, the table's size, for each field where it is in the table, or 0 when
//!           the field is omitted: 16 bits each
//! table     how far before it the vtable is: 32 bits; then fields, the schema's first one last
//! values    their number: 32 bits; then each. Up to 4 zeros that align them to the end
//! id        its length: 32 bits; then its bytes. Up to 3 zeros
//! ```
//!
//! A vector field contains the offset of the vector from this field, in 32 bits. Numbers that are
//! zero are omitted. You can read all parts in any place and order.

use alloc::vec::Vec;

use quipu_arena::Scope;

use crate::error::Fault;
use crate::format::{Format, sealed};
use crate::message::{BatchTimer, Counter, Gauge, MetricType, MetricUnion};
use crate::pieces::{Byte, Bytes, Le32, Le64, LeDouble, LeDoubles, Literal, Piece, Zeros, append};
use crate::reader::Reader;
use crate::values;

/// FlatBuffers as written by the Go library up to version 1.7. This version keeps the length of a
/// vtable even if its last fields are omitted, and aligns a message to 8 bytes only if it contains
/// a number.
///
/// ```
/// use quipu_wire::{Counter, Metric, Flatbuffers};
///
/// let mut out = Vec::new();
/// Counter { id: b"hits", value: 7 }.encode::<Flatbuffers>(&mut out)?;
/// assert_eq!(
///     out,
///     b"\x0c\0\0\0\x08\0\x14\0\x10\0\x04\0\x08\0\0\0\x07\0\0\0\0\0\0\0\0\0\0\0\x04\0\0\0\
///       \x04\0\0\0hits"
/// );
/// # Ok::<(), quipu_wire::Error>(())
/// ```
#[derive(Debug)]
pub struct Flatbuffers(());

impl sealed::Sealed for Flatbuffers {}

impl Format for Flatbuffers {
    const NAME: &'static str = "flatbuffers";
    const DELIMITED: bool = false;
    type WriterState = ();
    type ReaderState = ();

    #[inline(always)]
    fn write_counter(message: &Counter<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        let Counter { id, value } = *message;
        write_one(id, value as u64, value == 0, out)
    }

    #[inline(always)]
    fn write_batch_timer(message: &BatchTimer<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        let BatchTimer { id, values } = *message;
        let between = between(id, values)?;
        append(
            out,
            (
                Literal(b"\x0c\0\0\0\x08\0\x0c\0\x08\0\x04\0\x08\0\0\0\x08\0\0\0"),
                Le32(8 + between),
                doubles(id, values),
                bytes(id),
            ),
        );
        Ok(())
    }

    #[inline(always)]
    fn write_gauge(message: &Gauge<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        let Gauge { id, value } = *message;
        write_one(id, value.to_bits(), value == 0.0, out)
    }

    #[inline(always)]
    fn write_union(message: &MetricUnion<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        let MetricUnion { metric_type: MetricType(metric_type), id, counter, timer, gauge } =
            *message;
        let between = between(id, timer)?;
        let (has_type, has_counter, has_gauge) = (metric_type != 0, counter != 0, gauge != 0.0);
        let form = &FORMS[usize::from(has_gauge)][usize::from(has_counter)][usize::from(has_type)];
        append(
            out,
            (
                Head(form),
                has_gauge.then_some((LeDouble(gauge), Zeros(form.behind_gauge))),
                Le32(form.to_values),
                has_counter.then_some((Le64(counter as u64), Zeros(form.behind_counter))),
                Le32(form.to_id + between),
                has_type.then_some((Literal(b"\0\0\0"), Byte(metric_type as u8))),
                doubles(id, timer),
                bytes(id),
            ),
        );
        Ok(())
    }

    #[inline(always)]
    fn read_counter<'m>(input: &mut Reader<'m>, _: &Scope<'m>) -> Result<Counter<'m>, Fault> {
        message(input, |table| {
            Ok(Counter { id: table.vector(0, 1)?, value: i64::from_le_bytes(table.number(1)?) })
        })
    }

    #[inline(always)]
    fn read_batch_timer<'m>(
        input: &mut Reader<'m>,
        scope: &Scope<'m>,
    ) -> Result<BatchTimer<'m>, Fault> {
        message(input, |table| {
            Ok(BatchTimer { id: table.vector(0, 1)?, values: table.doubles(1, scope)? })
        })
    }

    #[inline(always)]
    fn read_gauge<'m>(input: &mut Reader<'m>, _: &Scope<'m>) -> Result<Gauge<'m>, Fault> {
        message(input, |table| {
            Ok(Gauge { id: table.vector(0, 1)?, value: f64::from_le_bytes(table.number(1)?) })
        })
    }

    #[inline(always)]
    fn read_union<'m>(input: &mut Reader<'m>, scope: &Scope<'m>) -> Result<MetricUnion<'m>, Fault> {
        message(input, |table| {
            Ok(MetricUnion {
                metric_type: MetricType(i8::from_le_bytes(table.number(0)?)),
                id: table.vector(1, 1)?,
                counter: i64::from_le_bytes(table.number(2)?),
                timer: table.doubles(3, scope)?,
                gauge: f64::from_le_bytes(table.number(4)?),
            })
        })
    }
}

/// Writes a table of an id and a number.
#[inline(always)]
fn write_one(id: &[u8], number: u64, is_zero: bool, out: &mut Vec<u8>) -> Result<(), Fault> {
    between(id, &[])?;
    if is_zero {
        let head = Literal(b"\x0c\0\0\0\x08\0\x08\0\x04\0\0\0\x08\0\0\0");
        append(out, (head, Le32(4), bytes(id)));
        return Ok(());
    }
    let (head, zeros) = if fills_words(id) {
        (b"\x0c\0\0\0\x08\0\x10\0\x0c\0\x04\0\x08\0\0\0", 0)
    } else {
        (b"\x0c\0\0\0\x08\0\x14\0\x10\0\x04\0\x08\0\0\0", 4)
    };
    append(out, (Literal(head), Le64(number), Zeros(zeros), Le32(4), bytes(id)));
    Ok(())
}

/// Returns whether an id, padded to 4 bytes and without its length, is a multiple of 8 bytes.
#[inline(always)]
fn fills_words(id: &[u8]) -> bool {
    id.len().div_ceil(4).is_multiple_of(2)
}

/// Returns the number of bytes from the end of the value count to the length of the id.
#[inline(always)]
fn between(id: &[u8], values: &[f64]) -> Result<u32, Fault> {
    const MAX_BYTES: usize = i32::MAX as usize - 128;
    let bytes = size_of_val(values);
    if id.len() > MAX_BYTES || bytes > MAX_BYTES - id.len() {
        return Err(Fault::unwritable("a message must have less than 2 GiB"));
    }
    Ok((bytes + values_padding(id)) as u32)
}

/// Returns the number of zeros after the values.
#[inline(always)]
fn values_padding(id: &[u8]) -> usize {
    if fills_words(id) { 4 } else { 0 }
}

#[inline(always)]
fn doubles<'a>(id: &[u8], values: &'a [f64]) -> impl Piece + use<'a> {
    (Le32(values.len() as u32), LeDoubles(values), Zeros(values_padding(id)))
}

#[inline(always)]
fn bytes(id: &[u8]) -> impl Piece + '_ {
    (Le32(id.len() as u32), Bytes(id), Zeros(id.len().wrapping_neg() % 4))
}

/// The part of a union that depends only on the presence of its numbers, not on their values.
struct Form {
    /// The bytes before the first field, `head_len` of them: the root, the vtable, the table's
    /// offset.
    head: [u8; 32],
    head_len: usize,
    behind_gauge: usize,
    to_values: u32,
    behind_counter: usize,
    /// Excludes the bytes between the values and the id.
    to_id: u32,
}

/// Indexed by gauge, counter and type.
static FORMS: [[[Form; 2]; 2]; 2] = [
    [
        [form(false, false, false), form(true, false, false)],
        [form(false, true, false), form(true, true, false)],
    ],
    [
        [form(false, false, true), form(true, false, true)],
        [form(false, true, true), form(true, true, true)],
    ],
];

/// Builds the form from the end, like the builder. Places are counted from the values on, whose
/// count is 4 bytes off a multiple of 8.
const fn form(has_type: bool, has_counter: bool, has_gauge: bool) -> Form {
    let id = if has_type { 8 } else { 4 };
    let mut place = id;
    let mut behind_counter = 0;
    if has_counter {
        behind_counter = (place + 4) % 8;
        place += behind_counter + 8;
    }
    let counter = place;
    place += 4;
    let values = place;
    let mut behind_gauge = 0;
    if has_gauge {
        behind_gauge = (place + 4) % 8;
        place += behind_gauge + 8;
    }
    let gauge = place;
    let table = place + 4;
    // The message has the alignment of its largest number.
    let align = if has_counter || has_gauge { 8 } else { 4 };
    let zeros = (table + VTABLE + 4 + 4).wrapping_neg() % align;

    let mut head = [0; 32];
    head[0] = (4 + zeros + VTABLE) as u8;
    let vtable = [
        VTABLE,
        table,
        if has_type { table - 1 } else { 0 },
        table - id,
        if has_counter { table - counter } else { 0 },
        table - values,
        if has_gauge { table - gauge } else { 0 },
        // The table begins with the distance back to the vtable.
        VTABLE,
    ];
    let mut index = 0;
    while index < vtable.len() {
        head[4 + zeros + 2 * index] = vtable[index] as u8;
        index += 1;
    }
    Form {
        head,
        head_len: 4 + zeros + VTABLE + 4,
        behind_gauge,
        to_values: values as u32,
        behind_counter,
        to_id: id as u32 + 4,
    }
}

/// The size of a union's vtable.
const VTABLE: usize = 14;

struct Head(&'static Form);

// SAFETY: This writes 32 bytes, and its end is within them.
unsafe impl Piece for Head {
    #[inline(always)]
    fn bound(&self) -> usize {
        32
    }

    #[inline(always)]
    unsafe fn put(&self, at: *mut u8) -> *mut u8 {
        debug_assert!(self.0.head_len <= 32, "a head has 32 bytes at most");
        // SAFETY: `at` is valid for 32 bytes.
        unsafe {
            at.cast::<[u8; 32]>().write_unaligned(self.0.head);
            at.add(self.0.head_len & 31)
        }
    }
}

/// Reads a message that takes up the whole input.
#[inline(always)]
fn message<'m, T>(
    input: &mut Reader<'m>,
    read: impl FnOnce(Table<'m>) -> Result<T, PlacedFault>,
) -> Result<T, Fault> {
    let (at, result) = match Table::root(input.rest()).and_then(read) {
        Ok(message) => (input.len(), Ok(message)),
        Err(PlacedFault { at, fault }) => (at, Err(fault)),
    };
    input.take(at, "the bytes of a fault")?;
    result
}

/// A fault with its position.
struct PlacedFault {
    at: usize,
    fault: Fault,
}

impl PlacedFault {
    #[cold]
    fn malformed(at: usize, expected: &'static str) -> PlacedFault {
        PlacedFault { at, fault: Fault::malformed(expected) }
    }

    #[cold]
    fn incomplete(at: usize, expected: &'static str) -> PlacedFault {
        PlacedFault { at, fault: Fault::incomplete(expected) }
    }
}

/// A table whose bounds were already checked.
struct Table<'m> {
    input: &'m [u8],
    start: usize,
    /// The table itself.
    table: &'m [u8],
    /// The position of the vtable.
    vtable: usize,
    /// The position of each field in the table, or 0, in 16 bits each. The writer's schema can
    /// contain fewer or more fields than ours.
    fields: &'m [u8],
}

impl<'m> Table<'m> {
    #[inline(always)]
    fn root(input: &'m [u8]) -> Result<Table<'m>, PlacedFault> {
        const ROOT: &str = "the offset of a table";
        const VTABLE: &str = "the offset of the table's fields";
        const SIZE: &str = "the size of the table's fields";
        let incomplete = |at, expected| move || PlacedFault::incomplete(at, expected);
        let root = array(input, 0).ok_or_else(incomplete(0, ROOT))?;
        let start = u32::from_le_bytes(root) as usize;
        if start < 4 {
            return Err(PlacedFault::malformed(0, ROOT));
        }
        let back = array(input, start).ok_or_else(incomplete(0, ROOT))?;
        let vtable = start as i64 - i64::from(i32::from_le_bytes(back));
        let Ok(vtable) = usize::try_from(vtable) else {
            return Err(PlacedFault::malformed(start, VTABLE));
        };
        let [a, b, c, d] = array(input, vtable).ok_or_else(incomplete(start, VTABLE))?;
        let len = usize::from(u16::from_le_bytes([a, b]));
        let size = usize::from(u16::from_le_bytes([c, d]));
        if len < 4 || len % 2 != 0 || size < 4 {
            return Err(PlacedFault::malformed(vtable, SIZE));
        }
        let fields = slice(input, vtable + 4, len - 4).ok_or_else(incomplete(vtable, SIZE))?;
        let table = slice(input, start, size).ok_or_else(incomplete(vtable, SIZE))?;
        Ok(Table { input, start, table, vtable, fields })
    }

    /// Returns a field of `N` bytes and its position. Returns `None` if the field was omitted.
    #[inline(always)]
    fn field<const N: usize>(&self, index: usize) -> Result<Option<(usize, [u8; N])>, PlacedFault> {
        let offset = match array(self.fields, 2 * index) {
            Some(offset) => usize::from(u16::from_le_bytes(offset)),
            None => 0,
        };
        if offset == 0 {
            return Ok(None);
        }
        match array(self.table, offset) {
            // The table begins with the offset of its vtable.
            Some(bytes) if offset >= 4 => Ok(Some((self.start + offset, bytes))),
            _ => Err(PlacedFault::malformed(
                self.vtable + 4 + 2 * index,
                "the offset of a field within its table",
            )),
        }
    }

    /// Returns a number of `N` bytes, or zeros if it was omitted.
    #[inline(always)]
    fn number<const N: usize>(&self, index: usize) -> Result<[u8; N], PlacedFault> {
        Ok(self.field(index)?.map_or([0; N], |(_, bytes)| bytes))
    }

    /// Returns the bytes of a vector with items of `size` bytes.
    #[inline(always)]
    fn vector(&self, index: usize, size: usize) -> Result<&'m [u8], PlacedFault> {
        const OFFSET: &str = "the offset of a vector";
        let Some((at, offset)) = self.field(index)? else { return Ok(&[]) };
        let offset = u32::from_le_bytes(offset) as usize;
        if offset < 4 {
            return Err(PlacedFault::malformed(at, OFFSET));
        }
        let start = at.saturating_add(offset);
        let Some(len) = array(self.input, start) else {
            return Err(PlacedFault::incomplete(at, OFFSET));
        };
        let len = u32::from_le_bytes(len) as usize;
        slice(self.input, start + 4, len.saturating_mul(size))
            .ok_or_else(|| PlacedFault::incomplete(start, "a vector as long as its length says"))
    }

    #[inline(always)]
    fn doubles(&self, index: usize, scope: &Scope<'m>) -> Result<&'m [f64], PlacedFault> {
        values::little_endian(self.vector(index, 8)?, scope)
            .map_err(|fault| PlacedFault { at: self.start, fault })
    }
}

#[inline(always)]
fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

#[inline(always)]
fn slice(bytes: &[u8], at: usize, len: usize) -> Option<&[u8]> {
    bytes.get(at..)?.get(..len)
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use quipu_arena::Arena;

    use super::*;
    use crate::message::Metric;

    const UNION: MetricUnion<'_> = MetricUnion {
        metric_type: MetricType(-3),
        id: b"an id",
        counter: -7,
        timer: &[1.5, -0.0],
        gauge: 0.25,
    };

    fn little(numbers: &[i64], sizes: &[usize]) -> Vec<u8> {
        assert_eq!(numbers.len(), sizes.len());
        numbers
            .iter()
            .zip(sizes)
            .flat_map(|(n, size)| n.to_le_bytes().into_iter().take(*size))
            .collect()
    }

    #[track_caller]
    fn reads_counter(bytes: &[u8], counter: Counter<'_>) {
        let mut arena = Arena::new();
        assert_eq!(Counter::decode::<Flatbuffers>(bytes, &arena.as_scope()), Ok(counter));
    }

    /// Returns whether the fault is incomplete input, its position, and the expectation.
    fn fault(bytes: &[u8]) -> (bool, u64, &'static str) {
        let mut arena = Arena::new();
        let error = Counter::decode::<Flatbuffers>(bytes, &arena.as_scope()).unwrap_err();
        (error.is_incomplete(), error.offset().unwrap(), error.expected())
    }

    /// Encodes a counter with its vtable: the root, 4 and 2 vtable numbers, the table's offset, the
    /// value, the id's offset, its length and its bytes.
    fn counter(numbers: [i64; 10]) -> Vec<u8> {
        little(&numbers, &[4, 2, 2, 2, 2, 4, 8, 4, 4, 2])
    }

    const COUNTER: [i64; 10] = [12, 8, 16, 12, 4, 8, 99, 4, 2, 0x6261];

    #[test]
    fn all_combinations_come_back() {
        let mut arena = Arena::new();
        let id: Vec<u8> = (0..20).collect();
        for form in 0..8 * 20 * 3 {
            let (form, id, values) = (form % 8, &id[..form / 8 % 20], &[2.5; 2][..form / 160]);
            let union = MetricUnion {
                metric_type: MetricType(if form & 1 == 0 { 0 } else { -1 }),
                id,
                counter: if form & 2 == 0 { 0 } else { i64::MIN },
                timer: values,
                gauge: if form & 4 == 0 { 0.0 } else { -1e300 },
            };
            let mut out = Vec::new();
            union.encode::<Flatbuffers>(&mut out).unwrap();
            assert_eq!(out.len() % 4, 0);
            let scope = arena.as_scope();
            assert_eq!(MetricUnion::decode::<Flatbuffers>(&out, &scope), Ok(union));
        }
    }

    #[test]
    fn truncated_messages_are_incomplete() {
        let mut out = Vec::new();
        UNION.encode::<Flatbuffers>(&mut out).unwrap();
        let mut arena = Arena::new();
        let scope = arena.as_scope();
        // You can omit the zeros after the id.
        for len in 0..out.len() - 3 {
            let error = MetricUnion::decode::<Flatbuffers>(&out[..len], &scope).unwrap_err();
            assert!(error.is_incomplete(), "{len}: {error}");
        }
        assert_eq!(MetricUnion::decode::<Flatbuffers>(&out[..out.len() - 3], &scope), Ok(UNION));
    }

    #[test]
    fn newer_builders() {
        // From version 25 of the Go library, with a file identifier and a vtable that ends with its
        // last field.
        let identified =
            b"\x10\0\0\0QUIP\0\0\x06\0\x08\0\x04\0\x06\0\0\0\x04\0\0\0\x02\0\0\0ab\0\0";
        reads_counter(identified, Counter { id: b"ab", value: 0 });
        // A vtable without fields, and a vtable with more fields than the message defines.
        let none = little(&[8, 4 << 16 | 4, 4], &[4, 4, 4]);
        reads_counter(&none, Counter { id: b"", value: 0 });
        let more = little(
            &[14, 10, 17, 12, 4, 16, 10, 99, 5, 1, 2, 0x6261],
            &[4, 2, 2, 2, 2, 2, 4, 8, 4, 1, 4, 2],
        );
        reads_counter(&more, Counter { id: b"ab", value: 99 });
    }

    #[test]
    fn parts_stand_in_any_place() {
        reads_counter(&counter(COUNTER), Counter { id: b"ab", value: 99 });
        // The vtable at the end, no alignment, and the id in between.
        let mut apart = little(
            &[7, 0, 7 - 29, 18, 99, 2, 0x6261, 8, 16, 4, 8],
            &[4, 3, 4, 4, 8, 4, 2, 2, 2, 2, 2],
        );
        apart[11] = 12;
        reads_counter(&apart, Counter { id: b"ab", value: 99 });
        apart.truncate(36);
        assert_eq!(fault(&apart), (true, 29, "the size of the table's fields"));
    }

    #[test]
    fn every_offset_is_checked() {
        const ROOT: &str = "the offset of a table";
        const BACK: &str = "the offset of the table's fields";
        const SIZE: &str = "the size of the table's fields";
        const FIELD: &str = "the offset of a field within its table";
        const VECTOR: &str = "the offset of a vector";
        let table = [
            (0, 3, false, 0, ROOT),
            (0, 39, true, 0, ROOT),
            (0, -1, true, 0, ROOT),
            (1, 2, false, 4, SIZE),
            (1, 7, false, 4, SIZE),
            (1, 38, true, 4, SIZE),
            (2, 3, false, 4, SIZE),
            (2, 27, true, 4, SIZE),
            (3, 13, false, 8, FIELD),
            (3, 3, false, 8, FIELD),
            (4, 9, false, 10, FIELD),
            (4, 0xffff, false, 10, FIELD),
            (5, 13, false, 12, BACK),
            (5, -23, true, 12, BACK),
            (5, i64::from(i32::MIN), true, 12, BACK),
            (5, i64::from(i32::MAX), false, 12, BACK),
            (7, 3, false, 24, VECTOR),
            (7, 7, true, 24, VECTOR),
            (7, -1, true, 24, VECTOR),
            (8, 3, true, 28, "a vector as long as its length says"),
            (8, -1, true, 28, "a vector as long as its length says"),
        ];
        for (index, number, incomplete, offset, expected) in table {
            let mut numbers = COUNTER;
            numbers[index] = number;
            assert_eq!(
                fault(&counter(numbers)),
                (incomplete, offset, expected),
                "{index} {number}"
            );
        }
        let timer =
            little(&[12, 8, 12, 8, 4, 8, 8, 8, 0x2000_0001, 0], &[4, 2, 2, 2, 2, 4, 4, 4, 4, 8]);
        let mut arena = Arena::new();
        let error = BatchTimer::decode::<Flatbuffers>(&timer, &arena.as_scope()).unwrap_err();
        assert!(error.is_incomplete());
    }

    #[test]
    fn any_bytes_end_well() {
        let mut arena = Arena::new();
        let mut whole = Vec::new();
        UNION.encode::<Flatbuffers>(&mut whole).unwrap();
        for at in 0..whole.len() {
            for byte in 0..=255 {
                let mut bytes = vec![0; whole.len()];
                bytes.copy_from_slice(&whole);
                bytes[at] = byte;
                let _ = MetricUnion::decode::<Flatbuffers>(&bytes, &arena.as_scope());
                let _ = BatchTimer::decode::<Flatbuffers>(&bytes, &arena.as_scope());
            }
        }
    }
}
