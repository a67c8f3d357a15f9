//! Opens and creates segment files: the options, and the work of the first opener.
//!
//! The process that opens a file first validates the header, the list of records and the contents.
//! Only then does it change the file: it mends the contents, marks the file as open, and shares its
//! lock. This order lets every later process find a valid file.

#![cfg_attr(not(unix), allow(unused_imports, reason = "fewer are used there"))]

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Contents, Segment, SharedFile, anchor_cells, header};
use crate::access::Access;
use crate::error::{Error, ErrorKind};
#[cfg(unix)]
use crate::file::{self, MappedFile, Rights};
use crate::layout::{HEADER_BYTES, Header, LINE_BYTES, MAX_LIMIT, check_records};
#[cfg(unix)]
use crate::presence::{LockDeadline, LockedFile};
use crate::printable;
use crate::readings::Readings;
use crate::region::Region;
use crate::sync::{Arc, Ordering};

/// The state of a segment before it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InitialState {
    New,
    Clean,
    /// The last process left the file in order, and power was not lost since, but the file was not
    /// synced.
    Left,
    Unclean,
}

impl InitialState {
    /// Returns the state of a file with this header, in the current boot of the machine. After a
    /// reboot, written pages may be lost, because a power loss is possible.
    pub(super) fn from_header(header: &Header, boot: [u8; 16]) -> Self {
        match (header.clean, header.left && !header.is_torn(boot)) {
            (true, _) => Self::Clean,
            (false, true) => Self::Left,
            (false, false) => Self::Unclean,
        }
    }
}

/// Options for creating or opening a segment file.
#[derive(Debug, Clone)]
#[must_use = "options open no file until you call one of the methods that open"]
pub struct Options {
    limit: u64,
    size: u64,
    unmarked: bool,
    access: Access,
    mode: u32,
    group: Option<u32>,
    lock_timeout: Duration,
    readings: Option<Readings>,
    contents: fn() -> Arc<dyn Contents>,
}

/// A file that was renamed to make room for a new one.
#[doc(hidden)]
#[derive(Debug)]
pub struct SetAside {
    /// The reason why the file could not be used.
    pub error: Error,
    /// The new name of the file.
    pub name: PathBuf,
}

impl SetAside {
    /// Returns the names `PATH.aside-1` to `PATH.aside-100`, for [`Options::open_or_replace`].
    pub fn names(path: &Path) -> impl Iterator<Item = PathBuf> + use<> {
        let path = path.as_os_str().to_owned();
        (1..=100).map(move |number| {
            let mut name = path.clone();
            name.push(format!(".aside-{number}"));
            name.into()
        })
    }
}

impl Options {
    /// Returns the defaults. `contents` creates the contents of each opened segment.
    pub(crate) fn with_contents(contents: fn() -> Arc<dyn Contents>) -> Self {
        Self {
            limit: DEFAULT_LIMIT,
            size: 0,
            unmarked: false,
            access: Access::Exclusive,
            mode: DEFAULT_MODE,
            group: None,
            lock_timeout: DEFAULT_LOCK_TIMEOUT,
            readings: None,
            contents,
        }
    }

    /// Sets the limit in bytes for the growth of a new file, at most 1 TiB. Each process that opens
    /// the file reserves this much address space. An existing file keeps its limit.
    pub fn limit(mut self, bytes: u64) -> Self {
        self.limit = bytes;
        self
    }

    /// Sets the initial size of a new file in bytes. With this, you notice a full disk when you
    /// create the file, instead of later.
    pub fn size(mut self, bytes: u64) -> Self {
        self.size = bytes;
        self
    }

    /// Leaves the contents of an existing file unchanged until you call [`Segment::mark_open`] or
    /// open a family. Use this if you may still find that you cannot use the file. A file that is
    /// too short after a power loss is extended even so. This has no effect with
    /// [`Options::shared`].
    pub fn unmarked(mut self) -> Self {
        self.unmarked = true;
        self
    }

    /// Lets other processes open the file at the same time if they share it, too. All processes
    /// count in the same cells.
    pub fn shared(mut self) -> Self {
        self.access = Access::Shared;
        self
    }

    /// Sets the permission bits of a new file, regardless of the umask; the default is 0600. An
    /// existing file keeps its bits.
    ///
    /// Choose them with care: a process that can read the file can also hold locks on it, which
    /// keeps others from opening it or from adding series. A process that can write the file can
    /// change every count.
    pub fn mode(mut self, bits: u32) -> Self {
        self.mode = bits;
        self
    }

    /// Sets the group ID of a new file. This must be a group of your process, unless the process is
    /// privileged. An existing file keeps its group.
    pub fn group(mut self, group: u32) -> Self {
        self.group = Some(group);
        self
    }

    /// Sets how long opening waits while another process holds the file's lock to validate the
    /// file; the default is 10 seconds. An exclusive file is waited for at most 3 seconds, because
    /// only a guest, a process that validates the file, or one that is ending can release it.
    pub fn lock_timeout(mut self, timeout: Duration) -> Self {
        self.lock_timeout = timeout;
        self
    }

    /// Sets the readings of the clocks, so you can inject time.
    #[doc(hidden)]
    pub fn readings(mut self, readings: Readings) -> Self {
        self.readings = Some(readings);
        self
    }

    /// Opens the file at `path`, or creates it if it does not exist, and locks it for this process.
    ///
    /// # Errors
    /// If the file is not a segment, is damaged, uses another layout version, or is held by another
    /// process. Such a file is not changed. Also fails for a directory, on a full disk, or if the
    /// file cannot be written. The [`Error`] explains the reason and the way out.
    #[cfg(unix)]
    pub fn open_or_create(&self, path: impl AsRef<Path>) -> Result<Segment, Error> {
        let none = |_: &Error| None::<std::iter::Empty<PathBuf>>;
        self.open_or_replace(path, none).map(|(segment, _)| segment)
    }

    /// Like [`Options::open_or_create`], but can replace a file that is refused. If no process is
    /// using the file and `names` returns names for the error, the file is renamed to the first
    /// free name, and a new file is created. Also returns the renamed file.
    ///
    /// The file stays locked throughout. If many processes open it at the same time, one of them
    /// renames it, and all of them open the new file.
    ///
    /// # Errors
    /// Returns the errors of [`Options::open_or_create`] and of renaming.
    #[cfg(unix)]
    #[doc(hidden)]
    pub fn open_or_replace<N: Iterator<Item = PathBuf>>(
        &self,
        path: impl AsRef<Path>,
        names: impl Fn(&Error) -> Option<N>,
    ) -> Result<(Segment, Option<SetAside>), Error> {
        let path = path.as_ref();
        let deadline = LockDeadline::after(self.lock_timeout);
        let mut aside = None;
        // Retry, because others may create, rename or remove the file between two attempts.
        for _ in 0..ATTEMPTS {
            match self.open_existing(path, deadline, &names)? {
                OpenOutcome::Segment(segment) => return Ok((*segment, aside)),
                OpenOutcome::SetAside(renamed) => aside = Some(renamed),
                OpenOutcome::Missing => {}
            }
            if let Some(segment) = self.create_new(path)? {
                return Ok((segment, aside));
            }
        }
        let message = match path.read_link() {
            Ok(target) => format!(
                "it is a symbolic link to {}, which does not exist; name that file, or remove the \
                 link",
                printable(&path.parent().unwrap_or(Path::new("")).join(target))
            ),
            Err(_) => {
                "other processes create and remove it all the time; stop them, or name another \
                       file"
                    .into()
            }
        };
        Err(Error::new(Some(path), ErrorKind::Request(message)))
    }

    /// Opens the file at `path`, and never creates one.
    ///
    /// # Errors
    /// Returns the errors of [`Options::open_or_create`], and an error if the file does not exist.
    #[cfg(unix)]
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Segment, Error> {
        let path = path.as_ref();
        let none = |_: &Error| None::<std::iter::Empty<PathBuf>>;
        match self.open_existing(path, LockDeadline::after(self.lock_timeout), &none)? {
            OpenOutcome::Segment(segment) => Ok(*segment),
            OpenOutcome::Missing | OpenOutcome::SetAside(_) => {
                let message = "there is no such file; name one that exists";
                Err(Error::new(Some(path), ErrorKind::Request(message.into())))
            }
        }
    }

    /// Opens a file as a guest of the processes that share it. Use this, for example, in a tool
    /// that records another program's segment. This waits for no process, and a file accepts only
    /// one guest at a time. If no process is using the file, or one holds it exclusively, the file
    /// is refused and not changed, so a guest never needs to validate and mend it. Drop the segment
    /// when your process [is the last](Segment::is_last) one.
    ///
    /// `file` must be open for reading and writing; `path` is its name, for messages and for
    /// [`Segment::check_file`].
    ///
    /// # Errors
    /// [`ErrorKind::NotOpen`], [`ErrorKind::Locked`], [`ErrorKind::Joined`], and the errors of
    /// [`Options::open`]. On a system without locks of open file descriptions, every file is
    /// refused, because no process counts as present.
    #[cfg(unix)]
    #[doc(hidden)]
    pub fn join(&self, path: impl AsRef<Path>, file: std::fs::File) -> Result<Segment, Error> {
        let path = path.as_ref();
        check_endian(path)?;
        let options = self.clone().shared();
        let segment = options.inspect_locked(path, LockedFile::join(path, file)?)?;
        options.finish(segment, LockDeadline::after(self.lock_timeout))
    }

    #[cfg(unix)]
    fn open_existing<N: Iterator<Item = PathBuf>>(
        &self,
        path: &Path,
        deadline: LockDeadline,
        names: &impl Fn(&Error) -> Option<N>,
    ) -> Result<OpenOutcome, Error> {
        check_endian(path)?;
        loop {
            let Some(locked) = LockedFile::open(path, self.access, deadline)? else {
                return Ok(OpenOutcome::Missing);
            };
            let may_be_first = !locked.is_first && deadline.may_be_freed(&locked.file);
            match self.open_locked(path, locked, deadline, names) {
                // If only a guest is using the file, this process can rename the file once the
                // guest leaves.
                Err(error) if may_be_first && names(&error).is_some() => deadline.wait(path)?,
                opened => return opened,
            }
        }
    }

    #[cfg(unix)]
    fn open_locked<N: Iterator<Item = PathBuf>>(
        &self,
        path: &Path,
        locked: LockedFile,
        deadline: LockDeadline,
        names: &impl Fn(&Error) -> Option<N>,
    ) -> Result<OpenOutcome, Error> {
        // A clone shares the open file description, and so keeps the lock even if the segment is
        // refused and dropped.
        let locked_file = if locked.is_first { locked.file.try_clone().ok() } else { None };
        let length = locked_file
            .as_ref()
            .and_then(|locked_file| locked_file.metadata().ok())
            .map(|data| data.len());
        let inspected = self.inspect_locked(path, locked).inspect_err(|_| {
            // Undo an extension: a power loss may have left the file too short, and inspection
            // extends it.
            if let (Some(locked_file), Some(length)) = (&locked_file, length)
                && locked_file.metadata().is_ok_and(|data| data.len() > length)
            {
                let _ = locked_file.set_len(length);
            }
        });
        match inspected.and_then(|segment| self.finish(segment, deadline)) {
            Ok(segment) => Ok(OpenOutcome::Segment(Box::new(segment))),
            Err(error) => match (locked_file, names(&error)) {
                (Some(locked_file), Some(names)) => {
                    let name = file::set_aside(path, &locked_file, names)?;
                    Ok(OpenOutcome::SetAside(SetAside { error, name }))
                }
                _ => Err(error),
            },
        }
    }

    #[cfg(unix)]
    fn inspect_locked(&self, path: &Path, locked: LockedFile) -> Result<Segment, Error> {
        let is_first = locked.is_first;
        let (file, header) = MappedFile::open(path, locked)?;
        let readings = self.now();
        let region = Region::mapped(file, header.size, header.limit);
        // An interrupted growth can leave bytes beyond the size in the header.
        let dirty = match region.file() {
            Some(file) => {
                file.ensure_allocated(header.size, is_first, header.is_torn(readings.boot))?
            }
            None => header.size,
        };
        check_records(&region).map_err(|kind| Error::new(Some(path), kind))?;
        let found = InitialState::from_header(&header, readings.boot);
        let seen = anchor_cells(&region).seen_time.load(Ordering::Relaxed);
        let (anchor, rebooted) = if is_first {
            anchor_cells(&region).resume(&readings)
        } else {
            // A process that is present has stored the anchor of this boot.
            (anchor_cells(&region).current(), false)
        };
        let torn = rebooted && !header.clean;
        let seen = if rebooted { seen } else { u64::MAX };
        let boot = readings.boot;
        let shared = SharedFile::new(self.access, is_first);
        let region = Arc::new(region);
        let contents = (self.contents)();
        let jobs = [].into();
        let mut segment =
            Segment { region, anchor, boot, found, torn, seen, dirty, shared, contents, jobs };
        if is_first {
            segment.jobs = segment.contents.inspect(&segment)?.into();
        }
        Ok(segment)
    }

    #[cfg(unix)]
    fn finish(&self, segment: Segment, deadline: LockDeadline) -> Result<Segment, Error> {
        if !self.unmarked || self.access == Access::Shared {
            segment.mark_open()?;
        }
        segment.be_present(deadline)?;
        Ok(segment)
    }

    #[cfg(unix)]
    fn create_new(&self, path: &Path) -> Result<Option<Segment>, Error> {
        let fail = |reason| Error::new(Some(path), ErrorKind::Request(reason));
        let size = self.size.max(HEADER_BYTES).checked_next_multiple_of(LINE_BYTES);
        let Some(size) = size.filter(|&size| size <= self.limit && self.limit <= MAX_LIMIT) else {
            return Err(fail(format!(
                "a size of {} bytes and a limit of {} contradict each other; \
                 the limit must be at least the size, and at most {MAX_LIMIT}",
                self.size, self.limit
            )));
        };
        let readings = self.now();
        let head = header(size, self.limit, &readings);
        if self.mode & !0o777 != 0 {
            let message =
                format!("the mode {:o} has more than permission bits; use 0 to 777", self.mode);
            return Err(fail(message));
        }
        let rights = Rights { mode: self.mode, group: self.group };
        let Some(file) = MappedFile::create(path, &head, size, self.limit, rights)? else {
            return Ok(None);
        };
        let region = Region::mapped(file, size, self.limit);
        let segment = Segment::made(region, &readings, self.access, (self.contents)());
        segment.be_present(LockDeadline::after(self.lock_timeout))?;
        Ok(Some(segment))
    }

    fn now(&self) -> Readings {
        self.readings.unwrap_or_else(Readings::now)
    }
}

#[cfg(unix)]
fn check_endian(path: &Path) -> Result<(), Error> {
    if cfg!(target_endian = "big") {
        let message = "segment files are little-endian, and this machine is big-endian; use \
                    memory without a file";
        return Err(Error::new(Some(path), ErrorKind::Request(message.into())));
    }
    Ok(())
}

/// The outcome of opening a file.
#[cfg(unix)]
enum OpenOutcome {
    Segment(Box<Segment>),
    Missing,
    SetAside(SetAside),
}

const DEFAULT_LIMIT: u64 = 256 << 20;
const DEFAULT_MODE: u32 = 0o600;
pub(super) const DEFAULT_LOCK_TIMEOUT: Duration = Duration::from_secs(10);
/// The number of attempts to open a file while other processes create and rename it.
#[cfg(unix)]
const ATTEMPTS: usize = 8;
