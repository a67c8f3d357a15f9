//! Tests of the OTLP output, to a receiver whose behavior a test defines, and to another daemon,
//! which must show the same totals after any kill.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;

use flate2::read::GzDecoder;
use quipu_wire::remote::{
    self,
    otlp::{AttributeValue, Number, PointValue, Temporality},
};
use serde_json::json;

use crate::common::{Daemon, Home, Received, lines, poll, wait_until};
use crate::otlp_deltas::owed;
use crate::otlp_resources::add_of_programs;
use crate::outputs::{count, ends_without_a_response, import};
use crate::python;

/// The response of a receiver to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Taken,
    /// This status, with additional header fields and a body.
    Status(u16, &'static str, &'static [u8]),
    /// A closed connection.
    Cut,
}

/// A received request.
pub(crate) struct Request {
    fields: HashMap<String, String>,
    /// The body, after decompression.
    pub(crate) body: Vec<u8>,
    pub(crate) points: Vec<Point>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Point {
    /// The attributes of the point's resource.
    pub(crate) resource: String,
    /// The name and the attributes, for example `level{n="1"}`.
    pub(crate) series: String,
    unit: String,
    help: String,
    start_ns: u64,
    time_ns: u64,
    is_end: bool,
    pub(crate) value: String,
    /// The number, or the count of a histogram.
    pub(crate) number: f64,
    pub(crate) exemplars: String,
}

/// A server that records all requests.
pub(crate) struct Receiver {
    pub(crate) url: String,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Receiver {
    /// Starts a server. `reply` gets the requests so far and the new one.
    pub(crate) fn start(
        home: &Home,
        reply: impl Fn(&[Request], &Request) -> Reply + Send + Sync + 'static,
    ) -> Receiver {
        let listener = TcpListener::bind((home.host(), 0)).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (kept, reply) = (Arc::clone(&requests), Arc::new(reply));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (kept, reply) = (Arc::clone(&kept), Arc::clone(&reply));
                thread::spawn(move || serve(stream.unwrap(), &kept, &*reply));
            }
        });
        Receiver { url, requests }
    }

    /// Calls `look` with all requests so far.
    pub(crate) fn see<T>(&self, look: impl FnOnce(&[Request]) -> T) -> T {
        look(&self.requests.lock().unwrap())
    }

    /// Returns the last point of a series.
    pub(crate) fn last(&self, series: &str) -> Option<Point> {
        self.see(|requests| {
            let mut points = requests.iter().rev().flat_map(|request| request.points.iter().rev());
            points.find(|point| point.series == series).cloned()
        })
    }

    #[track_caller]
    fn expect(&self, series: &str, value: &str) -> Point {
        let mut last = None;
        wait_until(&format!("{series} at {value}"), || {
            last = self.last(series);
            last.as_ref().is_some_and(|last| last.value == value)
        });
        last.unwrap()
    }

    /// Returns the name of the receiver as a label.
    fn label(&self) -> String {
        format!("receiver=\"{}/v1/metrics\"", self.url)
    }
}

/// Serves a connection until it ends.
fn serve(
    stream: TcpStream,
    kept: &Mutex<Vec<Request>>,
    reply: &(impl Fn(&[Request], &Request) -> Reply + ?Sized),
) {
    let mut input = BufReader::new(stream.try_clone().unwrap());
    let mut output = stream;
    while let Some(request) = receive(&mut input) {
        let mut requests = kept.lock().unwrap();
        let reply = reply(&requests, &request);
        requests.push(request);
        drop(requests);
        let (status, fields, body) = match reply {
            Reply::Taken => (200, "Content-Type: application/x-protobuf\r\n", &b""[..]),
            Reply::Status(status, fields, body) => (status, fields, body),
            Reply::Cut => return,
        };
        let length = body.len();
        let head = format!("HTTP/1.1 {status} X\r\n{fields}Content-Length: {length}\r\n\r\n");
        // We ignore the error, because the daemon may have been killed.
        let _ = output.write_all(&[head.as_bytes(), body].concat());
    }
}

/// Reads the next request; `None` after the last one.
fn receive(input: &mut impl BufRead) -> Option<Request> {
    let Received { line, fields, mut body } = Received::read(input)?;
    assert_eq!(line, "POST /v1/metrics HTTP/1.1");
    assert_eq!(fields["content-type"], "application/x-protobuf");
    if fields.get("content-encoding").is_some_and(|coding| coding == "gzip") {
        let mut expanded = Vec::new();
        GzDecoder::new(&body[..]).read_to_end(&mut expanded).unwrap();
        body = expanded;
    }
    let mut points = Vec::new();
    let mut resources = HashMap::new();
    remote::otlp::read_metrics_request(&body, |point| {
        let read = read(point);
        // A request contains each resource once.
        let number = *resources.entry(read.resource.clone()).or_insert(point.resource.number);
        assert_eq!(number, point.resource.number, "{}", read.resource);
        points.push(read);
    })
    .unwrap();
    Some(Request { fields, body, points })
}

fn read(point: &remote::otlp::Point<'_, '_>) -> Point {
    assert!(point.scope.name.is_empty());
    let labels: Vec<String> = point.attributes.iter().map(label).collect();
    assert!(labels.is_sorted(), "{labels:?}");
    let name = point.metric.name;
    let series =
        if labels.is_empty() { name.to_owned() } else { format!("{name}{{{}}}", labels.join(",")) };
    let (value, number) = value_of(&point.value);
    let exemplars = point.exemplars.iter().map(|one| {
        let labels: Vec<String> = point.exemplar_attributes(one).iter().map(label).collect();
        format!("{:?} {:?} {:?} {labels:?}", one.value.unwrap(), one.trace_id, one.span_id)
    });
    Point {
        resource: point.resource.attributes.iter().map(label).collect::<Vec<_>>().join(","),
        series,
        unit: point.metric.unit.to_owned(),
        help: point.metric.description.to_owned(),
        start_ns: point.start_ns.unwrap_or(0),
        time_ns: point.time_ns.unwrap_or(0),
        is_end: point.no_recorded_value,
        value,
        number,
        exemplars: exemplars.collect::<Vec<_>>().join("; "),
    }
}

fn label((key, value): &(&str, AttributeValue<'_>)) -> String {
    match value {
        AttributeValue::Text(text) => format!("{key}={text:?}"),
        other => panic!("{other:?}"),
    }
}

fn value_of(value: &PointValue<'_>) -> (String, f64) {
    let shown = |value: Option<Number>| match value {
        Some(Number::Int(value)) => value.to_string(),
        Some(Number::Double(value)) => format!("{value:?}"),
        None => "none".into(),
    };
    let number = |value: Option<Number>| value.map_or(f64::NAN, Number::as_f64);
    let kind = |temporality: Temporality| format!("{temporality:?}").to_lowercase();
    match value {
        PointValue::Gauge(value) => (format!("gauge {}", shown(*value)), number(*value)),
        PointValue::Sum { value, monotonic, temporality } => {
            let rises = if *monotonic { " monotonic" } else { "" };
            let text = format!("{}{rises} sum {}", kind(*temporality), shown(*value));
            (text, number(*value))
        }
        PointValue::Histogram { point, temporality } => (
            format!(
                "{} histogram {} {:?} {:?} {:?}",
                kind(*temporality),
                point.count,
                point.sum.unwrap_or(f64::NAN),
                point.buckets,
                point.bounds
            ),
            point.count as f64,
        ),
        PointValue::Exponential { point, temporality } => (
            format!(
                "{} exponential {} {:?} scale {} zero {} {}{:?} {}{:?}",
                kind(*temporality),
                point.count,
                point.sum.unwrap_or(f64::NAN),
                point.scale,
                point.zero_count,
                point.positive.offset,
                point.positive.counts,
                point.negative.offset,
                point.negative.counts
            ),
            point.count as f64,
        ),
        PointValue::Summary(point) => (
            format!("summary {} {:?} {:?}", point.count, point.sum, point.quantiles),
            point.count as f64,
        ),
        other => panic!("{other:?}"),
    }
}

/// Imports samples in the text format.
pub(crate) fn text(daemon: &Daemon, text: &str) {
    let response = daemon.post_body("/api/v1/import/prometheus", &[], text.as_bytes());
    assert!(response.status < 300, "{response:?}");
}

/// Adds to metrics of all types: the counts of a run of events.
fn add(daemon: &Daemon) {
    let delta = |data: serde_json::Value| json!({"aggregationTemporality": 1, "isMonotonic": true, "dataPoints": [data]});
    let histogram = json!({"count": 3, "sum": 1.5, "bucketCounts": [1, 2, 0],
        "explicitBounds": [0.5, 2]});
    let buckets = json!({"offset": -1, "bucketCounts": [1, 0, 2]});
    let exponential =
        json!({"count": 4, "sum": 6, "scale": 1, "zeroCount": 1, "positive": buckets});
    let attributes = json!([{"key": "kind", "value": {"stringValue": "a b"}}]);
    let request = json!({"resourceMetrics": [{"scopeMetrics": [{"metrics": [
        {"name": "orders", "description": "Orders.",
         "sum": delta(json!({"asInt": 3, "attributes": attributes}))},
        {"name": "weight", "unit": "kg", "sum": delta(json!({"asDouble": 0.25}))},
        {"name": "took", "unit": "s", "histogram": delta(histogram)},
        {"name": "size", "unit": "By", "exponentialHistogram": delta(exponential)},
        {"name": "level", "gauge": {"dataPoints": [{"asDouble": -1.5}]}},
        {"name": "old", "summary": {"dataPoints": [
            {"count": 4, "sum": 2, "quantileValues": [{"quantile": 0.5, "value": 7}]}]}},
    ]}]}]});
    let fields = [("Content-Type", "application/json")];
    let response = daemon.post_body("/v1/metrics", &fields, request.to_string().as_bytes());
    assert_eq!((response.status, response.text().as_str()), (200, "{}"));
}

/// Returns the lines of `/metrics`, without the daemon's own.
pub(crate) fn shown(daemon: &Daemon) -> BTreeSet<String> {
    lines::shown(daemon).into_iter().collect()
}

#[test]
fn all_types_are_sent_as_types_of_opentelemetry() {
    let home = Home::new();
    let receiver = Receiver::start(&home, |_, _| Reply::Taken);
    let other = Receiver::start(&home, |_, _| Reply::Taken);
    let flags = [
        "--otlp",
        &receiver.url,
        "--otlp",
        &other.url,
        "--otlp-interval",
        "100ms",
        "--external-label",
        "region=eu",
    ];
    let daemon = home.start(&flags);
    add(&daemon);
    text(&daemon, "# TYPE mode gauge\nmode{region=\"us\"} 1\n# TYPE raw untyped\nraw 2\n");
    for (series, value) in [
        ("orders_total{kind=\"a b\",region=\"eu\"}", "cumulative monotonic sum 3"),
        ("weight_kg_total{region=\"eu\"}", "cumulative monotonic sum 0.25"),
        ("took_seconds{region=\"eu\"}", "cumulative histogram 3 1.5 [1, 2, 0] [0.5, 2.0]"),
        (
            "size_bytes{region=\"eu\"}",
            "cumulative exponential 4 6.0 scale 1 zero 1 -1[1, 0, 2] 0[]",
        ),
        ("level{region=\"eu\"}", "gauge -1.5"),
        ("mode{region=\"us\"}", "gauge 1.0"),
        ("raw{region=\"eu\"}", "gauge 2.0"),
        ("old{region=\"eu\"}", "summary 4 2.0 [(0.5, 7.0)]"),
    ] {
        receiver.expect(series, value);
        other.expect(series, value);
    }
    let took = receiver.last("took_seconds{region=\"eu\"}").unwrap();
    assert_eq!(took.unit, "s");
    assert!(0 < took.start_ns && took.start_ns < took.time_ns, "{took:?}");
    let orders = receiver.last("orders_total{kind=\"a b\",region=\"eu\"}").unwrap();
    assert_eq!((orders.help.as_str(), orders.unit.as_str()), ("Orders.", ""));
    assert_eq!(receiver.last("level{region=\"eu\"}").unwrap().start_ns, 0);
    receiver.see(|requests| {
        assert_eq!(requests[0].fields["content-encoding"], "gzip");
        assert!(requests[0].points.iter().all(|point| point.resource.is_empty()));
    });
    let sent = format!("quipu_otlp_output_points_sent_total{{{}}}", receiver.label());
    wait_until("a count", || daemon.sample(&sent) > 0.0);
    assert!(!daemon.get("/metrics").text().contains("quipu_otlp_output_points_failed_total{"));
    // A count is the same integer, no matter which type it is.
    let own = receiver.last("quipu_input_samples_total{input=\"otlp\",region=\"eu\"}").unwrap();
    assert_eq!(own.value, "cumulative monotonic sum 6");
}

/// OpenTelemetry's own Python classes can parse the requests.
#[test]
fn the_classes_of_opentelemetry_read_the_requests() {
    let home = Home::new();
    let receiver = Receiver::start(&home, |_, _| Reply::Taken);
    let flags = ["--otlp", &receiver.url, "--otlp-interval", "1000h", "--otlp-compression", "none"];
    let daemon = home.start(&flags);
    add(&daemon);
    let exemplar = "# TYPE traced counter\ntraced_total 5 \
                    # {trace_id=\"0123456789abcdef0123456789ABCDEF\",user=\"ada\"} 2 1.5\n# EOF\n";
    let fields = [("Content-Type", "application/openmetrics-text")];
    let response = daemon.post_body("/api/v1/import/prometheus", &fields, exemplar.as_bytes());
    assert!(response.status < 300, "{response:?}");
    add_of_programs(&daemon);
    daemon.stop();
    let traced = receiver.last("traced_total").unwrap();
    let id: Vec<u8> = [1, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef].repeat(2);
    assert_eq!(traced.exemplars, format!("Double(2.0) {id:?} [] [\"user=\\\"ada\\\"\"]"));
    let (body, expected) = receiver.see(|requests| {
        assert_eq!(requests.len(), 1);
        assert!(!requests[0].fields.contains_key("content-encoding"));
        (requests[0].body.clone(), requests[0].points.len())
    });
    fs::write(home.path("request"), body).unwrap();
    let python = python::with("python-otlp", "tests/daemon/otlp.txt");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/daemon/otlp_output.py");
    let output = Command::new(python).arg(script).arg(home.path("request")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let read = String::from_utf8(output.stdout).unwrap();
    assert_eq!(read.lines().count(), expected, "{read}");
    for line in [
        "orders_total sum CUMULATIVE True 3 kind=a b",
        "took_seconds histogram CUMULATIVE 3 1.5 [1, 2, 0] [0.5, 2.0]",
        "size_bytes exponential_histogram CUMULATIVE 4 6.0 1 1 -1 [1, 0, 2]",
        "level gauge -1.5",
        "old summary 4 2.0 [(0.5, 7.0)]",
        "sold_total sum CUMULATIVE True 2 kind=tea service.namespace=shop service.name=till \
         service.instance.id=i-1",
    ] {
        assert!(read.lines().any(|found| found.trim_end() == line), "no {line} in {read}");
    }
}

/// A gauge that disappears from the page gets a single end mark.
#[test]
fn a_gauge_that_is_gone_is_marked_once() {
    for temporality in ["cumulative", "delta"] {
        let home = Home::new();
        let receiver = Receiver::start(&home, |_, _| Reply::Taken);
        let flags = ["--otlp", &receiver.url, "--otlp-interval", "100ms"];
        let more = ["--otlp-temporality", temporality, "--otlp-resource", "a.b=c=d, e"];
        let daemon = home.start(&[&flags[..], &more].concat());
        let group = "/metrics/job/batch";
        let response = daemon.post_body(group, &[], b"# TYPE level gauge\nlevel 2\n");
        assert!(response.status < 300, "{response:?}");
        let level = receiver.expect("level", "gauge 2.0");
        assert!(daemon.connect().request("DELETE", group).unwrap().status < 300);
        wait_until("a mark", || receiver.last(&level.series).unwrap().is_end);
        assert_eq!(receiver.last(&level.series).unwrap().value, "gauge none");
        let before = receiver.see(<[Request]>::len);
        wait_until("more requests", || receiver.see(<[Request]>::len) > before + 3);
        receiver.see(|requests| {
            let points = requests.iter().flat_map(|request| &request.points);
            let ends = points.filter(|point| point.series == level.series && point.is_end);
            assert_eq!(ends.count(), 1);
            // The end mark belongs to the same resource.
            let resource = "a.b=\"c=d, e\",service.name=\"batch\"";
            for point in requests.iter().flat_map(|request| &request.points) {
                if point.series == level.series {
                    assert_eq!(point.resource, resource);
                } else if point.series.starts_with("quipu_") {
                    assert_eq!(point.resource, "a.b=\"c=d, e\"");
                }
            }
        });
    }
}

#[test]
fn a_request_is_repeated_unchanged() {
    let home = Home::new();
    let receiver = Receiver::start(&home, |before, request| {
        match before.iter().filter(|other| other.body == request.body).count() {
            0 => Reply::Status(503, "", b""),
            1 => Reply::Cut,
            2 => Reply::Status(429, "Retry-After: 0\r\n", b""),
            3 => Reply::Status(502, "", b""),
            _ => Reply::Taken,
        }
    });
    let flags = ["--otlp", &receiver.url, "--otlp-interval", "3s"];
    let daemon = home.start(&flags);
    import(&daemon, 1);
    wait_until("five attempts", || {
        receiver.see(|requests| requests.len() >= 5 && requests[4].body == requests[0].body)
    });
    daemon.wait_for("the receiver takes data points");
    let retried = format!("quipu_otlp_output_points_retried_total{{{}}}", receiver.label());
    assert!(daemon.sample(&retried) > 0.0);
    // Only the change is logged, not each attempt.
    assert_eq!(count(&daemon, "OTLP export failed"), 1);
}

/// Rejected points of an accepted request are counted, and not retried.
#[test]
fn refused_points_are_counted_and_not_sent_again() {
    let home = Home::new();
    let page = "Content-Type: text/html\r\n";
    let receiver = Receiver::start(&home, move |before, _| match before.len() {
        1 => Reply::Status(400, "", b"why"),
        2 => Reply::Status(500, "", b""),
        3 => Reply::Status(200, page, b"<html>"),
        // Two points are rejected.
        4 => Reply::Status(200, "", b"\x0a\x07\x08\x02\x12\x03why"),
        _ => Reply::Taken,
    });
    let daemon = home.start(&["--otlp", &receiver.url, "--otlp-interval", "100ms"]);
    wait_until("requests", || receiver.see(<[Request]>::len) > 7);
    receiver.see(|requests| {
        let times: Vec<u64> = requests.iter().map(|request| request.points[0].time_ns).collect();
        assert!(times.is_sorted_by(|one, next| one < next), "{times:?}");
    });
    wait_until("the log", || count(&daemon, "the receiver takes data points\"") == 2);
    assert_eq!(count(&daemon, "the receiver refuses data points"), 3);
    assert_eq!(count(&daemon, "but for some that it rejects"), 1);
    let sample = |name: &str, more: &str| {
        daemon.sample(&format!("quipu_otlp_output_{name}_total{{{}{more}}}", receiver.label()))
    };
    for code in ["400", "500"] {
        let code = format!(",code=\"{code}\"");
        assert_eq!(sample("requests", &code), 1.0);
        assert!(sample("points_failed", &code) > 0.0);
    }
    assert!(sample("points_failed", ",code=\"200\"") > 0.0);
    assert_eq!(sample("points_rejected", ""), 2.0);
}

#[test]
fn the_last_totals_are_sent_at_the_end() {
    for (temporality, value) in
        [("cumulative", "cumulative monotonic sum 9.0"), ("delta", "delta monotonic sum 9.0")]
    {
        let home = Home::new();
        let receiver = Receiver::start(&home, |_, _| Reply::Taken);
        let flags = ["--otlp", &receiver.url, "--otlp-interval", "1000h"];
        let flags = [&flags[..], &["--otlp-temporality", temporality]].concat();
        let daemon = home.start(&flags);
        import(&daemon, 9);
        daemon.stop();
        assert_eq!(receiver.last("hits_total").unwrap().value, value);
        assert_eq!(receiver.see(<[Request]>::len), 1);
    }
}

#[test]
fn a_receiver_that_never_responds_delays_the_end_only_briefly() {
    ends_without_a_response("otlp");
}

/// Returns the sum of the deltas of a series. A repeated request counts once.
fn added(requests: &[Request], series: &str) -> f64 {
    let mut seen: Vec<&[u8]> = Vec::new();
    let mut sum = 0.0;
    for request in requests.iter().filter(|request| !request.points.is_empty()) {
        if !seen.contains(&&request.body[..]) {
            seen.push(&request.body);
            let points = request.points.iter().filter(|point| point.series == series);
            sum += points.map(|point| point.number).sum::<f64>();
        }
    }
    sum
}

/// After a kill, the pending deltas are sent with the same bytes, so a receiver can recognize the
/// repetition.
#[test]
fn a_kill_repeats_an_unacknowledged_request_with_deltas_unchanged() {
    let home = Home::new();
    // The first daemon gets no response to the third request with new hits.
    let receiver = Receiver::start(&home, |before, request| {
        let has_hits = |one: &Request| one.points.iter().any(|point| point.series == "hits_total");
        let held = before.iter().filter(|one| has_hits(one)).count() == 2 && has_hits(request);
        if held { Reply::Status(503, "Retry-After: 3600\r\n", b"") } else { Reply::Taken }
    });
    let flags =
        ["--otlp", &receiver.url, "--otlp-interval", "100ms", "--otlp-temporality", "delta"];
    let daemon = home.start(&flags);
    let mut total = 0;
    for _ in 0..3 {
        total += 2;
        import(&daemon, total);
        let total = total as f64;
        wait_until("the total", || receiver.see(|all| added(all, "hits_total")) == total);
    }
    let held = receiver.see(|requests| requests.last().unwrap().body.clone());
    // Events during the wait are not lost.
    import(&daemon, total + 5);
    daemon.kill();
    let daemon = home.start(&flags);
    import(&daemon, total + 6);
    wait_until("the total", || receiver.see(|all| added(all, "hits_total")) == (total + 6) as f64);
    receiver.see(|requests| {
        assert_eq!(requests.iter().filter(|request| request.body == held).count(), 2);
        // Each delta begins at the end of the previous one.
        let hits = requests.iter().flat_map(|request| &request.points);
        let mut hits: Vec<_> = hits.filter(|point| point.series == "hits_total").collect();
        hits.dedup_by_key(|point| point.time_ns);
        assert!(hits.windows(2).all(|pair| pair[0].time_ns <= pair[1].start_ns), "{hits:?}");
        assert!(hits.iter().all(|point| point.start_ns < point.time_ns), "{hits:?}");
    });
    // A damaged file costs the events since the last snapshot, but nothing is counted twice.
    daemon.kill();
    let file = owed(&home);
    let mut bytes = fs::read(&file).unwrap();
    bytes[20] ^= 1;
    fs::write(file, bytes).unwrap();
    let daemon = home.start(&flags);
    daemon.wait_for("cannot read up to where a receiver has what was added");
    daemon.wait_for("the receiver takes data points");
    import(&daemon, total + 7);
    wait_until("the total", || receiver.see(|all| added(all, "hits_total")) == (total + 7) as f64);
}

/// If a receiver refuses all requests because of the sender, no growth is lost.
#[test]
fn deltas_that_were_refused_for_the_sender_come_later() {
    let home = Home::new();
    // We refuse everything at first, like a receiver with an expired token.
    let taken = Arc::new(Mutex::new(Vec::new()));
    let numbers = Arc::clone(&taken);
    let receiver = Receiver::start(&home, move |before, request| match before.len() {
        0 | 1 => Reply::Status(401, "", b""),
        2 => Reply::Status(302, "Location: /login\r\n", b""),
        _ => {
            let hits = request.points.iter().filter(|point| point.series == "hits_total");
            numbers.lock().unwrap().extend(hits.map(|point| point.number));
            Reply::Taken
        }
    });
    let flags =
        ["--otlp", &receiver.url, "--otlp-interval", "100ms", "--otlp-temporality", "delta"];
    let daemon = home.start(&flags);
    import(&daemon, 3);
    wait_until("a request", || receiver.see(<[Request]>::len) > 0);
    import(&daemon, 5);
    let sum = || taken.lock().unwrap().iter().sum::<f64>();
    wait_until("the total", || sum() == 5.0);
    import(&daemon, 6);
    wait_until("the total", || sum() == 6.0);
    daemon.wait_for("the receiver refuses data points; it gets what they have later");
    daemon.wait_for("the receiver takes data points");
}

/// Both daemons are killed in turn, and the receiver must end up with the sender's totals.
#[test]
fn another_daemon_has_the_same_totals_over_kills_and_outages() {
    const PORT: u16 = 18091;
    const SENT: &str = "quipu_otlp_output_last_sent_timestamp_seconds{";
    for temporality in ["cumulative", "delta"] {
        let (home, far) = (Home::new(), Home::new());
        let listen = format!("{}:{PORT}", far.host());
        let url = format!("http://{listen}");
        let receiver = || far.start(&["--listen", &listen]);
        let flags = ["--otlp", &url, "--otlp-interval", "100ms", "--otlp-temporality", temporality];
        let sender = || home.start(&flags);
        let same = |one: &Daemon, other: &Daemon| {
            let expected = shown(one);
            assert!(expected.len() > 10, "{expected:?}");
            let mut found = BTreeSet::new();
            let is_same = poll(|| {
                found = shown(other);
                (found == expected).then_some(())
            });
            let (missing, more) = (&expected - &found, &found - &expected);
            assert!(is_same.is_some(), "{temporality}: not {missing:#?} but {more:#?}");
            // Wait until the sender has the response, because a request without a response may
            // count twice.
            let text = || one.get("/metrics").text();
            let sent = || text().lines().find(|line| line.starts_with(SENT)).map(str::to_owned);
            let before = sent();
            wait_until("a response", || sent() != before);
        };
        let (mut daemon, mut taker) = (sender(), receiver());
        import(&daemon, 1);
        add(&daemon);
        add_of_programs(&daemon);
        same(&daemon, &taker);
        // The sender is killed.
        daemon.kill();
        daemon = sender();
        import(&daemon, 3);
        add(&daemon);
        add_of_programs(&daemon);
        same(&daemon, &taker);
        // The receiver is killed, and its state is kept.
        taker.kill();
        import(&daemon, 7);
        daemon.wait_for("OTLP export failed");
        add(&daemon);
        taker = receiver();
        same(&daemon, &taker);
        // Both are killed, and the sender continues to count.
        taker.kill();
        add(&daemon);
        add_of_programs(&daemon);
        let failed = || count(&daemon, "OTLP export failed") == 2;
        wait_until("another failure", failed);
        daemon.kill();
        daemon = sender();
        add(&daemon);
        import(&daemon, 9);
        daemon.wait_for("OTLP export failed");
        taker = receiver();
        same(&daemon, &taker);
        // Both stop in order.
        add(&daemon);
        let last = shown(&daemon);
        daemon.stop();
        assert_eq!(shown(&taker), last, "{temporality}");
        taker.stop();
    }
}

#[test]
fn the_old_switch_names_its_new_name() {
    let home = Home::new();
    home.expect_refusal(&["--otlp", "off"], 2, &["--otlp-input"]);
    let daemon = home.start(&["--otlp-input", "off"]);
    let fields = [("Content-Type", "application/json")];
    assert_eq!(daemon.post_body("/v1/metrics", &fields, b"{}").status, 404);
}

/// Two daemons that send to each other form a loop, which both must detect.
#[test]
fn data_points_that_come_back_are_refused() {
    const PORTS: [u16; 2] = [18095, 18096];
    for (length, temporality) in [(1, "cumulative"), (2, "cumulative"), (2, "delta")] {
        let home = Home::new();
        let address = |n: usize| format!("{}:{}", home.host(), PORTS[n % length]);
        let daemons: Vec<_> = (0..length)
            .map(|n| {
                let (url, state) = (format!("http://{}", address(n + 1)), format!("{n}.quipu"));
                let flags = ["--otlp", &url, "--otlp-interval", "100ms", "--otlp-temporality"];
                let more = [temporality, "--listen", &address(n), "--state", &state];
                home.start(&[&flags[..], &more[..]].concat())
            })
            .collect();
        import(&daemons[0], 1);
        import(&daemons[0], 5);
        // The first daemon to send determines which of them refuses.
        let refused = |daemon: &Daemon| {
            let text = daemon.get("/metrics").text();
            let mut lines = text.lines().filter(|line| line.contains(",code=\"409\"} "));
            lines.any(|line| line.starts_with("quipu_otlp_output_requests_total{"))
        };
        wait_until("refusals", || daemons.iter().any(refused));
        wait_until("the log", || daemons.iter().any(|one| count(one, "make a loop") > 0));
        // No daemon counted its own samples again.
        assert_eq!(daemons[0].sample("hits_total").to_bits(), 5_f64.to_bits());
        let all: Vec<_> = daemons.iter().map(shown).collect();
        let is_whole = |line: &String| ["hits_total 1", "hits_total 5"].contains(&&**line);
        assert!(all.iter().flatten().all(is_whole), "{all:?}");
    }
}
