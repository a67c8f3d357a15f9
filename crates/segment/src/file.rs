//! A segment's file: made whole or not at all, locked, mapped, grown, synced. One without a name,
//! in memory, is for a process and the children that it forks.
//!
//! A new file gets its name by `linkat`, when its header is complete and on the disk: a process
//! that dies before leaves no file, and one that comes second never overwrites the first.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD};
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags};

use crate::error::{Error, Flaw};
use crate::fork;
use crate::layout::{HEADER_BYTES, Header, MAX_LIMIT, at, check_header};
use crate::lock::Latch;
use crate::segment::Access;

/// A file that is locked for this process and mapped up to the limit of its segment.
///
/// The mapping is longer than the file: bytes behind its end must not be touched, and become
/// usable where they are when the file grows.
#[derive(Debug)]
pub(crate) struct MappedFile {
    /// `None` for a file without a name.
    path: Option<PathBuf>,
    file: File,
    /// The device and the number of the file: a program that closes all descriptors after a fork may
    /// have another file under this one's by now.
    identity: (u64, u64),
    base: NonNull<u8>,
    /// Whether a sync failed and none has worked since.
    failed: AtomicBool,
    /// What marks this process in the locks inside of the file, and, above it, the generation that
    /// made it: a child of a fork is another process. 0 for none.
    token: AtomicU64,
    /// Held by who makes the token.
    making: Latch,
    /// The file that keeps the token's lock, as [`fork::keep`] names it; 0 for none.
    kept: AtomicU64,
}

impl MappedFile {
    /// Makes the file at `path` with `size` bytes that begin with `head`. `Ok(None)` where a file
    /// of that name is there already.
    pub(crate) fn create(
        path: &Path,
        head: &[u8],
        size: u64,
        limit: u64,
    ) -> Result<Option<Self>, Error> {
        let fail = |error: io::Error| Error::new(Some(path), flaw_of(error, size));
        if path.is_dir() {
            return Err(Error::new(Some(path), Flaw::IsDirectory));
        }
        if path.symlink_metadata().is_ok() {
            return Ok(None);
        }
        let directory = parent(path);
        let draft = Draft::new(directory, path).map_err(fail)?;
        lock(path, &draft.file, Access::Exclusive)?;
        allocate(&draft.file, size).map_err(fail)?;
        draft.file.write_all_at(head, 0).map_err(fail)?;
        draft.file.sync_all().map_err(fail)?;
        match draft.name(path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(None),
            Err(error) => return Err(fail(error)),
        }
        drop(draft.temporary);
        // The name must outlive a power loss as the content does.
        File::open(directory).and_then(|d| d.sync_all()).map_err(fail)?;
        Self::map(Some(path), draft.file, limit).map(Some)
    }

    /// Makes a file without a name in memory, with `size` bytes that begin with `head`. The children
    /// that this process forks share it.
    pub(crate) fn anonymous(head: &[u8], size: u64, limit: u64) -> Result<Self, Error> {
        let file = memory_file()?;
        let fail = |error: io::Error| Error::new(None, flaw_of(error, size));
        allocate(&file, size).map_err(fail)?;
        file.write_all_at(head, 0).map_err(fail)?;
        let mapped = Self::map(None, file, limit)?;
        if reopen(&mapped).is_none() {
            // Without a lock of its own, none of the processes could tell which of the others live.
            let what = "a segment without a file needs /proc, through which each process opens it \
                        for itself; mount it, or open a segment in a file";
            return Err(Error::new(None, Flaw::Request(what.into())));
        }
        Ok(mapped)
    }

    /// Opens the file at `path`, locks it, checks its header, and maps it. `Ok(None)` where there
    /// is none.
    pub(crate) fn open(path: &Path, access: Access) -> Result<Option<(Self, Header, bool)>, Error> {
        let fail = |error: io::Error| Error::new(Some(path), flaw_of(error, 0));
        let file = match OpenOptions::new().read(true).write(true).open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(fail(error)),
        };
        let metadata = file.metadata().map_err(fail)?;
        if !metadata.is_file() {
            let what = "it is not a regular file; name one".into();
            return Err(Error::new(Some(path), Flaw::Request(what)));
        }
        let alone = lock(path, &file, access)?;
        let mut tries = if alone { 1 } else { MOST_LOOKS };
        let (header, length) = loop {
            let mut head = [0; HEADER_BYTES as usize];
            let filled = read_up_to(&file, &mut head, 0).map_err(fail)?;
            // The length is read under the lock: whoever held it before may have grown the file;
            // and after the header: whoever shares it may grow it now.
            let length = file.metadata().map_err(fail)?.len();
            tries -= 1;
            match check_header(&head[..filled], length) {
                Ok(header) => break (header, length),
                // A reading is not one moment: others change the header meanwhile.
                Err(_) if tries > 0 => std::thread::sleep(Duration::from_millis(1)),
                Err(flaw) => return Err(Error::new(Some(path), flaw)),
            }
        };
        // A growth that was cut off leaves a longer file, and so does one that goes on. What lies in
        // there does not matter: it is zeroed before it is used.
        if length > header.size && header.clean && alone {
            let flaw = Flaw::TooLong { length, expected: header.size };
            return Err(Error::new(Some(path), flaw));
        }
        Ok(Some((Self::map(Some(path), file, header.limit)?, header, alone)))
    }

    /// Renames a file that nobody has open to the first of these names that is free.
    pub(crate) fn set_aside(
        path: &Path,
        names: impl Iterator<Item = PathBuf>,
    ) -> Result<PathBuf, Error> {
        let fail = |error: io::Error| Error::new(Some(path), flaw_of(error, 0));
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(fail)?;
        lock(path, &file, Access::Exclusive)?;
        // Whoever held the lock until now may have set the file aside, and made another.
        let (locked, named) = (file.metadata().map_err(fail)?, path.metadata().map_err(fail)?);
        if (locked.dev(), locked.ino()) != (named.dev(), named.ino()) {
            return Err(Error::new(Some(path), Flaw::Locked));
        }
        for name in names {
            // A link, and not a renaming, so that no file of that name is replaced.
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

    fn map(path: Option<&Path>, file: File, limit: u64) -> Result<Self, Error> {
        let fail = |error: io::Error| Error::new(path, flaw_of(error, limit));
        let length = usize::try_from(limit).map_err(|_| {
            Error::new(path, Flaw::Request(format!("{limit} bytes cannot be addressed")))
        })?;
        let identity = identity(&file).map_err(fail)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address that the kernel chooses touches nothing of ours.
        let base = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), length, protection, MapFlags::SHARED, &file, 0)
        }
        .map_err(|error| fail(error.into()))?;
        let base = NonNull::new(base.cast()).expect("mmap answers an address or an error");
        fork::watch();
        Ok(Self {
            path: path.map(Path::to_owned),
            file,
            identity,
            base,
            failed: AtomicBool::new(false),
            token: AtomicU64::new(0),
            making: Latch::default(),
            kept: AtomicU64::new(0),
        })
    }

    /// Lets others in that share the file too.
    pub(crate) fn share(&self) -> Result<(), Error> {
        // The kernel may release the one lock before it takes the other: whoever comes in between
        // finds by [`is_present`] that it is not alone.
        match &self.path {
            Some(path) => lock_shared(path, &self.file, Instant::now() + PATIENCE),
            None => Ok(()),
        }
    }

    /// The bytes that the file has.
    pub(crate) fn length(&self) -> Result<u64, Error> {
        self.file.metadata().map(|metadata| metadata.len()).map_err(|error| self.fail(error, 0))
    }

    /// Keeps all others out, where none is in, until the file is shared again.
    pub(crate) fn is_alone(&self) -> bool {
        !is_present(&self.file) && self.file.try_lock().is_ok()
    }

    /// A number that no other process has, or had, that has the file open: its lock is released by
    /// the end of the process, however it ends.
    #[inline]
    pub(crate) fn token(&self) -> Result<u64, Error> {
        match self.own_token() {
            Some(token) => Ok(token),
            None => self.make_token().map_err(|error| Error::new(self.path(), Flaw::Io(error))),
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
        let _making = self.making.lock();
        if let Some(token) = self.own_token() {
            return Ok(token);
        }
        fork::release(self.kept.swap(0, Ordering::Relaxed));
        let (token, kept) = lock_token(self)?;
        self.kept.store(kept, Ordering::Relaxed);
        self.token.store(token | own_generation() << TOKEN_BITS, Ordering::Relaxed);
        Ok(token)
    }

    /// Whether the process of a token lives.
    pub(crate) fn is_alive(&self, token: u64) -> bool {
        if token > MOST_TOKENS {
            // It is in a damaged file, and nobody's.
            return false;
        }
        // Who cannot be asked for is taken for alive: waiting is better than two owners.
        self.own_token() == Some(token)
            || self.own_file().map_or(true, |file| is_locked(file, token))
    }

    /// A number that is given out once.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn next_token(&self) -> u64 {
        // SAFETY: the header lies inside of the file, and its cells are used as atomics only.
        let tokens = unsafe { &*self.base.as_ptr().add(at::TOKENS).cast::<AtomicU64>() };
        tokens.fetch_add(1, Ordering::Relaxed).wrapping_add(1) & MOST_TOKENS
    }

    pub(crate) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The file, unless its descriptor was closed and is another file's by now.
    fn own_file(&self) -> io::Result<&File> {
        if identity(&self.file)? == self.identity {
            return Ok(&self.file);
        }
        Err(io::Error::other("its descriptor was closed by the program; keep it open"))
    }

    fn fail(&self, error: io::Error, size: u64) -> Error {
        Error::new(self.path(), flaw_of(error, size))
    }

    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Gives the file at least `size` bytes, with their blocks: a write into the mapping never
    /// meets a full disk. One process at a time, and one thread of it, does so.
    pub(crate) fn grow(&self, size: u64) -> Result<(), Error> {
        // On the disk before the header says so: a power loss must not leave a file that is
        // shorter than its header states.
        self.own_file()
            .and_then(|file| allocate(file, size).and_then(|()| file.sync_data()))
            .map_err(|error| self.fail(error, size))
    }

    /// Writes the bytes of `range` to the disk and waits for it.
    pub(crate) fn sync(&self, range: std::ops::Range<u64>) -> Result<(), Error> {
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

    /// Makes pages dirty that are in use. The system takes a page for clean once it has failed to
    /// write it (fsync(2), "ERRORS"): it would never try again by itself.
    fn touch(&self, range: std::ops::Range<u64>, page: u64) {
        for at in range.step_by(page as usize) {
            // SAFETY: the offset lies inside the file, at the beginning of a page, whose first
            // bytes are a cell like all others.
            let cell = unsafe { &*self.base.as_ptr().add(at as usize).cast::<AtomicU64>() };
            let value = cell.load(Ordering::Relaxed);
            // A swap for the same value is a write; who fails was overtaken by another write.
            let _ = cell.compare_exchange(value, value, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Takes the mapping down.
    ///
    /// # Safety
    /// `limit` is the length that was mapped, and nothing refers to the mapping any more.
    pub(crate) unsafe fn unmap(&self, limit: u64) {
        // SAFETY: the caller's obligation. An error would leave the range mapped, which harms
        // nothing.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), limit as usize) };
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        fork::release(self.kept.load(Ordering::Relaxed));
    }
}

/// A file that has no name yet, or a temporary one.
struct Draft {
    file: File,
    temporary: Option<Temporary>,
}

/// A name that is taken away again when its owner goes.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        // What cannot be removed is a small file with a speaking name.
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Draft {
    fn new(directory: &Path, path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).mode(0o644);
        #[cfg(target_os = "linux")]
        if Path::new("/proc/self/fd").is_dir() {
            let flags = rustix::fs::OFlags::TMPFILE.bits().cast_signed();
            match options.clone().custom_flags(flags).open(directory) {
                Ok(file) => {
                    return Ok(Self { file, temporary: None });
                }
                // This file system has no files without names: give it one.
                Err(error) if is_unsupported(&error) => {}
                Err(error) => return Err(error),
            }
        }
        let (file, temporary) = named_anew(directory, path, options.create_new(true))?;
        Ok(Self { file, temporary: Some(Temporary(temporary)) })
    }

    /// Gives the file its name; an error where the name is taken.
    fn name(&self, path: &Path) -> io::Result<()> {
        let source = match &self.temporary {
            Some(temporary) => temporary.0.clone(),
            None => PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd())),
        };
        Ok(rustix::fs::linkat(CWD, &source, CWD, path, AtFlags::SYMLINK_FOLLOW)?)
    }
}

/// Makes a file of a name beside that of `path` that nothing has: who was killed may have left one,
/// and this process may have the id of that one, as in a container that was started again.
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

/// How many files that others have left are passed over.
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

/// Locks the file; answers whether nobody else has it. Who is to share it does so later, by
/// [`MappedFile::share`], when it has seen that all is in order.
fn lock(path: &Path, file: &File, access: Access) -> Result<bool, Error> {
    let alone = match file.try_lock() {
        Ok(()) => !is_present(file),
        Err(TryLockError::WouldBlock) => false,
        Err(TryLockError::Error(error)) => return Err(Error::new(Some(path), Flaw::Io(error))),
    };
    if !alone {
        if access == Access::Exclusive {
            return Err(Error::new(Some(path), Flaw::Locked));
        }
        // Whoever opened it first looks at all of it before it lets others in.
        lock_shared(path, file, Instant::now() + PATIENCE)?;
    }
    be_present(file);
    Ok(alone)
}

fn lock_shared(path: &Path, file: &File, deadline: Instant) -> Result<(), Error> {
    loop {
        match file.try_lock_shared() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(TryLockError::WouldBlock) => return Err(Error::new(Some(path), Flaw::Locked)),
            Err(TryLockError::Error(error)) => return Err(Error::new(Some(path), Flaw::Io(error))),
        }
    }
}

/// How long who shares a file waits for who checks it.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often who shares a file looks at its header until it is of one moment.
const MOST_LOOKS: u32 = 100;

/// Tokens are 1 to this.
const MOST_TOKENS: u64 = (1 << TOKEN_BITS) - 1;
const TOKEN_BITS: u32 = 38;

/// The generation of this process, as far as it fits above a token.
#[inline]
fn own_generation() -> u64 {
    u64::from(fork::generation()) & (u64::MAX >> TOKEN_BITS)
}

/// Locks the byte of a new token: by an open file description of this process' own, so that no
/// child of a fork goes on holding it. Answers how it is kept as well.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn lock_token(mapped: &MappedFile) -> io::Result<(u64, u64)> {
    let file = mapped.own_file()?;
    // Before it is locked: no child may have it then.
    let own = fork::keep(|| reopen(mapped))?;
    // A lock for writing needs a file that is open for writing, and excludes all others; one for
    // reading is seen by whoever asks, and is this token's as long as nobody draws it twice.
    let (kept, descriptor, command, kind) = match own {
        Some((kept, own, Mode::ReadWrite)) => (kept, own, libc::F_OFD_SETLK, libc::F_WRLCK),
        Some((kept, own, Mode::Read)) => (kept, own, libc::F_OFD_SETLK, libc::F_RDLCK),
        // A lock of the process, and not of the descriptor, which all children share. It ends with
        // the process too, and already when the process closes this file under another descriptor.
        None => (0, file.as_raw_fd(), libc::F_SETLK, libc::F_WRLCK),
    };
    for _ in 0..64 {
        let token = mapped.next_token();
        if token == 0 || is_locked(file, token) {
            continue;
        }
        let mut lock = byte_lock(token, kind as _);
        // SAFETY: the descriptor is open, and `lock` a valid flock for the call.
        if unsafe { libc::fcntl(descriptor, command, &raw mut lock) } == 0 {
            return Ok((token, kept));
        }
        let error = io::Error::last_os_error();
        if !matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) {
            fork::release(kept);
            return Err(error);
        }
    }
    fork::release(kept);
    Err(io::ErrorKind::AddrInUse.into())
}

/// How a file is open.
enum Mode {
    ReadWrite,
    Read,
}

/// Opens the same file again, for reading at least: a worker may have given up the rights of the
/// process that opened it first.
fn reopen(mapped: &MappedFile) -> Option<(File, Mode)> {
    let by_number = PathBuf::from(format!("/proc/self/fd/{}", mapped.file.as_raw_fd()));
    [Some(&by_number), mapped.path.as_ref()].into_iter().flatten().find_map(|path| {
        let open = |mode: Mode| {
            let is_writable = matches!(mode, Mode::ReadWrite);
            let file = OpenOptions::new().read(true).write(is_writable).open(path).ok()?;
            (identity(&file).ok()? == mapped.identity).then_some((file, mode))
        };
        open(Mode::ReadWrite).or_else(|| open(Mode::Read))
    })
}

fn identity(file: &File) -> io::Result<(u64, u64)> {
    file.metadata().map(|data| (data.dev(), data.ino()))
}

/// A file without a name, in memory.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn memory_file() -> Result<File, Error> {
    use rustix::fs::MemfdFlags;

    let file = rustix::fs::memfd_create("quipu", MemfdFlags::CLOEXEC).map_err(|error| {
        let what = format!("the system makes no files in memory ({error}); open one with a name");
        Error::new(None, Flaw::Request(what))
    })?;
    Ok(file.into())
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn memory_file() -> Result<File, Error> {
    let what = "this system has no files in memory that processes share; open one with a name";
    Err(Error::new(None, Flaw::Request(what.into())))
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn is_locked(file: &File, byte: u64) -> bool {
    let mut lock = byte_lock(byte, libc::F_WRLCK as _);
    // SAFETY: as above.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
    // Who cannot be asked for is taken for alive: waiting is better than two owners.
    result != 0 || i32::from(lock.l_type) != libc::F_UNLCK
}

/// Marks the file as open. Unlike the lock of the whole file, this one never goes while the file is
/// open, not for a moment.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn be_present(file: &File) {
    let mut lock = byte_lock(PRESENCE, libc::F_RDLCK as _);
    // SAFETY: as above. A file system that has no such locks relies on those of whole files.
    let _ = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw mut lock) };
}

/// Whether somebody else has marked it as open.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn is_present(file: &File) -> bool {
    let mut lock = byte_lock(PRESENCE, libc::F_WRLCK as _);
    // SAFETY: as above.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
    result == 0 && i32::from(lock.l_type) != libc::F_UNLCK
}

/// The byte that all have locked who have the file open, behind those of all tokens.
#[cfg(any(target_os = "linux", target_os = "android"))]
const PRESENCE: u64 = 1 << 40;

/// A lock of one byte behind the greatest size that a segment may have.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn byte_lock(byte: u64, kind: libc::c_short) -> libc::flock {
    libc::flock {
        l_type: kind,
        l_whence: libc::SEEK_SET as _,
        l_start: (MAX_LIMIT + byte) as _,
        l_len: 1,
        l_pid: 0,
    }
}

/// The process' id: this system has no locks of open file descriptions.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn lock_token(_mapped: &MappedFile) -> io::Result<(u64, u64)> {
    Ok((u64::from(std::process::id()), 0))
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn is_locked(_file: &File, byte: u64) -> bool {
    use rustix::process::{Pid, test_kill_process};

    let pid = i32::try_from(byte).ok().and_then(Pid::from_raw);
    pid.is_none_or(|pid| test_kill_process(pid) != Err(rustix::io::Errno::SRCH))
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn be_present(_file: &File) {}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn is_present(_file: &File) -> bool {
    false
}

/// Gives the file at least `size` bytes, with blocks behind them where the system can promise it.
fn allocate(file: &File, size: u64) -> io::Result<()> {
    let present = file.metadata()?.len();
    if present >= size {
        return Ok(());
    }
    // Some file systems hand out all they have before they say that it is not enough: meanwhile
    // nobody else could write. Of a file that is there, some blocks may be there too.
    #[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
    if present == 0
        && let Ok(system) = rustix::fs::fstatvfs(file)
        && system.f_blocks > 0
        && size > system.f_bavail.saturating_mul(system.f_frsize)
    {
        return Err(rustix::io::Errno::NOSPC.into());
    }
    #[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
    match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, size) {
        Ok(()) => return Ok(()),
        // The file system has no such call: write the zeros, which claims the blocks as well.
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {}
        Err(error) => return Err(error.into()),
    }
    let zeros = [0; 64 * 1024];
    let mut at = file.metadata()?.len();
    while at < size {
        let count = zeros.len().min((size - at) as usize);
        file.write_all_at(&zeros[..count], at)?;
        at += count as u64;
    }
    Ok(())
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

fn flaw_of(error: io::Error, wanted: u64) -> Flaw {
    match error.kind() {
        io::ErrorKind::IsADirectory => Flaw::IsDirectory,
        io::ErrorKind::FileTooLarge => Flaw::FileTooLarge { wanted },
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Flaw::NoSpace { wanted },
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            Flaw::NotWritable(error)
        }
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Flaw::NoDirectory,
        io::ErrorKind::OutOfMemory => Flaw::NoMemory { wanted },
        _ => Flaw::Io(error),
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
