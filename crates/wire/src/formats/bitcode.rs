//! bitcode: <https://docs.rs/bitcode>, version 0.6. The crate itself writes and reads it, because
//! the format is undocumented and differs between major versions.
//!
//! ```text
//! struct Counter     { id: Vec<u8>, value: i64 }
//! struct BatchTimer  { id: Vec<u8>, values: Vec<f64> }
//! struct Gauge       { id: Vec<u8>, value: f64 }
//! struct MetricUnion { metric_type: i8, id: Vec<u8>, counter: i64, timer: Vec<f64>, gauge: f64 }
//! ```
//!
//! The crate only supports owned structures. Because of this, each message is copied once more than
//! in other formats, and ids are in the scope. Errors don't include a reason or a position, because
//! the crate reports neither.

use alloc::vec::Vec;

use quipu_arena::{ArenaVec, Scope};

use crate::error::Fault;
use crate::format::{Format, forward, sealed};
use crate::message::{BatchTimer, Counter, Gauge, MetricType, MetricUnion};
use crate::reader::Reader;

/// bitcode as written by the crate, version 0.6, without serde.
///
/// The bytes stay the same in all versions of this crate. If a later version of bitcode writes
/// other bytes, it becomes another format, with another name.
///
/// ```
/// use quipu_wire::{Counter, Metric, Bitcode};
///
/// let mut out = Vec::new();
/// Counter { id: b"hits", value: 7 }.encode::<Bitcode>(&mut out)?;
/// assert_eq!(out, b"\x04\0hits\x06\x07");
/// # Ok::<(), quipu_wire::Error>(())
/// ```
#[derive(Debug)]
pub struct Bitcode(());

impl sealed::Sealed for Bitcode {}

impl Format for Bitcode {
    const NAME: &'static str = "bitcode";
    const DELIMITED: bool = false;
    type WriterState = ();
    type ReaderState = ();

    forward!(Codec);
}

struct Codec;

/// Pairs each message with an equivalent owned structure.
macro_rules! messages {
    ($($message:ident as $owned:ident, $write:ident, $read:ident {
        $($field:ident: $type:ty = $to:expr, $from:expr;)*
    })*) => {
        $(#[derive(bitcode::Encode, bitcode::Decode)]
        struct $owned {
            $($field: $type,)*
        })*

        impl Codec {
            $(fn $write(message: &$message<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
                let $message { $($field),* } = *message;
                out.extend_from_slice(&bitcode::encode(&$owned { $($field: $to($field)),* }));
                Ok(())
            }

            fn $read<'m>(
                input: &mut Reader<'m>,
                scope: &Scope<'m>,
            ) -> Result<$message<'m>, Fault> {
                let $owned { $($field),* } = bitcode::decode(input.rest())
                    .map_err(|_| Fault::malformed("a message as bitcode 0.6 writes it"))?;
                input.take(input.len(), "the message")?;
                Ok($message { $($field: $from($field, scope)?),* })
            })*
        }
    };
}

messages! {
    Counter as OwnedCounter, write_counter, read_counter {
        id: Vec<u8> = Vec::from, slice;
        value: i64 = same, plain;
    }
    BatchTimer as OwnedBatchTimer, write_batch_timer, read_batch_timer {
        id: Vec<u8> = Vec::from, slice;
        values: Vec<f64> = Vec::from, slice;
    }
    Gauge as OwnedGauge, write_gauge, read_gauge {
        id: Vec<u8> = Vec::from, slice;
        value: f64 = same, plain;
    }
    MetricUnion as OwnedMetricUnion, write_union, read_union {
        metric_type: i8 = number, of_number;
        id: Vec<u8> = Vec::from, slice;
        counter: i64 = same, plain;
        timer: Vec<f64> = Vec::from, slice;
        gauge: f64 = same, plain;
    }
}

fn same<T>(value: T) -> T {
    value
}

fn number(metric_type: MetricType) -> i8 {
    metric_type.0
}

fn plain<T>(value: T, _: &Scope<'_>) -> Result<T, Fault> {
    Ok(value)
}

fn of_number(number: i8, _: &Scope<'_>) -> Result<MetricType, Fault> {
    Ok(MetricType(number))
}

fn slice<'m, T: Copy>(items: Vec<T>, scope: &Scope<'m>) -> Result<&'m [T], Fault> {
    let mut slice = ArenaVec::new_in(scope);
    slice.try_extend_from_slice_copy(&items).map_err(|_| Fault::memory())?;
    Ok(slice.into_slice())
}

#[cfg(test)]
mod tests {
    use quipu_arena::Arena;
    use std::vec;

    use super::*;
    use crate::message::{Message, Metric};

    fn messages(id: &[u8]) -> Vec<Message<'_>> {
        let mut all = vec![];
        for value in [0, 1, -1, 100, 1 << 40, i64::MAX, i64::MIN] {
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
    fn written_messages_are_read() {
        let long = [b'x'; 300];
        for id in [&b""[..], b"name=bulbasaur,trainer=ash,type=grass", &[0, 255], &long, &[0; 99]] {
            for message in messages(id) {
                let mut out = b"before".to_vec();
                message.encode::<Bitcode>(&mut out).unwrap();
                let mut arena = Arena::new();
                let scope = arena.as_scope();
                let read = Message::decode::<Bitcode>(message.kind(), &out[6..], &scope);
                assert_eq!(read, Ok(message));
            }
        }
    }

    #[test]
    fn has_the_crates_own_sizes() {
        let id = b"name=bulbasaur,trainer=ash,type=grass";
        let values = &[1.0, 2.0, 3.0, 4.0, 5.0];
        let metric_type = MetricType::BATCH_TIMER;
        for (message, len) in [
            (Message::from(Counter { id, value: 100 }), 41),
            (BatchTimer { id, values }.into(), 81),
            (Gauge { id, value: 100.0 }.into(), 48),
            (MetricUnion { metric_type, id, counter: 0, timer: values, gauge: 0.0 }.into(), 86),
        ] {
            let mut out = Vec::new();
            message.encode::<Bitcode>(&mut out).unwrap();
            assert_eq!(out.len(), len, "{message:?}");
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused() {
        for message in messages(b"name=bulbasaur,type=grass").into_iter().step_by(3) {
            let mut bytes = Vec::new();
            message.encode::<Bitcode>(&mut bytes).unwrap();
            for len in 0..bytes.len() {
                let mut arena = Arena::new();
                let scope = arena.as_scope();
                let read = Message::decode::<Bitcode>(message.kind(), &bytes[..len], &scope);
                assert!(read.is_err(), "{message:?} {len}");
            }
            for bit in 0..8 * bytes.len().min(80) {
                bytes[bit / 8] ^= 1 << (bit % 8);
                let mut arena = Arena::new();
                let _ = Message::decode::<Bitcode>(message.kind(), &bytes, &arena.as_scope());
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
        }
        let mut arena = Arena::new();
        assert!(Counter::decode::<Bitcode>(&[0xff; 64], &arena.as_scope()).is_err());
    }
}
