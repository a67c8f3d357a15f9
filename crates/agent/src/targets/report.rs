//! The report about each scrape, like in Prometheus: the series `up` and `scrape_*` next to the
//! target's own series.

use std::sync::Arc;

use quipu::snapshot::Sink;

use super::{Options, Target};
use quipu_sources::recorded::{Origin, Recorder, SourceSnapshot};

/// The values of the report, from the last scrape of a target.
#[derive(Debug, Clone, Copy)]
pub(super) struct Report {
    /// Whether the scrape succeeded.
    pub(super) up: bool,
    pub(super) seconds: f64,
    /// The number of samples in the exposition.
    pub(super) samples: usize,
    /// The number of samples that are shown, after dropping repeated series.
    pub(super) kept: usize,
    /// The number of series that were not in the previous scrape.
    pub(super) added: u64,
    /// The size of the exposition in bytes, or -1 if it was too large.
    pub(super) bytes: f64,
}

/// A metric of the report: its name, its help and its value.
type ReportMetric = (&'static str, &'static str, fn(&Report, &Options) -> f64);

const SHOWN: [ReportMetric; 8] = [
    ("up", "Whether the last scrape of the target succeeded.", |report, _| {
        f64::from(u8::from(report.up))
    }),
    ("scrape_duration_seconds", "Duration of the last scrape.", |report, _| report.seconds),
    ("scrape_samples_scraped", "Samples that the target exposed.", |report, _| {
        report.samples as f64
    }),
    (
        "scrape_samples_post_metric_relabeling",
        "Samples of the target that are shown.",
        |report, _| report.kept as f64,
    ),
    (
        "scrape_series_added",
        "Samples of series that the previous scrape did not contain.",
        |report, _| report.added as f64,
    ),
    ("scrape_body_size_bytes", "Size of the exposition; -1 if it is too large.", |report, _| {
        report.bytes
    }),
    ("scrape_timeout_seconds", "Time limit of a scrape.", |_, options| {
        options.timeout.as_secs_f64()
    }),
    ("scrape_sample_limit", "Samples that a target may expose.", |_, options| {
        options.samples as f64
    }),
];

/// Returns whether the report uses this name.
pub(super) fn is_reserved(name: &str) -> bool {
    SHOWN.iter().any(|shown| shown.0 == name)
}

/// Returns the reports about all targets that were scraped, as one source.
pub(super) fn snapshot(reports: &[(&Target, Report)], options: &Options) -> Arc<SourceSnapshot> {
    let mut recorder = Recorder::default();
    for (name, help, value) in SHOWN {
        let sink: &mut dyn Sink = &mut recorder;
        let mut family = sink.gauge(name, help, ["job", "instance"]);
        for (target, report) in reports {
            family.sample([target.job(), target.instance()], value(report, options));
        }
    }
    let (families, series) = recorder.finish();
    let (origin, name) = (Origin::Target, "scrape".to_owned());
    Arc::new(SourceSnapshot { origin, name, families, series, ..SourceSnapshot::default() })
}
