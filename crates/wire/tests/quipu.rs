//! quipu's own format: sizes, the test vectors for other languages, and streams that lose frames or
//! are joined in their middle.

#![cfg(feature = "quipu")]
#![allow(clippy::unwrap_used)]

mod common;

use std::path::{Path, PathBuf};

use common::{hex, lines, random, same, seed_message};
use quipu_arena::Arena;
use quipu_wire::{
    BatchTimer, Counter, Decoder, Encoder, Framing, Gauge, Kind, Message, MetricType, MetricUnion,
    Quipu, QuipuCompact, StreamReader, StreamWriter,
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
        // Readers of either format accept both.
        assert_eq!(
            Message::decode::<Quipu>(kind, &out, &arena.as_scope()).unwrap(),
            seed_message(kind)
        );
    }
}

/// Compares bytes with a vector, or writes the vector: `QUIPU_WRITE_VECTORS=1 cargo test`.
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

/// The messages of the vectors, and some with numbers at the edges of their forms.
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
    let mut writer = StreamWriter::default().frame_size(4096);
    let mut out = Vec::new();
    let mut text = String::new();
    for (index, message) in messages.iter().chain(&messages).enumerate() {
        if index == messages.len() / 2 {
            writer.restart();
        }
        writer.append(message, &mut out).unwrap();
        // A stream does not distinguish a metric from a union that holds only that metric.
        text += &line(&Message::MetricUnion(message.to_union()));
        text.push('\n');
    }
    writer.flush(&mut out);
    golden("quipu-stream.bin", &out);
    golden("quipu-stream.tsv", text.as_bytes());

    let mut decoder = Decoder::<Quipu>::new(Kind::MetricUnion, Framing::Own);
    decoder.push(&out);
    for message in messages.iter().chain(&messages) {
        let mut arena = Arena::new();
        let read = decoder.next(&arena.as_scope()).unwrap().unwrap();
        assert!(same(&read, &Message::MetricUnion(message.to_union())));
    }
    decoder.finish().unwrap();
}

/// A message as a line of tsv.
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
        kind.name().to_owned(),
        if kind == Kind::MetricUnion { metric_type.0.to_string() } else { "-".to_owned() },
        hex(id),
        only(Kind::Counter, counter.to_string()),
        only(Kind::BatchTimer, list(timer)),
        only(Kind::Gauge, format!("{:016x}", gauge.to_bits())),
    ]
    .join("\t")
}

/// A stream of frames of few messages, with a restart in its middle, and where each frame begins.
fn stream() -> (Vec<u8>, Vec<usize>) {
    let mut writer = StreamWriter::default();
    let mut out = Vec::new();
    let mut starts = Vec::new();
    for value in 0..20 {
        if value == 10 {
            writer.restart();
        }
        starts.push(out.len());
        for id in [&b"a"[..], b"b"] {
            writer.append(&Counter { id, value }.into(), &mut out).unwrap();
        }
        writer.flush(&mut out);
    }
    (out, starts)
}

fn read(bytes: &[u8]) -> Result<Vec<i64>, quipu_wire::Error> {
    let mut decoder = Decoder::<Quipu>::new(Kind::Counter, Framing::Own);
    decoder.push(bytes);
    decoder.end();
    let mut values = Vec::new();
    let mut arena = Arena::new();
    while let Some(message) = decoder.next(&arena.as_scope())? {
        let Message::Counter(counter) = message else { panic!() };
        values.push(counter.value);
    }
    Ok(values)
}

#[test]
fn a_function_that_panics_ends_the_stream() {
    let (mut writer, mut out) = (StreamWriter::default(), Vec::new());
    for value in 0..10 {
        writer.append(&Counter { id: b"a", value }.into(), &mut out).unwrap();
    }
    writer.flush(&mut out);
    for end in 0..10 {
        let mut decoder = Decoder::<Quipu>::new(Kind::Counter, Framing::Own);
        decoder.push(&out);
        let mut arena = Arena::new();
        let mut read = 0;
        let panics = std::panic::AssertUnwindSafe(|| {
            decoder.for_each(&mut arena, |_| {
                assert!(read < end, "meant");
                read += 1;
            })
        });
        std::panic::catch_unwind(panics).unwrap_err();
        assert_eq!(read, end);
        // The rest, or an error, but no value twice.
        while let Ok(Some(Message::Counter(next))) = decoder.next(&arena.as_scope()) {
            assert!(next.value > end, "{} after {end}", next.value);
        }
    }
}

#[test]
fn a_lost_frame_is_noticed() {
    let (bytes, starts) = stream();
    assert_eq!(read(&bytes).unwrap().len(), 40);
    for lost in 1..19 {
        let rest = [&bytes[..starts[lost]], &bytes[starts[lost + 1]..]].concat();
        let error = read(&rest).unwrap_err();
        assert_eq!(error.offset(), Some(starts[lost] as u64));
        assert!(error.to_string().contains("lost"), "{error}");
    }
    let error = read(&bytes[starts[1]..]).unwrap_err();
    assert!(error.to_string().contains("joined"), "{error}");
}

#[test]
fn a_stream_is_joined_where_it_begins_anew() {
    let (bytes, starts) = stream();
    for from in 1..=starts[10] {
        let start = from + StreamReader::find_start(&bytes[from..]).unwrap();
        assert_eq!(start, starts[10]);
    }
    assert_eq!(StreamReader::find_start(&bytes), Some(0));
    assert_eq!(StreamReader::find_start(&bytes[starts[10] + 1..]), None);
    let values = read(&bytes[starts[10]..]).unwrap();
    assert_eq!(values, (10..20).flat_map(|value| [value, value]).collect::<Vec<_>>());
}

#[test]
fn streams_can_stand_one_behind_the_other() {
    let (bytes, _) = stream();
    assert_eq!(read(&[&bytes[..], &bytes].concat()).unwrap().len(), 80);
}

#[test]
fn a_damaged_frame_gives_nothing_out() {
    let (bytes, starts) = stream();
    for at in starts[3]..starts[4] {
        for bit in 0..8 {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << bit;
            let mut decoder = Decoder::<Quipu>::new(Kind::Counter, Framing::Own);
            decoder.push(&damaged);
            decoder.end();
            let mut arena = Arena::new();
            for _ in 0..6 {
                assert!(decoder.next(&arena.as_scope()).unwrap().is_some());
            }
            let error = decoder.next(&arena.as_scope()).unwrap_err();
            assert!(
                (starts[3]..starts[4]).contains(&(error.offset().unwrap() as usize)),
                "{error}"
            );
        }
    }
}

#[test]
fn a_restart_costs_only_the_dictionary() {
    let messages: Vec<Vec<u8>> = (0..100).map(|i| format!("series-{i}").into_bytes()).collect();
    let mut sizes = Vec::new();
    for restart_after in [usize::MAX, 1000] {
        let mut writer = StreamWriter::default().frame_size(500).restart_after(restart_after);
        let mut out = Vec::new();
        for value in 0..100 {
            for id in &messages {
                writer.append(&Counter { id, value }.into(), &mut out).unwrap();
            }
        }
        writer.flush(&mut out);
        let values = read(&out).unwrap();
        assert_eq!(values.len(), 10_000);
        assert_eq!(values[9_999], 99);
        sizes.push(out.len());
    }
    assert!(sizes[0] < 22_000 && sizes[1] > sizes[0], "{sizes:?}");
}

#[test]
fn series_of_another_kind_or_time_are_refused() {
    let mut writer = StreamWriter::default();
    let mut out = Vec::new();
    let series = writer.series(Kind::Gauge, b"temperature").unwrap();
    writer.gauge(series, 20.5, &mut out).unwrap();
    let error = writer.counter(series, 1, &mut out).unwrap_err();
    assert!(error.to_string().contains("series"), "{error}");
    let other = StreamWriter::default().counter(series, 1, &mut out);
    assert!(other.is_err());
}

#[test]
fn unions_that_are_no_metric_keep_all() {
    let union = MetricUnion {
        metric_type: MetricType(-7),
        id: b"odd",
        counter: -1,
        timer: &[-0.0],
        gauge: f64::NAN,
    };
    let mut encoder = Encoder::<Quipu>::new(Framing::Own);
    let mut out = Vec::new();
    for _ in 0..3 {
        encoder.append(&union.into(), &mut out).unwrap();
    }
    encoder.flush(&mut out);
    let mut decoder = Decoder::<Quipu>::new(Kind::MetricUnion, Framing::Own);
    decoder.push(&out);
    let mut arena = Arena::new();
    for _ in 0..3 {
        let read = decoder.next(&arena.as_scope()).unwrap().unwrap();
        assert!(same(&read, &union.into()));
    }
}
