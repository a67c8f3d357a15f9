//! Bytes from the original libraries: we write the same bytes, and can read them.
//!
//! `vectors/README.md` documents the origin of the bytes, and the losses of each library.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Line, as_read, lines, random, rows, seed};
use quipu_arena::Arena;
use quipu_wire::{AnyFormat, Kind};

#[test]
fn seed_messages() {
    for (row, format) in rows() {
        let mut seen = 0;
        for line in seed().lines() {
            let [name, kind, len, bytes] = *line.split('\t').collect::<Vec<_>>() else { panic!() };
            if name != row {
                continue;
            }
            seen += 1;
            let kind = common::kind(kind);
            let message = common::seed_message(kind);
            let mut out = Vec::new();
            format.encode(&message, &mut out).unwrap();
            assert_eq!(common::hex(&out), bytes, "{row} {kind:?}");
            assert_eq!(out.len(), len.parse::<usize>().unwrap());
            let mut arena = Arena::new();
            assert_eq!(format.decode(kind, &out, &arena.as_scope()).unwrap(), message, "{row}");
        }
        assert_eq!(seen, Kind::ALL.len(), "{row}");
    }
}

#[test]
fn random_messages() {
    let text = random();
    let mut checked = 0;
    for (row, format) in rows() {
        for line in lines(&text, row) {
            check(row, format, &line);
            checked += 1;
        }
    }
    assert!(checked >= 240 * rows().count());
}

fn check(row: &str, format: AnyFormat, line: &Line) {
    let mut out = Vec::new();
    let written = format.encode(&line.message(), &mut out);
    let Some(bytes) = &line.bytes else {
        assert!(written.is_err(), "{row}: the library refuses {:?}", line.message());
        return;
    };
    written.unwrap_or_else(|error| panic!("{row} {:?}: {error}", line.message()));
    assert!(
        out == *bytes,
        "{row} {:?}\nours   {}\ntheirs {}",
        line.message(),
        common::hex(&out),
        common::hex(bytes)
    );
    let mut arena = Arena::new();
    let scope = arena.as_scope();
    let read = format
        .decode(line.kind, bytes, &scope)
        .unwrap_or_else(|error| panic!("{row} {:?}: {error}", line.message()));
    assert!(
        common::same(&read, &as_read(row, line.message())),
        "{row}: wrote {:?}, read {read:?}",
        line.message()
    );
}
