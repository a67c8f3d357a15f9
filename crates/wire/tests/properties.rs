//! Properties of every format: messages come back bit for bit. Input from outside yields a message
//! or an error, within memory and time that are proportional to its length.

#![allow(clippy::unwrap_used)]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::{Duration, Instant};

use common::hard::{as_kind, messages, noise, small_messages};
use common::{Owned, carried, encoded, hex, optional_end, read_any, same, seed_message, unhex};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use quipu_arena::Arena;
use quipu_wire::{AnyFormat, Kind};

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config(128))]

    #[test]
    fn messages_come_back(message in messages(), before in vec(any::<u8>(), 0..4)) {
        for format in AnyFormat::all() {
            comes_back(format, &message, &before);
        }
    }

    #[test]
    fn beginnings_are_incomplete(message in messages(), drawn in vec(any::<Index>(), 32)) {
        for format in AnyFormat::all() {
            let Some(bytes) = written(format, &message) else { continue };
            let len = bytes.len() - optional_end(format);
            let drawn = drawn.iter().map(|cut| cut.index(len.max(1))).filter(|_| len > 200);
            for cut in (0..len.min(200)).chain(drawn) {
                is_incomplete(format, message.kind, &bytes[..cut]);
            }
        }
    }

    #[test]
    fn bytes_after_a_message_are_an_error_with_an_offset(
        message in messages(),
        more in vec(any::<u8>(), 1..9),
    ) {
        for format in AnyFormat::all().filter(AnyFormat::is_delimited) {
            let Some(bytes) = written(format, &message) else { continue };
            // No format interprets a control character as white space or as the end of an item.
            for more in [&[&[1], &more[..]].concat(), &bytes] {
                let long = [&bytes, &more[..]].concat();
                let error = read_any(format, message.kind, &long).unwrap_err();
                assert_eq!(error.offset(), Some(bytes.len() as u64), "{error}: {}", hex(&long));
                assert!(!error.is_incomplete(), "{error}: {}", hex(&long));
            }
        }
    }

    #[test]
    fn every_flip_of_a_bit(message in small_messages()) {
        for format in AnyFormat::all() {
            let Some(mut bytes) = written(format, &message) else { continue };
            for bit in 0..bytes.len().min(150) * 8 {
                bytes[bit / 8] ^= 1 << (bit % 8);
                drop(read_any(format, message.kind, &bytes));
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }
}

proptest! {
    #![proptest_config(config(1024))]

    #[test]
    fn any_bytes(kind in select(Kind::ALL), bytes in vec(any::<u8>(), 0..100)) {
        for format in AnyFormat::all() {
            is_bounded(format, kind, &bytes);
        }
    }

    #[test]
    fn bent_messages(
        message in small_messages(),
        bends in vec((0..5_u8, any::<Index>(), any::<Index>(), any::<u8>()), 1..4),
    ) {
        for format in AnyFormat::all() {
            let Some(mut bytes) = written(format, &message) else { continue };
            for (how, from, to, byte) in &bends {
                bend(&mut bytes, *how, *from, *to, *byte);
            }
            is_bounded(format, message.kind, &bytes);
        }
    }
}

/// These bytes can be lengths, counts or offsets.
#[test]
fn extreme_numbers_at_every_place() {
    let mut small = Owned::of(&seed_message(Kind::MetricUnion));
    small.id.truncate(3);
    small.timer.truncate(2);
    for format in AnyFormat::all() {
        for &kind in Kind::ALL {
            let messages = [Owned::of(&seed_message(kind)), as_kind(&small, kind)];
            for bytes in messages.iter().filter_map(|message| written(format, message)) {
                for width in [1, 2, 4, 8] {
                    for at in 0..bytes.len().saturating_sub(width - 1) {
                        for number in extremes(width) {
                            let mut bytes = bytes.clone();
                            bytes[at..at + width].copy_from_slice(&number);
                            is_bounded(format, kind, &bytes);
                        }
                    }
                }
            }
        }
    }
}

/// Repeats any piece of a message, for example lists in lists, or a field that occurs a thousand
/// times.
#[test]
fn pieces_repeated() {
    let mut message = Owned::of(&seed_message(Kind::MetricUnion));
    message.id.truncate(2);
    message.timer = vec![0.5, 3.0];
    message.counter = 300;
    for format in AnyFormat::all() {
        let Some(bytes) = written(format, &message) else { continue };
        let repeat = |from: usize, to: usize, total: usize| {
            let piece = &bytes[from..to];
            [&bytes[..to], &piece.repeat(total / piece.len()), &bytes[to..]].concat()
        };
        let mut swallowed = vec![];
        for from in 0..bytes.len() {
            for to in from + 1..bytes.len().min(from + 24) {
                let bomb = repeat(from, to, 512);
                is_bounded(format, message.kind, &bomb);
                if seen(format, message.kind, &bomb) > to + 256 {
                    swallowed.push((from, to));
                }
            }
        }
        // If the reader continues after the piece, a longer input shows whether its time is linear.
        for (from, to) in swallowed.iter().step_by(swallowed.len() / 16 + 1) {
            is_linear(format, message.kind, &repeat(*from, *to, 1 << 17));
        }
    }
}

/// Nested values that a reader must skip or refuse.
#[test]
fn nests() {
    const DEPTH: usize = 1 << 15;
    for format in AnyFormat::all() {
        let bombs: &[(&str, &str)] = match format.as_str() {
            "tinylib-msgp" | "ugorji-msgpack" => &[
                ("81a178", "91"),
                ("81a178", "81a178"),
                ("81a178", "dd00000001"),
                ("81a178", "ddffffffff"),
                ("", "8191"),
            ],
            "thrift" => &[
                ("", "0c0009"),
                ("0f0009", "0f00000001"),
                ("0f0009", "0fffffffff"),
                ("0d0009", "080d0000000100000000"),
                ("0e0009", "0c0000000103000900"),
            ],
            "thrift-compact" => {
                &[("", "9c"), ("9c", "1c"), ("99", "19"), ("9b", "015b00"), ("", "1100")]
            }
            "protobuf" | "gogo-protobuf" | "protobuf-via-gogo" | "dedis-protobuf" => {
                &[("", "7b"), ("", "7b7c"), ("", "7a00"), ("", "110000000000000000")]
            }
            "json" | "easyjson" => &[
                ("7b2278223a", "5b"),
                ("", "7b2278223a"),
                ("7b2278223a22", "5c75303030"),
                ("7b224944223a22", "5c5c"),
                ("", "20"),
                ("7b2256616c756573223a5b", "312c"),
            ],
            "hprose" => &[
                ("", "6331227822317b733122782261317b"),
                ("6331227822317b73312278227d6f307b", "61317b"),
                ("6331227822317b73312278227d6f307b", "6d317b"),
                ("", "63302222307b7d"),
            ],
            "sereal" => &[
                ("3df3726c0300", "28"),
                ("3df3726c0300", "41"),
                ("3df3726c0300", "51617a"),
                ("3df3726c03002c277851617a", "41"),
                ("3df3726c0300", "3f"),
            ],
            "gob" => &[("", "01"), ("", "0302010003"), ("", "04ff8100")],
            "capnp-packed" => &[("", "00ff"), ("", "ff0000000000000000ff")],
            _ => &[("", "00"), ("", "ff"), ("", "5b"), ("", "01")],
        };
        for &kind in Kind::ALL {
            for (start, piece) in bombs {
                let bomb = [unhex(start), unhex(piece).repeat(DEPTH)].concat();
                is_linear(format, kind, &bomb);
            }
            if format.as_str() == "bson" {
                is_linear(format, kind, &nested_documents(DEPTH));
            }
        }
    }
}

/// Returns BSON with a field "x" that contains a document with a field "x", and so on.
fn nested_documents(depth: usize) -> Vec<u8> {
    let mut bytes = vec![];
    for level in (0..depth).rev() {
        bytes.extend_from_slice(&(8 * level as u32 + 13).to_le_bytes());
        bytes.extend_from_slice(if level > 0 { b"\x03x\0" } else { b"\x0ax\0\0\0\0\0\0" });
    }
    bytes.resize(8 * depth + 5, 0);
    bytes
}

/// Checks that long lists and ids take time in proportion to their length.
#[test]
fn long_messages() {
    for format in AnyFormat::all() {
        for &kind in Kind::ALL {
            let mut message = Owned::of(&seed_message(kind));
            message.id = noise(1 << 16, 1);
            message.timer = (0..1 << 13).map(|number| f64::from(number) / 8.0).collect();
            let Some(bytes) = written(format, &message) else { continue };
            is_linear(format, kind, &bytes);
        }
    }
}

/// Returns the encoded message, if the format can represent it.
fn written(format: AnyFormat, message: &Owned) -> Option<Vec<u8>> {
    carried(format.as_str(), message).map(|_| encoded(format, &message.message()))
}

fn comes_back(format: AnyFormat, message: &Owned, before: &[u8]) {
    let name = format.as_str();
    let mut out = before.to_vec();
    let result = format.encode(&message.message(), &mut out);
    let Some(expected) = carried(name, message) else {
        let error = result.expect_err(name);
        assert_eq!((error.format(), error.offset()), (name, None));
        assert!(!error.is_incomplete() && out == before, "{error}");
        return;
    };
    result.unwrap_or_else(|error| panic!("{name} {message:?}: {error}"));
    assert_eq!(out[..before.len()], *before, "{name}");
    let bytes = &out[before.len()..];
    let mut arena = Arena::new();
    let read = format
        .decode(message.kind, bytes, &arena.as_scope())
        .unwrap_or_else(|error| panic!("{name} {message:?} {}: {error}", hex(bytes)));
    assert!(same(&read, &expected.message()), "{name} {}: {message:?}, {read:?}", hex(bytes));
}

fn is_incomplete(format: AnyFormat, kind: Kind, beginning: &[u8]) {
    let read = read_any(format, kind, beginning);
    if format.is_delimited() {
        let error = read.expect_err(format.as_str());
        assert!(error.is_incomplete(), "{kind:?} {}: {error}", hex(beginning));
    }
}

fn bend(bytes: &mut Vec<u8>, how: u8, from: Index, to: Index, byte: u8) {
    if bytes.is_empty() {
        bytes.push(byte);
    }
    let (from, to) = (from.index(bytes.len()), to.index(bytes.len()));
    let (from, to) = (from.min(to), from.max(to));
    match how {
        0 => bytes[from] = byte,
        1 => bytes.insert(from, byte),
        2 => drop(bytes.drain(from..to.min(from + 8))),
        3 => {
            let piece = bytes[from..to].to_vec();
            drop(bytes.splice(to..to, piece));
        }
        _ => bytes.swap(from, to),
    }
}

fn extremes(width: usize) -> [Vec<u8>; 6] {
    let mut high = vec![0xff; width];
    high[0] = 0x7f;
    let mut low = vec![0; width];
    low[0] = 0x80;
    let reversed = |bytes: &[u8]| bytes.iter().rev().copied().collect();
    let (high_last, low_last) = (reversed(&high), reversed(&low));
    [vec![0; width], vec![0xff; width], high_last, low_last, high, low]
}

/// Returns how many bytes the reader has passed.
fn seen(format: AnyFormat, kind: Kind, bytes: &[u8]) -> usize {
    let mut arena = Arena::new();
    match format.decode(kind, bytes, &arena.as_scope()) {
        Ok(_) => bytes.len(),
        Err(error) => error.offset().unwrap() as usize,
    }
}

/// Returns how much memory a byte of input can take. A list of small numbers takes 8 bytes for
/// each, twice while the list grows. A packed byte of capnp stands for 128 words of zeros.
fn growth(format: AnyFormat) -> usize {
    if format.as_str() == "capnp-packed" { 64 << 10 } else { 64 }
}

/// Checks that reading any bytes takes memory in proportion to their number, and that we can write
/// each message that was read.
fn is_bounded(format: AnyFormat, kind: Kind, bytes: &[u8]) {
    let peak = peak_of(format, kind, bytes);
    let most = growth(format) * bytes.len() + 4096;
    assert!(peak <= most, "{} {}: {peak} bytes", format.as_str(), hex(bytes));
    drop(read_any(format, kind, bytes));
}

/// Checks the time. If each byte were examined again for each item before it, this number of bytes
/// would take seconds instead of milliseconds.
fn is_linear(format: AnyFormat, kind: Kind, bytes: &[u8]) {
    let limit = Duration::from_millis(20) + Duration::from_micros(1) * bytes.len() as u32;
    let limit = limit * (growth(format) / 64) as u32;
    let mut fastest = Duration::MAX;
    // Tried several times, because a busy machine can be slow.
    for _ in 0..10 {
        let start = Instant::now();
        let peak = peak_of(format, kind, bytes);
        assert!(peak <= growth(format) * bytes.len() + 4096, "{}: {peak} bytes", format.as_str());
        fastest = fastest.min(start.elapsed());
        if fastest < limit {
            return;
        }
    }
    let start = hex(&bytes[..bytes.len().min(200)]);
    panic!("{} {kind:?}: {fastest:?} for {} bytes: {start}", format.as_str(), bytes.len());
}

/// Measures the peak memory of reading, and checks that all of it is freed.
fn peak_of(format: AnyFormat, kind: Kind, bytes: &[u8]) -> usize {
    let before = LIVE.get();
    PEAK.set(before);
    let mut arena = Arena::new();
    drop(format.decode(kind, bytes, &arena.as_scope()));
    drop(arena);
    let kept = LIVE.get() - before;
    let peak = (PEAK.get() - before) as usize;
    // This is below zero if this call freed memory from an earlier call.
    assert!(kept <= 0, "{} keeps {kept} bytes: {kind:?} {}", format.as_str(), hex(bytes));
    peak
}

thread_local! {
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

struct Counted;

#[global_allocator]
static COUNTED: Counted = Counted;

impl Counted {
    fn change(by: isize) {
        // A thread can free memory after its thread-locals are gone.
        let _ = LIVE.try_with(|live| {
            live.set(live.get() + by);
            let _ = PEAK.try_with(|peak| peak.set(peak.get().max(live.get())));
        });
    }
}

// SAFETY: The system's allocator does all the work. Counting neither allocates nor panics.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Counted::change(layout.size() as isize);
        // SAFETY: The caller's obligation.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        Counted::change(-(layout.size() as isize));
        // SAFETY: The caller's obligation.
        unsafe { System.dealloc(at, layout) }
    }
}
