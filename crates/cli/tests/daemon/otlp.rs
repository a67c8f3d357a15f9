//! Tests of OTLP over HTTP. Data from OpenTelemetry's SDK and other senders must count exactly
//! once, no matter how the daemon ends.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;

use flate2::Compression;
use flate2::write::GzEncoder;
use quipu_wire::remote;
use serde_json::json;

use crate::common::{Daemon, Home, Response};
use crate::python;

const PROTOBUF: &str = "application/x-protobuf";
const JSON: &str = "application/json";

/// Sends a body with these header fields.
fn post(daemon: &Daemon, fields: &[(&str, &str)], body: &[u8]) -> Response {
    let mut head =
        format!("POST /v1/metrics HTTP/1.1\r\nHost: quipu\r\nContent-Length: {}\r\n", body.len());
    for (name, value) in fields {
        head += &format!("{name}: {value}\r\n");
    }
    let mut client = daemon.connect();
    client.send([head.as_bytes(), b"\r\n", body].concat()).unwrap();
    client.read_response().unwrap()
}

/// Returns a request with metrics of one resource and one scope.
fn request(metrics: serde_json::Value) -> String {
    let text = |key: &str, value: &str| json!({"key": key, "value": {"stringValue": value}});
    json!({"resourceMetrics": [{
        "resource": {"attributes": [
            text("service.namespace", "shop"), text("service.name", "cart"),
            text("service.instance.id", "i-1"), text("host.name", "h"),
        ]},
        "scopeMetrics": [{
            "scope": {"name": "lib", "version": "2", "attributes": [text("a.b", "c")]},
            "metrics": metrics,
        }],
    }]})
    .to_string()
}

/// Returns a counter with this total.
fn counted(total: u64, start: u64) -> String {
    request(json!([{"name": "hits", "sum": {"aggregationTemporality": 2, "isMonotonic": true,
        "dataPoints": [{"asInt": total, "startTimeUnixNano": start, "timeUnixNano": start + total}]}}]))
}

/// The labels that all series of `request` share.
const LABELS: &str = "instance=\"i-1\",job=\"shop/cart\",otel_scope_a_b=\"c\",\
                      otel_scope_name=\"lib\",otel_scope_version=\"2\"";

fn all_types() -> String {
    let buckets = json!({"offset": -1, "bucketCounts": ["1", 2]});
    request(json!([
        {"name": "queue.length", "unit": "{item}", "description": "Items.",
         "gauge": {"dataPoints": [{"asInt": "7", "attributes": [
            {"key": "queue.name", "value": {"stringValue": "a"}},
            {"key": "queue_name", "value": {"boolValue": true}}]}]}},
        {"name": "http.requests", "sum": {"aggregationTemporality": 1, "isMonotonic": true,
            "dataPoints": [{"asInt": 3}, {"asDouble": 0.5}]}},
        {"name": "open", "sum": {"aggregationTemporality": 1,
            "dataPoints": [{"asInt": 5}, {"asInt": -2}]}},
        {"name": "took", "unit": "s", "histogram": {"aggregationTemporality": 1, "dataPoints": [
            {"count": 3, "sum": 1.5, "bucketCounts": [1, 2], "explicitBounds": [0.5]}]}},
        {"name": "size", "unit": "By", "exponentialHistogram": {"aggregationTemporality": 1,
            "dataPoints": [{"count": 4, "sum": 6, "scale": 0, "zeroCount": 1, "positive": buckets}]}},
        {"name": "old", "summary": {"dataPoints": [
            {"count": 4, "sum": 2, "quantileValues": [{"quantile": 0.5, "value": 7}]}]}},
    ]))
}

/// Expects each of these lines in the exposition.
#[track_caller]
fn expect_lines(daemon: &Daemon, lines: &[String]) {
    let text = daemon.get("/metrics").text();
    for line in lines {
        let sorted = text.lines().any(|found| same(found, line));
        assert!(sorted, "no {line} in {text}");
    }
}

/// Returns whether two lines share their name, their value, and their labels in any order.
fn same(one: &str, other: &str) -> bool {
    let parts = |line: &str| -> Option<(String, Vec<String>, String)> {
        let (series, value) = line.rsplit_once(' ')?;
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let mut labels: Vec<_> =
            labels.trim_end_matches('}').split(',').map(str::to_owned).collect();
        labels.sort();
        Some((name.into(), labels, value.into()))
    };
    parts(one) == parts(other)
}

#[test]
fn every_type_of_data_is_shown() {
    let home = Home::new();
    let daemon = home.start(&[]);
    let body = all_types();
    let response = post(&daemon, &[("Content-Type", JSON)], body.as_bytes());
    assert_eq!((response.status, response.text().as_str()), (200, "{}"));
    let with =
        |name: &str, labels: &str, value: &str| format!("{name}{{{LABELS}{labels}}} {value}");
    expect_lines(
        &daemon,
        &[
            "target_info{host_name=\"h\",instance=\"i-1\",job=\"shop/cart\"} 1".into(),
            with("queue_length", ",queue_name=\"a;true\"", "7"),
            with("http_requests_total", "", "3.5"),
            with("open", "", "3"),
            with("took_seconds_bucket", ",le=\"0.5\"", "1"),
            with("took_seconds_bucket", ",le=\"+Inf\"", "3"),
            with("took_seconds_sum", "", "1.5"),
            with("size_bytes_count", "", "4"),
            with("size_bytes_sum", "", "6"),
            with("old", ",quantile=\"0.5\"", "7"),
            with("old_count", "", "4"),
        ],
    );
    let text = daemon.get("/metrics").text();
    assert!(text.contains("# HELP queue_length Items.\n# TYPE queue_length gauge\n"), "{text}");
    assert_eq!(daemon.sample("quipu_input_samples_total{input=\"otlp\"}"), 8.0);

    // Compressed protobuf. Increments add up.
    let bytes = remote::otlp::metrics_request_from_json(body.as_bytes()).unwrap();
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(&bytes).unwrap();
    let gzip = gzip.finish().unwrap();
    let response =
        post(&daemon, &[("Content-Type", PROTOBUF), ("Content-Encoding", "gzip")], &gzip);
    assert_eq!((response.status, response.body.len()), (200, 0));
    assert_eq!(response.fields["content-type"], PROTOBUF);
    let zstd = zstd::encode_all(&bytes[..], 1).unwrap();
    let response =
        post(&daemon, &[("Content-Type", PROTOBUF), ("Content-Encoding", "zstd")], &zstd);
    assert_eq!(response.status, 200);
    expect_lines(
        &daemon,
        &[
            with("http_requests_total", "", "10.5"),
            with("open", "", "9"),
            with("took_seconds_count", "", "9"),
            with("size_bytes_count", "", "12"),
            with("old_count", "", "4"),
        ],
    );
}

/// Cumulative data counts exactly once, although both the sender and the daemon restart.
#[test]
fn totals_are_counted_once_over_restarts_of_both() {
    let home = Home::new();
    let daemon = home.start(&[]);
    let fields = [("Content-Type", JSON)];
    let send = |daemon: &Daemon, total, start| {
        assert_eq!(post(daemon, &fields, counted(total, start).as_bytes()).status, 200);
    };
    let line = |total| [format!("hits_total{{{LABELS}}} {total}")];
    send(&daemon, 5, 1000);
    send(&daemon, 5, 1000);
    expect_lines(&daemon, &line(5));
    daemon.kill();
    let daemon = home.start(&[]);
    expect_lines(&daemon, &line(5));
    send(&daemon, 5, 1000);
    send(&daemon, 7, 1000);
    expect_lines(&daemon, &line(7));
    // The sender restarts, and counts more than before the restart.
    send(&daemon, 8, 2000);
    expect_lines(&daemon, &line(15));
}

/// If a client does not get the response, it repeats its request, even after the daemon was killed.
#[test]
fn a_delta_that_is_sent_again_counts_once() {
    let delta = |n: u64, time: u64| {
        let of = |value: serde_json::Value| {
            let mut value = value;
            value["timeUnixNano"] = json!(time);
            json!([value])
        };
        let sum = |is_monotonic: bool| {
            json!({"aggregationTemporality": 1, "isMonotonic": is_monotonic,
                   "dataPoints": of(json!({"asInt": n}))})
        };
        let buckets = json!({"offset": 0, "bucketCounts": [n]});
        request(json!([
            {"name": "hits", "sum": sum(true)},
            {"name": "open", "sum": sum(false)},
            {"name": "took", "histogram": {"aggregationTemporality": 1, "dataPoints": of(json!(
                {"count": n, "sum": n, "bucketCounts": [n, 0], "explicitBounds": [1]}))}},
            {"name": "size", "exponentialHistogram": {"aggregationTemporality": 1, "dataPoints": of(
                json!({"count": n, "sum": n, "scale": 0, "positive": buckets}))}},
        ]))
    };
    let rules = "metric_relabel_configs:\n- {action: labeldrop, regex: instance}\n\
                 aggregations:\n- {match: hits_total, without: [instance], outputs: [sum]}\n";
    for flags in [&[][..], &["--rules", "rules.yml"]] {
        let home = Home::new();
        std::fs::write(home.path("rules.yml"), rules).unwrap();
        let mut all = 0;
        for (n, time) in [(2, 1000), (3, 2000), (4, 3000)] {
            let daemon = home.start(flags);
            for _ in 0..2 {
                for (n, time) in [(n, time), (7, time - 500), (7, 1000)] {
                    let body = delta(n, time);
                    let response = post(&daemon, &[("Content-Type", JSON)], body.as_bytes());
                    assert_eq!((response.status, response.text().as_str()), (200, "{}"));
                }
            }
            all += n;
            let labels = if flags.is_empty() { LABELS.into() } else { without_instance() };
            let line = |name: &str| format!("{name}{{{labels}}} {all}");
            let names = ["hits_total", "open", "took_count", "size_count"];
            expect_lines(&daemon, &names.map(line));
            let again =
                daemon.sample("quipu_input_refused_total{input=\"otlp\",reason=\"duplicate\"}");
            assert_eq!(again, 4.0 * 5.0, "{time}");
            daemon.kill();
        }
    }
}

/// Returns the labels of the series of `request` after a rule.
fn without_instance() -> String {
    LABELS.split(',').filter(|label| !label.starts_with("instance")).collect::<Vec<_>>().join(",")
}

/// Two processes use the same identity, because `service.instance.id` is missing.
#[test]
fn totals_of_processes_that_are_alive_add_up_and_are_noticed() {
    let home = Home::new();
    let counted = |total: u64, start: u64, time: u64| {
        let times = json!({"startTimeUnixNano": start, "timeUnixNano": time});
        let with = |mut point: serde_json::Value| {
            point.as_object_mut().unwrap().extend(times.as_object().unwrap().clone());
            json!([point])
        };
        request(json!([
            {"name": "hits", "sum": {"aggregationTemporality": 2, "isMonotonic": true,
                "dataPoints": with(json!({"asInt": total}))}},
            {"name": "took", "histogram": {"aggregationTemporality": 2, "dataPoints": with(json!(
                {"count": total, "sum": total, "bucketCounts": [total, 0],
                 "explicitBounds": [1]}))}},
        ]))
    };
    let warning = "{\"partialSuccess\":{\"errorMessage\":\"another process sends the same series: \
                   set service.instance.id for each process\",\"rejectedDataPoints\":\"0\"}}";
    for (total, start, time, sum, text) in [
        (16, 1000, 1500, 16, "{}"),
        (60, 2000, 2500, 76, "{}"),
        (16, 1000, 1500, 76, "{}"),
        (100, 1000, 2600, 160, warning),
        (100, 1000, 2600, 160, warning),
        (100, 2000, 2700, 200, "{}"),
    ] {
        let daemon = home.start(&[]);
        let body = counted(total, start, time);
        let response = post(&daemon, &[("Content-Type", JSON)], body.as_bytes());
        assert_eq!((response.status, response.text().as_str()), (200, text));
        let line = |name: &str| format!("{name}{{{LABELS}}} {sum}");
        expect_lines(&daemon, &["hits_total", "took_count"].map(line));
        let overlaps = if text == "{}" { 0.0 } else { 2.0 };
        assert_eq!(daemon.sample("quipu_otlp_overlaps_total"), overlaps);
        if overlaps > 0.0 {
            let logged = daemon.wait_for("processes send the same series by OTLP");
            assert!(logged.to_string().contains("shop/cart"), "{logged}");
        }
        daemon.kill();
    }
}

/// One SDK sends increments and another one sends totals, with the same name and labels.
#[test]
fn delta_and_cumulative_data_of_one_name_add_up() {
    let delta = request(json!([{"name": "hits", "sum": {"aggregationTemporality": 1,
        "isMonotonic": true, "dataPoints": [{"asInt": 2}]}}]));
    for is_delta_first in [true, false] {
        let home = Home::new();
        for (total, sum) in [(5, 7), (6, 10), (6, 12)] {
            let daemon = home.start(&[]);
            let cumulative = counted(total, 1000);
            let mut bodies = [&delta, &cumulative, &cumulative];
            if !is_delta_first {
                bodies.reverse();
            }
            for body in bodies {
                let response = post(&daemon, &[("Content-Type", JSON)], body.as_bytes());
                assert_eq!(response.status, 200, "{response:?}");
            }
            expect_lines(&daemon, &[format!("hits_total{{{LABELS}}} {sum}")]);
            assert!(!daemon.get("/metrics").text().contains("not_shown{"));
            daemon.kill();
        }
    }
}

/// Exemplars keep the ids of their trace and span.
#[test]
fn exemplars_have_the_ids_of_their_traces() {
    let home = Home::new();
    let daemon = home.start(&[]);
    let exemplar = |value: f64, trace: &str| {
        json!({"asDouble": value, "timeUnixNano": "1700000000000000000", "spanId": "eee19b7ec3c1b174",
            "traceId": trace,
            "filteredAttributes": [{"key": "user.id", "value": {"stringValue": "ada"}}]})
    };
    let traces = ["5b8efff798038103d269b633813fc60c", "5b8efff798038103d269b633813fc60d"];
    let body = request(json!([{"name": "took", "histogram": {"aggregationTemporality": 2,
        "dataPoints": [{"count": 3, "sum": 1.5, "bucketCounts": [1, 2], "explicitBounds": [0.5],
            "exemplars": [exemplar(0.25, traces[0]), exemplar(0.75, traces[1])]}]}}]));
    assert_eq!(post(&daemon, &[("Content-Type", JSON)], body.as_bytes()).status, 200);
    let text = daemon.scrape("application/openmetrics-text;version=1.0.0").text();
    for (bound, trace) in [("le=\"0.5\"", traces[0]), ("le=\"+Inf\"", traces[1])] {
        let line = text.lines().find(|line| line.contains("took_bucket") && line.contains(bound));
        let expected =
            format!("# {{user_id=\"ada\",trace_id=\"{trace}\",span_id=\"eee19b7ec3c1b174\"}} 0.");
        assert!(line.is_some_and(|line| line.contains(&expected)), "{text}");
    }
}

/// A point with the flag for missing values ends the gauge.
#[test]
fn gauges_end_when_nothing_is_recorded() {
    let home = Home::new();
    let daemon = home.start(&[]);
    let gauge = |flags: u32| {
        request(json!([{"name": "level", "gauge": {"dataPoints": [{"asInt": 7, "flags": flags}]}}]))
    };
    for (flags, shown) in [(0, true), (1, false), (0, true)] {
        assert_eq!(post(&daemon, &[("Content-Type", JSON)], gauge(flags).as_bytes()).status, 200);
        assert_eq!(daemon.get("/metrics").text().contains("\nlevel{"), shown);
    }
}

#[test]
fn refused_points_are_reported_and_the_rest_is_accepted() {
    let home = Home::new();
    let daemon =
        home.start(&["--otlp-translation", "NoTranslation", "--otlp-promote", "host.name"]);
    let body = request(json!([
        {"name": "good.one", "gauge": {"dataPoints": [{"asInt": 1}, {}]}},
        {"name": "", "gauge": {"dataPoints": [{"asInt": 1}]}},
        {"name": "down", "sum": {"isMonotonic": true, "aggregationTemporality": 1,
            "dataPoints": [{"asInt": -1}]}},
        {"name": "what", "sum": {"dataPoints": [{"asInt": 1}]}},
        {"name": "coarse", "exponentialHistogram": {"aggregationTemporality": 1,
            "dataPoints": [{"scale": -5}]}},
        {"name": "wrong", "histogram": {"aggregationTemporality": 1, "dataPoints": [{"count": 1,
            "bucketCounts": [1, 1], "explicitBounds": [1]}]}},
    ]));
    let response = post(&daemon, &[("Content-Type", JSON)], body.as_bytes());
    let partial = &response.json()["partialSuccess"];
    assert_eq!(partial["rejectedDataPoints"], "6");
    assert_eq!(
        partial["errorMessage"],
        "\"good.one\": the data point has no value; \"\": the name has no letter, digit or colon; \
         \"down\": the value is negative where it cannot be, or is not a number"
    );
    let text = daemon.get("/metrics").text();
    assert!(text.contains("good_one{") && text.contains("host_name=\"h\""), "{text}");
    for (reason, count) in
        [("name", 1.0), ("value", 2.0), ("temporality", 1.0), ("scale", 1.0), ("buckets", 1.0)]
    {
        let name = format!("quipu_input_refused_total{{input=\"otlp\",reason=\"{reason}\"}}");
        assert_eq!(daemon.sample(&name), count, "{reason}");
    }
    let refused = daemon.get("/refused").text();
    assert!(refused.contains("shop/cart") && refused.contains("send -4 or more"), "{refused}");
}

/// By default, OTLP exporters use gRPC.
#[test]
fn a_client_of_grpc_gets_the_reason_and_the_log_has_the_way_out() {
    let home = Home::new();
    let daemon = home.start(&[]);
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    for length in [16, 20, preface.len()] {
        let mut client = TcpStream::connect(daemon.address()).unwrap();
        client.write_all(&preface[..length]).unwrap();
        // We ignore the error, because the server may have closed the connection.
        let _ = client.write_all(&preface[length..]).and_then(|()| client.write_all(&settings));
        let mut frames = Vec::new();
        client.read_to_end(&mut frames).unwrap();
        assert_eq!(frames[..9], settings);
        let (head, reason) = frames[9..].split_at(17);
        assert_eq!(head[..9], [0, 0, reason.len() as u8 + 8, 7, 0, 0, 0, 0, 0]);
        assert_eq!(head[9..], [0, 0, 0, 0, 0, 0, 0, 13]);
        let reason = String::from_utf8_lossy(reason);
        assert!(reason.contains("OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf"), "{reason}");
    }
    let logged = daemon.wait_for("refused a client that speaks HTTP/2").to_string();
    assert!(logged.contains("OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf"), "{logged}");
    assert_eq!(daemon.sample("quipu_http_refused_total{code=\"505\",reason=\"http2\"}"), 3.0);
    post(&daemon, &[("Content-Type", "application/grpc+proto")], b"x")
        .expect_refusal(415, "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf");
}

#[test]
fn bodies_that_are_no_request_are_refused() {
    let home = Home::new();
    let daemon = home.start(&["--input-body-bytes", "100000"]);
    let status = |fields: &[(&str, &str)], body: &[u8]| post(&daemon, fields, body);
    status(&[], b"x").expect_refusal(415, "send application/x-protobuf or application/json");
    status(&[("Content-Type", "text/plain")], b"x").expect_refusal(415, "is not supported");
    let response = status(&[("Content-Type", PROTOBUF)], b"\x0a\x05\x0a");
    assert_eq!((response.status, response.fields["content-type"].as_str()), (400, PROTOBUF));
    assert_eq!(response.body[..3], [0x08, 3, 0x12]);
    response.expect_refusal(400, "at byte");
    let response = status(&[("Content-Type", JSON)], b"{\"resourceMetrics\": 3}");
    response.expect_refusal(400, "a list for resourceMetrics at line 1 column 21");
    assert_eq!(response.fields["content-type"], JSON);
    let gzip = [("Content-Type", PROTOBUF), ("Content-Encoding", "gzip")];
    assert_eq!(status(&gzip, b"not gzip").status, 400);
    let br = [("Content-Type", PROTOBUF), ("Content-Encoding", "br")];
    assert_eq!(status(&br, b"x").status, 415);
    let mut bomb = GzEncoder::new(Vec::new(), Compression::best());
    bomb.write_all(&vec![0; 1 << 20]).unwrap();
    assert_eq!(status(&gzip, &bomb.finish().unwrap()).status, 413);
    assert_eq!(daemon.get("/v1/metrics").status, 405);
    // The points before a fault count.
    let mut bytes = remote::otlp::metrics_request_from_json(counted(3, 1).as_bytes()).unwrap();
    bytes.push(0xff);
    let response = status(&[("Content-Type", PROTOBUF)], &bytes);
    response.expect_refusal(400, "1 data points before it were taken");
    expect_lines(&daemon, &[format!("hits_total{{{LABELS}}} 3")]);
}

/// If a limit refuses all points, the response asks the sender to retry.
#[test]
fn a_sender_without_room_is_asked_to_retry() {
    let home = Home::new();
    let daemon = home.start(&["--series", "2"]);
    let many = |from: u32| {
        let points: Vec<_> = (from..from + 3)
            .map(|n| json!({"asInt": 1, "attributes": [{"key": "n", "value": {"intValue": n}}]}))
            .collect();
        request(json!([{"name": "g", "gauge": {"dataPoints": points}}]))
    };
    // The count includes the series `target_info`.
    let response = post(&daemon, &[("Content-Type", JSON)], many(0).as_bytes());
    assert_eq!(response.json()["partialSuccess"]["rejectedDataPoints"], "2");
    let response = post(&daemon, &[("Content-Type", JSON)], many(3).as_bytes());
    response.expect_refusal(503, "the limit on series is reached");
    assert_eq!(response.fields["retry-after"], "1");
}

#[track_caller]
fn succeed(command: &mut Command) {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
}

#[test]
fn the_python_sdk_is_understood() {
    // Each run is a new process of the same instance, which exports twice.
    for kind in ["cumulative", "delta"] {
        let home = Home::new();
        let daemon = home.start(&[]);
        let url = format!("http://{}/v1/metrics", daemon.address());
        let python = python::with("python-otlp", "tests/daemon/otlp.txt");
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/daemon/otlp.py");
        for runs in 1..=2 {
            succeed(Command::new(&python).args([script, &url, kind]));
            let series = |name: &str, labels: &str, value: &str| {
                format!(
                    "{name}{{instance=\"{kind}\",job=\"shop\",otel_scope_name=\"app\"{labels}}} {value}"
                )
            };
            let runs_text = runs.to_string();
            expect_lines(
                &daemon,
                &[
                    series("orders_total", ",kind=\"a\"", &(3 * runs).to_string()),
                    series("active", "", "1"),
                    series("temperature_celsius", "", "21.5"),
                    series("took_seconds_count", "", &runs_text),
                    series("took_seconds_bucket", ",le=\"1\"", &runs_text),
                ],
            );
            let text = daemon.get("/metrics").text();
            assert!(text.contains("# TYPE weight_kg histogram\n"), "{text}");
        }
    }
}

/// You can run this test with `make judge-otlp`.
#[test]
#[ignore = "needs telemetrygen, which takes a minute to build"]
fn telemetrygen_is_understood() {
    let telemetrygen = std::env::var_os("TELEMETRYGEN").expect("the path of telemetrygen");
    let home = Home::new();
    let daemon = home.start(&[]);
    let address = daemon.address().to_string();
    let mut expected = 0.0;
    for temporality in ["cumulative", "delta"] {
        for kind in ["Gauge", "Sum", "Histogram", "ExponentialHistogram"] {
            let name = format!("gen_{}_{temporality}", kind.to_lowercase());
            let mut command = Command::new(&telemetrygen);
            command.args([
                "metrics",
                "--otlp-http",
                "--otlp-insecure",
                "--metrics",
                "3",
                "--rate",
                "0",
            ]);
            command.args(["--otlp-endpoint", &address, "--metric-type", kind]);
            command.args(["--aggregation-temporality", temporality, "--otlp-metric-name", &name]);
            succeed(&mut command);
            expected += 3.0;
            let taken = daemon.sample("quipu_input_samples_total{input=\"otlp\"}");
            let text = daemon.get("/metrics").text();
            assert_eq!(taken, expected, "{name}: {text}");
            assert!(text.contains(&format!("# TYPE {name}")), "{name}: {text}");
        }
    }
    let text = daemon.get("/metrics").text();
    let lines = text.lines().filter(|line| line.starts_with("gen_") && !line.contains("_bucket"));
    lines.for_each(|line| eprintln!("{line}"));
}
