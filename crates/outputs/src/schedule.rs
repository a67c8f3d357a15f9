//! When snapshots are due, and how long to wait after a failure.

use std::hash::{BuildHasher, RandomState};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use quipu_process::time::now_ms;

/// The signal that the daemon stops.
#[derive(Debug)]
pub(super) struct ShutdownSignal;

/// The moments at which snapshots are due: the multiples of an interval since 1970.
#[derive(Debug)]
pub(super) struct Schedule {
    interval_ms: i64,
}

/// How long attempts to send a snapshot go on: until the next one is due, or the daemon stops; or
/// for a time while it stops.
#[derive(Debug)]
pub(super) struct Patience<'r> {
    /// The time of the snapshot, and of the next one, in milliseconds since 1970.
    pub(super) last_ms: i64,
    next_ms: i64,
    /// At the latest, since the clock may be set back meanwhile; `None` if that is too far away.
    end: Option<Instant>,
    /// Says that the daemon stops; `None` if it does.
    stopped: Option<&'r Receiver<()>>,
}

/// The times to wait between attempts.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    /// The attempts that have failed since the last one that did not.
    failures: u32,
}

/// The time to wait after the first failure, and the longest.
const FIRST_DELAY: Duration = Duration::from_millis(100);
const MAX_DELAY: Duration = Duration::from_secs(30);
/// The longest time to wait that a receiver may ask for.
const MAX_ASKED: Duration = Duration::from_secs(3600);

impl Schedule {
    pub(super) fn new(interval: Duration) -> Self {
        Self { interval_ms: millis(interval).max(1) }
    }

    /// The time of the snapshot after that of this time.
    fn after(&self, timestamp_ms: i64) -> i64 {
        timestamp_ms.saturating_add(self.interval_ms)
    }

    /// How long attempts to send the snapshot of this time go on, which is due now.
    pub(super) fn patience<'r>(
        &self,
        timestamp_ms: i64,
        stopped: &'r Receiver<()>,
    ) -> Patience<'r> {
        let interval = Duration::from_millis(self.interval_ms.cast_unsigned());
        let end = Instant::now().checked_add(interval);
        let (last_ms, next_ms) = (timestamp_ms, self.after(timestamp_ms));
        Patience { last_ms, next_ms, end, stopped: Some(stopped) }
    }

    /// The time of a snapshot after this one that is due already, if there is one: the last of
    /// several.
    pub(super) fn overdue(&self, last: i64) -> Option<i64> {
        let now = now_ms();
        let due = now - now.rem_euclid(self.interval_ms);
        (due > last).then_some(due)
    }

    /// Waits until the next snapshot is due, and at least for this time. Returns its time in
    /// milliseconds since 1970.
    pub(super) fn wait(
        &self,
        least: Duration,
        stopped: &Receiver<()>,
    ) -> Result<i64, ShutdownSignal> {
        let due = |now: i64| self.after(now - now.rem_euclid(self.interval_ms));
        let begun = Instant::now();
        let mut last = now_ms();
        let mut next = due(last.saturating_add(millis(least)));
        loop {
            let now = now_ms();
            if now >= next {
                // After a suspend, that may be long ago.
                return Ok(now - now.rem_euclid(self.interval_ms));
            }
            if now < last {
                // The clock was set back.
                let least = least.saturating_sub(begun.elapsed());
                next = due(now.saturating_add(millis(least)));
            }
            last = now;
            let left = Duration::from_millis((next - now).cast_unsigned());
            if stopped.recv_timeout(left.min(SLICE)) != Err(RecvTimeoutError::Timeout) {
                return Err(ShutdownSignal);
            }
        }
    }
}

/// The longest time for which changes of the clock are not seen.
const SLICE: Duration = Duration::from_secs(1);

impl Patience<'_> {
    /// The patience of a daemon that stops: this time.
    pub(super) fn at_stop(time: Duration) -> Self {
        let end = Some(Instant::now() + time);
        Self { last_ms: i64::MIN, next_ms: i64::MAX, end, stopped: None }
    }

    /// Whether what is left is not to be sent any more.
    pub(super) fn is_over(&self) -> bool {
        let is_stopped = |stopped: &Receiver<()>| stopped.try_recv() != Err(TryRecvError::Empty);
        self.left().is_zero() || self.stopped.is_some_and(is_stopped)
    }

    /// The time that a request may take, if that is not the usual one.
    pub(super) fn timeout(&self) -> Option<Duration> {
        self.stopped.is_none().then(|| self.left())
    }

    /// The time that is left.
    pub(super) fn left(&self) -> Duration {
        let left = self.next_ms.saturating_sub(now_ms());
        let left = Duration::from_millis(u64::try_from(left).unwrap_or(0));
        let end = self.end.map(|end| end.saturating_duration_since(Instant::now()));
        end.map_or(left, |end| end.min(left))
    }

    /// Waits before another attempt. Returns false, maybe without waiting, if there is no time for
    /// one.
    pub(super) fn wait(&self, delay: Duration) -> bool {
        if delay >= self.left() {
            return false;
        }
        let Some(stopped) = self.stopped else {
            std::thread::sleep(delay);
            return true;
        };
        stopped.recv_timeout(delay) == Err(RecvTimeoutError::Timeout)
    }
}

impl Backoff {
    /// The time to wait after another failure: twice as long each time, less a random part so that
    /// many senders do not come back together, and at least as long as the receiver asks for.
    pub(super) fn fail(&mut self, asked: Option<Duration>) -> Duration {
        let delay = FIRST_DELAY.saturating_mul(1 << self.failures.min(16)).min(MAX_DELAY);
        self.failures = self.failures.saturating_add(1);
        // Each state has its own keys, so this is another number each time.
        let random = RandomState::new().hash_one(0) % 1000;
        let delay = delay.mul_f64(1.0 - random as f64 / 2000.0);
        delay.max(asked.unwrap_or_default().min(MAX_ASKED))
    }

    /// An attempt did not fail.
    pub(super) fn succeed(&mut self) {
        self.failures = 0;
    }

    /// The attempts that have failed since the last one that did not.
    pub(super) fn failures(&self) -> u32 {
        self.failures
    }

    /// Whether the last attempt failed.
    pub(super) fn is_failing(&self) -> bool {
        self.failures > 0
    }
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn delays_double_and_have_a_bound() {
        let mut backoff = Backoff::default();
        let delays: Vec<_> = (0..40).map(|_| backoff.fail(None)).collect();
        for (at, delay) in delays.iter().enumerate() {
            let whole = FIRST_DELAY.saturating_mul(1 << at.min(16)).min(MAX_DELAY);
            assert!(whole / 2 <= *delay && *delay <= whole, "{at}: {delay:?}");
        }
        assert_eq!(backoff.fail(Some(Duration::from_secs(100))), Duration::from_secs(100));
        assert_eq!(backoff.fail(Some(Duration::MAX)), MAX_ASKED);
        backoff.succeed();
        assert!(!backoff.is_failing() && backoff.fail(None) <= FIRST_DELAY);
    }

    #[test]
    fn snapshots_are_due_at_multiples_of_the_interval() {
        let schedule = Schedule::new(Duration::from_millis(10));
        let (stop, stopped) = mpsc::channel();
        let mut last = now_ms();
        for _ in 0..3 {
            let next = schedule.wait(Duration::ZERO, &stopped).unwrap();
            assert!(next % 10 == 0 && next > last && next <= now_ms(), "{last} {next}");
            last = next;
        }
        let least = Duration::from_millis(30);
        assert!(schedule.wait(least, &stopped).unwrap() >= last + 30);
        drop(stop);
        assert!(Schedule::new(MAX_ASKED).wait(least, &stopped).is_err());
        assert!(!Schedule::new(MAX_ASKED).patience(i64::MAX, &stopped).wait(least));
        assert!(!Patience::at_stop(Duration::ZERO).wait(least));
    }

    #[test]
    fn a_clock_that_is_set_back_holds_nothing_up() {
        let (_stop, stopped) = mpsc::channel();
        // What is due by a clock that was ahead by far.
        let ahead = now_ms() + 1_000_000_000;
        let patience = Schedule::new(MAX_ASKED).patience(ahead, &stopped);
        assert!(!patience.is_over() && patience.left() <= MAX_ASKED);
        let end = Some(Instant::now());
        assert!(Patience { end, ..patience }.is_over());
        assert!(Schedule::new(MAX_ASKED).patience(0, &stopped).is_over());
    }
}
