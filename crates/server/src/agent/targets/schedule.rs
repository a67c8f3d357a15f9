//! When a target is scraped: once in each interval, at an offset that depends on the target alone,
//! so that many targets do not come at the same moment and a restart changes nothing.

use std::time::Duration;

/// How long to wait for the next slot.
pub(super) fn delay(since_epoch: Duration, interval: Duration, offset: u64) -> Duration {
    // It is at least the shortest interval.
    let interval = interval.as_nanos().max(1);
    let offset = u128::from(offset) % interval;
    let after = (since_epoch.as_nanos() + interval - offset) % interval;
    let left = interval - after;
    // A clock that is being set, or a first scrape shortly before the slot.
    let left = if left < interval / 4 { left + interval } else { left };
    Duration::from_nanos(u64::try_from(left).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_an_interval_apart() {
        let second = Duration::from_secs(1);
        let offset = 400_000_000;
        let at = |ms| delay(Duration::from_millis(ms), second, offset).as_millis();
        assert_eq!([at(5400), at(5401), at(6150)], [1000, 999, 250]);
        // Not twice within a fourth of the interval.
        assert_eq!(at(6399), 1001);
        assert_eq!(delay(Duration::ZERO, second, u64::MAX).as_millis(), 709);
        assert_eq!(delay(Duration::MAX, Duration::MAX, 3).as_secs(), u64::MAX / 1_000_000_000);
    }
}
