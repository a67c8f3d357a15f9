//! Shows which processes use a file, by a lock of the whole file and by locks of single bytes
//! beyond the greatest size of a file.
//!
//! The process that opens a file first holds the exclusive lock (`flock`) while it validates and
//! mends the file. Then it marks itself as present, by a lock of the byte [`PRESENCE`], and shares
//! its lock. Because of this order, the presence of any process proves that the whole file was
//! validated: by this process, or by another one that was present before.
//!
//! A waiting process joins once another is present. If none is present, the first opener was killed
//! or refused the file, and the process that gets the exclusive lock starts over as the first.

use std::fs::{self, File, FileType, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::access::Access;
use crate::error::{Error, ErrorKind};
use crate::file::kind_of;

/// A file that this process locked.
#[derive(Debug)]
pub(crate) struct LockedFile {
    pub(crate) file: File,
    /// Whether no other process is using the file. This process must then validate the file before
    /// sharing it. Otherwise the file was validated, and the processes that use it keep it valid.
    pub(crate) is_first: bool,
}

impl LockedFile {
    /// Opens the file at `path` and locks it. Returns `Ok(None)` if the file does not exist.
    pub(crate) fn open(
        path: &Path,
        access: Access,
        deadline: LockDeadline,
    ) -> Result<Option<Self>, Error> {
        let fail = |error: io::Error| Error::new(Some(path), kind_of(error, 0));
        loop {
            // Check the type first: opening a device may have effects, and opening a socket fails
            // without a clear error.
            if let Ok(metadata) = fs::metadata(path) {
                check_type(path, metadata.file_type())?;
            }
            let file = match OpenOptions::new().read(true).write(true).open(path) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(fail(error)),
            };
            check_type(path, file.metadata().map_err(fail)?.file_type())?;
            loop {
                let locked = lock(&file, access).map_err(|error| cannot_lock(path, &error))?;
                // The previous owner of the lock can rename the file and create another.
                if !is_at(&file, path).map_err(fail)? {
                    break;
                }
                if let Some(is_first) = locked {
                    return Ok(Some(Self { file, is_first }));
                }
                #[cfg(all(test, any(target_os = "linux", target_os = "android"), not(miri)))]
                tests::after_a_failed_lock();
                if access == Access::Exclusive && !deadline.may_be_freed(&file) {
                    return Err(Error::new(Some(path), ErrorKind::Locked));
                }
                deadline.wait(path)?;
            }
            deadline.wait(path)?;
        }
    }

    /// Locks a file that other processes share, as their only guest. This waits for no process. A
    /// file that no process uses, or one process exclusively, is not touched.
    pub(crate) fn join(path: &Path, file: File) -> Result<Self, Error> {
        let fail = |error: io::Error| Error::new(Some(path), kind_of(error, 0));
        let locking = |error: io::Error| cannot_lock(path, &error);
        check_type(path, file.metadata().map_err(fail)?.file_type())?;
        // A shared lock while no process is present would lock out the first opener.
        if !is_present(&file).map_err(locking)? {
            return Err(Error::new(Some(path), ErrorKind::NotOpen));
        }
        // Use the same open file description as the mapping.
        if !be_guest(&file).map_err(locking)? {
            return Err(Error::new(Some(path), ErrorKind::Joined));
        }
        match file.try_lock_shared() {
            // From here on, no process can become the first: the file remains validated.
            Ok(()) if is_present(&file).map_err(locking)? => Ok(Self { file, is_first: false }),
            Ok(()) => {
                file.unlock().map_err(locking)?;
                Err(Error::new(Some(path), ErrorKind::NotOpen))
            }
            Err(TryLockError::WouldBlock) => Err(Error::new(Some(path), ErrorKind::Locked)),
            Err(TryLockError::Error(error)) => Err(locking(error)),
        }
    }
}

/// Refuses everything but files and directories. Opening a directory for writing fails later.
fn check_type(path: &Path, file_type: FileType) -> Result<(), Error> {
    let file_kind = match file_type {
        _ if file_type.is_file() || file_type.is_dir() => return Ok(()),
        _ if file_type.is_socket() => "a socket",
        _ if file_type.is_fifo() => "a pipe",
        _ => "a device",
    };
    let reason =
        format!("it is {file_kind}, not a regular file; name a file, or a path without one");
    Err(Error::new(Some(path), ErrorKind::Request(reason)))
}

/// Locks the file if that is possible at once. Returns whether this process is the first.
fn lock(file: &File, access: Access) -> io::Result<Option<bool>> {
    match file.try_lock() {
        Ok(()) if !is_present(file)? => return Ok(Some(true)),
        // Another process is about to share its lock, or to release it.
        Ok(()) | Err(TryLockError::WouldBlock) => {}
        Err(TryLockError::Error(error)) => return Err(error),
    }
    // A shared lock while no process is present would lock out the first opener.
    if access == Access::Exclusive || !was_seen(file)? {
        file.unlock()?;
        return Ok(None);
    }
    match file.try_lock_shared() {
        // From here on, no process can become the first: the file remains validated.
        Ok(()) if was_seen(file)? => Ok(Some(false)),
        Ok(()) => file.unlock().map(|()| None),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Returns whether a process that validated the whole file is using it.
fn was_seen(file: &File) -> io::Result<bool> {
    Ok(!HAS_PRESENCE || is_present(file)?)
}

/// Downgrades the lock of this process to a shared one.
pub(crate) fn share(path: &Path, file: &File, deadline: LockDeadline) -> Result<(), Error> {
    loop {
        // The kernel can release one lock before it takes the other. A process that gets the
        // exclusive lock in between finds this one present, and returns the lock.
        match file.try_lock_shared() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) => deadline.wait(path)?,
            Err(TryLockError::Error(error)) => return Err(cannot_lock(path, &error)),
        }
    }
}

pub(crate) fn cannot_lock(path: &Path, error: &io::Error) -> Error {
    let reason = format!("its file system cannot lock it ({error}); name a file on a local disk");
    Error::new(Some(path), ErrorKind::Request(reason))
}

/// The end of the wait for another process that locked the file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LockDeadline {
    started: Instant,
    timeout: Duration,
}

impl LockDeadline {
    /// Returns the time `timeout` from now.
    pub(crate) fn after(timeout: Duration) -> Self {
        Self { started: Instant::now(), timeout }
    }

    /// Returns whether a file that could not be locked may be free soon. This is true if a guest
    /// holds it, because a guest leaves within a second of the last program, unless it is stopped.
    /// It is also true if no process is present, because the process that holds the lock is then
    /// about to end or to share it, or released it already.
    pub(crate) fn may_be_freed(self, file: &File) -> bool {
        self.started.elapsed() < self.timeout.min(GUEST_STAYS)
            && (has_guest(file).unwrap_or(false) || !was_seen(file).unwrap_or(true))
    }

    /// Sleeps for a moment. Returns an error after the deadline.
    pub(crate) fn wait(self, path: &Path) -> Result<(), Error> {
        if self.started.elapsed() >= self.timeout {
            return Err(Error::new(Some(path), ErrorKind::Busy { waited: self.timeout }));
        }
        std::thread::sleep(NAP);
        Ok(())
    }
}

const NAP: Duration = Duration::from_millis(1);
/// The longest wait of an exclusive opener for a guest, or for a process that is not present.
const GUEST_STAYS: Duration = Duration::from_secs(3);

/// Returns whether the path names this file.
pub(crate) fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    match path.metadata() {
        Ok(named) => Ok((named.dev(), named.ino()) == identity(file)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns the device and the inode number of a file.
pub(crate) fn identity(file: &File) -> io::Result<(u64, u64)> {
    file.metadata().map(|data| (data.dev(), data.ino()))
}

pub(crate) use self::platform::*;

#[cfg(any(target_os = "linux", target_os = "android"))]
mod platform {
    use std::fs::File;
    use std::io;
    use std::os::fd::AsRawFd;

    use crate::layout::MAX_LIMIT;

    /// Whether this system supports locks of open file descriptions.
    pub(crate) const HAS_PRESENCE: bool = true;

    /// The byte that every process locks while it uses the file; it is after the bytes of all
    /// tokens.
    const PRESENCE: u64 = 1 << 40;

    /// The byte that a guest locks. There is at most one guest, because two would each stay for the
    /// sake of the other, and never be the last.
    const GUEST: u64 = PRESENCE + 1;

    /// Marks this process as the guest; returns false if there is one already.
    pub(crate) fn be_guest(file: &File) -> io::Result<bool> {
        lock_byte(file, GUEST, libc::F_OFD_SETLK, libc::F_WRLCK)
    }

    /// Returns whether another open file description marks the file as joined.
    pub(crate) fn has_guest(file: &File) -> io::Result<bool> {
        is_locked(file, GUEST)
    }

    /// Marks the file as open and validated, as long as there are references to this open file
    /// description.
    pub(crate) fn be_present(file: &File) -> io::Result<()> {
        let mut lock = byte_lock(PRESENCE, libc::F_RDLCK as _);
        control(file, libc::F_OFD_SETLK, &mut lock)
    }

    /// Returns whether another open file description marks the file as open.
    pub(crate) fn is_present(file: &File) -> io::Result<bool> {
        is_locked(file, PRESENCE)
    }

    /// Returns whether another open file description locks this byte.
    pub(crate) fn is_locked(file: &File, byte: u64) -> io::Result<bool> {
        let mut lock = byte_lock(byte, libc::F_WRLCK as _);
        control(file, libc::F_OFD_GETLK, &mut lock)?;
        Ok(i32::from(lock.l_type) != libc::F_UNLCK)
    }

    /// Locks the byte of a token; `Ok(false)` if another description locks it.
    pub(crate) fn lock_byte(
        file: &File,
        byte: u64,
        command: libc::c_int,
        kind: libc::c_int,
    ) -> io::Result<bool> {
        match control(file, command, &mut byte_lock(byte, kind as _)) {
            Ok(()) => Ok(true),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    fn control(file: &File, command: libc::c_int, lock: &mut libc::flock) -> io::Result<()> {
        // SAFETY: the descriptor is open, and `lock` is a valid flock for the call.
        match unsafe { libc::fcntl(file.as_raw_fd(), command, std::ptr::from_mut(lock)) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Returns a lock of one byte beyond the greatest size of a segment.
    fn byte_lock(byte: u64, kind: libc::c_short) -> libc::flock {
        libc::flock {
            l_type: kind,
            l_whence: libc::SEEK_SET as _,
            l_start: (MAX_LIMIT + byte) as _,
            l_len: 1,
            l_pid: 0,
        }
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod platform {
    //! This system lacks locks of open file descriptions, so a process that waited for another one
    //! uses the file without further checks.

    use std::fs::File;
    use std::io;

    pub(crate) const HAS_PRESENCE: bool = false;

    pub(crate) fn is_present(_file: &File) -> io::Result<bool> {
        Ok(false)
    }

    pub(crate) fn be_guest(_file: &File) -> io::Result<bool> {
        Ok(false)
    }

    pub(crate) fn has_guest(_file: &File) -> io::Result<bool> {
        Ok(false)
    }

    /// Returns whether the process with this ID lives.
    pub(crate) fn is_locked(_file: &File, process: u64) -> io::Result<bool> {
        use rustix::process::{Pid, test_kill_process};

        let pid = i32::try_from(process).ok().and_then(Pid::from_raw);
        Ok(pid.is_none_or(|pid| test_kill_process(pid) != Err(rustix::io::Errno::SRCH)))
    }
}

#[cfg(all(test, any(target_os = "linux", target_os = "android"), not(miri)))]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::cell::RefCell;

    use super::*;
    use crate::{Options, Segment};

    thread_local! {
        static AFTER_A_FAILED_LOCK: RefCell<Option<Box<dyn FnMut()>>> = RefCell::default();
    }

    pub(super) fn after_a_failed_lock() {
        AFTER_A_FAILED_LOCK.with_borrow_mut(|act| {
            if let Some(act) = act {
                act();
            }
        });
    }

    /// Opens the file exclusively. Each failed lock drops the next of `held`.
    fn open_while<T: 'static>(path: &Path, held: Vec<Option<T>>) -> Result<Segment, Error> {
        let mut held = held.into_iter();
        AFTER_A_FAILED_LOCK.set(Some(Box::new(move || drop(held.next()))));
        let opened = Options::new().open(path);
        AFTER_A_FAILED_LOCK.set(None);
        opened
    }

    #[test]
    fn a_guest_that_leaves_right_after_a_lock_failed_is_no_obstacle() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("a.quipu");
        let host = Options::new().shared().open_or_create(&path).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let guest = Options::new().join(&path, file).unwrap();
        drop(host);
        assert!(!open_while(&path, vec![Some(guest)]).unwrap().is_new());
    }

    #[test]
    fn a_lock_of_a_process_that_is_not_present_is_waited_for() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("a.quipu");
        drop(Options::new().open_or_create(&path).unwrap());
        // The kernel releases the locked bytes of a process before the lock of the file.
        let ending = File::open(&path).unwrap();
        ending.lock().unwrap();
        assert!(!open_while(&path, vec![None, None, Some(ending)]).unwrap().is_new());
    }

    #[test]
    fn a_process_that_has_the_file_is_not_waited_for() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("a.quipu");
        let host = Options::new().open_or_create(&path).unwrap();
        assert!(open_while(&path, vec![None, Some(host)]).unwrap_err().is_locked());
    }
}
