//! Limits on the samples per second of all sources together, and of each source.
//!
//! A source pays for samples with time, at the rate of the limit. A request or a packet is accepted
//! if its source owes at most a second, and otherwise refused. A request is therefore accepted or
//! refused as a whole, and a burst costs its source the time after the burst. This is the generic
//! cell rate algorithm.
//!
//! Each source uses a word in a table, which is found by a secret hash of its address, so the table
//! never grows. If two sources share a word, they also share a rate.

use std::fmt::Display;
use std::hash::BuildHasher;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hyper::StatusCode;
use hyper::header::RETRY_AFTER;
use quipu_segment::hash::SeededState;

use super::refusal::Refusal;

/// The limits on the rate of samples, and the times until which samples are paid for.
pub struct RateLimits {
    started: Instant,
    all: Option<(NonZeroU64, AtomicU64)>,
    each: Option<(NonZeroU64, Box<[AtomicU64]>)>,
    hash: SeededState,
}

/// The share of one source in the limits.
#[derive(Clone, Copy)]
pub struct Allowance<'r> {
    rates: &'r RateLimits,
    /// The word of the source in the table.
    word: usize,
}

/// The exceeded limit of a source, whose samples are refused for some time.
#[derive(Debug, PartialEq, Eq)]
pub struct Excess {
    /// A word for the reason.
    pub reason: &'static str,
    /// The rate in samples per second.
    pub rate: NonZeroU64,
    /// The wait until the next sample can be accepted.
    pub wait: Duration,
}

impl RateLimits {
    /// Creates limits from the rates of all sources together, and of each source.
    pub fn new([all, each]: [Option<NonZeroU64>; 2]) -> Self {
        let words = || (0..WORDS).map(|_| AtomicU64::new(0)).collect();
        Self {
            started: Instant::now(),
            all: all.map(|rate| (rate, AtomicU64::new(0))),
            each: each.map(|rate| (rate, words())),
            hash: SeededState::default(),
        }
    }

    /// Returns the allowance of a source; `None` without limits.
    pub fn allowance(&self, source: &dyn Display) -> Option<Allowance<'_>> {
        if self.all.is_none() && self.each.is_none() {
            return None;
        }
        // The truncation is intended, because only the low bits of the hash are needed.
        let word = |_| self.hash.hash_one(source.to_string()) as usize % WORDS;
        Some(Allowance { rates: self, word: self.each.as_ref().map_or(0, word) })
    }

    /// Returns the nanoseconds since the start.
    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

impl Allowance<'_> {
    fn limits(&self) -> impl Iterator<Item = (&'static str, NonZeroU64, &AtomicU64)> {
        let RateLimits { all, each, .. } = self.rates;
        let all = all.iter().map(|(rate, paid)| ("sample_rate", *rate, paid));
        let each = each
            .iter()
            .filter_map(|(rate, words)| Some(("source_sample_rate", *rate, words.get(self.word)?)));
        all.chain(each)
    }

    /// Checks whether the next samples can be accepted.
    ///
    /// # Errors
    /// Returns the rate that is exceeded.
    pub fn check(&self) -> Result<(), Excess> {
        self.check_at(self.rates.now())
    }

    fn check_at(&self, now: u64) -> Result<(), Excess> {
        for (reason, rate, paid) in self.limits() {
            let owed = paid.load(Ordering::Relaxed).saturating_sub(now);
            if owed > SECOND {
                return Err(Excess::new(reason, rate, owed));
            }
        }
        Ok(())
    }

    /// Charges the source for samples, no matter how much it already owes.
    pub fn charge(&self, samples: u64) {
        // Ignore the result, because no source exceeds this limit.
        let _ = self.pay(samples, self.rates.now(), u64::MAX);
    }

    /// Takes samples from the allowance before they are stored. Simultaneous requests cannot use
    /// the same part of the allowance.
    ///
    /// # Errors
    /// Returns the rate that is exceeded.
    pub fn take(&self, samples: u64) -> Result<(), Excess> {
        self.take_at(samples, self.rates.now())
    }

    fn take_at(&self, samples: u64, now: u64) -> Result<(), Excess> {
        self.check_at(now)?;
        // If another thread has used up the second rate in the meantime, the payment for the first
        // rate is wasted.
        self.pay(samples, now, SECOND)
    }

    /// Pays for samples, if at most `most` nanoseconds are owed.
    fn pay(&self, samples: u64, now: u64, most: u64) -> Result<(), Excess> {
        for (reason, rate, paid) in self.limits() {
            let cost = samples.saturating_mul(SECOND) / rate;
            let pay = |paid: u64| {
                let is_admitted = paid.saturating_sub(now) <= most;
                is_admitted.then(|| paid.max(now).saturating_add(cost).min(now + MOST_OWED))
            };
            let owed = paid.fetch_update(Ordering::Relaxed, Ordering::Relaxed, pay);
            owed.map_err(|paid| Excess::new(reason, rate, paid.saturating_sub(now)))?;
        }
        Ok(())
    }
}

impl Excess {
    /// Creates the excess of a source that owes this number of nanoseconds.
    fn new(reason: &'static str, rate: NonZeroU64, owed: u64) -> Self {
        Self { reason, rate, wait: Duration::from_nanos(owed.saturating_sub(SECOND)) }
    }

    /// Returns a 429 response that names the time to wait.
    pub fn refusal(&self) -> Box<Refusal> {
        let detail = format!("{self}; send again later, or less at a time");
        Refusal::new(StatusCode::TOO_MANY_REQUESTS, detail)
            .with(RETRY_AFTER, self.wait.as_secs() + 1)
    }
}

impl Display for Excess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (subject, flag) = match self.reason {
            "sample_rate" => ("all sources together bring", "--sample-rate"),
            _ => ("the source brings", "--sample-rate-per-source"),
        };
        write!(f, "{subject} more than {} samples a second ({flag})", self.rate)
    }
}

/// A second in nanoseconds.
const SECOND: u64 = 1_000_000_000;
/// The maximum debt of a source. This is limited because one large request should not lock it out
/// for long.
const MOST_OWED: u64 = 10 * SECOND;
/// The number of words for sources, which take 512 KiB.
const WORDS: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(all: Option<u64>, each: Option<u64>) -> RateLimits {
        RateLimits::new([all, each].map(|rate| rate.and_then(NonZeroU64::new)))
    }

    #[test]
    fn a_source_gets_its_rate_and_a_second_in_advance() {
        let rates = rates(None, Some(100));
        let source = rates.allowance(&"a").unwrap();
        let mut taken = 0;
        for now in (0..10 * SECOND).step_by(SECOND as usize / 1000) {
            if source.check_at(now).is_ok() {
                source.pay(1, now, u64::MAX).unwrap();
                taken += 1;
            }
        }
        assert!((1100..=1102).contains(&taken), "{taken}");
        let other = rates.allowance(&"b").unwrap();
        assert!(other.word == source.word || other.check_at(0).is_ok());
    }

    #[test]
    fn one_large_request_blocks_its_source_for_seconds() {
        let rates = rates(Some(10), None);
        let source = rates.allowance(&"a").unwrap();
        source.take_at(u64::MAX, 0).unwrap();
        let excess = source.check_at(0).unwrap_err();
        assert_eq!((excess.reason, excess.wait.as_secs()), ("sample_rate", 9));
        let refusal = excess.refusal();
        assert_eq!(
            (refusal.status, refusal.field),
            (StatusCode::TOO_MANY_REQUESTS, Some((RETRY_AFTER, 10.into())))
        );
        // A request that was checked before must be checked again.
        assert_eq!(source.take_at(1, 0), Err(excess));
        // Another source pays too, because the rate of all sources is shared.
        assert!(rates.allowance(&"b").unwrap().check_at(8 * SECOND).is_err());
        assert!(rates.allowance(&"b").unwrap().check_at(9 * SECOND).is_ok());
    }

    #[test]
    fn a_source_without_limits_has_no_allowance() {
        assert!(rates(None, None).allowance(&"a").is_none());
    }
}
