//! Series of processes: a handle that binds anew after a fork, and the lock of whoever puts together
//! what ended processes left.
//!
//! These bind nothing, since a series may be removed and made again at any time: they remember where
//! it was, and look whether it still is there.

use super::family::{Claimed, Family, Series};
use super::key::{KeyWriter, Values};
use super::keyed::{Found, Keyed};
use super::meta;
use super::place::Place;
use crate::error::Error;
use crate::fork;
use crate::lock::{self, Guard};
use crate::sync::{AtomicU64, Ordering};

/// Where a series was found last. It belongs to one family, and to the same labels each time.
///
/// Unlike a [`Bound`](super::Bound), it keeps no record of a removed series: when the series is
/// gone, it is made anew.
#[derive(Debug, Default)]
pub struct Follower {
    /// The generation of the process that found it, plus one; 0 for none.
    process: AtomicU64,
    /// The record, and its generation in the upper half.
    spot: AtomicU64,
}

/// Held by the one thread of the one process that puts together what ended ones left.
#[must_use]
pub struct Folding<'f>(#[expect(dead_code, reason = "it is held until it is dropped")] Guard<'f>);

impl Family {
    /// Changes the cells of the series that has the labels which `labels` writes, as
    /// [`Family::update_shown`] does, and finds it where `follower` left it. In a child of a fork,
    /// `labels` is asked again.
    #[inline]
    pub fn follow(
        &self,
        follower: &Follower,
        labels: impl Fn(&mut KeyWriter<'_>),
        act: impl Fn(Place<'_>),
    ) {
        let Series::Keyed(keyed) = &self.inner.layout else {
            return self.update_shown(labels, act);
        };
        if let Some(claim) = keyed.claim_at_hand()
            && let Some(found) = follower.found(keyed, |at| claim.set(at))
        {
            return act(keyed.place(found.at));
        }
        self.follow_slowly(keyed, follower, &labels, &act);
    }

    #[cold]
    fn follow_slowly(
        &self,
        keyed: &Keyed,
        follower: &Follower,
        labels: &dyn Fn(&mut KeyWriter<'_>),
        act: &dyn Fn(Place<'_>),
    ) {
        let mut writer = KeyWriter::new(&self.inner.sets);
        labels(&mut writer);
        let key = writer.finish(keyed.secrets(), keyed.texts);
        if let Some(found) = self.update_slowly(keyed, key, act) {
            follower.leave(found);
        }
    }

    /// The cells of the series that has these labels, where there is one: where all labels are of
    /// fixed cardinality, there always is.
    ///
    /// # Errors
    /// Those of the lock, which is taken where the family's index is changing;
    /// [`Flaw::Held`](crate::Flaw::Held) where another thread has it, and that leaves open whether the
    /// series is there; and a full segment.
    pub fn find(&self, labels: impl Fn(&mut KeyWriter<'_>)) -> Result<Option<Claimed<'_>>, Error> {
        let mut writer = KeyWriter::new(&self.inner.sets);
        labels(&mut writer);
        Ok(match &self.inner.layout {
            Series::Dense(dense) => {
                let slot = writer.group().filter(|&group| group < self.groups());
                slot.map(|slot| Claimed::new(dense.place(slot), None))
            }
            Series::Keyed(keyed) => match writer.finish(keyed.secrets(), keyed.texts) {
                Some(key) => {
                    let claim = keyed.claim().ok_or_else(|| Error::full(self.segment(), 0))?;
                    let found = keyed.find_surely(&key, |at| claim.set(at))?;
                    found.map(|found| Claimed::new(keyed.place(found.at), Some(claim)))
                }
                None => None,
            },
        })
    }

    /// Keeps label values to be written again.
    pub fn values(&self, labels: impl Fn(&mut KeyWriter<'_>)) -> Values {
        let mut writer = KeyWriter::new(&self.inner.sets);
        labels(&mut writer);
        writer.keep()
    }

    /// Takes the lock under which series of processes that ended are put together, unless another
    /// thread has it, which may be stopped. The death of its owner releases it: what was half done is
    /// for the next one to find.
    pub fn try_folding(&self) -> Option<Folding<'_>> {
        let (word, broken) = self.inner.folding_words();
        let segment = self.segment();
        let (token, stuck) = (segment.process().ok()?, &self.inner.folding);
        let is_alive = |token| segment.is_alive(token);
        let taken = lock::acquire(word, broken, token, is_alive, stuck, lock::SCRAPE);
        let (guard, _) = taken.ok()?;
        broken.store(0, Ordering::Relaxed);
        Some(Folding(guard))
    }
}

impl Follower {
    #[inline]
    fn found(&self, keyed: &Keyed, hold: impl Fn(u32)) -> Option<Found> {
        // Acquire: who sees the process sees what it left, and not what its parent did.
        if self.process.load(Ordering::Acquire) != u64::from(fork::generation()) + 1 {
            return None;
        }
        let spot = self.spot.load(Ordering::Relaxed);
        // Both halves are taken whole.
        keyed.find_at(spot as u32, (spot >> 32) as u32, hold)
    }

    fn leave(&self, found: Found) {
        let generation = u64::from(meta::generation_of(found.meta));
        self.spot.store(u64::from(found.at) | generation << 32, Ordering::Relaxed);
        // Release: as above.
        self.process.store(u64::from(fork::generation()) + 1, Ordering::Release);
    }
}
