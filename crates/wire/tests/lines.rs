//! Properties of the Graphite and InfluxDB readers: a malformed line does not affect its
//! neighbours, however you cut the input into pieces, and no bytes can cause a panic.

#![cfg(all(feature = "graphite", feature = "influx"))]
#![allow(clippy::unwrap_used)]

use proptest::collection::vec;
use proptest::prelude::*;
use quipu_wire::remote::{Cut, LineBuffer};

/// Reads lines and formats the result, without line numbers.
type Read = fn(&[u8]) -> Vec<String>;

fn graphite(input: &[u8]) -> Vec<String> {
    let lines = quipu_wire::remote::graphite::GraphiteLines::new(input);
    let shown = lines.map(|line| match line {
        Ok(sample) => format!("{sample:?} {:?}", sample.tags().collect::<Vec<_>>()),
        Err(error) => format!("{} {:?}", error.offset(), error.reason()),
    });
    shown.collect()
}

fn influx(input: &[u8]) -> Vec<String> {
    let lines = quipu_wire::remote::influx::InfluxLines::new(input);
    let shown = lines.map(|line| match line {
        Ok(point) => {
            let tags: Vec<_> = point.tags().map(|(a, b)| (a.to_cow(), b.to_cow())).collect();
            let fields: Vec<_> =
                point.fields().map(|(name, value)| (name.to_cow(), value)).collect();
            assert!(!fields.is_empty());
            format!("{:?} {tags:?} {fields:?} {:?}", point.measurement.to_cow(), point.time)
        }
        Err(error) => format!("{} {:?}", error.offset(), error.reason()),
    });
    shown.collect()
}

/// Escapes these characters with a backslash, like a client.
fn escaped(text: &str, special: &str) -> String {
    let escape = |c: char| [special.contains(c).then_some('\\'), Some(c)];
    text.chars().flat_map(escape).flatten().collect()
}

/// Reads an input at once, line by line, and in pieces, and compares the results.
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

/// Splits InfluxDB's lines byte by byte. A line feed in a quoted field does not end a line.
fn lines_of_influx(input: &[u8]) -> Vec<Vec<u8>> {
    let mut lines = vec![Vec::new()];
    let (mut is_field, mut is_text, mut is_escaped) = (false, false, false);
    for byte in input {
        let line = lines.last_mut().unwrap();
        let begun = line.trim_ascii_start();
        if is_text {
            is_text = is_escaped || *byte != b'"';
            is_escaped = !is_escaped && *byte == b'\\';
        } else if *byte == b'\n' {
            is_field = false;
            lines.push(Vec::new());
            continue;
        } else if !begun.starts_with(b"#") {
            let is_value = line.ends_with(b"=") && !line.ends_with(b"\\=");
            is_text = is_field && is_value && *byte == b'"';
            is_field |= *byte == b' ' && !begun.is_empty() && !begun.ends_with(b"\\");
        }
        line.push(*byte);
    }
    lines
}

/// Generates bytes, with parts that are likely in lines.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let likely: Vec<&[u8]> = vec![
        b"a",
        b"b.",
        b",",
        b";",
        b"=",
        b" ",
        b"\\",
        b"\"",
        b"\t",
        b"\r",
        b"\n",
        b"\n",
        b"0",
        b"17",
        b"-",
        b"e",
        b"N",
        b"t",
        b"i",
        b"u",
        b"inf",
        b"#",
        b" f=",
        b"m f=\"",
        b"=\"",
        b"\xc3\xa9",
        b"\xff",
    ];
    let likely = proptest::sample::select(likely).prop_map(<[u8]>::to_vec);
    let part = prop_oneof![9 => likely, 1 => any::<u8>().prop_map(|byte| vec![byte])];
    vec(part, 0..60).prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn lines_of_graphite_are_independent(input in bytes(), size in 1_usize..20) {
        check(graphite, &input, size);
    }

    #[test]
    fn lines_of_influx_are_independent(input in bytes(), size in 1_usize..20) {
        let whole = influx(&input);
        let alone: Vec<_> = lines_of_influx(&input).iter().flat_map(|line| influx(line)).collect();
        prop_assert_eq!(&whole, &alone);
        let mut buffer = quipu_wire::remote::influx::InfluxLineBuffer::new(input.len());
        let mut pieces = Vec::new();
        let mut push = |cut: Cut<'_>| match cut {
            Cut::Lines(lines) => pieces.extend(influx(lines)),
            Cut::TooLong => panic!("no line is longer than the input"),
        };
        input.chunks(size).for_each(|piece| buffer.push(piece, &mut push));
        buffer.finish(&mut push);
        prop_assert_eq!(whole, pieces);
    }

    /// No string ends in a backslash, because clients cannot write this.
    #[test]
    fn lines_of_influx_clients_are_read(
        measurement in "[a-z, ]{0,9}[a-z]",
        tags in vec(("[a-z=, \\\\]{0,4}[a-z]", "[a-z=, ]{0,4}[a-z]"), 0..4),
        fields in vec(("[a-z=, ]{0,4}[a-z]", any::<i64>()), 1..4),
        text in "[a-z=, \"\\\\\n]{0,9}",
        time in proptest::option::of(any::<i64>()),
    ) {
        prop_assume!(!measurement.starts_with(' '));
        let mut line = escaped(&measurement, ", ");
        for (name, value) in &tags {
            line += &format!(",{}={}", escaped(name, "=, "), escaped(value, "=, "));
        }
        line += &format!(" t=\"{}\"", escaped(&text, "\"\\"));
        for (name, value) in &fields {
            line += &format!(",{}={value}i", escaped(name, "=, "));
        }
        line.extend(time.map(|time| format!(" {time}")));
        let mut lines = quipu_wire::remote::influx::InfluxLines::new(line.as_bytes());
        let point = lines.next().unwrap().unwrap();
        prop_assert_eq!(point.measurement.to_cow(), measurement);
        prop_assert_eq!(point.time, time);
        let read: Vec<_> = point
            .tags()
            .map(|(name, value)| (name.to_cow().into_owned(), value.to_cow().into_owned()))
            .collect();
        prop_assert_eq!(read, tags);
        let read: Vec<_> =
            point.fields().skip(1).map(|(name, value)| (name.to_cow().into_owned(), value)).collect();
        let integer = quipu_wire::remote::influx::FieldValue::Integer;
        let sent: Vec<_> = fields.into_iter().map(|(name, value)| (name, integer(value))).collect();
        prop_assert_eq!(read, sent);
        prop_assert!(lines.next().is_none());
    }

    #[test]
    fn lines_of_graphite_clients_are_read(
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
        let mut lines = quipu_wire::remote::graphite::GraphiteLines::new(line.as_bytes());
        let sample = lines.next().unwrap().unwrap();
        prop_assert_eq!(sample.path, path.as_str());
        prop_assert_eq!(sample.value, value);
        prop_assert_eq!(sample.timestamp_ms, time.map(|time| time * 1000));
        let expected: Vec<_> = tags.iter().map(|(a, b)| Ok((a.as_str(), b.as_str()))).collect();
        prop_assert_eq!(sample.tags().collect::<Vec<_>>(), expected);
    }
}
