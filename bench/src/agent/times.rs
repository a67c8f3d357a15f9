//! Times of many calls, in memory that does not grow with their number.

use std::time::Duration;

/// Times of additions, as a histogram that is exact to 3 %.
pub(super) struct Times {
    /// The counts, by [`Times::bucket`].
    counts: Vec<u64>,
    pub(super) count: u64,
    /// The number of additions that took more than a millisecond.
    pub(super) over: u64,
    pub(super) greatest: Duration,
}

/// The number of binary digits that a bucket keeps of a time.
const DIGITS: u32 = 5;

impl Default for Times {
    fn default() -> Self {
        Times { counts: vec![0; 64 << DIGITS], count: 0, over: 0, greatest: Duration::ZERO }
    }
}

impl Times {
    /// Adds one time.
    pub(super) fn add(&mut self, time: Duration) {
        self.counts[Times::bucket(time.as_nanos() as u64)] += 1;
        self.count += 1;
        self.over += u64::from(time > Duration::from_millis(1));
        self.greatest = self.greatest.max(time);
    }

    /// Returns the bucket of a time: its first digits, and the number of further ones.
    fn bucket(nanoseconds: u64) -> usize {
        let shift = (64 - nanoseconds.leading_zeros()).saturating_sub(DIGITS + 1);
        ((shift as usize) << DIGITS) + (nanoseconds >> shift) as usize
    }

    /// Returns the greatest time in a bucket.
    fn most_of(bucket: usize) -> f64 {
        let shift = (bucket >> DIGITS).saturating_sub(1);
        let first = bucket - (shift << DIGITS);
        ((first + 1) as f64) * (shift as f64).exp2() - 1.0
    }

    /// Returns the time that this share of the additions did not exceed, in nanoseconds.
    pub(super) fn quantile(&self, share: f64) -> f64 {
        let rank = (share * self.count as f64).ceil() as u64;
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank.max(1) {
                return Times::most_of(bucket).min(self.greatest.as_nanos() as f64);
            }
        }
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_exact_to_three_percent() {
        let mut times = Times::default();
        (1..=100_000).for_each(|nanoseconds| times.add(Duration::from_nanos(nanoseconds)));
        for share in [0.000_1, 0.01, 0.5, 0.99, 0.9999] {
            let (found, expected) = (times.quantile(share), share * 100_000.0);
            assert!(found >= expected && found <= expected * 1.04, "{share}: {found}");
        }
        assert_eq!(times.quantile(1.0), 100_000.0);
    }

    #[test]
    fn each_time_has_a_bucket_that_contains_it() {
        for time in (0..5_000).chain([u64::from(u32::MAX), u64::MAX >> 1, u64::MAX]) {
            let bucket = Times::bucket(time);
            assert!(bucket < 64 << DIGITS, "{time}");
            assert!(Times::most_of(bucket) >= time as f64 * 0.999_999, "{time}");
        }
    }
}
