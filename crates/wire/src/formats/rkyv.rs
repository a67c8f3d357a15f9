//! rkyv: <https://rkyv.org/>, written and read by the crate itself; little-endian, with 32-bit
//! offsets.
//!
//! ```text
//! struct Counter     { id: Vec<u8>, value: i64 }
//! struct BatchTimer  { id: Vec<u8>, values: Vec<f64> }
//! struct Gauge       { id: Vec<u8>, value: f64 }
//! struct MetricUnion { metric_type: i8, id: Vec<u8>, counter: i64, timer: Vec<f64>, gauge: f64 }
//! ```
//!
//! The structure is at the end, with offsets back to the contents of its vectors. All bytes are
//! checked before they are used. The input must begin at an address divisible by 8; otherwise it is
//! copied first.
//!
//! Some features of rkyv change its format: `big_endian`, `unaligned`, `pointer_width_16` and
//! `pointer_width_64`. If another crate of your program enables such a feature, the format changes
//! here too.

use alloc::borrow::Cow;
use alloc::vec::Vec;

use quipu_arena::{ArenaVec, Scope};
use rkyv::rancor::Failure;
use rkyv::rend::{f64_le, i64_le};
use rkyv::util::AlignedVec;
use rkyv::vec::ArchivedVec;
use rkyv::with::AsOwned;

use crate::error::Fault;
use crate::format::{Format, forward, sealed};
use crate::message::{BatchTimer, Counter, Gauge, MetricType, MetricUnion};
use crate::reader::Reader;

/// rkyv as written by the crate, version 0.8, little-endian and with 32-bit offsets.
///
/// The bytes stay the same in all versions of this crate, unless another crate of your program
/// enables a feature of rkyv that changes its format: `big_endian`, `unaligned`, `pointer_width_16`
/// or `pointer_width_64`. If a later version of rkyv writes other bytes, it becomes another format,
/// with another name.
///
/// ```
/// use quipu_wire::{Counter, Metric, Rkyv};
///
/// let mut out = Vec::new();
/// Counter { id: b"hits", value: 7 }.encode::<Rkyv>(&mut out)?;
/// assert_eq!(out, b"hits\0\0\0\0\xf8\xff\xff\xff\x04\0\0\0\x07\0\0\0\0\0\0\0");
/// # Ok::<(), quipu_wire::Error>(())
/// ```
#[derive(Debug)]
pub struct Rkyv(());

impl sealed::Sealed for Rkyv {}

impl Format for Rkyv {
    const NAME: &'static str = "rkyv";
    const DELIMITED: bool = false;
    type WriterState = ();
    type ReaderState = ();

    forward!(Codec);
}

struct Codec;

/// The alignment of all parts of a message.
const ALIGNMENT: usize = 8;

/// Pairs each message with an equivalent structure.
macro_rules! messages {
    ($($message:ident as $owned:ident, $archived:ident, $write:ident, $read:ident {
        $($(#[$with:meta])? $field:ident: $type:ty = $to:ident, $from:ident;)*
    })*) => {
        $(#[derive(rkyv::Archive, rkyv::Serialize)]
        #[rkyv(archived = $archived)]
        struct $owned<'a> {
            $($(#[$with])? $field: $type,)*
        })*

        impl Codec {
            $(fn $write(message: &$message<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
                let $message { $($field),* } = *message;
                let message = $owned { $($field: $to($field)?),* };
                // Offsets count from the start of the writer, so each message needs a fresh one.
                let bytes = rkyv::api::high::to_bytes_in::<_, Failure>(&message, Vec::new())
                    .map_err(|_| TOO_LONG)?;
                out.extend_from_slice(&bytes);
                Ok(())
            }

            fn $read<'m>(
                input: &mut Reader<'m>,
                scope: &Scope<'m>,
            ) -> Result<$message<'m>, Fault> {
                let bytes = input.rest();
                let mut copy = AlignedVec::<ALIGNMENT>::new();
                let aligned = if bytes.as_ptr().addr().is_multiple_of(ALIGNMENT) {
                    bytes
                } else {
                    copy.extend_from_slice(bytes);
                    &copy
                };
                let archived = rkyv::access::<$archived<'_>, Failure>(aligned)
                    .map_err(|_| Fault::malformed("a message as rkyv 0.8 writes it"))?;
                let from = From { bytes, aligned, scope };
                let message = $message { $($field: from.$from(&archived.$field)?),* };
                input.take(bytes.len(), "the message")?;
                Ok(message)
            })*
        }
    };
}

messages! {
    Counter as OwnedCounter, ArchivedCounter, write_counter, read_counter {
        #[rkyv(with = AsOwned)] id: Cow<'a, [u8]> = list, id;
        value: i64 = same, integer;
    }
    BatchTimer as OwnedBatchTimer, ArchivedBatchTimer, write_batch_timer, read_batch_timer {
        #[rkyv(with = AsOwned)] id: Cow<'a, [u8]> = list, id;
        #[rkyv(with = AsOwned)] values: Cow<'a, [f64]> = list, doubles;
    }
    Gauge as OwnedGauge, ArchivedGauge, write_gauge, read_gauge {
        #[rkyv(with = AsOwned)] id: Cow<'a, [u8]> = list, id;
        value: f64 = same, double;
    }
    MetricUnion as OwnedMetricUnion, ArchivedMetricUnion, write_union, read_union {
        metric_type: i8 = number, of_number;
        #[rkyv(with = AsOwned)] id: Cow<'a, [u8]> = list, id;
        counter: i64 = same, integer;
        #[rkyv(with = AsOwned)] timer: Cow<'a, [f64]> = list, doubles;
        gauge: f64 = same, double;
    }
}

const TOO_LONG: Fault = Fault::unwritable("an id or a list of values must have less than 1 GB");

/// Checks that a 32-bit offset can reach the end of the list.
fn list<T: Clone>(items: &[T]) -> Result<Cow<'_, [T]>, Fault> {
    if size_of_val(items) < 1_000_000_000 { Ok(Cow::Borrowed(items)) } else { Err(TOO_LONG) }
}

fn same<T>(value: T) -> Result<T, Fault> {
    Ok(value)
}

fn number(metric_type: MetricType) -> Result<i8, Fault> {
    Ok(metric_type.0)
}

/// Converts a checked message.
struct From<'r, 'm> {
    bytes: &'m [u8],
    /// The same bytes, possibly an aligned copy.
    aligned: &'r [u8],
    scope: &'r Scope<'m>,
}

impl<'m> From<'_, 'm> {
    /// Returns the id at the same position in the input.
    fn id(&self, id: &ArchivedVec<u8>) -> Result<&'m [u8], Fault> {
        let start = id.as_ptr().addr().wrapping_sub(self.aligned.as_ptr().addr());
        let id = self.bytes.get(start..).and_then(|rest| rest.get(..id.len()));
        // An empty id may be anywhere.
        Ok(id.unwrap_or_default())
    }

    fn doubles(&self, values: &ArchivedVec<f64_le>) -> Result<&'m [f64], Fault> {
        let mut doubles = ArenaVec::new_in(self.scope);
        doubles
            .try_extend(values.iter().map(|value| value.to_native()))
            .map_err(|_| Fault::memory())?;
        Ok(doubles.into_slice())
    }

    fn integer(&self, value: &i64_le) -> Result<i64, Fault> {
        Ok(value.to_native())
    }

    fn double(&self, value: &f64_le) -> Result<f64, Fault> {
        Ok(value.to_native())
    }

    fn of_number(&self, number: &i8) -> Result<MetricType, Fault> {
        Ok(MetricType(*number))
    }
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

    /// The structure that a user of the crate would define.
    #[derive(rkyv::Archive, rkyv::Serialize)]
    struct Union {
        metric_type: i8,
        id: Vec<u8>,
        counter: i64,
        timer: Vec<f64>,
        gauge: f64,
    }

    #[derive(rkyv::Archive, rkyv::Serialize)]
    struct Timer {
        id: Vec<u8>,
        values: Vec<f64>,
    }

    #[derive(rkyv::Archive, rkyv::Serialize)]
    struct Count {
        id: Vec<u8>,
        value: i64,
    }

    #[derive(rkyv::Archive, rkyv::Serialize)]
    struct Level {
        id: Vec<u8>,
        value: f64,
    }

    fn oracle(message: &Message<'_>) -> AlignedVec {
        use rkyv::to_bytes;
        let id = message.id().to_vec();
        match *message {
            Message::Counter(Counter { value, .. }) => to_bytes::<Failure>(&Count { id, value }),
            Message::BatchTimer(BatchTimer { values, .. }) => {
                to_bytes::<Failure>(&Timer { id, values: values.to_vec() })
            }
            Message::Gauge(Gauge { value, .. }) => to_bytes::<Failure>(&Level { id, value }),
            Message::MetricUnion(union) => to_bytes::<Failure>(&Union {
                metric_type: union.metric_type.0,
                id,
                counter: union.counter,
                timer: union.timer.to_vec(),
                gauge: union.gauge,
            }),
        }
        .unwrap()
    }

    #[test]
    fn as_the_crate_writes_it() {
        let long = [b'x'; 300];
        for id in [&b""[..], b"name=bulbasaur,trainer=ash,type=grass", &[0, 255], &long] {
            for message in messages(id) {
                let mut out = b"before".to_vec();
                message.encode::<Rkyv>(&mut out).unwrap();
                assert_eq!(&out[6..], &oracle(&message)[..], "{message:?}");
                // Tries each position between two words.
                let mut moved = vec![0; out.len() + 8];
                for start in 0..8 {
                    moved[start..][..out.len() - 6].copy_from_slice(&out[6..]);
                    let input = &moved[start..][..out.len() - 6];
                    let mut arena = Arena::new();
                    let scope = arena.as_scope();
                    let read = Message::decode::<Rkyv>(message.kind(), input, &scope).unwrap();
                    assert_eq!(read, message);
                    assert!(id.is_empty() || input.as_ptr_range().contains(&read.id().as_ptr()));
                }
            }
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused() {
        for message in messages(b"name=bulbasaur,type=grass").into_iter().step_by(3) {
            let mut bytes = Vec::new();
            message.encode::<Rkyv>(&mut bytes).unwrap();
            for len in 0..bytes.len() {
                let mut arena = Arena::new();
                let scope = arena.as_scope();
                let _ = Message::decode::<Rkyv>(message.kind(), &bytes[..len], &scope);
            }
            let end = bytes.len();
            for bit in 0..8 * end.min(64) {
                let at = end - 1 - bit / 8;
                bytes[at] ^= 1 << (bit % 8);
                let mut arena = Arena::new();
                let _ = Message::decode::<Rkyv>(message.kind(), &bytes, &arena.as_scope());
                bytes[at] ^= 1 << (bit % 8);
            }
        }
        let mut arena = Arena::new();
        let scope = arena.as_scope();
        assert!(Counter::decode::<Rkyv>(b"", &scope).is_err());
        assert!(BatchTimer::decode::<Rkyv>(&[0xff; 64], &scope).is_err());
    }
}
