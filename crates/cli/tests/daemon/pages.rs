//! Checks that no sender and no target can make `/metrics` unreadable. Prometheus' parsers read the
//! page in every format and escaping, and the metrics of all other senders must be on it.

use std::collections::HashSet;
use std::net::UdpSocket;

use serde_json::{Value, json};

use super::scraping::Exporter;
use crate::common::{Daemon, Home, wait_until};
use crate::textparse::textparse;

const FORMATS: [&str; 5] = [
    "text/plain;version=0.0.4",
    "text/plain;version=1.0.0",
    "application/openmetrics-text;version=1.0.0",
    "application/openmetrics-text;version=2.0.0",
    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited",
];
const ESCAPINGS: [&str; 4] = ["allow-utf-8", "underscores", "dots", "values"];

/// Expects Prometheus' parsers to read every page, and each series to occur once.
fn expect_readable(daemon: &Daemon) {
    for format in FORMATS {
        for escaping in ESCAPINGS {
            let response = daemon.scrape(&format!("{format};escaping={escaping}"));
            let content_type = &response.fields["content-type"];
            let samples = textparse(content_type, &response.body);
            let mut series = HashSet::new();
            for sample in &samples {
                let labels = sample["labels"].to_string();
                let name = sample["name"].as_str().unwrap().to_owned();
                assert!(series.insert((name.clone(), labels)), "{content_type}: {name} twice");
            }
            let is_good = |sample: &&Value| sample["labels"]["sender"] == "good";
            assert_eq!(samples.iter().filter(is_good).count(), 3, "{content_type} {samples:?}");
        }
    }
}

#[test]
fn a_bad_series_of_any_sender_leaves_the_page_readable() {
    let home = Home::new();
    let target = Exporter::start(
        &home,
        "# TYPE y_seconds_total untyped\ny_seconds_total 1\n# TYPE z_bytes gauge\nz_bytes 1\n\
         # TYPE good gauge\ngood{sender=\"good\"} 1\n",
    );
    let other = Exporter::start(
        &home,
        "# TYPE z_bytes counter\n# UNIT z_bytes bytes\nz_bytes_total 1\n# TYPE h histogram\n\
         h_bucket{le=\"2\"} 1\nh_bucket{le=\"1\"} 2\nh_bucket{le=\"+Inf\"} 2\nh_sum 1\nh_count 2\n",
    );
    let statsd = format!("udp://{}:9125", home.host());
    let targets = [&target.url, &other.url].map(|url| ["--scrape", url.as_str()]);
    let arguments = [&["--statsd", &statsd], &["--scrape-interval", "1h"]];
    let daemon =
        home.start(&[targets, arguments.map(|pair| pair.map(|one| one as &str))].concat().concat());

    let socket = UdpSocket::bind((home.host(), 0)).unwrap();
    socket.connect((home.host(), 9125)).unwrap();
    wait_until("StatsD takes a counter that is called like the suffix", || {
        socket.send(b".total:1|c").unwrap();
        daemon.get("/metrics").text().contains("\n_total ")
    });
    let points = json!([{"asDouble": 1, "timeUnixNano": 2, "startTimeUnixNano": 1}]);
    let sum = json!({"aggregationTemporality": 2, "isMonotonic": true, "dataPoints": points});
    let metrics = json!([{"name": "y", "unit": "s", "sum": sum}]);
    let otlp = json!({"resourceMetrics": [{"scopeMetrics": [{"metrics": metrics}]}]}).to_string();
    daemon.post_body("/v1/metrics", &[("Content-Type", "application/json")], otlp.as_bytes());
    for body in [
        "good{sender=\"good\",from=\"import\"} 2\n",
        "_total 1\n",
        "# TYPE _total gauge\n_total 1\n",
        "x{\"a b\"=\"1\",a_b=\"2\"} 1\n",
        "{\"x\",\"a b\"=\"1\"} 1\n",
        "{\"x\",a_b=\"1\"} 1\n",
        "{\"x y\"} 1\n",
        "x_y 1\n",
        "{\"quipu.events_total\"} 999\n",
    ] {
        daemon.post_body("/api/v1/import/prometheus", &[], body.as_bytes());
        daemon.post_body("/metrics/job/one", &[], body.as_bytes());
    }
    let info = "# TYPE i_bytes info\n# UNIT i_bytes bytes\ni_bytes_info{v=\"1\"} 1\n# EOF\n";
    let fields = [("Content-Type", "application/openmetrics-text; version=1.0.0")];
    daemon.post_body("/metrics/job/two", &fields, info.as_bytes());
    wait_until("both targets are scraped", || {
        let text = daemon.get("/metrics").text();
        text.contains("z_bytes") && text.matches("\nup{").count() == 2
    });
    assert_eq!(daemon.sample("quipu_events_total"), 0.0);
    expect_readable(&daemon);
}
