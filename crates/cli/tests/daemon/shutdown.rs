//! Tests of SIGTERM and SIGINT. The first signal lets running requests finish, but the second does
//! not.

use std::io::{BufRead, BufReader};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use crate::common::{Client, Daemon, Home, Load, wait_until};

#[test]
fn a_signal_under_load_loses_nothing_and_frees_the_port() {
    let home = Home::new();
    let (mut requests, mut hits) = (0, 0);
    let mut listen: Option<String> = None;
    for signal in [Signal::TERM, Signal::INT, Signal::TERM] {
        let daemon = match &listen {
            // Reuse the port of the last daemon immediately.
            Some(listen) => home.start(&["--listen", listen]),
            None => home.start(&[]),
        };
        assert_eq!(daemon.opened()["left_open"], false);
        let address = daemon.address();
        assert!(listen.is_none_or(|listen| listen == address.to_string()));
        assert_eq!((daemon.count("/rate"), daemon.count("/rate/k")), (requests, hits));

        let get = Load::start(address, "GET", "/");
        let post = Load::start(address, "POST", "/hit/k");
        for load in [&get, &post] {
            load.wait_for(300);
        }
        daemon.signal(signal);
        let ended = daemon.wait();
        assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
        assert!(ended.stderr.contains("synced the state and stopped"), "{}", ended.stderr);
        let (get, post) = (get.end(), post.end());

        listen = Some(address.to_string());
        let daemon = home.start(&["--listen", &address.to_string()]);
        assert_eq!(daemon.opened()["left_open"], false);
        let counts = (daemon.count("/rate"), daemon.count("/rate/k"));
        get.expect(requests, counts.0);
        post.expect(hits, counts.1);
        (requests, hits) = counts;
        daemon.stop();
    }
}

#[test]
fn a_partial_request_can_end_in_the_drain_time() {
    let home = Home::new();
    for (signal, count) in [(Signal::TERM, 1), (Signal::INT, 2)] {
        let daemon = home.start(&[]);
        let mut half = half_sent(&daemon);
        let mut idle = daemon.connect();
        assert_eq!(idle.request("GET", "/-/healthy").unwrap().status, 200);
        let address = daemon.address();
        daemon.signal(signal);
        daemon.wait_for("stopping");
        // A connection without a request is closed immediately, and no new one is accepted.
        idle.expect_end();
        wait_until("the listener closes", || Client::connect(address).is_err());
        half.send("rest").unwrap();
        let response = half.read_response().unwrap();
        assert_eq!(response.count(), count);
        assert_eq!(response.fields["connection"], "close");
        half.expect_end();
        let ended = daemon.wait();
        assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
        assert!(!ended.stderr.contains("cut connections"), "{}", ended.stderr);
    }
    let daemon = home.start(&[]);
    assert_eq!(daemon.opened()["left_open"], false);
    assert_eq!(daemon.count("/rate/half"), 2);
}

#[test]
fn a_request_that_does_not_end_is_cut_after_the_drain_time() {
    let home = Home::new();
    let daemon = home.start(&["--drain-timeout", "300ms"]);
    let mut half = half_sent(&daemon);
    let begun = Instant::now();
    daemon.signal(Signal::TERM);
    let cut = daemon.wait_for("cut connections");
    assert_eq!((cut["connections"].as_u64(), cut["level"].as_str()), (Some(1), Some("WARN")));
    let ended = daemon.wait();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    assert!(begun.elapsed() >= Duration::from_millis(300), "{:?}", begun.elapsed());
    assert!(half.read_response().is_err());
    // Requests without a response were not counted.
    let daemon = home.start(&[]);
    assert_eq!(daemon.opened()["left_open"], false);
    assert_eq!(daemon.count("/rate/half"), 0);
}

#[test]
fn a_second_signal_ends_at_once() {
    let home = Home::new();
    for (first, second, code) in [
        (Signal::TERM, Signal::TERM, 143),
        (Signal::INT, Signal::INT, 130),
        (Signal::TERM, Signal::INT, 130),
    ] {
        let daemon = home.start(&["--drain-timeout", "1h", "--read-timeout", "1h"]);
        let before = daemon.count("/");
        let _half = half_sent(&daemon);
        daemon.signal(first);
        daemon.wait_for("stopping");
        daemon.signal(second);
        let ended = daemon.wait();
        assert_eq!(ended.status.code(), Some(code), "{:?}", ended.status);
        assert!(!ended.stderr.contains("synced"), "{}", ended.stderr);
        let daemon = home.start(&[]);
        assert_eq!(daemon.opened()["left_open"], true);
        assert_eq!(daemon.count("/rate"), before);
        daemon.stop();
    }
}

#[test]
fn a_daemon_that_stands_still_is_ended() {
    let home = Home::new();
    let (log, full) = std::io::pipe().unwrap();
    let mut command = home.command();
    command.args(["serve", "--listen", &format!("{}:0", home.host()), "--drain-timeout", "10ms"]);
    let mut daemon = command.stderr(full.try_clone().unwrap()).spawn().unwrap();
    let mut lines = BufReader::new(log);
    while !read_line(&mut lines).contains("started") {}
    // From here on, no one reads the log, so the server blocks at its first line.
    rustix::io::ioctl_fionbio(&full, true).unwrap();
    while rustix::io::write(&full, &[b'x'; 4096]).is_ok() {}
    while rustix::io::write(&full, b"x").is_ok() {}
    rustix::io::ioctl_fionbio(&full, false).unwrap();
    let id = Pid::from_child(&daemon);
    rustix::process::kill_process(id, Signal::TERM).unwrap();
    let mut ended = None;
    wait_until("it ends", || {
        ended = daemon.try_wait().unwrap();
        ended.is_some()
    });
    assert_eq!(ended.unwrap().code(), Some(1));
}

fn read_line(from: &mut impl BufRead) -> String {
    let mut line = String::new();
    assert_ne!(from.read_line(&mut line).unwrap(), 0, "the daemon ended");
    line
}

#[test]
fn a_hangup_does_not_end_the_daemon() {
    let home = Home::new();
    let daemon = home.start(&[]);
    for _ in 0..2 {
        daemon.signal(Signal::HUP);
        daemon.wait_for("SIGHUP changes nothing");
    }
    assert_eq!(daemon.count("/"), 1);
    daemon.stop();
}

#[test]
fn an_idle_daemon_ends_in_order_at_any_moment() {
    let home = Home::new();
    let mut count = 0;
    for threads in ["1", "2", "4"] {
        let daemon = home.start(&["--threads", threads]);
        assert_eq!(daemon.opened()["left_open"], false);
        count += 1;
        assert_eq!(daemon.count("/"), count);
        daemon.stop();
        // Stop it as soon as the state exists, which is often before the daemon listens.
        let daemon = home.launch(&["--threads", threads]);
        daemon.wait_for("opened the state");
        daemon.stop();
    }
}

/// Returns a client that has sent a request except a part of its body. The daemon has begun to read
/// this request.
fn half_sent(daemon: &Daemon) -> Client {
    // This connection is the only open one, because earlier ones have closed.
    let open = || daemon.sample("quipu_http_connections_open");
    wait_until("earlier connections close", || open() == 1.0);
    let mut client = daemon.connect();
    client.send("POST /hit/half HTTP/1.1\r\nHost: quipu\r\nContent-Length: 8\r\n\r\nhalf").unwrap();
    wait_until("the half request arrives", || open() == 2.0);
    client
}
