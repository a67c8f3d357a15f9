//! `quipu messages compare` as users run it: the real binary on files.

#![allow(clippy::unwrap_used, reason = "functions of tests may fail by panicking")]

#[path = "convert/support.rs"]
mod support;

use std::fs;

use quipu_wire::{AnyFormat, Framing, Gauge, Kind, Message};
use serde_json::Value;
use support::{Run, argument, encoded, format, lines, messages, run, tsv};
use tempfile::TempDir;

/// Compares a file with this name and these bytes, in a short run.
fn compare(name: &str, bytes: &[u8], more: &[&str]) -> (Run, TempDir) {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join(name);
    fs::write(&path, bytes).unwrap();
    let arguments = ["messages", "compare", path.to_str().unwrap(), "--seconds", "0.01"];
    (run(&[&arguments[..], more].concat(), b""), directory)
}

#[test]
fn json_has_the_sizes_of_every_format() {
    for &kind in Kind::ALL {
        let messages = messages(kind);
        let text = tsv(&messages);
        let more = ["--json", "--message", argument(kind)];
        let (run, _directory) = compare("metrics.tsv", text.as_bytes(), &more);
        let report: Value = serde_json::from_slice(&run.success()).unwrap();
        assert_eq!(report["messages"], 4);
        assert_eq!(report["bytes"], text.len());
        assert_eq!(report["whole_file"], true);
        assert_eq!(report["message"], argument(kind));
        let refused = report["refused"].as_array().unwrap();
        let refused: Vec<&str> =
            refused.iter().map(|row| row["format"].as_str().unwrap()).collect();
        let expected: Vec<&str> = AnyFormat::all()
            .filter(|format| !carries(*format, &messages))
            .map(|format| format.as_str())
            .collect();
        assert_eq!(refused, expected);
        let rows = report["formats"].as_array().unwrap();
        assert_eq!(rows.len() + refused.len(), AnyFormat::all().count());
        let mut last = 0.0;
        for row in rows {
            let format = format(row["format"].as_str().unwrap());
            let stream = encoded(format, Framing::Own, &messages).len() as f64 / 4.0;
            let alone: usize = messages
                .iter()
                .map(|message| {
                    let mut out = Vec::new();
                    format.encode(message, &mut out).unwrap();
                    out.len()
                })
                .sum();
            assert_eq!(row["stream_bytes"], stream, "{row}");
            assert_eq!(row["alone_bytes"], alone as f64 / 4.0, "{row}");
            assert_eq!(row["changed_messages"], 0, "{row}");
            assert!(row["write_ns"].as_f64().unwrap() > 0.0, "{row}");
            assert!(row["read_ns"].as_f64().unwrap() > 0.0, "{row}");
            assert!(stream >= last);
            last = stream;
        }
        // The smallest format is the best by size, and the fastest format is the best by time.
        let time =
            |row: &Value| row["write_ns"].as_f64().unwrap() + row["read_ns"].as_f64().unwrap();
        let fastest = rows.iter().min_by(|a, b| time(a).total_cmp(&time(b))).unwrap();
        assert_eq!((&rows[0]["best"], &fastest["best"]), (&true.into(), &true.into()));
    }
}

/// Returns whether a format can represent all of these messages.
fn carries(format: AnyFormat, messages: &[Message<'_>]) -> bool {
    let mut out = Vec::new();
    messages.iter().all(|message| format.encode(message, &mut out).is_ok())
}

#[test]
fn the_table_and_the_plot_name_every_format() {
    let directory = TempDir::new().unwrap();
    let svg = directory.path().join("plot.svg");
    let messages = messages(Kind::MetricUnion);
    let text = tsv(&messages);
    let (run, _file) = compare("a <b> & c.tsv", text.as_bytes(), &["--svg", svg.to_str().unwrap()]);
    let table = String::from_utf8(run.success()).unwrap();
    let svg = fs::read_to_string(svg).unwrap();
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{svg}");
    assert!(svg.contains("a &lt;b&gt; &amp; c.tsv"));
    assert!(svg.contains("<title>") && svg.contains("prefers-color-scheme: dark"), "{svg}");
    for format in AnyFormat::all() {
        if !carries(format, &messages) {
            assert!(table.contains(&format!("{}: cannot write", format.as_str())), "{table}");
            continue;
        }
        let name = format!(" {} ", format.as_str());
        assert!(table.lines().any(|line| line.contains(&name)), "{table}");
        assert!(svg.contains(&format!("\n{}\n", format.as_str())), "{} {svg}", format.as_str());
    }
    assert!(table.lines().any(|line| line.starts_with(" * ")), "{table}");
}

#[test]
fn formats_that_refuse_or_change_messages_are_listed() {
    let gauges: Vec<Message<'_>> =
        [1.0, -0.0, f64::NAN].map(|value| Gauge { id: b"a", value }.into()).into();
    let (run, _directory) = compare("gauges.tsv", tsv(&gauges).as_bytes(), &["--message", "gauge"]);
    let table = String::from_utf8(run.success()).unwrap();
    for format in AnyFormat::all() {
        let name = format.as_str();
        if !carries(format, &gauges) {
            assert!(table.contains(&format!("{name}: cannot write message ")), "{table}");
            continue;
        }
        let stream = encoded(format, Framing::Varint, &gauges);
        if lines(format, Kind::Gauge, Framing::Varint, &stream) != tsv(&gauges) {
            assert!(table.contains(&format!("{name}: 1 message comes back changed")), "{table}");
        }
    }
}

#[test]
fn the_format_is_guessed_where_only_one_can_be() {
    let text = tsv(&messages(Kind::Counter));
    let (run, _directory) = compare("metrics", text.as_bytes(), &["--json"]);
    let report: Value = serde_json::from_slice(&run.success()).unwrap();
    assert_eq!(report["format"], "tsv");

    let stream = encoded(format("protobuf"), Framing::Own, &messages(Kind::MetricUnion));
    let (run, _directory) = compare("metrics", &stream, &[]);
    run.expect_error(&["several formats can read it", "--from", "protobuf, gogo-protobuf"]);
    let (run, _directory) = compare("metrics", b"\xff\xfe\xfd", &[]);
    run.expect_error(&["no format can read it", "--from"]);
}

#[test]
fn faults_of_the_file_are_named() {
    let (run, _directory) = compare("metrics.tsv", b"\n\n", &[]);
    run.expect_error(&["metrics.tsv: no messages to compare"]);
    let text = tsv(&messages(Kind::Counter));
    let (run, _directory) = compare("metrics.tsv", &text.as_bytes()[..text.len() - 6], &[]);
    run.expect_error(&["metrics.tsv: tsv: at byte ", "3 messages could be read before it"]);
    let (run, _directory) = compare("metrics.tsv", text.as_bytes(), &["--svg", "/no/where.svg"]);
    run.expect_error(&["/no/where.svg: No such file"]);
    assert_eq!(support::run(&["messages", "compare", "x", "--seconds", "-1"], b"").code, Some(2));
    support::run(&["messages", "compare", "/no/where"], b"")
        .expect_error(&["/no/where: No such file"]);
}

#[test]
fn the_plot_does_not_replace_the_file() {
    let text = tsv(&messages(Kind::Counter));
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("metrics.tsv");
    fs::write(&path, &text).unwrap();
    let path = path.to_str().unwrap();
    support::run(&["messages", "compare", path, "--svg", path], b"")
        .expect_error(&["is the input file"]);
    assert_eq!(fs::read_to_string(path).unwrap(), text);
}

#[test]
fn standard_input_is_compared_too() {
    let text = tsv(&messages(Kind::Counter));
    let out =
        support::run(&["messages", "compare", "-", "--seconds", "0.01"], text.as_bytes()).success();
    assert!(String::from_utf8(out).unwrap().starts_with("standard input: 4 messages (union)"));
}
