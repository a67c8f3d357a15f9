//! Streams in quipu's own format: we get back the messages that were written, lost or damaged
//! blocks are noticed, and a reader can join in the middle.

#![cfg(feature = "quipu")]
#![allow(clippy::unwrap_used)]

mod common;

use common::hard::{self, doubles, integers};
use common::{Owned, same};
use proptest::collection::vec;
use proptest::prelude::*;
use quipu_arena::Arena;
use quipu_wire::{
    Counter, Decoder, Encoder, Error, Framing, Kind, Message, MetricType, MetricUnion, Quipu,
    StreamReader, StreamWriter,
};

/// Returns a stream of small blocks with a restart in its middle, and the offset of each block.
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
        // The reader can fail, but must not return a value twice.
        decoder.for_each(&mut arena, |message| panic!("{message:?}")).unwrap_err();
        while let Ok(Some(Message::Counter(next))) = decoder.next(&arena.as_scope()) {
            assert!(next.value > end, "{} after {end}", next.value);
        }
    }
}

#[test]
fn a_lost_block_is_noticed() {
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
fn a_damaged_block_gives_nothing_out() {
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
        let mut writer = StreamWriter::default().restart_after(restart_after);
        let mut out = Vec::new();
        for value in 0..400 {
            for id in &messages {
                writer.append(&Counter { id, value }.into(), &mut out).unwrap();
            }
        }
        writer.flush(&mut out);
        let values = read(&out).unwrap();
        assert_eq!(values.len(), 40_000);
        assert_eq!(values[39_999], 399);
        sizes.push(out.len());
    }
    assert!(sizes[0] < 52_000 && (1..5000).contains(&(sizes[1] - sizes[0])), "{sizes:?}");
}

#[test]
fn a_dictionary_restarts_any_number_of_times() {
    let (mut writer, mut out) = (StreamWriter::default(), Vec::new());
    let series = writer.series(Kind::Counter, b"a").unwrap();
    for value in 0..70_000 {
        writer.restart();
        writer.counter(series, value, &mut out).unwrap();
    }
    writer.flush(&mut out);
    assert_eq!(read(&out).unwrap(), (0..70_000).collect::<Vec<_>>());
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

/// A step of a program that writes a stream.
#[derive(Clone, Debug)]
enum Step {
    /// A message, appended by its id or by the handle of its series.
    Append(Owned, bool),
    Flush,
    Restart,
    /// Another writer continues, like after a restart of the program.
    NewWriter,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        40 => (series_messages(), any::<bool>()).prop_map(|(m, by_handle)| Step::Append(m, by_handle)),
        2 => Just(Step::Flush),
        1 => Just(Step::Restart),
        1 => Just(Step::NewWriter),
    ];
    vec(step, 0..900)
}

/// Generates messages of few series, so most of them are changes.
fn series_messages() -> impl Strategy<Value = Owned> {
    let usual_counters = (0..1000_i64).prop_map(|number| number * 7);
    let usual_gauges = (0..100_000_i32).prop_map(|number| f64::from(number) / 100.0);
    let latencies = (0..1_000_000_i32).prop_map(|number| f64::from(number) / 1000.0);
    let counters = prop_oneof![4 => usual_counters, 1 => integers()];
    let gauges = prop_oneof![4 => usual_gauges, 1 => doubles()];
    let lists = prop_oneof![
        6 => vec(latencies, 1..8),
        1 => vec(doubles(), 0..12),
        1 => vec((0..40_i32).prop_map(|power| 2_f64.powi(power)), 0..40),
    ];
    let ids = (0..12_usize).prop_map(|number| format!("series-{number}").into_bytes());
    let ids = prop_oneof![20 => ids, 1 => hard::short_ids()];
    (0..4_usize, ids, counters, lists, gauges).prop_map(|(kind, id, counter, timer, gauge)| {
        let metric_type = if kind == 3 { -7 } else { 0 };
        let message = Owned { kind: Kind::ALL[kind], metric_type, id, counter, timer, gauge };
        // Drops the fields that the kind lacks.
        Owned::of(&message.message())
    })
}

/// Runs a program. Returns the stream and all messages as unions.
fn run(steps: &[Step]) -> (Vec<u8>, Vec<Owned>) {
    let (mut writer, mut out, mut messages) = (StreamWriter::default(), Vec::new(), Vec::new());
    for step in steps {
        match step {
            Step::Append(message, by_handle) => {
                append(&mut writer, &message.message(), *by_handle, &mut out).unwrap();
                messages.push(Owned::of(&Message::MetricUnion(message.message().to_union())));
            }
            Step::Flush => writer.flush(&mut out),
            Step::Restart => writer.restart(),
            Step::NewWriter => {
                writer.flush(&mut out);
                writer = StreamWriter::default();
            }
        }
    }
    writer.flush(&mut out);
    (out, messages)
}

fn append(
    writer: &mut StreamWriter,
    message: &Message<'_>,
    by_handle: bool,
    out: &mut Vec<u8>,
) -> Result<(), Error> {
    if !by_handle || message.kind() == Kind::MetricUnion {
        return writer.append(message, out);
    }
    let series = writer.series(message.kind(), message.id())?;
    match message {
        Message::Counter(counter) => writer.counter(series, counter.value, out),
        Message::BatchTimer(timer) => writer.batch_timer(series, timer.values, out),
        Message::Gauge(gauge) => writer.gauge(series, gauge.value, out),
        Message::MetricUnion(_) => unreachable!("it was appended"),
    }
}

/// Splits messages by kind. A stream keeps the order within each kind.
fn by_kind(messages: Vec<Owned>) -> [Vec<Owned>; 4] {
    let mut kinds = [vec![], vec![], vec![], vec![]];
    for message in messages {
        let metric = message.message().to_union().to_metric();
        let kind = metric.map_or(Kind::MetricUnion, |metric| metric.kind());
        let index = Kind::ALL.iter().position(|of| *of == kind).unwrap();
        kinds[index].push(message);
    }
    kinds
}

fn all_same(left: &[Owned], right: &[Owned]) -> bool {
    left.len() == right.len()
        && left.iter().zip(right).all(|(left, right)| same(&left.message(), &right.message()))
}

/// Reads all messages as unions, in pieces of this length. Returns the error that ends the stream,
/// if any.
fn read_all(bytes: &[u8], piece: usize, by_each: bool) -> (Vec<Owned>, Result<(), Error>) {
    let mut decoder = Decoder::<Quipu>::new(Kind::MetricUnion, Framing::Own);
    let (mut messages, mut arena) = (Vec::new(), Arena::new());
    for piece in bytes.chunks(piece.max(1)).map(Some).chain([None]) {
        match piece {
            Some(piece) => decoder.push(piece),
            None => decoder.end(),
        }
        let read = if by_each {
            decoder.for_each(&mut arena, |message| messages.push(Owned::of(&message)))
        } else {
            loop {
                let mut guard = arena.guard();
                match decoder.next(&guard.scope()) {
                    Ok(Some(message)) => messages.push(Owned::of(&message)),
                    Ok(None) => break Ok(()),
                    Err(error) => break Err(error),
                }
            }
        };
        if read.is_err() {
            return (messages, read);
        }
    }
    (messages, Ok(()))
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 40,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_program_is_read_as_it_was_written(steps in steps(), piece in 1..5000_usize) {
        let (stream, messages) = run(&steps);
        let expected = by_kind(messages);
        for (piece, by_each) in [(usize::MAX, true), (usize::MAX, false), (piece, true), (piece, false)] {
            let (read, end) = read_all(&stream, piece, by_each);
            prop_assert_eq!(end, Ok(()));
            for (read, expected) in by_kind(read).iter().zip(&expected) {
                prop_assert!(all_same(read, expected));
            }
        }
    }
}

/// Returns a stream of several blocks with all kinds of messages, and the end of each block.
fn varied_stream() -> (Vec<u8>, Vec<usize>) {
    let mut writer = StreamWriter::default();
    let (mut out, mut ends) = (Vec::new(), vec![0]);
    for (index, message) in hard::some(series_messages(), 120, 9).iter().enumerate() {
        writer.append(&message.message(), &mut out).unwrap();
        if index % 40 == 39 {
            writer.flush(&mut out);
            ends.push(out.len());
            if index == 79 {
                writer.restart();
            }
        }
    }
    (out, ends)
}

#[test]
fn a_stream_that_is_cut_anywhere_gives_its_whole_blocks() {
    let (stream, ends) = varied_stream();
    for cut in 0..=stream.len() {
        let whole = ends.iter().filter(|end| **end <= cut).count() - 1;
        for by_each in [false, true] {
            let (read, end) = read_all(&stream[..cut], usize::MAX, by_each);
            assert_eq!(read.len(), 40 * whole, "{cut} bytes");
            match end {
                Ok(()) => assert!(ends.contains(&cut)),
                Err(error) => assert!(error.is_incomplete() && !ends.contains(&cut), "{error}"),
            }
        }
    }
}

#[test]
fn after_damage_a_reader_continues_at_the_next_restart() {
    let (stream, ends) = varied_stream();
    let (expected, _) = read_all(&stream[ends[2]..], usize::MAX, true);
    assert_eq!(expected.len(), 40);
    for at in ends[1]..ends[2] {
        for flip in [0x01, 0x80, 0xff] {
            let mut damaged = stream.clone();
            damaged[at] ^= flip;
            let (read, end) = read_all(&damaged, usize::MAX, true);
            assert_eq!(read.len(), 40, "nothing of the damaged block");
            let position = end.unwrap_err().offset().unwrap() as usize;
            assert!((ends[1]..=ends[2]).contains(&position), "{at}: {position}");
            let start = position + StreamReader::find_start(&damaged[position..]).unwrap();
            assert_eq!(start, ends[2]);
            let (read, end) = read_all(&damaged[start..], usize::MAX, true);
            assert!(end.is_ok() && all_same(&read, &expected));
        }
    }
}

#[test]
fn messages_of_one_kind_keep_their_order_and_kinds_follow_each_other() {
    let (mut writer, mut out) = (StreamWriter::default(), Vec::new());
    let kinds = [Kind::MetricUnion, Kind::Gauge, Kind::BatchTimer, Kind::Counter];
    for number in 0..20 {
        for kind in kinds {
            let message = Owned {
                kind,
                metric_type: 9,
                id: vec![b'a' + number],
                counter: 1,
                timer: vec![1.0],
                gauge: 1.0,
            };
            writer.append(&message.message(), &mut out).unwrap();
        }
    }
    writer.flush(&mut out);
    let (read, _) = read_all(&out, usize::MAX, false);
    let ids: Vec<u8> = read.iter().map(|message| message.id[0]).collect();
    let once: Vec<u8> = (b'a'..b'a' + 20).collect();
    assert_eq!(ids, [&once[..], &once, &once, &once].concat());
    assert_eq!(read[0].metric_type, MetricType::COUNTER.0);
    assert_eq!(read[20].metric_type, MetricType::BATCH_TIMER.0);
    assert_eq!(read[40].metric_type, MetricType::GAUGE.0);
    assert_eq!(read[60].metric_type, 9);
}

#[test]
fn a_block_is_closed_at_255_messages_or_many_bytes() {
    let (mut writer, mut out) = (StreamWriter::default(), Vec::new());
    for value in 0..255 {
        assert!(out.is_empty());
        writer.append(&Counter { id: b"a", value }.into(), &mut out).unwrap();
    }
    assert!(!out.is_empty());
    let values: Vec<f64> = (0..3000).map(|number| f64::from(number).sqrt()).collect();
    for _ in 0..2 {
        let before = out.len();
        while out.len() == before {
            let message = Owned {
                kind: Kind::BatchTimer,
                metric_type: 0,
                id: b"t".to_vec(),
                counter: 0,
                timer: values.clone(),
                gauge: 0.0,
            };
            writer.append(&message.message(), &mut out).unwrap();
        }
        assert!((64 << 10..96 << 10).contains(&(out.len() - before)), "{}", out.len() - before);
    }
    assert_eq!(read_all(&out, 1000, true).0.len(), 255 + 2 * 3);
}

#[test]
fn lists_and_ids_up_to_their_limits() {
    let (mut writer, mut out) = (StreamWriter::default(), Vec::new());
    let long_id = hard::noise(1 << 20, 3);
    writer.append(&Counter { id: &long_id, value: i64::MIN }.into(), &mut out).unwrap();
    let list = vec![1.0; 1 << 22];
    let timer = writer.series(Kind::BatchTimer, b"t").unwrap();
    // Two such lists do not fit into a block.
    for _ in 0..2 {
        writer.batch_timer(timer, &list, &mut out).unwrap();
        writer.batch_timer(timer, &[0.5], &mut out).unwrap();
    }
    let longer = vec![1.0; (1 << 22) + 1];
    let error = writer.batch_timer(timer, &longer, &mut out).unwrap_err();
    assert!(error.to_string().contains("2^22"), "{error}");
    writer.flush(&mut out);
    let (read, end) = read_all(&out, usize::MAX, true);
    assert_eq!(end, Ok(()));
    let lengths: Vec<usize> = read.iter().map(|message| message.timer.len()).collect();
    assert_eq!(lengths, [0, 1 << 22, 1, 1 << 22, 1]);
    assert!(read[0].id == long_id && read[0].counter == i64::MIN);
}

#[test]
fn the_example_of_the_format_has_these_bytes() {
    let (mut writer, mut out) = (StreamWriter::default(), Vec::new());
    for value in [10, 25, 31] {
        writer.append(&Counter { id: b"hits", value }.into(), &mut out).unwrap();
    }
    writer.flush(&mut out);
    assert_eq!(
        common::hex(&out),
        "fc71770261d2f6780c00000000000000010300000001000000000468697473\
         0a0005c033"
    );
}

#[test]
fn a_block_with_messages_of_another_kind_is_refused() {
    let (mut writer, mut out) = (StreamWriter::default(), Vec::new());
    writer.append(&Counter { id: b"a", value: 1 }.into(), &mut out).unwrap();
    writer.flush(&mut out);
    for (kind, is_read) in [(Kind::Counter, true), (Kind::MetricUnion, true), (Kind::Gauge, false)]
    {
        let mut decoder = Decoder::<Quipu>::new(kind, Framing::Own);
        decoder.push(&out);
        let mut arena = Arena::new();
        assert_eq!(decoder.next(&arena.as_scope()).is_ok(), is_read);
    }
}

#[test]
fn a_full_dictionary_drops_its_series_and_continues() {
    let (mut writer, mut out) = (StreamWriter::default(), Vec::new());
    let first = writer.series(Kind::Counter, b"first").unwrap();
    // The ids of a dictionary can take 64 MiB together.
    for number in 0..3_u8 {
        let id = vec![number; 30 << 20];
        writer.append(&Counter { id: &id, value: 1 }.into(), &mut out).unwrap();
    }
    assert!(writer.counter(first, 1, &mut out).is_err());
    let first = writer.series(Kind::Counter, b"first").unwrap();
    writer.counter(first, 2, &mut out).unwrap();
    writer.flush(&mut out);
    let (read, end) = read_all(&out, usize::MAX, true);
    assert_eq!(end, Ok(()));
    assert_eq!(read.len(), 4);
    assert_eq!(read[3].counter, 2);
}
