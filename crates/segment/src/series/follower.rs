//! Series of processes: a handle that binds anew after a fork, and the lock of whoever puts together
//! what ended processes left.
//!
//! A process may die with its handles, whatever they are bound to. So these bind nothing: they
//! remember where the series was, and look whether it still is there.

use super::family::{Family, Series};
use super::key::{KeyWriter, Values};
use super::keyed::{Found, Keyed};
use super::meta::{self, state, state_of};
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
        undo: impl Fn(Place<'_>),
    ) {
        let Series::Keyed(keyed) = &self.inner.layout else {
            return self.update_shown(labels, act, undo);
        };
        if let Some(found) = follower.found(keyed) {
            act(keyed.place(found.at));
            if keyed.has_kept(found) {
                return;
            }
            undo(keyed.place(found.at));
        }
        self.follow_anew(keyed, follower, &labels, &act, &undo);
    }

    #[cold]
    fn follow_anew(
        &self,
        keyed: &Keyed,
        follower: &Follower,
        labels: &dyn Fn(&mut KeyWriter<'_>),
        act: &dyn Fn(Place<'_>),
        undo: &dyn Fn(Place<'_>),
    ) {
        loop {
            let mut writer = KeyWriter::new(&self.inner.sets);
            labels(&mut writer);
            let found = self.find_or_make(keyed, &mut writer);
            act(keyed.place(found.at));
            if keyed.has_kept(found) {
                follower.leave(found);
                return;
            }
            undo(keyed.place(found.at));
        }
    }

    /// The cells of the series that has these labels, where there is one: where all labels are of
    /// fixed cardinality, there always is. Should the series be removed meanwhile, they may become
    /// another one's.
    ///
    /// # Errors
    /// Those of the lock, which is taken where the family's index is changing.
    pub fn find(&self, labels: impl Fn(&mut KeyWriter<'_>)) -> Result<Option<Place<'_>>, Error> {
        let mut writer = KeyWriter::new(&self.inner.sets);
        labels(&mut writer);
        Ok(match &self.inner.layout {
            Series::Dense(dense) => {
                let slot = writer.group().filter(|&group| group < self.groups());
                slot.map(|slot| dense.place(slot))
            }
            Series::Keyed(keyed) => match writer.finish(keyed.secrets(), keyed.texts) {
                Some(key) => keyed.find_surely(&key)?.map(|found| keyed.place(found.at)),
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

    /// Waits for the lock of whoever puts together series of processes that ended, and takes it.
    /// Should the owner die, the next one gets it: what was half done is for it to find.
    ///
    /// # Errors
    /// The system's, where it does not let the process take a lock that its death releases.
    pub fn folding(&self) -> Result<Folding<'_>, Error> {
        let (word, broken) = self.inner.folding_words();
        let segment = self.segment();
        let token = segment.process()?;
        let (guard, _) = lock::acquire(word, broken, token, |token| segment.is_alive(token));
        broken.store(0, Ordering::Relaxed);
        Ok(Folding(guard))
    }

    /// As [`Family::folding`], unless somebody else has the lock.
    pub fn try_folding(&self) -> Option<Folding<'_>> {
        let (word, broken) = self.inner.folding_words();
        lock::try_acquire(word, broken, self.segment().process().ok()?).map(Folding)
    }
}

impl Follower {
    #[inline]
    fn found(&self, keyed: &Keyed) -> Option<Found> {
        // Acquire: who sees the process sees what it left, and not what its parent did.
        if self.process.load(Ordering::Acquire) != u64::from(fork::generation()) + 1 {
            return None;
        }
        let spot = self.spot.load(Ordering::Relaxed);
        // Both halves are taken whole.
        let (at, generation) = (spot as u32, (spot >> 32) as u32);
        let found = keyed.look(at);
        let is_same = meta::generation_of(found.meta) == generation;
        (is_same && state_of(found.meta) == state::LIVE).then_some(found)
    }

    fn leave(&self, found: Found) {
        let generation = u64::from(meta::generation_of(found.meta));
        self.spot.store(u64::from(found.at) | generation << 32, Ordering::Relaxed);
        // Release: as above.
        self.process.store(u64::from(fork::generation()) + 1, Ordering::Release);
    }
}
