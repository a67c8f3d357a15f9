//! Tests of remote write. Written samples are shown once, and a real Prometheus can write.

use std::fs;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use quipu_wire::remote::{
    self,
    write::{RemoteWrite1, RemoteWrite2, SeriesType},
};

use crate::common::{Daemon, Home, Response, program, wait_until};

pub(crate) const ONE: &str = "application/x-protobuf";
pub(crate) const TWO: &str = "application/x-protobuf;proto=io.prometheus.write.v2.Request";

pub(crate) fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64
}

pub(crate) fn write(daemon: &Daemon, content_type: &str, request: &[u8]) -> Response {
    let mut body = Vec::new();
    remote::snappy::compress(request, &mut body).unwrap();
    let fields = [("Content-Type", content_type), ("Content-Encoding", "snappy")];
    daemon.post_body("/api/v1/write", &fields, &body)
}

/// Returns the numbers of written samples and histograms in a response to a 2.0 request.
fn written(response: &Response) -> [&str; 2] {
    ["samples", "histograms"]
        .map(|kind| &*response.fields[&format!("x-prometheus-remote-write-{kind}-written")])
}

pub(crate) type Input<'a> = (&'a [(&'a str, &'a str)], SeriesType, f64, i64);

pub(crate) fn two(samples: &[Input<'_>]) -> Vec<u8> {
    let mut request = RemoteWrite2::new();
    for (labels, series_type, value, time) in samples {
        request.push_typed(labels, *series_type, *value, *time).unwrap();
    }
    let mut bytes = Vec::new();
    request.finish(&mut bytes);
    bytes
}

pub(crate) fn field(tag: u8, body: &[u8]) -> Vec<u8> {
    [&[tag, body.len() as u8], body].concat()
}

#[test]
fn totals_survive_kills_and_count_once() {
    const HITS: &[(&str, &str)] = &[("__name__", "hits_total"), ("path", "/a b")];
    const LEVEL: &[(&str, &str)] = &[("__name__", "level")];
    let home = Home::new();
    let now = now_ms();
    let request = |total: f64, time| {
        let level = (LEVEL, SeriesType::Gauge, -total, time);
        two(&[(HITS, SeriesType::Counter, total, time), level])
    };
    // The source counts 5 and 8, restarts, and counts 2 and 3.
    for (second, total, sum) in [(1, 5.0, 5.0), (2, 8.0, 8.0), (3, 2.0, 10.0), (4, 3.0, 11.0)] {
        let daemon = home.start(&[]);
        let request = request(total, now + second * 1000);
        for _ in 0..2 {
            let response = write(&daemon, TWO, &request);
            assert_eq!((response.status, written(&response)), (204, ["2", "0"]));
        }
        daemon.kill();
        let daemon = home.start(&[]);
        // The sender repeats the request, because it did not see the response.
        assert_eq!(write(&daemon, TWO, &request).status, 204);
        assert_eq!(daemon.sample("hits_total{path=\"/a b\"}"), sum);
        assert_eq!(daemon.sample("level"), -total);
        daemon.kill();
    }
}

pub(crate) fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

/// Prometheus sends exemplars separately from the samples of their series.
#[test]
fn exemplars_are_kept() {
    let label = |name: &str, value: &str| {
        let pair = [field(0x0a, name.as_bytes()), field(0x12, value.as_bytes())];
        field(0x0a, &pair.concat())
    };
    let value = |tag: u8, value: f64| [&[tag][..], &value.to_le_bytes()].concat();
    let time = |tag: u8, time| [&[tag][..], &varint(time as u64)].concat();
    let now = now_ms();
    let series =
        |name: &str, point: Vec<u8>| field(0x0a, &[label("__name__", name), point].concat());
    let exemplar = |trace: &str, n: f64| {
        field(0x1a, &[label("trace_id", trace), value(0x11, n), time(0x18, now)].concat())
    };
    let sample = field(0x12, &[value(0x09, 5.0), time(0x10, now)].concat());
    let home = Home::new();
    let daemon = home.start(&[]);
    let requests = [
        series("hits_total", sample),
        series("hits_total", exemplar("ab", 3.0)),
        series("none", exemplar("cd", 1.0)),
        // No format can show this exemplar.
        series(
            "hits_total",
            field(0x1a, &[label("", "x"), value(0x11, 1.0), time(0x18, now)].concat()),
        ),
    ];
    for request in &requests {
        assert_eq!(write(&daemon, ONE, request).status, 204);
    }
    daemon.kill();
    let daemon = home.start(&[]);
    let text = daemon.scrape("application/openmetrics-text;version=1.0.0").text();
    let line = text.lines().find(|line| line.starts_with("hits_total")).unwrap_or_default();
    let (total, exemplar) = line.split_once(" # ").unwrap_or_default();
    assert!(total.starts_with("hits_total 5"), "{text}");
    assert!(exemplar.starts_with("{trace_id=\"ab\"} 3"), "{text}");
    assert!(exemplar.contains(&(now / 1000).to_string()), "{text}");
    assert!(!text.contains("\"cd\""), "{text}");
}

/// The series of a counter stores the time of its last sample.
#[test]
fn the_order_of_totals_survives_a_kill() {
    const HOUR: i64 = 3_600_000;
    let home = Home::new();
    let mut daemon = home.start(&[]);
    let now = now_ms();
    let put = |daemon: &Daemon, series_type, value, time| {
        let request = two(&[(&[("__name__", "hits_total")], series_type, value, time)]);
        write(daemon, TWO, &request)
    };
    let counter = SeriesType::Counter;
    for (total, time) in [(5.0, now - 5), (8.0, now - 4)] {
        assert_eq!(put(&daemon, counter, total, time).status, 204);
    }
    for _ in 0..2 {
        for (total, time) in [(8.0, now - 4), (5.0, now - 5), (1.0, now - HOUR)] {
            assert_eq!(put(&daemon, counter, total, time).status, 204);
        }
        put(&daemon, counter, 9.0, now - 4).expect_refusal(400, "hits_total: a duplicate");
        put(&daemon, counter, 9.0, now - 3 * HOUR).expect_refusal(400, "out of order");
        put(&daemon, counter, 9.0, now + HOUR).expect_refusal(400, "too new");
        // These samples are not restarts.
        for time in [0, -1] {
            put(&daemon, counter, 1.0, time).expect_refusal(400, "out of order");
        }
        assert_eq!(daemon.sample("hits_total"), 8.0);
        daemon.kill();
        daemon = home.start(&[]);
    }
    // Another type replaces the total only if its sample is later. From then on, only the series
    // stores the last total.
    for (series_type, value, time, shown) in [
        (SeriesType::Gauge, 1.0, now - 6, 8.0),
        (SeriesType::Gauge, 1.5, now - 3, 1.5),
        (counter, 3.0, now - 2, 3.0),
        (counter, 4.0, now - 1, 4.0),
        (SeriesType::Gauge, 1.0, now - 1, 4.0),
        (counter, 2.0, now, 6.0),
    ] {
        assert_eq!(put(&daemon, series_type, value, time).status, 204);
        assert_eq!(daemon.sample("hits_total"), shown);
    }
}

#[test]
fn the_order_of_gauges_survives_a_kill() {
    let home = Home::new();
    let mut daemon = home.start(&[]);
    let now = now_ms();
    let put = |daemon: &Daemon, value, time| {
        let level = [("__name__", "level")];
        write(daemon, TWO, &two(&[(&level, SeriesType::Gauge, value, time)]))
    };
    for (round, value) in [(0, 1.0), (10, 2.0)] {
        assert_eq!(put(&daemon, value, now - 20 + round).status, 204);
        daemon.kill();
        daemon = home.start(&[]);
        assert_eq!(put(&daemon, 9.0, now - 21 + round).status, 204);
        put(&daemon, 9.0, now - 20 + round).expect_refusal(400, "level: a duplicate");
        assert_eq!(daemon.sample("level"), value);
    }
}

/// A refused sample must not change the time of the last accepted one.
#[test]
fn a_refused_total_leaves_the_order_of_its_series() {
    let home = Home::new();
    let daemon = home.start(&[]);
    let now = now_ms();
    let put = |series_type, value, time| {
        write(&daemon, TWO, &two(&[(&[("__name__", "level")], series_type, value, time)]))
    };
    assert_eq!(put(SeriesType::Gauge, 1.0, now).status, 204);
    put(SeriesType::Counter, -1.0, now + 1).expect_refusal(400, "the value is negative");
    // This sample is late.
    assert_eq!(put(SeriesType::Gauge, 2.0, now - 1).status, 204);
    assert_eq!(daemon.sample("level"), 1.0);
}

#[test]
fn wrong_series_are_refused_and_the_rest_is_written() {
    let home = Home::new();
    let daemon = home.start(&[]);
    let now = now_ms();
    const HOUR: i64 = 3_600_000;
    let name = |name| [("__name__", name)];
    let (a, b, c) = (name("a"), name("b"), name("c_total"));
    let gauge = SeriesType::Gauge;
    let request = two(&[
        (&a, gauge, 1.0, now),
        (&[("job", "x")], gauge, 1.0, now),
        (&a, gauge, 2.0, now),
        (&a, gauge, 3.0, now - HOUR),
        (&a, gauge, 4.0, now - 3 * HOUR),
        (&a, gauge, 5.0, now + HOUR),
        (&c, SeriesType::Counter, -1.0, now),
        (&b, gauge, f64::NAN, now),
    ]);
    let response = write(&daemon, TWO, &request);
    // A slightly late sample is recognized as old.
    assert_eq!((response.status, written(&response)), (400, ["3", "0"]));
    for part in [
        "3 taken, 5 refused",
        "series 2: it has no name",
        "series 3, a: a duplicate",
        "series 5, a: out of order",
        "series 6, a: too new",
        "series 7, c_total: the value is negative",
    ] {
        response.expect_refusal(400, part);
    }
    assert_eq!(daemon.sample("a"), 1.0);
    assert!(daemon.sample("b").is_nan());
    for reason in ["name", "duplicate", "out_of_order", "too_new", "value"] {
        let refused =
            format!("quipu_input_refused_total{{input=\"remote_write\",reason=\"{reason}\"}}");
        assert_eq!(daemon.sample(&refused), 1.0, "{reason}");
    }
    // The part of a request before its fault is written.
    let request = [two(&[(&b, gauge, 7.0, now + 1)]), vec![0x2a, 0x05]].concat();
    let response = write(&daemon, TWO, &request);
    response.expect_refusal(400, "after");
}

#[test]
fn histograms_and_metadata_are_written() {
    let home = Home::new();
    let daemon = home.start(&[]);
    let now = now_ms();
    let mut time = vec![0x78];
    time.extend(varint(now as u64));
    // Three observations up to 0.5, two up to 1, and one above; in the native histogram, two from 1
    // to 2, and one of 0.
    let custom = b"\x08\x06\x19\0\0\0\0\0\0\x14\x40\x20\x69\x5a\x02\x10\x03\x62\x03\x06\x01\x01\
        \x82\x01\x10\0\0\0\0\0\0\xe0\x3f\0\0\0\0\0\0\xf0\x3f";
    let native = b"\x08\x03\x19\0\0\0\0\0\0\x08\x40\x30\x01\x5a\x04\x08\x02\x10\x01\x62\x01\x04";
    let symbols: Vec<u8> = ["", "__name__", "sizes", "took_seconds", "How long it took."]
        .iter()
        .flat_map(|symbol| field(0x22, symbol.as_bytes()))
        .collect();
    let histogram = |symbol: u8, histogram: &[u8]| {
        let metadata = field(0x2a, b"\x08\x03\x18\x04");
        let histogram = field(0x1a, &[histogram, &time].concat());
        field(0x2a, &[&b"\x0a\x02\x01"[..], &[symbol], &histogram, &metadata].concat())
    };
    let bad = [&b"\x08\x04"[..], &native[2..]].concat();
    let series =
        [histogram(2, custom), histogram(3, native), histogram(2, &bad), histogram(2, custom)];
    let request = [symbols, series.concat()].concat();
    let response = write(&daemon, TWO, &request);
    assert_eq!(written(&response), ["0", "3"]);
    response
        .expect_refusal(400, "series 3, sizes: expected a count that is the sum of the buckets");
    for (bound, count) in [("0.5", 3.0), ("1", 5.0), ("+Inf", 6.0)] {
        assert_eq!(daemon.sample(&format!("sizes_bucket{{le=\"{bound}\"}}")), count);
    }
    assert_eq!(daemon.sample("sizes_sum"), 5.0);
    assert_eq!(daemon.sample("took_seconds_count"), 3.0);
    assert_eq!(daemon.sample("took_seconds_sum"), 3.0);
    assert!(daemon.get("/metrics").text().contains("# HELP took_seconds How long it took.\n"));
}

/// In version 1.0, metadata arrives in separate requests, before or after the samples.
#[test]
fn types_of_remote_write_1_arrive_apart_from_samples() {
    let home = Home::new();
    let mut daemon = home.start(&[]);
    let now = now_ms();
    let samples = |time| {
        let mut request = RemoteWrite1::new();
        request.push(&[("__name__", "workers_count")], 5.0, time).unwrap();
        request.push(&[("__name__", "level"), ("room", "a")], -2.0, time).unwrap();
        let mut bytes = Vec::new();
        request.finish(&mut bytes);
        bytes
    };
    let response = write(&daemon, ONE, &samples(now));
    assert_eq!((response.status, response.fields.len()), (204, 2 - 1), "{response:?}");
    let text = daemon.get("/metrics").text();
    assert!(text.contains("# TYPE workers_count untyped\nworkers_count 5\n"), "{text}");
    assert!(text.contains("# TYPE level untyped\nlevel{room=\"a\"} -2\n"), "{text}");
    let metadata = [
        field(0x1a, b"\x08\x02\x12\x0dworkers_count\x22\x06Hands."),
        field(0x1a, b"\x08\x02\x12\x05level"),
    ];
    assert_eq!(write(&daemon, ONE, &metadata.concat()).status, 204);
    assert_eq!(write(&daemon, ONE, &samples(now + 1)).status, 204);
    let text = daemon.get("/metrics").text();
    let workers = "# HELP workers_count Hands.\n# TYPE workers_count gauge\nworkers_count 5\n";
    assert!(text.contains(workers), "{text}");
    assert!(text.contains("# TYPE level gauge\nlevel{room=\"a\"} -2\n"), "{text}");
    assert!(!text.contains("untyped") && text.matches("workers_count 5").count() == 1, "{text}");
    // After a restart, series keep their types until new metadata arrives, and then change like
    // before.
    for (time, metadata) in
        [(now + 2, vec![]), (now + 3, field(0x1a, b"\x08\x01\x12\x0dworkers_count"))]
    {
        daemon.kill();
        daemon = home.start(&[]);
        assert_eq!(write(&daemon, ONE, &metadata).status, 204);
        assert_eq!(write(&daemon, ONE, &samples(time)).status, 204);
        let text = daemon.get("/metrics").text();
        let kind = if metadata.is_empty() { "gauge" } else { "counter" };
        assert!(
            text.contains(&format!("# TYPE workers_count {kind}\nworkers_count 5\n")),
            "{text}"
        );
        assert!(
            !text.contains("untyped") && text.matches("workers_count 5").count() == 1,
            "{text}"
        );
    }
    let metadata = field(0x1a, b"\x08\x02\x12\x0dworkers_count");
    assert_eq!(write(&daemon, ONE, &metadata).status, 204);
    assert_eq!(write(&daemon, ONE, &samples(now + 4)).status, 204);

    // The end of a series hides a gauge, but keeps a total.
    let stale = f64::from_bits(0x7ff0_0000_0000_0002);
    let mut request = RemoteWrite1::new();
    request.push(&[("__name__", "workers_count")], stale, now + 5).unwrap();
    request.push(&[("__name__", "hits_total")], 5.0, now).unwrap();
    request.push(&[("__name__", "hits_total")], stale, now + 1).unwrap();
    request.push(&[("__name__", "hits_total")], 1.0, now + 2).unwrap();
    let mut bytes = Vec::new();
    request.finish(&mut bytes);
    assert_eq!(write(&daemon, ONE, &bytes).status, 204);
    assert_eq!(daemon.sample("hits_total"), 6.0);
    assert!(!daemon.get("/metrics").text().contains("\nworkers_count 5"));
}

#[test]
fn types_and_codings_are_negotiated() {
    let home = Home::new();
    let daemon = home.start(&["--input-body-bytes", "1000"]);
    let request = two(&[(&[("__name__", "a")], SeriesType::Gauge, 1.0, now_ms())]);
    for content_type in
        ["application/json", "application/x-protobuf;proto=x", "text/plain", "application/protobuf"]
    {
        write(&daemon, content_type, &request).expect_refusal(415, "Content-Type");
    }
    for coding in ["gzip", "identity"] {
        let fields = [("Content-Type", TWO), ("Content-Encoding", coding)];
        let response = daemon.post_body("/api/v1/write", &fields, &request);
        response.expect_refusal(415, "Snappy");
    }
    let fields = [("Content-Type", TWO), ("Content-Encoding", "snappy")];
    let response = daemon.post_body("/api/v1/write", &fields, &request);
    response.expect_refusal(400, "snappy");
    // The encoding of VictoriaMetrics' agents and of other daemons.
    let zstd = |content_type, body: &[u8]| {
        let fields = [("Content-Type", content_type), ("Content-Encoding", "zstd")];
        daemon.post_body("/api/v1/write", &fields, body)
    };
    let packed = |bytes: &[u8]| zstd::stream::encode_all(bytes, 1).unwrap();
    assert_eq!(written(&zstd(TWO, &packed(&request))), ["1", "0"]);
    let mut one = RemoteWrite1::new();
    one.push(&[("__name__", "b")], 2.0, now_ms()).unwrap();
    let mut bytes = Vec::new();
    one.finish(&mut bytes);
    assert_eq!(zstd(ONE, &packed(&bytes)).status, 204);
    let text = daemon.get("/metrics").text();
    assert!(text.contains("\na 1\n") && text.contains("\nb 2\n"), "{text}");
    zstd(ONE, &bytes).expect_refusal(400, "zstd");
    let body = packed(&bytes);
    zstd(ONE, &body[..body.len() - 1]).expect_refusal(400, "zstd");
    zstd(ONE, &packed(&[0; 1001])).expect_refusal(413, "1000 bytes");
    // A length of 2 GiB, and a length beyond the limit.
    let response = daemon.post_body("/api/v1/write", &fields, b"\xff\xff\xff\xff\x07\0");
    response.expect_refusal(413, "1000 bytes");
    write(&daemon, TWO, &[0; 1001]).expect_refusal(413, "1000 bytes");
    for content_type in ["Application/X-Protobuf ; proto=\"io.prometheus.write.v2.Request\"", TWO] {
        assert_eq!(write(&daemon, content_type, &request).status, 204);
    }
    let response = daemon.get("/api/v1/write");
    assert_eq!((response.status, &*response.fields["allow"]), (405, "POST"));
    assert_eq!(daemon.sample("a"), 1.0);
}

#[test]
fn a_real_prometheus_writes() {
    let home = Home::new();
    let daemon = home.start(&[]);
    let (address, host) = (daemon.address(), home.host());
    let config = home.path("prometheus.yml");
    let targets = format!("[\"{address}\"]");
    fs::write(
        &config,
        format!(
            "global: {{scrape_interval: 100ms}}\n\
             scrape_configs: [{{job_name: self, static_configs: [{{targets: {targets}}}],\n\
             metric_relabel_configs: [{{source_labels: [__name__], regex: quipu_(.*),\n\
             target_label: __name__, replacement: seen_$1}}]}}]\n\
             remote_write: [{{url: \"http://{address}/api/v1/write\",\n\
             queue_config: {{batch_send_deadline: 100ms}},\n\
             metadata_config: {{send_interval: 1s}}}}]\n"
        ),
    )
    .unwrap();
    let mut command = Command::new(program("prometheus", "prometheus"));
    command
        .arg(format!("--config.file={}", config.display()))
        .arg(format!("--storage.tsdb.path={}", home.path("data").display()))
        .arg(format!("--web.listen-address={host}:19090"));
    let sender = home.spawn(command);
    let shown = |part: &str| daemon.get("/metrics").text().contains(part);
    let labels = format!("{{instance=\"{address}\",job=\"self\"}}");
    wait_until("samples", || shown(&format!("\nup{labels} 1\n")));
    wait_until("counters", || shown(&format!("\nseen_http_connections_accepted_total{labels} ")));
    let total = daemon.sample(&format!("seen_http_connections_accepted_total{labels}"));
    assert!(
        total >= 1.0 && total <= daemon.sample("quipu_http_connections_accepted_total"),
        "{total}"
    );
    assert!(!shown("quipu_input_refused_total{input=\"remote_write\""));
    drop(sender);
}

#[test]
fn a_daemon_refuses_its_own_samples_with_its_number() {
    let home = Home::new();
    let daemon = home.start(&[]);
    let number = daemon.get("/metrics").fields["quipu-via"].clone();
    let fields = [("Content-Type", ONE), ("Quipu-Via", &*number)];
    let response = daemon.post_body("/api/v1/write", &fields, b"");
    response.expect_refusal(409, "make a loop");
    assert_eq!(response.fields["quipu-via"], number);
}
