//! The series of a family whose labels all have fixed values: a slot for each combination of
//! values, and one more, the overflow, for all other values.
//!
//! On a machine with few CPUs, the cells are in lanes if the family is additive and not too large.
//! Several small families share one *slab* of lanes, so a counter takes 8 bytes per CPU instead of
//! a line. All other families begin with one lane. If they are additive, each of their slabs can
//! [earn](super::lanes) more.

use std::num::NonZeroU32;
use std::ops::Range;
use std::ptr::NonNull;

use super::cells::{LANE_WORDS, Lanes, MAX_LANE_WORDS, SeriesCells};
use super::lane_set::LaneSet;
use super::lanes::Layout;
use super::names::Names;
use super::schema::Schema;
use crate::cells::Cells;
use crate::cpus;
use crate::error::Error;
use crate::layout::Kind;
use crate::lock;
use crate::offset::{self, WordOffset};
use crate::rseq::Sequence;
use crate::segment::{Record, Segment};
use crate::sync::{Arc, AtomicU64, Ordering};

/// A slab: a cell with the number of words in use, a cell with the numbers of lanes, and then the
/// lanes.
const SLAB: Kind = Kind::new(*b"LANE", 1);
const SLAB_NAME: &str = "lanes";
const SLAB_HEAD: usize = 8;

/// An existing slab.
pub(crate) struct Slab {
    /// The word offset of its first lane.
    first: u64,
    numbers: u64,
    cells: Cells,
}

impl Slab {
    /// Returns the slab in a record, if the record is a slab and contains its number of lanes.
    pub(crate) fn from_record(record: &Record) -> Option<Self> {
        let cells = record.cells();
        if record.kind() != SLAB || cells.len() < SLAB_HEAD {
            return None;
        }
        let numbers = cells[1].load(Ordering::Relaxed);
        let lanes = usize::try_from(numbers >> 16).ok()?;
        let words = lanes.checked_mul(LANE_WORDS)?.checked_add(SLAB_HEAD)?;
        let first = record.offset().words() + SLAB_HEAD as u64;
        let cells = cells.clone();
        (lanes > 0 && words <= cells.len()).then_some(Self { first, numbers, cells })
    }

    /// Returns the words of the first lane, which represent the words of all lanes.
    pub(crate) fn lane(&self) -> Range<u64> {
        self.first..self.first + LANE_WORDS as u64
    }

    /// Marks the words of a family as in use, if they lie in this slab.
    pub(crate) fn mark_used(&self, dense: &Dense) {
        if self.has_lost(dense) {
            self.cells[0].fetch_max(self.end_of(dense), Ordering::Relaxed);
        }
    }

    /// Returns whether the words of a family lie in this slab, and are not marked as in use.
    pub(crate) fn has_lost(&self, dense: &Dense) -> bool {
        self.has(dense) && self.cells[0].load(Ordering::Relaxed) < self.end_of(dense)
    }

    fn end_of(&self, dense: &Dense) -> u64 {
        dense.offsets[0] + dense.used() - self.first
    }

    fn has(&self, dense: &Dense) -> bool {
        let numbers = u64::from(dense.lanes.cpus()) | u64::from(dense.lanes.count()) << 16;
        let (first, lane) = (dense.offsets[0], self.lane());
        self.numbers == numbers && first >= lane.start && first + dense.used() <= lane.end
    }
}

/// The slots of one family, and their marks, bases and times.
#[derive(Debug)]
pub(crate) struct Dense {
    first: NonNull<AtomicU64>,
    /// A bit for each slot that is shown although it is zero; then the values of each slot's lanes
    /// at the last reset; then the time of that reset; then the lanes that each slab earned.
    marks: NonNull<AtomicU64>,
    /// The word offsets of `first` and `marks`.
    offsets: [u64; 2],
    slots: u32,
    /// The number of adjacent slots in the first slab, without the overflow's.
    near: u32,
    cells: NonZeroU32,
    pairs: u32,
    slots_per_slab: u32,
    /// The lanes of the first slab.
    lanes: Lanes,
    /// The lanes of all slabs; empty if the family is not additive, and uses one lane.
    sets: Arc<[LaneSet]>,
}

// SAFETY: this value lends only shared atomics of a region that its family keeps alive.
unsafe impl Send for Dense {}
// SAFETY: as above.
unsafe impl Sync for Dense {}

impl Dense {
    /// Returns the number of words of the marks, bases, times and earned lanes.
    pub(crate) fn mark_words(slots: u32, cells: u16) -> u64 {
        let slabs = slots.div_ceil(LANE_WORDS as u32 / u32::from(cells));
        let slots = u64::from(slots);
        slots.div_ceil(64) + slots * u64::from(cells) + slots + u64::from(slabs)
    }

    /// Allocates the lanes of a new family.
    pub(crate) fn allocate(
        segment: &Segment,
        schema: &Schema,
        slots: u32,
    ) -> Result<Layout, Error> {
        let per_slab = LANE_WORDS as u32 / u32::from(schema.cells);
        let slabs = u64::from(slots.div_ceil(per_slab));
        let (cpus, shared) = match cpus::count() {
            ..=cpus::FEW => cpus::lane_counts(Sequence::find().is_some()),
            _ => (0, 1),
        };
        // The casts are safe, because there are few of both.
        let (cpus, lanes) = (cpus as u16, (cpus + shared) as u16);
        let words = slabs * u64::from(lanes) * LANE_WORDS as u64;
        let small = slabs == 1;
        let used = slots * u32::from(schema.cells);
        if !schema.additive || lanes == 1 || (!small && words > MAX_LANE_WORDS) {
            let words = if small { u64::from(used) } else { slabs * LANE_WORDS as u64 };
            return Ok(Layout {
                first: segment.take(words, lock::REGISTRATION)?,
                cpus: 0,
                lanes: 1,
            });
        }
        if !small {
            return Ok(Layout { first: segment.take(words, lock::REGISTRATION)?, cpus, lanes });
        }
        let numbers = u64::from(cpus) | u64::from(lanes) << 16;
        for record in Names::in_segment(segment).slabs(segment)? {
            let record = record?;
            if Slab::from_record(&record).is_none_or(|slab| slab.numbers != numbers) {
                continue;
            }
            let cells = record.cells();
            // Relaxed: only one thread at a time creates a family.
            let mut at = cells[0].load(Ordering::Relaxed);
            if schema.pairs > 0 {
                // A pair on a multiple of 16 bytes never crosses a cache line. A slab begins on a
                // line, and so do the words that `take` returns.
                at = at.saturating_add(at % 2);
            }
            let end = at.saturating_add(used.into());
            if end <= LANE_WORDS as u64 {
                cells[0].store(end, Ordering::Relaxed);
                // The record is within the reach of word offsets, because `take` below checked
                // that.
                let first = record.offset().words() + SLAB_HEAD as u64 + at;
                let first = WordOffset::new(u32::try_from(first).unwrap_or(u32::MAX));
                return Ok(Layout { first, cpus, lanes });
            }
        }
        let count = SLAB_HEAD + usize::from(lanes) * LANE_WORDS;
        let draft = segment.reserve(SLAB, SLAB_NAME, count)?;
        draft.cells()[0].store(used.into(), Ordering::Relaxed);
        draft.cells()[1].store(numbers, Ordering::Relaxed);
        let record = draft.publish()?;
        Names::in_segment(segment).note_slab(segment, &record);
        let first = u32::try_from(record.offset().words() + SLAB_HEAD as u64);
        let first = first.map_err(|_| Error::full(segment, offset::bytes(count as u64)))?;
        Ok(Layout { first: WordOffset::new(first), cpus, lanes })
    }

    /// Opens the slots of a family. Returns `None` if they lie outside of the segment.
    pub(crate) fn open(
        segment: &Segment,
        schema: &Schema,
        slots: u32,
        layout: Layout,
        marks: WordOffset,
    ) -> Option<Self> {
        let cells = u32::from(schema.cells);
        let slots_per_slab = LANE_WORDS as u32 / cells;
        let words = words(slots, cells, layout.lanes.into());
        let first_of = |first: WordOffset, words: u64| {
            let first = Some(first).filter(|&first| first != WordOffset::NONE)?;
            segment.region.cells(first.byte(), usize::try_from(words).ok()?)
        };
        let (first, mark_words) =
            (first_of(layout.first, words)?, Self::mark_words(slots, schema.cells));
        let kept = first_of(marks, mark_words)?;
        let slabs = slots.div_ceil(slots_per_slab);
        let of_slab = |slab: u32| {
            let used = (slots - slab * slots_per_slab).min(slots_per_slab) * cells;
            let before = u64::from(slab) * u64::from(layout.lanes) * LANE_WORDS as u64;
            let first = u64::from(layout.first.get()) + before;
            let word = mark_words as usize - (slabs - slab) as usize;
            // SAFETY: `first_of` checked that the marks exist.
            (first, used, unsafe { kept.add(word) })
        };
        let sets = if schema.additive {
            let numbers = (layout.cpus, layout.lanes);
            // SAFETY: the words are among the marks.
            unsafe { LaneSet::of_slabs(segment, numbers, (0..slabs).map(of_slab))? }
        } else if layout.lanes == 1 && layout.cpus == 0 {
            Arc::default()
        } else {
            return None;
        };
        // SAFETY: the sets live as long as the cells that this value lends.
        let lanes = sets.first().map_or(Lanes::ONE, |set| unsafe { Lanes::new(set) });
        Some(Self {
            first,
            marks: kept,
            offsets: [layout.first, marks].map(|at| at.get().into()),
            slots,
            near: slots.saturating_sub(1).min(slots_per_slab),
            cells: NonZeroU32::new(cells)?,
            pairs: schema.pairs.into(),
            slots_per_slab,
            lanes,
            sets,
        })
    }

    /// Gives each slab lanes, if this machine has more than one CPU.
    pub(crate) fn earn(&self) {
        self.sets.iter().for_each(LaneSet::earn);
    }

    /// Makes room for the lanes that the first slab may earn.
    pub(crate) fn make_room(&self) {
        self.sets.first().into_iter().for_each(LaneSet::make_room);
    }

    /// Gives lanes to the slabs whose threads asked for them while the segment was full.
    pub(crate) fn earn_wanted(&self) {
        self.sets.iter().for_each(LaneSet::earn_if_wanted);
    }

    /// Returns the words that the family occupies, without earned lanes. In a slab, the words of
    /// the first lane represent all lanes.
    pub(crate) fn extents(&self, slabs: &[Slab]) -> impl Iterator<Item = Range<u64>> {
        let [first, marks] = self.offsets;
        let words = if slabs.iter().any(|slab| slab.has(self)) {
            self.used()
        } else {
            words(self.slots, self.cells.get(), self.lanes.count().into())
        };
        // The cast is safe, because the number of cells was a u16.
        let kept = Self::mark_words(self.slots, self.cells.get() as u16);
        [first..first + words, marks..marks + kept].into_iter()
    }

    /// Returns the words of the earned lanes, according to their slabs' words.
    pub(crate) fn earned_words(&self) -> impl Iterator<Item = Range<u64>> {
        self.sets.iter().filter_map(LaneSet::earned_words)
    }

    /// Drops lanes that end after the first `used` words. Returns the slots of their slabs, because
    /// the bases of these slots may include counts of the lanes. No other process may use the
    /// words.
    pub(crate) fn forget_lanes_beyond(&self, used: u64) -> Vec<Range<u32>> {
        let mut slots = Vec::new();
        for (first, set) in (0..self.slots).step_by(self.slots_per_slab as usize).zip(&*self.sets) {
            if set.earned_words().is_some_and(|words| words.end > used) {
                set.forget();
                slots.push(first..first + self.slots_after(first));
            }
        }
        slots
    }

    /// Returns the words of the marks, of the bases, of the times, and of the slabs.
    #[cfg(unix)]
    pub(crate) fn kept_words(&self) -> [Range<u64>; 4] {
        let (begin, slots) = (self.offsets[1], u64::from(self.slots));
        let bases = begin + slots.div_ceil(64);
        let starts = bases + self.used();
        let slabs = starts + slots;
        // The cast is safe, because the number of cells was a u16.
        let end = begin + Self::mark_words(self.slots, self.cells.get() as u16);
        [begin..bases, bases..starts, starts..slabs, slabs..end]
    }

    /// Returns the words from the first cell to the last. In a slab, cells of other families lie
    /// between them.
    #[cfg(unix)]
    pub(crate) fn lane_words(&self) -> Range<u64> {
        let first = self.offsets[0];
        first..first + words(self.slots, self.cells.get(), self.lanes.count().into())
    }

    /// Returns the words of all slots, in one lane.
    fn used(&self) -> u64 {
        u64::from(self.slots) * u64::from(self.cells.get())
    }

    /// Returns the number of slots. The last slot is the overflow.
    pub(crate) fn slots(&self) -> u32 {
        self.slots
    }

    /// Returns the number of cells of a slot.
    #[inline]
    pub(crate) fn cells(&self) -> usize {
        self.cells.get() as usize
    }

    /// Returns the number of lanes of the first slab.
    #[inline]
    pub(crate) fn lanes(&self) -> u32 {
        let earned = self.lanes.set().and_then(LaneSet::earned).map_or(0, |earned| earned.lanes);
        u32::from(self.lanes.count()) + u32::from(earned)
    }

    /// Returns the number of slots from an existing slot to the last of its slab.
    pub(crate) fn slots_after(&self, slot: u32) -> u32 {
        (self.slots_per_slab - slot % self.slots_per_slab).min(self.slots.saturating_sub(slot))
    }

    /// Returns the bases of `words` cells from the first cell of a slot on; none if these do not
    /// exist.
    pub(crate) fn bases(&self, slot: u32, words: usize) -> &[AtomicU64] {
        let (first, count) = (slot as usize * self.cells(), self.used() as usize);
        if self.sets.is_empty() || first.saturating_add(words) > count {
            return &[];
        }
        // SAFETY: `open` checked that the marks and that many bases lie inside the region.
        unsafe {
            let bases = self.marks.add(self.slots.div_ceil(64) as usize + first);
            std::slice::from_raw_parts(bases.as_ptr(), words)
        }
    }

    /// Calls `visit` with each lane of `words` cells from the first cell of a slot on, all in the
    /// slab of this slot.
    pub(crate) fn visit_lanes(&self, slot: u32, words: usize, mut visit: impl FnMut(&[AtomicU64])) {
        let cells = self.cells_at(slot);
        assert!(words <= self.slots_after(slot) as usize * self.cells());
        for lane in cells.first_of_lanes() {
            // SAFETY: the lane contains all cells of the slab.
            visit(unsafe { std::slice::from_raw_parts(lane.as_ptr(), words) });
        }
    }

    /// Returns the cells of a slot, or of the last slot if there is no such slot.
    #[inline]
    pub(crate) fn cells_at(&self, slot: u32) -> SeriesCells<'_> {
        let slot = slot.min(self.slots - 1);
        self.cells_near(slot).unwrap_or_else(|| {
            let (words, lanes) = self.far(slot);
            self.at(slot, words, lanes)
        })
    }

    /// Returns the cells of a slot in the first slab, where most families have all their slots.
    /// This only needs arithmetic.
    #[inline]
    pub(crate) fn cells_near(&self, slot: u32) -> Option<SeriesCells<'_>> {
        (slot < self.near).then(|| self.at(slot, (slot * self.cells.get()) as usize, self.lanes))
    }

    /// Returns the number of words from the first cell of slot 0 to the first cell of an existing
    /// slot, and the lanes of its slab.
    #[cold]
    #[inline(never)]
    fn far(&self, slot: u32) -> (usize, Lanes) {
        let (slab, rest) = (slot / self.slots_per_slab, slot % self.slots_per_slab);
        let words = slab as usize * usize::from(self.lanes.count()) * LANE_WORDS
            + (rest * self.cells.get()) as usize;
        // SAFETY: like in `open`.
        let lanes = self.sets.get(slab as usize).map(|set| unsafe { Lanes::new(set) });
        let lanes = lanes.unwrap_or(Lanes::ONE);
        (words, lanes)
    }

    /// Returns the cells of an existing slot, which begin `words` words after the first cell of
    /// slot 0.
    #[inline]
    fn at(&self, slot: u32, words: usize, lanes: Lanes) -> SeriesCells<'_> {
        let base = (!self.sets.is_empty()).then(|| {
            let at = self.slots.div_ceil(64) + slot * self.cells.get();
            // SAFETY: `open` checked that the marks and that many bases lie inside the region.
            unsafe { self.marks.add(at as usize) }
        });
        // SAFETY: `open` checked that all slots in all lanes lie inside the region, which the
        // family keeps alive for longer than this borrow. `Schema::check` ensured that the cells
        // are enough for the pairs.
        unsafe {
            SeriesCells::new(self.first.add(words), self.cells, lanes, base).with_pairs(self.pairs)
        }
    }

    /// Returns whether the slot is shown even if it is zero.
    #[inline]
    pub(crate) fn is_marked(&self, slot: u32) -> bool {
        self.mark_of(slot).load(Ordering::Relaxed) >> (slot % 64) & 1 == 1
    }

    /// Shows the slot even if it is zero.
    #[inline]
    pub(crate) fn mark(&self, slot: u32) {
        let slot = slot.min(self.slots - 1);
        // Load first, because a slot is marked only once, and all threads share the word.
        if !self.is_marked(slot) {
            self.mark_of(slot).fetch_or(1 << (slot % 64), Ordering::Relaxed);
        }
    }

    /// Resets a slot: unmarks it, and sets it to zero, except for the cells where `is_kept` returns
    /// true.
    pub(crate) fn reset(&self, slot: u32, floats: u64, now: u64, is_kept: impl Fn(usize) -> bool) {
        let slot = slot.min(self.slots - 1);
        // Reset the value first, because an old value must never be shown with the new start.
        self.cells_at(slot).reset(floats, is_kept);
        self.start_of(slot).store(now, Ordering::Release);
        self.mark_of(slot).fetch_and(!(1 << (slot % 64)), Ordering::Release);
    }

    /// Stores `now` as the start of a slot.
    pub(crate) fn restart(&self, slot: u32, now: u64) {
        self.start_of(slot.min(self.slots - 1)).store(now, Ordering::Release);
    }

    /// Returns the time of a slot's last reset; 0 if it never was reset.
    pub(crate) fn start(&self, slot: u32) -> u64 {
        // Acquire: a reader that finds the new time finds the new bases.
        self.start_of(slot).load(Ordering::Acquire)
    }

    #[inline]
    fn mark_of(&self, slot: u32) -> &AtomicU64 {
        debug_assert!(slot < self.slots);
        // SAFETY: `open` checked that the marks of all slots lie inside the region.
        unsafe { self.marks.add((slot / 64) as usize).as_ref() }
    }

    fn start_of(&self, slot: u32) -> &AtomicU64 {
        debug_assert!(slot < self.slots);
        let at = self.slots.div_ceil(64) + self.slots * self.cells.get() + slot;
        // SAFETY: as above, for the times after the marks and bases.
        unsafe { self.marks.add(at as usize).as_ref() }
    }
}

/// Returns the words of `slots` slots in all lanes. In the last lane, a small family uses only the
/// words of its slots.
fn words(slots: u32, cells: u32, lanes: u64) -> u64 {
    let slabs = u64::from(slots.div_ceil(LANE_WORDS as u32 / cells));
    match slabs {
        1 => lanes.saturating_sub(1) * LANE_WORDS as u64 + u64::from(slots) * u64::from(cells),
        _ => slabs * lanes * LANE_WORDS as u64,
    }
}
