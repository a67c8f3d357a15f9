//! Tests of slow, closed and endless pipes, and of signals.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, Command};
use std::thread;
use std::time::Duration;

use quipu_wire::{BatchTimer, Framing, Kind, Message};
use rustix::process::{Pid, Signal, kill_process};

use super::support::{encoded, exact, format, messages, quipu, run, tsv};

fn start(from: &str, to: &str) -> (Child, ChildStdin) {
    let mut child = quipu(&["messages", "convert", "--from", from, "--to", to]).spawn().unwrap();
    let stdin = child.stdin.take().unwrap();
    (child, stdin)
}

#[track_caller]
fn expect_end(mut child: Child, code: i32, text: &str) {
    let mut err = String::new();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(code), "{err}");
    assert!(err.contains(text) && err.is_empty() == text.is_empty(), "{err}");
}

/// Each message comes out before the next one goes in.
#[test]
fn a_slow_pipe_holds_no_message_back() {
    for format in exact() {
        // Check two commands in one pipe, because either of them could hold a message back.
        let (mut first, mut stdin) = start("tsv", format.as_str());
        let mut second = quipu(&["messages", "convert", "--from", format.as_str(), "--to", "tsv"])
            .stdin(first.stdout.take().unwrap())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(second.stdout.take().unwrap());
        for message in messages(Kind::MetricUnion) {
            let expected = tsv(&[message]);
            stdin.write_all(expected.as_bytes()).unwrap();
            let mut line = String::new();
            lines.read_line(&mut line).unwrap();
            assert_eq!(line, expected, "{}", format.as_str());
        }
        drop(stdin);
        expect_end(first, 0, "");
        expect_end(second, 0, "");
    }
}

/// A frame or a long message that arrives in small pieces is complete with the last one.
#[test]
fn small_pieces_hold_no_message_back() {
    let text = tsv(&messages(Kind::MetricUnion)).repeat(100);
    for from in ["quipu", "json", "xdr", "gob"] {
        let bytes =
            run(&["messages", "convert", "--from", "tsv", "--to", from], text.as_bytes()).success();
        let (mut child, mut stdin) = start(from, "tsv");
        for piece in bytes.chunks(37) {
            stdin.write_all(piece).unwrap();
            stdin.flush().unwrap();
        }
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        for _ in 0..text.lines().count() {
            let mut line = String::new();
            assert!(lines.read_line(&mut line).unwrap() > 0, "{from}");
        }
        drop(stdin);
        expect_end(child, 0, "");
    }
}

#[test]
fn a_closed_pipe_ends_a_conversion_quietly() {
    let (mut child, mut stdin) = start("tsv", "tsv");
    drop(child.stdout.take());
    let text = tsv(&messages(Kind::MetricUnion));
    // The command exits although its input continues.
    while stdin.write_all(text.as_bytes()).is_ok() {}
    expect_end(child, 0, "");
}

#[test]
fn a_signal_leaves_whole_messages() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let (mut child, mut stdin) = start("tsv", "tsv");
        let text = tsv(&messages(Kind::MetricUnion));
        stdin.write_all(text.as_bytes()).unwrap();
        stdin.write_all(b"MetricUnion\t1").unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut seen = String::new();
        for _ in text.lines() {
            out.read_line(&mut seen).unwrap();
        }
        kill_process(Pid::from_child(&child), signal).unwrap();
        out.read_to_string(&mut seen).unwrap();
        assert_eq!(seen, text);
        expect_end(child, code, "quipu: standard input: stopped; 4 messages were converted");
    }
}

/// A signal can end this wait at once, because no output exists that could be cut.
#[test]
fn a_signal_ends_the_wait_for_the_other_end_of_a_fifo() {
    let directory = tempfile::tempdir().unwrap();
    let fifo = directory.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let fifo = fifo.to_str().unwrap();
    for files in [&[fifo][..], &["-o", fifo]] {
        let arguments =
            [&["messages", "convert", "--from", "tsv", "--to", "tsv"][..], files].concat();
        let mut child = quipu(&arguments).spawn().unwrap();
        let waits = format!("/proc/{}/syscall", child.id());
        let open = format!("{} ", libc::SYS_openat);
        while !fs::read_to_string(&waits).unwrap().starts_with(&open) {
            thread::sleep(Duration::from_millis(5));
        }
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        let status = child.wait().unwrap();
        assert_eq!(status.signal(), Some(Signal::TERM.as_raw()), "{files:?}: {status}");
    }
}

/// 64 MB pass through, without ever being in memory at once.
#[test]
fn memory_stays_the_same_however_long_the_stream() {
    const LIMIT_KB: u64 = 32 << 10;
    const REPEATS: usize = 400;
    let values: Vec<f64> = (0..400).map(f64::from).collect();
    let timer = Message::from(BatchTimer { id: b"timer", values: &values });
    let message = Message::from(timer.to_union());
    let block = encoded(format("protobuf"), Framing::Own, &[message; 50]);
    assert!(REPEATS * block.len() > 64_000_000);
    for to in ["thrift", "protobuf"] {
        let (mut child, mut stdin) = start("protobuf", to);
        let one = encoded(format(to), Framing::Own, &[message]).len();
        let mut out = child.stdout.take().unwrap();
        let reader = thread::spawn(move || {
            let mut buffer = vec![0; 1 << 20];
            let mut left = REPEATS * 50 * one;
            while left > 0 {
                left -= out.read(&mut buffer[..left.min(1 << 20)]).unwrap();
            }
            out
        });
        for _ in 0..REPEATS {
            stdin.write_all(&block).unwrap();
        }
        let mut out = reader.join().unwrap();
        // All input is converted, and the command waits for more.
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
        assert!(peak < LIMIT_KB, "{to}: {peak} kB");
        drop(stdin);
        assert_eq!(out.read(&mut [0]).unwrap(), 0);
        expect_end(child, 0, "");
    }
}
