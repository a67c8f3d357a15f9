//! Sereal, the document format of Perl's serializer:
//! <https://github.com/Sereal/Sereal/blob/master/sereal_spec.pod>.
//!
//! ```text
//! document    = 3d f3 72 6c, type << 4 | version, length of a suffix, suffix, item
//!
//! Counter     2c "Counter"     2a 2   27 2 "ID" list   27 5 "Value" integer
//! BatchTimer  2c "BatchTimer"  2a 2   27 2 "ID" list   27 6 "Values" list
//! Gauge       2c "Gauge"       2a 2   27 2 "ID" list   27 5 "Value" double
//! MetricUnion 2c "MetricUnion" 2a 5   27 4 "Type" integer   27 2 "ID" list
//!             27 10 "CounterVal" integer   27 13 "BatchTimerVal" list   27 8 "GaugeVal" double
//!
//! class name  = 60 + length, text
//! integer     = 00 to 0f: 0 to 15; 10 to 1f: -16 to -1; 20 varint; 21 zigzag varint
//! double      = 23, least significant byte first
//! list        = 2b, count as varint, items
//! ```
//!
//! The id is a list too, with one integer for each byte.
//!
//! You can read the versions 1 to 5, keys in any order (the last one wins), ids as bytes, and all
//! forms of references and copies. Unknown keys are skipped. Compressed documents are refused.

use alloc::vec::Vec;

use quipu_arena::Scope;

use crate::error::Fault;
use crate::format::{Format, sealed};
use crate::message::{BatchTimer, Counter, Gauge, MetricType, MetricUnion};
use crate::pieces::{Byte, Each, LeDouble, Literal, Piece, Varint, append};
use crate::reader::{Reader, zigzag};

mod items;
#[cfg(test)]
mod tests;

use items::{DOUBLE, VARINT, ZIGZAG, object};

/// Sereal as the Go library writes structures: raw documents of version 3, with ids as lists of
/// integers. The library writes the fields in random order; here they follow the order of
/// declaration.
///
/// ```
/// use quipu_wire::{Counter, Metric, Sereal};
///
/// let mut out = Vec::new();
/// Counter { id: b"hits", value: 7 }.encode::<Sereal>(&mut out)?;
/// assert_eq!(out, b"=\xf3rl\x03\0,gCounter*\x02'\x02ID+\x04 h i t s'\x05Value\x07");
/// # Ok::<(), quipu_wire::Error>(())
/// ```
#[derive(Debug)]
pub struct Sereal(());

impl sealed::Sealed for Sereal {}

impl Format for Sereal {
    const NAME: &'static str = "sereal";
    type WriterState = ();
    type ReaderState = ();

    #[inline(always)]
    fn write_counter(message: &Counter<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        let Counter { id, value } = *message;
        let pieces = (
            Literal(b"=\xf3rl\x03\0,\x67Counter*\x02'\x02ID+"),
            Varint(id.len() as u64),
            Integers(id),
            Literal(b"'\x05Value"),
            Integer(value),
        );
        append(out, pieces);
        Ok(())
    }

    #[inline(always)]
    fn write_batch_timer(message: &BatchTimer<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        let BatchTimer { id, values } = *message;
        let pieces = (
            Literal(b"=\xf3rl\x03\0,\x6aBatchTimer*\x02'\x02ID+"),
            Varint(id.len() as u64),
            Integers(id),
            Literal(b"'\x06Values+"),
            Varint(values.len() as u64),
            Each(values, |value| (Byte(DOUBLE), LeDouble(value))),
        );
        append(out, pieces);
        Ok(())
    }

    #[inline(always)]
    fn write_gauge(message: &Gauge<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        let Gauge { id, value } = *message;
        let pieces = (
            Literal(b"=\xf3rl\x03\0,\x65Gauge*\x02'\x02ID+"),
            Varint(id.len() as u64),
            Integers(id),
            Literal(b"'\x05Value#"),
            LeDouble(value),
        );
        append(out, pieces);
        Ok(())
    }

    #[inline(always)]
    fn write_union(message: &MetricUnion<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        let MetricUnion { metric_type: MetricType(metric_type), id, counter, timer, gauge } =
            *message;
        let pieces = (
            Literal(b"=\xf3rl\x03\0,\x6bMetricUnion*\x05'\x04Type"),
            Integer(i64::from(metric_type)),
            Literal(b"'\x02ID+"),
            Varint(id.len() as u64),
            Integers(id),
            Literal(b"'\x0aCounterVal"),
            Integer(counter),
            Literal(b"'\x0dBatchTimerVal+"),
            Varint(timer.len() as u64),
            Each(timer, |value| (Byte(DOUBLE), LeDouble(value))),
            Literal(b"'\x08GaugeVal#"),
            LeDouble(gauge),
        );
        append(out, pieces);
        Ok(())
    }

    #[inline(always)]
    fn read_counter<'m>(input: &mut Reader<'m>, scope: &Scope<'m>) -> Result<Counter<'m>, Fault> {
        let mut message = Counter { id: &[], value: 0 };
        let usual = b"=\xf3rl\x03\0,\x67Counter*\x02";
        object(input, usual, 2, |items| {
            if items.input.skip_literal(b"'\x02ID") {
                message.id = items.id(scope)?;
            } else if items.input.skip_literal(b"'\x05Value") {
                message.value = items.integer()?;
            } else {
                message = items.aside(move |items| {
                    let mut message = message;
                    match items.key()? {
                        b"ID" | b"iD" => message.id = items.id(scope)?,
                        b"Value" | b"value" => message.value = items.integer()?,
                        _ => items.skip()?,
                    }
                    Ok(message)
                })?;
            }
            Ok(())
        })?;
        Ok(message)
    }

    #[inline(always)]
    fn read_batch_timer<'m>(
        input: &mut Reader<'m>,
        scope: &Scope<'m>,
    ) -> Result<BatchTimer<'m>, Fault> {
        let mut message = BatchTimer { id: &[], values: &[] };
        let usual = b"=\xf3rl\x03\0,\x6aBatchTimer*\x02";
        object(input, usual, 2, |items| {
            if items.input.skip_literal(b"'\x02ID") {
                message.id = items.id(scope)?;
            } else if items.input.skip_literal(b"'\x06Values") {
                message.values = items.doubles(scope)?;
            } else {
                message = items.aside(move |items| {
                    let mut message = message;
                    match items.key()? {
                        b"ID" | b"iD" => message.id = items.id(scope)?,
                        b"Values" | b"values" => message.values = items.doubles(scope)?,
                        _ => items.skip()?,
                    }
                    Ok(message)
                })?;
            }
            Ok(())
        })?;
        Ok(message)
    }

    #[inline(always)]
    fn read_gauge<'m>(input: &mut Reader<'m>, scope: &Scope<'m>) -> Result<Gauge<'m>, Fault> {
        let mut message = Gauge { id: &[], value: 0.0 };
        let usual = b"=\xf3rl\x03\0,\x65Gauge*\x02";
        object(input, usual, 2, |items| {
            if items.input.skip_literal(b"'\x02ID") {
                message.id = items.id(scope)?;
            } else if items.input.skip_literal(b"'\x05Value") {
                message.value = items.double()?;
            } else {
                message = items.aside(move |items| {
                    let mut message = message;
                    match items.key()? {
                        b"ID" | b"iD" => message.id = items.id(scope)?,
                        b"Value" | b"value" => message.value = items.double()?,
                        _ => items.skip()?,
                    }
                    Ok(message)
                })?;
            }
            Ok(())
        })?;
        Ok(message)
    }

    #[inline(always)]
    fn read_union<'m>(input: &mut Reader<'m>, scope: &Scope<'m>) -> Result<MetricUnion<'m>, Fault> {
        let mut message = MetricUnion::ZERO;
        let usual = b"=\xf3rl\x03\0,\x6bMetricUnion*\x05";
        object(input, usual, 5, |items| {
            if items.input.skip_literal(b"'\x04Type") {
                message.metric_type = items.metric_type()?;
            } else if items.input.skip_literal(b"'\x02ID") {
                message.id = items.id(scope)?;
            } else if items.input.skip_literal(b"'\x0aCounterVal") {
                message.counter = items.integer()?;
            } else if items.input.skip_literal(b"'\x0dBatchTimerVal") {
                message.timer = items.doubles(scope)?;
            } else if items.input.skip_literal(b"'\x08GaugeVal") {
                message.gauge = items.double()?;
            } else {
                message = items.aside(move |items| {
                    let mut message = message;
                    match items.key()? {
                        b"Type" | b"type" => message.metric_type = items.metric_type()?,
                        b"ID" | b"iD" => message.id = items.id(scope)?,
                        b"CounterVal" | b"counterVal" => message.counter = items.integer()?,
                        b"BatchTimerVal" | b"batchTimerVal" => {
                            message.timer = items.doubles(scope)?
                        }
                        b"GaugeVal" | b"gaugeVal" => message.gauge = items.double()?,
                        _ => items.skip()?,
                    }
                    Ok(message)
                })?;
            }
            Ok(())
        })?;
        Ok(message)
    }
}

/// An integer in its shortest form.
struct Integer(i64);

// SAFETY: This only writes its pieces.
unsafe impl Piece for Integer {
    #[inline(always)]
    fn bound(&self) -> usize {
        11
    }

    #[inline(always)]
    unsafe fn put(&self, at: *mut u8) -> *mut u8 {
        let number = self.0;
        // SAFETY: `at` is valid for 11 bytes: a byte and the 10 of a varint.
        unsafe {
            if (-16..16).contains(&number) {
                Byte(number as u8 & 0x1f).put(at)
            } else if number > 0 {
                (Byte(VARINT), Varint(number as u64)).put(at)
            } else {
                (Byte(ZIGZAG), Varint(zigzag(number))).put(at)
            }
        }
    }
}

/// Bytes, each written as an integer: 1 byte below 16, 3 bytes from 128 on, and 2 bytes in between.
/// In a string, nearly all take 2 bytes.
struct Integers<'a>(&'a [u8]);

// SAFETY: This writes at most 3 bytes for each byte. Steps of several bytes write 2 for each.
unsafe impl Piece for Integers<'_> {
    #[inline(always)]
    fn bound(&self) -> usize {
        self.0.len().saturating_mul(3)
    }

    #[inline(always)]
    unsafe fn put(&self, at: *mut u8) -> *mut u8 {
        // SAFETY: `at` is valid for 3 bytes for each byte.
        unsafe {
            match put_text(self.0, at) {
                Some(end) => end,
                None => put_any(self.0, at),
            }
        }
    }
}

/// Writes 8 bytes at a time; the last 8 overlap the previous ones. Returns `None` if there are
/// fewer, or if some do not take 2 bytes.
///
/// # Safety
///
/// `at` is valid for writes of 2 bytes for each byte.
#[inline(always)]
unsafe fn put_text(bytes: &[u8], at: *mut u8) -> Option<*mut u8> {
    let last = bytes.len().checked_sub(8)?;
    let mut index = 0;
    loop {
        let block = bytes[index..].first_chunk()?;
        if !is_text(block) {
            return None;
        }
        // SAFETY: The block consists of 8 bytes from the index on, and `at` is valid for 2 for
        // each.
        unsafe { at.add(2 * index).cast::<[[u8; 2]; 8]>().write_unaligned(tagged(block)) };
        if index == last {
            // SAFETY: 2 bytes were written for each byte.
            return Some(unsafe { at.add(2 * bytes.len()) });
        }
        index = (index + 8).min(last);
    }
}

/// Returns whether all bytes are integers of 2 bytes.
#[inline(always)]
fn is_text(block: &[u8; 8]) -> bool {
    // Bytes from 128 on are negative.
    block.iter().fold(true, |all, byte| all & (*byte as i8 >= 16))
}

/// Adds the tag of an integer to each byte.
#[inline(always)]
fn tagged(block: &[u8; 8]) -> [[u8; 2]; 8] {
    // The compiler vectorizes this, but neither a `map` nor blocks of 16 bytes.
    let mut pairs = [[VARINT, 0]; 8];
    for (pair, byte) in pairs.iter_mut().zip(block) {
        pair[1] = *byte;
    }
    pairs
}

/// # Safety
///
/// `at` is valid for writes of 3 bytes for each byte.
#[inline(never)]
unsafe fn put_any(bytes: &[u8], mut at: *mut u8) -> *mut u8 {
    for byte in bytes {
        // SAFETY: `at` is valid for 3 bytes for each remaining byte.
        unsafe {
            at = if *byte < 16 {
                Byte(*byte).put(at)
            } else {
                // An 8-bit varint is the byte itself, followed by a 1 if its highest bit is set.
                let end = (Byte(VARINT), Byte(*byte), Byte(1)).put(at);
                end.sub(usize::from(*byte < 128))
            };
        }
    }
    at
}
