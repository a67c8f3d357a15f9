//! The shared state of all shards of a receiver.
//!
//! - **Snapshots.** The first shard that is ready for a snapshot reads all series, for itself and
//!   for the other shards. Their requests wait until they are ready. A snapshot is therefore from
//!   one reading, with the same time in all shards. If a shard does not fetch its requests before
//!   the next reading, they are replaced.
//! - **Receiver.** The version that the receiver accepts, its last logged state, and the last
//!   snapshot that all shards have sent.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use quipu_client::sender::Answer;
use tracing::{debug, info, warn};

use super::Source;
use super::metrics::ReceiverMetrics;
use super::protocol::{Protocol, Verdict};
use super::queue::Form;
use super::snapshot::{Body, Requests};
use quipu_process::time::now_ms;

/// The shards of a receiver.
pub(super) struct Shards<P: Protocol> {
    source: Arc<dyn Source>,
    pub(super) protocol: P,
    /// The number of shards.
    pub(super) count: usize,
    interval: Duration,
    reading: Mutex<Reading<Requests<P::Writer>>>,
    states: Mutex<ReceiverStates>,
    /// The time of the last snapshot that each shard has sent completely.
    completed: Mutex<Vec<Option<i64>>>,
    /// The number of requests that the receiver accepted.
    taken: AtomicU64,
    /// The log message for a failing receiver.
    failing: &'static str,
    pub(super) metrics: ReceiverMetrics,
}

/// The last reading of all series, with the requests that shards have not fetched yet.
struct Reading<R> {
    timestamp_ms: i64,
    at: Instant,
    /// Whether this is the last snapshot before the stop.
    is_last: bool,
    parts: Vec<Option<R>>,
    /// The number of series in the largest part.
    series: usize,
}

/// The state of a receiver. The order is from best to worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ReceiverState {
    Unknown,
    /// The receiver accepts requests of this form.
    Takes(Form),
    Rejects,
    Refuses(u16),
    /// The receiver refuses all requests of a snapshot of deltas, which stays pending.
    PutsOff(u16),
    Fails,
}

/// The state of the receiver for each shard, with a message, and the last logged state.
struct ReceiverStates {
    each: Vec<(ReceiverState, String)>,
    logged: ReceiverState,
}

impl<P: Protocol> Shards<P> {
    pub(super) fn new(
        source: Arc<dyn Source>,
        protocol: P,
        count: usize,
        interval: Duration,
        metrics: ReceiverMetrics,
        failing: &'static str,
    ) -> Self {
        let reading = Reading {
            timestamp_ms: i64::MIN,
            at: Instant::now(),
            is_last: false,
            parts: (0..count).map(|_| None).collect(),
            series: 0,
        };
        Self {
            source,
            protocol,
            count,
            interval,
            reading: Mutex::new(reading),
            states: Mutex::new(ReceiverStates::new(count)),
            completed: Mutex::new(vec![None; count]),
            taken: AtomicU64::new(0),
            failing,
            metrics,
        }
    }

    /// Returns the daemons that the samples passed through.
    pub(super) fn via(&self) -> String {
        self.protocol.via(&*self.source)
    }

    /// Returns a shard's requests of the snapshot that was due at this time, or of a later one.
    /// Returns `None` if the shard already fetched them (for example, because the clock was set
    /// back), or after the last snapshot. Without a due time, this is the last snapshot, with the
    /// current time.
    ///
    /// # Errors
    /// Fails if the families of the state are inconsistent.
    pub(super) fn take(
        &self,
        shard: usize,
        due_ms: Option<i64>,
    ) -> Result<Option<Requests<P::Writer>>, quipu::Error> {
        let mut reading = lock(&self.reading);
        match due_ms {
            Some(_) if reading.is_last => return Ok(None),
            Some(due_ms) if !reading.is_of(shard, due_ms, self.interval) => {
                self.read(&mut reading, due_ms)?;
            }
            None if !reading.is_last || !reading.has(shard) => {
                // Use the current time instead of a multiple of the interval, because the samples
                // of this multiple may already be sent.
                self.read(&mut reading, now_ms())?;
                reading.is_last = true;
            }
            _ => {}
        }
        Ok(reading.part(shard))
    }

    /// Returns whether a shard has requests to fetch.
    pub(super) fn has_part(&self, shard: usize) -> bool {
        lock(&self.reading).has(shard)
    }

    /// Reads all series. Replaces requests that were not fetched.
    fn read(
        &self,
        reading: &mut Reading<Requests<P::Writer>>,
        timestamp_ms: i64,
    ) -> Result<(), quipu::Error> {
        let begun = Instant::now();
        let replaced = reading.parts.iter_mut().filter_map(Option::take);
        self.metrics.replaced.inc_by(replaced.map(|part| part.samples()).sum());
        let source = &*self.source;
        let parts = self.protocol.read(source, timestamp_ms, self.count, reading.series)?;
        reading.timestamp_ms = timestamp_ms;
        reading.at = begun;
        reading.series = parts.iter().map(Requests::series).max().unwrap_or(0);
        reading.parts = parts.into_iter().map(Some).collect();
        let receiver = &self.metrics.receiver;
        debug!(%receiver, took = ?begun.elapsed(), "took a snapshot to send");
        Ok(())
    }

    /// Interprets the response to a request, and counts accepted requests.
    pub(super) fn judge(&self, body: &Body, response: &Answer) -> Verdict {
        let verdict = self.protocol.judge(body, response);
        if matches!(verdict, Verdict::Taken(..)) {
            self.taken.fetch_add(1, Ordering::Relaxed);
        }
        verdict
    }

    /// Returns the number of requests that the receiver has accepted, over all shards.
    pub(super) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Records that a shard has completely sent the snapshot of this time.
    pub(super) fn complete(&self, shard: usize, timestamp_ms: i64) {
        let mut completed = lock(&self.completed);
        if let Some(completed) = completed.get_mut(shard) {
            *completed = Some(timestamp_ms);
        }
        if let Some(all) = completed.iter().copied().min().flatten() {
            self.metrics.completed(all);
        }
    }

    /// Records the state of the receiver for a shard, and logs a change of the common state.
    pub(super) fn note(&self, shard: usize, state: ReceiverState, text: &str) {
        let mut states = lock(&self.states);
        let Some((state, text)) = states.set(shard, state, text) else { return };
        let (receiver, samples) = (&self.metrics.receiver, P::SAMPLES);
        let refused = |status: u16, rest: &str| {
            warn!(%receiver, status, answer = text, "the receiver refuses {samples}{rest}");
        };
        match state {
            ReceiverState::Unknown => {}
            ReceiverState::Takes(form) => {
                info!(%receiver, version = form.version(), "the receiver takes {samples}");
            }
            ReceiverState::Rejects => warn!(
                %receiver, answer = text,
                "the receiver takes {samples}, but for some that it rejects"
            ),
            ReceiverState::Refuses(status) => refused(status, ", which are not sent again"),
            ReceiverState::PutsOff(status) => refused(status, "; it gets what they have later"),
            ReceiverState::Fails => warn!(%receiver, error = text, "{}", self.failing),
        }
    }
}

impl<R> Reading<R> {
    /// Returns whether this reading is suitable for a shard whose next snapshot is due at this
    /// time.
    fn is_of(&self, shard: usize, due_ms: i64, interval: Duration) -> bool {
        // We use the same reading, because two readings at the same time would give a sample two
        // values.
        if self.timestamp_ms == due_ms {
            return true;
        }
        // The reading is ahead of the due time if the clock was set back.
        let is_old = self.at.elapsed() > interval.saturating_mul(2);
        self.timestamp_ms > due_ms && !is_old && self.has(shard)
    }

    fn has(&self, shard: usize) -> bool {
        self.parts.get(shard).is_some_and(Option::is_some)
    }

    fn part(&mut self, shard: usize) -> Option<R> {
        self.parts.get_mut(shard)?.take()
    }
}

impl ReceiverStates {
    fn new(count: usize) -> Self {
        Self {
            each: vec![(ReceiverState::Unknown, String::new()); count],
            logged: ReceiverState::Unknown,
        }
    }

    /// Returns the state to log, if it changed: the worst state of all shards.
    fn set(
        &mut self,
        shard: usize,
        state: ReceiverState,
        text: &str,
    ) -> Option<(ReceiverState, &str)> {
        if let Some(own) = self.each.get_mut(shard) {
            *own = (state, text.to_owned());
        }
        let (worst, text) = self.each.iter().max_by_key(|(state, _)| *state)?;
        let is_same = *worst == self.logged || *worst == ReceiverState::Unknown;
        self.logged = if is_same { self.logged } else { *worst };
        (!is_same).then_some((*worst, text))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ReceiverState::{Fails, Refuses, Takes, Unknown};

    #[test]
    fn a_time_has_one_reading_whatever_the_clock_does() {
        let parts = vec![Some(()), None];
        let mut reading =
            Reading { timestamp_ms: 2000, at: Instant::now(), is_last: false, parts, series: 0 };
        let hour = Duration::from_secs(3600);
        let is_of =
            |reading: &Reading<()>, due_ms| [0, 1].map(|shard| reading.is_of(shard, due_ms, hour));
        assert_eq!(is_of(&reading, 3000), [false, false]);
        assert_eq!(is_of(&reading, 2000), [true, true]);
        // The second shard already fetched its part.
        assert!(reading.part(0).is_some() && reading.part(1).is_none());
        assert_eq!(is_of(&reading, 2000), [true, true]);
        assert!(reading.part(0).is_none());
        // The clock was set back by more.
        reading.parts[0] = Some(());
        assert_eq!(is_of(&reading, 1000), [true, false]);
        assert!(!reading.is_of(0, 1000, Duration::ZERO));
    }

    #[test]
    fn the_worst_that_a_shard_knows_is_logged_once() {
        let mut states = ReceiverStates::new(3);
        let mut set = |shard, state: ReceiverState| {
            let text = format!("{shard}");
            let logged = states.set(shard, state, &text);
            logged.map(|(state, text)| (state, text.parse::<usize>().unwrap()))
        };
        assert_eq!(set(0, Unknown), None);
        assert_eq!(set(1, Takes(Form::Write2)), Some((Takes(Form::Write2), 1)));
        assert_eq!(set(0, Takes(Form::Write2)), None);
        assert_eq!(set(2, Fails), Some((Fails, 2)));
        // One shard fails all the time.
        for _ in 0..3 {
            assert_eq!(
                (set(0, Takes(Form::Write2)), set(1, Refuses(400)), set(2, Fails)),
                (None, None, None)
            );
        }
        assert_eq!(set(2, Takes(Form::Write2)), Some((Refuses(400), 1)));
        assert_eq!(set(1, Takes(Form::Write2)), Some((Takes(Form::Write2), 2)));
        // This shard no longer contains any series.
        assert_eq!(
            (set(2, Fails), set(2, Unknown)),
            (Some((Fails, 2)), Some((Takes(Form::Write2), 1)))
        );
    }
}
