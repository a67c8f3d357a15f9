//! Decodes arbitrary bytes as a message. A decoded message must survive a round trip.
//!
//! You can set `WIRE_FORMAT` to a format; the folder of the corpus has the same name. Otherwise,
//! all formats are tried. The first byte selects the kind of message.

#![no_main]

#[path = "../fixed_seed.rs"]
mod fixed_seed;

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use quipu_wire::AnyFormat;

mod wire_shared;

fuzz_target!(|input: &[u8]| {
    static FORMATS: OnceLock<Vec<AnyFormat>> = OnceLock::new();
    let formats = FORMATS.get_or_init(|| match std::env::var("WIRE_FORMAT") {
        Ok(name) => vec![name.parse().expect("WIRE_FORMAT is the name of a format")],
        Err(_) => AnyFormat::all().collect(),
    });
    let Some((&kind, bytes)) = input.split_first() else { return };
    for format in formats {
        wire_shared::comes_back(*format, wire_shared::kind(kind), bytes);
    }
});
