//! When a file that could not be read is read again: later after each failure, so that damaged
//! files, and those of a hostile program, do not cost a reading with every scrape.

use std::time::{Duration, Instant, SystemTime};

/// How long a file is left alone after the first failure, and at most.
const LEAST: Duration = Duration::from_secs(1);
const MOST: Duration = Duration::from_secs(5 * 60);

/// What changes when a file is written: its length, and the time of the last change.
pub(crate) type Stamp = (u64, Option<SystemTime>);

/// The failures of a file since it could be read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Retry {
    failures: u32,
    last: Instant,
    stamp: Stamp,
}

impl Retry {
    /// After another failure.
    pub(super) fn after(before: Option<Self>, now: Instant, stamp: Stamp) -> Self {
        let failures = before.map_or(0, |before| before.failures).saturating_add(1);
        Self { failures, last: now, stamp }
    }

    /// Whether the file is to be read again. One that has changed is not left alone for long: it
    /// may have been mended. But its program may write to it all the time.
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
        // A scrape each second, for an hour.
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
        // A file that changes all the time: at most a reading each second.
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
