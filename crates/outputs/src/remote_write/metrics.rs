//! The daemon's own metrics of remote write. They exist only if there is a receiver.

use quipu::{
    Counter, CounterFamily, GaugeFamily, IntGauge, IntGaugeFamily, Metrics as Group, Scope,
};

/// The metrics of all receivers.
#[derive(Debug, Group)]
#[metrics(prefix = "remote_write")]
pub(crate) struct Metrics {
    /// Responses of the receiver, by status code.
    #[metric(labels = ["receiver", "code"])]
    requests: CounterFamily<[&'static str; 2]>,
    /// Samples that the receiver has taken.
    #[metric(labels = ["receiver"])]
    samples_sent: CounterFamily<[&'static str; 1]>,
    /// Samples that were sent again.
    #[metric(labels = ["receiver"])]
    samples_retried: CounterFamily<[&'static str; 1]>,
    /// Samples that the receiver has refused, by status code. They are not sent again.
    #[metric(labels = ["receiver", "code"])]
    samples_failed: CounterFamily<[&'static str; 2]>,
    /// Samples that were not sent, by reason.
    #[metric(labels = ["receiver", "reason"])]
    samples_dropped: CounterFamily<[&'static str; 2]>,
    /// Unix time of the last snapshot that the receiver has taken completely.
    #[metric(unit = "seconds", labels = ["receiver"])]
    last_sent_timestamp: GaugeFamily<[&'static str; 1]>,
    /// Version of remote write that the receiver takes; 0 before it is known.
    #[metric(labels = ["receiver"])]
    version: IntGaugeFamily<[&'static str; 1]>,
}

/// The metrics of one receiver.
#[derive(Debug)]
pub(crate) struct ReceiverMetrics {
    /// Its name.
    pub(super) receiver: String,
    requests: CounterFamily<[&'static str; 2]>,
    pub(super) sent: Counter,
    pub(super) retried: Counter,
    failed: CounterFamily<[&'static str; 2]>,
    /// Those that cannot be written: a label or a series appears twice.
    pub(super) invalid: Counter,
    /// Those of a snapshot that was replaced before it was sent.
    pub(super) replaced: Counter,
    /// Has no series before everything was sent once.
    last_sent: GaugeFamily<[&'static str; 1]>,
    pub(super) version: IntGauge,
}

impl Metrics {
    /// Registers the metrics.
    pub(crate) fn new(scope: &Scope<'_>) -> Result<Self, quipu::Error> {
        scope.metrics()
    }

    /// Those of a receiver.
    pub(crate) fn receiver(&self, receiver: &str) -> ReceiverMetrics {
        ReceiverMetrics {
            receiver: receiver.to_owned(),
            requests: self.requests.clone(),
            sent: self.samples_sent.with(&[receiver]),
            retried: self.samples_retried.with(&[receiver]),
            failed: self.samples_failed.clone(),
            invalid: self.samples_dropped.with(&[receiver, "invalid"]),
            replaced: self.samples_dropped.with(&[receiver, "replaced"]),
            last_sent: self.last_sent_timestamp.clone(),
            version: self.version.with(&[receiver]),
        }
    }
}

impl ReceiverMetrics {
    /// Counts a response.
    pub(super) fn answered(&self, status: u16) {
        self.requests.inc(&[self.receiver.as_str(), status.to_string().as_str()]);
    }

    /// Counts samples that were refused with this status.
    pub(super) fn refused(&self, status: u16, samples: u64) {
        self.failed.with(&[self.receiver.as_str(), status.to_string().as_str()]).inc_by(samples);
    }

    /// Records that all samples of this time were sent.
    pub(super) fn completed(&self, timestamp_ms: i64) {
        self.last_sent.set(&[self.receiver.as_str()], timestamp_ms as f64 / 1000.0);
    }
}
