//! File locks that a memory mapping holds instead of a descriptor.
//!
//! A lock of an open file description (`F_OFD_SETLK` in `fcntl_locking(2)`) ends with the last
//! reference to the description, and a mapping is such a reference, like a descriptor. We can
//! therefore map a page, never touch it, and close the descriptor at once: the mapping holds the
//! lock. A program that closes all of its descriptors, or reuses their numbers for other files,
//! does not release the lock. A child of a fork need not close a descriptor by its number either,
//! because the kernel does not copy a page marked `MADV_DONTFORK` to the child.
//!
//! On overlayfs, a mapping refers to the underlying file and not to the description, so the lock
//! would end at once. There, a descriptor holds the lock, and [`fork::close_in_children`] closes
//! this descriptor in children.

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::UNIX_EPOCH;

use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::fork;
use crate::presence::{identity, is_locked, lock_byte};

/// Holds the locks of an open file description until it is dropped.
#[derive(Debug)]
pub(crate) struct Hold {
    by: HeldBy,
    /// The generation and the ID of the process that this hold belongs to; `None` if children of a
    /// fork share the hold.
    owner: Option<(u32, u32)>,
}

#[derive(Debug)]
enum HeldBy {
    /// A mapped page, which is never accessed.
    Page(NonNull<c_void>),
    /// A descriptor, valid as long as it refers to that file, and the result of
    /// [`fork::close_in_children`].
    Descriptor(ManuallyDrop<File>, (u64, u64), Option<fork::ClosedInChildren>),
}

impl Hold {
    /// Returns whether a mapping can hold locks on the file system of `file`, by trying it with
    /// another description of the same file, which `reopen` opens.
    pub(crate) fn is_by_mapping(
        file: &File,
        reopen: impl Fn() -> Option<(File, libc::c_int)>,
    ) -> bool {
        let Some((other, kind)) = reopen() else { return true };
        let now = std::time::SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // The byte depends on the time and the process, so that processes that probe at the same
        // time lock different bytes.
        let byte = MIN_PROBED + u64::from(now.subsec_nanos() ^ std::process::id());
        let locked = lock_byte(&other, byte, libc::F_OFD_SETLK, kind).unwrap_or(false);
        let page = Self::page(&other);
        drop(other);
        // If the probe fails, a descriptor is the safe choice.
        locked && page.is_ok() && is_locked(file, byte).unwrap_or(false)
    }

    /// Holds the locks of `file` in this process, and in the children that it forks.
    pub(crate) fn with_children(file: File, by_mapping: bool) -> io::Result<Self> {
        if by_mapping {
            return Self::page(&file);
        }
        let identity = identity(&file)?;
        let by = HeldBy::Descriptor(ManuallyDrop::new(file), identity, None);
        Ok(Self { by, owner: None })
    }

    /// Holds the locks of `file` in this process only.
    pub(crate) fn without_children(file: File, by_mapping: bool) -> io::Result<Self> {
        if !by_mapping {
            let identity = identity(&file)?;
            let kept = fork::close_in_children(file.as_raw_fd(), identity)?;
            let by = HeldBy::Descriptor(ManuallyDrop::new(file), identity, Some(kept));
            return Ok(Self { by, owner: Some(process()) });
        }
        let mut hold = Self::page(&file)?;
        if let HeldBy::Page(address) = hold.by {
            let (address, length) = (address.as_ptr(), rustix::param::page_size());
            // SAFETY: the page belongs to this value, and no code reads or writes it.
            unsafe { rustix::mm::madvise(address, length, Advice::LinuxDontFork)? };
        }
        hold.owner = Some(process());
        Ok(hold)
    }

    fn page(file: &File) -> io::Result<Self> {
        // SAFETY: a new mapping at an address that the kernel chooses touches no memory of ours.
        let address = unsafe {
            let (length, flags) = (rustix::param::page_size(), MapFlags::SHARED);
            rustix::mm::mmap(ptr::null_mut(), length, ProtFlags::empty(), flags, file, 0)?
        };
        let address = NonNull::new(address).expect("mmap returns an address or an error");
        Ok(Self { by: HeldBy::Page(address), owner: None })
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        // A child of a fork has neither the page nor the descriptor. Something else may use the
        // address or the number there.
        if self.owner.is_some_and(|owner| owner != process()) {
            return;
        }
        match &mut self.by {
            HeldBy::Page(address) => {
                let (address, length) = (address.as_ptr(), rustix::param::page_size());
                // SAFETY: the page belongs to this value, and there are no other references.
                let _ = unsafe { rustix::mm::munmap(address, length) };
            }
            HeldBy::Descriptor(file, of, kept) => {
                drop(kept.take());
                // The program may have closed the descriptor, and reused its number for another
                // file.
                if identity(file).is_ok_and(|found| found == *of) {
                    // SAFETY: the file is not used after this.
                    unsafe { ManuallyDrop::drop(file) };
                }
            }
        }
    }
}

/// The first of the bytes that we lock to find out whether a mapping can hold locks. They are after
/// the bytes of tokens and of presence.
const MIN_PROBED: u64 = 1 << 41;

/// Identifies this process by its generation and its ID. We compare both, because a fork that
/// bypasses the C library does not change the generation.
fn process() -> (u32, u32) {
    (fork::generation(), std::process::id())
}

/// Stores at most one hold. This is not a mutex, because a child of a fork could wait for a thread
/// that does not exist there.
#[derive(Debug, Default)]
pub(crate) struct Holder(AtomicPtr<Hold>);

impl Holder {
    /// Stores a hold, and drops the previous one.
    pub(crate) fn set(&self, hold: Option<Hold>) {
        let new = hold.map_or(ptr::null_mut(), |hold| Box::into_raw(Box::new(hold)));
        // AcqRel: the thread that drops a hold sees the stores of the thread that set it.
        let old = self.0.swap(new, Ordering::AcqRel);
        if !old.is_null() {
            // SAFETY: the pointer is from `Box::into_raw`, and only this thread got it from the
            // swap.
            drop(unsafe { Box::from_raw(old) });
        }
    }

    /// Returns whether a hold is stored.
    pub(crate) fn is_set(&self) -> bool {
        !self.0.load(Ordering::Relaxed).is_null()
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.set(None);
    }
}
