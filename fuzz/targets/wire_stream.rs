//! Reads any bytes as a stream, at once and in pieces: both find the same messages and errors.
//!
//! The first byte picks the format, the second one message and framing, the third one how long the
//! pieces are.

#![no_main]

use libfuzzer_sys::fuzz_target;
use quipu_arena::Arena;
use quipu_wire::{AnyDecoder, AnyFormat, Framing};

use wire_shared::{NAMES, Read, kind};

mod wire_shared;

fuzz_target!(|input: &[u8]| {
    let Some((&[format, form, longest], bytes)) = input.split_first_chunk() else { return };
    let Some(format) = AnyFormat::named(NAMES[usize::from(format) % NAMES.len()]) else { return };
    let framings = [Framing::Own, Framing::U32Le, Framing::Varint, Framing::None];
    let decoder = || format.decoder(kind(form), framings[usize::from(form >> 2 & 3)]);

    let whole = read(decoder(), [bytes]);
    let mut rest = bytes;
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
    );
    // A line of columns is read before its line feed has come. If something else comes, the line was
    // there, or was never one.
    assert!(format.name() == "tsv" || whole == pieces, "{whole:?}, in pieces {pieces:?}");
});

/// All messages and errors of a stream, as texts.
fn read<'p>(mut decoder: AnyDecoder, pieces: impl IntoIterator<Item = &'p [u8]>) -> Vec<String> {
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
                // A number of JSON that is cut is another number, and a fault elsewhere.
                let json = error.format().ends_with("json");
                let text = if json { "a fault".into() } else { error.to_string() };
                let again = found.last() == Some(&text);
                if !again {
                    found.push(text);
                }
                // Where no length says how to go on, the error comes again.
                if decoder.position() == before {
                    return;
                }
            }
        }
    }
}
