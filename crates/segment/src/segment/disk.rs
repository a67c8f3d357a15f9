//! Writes a segment to the disk, and closes it.

#![cfg_attr(not(unix), allow(unused_imports, reason = "fewer are used there"))]

use std::ops::Range;

use super::open::DEFAULT_LOCK_TIMEOUT;
use super::{Segment, anchor_cells};
use crate::error::Error;
#[cfg(unix)]
use crate::fork;
use crate::layout::{HEADER_BYTES, at};
#[cfg(unix)]
use crate::presence::LockDeadline;
use crate::readings::Readings;
use crate::sync::{AtomicU64, Ordering};

/// The state of the list of records on the disk.
#[derive(Debug)]
pub(super) struct DiskState {
    /// How many times records were unlinked. It starts at 1, because an earlier process could die
    /// between unlinking a record and the sync.
    unlinkings: AtomicU64,
    /// The unlinkings that a sync has written to the disk.
    on_disk: AtomicU64,
}

impl Default for DiskState {
    fn default() -> Self {
        Self { unlinkings: AtomicU64::new(1), on_disk: AtomicU64::new(0) }
    }
}

/// More unlinkings than there can be, for a disk whose state is unknown.
const UNKNOWN: u64 = 1 << 63;

impl Segment {
    /// Counts an unlinking of records.
    pub(crate) fn note_unlinked(&self) {
        // Release: a later sync by any thread writes the unlinking to the disk.
        self.shared.state.written.unlinkings.fetch_add(1, Ordering::Release);
    }

    /// Syncs, unless all unlinkings are on the disk. Call this before you link an unlinked record
    /// again: after a power loss, its old link could otherwise lead to its new place. Returns false
    /// if an earlier sync failed, because the state of the disk is then unknown.
    ///
    /// # Errors
    /// Returns the errors of the disk.
    pub(crate) fn write_unlinked(&self) -> Result<bool, Error> {
        let DiskState { unlinkings, on_disk } = &self.shared.state.written;
        let is_written = || on_disk.load(Ordering::Acquire) >= unlinkings.load(Ordering::Acquire);
        if !is_written() && unlinkings.load(Ordering::Acquire) < UNKNOWN {
            self.sync()?;
        }
        Ok(is_written())
    }

    /// Returns the last time, on the segment's clock, when the segment was certainly in use. After
    /// a reboot, this is the time of the last sync, because the wall clock may be wrong.
    pub(crate) fn last_seen(&self) -> u64 {
        self.seen
    }

    /// Writes the segment to the disk and waits for it, so that all counts until now survive a
    /// power loss. Threads can count during the sync.
    ///
    /// # Errors
    /// Returns the errors of the disk.
    pub fn sync(&self) -> Result<(), Error> {
        self.sync_at(&Readings::now())
    }

    /// Like [`Segment::sync`], at the time of the given readings.
    ///
    /// # Errors
    /// Returns the errors of the disk.
    #[doc(hidden)]
    pub fn sync_at(&self, readings: &Readings) -> Result<(), Error> {
        let written = &self.shared.state.written;
        // Acquire: the sync below writes all unlinkings up to this count.
        let unlinkings = written.unlinkings.load(Ordering::Acquire);
        anchor_cells(&self.region).see(self.anchor, readings);
        if let Err(error) = self.sync_range(0..self.size()) {
            // Some systems report a failed write only once, and then treat the pages as written.
            written.unlinkings.store(UNKNOWN, Ordering::Release);
            return Err(error);
        }
        #[cfg(unix)]
        if let Some(file) = self.region.file() {
            file.unshare(self.size())?;
        }
        if unlinkings < UNKNOWN {
            written.on_disk.fetch_max(unlinkings, Ordering::Release);
        }
        Ok(())
    }

    /// Writes a range to the disk, and waits until it is there. Then records the file's length as
    /// synced, because syncing any range also writes the length.
    pub(super) fn sync_range(&self, range: Range<u64>) -> Result<(), Error> {
        let size = self.size();
        self.region.sync(range)?;
        let synced = self.region.cell(at::SYNCED);
        if synced.load(Ordering::Relaxed) < size {
            synced.fetch_max(size, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Syncs, and marks the segment as closed in order. If another process is using the file, such
    /// as a child of a fork, the mark is omitted, and the last process to close the file sets it. A
    /// file that is longer than the segment, for example after a kill during growth, stays without
    /// the mark. You can still read cells after this, but a write to a cell would make the mark
    /// untrue.
    ///
    /// # Errors
    /// Returns the errors of the disk.
    pub fn close(&self) -> Result<(), Error> {
        self.sync()?;
        #[cfg(unix)]
        if let Some(file) = self.region.file() {
            let forks = fork::forks();
            let mut marked = Ok(());
            // An interrupted growth, or a program that appends to the file, can leave it longer
            // than its header states. In a file that was closed in order, this would count as
            // damage.
            let is_whole = || file.length().is_ok_and(|length| length == self.size());
            if file.try_exclude_others(self.shared.access) && is_whole() {
                marked = self.mark_clean(1);
                // A child that was forked in the meantime may count.
                if fork::forks() != forks {
                    marked = self.mark_clean(0);
                }
            }
            return marked.and(
                file.readmit_others(self.shared.access, LockDeadline::after(DEFAULT_LOCK_TIMEOUT)),
            );
        }
        self.mark_clean(1)
    }

    /// Marks the file as left in order when this process drops its last handle, if no other process
    /// is using the file then. This does not wait for the disk, so after a power loss, the file
    /// counts as left open. Use this in a program that ends soon, such as a command, and
    /// [`Segment::close`] if you can wait. A process that forked after it opened the file sets no
    /// mark.
    #[doc(hidden)]
    pub fn leave_in_order(&self) {
        #[cfg(unix)]
        if let Some(file) = self.region.file() {
            file.leave_in_order();
        }
    }

    fn mark_clean(&self, mark: u64) -> Result<(), Error> {
        self.region.cell(at::CLEAN).store(mark, Ordering::Release);
        self.sync_range(0..HEADER_BYTES)
    }
}
