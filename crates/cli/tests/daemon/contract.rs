//! Tests the contract of the server `derlaft/ratecounter`: `GET /` counts itself and returns 20
//! digits.

use std::net::SocketAddr;

use crate::common::{Client, Home, Load};

#[test]
fn get_returns_twenty_digits_and_counts_itself() {
    let home = Home::new();
    let daemon = home.start(&[]);
    for count in 1..=5 {
        let response = daemon.get("/");
        assert_eq!(response.status, 200);
        assert_eq!(response.body, format!("{count:020}").as_bytes());
        assert_eq!(response.fields["content-length"], "20");
        assert!(response.fields["content-type"].starts_with("text/plain"), "{response:?}");
    }
}

#[test]
fn only_a_browser_gets_a_page() {
    let home = Home::new();
    let daemon = home.start(&[]);
    let get = |accept: &str| {
        let mut client = daemon.connect();
        let request = format!("GET / HTTP/1.1\r\nHost: quipu\r\nAccept: {accept}\r\n\r\n");
        client.send(request).unwrap();
        client.read_response().unwrap()
    };
    let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
    let response = get(browser);
    assert_eq!((response.status, &*response.fields["vary"]), (200, "Accept"));
    assert_eq!(response.fields["content-type"], "text/html; charset=utf-8");
    let policy = &response.fields["content-security-policy"];
    assert!(policy.starts_with("default-src 'none'; style-src 'sha256-"), "{policy}");
    let page = response.text();
    for part in ["Version 0.1.0, up ", ", 1 requests", "href=\"/metrics\"", "href=\"/refused\""] {
        assert!(page.contains(part), "{part} is not in {page}");
    }
    for path in ["/metrics", "/refused", "/top", "/-/healthy"] {
        assert!(page.contains(&format!("href=\"{path}\"")) && daemon.get(path).status == 200);
    }
    for (count, accept) in (2..).zip(["*/*", "text/plain", "application/json"]) {
        let response = get(accept);
        assert_eq!(response.body, format!("{count:020}").as_bytes(), "{accept}");
        assert_eq!(response.fields["vary"], "Accept", "{response:?}");
    }
}

#[test]
fn a_connection_is_kept_until_the_client_closes_it() {
    let home = Home::new();
    let daemon = home.start(&[]);
    let mut client = daemon.connect();
    for count in 1..=50 {
        let response = client.request("GET", "/").unwrap();
        assert_eq!(response.count(), count);
        assert!(!response.fields.contains_key("connection"), "{response:?}");
    }
    client.finish();
    client.expect_end();
    // One connection for the 50 requests, and one for this scrape.
    assert_eq!(daemon.sample("quipu_http_connections_accepted_total"), 2.0);
}

#[test]
fn requests_may_follow_each_other_without_waiting() {
    let home = Home::new();
    let daemon = home.start(&[]);
    let mut client = daemon.connect();
    client.send("GET / HTTP/1.1\r\nHost: quipu\r\n\r\n".repeat(100)).unwrap();
    for count in 1..=100 {
        assert_eq!(client.read_response().unwrap().count(), count);
    }
}

#[test]
fn connection_close_is_honoured() {
    let home = Home::new();
    let daemon = home.start(&[]);
    for (count, version) in [(1, "1.1"), (2, "1.1"), (3, "1.0")] {
        let mut client = daemon.connect();
        let request = format!("GET / HTTP/{version}\r\nHost: quipu\r\nConnection: close\r\n\r\n");
        client.send(request).unwrap();
        let response = client.read_response().unwrap();
        assert_eq!(response.count(), count);
        client.expect_end();
    }
}

#[test]
fn the_response_to_head_has_no_body() {
    let home = Home::new();
    let daemon = home.start(&[]);
    let mut client = daemon.connect();
    let response = client.request("HEAD", "/").unwrap();
    assert_eq!((response.status, response.fields["content-length"].as_str()), (200, "20"));
    // The next response begins right after the head, and counts both requests.
    assert_eq!(client.request("GET", "/").unwrap().count(), 2);
}

#[test]
fn every_request_gets_a_number_of_its_own() {
    let home = Home::new();
    let daemon = home.start(&["--threads", "2"]);
    let load = Load::start(daemon.address(), "GET", "/");
    load.wait_for(2000);
    daemon.stop();
    let mut tally = load.end();
    tally.numbers.sort_unstable();
    // A count may be missing only if a client did not get its response.
    assert!(tally.numbers.windows(2).all(|pair| pair[0] < pair[1]), "a number came twice");
    assert!(tally.numbers.len() as u64 == tally.answered && tally.numbers[0] >= 1);
    assert!(*tally.numbers.last().unwrap() <= tally.sent);
}

#[test]
fn several_addresses_are_one_daemon() {
    let home = Home::new();
    let listen = format!("{0}:0,{0}:0", home.host());
    let daemon = home.start(&["--listen", &listen, "--listen", &format!("{}:0", home.host())]);
    let addresses: Vec<SocketAddr> = daemon
        .log()
        .iter()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .filter(|event| event["message"] == "listening")
        .map(|event| event["address"].as_str().unwrap().parse().unwrap())
        .collect();
    assert_eq!(addresses.len(), 3);
    for (address, count) in addresses.into_iter().zip(1..) {
        let mut client = Client::connect(address).unwrap();
        assert_eq!(client.request("GET", "/").unwrap().count(), count);
    }
}
