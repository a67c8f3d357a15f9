//! The daemon's own metrics of what it sends by OTLP. They exist only if there is a receiver.

use quipu::{Counter, CounterFamily, GaugeFamily, Metrics as Group, Scope};

/// The metrics of all receivers.
#[derive(Debug, Group)]
#[metrics(prefix = "otlp_output")]
pub(crate) struct Metrics {
    /// Responses of the receiver, by status code.
    #[metric(labels = ["receiver", "code"])]
    requests: CounterFamily<[&'static str; 2]>,
    /// Data points that the receiver has taken.
    #[metric(labels = ["receiver"])]
    points_sent: CounterFamily<[&'static str; 1]>,
    /// Data points that were sent again.
    #[metric(labels = ["receiver"])]
    points_retried: CounterFamily<[&'static str; 1]>,
    /// Data points of requests that the receiver has refused, by status code. They are not sent
    /// again, but for deltas of a snapshot that is refused as a whole for the sender.
    #[metric(labels = ["receiver", "code"])]
    points_failed: CounterFamily<[&'static str; 2]>,
    /// Data points that the receiver has rejected of requests that it took.
    #[metric(labels = ["receiver"])]
    points_rejected: CounterFamily<[&'static str; 1]>,
    /// Data points that were not sent, by reason.
    #[metric(labels = ["receiver", "reason"])]
    points_dropped: CounterFamily<[&'static str; 2]>,
    /// Unix time of the last snapshot that the receiver has taken completely.
    #[metric(unit = "seconds", labels = ["receiver"])]
    last_sent_timestamp: GaugeFamily<[&'static str; 1]>,
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
    pub(super) rejected: Counter,
    /// Those that cannot be sent: a label or a series appears twice.
    pub(super) invalid: Counter,
    /// Those of a snapshot that was replaced before it was sent.
    pub(super) replaced: Counter,
    /// Has no series before everything was sent once.
    last_sent: GaugeFamily<[&'static str; 1]>,
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
            sent: self.points_sent.with(&[receiver]),
            retried: self.points_retried.with(&[receiver]),
            failed: self.points_failed.clone(),
            rejected: self.points_rejected.with(&[receiver]),
            invalid: self.points_dropped.with(&[receiver, "invalid"]),
            replaced: self.points_dropped.with(&[receiver, "replaced"]),
            last_sent: self.last_sent_timestamp.clone(),
        }
    }
}

impl ReceiverMetrics {
    /// Counts a response.
    pub(super) fn answered(&self, status: u16) {
        self.requests.inc(&[self.receiver.as_str(), status.to_string().as_str()]);
    }

    /// Counts points that were refused with this status.
    pub(super) fn refused(&self, status: u16, points: u64) {
        self.failed.with(&[self.receiver.as_str(), status.to_string().as_str()]).inc_by(points);
    }

    /// Records that all points of this time were sent.
    pub(super) fn completed(&self, time_ns: u64) {
        self.last_sent.set(&[self.receiver.as_str()], time_ns as f64 / 1e9);
    }
}
