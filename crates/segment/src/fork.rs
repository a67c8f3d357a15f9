//! What a fork means for this crate: the child has its parent's memory and open files, and is
//! another process.
//!
//! It is told by [`generation`], which costs a load. A file that marks its process as alive by a
//! lock must not live on in a child: [`keep`] takes care of such files.

pub(crate) use self::platform::forks;
pub use self::platform::{generation, watch};
#[cfg(unix)]
pub(crate) use self::platform::{keep, release};

#[cfg(all(target_os = "linux", not(miri)))]
mod platform {
    use std::fs::File;
    use std::io;
    use std::os::fd::IntoRawFd;
    use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

    /// How often this process' ancestors were forked since they watched.
    static GENERATION: AtomicU32 = AtomicU32::new(0);
    static FORKS: AtomicU32 = AtomicU32::new(0);
    /// Files that no child keeps: the generation that opened it, and its descriptor plus one.
    static KEPT: [AtomicU64; 1024] = [const { AtomicU64::new(0) }; 1024];

    /// A number that a child of a fork does not share with its parent, from the first [`watch`] or
    /// segment on. It costs a load.
    #[inline]
    pub fn generation() -> u32 {
        GENERATION.load(Ordering::Relaxed)
    }

    /// How often this process forked since it watches.
    #[inline]
    pub(crate) fn forks() -> u32 {
        FORKS.load(Ordering::Relaxed)
    }

    /// Begins to notice forks, as whoever makes a segment does. They are noticed where the C library
    /// makes them, not where a program calls the kernel by itself.
    pub fn watch() {
        static WATCHED: AtomicBool = AtomicBool::new(false);
        if !WATCHED.load(Ordering::Acquire) {
            // SAFETY: the handler does nothing that is forbidden after a fork: it loads and stores
            // atomics, and closes. Where it cannot be registered, children are not told apart. Two
            // threads may both register it: being called twice does no harm, and a lock could be
            // held by a thread that a child does not have.
            unsafe { libc::pthread_atfork(Some(before), None, Some(in_child)) };
            WATCHED.store(true, Ordering::Release);
        }
    }

    /// Keeps a file open until it is released by the number that this answers, or until a fork, in
    /// the child.
    pub(crate) fn keep(file: File) -> io::Result<u64> {
        watch();
        let descriptor = file.into_raw_fd();
        // Descriptors are not negative.
        let kept = u64::from(generation()) << 32 | (descriptor as u64 + 1);
        for place in &KEPT {
            if place.compare_exchange(0, kept, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                return Ok(kept);
            }
        }
        close(kept);
        Err(io::Error::other("too many segment files are open in this process"))
    }

    /// Closes what was kept, unless a fork has done so.
    pub(crate) fn release(kept: u64) {
        let taken = |place: &AtomicU64| {
            place.compare_exchange(kept, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        };
        if KEPT.iter().any(taken) {
            close(kept);
        }
    }

    extern "C" fn before() {
        FORKS.fetch_add(1, Ordering::Relaxed);
    }

    extern "C" fn in_child() {
        GENERATION.fetch_add(1, Ordering::Relaxed);
        for place in &KEPT {
            let kept = place.swap(0, Ordering::Relaxed);
            if kept != 0 {
                close(kept);
            }
        }
    }

    fn close(kept: u64) {
        let descriptor = (kept as u32).wrapping_sub(1).cast_signed();
        // SAFETY: the descriptor was taken from the one file that owned it, and whoever closes it
        // has taken it out of its place. Nothing can be done about an error.
        unsafe { libc::close(descriptor) };
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
mod platform {
    //! Each process has its number. A child keeps the files of its parent.

    #[cfg(unix)]
    use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};

    /// A number that a child of a fork does not share with its parent.
    pub fn generation() -> u32 {
        std::process::id()
    }

    pub(crate) fn forks() -> u32 {
        0
    }

    /// Nothing: a process' number needs no watching.
    pub fn watch() {}

    #[cfg(unix)]
    #[allow(dead_code, reason = "only some systems have locks of open file descriptions")]
    pub(crate) fn keep(file: std::fs::File) -> std::io::Result<u64> {
        // Descriptors are not negative.
        Ok(file.into_raw_fd() as u64 + 1)
    }

    #[cfg(unix)]
    pub(crate) fn release(kept: u64) {
        if kept != 0 {
            // SAFETY: `keep` took the descriptor from the file that owned it.
            drop(unsafe { OwnedFd::from_raw_fd((kept as u32).wrapping_sub(1).cast_signed()) });
        }
    }
}
