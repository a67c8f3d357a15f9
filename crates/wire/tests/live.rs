//! Tests against today's Go libraries: their bytes equal ours, they can read our bytes, and we can
//! read theirs.
//!
//! You need Go to run this, because the test builds and runs `bench/peers/go/wirelive`. The
//! messages are random, but equal in each run unless you set `WIRE_SEED` to another number.

#![allow(clippy::unwrap_used)]

mod common;

use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::hard::{self, messages, small_messages};
use common::{Owned, carried, hex, same, unhex};
use quipu_arena::Arena;
use quipu_wire::{AnyFormat, Kind};

/// The libraries that are still available in Go, with the names of their formats.
const ROWS: &[&str] = &[
    "vmihailenco-msgpack",
    "tinylib-msgp",
    "ugorji-msgpack",
    "flatbuffers",
    "protobuf",
    "protobuf-via-gogo",
    "gogo-protobuf",
    "thrift",
    "thrift-compact",
    "gob",
    "json",
    "easyjson",
    "bson",
    "xdr",
    "gencode",
    "colfer",
];

#[test]
fn go_libraries_agree() {
    let seed = std::env::var("WIRE_SEED").map_or(1, |text| text.parse().unwrap());
    println!("the messages are those of WIRE_SEED={seed}");
    let mut messages = hard::some(small_messages(), 1800, seed);
    messages.extend(hard::some(self::messages(), 200, seed));
    let rows: Vec<_> = ROWS.iter().filter_map(|row| row.parse::<AnyFormat>().ok()).collect();
    let questions: Vec<_> =
        rows.iter().flat_map(|format| messages.iter().map(|m| Question::of(*format, m))).collect();

    let mut child = Command::new(wirelive())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("wirelive was built");
    let mut requests = BufWriter::new(child.stdin.take().unwrap());
    let answers = BufReader::new(child.stdout.take().unwrap()).lines();
    // A second thread writes the questions, because otherwise each side could wait for the other to
    // read. Everything is read before the checks begin, so a failure leaves no side waiting.
    let answers: Vec<_> = std::thread::scope(|threads| {
        let questions = &questions;
        threads.spawn(move || {
            for question in questions {
                question.ask(&mut requests);
            }
            requests.flush().unwrap();
        });
        answers.map(Result::unwrap).collect()
    });
    assert!(child.wait().unwrap().success());
    let mut answers = answers.iter();
    for question in questions {
        question.check_written(answers.next().unwrap());
        if question.bytes.is_some() {
            question.check_read(answers.next().unwrap());
        }
    }
    assert_eq!(answers.next(), None);
}

/// A message for a library to write, and our bytes for the library to read.
struct Question<'q> {
    format: AnyFormat,
    message: &'q Owned,
    bytes: Option<Vec<u8>>,
}

impl Question<'_> {
    fn of(format: AnyFormat, message: &Owned) -> Question<'_> {
        let mut out = vec![];
        let bytes = format.encode(&message.message(), &mut out).is_ok().then_some(out);
        Question { format, message, bytes }
    }

    fn ask(&self, requests: &mut impl Write) {
        let Question { format, message, bytes } = self;
        writeln!(requests, "encode\t{}\t{}", format.as_str(), message.columns()).unwrap();
        if let Some(bytes) = bytes {
            let (kind, bytes) = (message.kind.as_str(), hex(bytes));
            writeln!(requests, "decode\t{}\t{kind}\t{bytes}", format.as_str()).unwrap();
        }
    }

    /// Checks that the library writes the same bytes and that we can read them, or that both refuse
    /// the message.
    fn check_written(&self, answer: &str) {
        let Question { format, message, bytes } = self;
        let Some(theirs) = answer.strip_prefix("ok\t").map(unhex) else {
            assert!(bytes.is_none(), "{self}: theirs {answer}");
            return;
        };
        let Some(ours) = bytes else { panic!("{self}: theirs {answer}, ours none") };
        if !self.is_trimmed() {
            assert!(ours == &theirs, "{self}\nours   {}\ntheirs {}", hex(ours), hex(&theirs));
        }
        let mut arena = Arena::new();
        let read = format.decode(message.kind, &theirs, &arena.as_scope());
        let read = read.unwrap_or_else(|error| panic!("{self}: {error}"));
        let expected = carried(format.as_str(), message).unwrap();
        assert!(same(&read, &expected.message()), "{self}: read {read:?}");
    }

    /// Returns whether today's FlatBuffers builder shortens the vtable, because the last fields are
    /// zero. The builder of 2017, whose bytes we write, keeps it.
    fn is_trimmed(&self) -> bool {
        let last_is_zero = match self.message.kind {
            Kind::Counter => self.message.counter == 0,
            Kind::BatchTimer => false,
            Kind::Gauge | Kind::MetricUnion => self.message.gauge == 0.0,
        };
        self.format.as_str() == "flatbuffers" && last_is_zero
    }

    /// Checks that the library reads our bytes.
    fn check_read(&self, answer: &str) {
        let name = self.format.as_str();
        let finite = self.message.doubles().all(f64::is_finite);
        if name == "easyjson" && !finite {
            // For such numbers, the library writes words that it cannot read.
            assert!(answer.starts_with("error"), "{self}: {answer}");
            return;
        }
        let Some(columns) = answer.strip_prefix("ok\t") else { panic!("{self}: {answer}") };
        let columns: Vec<_> = columns.split('\t').collect();
        let read = Owned::parse(columns.try_into().unwrap());
        let expected = carried(name, self.message).unwrap();
        assert!(same(&read.message(), &expected.message()), "{self}: they read {read:?}");
    }
}

impl std::fmt::Display for Question<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut columns = self.message.columns();
        columns.truncate(400);
        write!(f, "{} {columns}", self.format.as_str())
    }
}

/// Builds the program that calls the libraries.
fn wirelive() -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/peers/go");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("wirelive");
    let built = Command::new("go")
        .args(["build", "-o"])
        .arg(&program)
        .arg("./wirelive")
        .current_dir(&folder)
        .status()
        .unwrap_or_else(|error| panic!("this test needs Go (https://go.dev/dl): {error}"));
    assert!(built.success(), "go build ./wirelive in {} failed", folder.display());
    program
}
