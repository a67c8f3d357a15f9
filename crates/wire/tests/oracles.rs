//! Independent Rust libraries can read our bytes, and we can read theirs. If a format leaves no
//! choice, the bytes are equal.

#![allow(clippy::unwrap_used)]

mod common;

#[path = "oracles/bson.rs"]
mod bson_documents;
#[path = "oracles/capnp.rs"]
mod capnp_structs;
#[path = "oracles/flatbuffers.rs"]
mod flatbuffers_tables;
#[path = "oracles/json.rs"]
mod json_values;
#[path = "oracles/msgpack.rs"]
mod msgpack_values;
#[path = "oracles/protobuf.rs"]
mod protobuf_messages;
#[path = "oracles/thrift.rs"]
mod thrift_structs;
#[path = "oracles/xdr.rs"]
mod xdr_values;

use common::hard::{self, messages, small_messages};
use common::{Line, Owned, carried, encoded, hex, same};
use quipu_arena::Arena;
use quipu_wire::{AnyFormat, Kind};

/// A library that writes and reads a format.
struct Oracle<'o> {
    format: &'o str,
    write: &'o dyn Fn(&Owned) -> Vec<u8>,
    read: &'o dyn Fn(Kind, &[u8]) -> Owned,
    /// Whether the library's bytes equal ours for this message.
    same_bytes: fn(&Owned) -> bool,
    /// Whether the library can write and read this message.
    knows: fn(&Owned) -> bool,
}

impl Oracle<'_> {
    fn check(&self) {
        let name = self.format;
        self.check_vectors();
        let Ok(format) = name.parse::<AnyFormat>() else {
            if cfg!(feature = "all") {
                panic!("no format is called {name}");
            }
            return;
        };
        let mut messages = hard::some(small_messages(), 400, 1);
        messages.extend(hard::some(self::messages(), 60, 2));
        for message in messages.iter().filter(|message| (self.knows)(message)) {
            let Some(expected) = carried(name, message) else { continue };
            let ours = encoded(format, &message.message());
            let theirs = (self.write)(message);
            if (self.same_bytes)(message) {
                assert!(
                    ours == theirs,
                    "{name} {message:?}\nours   {}\ntheirs {}",
                    hex(&ours),
                    hex(&theirs)
                );
            }
            let read = (self.read)(message.kind, &ours);
            assert!(
                same(&read.message(), &expected.message()),
                "{name} {}: wrote {message:?}, they read {read:?}",
                hex(&ours)
            );
            let mut arena = Arena::new();
            let read = format
                .decode(message.kind, &theirs, &arena.as_scope())
                .unwrap_or_else(|error| panic!("{name} {}: {error}", hex(&theirs)));
            assert!(
                same(&read, &expected.message()),
                "{name} {}: they wrote {message:?}, read {read:?}",
                hex(&theirs)
            );
        }
    }
}

impl Oracle<'_> {
    /// Checks that the library also reads the bytes of other libraries.
    fn check_vectors(&self) {
        let (name, text) = (self.format, common::random());
        let lines = common::lines(&text, common::row(name));
        for Line { owned, bytes, .. } in lines.filter(|line| (self.knows)(&line.owned)) {
            let (Some(expected), Some(bytes)) = (carried(name, &owned), bytes) else { continue };
            let read = (self.read)(owned.kind, &bytes);
            assert!(same(&read.message(), &expected.message()), "{name}: {owned:?}, {read:?}");
            assert!(
                !(self.same_bytes)(&owned) || (self.write)(&owned) == bytes,
                "{name}: {owned:?}"
            );
        }
    }
}

/// Returns an empty message of a kind.
fn blank(kind: Kind) -> Owned {
    Owned { kind, metric_type: 0, id: vec![], counter: 0, timer: vec![], gauge: 0.0 }
}

fn always(_: &Owned) -> bool {
    true
}

fn never(_: &Owned) -> bool {
    false
}
