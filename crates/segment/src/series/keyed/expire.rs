//! Removes series, resets them, and hides idle ones.
//!
//! Operations on all series walk the records in batches, and release the family's lock between two
//! batches. A series is idle if a digest of its cells stays the same.

use std::time::Duration;

use super::blocks::WalkPosition;
use super::record::RecordReading;
use super::{DynamicSeries, FamilyWithSides, Moment, fingerprint};
use crate::claims::Memory;
use crate::error::Error;
use crate::lock;
use crate::offset::WordOffset;
use crate::series::key::Key;
use crate::series::meta::{self, is_series, state, state_of};
use crate::sync::Ordering;

/// The number of records per batch. Other threads can take the lock after each batch.
const BATCH: usize = 512;
/// Nanoseconds in a tenth of a second.
pub(super) const TENTH: u64 = 100_000_000;

pub(super) fn tenths(nanos: u64) -> u64 {
    nanos / TENTH
}

impl DynamicSeries {
    /// Returns whether a series changed since the last sweep.
    pub(super) fn has_changed(&self, at: WordOffset) -> bool {
        let mark = self.word_of(at, 2).load(Ordering::Relaxed);
        self.idle.is_some() && mark >> 32 != u64::from(self.digest(at))
    }

    /// Removes a series; returns false if it does not exist.
    pub(crate) fn remove(&self, key: &Key<'_>, wait: Duration) -> Result<bool, Error> {
        let _guard = self.lock_within(wait)?;
        let found = self.find_locked(key);
        if let Some(found) = found {
            self.detach(found.at, fingerprint(key.hash));
        }
        Ok(found.is_some())
    }

    /// Shows or hides a series; returns false if it does not exist. A hidden series stays hidden
    /// until it is shown again, or until a sweep finds that it changed.
    pub(crate) fn set_shown(
        &self,
        key: &Key<'_>,
        shown: bool,
        wait: Duration,
    ) -> Result<bool, Error> {
        let _guard = self.lock_within(wait)?;
        let Some(found) = self.find_locked(key) else { return Ok(false) };
        let at = found.at;
        if self.is_overflow(at) {
            return Ok(false);
        }
        let is_shown = state_of(self.region().word(at).load(Ordering::Acquire)) == state::LIVE;
        match shown {
            true if !is_shown => self.show(at),
            false if is_shown => {
                if self.idle.is_some() {
                    let mark = self.word_of(at, 2);
                    let seen = mark.load(Ordering::Relaxed);
                    let since = u64::from(seen as u32); // The lower half is the time.
                    mark.store((u64::from(self.digest(at)) << 32) | since, Ordering::Relaxed);
                }
                self.hide(at);
            }
            _ => {}
        }
        Ok(true)
    }

    /// Removes the series where `keep` returns false. `keep` can use the family in any way, because
    /// it is called without the lock.
    pub(crate) fn retain(
        &self,
        mut keep: impl FnMut(&RecordReading<'_>) -> bool,
    ) -> Result<u64, Error> {
        let mut removed = 0;
        let (mut cursor, mut words) = (WalkPosition::default(), Vec::new());
        let mut unwanted = Vec::new();
        loop {
            unwanted.clear();
            let claim = self.claim();
            let mut records = self.records(&mut cursor);
            while unwanted.len() < BATCH {
                let Some(record) = records.next() else { break };
                let Some(seen) = self.read_claimed(record, claim.as_ref(), &mut words, true) else {
                    continue;
                };
                if !seen.overflow && !keep(&seen) {
                    unwanted.push((record.at, seen.meta));
                }
            }
            if unwanted.is_empty() {
                return Ok(removed);
            }
            drop(claim);
            let _guard = self.lock_within(lock::REMOVAL)?;
            for &(at, seen) in &unwanted {
                let meta = self.region().word(at).load(Ordering::Acquire);
                // Check that the record still belongs to the same series, which may be hidden.
                if meta::is_same_series(meta, seen) && is_series(meta) {
                    self.detach(at, fingerprint(self.hash(at)));
                    removed += 1;
                }
            }
        }
    }

    /// Removes all series except those with handles, which restart at zero.
    pub(crate) fn reset(
        &self,
        now: Moment,
        sides: Option<FamilyWithSides<'_>>,
    ) -> Result<(), Error> {
        let is_offset = |cell: u32| sides.is_some_and(|(_, sides)| sides.is_offset(cell as usize));
        let bound = self.named(true);
        let mut cursor = WalkPosition::default();
        loop {
            let _guard = self.lock_within(lock::REMOVAL)?;
            for _ in 0..BATCH {
                let Some(at) = self.next_record(&mut cursor) else { return Ok(()) };
                let meta = self.region().word(at).load(Ordering::Acquire);
                if !is_series(meta) {
                    continue;
                }
                if !self.is_overflow(at) && !bound.as_ref().is_none_or(|bound| bound.has(at)) {
                    self.detach(at, fingerprint(self.hash(at)));
                    continue;
                }
                if let Some((family, sides)) = sides {
                    sides.clear(family, &self.cells_at(at));
                }
                for cell in (0..self.cells.get()).filter(|cell| !is_offset(*cell)) {
                    self.word_of(at, self.header + cell).store(0, Ordering::Release);
                }
                self.restart(at, now);
                if self.is_overflow(at) {
                    self.set_state(at, state::HIDDEN);
                }
            }
        }
    }

    /// Stores `now` as the start of the series of this generation, if it still exists and the lock
    /// can be taken.
    pub(crate) fn restart_series(&self, at: WordOffset, generation: u32, now: Moment) {
        // Check this under the lock, because the same word links the record of a removed series.
        if let Ok(_guard) = self.lock()
            && self.is_series(at, generation)
        {
            self.restart(at, now);
        }
    }

    /// Removes up to `most` hidden series.
    pub(crate) fn forget(&self, most: usize) -> Result<u64, Error> {
        let mut forgotten = 0;
        while forgotten < most {
            let _guard = match self.lock_within(lock::SCRAPE) {
                Err(error) if error.is_held() => break,
                guard => guard?,
            };
            let batch = (most - forgotten).min(BATCH);
            let count = (0..batch).take_while(|_| self.forget_one()).count();
            forgotten += count;
            if count < batch {
                break;
            }
        }
        Ok(forgotten as u64)
    }

    /// Inspects all series. Hides the ones that were idle for too long, or removes them if their
    /// values are not sums, because only sums must continue. Shows hidden series again if they
    /// changed.
    pub(crate) fn sweep(&self, now: Moment) -> Result<(), Error> {
        let Some(idle) = self.idle else { return Ok(()) };
        let idle = tenths(u64::try_from(idle.as_nanos()).unwrap_or(u64::MAX));
        let tenth = mark_time(now);
        let mut cursor = WalkPosition::default();
        loop {
            let _guard = match self.lock_within(lock::SCRAPE) {
                // The next sweep inspects the rest.
                Err(error) if error.is_held() => return Ok(()),
                guard => guard?,
            };
            for _ in 0..BATCH {
                let Some(at) = self.next_record(&mut cursor) else { return Ok(()) };
                self.sweep_one(at, idle, tenth);
            }
        }
    }

    fn sweep_one(&self, at: WordOffset, idle: u64, tenth: u32) {
        let meta = self.region().word(at).load(Ordering::Acquire);
        if self.is_overflow(at) || !is_series(meta) {
            return;
        }
        let digest = self.digest(at);
        let mark = self.word_of(at, 2);
        let seen = mark.load(Ordering::Relaxed);
        // The truncation is intended: each half contains 32 bits. The time wraps around after 13
        // years.
        let (old, quiet) = ((seen >> 32) as u32, tenth.wrapping_sub(seen as u32));
        let is_shown = state_of(meta) == state::LIVE;
        if old != digest {
            mark.store(u64::from(digest) << 32 | u64::from(tenth), Ordering::Relaxed);
            if !is_shown {
                self.show(at);
            }
        } else if is_shown && u64::from(quiet) >= idle {
            if self.additive {
                self.hide(at);
            } else {
                self.detach(at, fingerprint(self.hash(at)));
            }
        }
    }
}

/// Returns the tenths of a second of the segment's time, modulo 2^32.
pub(super) fn mark_time(now: Moment) -> u32 {
    tenths(now.time) as u32
}
