//! The file of a segment: created whole or not at all, mapped, grown and synced. A file without a
//! name, in memory, is shared by a process and the children that it forks.
//!
//! A new file gets its name by `linkat`, when its header is complete and on the disk: a process
//! that dies before that leaves no file, and a process that comes second never overwrites the first
//! one's.
//! that dies before leaves no file, and one that comes second never overwrites the first.

use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use rustix::fs::{AtFlags, CWD};
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags};

use crate::error::{Error, ErrorKind};
use crate::fork;
use crate::fork::ForkSafeMutex;
#[cfg(any(target_os = "linux", target_os = "android"))]
use crate::hold::{Hold, Holder};
use crate::layout::{HEADER_BYTES, Header, at, check_header};
use crate::presence::{Locked, Patience, cannot_lock, identity, is_at, is_locked, share};
#[cfg(any(target_os = "linux", target_os = "android"))]
use crate::presence::{be_present, is_present, lock_byte};
use crate::segment::Access;
use crate::space::{self, allocate, without_size_signal};

/// A file that is locked for this process and mapped up to the limit of its segment.
///
/// The mapping is longer than the file. The bytes after the end of the file must not be touched;
/// they become usable at the same address when the file grows.
#[derive(Debug)]
pub(crate) struct MappedFile {
    /// `None` for a file without a name.
    path: Option<PathBuf>,
    /// Closed only while it still refers to this file: a program that closes all descriptors may
    /// have another file under this number by now.
    file: ManuallyDrop<File>,
    /// The device and the inode number of the file.
    identity: (u64, u64),
    /// Whether the program has closed that descriptor. Its number is not used again then.
    is_closed: AtomicBool,
    base: NonNull<u8>,
    /// Whether a sync failed and none has succeeded since.
    failed: AtomicBool,
    /// The token of this process, which marks it in the locks inside the file, and above it the
    /// generation that made it: a child of a fork is another process. 0 for none.
    token: AtomicU64,
    /// Held by the thread that makes the token.
    making: ForkSafeMutex,
    /// Holds the token's lock, in this process alone.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    own: Holder,
    /// Marks the file as open, for this process and the children that it forked since.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    presence: Holder,
    /// Whether a mapping holds locks here; 0 until that is known.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    held_by_mapping: AtomicU32,
    /// The value of [`fork::forks`] when the file was mapped.
    forks: u32,
}

impl MappedFile {
    /// Creates the file at `path`, with `size` bytes that begin with `head`. `Ok(None)` if a file
    /// of that name exists already.
    pub(crate) fn create(
        path: &Path,
        head: &[u8],
        size: u64,
        limit: u64,
        rights: Rights,
    ) -> Result<Option<Self>, Error> {
        let fail = |error: io::Error| Error::new(Some(path), kind_of(error, size));
        if path.is_dir() {
            return Err(Error::new(Some(path), ErrorKind::IsDirectory));
        }
        if path.symlink_metadata().is_ok() {
            return Ok(None);
        }
        let directory = parent(path);
        let draft = Draft::new(directory, path).map_err(fail)?;
        rights.give(&draft.file).map_err(|error| rights.refused(path, &error))?;
        draft.file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => Error::new(Some(path), ErrorKind::Locked),
            TryLockError::Error(error) => cannot_lock(path, &error),
        })?;
        space::write_in_place(&draft.file);
        allocate(&draft.file, 0..size).map_err(fail)?;
        without_size_signal(|| draft.file.write_all_at(head, 0)).map_err(fail)?;
        draft.file.sync_all().map_err(fail)?;
        match draft.name(path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(None),
            Err(error) => return Err(fail(error)),
        }
        drop(draft.temporary);
        // The same open file description: it keeps the lock until the name is removed again.
        let held = draft.file.try_clone();
        // Like the content, the name must outlive a power loss.
        let synced = File::open(directory).and_then(|d| d.sync_all()).map_err(fail);
        let mapped = synced.and_then(|()| Self::map(Some(path), draft.file, limit));
        if let (Err(_), Ok(held)) = (&mapped, held)
            && is_at(&held, path).unwrap_or(false)
        {
            // No process has had it open. The caller may next try a smaller file, and this one
            // would be in the way.
            let _ = std::fs::remove_file(path);
        }
        mapped.map(Some)
    }

    /// Creates a file without a name in memory, with `size` bytes that begin with `head`. It is
    /// shared with the children that this process forks.
    pub(crate) fn anonymous(head: &[u8], size: u64, limit: u64) -> Result<Self, Error> {
        let file = memory_file()?;
        let fail = |error: io::Error| Error::new(None, kind_of(error, size));
        allocate(&file, 0..size).map_err(fail)?;
        without_size_signal(|| file.write_all_at(head, 0)).map_err(fail)?;
        let mapped = Self::map(None, file, limit)?;
        if mapped.reopen().is_none() {
            // Without a lock of its own, no process could tell which of the others live.
            let what = "a segment without a file needs /proc, by which each process opens it \
                        again; mount /proc, or open a segment in a file";
            return Err(Error::new(None, ErrorKind::Request(what.into())));
        }
        Ok(mapped)
    }

    /// Validates the header of a locked file, and maps it.
    pub(crate) fn open(path: &Path, locked: Locked) -> Result<(Self, Header), Error> {
        let fail = |error: io::Error| Error::new(Some(path), kind_of(error, 0));
        let Locked { file, is_first } = locked;
        let mut tries = if is_first { 1 } else { MOST_LOOKS };
        let (header, length) = loop {
            let mut head = [0; HEADER_BYTES as usize];
            let filled = read_up_to(&file, &mut head, 0).map_err(fail)?;
            // The length is read under the lock: a process that held the lock before may have grown
            // the file. And it is read after the header: a process that shares the file may be
            // growing it now.
            let length = file.metadata().map_err(fail)?.len();
            tries -= 1;
            match check_header(&head[..filled], length) {
                Ok(header) => break (header, length),
                // A read is not atomic: others change the header meanwhile.
                Err(_) if tries > 0 => std::thread::sleep(Duration::from_millis(1)),
                Err(kind) => return Err(Error::new(Some(path), kind)),
            }
        };
        // A growth that was interrupted leaves a longer file, and so does one that is under way.
        // The extra bytes do not matter: they are zeroed before they are used.
        if length > header.size && header.clean && is_first {
            let kind = ErrorKind::TooLong { length, expected: header.size };
            return Err(Error::new(Some(path), kind));
        }
        Ok((Self::map(Some(path), file, header.limit)?, header))
    }

    fn map(path: Option<&Path>, file: File, limit: u64) -> Result<Self, Error> {
        let fail = |error: io::Error| Error::new(path, kind_of(error, limit));
        let length = usize::try_from(limit).map_err(|_| {
            Error::new(path, ErrorKind::Request(format!("{limit} bytes cannot be addressed")))
        })?;
        let identity = identity(&file).map_err(fail)?;
        fork::watch();
        let forks = fork::forks();
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses touches nothing of ours.
        let base = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), length, protection, MapFlags::SHARED, &file, 0)
        }
        .map_err(|error| fail(error.into()))?;
        let base = NonNull::new(base.cast()).expect("mmap returns an address or an error");
        Ok(Self {
            path: path.map(Path::to_owned),
            file: ManuallyDrop::new(file),
            identity,
            is_closed: AtomicBool::new(false),
            base,
            failed: AtomicBool::new(false),
            token: AtomicU64::new(0),
            making: ForkSafeMutex::default(),
            #[cfg(any(target_os = "linux", target_os = "android"))]
            own: Holder::default(),
            #[cfg(any(target_os = "linux", target_os = "android"))]
            presence: Holder::default(),
            #[cfg(any(target_os = "linux", target_os = "android"))]
            held_by_mapping: AtomicU32::new(0),
            forks,
        })
    }

    /// Marks the file as open, once all of it was validated. Lets others open it too, if it is to
    /// be shared.
    pub(crate) fn enter(&self, access: Access, patience: Patience) -> Result<(), Error> {
        let Some(path) = &self.path else { return Ok(()) };
        // Before the lock is shared, so that a process that gets the lock then finds this one
        // present.
        #[cfg(any(target_os = "linux", target_os = "android"))]
        self.be_present().map_err(|error| cannot_lock(path, &error))?;
        match access {
            Access::Shared => share(path, &self.file, patience),
            Access::Exclusive => Ok(()),
        }
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn be_present(&self) -> io::Result<()> {
        // By a description that this process can give up while its children keep it. If the file
        // cannot be opened again, this process never learns that it is the last one.
        let Some((file, _)) = self.reopen() else { return be_present(&self.file) };
        be_present(&file)?;
        self.presence.set(Some(Hold::with_children(file, self.is_held_by_mapping())?));
        Ok(())
    }

    /// Whether a mapping holds locks on this file system.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn is_held_by_mapping(&self) -> bool {
        const UNKNOWN: u32 = 0;
        const YES: u32 = 1;
        const NO: u32 = 2;
        if self.held_by_mapping.load(Ordering::Relaxed) == UNKNOWN {
            let reopen = || self.reopen().map(|(file, mode)| (file, mode.lock()));
            let known = if Hold::is_by_mapping(&self.file, reopen) { YES } else { NO };
            self.held_by_mapping.store(known, Ordering::Relaxed);
        }
        self.held_by_mapping.load(Ordering::Relaxed) == YES
    }

    /// The length of the file in bytes.
    pub(crate) fn length(&self) -> Result<u64, Error> {
        let metadata = self.own_file().and_then(|file| file.metadata());
        metadata.map(|metadata| metadata.len()).map_err(|error| self.fail(error, 0))
    }

    /// The length of the file in bytes, by its descriptor or, if the program closed that, by its
    /// name. `None` if neither leads to the file.
    pub(crate) fn present_length(&self) -> Option<u64> {
        let is_it = |data: &std::fs::Metadata| (data.dev(), data.ino()) == self.identity;
        let by_name = || self.path.as_ref()?.metadata().ok();
        let data = self.file.metadata().ok().filter(is_it).or_else(|| by_name().filter(is_it))?;
        Some(data.len())
    }

    /// Whether no other process has the file open, children of forks included, as far as is known.
    /// If so, all others are kept out until this process [leaves](Self::leave).
    pub(crate) fn is_last(&self, access: Access) -> bool {
        if self.path.is_none() {
            return true;
        }
        if access == Access::Exclusive && self.forks == fork::forks() {
            return true;
        }
        // If its descriptor is closed, its lock cannot be taken any more.
        self.has_descriptor() && self.is_alone_present() && self.file.try_lock().is_ok()
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn is_alone_present(&self) -> bool {
        // A lock of the process would be released when a descriptor of the file is closed here.
        if self.own_token().is_some() && !self.own.is_set() {
            return false;
        }
        // The children that were forked share the presence of this process. It takes another one,
        // and gives up the one that they share.
        let Some((file, _)) = self.reopen() else { return false };
        let Ok(same) = file.try_clone() else { return false };
        let by_mapping = self.is_held_by_mapping();
        let hold = be_present(&file).and_then(|()| Hold::with_children(file, by_mapping));
        let Ok(hold) = hold else { return false };
        self.presence.set(Some(hold));
        is_present(&same).is_ok_and(|others| !others)
    }

    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    fn is_alone_present(&self) -> bool {
        true
    }

    /// Lets others open the file again, after [`Self::is_last`].
    pub(crate) fn leave(&self, access: Access, patience: Patience) -> Result<(), Error> {
        match &self.path {
            Some(path) if access == Access::Shared => {
                let file = self.own_file().map_err(|error| self.fail(error, 0))?;
                share(path, &file, patience)
            }
            _ => Ok(()),
        }
    }

    /// A number that is unique among all processes that have, or had, the file open. Its lock is
    /// released when the process ends, however it ends.
    #[inline]
    pub(crate) fn token(&self) -> Result<u64, Error> {
        match self.own_token() {
            Some(token) => Ok(token),
            None => {
                self.make_token().map_err(|error| Error::new(self.path(), ErrorKind::Io(error)))
            }
        }
    }

    #[inline]
    fn own_token(&self) -> Option<u64> {
        let packed = self.token.load(Ordering::Relaxed);
        let token = packed & MOST_TOKENS;
        (token != 0 && packed >> TOKEN_BITS == own_generation()).then_some(token)
    }

    #[cold]
    fn make_token(&self) -> io::Result<u64> {
        let Some(_making) = self.making.lock() else {
            let what = "a signal handler interrupted this thread while it registered its process";
            return Err(io::Error::new(io::ErrorKind::WouldBlock, what));
        };
        if let Some(token) = self.own_token() {
            return Ok(token);
        }
        let token = self.lock_token()?;
        self.token.store(token | own_generation() << TOKEN_BITS, Ordering::Relaxed);
        Ok(token)
    }

    /// Whether the process of that token lives.
    pub(crate) fn is_alive(&self, token: u64) -> bool {
        if token > MOST_TOKENS {
            // No process has it: it comes from a damaged file.
            return false;
        }
        // A process that cannot be checked counts as alive: waiting is better than two owners.
        self.own_token() == Some(token)
            || self.own_file().and_then(|file| is_locked(&file, token)).unwrap_or(true)
    }

    /// A number that is given out once.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn next_token(&self) -> u64 {
        // SAFETY: the header lies inside the file, and its cells are used only as atomics.
        let tokens = unsafe { &*self.base.as_ptr().add(at::TOKENS).cast::<AtomicU64>() };
        tokens.fetch_add(1, Ordering::Relaxed).wrapping_add(1) & MOST_TOKENS
    }

    pub(crate) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Whether the descriptor still refers to this file.
    fn has_descriptor(&self) -> bool {
        let is_own = !self.is_closed.load(Ordering::Relaxed)
            && identity(&self.file).is_ok_and(|identity| identity == self.identity);
        if !is_own {
            // A file that is opened again for a moment may get the number.
            self.is_closed.store(true, Ordering::Relaxed);
        }
        is_own
    }

    /// The file; opened again if its descriptor was closed, whose number another file may have by
    /// now.
    fn own_file(&self) -> io::Result<Own<'_>> {
        if self.has_descriptor() {
            return Ok(Own::ClosedInChildren(&self.file));
        }
        let what = "its descriptor was closed by the program, and it cannot be opened again";
        self.reopen().map(|(file, _)| Own::Again(file)).ok_or_else(|| io::Error::other(what))
    }

    /// Opens the same file again, at least for reading: a worker may have given up the rights of
    /// the process that opened it first.
    fn reopen(&self) -> Option<(File, Mode)> {
        let by_number = PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()));
        let by_number = self.has_descriptor().then_some(&by_number);
        [by_number, self.path.as_ref()].into_iter().flatten().find_map(|path| {
            let open = |mode: Mode| {
                let is_writable = matches!(mode, Mode::ReadWrite);
                let file = OpenOptions::new().read(true).write(is_writable).open(path).ok()?;
                (identity(&file).ok()? == self.identity).then_some((file, mode))
            };
            open(Mode::ReadWrite).or_else(|| open(Mode::Read))
        })
    }

    /// Locks the byte of a new token, by an open file description of this process alone, so that no
    /// child of a fork holds the lock too.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn lock_token(&self) -> io::Result<u64> {
        for attempt in 1_u32.. {
            let forks = fork::calm();
            let Some((file, mode)) = self.reopen() else { break };
            // A write lock needs a file that is open for writing, and excludes all others. A read
            // lock is seen by every process that checks, and belongs to this token as long as no
            // process draws it twice.
            let token = self.draw_token(&file, libc::F_OFD_SETLK, mode.lock())?;
            let hold = Hold::without_children(file, self.is_held_by_mapping())?;
            // A child that was forked since may have the file open, and would go on holding the
            // lock. No process has seen that token yet, so that another one is drawn.
            if fork::forks() == forks || attempt == MOST_DRAWN {
                self.own.set(Some(hold));
                return Ok(token);
            }
        }
        if !self.has_descriptor() {
            return Err(io::Error::other("it cannot be opened again in this process"));
        }
        // A lock of the process instead of the descriptor, which all children share. It too ends
        // with the process, but also as soon as the process closes this file under another
        // descriptor.
        self.own.set(None);
        self.draw_token(&self.file, libc::F_SETLK, libc::F_WRLCK)
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn draw_token(&self, file: &File, command: i32, kind: i32) -> io::Result<u64> {
        for _ in 0..MOST_DRAWN {
            let token = self.next_token();
            if token != 0 && !is_locked(file, token)? && lock_byte(file, token, command, kind)? {
                return Ok(token);
            }
        }
        Err(io::ErrorKind::AddrInUse.into())
    }

    /// The process id: this system has no locks of open file descriptions.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    fn lock_token(&self) -> io::Result<u64> {
        Ok(u64::from(std::process::id()))
    }

    /// Checks that the path still names this file, and that the file still has `size` bytes.
    pub(crate) fn check(&self, size: u64) -> Result<(), Error> {
        let Some(path) = self.path() else { return Ok(()) };
        let named = match path.metadata() {
            Ok(named) => Some(named),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(self.fail(error, 0)),
        };
        let same = named.filter(|named| (named.dev(), named.ino()) == self.identity);
        match same.map(|named| named.len()) {
            None => Err(Error::new(Some(path), ErrorKind::Moved)),
            Some(length) if length < size => {
                Err(Error::new(Some(path), ErrorKind::Cut { length, expected: size }))
            }
            Some(_) => Ok(()),
        }
    }

    fn fail(&self, error: io::Error, size: u64) -> Error {
        Error::new(self.path(), kind_of(error, size))
    }

    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Makes the file whole before its cells are used: afterwards it has the bytes that its header
    /// states, and each of them has a disk block. Returns its length. `is_first` says that no other
    /// process has it open, `torn` that power may have been lost, which may have left it shorter.
    ///
    /// A copy may have holes, or share its blocks with the original: a write into either needs a
    /// new block. On a full disk there is none, and then the system ends the process (SIGBUS).
    pub(crate) fn settle(&self, size: u64, is_first: bool, torn: bool) -> Result<u64, Error> {
        let length = self.length()?;
        if length < size && !(is_first && torn) {
            let kind = ErrorKind::TooShort { length, expected: size };
            return Err(Error::new(self.path(), kind));
        }
        if is_first {
            let length = length.max(size);
            allocate(&self.file, 0..length)
                .and_then(|()| space::unshare(&self.file, length))
                .map_err(|error| self.fail(error, length))?;
        }
        Ok(length.max(size))
    }

    /// Replaces blocks that the file shares with a copy made while it was in use.
    pub(crate) fn unshare(&self, size: u64) -> Result<(), Error> {
        let Ok(file) = self.own_file() else { return Ok(()) };
        space::unshare(&file, size).map_err(|error| self.fail(error, size))
    }

    /// Reserves disk blocks for the bytes of `range`, and extends the file to its end, so that a
    /// write into the mapping never meets a full disk. It does not wait for the disk: opening mends
    /// a file that a loss of power leaves too short. Only one thread of one process may call it at
    /// a time.
    pub(crate) fn grow(&self, range: std::ops::Range<u64>) -> Result<(), Error> {
        let size = range.end;
        self.has(range.start)?;
        self.own_file()
            .and_then(|file| allocate(&file, range))
            .map_err(|error| self.fail(error, size))
    }

    /// Writes the bytes of `range` to the disk, and waits for it.
    pub(crate) fn sync(&self, range: std::ops::Range<u64>) -> Result<(), Error> {
        self.has(range.end)?;
        let page = rustix::param::page_size() as u64;
        let start = range.start / page * page;
        if self.failed.load(Ordering::Relaxed) {
            self.touch(start..range.end, page);
        }
        let length = (range.end - start) as usize;
        // SAFETY: the range lies inside the mapping; msync changes no byte of it.
        let result = unsafe {
            let address = self.base.as_ptr().add(start as usize).cast();
            rustix::mm::msync(address, length, MsyncFlags::SYNC)
        };
        self.failed.store(result.is_err(), Ordering::Relaxed);
        result.map_err(|error| self.fail(error.into(), range.end))
    }

    /// Returns an error if the file has fewer bytes: another process has cut it while it was in
    /// use.
    fn has(&self, size: u64) -> Result<(), Error> {
        // If its descriptor was closed and it cannot be opened again, the mapping still works.
        let Ok(length) = self.length() else { return Ok(()) };
        if length < size {
            return Err(Error::new(self.path(), ErrorKind::Cut { length, expected: size }));
        }
        Ok(())
    }

    /// Makes the pages in use dirty. The system marks a page clean once it has failed to write it
    /// (fsync(2), "ERRORS"), and would never retry by itself.
    fn touch(&self, range: std::ops::Range<u64>, page: u64) {
        for at in range.step_by(page as usize) {
            // SAFETY: the offset lies inside the file, at the start of a page, whose first bytes
            // are a cell like all others.
            let cell = unsafe { &*self.base.as_ptr().add(at as usize).cast::<AtomicU64>() };
            let value = cell.load(Ordering::Relaxed);
            // A swap for the same value is a write. If it fails, another write came first.
            let _ = cell.compare_exchange(value, value, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Removes the mapping.
    ///
    /// # Safety
    /// `limit` is the length that was mapped, and nothing refers to the mapping any more.
    pub(crate) unsafe fn unmap(&self, limit: u64) {
        // SAFETY: the caller's obligation. An error would leave the range mapped, which is
        // harmless.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), limit as usize) };
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        if self.has_descriptor() {
            // SAFETY: nothing uses the file after this.
            unsafe { ManuallyDrop::drop(&mut self.file) };
        }
    }
}

/// The open file of a segment, for a single use.
enum Own<'f> {
    ClosedInChildren(&'f File),
    Again(File),
}

impl Deref for Own<'_> {
    type Target = File;

    fn deref(&self) -> &File {
        match self {
            Self::ClosedInChildren(file) => file,
            Self::Again(file) => file,
        }
    }
}

/// The permissions of a new file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rights {
    /// The permission bits, which no umask changes.
    pub(crate) mode: u32,
    /// The group; `None` for the one that the system assigns.
    pub(crate) group: Option<u32>,
}

impl Rights {
    fn give(self, file: &File) -> io::Result<()> {
        if let Some(group) = self.group {
            std::os::unix::fs::fchown(file, None, Some(group))?;
        }
        file.set_permissions(Permissions::from_mode(self.mode))
    }

    fn refused(self, path: &Path, error: &io::Error) -> Error {
        let group = self.group.map_or_else(String::new, |group| format!(" and the group {group}"));
        let what = format!(
            "it cannot be given the mode {:o}{group} ({error}); ask for another mode or group, or \
             name a file on another file system",
            self.mode
        );
        Error::new(Some(path), ErrorKind::Request(what))
    }
}

/// Renames a file that this process has locked exclusively to the first of these names that is
/// free.
pub(crate) fn set_aside(
    path: &Path,
    file: &File,
    names: impl Iterator<Item = PathBuf>,
) -> Result<PathBuf, Error> {
    let fail = |error: io::Error| Error::new(Some(path), kind_of(error, 0));
    if !is_at(file, path).map_err(fail)? {
        return Err(Error::new(Some(path), ErrorKind::Locked));
    }
    for name in names {
        // A link instead of a rename, so that no file of that name is replaced.
        match std::fs::hard_link(path, &name) {
            Ok(()) => {
                std::fs::remove_file(path).map_err(fail)?;
                return Ok(name);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(fail(error)),
        }
    }
    Err(fail(io::ErrorKind::AlreadyExists.into()))
}

/// A file that has no name yet, or a temporary one.
struct Draft {
    file: File,
    temporary: Option<Temporary>,
}

/// A name that is removed when its owner is dropped.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        // What cannot be removed is a small file with a telling name.
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Draft {
    fn new(directory: &Path, path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).mode(0o600);
        #[cfg(target_os = "linux")]
        if Path::new("/proc/self/fd").is_dir() {
            let flags = rustix::fs::OFlags::TMPFILE.bits().cast_signed();
            match options.clone().custom_flags(flags).open(directory) {
                Ok(file) => {
                    return Ok(Self { file, temporary: None });
                }
                // This file system has no files without names.
                Err(error) if is_unsupported(&error) => {}
                Err(error) => return Err(error),
            }
        }
        let (file, temporary) = named_anew(directory, path, options.create_new(true))?;
        Ok(Self { file, temporary: Some(Temporary(temporary)) })
    }

    /// Gives the file its name; an error if the name is taken.
    fn name(&self, path: &Path) -> io::Result<()> {
        let source = match &self.temporary {
            Some(temporary) => temporary.0.clone(),
            None => PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd())),
        };
        Ok(rustix::fs::linkat(CWD, &source, CWD, path, AtFlags::SYMLINK_FOLLOW)?)
    }
}

/// Creates a file next to `path` under a name that is not taken. A process that was killed may have
/// left one; and this process may have the same id, as in a container that was restarted.
fn named_anew(directory: &Path, path: &Path, options: &OpenOptions) -> io::Result<(File, PathBuf)> {
    let mut number = 0_u32;
    loop {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.{number}.new", std::process::id()));
        let temporary = directory.join(name);
        match options.open(&temporary) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < MOST_LEFT => {
                number += 1;
            }
            result => return Ok((result?, temporary)),
        }
    }
}

/// The most names that are skipped because other processes left them.
const MOST_LEFT: u32 = 1000;

#[cfg(target_os = "linux")]
fn is_unsupported(error: &io::Error) -> bool {
    use rustix::io::Errno;
    // A kernel that does not know O_TMPFILE opens the directory for writing: EISDIR.
    [Errno::OPNOTSUPP, Errno::ISDIR, Errno::INVAL]
        .iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// The directory that holds `path`.
fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

/// How often an opener that shares a file reads its header, until the snapshot is consistent.
const MOST_LOOKS: u32 = 100;

/// Tokens are 1 to this.
const MOST_TOKENS: u64 = (1 << TOKEN_BITS) - 1;
const TOKEN_BITS: u32 = 38;

/// The bits of the generation of this process that fit above a token.
#[inline]
fn own_generation() -> u64 {
    u64::from(fork::generation()) & (u64::MAX >> TOKEN_BITS)
}

/// The most tokens that a process draws to get one.
#[cfg(any(target_os = "linux", target_os = "android"))]
const MOST_DRAWN: u32 = 64;

/// The access mode of an open file.
enum Mode {
    ReadWrite,
    Read,
}

#[cfg(any(target_os = "linux", target_os = "android"))]
impl Mode {
    /// The kind of lock that the mode allows.
    fn lock(&self) -> libc::c_int {
        match self {
            Self::ReadWrite => libc::F_WRLCK,
            Self::Read => libc::F_RDLCK,
        }
    }
}

/// Creates a file without a name, in memory.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn memory_file() -> Result<File, Error> {
    use rustix::fs::MemfdFlags;

    let file = rustix::fs::memfd_create("quipu", MemfdFlags::CLOEXEC).map_err(|error| {
        let what = format!("the system cannot make files in memory ({error}); name a file instead");
        Error::new(None, ErrorKind::Request(what))
    })?;
    Ok(file.into())
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn memory_file() -> Result<File, Error> {
    let what = "this system has no files in memory that processes can share; name a file instead";
    Err(Error::new(None, ErrorKind::Request(what.into())))
}

fn read_up_to(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

pub(crate) fn kind_of(error: io::Error, wanted: u64) -> ErrorKind {
    match error.kind() {
        io::ErrorKind::IsADirectory => ErrorKind::IsDirectory,
        io::ErrorKind::FileTooLarge => {
            let limit = space::size_limit().filter(|&limit| limit < wanted);
            ErrorKind::FileTooLarge { wanted, limit }
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::NoSpace { wanted },
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            ErrorKind::NotWritable(error)
        }
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => ErrorKind::NoDirectory,
        io::ErrorKind::OutOfMemory => ErrorKind::NoMemory { wanted },
        _ => ErrorKind::Io(error),
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn files_that_the_dead_left_are_passed_over() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("counts");
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true);
        for number in 0..3 {
            let (_, name) = named_anew(directory.path(), &path, &options).unwrap();
            let expected = format!("counts.{}.{number}.new", std::process::id());
            assert_eq!(name.file_name().unwrap(), &*expected);
        }
    }
}
