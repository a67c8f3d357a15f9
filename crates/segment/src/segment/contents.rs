//! The interface to the code that knows the meaning of a segment's records.

use std::any::Any;
use std::fmt::Debug;

use super::Segment;
use crate::error::Error;

/// A kind of job to do before a record is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ToDo {
    /// Clears the claims of processes that ended.
    Unclaim,
    /// Mends a change that was left half done, or the damage of a power loss.
    Mend,
    /// Clears the list of freed families. This job concerns no single record.
    Forget,
}

/// A job to do before a record is used.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Job {
    pub(crate) to_do: ToDo,
    /// The offset of the record.
    pub(crate) record: u64,
}

/// The contents of an open segment, which must be checked and mended before use. Each handle that
/// opens a segment gets a new value, which can cache its findings in the records.
pub(crate) trait Contents: Any + Debug + Send + Sync {
    /// Validates the contents without changing them, and returns the jobs to do before they are
    /// used. The first opener calls this after validating the list of records.
    ///
    /// # Errors
    /// A contradiction with the layout. This refuses the file.
    fn inspect(&self, segment: &Segment) -> Result<Vec<Job>, Error>;

    /// Returns the words of a copy that only lookups use, in ascending order. Returns none if the
    /// copy is damaged.
    #[cfg(unix)]
    fn indexes(&self, segment: &Segment) -> Vec<std::ops::Range<u64>>;

    /// Makes a copy consistent where the file moved while it was copied. Called before
    /// [`Contents::inspect`].
    ///
    /// # Errors
    /// A contradiction with the layout.
    #[cfg(unix)]
    fn settle(&self, segment: &Segment) -> Result<(), Error>;

    /// Does these jobs, and clears all claims and the registration lock. The first opener calls
    /// this before it counts, while no other process is using the file.
    ///
    /// # Errors
    /// If something cannot be mended. Also returns the errors of the disk.
    fn mend(&self, segment: &Segment, jobs: &[Job]) -> Result<(), Error>;
}
