//! Requests that a browser sends on behalf of a hostile web page.

use crate::common::{Daemon, Home, Response};

/// Sends a request with these header fields and a body on a new connection.
fn send(daemon: &Daemon, line: &str, fields: &[&str], body: &str) -> Response {
    let fields: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
    let length = body.len();
    let mut client = daemon.connect();
    let head = format!("{line} HTTP/1.1\r\n{fields}Content-Length: {length}\r\n\r\n");
    client.send(head + body).unwrap();
    client.read_response().unwrap()
}

const OWN: &str = "Host: localhost:8081";
const PAGE: &str = "Origin: https://evil.example";
const REBOUND: &str = "Host: evil.example:8081";

#[test]
fn a_web_page_of_another_origin_changes_nothing() {
    let home = Home::new();
    let daemon = home.start(&["--push-admin"]);
    assert_eq!(daemon.post_body("/metrics/job/kept", &[], b"kept 1\n").status, 200);
    // A form or a script can send these requests without a preflight.
    let text = "Content-Type: text/plain";
    for (line, body) in [
        ("POST /metrics/job/a", "stranger 1\n"),
        ("PUT /metrics/job/kept", "stranger 1\n"),
        ("DELETE /metrics/job/kept", ""),
        ("PUT /api/v1/admin/wipe", ""),
        ("POST /api/v1/import/prometheus", "stranger 1\n"),
        ("POST /write", "stranger value=1\n"),
        ("POST /ingest?format=statsd", "stranger:1|c\n"),
        ("POST /hit/stranger", ""),
    ] {
        let response = send(&daemon, line, &[OWN, PAGE, text], body);
        response.expect_refusal(403, "start the daemon with --allow-origin https://evil.example\n");
        assert_eq!(response.fields["connection"], "close");
        let response = send(&daemon, line, &[OWN, "Sec-Fetch-Site: cross-site", text], body);
        response.expect_refusal(403, "a web page of another origin");
    }
    let shown = daemon.get("/metrics").text();
    assert!(shown.contains("kept{") && !shown.contains("stranger"), "{shown}");
    assert_eq!(daemon.count("/rate/stranger"), 0);
    assert_eq!(daemon.sample("quipu_http_refused_total{code=\"403\",reason=\"origin\"}"), 16.0);
    let logged = daemon.wait_for(
        "refused a request that a web page sent to change something: \
                                  if that is meant, start the daemon with --allow-origin and the \
                                  origin",
    );
    assert_eq!(logged["origin"], "https://evil.example");
    // A page of the daemon's own origin, if a proxy adds one, and other programs.
    let same = ["Origin: http://localhost:8081", "Sec-Fetch-Site: same-origin"];
    for field in same {
        assert_eq!(send(&daemon, "POST /hit/own", &[OWN, field], "").status, 200, "{field}");
    }
    assert_eq!(send(&daemon, "POST /hit/own", &[OWN], "").count(), 3);
}

#[test]
fn requests_for_unknown_hosts_are_refused() {
    let home = Home::new();
    let daemon = home.start(&[]);
    assert_eq!(daemon.post_body("/metrics/job/kept", &[], b"kept 1\n").status, 200);
    for line in [
        "GET /metrics",
        "GET /api/v1/metrics",
        "GET /api/v1/status",
        "GET /-/healthy",
        "OPTIONS *",
        "DELETE /metrics/job/kept",
        "POST /hit/k",
    ] {
        // DNS rebinding: the browser takes the daemon for the page's host.
        let same = ["Origin: http://evil.example:8081", "Sec-Fetch-Site: same-origin"];
        for more in [&same[..], &[]] {
            let response = send(&daemon, line, &[&[REBOUND], more].concat(), "");
            response.expect_refusal(421, "or start it with --allow-host evil.example\n");
        }
    }
    assert!(daemon.get("/metrics").text().contains("kept{"));
    assert_eq!(daemon.count("/rate/k"), 0);
    let logged = daemon.wait_for(
        "refused a request for a host that is not known: if clients use \
                                  this name, start the daemon with --allow-host and the name",
    );
    assert_eq!(logged["host"], "evil.example");
}

#[test]
fn hosts_and_origins_in_the_settings_are_served() {
    let home = Home::new();
    let daemon = home.start(&[
        "--allow-host",
        "metrics.example.com,*.example.org",
        "--allow-origin",
        "https://console.example.com",
    ]);
    for host in ["metrics.example.com", "a.example.org:443", "localhost", "quipu:8081"] {
        let response = send(&daemon, "GET /metrics", &[&format!("Host: {host}")], "");
        assert_eq!(response.status, 200, "{host}");
    }
    assert_eq!(send(&daemon, "GET /metrics", &["Host: example.net"], "").status, 421);
    let console = "Origin: https://console.example.com";
    assert_eq!(send(&daemon, "POST /hit/k", &[OWN, console], "").status, 200);
    assert_eq!(send(&daemon, "POST /hit/k", &[OWN, PAGE], "").status, 403);
}

#[test]
fn only_pages_in_the_settings_read_pushed_values() {
    let home = Home::new();
    let console = "https://console.example.com";
    for (allowed, origin, shown) in [
        (None, console, None),
        (Some(console), console, Some(console)),
        (Some(console), "https://evil.example", None),
        (Some("*"), "https://evil.example", Some("https://evil.example")),
    ] {
        let arguments: Vec<&str> =
            allowed.map(|origin| ["--allow-origin", origin]).into_iter().flatten().collect();
        let daemon = home.start(&arguments);
        for line in ["GET /api/v1/metrics", "GET /api/v1/status", "OPTIONS /api/v1/metrics"] {
            let response = send(&daemon, line, &[OWN, &format!("Origin: {origin}")], "");
            assert_eq!(response.status, 200, "{line}");
            let field = response.fields.get("access-control-allow-origin").map(String::as_str);
            assert_eq!(field, shown, "{line} {allowed:?} {origin}");
            assert_eq!(response.fields["vary"], "origin");
        }
        daemon.stop();
    }
}
