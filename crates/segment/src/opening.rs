//! The public constructors of a segment whose records are families of series. The segment itself
//! does not know families; it gets their checks here, as its [`Contents`].

#[cfg(unix)]
use std::path::Path;

use crate::error::Error;
#[cfg(unix)]
use crate::segment::Steps;
use crate::segment::{Contents, Options, Segment};
use crate::series::Names;
use crate::sync::Arc;

fn contents() -> Arc<dyn Contents> {
    Arc::new(Names::default())
}

impl Options {
    /// Returns the defaults: a limit of 256 MiB, no initial size, mode 0600, not shared.
    pub fn new() -> Self {
        Self::with_contents(contents)
    }
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

impl Segment {
    /// Returns a segment of `limit` bytes in private memory. The system provides it page by page,
    /// as you use it.
    ///
    /// # Errors
    /// If the limit is too small for a header or over 1 TiB, or the system refuses the memory.
    pub fn private(limit: u64) -> Result<Self, Error> {
        Self::in_private_memory(limit, contents())
    }

    /// Returns a segment of at most `limit` bytes in memory. You share it with the children that
    /// this process forks afterwards, and with their children: all of them count in the same cells.
    /// The memory is released with the last process. This needs no writable directory.
    ///
    /// Memory is allocated whenever the segment grows, in advance, because a write must not fail
    /// for lack of memory.
    ///
    /// # Errors
    /// If the limit is too small for a header or over 1 TiB, or the system does not support such
    /// memory, which only Linux provides.
    #[cfg(unix)]
    pub fn anonymous(limit: u64) -> Result<Self, Error> {
        Self::in_shared_memory(limit, contents())
    }

    /// Returns a copy of a file in private memory. Use this to read a file where other processes
    /// count: you take no lock that they wait for, and write nothing into the file. The copy knows
    /// which of these processes live. `path` is for messages.
    ///
    /// The file is read and not mapped, so a truncation is an error and not a SIGBUS. Counts that
    /// are added during the copy may be missing. Your own counts stay in the copy, until a walk
    /// reads their words again from the file because they moved during the copy.
    ///
    /// A walk over a family of the copy shows the same as in a process that has the file open. A
    /// series that keeps changing while it is read is skipped and [counted](Segment::omitted). A
    /// lookup by labels can miss a series that is just being created.
    ///
    /// Use a copy for one walk over each family, or for a few. The work on one copy is bounded for
    /// any contents, and the walk skips everything beyond this bound.
    ///
    /// # Errors
    /// Returns the errors of [`Options::open`], and of the system. Also fails if more than `most`
    /// bytes are in use.
    #[cfg(unix)]
    #[doc(hidden)]
    pub fn copy_of(path: &Path, file: &std::fs::File, most: u64) -> Result<Self, Error> {
        Self::copied(path, file, most, contents, Steps::NONE)
    }

    /// Like [`Segment::copy_of`], for tests: reads one word at a time, and calls `before` before
    /// each, with the number of the pass and the offset.
    #[cfg(unix)]
    #[doc(hidden)]
    pub fn copy_by_words(
        path: &Path,
        file: &std::fs::File,
        before: &mut dyn FnMut(usize, u64),
    ) -> Result<Self, Error> {
        Self::copied(path, file, u64::MAX, contents, Steps::words(before, None))
    }

    /// Like [`Segment::copy_by_words`], but only about `budget` words are read again.
    #[cfg(unix)]
    #[doc(hidden)]
    pub fn copy_within(
        path: &Path,
        file: &std::fs::File,
        budget: u64,
        before: &mut dyn FnMut(usize, u64),
    ) -> Result<Self, Error> {
        Self::copied(path, file, u64::MAX, contents, Steps::words(before, Some(budget)))
    }

    /// Opens or creates a file with the default [`Options`].
    ///
    /// # Errors
    /// Returns the errors of [`Options::open_or_create`].
    #[cfg(unix)]
    pub fn open_or_create(path: impl AsRef<Path>) -> Result<Self, Error> {
        Options::new().open_or_create(path)
    }
}
