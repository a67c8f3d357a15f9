//! Code that the tests share: messages, their bitwise comparison, and the vectors.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

pub mod hard;

use quipu_arena::Arena;
use quipu_wire::{AnyFormat, BatchTimer, Counter, Gauge, Kind, Message, MetricType, MetricUnion};

/// The rows of the vectors, with the names of their formats.
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

/// Returns the rows whose format this build supports.
pub fn rows() -> impl Iterator<Item = (&'static str, AnyFormat)> {
    ROWS.iter().filter_map(|(row, name)| Some((*row, name.parse().ok()?)))
}

/// Returns the row of a format.
pub fn row(format: &str) -> &'static str {
    ROWS.iter().find(|(_, name)| *name == format).unwrap().0
}

/// Returns the message that a reader gets back in the format of a row. The format must be able to
/// represent the message.
pub fn as_read(row: &str, message: Message<'_>) -> Message<'static> {
    let (_, format) = ROWS.iter().find(|(name, _)| *name == row).unwrap();
    let read = carried(format, &Owned::of(&message)).unwrap();
    Box::leak(Box::new(read)).message()
}

pub fn seed() -> &'static str {
    include_str!("../vectors/seed.tsv")
}

pub fn random() -> String {
    let bytes = zstd::decode_all(&include_bytes!("../vectors/random.tsv.zst")[..]).unwrap();
    String::from_utf8(bytes).unwrap()
}

/// A message that owns its memory.
#[derive(Clone, Debug)]
pub struct Owned {
    pub kind: Kind,
    pub metric_type: i8,
    pub id: Vec<u8>,
    pub counter: i64,
    pub timer: Vec<f64>,
    pub gauge: f64,
}

impl Owned {
    pub fn of(message: &Message<'_>) -> Owned {
        let union = message.to_union();
        Owned {
            kind: message.kind(),
            metric_type: union.metric_type.0,
            id: union.id.to_vec(),
            counter: union.counter,
            timer: union.timer.to_vec(),
            gauge: union.gauge,
        }
    }

    pub fn message(&self) -> Message<'_> {
        let Owned { kind, metric_type, id, counter, timer, gauge } = self;
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

    /// Parses the columns kind, type, id in hex, counter, bits of the values, bits of the gauge. A
    /// field that the message lacks is `-`.
    pub fn parse([kind, metric_type, id, counter, timer, gauge]: [&str; 6]) -> Owned {
        let double = |bits: &str| f64::from_bits(u64::from_str_radix(bits, 16).unwrap());
        Owned {
            kind: self::kind(kind),
            metric_type: if metric_type == "-" { 0 } else { metric_type.parse().unwrap() },
            id: unhex(id),
            counter: if counter == "-" { 0 } else { counter.parse().unwrap() },
            timer: match timer {
                "-" | "" => vec![],
                list => list.split(',').map(double).collect(),
            },
            gauge: if gauge == "-" { 0.0 } else { double(gauge) },
        }
    }

    /// Formats the same columns.
    pub fn columns(&self) -> String {
        let Owned { kind, metric_type, id, counter, timer, gauge } = self;
        let bits = |value: &f64| format!("{:016x}", value.to_bits());
        let has = |kinds: &[Kind], text: String| match kinds.contains(kind) {
            true => text,
            false => "-".into(),
        };
        [
            kind.to_string(),
            has(&[Kind::MetricUnion], metric_type.to_string()),
            hex(id),
            has(&[Kind::Counter, Kind::MetricUnion], counter.to_string()),
            has(
                &[Kind::BatchTimer, Kind::MetricUnion],
                timer.iter().map(bits).collect::<Vec<_>>().join(","),
            ),
            has(&[Kind::Gauge, Kind::MetricUnion], bits(gauge)),
        ]
        .join("\t")
    }

    /// Returns the message's floats.
    pub fn doubles(&self) -> impl Iterator<Item = f64> {
        let (timer, gauge) = match self.kind {
            Kind::Counter => (None, None),
            Kind::BatchTimer => (Some(&self.timer), None),
            Kind::Gauge => (None, Some(self.gauge)),
            Kind::MetricUnion => (Some(&self.timer), Some(self.gauge)),
        };
        timer.into_iter().flatten().copied().chain(gauge)
    }
}

/// Sorts the messages of a quipu block in the order of a reader: by the kinds of their metrics, in
/// the order of the format's codes.
pub fn in_block_order(messages: &mut [Owned]) {
    messages.sort_by_key(|message| {
        let union = message.message().to_union();
        match union.to_metric().map(|metric| metric.kind()) {
            Some(Kind::Counter) => 0,
            Some(Kind::BatchTimer) => 1,
            Some(Kind::Gauge) => 2,
            _ => 3,
        }
    });
}

/// The properties that a format cannot preserve.
#[derive(Clone, Copy, Default)]
struct Losses {
    /// A gauge of -0 is omitted like other zeros, or means something else.
    sign_of_zero: bool,
    /// All NaNs are equal.
    nan_payload: bool,
    /// NaN and the infinities cannot be written.
    infinite: bool,
    /// Lines that begin with the id support few ids, and contain at least one value.
    lines: bool,
    /// Tags can be a part of the id, for example `id|#key:value`.
    tags: bool,
}

fn losses(format: &str) -> Losses {
    let none = Losses::default();
    match format {
        "flatbuffers" | "gogo-protobuf" | "gob" | "colfer" => Losses { sign_of_zero: true, ..none },
        "json" => Losses { infinite: true, ..none },
        "easyjson" | "hprose" => Losses { nan_payload: true, ..none },
        "statsd" => Losses { sign_of_zero: true, infinite: true, lines: true, ..none },
        "dogstatsd" => Losses { infinite: true, lines: true, tags: true, ..none },
        _ => none,
    }
}

impl Losses {
    fn refuse(self, message: &Owned) -> bool {
        let infinite = message.doubles().any(|value| !value.is_finite());
        self.infinite && infinite || self.lines && !self.fits_lines(message)
    }

    fn fits_lines(self, message: &Owned) -> bool {
        let Ok(id) = std::str::from_utf8(&message.id) else { return false };
        let (name, tags) = match id.split_once("|#") {
            Some((name, tags)) if self.tags => (name, Some(tags)),
            _ => (id, None),
        };
        let id_fits = !name.is_empty()
            && !name.starts_with("_e{")
            && !name.contains([':', '|', '\n'])
            && tags.is_none_or(|tags| !tags.is_empty() && !tags.contains(['|', '\n']));
        let metric = match message.message() {
            Message::MetricUnion(union) => union.to_metric(),
            metric => Some(metric),
        };
        let values_fit = match metric {
            Some(Message::BatchTimer(timer)) => !timer.values.is_empty(),
            Some(_) => true,
            None => false,
        };
        id_fits && values_fit
    }
}

/// Returns the message that a reader gets back in a format, or `None` if the format must refuse it.
pub fn carried(format: &str, message: &Owned) -> Option<Owned> {
    let losses = losses(format);
    if losses.refuse(message) {
        return None;
    }
    let mut carried = message.clone();
    if losses.sign_of_zero && carried.gauge == 0.0 {
        carried.gauge = 0.0;
    }
    if losses.nan_payload {
        let values = carried.timer.iter_mut().chain([&mut carried.gauge]);
        values.filter(|value| value.is_nan()).for_each(|value| *value = f64::NAN);
    }
    Some(carried)
}

/// Writes a message that the format can represent.
pub fn encoded(format: AnyFormat, message: &Message<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    format
        .encode(message, &mut out)
        .unwrap_or_else(|error| panic!("{} {message:?}: {error}", format.as_str()));
    out
}

/// Returns how many bytes at the end of a message are optional: the last line feed, if lines
/// consist of columns.
pub fn optional_end(format: AnyFormat) -> usize {
    usize::from(format.as_str() == "tsv")
}

/// Reads any bytes. An error must contain an offset in the input. A message must survive being
/// written and read again.
pub fn read_any(format: AnyFormat, kind: Kind, bytes: &[u8]) -> Result<Owned, quipu_wire::Error> {
    let name = format.as_str();
    let mut arena = Arena::new();
    let message = match format.decode(kind, bytes, &arena.as_scope()) {
        Ok(message) => Owned::of(&message),
        Err(error) => {
            assert_eq!(error.format(), name);
            let offset = error.offset().unwrap_or_else(|| panic!("{name}: {error}: where?"));
            assert!(offset <= bytes.len() as u64, "{name} {}: {error}", hex(bytes));
            return Err(error);
        }
    };
    assert_eq!(message.kind, kind, "{name}");
    let Some(expected) = carried(name, &message) else {
        // Line readers accept ids that are not UTF-8, and tags that only one dialect writes.
        let is_plain = std::str::from_utf8(&message.id).is_ok_and(|id| !id.contains("|#"));
        assert!(losses(name).lines && !is_plain, "{name} {}: {message:?}", hex(bytes));
        format.encode(&message.message(), &mut vec![]).unwrap_err();
        return Ok(message);
    };
    let again = encoded(format, &message.message());
    let mut arena = Arena::new();
    let read = format
        .decode(kind, &again, &arena.as_scope())
        .unwrap_or_else(|error| panic!("{name} {}: {error}", hex(&again)));
    assert!(
        same(&read, &expected.message()),
        "{name} {}: read {message:?}, wrote {}, read {read:?}",
        hex(bytes),
        hex(&again)
    );
    Ok(message)
}

/// A line of the vectors: a message and the bytes from the row's library, if it accepts the
/// message.
pub struct Line {
    pub kind: Kind,
    pub owned: Owned,
    pub bytes: Option<Vec<u8>>,
}

impl Line {
    fn parse(line: &str) -> Line {
        let [_, kind, metric_type, id, counter, timer, gauge, bytes] =
            *line.split('\t').collect::<Vec<_>>()
        else {
            panic!("a line has 8 columns")
        };
        let owned = Owned::parse([kind, metric_type, id, counter, timer, gauge]);
        let bytes = (!bytes.starts_with("error:")).then(|| unhex(bytes));
        Line { kind: owned.kind, owned, bytes }
    }

    pub fn message(&self) -> Message<'_> {
        self.owned.message()
    }
}

pub fn lines<'t>(text: &'t str, row: &'t str) -> impl Iterator<Item = Line> + 't {
    text.lines().filter(move |line| line.split('\t').next() == Some(row)).map(Line::parse)
}

pub fn kind(name: &str) -> Kind {
    name.parse().unwrap()
}

pub fn hex(bytes: &[u8]) -> String {
    let digit = |number: u8| char::from(b"0123456789abcdef"[usize::from(number)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

pub fn unhex(text: &str) -> Vec<u8> {
    assert!(text.len().is_multiple_of(2), "two digits per byte");
    let digit = |byte: u8| char::from(byte).to_digit(16).unwrap() as u8;
    text.as_bytes().chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

pub const SEED_ID: &[u8] = b"name=bulbasaur,trainer=ash,type=grass";
pub const SEED_VALUES: &[f64] = &[1.0, 2.0, 3.0, 4.0, 5.0];

/// Returns the four messages of the table of sizes.
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

/// Returns whether two messages are equal bit for bit.
pub fn same(a: &Message<'_>, b: &Message<'_>) -> bool {
    let bits = |values: &[f64]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    let (x, y) = (a.to_union(), b.to_union());
    a.kind() == b.kind()
        && (x.metric_type, x.id, x.counter) == (y.metric_type, y.id, y.counter)
        && bits(x.timer) == bits(y.timer)
        && x.gauge.to_bits() == y.gauge.to_bits()
}
