//! Independent readers of our expositions: `promtool`, the parsers of Prometheus' server and of its
//! Python client, and a real Prometheus that scrapes a real server. `make test` installs them.
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

#[path = "judges/rows.rs"]
mod rows;
#[path = "judges/textparse.rs"]
mod textparse;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use quipu::collector::Collector;
use quipu::exposition::{Escaping, Format};
use quipu::snapshot::{self, Exemplar, FamilyHeader, Kind, Number, Sink, Texts};
use quipu::{
    Counter, CounterFamily, Description, FloatCounter, GaugeFamily, Histogram, HistogramFamily,
    Info, LabelValue, Registry, StateSet, Summary,
};
use rows::Rows;
use serde_json::Value;
use textparse::textparse;

#[derive(LabelValue)]
enum Mode {
    Idle,
    Busy,
}

/// One metric of each kind, with labels and help strings that are hard to encode.
fn registry() -> Registry {
    let registry = Registry::new();
    let about = |name: &str| Description::new(name, "A \"help\" with \\ and\na second line.");
    let counter: Counter = registry.register(about("plain").exemplars()).unwrap();
    // The Python client's parser rejects an escaped quote in an exemplar.
    counter.inc_with_exemplar(3, &[("trace_id", "a'b")]);
    let float: FloatCounter = registry.register(about("cpu").unit("seconds")).unwrap();
    float.inc_by(0.25);
    let family: CounterFamily<[&str; 2]> =
        registry.register(about("by_label").labels(["path", "user"])).unwrap();
    for (path, user) in [("/", "ada"), ("a\\b", "line\nfeed"), ("\u{82b1}", "quo\"te"), ("", "")] {
        family.inc_by(&[path, user], 2);
    }
    let limited: CounterFamily<[&str; 1]> =
        registry.register(about("limited").labels(["k"]).max_series(1)).unwrap();
    (0..5).for_each(|i: u32| limited.inc(&[i.to_string()]));
    let gauges: GaugeFamily<[&str; 1]> = registry.register(about("level").labels(["k"])).unwrap();
    for (k, value) in [("nan", f64::NAN), ("inf", f64::INFINITY), ("small", 5e-324), ("z", -0.0)] {
        gauges.set(&[k], value);
    }
    let classic: HistogramFamily<[&str; 1]> = registry
        .register(about("size").unit("bytes").labels(["k"]).buckets([1.0, 1e6]).exemplars())
        .unwrap();
    let bound = classic.bind(&["x"]);
    bound.observe_with_exemplar(0.5, &[("id", "1")]);
    bound.observe(2.0);
    bound.observe(1e7);
    let native: Histogram = registry.register(about("native").native(3)).unwrap();
    for value in [0.0, -1.0, 0.001, 1.0, 1.0, 1.5, 1e9] {
        native.observe(value);
    }
    let summary: Summary = registry.register(about("latency")).unwrap();
    summary.observe(2.0);
    let _info: Info = registry.register(about("build").values("version", ["1.2"])).unwrap();
    let state: StateSet<Mode> = registry.register(about("mode")).unwrap();
    state.set(&Mode::Busy);
    assert!(state.is_on(&Mode::Busy) && !state.is_on(&Mode::Idle));
    registry
}

fn exposition(registry: &Registry, format: Format) -> Vec<u8> {
    let mut out = Vec::new();
    registry.scrape().format(format, Escaping::Underscores).write_to(&mut out).unwrap();
    out
}

/// Runs a program with this input, and returns its output.
fn run(command: &mut Command, input: &[u8]) -> Vec<u8> {
    let name = command.get_program().to_owned();
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{name:?}: {error}; `make test` installs it"));
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(
        output.status.success(),
        "{name:?}: {}{}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
        String::from_utf8_lossy(input)
    );
    output.stdout
}

/// A Python interpreter with the client installed, in a virtual environment in the target
/// directory.
fn python() -> PathBuf {
    let judges = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/judges");
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("python");
    let python = home.join("bin/python");
    if !home.join("complete").exists() {
        run(Command::new("python3").arg("-m").arg("venv").arg(&home), b"");
        let mut pip = Command::new(&python);
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"]);
        run(pip.arg(judges.join("requirements.txt")), b"");
        std::fs::write(home.join("complete"), "").unwrap();
    }
    python
}

fn parsed(format: &str, text: &[u8]) -> Vec<Value> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/judges/check.py");
    let output = run(Command::new(python()).arg(script).arg(format), text);
    serde_json::from_slice(&output).unwrap()
}

/// The value of the sample with this name and these labels.
fn value(samples: &[Value], name: &str, labels: &[(&str, &str)]) -> Value {
    let wanted: serde_json::Map<String, Value> =
        labels.iter().map(|(name, value)| (name.to_string(), Value::from(*value))).collect();
    let mut found = samples
        .iter()
        .filter(|sample| sample["name"] == name && sample["labels"] == Value::from(wanted.clone()));
    let sample = found.next().unwrap_or_else(|| panic!("no {name} {labels:?} in {samples:#?}"));
    assert!(found.next().is_none(), "{name} {labels:?} appears twice");
    sample["value"].clone()
}

#[test]
fn promtool_finds_nothing_wrong() {
    let text = exposition(&registry(), Format::Text);
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = promtool.spawn().expect("promtool; `make test` installs it");
    child.stdin.take().unwrap().write_all(&text).unwrap();
    let output = child.wait_with_output().unwrap();
    // Exit code 3 is for style, such as a name without a base unit.
    let code = output.status.code();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(code, Some(0 | 3)), "{errors}\n{}", String::from_utf8_lossy(&text));
}

#[test]
fn pythons_parsers_read_the_right_numbers() {
    let registry = registry();
    let text = parsed("text", &exposition(&registry, Format::Text));
    let open_metrics = parsed("openmetrics", &exposition(&registry, Format::OpenMetrics));
    for samples in [&text, &open_metrics] {
        assert_eq!(value(samples, "plain_total", &[]), 3.0);
        assert_eq!(value(samples, "cpu_seconds_total", &[]), 0.25);
        for (path, user) in
            [("/", "ada"), ("a\\b", "line\nfeed"), ("\u{82b1}", "quo\"te"), ("", "")]
        {
            let labels = [("path", path), ("user", user)];
            assert_eq!(value(samples, "by_label_total", &labels), 2.0);
        }
        assert_eq!(value(samples, "limited_total", &[("quipu_overflow", "true")]), 4.0);
        assert_eq!(value(samples, "quipu_series_overflowed_total", &[("family", "limited")]), 4.0);
        assert_eq!(value(samples, "level", &[("k", "nan")]), "nan");
        assert_eq!(value(samples, "level", &[("k", "inf")]), "inf");
        assert_eq!(value(samples, "level", &[("k", "small")]), 5e-324);
        assert_eq!(value(samples, "size_bytes_count", &[("k", "x")]), 3.0);
        assert_eq!(value(samples, "size_bytes_bucket", &[("k", "x"), ("le", "+Inf")]), 3.0);
        assert_eq!(value(samples, "native_count", &[]), 7.0);
        assert_eq!(value(samples, "latency_count", &[]), 1.0);
        assert_eq!(value(samples, "build_info", &[("version", "1.2")]), 1.0);
        assert_eq!(value(samples, "mode", &[("mode", "busy")]), 1.0);
        assert_eq!(value(samples, "mode", &[("mode", "idle")]), 0.0);
    }
    let size = [("k", "x"), ("le", "1.0")];
    assert_eq!(value(&open_metrics, "size_bytes_bucket", &size), 1.0);
    let find = |name: &str| open_metrics.iter().find(|sample| sample["name"] == name).unwrap();
    assert_eq!(find("cpu_seconds_total")["unit"], "seconds");
    assert_eq!(find("plain_total")["exemplar"]["labels"]["trace_id"], "a'b");
    assert_eq!(find("plain_total")["help"], "A \"help\" with \\ and\na second line.");
    let kinds = |samples: &[Value], name: &str| {
        samples.iter().find(|sample| sample["name"] == name).unwrap()["type"].clone()
    };
    assert_eq!(kinds(&open_metrics, "mode"), "stateset");
    assert_eq!(kinds(&open_metrics, "build_info"), "info");
}

/// Metrics for the newest parsers only: names beyond ASCII, every kind with all its options, and
/// families that other programs can write.
fn hard_registry() -> Registry {
    let registry = registry();
    let about = |name: &str| Description::new(name, "Ends in a carriage return\r\n\r");
    let dotted: CounterFamily<[&str; 1]> =
        registry.register(about("http.requests").unit("requests").labels(["user.name"])).unwrap();
    for user in ["ada\r", "nul\0", "\t{}=,#"] {
        dotted.inc(&[user]);
    }
    let both = about("both.kinds").unit("seconds").native(3).buckets([-1.0, 0.5]).exemplars();
    let both: Histogram = registry.register(both).unwrap();
    for value in [-2.0, 0.25, 0.25, 3.0] {
        both.observe_with_exemplar(value, &[("span.id", "x"), ("trace_id", "a\"\\\nb")]);
    }
    let native: Histogram = registry.register(about("native.only").native(2).exemplars()).unwrap();
    native.observe_with_exemplar(1.5, &[("trace_id", "1")]);
    let _empty: Histogram = registry.register(about("native.empty").native(2)).unwrap();
    let _none: Histogram = registry.register(about("classic.empty")).unwrap();
    let long: Counter = registry.register(about("long").exemplars()).unwrap();
    long.inc_with_exemplar(1, &[("trace_id", &"x".repeat(200))]);
    let sum: Summary = registry.register(about("sum").quantiles([])).unwrap();
    sum.observe(1.0);
    let _info: Info =
        registry.register(about("parts").unit("seconds").values("a.b", ["1"])).unwrap();
    let states = about("rule:mode").states(["on", "o\"ff"]);
    let _states: StateSet<&str> = registry.register(states).unwrap();
    let states = about("dot.mode").unit("seconds").states(["on"]);
    let _states: StateSet<&str> = registry.register(states).unwrap();
    registry.register_collector(Foreign).unwrap();
    registry
}

/// A collector of values that no instrument can produce.
struct Foreign;

impl Collector for Foreign {
    fn names(&self) -> Vec<String> {
        vec!["foreign".into(), "odd".into(), "bare".into()]
    }

    fn collect(&self, sink: &mut dyn Sink) {
        let mut one = |name: &str, help: &str, kind: Kind, value: snapshot::Value<'_>| {
            let family = FamilyHeader::new(kind, name, help);
            sink.begin(family, []).series([], value);
        };
        let nan = Number::Float(f64::NAN);
        let exemplar = Exemplar::new(Texts::default(), 0.5);
        let total = Number::Float(f64::INFINITY);
        let counter =
            snapshot::Value::Counter(snapshot::CounterValue::new(total).exemplar(exemplar));
        one("foreign", "", Kind::Counter, counter);
        one("odd", "", Kind::Unknown, snapshot::Value::Unknown(nan));
        let counter = snapshot::Value::counter(nan);
        one("bare", "No number.", Kind::Counter, counter);
    }
}

#[test]
fn the_servers_parsers_read_back_every_sample() {
    let registry = hard_registry();
    let formats = [
        Format::Text,
        Format::TextUtf8,
        Format::OpenMetrics,
        Format::OpenMetrics2,
        Format::Protobuf,
    ];
    let escapings = [Escaping::AllowUtf8, Escaping::Underscores, Escaping::Dots, Escaping::Values];
    for format in formats {
        for escaping in escapings {
            // Version 0.0.4 cannot represent quoted names.
            if format == Format::Text && escaping == Escaping::AllowUtf8 {
                continue;
            }
            let mut expected = Rows::new(format, escaping);
            registry.visit(&mut expected).unwrap();
            expected.rows.sort();
            let mut text = Vec::new();
            registry.scrape().format(format, escaping).write_to(&mut text).unwrap();
            let found = textparse(&format.content_type(escaping), &text);
            let found = Rows::parsed(&found);
            for (expected, found) in expected.rows.iter().zip(&found) {
                assert_eq!(found, expected, "{format:?} {escaping:?}");
            }
            assert_eq!(found.len(), expected.rows.len(), "{format:?} {escaping:?}");
        }
    }
}

/// A Prometheus server that scrapes one target every second; it is killed on drop.
struct Prometheus {
    child: Child,
    address: SocketAddr,
    _directory: tempfile::TempDir,
}

impl Prometheus {
    fn start(target: SocketAddr, features: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let config = directory.path().join("prometheus.yml");
        let text = format!(
            "global: {{scrape_interval: 1s, scrape_timeout: 1s}}\n\
             scrape_configs:\n- job_name: quipu\n  static_configs: [{{targets: ['{target}']}}]\n"
        );
        std::fs::write(&config, text).unwrap();
        // The port is free again at once: usually, no other process takes it in between.
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let log = std::fs::File::create(directory.path().join("log")).unwrap();
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", directory.path().join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .arg(format!("--enable-feature={features}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("prometheus; `make test` installs it");
        Self { child, address, _directory: directory }
    }

    /// The result of a query, once there is one.
    fn query(&self, query: &str) -> f64 {
        let encoded: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let deadline = Instant::now() + Duration::from_secs(120);
        loop {
            let response = get(self.address, &format!("/api/v1/query?query={encoded}"));
            let result =
                response.as_ref().map(|response| &response["data"]["result"][0]["value"][1]);
            if let Some(Value::String(number)) = result {
                return number.parse().unwrap();
            }
            let targets = get(self.address, "/api/v1/targets");
            assert!(Instant::now() < deadline, "{query}: {response:?}\n{targets:#?}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn get(address: SocketAddr, target: &str) -> Option<Value> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    write!(stream, "GET {target} HTTP/1.0\r\nHost: {address}\r\n\r\n").ok()?;
    let mut response = Vec::new();
    stream.read_to_end(&mut response).ok()?;
    let body = response.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    serde_json::from_slice(&response[body..]).ok()
}

#[test]
fn a_real_prometheus_returns_the_right_numbers() {
    let registry = registry();
    let server = quipu::http::serve("127.0.0.1:0", &registry).unwrap();
    let prometheus = Prometheus::start(server.local_addr(), "exemplar-storage");
    for (query, expected) in [
        ("plain_total", 3.0),
        ("by_label_total{user=\"quo\\\"te\"}", 2.0),
        ("sum(by_label_total)", 8.0),
        ("sum(limited_total)", 5.0),
        ("level{k=\"inf\"}", f64::INFINITY),
        ("size_bytes_bucket{le=\"1e+06\"} or size_bytes_bucket{le=\"1000000.0\"}", 2.0),
        ("native_count", 7.0),
        ("build_info{version=\"1.2\"}", 1.0),
        ("mode{mode=\"busy\"}", 1.0),
        // On a busy machine, a scrape may time out.
        ("max_over_time(up[5m])", 1.0),
    ] {
        assert_eq!(prometheus.query(query), expected, "{query}");
    }
}

#[test]
fn a_real_prometheus_reads_native_histograms() {
    let registry = registry();
    let server = quipu::http::serve("127.0.0.1:0", &registry).unwrap();
    let prometheus = Prometheus::start(server.local_addr(), "native-histograms");
    for (query, expected) in [
        ("histogram_count(native)", 7.0),
        ("histogram_sum(native)", 1_000_000_002.501),
        // Half of the zero bucket lies below zero.
        ("histogram_fraction(-Inf, 0, native)", 1.5 / 7.0),
        ("plain_total", 3.0),
        ("latency{quantile=\"0.5\"}", 2.0),
        ("size_bytes_count", 3.0),
    ] {
        let found = prometheus.query(query);
        assert!((found - expected).abs() <= expected.abs() * 0.08, "{query}: {found}");
    }
    // The exact sum, and the bucket of the second-largest observation.
    assert_eq!(prometheus.query("histogram_sum(native)"), 1_000_000_002.501);
    let quantile = prometheus.query("histogram_quantile(0.8, native)");
    assert!((1.4..1.55).contains(&quantile), "{quantile}");
}
