//! Reads Prometheus' text format and OpenMetrics as a whole, in pieces, and with recognized lines.
//! The results must agree.
//!
//! The first byte selects the format, the limits, and the size of the pieces.

#![no_main]

use libfuzzer_sys::fuzz_target;
use quipu_wire::remote::exposition::text::{
    Item, Options, Stream, TextFormat, TextLabel, TextLineError, TextReader, TextReason, Visitor,
    value_and_time,
};

fuzz_target!(|input: &[u8]| {
    let Some((&first, bytes)) = input.split_first() else { return };
    let format = if first & 1 == 0 { TextFormat::Prometheus } else { TextFormat::OpenMetrics };
    let mut options = Options::new(format);
    if first & 2 != 0 {
        options = options.max_line(40).max_labels(2);
    }
    let mut whole = Vec::new();
    let mut reader = TextReader::new(bytes, options);
    let mut line = 0;
    while let Some(item) = reader.next() {
        if let Err(error) = &item {
            assert!(line <= error.line() && error.offset() <= bytes.len(), "{error}");
            line = error.line();
        }
        whole.push(show(item));
    }

    let mut pieces = Vec::new();
    let mut stream = Stream::new(options);
    for piece in bytes.chunks(usize::from(first >> 2) + 1) {
        stream.push(piece, |item| pieces.push(show(item)));
    }
    stream.finish(|item| pieces.push(show(item)));
    assert_eq!(whole, pieces);

    let mut remembering = Remembering::default();
    let mut stream = Stream::new(options);
    stream.visit(bytes, &mut remembering);
    stream.finish(|item| remembering.item(item));
    assert_eq!(whole, remembering.items);
});

/// A visitor that remembers the series of earlier lines.
#[derive(Default)]
struct Remembering {
    /// The bytes of a series, and its output from [`show`].
    known: Vec<(String, String)>,
    items: Vec<String>,
}

impl Visitor for Remembering {
    fn known(&mut self, line: &str, _: u64) -> bool {
        let found = self.known.iter().find_map(|(encoded, shown)| {
            let (value, time) = value_and_time(line.strip_prefix(&**encoded)?)?;
            Some(format!("{shown} {value} {time:?} None"))
        });
        self.items.extend(found.clone());
        found.is_some()
    }

    fn item(&mut self, item: Result<Item<'_, '_>, TextLineError>) {
        if let Ok(Item::Sample(sample)) = &item {
            let shown = format!("{} {:?}", sample.name, owned(sample.labels));
            self.known.push((sample.encoded.into(), shown));
        }
        self.items.push(show(item));
    }
}

/// Formats an item, or the line number of an error.
fn show(item: Result<Item<'_, '_>, TextLineError>) -> String {
    match item {
        Ok(Item::Sample(sample)) => {
            assert!(!sample.name.raw().is_empty());
            let exemplar = sample.exemplar.map(|e| (owned(e.labels), e.value, e.timestamp_ms));
            let (labels, time) = (owned(sample.labels), sample.timestamp_ms);
            format!("{} {labels:?} {} {time:?} {exemplar:?}", sample.name, sample.value)
        }
        Ok(item) => format!("{item:?}"),
        // A line can turn out to be too long before its rest arrives.
        Err(error) if matches!(error.reason(), TextReason::TooLong | TextReason::Utf8) => {
            format!("{}", error.line())
        }
        Err(error) => format!("{error}"),
    }
}

fn owned(labels: &[TextLabel<'_>]) -> Vec<(String, String)> {
    labels.iter().map(|label| (label.name.to_string(), label.value.to_cow().into())).collect()
}
