//! Tests of snapshots of a running daemon, and of restoring them.

use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::symlink;

use crate::common::{Daemon, Home, Load, wait_until};

fn snapshot(home: &Home) -> Vec<u8> {
    let mut command = home.command();
    command.args(["snapshot", "taken"]);
    let ended = home.finish(command);
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    fs::read(home.path("taken")).unwrap()
}

fn restore(home: &Home, snapshot: &[u8]) -> Result<(), String> {
    fs::write(home.path("in"), snapshot).unwrap();
    let mut command = home.command();
    command.args(["restore", "in"]);
    let ended = home.finish(command);
    match ended.status.code() {
        Some(0) => Ok(()),
        code => {
            assert_eq!(code, Some(1));
            assert!(!home.state().exists(), "{}", ended.stderr);
            Err(ended.stderr)
        }
    }
}

fn jobs(daemon: &Daemon) -> Vec<String> {
    let text = daemon.get("/metrics").text();
    let lines = text.lines().filter(|line| line.starts_with("jobs")).map(str::to_owned);
    lines.collect()
}

#[test]
fn a_snapshot_of_a_running_daemon_is_all_of_its_state() {
    let home = Home::new();
    let statsd = format!("udp://{}:9125", home.host());
    let daemon = home.start(&["--statsd", &statsd]);
    let socket = UdpSocket::bind((home.host(), 0)).unwrap();
    for i in 0..100 {
        let line = format!("jobs:{i}|c|#queue:q{}", i % 7);
        socket.send_to(line.as_bytes(), (home.host(), 9125)).unwrap();
    }
    wait_until("the lines come in", || {
        let value = |line: &String| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap();
        jobs(&daemon).iter().map(value).sum::<u64>() == 4950
    });
    (1..=5).for_each(|count| assert_eq!(daemon.count("/"), count));
    assert_eq!(daemon.post("/hit/k?n=3").count(), 3);
    let (taken, shown) = (snapshot(&home), jobs(&daemon));
    let hits = daemon.sample("quipu_key_hits_total");
    assert_eq!(home.files(), ["state.quipu", "taken"]);
    daemon.kill();

    let other = Home::new();
    restore(&other, &taken).unwrap();
    let daemon = other.start(&[]);
    assert_eq!(jobs(&daemon), shown);
    assert_eq!(daemon.sample("quipu_events_total"), 5.0);
    assert_eq!(daemon.sample("quipu_key_hits_total"), hits);
    assert_eq!(daemon.get("/rate/k").count(), 3);
    daemon.stop();
    let ended = other.finish({
        let mut command = other.command();
        command.args(["restore", "in"]);
        command
    });
    assert_eq!(ended.status.code(), Some(1));
    assert!(ended.stderr.contains("state.quipu: the file exists"), "{}", ended.stderr);
}

#[test]
fn a_snapshot_under_load_can_be_restored() {
    let home = Home::new();
    let daemon = home.start(&[]);
    let load = Load::start(daemon.address(), "GET", "/");
    for _ in 0..5 {
        load.wait_for(500);
        let other = Home::new();
        restore(&other, &snapshot(&home)).unwrap();
        let restored = other.start(&[]);
        assert!(restored.sample("quipu_events_total") >= 500.0);
        restored.stop();
    }
    daemon.kill();
    load.end();
}

#[test]
fn a_snapshot_replaces_a_snapshot_and_nothing_else() {
    let home = Home::new();
    let daemon = home.start(&["--keys", "1", "--window", "1s", "--span", "1s"]);
    daemon.stop();
    let run = |out: &str| {
        let mut command = home.command();
        command.args(["snapshot", out]);
        home.finish(command)
    };
    let state = fs::read(home.state()).unwrap();
    fs::write(home.path("other"), "not ours").unwrap();
    fs::create_dir(home.path("folder")).unwrap();
    for (out, part) in [
        ("state.quipu", "it is a state file, or another segment: give it by --state FILE"),
        ("other", "other: the file exists, and is not a snapshot"),
        ("folder", "it is not a regular file"),
        ("/dev/null", "it is not a regular file"),
    ] {
        let ended = run(out);
        assert_eq!(ended.status.code(), Some(1), "{out}");
        assert!(ended.stderr.contains(part), "{out}: {}", ended.stderr);
    }
    assert_eq!(fs::read(home.state()).unwrap(), state);
    assert_eq!(fs::read(home.path("other")).unwrap(), b"not ours");
    // These files are replaced: an empty file, for example from mktemp, an earlier snapshot, and
    // the target of a symbolic link.
    fs::write(home.path("empty"), "").unwrap();
    symlink("empty", home.path("link")).unwrap();
    for out in ["empty", "empty", "link"] {
        let ended = run(out);
        assert_eq!(ended.status.code(), Some(0), "{out}: {}", ended.stderr);
    }
    assert!(fs::symlink_metadata(home.path("link")).unwrap().is_symlink());
    let taken = fs::read(home.path("empty")).unwrap();
    restore(&Home::new(), &taken).unwrap();
    // A truncated snapshot is replaced as well.
    fs::write(home.path("empty"), &taken[..taken.len() / 2]).unwrap();
    assert_eq!(run("empty").status.code(), Some(0));
    assert_eq!(home.files(), ["empty", "folder", "link", "other", "state.quipu"]);
}

#[test]
fn a_snapshot_that_is_cut_or_changed_is_refused() {
    let home = Home::new();
    let daemon = home.start(&["--keys", "1", "--window", "1s", "--span", "1s"]);
    for _ in 0..3 {
        daemon.count("/");
    }
    let taken = snapshot(&home);
    daemon.stop();
    let other = Home::new();
    let step = taken.len() / 23;
    for at in (0..taken.len()).step_by(step.max(1)) {
        restore(&other, &taken[..at]).unwrap_err();
        let mut changed = taken.clone();
        changed[at] ^= 0x10;
        restore(&other, &changed).unwrap_err();
    }
    let strange = restore(&other, b"jobs 1\n").unwrap_err();
    assert!(strange.contains("not a snapshot"), "{strange}");
    let empty = restore(&other, b"").unwrap_err();
    assert!(empty.contains("not a snapshot"), "{empty}");
    restore(&other, &taken).unwrap();
}
