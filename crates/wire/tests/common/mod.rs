//! What the tests share: messages, their comparison bit for bit, and the vectors.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

use quipu_wire::{AnyFormat, BatchTimer, Counter, Gauge, Kind, Message, MetricType, MetricUnion};

/// The rows of the vectors, under the names of the formats that write them.
const ROWS: &[(&str, &str)] = &[
    ("VmihailencoMsgpack", "vmihailenco-msgpack"),
    ("TinylibMsgp", "tinylib-msgp"),
    ("UgorjiCodec", "ugorji-msgpack"),
    ("Flatbuffers", "flatbuffers"),
    ("GoogleProtobufReal", "protobuf"),
    ("GoogleProtobufViaGogo", "protobuf-via-gogo"),
    ("GogoProtobuf", "gogo-protobuf"),
    ("DedisProtobuf", "dedis-protobuf"),
    ("Capnproto", "capnp"),
    ("CapnprotoPacked", "capnp-packed"),
    ("Thrift", "thrift"),
    ("ThriftCompact", "thrift-compact"),
    ("Gob", "gob"),
    ("JSON", "json"),
    ("Easyjson", "easyjson"),
    ("BSON", "bson"),
    ("XDR", "xdr"),
    ("Sereal", "sereal"),
    ("Gencode", "gencode"),
    ("Colfer", "colfer"),
    ("Hprose", "hprose"),
];

/// The rows of the vectors whose format this build has.
pub fn rows() -> impl Iterator<Item = (&'static str, AnyFormat)> {
    ROWS.iter().filter_map(|(row, name)| Some((*row, AnyFormat::named(name)?)))
}

/// What a row's library loses, or its format: zeros lose their sign where they are left out.
pub fn as_read<'m>(row: &str, message: Message<'m>) -> Message<'m> {
    if ["Easyjson", "Hprose"].contains(&row) {
        return with_plain_nan(message);
    }
    let drop_sign = |value: f64| if value == 0.0 { 0.0 } else { value };
    if !["Flatbuffers", "GogoProtobuf", "Gob", "Colfer"].contains(&row) {
        return message;
    }
    match message {
        Message::Gauge(gauge) => Gauge { value: drop_sign(gauge.value), ..gauge }.into(),
        Message::MetricUnion(union) => {
            MetricUnion { gauge: drop_sign(union.gauge), ..union }.into()
        }
        other => other,
    }
}

/// A NaN is a word in text, without a sign and other bits.
fn with_plain_nan(message: Message<'_>) -> Message<'_> {
    let plain = |value: f64| if value.is_nan() { f64::NAN } else { value };
    let list =
        |values: &[f64]| &*values.iter().map(|value| plain(*value)).collect::<Vec<_>>().leak();
    match message {
        Message::Counter(counter) => counter.into(),
        Message::BatchTimer(BatchTimer { id, values }) => {
            BatchTimer { id, values: list(values) }.into()
        }
        Message::Gauge(Gauge { id, value }) => Gauge { id, value: plain(value) }.into(),
        Message::MetricUnion(union) => {
            MetricUnion { timer: list(union.timer), gauge: plain(union.gauge), ..union }.into()
        }
    }
}

pub fn seed() -> &'static str {
    include_str!("../vectors/seed.tsv")
}

pub fn random() -> String {
    let bytes = zstd::decode_all(&include_bytes!("../vectors/random.tsv.zst")[..]).unwrap();
    String::from_utf8(bytes).unwrap()
}

/// A line of the vectors: a message, and what the row's library writes for it, if it does.
pub struct Line {
    pub kind: Kind,
    metric_type: i8,
    id: Vec<u8>,
    counter: i64,
    timer: Vec<f64>,
    gauge: f64,
    pub bytes: Option<Vec<u8>>,
}

impl Line {
    fn parse(line: &str) -> Line {
        let [_, kind, metric_type, id, counter, timer, gauge, bytes] =
            *line.split('\t').collect::<Vec<_>>()
        else {
            panic!("a line has 8 columns")
        };
        let double = |bits: &str| f64::from_bits(u64::from_str_radix(bits, 16).unwrap());
        Line {
            kind: self::kind(kind),
            metric_type: if metric_type == "-" { 0 } else { metric_type.parse().unwrap() },
            id: unhex(id),
            counter: if counter == "-" { 0 } else { counter.parse().unwrap() },
            timer: match timer {
                "-" | "" => vec![],
                list => list.split(',').map(double).collect(),
            },
            gauge: if gauge == "-" { 0.0 } else { double(gauge) },
            bytes: (!bytes.starts_with("error:")).then(|| unhex(bytes)),
        }
    }

    pub fn message(&self) -> Message<'_> {
        let Line { kind, metric_type, id, counter, timer, gauge, .. } = self;
        match kind {
            Kind::Counter => Counter { id, value: *counter }.into(),
            Kind::BatchTimer => BatchTimer { id, values: timer }.into(),
            Kind::Gauge => Gauge { id, value: *gauge }.into(),
            Kind::MetricUnion => MetricUnion {
                metric_type: MetricType(*metric_type),
                id,
                counter: *counter,
                timer,
                gauge: *gauge,
            }
            .into(),
        }
    }
}

pub fn lines<'t>(text: &'t str, row: &'t str) -> impl Iterator<Item = Line> + 't {
    text.lines().filter(move |line| line.split('\t').next() == Some(row)).map(Line::parse)
}

pub fn kind(name: &str) -> Kind {
    *Kind::ALL.iter().find(|kind| kind.name() == name).unwrap()
}

pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

pub fn unhex(text: &str) -> Vec<u8> {
    assert!(text.len().is_multiple_of(2) && text.is_ascii());
    (0..text.len() / 2).map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap()).collect()
}

pub const SEED_ID: &[u8] = b"name=bulbasaur,trainer=ash,type=grass";
pub const SEED_VALUES: &[f64] = &[1.0, 2.0, 3.0, 4.0, 5.0];

/// The four messages of the table of sizes.
pub fn seed_message(kind: Kind) -> Message<'static> {
    let id = SEED_ID;
    match kind {
        Kind::Counter => Counter { id, value: 100 }.into(),
        Kind::BatchTimer => BatchTimer { id, values: SEED_VALUES }.into(),
        Kind::Gauge => Gauge { id, value: 100.0 }.into(),
        Kind::MetricUnion => MetricUnion {
            metric_type: MetricType::BATCH_TIMER,
            id,
            counter: 0,
            timer: SEED_VALUES,
            gauge: 0.0,
        }
        .into(),
    }
}

/// Whether two messages are the same bit for bit.
pub fn same(a: &Message<'_>, b: &Message<'_>) -> bool {
    let bits = |values: &[f64]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    let (x, y) = (a.to_union(), b.to_union());
    a.kind() == b.kind()
        && (x.metric_type, x.id, x.counter) == (y.metric_type, y.id, y.counter)
        && bits(x.timer) == bits(y.timer)
        && x.gauge.to_bits() == y.gauge.to_bits()
}
