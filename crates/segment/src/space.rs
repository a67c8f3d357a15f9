//! Allocates disk space before it is needed, so that no store into a mapping finds the disk full,
//! and never by a call that could end the process.
//!
//! A write past the file size limit (`RLIMIT_FSIZE`, `ulimit -f`) raises SIGXFSZ in the writing
//! thread, which ends a process that does not expect it. Every call here checks the limit first,
//! and blocks the signal in case the limit is lowered meanwhile.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use rustix::process::{Resource, getrlimit};

/// Reserves a disk block for every byte of `range`, if the system can promise that, and extends the
/// file to the end of the range. Existing bytes keep their values.
pub(crate) fn allocate(file: &File, range: Range<u64>) -> io::Result<()> {
    if range.is_empty() {
        return Ok(());
    }
    let present = file.metadata()?.len();
    if range.end > present && size_limit().is_some_and(|limit| range.end > limit) {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    // Some file systems hand out all the space they have before they report that it is not enough:
    // meanwhile no other program could write. An existing file may have some of the blocks already.
    #[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
    if present == 0
        && let Ok(system) = rustix::fs::fstatvfs(file)
        && system.f_blocks > 0
        && range.end > system.f_bavail.saturating_mul(system.f_frsize)
    {
        return Err(rustix::io::Errno::NOSPC.into());
    }
    without_size_signal(|| take(file, range, present))
}

fn take(file: &File, range: Range<u64>, present: u64) -> io::Result<()> {
    #[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
    {
        use rustix::io::Errno;

        match fallocate(file, range.clone()) {
            Ok(()) => return Ok(()),
            // The file system has no such call: writing zeros reserves the blocks as well.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
            Err(error) => return Err(error.into()),
        }
    }
    for hole in holes(file, range.start..range.end.min(present)) {
        write_zeros(file, hole?)?;
    }
    write_zeros(file, present.max(range.start)..range.end)
}

/// Some file systems give back everything they have allocated when a signal arrives, and fail with
/// EINTR: a profiler sends signals often enough that no large range gets through. So it continues
/// in pieces.
#[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
fn fallocate(file: &File, range: Range<u64>) -> rustix::io::Result<()> {
    use rustix::fs::{FallocateFlags, fallocate};
    use rustix::io::Errno;

    const PIECE: u64 = 256 << 10;
    const ATTEMPTS: u32 = 64;
    let flags = FallocateFlags::empty();
    match fallocate(file, flags, range.start, range.end - range.start) {
        Err(Errno::INTR) => {}
        result => return result,
    }
    for start in range.clone().step_by(PIECE as usize) {
        let length = PIECE.min(range.end - start);
        let mut attempts = (0..ATTEMPTS).map(|_| fallocate(file, flags, start, length));
        attempts.find(|result| *result != Err(Errno::INTR)).unwrap_or(Err(Errno::INTR))?;
    }
    Ok(())
}

fn write_zeros(file: &File, range: Range<u64>) -> io::Result<()> {
    static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
    let mut at = range.start;
    while at < range.end {
        let count = ZEROS.len().min((range.end - at) as usize);
        file.write_all_at(&ZEROS[..count], at)?;
        at += count as u64;
    }
    Ok(())
}

/// The ranges of a file that have no blocks, if the file system can tell.
#[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
fn holes(file: &File, range: Range<u64>) -> impl Iterator<Item = io::Result<Range<u64>>> {
    use rustix::fs::{SeekFrom, seek};
    use rustix::io::Errno;

    let mut at = range.start;
    std::iter::from_fn(move || {
        if at >= range.end {
            return None;
        }
        let start = match seek(file, SeekFrom::Hole(at)) {
            Ok(start) if start < range.end => start,
            // A file system without support for holes reports none.
            Ok(_) | Err(Errno::INVAL | Errno::NXIO) => return None,
            Err(error) => return Some(Err(error.into())),
        };
        at = match seek(file, SeekFrom::Data(start)) {
            Ok(end) => end.min(range.end),
            Err(Errno::NXIO) => range.end,
            Err(error) => return Some(Err(error.into())),
        };
        Some(Ok(start..at))
    })
}

#[cfg(not(any(target_os = "linux", target_os = "android", target_os = "freebsd")))]
fn holes(_: &File, _: Range<u64>) -> impl Iterator<Item = io::Result<Range<u64>>> {
    std::iter::empty()
}

/// Copies the blocks of the first `size` bytes that the file shares with copies of it, such as
/// those that `cp` makes on some file systems. After that, a write needs no new blocks. Does
/// nothing if the file system does not share blocks, or cannot tell.
pub(crate) fn unshare(file: &File, size: u64) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{FallocateFlags, fallocate};
        use rustix::io::Errno;

        let unshare = || fallocate(file, FallocateFlags::UNSHARE_RANGE, 0, size);
        // Any other error means that the file system has no such call.
        if let Err(error @ (Errno::NOSPC | Errno::DQUOT | Errno::IO)) = without_size_signal(unshare)
        {
            return Err(error.into());
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (file, size);
    Ok(())
}

/// Has an empty file written in place on a file system that otherwise takes new blocks for every
/// write (btrfs), which fails on a full disk. No other file system knows the flag.
pub(crate) fn write_in_place(file: &File) {
    #[cfg(target_os = "linux")]
    if let Ok(flags) = rustix::fs::ioctl_getflags(file) {
        let _ = rustix::fs::ioctl_setflags(file, flags | rustix::fs::IFlags::NOCOW);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = file;
}

/// The greatest size that this process may give a file; `None` if there is no limit.
pub(crate) fn size_limit() -> Option<u64> {
    getrlimit(Resource::Fsize).current
}

/// Runs `work`, which may write past the file size limit. That is then an error (EFBIG); the signal
/// that comes with it (SIGXFSZ) does not reach the application. Every call that extends a file or
/// writes to one must be made inside. It costs three system calls.
#[doc(hidden)]
pub fn without_size_signal<T>(work: impl FnOnce() -> T) -> T {
    #[cfg(all(any(target_os = "linux", target_os = "android"), not(miri)))]
    let _held = signal::HeldSignal::new();
    work()
}

#[cfg(all(any(target_os = "linux", target_os = "android"), not(miri)))]
mod signal {
    use std::mem::MaybeUninit;
    use std::ptr;

    /// Blocks the signal in this thread while this lives. The kernel sends it to the thread that
    /// writes, and to no other.
    pub(super) struct HeldSignal {
        before: libc::sigset_t,
        /// Whether one was pending before, which then remains pending.
        was_pending: bool,
    }

    impl HeldSignal {
        pub(super) fn new() -> Self {
            let (mut before, only) = (MaybeUninit::<libc::sigset_t>::uninit(), only());
            // SAFETY: both sets are valid for the call, which writes the second.
            let before = unsafe {
                libc::pthread_sigmask(libc::SIG_BLOCK, &raw const only, before.as_mut_ptr());
                before.assume_init()
            };
            // A signal that was not blocked has been delivered, and is not pending.
            // SAFETY: the sets are valid for the calls, the second of which writes the set.
            let was_pending = unsafe {
                let mut pending = MaybeUninit::<libc::sigset_t>::uninit();
                libc::sigismember(&raw const before, libc::SIGXFSZ) == 1
                    && libc::sigpending(pending.as_mut_ptr()) == 0
                    && libc::sigismember(pending.as_ptr(), libc::SIGXFSZ) == 1
            };
            Self { before, was_pending }
        }
    }

    impl Drop for HeldSignal {
        fn drop(&mut self) {
            let (at_once, only) = (libc::timespec { tv_sec: 0, tv_nsec: 0 }, only());
            // SAFETY: all pointers are valid for the calls. Taking the signal fails if there is
            // none, which is the usual case; restoring the mask that was read before does not fail.
            unsafe {
                if !self.was_pending {
                    libc::sigtimedwait(&raw const only, ptr::null_mut(), &raw const at_once);
                }
                libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, ptr::null_mut());
            }
        }
    }

    /// The set of only that signal.
    fn only() -> libc::sigset_t {
        let mut set = MaybeUninit::uninit();
        // SAFETY: the first call makes the set, the second changes it; both get a valid one.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            libc::sigaddset(set.as_mut_ptr(), libc::SIGXFSZ);
            set.assume_init()
        }
    }
}
