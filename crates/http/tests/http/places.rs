//! More connections than the limit: the connections that are closed for others, and the requests
//! that are refused.

use std::collections::VecDeque;
use std::thread;
use std::time::{Duration, Instant};

use quipu_http::{CloseReason, Limits, Options, Refusal};

use super::support::{Client, Running};

#[test]
fn connections_beyond_the_limit_are_refused() {
    let give_way = Duration::from_secs(3600);
    let server = Running::start_with(Limits { connections: 3, give_way, ..Limits::default() });
    let mut open: Vec<Client> = (0..3).map(|_| server.connect()).collect();
    for client in &mut open {
        client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_eq!(client.response().status(), 200);
    }
    for _ in 0..20 {
        let mut extra = server.connect();
        extra.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        let response = extra.response();
        assert_eq!((response.status(), response.fields["retry-after"].as_str()), (503, "1"));
        assert_eq!(response.fields["connection"], "close");
        extra.expect_end();
        for client in &mut open {
            client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
            assert_eq!(client.response().status(), 200);
        }
    }
    assert_eq!(server.seen().refused(Refusal::Busy), 20);
    assert_eq!(server.seen().accepted, 3);
    open.pop();
    server.wait_until(|seen| seen.closed(CloseReason::Finished) == 1);
    server.expect_service();
}

#[test]
fn silent_connections_give_way() {
    let give_way = Duration::from_secs(3600);
    let limits = Limits { connections: 3, give_way, ..Limits::default() };
    let server = Running::start(Options { limits, defer_accept: false, ..Options::default() });
    let mut silent: Vec<Client> = (0..3).map(|_| server.connect()).collect();
    server.wait_until(|seen| seen.accepted == 3);
    // The connection that was silent longest is closed first. Active connections are not. Once a
    // client receives its response, the server knows that it is active.
    for n in 1..=3 {
        let mut client = server.connect();
        client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        silent.remove(0).expect_end();
        assert_eq!(client.response().status(), 200);
        server.wait_until(|seen| seen.closed(CloseReason::GaveWay) == n);
        client.send("GET / HTTP/1.1\r\nHost: x\r\n");
        silent.push(client);
    }
    let mut extra = server.connect();
    extra.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(extra.response().status(), 503);
    for client in &mut silent {
        client.send("\r\n");
        assert_eq!(client.response().status(), 200);
    }
    assert_eq!(server.seen().closed(CloseReason::GaveWay), 3);
}

/// A client with any number of silent connections does not displace the few of other clients.
#[test]
fn silent_connections_of_the_client_with_the_most_give_way() {
    let limits = Limits { connections: 8, ..Limits::default() };
    let server = Running::start(Options { limits, defer_accept: false, ..Options::default() });
    let mut few: Vec<Client> =
        (0..2).map(|_| Client::connect_from("127.0.0.8", server.address)).collect();
    server.wait_until(|seen| seen.accepted == 2);
    // More than any number of searches per sweep would find.
    let mut churned: VecDeque<Client> = VecDeque::new();
    for n in 1..=1000 {
        churned.push_back(Client::connect_from("127.0.0.9", server.address));
        if churned.len() > 100 {
            churned.pop_front();
        }
        if n % 50 == 0 {
            let mut other = Client::connect_from("127.0.0.7", server.address);
            other.send("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
            assert_eq!(other.response().status(), 200, "after {n} silent connections");
        }
    }
    for client in &mut few {
        client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_eq!(client.response().status(), 200);
    }
    assert_eq!(server.seen().refused(Refusal::Busy), 0);
}

#[test]
fn idle_connections_of_the_client_with_the_most_give_way() {
    let give_way = Duration::from_millis(20);
    let server = Running::start_with(Limits { connections: 6, give_way, ..Limits::default() });
    let ask = |client: &mut Client| {
        client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        client.response().status()
    };
    let [mut one, many @ ..] = [8, 9, 9, 9, 9, 9].map(|host| {
        let mut client = Client::connect_from(&format!("127.0.0.{host}"), server.address);
        assert_eq!(ask(&mut client), 200);
        client
    });
    let mut served: Vec<Client> = Vec::new();
    let begin = Instant::now();
    while served.len() < 2 {
        assert!(begin.elapsed() < Duration::from_secs(120));
        let mut client = server.connect();
        match ask(&mut client) {
            200 => served.push(client),
            _ => thread::sleep(Duration::from_millis(20)),
        }
    }
    server.wait_until(|seen| seen.closed(CloseReason::GaveWay) == 2);
    // The oldest connection is the only one of its client.
    assert_eq!(ask(&mut one), 200);
    drop(many);
}

#[test]
fn idle_connections_give_way() {
    let give_way = Duration::from_millis(20);
    let server = Running::start_with(Limits { connections: 1, give_way, ..Limits::default() });
    let mut idle = server.connect();
    idle.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(idle.response().status(), 200);
    let begin = Instant::now();
    let status = |client: &mut Client| {
        client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        client.response().status()
    };
    while status(&mut server.connect()) == 503 {
        assert!(begin.elapsed() < Duration::from_secs(120));
        thread::sleep(Duration::from_millis(20));
    }
    server.wait_until(|seen| seen.closed(CloseReason::GaveWay) == 1);
    idle.expect_end();
}

#[test]
fn an_address_with_most_of_the_places_gives_way_to_others() {
    let server = Running::start_with(Limits { connections: 3, ..Limits::default() });
    let mut half: Vec<Client> =
        (0..3).map(|_| Client::connect_from("127.0.0.9", server.address)).collect();
    for client in &mut half {
        client.send("GET / HTTP/1.1\r\n");
    }
    server.wait_until(|seen| seen.accepted == 3);
    let mut same = Client::connect_from("127.0.0.9", server.address);
    same.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(same.response().status(), 503);
    let mut other = Client::connect_from("127.0.0.8", server.address);
    other.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(other.response().status(), 200);
    server.wait_until(|seen| seen.closed(CloseReason::GaveWay) == 1);
    half.remove(0).expect_end();
}

#[test]
fn vital_requests_are_served_when_all_places_are_taken() {
    let limits = Limits { connections: 1, ..Limits::default() };
    let server = Running::start(Options { limits, defer_accept: false, ..Options::default() });
    let mut first = server.connect();
    first.send("GET / HTTP/1.1\r\nHost: x\r\n");
    server.wait_until(|seen| seen.accepted == 1);
    // More connections beyond the limit than allowed. The oldest are closed.
    let mut silent: Vec<Client> = (0..40).map(|_| server.connect()).collect();
    let mut vital = server.connect();
    vital.send("GET /vital HTTP/1.1\r\nHost: x\r\n\r\n");
    let response = vital.response();
    assert_eq!((response.status(), &response.fields["connection"][..]), (200, "close"));
    vital.expect_end();
    let mut other = server.connect();
    other.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!((other.response().status(), other.expect_end()), (503, ()));
    assert_eq!(silent.remove(0).response().status(), 503);
    first.send("\r\n");
    assert_eq!(first.response().status(), 200);
}
