//! Counts the families and series that each source made, for the limits on a source.
//!
//! The counts are a count-min sketch (Cormode and Muthukrishnan 2005): a hash of the source, with a
//! secret seed, selects a word in each of two rows, and the smaller word is the estimate. It is at
//! least the true count, and greater only if other sources share both words. We use a sketch,
//! because its size is fixed and threads can share it without a lock.
//!
//! Counts are never subtracted. Instead, all words are halved before the sum over all sources fills
//! the sketch. In the long run, a source can therefore exceed its limit, but the series of many
//! former sources do not use up the limit of a new one.

use std::hash::{BuildHasher, Hash};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use quipu_segment::hash::SeededState;

use super::limits::Limits;

/// The sketches, one for each limit that is set.
#[derive(Debug, Default)]
pub(super) struct Sources {
    hash: SeededState,
    series: Option<Sketch>,
    families: Option<Sketch>,
}

/// The hash of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct SourceHash(u64);

/// The counts of all sources for one limit.
#[derive(Debug)]
pub(super) struct Sketch {
    most: u64,
    rows: [Box<[AtomicU32]>; 2],
    /// The sum over all sources; halved with the words.
    all: AtomicU64,
}

/// The number of words in a row of the series sketch, which exists only if series are limited, and
/// of the family sketch.
const SERIES_WORDS: usize = 1 << 16;
const FAMILY_WORDS: usize = 1 << 14;

impl Sources {
    pub(super) fn new(limits: &Limits) -> Self {
        let sketch = |most, words| (most < u64::MAX).then(|| Sketch::new(most, words));
        Self {
            hash: SeededState::default(),
            series: sketch(limits.series_per_source, SERIES_WORDS),
            // If one source may make all families, the limit has no effect.
            families: (limits.families_per_source < limits.families)
                .then(|| Sketch::new(limits.families_per_source, FAMILY_WORDS)),
        }
    }

    /// Returns the hash of a source, which is a name or an address.
    #[inline]
    pub(super) fn find(&self, source: &(impl Hash + ?Sized)) -> SourceHash {
        if self.series.is_none() && self.families.is_none() {
            return SourceHash::default();
        }
        SourceHash(self.hash.hash_one(source))
    }

    /// Returns the counts of series, if their number is limited.
    pub(super) fn series(&self) -> Option<&Sketch> {
        self.series.as_ref()
    }

    /// Returns the counts of families, if their number is limited.
    pub(super) fn families(&self) -> Option<&Sketch> {
        self.families.as_ref()
    }
}

impl Sketch {
    fn new(most: u64, words: usize) -> Self {
        let row = || (0..words).map(|_| AtomicU32::new(0)).collect();
        Self { most, rows: [row(), row()], all: AtomicU64::new(0) }
    }

    /// Returns whether the source is below its limit. Threads do not reserve their place, so a
    /// source can exceed the limit by the number of threads that check at the same time.
    pub(super) fn has_room(&self, source: SourceHash) -> bool {
        let made = self.words(source).map(|word| word.load(Ordering::Relaxed));
        made.min().is_none_or(|made| u64::from(made) < self.most && made < u32::MAX)
    }

    /// Counts a series or family that the source made.
    pub(super) fn add(&self, source: SourceHash) {
        for word in self.words(source) {
            let more = |made: u32| made.checked_add(1);
            // At `u32::MAX`, the update fails, and the word stays.
            let _ = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        }
        let all = self.all.fetch_add(1, Ordering::Relaxed) + 1;
        // Relaxed: the counts are estimates, so it does not matter whether an addition of another
        // thread at the same time is halved.
        if all >= self.fullest()
            && self.all.compare_exchange(all, all / 2, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            self.halve();
        }
    }

    /// Returns the sum over all sources at which the sketch is halved: the words are then at a
    /// quarter of the limit on average, so sources that make few series are far from the limit.
    fn fullest(&self) -> u64 {
        (self.rows[0].len() as u64).saturating_mul(self.most.max(4)) / 4
    }

    fn halve(&self) {
        for word in self.rows.iter().flatten() {
            let half = |made: u32| Some(made / 2);
            let _ = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, half);
        }
    }

    fn words(&self, SourceHash(hash): SourceHash) -> impl Iterator<Item = &AtomicU32> {
        // The truncation is intended: each row uses other bits of the hash.
        let at = [hash as usize, (hash >> 32) as usize];
        self.rows.iter().zip(at).filter_map(|(row, at)| row.get(at % row.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_has_what_it_made_and_others_have_theirs() {
        let limits = Limits { series_per_source: 3, families_per_source: 1, ..Limits::default() };
        let sources = Sources::new(&limits);
        let (series, families) = (sources.series().unwrap(), sources.families().unwrap());
        let (one, other) = (sources.find("one"), sources.find("other"));
        for _ in 0..3 {
            assert!(series.has_room(one));
            series.add(one);
        }
        assert!(!series.has_room(one) && series.has_room(other));
        assert!(families.has_room(one));
        families.add(one);
        assert!(!families.has_room(one) && families.has_room(other));
    }

    #[test]
    fn many_sources_hardly_disturb_each_other() {
        let limits = Limits { families_per_source: 100, ..Limits::default() };
        let sources = Sources::new(&limits);
        let families = sources.families().unwrap();
        let count = if cfg!(miri) { 50 } else { 5000 };
        for number in 0..count {
            (0..40).for_each(|_| families.add(sources.find(&number)));
        }
        let full = (0..count).filter(|number| !families.has_room(sources.find(number))).count();
        // About 1 % of the sources share both of their words with others.
        assert!(full < count / 20 + 1, "{full}");
    }

    #[test]
    fn families_of_many_sources_over_time_refuse_no_source() {
        let limits = Limits { families_per_source: 4, ..Limits::default() };
        let sources = Sources::new(&limits);
        let families = sources.families().unwrap();
        // Each source makes one family, and never returns.
        let count = if cfg!(miri) { 20_000 } else { 300_000 };
        let mut refused = 0;
        for number in 0..count {
            let source = sources.find(&number);
            refused += u32::from(!families.has_room(source));
            families.add(source);
        }
        assert!(refused < count / 50, "{refused}");
        // A source that makes many families at once still reaches its limit.
        let one = sources.find("one");
        let made = (0..100).filter(|_| {
            families.has_room(one) && {
                families.add(one);
                true
            }
        });
        assert!(made.count() <= 4);
    }

    #[test]
    fn without_limits_nothing_is_kept() {
        let limits = Limits { families_per_source: u64::MAX, ..Limits::default() };
        let sources = Sources::new(&limits);
        assert!(sources.series().is_none() && sources.families().is_none());
        assert_eq!(sources.find("one"), sources.find("other"));
    }
}
