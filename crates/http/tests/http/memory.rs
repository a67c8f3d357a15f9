//! The memory budget for bodies and responses: no client can use it up for all others.

use std::time::Duration;

use quipu_http::{CloseReason, Limits, Refusal};

use crate::support::{Client, LARGE, Running, large};

/// Requests the first bytes of the large body from this address.
fn ask(server: &Running, host: &str, length: usize) -> Client {
    let mut client = Client::connect_from(host, server.address);
    client.send(&format!("GET /large?{length} HTTP/1.1\r\nHost: x\r\n\r\n"));
    client
}

fn expect_first(client: &mut Client, length: usize) {
    let response = client.response();
    assert_eq!(response.status(), 200);
    assert!(response.body == large()[..length], "a body of {length} bytes has other bytes");
}

fn expect_unread(client: &mut Client) {
    let response = client.response();
    assert_eq!((response.status(), &response.fields["retry-after"][..]), (503, "1"));
    assert!(String::from_utf8(response.body).unwrap().contains("have not read yet"));
    client.expect_end();
}

/// Prevents the server from closing connections because of slow readers.
const NEVER: Duration = Duration::from_secs(3600);

#[test]
fn a_client_with_unfinished_bodies_leaves_room_for_others() {
    let limits = Limits { kept_bytes: 100_000, kept_body_bytes: 20_000, ..Limits::default() };
    let server = Running::start_with(limits);
    let head = "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 20000\r\n\r\n";
    let half = "x".repeat(10_000);
    let connect = |host| {
        let mut client = Client::connect_from(host, server.address);
        client.send(&[head, &half].concat());
        client
    };
    let greedy: Vec<Client> = (0..10).map(|_| connect("127.0.0.9")).collect();
    server.wait_until(|seen| seen.refused(Refusal::NoRoom) == 5);
    let mut other = connect("127.0.0.8");
    other.send(&half);
    assert_eq!(other.response().body.len(), 20_000);
    drop(greedy);
}

#[test]
fn a_body_that_is_alone_can_be_larger_than_the_room() {
    let limits = Limits { kept_bytes: 1000, kept_body_bytes: 20_000, ..Limits::default() };
    let server = Running::start_with(limits);
    let mut client = server.connect();
    let body = "x".repeat(20_000);
    client.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 20000\r\n\r\n");
    client.send(&body);
    assert_eq!(client.response().body, body.as_bytes());
}

#[test]
fn a_client_that_does_not_read_leaves_room_for_others() {
    let limits = Limits { response_bytes: 4 * LARGE, give_way: NEVER, ..Limits::default() };
    let server = Running::start_with(limits);
    let mut slow = [(); 2].map(|()| ask(&server, "127.0.0.9", LARGE));
    server.wait_until(|seen| seen.answered.get(&200) == Some(&2));
    expect_unread(&mut ask(&server, "127.0.0.9", LARGE));
    assert_eq!(server.seen().refused(Refusal::Unread), 1);
    let mut other = ask(&server, "127.0.0.8", LARGE);
    expect_first(&mut other, LARGE);
    // Responses that were read take no room, on the same connection or another.
    for _ in 0..3 {
        other.send("GET /large HTTP/1.1\r\nHost: x\r\n\r\n");
        expect_first(&mut other, LARGE);
    }
    slow.iter_mut().for_each(|client| expect_first(client, LARGE));
    expect_first(&mut ask(&server, "127.0.0.9", LARGE), LARGE);
}

#[test]
fn a_slow_reader_of_the_client_with_the_most_gives_way() {
    let give_way = Duration::ZERO;
    let limits = Limits { response_bytes: 2 * LARGE, give_way, ..Limits::default() };
    let server = Running::start_with(limits);
    let most = ask(&server, "127.0.0.9", LARGE);
    server.wait_until(|seen| seen.answered.get(&200) == Some(&1));
    let mut less = ask(&server, "127.0.0.8", LARGE - LARGE / 8);
    server.wait_until(|seen| seen.answered.get(&200) == Some(&2));
    let mut newcomer = ask(&server, "127.0.0.7", LARGE);
    expect_first(&mut newcomer, LARGE);
    server.wait_until(|seen| seen.closed(CloseReason::GaveWay) == 1);
    expect_first(&mut less, LARGE - LARGE / 8);
    assert_eq!(server.seen().refused(Refusal::Unread), 0);
    drop(most);
}

#[test]
fn a_response_in_steps_ends_when_there_is_no_room() {
    let response_bytes = LARGE + (4 << 20);
    let limits = Limits { response_bytes, give_way: NEVER, ..Limits::default() };
    let server = Running::start_with(limits);
    let grow = || {
        let mut client = Client::connect_from("127.0.0.8", server.address);
        client.send("GET /grows HTTP/1.1\r\nHost: x\r\n\r\n");
        client
    };
    // The room does not limit a single response.
    assert_eq!(grow().response().body, b"grown\n");
    let mut slow = ask(&server, "127.0.0.9", LARGE);
    server.wait_until(|seen| seen.answered.get(&200) == Some(&2));
    expect_unread(&mut grow());
    expect_first(&mut slow, LARGE);
    assert_eq!(grow().response().body, b"grown\n");
}
