//! The file of a segment: created whole or not at all, mapped, grown and synced. A process and the
//! children that it forks can share an unnamed file in memory.
//!
//! A new file is named with `linkat`, once its header is complete and on the disk. If a process
//! dies before that, it leaves no file, and a second process never overwrites the first one's.
//! `create.rs` creates files, and `token.rs` marks processes in the locks inside the file.

#![cfg_attr(
    not(any(target_os = "linux", target_os = "android")),
    allow(unused_imports, reason = "fewer are used there")
)]

mod create;
mod token;

use std::fs::{File, OpenOptions};
use std::io;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use rustix::mm::{MapFlags, MsyncFlags, ProtFlags};

pub(crate) use self::create::{Rights, set_aside};
use crate::access::Access;
#[cfg(target_os = "linux")]
use crate::cut;
use crate::error::{Error, ErrorKind};
use crate::fork;
use crate::fork::ForkSafeMutex;
#[cfg(any(target_os = "linux", target_os = "android"))]
use crate::hold::{Hold, Holder};
use crate::layout::{HEADER_BYTES, Header, check_header};
use crate::presence::{LockDeadline, LockedFile, cannot_lock, identity, share};
#[cfg(any(target_os = "linux", target_os = "android"))]
use crate::presence::{be_present, is_present};
use crate::space::{self, allocate};

/// A file that is locked for this process and mapped up to the limit of its segment.
///
/// The mapping is longer than the file. Bytes beyond the end of the file must not be touched; when
/// the file grows, they become usable at the same address.
#[derive(Debug)]
pub(crate) struct MappedFile {
    /// The path; `None` for an unnamed file.
    path: Option<PathBuf>,
    /// The file. It is closed only while the descriptor still refers to this file, because a
    /// program that closes all descriptors may reuse the number for another file.
    file: ManuallyDrop<File>,
    /// The device and the inode number of the file.
    identity: (u64, u64),
    /// Whether the program closed the descriptor. Its number is then not used again.
    is_closed: AtomicBool,
    base: NonNull<u8>,
    /// Whether a sync failed and none succeeded since.
    failed: AtomicBool,
    /// The token of this process, which marks it in the locks inside the file; 0 if there is none.
    /// The upper bits hold the fork generation of the token, because a child of a fork is another
    /// process.
    token: AtomicU64,
    /// Held by the thread that draws the token.
    registration: ForkSafeMutex,
    /// Holds the token's lock, in this process only.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    own: Holder,
    /// Marks the file as open, for this process and the children that it forks later.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    presence: Holder,
    /// Whether a mapping can hold file locks on this file system: 0 unknown, 1 yes, 2 no.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    held_by_mapping: AtomicU32,
    /// The value of [`fork::forks`] when the file was mapped.
    forks: u32,
    /// Whether to mark the file as left in order when this is its last process.
    leaves_in_order: AtomicBool,
    /// The mapping's entry in the table of the handler for truncated files, if that is in use.
    #[cfg(target_os = "linux")]
    watched: Option<cut::WatchedMapping>,
}

impl MappedFile {
    /// Validates the header of a locked file, and maps the file.
    pub(crate) fn open(path: &Path, locked: LockedFile) -> Result<(Self, Header), Error> {
        let fail = |error: io::Error| Error::new(Some(path), kind_of(error, 0));
        let LockedFile { file, is_first } = locked;
        let mut tries = if is_first { 1 } else { MAX_HEADER_READS };
        let (header, length) = loop {
            let mut head = [0; HEADER_BYTES as usize];
            let filled = read_up_to(&file, &mut head, 0).map_err(fail)?;
            // Read the length under the lock, because the previous owner may have grown the file.
            // Read it after the header, because a process that shares the file may be growing it
            // now.
            let length = file.metadata().map_err(fail)?.len();
            tries -= 1;
            match check_header(&head[..filled], length) {
                Ok(header) => break (header, length),
                // Retry, because a read is not atomic and others change the header in the meantime.
                Err(_) if tries > 0 => std::thread::sleep(Duration::from_millis(1)),
                Err(kind) => return Err(Error::new(Some(path), kind)),
            }
        };
        // A growth that was interrupted, or is under way, makes the file longer. These extra bytes
        // do not matter, because they are zeroed before they are used.
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
        // SAFETY: a new mapping at an address that the kernel chooses touches no memory of ours.
        let base = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), length, protection, MapFlags::SHARED, &file, 0)
        }
        .map_err(|error| fail(error.into()))?;
        let base = NonNull::new(base.cast::<u8>()).expect("mmap returns an address or an error");
        #[cfg(target_os = "linux")]
        let watched = cut::WatchedMapping::new(base.addr().get(), length).map_err(|()| {
            // SAFETY: the range was mapped just now, and has no other users.
            let _ = unsafe { rustix::mm::munmap(base.as_ptr().cast(), length) };
            let message = format!("this process has {} segment files open; close some", cut::MOST);
            Error::new(path, ErrorKind::Request(message))
        })?;
        Ok(Self {
            path: path.map(Path::to_owned),
            file: ManuallyDrop::new(file),
            identity,
            is_closed: AtomicBool::new(false),
            base,
            failed: AtomicBool::new(false),
            token: AtomicU64::new(0),
            registration: ForkSafeMutex::default(),
            #[cfg(any(target_os = "linux", target_os = "android"))]
            own: Holder::default(),
            #[cfg(any(target_os = "linux", target_os = "android"))]
            presence: Holder::default(),
            #[cfg(any(target_os = "linux", target_os = "android"))]
            held_by_mapping: AtomicU32::new(0),
            forks,
            leaves_in_order: AtomicBool::new(false),
            #[cfg(target_os = "linux")]
            watched,
        })
    }

    /// Marks this process as present, after the whole file was validated. If the file is to be
    /// shared, others can open it from now on.
    pub(crate) fn be_present(&self, access: Access, deadline: LockDeadline) -> Result<(), Error> {
        let Some(path) = &self.path else { return Ok(()) };
        // Do this before the lock is shared: a process that then gets the lock must find this one
        // present.
        #[cfg(any(target_os = "linux", target_os = "android"))]
        self.hold_presence().map_err(|error| cannot_lock(path, &error))?;
        match access {
            Access::Shared => share(path, &self.file, deadline),
            Access::Exclusive => Ok(()),
        }
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn hold_presence(&self) -> io::Result<()> {
        // Use a separate open file description, which this process can close while its children
        // keep it. If the file cannot be reopened, this process never learns that it is the last
        // one.
        let Some((file, _)) = self.reopen() else { return be_present(&self.file) };
        be_present(&file)?;
        self.presence.set(Some(Hold::with_children(file, self.is_held_by_mapping())?));
        Ok(())
    }

    /// Returns whether a mapping can hold file locks on this file system.
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

    /// Returns the length of the file in bytes.
    pub(crate) fn length(&self) -> Result<u64, Error> {
        let metadata = self.own_file().and_then(|file| file.metadata());
        metadata.map(|metadata| metadata.len()).map_err(|error| self.fail(error, 0))
    }

    /// Returns the length of the file in bytes. If the program closed the descriptor, this looks up
    /// the path. Returns `None` if neither leads to the file.
    pub(crate) fn present_length(&self) -> Option<u64> {
        let is_it = |data: &std::fs::Metadata| (data.dev(), data.ino()) == self.identity;
        let by_name = || self.path.as_ref()?.metadata().ok();
        let data = self.file.metadata().ok().filter(is_it).or_else(|| by_name().filter(is_it))?;
        Some(data.len())
    }

    /// Tries to become the only process that uses the file; known children of forks count, too. If
    /// this returns true, others are locked out until [`Self::readmit_others`].
    pub(crate) fn try_exclude_others(&self, access: Access) -> bool {
        if self.path.is_none() {
            return true;
        }
        if access == Access::Exclusive && self.forks == fork::forks() {
            return true;
        }
        // If the descriptor is closed, its lock cannot be taken any more.
        self.has_descriptor() && self.is_alone() == Some(true) && self.file.try_lock().is_ok()
    }

    pub(crate) fn leave_in_order(&self) {
        self.leaves_in_order.store(true, Ordering::Relaxed);
    }

    /// Returns whether to mark the file as left in order, and this is its last process. If so,
    /// others are locked out until the file is closed. There is no handle left, so no thread counts
    /// after this.
    ///
    /// If several processes leave at the same time, only the last call returns true, because a
    /// process that cannot get the exclusive lock loses its shared one.
    pub(crate) fn is_left_in_order(&self) -> bool {
        self.leaves_in_order.load(Ordering::Relaxed)
            && self.path.is_some()
            // Children share the lock, and may continue.
            && self.forks == fork::forks()
            && self.has_descriptor()
            && self.file.try_lock().is_ok()
            && self.length().is_ok_and(|length| length >= HEADER_BYTES)
    }

    /// Returns whether no other process uses the file; children of forks count, too. Returns `None`
    /// if that cannot be determined. Others can open the file at any moment.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(crate) fn is_alone(&self) -> Option<bool> {
        // A lock of the process would be released when a descriptor of the file is closed here.
        if self.own_token().is_some() && !self.own.is_set() {
            return None;
        }
        // Forked children share this process's presence. Take another presence, and give up the
        // shared one.
        let (file, _) = self.reopen()?;
        let same = file.try_clone().ok()?;
        let by_mapping = self.is_held_by_mapping();
        let hold = be_present(&file).and_then(|()| Hold::with_children(file, by_mapping)).ok()?;
        self.presence.set(Some(hold));
        is_present(&same).ok().map(|others| !others)
    }

    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    pub(crate) fn is_alone(&self) -> Option<bool> {
        Some(true)
    }

    /// Lets others open the file again, after [`Self::try_exclude_others`].
    pub(crate) fn readmit_others(
        &self,
        access: Access,
        deadline: LockDeadline,
    ) -> Result<(), Error> {
        match &self.path {
            Some(path) if access == Access::Shared => {
                let file = self.own_file().map_err(|error| self.fail(error, 0))?;
                share(path, &file, deadline)
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Returns whether the descriptor still refers to this file.
    fn has_descriptor(&self) -> bool {
        let is_own = !self.is_closed.load(Ordering::Relaxed)
            && identity(&self.file).is_ok_and(|identity| identity == self.identity);
        if !is_own {
            // Remember this, because a file that is opened for a moment may get the same number.
            self.is_closed.store(true, Ordering::Relaxed);
        }
        is_own
    }

    /// Returns the file. Reopens it if its descriptor was closed, because the number may refer to
    /// another file by now.
    fn own_file(&self) -> io::Result<FileRef<'_>> {
        if self.has_descriptor() {
            return Ok(FileRef::Open(&self.file));
        }
        let message = "its descriptor was closed by the program, and it cannot be opened again";
        self.reopen().map(|(file, _)| FileRef::Again(file)).ok_or_else(|| io::Error::other(message))
    }

    /// Reopens the file, at least for reading, because a worker may have given up the rights that
    /// the first opener used.
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

    /// Checks that the path still names this file, and not for example a replacement, and that the
    /// file still holds `size` bytes.
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

    /// Extends the file to the size in its header before its cells are used. The first opener also
    /// allocates a disk block for each byte. Returns the file's length. `is_first` means that no
    /// other process uses the file. `torn` means that a power loss is possible, which can truncate
    /// the file.
    ///
    /// You need this because a copy of a file can contain holes, or share its blocks with the
    /// original, and a write to such a place needs a new block. On a full disk, the system would
    /// end the process (SIGBUS).
    pub(crate) fn ensure_allocated(
        &self,
        size: u64,
        is_first: bool,
        torn: bool,
    ) -> Result<u64, Error> {
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

    /// Reserves disk blocks for the bytes of `range`, and extends the file to the end of the range,
    /// because a write to the mapping must never meet a full disk. This does not wait for the disk:
    /// if a power loss leaves the file too short, opening extends it. Only one thread of one
    /// process may call this at a time.
    pub(crate) fn grow(&self, range: std::ops::Range<u64>) -> Result<(), Error> {
        let size = range.end;
        self.check_length(range.start)?;
        self.own_file()
            .and_then(|file| allocate(&file, range))
            .map_err(|error| self.fail(error, size))
    }

    /// Writes the bytes of `range` to the disk, and waits until they are there.
    pub(crate) fn sync(&self, range: std::ops::Range<u64>) -> Result<(), Error> {
        self.check_length(range.end)?;
        let page = rustix::param::page_size() as u64;
        let start = range.start / page * page;
        if self.failed.load(Ordering::Relaxed) {
            self.touch(start..range.end, page);
        }
        let length = (range.end - start) as usize;
        // SAFETY: the range lies inside the mapping; msync changes no byte in the range.
        let result = unsafe {
            let address = self.base.as_ptr().add(start as usize).cast();
            rustix::mm::msync(address, length, MsyncFlags::SYNC)
        };
        self.failed.store(result.is_err(), Ordering::Relaxed);
        result.map_err(|error| self.fail(error.into(), range.end))
    }

    /// Returns an error if the file is shorter, because another process truncated it while it was
    /// in use.
    fn check_length(&self, size: u64) -> Result<(), Error> {
        // If the descriptor was closed and the file cannot be reopened, the mapping still works.
        let Ok(length) = self.length() else { return Ok(()) };
        if length < size {
            return Err(Error::new(self.path(), ErrorKind::Cut { length, expected: size }));
        }
        Ok(())
    }

    /// Returns whether a page was missing when this process touched it, if the process survives
    /// that.
    pub(crate) fn was_cut(&self) -> bool {
        #[cfg(target_os = "linux")]
        return self.watched.as_ref().is_some_and(cut::WatchedMapping::is_cut);
        #[cfg(not(target_os = "linux"))]
        false
    }

    /// Makes the pages in use dirty. You need this after a failed sync, because the system then
    /// marks the page as clean (fsync(2), "ERRORS") and would never retry.
    fn touch(&self, range: std::ops::Range<u64>, page: u64) {
        for at in range.step_by(page as usize) {
            // SAFETY: the offset lies inside the file, at the beginning of a page, whose first
            // bytes are a cell.
            let cell = unsafe { &*self.base.as_ptr().add(at as usize).cast::<AtomicU64>() };
            let value = cell.load(Ordering::Relaxed);
            // Swapping in the same value is a write. If this fails, another write did it.
            let _ = cell.compare_exchange(value, value, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Removes the mapping.
    ///
    /// # Safety
    /// `limit` must be the mapped length, and no references to the mapping may exist.
    pub(crate) unsafe fn unmap(&mut self, limit: u64) {
        // Do this first, because another mapping can take the addresses at once.
        #[cfg(target_os = "linux")]
        drop(self.watched.take());
        // SAFETY: the caller's obligation. An error would leave the range mapped, which is
        // harmless.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), limit as usize) };
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        // Do this first: an opener that cannot lock the file waits for a process that is not
        // present.
        #[cfg(any(target_os = "linux", target_os = "android"))]
        self.presence.set(None);
        if self.has_descriptor() {
            // SAFETY: the file is not used after this.
            unsafe { ManuallyDrop::drop(&mut self.file) };
        }
    }
}

/// The open file of a segment, for a single use.
enum FileRef<'f> {
    Open(&'f File),
    Again(File),
}

impl Deref for FileRef<'_> {
    type Target = File;

    fn deref(&self) -> &File {
        match self {
            Self::Open(file) => file,
            Self::Again(file) => file,
        }
    }
}

/// The number of attempts of an opener of a shared file to read a consistent header.
const MAX_HEADER_READS: u32 = 100;

/// The access mode of an open file.
enum Mode {
    ReadWrite,
    Read,
}

/// Fills the buffer from an offset on, up to the end of the file.
pub(crate) fn read_up_to(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
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
