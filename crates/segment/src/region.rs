//! A range of addresses that a segment fills: private memory, or a file mapped and shared.
//!
//! The whole limit is reserved when the region is made, so that it grows in place: it never moves
//! and never shrinks, and a cell keeps its address for as long as the region lives. What is
//! reserved and not yet touched costs addresses, not memory.

use std::alloc::Layout;
#[cfg(unix)]
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Mutex;

use crate::error::Error;
#[cfg(unix)]
use crate::file::MappedFile;
use crate::layout::{CELL_BYTES, LINE_BYTES, Words};
use crate::sync::{AtomicU64, Ordering};

/// An address range whose bytes are reached as 64-bit atomic cells.
#[derive(Debug)]
pub(crate) struct Region {
    base: NonNull<AtomicU64>,
    limit: u64,
    backing: Backing,
    making: Mutex<()>,
}

#[derive(Debug)]
enum Backing {
    Heap(NonNull<u8>, Layout),
    #[cfg(unix)]
    File(MappedFile),
}

// SAFETY: the range is reached only as `AtomicU64`s, which are Sync, and it is released once, by
// the last owner.
unsafe impl Send for Region {}
// SAFETY: as above; no method hands out anything but shared atomics.
unsafe impl Sync for Region {}

impl Region {
    /// Reserves `limit` bytes of private, zeroed memory. `None` where the system refuses.
    pub(crate) fn private(limit: u64) -> Option<Self> {
        // An alignment over 16 would make the system allocator write the zeros itself and touch
        // every page: so the line is aligned by hand, inside a range one line longer.
        let bytes = usize::try_from(limit.checked_add(LINE_BYTES)?).ok()?;
        let layout = Layout::from_size_align(bytes, CELL_BYTES as usize).ok()?;
        // SAFETY: the layout's size is at least LINE_BYTES, so it is not zero.
        let start = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) })?;
        let shift = start.as_ptr().align_offset(LINE_BYTES as usize);
        // SAFETY: `shift` is less than LINE_BYTES, by which the allocation is longer than `limit`.
        let base = unsafe { start.add(shift) }.cast();
        let backing = Backing::Heap(start, layout);
        Some(Self { base, limit, backing, making: Mutex::new(()) })
    }

    /// Takes over a file that is mapped up to `limit` bytes.
    #[cfg(unix)]
    pub(crate) fn mapped(file: MappedFile, limit: u64) -> Self {
        let base = file.base().cast();
        Self { base, limit, backing: Backing::File(file), making: Mutex::new(()) }
    }

    /// Held by who makes a record that there may be one of.
    pub(crate) fn making(&self) -> &Mutex<()> {
        &self.making
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    #[cfg(unix)]
    pub(crate) fn path(&self) -> Option<&Path> {
        match &self.backing {
            Backing::Heap(..) => None,
            Backing::File(file) => Some(file.path()),
        }
    }

    #[cfg(not(unix))]
    pub(crate) fn path(&self) -> Option<&std::path::Path> {
        None
    }

    /// The cell at byte `offset`.
    ///
    /// # Panics
    /// If the offset is not that of a whole cell below the limit: a mistake of this crate, since
    /// every offset that comes from a file is checked when the file is opened.
    #[inline]
    pub(crate) fn cell(&self, offset: u64) -> &AtomicU64 {
        assert!(offset.is_multiple_of(CELL_BYTES) && offset <= self.limit - CELL_BYTES);
        // SAFETY: the offset is aligned and the cell lies inside the range. Whether a mapped
        // file has that byte yet is what `Segment` checks before it hands out an offset.
        unsafe { self.base.add((offset / CELL_BYTES) as usize).as_ref() }
    }

    /// The address of `count` cells from byte `offset`.
    ///
    /// # Panics
    /// As [`Region::cell`].
    pub(crate) fn cells(&self, offset: u64, count: usize) -> NonNull<AtomicU64> {
        let end = offset + count as u64 * CELL_BYTES;
        assert!(offset.is_multiple_of(CELL_BYTES) && end <= self.limit);
        // SAFETY: the range of cells lies inside the region.
        unsafe { self.base.add((offset / CELL_BYTES) as usize) }
    }

    /// Makes the first `size` bytes usable. Private memory is usable up to its limit at once.
    pub(crate) fn grow(&self, size: u64) -> Result<(), Error> {
        match &self.backing {
            Backing::Heap(..) => Ok(()),
            #[cfg(unix)]
            Backing::File(file) => file.grow(size),
        }
    }

    /// Writes the bytes of `range` to the disk and waits for it. Nothing to do for private memory.
    pub(crate) fn sync(&self, range: std::ops::Range<u64>) -> Result<(), Error> {
        match &self.backing {
            Backing::Heap(..) => Ok(()),
            #[cfg(unix)]
            Backing::File(file) => file.sync(range),
        }
    }
}

impl Words for Region {
    fn word(&self, offset: u64) -> u64 {
        // Acquire: whoever reads an offset here sees what was written before it was published.
        self.cell(offset).load(Ordering::Acquire)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        match &self.backing {
            // SAFETY: the pointer and the layout are those of the allocation, released once here.
            Backing::Heap(start, layout) => unsafe {
                std::alloc::dealloc(start.as_ptr(), *layout);
            },
            #[cfg(unix)]
            // SAFETY: the mapping is `limit` bytes long; no cell outlives the region, since each
            // `Cells` owns a share of it.
            Backing::File(file) => unsafe { file.unmap(self.limit) },
        }
    }
}
