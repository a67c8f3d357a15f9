//! Exponential backoff for reading an invalid file, because a damaged or hostile file must not cost
//! a reading in every scrape.

use std::time::{Duration, Instant, SystemTime};

/// The wait after the first failure.
const LEAST: Duration = Duration::from_secs(1);
/// The maximum wait.
const MOST: Duration = Duration::from_secs(5 * 60);

/// Attributes that change when a file is written: its length and its modification time.
pub(crate) type Stamp = (u64, Option<SystemTime>);

/// The number of failures since the last successful reading, and the time of the last one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Retry {
    failures: u32,
    last: Instant,
    stamp: Stamp,
}

impl Retry {
    /// Returns the state after another failure.
    pub(super) fn after(before: Option<Self>, now: Instant, stamp: Stamp) -> Self {
        let failures = before.map_or(0, |before| before.failures).saturating_add(1);
        Self { failures, last: now, stamp }
    }

    /// Returns whether to read the file again. After a change of the file, the wait is only short,
    /// because the file may have been repaired. It is not zero, because a program may write to the
    /// file all the time.
    pub(super) fn is_due(&self, now: Instant, stamp: Stamp) -> bool {
        let wait = LEAST.saturating_mul(1 << (self.failures - 1).min(16)).min(MOST);
        let wait = if stamp == self.stamp { wait } else { LEAST };
        now.saturating_duration_since(self.last) >= wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_cost_ever_fewer_readings() {
        let (start, stamp) = (Instant::now(), (7, None));
        let second = Duration::from_secs(1);
        // Simulates a scrape each second, for an hour.
        let readings = |stamp: fn(u32) -> Stamp| {
            let (mut retry, mut readings) = (None, 0);
            for number in 0..3600 {
                let (now, stamp) = (start + second * number, stamp(number));
                if retry.is_none_or(|retry: Retry| retry.is_due(now, stamp)) {
                    readings += 1;
                    retry = Some(Retry::after(retry, now, stamp));
                }
            }
            readings
        };
        assert!((15..30).contains(&readings(|_| (7, None))));
        // Even a file that always changes is read at most once a second.
        assert_eq!(readings(|number| (u64::from(number), None)), 3600);
        let retry = Retry::after(None, start, stamp);
        let soon = start + Duration::from_millis(999);
        assert!(!retry.is_due(soon, stamp) && !retry.is_due(soon, (8, None)));
        let mut retry = retry;
        for _ in 0..100 {
            retry = Retry::after(Some(retry), start, stamp);
        }
        assert!(!retry.is_due(start + second, stamp) && retry.is_due(start + second, (8, None)));
        assert!(!retry.is_due(start + MOST - second, stamp) && retry.is_due(start + MOST, stamp));
    }
}
