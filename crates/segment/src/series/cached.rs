//! Series of processes: a handle that finds its series again after a fork, and the lock for folding
//! the series that ended processes left.
//!
//! A cached series does not bind its series, which can be removed and created again at any time.
//! The handle stores the record where the series was found, and checks that the series still owns
//! this record.

use super::cells::SeriesCells;
use super::family::{ClaimOrLock, ClaimedCells, Family, Series};
use super::key::{KeyWriter, PackedValues, Values};
use super::keyed::{DynamicSeries, FoundRecord};
use super::meta;
use crate::error::Error;
use crate::fork;
use crate::lock::{self, Guard};
use crate::offset::WordOffset;
use crate::sync::{AtomicU64, Ordering};

/// A cache of the record where a series was last found. You must always use it with the same
/// family, and with
/// the same labels until you call [`CachedSeries::forget`].
///
/// Unlike a [`SeriesHandle`](super::SeriesHandle), it does not keep the record of a removed series:
/// if the series is gone, it is created again.
#[derive(Debug, Default)]
pub struct CachedSeries {
    /// The generation of the process that found the series, plus one; 0 if none did.
    process: AtomicU64,
    /// The record, and its generation in the upper half.
    spot: AtomicU64,
}

/// Lets a single thread of all processes fold the series that ended processes left.
#[must_use]
pub struct FoldGuard<'f>(#[expect(dead_code, reason = "it is held until it is dropped")] Guard<'f>);

impl std::fmt::Debug for FoldGuard<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FoldGuard").finish_non_exhaustive()
    }
}

impl Family {
    /// Changes the cells of the series with these labels, like [`Family::update_shown`], but first
    /// checks the record that `cached` stores. In a child of a fork, this calls `labels` again.
    #[inline]
    pub fn follow(
        &self,
        cached: &CachedSeries,
        labels: impl Fn(&mut KeyWriter<'_>),
        act: impl Fn(SeriesCells<'_>),
    ) {
        let Series::Dynamic(keyed) = &self.inner.layout else {
            return self.update_shown(labels, act);
        };
        if let Some(claim) = keyed.claim_at_hand()
            && let Some(found) = cached.found(keyed, |at| claim.set(at))
        {
            return act(keyed.cells_at(found.at));
        }
        self.follow_slowly(keyed, cached, &labels, &act);
    }

    #[cold]
    fn follow_slowly(
        &self,
        keyed: &DynamicSeries,
        cached: &CachedSeries,
        labels: &dyn Fn(&mut KeyWriter<'_>),
        act: &dyn Fn(SeriesCells<'_>),
    ) {
        let mut texts = PackedValues::new(keyed.secrets());
        let mut writer = KeyWriter::new(&self.inner.sets, &mut texts);
        labels(&mut writer);
        let key = writer.finish(keyed.secrets(), keyed.texts);
        if let Some(found) = self.update_slowly(keyed, key, act) {
            cached.remember(found);
        }
    }

    /// Returns the cells of the series with these labels, if it exists. If all labels have fixed
    /// values, it always exists.
    ///
    /// # Errors
    /// Returns the errors of the lock. This takes the lock while the family's index is changing, or
    /// if this thread gets no claim because the segment is full.
    /// [`ErrorKind::Held`](crate::ErrorKind::Held) means that another thread holds the lock, so you
    /// do not know whether the series exists.
    pub fn find(
        &self,
        labels: impl Fn(&mut KeyWriter<'_>),
    ) -> Result<Option<ClaimedCells<'_>>, Error> {
        let mut texts = PackedValues::new(self.inner.secrets());
        let mut writer = KeyWriter::new(&self.inner.sets, &mut texts);
        labels(&mut writer);
        Ok(match &self.inner.layout {
            Series::Dense(dense) => {
                let slot = writer.group().filter(|&group| group < self.groups());
                slot.map(|slot| ClaimedCells::new(dense.cells_at(slot), ClaimOrLock::Arithmetic))
            }
            Series::Dynamic(keyed) => match writer.finish(keyed.secrets(), keyed.texts) {
                Some(key) => match keyed.claim() {
                    Some(claim) => {
                        let found = keyed.find_surely(&key, |at| claim.set(at))?;
                        found.map(|found| {
                            ClaimedCells::new(keyed.cells_at(found.at), ClaimOrLock::Claim(claim))
                        })
                    }
                    None => {
                        let (found, lock) = keyed.find_and_lock(&key)?;
                        found.map(|found| {
                            ClaimedCells::new(keyed.cells_at(found.at), ClaimOrLock::Lock(lock))
                        })
                    }
                },
                None => None,
            },
        })
    }

    /// Packs label values once, so you can write them again with [`KeyWriter::write_saved`].
    pub fn values(&self, labels: impl Fn(&mut KeyWriter<'_>)) -> Values {
        let mut texts = PackedValues::new(self.inner.secrets());
        let mut writer = KeyWriter::new(&self.inner.sets, &mut texts);
        labels(&mut writer);
        writer.save()
    }

    /// Takes the lock for folding the series of ended processes. Returns `None` if another thread
    /// holds it, for example one that is stopped. If its owner dies, the lock is released, and the
    /// next owner must expect half-done work.
    pub fn try_folding(&self) -> Option<FoldGuard<'_>> {
        let (word, broken) = self.inner.folding_words();
        let segment = self.segment();
        let (token, stuck) = (segment.process().ok()?, &self.inner.folding);
        let is_alive = |token| segment.is_alive(token);
        let taken = lock::acquire(word, broken, token, is_alive, stuck, lock::SCRAPE);
        let (guard, _) = taken.ok()?;
        broken.store(0, Ordering::Relaxed);
        Some(FoldGuard(guard))
    }
}

impl CachedSeries {
    /// Clears the cache. From now on, you can use this value with other labels.
    pub fn forget(&self) {
        self.process.store(0, Ordering::Relaxed);
    }

    #[inline]
    fn found(&self, keyed: &DynamicSeries, hold: impl Fn(WordOffset)) -> Option<FoundRecord> {
        // Acquire: a thread that sees the process sees the spot that this process stored, and not
        // its parent's.
        if self.process.load(Ordering::Acquire) != u64::from(fork::generation()) + 1 {
            return None;
        }
        let spot = self.spot.load(Ordering::Relaxed);
        // The truncation is intended: each half contains 32 bits.
        keyed.find_at(WordOffset::unpack(spot), (spot >> 32) as u32, hold)
    }

    fn remember(&self, found: FoundRecord) {
        let generation = u64::from(meta::generation_of(found.meta));
        self.spot.store(found.at.pack() | generation << 32, Ordering::Relaxed);
        // Release: as above.
        self.process.store(u64::from(fork::generation()) + 1, Ordering::Release);
    }
}
