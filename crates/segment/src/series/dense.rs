//! The series of a family whose labels are all of fixed cardinality: a slot for each combination of
//! values, and one more, the overflow, for anything else.
//!
//! The cells lie in lanes if the family is additive and not too large, else in one lane. Several
//! small families share one *slab* of lanes, so a counter takes 8 bytes per CPU instead of a
//! line.

use std::num::NonZeroU32;
use std::ops::Range;
use std::ptr::NonNull;

use super::cells::{LANE_WORDS, Lanes, SeriesCells};
use super::names::Names;
use super::schema::Schema;
use crate::cells::Cells;
use crate::error::Error;
use crate::layout::Kind;
use crate::lock;
use crate::offset::{self, WordOffset};
use crate::region::Region;
use crate::segment::{Record, Segment};
use crate::stripes::Stripes;
use crate::sync::{AtomicU64, Ordering};

/// A slab: a cell with the number of words in use, one with the numbers of lanes, and then the
/// lanes.
const SLAB: Kind = Kind::new(*b"LANE", 1);
const SLAB_NAME: &str = "lanes";
const SLAB_HEAD: usize = 8;
/// The most words, over all lanes, of a family with lanes: 1 MiB.
const MAX_LANE_WORDS: u64 = 1 << 17;

/// Where the slots lie: an offset in words and the numbers of lanes, packed into one word.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout {
    pub(crate) first: WordOffset,
    pub(crate) cpus: u16,
    pub(crate) lanes: u16,
}

impl Layout {
    pub(crate) fn unpack(word: u64) -> Self {
        // Truncation is meant: each cast keeps one part.
        Self {
            first: WordOffset::unpack(word),
            cpus: (word >> 32) as u16,
            lanes: (word >> 48) as u16,
        }
    }

    pub(crate) fn pack(self) -> u64 {
        self.first.pack() | u64::from(self.cpus) << 32 | u64::from(self.lanes) << 48
    }
}

/// An existing slab.
pub(crate) struct Slab {
    /// The word offset of its first lane.
    first: u64,
    numbers: u64,
    cells: Cells,
}

impl Slab {
    /// The slab in a record, if the record is a slab and says how many lanes it has.
    pub(crate) fn of(record: &Record) -> Option<Self> {
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

    /// The words of its first lane, which represent those of all lanes.
    pub(crate) fn lane(&self) -> Range<u64> {
        self.first..self.first + LANE_WORDS as u64
    }

    /// Marks the words of a family as in use, if they lie in this slab.
    pub(crate) fn keep(&self, dense: &Dense) {
        if self.has_lost(dense) {
            self.cells[0].fetch_max(self.end_of(dense), Ordering::Relaxed);
        }
    }

    /// Whether the words of a family lie in this slab, and are not marked as in use.
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
    /// A bit for each slot that is shown although it is zero; then what the lanes of each slot held
    /// when it was last reset; then the time of that reset.
    marks: NonNull<AtomicU64>,
    /// The word offsets of `first` and `marks`.
    offsets: [u64; 2],
    slots: u32,
    /// How many of them, without the overflow's, lie in the first slab: one after the other.
    near: u32,
    cells: NonZeroU32,
    pairs: u32,
    slots_per_slab: u32,
    lanes: Lanes,
    additive: bool,
}

// SAFETY: it gives out only shared atomics of a region that its family keeps alive.
unsafe impl Send for Dense {}
// SAFETY: as above.
unsafe impl Sync for Dense {}

impl Dense {
    /// The number of words of the marks, bases and times.
    pub(crate) fn mark_words(slots: u32, cells: u16) -> u64 {
        let slots = u64::from(slots);
        slots.div_ceil(64) + slots * u64::from(cells) + slots
    }

    /// Takes the lanes of a new family.
    pub(crate) fn allocate(
        segment: &Segment,
        schema: &Schema,
        slots: u32,
    ) -> Result<Layout, Error> {
        let per_slab = LANE_WORDS as u32 / u32::from(schema.cells);
        let slabs = u64::from(slots.div_ceil(per_slab));
        let (cpus, shared) = Stripes::advised();
        // `advised` returns at most 64 of each.
        let (cpus, lanes) = (cpus as u16, (cpus + shared) as u16);
        let words = slabs * u64::from(lanes) * LANE_WORDS as u64;
        let small = slabs == 1;
        let used = slots * u32::from(schema.cells);
        if !schema.additive || (!small && words > MAX_LANE_WORDS) {
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
        for record in Names::of(segment).slabs(segment)? {
            let record = record?;
            if Slab::of(&record).is_none_or(|slab| slab.numbers != numbers) {
                continue;
            }
            let cells = record.cells();
            // Relaxed: only one thread at a time makes a family.
            let mut at = cells[0].load(Ordering::Relaxed);
            if schema.pairs > 0 {
                // A pair on a multiple of 16 bytes never crosses a cache line. A slab begins on a
                // line, and so do the words that `take` returns.
                at = at.saturating_add(at % 2);
            }
            let end = at.saturating_add(used.into());
            if end <= LANE_WORDS as u64 {
                cells[0].store(end, Ordering::Relaxed);
                // The record is within the reach of word offsets: `take` below made sure of it.
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
        Names::of(segment).note_slab(segment, &record);
        let first = u32::try_from(record.offset().words() + SLAB_HEAD as u64);
        let first = first.map_err(|_| Error::full(segment, offset::bytes(count as u64)))?;
        Ok(Layout { first: WordOffset::new(first), cpus, lanes })
    }

    /// Opens the slots of a family. `None` if they do not lie inside the segment.
    pub(crate) fn open(
        region: &Region,
        schema: &Schema,
        slots: u32,
        layout: Layout,
        marks: WordOffset,
    ) -> Option<Self> {
        let slots_per_slab = LANE_WORDS as u32 / u32::from(schema.cells);
        let words = words(slots, schema.cells.into(), layout.lanes.into());
        let first_of = |first: WordOffset, words: u64| {
            let first = Some(first).filter(|&first| first != WordOffset::NONE)?;
            region.cells(first.byte(), usize::try_from(words).ok()?)
        };
        let lanes = Lanes::new(layout.cpus, layout.lanes)?;
        Some(Self {
            first: first_of(layout.first, words)?,
            marks: first_of(marks, Self::mark_words(slots, schema.cells))?,
            offsets: [layout.first, marks].map(|at| at.get().into()),
            slots,
            near: slots.saturating_sub(1).min(slots_per_slab),
            cells: NonZeroU32::new(schema.cells.into())?,
            pairs: schema.pairs.into(),
            slots_per_slab,
            lanes,
            additive: schema.additive,
        })
    }

    /// The words that it occupies. Inside a slab, those in the first lane represent all lanes.
    pub(crate) fn extents(&self, slabs: &[Slab]) -> [Range<u64>; 2] {
        let [first, marks] = self.offsets;
        let words = if slabs.iter().any(|slab| slab.has(self)) {
            self.used()
        } else {
            words(self.slots, self.cells.get(), self.lanes.count().into())
        };
        // The number of cells came as 16 bits.
        let kept = Self::mark_words(self.slots, self.cells.get() as u16);
        [first..first + words, marks..marks + kept]
    }

    /// The words of the marks, of the bases, and of the times.
    #[cfg(unix)]
    pub(crate) fn kept_words(&self) -> [Range<u64>; 3] {
        let (begin, slots) = (self.offsets[1], u64::from(self.slots));
        let bases = begin + slots.div_ceil(64);
        let starts = bases + self.used();
        [begin..bases, bases..starts, starts..starts + slots]
    }

    /// The words from the first cell to the last one. In a slab, cells of other families lie among
    /// them.
    #[cfg(unix)]
    pub(crate) fn lane_words(&self) -> Range<u64> {
        let first = self.offsets[0];
        first..first + words(self.slots, self.cells.get(), self.lanes.count().into())
    }

    /// The words of all slots, in one lane.
    fn used(&self) -> u64 {
        u64::from(self.slots) * u64::from(self.cells.get())
    }

    /// The number of slots. The last one is the overflow.
    pub(crate) fn slots(&self) -> u32 {
        self.slots
    }

    /// The cells of a slot; those of the last one if there is no such slot.
    #[inline]
    pub(crate) fn cells_at(&self, slot: u32) -> SeriesCells<'_> {
        let slot = slot.min(self.slots - 1);
        self.cells_near(slot).unwrap_or_else(|| self.at(slot, self.words_before(slot)))
    }

    /// The cells of a slot in the first slab, as are all slots of most families: by arithmetic
    /// alone.
    #[inline]
    pub(crate) fn cells_near(&self, slot: u32) -> Option<SeriesCells<'_>> {
        (slot < self.near).then(|| self.at(slot, (slot * self.cells.get()) as usize))
    }

    /// The number of words from the first cell of slot 0 to that of an existing slot.
    #[cold]
    #[inline(never)]
    fn words_before(&self, slot: u32) -> usize {
        let (slab, rest) = (slot / self.slots_per_slab, slot % self.slots_per_slab);
        slab as usize * usize::from(self.lanes.count()) * LANE_WORDS
            + (rest * self.cells.get()) as usize
    }

    /// The cells of an existing slot, which begin `words` words after those of slot 0.
    #[inline]
    fn at(&self, slot: u32, words: usize) -> SeriesCells<'_> {
        let base = self.additive.then(|| {
            let at = self.slots.div_ceil(64) + slot * self.cells.get();
            // SAFETY: `open` checked that the marks and that many bases lie inside the region.
            unsafe { self.marks.add(at as usize) }
        });
        // SAFETY: `open` checked that all slots in all lanes lie inside the region, which the
        // family keeps alive for longer than this borrow. `Schema::check` made sure that the cells
        // are enough for the pairs.
        unsafe {
            SeriesCells::new(self.first.add(words), self.cells, self.lanes, base)
                .with_pairs(self.pairs)
        }
    }

    /// Whether the slot is shown even if it is zero.
    #[inline]
    pub(crate) fn is_marked(&self, slot: u32) -> bool {
        self.mark_of(slot).load(Ordering::Relaxed) >> (slot % 64) & 1 == 1
    }

    /// Shows the slot even if it is zero.
    #[inline]
    pub(crate) fn mark(&self, slot: u32) {
        let slot = slot.min(self.slots - 1);
        // A load first: a slot is marked only once, and all threads share the word.
        if !self.is_marked(slot) {
            self.mark_of(slot).fetch_or(1 << (slot % 64), Ordering::Relaxed);
        }
    }

    /// Resets a slot: unmarked, and zero, except for the cells for which `is_kept` returns true.
    pub(crate) fn reset(&self, slot: u32, floats: u64, now: u64, is_kept: impl Fn(usize) -> bool) {
        let slot = slot.min(self.slots - 1);
        // The value first: an old value is never shown with the new start.
        self.cells_at(slot).reset(floats, is_kept);
        self.start_of(slot).store(now, Ordering::Release);
        self.mark_of(slot).fetch_and(!(1 << (slot % 64)), Ordering::Release);
    }

    /// Notes that a slot counts from zero since `now`.
    pub(crate) fn restart(&self, slot: u32, now: u64) {
        self.start_of(slot.min(self.slots - 1)).store(now, Ordering::Release);
    }

    /// When a slot was last reset; 0 if it never was.
    pub(crate) fn start(&self, slot: u32) -> u64 {
        self.start_of(slot).load(Ordering::Relaxed)
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

/// The words of `slots` slots in all lanes. In the last lane, a small family uses no more than its
/// slots.
fn words(slots: u32, cells: u32, lanes: u64) -> u64 {
    let slabs = u64::from(slots.div_ceil(LANE_WORDS as u32 / cells));
    match slabs {
        1 => lanes.saturating_sub(1) * LANE_WORDS as u64 + u64::from(slots) * u64::from(cells),
        _ => slabs * lanes * LANE_WORDS as u64,
    }
}
