//! Writing a segment to the disk, and closing it.

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

/// Whether the disk knows which records are on the list.
#[derive(Debug)]
pub(super) struct DiskState {
    /// How often records were taken off the list: once by the processes before this one, which may
    /// have died before the disk knew, and then by this one.
    unlinkings: AtomicU64,
    /// How many of these the disk knows.
    on_disk: AtomicU64,
}

impl Default for DiskState {
    fn default() -> Self {
        Self { unlinkings: AtomicU64::new(1), on_disk: AtomicU64::new(0) }
    }
}

/// More unlinkings than there can be: nothing is known of the disk any more.
const UNKNOWN: u64 = 1 << 63;

impl Segment {
    /// Notes that records were just taken off the list.
    pub(crate) fn note_unlinked(&self) {
        // Release: a thread that syncs after this writes it to the disk.
        self.shared.state.written.unlinkings.fetch_add(1, Ordering::Release);
    }

    /// Syncs, unless the disk knows that records were taken off the list. Before that, none of them
    /// may be on the list again: after a loss of power, its old link could lead to its new one.
    /// Returns false if that is no longer to be known, since an earlier sync failed.
    ///
    /// # Errors
    /// The errors of the disk.
    pub(crate) fn write_unlinked(&self) -> Result<bool, Error> {
        let DiskState { unlinkings, on_disk } = &self.shared.state.written;
        let is_written = || on_disk.load(Ordering::Acquire) >= unlinkings.load(Ordering::Acquire);
        if !is_written() && unlinkings.load(Ordering::Acquire) < UNKNOWN {
            self.sync()?;
        }
        Ok(is_written())
    }

    /// The segment's time up to which it was certainly in use when it was opened: after a reboot,
    /// that of the last sync before, since the wall clock may be wrong.
    pub(crate) fn last_seen(&self) -> u64 {
        self.seen
    }

    /// Writes everything to the disk, and waits for it: what was counted before survives a power
    /// loss. Threads may go on counting meanwhile.
    ///
    /// # Errors
    /// The errors of the disk.
    pub fn sync(&self) -> Result<(), Error> {
        self.sync_at(&Readings::now())
    }

    /// As [`Segment::sync`], at the time of the given readings.
    ///
    /// # Errors
    /// The errors of the disk.
    #[doc(hidden)]
    pub fn sync_at(&self, readings: &Readings) -> Result<(), Error> {
        let written = &self.shared.state.written;
        // Acquire: what was unlinked by then is written below.
        let unlinkings = written.unlinkings.load(Ordering::Acquire);
        anchor_cells(&self.region).see(self.anchor, readings);
        if let Err(error) = self.sync_range(0..self.size()) {
            // A system may report this once, and then take the pages for written.
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

    /// Writes a range to the disk, and waits for it. Records that the file has its current length
    /// on the disk, since syncing any range also writes the length.
    pub(super) fn sync_range(&self, range: Range<u64>) -> Result<(), Error> {
        let size = self.size();
        self.region.sync(range)?;
        let synced = self.region.cell(at::SYNCED);
        if synced.load(Ordering::Relaxed) < size {
            synced.fetch_max(size, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Syncs, and marks the segment as closed in good order, unless another process has it open,
    /// which may be a child of a fork: the last process that closes it sets the mark. A file that
    /// is longer than the segment, as after a kill in the middle of a growth, stays without the
    /// mark. Cells may still be read; a write to them after this makes the mark untrue.
    ///
    /// # Errors
    /// The errors of the disk.
    pub fn close(&self) -> Result<(), Error> {
        self.sync()?;
        #[cfg(unix)]
        if let Some(file) = self.region.file() {
            let forks = fork::forks();
            let mut marked = Ok(());
            // A growth that was interrupted left a file that is longer than its header states, and
            // so does a program that appends to it. In good order, that would be damage.
            let is_whole = || file.length().is_ok_and(|length| length == self.size());
            if file.try_exclude_others(self.shared.access) && is_whole() {
                marked = self.mark_clean(1);
                // A child that was forked meanwhile may count.
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

    /// Has the file say that it was left in order, if this is the last process that has it open
    /// when it drops its last handle of the segment. This does not wait for the disk, so after a
    /// power loss the file is treated as one that was left open. It is for programs that end soon,
    /// such as commands; [`Segment::close`] is for those that may wait. A process that has forked
    /// since it opened the file leaves no such mark.
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
