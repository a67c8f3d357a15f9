//! Schedules the scrapes of a target: one in each interval, at an offset that depends only on the
//! target. The offset spreads the scrapes of many targets over the interval, and stays the same
//! after a restart.

use std::time::Duration;

/// The schedule of a target. Slots are the intervals since the epoch, shifted by the offset.
#[derive(Debug)]
pub(super) struct Schedule {
    /// The interval in nanoseconds.
    interval: u128,
    /// The offset in nanoseconds, less than the interval.
    offset: u128,
    /// The slot of the last scrape. `None` before and during the first scrape, which belongs to no
    /// slot.
    last: Option<u128>,
}

impl Schedule {
    pub(super) fn new(interval: Duration, offset: u64) -> Self {
        // This is never zero, because the settings enforce a minimum.
        let interval = interval.as_nanos().max(1);
        Self { interval, offset: u128::from(offset) % interval, last: None }
    }

    /// Returns the wait until the next slot, after a scrape that has just ended.
    pub(super) fn delay(&mut self, since_epoch: Duration) -> Duration {
        let Self { interval, offset, last } = *self;
        // Slot 1 is the first one after the epoch.
        let now = since_epoch.as_nanos() + interval - offset;
        let passed = now / interval;
        // If a scrape took slightly more than its interval, the next one can still use the slot
        // that has just begun.
        let is_late = last.is_some_and(|last| passed > last) && now % interval < interval / 4;
        let mut next = if is_late { passed } else { passed + 1 };
        // Skip this slot if the first scrape ran shortly before it, or if the slot was already used
        // before the clock was set back a little.
        let is_done = last.is_none_or(|last| last == next);
        if is_done && interval - now % interval < interval / 4 {
            next += 1;
        }
        self.last = Some(next);
        let left = (next * interval).saturating_sub(now);
        Duration::from_nanos(u64::try_from(left).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn slots_are_an_interval_apart() {
        let first = |since, interval, offset| Schedule::new(interval, offset).delay(since);
        let at = |ms| first(Duration::from_millis(ms), SECOND, 400_000_000).as_millis();
        assert_eq!([at(5400), at(5401), at(6150)], [1000, 999, 250]);
        // The first scrape has just ended.
        assert_eq!(at(6399), 1001);
        assert_eq!(first(Duration::ZERO, SECOND, u64::MAX).as_millis(), 709);
        assert_eq!(first(Duration::MAX, Duration::MAX, 3).as_secs(), u64::MAX / 1_000_000_000);
    }

    #[test]
    fn a_slow_target_is_scraped_in_each_interval() {
        let mut schedule = Schedule::new(SECOND, 400_000_000);
        let mut at = |ms| schedule.delay(Duration::from_millis(ms)).as_millis();
        assert_eq!(at(5000), 400);
        // Each scrape ends shortly before the next slot.
        assert_eq!([at(6399), at(7300), at(8151)], [1, 100, 249]);
        // The scrape takes the whole interval, so the next slot has just passed, again and again.
        assert_eq!([at(9401), at(10_402)], [0, 0]);
        // One slot is missed.
        assert_eq!(at(11_700), 700);
        assert_eq!(at(12_401), 999);
    }

    #[test]
    fn a_clock_that_is_set_changes_the_slots() {
        let mut schedule = Schedule::new(SECOND, 400_000_000);
        let mut at = |ms| schedule.delay(Duration::from_millis(ms)).as_millis();
        assert_eq!(at(5000), 400);
        // By the clock, the wait ended a little early, but this slot is already done.
        assert_eq!(at(5399), 1001);
        assert_eq!(at(6401), 999);
        // The clock moves hours back, and ahead.
        assert_eq!(at(3000), 400);
        assert_eq!(at(9_000_000), 400);
    }
}
