//! Reads lines of StatsD: whole, line by line, and in pieces, which must agree.
//!
//! The first byte selects the forms of tags and the size of the pieces.

#![no_main]

use libfuzzer_sys::fuzz_target;
use quipu_wire::remote::statsd::{Line, Lines, Tags};
use quipu_wire::remote::{Cut, LineBuffer};

fuzz_target!(|input: &[u8]| {
    let Some((&first, bytes)) = input.split_first() else { return };
    let tags = Tags {
        datadog: first & 1 == 0,
        influxdb: first & 2 == 0,
        librato: first & 4 == 0,
        signalfx: first & 8 == 0,
    };
    let whole = read(bytes, tags);
    let alone: Vec<_> =
        bytes.split(|byte| *byte == b'\n').flat_map(|line| read(line, tags)).collect();
    assert_eq!(whole, alone);

    let (mut buffer, mut cut) = (LineBuffer::new(bytes.len()), Vec::new());
    let mut push = |piece: Cut<'_>| match piece {
        Cut::Lines(lines) => cut.extend(read(lines, tags)),
        Cut::TooLong => panic!("no line is longer than the input"),
    };
    bytes.chunks(usize::from(first >> 4) + 1).for_each(|piece| buffer.push(piece, &mut push));
    buffer.finish(&mut push);
    assert_eq!(whole, cut);
});

/// What is read, without the numbers of lines.
fn read(input: &[u8], tags: Tags) -> Vec<String> {
    let mut number = 1;
    let mut all = Vec::new();
    for line in Lines::new(input, tags) {
        all.push(match line {
            Ok(Line::Sample(sample)) => {
                assert!(0.0 < sample.rate && sample.rate <= 1.0);
                let values: Vec<_> = sample
                    .values()
                    .map(|value| match value {
                        Ok(value) => {
                            assert!(value.number.is_finite());
                            format!("{value:?}")
                        }
                        Err(error) => format!("{} {:?}", error.offset(), error.reason()),
                    })
                    .collect();
                let tags: Vec<_> = sample.tags().collect();
                format!("{} {:?} {} {values:?} {tags:?}", sample.name, sample.kind, sample.rate)
            }
            Ok(line) => format!("{line:?}"),
            Err(error) => {
                assert!(number <= error.line() && error.offset() <= input.len(), "{error}");
                number = error.line();
                format!("{} {:?}", error.offset(), error.reason())
            }
        });
    }
    all
}
