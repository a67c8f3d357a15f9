//! The time of the last sample of each series, for ways in whose samples have times.
//!
//! A series holds its last value only. A sample that is older than the last one is *late*: it
//! changes nothing, and is taken as seen. One that is older by more than [`LATE`], has the time of
//! the last one and another value, or is further in the future than [`AHEAD`], is refused.
//!
//! The times are in memory: after a restart of the daemon, the first sample of a gauge is taken
//! whatever its time is. The series of a counter that is followed has the time of its last sample
//! itself, so the table contains no later sample of it than the first one (see [`Shared::follow`]).
//!
//! [`Shared::follow`]: super::Shared::follow

use std::sync::{Mutex, MutexGuard, PoisonError};

use hashbrown::HashTable;
use quipu::intake::{Followed, Intake, Refused};
use rapidhash::v3::{RapidSecrets, rapidhash_v3_micro_inline};

/// How much older than the last one a sample may be, in milliseconds: two hours.
pub const LATE: i64 = 2 * 60 * 60 * 1000;
/// How far in the future a sample may be, in milliseconds: ten minutes, as in Prometheus.
pub const AHEAD: i64 = 10 * 60 * 1000;

/// The last samples of series, which all threads share.
pub struct Order {
    shards: [Mutex<Shard>; SHARDS],
    secrets: RapidSecrets,
    /// The most series of a shard.
    most: usize,
}

/// A sample that arrives.
#[derive(Debug, Clone, Copy)]
pub struct Arrival {
    /// The [hash](Order::hash) of the series.
    pub series: u64,
    /// In milliseconds since 1970.
    pub timestamp_ms: i64,
    /// The bits of the value.
    pub value: u64,
    /// The type that the value is taken as.
    pub class: Class,
}

/// The type that a value is taken as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// A total.
    Counter,
    /// A value that goes up and down.
    Gauge,
    /// A value of unknown type.
    Unknown,
    /// A histogram with classic buckets.
    Classic,
    /// A histogram with exponential buckets.
    Native,
    /// A summary.
    Summary,
}

/// What a sample is to its series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// The first one that is known.
    First,
    /// The next one.
    Next,
    /// The next one, but the last one was of another type, whose series ends.
    OtherClass,
    /// The last one again, or a late one: there is nothing to do.
    Seen,
}

/// Why a sample has no place in its series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Misplaced {
    /// It is older than the last one by more than [`LATE`].
    TooOld,
    /// It has the time of the last one, and another value.
    Duplicate,
    /// It is further in the future than [`AHEAD`].
    TooNew,
}

/// Why a total was not followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotFollowed {
    /// Its sample has no place.
    Misplaced(Misplaced),
    /// By the intake.
    Refused(Refused),
}

/// A power of two.
const SHARDS: usize = 16;
/// The time between two searches for series without recent samples, in milliseconds.
const SWEEP: i64 = 60 * 1000;

#[derive(Default)]
struct Shard {
    table: HashTable<Last>,
    /// When series without recent samples were removed last.
    swept_ms: i64,
}

struct Last {
    series: u64,
    timestamp_ms: i64,
    /// A part of the value's hash.
    value: u32,
    class: Class,
}

impl Order {
    /// No samples yet, of at most this number of series. Of more series, no times are kept.
    pub fn new(series: u64) -> Self {
        use std::hash::{BuildHasher, RandomState};
        let most = usize::try_from(series / SHARDS as u64).unwrap_or(usize::MAX).saturating_add(1);
        Self {
            shards: Default::default(),
            secrets: RapidSecrets::seed(RandomState::new().hash_one(0)),
            most,
        }
    }

    /// The hash of a series: of its name and its labels, which are in the order of their names.
    pub fn hash(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        // Each text has a hash of its own, so that it counts where it ends.
        let chain = |all: u64, text: &str| {
            let hash = rapidhash_v3_micro_inline::<true, false>(text.as_bytes(), &self.secrets);
            (all ^ hash).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
        };
        labels.iter().fold(chain(0, name), |all, (name, value)| chain(chain(all, name), value))
    }

    /// Finds the place of a sample in its series, and takes it as the last one if it is. A last one
    /// that is further in the future than [`AHEAD`] came while the clock was ahead, and is not
    /// known.
    ///
    /// # Errors
    /// It has no place.
    pub fn place(&self, arrival: &Arrival, now_ms: i64) -> Result<Turn, Misplaced> {
        let Arrival { series, timestamp_ms, value, class } = *arrival;
        let latest_ms = now_ms.saturating_add(AHEAD);
        if timestamp_ms > latest_ms {
            return Err(Misplaced::TooNew);
        }
        let value = part_of(value);
        let mut shard = self.shard(series);
        if let Some(last) = shard.table.find_mut(series, |last| last.series == series) {
            let is_known = last.timestamp_ms <= latest_ms;
            if is_known && timestamp_ms < last.timestamp_ms {
                return late(last.timestamp_ms.saturating_sub(timestamp_ms));
            }
            if timestamp_ms == last.timestamp_ms {
                let is_same = value == last.value;
                return if is_same { Ok(Turn::Seen) } else { Err(Misplaced::Duplicate) };
            }
            let turn = if last.class == class { Turn::Next } else { Turn::OtherClass };
            *last = Last { series, timestamp_ms, value, class };
            return Ok(turn);
        }
        if shard.table.len() >= self.most {
            shard.sweep(now_ms);
        }
        if shard.table.len() < self.most {
            let last = Last { series, timestamp_ms, value, class };
            shard.table.insert_unique(series, last, |last| last.series);
        }
        Ok(Turn::First)
    }

    /// Takes a sample as the last one of its series, if the one before is known and was of the same
    /// type, and if `take`, which takes its value, returns true. Returns `None`, and changes
    /// nothing, if not: then [`Order::place`] finds its place.
    pub fn place_next(
        &self,
        arrival: &Arrival,
        now_ms: i64,
        take: impl FnOnce() -> bool,
    ) -> Option<Turn> {
        let Arrival { series, timestamp_ms, value, class } = *arrival;
        if timestamp_ms > now_ms.saturating_add(AHEAD) {
            return None;
        }
        let value = part_of(value);
        let mut shard = self.shard(series);
        let last = shard.table.find_mut(series, |last| last.series == series)?;
        if last.class != class {
            return None;
        }
        if timestamp_ms > last.timestamp_ms {
            return take().then(|| {
                *last = Last { series, timestamp_ms, value, class };
                Turn::Next
            });
        }
        (timestamp_ms == last.timestamp_ms && value == last.value).then_some(Turn::Seen)
    }

    /// Forgets the last sample of a series, which could not be taken.
    pub fn forget(&self, series: u64) {
        let mut shard = self.shard(series);
        if let Ok(last) = shard.table.find_entry(series, |last| last.series == series) {
            last.remove();
        }
    }

    fn shard(&self, series: u64) -> MutexGuard<'_, Shard> {
        let shard = &self.shards[(series >> 20) as usize % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is kept of a value.
fn part_of(value: u64) -> u32 {
    (value.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
}

/// What a sample is that is older than the last one by this many milliseconds.
///
/// # Errors
/// It has no place.
pub fn late(by_ms: i64) -> Result<Turn, Misplaced> {
    if by_ms > LATE { Err(Misplaced::TooOld) } else { Ok(Turn::Seen) }
}

impl Turn {
    /// That of a sample whose series keeps the order.
    ///
    /// # Errors
    /// It has no place.
    pub fn of(followed: Followed) -> Result<Self, Misplaced> {
        match followed {
            Followed::Next => Ok(Self::Next),
            Followed::Again => Ok(Self::Seen),
            Followed::Other => Err(Misplaced::Duplicate),
            Followed::Late(by) => late(i64::try_from(by.as_millis()).unwrap_or(i64::MAX)),
        }
    }
}

impl Shard {
    /// Removes the series whose last sample is so old that nothing more can be too late.
    fn sweep(&mut self, now_ms: i64) {
        if now_ms.saturating_sub(self.swept_ms) >= SWEEP {
            self.swept_ms = now_ms;
            self.table.retain(|last| last.timestamp_ms > now_ms.saturating_sub(LATE));
        }
    }
}

impl Misplaced {
    /// A word for it, as the value of a label.
    pub fn reason(self) -> &'static str {
        match self {
            Self::TooOld => "out_of_order",
            Self::Duplicate => "duplicate",
            Self::TooNew => "too_new",
        }
    }
}

impl NotFollowed {
    /// A word for it, as the value of a label, and a text. The intake is the one that refused it.
    pub fn fault(self, intake: &Intake) -> (&'static str, String) {
        match self {
            Self::Misplaced(misplaced) => (misplaced.reason(), misplaced.to_string()),
            Self::Refused(refused) => (refused.reason(), intake.explain(refused).to_string()),
        }
    }
}

impl std::fmt::Display for Misplaced {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::TooOld => {
                "out of order: it is more than two hours older than the last one of its series"
            }
            Self::Duplicate => {
                "a duplicate: the last one of its series has the same time and another value"
            }
            Self::TooNew => {
                "too new: its time is more than ten minutes in the future; correct the clock"
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_700_000_000_000;

    fn arrival(series: u64, timestamp_ms: i64, value: u64) -> Arrival {
        Arrival { series, timestamp_ms, value, class: Class::Gauge }
    }

    #[test]
    fn samples_have_an_order() {
        let order = Order::new(100);
        let place = |timestamp, value| order.place(&arrival(1, timestamp, value), NOW);
        assert_eq!(place(NOW - LATE, 5), Ok(Turn::First));
        assert_eq!(place(NOW - LATE, 5), Ok(Turn::Seen));
        assert_eq!(place(NOW - LATE, 6), Err(Misplaced::Duplicate));
        assert_eq!(place(NOW, 5), Ok(Turn::Next));
        assert_eq!(place(NOW - LATE, 9), Ok(Turn::Seen));
        assert_eq!(place(NOW - LATE - 1, 9), Err(Misplaced::TooOld));
        assert_eq!(place(NOW + AHEAD + 1, 9), Err(Misplaced::TooNew));
        let counter = Arrival { class: Class::Counter, ..arrival(1, NOW + 1, 5) };
        assert_eq!(order.place(&counter, NOW), Ok(Turn::OtherClass));
        order.forget(1);
        assert_eq!(place(i64::MIN, 0), Ok(Turn::First));
        assert_eq!(order.place(&arrival(2, NOW, 0), NOW), Ok(Turn::First));
        // The clock was ahead by a day, and is corrected.
        let earlier = NOW - 24 * 60 * 60 * 1000;
        assert_eq!(order.place(&arrival(2, earlier, 1), earlier), Ok(Turn::Next));
        assert_eq!(order.place(&arrival(2, earlier, 1), earlier), Ok(Turn::Seen));
    }

    #[test]
    fn the_next_sample_is_taken_or_changes_nothing() {
        let order = Order::new(100);
        let next = |arrival: Arrival, takes| order.place_next(&arrival, NOW, || takes);
        assert_eq!(next(arrival(1, NOW, 5), true), None);
        assert_eq!(order.place(&arrival(1, NOW - 2, 5), NOW), Ok(Turn::First));
        assert_eq!(next(arrival(1, NOW - 1, 5), false), None);
        assert_eq!(next(arrival(1, NOW - 1, 5), true), Some(Turn::Next));
        assert_eq!(next(arrival(1, NOW - 1, 5), false), Some(Turn::Seen));
        for other in [
            arrival(1, NOW - 1, 6),
            arrival(1, NOW - 2, 5),
            arrival(1, NOW + AHEAD + 1, 5),
            Arrival { class: Class::Unknown, ..arrival(1, NOW, 5) },
        ] {
            assert_eq!(next(other, true), None, "{other:?}");
        }
        assert_eq!(order.place(&arrival(1, NOW - 1, 5), NOW), Ok(Turn::Seen));
    }

    #[test]
    fn the_number_of_series_is_bounded() {
        let order = Order::new(0);
        // One series fits in each shard.
        for series in 0..1000 {
            assert_eq!(order.place(&arrival(series << 20, NOW, 0), NOW), Ok(Turn::First));
        }
        let kept =
            || order.shards.iter().map(|shard| shard.lock().unwrap().table.len()).sum::<usize>();
        assert_eq!(kept(), SHARDS);
        // Series without recent samples make room.
        let later = NOW + LATE + SWEEP;
        for series in 1000..1016 {
            order.place(&arrival(series << 20, later, 0), later).unwrap();
        }
        assert_eq!(kept(), SHARDS);
        for series in 1000..1016 {
            assert_eq!(order.place(&arrival(series << 20, later, 0), later), Ok(Turn::Seen));
        }
    }

    #[test]
    fn hashes_differ_where_texts_do() {
        let order = Order::new(1);
        let hash = |name, labels: &[(&str, &str)]| order.hash(name, labels);
        let all = [
            hash("a", &[]),
            hash("ab", &[]),
            hash("a", &[("b", "c")]),
            hash("a", &[("bc", "")]),
            hash("a", &[("", "bc")]),
            hash("a", &[("b", "c"), ("d", "e")]),
            hash("a", &[("b", "cd"), ("", "e")]),
        ];
        for (index, one) in all.iter().enumerate() {
            assert!(all[..index].iter().all(|other| other != one), "{index}");
        }
        assert_eq!(hash("a", &[("b", "c")]), all[2]);
    }
}
