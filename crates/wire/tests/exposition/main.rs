//! Properties of the exposition readers: we can read output from programs, a malformed line does
//! not affect its neighbours, and no bytes can cause a panic.

#![cfg(feature = "exposition")]
#![allow(clippy::unwrap_used)]

mod families;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use quipu_wire::remote::exposition::text::{
    Item, Options, Stream, TextFormat, TextLabel, TextLineError, TextReader, Visitor,
    value_and_time,
};

type Labels = Vec<(String, String)>;

/// A sample to write.
#[derive(Clone, Debug)]
struct Sent {
    name: String,
    labels: Labels,
    value: f64,
    time: Option<i64>,
    exemplar: Option<(Labels, f64, Option<i64>)>,
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof!["[a-zA-Z_:][a-zA-Z0-9_:]{0,12}", "[a-z\u{e9}. \"\\\\\n{},=#-]{1,8}"]
}

fn labels() -> impl Strategy<Value = Labels> {
    let name = prop_oneof!["[a-zA-Z_][a-zA-Z0-9_]{0,8}", "[a-z\u{e9}. \"\\\\\n{},=#-]{1,8}"];
    let value = prop_oneof!["[a-zA-Z0-9/._ -]{0,12}", any::<String>()];
    prop::collection::btree_map(name.prop_filter("reserved", |n| n != "__name__"), value, 0..5)
        .prop_map(|labels| labels.into_iter().collect())
}

fn value() -> impl Strategy<Value = f64> {
    prop_oneof![
        any::<f64>(),
        any::<i32>().prop_map(f64::from),
        any::<i32>().prop_map(|n| f64::from(n) / 1000.0),
        select(&[f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 0.0, -0.0][..]),
    ]
}

fn sent() -> impl Strategy<Value = Sent> {
    let time = || prop::option::of(-1_000_000_000_000..4_000_000_000_000_i64);
    let exemplar = prop::option::of((labels(), value(), time()));
    (name(), labels(), value(), time(), exemplar).prop_map(
        |(name, labels, value, time, exemplar)| Sent { name, labels, value, time, exemplar },
    )
}

fn quoted(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("\"{text}\"")
}

fn is_plain(name: &str, others: &[char]) -> bool {
    name.chars().all(|c| c.is_ascii_alphanumeric() || others.contains(&c))
        && !name.starts_with(|c: char| c.is_ascii_digit())
}

fn number(value: f64) -> String {
    match value {
        f64::INFINITY => "+Inf".into(),
        f64::NEG_INFINITY => "-Inf".into(),
        value => format!("{value:?}"),
    }
}

fn seconds(ms: i64) -> String {
    let sign = if ms < 0 { "-" } else { "" };
    format!("{sign}{}.{:03}", ms.unsigned_abs() / 1000, ms.unsigned_abs() % 1000)
}

impl Sent {
    fn line(&self, format: TextFormat) -> String {
        let mut parts = Vec::new();
        let is_plain_name = is_plain(&self.name, &['_', ':']);
        if !is_plain_name {
            parts.push(quoted(&self.name));
        }
        parts.extend(pairs(&self.labels));
        let mut line = if is_plain_name { self.name.clone() } else { String::new() };
        if !parts.is_empty() {
            line += &format!("{{{}}}", parts.join(","));
        }
        line += &format!(" {}", number(self.value));
        if let Some(time) = self.time {
            line += &match format {
                TextFormat::OpenMetrics => format!(" {}", seconds(time)),
                _ => format!(" {time}"),
            };
        }
        if let (TextFormat::OpenMetrics, Some((labels, value, time))) = (format, &self.exemplar) {
            line += &format!(" # {{{}}} {}", pairs(labels).join(","), number(*value));
            if let Some(time) = time {
                line += &format!(" {}", seconds(*time));
            }
        }
        line
    }
}

fn pairs(labels: &[(String, String)]) -> Vec<String> {
    let pair = |(name, value): &(String, String)| {
        let name = if is_plain(name, &['_']) { name.clone() } else { quoted(name) };
        format!("{name}={}", quoted(value))
    };
    labels.iter().map(pair).collect()
}

fn owned(labels: &[TextLabel<'_>]) -> Labels {
    labels.iter().map(|label| (label.name.to_string(), label.value.to_cow().into())).collect()
}

fn is_same(value: f64, other: f64) -> bool {
    value.to_bits() == other.to_bits() || value.is_nan() && other.is_nan()
}

/// Formats an item, or an error's place and reason.
fn show(item: Result<Item<'_, '_>, TextLineError>) -> String {
    match item {
        Ok(Item::Sample(sample)) => {
            let exemplar = sample.exemplar.map(|e| (owned(e.labels), e.value, e.timestamp_ms));
            let labels = owned(sample.labels);
            format!(
                "{} {labels:?} {} {:?} {exemplar:?}",
                sample.name, sample.value, sample.timestamp_ms
            )
        }
        Ok(item) => format!("{item:?}"),
        Err(error) => format!("{error}"),
    }
}

fn whole(input: &[u8], options: Options) -> Vec<String> {
    let mut reader = TextReader::new(input, options);
    let mut items = Vec::new();
    while let Some(item) = reader.next() {
        if let Err(error) = &item {
            let lines = input.iter().filter(|byte| **byte == b'\n').count() as u64 + 1;
            assert!(error.line() <= lines && error.offset() <= input.len(), "{error}");
        }
        items.push(show(item));
    }
    assert!(reader.next().is_none());
    items
}

fn pieces(input: &[u8], options: Options, size: usize) -> Vec<String> {
    let mut stream = Stream::new(options);
    let mut items = Vec::new();
    for piece in input.chunks(size) {
        stream.push(piece, |item| items.push(show(item)));
    }
    stream.finish(|item| items.push(show(item)));
    items
}

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

/// Generates bytes that are often nearly lines.
fn noise() -> impl Strategy<Value = Vec<u8>> {
    let words = [
        "# HELP ",
        "# TYPE ",
        "# UNIT ",
        "# EOF",
        "a{b=\"c\"} 1",
        " # {",
        "\"} 1",
        "a 1 2\n",
        "{\"a\"",
        ",\"b\"=",
        "counter",
        "NaN",
        "\u{e9}",
    ];
    let part = prop_oneof![
        4 => select(&b"abl_:{}=\",\\ \t\n#01.+-e\r\xc3"[..]).prop_map(|byte| vec![byte]),
        2 => select(words.to_vec()).prop_map(|word| word.into()),
        1 => any::<u8>().prop_map(|byte| vec![byte]),
    ];
    vec(part, 0..40).prop_map(|parts| parts.concat())
}

const FORMATS: [TextFormat; 2] = [TextFormat::Prometheus, TextFormat::OpenMetrics];

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 256, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn samples_come_back(sent in vec(sent(), 1..5)) {
        for format in FORMATS {
            let mut input: String = sent.iter().map(|sent| sent.line(format) + "\n").collect();
            input += "# EOF\n";
            let mut reader = TextReader::new(input.as_bytes(), Options::new(format));
            for sent in &sent {
                let item = reader.next().unwrap();
                let Ok(Item::Sample(read)) = item else { panic!("{item:?} {}", sent.line(format)) };
                prop_assert_eq!(&read.name.to_cow(), &sent.name);
                prop_assert_eq!(&owned(read.labels), &sent.labels);
                prop_assert!(is_same(read.value, sent.value), "{} {}", read.value, sent.value);
                prop_assert_eq!(read.timestamp_ms, sent.time);
                match (read.exemplar, &sent.exemplar) {
                    (Some(read), Some((labels, value, time))) => {
                        prop_assert_eq!(&owned(read.labels), labels);
                        prop_assert!(is_same(read.value, *value));
                        prop_assert_eq!(read.timestamp_ms, *time);
                    }
                    (read, sent) => prop_assert!(
                        read.is_none() && (sent.is_none() || format == TextFormat::Prometheus)
                    ),
                }
            }
            reader.next().unwrap().unwrap();
            prop_assert!(reader.next().is_none());
        }
    }

    #[test]
    fn a_wrong_line_leaves_its_neighbours_alone(sent in vec(sent(), 1..5), bad in vec(noise(), 5)) {
        let (mut clean, mut mixed) = (Vec::new(), Vec::new());
        for (sent, bad) in sent.iter().zip(bad) {
            let line = sent.line(TextFormat::Prometheus) + "\n";
            clean.extend_from_slice(line.as_bytes());
            mixed.extend_from_slice(&bad);
            mixed.push(b'\n');
            mixed.extend_from_slice(line.as_bytes());
        }
        let options = Options::new(TextFormat::Prometheus);
        let mut among = whole(&mixed, options).into_iter();
        for item in whole(&clean, options) {
            prop_assert!(among.any(|other| other == item), "{item}");
        }
    }

    #[test]
    fn known_lines_are_the_same(sent in vec(sent(), 1..5), noise in noise()) {
        let lines: String = sent.iter().map(|sent| sent.line(TextFormat::Prometheus) + "\n").collect();
        let Ok(noise) = String::from_utf8(noise) else { return Ok(()) };
        let input = format!("{lines}{noise}\n{noise}\n{lines}");
        let options = Options::new(TextFormat::Prometheus);
        let mut remembering = Remembering::default();
        let mut stream = Stream::new(options);
        stream.visit(input.as_bytes(), &mut remembering);
        stream.finish(|item| panic!("{item:?}"));
        prop_assert_eq!(remembering.items, whole(input.as_bytes(), options));
    }

    #[test]
    fn pieces_of_any_size_are_the_same(
        input in noise(), size in 1..9_usize, max_line in 0..60_usize, max_labels in 0..3_usize,
    ) {
        for format in FORMATS {
            let options = Options::new(format).max_line(max_line).max_labels(max_labels);
            let whole = whole(&input, options);
            let is_utf8 = std::str::from_utf8(&input).is_ok();
            if is_utf8 {
                prop_assert_eq!(&whole, &pieces(&input, options, size));
            }
            prop_assert_eq!(whole.len(), pieces(&input, options, size).len());
        }
    }
}
