//! quipu's own format: sizes, and the test vectors for other languages.

#![cfg(feature = "quipu")]
#![allow(clippy::unwrap_used)]

mod common;

use std::path::{Path, PathBuf};

use common::{Owned, hex, in_block_order, lines, random, same, seed_message};
use quipu_arena::Arena;
use quipu_wire::{
    BatchTimer, Counter, Decoder, Framing, Gauge, Kind, Message, MetricUnion, Quipu, QuipuCompact,
    StreamWriter,
};

#[test]
fn the_seeds_messages_take_few_bytes() {
    for (kind, len, compact) in [
        (Kind::Counter, 39, 27),
        (Kind::BatchTimer, 44, 32),
        (Kind::Gauge, 39, 27),
        (Kind::MetricUnion, 44, 32),
    ] {
        let mut out = Vec::new();
        seed_message(kind).encode::<Quipu>(&mut out).unwrap();
        assert_eq!(out.len(), len, "{kind:?}");
        let mut arena = Arena::new();
        assert_eq!(
            Message::decode::<Quipu>(kind, &out, &arena.as_scope()).unwrap(),
            seed_message(kind)
        );
        out.clear();
        seed_message(kind).encode::<QuipuCompact>(&mut out).unwrap();
        assert_eq!(out.len(), compact, "{kind:?}");
        // The readers of both formats accept both.
        assert_eq!(
            Message::decode::<Quipu>(kind, &out, &arena.as_scope()).unwrap(),
            seed_message(kind)
        );
    }
}

/// Compares bytes with a vector. Run `QUIPU_WRITE_VECTORS=1 cargo test` to write the vector
/// instead.
fn golden(name: &str, bytes: &[u8]) {
    let path = vectors().join(name);
    if std::env::var_os("QUIPU_WRITE_VECTORS").is_some() {
        std::fs::write(&path, bytes).unwrap();
    }
    assert!(std::fs::read(&path).unwrap() == bytes, "{} has other bytes", path.display());
}

fn vectors() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors")
}

/// Returns the messages of the vectors, and some with numbers where the encoding changes.
fn messages() -> Vec<Message<'static>> {
    let text: &'static str = random().leak();
    let mut messages: Vec<Message<'static>> = lines(text, "XDR")
        .filter(|line| line.message().id().len() < 1000)
        .map(|line| Box::leak(Box::new(line)).message())
        .collect();
    for bits in 0..64 {
        for value in [1i64 << bits, (1i64 << bits).wrapping_sub(1), (1i64 << bits).wrapping_neg()] {
            messages.push(Counter { id: b"edges", value }.into());
            messages.push(Gauge { id: b"edges", value: value as f64 }.into());
        }
    }
    for places in 0..9 {
        for number in [1i32, 7, 127, 128, 16511, 16512, -5, 999_999_999] {
            let value = f64::from(number) / 10f64.powi(places);
            messages.push(Gauge { id: b"decimals", value }.into());
        }
    }
    for values in [
        &[65536.0, 1.0, 4_294_967_295.0][..],
        &[0.000_012, 0.000_345, 12.5],
        &[1e-8; 40],
        &[12.345, 6.789, 50.1, 0.001],
        &[-1.5, 2.0],
    ] {
        messages.push(BatchTimer { id: b"lists", values }.into());
    }
    messages
}

#[test]
fn messages_are_those_of_the_vectors() {
    let mut text = String::new();
    for message in messages() {
        for compact in [false, true] {
            let mut out = Vec::new();
            if compact {
                message.encode::<QuipuCompact>(&mut out).unwrap();
            } else {
                message.encode::<Quipu>(&mut out).unwrap();
            }
            let mut arena = Arena::new();
            let scope = arena.as_scope();
            let read = Message::decode::<Quipu>(message.kind(), &out, &scope).unwrap();
            assert!(same(&read, &message), "{message:?}");
            text += &format!("{}\t{}\n", line(&message), hex(&out));
        }
    }
    golden("quipu-messages.tsv", text.as_bytes());
}

#[test]
fn a_stream_is_that_of_the_vectors() {
    let messages = messages();
    let mut writer = StreamWriter::default();
    let mut out = Vec::new();
    let (mut block, mut expected) = (Vec::new(), Vec::new());
    for (index, message) in messages.iter().chain(&messages).enumerate() {
        if index == messages.len() / 2 {
            writer.flush(&mut out);
            expected.append(&mut closed(&mut block));
            writer.restart();
        }
        let before = out.len();
        writer.append(message, &mut out).unwrap();
        // A stream does not distinguish a metric from a union that contains only this metric.
        block.push(Owned::of(&Message::MetricUnion(message.to_union())));
        if out.len() > before {
            expected.append(&mut closed(&mut block));
        }
    }
    writer.flush(&mut out);
    expected.append(&mut closed(&mut block));
    let text: String = expected.iter().map(|message| line(&message.message()) + "\n").collect();
    golden("quipu-stream.bin", &out);
    golden("quipu-stream.tsv", text.as_bytes());

    let mut decoder = Decoder::<Quipu>::new(Kind::MetricUnion, Framing::Own);
    decoder.push(&out);
    for message in &expected {
        let mut arena = Arena::new();
        let read = decoder.next(&arena.as_scope()).unwrap().unwrap();
        assert!(same(&read, &message.message()));
    }
    decoder.finish().unwrap();
}

/// Returns the messages of a closed block in the order of reading.
fn closed(block: &mut Vec<Owned>) -> Vec<Owned> {
    in_block_order(block);
    std::mem::take(block)
}

/// Formats a message as a line of tsv.
fn line(message: &Message<'_>) -> String {
    let list = |values: &[f64]| {
        let bits: Vec<String> =
            values.iter().map(|value| format!("{:016x}", value.to_bits())).collect();
        bits.join(",")
    };
    let union = message.to_union();
    let MetricUnion { metric_type, id, counter, timer, gauge } = union;
    let kind = message.kind();
    let only = |of: Kind, text: String| {
        if kind == of || kind == Kind::MetricUnion { text } else { "-".to_owned() }
    };
    [
        kind.to_string(),
        if kind == Kind::MetricUnion { metric_type.0.to_string() } else { "-".to_owned() },
        hex(id),
        only(Kind::Counter, counter.to_string()),
        only(Kind::BatchTimer, list(timer)),
        only(Kind::Gauge, format!("{:016x}", gauge.to_bits())),
    ]
    .join("\t")
}
