//! Creates the file of a segment, and sets damaged files aside.
//!
//! A new file is unnamed, or named temporarily, until its header is on the disk. A link then names
//! the file, and fails if the name is taken. Setting a file aside uses a link, too, because a link
//! never replaces another file.

use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD};

use super::{MappedFile, kind_of};
use crate::error::{Error, ErrorKind};
use crate::presence::{cannot_lock, is_at};
use crate::space::{self, allocate, without_size_signal};

impl MappedFile {
    /// Creates the file at `path`, with `size` bytes that begin with `head`. Returns `Ok(None)` if
    /// the name is taken.
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
        let draft = DraftFile::new(directory, path).map_err(fail)?;
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
        // We keep a clone, because it shares the open file description and so the lock while the
        // name is removed.
        let held = draft.file.try_clone();
        // Like the content, the name must survive a power loss.
        let synced = File::open(directory).and_then(|d| d.sync_all()).map_err(fail);
        let mapped = synced.and_then(|()| Self::map(Some(path), draft.file, limit));
        if let (Err(_), Ok(held)) = (&mapped, held)
            && is_at(&held, path).unwrap_or(false)
        {
            // No process has opened this file yet. Remove it, because it would be in the way if the
            // caller tries a smaller file next.
            let _ = std::fs::remove_file(path);
        }
        mapped.map(Some)
    }

    /// Creates an unnamed file in memory, with `size` bytes that begin with `head`. This process
    /// shares it with the children that it forks.
    pub(crate) fn anonymous(head: &[u8], size: u64, limit: u64) -> Result<Self, Error> {
        let file = memory_file()?;
        let fail = |error: io::Error| Error::new(None, kind_of(error, size));
        allocate(&file, 0..size).map_err(fail)?;
        without_size_signal(|| file.write_all_at(head, 0)).map_err(fail)?;
        let mapped = Self::map(None, file, limit)?;
        if mapped.reopen().is_none() {
            // Without a separate lock for each process, no process could check which others live.
            let reason = "a segment without a file needs /proc, through which each process opens \
                        it again; mount /proc, or open a segment in a file";
            return Err(Error::new(None, ErrorKind::Request(reason.into())));
        }
        Ok(mapped)
    }
}

/// The permissions of a new file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rights {
    /// The permission bits; the umask does not change them.
    pub(crate) mode: u32,
    /// The group; `None` for the system's choice.
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
        let reason = format!(
            "it cannot be given the mode {:o}{group} ({error}); ask for another mode or group, or \
             name a file on another file system",
            self.mode
        );
        Error::new(Some(path), ErrorKind::Request(reason))
    }
}

/// Renames a file that this process holds exclusively to the first free name.
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
        // Use a link instead of a rename, because a rename could replace a file of that name.
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

/// An unnamed file, or one with a temporary name.
struct DraftFile {
    file: File,
    temporary: Option<Temporary>,
}

/// A file name that is removed on drop.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        // A file that cannot be removed is small, and its name explains its origin.
        let _ = std::fs::remove_file(&self.0);
    }
}

impl DraftFile {
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
                // This file system does not support unnamed files.
                Err(error) if is_unsupported(&error) => {}
                Err(error) => return Err(error),
            }
        }
        let (file, temporary) = named_anew(directory, path, options.create_new(true))?;
        Ok(Self { file, temporary: Some(Temporary(temporary)) })
    }

    /// Links the file to its name; fails if the name is taken.
    fn name(&self, path: &Path) -> io::Result<()> {
        let source = match &self.temporary {
            Some(temporary) => temporary.0.clone(),
            None => PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd())),
        };
        Ok(rustix::fs::linkat(CWD, &source, CWD, path, AtFlags::SYMLINK_FOLLOW)?)
    }
}

/// Creates a file next to `path` under a free name. A name can be taken because a process was
/// killed, even one with the same process ID, for example in a container that was restarted.
fn named_anew(directory: &Path, path: &Path, options: &OpenOptions) -> io::Result<(File, PathBuf)> {
    let mut number = 0_u32;
    loop {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.{number}.new", std::process::id()));
        let temporary = directory.join(name);
        match options.open(&temporary) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < MAX_LEFT => {
                number += 1;
            }
            result => return Ok((result?, temporary)),
        }
    }
}

/// The maximum number of names to skip because other processes left them.
const MAX_LEFT: u32 = 1000;

#[cfg(target_os = "linux")]
fn is_unsupported(error: &io::Error) -> bool {
    use rustix::io::Errno;
    // A kernel without O_TMPFILE opens the directory for writing, and fails with EISDIR.
    [Errno::OPNOTSUPP, Errno::ISDIR, Errno::INVAL]
        .iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// Returns the directory of `path`.
fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

/// Creates an unnamed file in memory.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn memory_file() -> Result<File, Error> {
    use rustix::fs::MemfdFlags;

    let file = rustix::fs::memfd_create("quipu", MemfdFlags::CLOEXEC).map_err(|error| {
        let reason =
            format!("the system cannot make files in memory ({error}); name a file instead");
        Error::new(None, ErrorKind::Request(reason))
    })?;
    Ok(file.into())
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn memory_file() -> Result<File, Error> {
    let reason = "this system has no files in memory that processes can share; name a file instead";
    Err(Error::new(None, ErrorKind::Request(reason.into())))
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
