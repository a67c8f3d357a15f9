//! What was taken and refused: counted by way in and reason, and the last few of each to look at.

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
use quipu_process::seldom::Seldom;

/// Counts what was taken and refused.
pub struct Refusals {
    /// The samples of all ways in that were taken.
    total: &'static AtomicU64,
    taken: Vec<Counter>,
    refused: CounterFamily<[&'static str; 2]>,
    overlaps: Counter,
    /// The jobs whose overlaps were logged.
    overlapping: Mutex<BTreeSet<String>>,
    last: Mutex<VecDeque<Refused>>,
    /// The line of the log about a state that has no room.
    full: Seldom,
}

/// Something that was refused.
#[derive(Debug, Clone)]
pub struct Refused {
    /// When.
    pub time: SystemTime,
    /// The way in.
    pub input: Input,
    /// The source: an address, a listener of a unix socket, or a job.
    pub source: String,
    /// A word for the reason.
    pub reason: &'static str,
    /// The beginning of what was refused, or where its fault is.
    pub what: String,
}

/// The most that is kept of one reason of one way in, and of all.
const KEPT_EACH: usize = 5;
const KEPT: usize = 200;
/// The most jobs whose overlaps are logged.
const LOGGED_JOBS: usize = 100;
/// The most bytes of a text that is kept.
const TEXT_BYTES: usize = 256;

impl Refusals {
    /// Registers the counts in the daemon's own metrics. Samples that are taken are also counted in
    /// `total`.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn new(registry: &Registry, total: &'static AtomicU64) -> Result<Self, quipu::Error> {
        let about = Description::new("quipu_input_samples", "Samples that were taken in.");
        let family: CounterFamily<[&'static str; 1]> =
            registry.register(about.labels(["input"]))?;
        let taken = LIST.iter().map(|input| family.with(&[input.name])).collect();
        let about = Description::new("quipu_input_refused", "Samples or lines that were refused.");
        let refused = registry.register(about.labels(["input", "reason"]))?;
        let overlaps = registry.counter(
            "quipu_otlp_overlaps",
            "Data points of a process while another one sent the same series.",
        )?;
        let (overlapping, last) = (Mutex::default(), Mutex::default());
        Ok(Self { total, taken, refused, overlaps, overlapping, last, full: Seldom::new() })
    }

    /// Counts a data point of a job whose processes send the same series at the same time, and logs
    /// the first one.
    pub fn count_overlap(&self, job: &str) {
        self.overlaps.inc();
        let mut logged = self.overlapping.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.len() >= LOGGED_JOBS || logged.contains(job) {
            return;
        }
        logged.insert(job.to_owned());
        drop(logged);
        warn!(
            job = cut(&job),
            "processes send the same series by OTLP: their counters and their histograms with \
             bounds are added up, but of other data only the last value is shown; set \
             service.instance.id for each process"
        );
    }

    /// Counts samples that were taken.
    pub fn count_taken(&self, input: Input, samples: u64) {
        self.taken[input.number()].inc_by(samples);
        self.total.fetch_add(samples, Ordering::Relaxed);
    }

    /// Counts a sample or a line that was refused. `reason` is a word such as `series_limit`;
    /// `what` is the beginning of the input, or a text that says where the fault is.
    pub fn refuse(
        &self,
        input: Input,
        source: &str,
        reason: &'static str,
        what: &dyn fmt::Display,
    ) {
        self.refused.inc(&[input.name(), reason]);
        if reason == intake::Refused::Full.reason() && self.full.is_due(Instant::now()) {
            warn!(
                input = input.name(),
                "metrics are refused because the state has no room: free some space on its disk, \
                 or raise --input-bytes with a new state"
            );
        }
        // A flood of refusals does not wait for one that is being read.
        let Ok(mut last) = self.last.try_lock() else { return };
        let is_alike = |other: &&Refused| other.input == input && other.reason == reason;
        if last.iter().filter(is_alike).count() >= KEPT_EACH
            && let Some(oldest) = last.iter().position(|other| is_alike(&other))
        {
            last.remove(oldest);
        }
        if last.len() >= KEPT {
            last.pop_front();
        }
        let (time, source, what) = (SystemTime::now(), cut(&source), cut(what));
        last.push_back(Refused { time, input, source, reason, what });
    }

    /// The last refusals, the oldest first.
    pub fn last(&self) -> Vec<Refused> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.iter().cloned().collect()
    }
}

/// The beginning of a text, which may have any characters.
fn cut(text: &dyn fmt::Display) -> String {
    truncate(&printable(&truncate(text, TEXT_BYTES)), TEXT_BYTES)
}

#[cfg(test)]
mod tests {
    use super::super::truncate::tests::Long;
    use super::*;

    #[test]
    fn what_is_kept_of_a_refusal_costs_no_more_than_its_beginning() {
        let long = Long::default();
        assert_eq!(cut(&long).len(), TEXT_BYTES);
        assert!(long.0.get() < 100);
        assert_eq!(cut(&"a\nb"), "a\\nb");
        assert_eq!(cut(&"\n".repeat(200)).len(), TEXT_BYTES);
    }
}
