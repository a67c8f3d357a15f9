//! Repairs a copy of a segment that changed while it was being copied.
//!
//! A copy must show the same as a process that has the file open. Such a process reads groups of
//! words in an order that the writers rely on. Words of a copy that did not move are from one
//! moment, so no order matters there. Words that moved are read again. When the file is copied,
//! this concerns:
//!
//! - the state, the generation, the key or the start of a record. The record is read until its
//!   state and its start are the same before and after (`keyed/settle.rs`).
//! - a mark, a base, a start or the lanes of a slab of a dense family. Starts are read, then bases,
//!   then the words of the slabs, then lanes, until all but lanes stay the same. This order keeps a
//!   sum from falling below its base, and an old sum never gets a new start.
//!
//! When a walk reaches the words, this concerns:
//!
//! - a cell that refers to a side allocation, or the head or a shared word of a side allocation.
//!   The side allocation is then complete, because the cell was read before. The walk then checks
//!   that the series still owns its record.
//! - a word of an exemplar or of a relayed value. All of its words are read until its number, or
//!   its phase, stays the same.
//! - a value from an ended process. The whole family is read until two readings agree.
//!
//! A sum that moved is not read again, because its value was true at some time during the copy. The
//! number of tries is bounded, and so is the total number of words to read again (`origin.rs`). A
//! series that does not settle is hidden and counted. If a part of a dense family is not read
//! again, the whole family is hidden.

use std::ops::Range;

use super::cells::SeriesCells;
use super::dense::Dense;
use super::family::{Family, Series, all_families};
use super::side::side_words;
use crate::error::Error;
use crate::history::HISTORY;
use crate::offset::{self, ByteOffset};
use crate::origin::{Origin, TRIES};
use crate::region::Region;
use crate::segment::Segment;
use crate::sync::{AtomicU64, Ordering};

/// Makes all families of a copy consistent.
pub(super) fn settle(segment: &Segment) -> Result<(), Error> {
    let Some(origin) = segment.region.origin() else { return Ok(()) };
    let mut hidden = Vec::new();
    for family in all_families(segment)? {
        match &family.inner.layout {
            Series::Dense(dense) => {
                if !settle_dense(&segment.region, origin, dense) {
                    hidden.push(family.id());
                }
            }
            Series::Dynamic(keyed) => keyed.settle(origin),
        }
    }
    origin.hide(hidden);
    Ok(())
}

/// Returns the words of the tables of all indexes, and of the flight recorder, because a walk does
/// not read these.
pub(super) fn indexes(segment: &Segment) -> Vec<Range<u64>> {
    let mut words = Vec::new();
    if let Ok(Some(record)) = segment.find(HISTORY, "") {
        words.push(segment.region.words_of(record.cells()));
    }
    for family in all_families(segment).unwrap_or_default() {
        if let Series::Dynamic(keyed) = &family.inner.layout {
            words.extend(keyed.index_words());
        }
    }
    words.sort_by_key(|words| words.start);
    words
}

/// Reads the slots of a family again, if one was reset, in the order of a walk. If another slot is
/// reset in the meantime, this reads them once more. If a slot keeps being reset, the last reading
/// stands and may mix values from before and after a reset, like in a walk that is suspended in
/// between. Returns false if some slots cannot be read, because bases may then be newer than lanes.
fn settle_dense(region: &Region, origin: &Origin, dense: &Dense) -> bool {
    let [marks, bases, starts, slabs] = dense.kept_words();
    let kept = bases.start..slabs.end;
    if !origin.moved.any(marks.start..slabs.end) {
        return has_lanes(region, origin, dense);
    }
    for _ in 0..TRIES {
        let Some(before) = origin.words(kept.clone()) else { return false };
        for words in [marks.clone(), starts.clone(), bases.clone(), slabs.clone()] {
            if !origin.read_again(region, words) {
                return false;
            }
        }
        if !has_lanes(region, origin, dense) {
            return false;
        }
        for words in std::iter::once(dense.lane_words()).chain(dense.earned_words()) {
            if !origin.read_again(region, words) {
                return false;
            }
        }
        let Some(after) = origin.words(kept.clone()) else { return false };
        if before == after {
            break;
        }
    }
    true
}

/// Drops lanes that slabs earned too late to be copied, so that the slabs are shown without them.
/// Returns false if a base may include counts from these lanes.
fn has_lanes(region: &Region, origin: &Origin, dense: &Dense) -> bool {
    if dense.forget_lanes_beyond(origin.copied()).is_empty() {
        return true;
    }
    let [_, bases, ..] = dense.kept_words();
    bases.map(offset::bytes).all(|at| region.cell(ByteOffset::new(at)).load(Ordering::Relaxed) == 0)
}

/// Functions for the code that knows the meaning of the cells of a copy. In a segment that is not a
/// copy, they return at once.
impl Family {
    /// Returns whether the segment is a copy of a file.
    #[inline]
    pub fn is_copy(&self) -> bool {
        self.inner.segment.region.origin().is_some()
    }

    /// Returns whether one of these words moved while they were copied.
    pub fn has_moved(&self, words: &[AtomicU64]) -> bool {
        let region = &self.inner.segment.region;
        region.origin().is_some_and(|origin| origin.moved.any(region.words_of(words)))
    }

    /// Re-reads a group of words guarded by a sequence word (`words[key]`), like a seqlock. This
    /// happens only if one of them moved, and a bounded number of times. Returns whether they are
    /// consistent.
    pub fn settle(&self, words: &[AtomicU64], key: usize) -> bool {
        let region = &self.inner.segment.region;
        let Some(origin) = region.origin() else { return true };
        let words = region.words_of(words);
        if !origin.moved.any(words.clone()) {
            return true;
        }
        let key = words.start + key as u64;
        origin.settle(region, words, key..key + 1)
    }

    /// Reads all series of a copy again. Returns false if some of them cannot be read, or if there
    /// are further series by now, beyond the copied words.
    pub fn read_again(&self) -> bool {
        let region = &self.inner.segment.region;
        let Some(origin) = region.origin() else { return true };
        match &self.inner.layout {
            Series::Dense(dense) => std::iter::once(dense.lane_words())
                .chain(dense.earned_words())
                .all(|words| origin.read_again(region, words)),
            Series::Dynamic(keyed) => keyed.read_again(origin),
        }
    }

    /// Re-reads the moved cells of a series in this order, so that later ones are at least as new.
    /// Call [`Family::is_there`] afterwards to learn whether the reads succeeded.
    pub fn read_in_order(&self, cells: &SeriesCells<'_>, order: &[usize]) {
        let region = &self.inner.segment.region;
        let Some(origin) = region.origin() else { return };
        let shared = cells.shared();
        if self.has_moved(shared) {
            for cell in order.iter().filter_map(|&cell| shared.get(cell..=cell)) {
                if !origin.read_again(region, region.words_of(cell)) {
                    return;
                }
            }
        }
    }

    /// Returns the number of times that words of a copy were read again, or should have been.
    #[inline]
    pub fn readings(&self) -> u64 {
        self.inner.segment.region.origin().map_or(0, Origin::readings)
    }

    /// Returns whether the series with this [number](super::View::id) still exists in the file, and
    /// all repeated reads succeeded. If so, all words read since the series was found belong to it,
    /// and are complete.
    pub fn is_there(&self, id: u64) -> bool {
        let Some(origin) = self.inner.segment.region.origin() else { return true };
        match &self.inner.layout {
            Series::Dense(_) => !origin.is_refusing(),
            Series::Dynamic(keyed) => keyed.is_there(origin, id),
        }
    }

    /// Counts a series of a copy that is not shown: see [`Segment::omitted`].
    pub fn count_omitted(&self) {
        self.inner.segment.region.origin().into_iter().for_each(|origin| origin.count_omitted(1));
    }
}

impl Family {
    /// Returns whether no walk shows the family, because it did not settle.
    #[inline]
    pub(super) fn is_hidden(&self) -> bool {
        let origin = self.inner.segment.region.origin();
        origin.is_some_and(|origin| origin.is_hidden(self.id()))
    }

    /// Reads a side allocation of a copy again, if the cell that refers to it, or one of its words,
    /// moved. Returns false if too much was read already.
    #[inline]
    pub(super) fn settle_side(&self, of: &SeriesCells<'_>, head: &[AtomicU64]) -> bool {
        let origin = self.inner.segment.region.origin();
        origin.is_none_or(|origin| {
            self.read_side_again(of, head, origin);
            // Bound this, because side allocations of a hostile file can overlap: many series can
            // refer to the same words.
            let [shared, cells] = side_words(head);
            origin.work(head.len() as u64 + shared + cells)
        })
    }

    #[cold]
    fn read_side_again(&self, of: &SeriesCells<'_>, head: &[AtomicU64], origin: &Origin) {
        let region = &self.inner.segment.region;
        let words = region.words_of(head);
        let has_offset_moved = || {
            let is_offset = |cell| self.sides().is_some_and(|(_, sides)| sides.is_offset(cell));
            let mut offsets = of.shared().iter().enumerate().filter(|(cell, _)| is_offset(*cell));
            offsets.any(|(_, cell)| self.has_moved(std::slice::from_ref(cell)))
        };
        let shared_words = || side_words(head)[0];
        let has_moved = origin.moved.any(words.start..words.end + shared_words());
        if !has_moved && !has_offset_moved() {
            return;
        }
        // Read the head first, because it contains the length.
        let is_read = origin.read_again(region, words.clone());
        let [shared, cells] = side_words(head);
        let cells_at = words.end + shared.next_multiple_of(8);
        // If a read fails, the walk finds out by `is_there`.
        let _ = is_read
            && origin.read_again(region, words.end..words.end + shared)
            && origin.read_again(region, cells_at..cells_at + cells);
    }
}
