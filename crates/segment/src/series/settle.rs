//! Making the copy of a file consistent where it moved while it was copied.
//!
//! A copy is to show what a process that has the file open sees. Such a process reads what concerns
//! more than one word in an order that the writers rely on. Words of a copy that did not move are
//! of one moment, so no order matters there. Those that moved are read again:
//!
//! | what moved | is read again |
//! |---|---|
//! | the state, the generation, the key or the start of a record | the record, until its state and its start stay the same from before to after it (`keyed/settle.rs`), when the file is copied |
//! | a mark, a base, a start or the lanes of a slab of a dense family | starts, then bases, then the words of the slabs, then lanes, until all but lanes stay the same, when the file is copied: a sum is at least its base, and an old sum never has a new start |
//! | a cell that names a side allocation, or the head or a shared word of one | the side allocation, when a walk comes to it: it is complete, since the cell was read before. The walk then checks that the series still has its record |
//! | a word of an exemplar or of a relayed value | all of its words, until its number, or its phase, stays the same, when a walk comes to it |
//! | a value that an ended process left | the whole family, until two readings agree, when a walk comes to it |
//!
//! A sum that moved is not read again: it had its value at some time during the copy. Each number
//! of tries is bounded, and so is what is read in all (`origin.rs`). A series that does not settle
//! is left out and counted, and so is a dense family of which a part was not read again.

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

/// The words of the tables of all indexes, and of the flight recorder: a walk reads none of them.
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

/// Reads the slots of a family again, if one was reset: in the order in which a walk reads them,
/// and, if another one is reset meanwhile, once more. One that is reset all the time stays as it
/// was read last: the sum may have been added up over a reset, as that of a walk may in a process
/// that is suspended in between. Returns false if they are not all read: then bases may be newer
/// than lanes.
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

/// Forgets the lanes that slabs earned too late to be copied, so that the slabs are shown as they
/// were before. Returns false if a base may include counts from these lanes.
fn has_lanes(region: &Region, origin: &Origin, dense: &Dense) -> bool {
    if dense.forget_lanes_beyond(origin.copied()).is_empty() {
        return true;
    }
    let [_, bases, ..] = dense.kept_words();
    bases.map(offset::bytes).all(|at| region.cell(ByteOffset::new(at)).load(Ordering::Relaxed) == 0)
}

/// For the code that knows what the cells of a copy mean. In a segment that is not a copy, none of
/// this does anything.
impl Family {
    /// Whether the segment is a copy of a file.
    #[inline]
    pub fn is_copy(&self) -> bool {
        self.inner.segment.region.origin().is_some()
    }

    /// Whether one of these words moved while they were copied.
    pub fn has_moved(&self, words: &[AtomicU64]) -> bool {
        let region = &self.inner.segment.region;
        region.origin().is_some_and(|origin| origin.moved.any(region.words_of(words)))
    }

    /// Makes words consistent for which the word `key` among them vouches: a reader that finds the
    /// same number there before and after them has read them as they were together. If one of them
    /// moved, they are read again a few times. Returns whether they are consistent.
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

    /// Reads all series of a copy again. Returns false if some of them are not read, or if there
    /// are others by now, beyond the words that were copied.
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

    /// Reads cells of a series again that moved, in this order: what is read later is at least as
    /// new. Whether they are read, [`Family::is_there`] tells.
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

    /// How often words of a copy were read again, or were to be.
    #[inline]
    pub fn readings(&self) -> u64 {
        self.inner.segment.region.origin().map_or(0, Origin::readings)
    }

    /// Whether the series with that [number](super::View::id) is still there in the file, and all
    /// that was to be read again was read: what was read since it was found is then its own, and
    /// whole.
    pub fn is_there(&self, id: u64) -> bool {
        let Some(origin) = self.inner.segment.region.origin() else { return true };
        match &self.inner.layout {
            Series::Dense(_) => !origin.is_refusing(),
            Series::Dynamic(keyed) => keyed.is_there(origin, id),
        }
    }

    /// Counts a series of a copy that is not shown: see [`Segment::left_out`].
    pub fn leave_out(&self) {
        self.inner.segment.region.origin().into_iter().for_each(|origin| origin.leave_out(1));
    }
}

impl Family {
    /// Whether no walk shows the family, since it did not settle.
    #[inline]
    pub(super) fn is_hidden(&self) -> bool {
        let origin = self.inner.segment.region.origin();
        origin.is_some_and(|origin| origin.is_hidden(self.id()))
    }

    /// Reads a side allocation of a copy again, if what names it or what it has moved. Returns
    /// false if too much was added up already.
    #[inline]
    pub(super) fn settle_side(&self, of: &SeriesCells<'_>, head: &[AtomicU64]) -> bool {
        let origin = self.inner.segment.region.origin();
        origin.is_none_or(|origin| {
            self.read_side_again(of, head, origin);
            // Those of a hostile file overlap: many series name the same words.
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
        // The head first, which says how long it is.
        let is_read = origin.read_again(region, words.clone());
        let [shared, cells] = side_words(head);
        let cells_at = words.end + shared.next_multiple_of(8);
        // What is not read, the walk finds by `is_there`.
        let _ = is_read
            && origin.read_again(region, words.end..words.end + shared)
            && origin.read_again(region, cells_at..cells_at + cells);
    }
}
