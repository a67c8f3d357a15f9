//! Limits the number of samples per second, of all sources together and of each source. The
//! algorithm is the generic cell rate algorithm (GCRA).
//!
//! Each sample costs its source some time: the reciprocal of the rate. A request or a packet is
//! accepted if its source is at most a second in debt, and otherwise refused as a whole. A source
//! can therefore send a burst, and must then wait until it is paid off.
//!
//! The debt of a source is a word in a table of fixed size, because a table of all sources would
//! grow without a limit. A hash with a secret seed finds this word. If two sources share a word,
//! they also share a rate.

use std::fmt::Display;
use std::hash::BuildHasher;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hyper::StatusCode;
use hyper::header::RETRY_AFTER;
use quipu_segment::hash::SeededState;

use super::refusal::Refusal;

/// The rates, and for each source the time until which its samples are paid.
pub struct RateLimits {
    started: Instant,
    all: Option<(NonZeroU64, AtomicU64)>,
    each: Option<(NonZeroU64, Box<[AtomicU64]>)>,
    hash: SeededState,
}

/// The rate limits that apply to one source.
#[derive(Clone, Copy)]
pub struct Allowance<'r> {
    rates: &'r RateLimits,
    /// The index of the source's word in the table.
    word: usize,
}

/// The error if a source exceeds a limit.
#[derive(Debug, PartialEq, Eq)]
pub struct Excess {
    /// The reason as the value of a label.
    pub reason: &'static str,
    /// The rate in samples per second.
    pub rate: NonZeroU64,
    /// The time until the next sample can be accepted.
    pub wait: Duration,
}

impl RateLimits {
    /// Creates limits from two rates: of all sources together, and of each source.
    pub fn new([all, each]: [Option<NonZeroU64>; 2]) -> Self {
        let words = || (0..WORDS).map(|_| AtomicU64::new(0)).collect();
        Self {
            started: Instant::now(),
            all: all.map(|rate| (rate, AtomicU64::new(0))),
            each: each.map(|rate| (rate, words())),
            hash: SeededState::default(),
        }
    }

    /// Returns the limits that apply to a source; `None` if there are no limits.
    pub fn allowance(&self, source: &dyn Display) -> Option<Allowance<'_>> {
        if self.all.is_none() && self.each.is_none() {
            return None;
        }
        // The truncation is intended, because any bits of the hash will do.
        let word = |_| self.hash.hash_one(source.to_string()) as usize % WORDS;
        Some(Allowance { rates: self, word: self.each.as_ref().map_or(0, word) })
    }

    /// Returns the nanoseconds since the daemon's start.
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
    /// Returns the exceeded limit.
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

    /// Charges a source for samples that were accepted, even if it is in debt.
    pub fn charge(&self, samples: u64) {
        // We ignore the result, because no debt exceeds this limit.
        let _ = self.pay(samples, self.rates.now(), u64::MAX);
    }

    /// Charges a source for samples before they are stored. This is atomic, so simultaneous
    /// requests cannot both use the rest of a limit.
    ///
    /// # Errors
    /// Returns the exceeded limit.
    pub fn take(&self, samples: u64) -> Result<(), Excess> {
        self.take_at(samples, self.rates.now())
    }

    fn take_at(&self, samples: u64, now: u64) -> Result<(), Excess> {
        self.check_at(now)?;
        // If another thread has used up the second limit in the meantime, the charge to the first
        // one is lost.
        self.pay(samples, now, SECOND)
    }

    /// Charges samples, if the source then owes at most `most` nanoseconds.
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
    /// Creates the error for a source that owes this number of nanoseconds.
    fn new(reason: &'static str, rate: NonZeroU64, owed: u64) -> Self {
        Self { reason, rate, wait: Duration::from_nanos(owed.saturating_sub(SECOND)) }
    }

    /// Returns a 429 response with the time to wait.
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
/// The maximum debt of a source. This is limited because one large request should not exclude its
/// source for long.
const MOST_OWED: u64 = 10 * SECOND;
/// The number of words in the table of sources, which takes 512 KiB.
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
