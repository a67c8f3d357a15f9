//! Large response bodies, which are sent in pieces: each byte arrives at its position, no matter
//! how the client reads.

use std::io::Read;
use std::net::Shutdown;
use std::thread;
use std::time::Duration;

use quipu_http::{CloseReason, Limits, Options};

use crate::support::{Client, LARGE, Running, large};

const SMALL: &str = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";

fn get(length: usize) -> String {
    format!("GET /large?{length} HTTP/1.1\r\nHost: x\r\n\r\n")
}

/// Fails without printing the bodies.
fn expect_first(body: &[u8], length: usize) {
    assert_eq!(body.len(), length);
    assert!(body == &large()[..length], "a body of {length} bytes has other bytes");
}

/// Returns lengths around the sizes of pieces and of gathered writes.
fn lengths() -> impl Iterator<Item = usize> {
    let around = |length: usize| [length - 1, length, length + 1];
    [2, 8 << 10, 64 << 10, 72 << 10, 128 << 10, 1 << 20].into_iter().flat_map(around)
}

#[test]
fn bodies_of_all_lengths_are_sent_whole_also_if_pipelined() {
    let server = Running::start(Options::default());
    let mut client = server.connect();
    for length in lengths() {
        client.send(&get(length));
        expect_first(&client.response().body, length);
    }
    let head = |length| get(length).replace("GET", "HEAD");
    let requests = lengths().map(|length| [get(length), head(length), SMALL.to_owned()].concat());
    client.send(&requests.collect::<String>());
    for (count, length) in (1..).zip(lengths()) {
        expect_first(&client.response().body, length);
        let head = client.response_without_body();
        assert_eq!(head.fields["content-length"], length.to_string());
        assert_eq!(client.response().body, format!("{count:020}").as_bytes());
    }
}

#[test]
fn a_slow_client_gets_all_bytes() {
    let server = Running::start(Options::default());
    let mut client = Client::connect_narrow(server.address);
    client.send(&get(LARGE));
    let mut read = Vec::new();
    for count in 0.. {
        // Pauses that make the server wait for the client, and reads of many sizes.
        if count % 64 == 0 {
            thread::sleep(Duration::from_millis(2));
        }
        let mut buffer = vec![0; 1 + count * 997 % 40_000];
        let n = client.stream.read(&mut buffer).unwrap();
        assert_ne!(n, 0, "the connection ended in a body");
        read.extend_from_slice(&buffer[..n]);
        let head = read.windows(4).take(1000).position(|bytes| bytes == b"\r\n\r\n");
        if head.is_some_and(|head| read.len() >= head + 4 + LARGE) {
            expect_first(&read[head.unwrap() + 4..], LARGE);
            break;
        }
    }
    client.send(SMALL);
    assert_eq!(client.response().status(), 200);
}

/// The client reads while the server writes, so the server can have to wait at any moment.
#[test]
fn requests_behind_a_large_body_are_taken() {
    let server = Running::start(Options::default());
    let mut client = Client::connect_narrow(server.address);
    for round in 0..20 {
        let length = LARGE / 4 + 1000 * round;
        client.send(&[get(length), SMALL.repeat(50), get(length)].concat());
        expect_first(&client.response().body, length);
        for count in 1..=50 {
            assert_eq!(client.response().body, format!("{:020}", 50 * round + count).as_bytes());
        }
        expect_first(&client.response().body, length);
    }
}

#[test]
fn a_connection_that_ends_after_a_large_body_has_sent_all_of_it() {
    let server = Running::start(Options::default());
    let kept = "GET /large HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";
    let closed = "GET /large HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    for request in ["GET /large HTTP/1.0\r\n\r\n", kept, closed, &get(LARGE)] {
        let mut client = Client::connect_narrow(server.address);
        client.send(request);
        if request == kept {
            expect_first(&client.response().body, LARGE);
            client.send("GET / HTTP/1.0\r\n\r\n");
            assert_eq!(client.response().line, "HTTP/1.0 200 OK");
        } else {
            client.stream.shutdown(Shutdown::Write).unwrap();
            // The server waits for the client.
            thread::sleep(Duration::from_millis(50));
            expect_first(&client.response().body, LARGE);
        }
        client.expect_end();
    }
}

#[test]
fn a_server_that_stops_sends_the_rest_of_a_large_body() {
    let server = Running::start(Options::default());
    let mut client = Client::connect_narrow(server.address);
    client.send(&get(LARGE));
    server.wait_until(|seen| seen.answered.get(&200) == Some(&1));
    server.stop();
    expect_first(&client.response().body, LARGE);
    client.expect_end();
    assert_eq!(server.stopped().cut, 0);
}

#[test]
fn a_client_that_stops_half_way_is_closed() {
    let limits = Limits { write_timeout: Duration::from_millis(200), ..Limits::default() };
    let server = Running::start_with(limits);
    let mut client = Client::connect_narrow(server.address);
    client.send(&[get(LARGE), SMALL.repeat(10)].concat());
    client.stream.read_exact(&mut vec![0; 1 << 20]).unwrap();
    server.wait_until(|seen| seen.closed(CloseReason::Stalled) == 1);
    assert_eq!(server.seen().requests, 0);
}

/// The deadline applies to the whole response: a client cannot prolong it by reading a little.
#[test]
fn a_client_that_reads_a_bit_at_a_time_is_closed() {
    let limits = Limits { write_timeout: Duration::from_millis(200), ..Limits::default() };
    let server = Running::start_with(limits);
    let mut client = Client::connect_narrow(server.address);
    client.send(&get(LARGE));
    let mut read = 0;
    let mut buffer = vec![0; 8 << 10];
    // The stream ends or is reset.
    while let Ok(n @ 1..) = client.stream.read(&mut buffer) {
        read += n;
        thread::sleep(Duration::from_millis(1));
    }
    assert!(read < LARGE, "the client got all");
    server.wait_until(|seen| seen.closed(CloseReason::Stalled) == 1);
}

#[test]
fn a_client_that_leaves_in_a_large_body_disturbs_no_other() {
    let server = Running::start(Options::default());
    for _ in 0..5 {
        let mut client = Client::connect_narrow(server.address);
        client.send(&get(LARGE));
        client.stream.read_exact(&mut [0; 1000]).unwrap();
    }
    server.wait_until(|seen| seen.closed(CloseReason::Broken) == 5);
    server.expect_service();
}
