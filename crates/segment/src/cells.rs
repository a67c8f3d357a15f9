//! Cells: a range of 64-bit atomics that lies in a segment and keeps it alive.
//!
//! [`Line`] and [`Cycle`] have a fixed number of cells, so hot paths can index them without a
//! bounds check.

use std::ops::Deref;

use crate::sync::{Arc, AtomicU64};

/// The cells of a cache line.
const LINE: usize = 8;

/// A range of cells of a segment. A clone is another handle to the same cells.
///
/// You can use it as a slice. Loads and stores go through the atomics, because other threads, and
/// other processes that map the same file, can use the cells at the same time.
#[derive(Clone)]
pub struct Cells {
    #[cfg(not(loom))]
    first: std::ptr::NonNull<AtomicU64>,
    #[cfg(not(loom))]
    count: usize,
    /// Keeps the memory mapped as long as the cells can be reached.
    #[cfg(not(loom))]
    _region: Arc<crate::region::Region>,

    #[cfg(loom)]
    all: Arc<Vec<AtomicU64>>,
    #[cfg(loom)]
    range: std::ops::Range<usize>,
}

#[cfg(not(loom))]
impl Cells {
    /// Returns the `count` cells from byte `offset` of a region, if they all exist.
    pub(crate) fn new(
        region: &Arc<crate::region::Region>,
        offset: crate::offset::ByteOffset,
        count: usize,
    ) -> Option<Self> {
        let first = region.cells(offset, count)?;
        Some(Self { first, count, _region: Arc::clone(region) })
    }

    /// Returns the cells of `range` among these.
    ///
    /// # Panics
    /// If the range does not lie inside.
    pub fn slice(&self, range: std::ops::Range<usize>) -> Self {
        let part = &self[range];
        let first = std::ptr::NonNull::from(part).cast();
        Self { first, count: part.len(), _region: Arc::clone(&self._region) }
    }
}

#[cfg(not(loom))]
impl Deref for Cells {
    type Target = [AtomicU64];

    #[inline]
    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: `new` took the cells from inside the region, which `_region` keeps alive and
        // which never moves; atomics can be shared.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.count) }
    }
}

// SAFETY: a handle only lends shared atomics, and the region it owns is Send and Sync.
#[cfg(not(loom))]
unsafe impl Send for Cells {}
// SAFETY: as above.
#[cfg(not(loom))]
unsafe impl Sync for Cells {}

#[cfg(loom)]
impl Cells {
    /// Returns zeroed cells for a model.
    pub fn private(count: usize) -> Self {
        let all = (0..count).map(|_| AtomicU64::new(0)).collect();
        Self { all: Arc::new(all), range: 0..count }
    }

    /// Returns the cells of `range` among these.
    pub fn slice(&self, range: std::ops::Range<usize>) -> Self {
        let start = self.range.start + range.start;
        Self { all: Arc::clone(&self.all), range: start..self.range.start + range.end }
    }
}

#[cfg(loom)]
impl Deref for Cells {
    type Target = [AtomicU64];

    fn deref(&self) -> &[AtomicU64] {
        &self.all[self.range.clone()]
    }
}

/// The eight cells of a cache line.
#[derive(Clone, Debug)]
pub struct Line(Cells);

impl Line {
    /// Creates a line of eight cells.
    ///
    /// # Panics
    /// If there are not exactly eight.
    pub fn new(cells: Cells) -> Self {
        assert_eq!(cells.len(), LINE);
        Self(cells)
    }
}

impl Deref for Line {
    type Target = [AtomicU64; LINE];

    #[inline]
    fn deref(&self) -> &Self::Target {
        #[cfg(not(loom))]
        // SAFETY: `new` checked the number of cells, and `Cells` keeps them alive.
        return unsafe { self.0.first.cast().as_ref() };
        #[cfg(loom)]
        self.0[..].try_into().expect("`new` checked the number of cells")
    }
}

/// Cells in a ring: the first follows the last.
#[derive(Clone, Debug)]
pub struct Cycle {
    cells: Cells,
    mask: u64,
}

impl Cycle {
    /// Creates a ring of cells.
    ///
    /// # Panics
    /// If their number is not a power of two.
    pub fn new(cells: Cells) -> Self {
        assert!(cells.len().is_power_of_two());
        let mask = cells.len() as u64 - 1;
        Self { cells, mask }
    }

    /// Returns the cell with this number, modulo the number of cells.
    #[inline]
    pub fn at(&self, number: u64) -> &AtomicU64 {
        let index = (number & self.mask) as usize;
        #[cfg(not(loom))]
        // SAFETY: the mask is one less than the number of cells, a power of two that never changes,
        // so the index is less than that number.
        return unsafe { self.cells.first.add(index).as_ref() };
        #[cfg(loom)]
        &self.cells[index]
    }

    /// Returns each cell once.
    pub fn iter(&self) -> impl Iterator<Item = &AtomicU64> {
        self.cells.iter()
    }
}

impl std::fmt::Debug for Cells {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cells").field("count", &self.len()).finish()
    }
}
