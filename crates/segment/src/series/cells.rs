//! Where the cells of one series lie: once, or once for each CPU.
//!
//! A series that many threads update at once has its cells in *lanes*: one for each CPU, to which
//! threads add by restartable sequences, and after those shared ones for all other threads. A
//! series in a record of its own has one lane, to which all threads add atomically. A reader adds
//! up the lanes: the sum is at least what was added before the read began, and at most what was
//! added before it ended.

use std::marker::PhantomData;
use std::num::NonZeroU32;
use std::ptr::NonNull;

use crate::rseq::Sequence;
use crate::stripes::thread_number;
use crate::sync::{AtomicU64, Ordering};

/// The words from one lane to the next.
pub(crate) const LANE_WORDS: usize = 512;
const SHIFT: u32 = 12;
const _: () = assert!(LANE_WORDS * 8 == 1 << SHIFT);

/// The lanes of a family: how many there are, and how a thread adds to that of its CPU.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lanes {
    /// Found once, not for each addition.
    sequence: Option<Sequence>,
    /// The bytes of the lanes of CPUs.
    cpu_bytes: u32,
    /// All lanes, of which at least one is shared.
    count: u16,
}

impl Lanes {
    /// The lane of a series in a record of its own.
    pub(crate) const ONE: Self = Self { sequence: None, cpu_bytes: 0, count: 1 };

    /// `None` if no lane is shared.
    pub(crate) fn new(cpus: u16, count: u16) -> Option<Self> {
        let sequence = if cpus > 0 { Sequence::find() } else { None };
        let cpu_bytes = u32::from(cpus) << SHIFT;
        (cpus < count).then_some(Self { sequence, cpu_bytes, count })
    }

    /// Whether `cpus` of `count` lanes belong to CPUs.
    #[inline]
    pub(crate) fn are(self, cpus: u16, count: u16) -> bool {
        (self.cpus(), self.count) == (cpus, count)
    }

    /// The CPUs that have a lane.
    #[inline]
    pub(crate) fn cpus(self) -> u16 {
        // `new` was given them as 16 bits.
        (self.cpu_bytes >> SHIFT) as u16
    }

    /// The number of lanes.
    pub(crate) fn count(self) -> u16 {
        self.count
    }
}

/// The cells of one series.
#[derive(Debug, Clone, Copy)]
pub struct SeriesCells<'a> {
    first: NonNull<AtomicU64>,
    cells: NonZeroU32,
    /// The number of pairs that the cells begin with.
    pairs: u32,
    lanes: Lanes,
    /// What the lanes held when the series was last reset; without it, zeros.
    base: Option<NonNull<AtomicU64>>,
    life: PhantomData<&'a AtomicU64>,
}

// SAFETY: it gives out only shared atomics, which live for 'a.
unsafe impl Send for SeriesCells<'_> {}
// SAFETY: as above.
unsafe impl Sync for SeriesCells<'_> {}

impl<'a> SeriesCells<'a> {
    /// Wraps `cells` cells in each lane.
    ///
    /// # Safety
    /// For 'a, there are `cells` atomics from `first` on in each of the lanes, which are
    /// `LANE_WORDS` apart; and `cells` atomics from `base` on, if it is given.
    pub(crate) unsafe fn new(
        first: NonNull<AtomicU64>,
        cells: NonZeroU32,
        lanes: Lanes,
        base: Option<NonNull<AtomicU64>>,
    ) -> Self {
        Self { first, cells, pairs: 0, lanes, base, life: PhantomData }
    }

    /// The same cells, which begin with `pairs` pairs of a float sum and a count.
    ///
    /// # Safety
    /// There are at least two cells for each pair.
    #[inline]
    pub(crate) unsafe fn with_pairs(self, pairs: u32) -> Self {
        Self { pairs, ..self }
    }

    /// Wraps cells in one lane; `None` if there are none.
    #[inline]
    pub(crate) fn in_one_lane(cells: &'a [AtomicU64]) -> Option<Self> {
        // A series has at most 512.
        let count = NonZeroU32::new(cells.len() as u32)?;
        // SAFETY: the slice has all cells of the lane, for 'a.
        Some(unsafe { Self::new(NonNull::from(cells).cast(), count, Lanes::ONE, None) })
    }

    /// The number of cells of the series.
    #[inline]
    pub fn len(&self) -> usize {
        self.cells.get() as usize
    }

    /// Whether it has no cells.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of cells of the series.
    pub(crate) fn count(&self) -> NonZeroU32 {
        self.cells
    }

    /// The address of its first cell.
    pub(crate) fn address(&self) -> usize {
        self.first.addr().get()
    }

    #[inline]
    pub(crate) fn lanes(&self) -> Lanes {
        self.lanes
    }

    /// Whether each CPU has cells of its own.
    pub fn is_striped(&self) -> bool {
        self.lanes.count > 1
    }

    /// Sets a cell to zero in all lanes. What is added at the same time may be lost, or stay.
    ///
    /// # Panics
    /// If there is no such cell.
    pub fn clear(&self, cell: usize) {
        assert!(cell < self.len());
        for lane in 0..usize::from(self.lanes.count) {
            self.lane(cell, lane).store(0, Ordering::Relaxed);
        }
    }

    /// Adds `n`, modulo 2^64, to a cell.
    ///
    /// # Panics
    /// If there is no such cell.
    #[inline]
    pub fn add(&self, cell: usize, n: u64) {
        assert!(cell < self.len());
        // SAFETY: the cell exists in each of the lanes, as `new` was promised.
        unsafe {
            let first = self.first.add(cell);
            match self.lanes.sequence {
                Some(sequence) => {
                    let bytes = self.lanes.cpu_bytes as usize;
                    if !sequence.add_at::<SHIFT>(first.as_ptr(), bytes, n) {
                        add_shared(first, self.lanes.cpus(), self.lanes.count, n);
                    }
                }
                // Release: as in `add_shared`.
                None if self.lanes.count == 1 => _ = first.as_ref().fetch_add(n, Ordering::Release),
                None => add_shared(first, self.lanes.cpus(), self.lanes.count, n),
            }
        }
    }

    /// Adds `n` to a cell that holds the bits of a float.
    ///
    /// # Panics
    /// If there is no such cell.
    #[inline]
    pub fn add_float(&self, cell: usize, n: f64) {
        assert!(cell < self.len());
        // SAFETY: as in `add`.
        unsafe {
            let first = self.first.add(cell);
            if let Some(sequence) = self.lanes.sequence
                && sequence.add_float_at::<SHIFT>(first.as_ptr(), self.lanes.cpu_bytes as usize, n)
            {
                return;
            }
            add_float_shared(first, self.lanes.cpus(), self.lanes.count, n);
        }
    }

    /// The index of the last pair of a float sum and a count: `None` if the cells are not
    /// [pairs](super::Schema::pairs).
    #[inline]
    pub fn last_pair(&self) -> Option<usize> {
        Some(self.pairs.checked_sub(1)? as usize)
    }

    /// Adds `value` to the sum of a pair, and `n`, modulo 2^64, to its count. If there is no such
    /// pair, it adds to the last one.
    ///
    /// A CPU's lane gets both at once, at about the cost of one addition. A shared lane gets two
    /// atomic additions, the count first, so a reader can find the count without the value.
    ///
    /// # Panics
    /// If there are no pairs.
    #[inline]
    pub fn add_pair(&self, pair: usize, n: u64, value: f64) {
        let last = self.last_pair().expect("the caller checked that there are pairs");
        // SAFETY: both cells of the pair exist in each of the lanes, as `new` and `with_pairs` were
        // promised.
        unsafe {
            let first = self.first.add(2 * pair.min(last));
            if let Some(sequence) = self.lanes.sequence
                && sequence.add_pair_at::<SHIFT>(
                    first.as_ptr(),
                    self.lanes.cpu_bytes as usize,
                    n,
                    value,
                )
            {
                return;
            }
            add_pair_shared(first, self.lanes.cpus(), self.lanes.count, n, value);
        }
    }

    /// The sum of a cell over all lanes, modulo 2^64.
    ///
    /// # Panics
    /// If there is no such cell.
    #[inline]
    pub fn sum(&self, cell: usize) -> u64 {
        let base = self.base(cell).map_or(0, |base| base.load(Ordering::Acquire));
        self.raw_sum(cell).wrapping_sub(base)
    }

    /// The sum of a cell of floats over all lanes.
    ///
    /// # Panics
    /// If there is no such cell.
    #[inline]
    pub fn sum_float(&self, cell: usize) -> f64 {
        let base = self.base(cell).map_or(0.0, |base| f64::from_bits(base.load(Ordering::Acquire)));
        // A base that was never set must not change the sum, not even the sign of a zero.
        if base == 0.0 { self.raw_sum_float(cell) } else { self.raw_sum_float(cell) - base }
    }

    /// The sum of the sums of all pairs, over all lanes.
    pub fn sum_of_pairs(&self) -> f64 {
        let sums = (0..self.pairs as usize).map(|pair| self.sum_float(2 * pair));
        sums.reduce(|sum, value| sum + value).unwrap_or(0.0)
    }

    /// The one cell that stands for all lanes: for values that are set, not added up.
    ///
    /// # Panics
    /// If there is no such cell.
    #[inline]
    pub fn plain(&self, cell: usize) -> &'a AtomicU64 {
        assert!(cell < self.len());
        self.lane(cell, usize::from(self.lanes.cpus()))
    }

    /// The cells that [`SeriesCells::plain`] returns, one after the other.
    #[inline]
    pub fn shared(&self) -> &'a [AtomicU64] {
        let first = NonNull::from(self.plain(0));
        // SAFETY: the lane has that many cells, as `new` was promised, for 'a.
        unsafe { std::slice::from_raw_parts(first.as_ptr(), self.len()) }
    }

    /// Resets all sums to zero, except in the cells for which `is_kept` returns true.
    /// `floats` has the bit of each cell that holds floats. Without a base, no other thread may use
    /// the cells.
    pub(crate) fn reset(&self, floats: u64, is_kept: impl Fn(usize) -> bool) {
        for cell in (0..self.len()).filter(|cell| !is_kept(*cell)) {
            let is_float = cell < 64 && floats >> cell & 1 == 1;
            match self.base(cell) {
                Some(base) if is_float => {
                    let mut sum = self.raw_sum_float(cell);
                    if !sum.is_finite() {
                        // No base can subtract that: what is added at this moment may be lost too.
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

    /// Whether all sums are zero.
    pub(crate) fn is_zero(&self, floats: u64) -> bool {
        (0..self.len()).all(|cell| {
            let is_float = cell < 64 && floats >> cell & 1 == 1;
            if is_float { self.sum_float(cell) == 0.0 } else { self.sum(cell) == 0 }
        })
    }

    #[inline]
    fn raw_sum(&self, cell: usize) -> u64 {
        assert!(cell < self.len());
        // Acquire: a reader that sees an addition sees what its thread saw before it; and no load
        // that follows in program order comes before these.
        if self.lanes.count == 1 {
            return self.lane(cell, 0).load(Ordering::Acquire);
        }
        (0..usize::from(self.lanes.count)).fold(0, |sum: u64, lane| {
            sum.wrapping_add(self.lane(cell, lane).load(Ordering::Acquire))
        })
    }

    fn raw_sum_float(&self, cell: usize) -> f64 {
        assert!(cell < self.len());
        let values = (0..usize::from(self.lanes.count))
            .map(|lane| f64::from_bits(self.lane(cell, lane).load(Ordering::Acquire)));
        values.reduce(|sum, value| sum + value).unwrap_or(0.0)
    }

    #[inline]
    fn base(&self, cell: usize) -> Option<&'a AtomicU64> {
        assert!(cell < self.len());
        // SAFETY: the base has that many cells, as `new` was promised.
        self.base.map(|base| unsafe { base.add(cell).as_ref() })
    }

    #[inline]
    fn lane(&self, cell: usize, lane: usize) -> &'a AtomicU64 {
        debug_assert!(cell < self.len() && lane < usize::from(self.lanes.count));
        // SAFETY: the callers checked the cell, and lanes are counted up to their number; `new` was
        // promised that the cell exists, for 'a.
        unsafe { self.first.add(lane * LANE_WORDS + cell).as_ref() }
    }
}

/// Adds to a cell in a shared lane: a separate function, so that an addition to a CPU's lane takes
/// few instructions.
///
/// # Safety
/// The cell exists in each of `count` lanes, the CPUs' lanes among them: in the first one at
/// `first`.
#[cold]
#[inline(never)]
unsafe fn add_shared(first: NonNull<AtomicU64>, cpus: u16, count: u16, n: u64) {
    // SAFETY: as promised by the caller.
    let cell = unsafe { shared(first, cpus, count) };
    // Release: a reader that sees the addition sees what this thread did before.
    cell.fetch_add(n, Ordering::Release);
}

/// As [`add_shared`], for the bits of a float.
///
/// # Safety
/// That of [`add_shared`].
#[inline(never)]
unsafe fn add_float_shared(first: NonNull<AtomicU64>, cpus: u16, count: u16, n: f64) {
    // SAFETY: as promised by the caller.
    let cell = unsafe { shared(first, cpus, count) };
    let mut old = cell.load(Ordering::Relaxed);
    loop {
        let new = (f64::from_bits(old) + n).to_bits();
        // Release: as above.
        match cell.compare_exchange_weak(old, new, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return,
            Err(found) => old = found,
        }
    }
}

/// As [`add_shared`], for a pair of a float sum at `first` and a count after it.
///
/// # Safety
/// That of [`add_shared`], for both cells.
#[cold]
#[inline(never)]
unsafe fn add_pair_shared(first: NonNull<AtomicU64>, cpus: u16, count: u16, n: u64, value: f64) {
    // SAFETY: as promised by the caller.
    unsafe {
        add_shared(first.add(1), cpus, count, n);
        add_float_shared(first, cpus, count, value);
    }
}

/// A cell in the shared lane that this thread uses.
///
/// # Safety
/// For 'a, that of [`add_shared`].
unsafe fn shared<'a>(first: NonNull<AtomicU64>, cpus: u16, count: u16) -> &'a AtomicU64 {
    let shared = usize::from(count - cpus);
    let own = if shared == 1 { 0 } else { thread_number() % shared };
    // SAFETY: the lane is one of the family's.
    unsafe { first.add((usize::from(cpus) + own) * LANE_WORDS).as_ref() }
}
