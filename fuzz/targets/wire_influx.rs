//! Reads lines of InfluxDB as a whole and in pieces. The results must agree, including the lines
//! that are too long.
//!
//! The first byte selects the size of the pieces.

#![no_main]

use libfuzzer_sys::fuzz_target;
use quipu_wire::remote::Cut;
use quipu_wire::remote::influx::{FieldValue, InfluxLineBuffer, InfluxLines};

fuzz_target!(|input: &[u8]| {
    let Some((&first, bytes)) = input.split_first() else { return };
    let whole = read(bytes);
    let size = usize::from(first) + 1;
    let (cut, long) = pieces(bytes, size, bytes.len());
    assert_eq!((&whole, long), (&cut, 0), "no line is longer than the input");
    assert_eq!(pieces(bytes, size, MAX_LINE), pieces(bytes, bytes.len().max(1), MAX_LINE));
});

/// A limit that lines of an input can exceed.
const MAX_LINE: usize = 20;

/// Reads pieces of this size. Returns the result, and the number of lines beyond the limit.
fn pieces(bytes: &[u8], size: usize, max_line: usize) -> (Vec<String>, usize) {
    let (mut buffer, mut all, mut long) = (InfluxLineBuffer::new(max_line), Vec::new(), 0);
    let mut push = |piece: Cut<'_>| match piece {
        Cut::Lines(lines) => all.extend(read(lines)),
        Cut::TooLong => long += 1,
    };
    bytes.chunks(size).for_each(|piece| buffer.push(piece, &mut push));
    buffer.finish(&mut push);
    (all, long)
}

/// Reads lines and formats the result, without line numbers.
fn read(input: &[u8]) -> Vec<String> {
    let mut number = 1;
    let mut all = Vec::new();
    for line in InfluxLines::new(input) {
        all.push(match line {
            Ok(point) => {
                let mut text = format!("{:?} {:?}", point.measurement.to_cow(), point.time);
                for (name, value) in point.tags() {
                    let (name, value) = (name.to_cow(), value.to_cow());
                    assert!(!name.is_empty() && !value.is_empty());
                    text += &format!(" {name:?}={value:?}");
                }
                assert!(point.fields().next().is_some());
                for (name, value) in point.fields() {
                    assert!(!name.to_cow().is_empty());
                    assert_eq!(value.number().is_none(), value == FieldValue::Text);
                    assert!(value.number().is_none_or(f64::is_finite));
                    text += &format!(" {:?}={value:?}", name.to_cow());
                }
                text
            }
            Err(error) => {
                assert!(number <= error.line() && error.offset() <= input.len(), "{error}");
                number = error.line();
                format!("{} {:?}", error.offset(), error.reason())
            }
        });
    }
    all
}
