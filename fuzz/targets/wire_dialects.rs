//! Decodes the same bytes with all dialects of a format, which must agree.
//!
//! The first byte selects the kind of message.

#![no_main]

#[path = "../fixed_seed.rs"]
mod fixed_seed;

use libfuzzer_sys::fuzz_target;
use quipu_wire::AnyFormat;

use wire_shared::{DIALECTS, decode, kind};

mod wire_shared;

fuzz_target!(|input: &[u8]| {
    let Some((&first, bytes)) = input.split_first() else { return };
    let kind = kind(first);
    for dialects in DIALECTS {
        let mut formats = dialects.iter().filter_map(|name| name.parse::<AnyFormat>().ok());
        let Some(one) = formats.next() else { continue };
        let read = decode(one, kind, bytes);
        for other in formats {
            match (&read, decode(other, kind, bytes)) {
                (Ok(a), Ok(b)) => assert!(a.is_like(&b), "{one:?} {a:?} {other:?} {b:?}"),
                (Err(a), Err(b)) => assert_eq!(a.offset(), b.offset(), "{a} {b}"),
                // Only one dialect of JSON can represent infinities and NaN.
                (Err(_), Ok(b)) if !b.is_finite() => {}
                (a, b) => panic!("{one:?} {a:?} {other:?} {b:?}"),
            }
        }
    }
    // Packed capnp is capnp with its zeros compressed.
    let (Ok(plain), Ok(packed)) = ("capnp".parse::<AnyFormat>(), "capnp-packed".parse()) else {
        return;
    };
    let (words, []) = bytes.as_chunks() else { return };
    match (decode(plain, kind, bytes), decode(packed, kind, &pack(words))) {
        (Ok(a), Ok(b)) => assert!(a.is_like(&b), "{a:?} {b:?}"),
        (Err(_), Err(_)) => {}
        (a, b) => panic!("plain {a:?}, packed {b:?}"),
    }
});

/// Packs words one by one. Runs are never joined. The result is longer, but equivalent.
fn pack(words: &[[u8; 8]]) -> Vec<u8> {
    let mut out = Vec::new();
    for word in words {
        let tag = (0..8).fold(0, |tag, index| tag | u8::from(word[index] != 0) << index);
        out.push(tag);
        out.extend(word.iter().filter(|byte| **byte != 0));
        if tag == 0 || tag == 0xff {
            out.push(0);
        }
    }
    out
}
