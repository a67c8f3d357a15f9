//! Allocates disk space before you need it, so no store into a mapping finds the disk full. No call
//! here can end the process.
//!
//! A write past the file size limit (`RLIMIT_FSIZE`, `ulimit -f`) raises SIGXFSZ in the writing
//! thread, which ends a process that does not expect it. Every call here therefore checks the limit
//! first, and blocks the signal, because the limit can be lowered in the meantime.

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
    // Some file systems allocate all of their space before they report that it is not enough, and
    // no other program can write in the meantime. Check only a new file, because an existing one
    // may have some of the blocks already.
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
            // The file system does not support this call, but writing zeros reserves blocks, too.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
            Err(error) => return Err(error.into()),
        }
    }
    for hole in holes(file, range.start..range.end.min(present)) {
        write_zeros(file, hole?)?;
    }
    write_zeros(file, present.max(range.start)..range.end)
}

/// Continues in pieces, because some file systems release everything when a signal arrives, and
/// fail with EINTR. A profiler, for example, sends signals so often that no large range succeeds.
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

/// Returns the ranges of a file without blocks, if the file system reports them.
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

/// Copies the blocks of the first `size` bytes that the file shares with copies, such as the ones
/// that `cp` makes on some file systems. After that, a write needs no new blocks. This does not
/// change the file if the file system does not share blocks, or cannot report it.
pub(crate) fn unshare(file: &File, size: u64) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{FallocateFlags, fallocate};
        use rustix::io::Errno;

        let unshare = || fallocate(file, FallocateFlags::UNSHARE_RANGE, 0, size);
        // Any other error means that the file system does not support this call.
        if let Err(error @ (Errno::NOSPC | Errno::DQUOT | Errno::IO)) = without_size_signal(unshare)
        {
            return Err(error.into());
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (file, size);
    Ok(())
}

/// Turns off copy-on-write for an empty file (btrfs), where a write could otherwise run out of
/// blocks. No other file system knows the flag.
pub(crate) fn write_in_place(file: &File) {
    #[cfg(target_os = "linux")]
    if let Ok(flags) = rustix::fs::ioctl_getflags(file) {
        let _ = rustix::fs::ioctl_setflags(file, flags | rustix::fs::IFlags::NOCOW);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = file;
}

/// Returns the greatest size that this process may give a file; `None` if there is no limit.
pub(crate) fn size_limit() -> Option<u64> {
    getrlimit(Resource::Fsize).current
}

/// Runs `work`, which may write past the file size limit. This is then an error (EFBIG), and the
/// signal for it (SIGXFSZ) does not reach the application. You must call this around every call
/// that extends a file or writes to one. It costs three system calls.
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

    /// Blocks the signal in this thread as long as this value lives. The kernel sends it only to
    /// the thread that writes.
    pub(super) struct HeldSignal {
        before: libc::sigset_t,
        /// Whether the signal was pending before, and so must remain pending.
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
            // SAFETY: the sets are valid for the calls, and the second call writes the set.
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

    /// Returns the set of only this signal.
    fn only() -> libc::sigset_t {
        let mut set = MaybeUninit::uninit();
        // SAFETY: the first call initializes the set, the second changes it; both get a valid set.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            libc::sigaddset(set.as_mut_ptr(), libc::SIGXFSZ);
            set.assume_init()
        }
    }
}
