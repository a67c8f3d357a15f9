//! Counts accepted and refused samples by input and reason, and records the last refusals, so you
//! can find the sender of invalid samples.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Instant, SystemTime};

use quipu::intake;
use quipu::{Counter, CounterFamily, Description, Registry};
use quipu_segment::printable;
use tracing::warn;

use super::LIST;
use super::list::Input;
use super::truncate::truncate;
use quipu_process::log_limiter::LogLimiter;

/// The counts of accepted and refused samples, and the records of the last refusals.
pub struct Refusals {
    /// The number of samples that all inputs accepted.
    total: &'static AtomicU64,
    taken: Vec<Counter>,
    refused: CounterFamily<[&'static str; 2]>,
    overlaps: Counter,
    /// The jobs whose overlapping series were logged.
    overlapping: Mutex<BTreeSet<String>>,
    last: Mutex<VecDeque<RefusalRecord>>,
    /// Limits how often a full state file is logged.
    full: LogLimiter,
}

/// The record of a refused sample, line or request.
#[derive(Debug, Clone)]
pub struct RefusalRecord {
    /// The time of the refusal.
    pub time: SystemTime,
    /// The input.
    pub input: Input,
    /// The source: an address, a listener of a unix socket, or a job.
    pub source: String,
    /// The reason, which is also the value of the label `reason`.
    pub reason: &'static str,
    /// The beginning of the refused input, or the position and a description of the error.
    pub detail: String,
}

/// The maximum number of records with the same input and reason.
const KEPT_EACH: usize = 5;
/// The maximum number of records.
const KEPT: usize = 200;
/// The maximum number of jobs whose overlapping series are logged.
const LOGGED_JOBS: usize = 100;
/// The maximum length of a string in a record, in bytes.
const TEXT_BYTES: usize = 256;

impl Refusals {
    /// Registers the metrics. Accepted samples of all inputs are also added to `total`.
    ///
    /// # Errors
    /// Fails if there is not enough memory.
    pub fn new(registry: &Registry, total: &'static AtomicU64) -> Result<Self, quipu::Error> {
        let about = Description::new("quipu_input_samples", "Accepted samples, by input.");
        let family: CounterFamily<[&'static str; 1]> =
            registry.register(about.labels(["input"]))?;
        let taken = LIST.iter().map(|input| family.bind(&[input.name])).collect();
        let about = Description::new(
            "quipu_input_refused",
            "Refused samples or lines, by input and reason.",
        );
        let refused = registry.register(about.labels(["input", "reason"]))?;
        let overlaps = registry.counter(
            "quipu_otlp_overlaps",
            "Data points of a process while another one sent the same series.",
        )?;
        let (overlapping, last) = (Mutex::default(), Mutex::default());
        Ok(Self { total, taken, refused, overlaps, overlapping, last, full: LogLimiter::new() })
    }

    /// Counts a data point of a series that several processes of a job send at the same time. Logs
    /// a warning for the first such data point of each job.
    pub fn count_overlap(&self, job: &str) {
        self.overlaps.inc();
        let mut logged = self.overlapping.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.len() >= LOGGED_JOBS || logged.contains(job) {
            return;
        }
        logged.insert(job.to_owned());
        drop(logged);
        warn!(
            job = excerpt(&job),
            "processes send the same series by OTLP: their counters and their histograms with \
             bounds are added up, but of other data only the last value is shown; set \
             service.instance.id for each process"
        );
    }

    /// Counts accepted samples.
    pub fn count_taken(&self, input: Input, samples: u64) {
        self.taken[input.number()].inc_by(samples);
        self.total.fetch_add(samples, Ordering::Relaxed);
    }

    /// Counts and records a refused sample or line. `reason` is the value of a label, for example
    /// `series_limit`. `detail` is the beginning of the input, or the position and a description of
    /// the error.
    pub fn refuse(
        &self,
        input: Input,
        source: &str,
        reason: &'static str,
        detail: &dyn fmt::Display,
    ) {
        self.refused.inc(&[input.name(), reason]);
        if reason == intake::Rejection::Full.reason() && self.full.is_due(Instant::now()) {
            warn!(
                input = input.name(),
                "metrics are refused because the state has no room: free some space on its disk, \
                 or raise --input-bytes with a new state"
            );
        }
        // We use `try_lock`, because a flood of refusals must not wait for a reader of the records.
        let Ok(mut last) = self.last.try_lock() else { return };
        let is_alike = |other: &&RefusalRecord| other.input == input && other.reason == reason;
        if last.iter().filter(is_alike).count() >= KEPT_EACH
            && let Some(oldest) = last.iter().position(|other| is_alike(&other))
        {
            last.remove(oldest);
        }
        if last.len() >= KEPT {
            last.pop_front();
        }
        let (time, source, detail) = (SystemTime::now(), excerpt(&source), excerpt(detail));
        last.push_back(RefusalRecord { time, input, source, reason, detail });
    }

    /// Returns the records of the last refusals, the oldest first.
    pub fn last(&self) -> Vec<RefusalRecord> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.iter().cloned().collect()
    }
}

/// Returns the beginning of a string, with unprintable characters escaped.
fn excerpt(text: &dyn fmt::Display) -> String {
    truncate(&printable(&truncate(text, TEXT_BYTES)), TEXT_BYTES)
}

#[cfg(test)]
mod tests {
    use super::super::truncate::tests::Long;
    use super::*;

    #[test]
    fn a_long_refusal_is_formatted_up_to_the_limit() {
        let long = Long::default();
        assert_eq!(excerpt(&long).len(), TEXT_BYTES);
        assert!(long.0.get() < 100);
        assert_eq!(excerpt(&"a\nb"), "a\\nb");
        assert_eq!(excerpt(&"\n".repeat(200)).len(), TEXT_BYTES);
    }
}
