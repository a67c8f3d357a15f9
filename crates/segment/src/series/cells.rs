//! The cells of one series: a single copy, or one copy for each CPU.
//!
//! If many threads update a series at once, its cells are in *lanes*. There is one lane for each
//! CPU, where threads add by restartable sequences, followed by shared lanes for all other threads.
//! On a machine with many CPUs, a series begins with one lane, and its slab can
//! [earn](super::lanes) more. A series in a separate record uses one lane, where all threads add
//! atomically.
//!
//! A reader adds up the lanes. The sum includes all additions from before the read began, and none
//! from after it ended.

use std::marker::PhantomData;
use std::num::NonZeroU32;
use std::ptr::NonNull;

use super::lane_set::LaneSet;
use crate::rseq::Sequence;
use crate::stripes::thread_number;
use crate::sync::{AtomicU64, Ordering};

/// The distance between two of a family's first lanes, in words.
pub(crate) const LANE_WORDS: usize = 512;
/// The binary logarithm of this distance in bytes.
const LANE_SHIFT: u32 = (LANE_WORDS * 8).ilog2();
/// The maximum size, over all lanes, of a family that begins with lanes, in words: 1 MiB.
pub(crate) const MAX_LANE_WORDS: u64 = 1 << 17;

/// The lanes of a series.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lanes {
    /// A copy of the set's home, because each addition needs it.
    home: Option<Home>,
    /// The lanes; `None` for a single lane, where all threads add atomically.
    set: Option<NonNull<LaneSet>>,
}

/// The restartable sequence for the first lanes of a family, and the CPUs that own such a lane.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Home {
    pub(crate) sequence: Sequence,
    /// The number of CPUs with a lane.
    pub(crate) cpus: u32,
}

impl Lanes {
    /// The lane of a series in a separate record.
    pub(crate) const ONE: Self = Self { home: None, set: None };

    /// Returns the lanes of a slab or of a side allocation.
    ///
    /// # Safety
    /// The set must live as long as cells of these lanes are used.
    #[inline]
    pub(crate) unsafe fn new(set: &LaneSet) -> Self {
        Self { home: set.home(), set: Some(NonNull::from(set)) }
    }

    #[inline]
    pub(crate) fn set<'a>(self) -> Option<&'a LaneSet> {
        // SAFETY: `new` required that the set lives as long as the cells.
        self.set.map(|set| unsafe { set.as_ref() })
    }

    /// Returns the lanes of a new side allocation of the series.
    #[inline]
    pub(crate) fn of_sides(self) -> Self {
        // SAFETY: they live as long as this set.
        self.set().map_or(Self::ONE, |set| unsafe { Self::new(set.of_sides()) })
    }

    /// Returns the lanes of an existing side allocation of the series: `cpus` of `count` belong to
    /// CPUs. Returns `None` if no side allocation of the series can be like this.
    pub(crate) fn of_existing_side(self, cpus: u16, count: u16) -> Option<Self> {
        let set = self.set().and_then(|set| set.of_existing_side(cpus, count));
        // SAFETY: like in `of_sides`.
        let lanes = set.map(|set| unsafe { Self::new(set) });
        lanes.or(((cpus, count) == (0, 1)).then_some(Self::ONE))
    }

    /// Returns whether these are the same lanes.
    #[inline]
    pub(crate) fn is(self, other: Self) -> bool {
        self.set == other.set
    }

    /// Returns the number of CPUs that own a lane from the start.
    #[inline]
    pub(crate) fn cpus(self) -> u16 {
        self.set().map_or(0, LaneSet::cpus)
    }

    /// Returns the number of lanes from the start.
    #[inline]
    pub(crate) fn count(self) -> u16 {
        self.set().map_or(1, LaneSet::count)
    }
}

/// The cells of one series.
#[derive(Debug, Clone, Copy)]
pub struct SeriesCells<'a> {
    first: NonNull<AtomicU64>,
    cells: NonZeroU32,
    /// The number of pairs at the beginning of the cells.
    pairs: u32,
    lanes: Lanes,
    /// The values of the lanes at the last reset; `None` for zeros.
    base: Option<NonNull<AtomicU64>>,
    /// The sums of all cells, if a reader of many series has added them up already.
    sums: Option<NonNull<u64>>,
    life: PhantomData<&'a AtomicU64>,
}

// SAFETY: this value lends only shared atomics, which live for 'a.
unsafe impl Send for SeriesCells<'_> {}
// SAFETY: as above.
unsafe impl Sync for SeriesCells<'_> {}

impl<'a> SeriesCells<'a> {
    /// Wraps `cells` cells in each lane.
    ///
    /// # Safety
    /// For 'a, there must be `cells` atomics from `first` on in each of the lanes from the start,
    /// which are `LANE_WORDS` apart; and `cells` atomics from `base` on, if it is set. If a slab
    /// may earn lanes, the cells must lie within the words that it uses.
    pub(crate) unsafe fn new(
        first: NonNull<AtomicU64>,
        cells: NonZeroU32,
        lanes: Lanes,
        base: Option<NonNull<AtomicU64>>,
    ) -> Self {
        Self { first, cells, pairs: 0, lanes, base, sums: None, life: PhantomData }
    }

    /// Returns the same cells, which begin with `pairs` pairs of a float sum and a count.
    ///
    /// # Safety
    /// There must be at least two cells for each pair.
    #[inline]
    pub(crate) unsafe fn with_pairs(self, pairs: u32) -> Self {
        Self { pairs, ..self }
    }

    /// Returns the same cells, with the sums that [`Sums`](super::sums::Sums) computed.
    ///
    /// # Panics
    /// If there is not a sum for each cell.
    #[inline]
    pub(crate) fn with_sums<'s>(self, sums: &'s [u64]) -> SeriesCells<'s>
    where
        'a: 's,
    {
        assert!(sums.len() == self.len());
        SeriesCells { sums: Some(NonNull::from(sums).cast()), ..self }
    }

    /// Wraps cells in one lane; `None` if there are none.
    #[inline]
    pub(crate) fn in_one_lane(cells: &'a [AtomicU64]) -> Option<Self> {
        // The cast is safe, because a series contains at most 512.
        let count = NonZeroU32::new(cells.len() as u32)?;
        // SAFETY: the slice contains all cells of the lane, for 'a.
        Some(unsafe { Self::new(NonNull::from(cells).cast(), count, Lanes::ONE, None) })
    }

    /// Returns the number of cells of the series.
    #[inline]
    pub fn len(&self) -> usize {
        self.cells.get() as usize
    }

    /// Returns whether there are no cells.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of cells of the series, like [`SeriesCells::len`].
    pub(crate) fn count(&self) -> NonZeroU32 {
        self.cells
    }

    /// Returns the address of the first cell.
    pub(crate) fn address(&self) -> usize {
        self.first.addr().get()
    }

    #[inline]
    pub(crate) fn lanes(&self) -> Lanes {
        self.lanes
    }

    /// Returns whether a new side allocation's cells would be in several lanes.
    pub fn has_sides_in_lanes(&self) -> bool {
        self.lanes.of_sides().count() > 1
    }

    /// Sets a cell to zero in all lanes. Additions at the same time may be lost, or stay.
    ///
    /// # Panics
    /// If there is no such cell.
    pub fn clear(&self, cell: usize) {
        assert!(cell < self.len());
        for lane in 0..usize::from(self.lanes.count()) {
            self.lane(cell, lane).store(0, Ordering::Relaxed);
        }
        for cell in self.earned(cell) {
            cell.store(0, Ordering::Relaxed);
        }
    }

    /// Adds `n`, modulo 2^64, to a cell.
    ///
    /// # Panics
    /// If there is no such cell.
    #[inline]
    pub fn add(&self, cell: usize, n: u64) {
        assert!(cell < self.len());
        // SAFETY: the cell exists in each of the lanes, as `new` required.
        unsafe {
            let first = self.first.add(cell);
            if let Some(Home { sequence, cpus }) = self.lanes.home
                && sequence.add::<LANE_SHIFT>(first.as_ptr(), cpus, n)
            {
                return;
            }
            match self.lanes.set() {
                Some(set) => add_earned(first, set, n),
                // Release: like in `add_shared`.
                None => _ = first.as_ref().fetch_add(n, Ordering::Release),
            }
        }
    }

    /// Adds `n` to a cell that contains a float's bits.
    ///
    /// # Panics
    /// If there is no such cell.
    #[inline]
    pub fn add_float(&self, cell: usize, n: f64) {
        assert!(cell < self.len());
        // SAFETY: like in `add`.
        unsafe {
            let first = self.first.add(cell);
            if let Some(Home { sequence, cpus }) = self.lanes.home
                && sequence.add_float::<LANE_SHIFT>(first.as_ptr(), cpus, n)
            {
                return;
            }
            match self.lanes.set() {
                Some(set) => add_float_earned(first, set, n),
                None => add_float_shared(first, None, n),
            }
        }
    }

    /// Returns the index of the last pair of a float sum and a count; `None` if the cells are not
    /// [pairs](super::Schema::pairs).
    #[inline]
    pub fn last_pair(&self) -> Option<usize> {
        Some(self.pairs.checked_sub(1)? as usize)
    }

    /// Adds `value` to the sum of a pair, and `n`, modulo 2^64, to its count. If there is no such
    /// pair, this adds to the last one.
    ///
    /// A CPU's lane gets both at once, at about the cost of one addition. A shared lane gets two
    /// atomic additions, the count first, so a reader can find the count without the value.
    ///
    /// # Panics
    /// If there are no pairs.
    #[inline]
    pub fn add_pair(&self, pair: usize, n: u64, value: f64) {
        let last = self.last_pair().expect("the caller checked that there are pairs");
        // SAFETY: both cells of the pair exist in each of the lanes, as `new` and `with_pairs`
        // required.
        unsafe {
            let first = self.first.add(2 * pair.min(last));
            if let Some(Home { sequence, cpus }) = self.lanes.home
                && sequence.add_pair::<LANE_SHIFT>(first.as_ptr(), cpus, n, value)
            {
                return;
            }
            match self.lanes.set() {
                Some(set) => add_pair_earned(first, set, n, value),
                None => add_pair_shared(first, None, n, value),
            }
        }
    }

    /// Returns the sum of a cell over all lanes, modulo 2^64.
    ///
    /// # Panics
    /// If there is no such cell.
    #[inline]
    pub fn sum(&self, cell: usize) -> u64 {
        if let Some(sum) = self.known_sum(cell) {
            return sum;
        }
        let base = self.base(cell).map_or(0, |base| base.load(Ordering::Acquire));
        self.raw_sum(cell).wrapping_sub(base)
    }

    /// Returns the sum of a float cell over all lanes.
    ///
    /// # Panics
    /// If there is no such cell.
    #[inline]
    pub fn sum_float(&self, cell: usize) -> f64 {
        if let Some(sum) = self.known_sum(cell) {
            return f64::from_bits(sum);
        }
        let base = self.base(cell).map_or(0.0, |base| f64::from_bits(base.load(Ordering::Acquire)));
        // Check for zero, because a base that was never set must not change even the sign of a
        // zero.
        if base == 0.0 { self.raw_sum_float(cell) } else { self.raw_sum_float(cell) - base }
    }

    #[inline]
    fn known_sum(&self, cell: usize) -> Option<u64> {
        assert!(cell < self.len());
        // SAFETY: `with_sums` checked that there is a sum for each cell, for 'a.
        self.sums.map(|sums| unsafe { sums.add(cell).read() })
    }

    /// Returns the sum of the sums of all pairs, over all lanes.
    pub fn sum_of_pairs(&self) -> f64 {
        let sums = (0..self.pairs as usize).map(|pair| self.sum_float(2 * pair));
        sums.reduce(|sum, value| sum + value).unwrap_or(0.0)
    }

    /// Returns the cell in the first shared lane. Use this for values that you set, such as gauges,
    /// and not for sums.
    ///
    /// # Panics
    /// If there is no such cell.
    #[inline]
    pub fn plain(&self, cell: usize) -> &'a AtomicU64 {
        assert!(cell < self.len());
        self.lane(cell, usize::from(self.lanes.cpus()))
    }

    /// Returns all cells that [`SeriesCells::plain`] returns.
    #[inline]
    pub fn shared(&self) -> &'a [AtomicU64] {
        let first = NonNull::from(self.plain(0));
        // SAFETY: the lane contains that many cells, as `new` required, for 'a.
        unsafe { std::slice::from_raw_parts(first.as_ptr(), self.len()) }
    }

    /// Resets all sums to zero, except in the cells where `is_kept` returns true. `floats` contains
    /// a bit for each float cell. Without a base, no other thread may use the cells.
    pub(crate) fn reset(&self, floats: u64, is_kept: impl Fn(usize) -> bool) {
        for cell in (0..self.len()).filter(|cell| !is_kept(*cell)) {
            match self.base(cell) {
                Some(base) if is_float(floats, cell) => {
                    let mut sum = self.raw_sum_float(cell);
                    if !sum.is_finite() {
                        // No base can subtract this value, so an addition at this moment may be
                        // lost, too.
                        self.clear(cell);
                        sum = 0.0;
                    }
                    base.store(sum.to_bits(), Ordering::Release);
                }
                Some(base) => base.store(self.raw_sum(cell), Ordering::Release),
                None => self.plain(cell).store(0, Ordering::Release),
            }
        }
    }

    /// Resets the sums if one of them is below zero. This can happen if lanes are lost, because the
    /// bases may include their counts. Cells without a base are not changed. No other thread may
    /// use the cells.
    pub(crate) fn reset_below_zero(&self, floats: u64) {
        let base = |cell| self.base(cell).map_or(0, |base| base.load(Ordering::Relaxed));
        let is_below_zero = |cell: usize| {
            if is_float(floats, cell) {
                self.raw_sum_float(cell) < f64::from_bits(base(cell))
            } else {
                self.raw_sum(cell) < base(cell)
            }
        };
        if (0..self.len()).any(|cell| base(cell) != 0 && is_below_zero(cell)) {
            self.reset(floats, |cell| base(cell) == 0);
        }
    }

    /// Returns whether all sums are zero.
    pub(crate) fn is_zero(&self, floats: u64) -> bool {
        (0..self.len()).all(|cell| {
            if is_float(floats, cell) { self.sum_float(cell) == 0.0 } else { self.sum(cell) == 0 }
        })
    }

    #[inline]
    fn raw_sum(&self, cell: usize) -> u64 {
        assert!(cell < self.len());
        // Acquire: a reader that sees an addition sees the stores of its thread before it, and
        // later loads in program order are not moved before these.
        let first = self.lane(cell, 0);
        let Some(set) = self.lanes.set() else { return first.load(Ordering::Acquire) };
        let begun = (1..usize::from(set.count())).map(|lane| self.lane(cell, lane));
        let sum = begun
            .map(|cell| cell.load(Ordering::Acquire))
            .fold(first.load(Ordering::Acquire), u64::wrapping_add);
        match set.earned() {
            None => sum,
            // SAFETY: the cell belongs to the slab that earned the lanes.
            Some(earned) => unsafe { earned.cells(NonNull::from(first)) }
                // SAFETY: the lanes lie in the segment for 'a.
                .map(|cell| unsafe { cell.as_ref() }.load(Ordering::Acquire))
                .fold(sum, u64::wrapping_add),
        }
    }

    fn raw_sum_float(&self, cell: usize) -> f64 {
        assert!(cell < self.len());
        let values = (0..usize::from(self.lanes.count()))
            .map(|lane| self.lane(cell, lane))
            .chain(self.earned(cell))
            .map(|cell| f64::from_bits(cell.load(Ordering::Acquire)));
        values.reduce(|sum, value| sum + value).unwrap_or(0.0)
    }

    /// Returns the first cell in each lane, in the order in which sums add them up.
    pub(crate) fn first_of_lanes(&self) -> impl Iterator<Item = NonNull<AtomicU64>> {
        let Self { first, lanes, .. } = *self;
        let begun = (0..usize::from(lanes.count()))
            // SAFETY: there are that many lanes, as `new` required.
            .map(move |lane| unsafe { first.add(lane * LANE_WORDS) });
        let earned = lanes.set().and_then(LaneSet::earned).into_iter().flat_map(move |earned| {
            // SAFETY: the cell belongs to the slab that earned the lanes.
            unsafe { earned.cells(first) }
        });
        begun.chain(earned)
    }

    /// Returns a cell in each earned lane.
    #[inline]
    fn earned(&self, cell: usize) -> impl Iterator<Item = &'a AtomicU64> {
        assert!(cell < self.len());
        // SAFETY: the cell exists, as `new` required.
        let first = unsafe { self.first.add(cell) };
        let lanes = self.lanes.set().and_then(LaneSet::earned).into_iter();
        lanes.flat_map(move |earned| {
            // SAFETY: the cell belongs to the slab that earned the lanes, which lie in the segment
            // for 'a.
            unsafe { earned.cells(first).map(|cell| cell.as_ref()) }
        })
    }

    #[inline]
    fn base(&self, cell: usize) -> Option<&'a AtomicU64> {
        assert!(cell < self.len());
        // SAFETY: the base contains that many cells, as `new` required.
        self.base.map(|base| unsafe { base.add(cell).as_ref() })
    }

    #[inline]
    fn lane(&self, cell: usize, lane: usize) -> &'a AtomicU64 {
        debug_assert!(cell < self.len() && lane < usize::from(self.lanes.count()));
        // SAFETY: the callers checked the cell, and lanes are counted up to their number; `new`
        // required that the cell exists, for 'a.
        unsafe { self.first.add(lane * LANE_WORDS + cell).as_ref() }
    }
}

/// Returns whether a cell is a float, according to the bits of the float cells.
#[inline]
pub(crate) fn is_float(floats: u64, cell: usize) -> bool {
    cell < 64 && floats >> cell & 1 == 1
}

/// Adds to a cell in the earned lane of this thread's CPU, or else in a shared lane. Out of line,
/// because an addition to a first lane then takes few instructions.
///
/// # Safety
/// The cell must exist in each of the lanes: in the first lane at `first`.
#[inline(never)]
unsafe fn add_earned(first: NonNull<AtomicU64>, set: &LaneSet, n: u64) {
    // SAFETY: `LaneSet::earned` checked that the lanes within the reach lie in the segment, and the
    // caller ensured that the slab uses the word of the cell.
    unsafe {
        if let Some((sequence, reach)) = set.earned_sequence()
            && sequence.add_within(first.as_ptr(), reach, n)
        {
            return;
        }
        add_shared(first, set, n);
    }
}

/// Adds to a cell in a shared lane. Out of line, so that [`add_earned`] need not push registers.
///
/// # Safety
/// Same as for [`add_earned`].
#[cold]
#[inline(never)]
unsafe fn add_shared(first: NonNull<AtomicU64>, set: &LaneSet, n: u64) {
    // SAFETY: the caller's obligation.
    let (cell, may_earn) = unsafe { shared(first, set) };
    if may_earn {
        // Load separately, because an addition by another thread in between then shows as a
        // collision.
        let old = cell.load(Ordering::Relaxed);
        let new = old.wrapping_add(n);
        // Release: like below.
        if cell.compare_exchange(old, new, Ordering::Release, Ordering::Relaxed).is_ok() {
            return set.note_addition(old, n);
        }
        set.note_collision();
    }
    // Release: a reader that sees the addition sees this thread's stores before it.
    cell.fetch_add(n, Ordering::Release);
}

/// Like [`add_earned`], for a float's bits.
///
/// # Safety
/// Same as for [`add_earned`].
#[inline(never)]
unsafe fn add_float_earned(first: NonNull<AtomicU64>, set: &LaneSet, n: f64) {
    // SAFETY: like in `add_earned`.
    unsafe {
        if let Some((sequence, reach)) = set.earned_sequence()
            && sequence.add_float_within(first.as_ptr(), reach, n)
        {
            return;
        }
        add_float_shared(first, Some(set), n);
    }
}

/// Like [`add_shared`], for a float's bits.
///
/// # Safety
/// Same as for [`add_earned`].
#[inline(never)]
unsafe fn add_float_shared(first: NonNull<AtomicU64>, set: Option<&LaneSet>, n: f64) {
    // SAFETY: the caller's obligation.
    let (cell, may_earn) = unsafe {
        match set {
            Some(set) => shared(first, set),
            None => (first.as_ref(), false),
        }
    };
    let mut old = cell.load(Ordering::Relaxed);
    loop {
        let new = (f64::from_bits(old) + n).to_bits();
        // Release: like above. Use a strong exchange, because a weak one can fail without a
        // collision.
        match cell.compare_exchange(old, new, Ordering::Release, Ordering::Relaxed) {
            // Floats reach no round numbers, so a cell that is only busy earns no lanes.
            Ok(_) => return,
            Err(found) => old = found,
        }
        if may_earn {
            set.into_iter().for_each(LaneSet::note_collision);
        }
    }
}

/// Like [`add_earned`], for a pair of a float sum at `first` and the count after it.
///
/// # Safety
/// Same as for [`add_earned`], with both cells.
#[inline(never)]
unsafe fn add_pair_earned(first: NonNull<AtomicU64>, set: &LaneSet, n: u64, value: f64) {
    // SAFETY: like in `add_earned`.
    unsafe {
        if let Some((sequence, reach)) = set.earned_sequence()
            && sequence.add_pair_within(first.as_ptr(), reach, n, value)
        {
            return;
        }
        add_pair_shared(first, Some(set), n, value);
    }
}

/// Like [`add_shared`], for a pair of a float sum at `first` and the count after it.
///
/// # Safety
/// Same as for [`add_earned`], with both cells.
#[cold]
#[inline(never)]
unsafe fn add_pair_shared(first: NonNull<AtomicU64>, set: Option<&LaneSet>, n: u64, value: f64) {
    // SAFETY: the caller's obligation.
    unsafe {
        match set {
            Some(set) => add_shared(first.add(1), set, n),
            // Release: like in `add_shared`.
            None => _ = first.add(1).as_ref().fetch_add(n, Ordering::Release),
        }
        add_float_shared(first, set, value);
    }
}

/// Returns the cell in the shared lane of this thread. The second value is true if the slab may
/// earn lanes, but did not yet: then the threads of all CPUs share the lanes from the start.
///
/// # Safety
/// Same as for [`add_earned`], for 'a.
#[inline]
unsafe fn shared<'a>(first: NonNull<AtomicU64>, set: &LaneSet) -> (&'a AtomicU64, bool) {
    let may_earn = set.may_earn();
    if may_earn && let Some(earned) = set.earned() {
        // SAFETY: the cell belongs to the slab that earned the lanes.
        let cell = unsafe { earned.cell(first, earned.shared(thread_number())).as_ref() };
        return (cell, false);
    }
    let shared = usize::from(set.count() - set.cpus());
    let own = if shared == 1 { 0 } else { thread_number() % shared };
    // SAFETY: the lane is one of the family's.
    let cell = unsafe { first.add((usize::from(set.cpus()) + own) * LANE_WORDS).as_ref() };
    (cell, may_earn)
}
