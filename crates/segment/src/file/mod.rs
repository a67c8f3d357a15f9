//! The file of a segment: created whole or not at all, mapped, grown and synced. A file without a
//! name, in memory, is shared by a process and the children that it forks.
//!
//! A new file gets its name by `linkat`, when its header is complete and on the disk: a process
//! that dies before that leaves no file, and a process that comes second never overwrites the first
//! one's. `create.rs` does that; `token.rs` marks processes in the locks inside the file.

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
    /// The token of this process, which marks it in the locks inside the file, and, in the upper
    /// bits, the fork generation that made it: a child of a fork is another process. 0 for none.
    token: AtomicU64,
    /// Held by the thread that draws the token.
    registration: ForkSafeMutex,
    /// Holds the token's lock, in this process alone.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    own: Holder,
    /// Marks the file as open, for this process and the children that it forked since.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    presence: Holder,
    /// Whether a mapping can hold file locks on this file system: 0 unknown, 1 yes, 2 no.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    held_by_mapping: AtomicU32,
    /// The value of [`fork::forks`] when the file was mapped.
    forks: u32,
    /// Whether the file is to say that its last process left it in order.
    leaves_in_order: AtomicBool,
    /// Its entry in the table of the handler for files that are cut, if that is in use.
    #[cfg(target_os = "linux")]
    watched: Option<cut::WatchedMapping>,
}

impl MappedFile {
    /// Validates the header of a locked file, and maps it.
    pub(crate) fn open(path: &Path, locked: LockedFile) -> Result<(Self, Header), Error> {
        let fail = |error: io::Error| Error::new(Some(path), kind_of(error, 0));
        let LockedFile { file, is_first } = locked;
        let mut tries = if is_first { 1 } else { MAX_HEADER_READS };
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
        let base = NonNull::new(base.cast::<u8>()).expect("mmap returns an address or an error");
        #[cfg(target_os = "linux")]
        let watched = cut::WatchedMapping::new(base.addr().get(), length).map_err(|()| {
            // SAFETY: it was mapped just now, and nothing refers to it.
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

    /// Marks this process as present, once all of the file was validated. Lets others open the file
    /// too, if it is to be shared.
    pub(crate) fn be_present(&self, access: Access, deadline: LockDeadline) -> Result<(), Error> {
        let Some(path) = &self.path else { return Ok(()) };
        // Before the lock is shared, so that a process that gets the lock then finds this one
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
        // Through an open file description that this process can close while its children keep it.
        // If the file cannot be opened again, this process never learns that it is the last one.
        let Some((file, _)) = self.reopen() else { return be_present(&self.file) };
        be_present(&file)?;
        self.presence.set(Some(Hold::with_children(file, self.is_held_by_mapping())?));
        Ok(())
    }

    /// Whether a mapping can hold file locks on this file system.
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

    /// Tries to become the only process that has the file open, children of forks included as far
    /// as is known. If it returns true, others are kept out until [`Self::readmit_others`].
    pub(crate) fn try_exclude_others(&self, access: Access) -> bool {
        if self.path.is_none() {
            return true;
        }
        if access == Access::Exclusive && self.forks == fork::forks() {
            return true;
        }
        // If its descriptor is closed, its lock cannot be taken any more.
        self.has_descriptor() && self.is_alone() == Some(true) && self.file.try_lock().is_ok()
    }

    pub(crate) fn leave_in_order(&self) {
        self.leaves_in_order.store(true, Ordering::Relaxed);
    }

    /// Whether the file is to say that its last process left it in order, and this is that process.
    /// Others are kept out until the file is closed. No handle is left, so nothing is counted after
    /// this.
    ///
    /// Of processes that leave at the same time, the last one that asks is that process: an
    /// exclusive lock that cannot be had costs a process its shared one.
    pub(crate) fn is_left_in_order(&self) -> bool {
        self.leaves_in_order.load(Ordering::Relaxed)
            && self.path.is_some()
            // Children share the lock, and may go on.
            && self.forks == fork::forks()
            && self.has_descriptor()
            && self.file.try_lock().is_ok()
            && self.length().is_ok_and(|length| length >= HEADER_BYTES)
    }

    /// Whether no other process has the file open, children of forks included; `None` if that is
    /// not known. Others may come at any moment.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(crate) fn is_alone(&self) -> Option<bool> {
        // A lock of the process would be released when a descriptor of the file is closed here.
        if self.own_token().is_some() && !self.own.is_set() {
            return None;
        }
        // The children that were forked share the presence of this process. It takes another one,
        // and gives up the one that they share.
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
    fn own_file(&self) -> io::Result<FileRef<'_>> {
        if self.has_descriptor() {
            return Ok(FileRef::Open(&self.file));
        }
        let message = "its descriptor was closed by the program, and it cannot be opened again";
        self.reopen().map(|(file, _)| FileRef::Again(file)).ok_or_else(|| io::Error::other(message))
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
    /// states. The first opener also gives each of them a disk block. Returns the file's length.
    /// `is_first` says that no other process has it open, `torn` that power may have been lost,
    /// which may have left it shorter.
    ///
    /// A copy may have holes, or share its blocks with the original: a write into either needs a
    /// new block. On a full disk there is none, and then the system ends the process (SIGBUS).
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

    /// Reserves disk blocks for the bytes of `range`, and extends the file to its end, so that a
    /// write into the mapping never meets a full disk. It does not wait for the disk: opening mends
    /// a file that a loss of power leaves too short. Only one thread of one process may call it at
    /// a time.
    pub(crate) fn grow(&self, range: std::ops::Range<u64>) -> Result<(), Error> {
        let size = range.end;
        self.check_length(range.start)?;
        self.own_file()
            .and_then(|file| allocate(&file, range))
            .map_err(|error| self.fail(error, size))
    }

    /// Writes the bytes of `range` to the disk, and waits for it.
    pub(crate) fn sync(&self, range: std::ops::Range<u64>) -> Result<(), Error> {
        self.check_length(range.end)?;
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
    fn check_length(&self, size: u64) -> Result<(), Error> {
        // If its descriptor was closed and it cannot be opened again, the mapping still works.
        let Ok(length) = self.length() else { return Ok(()) };
        if length < size {
            return Err(Error::new(self.path(), ErrorKind::Cut { length, expected: size }));
        }
        Ok(())
    }

    /// Whether a page was missing when it was touched, if the process survives that.
    pub(crate) fn was_cut(&self) -> bool {
        #[cfg(target_os = "linux")]
        return self.watched.as_ref().is_some_and(cut::WatchedMapping::is_cut);
        #[cfg(not(target_os = "linux"))]
        false
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
    pub(crate) unsafe fn unmap(&mut self, limit: u64) {
        // First: another mapping may take the addresses at once.
        #[cfg(target_os = "linux")]
        drop(self.watched.take());
        // SAFETY: the caller's obligation. An error would leave the range mapped, which is
        // harmless.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), limit as usize) };
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        // First: an opener that cannot lock the file waits for a process that is not present.
        #[cfg(any(target_os = "linux", target_os = "android"))]
        self.presence.set(None);
        if self.has_descriptor() {
            // SAFETY: nothing uses the file after this.
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

/// How often an opener that shares a file reads its header, until the snapshot is consistent.
const MAX_HEADER_READS: u32 = 100;

/// The access mode of an open file.
enum Mode {
    ReadWrite,
    Read,
}

/// Fills the buffer from that offset on, as far as the file reaches.
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
