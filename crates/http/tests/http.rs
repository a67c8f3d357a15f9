//! The HTTP transport over real sockets, with a plain blocking client.

#![allow(clippy::unwrap_used, reason = "functions of tests may fail by panicking")]

#[path = "http/large.rs"]
mod large;
#[path = "http/memory.rs"]
mod memory;
#[path = "http/places.rs"]
mod places;
#[path = "http/support.rs"]
mod support;

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::{Shutdown, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use quipu_http::{CloseReason, Error, Limits, Options, Refusal, Server};

use support::{Client, LARGE, Recorder, Running};

// Requests and their responses.

#[test]
fn a_plain_request_gets_a_complete_response() {
    let server = Running::start(Options::default());
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    let response = client.response();
    assert_eq!(response.line, "HTTP/1.1 200 OK");
    assert_eq!(response.body, b"00000000000000000001");
    assert_eq!(response.fields["content-type"], "text/plain");
    assert_eq!(response.fields["content-length"], "20");
    assert!(response.fields["date"].ends_with(" GMT"), "{response:?}");
    assert_eq!(response.fields.len(), 3, "{response:?}");
}

#[test]
fn connections_are_kept() {
    let server = Running::start(Options::default());
    let mut client = server.connect();
    for count in 1..=50 {
        client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_eq!(client.response().body, format!("{count:020}").as_bytes());
    }
    drop(client);
    server.wait_until(|seen| seen.closed(CloseReason::Finished) == 1);
    assert_eq!(server.seen().accepted, 1);
    assert_eq!(server.seen().answered[&200], 50);
}

#[test]
fn requests_may_be_pipelined() {
    let server = Running::start(Options::default());
    let mut client = server.connect();
    client.send(&"GET / HTTP/1.1\r\nHost: x\r\n\r\n".repeat(100));
    for count in 1..=100 {
        assert_eq!(client.response().body, format!("{count:020}").as_bytes());
    }
    // The response is sent before the next request is complete.
    client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\nGET / HT");
    assert_eq!(client.response().status(), 200);
    client.send("TP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(client.response().status(), 200);
}

#[test]
fn a_connection_of_http_1_0_closes_unless_asked_to_keep() {
    let server = Running::start(Options::default());
    let mut client = server.connect();
    client.send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    let response = client.response();
    assert_eq!(response.line, "HTTP/1.0 200 OK");
    assert_eq!(response.fields["connection"], "keep-alive");
    client.send("GET / HTTP/1.0\r\n\r\n");
    let response = client.response();
    assert_eq!(response.line, "HTTP/1.0 200 OK");
    assert_eq!(response.fields.get("connection"), None);
    client.expect_end();
}

#[test]
fn close_is_echoed() {
    let server = Running::start(Options::default());
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert_eq!(client.response().fields["connection"], "close");
    client.expect_end();
}

#[test]
fn a_half_closed_client_gets_its_response() {
    let server = Running::start(Options::default());
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    client.stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.response().status(), 200);
    client.expect_end();
}

#[test]
fn a_response_to_head_has_no_body() {
    let server = Running::start(Options::default());
    let mut client = server.connect();
    client.send("HEAD / HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n");
    let head = client.response_without_body();
    assert_eq!(head.fields["content-length"], "20");
    assert_eq!(client.response().body, b"00000000000000000002");
}

#[test]
fn bodies_with_a_length_and_in_chunks_are_read() {
    let server = Running::start(Options::default());
    let mut client = server.connect();
    client.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello");
    assert_eq!(client.response().body, b"hello");
    client.send(
        "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n\
         5\r\nhello\r\n6;ext=1\r\n world\r\n0\r\n\r\n",
    );
    assert_eq!(client.response().body, b"hello world");
    // A body sent in pieces, larger than any buffer on its way.
    let body = "0123456789abcdef".repeat(60_000);
    client
        .send(&format!("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", body.len()));
    client.send(&body);
    assert_eq!(client.response().body, body.as_bytes());
}

/// After a bare LF in the trailers, hyper would take the next request for a part of them, if we let
/// it continue.
#[test]
fn a_request_with_trailers_is_the_last_of_its_connection() {
    let server = Running::start(Options::default());
    let body = "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n\
                2\r\nhi\r\n0\r\n";
    for trailers in ["Trailer: dropped\r\n\r\n", "A: b\n\r\n", "\n\r\n"] {
        let mut client = server.connect();
        client.send(&[body, trailers, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"].concat());
        let response = client.response();
        assert_eq!(response.body, b"hi", "{trailers:?}");
        assert_eq!(response.fields["connection"], "close", "{trailers:?}");
        client.expect_end();
    }
    assert_eq!(server.seen().requests, 0);
}

#[test]
fn a_client_that_expects_100_continue_gets_it() {
    let server = Running::start(Options::default());
    let mut client = server.connect();
    client.send(
        "POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n",
    );
    assert_eq!(client.response_without_body().line, "HTTP/1.1 100 Continue");
    client.send("hello");
    assert_eq!(client.response().body, b"hello");
}

#[test]
fn routes_are_the_handlers_decision() {
    let server = Running::start(Options::default());
    let mut client = server.connect();
    client.send("GET /nowhere?a=b HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(client.response().status(), 404);
    client.send("DELETE / HTTP/1.1\r\nHost: x\r\n\r\n");
    let response = client.response();
    assert_eq!((response.status(), response.fields["allow"].as_str()), (405, "GET, HEAD"));
}

// Turns.

#[test]
fn a_turn_is_bounded_in_time() {
    let server = Running::start(Options::default());
    let mut busy = server.connect();
    busy.send(&"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n".repeat(100_000));
    server.wait_until(|seen| seen.slow > 0);
    // In the meantime, another client waits for only some of these requests.
    let mut waited = 0;
    for _ in 0..8 {
        let mut client = server.connect();
        let before = server.seen().slow;
        client.send("GET /slow HTTP/1.1\r\nHost: x\r\n\r\n");
        let at: usize = String::from_utf8(client.response().body).unwrap().parse().unwrap();
        waited += at - before;
    }
    assert!(waited < 1500, "8 requests waited for {waited} others");
}

#[test]
fn a_response_in_steps_lets_others_have_their_turn() {
    let server = Running::start(Options::default());
    // These requests take longer than the test.
    let mut busy = server.connect();
    busy.send(&"GET /steps HTTP/1.1\r\nHost: x\r\n\r\n".repeat(1000));
    for _ in 0..10 {
        server.expect_service();
    }
    assert_eq!(busy.response().body, b"done\n");
    assert!(server.seen().answered[&200] < 1000);
    // The response being computed is still sent, and none after it.
    server.stop();
    assert_eq!(server.stopped().cut, 0);
}

#[test]
fn a_step_that_waits_ends_the_turn() {
    let server = Running::start(Options { threads: 1, ..Options::default() });
    let (mut one, mut other) = (server.connect(), server.connect());
    for client in [&mut one, &mut other] {
        client.send("GET /waits HTTP/1.1\r\nHost: x\r\n\r\n");
    }
    server.wait_until(|seen| seen.changes > 100);
    server.expect_service();
    assert_eq!(one.response().body, b"done\n");
    assert_eq!(other.response().body, b"done\n");
    let seen = server.seen();
    assert!(seen.most_alone < 10, "{seen:?}");
}

#[test]
fn no_request_is_read_while_earlier_responses_wait() {
    let server = Running::start(Options::default());
    let mut client = server.connect();
    client.send("GET /large HTTP/1.1\r\nHost: x\r\n\r\n");
    server.wait_until(|seen| seen.answered.get(&200) == Some(&1));
    client.send(&"GET / HTTP/1.1\r\nHost: x\r\n\r\n".repeat(1000));
    for _ in 0..20 {
        server.expect_service();
    }
    assert_eq!(server.seen().requests, 20);
    assert_eq!(client.response().body.len(), LARGE);
    for count in 21..=1020 {
        assert_eq!(client.response().body, format!("{count:020}").as_bytes());
    }
}

#[test]
fn a_connection_works_after_its_buffers_were_dropped() {
    let limits = Limits { keep_buffers: Duration::ZERO, ..Limits::default() };
    let limits = Limits { write_timeout: Duration::from_millis(40), ..limits };
    let server = Running::start(Options { limits, defer_accept: false, ..Options::default() });
    let (mut first, mut second) = (server.connect(), server.connect());
    for count in 0..10 {
        // Longer and shorter than a connection keeps its buffers.
        thread::sleep(Duration::from_millis(5 * count));
        first.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_eq!(first.response().status(), 200);
        second.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhe");
        thread::sleep(Duration::from_millis(2 * count));
        second.send("llo");
        assert_eq!(second.response().body, b"hello");
    }
    first.stream.shutdown(Shutdown::Write).unwrap();
    first.expect_end();
    thread::sleep(Duration::from_millis(50));
    server.stop();
    second.expect_end();
    assert_eq!(server.stopped().cut, 0);
}

/// The end of one request and the beginning of the next arrive together. The rest arrives after the
/// connection gave its buffers back.
#[test]
fn the_beginning_of_a_request_outlives_the_buffers() {
    let limits = Limits { keep_buffers: Duration::ZERO, ..Limits::default() };
    let server = Running::start_with(limits);
    let request = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    let inner = "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nin";
    let length = inner.len();
    let outer =
        format!("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{inner}");
    for cut in [1, 10, outer.len() - length - 1, outer.len() - length, outer.len() - 1] {
        let mut client = server.connect();
        client.send(&format!("{request}{}", &outer[..cut]));
        assert_eq!(client.response().status(), 200);
        thread::sleep(Duration::from_millis(50));
        client.send(&outer[cut..]);
        assert_eq!(client.response().body, inner.as_bytes(), "cut after {cut} bytes");
        client.send(request);
        assert_eq!(client.response().status(), 200);
    }
}

/// A request that is never completed is refused, even if it began together with the end of another.
#[test]
fn the_beginning_of_a_request_has_a_deadline() {
    let limits = Limits { keep_buffers: Duration::ZERO, ..Limits::default() };
    let server = Running::start_with(Limits { read_timeout: Duration::from_millis(50), ..limits });
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\nGET /");
    assert_eq!(client.response().status(), 200);
    assert_eq!(client.response().status(), 408);
    client.expect_end();
}

// Invalid requests.

#[test]
fn a_head_over_the_limit_is_refused() {
    let limits = Limits { header_bytes: 1000, ..Limits::default() };
    let server = Running::start_with(limits);
    let long = "x".repeat(2000);
    let head = format!("GET / HTTP/1.1\r\nHost: x\r\nLong: {long}\r\n\r\n");
    server.expect_refusal(&head, Refusal::HeadTooLarge, 431);
    let endless = format!("GET / HTTP/1.1\r\nHost: x\r\nLong: {long}");
    server.expect_refusal(&endless, Refusal::HeadTooLarge, 431);
    let target = format!("GET /{long}");
    server.expect_refusal(&target, Refusal::TargetTooLong, 414);
    let fields = "A: b\r\n".repeat(101);
    let many = format!("GET / HTTP/1.1\r\n{fields}\r\n");
    server.expect_refusal(&many, Refusal::HeadTooLarge, 431);
}

#[test]
fn a_target_beyond_the_limit_of_hyper_is_refused() {
    let limits = Limits { header_bytes: 1 << 20, ..Limits::default() };
    let server = Running::start_with(limits);
    let request = format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "x".repeat(70_000));
    server.expect_refusal(&request, Refusal::TargetTooLong, 414);
}

/// Hyper drops the head, so only a part of the body remains.
#[test]
fn a_length_that_no_number_holds_is_refused_with_the_limits() {
    let server = Running::start(Options::default());
    let head = "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 18446744073709551615\r\n\r\n";
    for body in ["", "x 1\n", "{\n", &"x".repeat(20_000)] {
        server.expect_refusal(&[head, body].concat(), Refusal::BodyTooLarge, 413);
    }
    let mut client = server.connect();
    client.send(head);
    let told = String::from_utf8(client.response().body).unwrap();
    assert!(told.contains(": 1048576 bytes, or 33554432 if it brings metrics"), "{told}");
}

#[test]
fn the_number_of_fields_is_a_setting() {
    let server = Running::start_with(Limits { headers: 3, ..Limits::default() });
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: x\r\nA: b\r\nC: d\r\n\r\n");
    assert_eq!(client.response().status(), 200);
    let four = "GET / HTTP/1.1\r\nHost: x\r\nA: b\r\nC: d\r\nE: f\r\n\r\n";
    server.expect_refusal(four, Refusal::HeadTooLarge, 431);
}

#[test]
fn a_body_over_the_limit_is_refused() {
    let limits = Limits { kept_body_bytes: 10, kept_bytes: 15, ..Limits::default() };
    let server = Running::start_with(limits);
    let mut client = server.connect();
    client.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n0123456789");
    assert_eq!(client.response().body, b"0123456789");
    // Its body is kept until it is complete, and another one does not fit.
    client.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n012345678");
    let beside = || {
        let mut other = server.connect();
        other.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n0123456789");
        other.response().status()
    };
    // The server can read this body before the first one.
    assert!((0..1000).any(|_| beside() == 503));
    client.send("9");
    assert_eq!(client.response().body, b"0123456789");
    // Refused by the announced length: no byte of the body was sent or requested.
    let announced = "POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n\
                     Content-Length: 11\r\n\r\n";
    server.expect_refusal(announced, Refusal::KeptBodyTooLarge, 413);
    let chunked = "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n\
                   6\r\n012345\r\n5\r\n67890\r\n";
    server.expect_refusal(chunked, Refusal::KeptBodyTooLarge, 413);
    // A client that sends everything regardless can still read the reason.
    let large = format!(
        "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3000000\r\n\r\n{}",
        "x".repeat(3_000_000)
    );
    server.expect_refusal(&large, Refusal::KeptBodyTooLarge, 413);
}

#[test]
fn a_length_beyond_all_numbers_is_refused_whatever_follows() {
    let server = Running::start(Options::default());
    let lines = "a line\n".repeat(200);
    for body in ["", "x", "\n", "a\nb", "GET ", &lines, &lines.repeat(5)] {
        let request = format!(
            "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 18446744073709551615\r\n\r\n{body}"
        );
        server.expect_refusal(&request, Refusal::BodyTooLarge, 413);
    }
}

#[test]
fn malformed_requests_are_refused() {
    let server = Running::start(Options::default());
    for request in [
        "\0\0\0\0\r\n\r\n",
        "GET\r\n\r\n",
        "GET / HTTP/9.9\r\n\r\n",
        "GET / HTTP/1.1\r\nno colon\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nnot a length\r\n",
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
        "GET / HTTP/1.0\r\nHost: x\r\nHost: x\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: x/y\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: x:y\r\n\r\n",
        "GET / HTTP/1.0\r\nHost: user@x\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, chunked\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, gzip\r\n\r\n",
        "POST /echo HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
    ] {
        server.expect_refusal(request, Refusal::Malformed, 400);
    }
}

#[test]
fn unknown_codings_are_refused() {
    let server = Running::start(Options::default());
    for codings in ["gzip, chunked", "gzip,chunked", "x;q=1 , chunked"] {
        let head = format!("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: {codings}\r\n");
        server.expect_refusal(&format!("{head}\r\n2\r\nhi\r\n0\r\n\r\n"), Refusal::Coding, 501);
    }
    let mut client = server.connect();
    client.send(
        "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: , Chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
    );
    assert_eq!(client.response().body, b"hi");
}

#[test]
fn garbage_after_a_request_is_refused() {
    let server = Running::start(Options::default());
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n\x01\x02garbage\r\n\r\n");
    assert_eq!(client.response().status(), 200);
    let refusal = client.response();
    assert_eq!((refusal.status(), refusal.fields["connection"].as_str()), (400, "close"));
    client.expect_end();
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\ngarbage");
    assert_eq!(client.response().status(), 200);
    client.expect_end();
}

#[test]
fn a_handler_that_panics_gets_a_500() {
    let server = Running::start(Options::default());
    server.expect_refusal("GET /panic HTTP/1.1\r\nHost: x\r\n\r\n", Refusal::Panicked, 500);
    server.expect_service();
}

// Timeouts.

#[test]
fn a_request_has_to_be_complete_in_time() {
    let limits = Limits { read_timeout: Duration::from_millis(200), ..Limits::default() };
    let body = "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n";
    for start in ["GET / HTTP/1.1\r\nSlow: ", body] {
        // The clock is read for the first connection, and then once per sweep.
        let server = Running::start_with(limits.clone());
        let begin = Instant::now();
        let mut client = server.connect();
        client.send(start);
        // A slow trickle of bytes does not prevent the timeout.
        let mut trickle = client.stream.try_clone().unwrap();
        let trickling = thread::spawn(move || {
            while trickle.write_all(b"x").is_ok() && begin.elapsed() < Duration::from_secs(15) {
                thread::sleep(Duration::from_millis(20));
            }
        });
        let response = client.response();
        assert_eq!((response.status(), response.fields["connection"].as_str()), (408, "close"));
        // However slow the machine, the request was refused while bytes still arrived.
        let took = begin.elapsed();
        assert!(took >= Duration::from_millis(200) && took < Duration::from_secs(15), "{took:?}");
        drop(client);
        trickling.join().unwrap();
        server.wait_until(|seen| seen.refused(Refusal::Timeout) == 1);
    }
}

#[test]
fn an_idle_connection_is_closed_silently() {
    // Long enough for a client that is delayed by the machine.
    let limits = Limits { idle_timeout: Duration::from_secs(2), ..Limits::default() };
    let server = Running::start(Options { limits, defer_accept: false, ..Options::default() });
    let mut used = server.connect();
    let mut fresh = server.connect();
    used.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(used.response().status(), 200);
    used.expect_end();
    fresh.expect_end();
    server.wait_until(|seen| seen.closed(CloseReason::Idle) == 2);
}

#[test]
fn a_client_that_does_not_read_is_disconnected() {
    let limits = Limits { write_timeout: Duration::from_millis(200), ..Limits::default() };
    let server = Running::start_with(limits);
    let mut client = server.connect();
    client.send(&"GET /large HTTP/1.1\r\nHost: x\r\n\r\n".repeat(10));
    server.expect_service();
    server.wait_until(|seen| seen.closed(CloseReason::Stalled) == 1);
    // A client that reads slowly, but within the timeout, gets everything.
    let limits = Limits { write_timeout: Duration::from_secs(20), ..Limits::default() };
    let server = Running::start_with(limits);
    let mut client = server.connect();
    client.send("GET /large HTTP/1.1\r\nHost: x\r\n\r\n");
    thread::sleep(Duration::from_millis(300));
    assert_eq!(client.response().body.len(), LARGE);
}

#[test]
fn a_client_that_leaves_half_way_disturbs_no_other() {
    let server = Running::start(Options::default());
    for request in [
        "GET / HT",
        "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nsome",
        "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhe",
    ] {
        server.connect().send(request);
    }
    server.wait_until(|seen| seen.closed(CloseReason::Broken) == 3);
    server.expect_service();
}

// Threads and descriptors.

#[test]
fn threads_share_a_port() {
    let server = Running::start(Options { threads: 2, ..Options::default() });
    let mut clients: Vec<Client> = (0..64).map(|_| server.connect()).collect();
    for _ in 0..3 {
        for client in &mut clients {
            client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        }
        for client in &mut clients {
            assert_eq!(client.response().status(), 200);
        }
    }
    assert_eq!(server.seen().answered[&200], 3 * 64);
    assert_eq!(server.handlers.load(Ordering::Relaxed), 2);
    // Only threads share a port, not servers.
    let again = Options { threads: 2, ..Options::default() };
    let error = Server::bind(&[server.address.to_string()], &again).unwrap_err();
    assert!(error.to_string().contains("another process has port"), "{error}");
}

/// Runs a server in a separate process with few remaining descriptors.
#[test]
fn a_server_without_descriptors_recovers() {
    const CHILD: &str = "QUIPU_TEST_FEW_DESCRIPTORS";
    if std::env::var_os(CHILD).is_some() {
        use rustix::process::{Resource, Rlimit, setrlimit};
        let server = Server::bind(&["127.0.0.1:0"], &Options::default()).unwrap();
        println!("listening on {}", server.local_addresses()[0]);
        let few = Rlimit { current: Some(32), maximum: Some(32) };
        setrlimit(Resource::Nofile, few).unwrap();
        let seen = Arc::default();
        server.serve(|_| Recorder::new(&seen), || (), std::future::pending()).unwrap();
        return;
    }
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_server_without_descriptors_recovers", "--nocapture"])
        .env(CHILD, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let address = loop {
        let mut line = String::new();
        assert_ne!(output.read_line(&mut line).unwrap(), 0);
        if let Some((_, address)) = line.trim().split_once("listening on ") {
            break address.parse().unwrap();
        }
    };
    let mut clients: Vec<Client> = (0..64).map(|_| Client::connect(address)).collect();
    for client in &mut clients {
        client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    }
    // Accepted connections are served. The others cost almost no processor time while they wait.
    assert_eq!(clients[0].response().status(), 200);
    let processor_time = |id: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap();
        let (_, fields) = stat.rsplit_once(')').unwrap();
        let field = |n: usize| fields.split(' ').nth(n).unwrap().parse::<u64>().unwrap();
        field(12) + field(13)
    };
    let before = processor_time(child.id());
    thread::sleep(Duration::from_millis(500));
    let ticks = processor_time(child.id()) - before;
    assert!(ticks <= 10, "{ticks} ticks of 10 ms while waiting for descriptors");
    clients[0].send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(clients[0].response().status(), 200);
    for mut client in clients.into_iter().skip(1) {
        assert_eq!(client.response().status(), 200);
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

// Shutdown.

#[test]
fn a_server_that_stops_closes_idle_connections_and_finishes_requests() {
    let server = Running::start(Options { defer_accept: false, ..Options::default() });
    let mut fresh = server.connect();
    let mut idle = server.connect();
    idle.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(idle.response().status(), 200);
    let mut head = server.connect();
    head.send("GET / HTTP/1.1\r\n");
    let mut body = server.connect();
    body.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhe");
    server.wait_until(|seen| seen.accepted == 4);
    server.stop();
    idle.expect_end();
    fresh.expect_end();
    server.wait_until(|seen| seen.closed(CloseReason::Shutdown) == 2);
    assert_eq!(
        TcpStream::connect(server.address).unwrap_err().kind(),
        ErrorKind::ConnectionRefused
    );
    body.send("llo");
    let response = body.response();
    assert_eq!(
        (&response.body[..], response.fields["connection"].as_str()),
        (&b"hello"[..], "close")
    );
    body.expect_end();
    head.send("Host: x\r\n\r\n");
    assert_eq!(head.response().fields["connection"], "close");
    head.expect_end();
    assert_eq!(server.stopped().cut, 0);
}

#[test]
fn a_server_that_stops_responds_to_requests_that_have_arrived() {
    for defer_accept in [true, false] {
        let server = Running::start(Options { defer_accept, ..Options::default() });
        let mut clients: Vec<Client> = (0..10).map(|_| server.connect()).collect();
        for client in &mut clients {
            client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
            assert_eq!(client.response().status(), 200);
        }
        // While the server sleeps, requests arrive on open connections, and on more new connections
        // than it accepts in one burst.
        let mut sleeper = server.connect();
        sleeper.send("GET /sleep HTTP/1.1\r\nHost: x\r\n\r\n");
        server.wait_until(|seen| seen.asleep);
        clients.extend((0..200).map(|_| server.connect()));
        for client in &mut clients {
            client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        }
        server.stop();
        for client in &mut clients {
            assert_eq!(client.response().status(), 200);
            client.expect_end();
        }
        assert_eq!(sleeper.response().status(), 200);
        assert_eq!(server.stopped().cut, 0);
    }
}

#[test]
fn a_server_that_stops_cuts_connections_that_do_not_end() {
    let limits = Limits { drain_timeout: Duration::from_millis(100), ..Limits::default() };
    let server = Running::start_with(limits);
    let mut client = server.connect();
    client.send("GET / HT");
    server.wait_until(|seen| seen.accepted == 1);
    let begin = Instant::now();
    server.stop();
    assert_eq!(server.stopped().cut, 1);
    assert!(begin.elapsed() < Limits::default().drain_timeout);
    client.expect_end();
}

#[test]
fn an_empty_server_stops_at_once() {
    let server = Running::start(Options { threads: 2, ..Options::default() });
    let begin = Instant::now();
    server.stop();
    assert_eq!(server.stopped().cut, 0);
    assert!(begin.elapsed() < Limits::default().drain_timeout);
}

// Startup.

#[test]
fn errors_name_the_address_and_the_way_out() {
    let server = Running::start(Options::default());
    let taken = server.address.to_string();
    let bind = |address: &str| Server::bind(&[address], &Options::default()).unwrap_err();
    let error = bind(&taken);
    assert!(matches!(error, Error::Listen { .. }));
    let message = error.to_string();
    assert!(message.contains(&taken) && message.contains("choose another port"), "{message}");
    let message = bind("192.0.2.1:8081").to_string();
    assert!(message.contains("192.0.2.1:8081") && message.contains("0.0.0.0"), "{message}");
    let message = bind("localhost").to_string();
    assert!(message.contains("\"localhost\"") && message.contains("host:port"), "{message}");
    let error = Server::bind::<&str>(&[], &Options::default()).unwrap_err();
    assert!(matches!(error, Error::NoAddress));
}

#[test]
fn a_server_listens_on_several_addresses() {
    let server = Running::start_on(&["127.0.0.1:0", "127.0.0.2:0"], Options::default());
    for address in server.addresses.clone() {
        let mut client = Client::connect(address);
        client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_eq!(client.response().status(), 200);
    }
}

#[test]
fn the_limit_on_open_files_bounds_connections() {
    let limits = Limits { connections: usize::MAX, ..Limits::default() };
    let options = Options { limits, ..Options::default() };
    let server = Server::bind(&["127.0.0.1:0"], &options).unwrap();
    assert!(server.connections() >= 1 && server.connections() < usize::MAX);
}
