//! Messages of a statsd-like protocol, each with the id and the values of a timer. Batches of 1,000
//! are decoded, then used, then freed.
//!
//! The first case uses the batch timer of the wire benchmark: an id of 37 bytes and the values 1 to
//! 5.
//!
//! A message is the length of the id as a varint, the id, the number of values as a varint, and
//! the values in little-endian order. There are 1 to 100 values, 20 on average. The list of a
//! batch's messages is also in the arena. Another case borrows the ids from the input.

use super::data::{Random, label};
use super::library::{Library, Vector};
use super::{MALLOC, Round, per_operation, with_libraries};
use crate::measure::{Case, Options, black_box};
use crate::record::Record;

/// The number of messages in the input.
const MESSAGES: usize = 100_000;
/// The number of messages that are kept at the same time.
const BATCH: usize = 1_000;

pub(super) fn run(options: &Options) -> Vec<Record> {
    let same = same();
    let seed = Decode::<true> { encoded: &same };
    let records = with_libraries(Case::new("arena/decode, 5 values"), &seed)
        .each(MALLOC, || on_the_heap(&same, <[u8]>::to_vec))
        .run(options);
    let mut all = per_operation(MESSAGES, records);
    let encoded = encoded();
    let copying = Decode::<true> { encoded: &encoded };
    let borrowing = Decode::<false> { encoded: &encoded };
    let mut records = with_libraries(Case::new("arena/decode, ids copied"), &copying)
        .each(MALLOC, || on_the_heap(&encoded, <[u8]>::to_vec))
        .run(options);
    records.extend(
        with_libraries(Case::new("arena/decode, ids borrowed"), &borrowing)
            .each(MALLOC, || on_the_heap(&encoded, |id| id))
            .run(options),
    );
    all.extend(per_operation(MESSAGES, records));
    all
}

/// Decodes messages, with ids that are copied or borrowed.
struct Decode<'e, const COPY: bool> {
    encoded: &'e [u8],
}

#[derive(Clone, Copy)]
struct BatchTimer<'a> {
    id: &'a [u8],
    values: &'a [f64],
}

impl<const COPY: bool> Round for Decode<'_, COPY> {
    const ROOM: usize = 512 * BATCH;

    fn round<L: Library>(&self, arena: &mut L) {
        let mut input = self.encoded;
        let mut total = 0;
        while !input.is_empty() {
            total ^= batch::<COPY, L>(arena, &mut input);
            arena.reset();
        }
        black_box(total);
    }
}

fn batch<const COPY: bool, L: Library>(arena: &L, input: &mut &[u8]) -> u64 {
    let mut timers = arena.vector(BATCH);
    for _ in 0..BATCH {
        let Some((id, values)) = message(input) else { break };
        let id = if COPY { arena.bytes(id) } else { id };
        timers.push(BatchTimer { id, values: arena.numbers(values) });
    }
    timers.finish().iter().fold(0, |all, timer| all ^ used(timer.id, timer.values))
}

/// A message that owns its values, and possibly its id.
struct OwnedTimer<I> {
    id: I,
    values: Vec<f64>,
}

fn on_the_heap<'e, I: AsRef<[u8]>>(encoded: &'e [u8], own: impl Fn(&'e [u8]) -> I) -> u64 {
    let mut input = encoded;
    let mut total = 0;
    while !input.is_empty() {
        let mut timers = Vec::with_capacity(BATCH);
        for _ in 0..BATCH {
            let Some((id, values)) = message(&mut input) else { break };
            let values = values.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect();
            timers.push(OwnedTimer { id: own(id), values });
        }
        total ^= timers.iter().fold(0, |all, timer| all ^ used(timer.id.as_ref(), &timer.values));
    }
    total
}

/// A model of a server's work on a message: it reads the id and all values. This takes less time
/// than decoding them.
fn used(id: &[u8], values: &[f64]) -> u64 {
    let ends = id.first().zip(id.last()).map_or(0, |(first, last)| first ^ last);
    values.iter().fold(ends.into(), |all, value| all ^ value.to_bits())
}

/// Returns the id and the values of the next message, if it is complete.
#[inline(always)]
fn message<'e>(input: &mut &'e [u8]) -> Option<(&'e [u8], &'e [[u8; 8]])> {
    let id_len = varint(input)?;
    let (id, rest) = input.split_at_checked(id_len)?;
    *input = rest;
    let count = varint(input)?;
    let (values, rest) = input.split_at_checked(count.checked_mul(8)?)?;
    *input = rest;
    Some((id, values.as_chunks().0))
}

#[inline(always)]
fn varint(input: &mut &[u8]) -> Option<usize> {
    let mut number = 0;
    for shift in [0, 7, 14, 21] {
        let (byte, rest) = input.split_first()?;
        *input = rest;
        number |= usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// The batch timer of the wire benchmark, repeated.
fn same() -> Vec<u8> {
    let mut bytes = Vec::new();
    let id = b"name=bulbasaur,trainer=ash,type=grass";
    put_varint(&mut bytes, id.len());
    bytes.extend_from_slice(id);
    put_varint(&mut bytes, 5);
    for value in 1..=5 {
        bytes.extend_from_slice(&f64::from(value).to_le_bytes());
    }
    bytes.repeat(MESSAGES)
}

fn encoded() -> Vec<u8> {
    let mut random = Random::new();
    let mut bytes = Vec::new();
    for _ in 0..MESSAGES {
        let id = label(&mut random);
        put_varint(&mut bytes, id.len());
        bytes.extend_from_slice(id.as_bytes());
        let count = ((1.0 - random.unit()).ln() * -19.6) as usize;
        let count = (count + 1).min(100);
        put_varint(&mut bytes, count);
        for _ in 0..count {
            bytes.extend_from_slice(&(random.unit() * 1000.0).to_le_bytes());
        }
    }
    bytes
}

fn put_varint(bytes: &mut Vec<u8>, mut number: usize) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

#[cfg(test)]
mod tests {
    use super::super::library::{BumpScopeUp, QuipuUp};
    use super::*;

    #[test]
    fn messages_are_as_described() {
        let encoded = encoded();
        let mut input = encoded.as_slice();
        let counts: Vec<usize> =
            std::iter::from_fn(|| message(&mut input).map(|(_, values)| values.len())).collect();
        assert_eq!((counts.len(), input.len()), (MESSAGES, 0));
        let mean = counts.iter().sum::<usize>() as f64 / MESSAGES as f64;
        assert!((19.5..20.5).contains(&mean), "{mean}");
        assert_eq!((counts.iter().min(), counts.iter().max()), (Some(&1), Some(&100)));
    }

    #[test]
    fn every_decoder_sees_the_same() {
        let encoded = encoded();
        let expected = on_the_heap(&encoded, |id| id);
        assert_eq!(on_the_heap(&encoded, <[u8]>::to_vec), expected);
        fn total<const COPY: bool, L: Library>(arena: &mut L, mut input: &[u8]) -> u64 {
            let mut total = 0;
            while !input.is_empty() {
                total ^= batch::<COPY, L>(arena, &mut input);
                arena.reset();
            }
            total
        }
        assert_eq!(total::<true, _>(&mut QuipuUp::new(), &encoded), expected);
        assert_eq!(total::<false, _>(&mut BumpScopeUp::new(), &encoded), expected);
    }
}
