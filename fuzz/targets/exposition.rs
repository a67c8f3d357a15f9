//! Sends metrics to all inputs, and parses the pages that show them in all formats with Prometheus'
//! parsers.
//!
//! `exposition_program.rs` documents the inputs. The target judges the pages of the daemon, with
//! segments and targets, and the pages of a library's registry. Prometheus must be able to read
//! each page completely, no series and no header may appear twice, and the series of well-behaved
//! senders must be present.
//!
//! You need to set `EXPOSITION_JUDGE` to the program that parses
//! (`crates/quipu/tests/judges/textparse`). If you set `EXPOSITION_FAULTS` to a directory, the
//! first input with each fault is saved there, and the run continues.

#![no_main]

#[path = "../fixed_seed.rs"]
mod fixed_seed;
#[path = "exposition_judge.rs"]
mod judge;
#[path = "exposition_program.rs"]
mod program;
#[path = "exposition_senders.rs"]
mod senders;

use std::path::Path;
use std::sync::LazyLock;
use std::time::{SystemTime, UNIX_EPOCH};

use libfuzzer_sys::{Corpus, fuzz_target};
use quipu::Registry;
use quipu::exposition::{Escaping, Format};
use quipu_cli::fuzzing::{Daemon, Options};

use program::{families, flags, op, segment, words};

const FORMATS: [Format; 5] =
    [Format::Text, Format::TextUtf8, Format::OpenMetrics, Format::OpenMetrics2, Format::Protobuf];
const ESCAPINGS: [Escaping; 4] =
    [Escaping::AllowUtf8, Escaping::Underscores, Escaping::Dots, Escaping::Values];

/// The directory of the segments, in memory if the system supports this.
static HOME: LazyLock<tempfile::TempDir> = LazyLock::new(|| {
    let home = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    home.expect("a directory for segments")
});

fuzz_target!(|input: &[u8]| -> Corpus {
    // This word is reserved for well-behaved senders.
    if words(input).windows(4).any(|word| word == b"fair") {
        return Corpus::Reject;
    }
    let (flags, ops) = program::decode(input);
    let escaping = ESCAPINGS[usize::from(flags >> flags::ESCAPING) % ESCAPINGS.len()];
    let options =
        Options { own: flags & flags::OWN != 0, translate: flags & flags::UNTRANSLATED == 0 };
    let mut run = Run {
        daemon: Daemon::new(options).expect("memory for a small daemon"),
        library: None,
        segments: 0,
        fair: Vec::new(),
    };
    let ops: Vec<_> = ops.take(MAX_OPS).collect();
    let is_used = |kind: &u8| ops.iter().any(|op| op.0 == *kind);
    // The other senders follow, because they can change families that were merged before.
    let merged = [op::TARGET, op::SEGMENT];
    merged.into_iter().filter(is_used).for_each(|kind| run.perform_fairly(kind));
    ops.iter().for_each(|(kind, argument, text)| run.perform(*kind, *argument, text));
    let others = (0..op::COUNT).filter(|kind| is_used(kind) && !merged.contains(kind));
    others.for_each(|kind| run.perform_fairly(kind));
    let mut pages = Vec::new();
    for format in FORMATS {
        let escaping = match (format, escaping) {
            // The same result as in content negotiation.
            (Format::Text, Escaping::AllowUtf8) => Escaping::Underscores,
            (_, escaping) => escaping,
        };
        let (content_type, page) = run.daemon.scrape(format, escaping, None);
        pages.push((content_type, page, run.fair.clone()));
        if flags & flags::SEGMENT != 0 && run.segments > 0 {
            let (content_type, page) = run.daemon.scrape(format, escaping, Some(run.segments - 1));
            pages.push((content_type, page, Vec::new()));
        }
        if let Some(library) = &run.library {
            let mut page = Vec::new();
            let mut scrape = library.scrape().format(format, escaping);
            let content_type = scrape.content_type();
            while let Some(piece) = scrape.next_piece() {
                page.extend_from_slice(piece);
            }
            pages.push((content_type, page, vec!["fair_library_total=7"]));
        }
    }
    drop(run);
    judge::check(input, &pages);
    Corpus::Keep
});

const MAX_OPS: usize = 12;

struct Run {
    daemon: Daemon,
    library: Option<Registry>,
    /// The number of segments.
    segments: usize,
    /// The names and values of the series of well-behaved senders, in the pages of the daemon.
    fair: Vec<&'static str>,
}

impl Run {
    fn perform(&mut self, kind: u8, argument: u8, text: &[u8]) {
        let daemon = &mut self.daemon;
        let media = ["text/plain", "application/openmetrics-text; version=1.0.0"];
        let media = media[usize::from(argument & 1)];
        match kind {
            op::STATSD => daemon.statsd(&words(text)),
            op::GRAPHITE => daemon.graphite(&words(text)),
            op::INFLUX => self.post("/write", "text/plain", words(text)),
            op::IMPORT => self.post(IMPORT, media, words(text)),
            op::PUSH => self.push(argument, media, words(text)),
            op::PUSH_FAMILIES => {
                let registry = registry();
                senders::register(&registry, &families(text), segment::VERBATIM);
                let (content_type, page) = expose(&registry, Format::Protobuf);
                self.push(argument, &content_type, page);
            }
            op::WRITE => {
                let is_second = argument & 1 == 1;
                let body = senders::remote_write(&families(text), is_second, now_ms());
                self.write(is_second, body);
            }
            op::OTLP => {
                let now_ns = now_ms() as u64 * 1_000_000;
                let body = senders::otlp(&families(text), argument, now_ns);
                self.post("/v1/metrics", "application/json", body);
            }
            op::INGEST => {
                let formats = ["statsd", "dogstatsd", "json", "tsv"];
                let format = formats[usize::from(argument) % formats.len()];
                self.post(&format!("/ingest?format={format}"), "", words(text));
            }
            op::TARGET => _ = daemon.target(&words(text), media),
            op::SEGMENT => {
                let families = families(text);
                let labels = match families.first() {
                    Some(first) if argument & segment::LABELLED != 0 => first.labels.clone(),
                    _ => Vec::new(),
                };
                self.segment(&labels, |path| senders::write_segment(path, &families, argument));
            }
            op::LIBRARY => {
                let library = self.library.get_or_insert_with(|| {
                    let registry = registry();
                    let fair: quipu::CounterFamily<[&str; 1]> = registry
                        .register(quipu::Description::new("fair_library", "").labels(["sender"]))
                        .expect("a valid name");
                    fair.inc_by(&["fair"], 7);
                    registry
                });
                // You cannot turn the checks off as a caller of the library.
                senders::register(library, &families(text), 0);
            }
            op::MERGE => daemon.merge(),
            _ => {}
        }
    }

    /// Lets a well-behaved sender use this input too.
    fn perform_fairly(&mut self, kind: u8) {
        let daemon = &mut self.daemon;
        let fair: &[&str] = match kind {
            op::STATSD => {
                daemon.statsd(b"fair_statsd:3|c|#sender:fair\nfair_level:2.5|g|#sender:fair");
                &["fair_statsd=3", "fair_level=2.5"]
            }
            op::GRAPHITE => {
                daemon.graphite(b"fair_graphite;sender=fair 4 N\n");
                &["fair_graphite=4"]
            }
            op::INFLUX => {
                self.post("/write", "text/plain", b"fair,sender=fair influx=5".to_vec());
                &["fair_influx=5"]
            }
            op::IMPORT => {
                let text =
                    b"# TYPE fair_import_total counter\nfair_import_total{sender=\"fair\"} 6\n";
                self.post(IMPORT, "text/plain", text.to_vec());
                &["fair_import_total=6"]
            }
            op::PUSH | op::PUSH_FAMILIES => {
                let text = b"# TYPE fair_push gauge\nfair_push{sender=\"fair\"} 8\n";
                let path = "/metrics/job/fair";
                let _ = self.daemon.request("PUT", path, "text/plain", text.to_vec());
                &["fair_push=8"]
            }
            op::WRITE | op::OTLP => {
                let family = program::Family {
                    kind: program::kind::GAUGE,
                    name: "fair_gauge".into(),
                    labels: vec![("sender".into(), "fair".into())],
                    values: vec![9.0],
                    ..program::Family::default()
                };
                if kind == op::WRITE {
                    self.write(true, senders::remote_write(&[family], true, now_ms()));
                    &["fair_gauge=9"]
                } else {
                    let family = program::Family { name: "fair_otlp".into(), ..family };
                    let body = senders::otlp(&[family], 0, now_ms() as u64 * 1_000_000);
                    self.post("/v1/metrics", "application/json", body);
                    &["fair_otlp=9"]
                }
            }
            op::TARGET => {
                let text =
                    b"# TYPE fair_target_total counter\nfair_target_total{sender=\"fair\"} 10\n";
                daemon.target(text, "text/plain");
                &["fair_target_total=10"]
            }
            op::SEGMENT => {
                self.segment(&[], |path| {
                    let registry = Registry::open(path).expect("a small file");
                    let about = quipu::Description::new("fair_segment", "").labels(["sender"]);
                    let gauges: quipu::IntGaugeFamily<[&str; 1]> =
                        registry.register(about).expect("a valid name");
                    gauges.set(&["fair"], 11);
                });
                &["fair_segment=11"]
            }
            _ => &[],
        };
        self.fair.extend(fair);
    }

    fn post(&mut self, target: &str, content_type: &str, body: Vec<u8>) {
        self.daemon.request("POST", target, content_type, body).expect("a valid request");
    }

    fn push(&mut self, argument: u8, content_type: &str, body: Vec<u8>) {
        let method = if argument & 2 == 0 { "POST" } else { "PUT" };
        let paths = [
            "/metrics/job/x",
            "/metrics/job/x/instance/y",
            "/metrics/job@base64/YSBi/a%20b/1",
            "/metrics/job/x/a_b/1?mode=add",
        ];
        let path = paths[usize::from(argument >> 2) % paths.len()];
        self.daemon.request(method, path, content_type, body).expect("a valid request");
    }

    fn write(&mut self, is_second: bool, body: Vec<u8>) {
        let content_type = match is_second {
            true => "application/x-protobuf;proto=io.prometheus.write.v2.Request",
            false => "application/x-protobuf",
        };
        self.post("/api/v1/write", content_type, body);
    }

    fn segment(&mut self, labels: &[(String, String)], write: impl FnOnce(&Path)) {
        let path = HOME.path().join("segment");
        write(&path);
        self.segments += usize::from(self.daemon.segment(&path, labels));
        let _ = std::fs::remove_file(&path);
    }
}

const IMPORT: &str = "/api/v1/import/prometheus";

fn registry() -> Registry {
    Registry::from_segment(
        quipu_segment::Segment::private(1 << 24).expect("memory for a small registry"),
    )
}

fn expose(registry: &Registry, format: Format) -> (String, Vec<u8>) {
    let mut page = Vec::new();
    let mut scrape = registry.scrape().format(format, Escaping::AllowUtf8);
    while let Some(piece) = scrape.next_piece() {
        page.extend_from_slice(piece);
    }
    (scrape.content_type().to_string(), page)
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_millis() as i64
}
