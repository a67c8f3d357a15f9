//! Decodes arbitrary bytes as a stream, at once by `next`, and in pieces by `for_each`. Both must
//! find the same messages and errors.
//!
//! The first byte selects the format, the second the kind of message and the framing, the third the
//! length of the pieces. Bit 4 of the second byte makes the blocks of a quipu stream sound, because
//! a mutation hardly ever produces the right checksum.

#![no_main]

#[path = "../fixed_seed.rs"]
mod fixed_seed;

use libfuzzer_sys::fuzz_target;
use quipu_arena::Arena;
use quipu_wire::{AnyDecoder, AnyFormat, Error, Framing, Message};

use wire_shared::{NAMES, Read, kind};

mod wire_shared;

fuzz_target!(|input: &[u8]| {
    let Some((&[format, form, longest], bytes)) = input.split_first_chunk() else { return };
    let Ok(format) = NAMES[usize::from(format) % NAMES.len()].parse::<AnyFormat>() else { return };
    let framings = [Framing::Own, Framing::U32Le, Framing::Varint, Framing::None];
    let decoder = || format.decoder(kind(form), framings[usize::from(form >> 2 & 3)]);
    let mut bytes = bytes.to_vec();
    if form & 0x10 != 0 && format.as_str().starts_with("quipu") {
        seal(&mut bytes);
    }

    let whole = read(decoder(), [&bytes[..]], drain);
    let mut rest = &bytes[..];
    let mut state = u32::from(longest);
    let pieces = read(
        decoder(),
        std::iter::from_fn(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let len = (state >> 8) as usize % (usize::from(longest) + 1) + 1;
            let (piece, behind) = rest.split_at(len.min(rest.len()));
            rest = behind;
            (!piece.is_empty()).then_some(piece)
        }),
        drain_by_each,
    );
    // A TSV line is decoded before its line feed arrives. If another byte follows, the decoder can
    // already have returned this line, although it is malformed.
    assert!(format.as_str() == "tsv" || whole == pieces, "{whole:?}, in pieces {pieces:?}");
});

/// Gives each block of a quipu stream the length up to the next block or to the end, the next
/// sequence, and the right checksum (`docs/formats.md`, 8.4).
fn seal(stream: &mut [u8]) {
    const HEADER: usize = 24;
    let begins = |bytes: &[u8]| bytes == b"\xfc\x71\x77\x02";
    let mut starts: Vec<usize> = (0..stream.len().saturating_sub(HEADER))
        .filter(|at| begins(&stream[*at..at + 4]))
        .collect();
    // A block cannot begin within the header of another block.
    starts.dedup_by(|next, before| *next < *before + HEADER);
    let ends = starts.iter().skip(1).copied().chain([stream.len()]).collect::<Vec<_>>();
    for (sequence, (start, end)) in starts.into_iter().zip(ends).enumerate() {
        let block = &mut stream[start..end];
        let len = (block.len() - HEADER) as u32;
        block[8..12].copy_from_slice(&len.to_le_bytes());
        block[12..16].copy_from_slice(&(sequence as u32).to_le_bytes());
        let sum = crc32fast::hash(&block[8..]);
        block[4..8].copy_from_slice(&sum.to_le_bytes());
    }
}

/// Formats all messages and errors of a stream.
fn read<'p>(
    mut decoder: AnyDecoder,
    pieces: impl IntoIterator<Item = &'p [u8]>,
    drain: fn(&mut AnyDecoder, &mut Vec<String>),
) -> Vec<String> {
    let mut found = Vec::new();
    for piece in pieces {
        decoder.push(piece);
        drain(&mut decoder, &mut found);
    }
    decoder.end();
    drain(&mut decoder, &mut found);
    found
}

fn drain(decoder: &mut AnyDecoder, found: &mut Vec<String>) {
    let mut arena = Arena::new();
    loop {
        let mut guard = arena.guard();
        let before = decoder.position();
        match decoder.next(&guard.scope()) {
            Ok(Some(message)) => found.push(format!("{:?}", Read::of(&message))),
            Ok(None) => return,
            Err(error) => {
                report(&error, found);
                // Without a length, we cannot continue, so the same error would repeat.
                if decoder.position() == before {
                    return;
                }
            }
        }
    }
}

fn drain_by_each(decoder: &mut AnyDecoder, found: &mut Vec<String>) {
    let mut arena = Arena::new();
    loop {
        let before = decoder.position();
        let take = |message: Message<'_>| found.push(format!("{:?}", Read::of(&message)));
        match decoder.for_each(&mut arena, take) {
            Ok(()) => return,
            Err(error) => report(&error, found),
        }
        if decoder.position() == before {
            return;
        }
    }
}

fn report(error: &Error, found: &mut Vec<String>) {
    // A truncated JSON number is another number, and fails elsewhere.
    let json = error.format().ends_with("json");
    let text = if json { "a fault".into() } else { error.to_string() };
    if found.last() != Some(&text) {
        found.push(text);
    }
}
