//! A range of addresses that a segment fills: private memory, or a file mapped and shared.
//!
//! The whole limit is reserved when the region is made, so that it grows in place: it never moves
//! and never shrinks, and a cell keeps its address for as long as the region lives. What is
//! reserved and not yet touched costs addresses, not memory.

#[cfg(unix)]
use std::path::Path;
use std::ptr::NonNull;

use crate::error::Error;
#[cfg(unix)]
use crate::file::MappedFile;
use crate::fork;
#[cfg(any(not(unix), miri))]
use crate::layout::LINE_BYTES;
use crate::layout::{CELL_BYTES, Words};
use crate::sync::{AtomicU64, Ordering};

/// An address range whose bytes are reached as 64-bit atomic cells.
#[derive(Debug)]
pub(crate) struct Region {
    base: NonNull<AtomicU64>,
    limit: u64,
    backing: Backing,
}

#[derive(Debug)]
enum Backing {
    #[cfg(any(not(unix), miri))]
    Heap(NonNull<u8>, std::alloc::Layout),
    #[cfg(all(unix, not(miri)))]
    Pages,
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
    #[cfg(all(unix, not(miri)))]
    pub(crate) fn private(limit: u64) -> Option<Self> {
        use rustix::mm::{MapFlags, ProtFlags};

        let length = usize::try_from(limit).ok()?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // No claim on memory for what is only reserved, where the system tells one from the other.
        #[cfg(target_os = "linux")]
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        #[cfg(not(target_os = "linux"))]
        let flags = MapFlags::PRIVATE;
        // SAFETY: a fresh mapping at an address that the kernel chooses touches nothing of ours.
        let base =
            unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), length, protection, flags) };
        let base = NonNull::new(base.ok()?.cast())?;
        fork::watch();
        Some(Self { base, limit, backing: Backing::Pages })
    }

    /// Reserves `limit` bytes of private, zeroed memory. `None` where the system refuses.
    #[cfg(any(not(unix), miri))]
    pub(crate) fn private(limit: u64) -> Option<Self> {
        // An alignment over 16 would make the system allocator write the zeros itself and touch
        // every page: so the line is aligned by hand, inside a range one line longer.
        let bytes = usize::try_from(limit.checked_add(LINE_BYTES)?).ok()?;
        let layout = std::alloc::Layout::from_size_align(bytes, CELL_BYTES as usize).ok()?;
        // SAFETY: the layout's size is at least LINE_BYTES, so it is not zero.
        let start = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) })?;
        let shift = start.as_ptr().align_offset(LINE_BYTES as usize);
        // SAFETY: `shift` is less than LINE_BYTES, by which the allocation is longer than `limit`.
        let base = unsafe { start.add(shift) }.cast();
        let backing = Backing::Heap(start, layout);
        Some(Self { base, limit, backing })
    }

    /// Gives the memory behind a range of zeros back to the system, where it is private: the range
    /// stays zeros. A file keeps its blocks, so that a write never meets a full disk.
    pub(crate) fn discard(&self, range: std::ops::Range<u64>) {
        #[cfg(all(unix, not(miri)))]
        if matches!(self.backing, Backing::Pages) && range.end <= self.limit {
            let page = rustix::param::page_size() as u64;
            let start = range.start.next_multiple_of(page);
            let end = range.end / page * page;
            if start < end {
                // SAFETY: the pages lie inside the mapping and hold zeros, which is what they hold
                // afterwards; a failure leaves them as they are.
                let _ = unsafe {
                    let address = self.base.as_ptr().cast::<u8>().add(start as usize).cast();
                    let advice = rustix::mm::Advice::LinuxDontNeed;
                    rustix::mm::madvise(address, (end - start) as usize, advice)
                };
            }
        }
        #[cfg(any(not(unix), miri))]
        let _ = range;
    }

    /// What marks the locks of this process: 0 for none.
    pub(crate) fn token(&self) -> Result<u64, Error> {
        match &self.backing {
            #[cfg(unix)]
            Backing::File(file) => file.token(),
            // A child that is forked has a copy: a lock of its parent is nobody's there.
            _ => Ok(u64::from(fork::generation()) + 1),
        }
    }

    /// Whether the process that a token marks may still be there.
    pub(crate) fn is_alive(&self, token: u64) -> bool {
        match &self.backing {
            #[cfg(unix)]
            Backing::File(file) => file.is_alive(token),
            _ => token == u64::from(fork::generation()) + 1,
        }
    }

    #[cfg(unix)]
    pub(crate) fn file(&self) -> Option<&MappedFile> {
        match &self.backing {
            Backing::File(file) => Some(file),
            _ => None,
        }
    }

    /// Takes over a file that is mapped up to `limit` bytes.
    #[cfg(unix)]
    pub(crate) fn mapped(file: MappedFile, limit: u64) -> Self {
        let base = file.base().cast();
        Self { base, limit, backing: Backing::File(file) }
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    #[cfg(unix)]
    pub(crate) fn path(&self) -> Option<&Path> {
        self.file().and_then(MappedFile::path)
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

    /// The `count` cells from byte `offset`.
    ///
    /// # Panics
    /// As [`Region::cell`].
    #[inline]
    pub(crate) fn slice(&self, offset: u64, count: usize) -> &[AtomicU64] {
        let first = self.cells(offset, count);
        // SAFETY: the cells lie inside the range, as `cells` saw to; atomics may be shared.
        unsafe { std::slice::from_raw_parts(first.as_ptr(), count) }
    }

    /// The address of `count` cells from byte `offset`.
    ///
    /// # Panics
    /// As [`Region::cell`].
    #[inline]
    pub(crate) fn cells(&self, offset: u64, count: usize) -> NonNull<AtomicU64> {
        let end = offset + count as u64 * CELL_BYTES;
        assert!(offset.is_multiple_of(CELL_BYTES) && end <= self.limit);
        // SAFETY: the range of cells lies inside the region.
        unsafe { self.base.add((offset / CELL_BYTES) as usize) }
    }

    /// Where its first cell is.
    pub(crate) fn address(&self) -> usize {
        self.base.addr().get()
    }

    /// Makes the first `size` bytes usable. Private memory is usable up to its limit at once.
    pub(crate) fn grow(&self, size: u64) -> Result<(), Error> {
        match &self.backing {
            #[cfg(unix)]
            Backing::File(file) => file.grow(size),
            _ => Ok(()),
        }
    }

    /// Writes the bytes of `range` to the disk and waits for it. Nothing to do for private memory.
    pub(crate) fn sync(&self, range: std::ops::Range<u64>) -> Result<(), Error> {
        match &self.backing {
            #[cfg(unix)]
            Backing::File(file) => file.sync(range),
            _ => Ok(()),
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
            #[cfg(any(not(unix), miri))]
            // SAFETY: the pointer and the layout are those of the allocation, released once here.
            Backing::Heap(start, layout) => unsafe {
                std::alloc::dealloc(start.as_ptr(), *layout);
            },
            #[cfg(all(unix, not(miri)))]
            // SAFETY: the mapping is `limit` bytes long; no cell outlives the region, since each
            // handle owns a share of it. An error would leave the range mapped, which harms
            // nothing.
            Backing::Pages => unsafe {
                let _ = rustix::mm::munmap(self.base.as_ptr().cast(), self.limit as usize);
            },
            #[cfg(unix)]
            // SAFETY: the mapping is `limit` bytes long; no cell outlives the region, since each
            // `Cells` owns a share of it.
            Backing::File(file) => unsafe { file.unmap(self.limit) },
        }
    }
}
