//! Reads lines of InfluxDB: whole, line by line, and in pieces, which must agree.
//!
//! The first byte selects the size of the pieces.

#![no_main]

use libfuzzer_sys::fuzz_target;
use quipu_wire::remote::influx::{Lines, Value};
use quipu_wire::remote::{Cut, LineBuffer};

fuzz_target!(|input: &[u8]| {
    let Some((&first, bytes)) = input.split_first() else { return };
    let whole = read(bytes);
    let alone: Vec<_> = bytes.split(|byte| *byte == b'\n').flat_map(read).collect();
    assert_eq!(whole, alone);

    let (mut buffer, mut cut) = (LineBuffer::new(bytes.len()), Vec::new());
    let mut push = |piece: Cut<'_>| match piece {
        Cut::Lines(lines) => cut.extend(read(lines)),
        Cut::TooLong => panic!("no line is longer than the input"),
    };
    bytes.chunks(usize::from(first) + 1).for_each(|piece| buffer.push(piece, &mut push));
    buffer.finish(&mut push);
    assert_eq!(whole, cut);
});

/// What is read, without the numbers of lines.
fn read(input: &[u8]) -> Vec<String> {
    let mut number = 1;
    let mut all = Vec::new();
    for line in Lines::new(input) {
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
                    assert_eq!(value.number().is_none(), value == Value::Text);
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
