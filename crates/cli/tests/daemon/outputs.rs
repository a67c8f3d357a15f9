//! Tests of the remote write output. The receiver does what the test specifies: it accepts samples,
//! refuses them, fails, or cuts the connection.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;

use quipu_wire::remote::{
    self, Label,
    write::{Entry, SeriesType, WriteReader, WriteVersion},
};

use crate::common::{Daemon, Home, Received, program, wait_until};
use crate::kept::Prometheus;

/// The response of a receiver to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// Accepts the samples, and reports their number for a 2.0 request.
    Taken,
    /// This status, with additional header fields.
    Status(u16, &'static str),
    /// A closed connection.
    Cut,
}

/// A received request.
pub(crate) struct Request {
    /// The number of the connection.
    pub(crate) connection: usize,
    fields: HashMap<String, String>,
    body: Vec<u8>,
    pub(crate) version: WriteVersion,
    pub(crate) is_zstd: bool,
    pub(crate) samples: Vec<Sample>,
    families: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sample {
    /// The name and the labels, like in the text format.
    pub(crate) series: String,
    /// The value, or the sum of a histogram.
    pub(crate) value: f64,
    pub(crate) timestamp_ms: i64,
    start_ms: Option<i64>,
    series_type: SeriesType,
    pub(crate) is_stale: bool,
    is_histogram: bool,
}

/// A server that records all requests.
pub(crate) struct Receiver {
    pub(crate) url: String,
    pub(crate) requests: Arc<Mutex<Vec<Request>>>,
}

impl Receiver {
    /// Starts a server. `reply` gets the requests so far and the new one.
    pub(crate) fn start(
        home: &Home,
        port: u16,
        reply: impl Fn(&[Request], &Request) -> Reply + Send + Sync + 'static,
    ) -> Receiver {
        Self::start_slow(home, port, || (), reply)
    }

    /// Starts a server at a fixed address, which no other test uses.
    pub(crate) fn bind(
        address: (&str, u16),
        reply: impl Fn(&[Request], &Request) -> Reply + Send + Sync + 'static,
    ) -> Receiver {
        Self::serve(TcpListener::bind(address).unwrap(), || (), reply)
    }

    /// Starts a server that calls a function before each reply. Other connections continue in the
    /// meantime.
    pub(crate) fn start_slow(
        home: &Home,
        port: u16,
        wait: impl Fn() + Send + Sync + 'static,
        reply: impl Fn(&[Request], &Request) -> Reply + Send + Sync + 'static,
    ) -> Receiver {
        Self::serve(TcpListener::bind((home.host(), port)).unwrap(), wait, reply)
    }

    fn serve(
        listener: TcpListener,
        wait: impl Fn() + Send + Sync + 'static,
        reply: impl Fn(&[Request], &Request) -> Reply + Send + Sync + 'static,
    ) -> Receiver {
        let url = format!("http://{}/api/v1/write", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (kept, handlers) = (Arc::clone(&requests), Arc::new((wait, reply)));
        thread::spawn(move || {
            for (connection, stream) in listener.incoming().enumerate() {
                let (kept, handlers) = (Arc::clone(&kept), Arc::clone(&handlers));
                thread::spawn(move || {
                    serve(connection, stream.unwrap(), &kept, &handlers.0, &handlers.1);
                });
            }
        });
        Receiver { url, requests }
    }

    /// Calls `look` with all requests so far.
    pub(crate) fn see<T>(&self, look: impl FnOnce(&[Request]) -> T) -> T {
        look(&self.requests.lock().unwrap())
    }

    /// Returns the last sample of a series.
    fn last(&self, series: &str) -> Option<Sample> {
        self.see(|requests| {
            let mut samples = requests.iter().rev().flat_map(|request| &request.samples);
            samples.find(|sample| sample.series == series).cloned()
        })
    }

    #[track_caller]
    pub(crate) fn expect(&self, series: &str, value: f64) -> Sample {
        let mut last = None;
        wait_until(&format!("{series} at {value}"), || {
            last = self.last(series);
            last.as_ref().is_some_and(|last| last.value == value)
        });
        last.unwrap()
    }
}

/// Serves a connection until it ends.
fn serve(
    connection: usize,
    stream: TcpStream,
    kept: &Mutex<Vec<Request>>,
    wait: &impl Fn(),
    reply: &impl Fn(&[Request], &Request) -> Reply,
) {
    let mut input = BufReader::new(stream.try_clone().unwrap());
    let mut output = stream;
    while let Some(request) = receive(connection, &mut input) {
        wait();
        let mut requests = kept.lock().unwrap();
        let reply = reply(&requests, &request);
        let samples = request.samples.len();
        requests.push(request);
        drop(requests);
        let (status, fields) = match reply {
            Reply::Taken => {
                (204, format!("X-Prometheus-Remote-Write-Samples-Written: {samples}\r\n"))
            }
            Reply::Status(status, fields) => (status, fields.to_owned()),
            Reply::Cut => return,
        };
        let text = format!("HTTP/1.1 {status} X\r\n{fields}Content-Length: 0\r\n\r\n");
        // We ignore the error, because the daemon may have been killed.
        let _ = output.write_all(text.as_bytes());
    }
}

/// Reads the next request; `None` after the last one.
fn receive(connection: usize, input: &mut impl BufRead) -> Option<Request> {
    let Received { line, fields, body } = Received::read(input)?;
    assert_eq!(line, "POST /api/v1/write HTTP/1.1");
    let is_zstd = fields["content-encoding"] == "zstd";
    assert!(is_zstd || fields["content-encoding"] == "snappy");
    let (content_type, version) = match &*fields["x-prometheus-remote-write-version"] {
        "0.1.0" => ("application/x-protobuf", WriteVersion::One),
        _ => ("application/x-protobuf;proto=io.prometheus.write.v2.Request", WriteVersion::Two),
    };
    assert_eq!(fields["content-type"], content_type);
    let is_of_victoria = fields.get("x-victoriametrics-remote-write-version");
    assert_eq!(is_of_victoria.is_some(), is_zstd && version == WriteVersion::One);
    let mut plain = Vec::new();
    match is_zstd {
        true => plain = zstd::stream::decode_all(&body[..]).unwrap(),
        false => remote::snappy::uncompress(&body, 64 << 20, &mut plain).unwrap(),
    }
    let (samples, families) = read(version, &plain);
    Some(Request { connection, fields, body, version, is_zstd, samples, families })
}

/// Returns the samples of a request, and the names of the families that 1.0 describes.
fn read(version: WriteVersion, request: &[u8]) -> (Vec<Sample>, Vec<String>) {
    let mut reader = WriteReader::new(version, request).unwrap();
    let (mut samples, mut families) = (Vec::new(), Vec::new());
    while let Some(entry) = reader.next() {
        let series = match entry.unwrap() {
            Entry::Series(series) => series,
            Entry::Family(family) => {
                families.push(family.name.to_owned());
                continue;
            }
            _ => continue,
        };
        assert_eq!(series.fault, None);
        let mut add = |value, timestamp_ms, start_ms, is_stale, is_histogram| {
            let (series_type, series) = (series.metadata.series_type, shown(series.labels));
            samples.push(Sample {
                series,
                value,
                timestamp_ms,
                start_ms,
                series_type,
                is_stale,
                is_histogram,
            });
        };
        for sample in series.samples {
            add(sample.value, sample.timestamp_ms, sample.start_ms, sample.is_stale(), false);
        }
        for histogram in series.histograms().map(Result::unwrap) {
            let is_stale = histogram.is_stale();
            add(histogram.sum, histogram.timestamp_ms, histogram.start_ms, is_stale, true);
        }
    }
    (samples, families)
}

/// Formats a series, for example `level{region="us"}`.
fn shown(labels: &[Label<'_>]) -> String {
    let name = labels.iter().find(|label| label.0 == "__name__").unwrap().1;
    let labels = labels.iter().filter(|label| label.0 != "__name__");
    let labels: Vec<String> = labels.map(|(name, value)| format!("{name}={value:?}")).collect();
    if labels.is_empty() { name.to_owned() } else { format!("{name}{{{}}}", labels.join(",")) }
}

/// Imports the total of a counter.
pub(crate) fn import(daemon: &Daemon, total: u64) {
    let text = format!("# TYPE hits_total counter\nhits_total {total}\n");
    let response = daemon.post_body("/api/v1/import/prometheus", &[], text.as_bytes());
    assert!(response.status < 300, "{response:?}");
}

pub(crate) fn count(daemon: &Daemon, message: &str) -> usize {
    daemon.log().iter().filter(|line| line.contains(message)).count()
}

const TEXT: &str = "\
# HELP hits_total Hits.
# TYPE hits_total counter
hits_total{path=\"/a b\"} 5
# TYPE level gauge
level{region=\"us\"} -1.5
# TYPE took_seconds histogram
took_seconds_bucket{le=\"0.5\"} 1
took_seconds_bucket{le=\"1\"} 3
took_seconds_bucket{le=\"+Inf\"} 4
took_seconds_sum 7.5
took_seconds_count 4
";

#[test]
fn all_series_of_the_page_are_sent() {
    let home = Home::new();
    let receiver = Receiver::start(&home, 0, |_, _| Reply::Taken);
    let other = Receiver::start(&home, 0, |_, _| Reply::Taken);
    fs::create_dir(home.path("watched")).unwrap();
    let mut shell = home.command();
    shell.args(["inc", "--file", "watched/cron.quipu", "jobs_total", "3"]);
    assert!(home.finish(shell).status.success());
    let daemon = home.start(&[
        "--segments",
        "watched",
        "--remote-write",
        &receiver.url,
        "--remote-write",
        &other.url,
        "--remote-write-interval",
        "100ms",
        "--external-label",
        "region=eu",
    ]);
    let response = daemon.post_body("/api/v1/import/prometheus", &[], TEXT.as_bytes());
    assert!(response.status < 300, "{response:?}");
    let hits = receiver.expect("hits_total{path=\"/a b\",region=\"eu\"}", 5.0);
    assert_eq!((hits.series_type, hits.timestamp_ms % 100), (SeriesType::Counter, 0));
    // The counter began when its first sample arrived, which may be after the snapshot was due.
    wait_until("a start", || receiver.last(&hits.series).unwrap().start_ms.is_some());
    for (series, value) in [
        ("level{region=\"us\"}", -1.5),
        ("took_seconds_bucket{le=\"0.5\",region=\"eu\"}", 1.0),
        ("took_seconds_bucket{le=\"1.0\",region=\"eu\"}", 3.0),
        ("took_seconds_bucket{le=\"+Inf\",region=\"eu\"}", 4.0),
        ("took_seconds_sum{region=\"eu\"}", 7.5),
        ("took_seconds_count{region=\"eu\"}", 4.0),
        ("quipu_keys_capacity{region=\"eu\"}", 16.0),
        ("jobs_total{region=\"eu\",segment=\"cron\"}", 3.0),
    ] {
        receiver.expect(series, value);
        other.expect(series, value);
    }
    let name = format!("receiver=\"{}\"", receiver.url);
    // A response is counted after the receiver has sent it.
    let sample = |metric: &str| daemon.sample(&format!("quipu_remote_write_{metric}{{{name}}}"));
    wait_until("a count", || sample("samples_sent_total") > 0.0 && sample("version") == 2.0);
    assert!(!daemon.get("/metrics").text().contains("quipu_remote_write_samples_failed_total{"));
}

/// The samples of the last snapshot are incomplete if one of its requests is missing.
#[test]
fn a_snapshot_has_a_push_whole_or_not_at_all() {
    let home = Home::new();
    fs::create_dir(home.path("segments")).unwrap();
    for more in [&[][..], &["--segments", "segments"]] {
        let receiver = Receiver::start(&home, 0, |_, _| Reply::Taken);
        let output = ["--remote-write", &receiver.url, "--remote-write-interval", "100ms"];
        let daemon = home.start(&[&output[..], more].concat());
        // More series than one step changes. The push replaces one series.
        let body = |value: usize| -> String {
            let own = format!("own{{n=\"{value}\"}} {value}\n");
            (0..1500).map(|n| format!("x{{n=\"{n}\"}} {value}\n")).collect::<String>() + &own
        };
        let (mut pushes, mut client) = (0, daemon.connect());
        let mut seen = BTreeSet::new();
        wait_until("snapshots between pushes", || {
            for _ in 0..10 {
                pushes += 1;
                let body = body(pushes);
                let response = client.post("/metrics/job/a", &[], body.as_bytes()).unwrap();
                assert_eq!(response.status, 200);
            }
            receiver.see(|requests| {
                let mut snapshots = by_time(requests);
                snapshots.pop_last();
                for (time, requests) in snapshots {
                    let samples = requests.iter().flat_map(|request| &request.samples);
                    let of_group = samples
                        .filter(|sample| !sample.is_stale && sample.series.starts_with("x{"));
                    let values: Vec<f64> = of_group.map(|sample| sample.value).collect();
                    assert!([0, 1500].contains(&values.len()), "{time}: {}", values.len());
                    assert!(values.iter().all(|value| *value == values[0]), "{time}: {values:?}");
                    seen.extend(values.first().map(|value| *value as usize));
                }
            });
            seen.len() > 5
        });
        daemon.kill();
    }
}

/// A series that disappears from the page gets a single staleness marker.
#[test]
fn a_series_that_is_gone_gets_a_mark_of_its_end() {
    let home = Home::new();
    let receiver = Receiver::start(&home, 0, |_, _| Reply::Taken);
    let daemon = home.start(&["--remote-write", &receiver.url, "--remote-write-interval", "100ms"]);
    let group = "/metrics/job/batch";
    let response = daemon.post_body(group, &[], b"# TYPE level gauge\nlevel 2\n");
    assert!(response.status < 300, "{response:?}");
    let level = receiver.expect("level{job=\"batch\"}", 2.0);
    assert!(daemon.connect().request("DELETE", group).unwrap().status < 300);
    wait_until("a mark", || receiver.last(&level.series).unwrap().is_stale);
    let marks = || {
        receiver.see(|requests| {
            let samples = requests.iter().flat_map(|request| &request.samples);
            samples.filter(|sample| sample.series == level.series && sample.is_stale).count()
        })
    };
    // The series is marked as stale only once.
    let before = receiver.see(<[Request]>::len);
    wait_until("more requests", || receiver.see(<[Request]>::len) > before + 3);
    assert_eq!(marks(), 1);
}

/// If a snapshot is only sent in part, the staleness markers of the rest must not get lost.
#[test]
fn a_mark_is_kept_while_a_request_of_each_snapshot_fails() {
    let home = Home::new();
    let has = |request: &Request, series: &str| {
        request.samples.iter().any(|sample| sample.series == series)
    };
    let receiver =
        Receiver::start(&home, 0, move |_, request| match has(request, "filler{n=\"0\"}") {
            true => Reply::Status(500, ""),
            false => Reply::Taken,
        });
    let daemon = home.start(&["--remote-write", &receiver.url, "--remote-write-interval", "1s"]);
    let text = (0..25_000).map(|n| format!("filler{{n=\"{n}\"}} 1\n")).collect::<String>();
    let text = format!("# TYPE filler gauge\n{text}");
    let response = daemon.post_body("/api/v1/import/prometheus", &[], text.as_bytes());
    assert!(response.status < 300, "{response:?}");
    wait_until("a failure", || {
        receiver.see(|requests| requests.iter().any(|one| has(one, "filler{n=\"0\"}")))
    });
    let group = "/metrics/job/batch";
    let response = daemon.post_body(group, &[], b"# TYPE level gauge\nlevel 2\n");
    assert!(response.status < 300, "{response:?}");
    let level = receiver.expect("level{job=\"batch\"}", 2.0);
    assert!(daemon.connect().request("DELETE", group).unwrap().status < 300);
    wait_until("a mark", || receiver.last(&level.series).unwrap().is_stale);
}

/// Groups the requests by time, in order.
fn by_time(requests: &[Request]) -> BTreeMap<i64, Vec<&Request>> {
    let mut by_time: BTreeMap<i64, Vec<&Request>> = BTreeMap::new();
    for request in requests {
        by_time.entry(request.samples[0].timestamp_ms).or_default().push(request);
    }
    by_time
}

/// A retry contains the same bytes, because receivers recognize repeated requests by their bytes.
#[test]
fn a_request_is_repeated_unchanged() {
    let home = Home::new();
    let receiver = Receiver::start(&home, 0, |before, request| {
        let time = |request: &Request| request.samples[0].timestamp_ms;
        match before.iter().filter(|other| time(other) == time(request)).count() {
            0 => Reply::Status(500, ""),
            1 => Reply::Cut,
            2 => Reply::Status(429, "Retry-After: 0\r\n"),
            _ => Reply::Taken,
        }
    });
    let daemon = home.start(&["--remote-write", &receiver.url, "--remote-write-interval", "3s"]);
    import(&daemon, 1);
    wait_until("four attempts", || {
        // Import again, because the daemon's own totals change all the time.
        import(&daemon, 1);
        receiver.see(|requests| by_time(requests).values().any(|attempts| attempts.len() >= 4))
    });
    receiver.see(|requests| {
        for (time, attempts) in by_time(requests) {
            assert!(attempts.iter().all(|other| other.body == attempts[0].body), "{time}");
        }
    });
    let retried = "quipu_remote_write_samples_retried_total";
    assert!(daemon.sample(&format!("{retried}{{receiver=\"{}\"}}", receiver.url)) > 0.0);
    daemon.wait_for("the receiver takes samples");
    // Only the change is logged, not each attempt.
    let logged = count(&daemon, "remote write fails");
    assert!(logged <= receiver.see(|requests| by_time(requests).len()), "{logged}");
}

/// A receiver that refuses version 2.0 gets the same samples in version 1.0, and stays with this
/// version.
#[test]
fn receivers_of_1_0_get_the_same_samples_in_1_0() {
    for reply in [Reply::Status(415, ""), Reply::Status(204, ""), Reply::Status(400, "")] {
        let home = Home::new();
        let receiver = Receiver::start(&home, 0, move |_, request| match request.version {
            WriteVersion::One => Reply::Status(204, ""),
            _ => reply,
        });
        let flags = ["--remote-write", &receiver.url, "--remote-write-interval", "200ms"];
        let daemon = home.start(&flags);
        import(&daemon, 4);
        let is_plain = |hits: Sample| hits.value == 4.0 && hits.series_type == SeriesType::Unknown;
        wait_until("1.0", || receiver.last("hits_total").is_some_and(is_plain));
        receiver.see(|requests| {
            let first = requests.iter().position(|request| request.version == WriteVersion::One);
            let first = first.unwrap();
            // The first 1.0 request repeats the samples of the previous request, and all later
            // requests are in 1.0.
            let plain = |request: &Request| {
                let samples = request.samples.iter().cloned();
                let plain = samples.map(|sample| (sample.series, sample.value.to_bits()));
                plain.collect::<Vec<_>>()
            };
            assert_eq!(plain(&requests[first]), plain(&requests[first - 1]), "{reply:?}");
            let time = |request: &Request| request.samples[0].timestamp_ms;
            assert_eq!(time(&requests[first]), time(&requests[first - 1]));
            assert!(requests[first..].iter().all(|other| other.version == WriteVersion::One));
            let last = requests.last().unwrap();
            assert!(last.families.iter().any(|name| name == "hits_total"), "{:?}", last.families);
            assert!(last.families.iter().any(|name| name == "quipu_http_request_duration_seconds"));
        });
        let version = format!("quipu_remote_write_version{{receiver=\"{}\"}}", receiver.url);
        wait_until("a version", || daemon.sample(&version) == 1.0);
    }
}

/// A refusal that concerns the samples drops the request, because a retry would be refused too.
#[test]
fn refused_samples_are_not_sent_again() {
    let home = Home::new();
    let receiver = Receiver::start(&home, 0, |before, _| match before.len() {
        3..6 => Reply::Status(400, ""),
        6..8 => Reply::Status(404, ""),
        _ => Reply::Taken,
    });
    let daemon = home.start(&["--remote-write", &receiver.url, "--remote-write-interval", "100ms"]);
    import(&daemon, 4);
    wait_until("requests", || receiver.see(<[Request]>::len) > 9);
    receiver.see(|requests| {
        assert!(by_time(requests).values().all(|attempts| attempts.len() == 1));
        assert!(requests.iter().all(|request| request.version == WriteVersion::Two));
    });
    // Only the change is logged, not each request.
    wait_until("the log", || count(&daemon, "the receiver takes samples") == 2);
    assert_eq!(count(&daemon, "the receiver refuses samples"), 2);
    for (code, requests) in [(400, 3.0), (404, 2.0)] {
        let sample = |name: &str| {
            let labels = format!("receiver=\"{}\",code=\"{code}\"", receiver.url);
            daemon.sample(&format!("quipu_remote_write_{name}_total{{{labels}}}"))
        };
        assert_eq!(sample("requests"), requests);
        assert!(sample("samples_failed") > 0.0);
    }
}

/// Without a queue, an outage costs intermediate samples, but never a count.
#[test]
fn after_an_outage_the_current_totals_are_sent() {
    const PORT: u16 = 18090;
    let home = Home::new();
    let url = format!("http://{}:{PORT}/api/v1/write", home.host());
    let secret = home.path("secret");
    fs::write(&secret, "swordfish\n").unwrap();
    let flags = [
        "--remote-write",
        &url,
        "--remote-write-interval",
        "100ms",
        "--remote-write-bearer-file",
        secret.to_str().unwrap(),
    ];
    let daemon = home.start(&flags);
    import(&daemon, 3);
    daemon.wait_for("remote write fails");
    // Only the state is kept, so a kill makes no difference.
    daemon.kill();
    let daemon = home.start(&flags);
    import(&daemon, 7);
    // A snapshot that contains the total is replaced.
    let dropped = format!(
        "quipu_remote_write_samples_dropped_total{{receiver=\"{url}\",reason=\"replaced\"}}"
    );
    let before = daemon.sample(&dropped);
    wait_until("a replacement", || daemon.sample(&dropped) > before);
    let receiver = Receiver::start(&home, PORT, |_, _| Reply::Taken);
    receiver.expect("hits_total", 7.0);
    receiver.see(|requests| {
        let hits = requests.iter().flat_map(|request| &request.samples);
        let mut hits = hits.filter(|sample| sample.series == "hits_total");
        assert!(hits.all(|sample| sample.value == 7.0));
        assert_eq!(requests[0].fields["authorization"], "Bearer swordfish");
    });
    daemon.wait_for("the receiver takes samples");
}

/// Counts from just before a stop are sent before the daemon exits.
#[test]
fn the_last_totals_are_sent_at_the_end() {
    let home = Home::new();
    let receiver = Receiver::start(&home, 0, |_, _| Reply::Taken);
    let daemon = home.start(&["--remote-write", &receiver.url, "--remote-write-interval", "1000h"]);
    import(&daemon, 9);
    daemon.stop();
    assert_eq!(receiver.last("hits_total").unwrap().value, 9.0);
    assert_eq!(receiver.see(<[Request]>::len), 1);
}

/// Expects the daemon to end although the receiver of this output never responds.
pub(crate) fn ends_without_a_response(output: &str) {
    let home = Home::new();
    // The backlog of the socket accepts the connection.
    let listener = TcpListener::bind((home.host(), 0)).unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let [flag, interval] = [format!("--{output}"), format!("--{output}-interval")];
    let daemon = home.start(&[&flag, &url, &interval, "100ms"]);
    let _connection = listener.accept().unwrap();
    daemon.signal(rustix::process::Signal::TERM);
    let ended = daemon.wait();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains("were not sent in time"), "{}", ended.stderr);
}

#[test]
fn a_receiver_that_never_responds_delays_the_end_only_briefly() {
    ends_without_a_response("remote-write");
}

#[test]
fn rules_relabel_the_samples_that_are_sent() {
    let home = Home::new();
    let receiver = Receiver::start(&home, 0, |_, _| Reply::Taken);
    let rules = "
write_relabel_configs:
- {source_labels: [__name__], regex: 'took_seconds_bucket|quipu_http.*', action: drop}
- {source_labels: [region, path], regex: 'eu;/(.*)', target_label: path}
- {regex: 'secret', action: labeldrop}
- {source_labels: [__name__], regex: 'hits_(.*)', target_label: __name__, replacement: 'visits_$1'}
";
    fs::write(home.path("write.yml"), rules).unwrap();
    let daemon = home.start(&[
        "--remote-write",
        &receiver.url,
        "--remote-write-interval",
        "100ms",
        "--remote-write-relabel",
        "write.yml",
        "--external-label",
        "region=eu",
        "--external-label",
        "secret=x,y",
    ]);
    let response = daemon.post_body("/api/v1/import/prometheus", &[], TEXT.as_bytes());
    assert!(response.status < 300, "{response:?}");
    receiver.expect("visits_total{path=\"a b\",region=\"eu\"}", 5.0);
    receiver.expect("took_seconds_count{region=\"eu\"}", 4.0);
    receiver.see(|requests| {
        let mut samples = requests.iter().flat_map(|request| &request.samples);
        let is_wrong = |series: &str| {
            let starts = ["took_seconds_bucket", "quipu_http", "hits_"];
            series.contains("secret") || starts.iter().any(|start| series.starts_with(start))
        };
        assert_eq!(samples.find(|sample| is_wrong(&sample.series)), None);
    });
    let count = |name: &str, rule: u32, action: &str| {
        let labels = format!("rule=\"{rule}\",action=\"{action}\"");
        daemon.sample(&format!("quipu_remote_write_rule_{name}_total{{{labels}}}"))
    };
    assert!(count("dropped", 1, "drop") >= 3.0);
    assert!(count("changed", 4, "replace") >= 1.0);
    let response = daemon.get("/metrics").text();
    assert!(response.contains("hits_total{path=\"/a b\"} 5"), "{response}");
}

#[test]
fn rules_for_outputs_are_checked() {
    let home = Home::new();
    let url = daemon_url(&home, 9);
    for (text, part) in [
        ("write_relabel_configs:\n- {action: rename}\n", "line 2: key `action`"),
        ("metric_relabel_configs: []\n", "unknown field"),
    ] {
        fs::write(home.path("write.yml"), text).unwrap();
        let listen = format!("{}:0", home.host());
        let flags = ["--remote-write", &url, "--remote-write-relabel", "write.yml"];
        let flags = [&flags[..], &["--listen", &listen]].concat();
        home.expect_refusal(&flags, 1, &["cannot use the rules in write.yml", part]);
        assert!(!home.state().exists());
        fs::write(home.path("quipu.toml"), "remote-write-relabel = \"write.yml\"\n").unwrap();
        let mut check = home.command();
        check.args(["check", "config", "quipu.toml"]);
        let ended = home.finish(check);
        assert_eq!(ended.status.code(), Some(2), "{}", ended.stderr);
        assert!(ended.stderr.contains(part), "{}", ended.stderr);
    }
}

/// Returns the receiver URL of a daemon at this port.
pub(crate) fn daemon_url(home: &Home, port: u16) -> String {
    format!("http://{}:{port}/api/v1/write", home.host())
}

/// Two daemons that send to each other form a loop, which both must detect.
#[test]
fn samples_that_come_back_are_refused() {
    const PORTS: [u16; 3] = [18092, 18093, 18094];
    for (length, is_otlp) in [(1, false), (2, false), (3, false), (1, true), (2, true)] {
        let home = Home::new();
        // The first daemon can send by OTLP.
        let way = |n| if is_otlp && n == 0 { "otlp" } else { "remote-write" };
        let url = |n| match way(n) {
            "otlp" => format!("http://{}:{}/v1/metrics", home.host(), PORTS[(n + 1) % length]),
            _ => daemon_url(&home, PORTS[(n + 1) % length]),
        };
        let daemons: Vec<_> = (0..length)
            .map(|n| {
                let listen = format!("{}:{}", home.host(), PORTS[n]);
                let (flag, state) = (format!("--{}", way(n)), format!("{n}.quipu"));
                let interval = format!("{flag}-interval");
                let flags = [&*flag, &url(n), &interval, "100ms"];
                home.start(&[&flags[..], &["--listen", &listen, "--state", &state]].concat())
            })
            .collect();
        import(&daemons[0], 1);
        import(&daemons[0], 5);
        for (n, daemon) in daemons.iter().enumerate() {
            let url = url(n);
            let way = if way(n) == "otlp" { "otlp_output" } else { "remote_write" };
            let refused = format!("quipu_{way}_requests_total{{receiver=\"{url}\",code=\"409\"}} ");
            let refusals = || {
                let text = daemon.get("/metrics").text();
                let found = text.lines().find_map(|line| line.strip_prefix(&refused));
                found.map_or(0, |count| count.parse().unwrap())
            };
            wait_until("refusals", || refusals() > 3);
            // Before the ring is noticed, the first requests are refused for another reason,
            // because a daemon rejects metrics with its own prefix.
            wait_until("the log", || count(daemon, "make a loop") > 0);
        }
        // No daemon counted its own samples again.
        assert_eq!(daemons[0].sample("hits_total").to_bits(), 5_f64.to_bits());
    }
}

/// A TLS receiver at the address and the port in its arguments.
const TLS: &str = "\
import http.server, ssl, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def do_POST(self):
        self.rfile.read(int(self.headers['Content-Length']))
        self.send_response(204)
        self.send_header('X-Prometheus-Remote-Write-Samples-Written', '1')
        self.end_headers()
server = http.server.ThreadingHTTPServer((sys.argv[1], int(sys.argv[2])), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain('certificate.pem', 'key.pem')
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
";

#[test]
fn a_receiver_is_verified_with_the_certificates_of_the_system() {
    const PORT: u16 = 18443;
    let home = Home::new();
    let config = format!(
        "[req]\ndistinguished_name = name\nx509_extensions = extensions\nprompt = no\n\
         [name]\nCN = receiver\n\
         [extensions]\nsubjectAltName = IP:{}\nbasicConstraints = critical,CA:FALSE\n",
        home.host()
    );
    fs::write(home.path("openssl.cnf"), config).unwrap();
    let mut openssl = Command::new(program("openssl", "openssl"));
    openssl.current_dir(home.directory()).args(["req", "-x509", "-nodes", "-days", "2"]);
    openssl.args(["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]);
    openssl.args(["-config", "openssl.cnf", "-keyout", "key.pem", "-out", "certificate.pem"]);
    let ended = home.finish(openssl);
    assert!(ended.status.success(), "{}", ended.stderr);
    let mut python = Command::new(program("python3", "python3"));
    python.current_dir(home.directory()).args(["-c", TLS, home.host(), &PORT.to_string()]);
    let _server = home.spawn(python);

    let launch = |certificates: &str| {
        let url = format!("https://{}:{PORT}/write", home.host());
        let mut command = home.command();
        command.args(["serve", "--listen", &format!("{}:0", home.host()), "--log-format", "json"]);
        command.args(["--remote-write", &url, "--remote-write-interval", "100ms"]);
        command.env("SSL_CERT_FILE", certificates).env_remove("SSL_CERT_DIR");
        home.spawn(command)
    };
    let daemon = launch("certificate.pem");
    daemon.wait_for("the receiver takes samples");
    daemon.stop();
    fs::write(home.path("none.pem"), "").unwrap();
    let ended = launch("none.pem").wait();
    assert_eq!(ended.status.code(), Some(1));
    assert!(ended.stderr.contains("ca-certificates"), "{}", ended.stderr);
}

/// A real Prometheus computes the exact increase although the daemon is killed repeatedly.
#[test]
fn a_real_prometheus_takes_totals_over_kills() {
    let home = Home::new();
    let prometheus = Prometheus::launch(&home, "", &["--web.enable-remote-write-receiver"]);
    let url = format!("http://{}:19090/api/v1/write", home.host());
    let start = || home.start(&["--remote-write", &url, "--remote-write-interval", "200ms"]);
    let mut total = 0;
    for _ in 0..3 {
        let daemon = start();
        // The source restarts together with the daemon.
        import(&daemon, 1);
        import(&daemon, 5);
        total += 5;
        wait_until("the total", || prometheus.query("hits_total") == Some(f64::from(total)));
        daemon.kill();
    }
    assert_eq!(prometheus.query("resets(hits_total[1h])"), Some(0.0));
    let stored = prometheus.query("count(quipu_http_request_duration_seconds_bucket)");
    assert_eq!(stored, Some(9.0));
}

/// Returns the flags of a daemon that scrapes a target, and sends by remote write.
fn between<'a>(target: &'a str, receiver: &'a str) -> [&'a str; 8] {
    [
        "--scrape",
        target,
        "--scrape-interval",
        "1s",
        "--remote-write",
        receiver,
        "--remote-write-interval",
        "100ms",
    ]
}

/// When a scrape fails, the receivers learn that the target's series have ended.
#[test]
fn series_of_a_target_that_fails_get_a_stale_marker() {
    let home = Home::new();
    let receiver = Receiver::start(&home, 0, |_, _| Reply::Taken);
    let target = home.start(&["--state", "target.quipu"]);
    let own = format!("{{instance=\"{}\",job=\"app\"}}", target.address());
    let url = format!("app=http://{}", target.address());
    let daemon = home.start(&between(&url, &receiver.url));
    let (up, keys) = (format!("up{own}"), format!("quipu_keys{own}"));
    receiver.expect(&up, 1.0);
    receiver.expect(&keys, 0.0);
    receiver.expect("quipu_keys", 0.0);
    target.kill();
    receiver.expect(&up, 0.0);
    wait_until("a marker", || receiver.last(&keys).is_some_and(|last| last.is_stale));
    assert!(receiver.last("quipu_keys").is_some_and(|last| !last.is_stale));
    daemon.stop();
}

/// A pushed series and a scraped series can share a name without ending each other.
#[test]
fn series_of_clients_are_sent_next_to_series_of_targets() {
    let home = Home::new();
    let receiver = Receiver::start(&home, 0, |_, _| Reply::Taken);
    let target = home.start(&["--state", "target.quipu"]);
    let otlp = home.start(&["--state", "otlp.quipu"]);
    let body = b"# TYPE jobs_total counter\njobs_total{queue=\"a\"} 3\njobs_total 4\n";
    assert_eq!(target.post_body("/api/v1/import/prometheus", &[], body).status, 204);
    let url = format!("app=http://{}", target.address());
    let sent_to = format!("http://{}/v1/metrics", otlp.address());
    let more = ["--otlp", &sent_to, "--otlp-interval", "100ms"];
    let daemon = home.start(&[&between(&url, &receiver.url)[..], &more].concat());
    let own = format!("instance=\"{}\",job=\"app\"", target.address());
    let [a, all] = [",queue=\"a\"", ""].map(|label| format!("jobs_total{{{own}{label}}}"));
    receiver.expect(&a, 3.0);
    receiver.expect(&all, 4.0);
    // The group contains a series of the same name, and one with all labels of the target's series.
    let instance = target.address().to_string();
    let group = format!("/metrics/job/app/instance/{instance}");
    let push = "# TYPE jobs_total counter\njobs_total 100\njobs_total{n=\"1\"} 5\n";
    assert_eq!(daemon.push("PUT", &group, push).status, 200);
    receiver.expect(&all, 100.0);
    let beside = format!("jobs_total{{{own},n=\"1\"}}");
    receiver.expect(&beside, 5.0);
    let shown = |value: &str| {
        let text = otlp.get("/metrics").text();
        text.lines().any(|line| line.starts_with("jobs_total{") && line.ends_with(value))
    };
    wait_until("all by OTLP", || shown(" 100") && shown(" 5") && shown(" 3"));
    // Only the series of the group end, not those from the target.
    assert_eq!(daemon.push("DELETE", &group, "").status, 202);
    receiver.expect(&all, 4.0);
    wait_until("a marker", || receiver.last(&beside).is_some_and(|last| last.is_stale));
    receiver.see(|requests| {
        let mut samples = requests.iter().flat_map(|request| &request.samples);
        assert!(!samples.any(|sample| sample.is_stale && [&a, &all].contains(&&sample.series)));
        for request in requests {
            let mut times = HashSet::new();
            for sample in &request.samples {
                let one = (&sample.series, sample.timestamp_ms, sample.is_histogram);
                assert!(times.insert(one), "{sample:?} twice");
            }
        }
    });
    daemon.stop();
}
