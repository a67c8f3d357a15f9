//! Stubs for systems without copies of files. You find the meaning of these functions in
//! `settle.rs`.

use super::cells::SeriesCells;
use super::family::Family;
use crate::sync::AtomicU64;

impl Family {
    /// Returns false, because there are no copies.
    #[inline]
    pub(super) fn is_hidden(&self) -> bool {
        false
    }

    /// Returns false, because there are no copies: see `Segment::copy_of`.
    #[inline]
    pub fn is_copy(&self) -> bool {
        false
    }

    /// Returns false, because there are no copies.
    pub fn has_moved(&self, _: &[AtomicU64]) -> bool {
        false
    }

    /// Returns true, because no word moves.
    pub fn settle(&self, _: &[AtomicU64], _: usize) -> bool {
        true
    }

    /// Returns true, because no word moves.
    pub fn read_again(&self) -> bool {
        true
    }

    /// An empty function, because no word moves.
    pub fn read_in_order(&self, _: &SeriesCells<'_>, _: &[usize]) {}

    /// Returns 0, because no word is read again.
    #[inline]
    pub fn readings(&self) -> u64 {
        0
    }

    /// Returns true, because a series that was found is not a copy.
    pub fn is_there(&self, _: u64) -> bool {
        true
    }

    /// An empty function, because no series is skipped.
    pub fn count_omitted(&self) {}
}
