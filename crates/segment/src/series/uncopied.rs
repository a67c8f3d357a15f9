//! On systems on which no segment is a copy of a file: `settle.rs` has the meaning of these
//! functions.

use super::cells::SeriesCells;
use super::family::Family;
use crate::sync::AtomicU64;

impl Family {
    /// Never.
    #[inline]
    pub(super) fn is_hidden(&self) -> bool {
        false
    }

    /// Never: see `Segment::copy_of`.
    #[inline]
    pub fn is_copy(&self) -> bool {
        false
    }

    /// Never.
    pub fn has_moved(&self, _: &[AtomicU64]) -> bool {
        false
    }

    /// Always.
    pub fn settle(&self, _: &[AtomicU64], _: usize) -> bool {
        true
    }

    /// Does nothing.
    pub fn read_again(&self) -> bool {
        true
    }

    /// Does nothing.
    pub fn read_in_order(&self, _: &SeriesCells<'_>, _: &[usize]) {}

    /// None.
    #[inline]
    pub fn readings(&self) -> u64 {
        0
    }

    /// Always.
    pub fn is_there(&self, _: u64) -> bool {
        true
    }

    /// Does nothing.
    pub fn leave_out(&self) {}
}
