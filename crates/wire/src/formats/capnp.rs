//! Cap'n Proto: <https://capnproto.org/encoding.html>. A stream consists of messages that each
//! begin with a table of their segments. They can be plain or packed.
//!
//! ```text
//! struct Counter     { id @0 :Data; value @1 :Int64; }
//! struct BatchTimer  { id @0 :Data; values @1 :List(Float64); }
//! struct Gauge       { id @0 :Data; value @1 :Float64; }
//! struct MetricUnion { type @0 :Type; id @1 :Data; counterVal @2 :Int64;
//!                      batchTimerVal @3 :List(Float64); gaugeVal @4 :Float64; }
//! ```
//!
//! Words of 8 bytes, least significant first. A written message is one segment:
//!
//! ```text
//! table          number of segments - 1: 32 bits, words of the segment: 32 bits
//! root pointer   0: 32 bits, words of data: 16 bits, pointers: 16 bits
//! data           the value; of a union the type (16 bits, 48 of zero), the counter, the gauge
//! pointers       to the id; to the values
//! id             padded with zeros to a word
//! values
//!
//! pointer to a list    1: 2 bits, words from here to the list: 30 bits, size of an item: 3 bits
//!                      (2 is a byte, 5 is a word), items: 29 bits
//! ```
//!
//! You can read any message that the format allows for these types: with several segments and far
//! pointers; with sections in any order that are shorter than ours (the rest is zero) or longer;
//! with a list of structs instead of a list of doubles. Each of the three objects is read once, so
//! the cost is bounded by the length of the message.

mod packing;
mod segments;

use alloc::vec::Vec;
use core::marker::PhantomData;

use quipu_arena::Scope;

use crate::error::Fault;
use crate::format::dialects;
use crate::message::{BatchTimer, Counter, Gauge, Kind, MetricType, MetricUnion};
use crate::pieces::{Bytes, Each, Le64, LeDoubles, Zeros, append};
use crate::reader::Reader;
use segments::{BYTE, Segments, WORD, words_of};

/// Cap'n Proto as written by all libraries: words as they appear in memory.
///
/// ```
/// use quipu_wire::{Counter, Metric, Capnp};
///
/// let mut out = Vec::new();
/// Counter { id: b"hits", value: 7 }.encode::<Capnp>(&mut out)?;
/// assert_eq!(
///     out,
///     b"\0\0\0\0\x04\0\0\0\0\0\0\0\x01\0\x01\0\x07\0\0\0\0\0\0\0\x01\0\0\0\"\0\0\0hits\0\
///       \0\0\0"
/// );
/// # Ok::<(), quipu_wire::Error>(())
/// ```
#[derive(Debug)]
pub struct Capnp(());

/// Cap'n Proto's packed form, which omits the zero bytes of each word.
///
/// ```
/// use quipu_wire::{Counter, Metric, CapnpPacked};
///
/// let mut out = Vec::new();
/// Counter { id: b"hits", value: 7 }.encode::<CapnpPacked>(&mut out)?;
/// assert_eq!(out, b"\x10\x04P\x01\x01\x01\x07\x11\x01\"\x0fhits");
/// # Ok::<(), quipu_wire::Error>(())
/// ```
#[derive(Debug)]
pub struct CapnpPacked(());

/// The differences between the dialects.
trait Dialect: Sized + 'static {
    const NAME: &'static str;

    /// Appends words, an id padded to a full word, and values.
    fn write<const N: usize>(out: &mut Vec<u8>, head: [u64; N], id: &[u8], values: &[f64]);

    /// Reads all words of a message.
    fn read<'m>(input: &mut Reader<'m>, scope: &Scope<'m>) -> Result<Segments<'m>, Fault>;

    /// Skips this number of words of a message that was already read.
    fn skip(input: &mut Reader<'_>, words: usize);
}

dialects!(delimited: true, Capnp, CapnpPacked);

impl Dialect for Capnp {
    const NAME: &'static str = "capnp";

    #[inline(always)]
    fn write<const N: usize>(out: &mut Vec<u8>, head: [u64; N], id: &[u8], values: &[f64]) {
        let padding = id.len().wrapping_neg() % 8;
        append(out, (Each(&head, Le64), Bytes(id), Zeros(padding), LeDoubles(values)));
    }

    #[inline(always)]
    fn read<'m>(input: &mut Reader<'m>, _: &Scope<'m>) -> Result<Segments<'m>, Fault> {
        Segments::read(input)
    }

    fn skip(input: &mut Reader<'_>, words: usize) {
        let _ = input.take(8 * words, "a message");
    }
}

impl Dialect for CapnpPacked {
    const NAME: &'static str = "capnp-packed";

    #[inline(always)]
    fn write<const N: usize>(out: &mut Vec<u8>, head: [u64; N], id: &[u8], values: &[f64]) {
        append(out, packing::PackedWords { head, id, values });
    }

    #[inline(always)]
    fn read<'m>(input: &mut Reader<'m>, scope: &Scope<'m>) -> Result<Segments<'m>, Fault> {
        packing::unpack(input, scope)
    }

    fn skip(input: &mut Reader<'_>, words: usize) {
        let _ = packing::walk(input, words);
    }
}

/// The parts of a message.
struct Parts<'m> {
    data: [u64; 3],
    id: &'m [u8],
    values: &'m [f64],
}

/// The code that the dialects share.
struct Codec<D>(PhantomData<D>);

impl<D: Dialect> Codec<D> {
    #[inline(always)]
    fn write_counter(message: &Counter<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        let Counter { id, value } = *message;
        Self::write_one(id, value as u64, out)
    }

    #[inline(always)]
    fn write_gauge(message: &Gauge<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        let Gauge { id, value } = *message;
        Self::write_one(id, value.to_bits(), out)
    }

    #[inline(always)]
    fn write_one(id: &[u8], value: u64, out: &mut Vec<u8>) -> Result<(), Fault> {
        let to_id = list_pointer(0, BYTE, id.len())?;
        let words = 3 + words_of(id.len());
        D::write(out, [(words as u64) << 32, struct_pointer(1, 1), value, to_id], id, &[]);
        Ok(())
    }

    #[inline(always)]
    fn write_batch_timer(message: &BatchTimer<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        let BatchTimer { id, values } = *message;
        let to_id = list_pointer(1, BYTE, id.len())?;
        let to_values = list_pointer(words_of(id.len()), WORD, values.len())?;
        let words = 3 + words_of(id.len()) + values.len();
        let head = [(words as u64) << 32, struct_pointer(0, 2), to_id, to_values];
        D::write(out, head, id, values);
        Ok(())
    }

    #[inline(always)]
    fn write_union(message: &MetricUnion<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        let MetricUnion { metric_type: MetricType(metric_type), id, counter, timer, gauge } =
            *message;
        let to_id = list_pointer(1, BYTE, id.len())?;
        let to_values = list_pointer(words_of(id.len()), WORD, timer.len())?;
        let words = 6 + words_of(id.len()) + timer.len();
        let head = [
            (words as u64) << 32,
            struct_pointer(3, 2),
            u64::from(i16::from(metric_type) as u16),
            counter as u64,
            gauge.to_bits(),
            to_id,
            to_values,
        ];
        D::write(out, head, id, timer);
        Ok(())
    }

    #[inline(always)]
    fn read_counter<'m>(input: &mut Reader<'m>, scope: &Scope<'m>) -> Result<Counter<'m>, Fault> {
        let Parts { data: [value, ..], id, .. } = Self::read(Kind::Counter, input, scope)?;
        Ok(Counter { id, value: value as i64 })
    }

    #[inline(always)]
    fn read_batch_timer<'m>(
        input: &mut Reader<'m>,
        scope: &Scope<'m>,
    ) -> Result<BatchTimer<'m>, Fault> {
        let Parts { id, values, .. } = Self::read(Kind::BatchTimer, input, scope)?;
        Ok(BatchTimer { id, values })
    }

    #[inline(always)]
    fn read_gauge<'m>(input: &mut Reader<'m>, scope: &Scope<'m>) -> Result<Gauge<'m>, Fault> {
        let Parts { data: [value, ..], id, .. } = Self::read(Kind::Gauge, input, scope)?;
        Ok(Gauge { id, value: f64::from_bits(value) })
    }

    #[inline(always)]
    fn read_union<'m>(input: &mut Reader<'m>, scope: &Scope<'m>) -> Result<MetricUnion<'m>, Fault> {
        let Parts { data: [metric_type, counter, gauge], id, values } =
            Self::read(Kind::MetricUnion, input, scope)?;
        Ok(MetricUnion {
            metric_type: MetricType(metric_type as i8),
            id,
            counter: counter as i64,
            timer: values,
            gauge: f64::from_bits(gauge),
        })
    }

    /// Reads the parts of a message.
    #[inline(always)]
    fn read<'m>(kind: Kind, input: &mut Reader<'m>, scope: &Scope<'m>) -> Result<Parts<'m>, Fault> {
        let before = *input;
        let segments = D::read(input, scope)?;
        // Each result ends here and is never passed on as a whole, so it stays in registers.
        let mut fail = |fault| {
            *input = Self::before_fault(before, &segments);
            fault
        };
        let root = segments.root().map_err(&mut fail)?;
        let data = [root.word(0), root.word(1), root.word(2)];
        if kind == Kind::MetricUnion && i8::try_from(data[0] as i16).is_err() {
            return Err(fail(root.fault(0, "a metric type that fits in 8 bits")));
        }
        let id = root.pointer(0).map_err(&mut fail)?.bytes().map_err(&mut fail)?;
        let mut values: &[f64] = &[];
        if matches!(kind, Kind::BatchTimer | Kind::MetricUnion) {
            values = root.pointer(1).map_err(&mut fail)?.doubles(scope).map_err(&mut fail)?;
        }
        Ok(Parts { data, id, values })
    }

    #[cold]
    #[inline(never)]
    fn before_fault<'m>(mut input: Reader<'m>, segments: &Segments<'m>) -> Reader<'m> {
        D::skip(&mut input, segments.words_before_fault());
        input
    }
}

#[inline(always)]
fn struct_pointer(data: u16, pointers: u16) -> u64 {
    u64::from(data) << 32 | u64::from(pointers) << 48
}

#[inline(always)]
fn list_pointer(offset: usize, item: u64, len: usize) -> Result<u64, Fault> {
    if len as u64 >= 1 << 29 {
        return Err(Fault::unwritable("lengths must fit in 29 bits"));
    }
    Ok(1 | (offset as u64) << 2 | item << 32 | (len as u64) << 35)
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use std::string::{String, ToString};

    use quipu_arena::Arena;

    use super::segments::{DOUBLES, STRUCT};
    use super::*;
    use crate::message::Metric;

    const UNION: MetricUnion<'_> = MetricUnion {
        metric_type: MetricType::GAUGE,
        id: b"ten bytes.",
        counter: -7,
        timer: &[1.5, 0.0, -2.5],
        gauge: 0.25,
    };
    /// The words of the id.
    const TEN: u64 = u64::from_le_bytes(*b"ten byte");
    const BYTES: u64 = u64::from_le_bytes(*b"s.\0\0\0\0\0\0");

    fn list(offset: i32, item: u64, len: u64) -> u64 {
        u64::from((offset << 2) as u32 | 1) | item << 32 | len << 35
    }

    fn structure(offset: i32, data: u64, pointers: u64) -> u64 {
        u64::from((offset << 2) as u32) | data << 32 | pointers << 48
    }

    fn far(segment: u64, word: u64) -> u64 {
        2 | word << 3 | segment << 32
    }

    fn double_far(segment: u64, word: u64) -> u64 {
        far(segment, word) | 4
    }

    fn doubles(values: &[f64]) -> Vec<u64> {
        values.iter().map(|value| value.to_bits()).collect()
    }

    fn message(segments: &[&[u64]]) -> Vec<u8> {
        let mut out = (segments.len() as u32 - 1).to_le_bytes().to_vec();
        for segment in segments {
            out.extend((segment.len() as u32).to_le_bytes());
        }
        out.resize(out.len().next_multiple_of(8), 0);
        out.extend(segments.iter().flat_map(|words| words.iter()).flat_map(|x| x.to_le_bytes()));
        out
    }

    /// Reads segments in both forms and checks that the results agree.
    #[track_caller]
    fn read<T>(segments: &[&[u64]], check: impl Fn(Result<MetricUnion<'_>, String>) -> T) -> T {
        let plain = message(segments);
        let packed = packing::tests::pack(&plain);
        let mut arena = Arena::new();
        let scope = arena.as_scope();
        let text = |error: crate::Error| error.to_string();
        let expected = |error: crate::Error| error.expected().to_string();
        let a = MetricUnion::decode::<Capnp>(&plain, &scope);
        let same = MetricUnion::decode::<CapnpPacked>(&packed, &scope);
        assert_eq!(same.map_err(expected), a.clone().map_err(expected));
        check(a.map_err(text))
    }

    #[track_caller]
    fn reads(segments: &[&[u64]], union: MetricUnion<'_>) {
        read(segments, |read| assert_eq!(read, Ok(union)));
    }

    #[track_caller]
    fn fails(segments: &[&[u64]], offset: usize, expected: &str) {
        read(segments, |read| {
            assert_eq!(read, Err(std::format!("capnp: at byte {offset}: expected {expected}")));
        });
    }

    /// Returns the data of the union, including pointers.
    fn fields(id: u64, timer: u64) -> [u64; 5] {
        [3, UNION.counter as u64, UNION.gauge.to_bits(), id, timer]
    }

    #[test]
    fn objects_stand_in_any_order() {
        let mut words = vec![structure(7, 3, 2), TEN, BYTES];
        words.extend(doubles(UNION.timer));
        words.extend([99, 0]);
        words.extend(fields(list(-11, BYTE, 10), list(-10, WORD, 3)));
        reads(&[&words], UNION);
    }

    #[test]
    fn segments_refer_to_each_other() {
        let [a, b, c] = [1.5f64, 0.0, -2.5].map(f64::to_bits);
        // A far pointer to the root, a double-far pointer to the id, and both variants for the
        // values.
        let root = [&[0, structure(0, 3, 2)][..], &fields(double_far(0, 1), far(3, 3))].concat();
        let first = [far(1, 1), far(2, 0), list(0, BYTE, 10)];
        let last = [a, b, c, list(-4, WORD, 3)];
        reads(&[&first, &root, &[TEN, BYTES], &last], UNION);
        // Empty segments in between.
        let first = [far(4, 1), far(6, 0), list(0, BYTE, 10)];
        let root = [&[0, structure(0, 3, 2)][..], &fields(double_far(0, 1), far(8, 3))].concat();
        reads(&[&first, &[], &[], &[], &root, &[], &[TEN, BYTES], &[], &last], UNION);
        // Within one segment.
        let near =
            [far(0, 2), TEN, structure(0, 0, 1), double_far(0, 4), far(0, 1), list(9, BYTE, 8)];
        reads(&[&near], MetricUnion { id: b"ten byte", ..MetricUnion::ZERO });
    }

    #[test]
    fn doubles_are_the_first_words_of_structs() {
        let [a, b, c] = [1.5f64, 0.0, -2.5].map(f64::to_bits);
        let head = [structure(0, 3, 2)];
        let fields = fields(list(9, BYTE, 10), list(0, STRUCT, 6));
        let timer = [structure(3, 1, 1), a, !0, b, !0, c, 3, 0];
        let mut words = [&head[..], &fields, &timer, &[TEN, BYTES]].concat();
        reads(&[&words], UNION);
        // Fewer words than the structs need, and more than the segment has.
        words[5] = list(0, STRUCT, 5);
        fails(&[&words], 8 + 8 * 5, DOUBLES);
        words[5] = list(0, STRUCT, 10);
        fails(&[&words], 8 + 8 * 5, DOUBLES);
        words[5] = list(0, STRUCT, 6);
        for tag in [structure(3, 0, 2), structure(0, 0, 0), structure(-1, 1, 1), list(3, 1, 1)] {
            words[6] = tag;
            fails(&[&words], 8 + 8 * 5, DOUBLES);
        }
    }

    #[test]
    fn pointers_lead_to_what_is_there() {
        const ROOT: &str = "a pointer to a struct within its segment";
        const ID: &str = "a pointer to a list of bytes in its segment";
        const FAR: &str = "a far pointer to another pointer within a segment";
        const OTHER: &str = "a pointer to a struct or a list";
        fails(&[&[], &[0]], 16, "a first segment that begins with a pointer");
        for root in [structure(0, 1, 1), structure(-2, 0, 0), structure(1, 0, 1), list(0, BYTE, 8)]
        {
            fails(&[&[root, 0]], 8, ROOT);
        }
        fails(&[&[3, 0]], 8, OTHER);
        let root = structure(0, 0, 2);
        for id in [
            list(1, BYTE, 9),
            list(-4, BYTE, 0),
            list(3, BYTE, 0),
            list(0, BYTE, (1 << 29) - 1),
            list(1, 3, 1),
            list(1, STRUCT, 0),
            structure(1, 1, 0),
        ] {
            fails(&[&[root, id, 0, 0]], 16, ID);
        }
        fails(&[&[root, 0, list(0, WORD, 2), 0]], 24, DOUBLES);
        fails(&[&[root, 0, list(0, BYTE, 1), 0]], 24, DOUBLES);
        for id in [far(1, 0), far(0, 4), far(0, 1), double_far(0, 3), double_far(0, 1), far(9, 0)] {
            fails(&[&[root, id, 0, 0]], 16, FAR);
        }
        // In the second segment, for which the table takes another word.
        fails(&[&[far(1, 0)], &[structure(0, 0, 1), 3]], 16 + 16, OTHER);
        fails(&[&[structure(0, 1, 0), 128]], 16, "a metric type that fits in 8 bits");
    }

    #[test]
    fn tables_are_bounded() {
        let mut arena = Arena::new();
        let mut fault = |bytes: &[u8]| {
            let error = Counter::decode::<Capnp>(bytes, &arena.as_scope()).unwrap_err();
            (error.is_incomplete(), error.offset(), error.expected())
        };
        let beyond = [0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0];
        assert_eq!(fault(&beyond), (true, Some(8), "segments as long as their table says"));
        assert_eq!(fault(&[0xff; 16]), (false, Some(0), "at most 512 segments"));
        assert_eq!(fault(&[0, 2, 0, 0, 0, 0, 0, 0]), (false, Some(0), "at most 512 segments"));
        assert_eq!(fault(&[0xff, 1, 0, 0, 0, 0, 0, 0]), (true, Some(0), "a table of segments"));
        let mut all = vec![&[][..]; 512];
        all[0] = &[0];
        reads(&all, MetricUnion::ZERO);
    }

    #[test]
    fn a_message_ends_where_its_table_says() {
        let mut plain = Vec::new();
        let mut packed = Vec::new();
        for _ in 0..2 {
            UNION.encode::<Capnp>(&mut plain).unwrap();
            UNION.encode::<CapnpPacked>(&mut packed).unwrap();
        }
        twice::<Capnp>(&plain);
        twice::<CapnpPacked>(&packed);
    }

    fn twice<F: crate::Format>(bytes: &[u8]) {
        let mut arena = Arena::new();
        let scope = arena.as_scope();
        let mut reader = Reader::new(bytes);
        assert_eq!(F::read_union(&mut reader, &scope).ok(), Some(UNION));
        assert_eq!(reader.position(), bytes.len() / 2);
        assert_eq!(F::read_union(&mut reader, &scope).ok(), Some(UNION));
        assert!(reader.is_empty());
        for len in 0..bytes.len() / 2 {
            let error = MetricUnion::decode::<F>(&bytes[..len], &scope).unwrap_err();
            assert!(error.is_incomplete(), "{len}: {error}");
        }
    }

    #[test]
    fn sections_are_shorter_or_longer() {
        let short = MetricUnion { counter: 0, gauge: 0.0, timer: &[], ..UNION };
        reads(&[&[structure(0, 1, 1), 3, list(0, BYTE, 10), TEN, BYTES]], short);
        let longer =
            [structure(0, 4, 3), 3 | 9 << 16, 5, 0, 77, list(2, BYTE, 10), 0, !1, TEN, BYTES];
        reads(&[&longer], MetricUnion { counter: 5, ..short });
        // No data, no pointers, and no struct at all.
        let none = MetricUnion { id: b"ten bytes.", ..MetricUnion::ZERO };
        reads(&[&[structure(0, 0, 1), list(0, BYTE, 10), TEN, BYTES]], none);
        reads(
            &[&[structure(0, 1, 0), 3]],
            MetricUnion { metric_type: MetricType(3), ..MetricUnion::ZERO },
        );
        reads(&[&[structure(-1, 0, 0)]], MetricUnion::ZERO);
        reads(&[&[0]], MetricUnion::ZERO);
        reads(&[&[structure(0, 0, 2), 0, 0]], MetricUnion::ZERO);
        reads(&[&[structure(0, 0, 2), list(0, BYTE, 0), list(0, WORD, 0)]], MetricUnion::ZERO);
    }
}
