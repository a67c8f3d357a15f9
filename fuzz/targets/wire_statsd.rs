//! Reads lines of StatsD as a whole, line by line, in pieces, and as packets after their length.
//! The results must agree. This also reads the input itself as such packets.
//!
//! The first byte selects the forms of tags and the size of the pieces.

#![no_main]

use libfuzzer_sys::fuzz_target;
use quipu_wire::remote::statsd::{StatsdLine, StatsdLines, Tags};
use quipu_wire::remote::{Cut, FrameBuffer, LineBuffer};

fuzz_target!(|input: &[u8]| {
    let Some((&first, bytes)) = input.split_first() else { return };
    let tags = Tags::NONE
        .datadog(first & 1 == 0)
        .influxdb(first & 2 == 0)
        .librato(first & 4 == 0)
        .signalfx(first & 8 == 0);
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

    let size = usize::from(first >> 4) + 1;
    let framed: Vec<u8> = bytes
        .split(|byte| *byte == b'\n')
        .flat_map(|line| [&(line.len() as u32).to_le_bytes(), line].concat())
        .collect();
    let lines: Vec<_> =
        bytes.split(|byte| *byte == b'\n').map(|line| Some(line.to_vec())).collect();
    assert_eq!(packets(&framed, size, bytes.len()), lines);
    assert_eq!(packets(bytes, size, 32), packets(bytes, usize::MAX, 32));
});

/// Returns the packets of a stream that arrives in pieces of this size. A packet that is too long
/// becomes `None`.
fn packets(stream: &[u8], size: usize, max_frame: usize) -> Vec<Option<Vec<u8>>> {
    let (mut buffer, mut all) = (FrameBuffer::new(max_frame), Vec::new());
    for piece in stream.chunks(size) {
        buffer.push(piece, |cut| {
            all.push(match cut {
                Cut::Lines(lines) => Some(lines.to_vec()),
                Cut::TooLong => None,
            });
        });
    }
    all
}

/// Reads lines and formats the result, without line numbers.
fn read(input: &[u8], tags: Tags) -> Vec<String> {
    let mut number = 1;
    let mut all = Vec::new();
    for line in StatsdLines::new(input, tags) {
        all.push(match line {
            Ok(StatsdLine::Sample(sample)) => {
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
