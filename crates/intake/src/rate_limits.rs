//! How many samples a second all sources together may bring, and each of them.
//!
//! What is brought has to be paid for in time, at the rate that is allowed: a request or a packet
//! is taken while at most a second is owed, and refused until then. So it is taken or refused
//! whole, and what a source brings at once costs it the time after that. This is the generic cell
//! rate algorithm.
//!
//! A source has a word in a table, found by a secret hash of its address, so the table never grows.
//! Two sources with the same word have one rate together.

use std::fmt::Display;
use std::hash::BuildHasher;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hyper::StatusCode;
use hyper::header::RETRY_AFTER;
use quipu_segment::hash::Seeded;

use super::refusal::Refusal;

/// The rates, and until when what was brought is paid for.
pub struct Rates {
    started: Instant,
    all: Option<(NonZeroU64, AtomicU64)>,
    each: Option<(NonZeroU64, Box<[AtomicU64]>)>,
    hash: Seeded,
}

/// What one source may bring.
#[derive(Clone, Copy)]
pub struct Allowance<'r> {
    rates: &'r Rates,
    /// Its word in the table.
    word: usize,
}

/// Why nothing is taken for now.
#[derive(Debug, PartialEq, Eq)]
pub struct Excess {
    /// A word for the reason.
    pub reason: &'static str,
    /// Samples a second.
    pub rate: NonZeroU64,
    /// When the next sample may be taken.
    pub wait: Duration,
}

impl Rates {
    /// The rates of all sources, and of each.
    pub fn new([all, each]: [Option<NonZeroU64>; 2]) -> Self {
        let words = || (0..WORDS).map(|_| AtomicU64::new(0)).collect();
        Self {
            started: Instant::now(),
            all: all.map(|rate| (rate, AtomicU64::new(0))),
            each: each.map(|rate| (rate, words())),
            hash: Seeded::default(),
        }
    }

    /// What a source may bring. `None` if nothing is limited.
    pub fn of(&self, source: &dyn Display) -> Option<Allowance<'_>> {
        if self.all.is_none() && self.each.is_none() {
            return None;
        }
        // Truncation is meant: the low bits of the hash.
        let word = |_| self.hash.hash_one(source.to_string()) as usize % WORDS;
        Some(Allowance { rates: self, word: self.each.as_ref().map_or(0, word) })
    }

    /// Nanoseconds since the start.
    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

impl Allowance<'_> {
    fn limits(&self) -> impl Iterator<Item = (&'static str, NonZeroU64, &AtomicU64)> {
        let Rates { all, each, .. } = self.rates;
        let all = all.iter().map(|(rate, paid)| ("sample_rate", *rate, paid));
        let each = each
            .iter()
            .filter_map(|(rate, words)| Some(("source_sample_rate", *rate, words.get(self.word)?)));
        all.chain(each)
    }

    /// Whether the next samples may be taken.
    ///
    /// # Errors
    /// The rate that is exceeded.
    pub fn check(&self) -> Result<(), Excess> {
        self.check_at(self.rates.now())
    }

    fn check_at(&self, now: u64) -> Result<(), Excess> {
        for (reason, rate, paid) in self.limits() {
            let owed = paid.load(Ordering::Relaxed).saturating_sub(now);
            if owed > SECOND {
                return Err(Excess::of(reason, rate, owed));
            }
        }
        Ok(())
    }

    /// Charges the source for samples, however much it owes already.
    pub fn charge(&self, samples: u64) {
        // With this limit, no source is refused.
        let _ = self.pay(samples, self.rates.now(), u64::MAX);
    }

    /// Takes samples, whose number is known before they are, from what the source may bring. Of
    /// several requests at the same time, none is taken by what only another one may bring.
    ///
    /// # Errors
    /// The rate that is exceeded.
    pub fn take(&self, samples: u64) -> Result<(), Excess> {
        self.take_at(samples, self.rates.now())
    }

    fn take_at(&self, samples: u64, now: u64) -> Result<(), Excess> {
        self.check_at(now)?;
        // If another thread has used up the second rate meanwhile, the first one is paid for
        // nothing.
        self.pay(samples, now, SECOND)
    }

    /// Pays for samples while at most `most` nanoseconds are owed.
    fn pay(&self, samples: u64, now: u64, most: u64) -> Result<(), Excess> {
        for (reason, rate, paid) in self.limits() {
            let cost = samples.saturating_mul(SECOND) / rate;
            let pay = |paid: u64| {
                let is_admitted = paid.saturating_sub(now) <= most;
                is_admitted.then(|| paid.max(now).saturating_add(cost).min(now + MOST_OWED))
            };
            let owed = paid.fetch_update(Ordering::Relaxed, Ordering::Relaxed, pay);
            owed.map_err(|paid| Excess::of(reason, rate, paid.saturating_sub(now)))?;
        }
        Ok(())
    }
}

impl Excess {
    /// That of a source that owes this number of nanoseconds.
    fn of(reason: &'static str, rate: NonZeroU64, owed: u64) -> Self {
        Self { reason, rate, wait: Duration::from_nanos(owed.saturating_sub(SECOND)) }
    }

    /// 429, with the time after which to send again.
    pub fn refusal(&self) -> Box<Refusal> {
        let what = format!("{self}; send again later, or less at a time");
        Refusal::new(StatusCode::TOO_MANY_REQUESTS, what).with(RETRY_AFTER, self.wait.as_secs() + 1)
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

/// Nanoseconds.
const SECOND: u64 = 1_000_000_000;
/// The most that a source can owe, so that one large request does not lock it out for long.
const MOST_OWED: u64 = 10 * SECOND;
/// The words for sources: 512 KiB.
const WORDS: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(all: Option<u64>, each: Option<u64>) -> Rates {
        Rates::new([all, each].map(|rate| rate.and_then(NonZeroU64::new)))
    }

    #[test]
    fn a_source_gets_its_rate_and_a_second_in_advance() {
        let rates = rates(None, Some(100));
        let source = rates.of(&"a").unwrap();
        let mut taken = 0;
        for now in (0..10 * SECOND).step_by(SECOND as usize / 1000) {
            if source.check_at(now).is_ok() {
                source.pay(1, now, u64::MAX).unwrap();
                taken += 1;
            }
        }
        assert!((1100..=1102).contains(&taken), "{taken}");
        let other = rates.of(&"b").unwrap();
        assert!(other.word == source.word || other.check_at(0).is_ok());
    }

    #[test]
    fn one_large_request_costs_some_seconds() {
        let rates = rates(Some(10), None);
        let source = rates.of(&"a").unwrap();
        source.take_at(u64::MAX, 0).unwrap();
        let excess = source.check_at(0).unwrap_err();
        assert_eq!((excess.reason, excess.wait.as_secs()), ("sample_rate", 9));
        let refusal = excess.refusal();
        assert_eq!(
            (refusal.status, refusal.field),
            (StatusCode::TOO_MANY_REQUESTS, Some((RETRY_AFTER, 10.into())))
        );
        // Requests that were checked before know better by now.
        assert_eq!(source.take_at(1, 0), Err(excess));
        // Another one pays for it, too.
        assert!(rates.of(&"b").unwrap().check_at(8 * SECOND).is_err());
        assert!(rates.of(&"b").unwrap().check_at(9 * SECOND).is_ok());
    }

    #[test]
    fn nothing_is_kept_without_a_rate() {
        assert!(rates(None, None).of(&"a").is_none());
    }
}
