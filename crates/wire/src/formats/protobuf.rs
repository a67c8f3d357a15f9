//! Protocol Buffers 3: <https://protobuf.dev/programming-guides/encoding/>, and DeDiS' variant.
//!
//! ```text
//! message Counter     { bytes id = 1; int64 value = 2; }
//! message BatchTimer  { bytes id = 1; repeated double values = 2; }
//! message Gauge       { bytes id = 1; double value = 2; }
//! message MetricUnion { Type type = 1; bytes id = 2; int64 counter_val = 3;
//!                       repeated double batch_timer_val = 4; double gauge_val = 5; }
//! ```
//!
//! Four libraries write four dialects, which differ in the treatment of zeros and in the form of
//! signed numbers. You can read fields in any order and repeated (the last one wins, and lists are
//! concatenated), and lists that are packed or unpacked. Unknown fields are skipped.

use alloc::vec::Vec;
use core::marker::PhantomData;

use quipu_arena::{ArenaVec, Scope};

use crate::error::Fault;
use crate::format::dialects;
use crate::message::{BatchTimer, Counter, Gauge, MetricType, MetricUnion};
use crate::pieces::{Byte, Bytes, LeDouble, LeDoubles, Piece, Varint, append};
use crate::protobuf::{TAG, bytes, double, skip};
use crate::reader::{Reader, unzigzag, zigzag};
use crate::values;

/// Protobuf as written by Google's libraries. Zeros are omitted, but a gauge of -0 is written.
///
/// ```
/// use quipu_wire::{Counter, Metric, Protobuf};
///
/// let mut out = Vec::new();
/// Counter { id: b"hits", value: 7 }.encode::<Protobuf>(&mut out)?;
/// assert_eq!(out, b"\n\x04hits\x10\x07");
/// # Ok::<(), quipu_wire::Error>(())
/// ```
#[derive(Debug)]
pub struct Protobuf(());

/// Protobuf as written by the code that gogo/protobuf generates. A gauge of -0 is omitted too.
///
/// ```
/// use quipu_wire::{Counter, Metric, GogoProtobuf};
///
/// let mut out = Vec::new();
/// Counter { id: b"hits", value: 7 }.encode::<GogoProtobuf>(&mut out)?;
/// assert_eq!(out, b"\n\x04hits\x10\x07");
/// # Ok::<(), quipu_wire::Error>(())
/// ```
#[derive(Debug)]
pub struct GogoProtobuf(());

/// Protobuf as gogo's runtime writes structures without the proto3 mark: numbers that are zero
/// are written.
///
/// ```
/// use quipu_wire::{Counter, Metric, ProtobufViaGogo};
///
/// let mut out = Vec::new();
/// Counter { id: b"hits", value: 7 }.encode::<ProtobufViaGogo>(&mut out)?;
/// assert_eq!(out, b"\n\x04hits\x10\x07");
/// # Ok::<(), quipu_wire::Error>(())
/// ```
#[derive(Debug)]
pub struct ProtobufViaGogo(());

/// Protobuf as written by DeDiS' library. Everything is written, and signed numbers are zigzag.
/// Because of this, other protobuf readers see its positive numbers doubled, for example 14 instead
/// of 7.
///
/// ```
/// use quipu_wire::{Counter, Metric, DedisProtobuf};
///
/// let mut out = Vec::new();
/// Counter { id: b"hits", value: 7 }.encode::<DedisProtobuf>(&mut out)?;
/// assert_eq!(out, b"\n\x04hits\x10\x0e");
/// # Ok::<(), quipu_wire::Error>(())
/// ```
#[derive(Debug)]
pub struct DedisProtobuf(());

/// The differences between the dialects.
trait Dialect: Sized + 'static {
    const NAME: &'static str;
    const ZIGZAG: bool = false;
    /// Whether numbers that are zero are written.
    const ZEROS: bool = false;
    /// Whether empty ids and lists are written.
    const EMPTY: bool = false;
    /// Whether -0 counts as zero.
    const NEGATIVE_ZERO: bool = false;
}

dialects!(delimited: false, Protobuf, GogoProtobuf, ProtobufViaGogo, DedisProtobuf);

impl Dialect for Protobuf {
    const NAME: &'static str = "protobuf";
}

impl Dialect for GogoProtobuf {
    const NAME: &'static str = "gogo-protobuf";
    const NEGATIVE_ZERO: bool = true;
}

impl Dialect for ProtobufViaGogo {
    const NAME: &'static str = "protobuf-via-gogo";
    const ZEROS: bool = true;
}

impl Dialect for DedisProtobuf {
    const NAME: &'static str = "dedis-protobuf";
    const ZIGZAG: bool = true;
    const ZEROS: bool = true;
    const EMPTY: bool = true;
}

/// The code that the dialects share.
struct Codec<D>(PhantomData<D>);

impl<D: Dialect> Codec<D> {
    #[inline(always)]
    fn id(field: u8, id: &[u8]) -> impl Piece + '_ {
        (D::EMPTY || !id.is_empty()).then_some((Byte(field), Varint(id.len() as u64), Bytes(id)))
    }

    #[inline(always)]
    fn integer(field: u8, value: i64) -> impl Piece {
        let number = if D::ZIGZAG { zigzag(value) } else { value as u64 };
        (D::ZEROS || value != 0).then_some((Byte(field), Varint(number)))
    }

    #[inline(always)]
    fn double(field: u8, value: f64) -> impl Piece {
        let zero = if D::NEGATIVE_ZERO { value == 0.0 } else { value.to_bits() == 0 };
        (D::ZEROS || !zero).then_some((Byte(field), LeDouble(value)))
    }

    #[inline(always)]
    fn doubles(field: u8, values: &[f64]) -> impl Piece + '_ {
        (D::EMPTY || !values.is_empty())
            .then(|| (Byte(field), Varint(size_of_val(values) as u64), LeDoubles(values)))
    }

    #[inline(always)]
    fn write_counter(message: &Counter<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        let Counter { id, value } = *message;
        append(out, (Self::id(0x0a, id), Self::integer(0x10, value)));
        Ok(())
    }

    #[inline(always)]
    fn write_batch_timer(message: &BatchTimer<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        let BatchTimer { id, values } = *message;
        append(out, (Self::id(0x0a, id), Self::doubles(0x12, values)));
        Ok(())
    }

    #[inline(always)]
    fn write_gauge(message: &Gauge<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        let Gauge { id, value } = *message;
        append(out, (Self::id(0x0a, id), Self::double(0x11, value)));
        Ok(())
    }

    #[inline(always)]
    fn write_union(message: &MetricUnion<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        let MetricUnion { metric_type: MetricType(metric_type), id, counter, timer, gauge } =
            *message;
        append(
            out,
            (
                Self::integer(0x08, i64::from(metric_type)),
                Self::id(0x12, id),
                Self::integer(0x18, counter),
                Self::doubles(0x22, timer),
                Self::double(0x29, gauge),
            ),
        );
        Ok(())
    }

    #[inline(always)]
    fn read_counter<'m>(input: &mut Reader<'m>, _: &Scope<'m>) -> Result<Counter<'m>, Fault> {
        let mut message = Counter { id: &[], value: 0 };
        while !input.is_empty() {
            match input.varint(TAG)? {
                0x0a => message.id = bytes(input)?,
                0x10 => message.value = integer::<D>(input)?,
                tag => input.apart(|input| skip(input, tag, 2))?,
            }
        }
        Ok(message)
    }

    #[inline(always)]
    fn read_batch_timer<'m>(
        input: &mut Reader<'m>,
        scope: &Scope<'m>,
    ) -> Result<BatchTimer<'m>, Fault> {
        let mut id: &[u8] = &[];
        let mut values = Doubles::new(scope);
        while !input.is_empty() {
            match input.varint(TAG)? {
                0x0a => id = bytes(input)?,
                0x12 => values.packed(input)?,
                0x11 => values.single(input)?,
                tag => input.apart(|input| skip(input, tag, 2))?,
            }
        }
        Ok(BatchTimer { id, values: values.finish() })
    }

    #[inline(always)]
    fn read_gauge<'m>(input: &mut Reader<'m>, _: &Scope<'m>) -> Result<Gauge<'m>, Fault> {
        let mut message = Gauge { id: &[], value: 0.0 };
        while !input.is_empty() {
            match input.varint(TAG)? {
                0x0a => message.id = bytes(input)?,
                0x11 => message.value = double(input)?,
                tag => input.apart(|input| skip(input, tag, 2))?,
            }
        }
        Ok(message)
    }

    #[inline(always)]
    fn read_union<'m>(input: &mut Reader<'m>, scope: &Scope<'m>) -> Result<MetricUnion<'m>, Fault> {
        let mut message = MetricUnion::ZERO;
        let mut timer = Doubles::new(scope);
        while !input.is_empty() {
            let before = *input;
            match input.varint(TAG)? {
                0x08 => {
                    let number = integer::<D>(input)?;
                    message.metric_type = input.metric_type(number, before)?;
                }
                0x12 => message.id = bytes(input)?,
                0x18 => message.counter = integer::<D>(input)?,
                0x22 => timer.packed(input)?,
                0x21 => timer.single(input)?,
                0x29 => message.gauge = double(input)?,
                tag => input.apart(|input| skip(input, tag, 5))?,
            }
        }
        message.timer = timer.finish();
        Ok(message)
    }
}

#[inline(always)]
fn integer<D: Dialect>(input: &mut Reader<'_>) -> Result<i64, Fault> {
    let number = input.varint("a number")?;
    Ok(if D::ZIGZAG { unzigzag(number) } else { number as i64 })
}

/// A list. A library that packs lists writes it in one piece; others write a piece for each value.
struct Doubles<'s, 'm> {
    scope: &'s Scope<'m>,
    /// The first piece.
    first: &'m [f64],
    /// All values, once a second piece was read.
    all: Option<ArenaVec<'m, f64, &'s Scope<'m>>>,
}

impl<'s, 'm> Doubles<'s, 'm> {
    #[inline(always)]
    fn new(scope: &'s Scope<'m>) -> Doubles<'s, 'm> {
        Doubles { scope, first: &[], all: None }
    }

    #[inline(always)]
    fn packed(&mut self, input: &mut Reader<'m>) -> Result<(), Fault> {
        let before = *input;
        let list = bytes(input)?;
        if list.len() % 8 != 0 {
            *input = before;
            return Err(Fault::malformed("a list of doubles of 8 bytes each"));
        }
        if self.first.is_empty() && self.all.is_none() {
            self.first = values::little_endian(list, self.scope)?;
            return Ok(());
        }
        self.more(list)
    }

    #[inline(always)]
    fn single(&mut self, input: &mut Reader<'m>) -> Result<(), Fault> {
        let value = input.array::<8>("a double")?;
        self.more(&value)
    }

    #[cold]
    #[inline(never)]
    fn more(&mut self, list: &[u8]) -> Result<(), Fault> {
        let (words, _) = list.as_chunks::<8>();
        let Doubles { scope, first, all } = self;
        if all.is_none() {
            let mut begun = ArenaVec::new_in(*scope);
            begun.try_extend_from_slice_copy(first).map_err(|_| Fault::memory())?;
            *all = Some(begun);
        }
        let Some(all) = all else { return Ok(()) };
        all.try_extend(words.iter().map(|word| f64::from_le_bytes(*word)))
            .map_err(|_| Fault::memory())
    }

    #[inline(always)]
    fn finish(self) -> &'m [f64] {
        match self.all {
            Some(all) => all.into_slice(),
            None => self.first,
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use quipu_arena::Arena;

    use super::*;
    use crate::Metric;

    fn timer(bytes: &[u8]) -> Result<Vec<f64>, crate::Error> {
        let mut arena = Arena::new();
        Ok(BatchTimer::decode::<Protobuf>(bytes, &arena.as_scope())?.values.to_vec())
    }

    #[test]
    fn lists_in_pieces() {
        let one = 1f64.to_le_bytes();
        let single = [&b"\x11"[..], &one].concat();
        let packed = [&b"\x12\x10"[..], &one, &one].concat();
        assert_eq!(timer(&single).unwrap(), [1.0]);
        assert_eq!(timer(&[&single[..], &single].concat()).unwrap(), [1.0; 2]);
        assert_eq!(
            timer(&[&packed[..], &single, b"\x0a\x01a", &packed].concat()).unwrap(),
            [1.0; 5]
        );
        assert_eq!(timer(&[&b"\x12\0"[..], &packed].concat()).unwrap(), [1.0; 2]);
        let error = timer(&[&b"\x12\x09"[..], &one, b"x"].concat()).unwrap_err();
        assert_eq!(error.offset(), Some(1));
    }

    #[test]
    fn unknown_fields_are_skipped() {
        let unknown: &[&[u8]] = &[
            b"\x50\xff\x01",
            b"\x51\0\0\0\0\0\0\0\0",
            b"\x52\x03abc",
            b"\x55\0\0\0\0",
            b"\x53\x08\x01\x5b\x12\x01a\x5c\x54",
        ];
        let mut arena = Arena::new();
        let scope = arena.as_scope();
        for field in unknown {
            let bytes = [&b"\x10\x05"[..], field, b"\x0a\x01a\x10\x07"].concat();
            let counter = Counter::decode::<Protobuf>(&bytes, &scope).unwrap();
            assert_eq!(counter, Counter { id: b"a", value: 7 });
        }
        for bytes in [&b"\x53\x54\x56"[..], b"\x54", b"\x00", b"\x53\x5c", b"\x0b", b"\x56"] {
            assert!(Counter::decode::<Protobuf>(bytes, &scope).is_err(), "{bytes:?}");
        }
        let deep = b"\x53".repeat(1000);
        assert!(Counter::decode::<Protobuf>(&deep, &scope).is_err());
    }

    #[test]
    fn types_are_8_bits() {
        let mut arena = Arena::new();
        let scope = arena.as_scope();
        let mut out = Vec::new();
        let union = MetricUnion { metric_type: MetricType(-1), ..MetricUnion::ZERO };
        union.encode::<Protobuf>(&mut out).unwrap();
        assert_eq!(out.len(), 11);
        assert_eq!(MetricUnion::decode::<Protobuf>(&out, &scope).unwrap(), union);
        let error = MetricUnion::decode::<Protobuf>(b"\x08\x80\x01", &scope).unwrap_err();
        assert_eq!(error.offset(), Some(0));
    }
}
