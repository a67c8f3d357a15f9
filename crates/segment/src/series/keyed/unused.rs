//! A family that is not used any more, and its memory for another one: see `series/freed.rs`.

use std::time::Duration;

use super::blocks::WalkPosition;
use super::expire::{mark_time, tenths};
use super::head as at;
use super::{DynamicSeries, Moment, NO_RECORD};
use crate::claims::Memory;
use crate::error::Error;
use crate::lock;
use crate::series::meta::{is_series, state, state_of};
use crate::sync::Ordering;

impl DynamicSeries {
    /// Returns whether all series are hidden and did not change for this long.
    pub(crate) fn is_unused(&self, now: Moment, least: Duration) -> bool {
        if self.len() == 0 {
            return true;
        }
        if self.idle.is_none() {
            return false;
        }
        let least = tenths(u64::try_from(least.as_nanos()).unwrap_or(u64::MAX));
        let tenth = mark_time(now);
        let mut cursor = WalkPosition::default();
        while let Some(at) = self.next_record(&mut cursor) {
            let meta = self.region().word(at).load(Ordering::Acquire);
            if !is_series(meta) || self.is_overflow(at) {
                continue;
            }
            // The truncation is intended: the lower half is the time.
            let since = self.word_of(at, 2).load(Ordering::Relaxed) as u32;
            // A time can be in the future because a clock was set back, or because the last sync of
            // an earlier run was before this time.
            let hidden_for = tenth.wrapping_sub(since).cast_signed().max(0).cast_unsigned();
            let is_hidden = state_of(meta) == state::HIDDEN;
            if !is_hidden || self.has_changed(at) || u64::from(hidden_for) < least {
                return false;
            }
        }
        true
    }

    /// Returns whether the overflow series exists, and was never updated.
    pub(crate) fn has_unused_overflow(&self) -> bool {
        let at = self.overflow();
        let mut cells = self.header..self.header + self.cells.get();
        at != NO_RECORD
            && state_of(self.region().word(at).load(Ordering::Acquire)) == state::HIDDEN
            && cells.all(|cell| self.word_of(at, cell).load(Ordering::Relaxed) == 0)
    }

    /// Moves the records of removed series to the ready lists, and empties the index. Returns false
    /// if there are series, or if a record is claimed.
    pub(crate) fn become_ready(&self) -> Result<bool, Error> {
        let _guard = self.lock_within(lock::REMOVAL)?;
        self.reclaim();
        if self.len() > 0 || self.head[at::LIMBO_COUNT].load(Ordering::Relaxed) > 0 {
            return Ok(false);
        }
        self.rebuild(0)?;
        Ok(true)
    }

    /// Begins a new family with the records of the old one.
    pub(crate) fn begin_again(&self, now: Moment) -> Result<(), Error> {
        match self.overflow() {
            NO_RECORD => self.make_overflow(now),
            overflow => {
                self.restart(overflow, now);
                Ok(())
            }
        }
    }
}
