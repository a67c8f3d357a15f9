//! Opening a segment whose records are families of series: the public constructors. The segment
//! itself knows nothing of families; it gets their checks here, as its [`Contents`].

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
    /// The defaults: a limit of 256 MiB, no size in advance, mode 0600, not shared.
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
    /// as it is used.
    ///
    /// # Errors
    /// A limit too small for a header or over 1 TiB, and memory that the system refuses.
    pub fn private(limit: u64) -> Result<Self, Error> {
        Self::in_private_memory(limit, contents())
    }

    /// Returns a segment of at most `limit` bytes in memory, shared with the children that this
    /// process forks afterwards, and with their children. All count in the same cells. The memory
    /// is released with the last of them. It needs no writable directory.
    ///
    /// Memory is allocated as the segment grows, and at once for each growth, so that no write
    /// fails for lack of it.
    ///
    /// # Errors
    /// A limit too small for a header or over 1 TiB, and a system without such memory: only Linux
    /// has it.
    #[cfg(unix)]
    pub fn anonymous(limit: u64) -> Result<Self, Error> {
        Self::in_shared_memory(limit, contents())
    }

    /// Returns a copy of an open file in private memory, as the file is now: a reader of files in
    /// which other processes count needs no lock that they wait for, and writes nothing into the
    /// file. Of these processes, the copy knows which live. `path` is for messages.
    ///
    /// The copy is read and not mapped: a file that is cut meanwhile is an error. Counts that are
    /// added meanwhile may be missing. What is counted in the copy stays there, as far as a walk
    /// does not read it from the file again, because it moved while the file was copied.
    ///
    /// A walk over a family of the copy shows what one in a process that has the file open would
    /// show. A series that changes again and again while it is read is left out, and
    /// [counted](Segment::left_out). A lookup by labels may miss a series that is just being made.
    ///
    /// A copy is for one walk over each family, or a few: what is read of a file is bounded in all,
    /// whatever is in it, and what comes after that is left out.
    ///
    /// # Errors
    /// What [`Options::open`] refuses, a file with more than `most` bytes in use, and the system's.
    #[cfg(unix)]
    pub fn copy_of(path: &Path, file: &std::fs::File, most: u64) -> Result<Self, Error> {
        Self::copied(path, file, most, contents, Steps::NONE)
    }

    /// As [`Segment::copy_of`], for tests: one word at a time, and `before` is called before each,
    /// with the number of the pass and the offset.
    #[cfg(unix)]
    #[doc(hidden)]
    pub fn copy_by_words(
        path: &Path,
        file: &std::fs::File,
        before: &mut dyn FnMut(usize, u64),
    ) -> Result<Self, Error> {
        Self::copied(path, file, u64::MAX, contents, Steps::words(before, None))
    }

    /// As [`Segment::copy_by_words`], but only about `budget` words are read again.
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
    /// Those of [`Options::open_or_create`].
    #[cfg(unix)]
    pub fn open_or_create(path: impl AsRef<Path>) -> Result<Self, Error> {
        Options::new().open_or_create(path)
    }
}
