//! Reads the same bytes with the readers of all dialects of a format: they understand the same.
//!
//! The first byte says which message.

#![no_main]

use libfuzzer_sys::fuzz_target;
use quipu_wire::AnyFormat;

use wire_shared::{DIALECTS, decode, kind};

mod wire_shared;

fuzz_target!(|input: &[u8]| {
    let Some((&first, bytes)) = input.split_first() else { return };
    let kind = kind(first);
    for dialects in DIALECTS {
        let mut formats = dialects.iter().filter_map(|name| AnyFormat::named(name));
        let Some(one) = formats.next() else { continue };
        let read = decode(one, kind, bytes);
        for other in formats {
            match (&read, decode(other, kind, bytes)) {
                (Ok(a), Ok(b)) => assert!(a.is_like(&b), "{one:?} {a:?} {other:?} {b:?}"),
                (Err(a), Err(b)) => assert_eq!(a.offset(), b.offset(), "{a} {b}"),
                // The words for what is no number are in one dialect of JSON only.
                (Err(_), Ok(b)) if !b.is_finite() => {}
                (a, b) => panic!("{one:?} {a:?} {other:?} {b:?}"),
            }
        }
    }
    // Capnp packed is capnp without its zeros.
    let (Some(plain), Some(packed)) = (AnyFormat::named("capnp"), AnyFormat::named("capnp-packed"))
    else {
        return;
    };
    let (words, []) = bytes.as_chunks() else { return };
    match (decode(plain, kind, bytes), decode(packed, kind, &pack(words))) {
        (Ok(a), Ok(b)) => assert!(a.is_like(&b), "{a:?} {b:?}"),
        (Err(_), Err(_)) => {}
        (a, b) => panic!("plain {a:?}, packed {b:?}"),
    }
});

/// Packs words one by one: runs are never joined, which is longer and means the same.
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
