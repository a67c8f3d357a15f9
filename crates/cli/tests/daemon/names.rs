//! Tests of unused names. A restart frees them, and their memory is used again.

use std::fs;
use std::net::UdpSocket;

use crate::common::lines::shown;
use crate::common::{Daemon, Home, wait_until};

const FAMILIES: usize = 50;
const SOON: &str = "3s";

/// Starts a daemon that accepts few names.
fn start(home: &Home, expiry: &str, forget: &str) -> (Daemon, UdpSocket) {
    let statsd = format!("udp://{}:9125", home.host());
    let families = FAMILIES.to_string();
    let limits = ["--families", &families, "--families-per-source", &families];
    let times = ["--expiry", expiry, "--forget-names", forget];
    let daemon = home.start(&[&["--statsd", &statsd], &limits[..], &times].concat());
    let socket = UdpSocket::bind((home.host(), 0)).unwrap();
    socket.connect((home.host(), 9125)).unwrap();
    (daemon, socket)
}

/// Sends counters with the maximum number of new names, and then others until one is refused.
fn fill(daemon: &Daemon, socket: &UdpSocket, round: usize) {
    for number in 0..FAMILIES {
        socket.send(format!("round{round}_name{number}:{}|c", number + 1).as_bytes()).unwrap();
    }
    let refused = "quipu_input_refused_total{input=\"statsd\",reason=\"families_limit\"}";
    wait_until("another name is refused", || {
        socket.send(b"one_more:1|c").unwrap();
        daemon.get("/metrics").text().contains(refused)
    });
}

fn wait_until_all_expired(daemon: &Daemon) {
    wait_until("all series expire", || shown(daemon).is_empty());
}

fn inspect(home: &Home) -> String {
    let mut command = home.command();
    command.args(["inspect", "--format", "json", "state.quipu"]);
    let ended = home.finish(command);
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    ended.stdout
}

/// Returns the used bytes of the state.
fn used(home: &Home) -> u64 {
    // The `CURSOR` of the segment's header.
    let bytes = fs::read(home.state()).unwrap();
    u64::from_le_bytes(bytes[72..80].try_into().unwrap())
}

#[test]
fn names_of_the_past_make_room_at_the_next_start_and_the_state_does_not_grow() {
    let home = Home::new();
    let mut most = 0;
    for round in 1..=4 {
        let (daemon, socket) = start(&home, SOON, "0s");
        let freed = if round == 1 { 0.0 } else { FAMILIES as f64 };
        assert_eq!(daemon.sample("quipu_input_families_free"), freed);
        assert_eq!(daemon.sample("quipu_input_families"), 0.0);
        fill(&daemon, &socket, round);
        assert_eq!(daemon.sample("quipu_input_families_free"), 0.0);
        // Only the names of this round are left.
        assert!(shown(&daemon).iter().all(|line| line.starts_with(&format!("round{round}_"))));
        let seen = inspect(&home);
        assert!(seen.contains(&format!("round{round}_name{}", FAMILIES - 1)), "{seen}");
        assert!(!seen.contains(&format!("round{}_", round - 1)), "{seen}");
        wait_until_all_expired(&daemon);
        match round % 2 {
            0 => daemon.stop(),
            _ => daemon.kill(),
        }
        most = if round == 2 { used(&home) } else { most };
        assert!(round < 3 || used(&home) <= most, "{} bytes after {round} rounds", used(&home));
    }
}

#[test]
fn a_name_that_is_not_forgotten_continues_from_its_total() {
    let home = Home::new();
    let (daemon, socket) = start(&home, SOON, "1day");
    fill(&daemon, &socket, 1);
    wait_until_all_expired(&daemon);
    wait_until("a sweep counts them", || {
        daemon.sample("quipu_input_families_unused") == FAMILIES as f64
    });
    daemon.kill();
    let (daemon, socket) = start(&home, SOON, "1day");
    assert_eq!(daemon.sample("quipu_input_families"), FAMILIES as f64);
    assert_eq!(daemon.sample("quipu_input_families_free"), 0.0);
    socket.send(b"round1_name6:3|c").unwrap();
    wait_until("it goes on", || shown(&daemon) == ["round1_name6 10"]);
    wait_until_all_expired(&daemon);
    daemon.stop();
    let (daemon, socket) = start(&home, SOON, "0s");
    assert_eq!(daemon.sample("quipu_input_families_free"), FAMILIES as f64);
    socket.send(b"round1_name6:3|c").unwrap();
    wait_until("it begins again", || shown(&daemon) == ["round1_name6 3"]);
    daemon.stop();
}

#[test]
fn freed_families_survive_kills_and_a_snapshot() {
    let home = Home::new();
    let (daemon, socket) = start(&home, SOON, "1day");
    fill(&daemon, &socket, 1);
    wait_until_all_expired(&daemon);
    daemon.kill();
    for _ in 0..5 {
        let (daemon, _) = start(&home, SOON, "0s");
        assert_eq!(daemon.sample("quipu_input_families_free"), FAMILIES as f64);
        daemon.kill();
    }
    let (daemon, socket) = start(&home, "1h", "0s");
    (0..FAMILIES / 2).for_each(|number| {
        socket.send(format!("kept{number}:7|c").as_bytes()).unwrap();
    });
    wait_until("they come in", || shown(&daemon).len() == FAMILIES / 2);
    let before = shown(&daemon);
    let mut command = home.command();
    command.args(["snapshot", "taken"]);
    assert_eq!(home.finish(command).status.code(), Some(0));
    daemon.kill();

    let other = Home::new();
    fs::copy(home.path("taken"), other.path("taken")).unwrap();
    let mut command = other.command();
    command.args(["restore", "taken"]);
    assert_eq!(other.finish(command).status.code(), Some(0));
    let (daemon, socket) = start(&other, "1h", "0s");
    assert_eq!(shown(&daemon), before);
    // The names are free, but their memory is not known to be free, like after a power loss.
    assert_eq!(daemon.sample("quipu_input_families_free"), 0.0);
    (0..FAMILIES / 2).for_each(|number| {
        socket.send(format!("new{number}:1|c").as_bytes()).unwrap();
    });
    wait_until("new names come in", || shown(&daemon).len() == FAMILIES / 2 * 2);
    daemon.stop();
}
