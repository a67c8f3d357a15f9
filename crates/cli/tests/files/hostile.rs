//! Runs the commands on files and directories that an attacker prepared. No command may wait for a
//! pipe, run for hours, or print output that scrapers refuse.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::Home;

/// The time limit of a command.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a command, and fails if it does not end within the time limit.
fn end(home: &Home, arguments: &[&str]) -> Output {
    let mut command = home.quipu(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let deadline = Instant::now() + PATIENCE;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > deadline {
            child.kill().unwrap();
            panic!("{arguments:?} does not end");
        }
        thread::sleep(Duration::from_millis(2));
    }
    child.wait_with_output().unwrap()
}

fn pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

#[test]
fn labels_that_are_not_utf_8_are_replaced() {
    let home = Home::new();
    home.succeed(&["inc", "x_total{a=\"AAAA\"}"]);
    let mut bytes = fs::read(home.file()).unwrap();
    let at = bytes.windows(4).position(|four| four == b"AAAA").unwrap();
    bytes[at + 1] = 0xff;
    fs::write(home.file(), bytes).unwrap();
    for format in ["text", "openmetrics"] {
        let text = home.succeed(&["expose", "--format", format, "app.quipu"]);
        assert!(text.contains("x_total{a=\"A\u{fffd}AA\"} 1"), "{text}");
    }
}

#[test]
fn no_command_waits_for_a_pipe_in_the_place_of_a_segment() {
    let home = Home::new();
    pipe(&home.directory().join("a.quipu"));
    // Add a readable file, because the directory must contain at least one.
    fs::write(home.directory().join("counter_1.db"), []).unwrap();
    end(&home, &["expose", "."]);
    for arguments in [
        &["expose", "a.quipu"][..],
        &["inspect", "a.quipu"],
        &["top", "--once", "--interval", "10ms", "a.quipu"],
        &["snapshot", "--state", "a.quipu", "out"],
        &["snapshot", "--state", "/dev/zero", "out"],
    ] {
        let output = end(&home, arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && !errors.is_empty(), "{arguments:?}: {errors}");
    }
}

/// A file can be a segment when it is checked, and a pipe when it is opened.
#[test]
fn no_command_waits_for_a_pipe_that_takes_the_place_of_a_segment() {
    let home = Home::new();
    home.succeed(&["inc", "x_total"]);
    let other = home.directory().join("pipe");
    pipe(&other);
    let is_over = AtomicBool::new(false);
    let run = || {
        for _ in 0..40 {
            for arguments in [
                &["expose", "app.quipu"][..],
                &["inspect", "app.quipu"],
                &["top", "--once", "--interval", "10ms", "app.quipu"],
                &["top", "--once", "--interval", "10ms", "."],
            ] {
                end(&home, arguments);
            }
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Relaxed) {
                renameat_with(CWD, home.file(), CWD, &other, RenameFlags::EXCHANGE).unwrap();
            }
        });
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
        is_over.store(true, Relaxed);
        result.unwrap();
    });
}

/// The file is a terabyte long, but only a few kilobytes are stored.
#[test]
fn holes_are_not_searched() {
    let home = Home::new();
    home.succeed(&["inc", "x_total"]);
    fs::copy(home.file(), home.directory().join("good.quipu")).unwrap();
    let file = fs::File::options().write(true).open(home.file()).unwrap();
    file.set_len(1 << 40).unwrap();
    // The list of records begins inside the hole.
    file.write_all_at(&(1_u64 << 39).to_le_bytes(), ROOT).unwrap();
    let output = end(&home, &["inspect", "app.quipu"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("found by their checksums"), "{text}");
    for arguments in [
        &["top", "--once", "--interval", "10ms", "app.quipu"][..],
        &["diff", "good.quipu", "app.quipu"],
        &["top", "--replay", "--once", "app.quipu"],
        &["expose", "app.quipu"],
    ] {
        end(&home, arguments);
    }
}

/// The offset in the header that stores the position of the newest record.
const ROOT: u64 = 80;
