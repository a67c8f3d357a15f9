//! Reads lines of Graphite as a whole, line by line, and in pieces. The results must agree.
//!
//! The first byte selects the size of the pieces.

#![no_main]

use libfuzzer_sys::fuzz_target;
use quipu_wire::remote::graphite::GraphiteLines;
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

/// Reads lines and formats the result, without line numbers.
fn read(input: &[u8]) -> Vec<String> {
    let mut number = 1;
    let mut all = Vec::new();
    for line in GraphiteLines::new(input) {
        all.push(match line {
            Ok(sample) => {
                assert!(sample.value.is_finite() && !sample.path.is_empty());
                assert!(sample.timestamp_ms.is_none_or(|time| time >= 0));
                format!("{sample:?} {:?}", sample.tags().collect::<Vec<_>>())
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
