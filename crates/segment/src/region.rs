//! The address range of a segment: private memory, or a file mapped and shared.
//!
//! The whole limit is reserved when the region is created, so the region can grow in place. It
//! never moves or shrinks, so you can keep the address of a cell as long as the region lives.
//! Reserved bytes cost addresses, and memory only once they are touched.
//!
//! Other processes write into a shared file, so any word in the file may be nonsense. Because of
//! this, no offset is trusted: each access is compared with the number of bytes that the file is
//! known to contain. This process keeps that number in its own memory. For example, an offset
//! beyond the end of the file reaches a shared dummy cell, where touching the mapped address would
//! raise SIGBUS.

#[cfg(unix)]
use std::path::Path;
use std::ptr::NonNull;

use crate::error::Error;
#[cfg(unix)]
use crate::file::MappedFile;
use crate::fork;
#[cfg(any(not(unix), miri))]
use crate::layout::LINE_BYTES;
use crate::layout::Words;
#[cfg(unix)]
use crate::layout::{at, left_mark};
#[cfg(unix)]
use crate::lock::LAST_TOKEN;
use crate::offset::{self, ByteOffset, CELL_BYTES, WordOffset};
#[cfg(unix)]
use crate::origin::Origin;
#[cfg(unix)]
use crate::presence;
use crate::slots::Slots;
use crate::sync::{AtomicU64, Ordering};

/// Rounds down to whole cells.
fn whole_cells(bytes: u64) -> u64 {
    bytes / CELL_BYTES * CELL_BYTES
}

/// An address range that is accessed as 64-bit atomic cells.
#[derive(Debug)]
pub(crate) struct Region {
    base: NonNull<AtomicU64>,
    /// The bytes from the base that may be touched, because the file is known to contain these
    /// bytes. This is a multiple of a cell's size and only grows.
    known: AtomicU64,
    limit: u64,
    backing: Backing,
    /// The file that private memory is a copy of. Its locks show which processes live.
    #[cfg(unix)]
    origin: Option<Origin>,
    /// A dummy cell for all offsets without a cell.
    dummy_cell: AtomicU64,
    /// This process's claims in the segment.
    pub(crate) slots: Slots,
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

// SAFETY: the range is only accessed as `AtomicU64`s, which are Sync, and the last owner releases
// it once.
unsafe impl Send for Region {}
// SAFETY: as above; every method returns shared atomics only.
unsafe impl Sync for Region {}

impl Region {
    /// Reserves `limit` bytes of private, zeroed memory. Returns `None` if the system refuses.
    #[cfg(all(unix, not(miri)))]
    pub(crate) fn private(limit: u64) -> Option<Self> {
        use rustix::mm::{MapFlags, ProtFlags};

        let length = usize::try_from(limit).ok()?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // Without this flag, Linux can count reserved memory as used.
        #[cfg(target_os = "linux")]
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        #[cfg(not(target_os = "linux"))]
        let flags = MapFlags::PRIVATE;
        // SAFETY: a new mapping at an address that the kernel chooses touches no memory of ours.
        let base =
            unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), length, protection, flags) };
        let base = NonNull::new(base.ok()?.cast())?;
        fork::watch();
        Some(Self::new(base, limit, limit, Backing::Pages))
    }

    /// Reserves `limit` bytes of private, zeroed memory. Returns `None` if the system refuses.
    #[cfg(any(not(unix), miri))]
    pub(crate) fn private(limit: u64) -> Option<Self> {
        // Align the base by hand, in a range one line longer. With an alignment over 16, the system
        // allocator would write the zeros itself, and touch every page.
        let bytes = usize::try_from(limit.checked_add(LINE_BYTES)?).ok()?;
        let layout = std::alloc::Layout::from_size_align(bytes, CELL_BYTES as usize).ok()?;
        // SAFETY: the layout's size is at least LINE_BYTES, so it is not zero.
        let start = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) })?;
        let shift = start.as_ptr().align_offset(LINE_BYTES as usize);
        // SAFETY: the allocation is LINE_BYTES longer than `limit`, and `shift` is less.
        let base = unsafe { start.add(shift) }.cast();
        Some(Self::new(base, limit, limit, Backing::Heap(start, layout)))
    }

    fn new(base: NonNull<AtomicU64>, known: u64, limit: u64, backing: Backing) -> Self {
        let known = AtomicU64::new(whole_cells(known.min(limit)));
        let dummy_cell = AtomicU64::new(0);
        Self {
            base,
            known,
            limit,
            backing,
            #[cfg(unix)]
            origin: None,
            dummy_cell,
            slots: Slots::new(),
        }
    }

    /// Reserves private memory for a copy of a file. The first `moving` bytes may move while they
    /// are read. Returns `None` if the system refuses.
    #[cfg(unix)]
    pub(crate) fn copy_of(origin: std::fs::File, limit: u64, moving: u64) -> Option<Self> {
        let mut region = Self::private(limit)?;
        region.origin = Some(Origin::new(origin, offset::words(moving)));
        Some(region)
    }

    /// Returns the file that private memory is a copy of.
    #[cfg(unix)]
    pub(crate) fn origin(&self) -> Option<&Origin> {
        self.origin.as_ref()
    }

    /// Returns the range of the segment's words that these cells are; an empty range if they are
    /// not in the segment.
    #[cfg(unix)]
    pub(crate) fn words_of(&self, cells: &[AtomicU64]) -> std::ops::Range<u64> {
        let bytes = cells.as_ptr().addr().wrapping_sub(self.base.addr().get()) as u64;
        let first = offset::words(bytes);
        let end = first.saturating_add(cells.len() as u64);
        if bytes < self.limit && offset::bytes(end) <= self.limit { first..end } else { 0..0 }
    }

    /// Returns the pages of a range of zeros to the system if the memory is private; the range
    /// still reads as zeros. A file keeps its blocks, because a write must never meet a full disk.
    pub(crate) fn discard(&self, range: std::ops::Range<u64>) {
        #[cfg(all(any(target_os = "linux", target_os = "android"), not(miri)))]
        if matches!(self.backing, Backing::Pages) && range.end <= self.limit {
            let page = rustix::param::page_size() as u64;
            let start = range.start.next_multiple_of(page);
            let end = range.end / page * page;
            if start < end {
                // SAFETY: the pages lie inside the mapping and contain zeros, before and after. A
                // failure does not change them.
                let _ = unsafe {
                    let address = self.base.as_ptr().cast::<u8>().add(start as usize).cast();
                    let advice = rustix::mm::Advice::LinuxDontNeed;
                    rustix::mm::madvise(address, (end - start) as usize, advice)
                };
            }
        }
        #[cfg(not(all(any(target_os = "linux", target_os = "android"), not(miri))))]
        let _ = range;
    }

    /// Returns the token of this process, which marks its locks. It is not 0.
    pub(crate) fn token(&self) -> Result<u64, Error> {
        #[cfg(unix)]
        if self.origin.is_some() {
            return Ok(LAST_TOKEN);
        }
        match &self.backing {
            #[cfg(unix)]
            Backing::File(file) => file.token(),
            // A forked child gets a copy, where no process holds its parent's locks.
            _ => Ok(u64::from(fork::generation()) + 1),
        }
    }

    /// Returns whether the process with this token may still be alive.
    pub(crate) fn is_alive(&self, token: u64) -> bool {
        #[cfg(unix)]
        if let Some(origin) = &self.origin {
            // If a token cannot be checked, assume that its process lives.
            return match token {
                0 => false,
                1..LAST_TOKEN => presence::is_locked(&origin.file, token).unwrap_or(true),
                token => token == LAST_TOKEN,
            };
        }
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

    /// Returns a region for a file of `size` bytes that is mapped up to `limit`.
    #[cfg(unix)]
    pub(crate) fn mapped(file: MappedFile, size: u64, limit: u64) -> Self {
        Self::new(file.base().cast(), size, limit, Backing::File(file))
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

    /// Returns the cell at byte `offset`. If the cell does not exist, this returns a dummy cell:
    /// any thread can read a value stored there, for any other such offset.
    #[inline]
    pub(crate) fn cell(&self, offset: ByteOffset) -> &AtomicU64 {
        match self.cells(offset, 1) {
            // SAFETY: the cell exists, and atomics can be shared.
            Some(cell) => unsafe { cell.as_ref() },
            None => &self.dummy_cell,
        }
    }

    /// Returns the `count` cells from byte `offset`; empty if one of them does not exist.
    #[inline]
    pub(crate) fn slice(&self, offset: ByteOffset, count: usize) -> &[AtomicU64] {
        match self.cells(offset, count) {
            // SAFETY: the cells exist, and atomics can be shared.
            Some(first) => unsafe { std::slice::from_raw_parts(first.as_ptr(), count) },
            None => &[],
        }
    }

    /// Returns the `count` cells from a word on; empty if this process does not know that they
    /// exist. Use this on hot paths, because it never asks the system.
    #[inline]
    pub(crate) fn known_slice(&self, at: WordOffset, count: usize) -> &[AtomicU64] {
        let end = offset::bytes(u64::from(at.get()).saturating_add(count as u64));
        if end > self.known.load(Ordering::Relaxed) {
            return &[];
        }
        // SAFETY: the cells lie inside the region, and the file contains all of their bytes;
        // atomics can be shared.
        unsafe { std::slice::from_raw_parts(self.base.add(at.get() as usize).as_ptr(), count) }
    }

    /// Like [`Region::known_slice`], in two parts: the first `head` cells, and the next `rest`
    /// cells.
    #[inline]
    pub(crate) fn known_parts(
        &self,
        at: WordOffset,
        head: u32,
        rest: usize,
    ) -> (&[AtomicU64], &[AtomicU64]) {
        let head = head as usize;
        let cells = head.checked_add(rest).map(|count| self.known_slice(at, count));
        match cells {
            // SAFETY: there are `head` cells, and `rest` more.
            Some(cells) if !cells.is_empty() => unsafe { cells.split_at_unchecked(head) },
            _ => (&[], &[]),
        }
    }

    /// Returns the address of `count` cells from byte `offset`, if all of them exist.
    #[inline]
    pub(crate) fn cells(&self, offset: ByteOffset, count: usize) -> Option<NonNull<AtomicU64>> {
        if !offset.is_of_cell() || !self.has(offset, count as u64 * CELL_BYTES) {
            return None;
        }
        // SAFETY: the range lies inside the region, and the file contains all of its bytes.
        Some(unsafe { self.base.add(offset::words(offset.get()) as usize) })
    }

    /// Returns the address of the cell at an offset.
    ///
    /// # Safety
    /// You must have got this address from [`Region::cells`] before. The cell then still exists,
    /// because a region never shrinks.
    #[inline]
    pub(crate) unsafe fn known_cell(&self, offset: ByteOffset) -> NonNull<AtomicU64> {
        // SAFETY: the cell lies inside the region.
        unsafe { self.base.add(offset::words(offset.get()) as usize) }
    }

    /// Returns whether the `length` bytes from `offset` may be touched.
    #[inline]
    pub(crate) fn has(&self, offset: ByteOffset, length: u64) -> bool {
        self.reaches(offset.get().saturating_add(length))
    }

    /// Returns whether the first `end` bytes may be touched.
    #[inline]
    pub(crate) fn reaches(&self, end: u64) -> bool {
        end <= self.known.load(Ordering::Relaxed) || self.learn(end)
    }

    /// Returns the number of bytes that this process knows it may touch.
    pub(crate) fn known(&self) -> u64 {
        self.known.load(Ordering::Relaxed)
    }

    /// Asks the system for the file's length, if the header shows that another process grew it.
    /// Returns whether the file contains `end` bytes.
    #[cold]
    fn learn(&self, end: u64) -> bool {
        #[cfg(unix)]
        if let Backing::File(file) = &self.backing
            && end <= self.limit
        {
            let stated = self.cell(at::SIZE).load(Ordering::Acquire);
            if stated < end {
                return false;
            }
            // Trust the header if there is no descriptor of the file, because it is the best
            // source.
            let length = file.present_length().unwrap_or(stated);
            self.note_length(length);
            return end <= self.known();
        }
        let _ = end;
        false
    }

    fn note_length(&self, length: u64) {
        let length = whole_cells(length.min(self.limit));
        self.known.fetch_max(length, Ordering::Relaxed);
    }

    /// Returns the address of the first cell.
    pub(crate) fn address(&self) -> usize {
        self.base.addr().get()
    }

    /// Makes the bytes of `range` usable. Private memory is usable up to its limit from the start.
    pub(crate) fn grow(&self, range: std::ops::Range<u64>) -> Result<(), Error> {
        match &self.backing {
            #[cfg(unix)]
            Backing::File(file) => {
                let end = range.end;
                file.grow(range)?;
                self.note_length(file.present_length().unwrap_or(end));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Writes the bytes of `range` to the disk, and waits until they are there. Private memory
    /// needs no sync.
    pub(crate) fn sync(&self, range: std::ops::Range<u64>) -> Result<(), Error> {
        match &self.backing {
            #[cfg(unix)]
            Backing::File(file) => {
                let end = if self.reaches(range.end) { range.end } else { self.known() };
                file.sync(range.start.min(end)..end)
            }
            _ => Ok(()),
        }
    }
}

impl Words for Region {
    fn word(&self, offset: ByteOffset) -> u64 {
        // Acquire: a thread that reads an offset here sees the stores from before it was published.
        self.cell(offset).load(Ordering::Acquire)
    }

    fn has(&self, end: u64) -> bool {
        self.reaches(end)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        #[cfg(unix)]
        if self.file().is_some_and(MappedFile::is_left_in_order) {
            let tokens = self.cell(at::TOKENS).load(Ordering::Relaxed);
            self.cell(at::LEFT).store(left_mark(tokens), Ordering::Release);
        }
        match &mut self.backing {
            #[cfg(any(not(unix), miri))]
            // SAFETY: the pointer and the layout are from the allocation, which is released once,
            // here.
            Backing::Heap(start, layout) => unsafe {
                std::alloc::dealloc(start.as_ptr(), *layout);
            },
            #[cfg(all(unix, not(miri)))]
            // SAFETY: the mapping is `limit` bytes long. No cell outlives the region, because each
            // handle owns a share of the region. An error would leave the range mapped, which is
            // harmless.
            Backing::Pages => unsafe {
                let _ = rustix::mm::munmap(self.base.as_ptr().cast(), self.limit as usize);
            },
            #[cfg(unix)]
            // SAFETY: the mapping is `limit` bytes long. No cell outlives the region, because each
            // `Cells` owns a share of the region.
            Backing::File(file) => unsafe { file.unmap(self.limit) },
        }
    }
}
