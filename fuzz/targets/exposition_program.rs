//! The inputs of the target `exposition`: operations on a daemon.
//!
//! An input begins with a byte of [`flags`]. The operations follow, and each ends at a NUL. The
//! first byte of an operation is one of [`op`], the second is its argument, and the rest is its
//! payload. In a payload, each byte above 0x7f encodes one of [`WORDS`], because a mutation of one
//! byte can then change a whole word.

#![allow(dead_code, reason = "the target and the seeds use different parts")]

/// Bits of the first byte of an input.
pub mod flags {
    /// The daemon also shows its own metrics.
    pub const OWN: u8 = 1;
    /// OTLP does not translate names.
    pub const UNTRANSLATED: u8 = 2;
    /// The page of a single segment is judged too.
    pub const SEGMENT: u8 = 4;
    /// The number of bits after which the number of the escaping follows.
    pub const ESCAPING: u8 = 3;
}

/// The first bytes of operations.
pub mod op {
    pub const STATSD: u8 = 1;
    pub const GRAPHITE: u8 = 2;
    pub const INFLUX: u8 = 3;
    /// The argument selects the format: Prometheus' or OpenMetrics.
    pub const IMPORT: u8 = 4;
    /// The lowest bit of the argument selects the format, the others the method and the group.
    pub const PUSH: u8 = 5;
    /// Like [`PUSH`], with families in protobuf.
    pub const PUSH_FAMILIES: u8 = 6;
    /// Families by remote write; the argument selects the version.
    pub const WRITE: u8 = 7;
    /// Families by OTLP.
    pub const OTLP: u8 = 8;
    /// The argument selects the format.
    pub const INGEST: u8 = 9;
    /// The argument selects the format.
    pub const TARGET: u8 = 10;
    /// Families of another process. The argument is of [`super::segment`].
    pub const SEGMENT: u8 = 11;
    /// Families of the library's registry.
    pub const LIBRARY: u8 = 12;
    /// The moment when the families of segments and targets are merged; by default the end.
    pub const MERGE: u8 = 13;
    /// The number of operations, including the empty one.
    pub const COUNT: u8 = 14;
}

/// Bits of the argument of a segment, or of a registry.
pub mod segment {
    /// Names are not checked.
    pub const VERBATIM: u8 = 1;
    /// The families are variants.
    pub const VARIANT: u8 = 2;
    /// The file is written without the library, which would refuse its settings.
    pub const HOSTILE: u8 = 4;
    /// The labels of the first family are labels of the whole segment.
    pub const LABELLED: u8 = 8;
}

/// The words of the bytes from 0x80 to 0xff.
pub const WORDS: [&[u8]; 128] = [
    b"\0",
    b"\n",
    b"\t",
    b"\r",
    b";",
    b",",
    b"\xff",
    "\u{e9}".as_bytes(),
    "\u{82b1}".as_bytes(),
    "\u{202e}".as_bytes(),
    "\u{85}".as_bytes(),
    b"a b",
    b"a_b",
    b"a.b",
    b"a:b",
    b"x y",
    b"x_y",
    b"x.y",
    b"__",
    b"..",
    b"U__",
    b"U__x_2e_y",
    b"_total",
    b".total",
    b"_info",
    b".info",
    b"_bucket",
    b"_sum",
    b"_count",
    b"_gcount",
    b"_gsum",
    b"_created",
    b"_seconds",
    b".seconds",
    b"seconds",
    b"s",
    b"_bytes",
    b"By",
    b"_ratio",
    b"%",
    b"_percent",
    b"ms",
    b"total",
    b"info",
    b"le",
    b"quantile",
    b"__name__",
    b"job",
    b"instance",
    b"segment",
    b"exported_job",
    b"exported_instance",
    b"quipu_overflow",
    b"quipu_name",
    b"quipu_",
    b"quipu.",
    b"events_total",
    b"events.total",
    b"push_time_seconds",
    b"push_failure_time_seconds",
    b"up",
    b"scrape_duration_seconds",
    b"target_info",
    b"otel_scope_name",
    b"service.name",
    b"true",
    b"# TYPE ",
    b"# HELP ",
    b"# UNIT ",
    b"# EOF\n",
    b" counter\n",
    b" gauge\n",
    b" histogram\n",
    b" summary\n",
    b" untyped\n",
    b" unknown\n",
    b" info\n",
    b" stateset\n",
    b" gaugehistogram\n",
    b" 1\n",
    b" 2\n",
    b"{",
    b"}",
    b"=\"",
    b"\",",
    b"\"}",
    b"{\"",
    b"\"",
    b"\\",
    b"\\n",
    b"{le=\"",
    b"{quantile=\"",
    b"+Inf",
    b"-Inf",
    b"NaN",
    b"0",
    b"-0",
    b"0.5",
    b"1e300",
    b"5e-324",
    b"-1",
    b"9223372036854775807",
    b"18446744073709551615",
    b"1.5",
    b"1.0",
    b"|c\n",
    b"|g\n",
    b"|ms\n",
    b"|h|@0.5",
    b"|d",
    b"|#",
    b" # {",
    b"} 1 1\n",
    b"x",
    b"y",
    b"x_total",
    b"x_info",
    b"x_bucket",
    b"x_sum",
    b"x_count",
    b"x_seconds",
    b"x.",
    b"X",
    b"_",
    b":",
    b".",
    b" ",
    b"{\"a b\"=\"1\",a_b=\"2\"}",
];

/// A family, for inputs with binary messages.
#[derive(Debug, Clone, Default)]
pub struct Family {
    /// The kind, modulo the number of kinds.
    pub kind: u8,
    pub name: String,
    pub unit: String,
    pub help: String,
    pub labels: Vec<(String, String)>,
    /// The values, or the bounds of a histogram, or the quantiles of a summary.
    pub values: Vec<f64>,
}

/// The kinds of [`Family::kind`].
pub mod kind {
    pub const COUNTER: u8 = 0;
    pub const GAUGE: u8 = 1;
    pub const HISTOGRAM: u8 = 2;
    pub const NATIVE: u8 = 3;
    pub const SUMMARY: u8 = 4;
    pub const INFO: u8 = 5;
    pub const STATE_SET: u8 = 6;
    pub const UNKNOWN: u8 = 7;
    pub const COUNT: u8 = 8;
}

/// A bit in every argument, because a NUL would end the operation.
const NOT_NUL: u8 = 0x40;

/// Splits an input into its flags and operations, each with its argument and its payload.
pub fn decode(input: &[u8]) -> (u8, impl Iterator<Item = (u8, u8, &[u8])>) {
    let (&flags, rest) = input.split_first().unwrap_or((&0, &[]));
    let ops = rest.split(|byte| *byte == 0).filter_map(|op| {
        let [kind, argument, text @ ..] = op else { return None };
        Some((kind % op::COUNT, *argument & !NOT_NUL, text))
    });
    (flags, ops)
}

/// Expands the words in an encoded payload.
pub fn words(encoded: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    for byte in encoded {
        match byte.checked_sub(0x80) {
            Some(word) => text.extend_from_slice(WORDS[usize::from(word)]),
            None => text.push(*byte),
        }
    }
    text
}

/// Parses the families of an operation: one per line, with the kind, the name, the unit, the help,
/// the labels and the values, separated by tabs.
pub fn families(text: &[u8]) -> Vec<Family> {
    let lines =
        text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).take(MAX_FAMILIES);
    lines.map(family).collect()
}

const MAX_FAMILIES: usize = 8;
const MAX_LABELS: usize = 6;
const MAX_VALUES: usize = 12;

fn family(line: &[u8]) -> Family {
    let mut fields = line.split(|byte| *byte == b'\t');
    let mut next = || fields.next().unwrap_or_default();
    let text = |encoded: &[u8]| String::from_utf8_lossy(&words(encoded)).into_owned();
    let kind = next().first().map_or(0, |kind| kind.wrapping_sub(b'0') % kind::COUNT);
    let [name, unit, help] = [(); 3].map(|()| text(next()));
    let labels = next().split(|byte| *byte == b';').filter(|label| !label.is_empty());
    let labels = labels.take(MAX_LABELS).map(|label| {
        let at = label.iter().position(|byte| *byte == b'=').unwrap_or(label.len());
        (text(&label[..at]), text(label.get(at + 1..).unwrap_or_default()))
    });
    let labels = labels.collect();
    let values = next().split(|byte| *byte == b',').filter(|value| !value.is_empty());
    let values = values.take(MAX_VALUES).map(|value| text(value).parse().unwrap_or(1.0)).collect();
    Family { kind, name, unit, help, labels, values }
}

/// Encodes a program: the flags, and operations with their arguments and payloads.
pub fn encode(flags: u8, ops: &[(u8, u8, &[u8])]) -> Vec<u8> {
    let mut input = vec![flags];
    for (kind, argument, text) in ops {
        input.extend_from_slice(&[*kind, *argument | NOT_NUL]);
        input.extend_from_slice(&shorten(text));
        input.push(0);
    }
    input
}

/// Removes bytes that a payload cannot contain, and replaces the longest words by their codes.
fn shorten(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some(&first) = rest.first() {
        let must = first == 0 || first > 0x7f;
        let found = WORDS.iter().enumerate().filter(|(_, word)| rest.starts_with(word));
        match found.max_by_key(|(_, word)| word.len()) {
            Some((at, word)) if must || word.len() > 5 => {
                out.push(0x80 + at as u8);
                rest = &rest[word.len()..];
            }
            _ => {
                out.push(first & 0x7f);
                rest = &rest[1..];
            }
        }
    }
    out
}
