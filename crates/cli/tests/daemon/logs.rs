//! Tests of the log: one line per event, but none per request.

use std::fs::File;
use std::process::Stdio;

use serde_json::Value;

use crate::common::{Home, wait_until};

#[test]
fn every_line_of_json_is_an_object() {
    let home = Home::new();
    // At the most detailed level, cover everything that is logged: start, requests of all kinds,
    // shutdown.
    let daemon = home.start(&["--log-level", "trace", "--state", "quo\"ted \u{fc}.quipu"]);
    daemon.get("/");
    daemon.get("/nothing\"%0a");
    let mut client = daemon.connect();
    client.send("NONSENSE\r\n\r\n").unwrap();
    assert_eq!(client.read_response().unwrap().status, 400);
    daemon.signal(rustix::process::Signal::TERM);
    let ended = daemon.wait();
    let lines: Vec<&str> = ended.stderr.lines().collect();
    for line in &lines {
        let event: Value = serde_json::from_str(line).unwrap();
        for field in ["timestamp", "level", "message"] {
            assert!(event[field].is_string(), "no {field} in {line}");
        }
    }
    assert!(lines.len() >= 5 && ended.stderr.ends_with('\n'), "{}", ended.stderr);
    assert_eq!(ended.stdout, "");
}

#[test]
fn a_start_that_fails_is_json_too() {
    let home = Home::new();
    let listen = ["--listen", "127.0.0.1:0", "--state", "missing/state.quipu"];
    let ended = home.run(&[&listen[..], &["--log-format", "json"]].concat());
    assert_eq!(ended.status.code(), Some(1));
    let event: Value = serde_json::from_str(&ended.stderr).unwrap();
    assert_eq!(event["level"], "ERROR");
    let message = event["message"].as_str().unwrap();
    assert!(message.starts_with("startup failed: "), "{event}");
    assert!(message.contains("missing/state.quipu"), "{event}");
}

#[test]
fn requests_are_not_logged() {
    let home = Home::new();
    let daemon = home.start(&["--checkpoint", "20ms", "--connections", "1000"]);
    let started = daemon.log();
    for target in ["/", "/nothing", "/rate?window=soon", "/metrics"] {
        for _ in 0..20 {
            daemon.get(target);
        }
    }
    let mut client = daemon.connect();
    client.send("NONSENSE\r\n\r\n").unwrap();
    assert_eq!(client.read_response().unwrap().status, 400);
    // Successful checkpoints are not logged either.
    wait_until("a few checkpoints", || {
        daemon.get("/");
        daemon.sample("quipu_checkpoint_duration_seconds_count") >= 5.0
    });
    assert_eq!(daemon.log(), started);
    assert_eq!(started.len(), 3, "{started:#?}");
}

#[test]
fn requests_are_logged_at_the_level_trace() {
    let home = Home::new();
    for level in ["debug", "trace"] {
        let daemon = home.start(&["--log-level", level, "--checkpoint", "20ms"]);
        daemon.get("/rate?window=soon");
        let mut client = daemon.connect();
        client.send("NONSENSE\r\n\r\n").unwrap();
        assert_eq!(client.read_response().unwrap().status, 400);
        daemon.wait_for("a connection was opened");
        assert_eq!(daemon.wait_for("refused")["target"], "/rate?window=soon");
        daemon.wait_for("a connection was closed");
        daemon.get("/");
        daemon.wait_for("synced the state");
        assert_eq!(daemon.event("answered").is_some(), level == "trace");
        daemon.stop();
    }
}

#[test]
fn names_do_not_break_lines_of_words() {
    let home = Home::new();
    let listen = ["--listen", "127.0.0.1:0"];
    let ended = home.run(&[&listen[..], &["--state", "a\nb\u{1b}[1m/state.quipu"]].concat());
    assert_eq!(ended.status.code(), Some(1));
    assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
    assert!(ended.stderr.contains("a\\nb\\u{1b}[1m/state.quipu"), "{}", ended.stderr);
}

#[test]
fn levels_and_formats_of_the_log_are_honoured() {
    let home = Home::new();
    // At this level, a clean start and stop log nothing.
    let quiet = home.launch(&["--log-level", "warn"]);
    // Wait for the state, because signals are handled before it is created.
    wait_until("the state is there", || home.state().exists());
    quiet.signal(rustix::process::Signal::TERM);
    let ended = quiet.wait();
    assert_eq!((ended.status.code(), ended.stderr.as_str()), (Some(0), ""));
    // This format contains no escape sequences, wherever it is written.
    let listen = ["--listen", "127.0.0.1:0"];
    let ended = home.run(&[&listen[..], &["--state", "missing/state.quipu"]].concat());
    assert!(ended.stderr.contains(" ERROR startup failed: cannot use the state"));
    assert!(!ended.stderr.contains('\u{1b}'), "{:?}", ended.stderr);
}

#[test]
fn a_log_that_cannot_be_written_does_no_harm() {
    let home = Home::new();
    let mut command = home.command();
    command.args(["serve", "--listen", "127.0.0.1:0", "--keys", "16"]);
    command.stdout(Stdio::null()).stderr(File::options().write(true).open("/dev/full").unwrap());
    let mut daemon = command.spawn().unwrap();
    wait_until("the state is there", || home.state().exists());
    let id = rustix::process::Pid::from_child(&daemon);
    rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
    assert_eq!(daemon.wait().unwrap().code(), Some(0));
}

#[test]
fn a_request_controls_no_terminal_that_shows_the_log() {
    let home = Home::new();
    let daemon = home.start(&["--log-level", "debug"]);
    let mut client = daemon.connect();
    client.send("GET /rate?window=\u{202e}\u{9b}2J HTTP/1.1\r\nHost: quipu\r\n\r\n").unwrap();
    assert_eq!(client.read_response().unwrap().status, 400);
    // The field contains the original characters, but the line contains their escapes.
    let event = daemon.wait_for("refused");
    assert_eq!(event["target"], "/rate?window=\u{202e}\u{9b}2J");
    let log = daemon.log().concat();
    assert!(log.chars().all(quipu_segment::is_printable), "{log:?}");
}
