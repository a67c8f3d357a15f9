//! Compares docs/daemon/metrics.md with the metrics of a daemon that uses all inputs and outputs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use crate::agent::count;
use crate::common::{DEADLINE, Daemon, Home};
use crate::generated::{Page, Part, cell};
use crate::scraping::Exporter;
use crate::{otlp_output, outputs};

/// The parts of the page, each with the beginnings of its families' names. The longest beginning
/// determines the part.
const PARTS: [(&str, &[&str]); 14] = [
    ("process", &["quipu_build_info", "quipu_process_"]),
    ("HTTP", &["quipu_http_"]),
    ("state", &["quipu_checkpoint_", "quipu_state_"]),
    ("events and keys", &["quipu_events_", "quipu_window_", "quipu_key_", "quipu_keys"]),
    ("received metrics", &["quipu_input_", "quipu_otlp_overlaps_"]),
    ("StatsD", &["quipu_statsd_"]),
    ("Graphite", &["quipu_graphite_"]),
    ("rules", &["quipu_rule_"]),
    ("segments", &["quipu_segments_"]),
    ("recording", &["quipu_segments_record"]),
    ("targets", &["quipu_scrape_target_", "scrape_", "up"]),
    ("remote write", &["quipu_remote_write_"]),
    ("queues", &["quipu_remote_write_queue_"]),
    ("OTLP output", &["quipu_otlp_output_"]),
];

#[test]
fn the_page_of_metrics_is_current() {
    let home = Home::new();
    let accepting = outputs::Receiver::start(&home, 0, |_, _| outputs::Reply::Taken);
    let refusing = outputs::Receiver::start(&home, 0, |_, _| outputs::Reply::Status(400, ""));
    let otlp_accepting = otlp_output::Receiver::start(&home, |_, _| otlp_output::Reply::Taken);
    let refuse = |_: &[_], _: &_| otlp_output::Reply::Status(400, "", b"");
    let otlp_refusing = otlp_output::Receiver::start(&home, refuse);
    let target = Exporter::start(&home, "jobs 1\n");
    let rule = "- {source_labels: [__name__], regex: 'debug_.*', action: drop}\n";
    let aggregation = "aggregations:\n- {match: 'hits_total', without: [pod], outputs: [sum]}\n";
    let rules = format!("metric_relabel_configs:\n{rule}{aggregation}");
    fs::write(home.path("rules.yml"), rules).unwrap();
    fs::write(home.path("send.yml"), format!("write_relabel_configs:\n{rule}")).unwrap();
    fs::create_dir(home.path("run")).unwrap();
    count(&home, "inc", "run/app.quipu", "mails_total", "1");
    let (statsd, graphite) =
        (format!("udp://{}:9125", home.host()), format!("tcp://{}:2003", home.host()));
    let daemon = home.start(
        &[
            ["--statsd", &statsd],
            ["--graphite", &graphite],
            ["--rules", "rules.yml"],
            ["--segments", "run"],
            ["--segments-record", "on"],
            ["--scrape", &target.url],
            ["--remote-write", &accepting.url],
            ["--remote-write", &refusing.url],
            ["--remote-write-interval", "100ms"],
            ["--remote-write-queue", "disk"],
            ["--remote-write-relabel", "send.yml"],
            ["--otlp", &otlp_accepting.url],
            ["--otlp", &otlp_refusing.url],
            ["--otlp-interval", "100ms"],
        ]
        .concat(),
    );
    // The name is reserved, so the sample is refused.
    daemon.post_body("/api/v1/import/prometheus", &[], b"quipu_x 1\n");
    let page = Page::read("metrics.md");
    let mut parts = parts(&daemon);
    // Some families appear with their first sample. A page that is not current takes this time.
    let begun = Instant::now();
    while !page.is_current(&parts) && begun.elapsed() < DEADLINE {
        thread::sleep(Duration::from_millis(50));
        parts = self::parts(&daemon);
    }
    page.expect(&parts);
}

/// A family as the exposition describes it.
#[derive(Default)]
struct Family<'a> {
    help: &'a str,
    kind: &'a str,
    /// The names of the labels, without the labels of buckets.
    labels: Vec<&'a str>,
}

/// Returns the tables of the daemon's own metrics.
fn parts(daemon: &Daemon) -> Vec<Part> {
    let header = "| metric | type | meaning |\n|---|---|---|\n";
    let mut parts = PARTS.map(|(name, _)| (name.to_owned(), header.to_owned()));
    let text = daemon.get("/metrics").text();
    for (name, family) in families(&text) {
        let prefixes = PARTS.iter().enumerate().flat_map(|(part, (_, prefixes))| {
            prefixes
                .iter()
                .filter(|prefix| name.starts_with(**prefix))
                .map(move |p| (p.len(), part))
        });
        let Some((_, part)) = prefixes.max() else {
            assert!(!name.starts_with("quipu_"), "{name} belongs to no part of the page");
            continue;
        };
        let Family { help, kind, labels } = family;
        let labels = labels.join(",");
        let labels = if labels.is_empty() { labels } else { format!("{{{labels}}}") };
        let help = cell(help.trim_end_matches('.'));
        writeln!(parts[part].1, "| `{name}{labels}` | {kind} | {help} |").unwrap();
    }
    parts.into()
}

/// Reads the families of an exposition by name. Their order in the exposition depends on the times
/// of the first samples.
fn families(text: &str) -> BTreeMap<&str, Family<'_>> {
    let mut families: BTreeMap<&str, Family<'_>> = BTreeMap::new();
    let mut name = "";
    for line in text.lines() {
        if let Some((family, help)) = line.strip_prefix("# HELP ").and_then(|l| l.split_once(' ')) {
            families.entry(family).or_default().help = help;
        } else if let Some((family, kind)) =
            line.strip_prefix("# TYPE ").and_then(|line| line.split_once(' '))
        {
            name = family;
            families.entry(name).or_default().kind = kind;
        } else if let Some((_, labels)) = line.split_once('{') {
            let family = families.entry(name).or_default();
            // Each name stands before `="`, after the brace, or after a comma that ends a value.
            let labels = labels.split("=\"").map(|text| text.rsplit([',', '"']).next().unwrap());
            for label in labels.filter(|label| *label != "le" && !label.contains('}')) {
                if !family.labels.contains(&label) {
                    family.labels.push(label);
                }
            }
        }
    }
    families
}
