//! Requests of many samples: prost can decode the input from our requests, and we can read requests
//! from prost. A real Prometheus accepts a remote write.

#![cfg(all(feature = "remote-write", feature = "otlp", feature = "snappy"))]
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

mod oracle;
#[path = "remote/otlp_points.rs"]
mod otlp_points;
#[path = "remote/otlp_written.rs"]
mod otlp_written;
#[path = "remote/written.rs"]
mod written;

use oracle::{otlp, v1, v2};
use prost::Message as _;
use quipu_wire::remote::{
    self,
    otlp::{AttributeValue, Otlp},
    write::{Entry, RemoteWrite1, RemoteWrite2, Series, SeriesType, WriteReader, WriteVersion},
};
use quipu_wire::{BatchTimer, Counter, Gauge, Message, MetricType, MetricUnion};

const TIME: i64 = 1_700_000_000_123;

type Labels = Vec<(String, String)>;
/// Labels, bits of the value, and time.
type Row = (Labels, u64, i64);

fn owned(labels: &[(&str, &str)]) -> Labels {
    labels.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
}

/// Labels, value and time.
type Input = (Vec<remote::Label<'static>>, f64, i64);

/// Returns samples in the order in which they are read back.
fn samples() -> Vec<Input> {
    let long: &'static str = Box::leak("x".repeat(70_000).into_boxed_str());
    vec![
        (vec![("__name__", "hits"), ("path", "/"), ("region", "eu")], 1.0, TIME),
        (vec![("__name__", "hits"), ("path", "/a"), ("region", "eu")], -0.0, -1),
        (vec![("__name__", "hits")], 0.0, 0),
        (vec![("A", "\u{82b1}"), ("__name__", "caf\u{e9} total")], f64::INFINITY, i64::MIN),
        (vec![("__name__", "long"), ("value", long)], 5e-324, i64::MAX),
        (vec![("__name__", "ended")], f64::from_bits(0x7ff0_0000_0000_0002), TIME),
    ]
}

const TIMES: &[f64] = &[1.0, 2.5, -4.0];

fn messages() -> [Message<'static>; 5] {
    let id = b"name=hits,region=eu";
    [
        Counter { id, value: 7 }.into(),
        Gauge { id: b"level", value: 0.5 }.into(),
        BatchTimer { id: b"type=grass,name=took", values: TIMES }.into(),
        BatchTimer { id: b"idle", values: &[] }.into(),
        MetricUnion { metric_type: MetricType::COUNTER, id, counter: -1, timer: &[], gauge: 0.0 }
            .into(),
    ]
}

/// Returns the rows that a remote write makes of the messages.
fn message_rows() -> Vec<Row> {
    let row = |labels: &[(&str, &str)], value: f64| (owned(labels), value.to_bits(), TIME);
    let hits = [("__name__", "hits"), ("region", "eu")];
    vec![
        row(&hits, 7.0),
        row(&[("__name__", "level")], 0.5),
        row(&[("__name__", "took_sum"), ("type", "grass")], -0.5),
        row(&[("__name__", "took_count"), ("type", "grass")], 3.0),
        row(&[("__name__", "idle_sum")], 0.0),
        row(&[("__name__", "idle_count")], 0.0),
        row(&hits, -1.0),
    ]
}

fn expected() -> Vec<Row> {
    let samples = samples().into_iter().map(|(l, value, time)| (owned(&l), value.to_bits(), time));
    samples.chain(message_rows()).collect()
}

fn ours_1() -> Vec<u8> {
    let mut request = RemoteWrite1::new();
    let mut out = Vec::new();
    request.finish(&mut out);
    assert!(out.is_empty() && request.is_empty());
    for (mut labels, value, time) in samples() {
        labels.push(("nothing", ""));
        labels.reverse();
        request.push(&labels, value, time).unwrap();
    }
    for message in messages() {
        request.append(&message, TIME).unwrap();
    }
    let len = request.len();
    assert!(!request.is_empty());
    request.finish(&mut out);
    assert_eq!((out.len(), request.len()), (len, 0));
    out
}

fn ours_2() -> Vec<u8> {
    let mut request = RemoteWrite2::new();
    // A finished request does not affect the next one.
    request.push(&[("old", "text")], 1.0, 1).unwrap();
    request.finish(&mut Vec::new());
    for (labels, value, time) in samples() {
        request.push(&labels, value, time).unwrap();
    }
    for message in messages() {
        request.append(&message, TIME).unwrap();
    }
    let mut out = Vec::new();
    request.finish(&mut out);
    assert!(request.is_empty());
    out
}

#[test]
fn prost_reads_remote_write_1() {
    let read = v1::WriteRequest::decode(&ours_1()[..]).unwrap();
    let rows: Vec<Row> = read
        .timeseries
        .iter()
        .map(|series| {
            let labels = series.labels.iter().map(|l| (l.name.clone(), l.value.clone())).collect();
            let [sample] = &series.samples[..] else { panic!() };
            (labels, sample.value.to_bits(), sample.timestamp)
        })
        .collect();
    assert_eq!(rows, expected());
}

#[test]
fn prost_reads_remote_write_2() {
    let read = v2::Request::decode(&ours_2()[..]).unwrap();
    assert_eq!(read.symbols[0], "");
    let mut unique = read.symbols.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), read.symbols.len());
    let text = |number: &u32| read.symbols[*number as usize].clone();
    let rows: Vec<Row> = read
        .timeseries
        .iter()
        .map(|series| {
            let labels =
                series.labels_refs.chunks(2).map(|pair| (text(&pair[0]), text(&pair[1]))).collect();
            let [sample] = &series.samples[..] else { panic!() };
            (labels, sample.value.to_bits(), sample.timestamp)
        })
        .collect();
    assert_eq!(rows, expected());
    let types: Vec<i32> =
        read.timeseries.iter().map(|s| s.metadata.as_ref().map_or(0, |m| m.r#type)).collect();
    assert_eq!(types, [0, 0, 0, 0, 0, 0, 1, 2, 2, 2, 2, 2, 1]);
}

#[test]
fn prost_writes_the_same() {
    let (mut one, mut two) = (RemoteWrite1::new(), RemoteWrite2::new());
    // prost loses the sign of -0.
    for (labels, value, time) in samples().into_iter().filter(|sample| sample.1 != 0.0) {
        one.push(&labels, value, time).unwrap();
        two.push_typed(&labels, SeriesType::Gauge, value, time).unwrap();
    }
    let mut bytes = Vec::new();
    one.finish(&mut bytes);
    assert!(v1::WriteRequest::decode(&bytes[..]).unwrap().encode_to_vec() == bytes);
    bytes.clear();
    two.finish(&mut bytes);
    assert!(v2::Request::decode(&bytes[..]).unwrap().encode_to_vec() == bytes);
}

/// Calls the function with each series. All labels must be valid.
fn read_write(
    version: WriteVersion,
    request: &[u8],
    mut each: impl FnMut(&Series<'_, '_>),
) -> Result<(), quipu_wire::Error> {
    let mut reader = WriteReader::new(version, request)?;
    while let Some(entry) = reader.next() {
        if let Entry::Series(series) = entry? {
            assert_eq!(series.fault, None);
            each(&series);
        }
    }
    assert_eq!(reader.position(), request.len());
    Ok(())
}

fn rows_1(request: &[u8]) -> Vec<Row> {
    let mut rows = vec![];
    read_write(WriteVersion::One, request, |series| {
        let [sample] = series.samples else { panic!() };
        rows.push((owned(series.labels), sample.value.to_bits(), sample.timestamp_ms));
    })
    .unwrap();
    rows
}

#[test]
fn written_requests_are_read() {
    assert_eq!(rows_1(&ours_1()), expected());
    let mut rows = vec![];
    let mut types = vec![];
    read_write(WriteVersion::Two, &ours_2(), |series| {
        let [sample] = series.samples else { panic!() };
        rows.push((owned(series.labels), sample.value.to_bits(), sample.timestamp_ms));
        types.push(series.metadata.series_type);
    })
    .unwrap();
    assert_eq!(rows, expected());
    assert_eq!(types[5..8], [SeriesType::Unknown, SeriesType::Counter, SeriesType::Gauge]);
}

#[test]
fn labels_that_a_series_cannot_have_are_refused() {
    for labels in [
        &[][..],
        &[("a", "")],
        &[("", "x")],
        &[("a", "1"), ("a", "2")],
        &[("b", "1"), ("a", "1"), ("b", "1")],
    ] {
        let (mut one, mut two, mut otlp) = (RemoteWrite1::new(), RemoteWrite2::new(), Otlp::new());
        assert!(one.push(labels, 1.0, 1).is_err() && one.is_empty(), "{labels:?}");
        assert!(two.push(labels, 1.0, 1).is_err() && two.is_empty(), "{labels:?}");
        assert!(otlp.push(labels, 1.0, 1).is_err() && otlp.is_empty(), "{labels:?}");
    }
    for message in [
        Counter { id: b"\xff", value: 1 }.into(),
        Counter { id: b"", value: 1 }.into(),
        MetricUnion { metric_type: MetricType(0), id: b"a", counter: 0, timer: &[], gauge: 0.0 }
            .into(),
    ] {
        assert!(RemoteWrite1::new().append(&message, TIME).is_err());
        assert!(RemoteWrite2::new().append(&message, TIME).is_err());
        assert!(Otlp::new().append(&message, TIME).is_err());
    }
    assert!(Otlp::new().push(&[("__name__", "a")], 1.0, -1).is_err());
    assert!(Otlp::new().push(&[("a", "b")], 1.0, 1).is_err());
}

#[test]
fn a_series_does_not_depend_on_those_before_it() {
    let sets: &[&[(&str, &str)]] = &[
        &[("__name__", "hits"), ("path", "/a"), ("region", "eu")],
        &[("__name__", "hits"), ("path", "/b"), ("region", "eu")],
        &[("__name__", "hits"), ("path", ""), ("region", "eu")],
        &[("__name__", "hits"), ("path", "eu"), ("region", "/a")],
        &[("__name__", "hits"), ("path", "/a")],
        &[("region", "eu"), ("path", "/a"), ("__name__", "hits")],
        &[("__name__", "path"), ("region", "region"), ("region0", "eu")],
        &[("__name__", "hits"), ("path", "/a"), ("path", "/b")],
        &[("__name__", ""), ("path", "")],
        &[("", "hits"), ("path", "/a"), ("region", "eu")],
    ];
    let rows = |request: &mut RemoteWrite2| {
        let (mut bytes, mut rows) = (vec![], vec![]);
        request.finish(&mut bytes);
        let known = read_write(WriteVersion::Two, &bytes, |series| {
            rows.push((owned(series.labels), series.metadata.help.to_owned()));
        });
        known.map(|()| rows).unwrap()
    };
    let mut all = RemoteWrite2::new();
    // Each set follows each other set, in several requests.
    for first in sets {
        let mut expected = vec![];
        for set in sets.iter().flat_map(|second| [first, second]) {
            let help = ["", "A text.", "Hits."][expected.len() % 3];
            let metadata = remote::write::Metadata::new(SeriesType::Counter, help, "");
            let sample = remote::write::Sample::new(1.0, TIME, Some(TIME - 1));
            let mut alone = RemoteWrite2::new();
            let is_alone = alone.push_sample(set, &metadata, &sample).is_ok();
            let is_added = all.push_sample(set, &metadata, &sample).is_ok();
            assert_eq!(is_added, is_alone, "{set:?}");
            if is_alone {
                expected.extend(rows(&mut alone));
            }
        }
        assert_eq!(rows(&mut all), expected, "{first:?}");
    }
}

/// Reads any bytes with all readers. Returns which of them accept the bytes.
fn read_all(bytes: &[u8]) -> [bool; 3] {
    [
        written::read_all(WriteVersion::One, bytes),
        written::read_all(WriteVersion::Two, bytes),
        remote::otlp::read_metrics_request(bytes, |_| ()).is_ok(),
    ]
}

#[test]
fn any_bytes_are_read_or_refused() {
    let all = [
        written::full_1().encode_to_vec(),
        written::full_2().encode_to_vec(),
        otlp_points::request().encode_to_vec(),
    ];
    for (index, bytes) in all.iter().enumerate() {
        assert!(read_all(bytes)[index]);
        for len in 0..bytes.len() {
            read_all(&bytes[..len]);
        }
        let mut bytes = bytes.clone();
        for at in 0..bytes.len() {
            for bit in 0..8 {
                bytes[at] ^= 1 << bit;
                read_all(&bytes);
                bytes[at] ^= 1 << bit;
            }
        }
    }
    // Lengths of 2^63 and more.
    for tag in [0x0a, 0x12, 0x22, 0x2a] {
        let bytes = [tag, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
        assert_eq!(read_all(&bytes), [false; 3]);
    }
}

fn ours_otlp() -> Vec<u8> {
    let mut request = Otlp::new();
    request.set_resource(&[("service.name", "pokedex")]);
    request.push(&[("room", "a"), ("__name__", "level"), ("b", "c")], -0.0, TIME).unwrap();
    request.set_start(TIME - 1000).unwrap();
    for message in messages() {
        request.append(&message, TIME).unwrap();
    }
    assert!(!request.is_empty());
    assert_ne!(request.len(), 0);
    let mut out = Vec::new();
    request.finish(&mut out);
    assert!(request.is_empty());
    let mut nothing = Vec::new();
    request.finish(&mut nothing);
    assert!(nothing.is_empty());
    out
}

fn attributes(labels: &[(&str, &str)]) -> Vec<otlp::KeyValue> {
    labels
        .iter()
        .map(|(key, value)| {
            let value = Some(otlp::AnyValueKind::Text(value.to_string()));
            otlp::KeyValue { key: key.to_string(), value: Some(otlp::AnyValue { value }) }
        })
        .collect()
}

#[test]
fn prost_reads_otlp() {
    const NANOS: u64 = TIME as u64 * 1_000_000;
    const START: u64 = (TIME as u64 - 1000) * 1_000_000;
    let number = |labels: &[_], start_time_unix_nano, value| otlp::NumberDataPoint {
        attributes: attributes(labels),
        start_time_unix_nano,
        time_unix_nano: NANOS,
        value: Some(value),
        ..Default::default()
    };
    let metric = |name: &str, data| otlp::Metric {
        name: name.into(),
        data: Some(data),
        ..Default::default()
    };
    let gauge = |name, labels: &[_], value| {
        let point = number(labels, 0, otlp::NumberValue::AsDouble(value));
        metric(name, otlp::Data::Gauge(otlp::Gauge { data_points: vec![point] }))
    };
    let sum = |name, labels: &[_], value| {
        let sum = otlp::Sum {
            data_points: vec![number(labels, START, otlp::NumberValue::AsInt(value))],
            aggregation_temporality: 2,
            is_monotonic: true,
        };
        metric(name, otlp::Data::Sum(sum))
    };
    let histogram = |name, labels: &[_], count, sum, min, max| {
        let point = otlp::HistogramDataPoint {
            attributes: attributes(labels),
            start_time_unix_nano: START,
            time_unix_nano: NANOS,
            count,
            sum: Some(sum),
            min,
            max,
            ..Default::default()
        };
        let data_points = vec![point];
        let histogram = otlp::Histogram { data_points, aggregation_temporality: 1 };
        metric(name, otlp::Data::Histogram(histogram))
    };
    let resource = otlp::Resource {
        attributes: attributes(&[("service.name", "pokedex")]),
        dropped_attributes_count: 0,
    };
    let metrics = vec![
        gauge("level", &[("b", "c"), ("room", "a")], -0.0),
        sum("hits", &[("region", "eu")], 7),
        gauge("level", &[], 0.5),
        histogram("took", &[("type", "grass")], 3, -0.5, Some(-4.0), Some(2.5)),
        histogram("idle", &[], 0, 0.0, None, None),
        sum("hits", &[("region", "eu")], -1),
    ];
    let expected = otlp::Request {
        resource_metrics: vec![otlp::ResourceMetrics {
            resource: Some(resource),
            scope_metrics: vec![otlp::ScopeMetrics { metrics, ..Default::default() }],
            schema_url: String::new(),
        }],
    };
    assert_eq!(otlp::Request::decode(&ours_otlp()[..]).unwrap(), expected);
}

#[test]
fn written_otlp_requests_are_read() {
    let mut seen = vec![];
    remote::otlp::read_metrics_request(&ours_otlp(), |point| {
        assert_eq!(point.resource.attributes, [("service.name", AttributeValue::Text("pokedex"))]);
        assert_eq!(point.time_ns, Some(TIME as u64 * 1_000_000));
        seen.push(format!("{} {:?} {:?}", point.metric.name, point.attributes, point.value));
    })
    .unwrap();
    assert_eq!(seen.len(), 6);
    assert_eq!(
        seen[1],
        "hits [(\"region\", Text(\"eu\"))] \
         Sum { value: Some(Int(7)), monotonic: true, temporality: Cumulative }"
    );
}

/// A Prometheus that accepts remote writes. Dropping this stops it.
struct Prometheus {
    child: Child,
    address: SocketAddr,
    directory: tempfile::TempDir,
}

impl Prometheus {
    fn start() -> Prometheus {
        let directory = tempfile::tempdir().unwrap();
        let config = directory.path().join("prometheus.yml");
        std::fs::write(&config, "global: {}\n").unwrap();
        // The port is free again at once. Another process is unlikely to take it within this
        // moment.
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let log = std::fs::File::create(directory.path().join("log")).unwrap();
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", directory.path().join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .arg("--web.enable-remote-write-receiver")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("prometheus; `make test` installs it");
        let prometheus = Prometheus { child, address, directory };
        let deadline = Instant::now() + Duration::from_secs(120);
        while ureq::get(prometheus.url("/-/ready")).call().is_err() {
            assert!(Instant::now() < deadline, "{}", prometheus.log());
            std::thread::sleep(Duration::from_millis(50));
        }
        prometheus
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap()
    }

    /// Returns the values of a query by their labels.
    fn query(&self, query: &str) -> BTreeMap<Labels, String> {
        let mut response =
            ureq::get(self.url("/api/v1/query")).query("query", query).call().unwrap();
        let answer = response.body_mut().read_to_string().unwrap();
        let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
        let of_series = |series: &serde_json::Value| {
            let labels = series["metric"].as_object().unwrap().iter();
            let labels = labels.map(|(k, v)| (k.clone(), v.as_str().unwrap().to_string()));
            (labels.collect(), series["value"][1].as_str().unwrap().to_string())
        };
        answer["data"]["result"].as_array().unwrap().iter().map(of_series).collect()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_real_prometheus_takes_a_remote_write() {
    let prometheus = Prometheus::start();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis() as i64;
    let mut request = RemoteWrite1::new();
    request.push(&[("room", "\u{82b1}"), ("__name__", "temperature")], 21.5, now).unwrap();
    request.push(&[("__name__", "temperature"), ("room", "b")], f64::INFINITY, now).unwrap();
    for message in messages() {
        // A series can contain only one sample per time, and the last message belongs to the first
        // one's series.
        request.append(&message, now - 1).unwrap();
        if matches!(message, Message::BatchTimer(timer) if timer.values.is_empty()) {
            break;
        }
    }
    let mut bytes = Vec::new();
    request.finish(&mut bytes);
    let mut body = Vec::new();
    remote::snappy::compress(&bytes, &mut body).unwrap();
    let response = ureq::post(prometheus.url("/api/v1/write"))
        .header("Content-Type", "application/x-protobuf")
        .header("Content-Encoding", "snappy")
        .header("X-Prometheus-Remote-Write-Version", "0.1.0")
        .send(&body[..])
        .unwrap_or_else(|error| panic!("{error}\n{}", prometheus.log()));
    assert_eq!(response.status(), 204);
    for (query, labels, value) in [
        (
            "temperature{room=\"\u{82b1}\"}",
            &[("__name__", "temperature"), ("room", "\u{82b1}")][..],
            "21.5",
        ),
        ("temperature{room=\"b\"}", &[("__name__", "temperature"), ("room", "b")], "+Inf"),
        ("hits", &[("__name__", "hits"), ("region", "eu")], "7"),
        ("level", &[("__name__", "level")], "0.5"),
        ("took_sum", &[("__name__", "took_sum"), ("type", "grass")], "-0.5"),
        ("took_count", &[("__name__", "took_count"), ("type", "grass")], "3"),
        ("idle_count", &[("__name__", "idle_count")], "0"),
    ] {
        let expected = BTreeMap::from([(owned(labels), value.to_string())]);
        assert_eq!(prometheus.query(query), expected, "{query}\n{}", prometheus.log());
    }
}
