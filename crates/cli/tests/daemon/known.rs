//! Tests of the cache of series by their bytes. Senders that always write a series in the same way,
//! and senders that write it differently each time, must get the same responses and create the same
//! series.

use std::time::{SystemTime, UNIX_EPOCH};

use quipu_wire::remote;

use crate::common::{Daemon, Home, Random, Response};

/// Totals, gauges, and names without a declared type.
const NAMES: [&str; 7] = [
    "known_hits_total",
    "known_jobs",
    "known_level",
    "known_took_bucket",
    "known_took_count",
    "known_odd_sum",
    "known_plain",
];
const ONE: &str = "application/x-protobuf";
const TWO: &str = "application/x-protobuf;proto=io.prometheus.write.v2.Request";
const STALE: u64 = 0x7ff0_0000_0000_0002;
const HOUR: i64 = 3_600_000;

/// A sample of one of a few series.
struct Sample {
    name: &'static str,
    host: u64,
    values: Vec<(f64, i64)>,
}

impl Random {
    /// Returns a value and its time in a round. `start` is the time of the first round.
    fn value(&mut self, round: i64, start: i64) -> (f64, i64) {
        let value = match self.below(24) {
            0 => f64::NAN,
            1 => -1.0,
            2 => f64::from_bits(STALE),
            3 => f64::INFINITY,
            4 => self.below(5) as f64,
            _ => (10 * round) as f64 + self.below(10) as f64,
        };
        let time = match self.below(24) {
            0 => start - 3 * HOUR,
            1 => start - 1,
            2 => start + 2 * HOUR,
            3 => 1000 * (start / 1000 + round - 1),
            _ => 1000 * (start / 1000 + round) + self.below(2) as i64,
        };
        (value, time)
    }

    fn samples(&mut self, round: i64, start: i64) -> Vec<Sample> {
        let count = 1 + self.below(12);
        let sample = |_| Sample {
            name: NAMES[self.below(NAMES.len() as u64) as usize],
            host: self.below(3),
            values: (0..=self.below(5) / 4).map(|_| self.value(round, start)).collect(),
        };
        (0..count).map(sample).collect()
    }
}

fn field(tag: u8, body: &[u8]) -> Vec<u8> {
    let length = u8::try_from(body.len()).unwrap();
    match length {
        0..0x80 => [&[tag, length], body].concat(),
        _ => [&[tag, length, 1], body].concat(),
    }
}

/// Encodes a series of remote write 1.0. `mark` is stored in an unknown field, so it changes only
/// the bytes.
fn series(sample: &Sample, mark: Option<u8>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let host = sample.host.to_string();
    let mut labels = vec![("__name__", sample.name), ("host", &host)];
    if sample.name.ends_with("_bucket") {
        labels.push(("le", "1"));
    }
    for (name, value) in labels {
        let mark = mark.map_or(vec![], |mark| vec![0x78, mark]);
        let label = [field(0x0a, name.as_bytes()), field(0x12, value.as_bytes()), mark].concat();
        bytes.extend(field(0x0a, &label));
    }
    bytes.extend(values(sample));
    field(0x0a, &bytes)
}

/// Encodes the samples of a remote write series.
fn values(sample: &Sample) -> Vec<u8> {
    let value = |(value, time): &(f64, i64)| {
        let time = varint(*time as u64);
        field(0x12, &[&[0x09][..], &value.to_le_bytes(), &[0x10], &time].concat())
    };
    sample.values.iter().flat_map(value).collect()
}

fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = vec![];
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

/// Encodes a request of remote write 2.0. Series with unsorted labels are not cached.
fn request_2(samples: &[(Sample, u8)], is_ordered: bool) -> Vec<u8> {
    let (mut symbols, mut all) = (vec![String::new(), "A help.".into()], vec![]);
    for (sample, kind) in samples {
        let mut labels = vec![("__name__", sample.name.into()), ("host", sample.host.to_string())];
        if !is_ordered {
            labels.reverse();
        }
        let mut numbers = vec![];
        for text in labels.into_iter().flat_map(|(name, value)| [name.into(), value]) {
            numbers.extend(varint(symbols.len() as u64));
            symbols.push(text);
        }
        // Some series contain a help string.
        let about = [0x08, *kind, 0x18, u8::from(sample.host == 1)];
        let series = [field(0x0a, &numbers), values(sample), field(0x2a, &about)].concat();
        all.extend(field(0x2a, &series));
    }
    let symbols = symbols.iter().flat_map(|text| field(0x22, text.as_bytes()));
    symbols.chain(all).collect()
}

/// Writes the lines of a sample. `mark` is a number of spaces before each line.
fn lines(sample: &Sample, mark: usize) -> String {
    let bound = if sample.name.ends_with("_bucket") { ",le=\"1\"" } else { "" };
    let line = |(value, time): &(f64, i64)| {
        let value = if value.is_nan() { "NaN".into() } else { value.to_string() };
        // Some samples contain no time.
        let time = if time % 7 == 0 { String::new() } else { format!(" {time}") };
        let name = sample.name;
        format!("{:mark$}{name}{{host=\"{}\"{bound}}} {value}{time}\n", "", sample.host)
    };
    sample.values.iter().map(line).collect()
}

/// Returns all series of the test, and the counts of accepted samples.
fn shown(daemon: &Daemon) -> Vec<String> {
    let text = daemon.get("/metrics").text();
    let is_shown = |line: &&str| line.contains("known_") || line.contains("quipu_input_samples");
    text.lines().filter(is_shown).map(str::to_owned).collect()
}

fn write(daemon: &Daemon, content_type: &str, request: &[u8]) -> Response {
    let mut body = Vec::new();
    remote::snappy::compress(request, &mut body).unwrap();
    daemon.post_body("/api/v1/write", &[("Content-Type", content_type)], &body)
}

#[test]
fn known_series_are_counted_like_new_ones() {
    let homes = [Home::new(), Home::new()];
    let daemons = [homes[0].start(&[]), homes[1].start(&[])];
    let [known, new] = &daemons;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64;
    let start = now - HOUR;
    let mut random = Random(88_172_645_463_325_252);
    for round in 1..120_u8 {
        // The metadata of families, which sometimes changes.
        let mut families = vec![];
        if random.below(6) == 0 {
            let name = &NAMES[1 + random.below(2) as usize];
            let kind = 1 + random.below(2) as u8;
            let about = [&[0x08, kind][..], &field(0x12, name.as_bytes())].concat();
            families = field(0x1a, &about);
        }
        let samples = random.samples(round.into(), start);
        let [one, other] = [None, Some(round)].map(|mark| {
            let series = samples.iter().flat_map(|sample| series(sample, mark));
            families.iter().copied().chain(series).collect::<Vec<u8>>()
        });
        let (one, other) = (write(known, ONE, &one), write(new, ONE, &other));
        assert_eq!((one.status, one.text()), (other.status, other.text()), "{round}");

        let kind = ["", "# TYPE known_jobs gauge\n", "# TYPE known_level counter\n"]
            [(random.below(8) as usize).saturating_sub(5)];
        let samples = random.samples(round.into(), start);
        let [one, other] = [0, usize::from(round)].map(|mark| {
            let lines: String = samples.iter().map(|sample| lines(sample, mark)).collect();
            [kind, &lines].concat()
        });
        let import = |daemon: &Daemon, text: &str| {
            daemon.post_body("/api/v1/import/prometheus", &[], text.as_bytes())
        };
        let (one, other) = (import(known, &one), import(new, &other));
        assert_eq!((one.status, one.text()), (other.status, other.text()), "{round}");

        let kinds = [1, 0, 2, 1, 1, 0, 0];
        let samples: Vec<(Sample, u8)> = random
            .samples(round.into(), start)
            .into_iter()
            .map(|sample| {
                let at = NAMES.iter().position(|name| *name == sample.name).unwrap();
                let kind = if random.below(10) == 0 { random.below(3) as u8 } else { kinds[at] };
                (sample, kind)
            })
            .collect();
        let [one, other] = [true, false].map(|is_ordered| request_2(&samples, is_ordered));
        let (one, other) = (write(known, TWO, &one), write(new, TWO, &other));
        assert_eq!((one.status, one.text()), (other.status, other.text()), "{round}");
        let written = "x-prometheus-remote-write-samples-written";
        assert_eq!(one.fields[written], other.fields[written], "{round}");
        assert_eq!(shown(known), shown(new), "{round}");
    }
    assert!(shown(known).len() > 2 * NAMES.len());
}
