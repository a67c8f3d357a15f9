//! Determines when snapshots are sent, and how long to wait after failures.

use std::hash::{BuildHasher, RandomState};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use quipu_process::time::now_ms;

/// The error of a wait that the stop of the daemon ended.
#[derive(Debug)]
pub(super) struct ShutdownSignal;

/// The schedule of snapshots: the multiples of an interval since 1970.
#[derive(Debug)]
pub(super) struct Schedule {
    interval_ms: i64,
}

/// The time limit for sending a snapshot. This is the time when the next snapshot is due or the
/// daemon stops, or a fixed time during the stop.
#[derive(Debug)]
pub(super) struct Patience<'r> {
    /// The time of the snapshot in milliseconds since 1970.
    pub(super) last_ms: i64,
    /// The time of the next snapshot in milliseconds since 1970.
    next_ms: i64,
    /// The latest end by the monotonic clock, because the wall clock can be set back in the
    /// meantime; `None` if it is too far away.
    end: Option<Instant>,
    /// The channel that closes when the daemon stops; `None` during the stop.
    stopped: Option<&'r Receiver<()>>,
}

/// Exponential backoff: the waits between attempts.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    /// The number of failures since the last success.
    failures: u32,
}

/// The wait after the first failure.
const FIRST_DELAY: Duration = Duration::from_millis(100);
/// The longest wait without a request of the receiver.
const MAX_DELAY: Duration = Duration::from_secs(30);
/// The longest wait that a receiver can request.
const MAX_ASKED: Duration = Duration::from_secs(3600);

impl Schedule {
    pub(super) fn new(interval: Duration) -> Self {
        Self { interval_ms: millis(interval).max(1) }
    }

    fn after(&self, timestamp_ms: i64) -> i64 {
        timestamp_ms.saturating_add(self.interval_ms)
    }

    /// Returns the time limit for the snapshot of this time, which is due now.
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

    /// Returns the time of the latest snapshot after `last` that is already due, if any.
    pub(super) fn overdue(&self, last: i64) -> Option<i64> {
        let now = now_ms();
        let due = now - now.rem_euclid(self.interval_ms);
        (due > last).then_some(due)
    }

    /// Waits until the next snapshot is due, but at least `least`. Returns the time of this
    /// snapshot in milliseconds since 1970.
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
                // The due time can be long ago, because the machine was suspended.
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

/// The longest time until a change of the wall clock is noticed.
const SLICE: Duration = Duration::from_secs(1);

impl Patience<'_> {
    /// Creates the time limit for the stop of the daemon.
    pub(super) fn at_stop(time: Duration) -> Self {
        let end = Some(Instant::now() + time);
        Self { last_ms: i64::MIN, next_ms: i64::MAX, end, stopped: None }
    }

    /// Returns whether the time is over.
    pub(super) fn is_over(&self) -> bool {
        let is_stopped = |stopped: &Receiver<()>| stopped.try_recv() != Err(TryRecvError::Empty);
        self.left().is_zero() || self.stopped.is_some_and(is_stopped)
    }

    /// Returns the time limit of a request, if it differs from the default.
    pub(super) fn timeout(&self) -> Option<Duration> {
        self.stopped.is_none().then(|| self.left())
    }

    /// Returns the remaining time.
    pub(super) fn left(&self) -> Duration {
        let left = self.next_ms.saturating_sub(now_ms());
        let left = Duration::from_millis(u64::try_from(left).unwrap_or(0));
        let end = self.end.map(|end| end.saturating_duration_since(Instant::now()));
        end.map_or(left, |end| end.min(left))
    }

    /// Waits before another attempt. Returns false, possibly at once, if there is no time for
    /// another attempt.
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
    /// Returns the wait after another failure. This wait doubles each time up to a limit, and is
    /// never shorter than the receiver requests. A random part is subtracted, because many senders
    /// should not return at the same moment.
    pub(super) fn fail(&mut self, asked: Option<Duration>) -> Duration {
        let delay = FIRST_DELAY.saturating_mul(1 << self.failures.min(16)).min(MAX_DELAY);
        self.failures = self.failures.saturating_add(1);
        // A random number, because each state uses random keys.
        let random = RandomState::new().hash_one(0) % 1000;
        let delay = delay.mul_f64(1.0 - random as f64 / 2000.0);
        delay.max(asked.unwrap_or_default().min(MAX_ASKED))
    }

    /// Resets the wait after a success.
    pub(super) fn succeed(&mut self) {
        self.failures = 0;
    }

    /// Returns the number of failures since the last success.
    pub(super) fn failures(&self) -> u32 {
        self.failures
    }

    /// Returns whether the last attempt failed.
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
        // A due time from a clock that was far ahead.
        let ahead = now_ms() + 1_000_000_000;
        let patience = Schedule::new(MAX_ASKED).patience(ahead, &stopped);
        assert!(!patience.is_over() && patience.left() <= MAX_ASKED);
        let end = Some(Instant::now());
        assert!(Patience { end, ..patience }.is_over());
        assert!(Schedule::new(MAX_ASKED).patience(0, &stopped).is_over());
    }
}
