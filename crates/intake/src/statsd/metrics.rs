//! The daemon's own metrics of samples of StatsD. They exist only if there is a listener.

use quipu::{Counter, CounterFamily, Metrics as Group, Scope};
use quipu_wire::remote::statsd::StatsdType;

/// The metrics of all listeners.
#[derive(Debug, Group)]
pub(super) struct StatsdMetrics {
    /// Accepted values, by type.
    #[metric(labels = ["type"])]
    samples: CounterFamily<[&'static str; 1]>,
    /// Events and service checks of Datadog, which are not kept.
    #[metric(labels = ["kind"])]
    events: CounterFamily<[&'static str; 1]>,
}

/// The series of the metrics.
#[derive(Debug, Clone)]
pub(super) struct StatsdCounters {
    samples: [Counter; TYPES.len()],
    events: Counter,
    service_checks: Counter,
}

/// The counts that are not added to the metrics yet.
#[derive(Debug, Default)]
pub(super) struct StatsdCounts {
    /// The samples by [`StatsdType`].
    pub(super) samples: [u64; TYPES.len()],
    pub(super) events: u64,
    pub(super) service_checks: u64,
}

impl StatsdMetrics {
    /// Registers the metrics.
    pub(super) fn new(scope: &Scope) -> Result<Self, quipu::Error> {
        scope.metrics()
    }

    /// Returns all series, looked up once.
    pub(super) fn samples(&self) -> StatsdCounters {
        StatsdCounters {
            samples: TYPES.map(|name| self.samples.bind(&[name])),
            events: self.events.bind(&["event"]),
            service_checks: self.events.bind(&["service_check"]),
        }
    }
}

impl StatsdCounters {
    /// Adds counts to the metrics.
    pub(super) fn add(&self, counts: &StatsdCounts) {
        let samples = self.samples.iter().zip(counts.samples);
        let others = [(&self.events, counts.events), (&self.service_checks, counts.service_checks)];
        for (counter, count) in samples.chain(others).filter(|(_, count)| *count > 0) {
            counter.inc_by(count);
        }
    }
}

/// The types of values, in the order of [`StatsdType`].
const TYPES: [&str; 7] = ["counter", "distribution", "gauge", "histogram", "meter", "set", "timer"];

const _: () =
    assert!(StatsdType::Counter as usize == 0 && StatsdType::Timer as usize == TYPES.len() - 1);
