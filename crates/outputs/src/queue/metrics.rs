//! The daemon's own metrics of queues. They exist only if requests wait on the disk.

use quipu::{
    Counter, CounterFamily, Gauge, GaugeFamily, IntGauge, IntGaugeFamily, Metrics as Group, Scope,
};

/// The metrics of all queues.
#[derive(Debug, Group)]
#[metrics(prefix = "remote_write_queue")]
pub(crate) struct Metrics {
    /// Bytes of the files of the queue.
    #[metric(unit = "bytes", labels = ["receiver"])]
    size: IntGaugeFamily<[&'static str; 1]>,
    /// Requests that wait in the queue.
    #[metric(labels = ["receiver"])]
    requests: IntGaugeFamily<[&'static str; 1]>,
    /// Age of the oldest samples in the queue at the last snapshot; 0 if there are none.
    #[metric(unit = "seconds", labels = ["receiver"])]
    oldest_age: GaugeFamily<[&'static str; 1]>,
    /// Samples that left the queue and were not accepted, by reason.
    #[metric(labels = ["receiver", "reason"])]
    dropped_samples: CounterFamily<[&'static str; 2]>,
    /// Requests that could not be written to the disk.
    #[metric(labels = ["receiver"])]
    write_errors: CounterFamily<[&'static str; 1]>,
    /// Faults of the queue's files: damaged, foreign or unreadable ones.
    #[metric(labels = ["receiver"])]
    file_errors: CounterFamily<[&'static str; 1]>,
}

/// The metrics of the queue of one receiver.
#[derive(Debug)]
pub(crate) struct QueueReceiverMetrics {
    pub(super) size: IntGauge,
    pub(super) requests: IntGauge,
    pub(super) oldest_age: Gauge,
    /// The number of samples in files that were deleted at the size limit.
    pub(super) full: Counter,
    pub(super) refused: Counter,
    pub(super) damaged: Counter,
    pub(super) write_errors: Counter,
    pub(super) file_errors: Counter,
}

impl Metrics {
    /// Registers the metrics.
    pub(crate) fn new(scope: &Scope) -> Result<Self, quipu::Error> {
        scope.metrics()
    }

    /// Returns the metrics of a receiver.
    pub(crate) fn receiver(&self, receiver: &str) -> QueueReceiverMetrics {
        QueueReceiverMetrics {
            size: self.size.bind(&[receiver]),
            requests: self.requests.bind(&[receiver]),
            oldest_age: self.oldest_age.bind(&[receiver]),
            full: self.dropped_samples.bind(&[receiver, "full"]),
            refused: self.dropped_samples.bind(&[receiver, "refused"]),
            damaged: self.dropped_samples.bind(&[receiver, "damaged"]),
            write_errors: self.write_errors.bind(&[receiver]),
            file_errors: self.file_errors.bind(&[receiver]),
        }
    }
}
