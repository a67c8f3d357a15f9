//! Tests of exemplars from remote write, for series of any type. They are counted, survive a kill,
//! and are forwarded by remote write and OTLP. The text formats show the exemplars that strict
//! parsers accept.

use std::fs;

use crate::common::{Daemon, Home, Response, wait_until};
use crate::otlp_output::{Receiver, Reply};
use crate::writes::{ONE, TWO, field, now_ms, varint, write};

/// The contents of a series in a request.
#[derive(Default)]
struct Given<'a> {
    name: &'a str,
    /// The number of its type in version 2.0.
    type_number: u8,
    sample: Option<f64>,
    exemplars: &'a [GivenExemplar<'a>],
}

/// The labels, the value, and the age in milliseconds.
type GivenExemplar<'a> = (&'a [(&'a str, &'a str)], f64, i64);

fn double(tag: u8, value: f64) -> Vec<u8> {
    [&[tag][..], &value.to_le_bytes()].concat()
}

fn time(tag: u8, time: i64) -> Vec<u8> {
    [&[tag][..], &varint(time as u64)].concat()
}

/// Encodes a request in version 2.0.
fn two(series: &[Given<'_>], now: i64) -> Vec<u8> {
    let mut symbols = vec![String::new()];
    let mut refs = |pairs: &[(&str, &str)]| {
        let mut bytes = Vec::new();
        for text in pairs.iter().flat_map(|(name, value)| [name, value]) {
            symbols.push((*text).to_owned());
            bytes.extend(varint(symbols.len() as u64 - 1));
        }
        field(0x0a, &bytes)
    };
    let mut body = Vec::new();
    for Given { name, type_number, sample, exemplars } in series {
        let mut one = refs(&[("__name__", name)]);
        if let Some(value) = sample {
            one.extend(field(0x12, &[double(0x09, *value), time(0x10, now)].concat()));
        }
        for (labels, value, ago) in *exemplars {
            let parts = [refs(labels), double(0x11, *value), time(0x18, now - ago)];
            one.extend(field(0x22, &parts.concat()));
        }
        one.extend(field(0x2a, &[0x08, *type_number]));
        body.extend(field(0x2a, &one));
    }
    let symbols = symbols.iter().flat_map(|symbol| field(0x22, symbol.as_bytes()));
    symbols.chain(body).collect()
}

/// Encodes a request with one series in version 1.0.
fn one(series: &Given<'_>, now: i64) -> Vec<u8> {
    let label = |(name, value): (&str, &str)| {
        field(0x0a, &[field(0x0a, name.as_bytes()), field(0x12, value.as_bytes())].concat())
    };
    let mut one = label(("__name__", series.name));
    if let Some(value) = series.sample {
        one.extend(field(0x12, &[double(0x09, value), time(0x10, now)].concat()));
    }
    for (labels, value, ago) in series.exemplars {
        let mut exemplar: Vec<u8> = labels.iter().flat_map(|pair| label(*pair)).collect();
        exemplar.extend([double(0x11, *value), time(0x18, now - ago)].concat());
        one.extend(field(0x1a, &exemplar));
    }
    field(0x0a, &one)
}

/// Returns the status, and the number of written exemplars, which is reported to 2.0 senders.
fn outcome(response: &Response) -> (u16, &str) {
    (response.status, &response.fields["x-prometheus-remote-write-exemplars-written"])
}

fn open_metrics(daemon: &Daemon) -> String {
    daemon.scrape("application/openmetrics-text;version=1.0.0").text()
}

#[test]
fn exemplars_of_all_types_are_kept_and_sent() {
    let home = Home::new();
    let receiver = Receiver::start(&home, |_, _| Reply::Taken);
    let flags = ["--otlp", &receiver.url, "--otlp-interval", "1000h"];
    let daemon = home.start(&flags);
    let now = now_ms();
    let ada = [("user", "ada")];
    let request = two(
        &[
            // Two exemplars of one series: both are accepted, but only the last one is kept.
            Given {
                name: "level",
                type_number: 2,
                sample: Some(0.5),
                exemplars: &[(&[("user", "bob")], 1.0, 2), (&ada, 0.25, 1)],
            },
            Given {
                name: "odd",
                sample: Some(2.0),
                exemplars: &[(&ada, f64::NAN, 1)],
                ..Given::default()
            },
            Given {
                name: "bare",
                sample: Some(3.0),
                exemplars: &[(&[], 3.5, 1)],
                ..Given::default()
            },
            Given {
                name: "hits_total",
                type_number: 1,
                sample: Some(4.0),
                exemplars: &[(&ada, 1.5, 1)],
            },
        ],
        now,
    );
    // Repeating the request gives the same counts.
    for _ in 0..2 {
        assert_eq!(outcome(&write(&daemon, TWO, &request)), (204, "5"));
    }
    // Prometheus sends exemplars separately from samples. A 1.0 sender gets no counts.
    for series in [
        Given { name: "plain", sample: Some(5.0), ..Given::default() },
        Given { name: "plain", exemplars: &[(&ada, 5.5, 1)], ..Given::default() },
    ] {
        assert_eq!(write(&daemon, ONE, &one(&series, now)).status, 204);
    }
    // A late exemplar is ignored, but gets the same response as an exemplar on time.
    let late =
        Given { name: "level", exemplars: &[(&[("user", "eve")], 9.0, 9000)], ..Given::default() };
    assert_eq!(outcome(&write(&daemon, TWO, &two(&[late], now))), (204, "1"));
    daemon.kill();
    let daemon = home.start(&flags);
    let text = open_metrics(&daemon);
    let with: Vec<&str> = text.lines().filter(|line| line.contains(" # ")).collect();
    assert_eq!(with.len(), 1, "{text}");
    assert!(
        with[0].starts_with("hits_total 4") && with[0].contains("{user=\"ada\"} 1.5"),
        "{text}"
    );
    assert!(text.contains("\nlevel 0.5\n") && text.contains("\nodd 2"), "{text}");
    daemon.stop();
    for (series, exemplars) in [
        ("level", "Double(0.25) [] [] [\"user=\\\"ada\\\"\"]"),
        ("odd", "Double(NaN) [] [] [\"user=\\\"ada\\\"\"]"),
        ("bare", "Double(3.5) [] [] []"),
        ("plain", "Double(5.5) [] [] [\"user=\\\"ada\\\"\"]"),
        ("hits_total", "Double(1.5) [] [] [\"user=\\\"ada\\\"\"]"),
    ] {
        assert_eq!(receiver.last(series).unwrap().exemplars, exemplars, "{series}");
    }
}

#[test]
fn exemplars_are_forwarded_by_remote_write() {
    let [first, second] = [Home::new(), Home::new()];
    let receiver = Receiver::start(&second, |_, _| Reply::Taken);
    let last = second.start(&["--otlp", &receiver.url, "--otlp-interval", "1000h"]);
    let url = format!("http://{}/api/v1/write", last.address());
    let flags = ["--remote-write", &url, "--remote-write-interval", "1000h"];
    let daemon = first.start(&[&flags[..], &["--remote-write-exemplars", "on"]].concat());
    let (now, ada) = (now_ms(), [("user", "ada")]);
    let given = |name, type_number, exemplars| {
        let sample = Some(2.0);
        Given { name, type_number, sample, exemplars }
    };
    let (one, bare) = ([(&ada[..], 0.5, 1)], [(&[][..], 3.5, 1)]);
    let all = [given("level", 2, &one), given("odd", 0, &bare), given("hits_total", 1, &one)];
    assert_eq!(outcome(&write(&daemon, TWO, &two(&all, now))), (204, "3"));
    daemon.stop();
    let text = open_metrics(&last);
    let hits = text.lines().find(|line| line.starts_with("hits_total")).unwrap();
    assert!(hits.contains(" # {user=\"ada\"} 0.5 "), "{text}");
    last.stop();
    let shown = |series| receiver.last(series).unwrap().exemplars;
    assert_eq!(shown("level"), "Double(0.5) [] [] [\"user=\\\"ada\\\"\"]");
    assert_eq!(shown("odd"), "Double(3.5) [] [] []");
}

/// If a daemon watches the state of another daemon, it sends the exemplars of this state.
#[test]
fn exemplars_of_watched_files_are_sent() {
    let home = Home::new();
    let receiver = Receiver::start(&home, |_, _| Reply::Taken);
    let (now, ada) = (now_ms(), [("user", "ada")]);
    let exemplars = [(&ada[..], 0.5, 1)];
    let given = |name, type_number| {
        let sample = Some(2.0);
        Given { name, type_number, sample, exemplars: &exemplars }
    };
    fs::create_dir(home.path("run")).unwrap();
    let other = home.start(&["--state", "run/other.quipu"]);
    let all = [given("level", 2), given("odd", 0), given("hits_total", 1)];
    assert_eq!(outcome(&write(&other, TWO, &two(&all, now))), (204, "3"));
    other.stop();
    let flags = ["--segments", "run", "--otlp", &receiver.url, "--otlp-interval", "1000h"];
    let daemon = home.start(&flags);
    wait_until("the series", || open_metrics(&daemon).contains("\nlevel{segment=\"other\"} 2"));
    daemon.stop();
    for name in ["level", "odd", "hits_total"] {
        let series = receiver.last(&format!("{name}{{segment=\"other\"}}")).unwrap();
        assert_eq!(series.exemplars, "Double(0.5) [] [] [\"user=\\\"ada\\\"\"]", "{name}");
    }
}

/// Each request contains the gauge's value, but only one contains its exemplar.
#[test]
fn each_exemplar_is_sent_once_with_deltas() {
    let home = Home::new();
    let receiver = Receiver::start(&home, |_, _| Reply::Taken);
    let flags = ["--otlp", &receiver.url, "--otlp-interval", "1000h"];
    let flags = [&flags[..], &["--otlp-temporality", "delta"]].concat();
    // One request at the end of each run of the daemon.
    for (value, user, expected) in [
        (1.0, Some("ada"), "Double(0.25) [] [] [\"user=\\\"ada\\\"\"]"),
        (2.0, None, ""),
        (3.0, Some("bob"), "Double(0.25) [] [] [\"user=\\\"bob\\\"\"]"),
        (4.0, None, ""),
    ] {
        let daemon = home.start(&flags);
        let labels = user.map(|user| [("user", user)]);
        let exemplars: Vec<GivenExemplar<'_>> =
            labels.iter().map(|labels| (&labels[..], 0.25, 0)).collect();
        let (name, type_number, sample) = ("level", 2, Some(value));
        let level = Given { name, type_number, sample, exemplars: &exemplars };
        assert_eq!(write(&daemon, TWO, &two(&[level], now_ms())).status, 204);
        daemon.stop();
        let level = receiver.last("level").unwrap();
        assert_eq!((level.value, level.exemplars.as_str()), (format!("gauge {value:?}"), expected));
    }
}

/// In version 2.0, each series contains a sample or a histogram.
#[test]
fn an_exemplar_of_a_series_without_a_value_is_refused() {
    let home = Home::new();
    let daemon = home.start(&[]);
    let now = now_ms();
    let alone = Given { name: "none", exemplars: &[(&[("a", "b")], 1.0, 0)], ..Given::default() };
    assert_eq!(write(&daemon, ONE, &one(&alone, now)).status, 204);
    let response = write(&daemon, TWO, &two(&[alone], now));
    assert_eq!(outcome(&response), (400, "0"));
    response.expect_refusal(400, "series 1, none: it has exemplars and no value");
    let refused = "quipu_input_refused_total{input=\"remote_write\",reason=\"exemplar\"}";
    assert_eq!(daemon.sample(refused), 1.0);
    assert!(!open_metrics(&daemon).contains("\nnone"));
}
