//! The daemon's own metrics of the outputs. They exist only if there is a receiver.

use quipu::{Counter, CounterFamily, Description, GaugeFamily, Scope};

/// The metrics of all receivers of a protocol.
#[derive(Debug)]
pub(super) struct Metrics {
    requests: CounterFamily<[&'static str; 2]>,
    sent: CounterFamily<[&'static str; 1]>,
    retried: CounterFamily<[&'static str; 1]>,
    failed: CounterFamily<[&'static str; 2]>,
    dropped: CounterFamily<[&'static str; 2]>,
    last_sent: GaugeFamily<[&'static str; 1]>,
}

/// The metrics of one receiver.
#[derive(Debug)]
pub(super) struct ReceiverMetrics {
    /// The name of the receiver.
    pub(super) receiver: String,
    requests: CounterFamily<[&'static str; 2]>,
    pub(super) sent: Counter,
    pub(super) retried: Counter,
    failed: CounterFamily<[&'static str; 2]>,
    /// The number of samples that cannot be written because a label or a series occurs twice.
    pub(super) invalid: Counter,
    /// The number of requests whose snapshot was replaced before they were sent.
    pub(super) replaced: Counter,
    /// The time of the last completely sent snapshot. There is no series before the first one.
    last_sent: GaugeFamily<[&'static str; 1]>,
}

impl Metrics {
    /// Registers the metrics. `name` is the prefix of their names, and `samples` is the noun for
    /// samples in their help strings.
    pub(super) fn new(
        scope: &Scope,
        (name, samples): (&str, &str),
        refused: &str,
    ) -> Result<Self, quipu::Error> {
        let one = |metric: &str, help: &str| {
            Description::new(format!("{name}_{metric}"), format!("{samples} {help}"))
        };
        let (by_code, by_reason) = (["receiver", "code"], ["receiver", "reason"]);
        let responses = "Responses of the receiver, by status code.";
        let last = "Unix time of the last snapshot that the receiver has accepted completely.";
        let last = Description::new("last_sent_timestamp", last).unit("seconds");
        let failed = Description::new(format!("{name}_failed"), refused);
        let sent = one("sent", "that the receiver has accepted.").labels(["receiver"]);
        let retried = one("retried", "that were sent again.").labels(["receiver"]);
        let dropped = one("dropped", "that were not sent, by reason.").labels(by_reason);
        Ok(Self {
            requests: scope.register(Description::new("requests", responses).labels(by_code))?,
            sent: scope.register(sent)?,
            retried: scope.register(retried)?,
            failed: scope.register(failed.labels(by_code))?,
            dropped: scope.register(dropped)?,
            last_sent: scope.register(last.labels(["receiver"]))?,
        })
    }

    /// Returns the metrics of a receiver.
    pub(super) fn receiver(&self, receiver: &str) -> ReceiverMetrics {
        ReceiverMetrics {
            receiver: receiver.to_owned(),
            requests: self.requests.clone(),
            sent: self.sent.bind(&[receiver]),
            retried: self.retried.bind(&[receiver]),
            failed: self.failed.clone(),
            invalid: self.dropped.bind(&[receiver, "invalid"]),
            replaced: self.dropped.bind(&[receiver, "replaced"]),
            last_sent: self.last_sent.clone(),
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
        self.failed.bind(&[self.receiver.as_str(), status.to_string().as_str()]).inc_by(samples);
    }

    /// Sets the time of the last completely sent snapshot.
    pub(super) fn completed(&self, timestamp_ms: i64) {
        self.last_sent.set(&[self.receiver.as_str()], timestamp_ms as f64 / 1000.0);
    }
}
