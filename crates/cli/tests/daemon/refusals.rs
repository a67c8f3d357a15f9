//! Tests of refused requests, and of the messages in their responses.

use std::time::{Duration, Instant};

use crate::common::{Daemon, Home, Response, wait_until};

#[test]
fn refusals_of_parameters_name_the_way_out() {
    let home = Home::new();
    let daemon = home.start(&["--accuracy", "1m"]);
    for (target, part) in [
        ("/rate?window=", "write a time such as 200ms, 60s, or 1h 30m"),
        ("/rate?window", "write a time such as 200ms, 60s, or 1h 30m"),
        ("/rate?window=soon", "write a time such as 200ms, 60s, or 1h 30m"),
        ("/rate?window=60", "write a time such as 200ms, 60s, or 1h 30m"),
        ("/rate?window=-1m", "write a time such as 200ms, 60s, or 1h 30m"),
        ("/rate?window=999999999999999999y", "the window cannot be read"),
        ("/rate?window=0s", "give at least a nanosecond"),
        ("/rate?window=1ns", "take 60s, or a finer accuracy"),
        ("/rate?window=90s", "take 60s or 120s"),
        ("/rate?window=2h", "longer than the 3600s that are remembered; ask for less"),
        ("/rate?window=500y", "is too long; give at most"),
        ("/rate?window=%ff", "percent-encode the bytes"),
        ("/rate?windw=60s", "unknown parameter \"windw\"; this route takes window, format"),
        ("/rate?format=xml", "unknown format \"xml\"; give text or json"),
        ("/rate?n=1", "unknown parameter \"n\"; this route takes window, format"),
        ("/rate/k?window=2h", "ask for less"),
        ("/rate/k?window=90s", "take 60s or 120s"),
        ("/rate/k?format=", "give text or json"),
        ("/rate/", "the key is empty; give one after the slash"),
        ("/top?n=all", "n cannot be read: invalid digit found in string; give a whole number"),
        ("/top?n=-1", "give a whole number"),
        ("/top?window=1m", "unknown parameter \"window\"; this route takes n"),
    ] {
        let response = daemon.get(target);
        response.expect_refusal(400, part);
        assert!(response.fields["content-type"].starts_with("text/plain"), "{response:?}");
        assert!(response.text().ends_with('\n') && !response.fields.contains_key("connection"));
    }
    for (target, part) in [
        ("/hit/", "the key is empty; give one after the slash"),
        ("/hit/k?n=", "give a whole number"),
        ("/hit/k?n=1.5", "give a whole number"),
        ("/hit/k?n=18446744073709551616", "give a whole number"),
        ("/hit/k?window=1m", "unknown parameter \"window\"; this route takes n"),
    ] {
        daemon.post(target).expect_refusal(400, part);
    }
    assert_eq!((daemon.count("/rate"), daemon.sample("quipu_keys")), (0, 0.0));
}

#[test]
fn an_unknown_path_gets_the_list_of_routes() {
    let home = Home::new();
    let daemon = home.start(&[]);
    for target in ["/nothing", "/rates", "/hit", "/-/", "/-/alive", "/top/", "/metrics/x", "//"] {
        let response = daemon.get(target);
        response.expect_refusal(404, &format!("nothing at {target}; the routes are /, /rate,"));
    }
    daemon.post("/hit").expect_refusal(404, "/hit/{key}");
    daemon.get("*").expect_refusal(404, "the routes are /");
    let options = daemon.connect().request("OPTIONS", "*").unwrap();
    assert_eq!((options.status, options.body.len()), (200, 0));
    assert_eq!(options.fields["allow"], "GET, HEAD, PUT, POST, DELETE, OPTIONS");
    assert_eq!(daemon.count("/rate"), 0);
}

#[test]
fn a_refused_method_gets_the_allowed_ones() {
    let home = Home::new();
    let daemon = home.start(&[]);
    let read_only = ["/", "/rate", "/rate/k", "/top", "/metrics", "/-/healthy", "/-/ready"];
    let expect = |method: &str, target: &str, allow: &str| {
        let response = daemon.connect().request(method, target).unwrap();
        assert_eq!(response.status, 405, "{method} {target}");
        assert_eq!(response.fields["allow"], allow, "{method} {target}");
    };
    for target in read_only {
        for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "BREW"] {
            expect(method, target, "GET, HEAD");
        }
    }
    for method in ["GET", "PUT", "DELETE"] {
        expect(method, "/hit/k", "POST");
    }
    assert_eq!(daemon.connect().request("HEAD", "/hit/k").unwrap().status, 405);
    assert_eq!((daemon.count("/rate"), daemon.sample("quipu_keys")), (0, 0.0));
}

#[test]
fn a_body_over_the_limit_is_413() {
    let home = Home::new();
    let daemon = home.start(&["--body-bytes", "1000"]);
    let head = "POST /hit/k HTTP/1.1\r\nHost: quipu\r\n";
    let body = |bytes: usize| "b".repeat(bytes);
    let sized = |bytes| format!("{head}Content-Length: {bytes}\r\n\r\n{}", body(bytes));
    let chunked = |bytes| {
        format!("{head}Transfer-Encoding: chunked\r\n\r\n{bytes:x}\r\n{}\r\n0\r\n\r\n", body(bytes))
    };
    expect_closed(&daemon, &sized(1001), 413, "larger than 1000 bytes");
    expect_closed(&daemon, &chunked(1001), 413, "larger than 1000 bytes");
    // The announced length is sufficient for a refusal.
    let announced = format!("{head}Content-Length: 9223372036854775807\r\n\r\n");
    expect_closed(&daemon, &announced, 413, "larger than 1000 bytes");
    for (request, count) in [(sized(1000), 1), (chunked(1000), 2)] {
        assert_eq!(exchange(&daemon, &request).count(), count);
    }
}

#[test]
fn a_body_of_more_bytes_than_can_be_counted_is_413() {
    let home = Home::new();
    let daemon = home.start(&[]);
    let head = "POST /hit/k HTTP/1.1\r\nHost: quipu\r\n";
    let announced = format!("{head}Content-Length: 18446744073709551615\r\n\r\n");
    expect_closed(
        &daemon,
        &announced,
        413,
        "larger than any body can be: 1048576 bytes, or 33554432 if",
    );
}

#[test]
fn a_head_over_the_limit_is_431() {
    let home = Home::new();
    let daemon = home.start(&["--header-bytes", "2000"]);
    let field = "x".repeat(2000);
    let field = format!("GET / HTTP/1.1\r\nHost: quipu\r\nA: {field}\r\n\r\n");
    expect_closed(&daemon, &field, 431, "larger than 2000 bytes");
    let fields = "A: b\r\n".repeat(101);
    let fields = format!("GET / HTTP/1.1\r\nHost: quipu\r\n{fields}\r\n");
    expect_closed(&daemon, &fields, 431, "100 fields");
    assert_eq!(daemon.count("/rate"), 0);
}

#[test]
fn a_line_over_the_limit_is_414() {
    let home = Home::new();
    let daemon = home.start(&["--header-bytes", "2000"]);
    // With and without the rest of the request, in one read and in several.
    for length in [2000, 3000, 100_000] {
        let line = format!("GET /{} HTTP/1.1\r\n", "x".repeat(length));
        expect_closed(&daemon, &format!("{line}Host: quipu\r\n\r\n"), 414, "2000 bytes");
    }
    let mut client = daemon.connect();
    client.send(format!("GET /{}", "x".repeat(2000))).unwrap();
    client.read_response().unwrap().expect_refusal(414, "longer than 2000 bytes");
    // A target within the limit is not refused because of its length.
    assert_eq!(daemon.get(&format!("/{}", "x".repeat(1800))).status, 404);
}

#[test]
fn malformed_requests_get_400() {
    let home = Home::new();
    let daemon = home.start(&[]);
    for request in [
        "GET /\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: quipu\r\nA field\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: quipu\r\nContent-Length: a lot\r\n\r\n",
        "POST /hit/k HTTP/1.1\r\nHost: quipu\r\nTransfer-Encoding: chunked\r\n\r\nmany\r\n",
        "\u{16}\u{3}\u{1}\u{2}\0\u{1}\0\u{1}\u{fc}\u{3}\u{3}",
    ] {
        expect_closed(&daemon, request, 400, "malformed");
    }
    assert_eq!(daemon.count("/rate"), 0);
}

#[test]
fn a_coding_that_is_not_understood_is_501() {
    let home = Home::new();
    let daemon = home.start(&[]);
    let head = "POST /hit/k HTTP/1.1\r\nHost: quipu\r\nTransfer-Encoding: gzip, chunked\r\n";
    expect_closed(&daemon, &format!("{head}\r\n0\r\n\r\n"), 501, "in no other coding");
    assert_eq!(daemon.count("/rate/k"), 0);
}

#[test]
fn a_slow_request_is_408() {
    let timeout = "not complete within 200ms";
    for part in [
        "GET / HT",
        "GET / HTTP/1.1\r\nHost: qui",
        "POST /hit/k HTTP/1.1\r\nHost: quipu\r\nContent-Length: 5\r\n\r\nha",
    ] {
        // The clock is read for the first connection, and then once per sweep.
        let home = Home::new();
        let daemon = home.start(&["--read-timeout", "200ms"]);
        let begun = Instant::now();
        expect_closed(&daemon, part, 408, timeout);
        assert!(begun.elapsed() >= Duration::from_millis(200), "{:?}", begun.elapsed());
        let refused = "quipu_http_refused_total{code=\"408\",reason=\"timeout\"}";
        assert_eq!(daemon.sample(refused), 1.0);
        assert_eq!((daemon.count("/rate"), daemon.count("/rate/k")), (0, 0));
    }
}

#[test]
fn a_kept_connection_without_requests_is_closed_silently() {
    let home = Home::new();
    // Long enough for a client that a busy machine delays.
    let daemon = home.start(&["--idle-timeout", "2s"]);
    let mut client = daemon.connect();
    assert_eq!(client.request("GET", "/").unwrap().count(), 1);
    client.expect_end();
}

#[test]
fn a_connection_too_many_is_503() {
    let home = Home::new();
    let daemon = home.start(&["--connections", "1"]);
    assert_eq!(daemon.wait_for("listening")["connections"], 1);
    // A connection with an unfinished request does not give way.
    let mut first = daemon.connect();
    first.send("GET / HTTP/1.1\r\n").unwrap();
    wait_until("the connection is open", || daemon.get("/metrics").status == 503);
    for path in ["/-/healthy", "/-/ready"] {
        let response = daemon.get(path);
        assert_eq!((response.status, &response.text()[..]), (200, "ok\n"));
        assert_eq!(response.fields["connection"], "close");
    }
    let mut second = daemon.connect();
    second.send("GET / HTTP/1.1\r\nHost: quipu\r\n\r\n").unwrap();
    let response = second.read_response().unwrap();
    response.expect_refusal(503, "too many connections, try again");
    assert_eq!(response.fields["retry-after"], "1");
    assert_eq!(response.fields["connection"], "close");
    second.expect_end();
    // The first connection is still served, and makes room when it closes.
    first.send("Host: quipu\r\n\r\n").unwrap();
    assert_eq!(first.read_response().unwrap().count(), 1);
    assert_eq!(first.request("GET", "/").unwrap().count(), 2);
    drop(first);
    wait_until("there is room again", || daemon.get("/rate").status == 200);
    let busy = "quipu_http_refused_total{code=\"503\",reason=\"busy\"}";
    wait_until("the count of refusals", || {
        let text = daemon.get("/metrics").text();
        text.lines().any(|line| line.starts_with(busy) && !line.ends_with(" 0"))
    });
}

/// Sends bytes on a new connection and reads the response.
fn exchange(daemon: &Daemon, request: &str) -> Response {
    let mut client = daemon.connect();
    client.send(request).unwrap();
    client.read_response().unwrap()
}

/// Expects the request to be refused with this message, and its connection to be closed cleanly.
#[track_caller]
fn expect_closed(daemon: &Daemon, request: &str, status: u16, part: &str) {
    let mut client = daemon.connect();
    client.send(request).unwrap();
    let response = client.read_response().unwrap();
    response.expect_refusal(status, part);
    assert_eq!(response.fields["connection"], "close", "{response:?}");
    client.expect_end();
}

#[test]
fn a_source_over_its_rate_is_refused_for_a_while() {
    let home = Home::new();
    let statsd = format!("{}:18125", home.host());
    let listener = format!("udp://{statsd}");
    let daemon = home.start(&["--sample-rate-per-source", "10", "--statsd", &listener]);
    // Bytes that arrive together are accepted first and paid for later, at most for ten seconds.
    let text: String = (0..500).map(|n| format!("x{{n=\"{n}\"}} 1\n")).collect();
    let import = "/api/v1/import/prometheus";
    assert_eq!(daemon.post_body(import, &[], text.as_bytes()).status, 204);
    let json = [("Content-Type", "application/json")];
    for (target, body) in [
        (import, "x 1\n"),
        ("/api/v1/write", ""),
        ("/write", "x value=1\n"),
        ("/ingest?format=statsd", "x:1|c\n"),
        ("/metrics/job/a", "x 1\n"),
        ("/v1/metrics", "{}"),
    ] {
        let fields = if target == "/v1/metrics" { &json[..] } else { &[] };
        let response = daemon.post_body(target, fields, body.as_bytes());
        assert!(
            response.fields["retry-after"].parse::<u64>().unwrap() >= 1,
            "{target} {response:?}"
        );
        response.expect_refusal(429, "--sample-rate-per-source");
    }
    // The datagram has the same source address.
    let sender = std::net::UdpSocket::bind(("127.0.0.1", 0)).unwrap();
    sender.send_to(b"y:1|c\ny:1|c\ny:1|c", &statsd).unwrap();
    let refused = |input: &str| {
        let labels = format!("input=\"{input}\",reason=\"source_sample_rate\"");
        daemon.sample(&format!("quipu_input_refused_total{{{labels}}}"))
    };
    for input in ["import", "remote_write", "influx", "ingest", "push", "otlp"] {
        assert_eq!(refused(input), 1.0, "{input}");
    }
    let name = "quipu_input_refused_total{input=\"statsd\"";
    wait_until("the lines", || daemon.get("/metrics").text().contains(name));
    assert_eq!(refused("statsd"), 3.0);
    assert_eq!(daemon.sample("x{n=\"499\"}"), 1.0);
}

#[test]
fn texts_of_influxdb_are_paid_for() {
    let home = Home::new();
    let daemon = home.start(&["--sample-rate-per-source", "10"]);
    let fields: Vec<_> = (0..500).map(|n| format!("f{n}=\"x\"")).collect();
    let line = format!("x {}\n", fields.join(","));
    assert_eq!(daemon.post_body("/write", &[], line.as_bytes()).status, 204);
    let response = daemon.post_body("/write", &[], b"x value=1\n");
    response.expect_refusal(429, "--sample-rate-per-source");
    daemon.stop();
}

/// All pushes are in progress before the first one is read.
#[test]
fn pushes_at_the_same_time_share_the_rate_of_their_source() {
    let home = Home::new();
    let daemon = home.start(&["--sample-rate-per-source", "10"]);
    // Less than the size that needs a slot, but more than one step reads.
    let body: String = (1000..5000).map(|n| format!("x{{n=\"{n}\"}} 1\n")).collect();
    let (most, last) = body.split_at(body.len() - 1);
    let head = format!("HTTP/1.1\r\nHost: quipu\r\nContent-Length: {}\r\n\r\n", body.len());
    let mut clients: Vec<_> = (0..8).map(|_| daemon.connect()).collect();
    for (job, client) in clients.iter_mut().enumerate() {
        client.send(format!("PUT /metrics/job/{job} {head}{most}")).unwrap();
    }
    clients.iter_mut().for_each(|client| client.send(last).unwrap());
    let responses: Vec<_> =
        clients.iter_mut().map(|client| client.read_response().unwrap()).collect();
    let (taken, refused): (Vec<_>, Vec<_>) = responses.iter().partition(|one| one.status == 200);
    assert_eq!(taken.len(), 1, "{responses:?}");
    refused.iter().for_each(|one| one.expect_refusal(429, "--sample-rate-per-source"));
}
