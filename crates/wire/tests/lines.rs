//! Properties of the reader of Graphite's lines: a wrong line leaves its neighbours alone, however
//! the input is cut into pieces, and no bytes make it panic.

#![cfg(feature = "graphite")]
#![allow(clippy::unwrap_used)]

use proptest::collection::vec;
use proptest::prelude::*;
use quipu_wire::remote::{Cut, LineBuffer};

/// What is read of lines, without their numbers.
type Read = fn(&[u8]) -> Vec<String>;

fn graphite(input: &[u8]) -> Vec<String> {
    let lines = quipu_wire::remote::graphite::Lines::new(input);
    let shown = lines.map(|line| match line {
        Ok(sample) => format!("{sample:?} {:?}", sample.tags().collect::<Vec<_>>()),
        Err(error) => format!("{} {:?}", error.offset(), error.reason()),
    });
    shown.collect()
}

/// Reads an input at once, line by line, and in pieces.
fn check(read: Read, input: &[u8], size: usize) {
    let whole = read(input);
    let alone: Vec<_> = input.split(|byte| *byte == b'\n').flat_map(read).collect();
    assert_eq!(whole, alone);
    let (mut buffer, mut pieces) = (LineBuffer::new(input.len()), Vec::new());
    let mut push = |cut: Cut<'_>| match cut {
        Cut::Lines(lines) => pieces.extend(read(lines)),
        Cut::TooLong => panic!("no line is longer than the input"),
    };
    input.chunks(size).for_each(|piece| buffer.push(piece, &mut push));
    buffer.finish(&mut push);
    assert_eq!(whole, pieces);
}

/// Bytes that are likely in lines, and others.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let likely = b"ab.,;:= \\\"\t\r\n\n017-eNtinf#\xc3\xa9\xff".to_vec();
    vec(prop_oneof![9 => proptest::sample::select(likely), 1 => any::<u8>()], 0..120)
}

proptest! {
    #[test]
    fn lines_of_graphite_are_independent(input in bytes(), size in 1_usize..20) {
        check(graphite, &input, size);
    }

    #[test]
    fn what_clients_of_graphite_send_is_read(
        path in "[a-z.]{1,20}",
        tags in vec(("[a-z]{1,5}", "[a-z=/ ]{1,5}".prop_map(|value| value.replace(' ', "."))), 0..4),
        value in -1e300..1e300_f64,
        time in proptest::option::of(0_i64..10_000_000_000),
    ) {
        let mut line = path.clone();
        for (name, value) in &tags {
            line += &format!(";{name}={value}");
        }
        line += &format!(" {value} {}", time.unwrap_or(-1));
        let mut lines = quipu_wire::remote::graphite::Lines::new(line.as_bytes());
        let sample = lines.next().unwrap().unwrap();
        prop_assert_eq!(sample.path, path.as_str());
        prop_assert_eq!(sample.value, value);
        prop_assert_eq!(sample.timestamp_ms, time.map(|time| time * 1000));
        let expected: Vec<_> = tags.iter().map(|(a, b)| Ok((a.as_str(), b.as_str()))).collect();
        prop_assert_eq!(sample.tags().collect::<Vec<_>>(), expected);
    }
}
