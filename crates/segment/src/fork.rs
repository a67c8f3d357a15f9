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
    use std::os::fd::{IntoRawFd, RawFd};
    use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
    use std::time::Duration;

    /// How often this process' ancestors were forked since they watched.
    static GENERATION: AtomicU32 = AtomicU32::new(0);
    /// How often a fork of this process began or ended, and how many are under way.
    static FORKS: AtomicU32 = AtomicU32::new(0);
    static UNDER_WAY: AtomicU32 = AtomicU32::new(0);
    /// Files that no child keeps: the generation that opened it, and its descriptor plus one.
    static KEPT: [AtomicU64; 1024] = [const { AtomicU64::new(0) }; 1024];

    /// A number that a child of a fork does not share with its parent, from the first [`watch`] or
    /// segment on. It costs a load.
    #[inline]
    pub fn generation() -> u32 {
        GENERATION.load(Ordering::Relaxed)
    }

    /// A number that is another one when this process forks, and again when it has forked: what was
    /// made between two looks that find the same is in no child, unless the fork was under way.
    #[inline]
    pub(crate) fn forks() -> u32 {
        FORKS.load(Ordering::SeqCst)
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
            unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
            WATCHED.store(true, Ordering::Release);
        }
    }

    /// Opens a file, and keeps it open until it is released by the number that this answers, or until
    /// a fork, in the child: in one that is forked meanwhile, too. Answers its descriptor as well.
    pub(crate) fn keep<T>(
        open: impl Fn() -> Option<(File, T)>,
    ) -> io::Result<Option<(u64, RawFd, T)>> {
        watch();
        for attempt in 0_u32.. {
            let before = calm();
            let Some((file, rest)) = open() else { break };
            let descriptor = file.into_raw_fd();
            // Descriptors are not negative.
            let kept = u64::from(generation()) << 32 | (descriptor as u64 + 1);
            let put = |place: &AtomicU64| {
                place.compare_exchange(0, kept, Ordering::SeqCst, Ordering::Relaxed).is_ok()
            };
            if !KEPT.iter().any(put) {
                close(kept);
                return Err(io::Error::other("too many segment files are open in this process"));
            }
            // A child of a fork since may have it open, and not know it.
            if forks() == before || attempt == ATTEMPTS {
                return Ok(Some((kept, descriptor, rest)));
            }
            release(kept);
        }
        Ok(None)
    }

    /// Waits until no fork is under way, but not for long: it may be this thread's own, which asks
    /// in a handler. Answers what [`forks`] is then.
    fn calm() -> u32 {
        let mut rounds = 0;
        loop {
            let begun = forks();
            if UNDER_WAY.load(Ordering::SeqCst) == 0 || rounds == ROUNDS {
                return begun;
            }
            rounds += 1;
            std::thread::sleep(NAP);
        }
    }

    const ATTEMPTS: u32 = 64;
    const ROUNDS: u32 = 1000;
    const NAP: Duration = Duration::from_micros(50);

    /// Unlocks and closes what was kept, unless a fork has closed it.
    pub(crate) fn release(kept: u64) {
        if kept == 0 {
            return;
        }
        let taken = |place: &AtomicU64| {
            place.compare_exchange(kept, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        };
        if KEPT.iter().any(taken) {
            // A child that is forked right now has the file open until it has closed it.
            let all = libc::flock {
                l_type: libc::F_UNLCK as libc::c_short,
                l_whence: libc::SEEK_SET as libc::c_short,
                l_start: 0,
                l_len: 0,
                l_pid: 0,
            };
            // SAFETY: the descriptor is open, and the call reads one `flock`, which outlives it.
            unsafe { libc::fcntl(descriptor_of(kept), libc::F_OFD_SETLK, &raw const all) };
            close(kept);
        }
    }

    extern "C" fn before() {
        UNDER_WAY.fetch_add(1, Ordering::SeqCst);
        FORKS.fetch_add(1, Ordering::SeqCst);
    }

    extern "C" fn in_parent() {
        FORKS.fetch_add(1, Ordering::SeqCst);
        UNDER_WAY.fetch_sub(1, Ordering::SeqCst);
    }

    extern "C" fn in_child() {
        GENERATION.fetch_add(1, Ordering::Relaxed);
        UNDER_WAY.store(0, Ordering::Relaxed);
        for place in &KEPT {
            let kept = place.swap(0, Ordering::Relaxed);
            if kept != 0 {
                close(kept);
            }
        }
    }

    fn descriptor_of(kept: u64) -> RawFd {
        (kept as u32).wrapping_sub(1).cast_signed()
    }

    fn close(kept: u64) {
        // SAFETY: the descriptor was taken from the one file that owned it, and whoever closes it
        // has taken it out of its place. Nothing can be done about an error.
        unsafe { libc::close(descriptor_of(kept)) };
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
mod platform {
    //! Each process has its number. A child keeps the files of its parent.

    #[cfg(unix)]
    use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd, RawFd};

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
    pub(crate) fn keep<T>(
        open: impl Fn() -> Option<(std::fs::File, T)>,
    ) -> std::io::Result<Option<(u64, RawFd, T)>> {
        Ok(open().map(|(file, rest)| {
            let descriptor = file.into_raw_fd();
            // Descriptors are not negative.
            (descriptor as u64 + 1, descriptor, rest)
        }))
    }

    #[cfg(unix)]
    pub(crate) fn release(kept: u64) {
        if kept != 0 {
            // SAFETY: `keep` took the descriptor from the file that owned it.
            drop(unsafe { OwnedFd::from_raw_fd((kept as u32).wrapping_sub(1).cast_signed()) });
        }
    }
}
