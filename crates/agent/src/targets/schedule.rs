//! When a target is scraped: once in each interval, at an offset that depends on the target alone,
//! so that many targets do not come at the same moment and a restart changes nothing.

use std::time::Duration;

/// The slots of a target. They have numbers, by the clock.
#[derive(Debug)]
pub(super) struct Schedule {
    /// Nanoseconds, as is the offset, which is smaller.
    interval: u128,
    offset: u128,
    /// The slot of the last scrape; `None` for the first one, which has none.
    last: Option<u128>,
}

impl Schedule {
    pub(super) fn new(interval: Duration, offset: u64) -> Self {
        // It is at least the shortest interval.
        let interval = interval.as_nanos().max(1);
        Self { interval, offset: u128::from(offset) % interval, last: None }
    }

    /// How long to wait for the next slot, after a scrape that ended now.
    pub(super) fn delay(&mut self, since_epoch: Duration) -> Duration {
        let Self { interval, offset, last } = *self;
        // Slot 1 is the first one after the epoch.
        let now = since_epoch.as_nanos() + interval - offset;
        let passed = now / interval;
        // The scrape took as long as it may, and a little more.
        let is_late = last.is_some_and(|last| passed > last) && now % interval < interval / 4;
        let mut next = if is_late { passed } else { passed + 1 };
        // The first scrape was shortly before the slot, or that of the slot itself was: the clock
        // was set back a little.
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
        // The first scrape was just now.
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
        // It takes the whole time, so that the next slot has just passed: again and again.
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
        // The wait ended a little early, by the clock: the slot is done.
        assert_eq!(at(5399), 1001);
        assert_eq!(at(6401), 999);
        // Hours ago, and ahead.
        assert_eq!(at(3000), 400);
        assert_eq!(at(9_000_000), 400);
    }
}
