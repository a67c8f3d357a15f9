//! Properties of the StatsD reader: we can read lines from clients, a malformed line does not
//! affect its neighbours, and no bytes can cause a panic.

#![cfg(feature = "statsd")]
#![allow(clippy::unwrap_used)]

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use quipu_wire::remote::statsd::{StatsdLine, StatsdLineError, StatsdLines, Tags};
use quipu_wire::remote::{Cut, LineBuffer};

/// A line that a client sends.
#[derive(Clone, Debug)]
struct Sent {
    name: String,
    values: Vec<f64>,
    kind: &'static str,
    rate: Option<f64>,
    tags: Vec<(String, String)>,
    dialect: usize,
    time: Option<i64>,
    more: &'static str,
}

/// The parts of a sample that was read: name, values, kind, rate, tags and time.
type Read = (String, Vec<f64>, String, f64, Vec<(String, String)>, Option<i64>);

fn sent() -> impl Strategy<Value = Sent> {
    let word = "[a-z\u{e9}][a-z0-9_./ -]{0,12}";
    let values = vec(prop_oneof![any::<i32>().prop_map(f64::from), -1e9..1e9], 1..4);
    let more = select(&["", "|c:ci-1234", "|c:a:b|e:it-false", "|card:low"][..]);
    let kind = select(&["c", "d", "g", "h", "m", "ms"][..]);
    let rate = prop::option::of(0.001..1.0);
    let tags = vec((word, word), 0..4);
    (word, values, kind, rate, tags, 0..4_usize, prop::option::of(any::<i64>()), more).prop_map(
        |(name, values, kind, rate, tags, dialect, time, more)| Sent {
            name,
            values,
            kind,
            rate,
            tags,
            dialect,
            time,
            more,
        },
    )
}

impl Sent {
    fn line(&self) -> String {
        let join = |separator: &str| {
            let pairs = self.tags.iter().map(|(name, value)| format!("{name}{separator}{value}"));
            pairs.collect::<Vec<_>>().join(",")
        };
        let name = match self.dialect {
            0..=2 if self.tags.is_empty() => self.name.clone(),
            0 => format!("{},{}", self.name, join("=")),
            1 => format!("{}#{}", self.name, join("=")),
            2 => format!("{}[{}]", self.name, join("=")),
            _ => self.name.clone(),
        };
        let values: Vec<_> = self.values.iter().map(f64::to_string).collect();
        let mut line = format!("{name}:{}|{}", values.join(":"), self.kind);
        if let Some(rate) = self.rate {
            line += &format!("|@{rate}");
        }
        if self.dialect == 3 && !self.tags.is_empty() {
            line += &format!("|#{}", join(":"));
        }
        if let Some(time) = self.time {
            line += &format!("|T{time}");
        }
        line + self.more
    }

    fn parts(&self) -> Read {
        let kind = match self.kind {
            "c" => "Counter",
            "d" => "Distribution",
            "g" => "Gauge",
            "h" => "Histogram",
            "m" => "Meter",
            _ => "Timer",
        };
        let rate = self.rate.unwrap_or(1.0);
        let (name, tags) = (self.name.clone(), self.tags.clone());
        (name, self.values.clone(), kind.into(), rate, tags, self.time)
    }
}

fn parts(line: &Result<StatsdLine<'_>, StatsdLineError>) -> Read {
    let Ok(StatsdLine::Sample(sample)) = line else { panic!("{line:?}") };
    let values = sample.values().map(|value| value.unwrap().number).collect();
    let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    let tags = sample.tags().map(|tag| owned(tag.unwrap())).collect();
    let kind = format!("{:?}", sample.kind);
    (sample.name.to_string(), values, kind, sample.rate, tags, sample.timestamp_s)
}

/// Reads all lines and formats the result, without line numbers.
fn all(input: &[u8], tags: Tags) -> Vec<String> {
    let lines = input.iter().filter(|byte| **byte == b'\n').count() as u64 + 1;
    let show = |line: Result<StatsdLine<'_>, StatsdLineError>| match line {
        Ok(StatsdLine::Sample(sample)) => {
            let error = |e: StatsdLineError| (e.reason(), e.offset());
            let values: Vec<_> = sample.values().map(|value| value.map_err(error)).collect();
            let tags: Vec<_> = sample.tags().collect();
            format!("{} {:?} {} {values:?} {tags:?}", sample.name, sample.kind, sample.rate)
        }
        Ok(line) => format!("{line:?}"),
        Err(error) => {
            assert!((1..=lines).contains(&error.line()), "{error}");
            format!("{:?} {}", error.reason(), error.offset())
        }
    };
    StatsdLines::new(input, tags).map(show).collect()
}

fn tags() -> impl Strategy<Value = Tags> {
    any::<[bool; 4]>().prop_map(|[datadog, influxdb, librato, signalfx]| {
        Tags::NONE.datadog(datadog).influxdb(influxdb).librato(librato).signalfx(signalfx)
    })
}

/// Generates bytes that often resemble valid lines.
fn noise() -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![
        4 => select(&b"ab:|#@,=[]T\ncgmsh01.+-_e{\r\xc3"[..]).prop_map(|byte| vec![byte]),
        1 => select(&["a:1|c", "|#", "|@0.5", "_sc|", "|c:", "\u{e9}"][..]).prop_map(|s| s.into()),
        1 => any::<u8>().prop_map(|byte| vec![byte]),
    ];
    vec(part, 0..60).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 512, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn lines_of_statsd_clients_are_read(sent in vec(sent(), 1..5), bad in vec(noise(), 5)) {
        let mut packet = Vec::new();
        let mut clean = Vec::new();
        for (one, noise) in sent.iter().zip(bad) {
            clean.extend_from_slice(one.line().as_bytes());
            clean.push(b'\n');
            // A malformed line does not affect its neighbours.
            packet.extend_from_slice(&noise);
            packet.push(b'\n');
            packet.extend_from_slice(one.line().as_bytes());
            packet.push(b'\n');
        }
        let read: Vec<_> = StatsdLines::new(&clean, Tags::ALL).collect();
        prop_assert_eq!(read.len(), sent.len());
        for (sent, read) in sent.iter().zip(&read) {
            prop_assert_eq!(sent.parts(), parts(read));
        }
        let mut among = all(&packet, Tags::ALL).into_iter();
        for line in all(&clean, Tags::ALL) {
            prop_assert!(among.any(|other| other == line), "{line}");
        }
    }

    #[test]
    fn lines_are_independent(input in noise(), tags in tags(), size in 1..9_usize) {
        let whole = all(&input, tags);
        let alone: Vec<_> =
            input.split(|byte| *byte == b'\n').flat_map(|line| all(line, tags)).collect();
        prop_assert_eq!(&whole, &alone);

        let (mut buffer, mut cut) = (LineBuffer::new(1000), Vec::new());
        let mut push = |piece: Cut<'_>| {
            let Cut::Lines(lines) = piece else { panic!() };
            cut.extend(all(lines, tags));
        };
        input.chunks(size).for_each(|piece| buffer.push(piece, &mut push));
        buffer.finish(&mut push);
        prop_assert_eq!(&whole, &cut);
    }
}
