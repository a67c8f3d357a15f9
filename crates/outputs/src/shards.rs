//! The state that the shards of a receiver share.
//!
//! - **Snapshots.** The first shard that is ready for a snapshot reads all series, for itself and
//!   the others, whose parts wait until they are ready. So the samples of a snapshot are from one
//!   reading, and have the same time in all shards. A part that was not fetched when the next
//!   snapshot is read is replaced by that.
//! - **Knowledge.** The version that the receiver takes, what was last logged of it, and which
//!   snapshots it has from all shards.

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
    /// How many there are.
    pub(super) count: usize,
    interval: Duration,
    reading: Mutex<Reading<Requests<P::Writer>>>,
    standings: Mutex<Standings>,
    /// The time of the last snapshot that each shard has sent completely.
    completed: Mutex<Vec<Option<i64>>>,
    /// How many requests the receiver has taken.
    taken: AtomicU64,
    /// The text of the log when the receiver fails.
    failing: &'static str,
    pub(super) metrics: ReceiverMetrics,
}

/// The last snapshot that was read, with the parts that wait for their shards.
struct Reading<R> {
    timestamp_ms: i64,
    at: Instant,
    /// Whether it is that of the end.
    is_last: bool,
    parts: Vec<Option<R>>,
    /// How many series the largest part had.
    series: usize,
}

/// The state of a receiver. The later ones are worse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Standing {
    Unknown,
    /// It takes samples in this form.
    Takes(Form),
    Rejects,
    Refuses(u16),
    /// It refuses all of a snapshot of deltas, which is kept.
    PutsOff(u16),
    Fails,
}

/// The state of the receiver by shard, with a text about it, and the state that was last logged.
struct Standings {
    each: Vec<(Standing, String)>,
    logged: Standing,
}

impl<P: Protocol> Shards<P> {
    /// The shards of a receiver.
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
            standings: Mutex::new(Standings::new(count)),
            completed: Mutex::new(vec![None; count]),
            taken: AtomicU64::new(0),
            failing,
            metrics,
        }
    }

    /// The way that the samples have gone.
    pub(super) fn via(&self) -> String {
        self.protocol.via(&*self.source)
    }

    /// The part of a shard of the snapshot that was due at this time, or of a later one. `None` if
    /// the shard had it before, as after the clock was set back, or if the last snapshot was read
    /// already. Without a time, it is of the last snapshot, for which there is no other time than
    /// now.
    ///
    /// # Errors
    /// If the families of the state are inconsistent.
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
                // Not at a multiple of the interval: the totals of that time may have been sent.
                self.read(&mut reading, now_ms())?;
                reading.is_last = true;
            }
            _ => {}
        }
        Ok(reading.part(shard))
    }

    /// Whether a part of a snapshot waits for a shard.
    pub(super) fn has_part(&self, shard: usize) -> bool {
        lock(&self.reading).has(shard)
    }

    /// Reads all series. Parts that were not fetched are replaced.
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

    /// Judges the response to a request.
    pub(super) fn judge(&self, body: &Body, response: &Answer) -> Verdict {
        let verdict = self.protocol.judge(body, response);
        if matches!(verdict, Verdict::Taken(..)) {
            self.taken.fetch_add(1, Ordering::Relaxed);
        }
        verdict
    }

    /// How many requests the receiver has taken of all shards.
    pub(super) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Notes that a shard has sent all of the snapshot of this time.
    pub(super) fn complete(&self, shard: usize, timestamp_ms: i64) {
        let mut completed = lock(&self.completed);
        if let Some(completed) = completed.get_mut(shard) {
            *completed = Some(timestamp_ms);
        }
        if let Some(all) = completed.iter().copied().min().flatten() {
            self.metrics.completed(all);
        }
    }

    /// Notes what a shard knows of the receiver, and logs a change for all of them.
    pub(super) fn note(&self, shard: usize, standing: Standing, text: &str) {
        let mut standings = lock(&self.standings);
        let Some((standing, text)) = standings.set(shard, standing, text) else { return };
        let (receiver, samples) = (&self.metrics.receiver, P::SAMPLES);
        let refused = |status: u16, rest: &str| {
            warn!(%receiver, status, answer = text, "the receiver refuses {samples}{rest}");
        };
        match standing {
            Standing::Unknown => {}
            Standing::Takes(form) => {
                info!(%receiver, version = form.version(), "the receiver takes {samples}");
            }
            Standing::Rejects => warn!(
                %receiver, answer = text,
                "the receiver takes {samples}, but for some that it rejects"
            ),
            Standing::Refuses(status) => refused(status, ", which are not sent again"),
            Standing::PutsOff(status) => refused(status, "; it gets what they have later"),
            Standing::Fails => warn!(%receiver, error = text, "{}", self.failing),
        }
    }
}

impl<R> Reading<R> {
    /// Whether this is the snapshot for a shard that is due for one of this time.
    fn is_of(&self, shard: usize, due_ms: i64, interval: Duration) -> bool {
        // Two readings of one time would give its samples two values.
        if self.timestamp_ms == due_ms {
            return true;
        }
        // Its time may be ahead of the clock, if that was set back.
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

impl Standings {
    fn new(count: usize) -> Self {
        Self { each: vec![(Standing::Unknown, String::new()); count], logged: Standing::Unknown }
    }

    /// Returns what is to be logged: the worst of what the shards know, if that has changed.
    fn set(&mut self, shard: usize, standing: Standing, text: &str) -> Option<(Standing, &str)> {
        if let Some(own) = self.each.get_mut(shard) {
            *own = (standing, text.to_owned());
        }
        let (worst, text) = self.each.iter().max_by_key(|(standing, _)| *standing)?;
        let is_same = *worst == self.logged || *worst == Standing::Unknown;
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
    use Standing::{Fails, Refuses, Takes, Unknown};

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
        // The second one had its part.
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
        let mut standings = Standings::new(3);
        let mut set = |shard, standing: Standing| {
            let text = format!("{shard}");
            let logged = standings.set(shard, standing, &text);
            logged.map(|(standing, text)| (standing, text.parse::<usize>().unwrap()))
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
        // It has no series any more.
        assert_eq!(
            (set(2, Fails), set(2, Unknown)),
            (Some((Fails, 2)), Some((Takes(Form::Write2), 1)))
        );
    }
}
