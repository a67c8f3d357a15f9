//! postcard: <https://postcard.jamesmunns.com/wire-format>.
//!
//! ```text
//! struct Counter     { id: bytes, value: i64 }
//! struct BatchTimer  { id: bytes, values: [f64] }
//! struct Gauge       { id: bytes, value: f64 }
//! struct MetricUnion { type: i8, id: bytes, counter: i64, timer: [f64], gauge: f64 }
//! ```
//!
//! The fields follow each other without names or tags. Bytes and lists begin with their length as a
//! base-128 number. An i64 is zigzag-encoded in base 128, an i8 is one byte, and an f64 is 8 bytes,
//! least significant first.

use alloc::vec::Vec;

use quipu_arena::Scope;

use crate::error::Fault;
use crate::format::{Format, forward, sealed};
use crate::message::{BatchTimer, Counter, Gauge, MetricType, MetricUnion};
use crate::pieces::{Byte, Bytes, LeDouble, LeDoubles, Piece, Varint, append};
use crate::reader::{Reader, unzigzag, zigzag};
use crate::values;

/// postcard as written by the crate, version 1 of the format. In a stream, messages follow each
/// other directly.
///
/// ```
/// use quipu_wire::{Counter, Metric, Postcard};
///
/// let mut out = Vec::new();
/// Counter { id: b"hits", value: 7 }.encode::<Postcard>(&mut out)?;
/// assert_eq!(out, b"\x04hits\x0e");
/// # Ok::<(), quipu_wire::Error>(())
/// ```
#[derive(Debug)]
pub struct Postcard(());

impl sealed::Sealed for Postcard {}

impl Format for Postcard {
    const NAME: &'static str = "postcard";
    type WriterState = ();
    type ReaderState = ();

    forward!(Codec);
}

struct Codec;

impl Codec {
    #[inline(always)]
    fn write_counter(message: &Counter<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        let Counter { id, value } = *message;
        append(out, (self::id(id), integer(value)));
        Ok(())
    }

    #[inline(always)]
    fn write_batch_timer(message: &BatchTimer<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        let BatchTimer { id, values } = *message;
        append(out, (self::id(id), doubles(values)));
        Ok(())
    }

    #[inline(always)]
    fn write_gauge(message: &Gauge<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        let Gauge { id, value } = *message;
        append(out, (self::id(id), LeDouble(value)));
        Ok(())
    }

    #[inline(always)]
    fn write_union(message: &MetricUnion<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        let MetricUnion { metric_type: MetricType(metric_type), id, counter, timer, gauge } =
            *message;
        append(
            out,
            (
                Byte(metric_type as u8),
                self::id(id),
                integer(counter),
                doubles(timer),
                LeDouble(gauge),
            ),
        );
        Ok(())
    }

    #[inline(always)]
    fn read_counter<'m>(input: &mut Reader<'m>, _: &Scope<'m>) -> Result<Counter<'m>, Fault> {
        Ok(Counter { id: read_id(input)?, value: read_integer(input)? })
    }

    #[inline(always)]
    fn read_batch_timer<'m>(
        input: &mut Reader<'m>,
        scope: &Scope<'m>,
    ) -> Result<BatchTimer<'m>, Fault> {
        Ok(BatchTimer { id: read_id(input)?, values: read_doubles(input, scope)? })
    }

    #[inline(always)]
    fn read_gauge<'m>(input: &mut Reader<'m>, _: &Scope<'m>) -> Result<Gauge<'m>, Fault> {
        Ok(Gauge { id: read_id(input)?, value: read_double(input)? })
    }

    #[inline(always)]
    fn read_union<'m>(input: &mut Reader<'m>, scope: &Scope<'m>) -> Result<MetricUnion<'m>, Fault> {
        Ok(MetricUnion {
            metric_type: MetricType(input.byte("the type of a metric")? as i8),
            id: read_id(input)?,
            counter: read_integer(input)?,
            timer: read_doubles(input, scope)?,
            gauge: read_double(input)?,
        })
    }
}

#[inline(always)]
fn id(id: &[u8]) -> impl Piece + '_ {
    (Varint(id.len() as u64), Bytes(id))
}

#[inline(always)]
fn integer(value: i64) -> impl Piece {
    Varint(zigzag(value))
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
fn read_integer(input: &mut Reader<'_>) -> Result<i64, Fault> {
    input.varint("a counter's value").map(unzigzag)
}

#[inline(always)]
fn read_double(input: &mut Reader<'_>) -> Result<f64, Fault> {
    input.array("a double").map(f64::from_le_bytes)
}

#[inline(always)]
fn read_doubles<'m>(input: &mut Reader<'m>, scope: &Scope<'m>) -> Result<&'m [f64], Fault> {
    const EXPECTED: &str = "the announced number of doubles";
    let count = input.varint("the number of values")?;
    let count = input.count(count, 8, EXPECTED)?;
    values::little_endian(input.take(8 * count, EXPECTED)?, scope)
}

#[cfg(test)]
mod tests {
    use quipu_arena::Arena;
    use serde::Serialize;
    use std::vec;

    use super::*;
    use crate::message::{Kind, Message, Metric};
    use crate::stream::{Decoder, Encoder, Framing};

    #[derive(Serialize)]
    struct Union<'a> {
        metric_type: i8,
        id: &'a [u8],
        counter: i64,
        timer: &'a [f64],
        gauge: f64,
    }

    /// Encodes structures with the same fields with the crate postcard.
    fn oracle(message: &Message<'_>) -> Vec<u8> {
        let written = match *message {
            Message::Counter(Counter { id, value }) => ::postcard::to_allocvec(&(id, value)),
            Message::BatchTimer(BatchTimer { id, values }) => {
                ::postcard::to_allocvec(&(id, values))
            }
            Message::Gauge(Gauge { id, value }) => ::postcard::to_allocvec(&(id, value)),
            Message::MetricUnion(union) => ::postcard::to_allocvec(&Union {
                metric_type: union.metric_type.0,
                id: union.id,
                counter: union.counter,
                timer: union.timer,
                gauge: union.gauge,
            }),
        };
        written.unwrap()
    }

    fn messages(id: &[u8]) -> Vec<Message<'_>> {
        let mut all = vec![];
        for value in [0, 1, -1, 63, 64, -64, -65, 100, 1 << 40, i64::MAX, i64::MIN] {
            all.push(Counter { id, value }.into());
        }
        for values in [&[][..], &[1.0], &[1.0, -0.0, f64::INFINITY, 0.1], &[2.5; 200]] {
            all.push(BatchTimer { id, values }.into());
            for (metric_type, counter) in [(2, 0), (-1, -5), (i8::MIN, 300), (i8::MAX, i64::MIN)] {
                let metric_type = MetricType(metric_type);
                let union = MetricUnion { metric_type, id, counter, timer: values, gauge: -0.5 };
                all.push(union.into());
            }
        }
        for value in [0.0, -0.0, 100.0, f64::MIN_POSITIVE, f64::NEG_INFINITY] {
            all.push(Gauge { id, value }.into());
        }
        all
    }

    #[test]
    fn as_the_crate_writes_it() {
        let long = [b'x'; 300];
        for id in [&b""[..], b"a", b"name=bulbasaur,trainer=ash,type=grass", &[0, 255], &long] {
            for message in messages(id) {
                let mut out = Vec::new();
                message.encode::<Postcard>(&mut out).unwrap();
                assert_eq!(out, oracle(&message), "{message:?}");
                let mut arena = Arena::new();
                let scope = arena.as_scope();
                let read = Message::decode::<Postcard>(message.kind(), &out, &scope).unwrap();
                assert_eq!(read, message);
            }
        }
    }

    #[test]
    fn truncated_messages_are_incomplete() {
        for message in messages(b"an id") {
            let mut out = Vec::new();
            message.encode::<Postcard>(&mut out).unwrap();
            for len in 0..out.len() {
                let mut arena = Arena::new();
                let scope = arena.as_scope();
                let error =
                    Message::decode::<Postcard>(message.kind(), &out[..len], &scope).unwrap_err();
                assert!(error.is_incomplete(), "{message:?} {len}: {error}");
            }
        }
    }

    #[test]
    fn numbers_may_be_longer_than_they_need() {
        let mut arena = Arena::new();
        let scope = arena.as_scope();
        let counter = Counter::decode::<Postcard>(b"\x81\x00a\xc8\x81\x80\x00", &scope).unwrap();
        assert_eq!(counter, Counter { id: b"a", value: 100 });
        let long = b"\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02";
        let error = Counter::decode::<Postcard>(long, &scope).unwrap_err();
        assert!(!error.is_incomplete());
        assert_eq!(error.offset(), Some(1));
    }

    #[test]
    fn lengths_are_checked_before_anything_is_allocated() {
        let mut arena = Arena::new();
        let scope = arena.as_scope();
        for bytes in [
            &b"\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"[..],
            b"\x00\xff\xff\xff\xff\xff\xff\xff\xff\x1f",
            b"\x00\x8012345678",
        ] {
            assert!(BatchTimer::decode::<Postcard>(bytes, &scope).unwrap_err().is_incomplete());
        }
    }

    #[test]
    fn streams_have_nothing_between_messages() {
        for &kind in Kind::ALL {
            let of_kind =
                || messages(b"id").into_iter().filter(move |message| message.kind() == kind);
            let mut encoder = Encoder::<Postcard>::new(Framing::Own);
            let mut out = Vec::new();
            for message in of_kind() {
                encoder.append(&message, &mut out).unwrap();
            }
            let mut decoder = Decoder::<Postcard>::new(kind, Framing::Own);
            decoder.push(&out);
            decoder.end();
            let mut arena = Arena::new();
            let scope = arena.as_scope();
            for message in of_kind() {
                assert_eq!(decoder.next(&scope).unwrap(), Some(message));
            }
            decoder.finish().unwrap();
        }
    }
}
