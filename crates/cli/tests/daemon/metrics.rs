//! Tests of the daemon's own metrics and of its health checks.

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::common::{Daemon, Home, poll, program, wait_until};
use crate::textparse::textparse;

#[test]
fn a_daemon_that_serves_is_healthy_and_ready() {
    let home = Home::new();
    let daemon = home.start(&[]);
    for target in ["/-/healthy", "/-/ready"] {
        let response = daemon.get(target);
        assert_eq!((response.status, response.body.as_slice()), (200, b"ok\n".as_slice()));
    }
    assert_eq!(daemon.count("/rate"), 0);
}

#[test]
fn promtool_finds_no_fault() {
    let promtool = program("promtool", "prometheus");
    let home = Home::new();
    let daemon = home.start(&[]);
    traffic(&daemon);
    let response = daemon.get("/metrics");
    assert_eq!(response.fields["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    let mut command = Command::new(promtool);
    command.args(["check", "metrics"]).stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    std::io::Write::write_all(&mut stdin, &response.body).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success() && said.is_empty(), "{}: {said}", output.status);
}

/// This includes a Prometheus that is several years old.
#[test]
fn prometheus_takes_the_configurations_of_the_pages() {
    let promtool = program("promtool", "prometheus");
    let home = Home::new();
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/daemon");
    let pages = ["prometheus.md", "in/remote-write.md"]
        .map(|page| std::fs::read_to_string(format!("{docs}/{page}")).unwrap());
    let blocks = pages.iter().flat_map(|page| page.split("```yaml\n").skip(1));
    let blocks = blocks.filter_map(|rest| rest.split("```").next());
    let is_config =
        |block: &&str| block.starts_with("scrape_configs:") || block.starts_with("remote_write:");
    let configs: Vec<&str> = blocks.filter(is_config).collect();
    assert!(configs.len() >= 2, "{configs:?}");
    for config in configs {
        std::fs::write(home.path("prometheus.yml"), config).unwrap();
        let mut command = Command::new(&promtool);
        let output = command.args(["check", "config"]).arg(home.path("prometheus.yml")).output();
        let output = output.unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{config}{errors}");
    }
}

#[test]
fn the_parsers_of_prometheus_read_every_format() {
    let home = Home::new();
    let daemon = home.start(&[]);
    traffic(&daemon);
    for accept in [
        "text/plain;version=0.0.4",
        "text/plain;version=1.0.0;escaping=allow-utf-8",
        "application/openmetrics-text;version=1.0.0",
        "application/openmetrics-text;version=2.0.0;escaping=allow-utf-8",
        "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited",
    ] {
        let response = daemon.scrape(accept);
        let samples = textparse(&response.fields["content-type"], &response.body);
        let events = samples.iter().find(|sample| sample["name"] == "quipu_events_total").unwrap();
        assert_eq!(
            (&events["value"], &events["type"]),
            (&"3".into(), &"counter".into()),
            "{accept}"
        );
        let is_bucket = |name: &Value| *name == "quipu_http_request_duration_seconds_bucket";
        assert!(samples.iter().any(|sample| is_bucket(&sample["name"])), "{accept}");
    }
}

#[test]
fn the_metrics_count_the_traffic() {
    let home = Home::new();
    let daemon = home.start(&[]);
    traffic(&daemon);
    // A scrape is counted after its response was written, so only the next one shows it.
    let mut scrapes = 0.0;
    let expected = |scrapes: f64| {
        [
            ("quipu_http_responses_total{code=\"200\"}", 5.0 + scrapes),
            ("quipu_http_responses_total{code=\"400\"}", 2.0),
            ("quipu_http_responses_total{code=\"404\"}", 1.0),
            ("quipu_http_responses_total{code=\"405\"}", 1.0),
            ("quipu_http_responses_total{code=\"other\"}", 0.0),
            ("quipu_http_refused_total{code=\"400\",reason=\"malformed\"}", 2.0),
            ("quipu_http_refused_total{code=\"408\",reason=\"timeout\"}", 0.0),
            ("quipu_http_refused_total{code=\"413\",reason=\"body_too_large\"}", 1.0),
            ("quipu_http_refused_total{code=\"414\",reason=\"target_too_long\"}", 1.0),
            ("quipu_http_refused_total{code=\"431\",reason=\"head_too_large\"}", 1.0),
            ("quipu_http_refused_total{code=\"500\",reason=\"panicked\"}", 0.0),
            ("quipu_http_refused_total{code=\"503\",reason=\"busy\"}", 0.0),
            ("quipu_http_request_duration_seconds_count", 9.0 + scrapes),
            ("quipu_http_request_duration_seconds_bucket{le=\"+Inf\"}", 9.0 + scrapes),
            ("quipu_http_connections_accepted_total", 15.0 + scrapes),
            ("quipu_http_connections_open", 1.0),
            ("quipu_http_accept_pauses_total", 0.0),
            ("quipu_events_total", 3.0),
            ("quipu_window_events{window=\"1h\"}", 3.0),
            ("quipu_keys", 1.0),
            ("quipu_keys_capacity", 16.0),
            ("quipu_keys_evicted_total", 0.0),
            ("quipu_checkpoint_errors_total", 0.0),
        ]
    };
    let mut text = String::new();
    let matched = poll(|| {
        text = daemon.get("/metrics").text();
        let fits = |(name, value): &(&str, f64)| sample(&text, name) == Some(*value);
        // The connections of the traffic can take a moment to close.
        let matched = expected(scrapes).iter().all(fits);
        scrapes += 1.0;
        matched.then_some(())
    });
    let wrong = |(name, value): (&str, f64)| match sample(&text, name) {
        found if found == Some(value) => None,
        found => Some(format!("{name} is {found:?}, not {value}")),
    };
    let wrong: Vec<String> = expected(scrapes - 1.0).into_iter().filter_map(wrong).collect();
    assert!(matched.is_some(), "{wrong:#?}");

    let state = std::fs::metadata(home.state()).unwrap().len() as f64;
    assert_eq!(sample(&text, "quipu_state_bytes"), Some(state));
    assert_eq!(sample(&text, "quipu_build_info{version=\"0.1.0\"}"), Some(1.0));
    // Durations are recorded, in the same unit as the bounds.
    let sum = sample(&text, "quipu_http_request_duration_seconds_sum").unwrap();
    assert!(sum > 0.0 && sum < 20.0, "{sum}");
}

#[test]
fn checkpoints_are_counted() {
    let home = Home::new();
    let daemon = home.start(&["--checkpoint", "20ms"]);
    let started = daemon.sample("quipu_process_start_time_seconds");
    let unix = || std::time::UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
    assert!((unix() - started).abs() < 60.0, "{started}");
    let count = || daemon.sample("quipu_checkpoint_duration_seconds_count");
    wait_until("three checkpoints", || {
        daemon.get("/");
        count() >= 3.0
    });
    // Without events, there are no syncs, so at some point two reads in a row are equal.
    wait_until("the last checkpoint", || {
        let before = count();
        std::thread::sleep(std::time::Duration::from_millis(100));
        count() == before
    });
    let last = daemon.sample("quipu_checkpoint_last_success_timestamp_seconds");
    assert!(last >= started && last <= unix(), "{last}");
    assert_eq!(daemon.sample("quipu_checkpoint_errors_total"), 0.0);
}

#[test]
fn totals_of_the_state_outlive_the_daemon_and_its_own_do_not() {
    let home = Home::new();
    let daemon = home.start(&[]);
    traffic(&daemon);
    daemon.stop();
    let daemon = home.start(&[]);
    assert_eq!(daemon.sample("quipu_events_total"), 3.0);
    assert_eq!(daemon.sample("quipu_keys"), 1.0);
    assert_eq!(daemon.sample("quipu_http_responses_total{code=\"404\"}"), 0.0);
}

#[test]
fn connections_give_their_memory_back() {
    const CONNECTIONS: usize = 300;
    let home = Home::new();
    let daemon = home.start(&[]);
    let resident = || daemon.sample("quipu_process_resident_memory_bytes");
    resident();
    let before = resident();
    let fields: String = (0..90).map(|n| format!("F{n}: {}\r\n", "x".repeat(150))).collect();
    let request = format!("GET /rate HTTP/1.1\r\nHost: quipu\r\n{fields}\r\n");
    let mut clients: Vec<_> = (0..CONNECTIONS)
        .map(|_| {
            let mut client = daemon.connect();
            client.send(&request).unwrap();
            assert_eq!(client.read_response().unwrap().count(), 0);
            client
        })
        .collect();
    // A buffer takes 30 KB while it is used, and a quarter of this while it is idle.
    wait_until("buffers go back", || resident() - before < 8192.0 * CONNECTIONS as f64);
    for client in &mut clients {
        assert_eq!(client.request("GET", "/rate").unwrap().count(), 0);
    }
    drop(clients);
    wait_until("all goes back", || resident() - before < 2048.0 * CONNECTIONS as f64);
}

#[test]
fn the_memory_of_a_large_response_goes_back() {
    const SERIES: usize = 40_000;
    let home = Home::new();
    let daemon = home.start(&[]);
    let name = "a".repeat(300);
    let lines = |part: std::ops::Range<usize>| -> String {
        part.map(|series| format!("{name}{{series=\"{series}\"}} 1\n")).collect()
    };
    for start in (0..SERIES).step_by(2_000) {
        let text = lines(start..start + 2_000);
        let response = daemon.post_body("/api/v1/import/prometheus", &[], text.as_bytes());
        assert_eq!(response.status, 204, "{response:?}");
    }
    let before = heap(daemon.id());
    for _ in 0..3 {
        assert!(daemon.get("/metrics").body.len() > 300 * SERIES);
    }
    wait_until("it goes back", || heap(daemon.id()) < before + (6 << 20));
}

/// Returns the resident bytes of a process that do not belong to a file.
fn heap(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// Sends requests, each on a new connection: 9 to routes, and 5 that the transport refuses.
fn traffic(daemon: &Daemon) {
    for (method, target, status) in [
        ("GET", "/", 200),
        ("GET", "/", 200),
        ("HEAD", "/", 200),
        ("POST", "/hit/k", 200),
        ("GET", "/top", 200),
        ("GET", "/rate?window=soon", 400),
        ("POST", "/hit/k?n=many", 400),
        ("GET", "/nothing", 404),
        ("POST", "/", 405),
    ] {
        let response = daemon.connect().request(method, target).unwrap();
        assert_eq!(response.status, status, "{method} {target}");
    }
    let long = "x".repeat(100_000);
    for (request, status) in [
        ("NONSENSE\r\n\r\n".to_owned(), 400),
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), 400),
        ("POST /hit/k HTTP/1.1\r\nHost: x\r\nContent-Length: 2000000\r\n\r\n".to_owned(), 413),
        (format!("GET /{long} HTTP/1.1\r\nHost: x\r\n\r\n"), 414),
        (format!("GET / HTTP/1.1\r\nHost: x\r\nA: {long}\r\n\r\n"), 431),
    ] {
        let mut client = daemon.connect();
        client.send(&request).unwrap();
        assert_eq!(client.read_response().unwrap().status, status, "{:.60}", request);
    }
}

fn sample(text: &str, name: &str) -> Option<f64> {
    let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    found.parse().ok()
}
