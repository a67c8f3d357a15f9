//! Code that the targets for wire formats share.

#![allow(dead_code)]

use quipu_arena::Arena;
use quipu_wire::{AnyFormat, Error, Kind, Message};

/// The formats. Append new ones at the end, because saved inputs contain these indices.
pub const NAMES: &[&str] = &[
    "quipu",
    "quipu-compact",
    "protobuf",
    "gogo-protobuf",
    "protobuf-via-gogo",
    "dedis-protobuf",
    "vmihailenco-msgpack",
    "tinylib-msgp",
    "ugorji-msgpack",
    "thrift",
    "thrift-compact",
    "gencode",
    "colfer",
    "xdr",
    "flatbuffers",
    "capnp",
    "capnp-packed",
    "gob",
    "json",
    "easyjson",
    "bson",
    "sereal",
    "hprose",
    "tsv",
    "postcard",
    "bitcode",
    "rkyv",
    "statsd",
    "dogstatsd",
];

/// The groups of formats whose decoders must agree on the same bytes.
pub const DIALECTS: &[&[&str]] = &[
    &["protobuf", "gogo-protobuf", "protobuf-via-gogo"],
    &["tinylib-msgp", "ugorji-msgpack"],
    &["json", "easyjson"],
    &["quipu", "quipu-compact"],
];

/// A decoded message that borrows nothing from the decoder.
#[derive(Clone, Debug)]
pub struct Read {
    pub kind: Kind,
    metric_type: i8,
    id: Vec<u8>,
    counter: i64,
    timer: Vec<u64>,
    gauge: u64,
}

impl Read {
    pub fn of(message: &Message<'_>) -> Read {
        let union = message.to_union();
        Read {
            kind: message.kind(),
            metric_type: union.metric_type.0,
            id: union.id.to_vec(),
            counter: union.counter,
            timer: union.timer.iter().map(|value| value.to_bits()).collect(),
            gauge: union.gauge.to_bits(),
        }
    }

    /// Returns whether two messages are equal. This ignores properties that some formats lose, such
    /// as the sign of a zero or the payload of a NaN.
    pub fn is_like(&self, other: &Read) -> bool {
        let alike = |(a, b): (&u64, &u64)| {
            let (x, y) = (f64::from_bits(*a), f64::from_bits(*b));
            a == b || x.is_nan() && y.is_nan() || x == 0.0 && y == 0.0
        };
        (self.kind, self.metric_type, &self.id, self.counter, self.timer.len())
            == (other.kind, other.metric_type, &other.id, other.counter, other.timer.len())
            && self.timer.iter().zip(&other.timer).all(alike)
            && alike((&self.gauge, &other.gauge))
    }

    /// Returns whether JSON can represent the message.
    pub fn is_finite(&self) -> bool {
        let mut values = self.timer.iter().chain([&self.gauge]);
        values.all(|bits| f64::from_bits(*bits).is_finite())
    }
}

pub fn kind(byte: u8) -> Kind {
    Kind::ALL[usize::from(byte & 3)]
}

/// Decodes a message. An error must contain its position in the input.
pub fn decode(format: AnyFormat, kind: Kind, bytes: &[u8]) -> Result<Read, Error> {
    let mut arena = Arena::new();
    let result = format.decode(kind, bytes, &arena.as_scope()).map(|message| Read::of(&message));
    match &result {
        Ok(read) => assert_eq!(read.kind, kind),
        Err(error) => {
            let offset = error.offset().expect("reading fails somewhere");
            assert!(offset <= bytes.len() as u64, "{error}");
            assert_eq!(error.format(), format.as_str());
        }
    }
    result
}

/// Checks that a decoded message survives a round trip.
pub fn comes_back(format: AnyFormat, kind: Kind, bytes: &[u8]) {
    let mut arena = Arena::new();
    let Ok(message) = format.decode(kind, bytes, &arena.as_scope()) else {
        assert!(decode(format, kind, bytes).is_err());
        return;
    };
    let mut once = Vec::new();
    if let Err(error) = format.encode(&message, &mut once) {
        // Line decoders take ids literally, and tags that only one dialect writes.
        let is_plain = core::str::from_utf8(message.id()).is_ok_and(|id| !id.contains("|#"));
        let lines = format.as_str().ends_with("statsd");
        assert!(lines && !is_plain, "{message:?}: {error}");
        return;
    }
    let mut arena = Arena::new();
    let again = format.decode(kind, &once, &arena.as_scope()).expect("what was written is read");
    assert!(Read::of(&again).is_like(&Read::of(&message)), "{message:?} {again:?}");
    let mut twice = Vec::new();
    format.encode(&again, &mut twice).expect("what was read can be written");
    assert_eq!(once, twice, "{message:?} {again:?}");
}
