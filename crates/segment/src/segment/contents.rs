//! The interface to the code that gives the records of a segment their meaning.

use std::any::Any;
use std::fmt::Debug;

use super::Segment;
use crate::error::Error;

/// What is to be done with a record before it is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ToDo {
    /// To forget how much processes that have ended had claimed.
    Unclaim,
    /// To mend what a change left half done, or what a loss of power destroyed.
    Mend,
    /// To forget the list of freed families, not one record.
    Forget,
}

/// A record with which something is to be done before it is used.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Job {
    pub(crate) to_do: ToDo,
    /// The offset of the record.
    pub(crate) record: u64,
}

/// What the records of an open segment hold: checked and mended before they are used. A new value
/// is made for each handle that opens a segment, and may remember what it found in the records.
pub(crate) trait Contents: Any + Debug + Send + Sync {
    /// Validates the contents, without changing any, and lists what has to be done before they are
    /// used. The process that opens a file first calls this once the list of records is validated.
    ///
    /// # Errors
    /// What contradicts the layout. The file is then refused.
    fn inspect(&self, segment: &Segment) -> Result<Vec<Job>, Error>;

    /// The words of the copy of a file that only lookups use, in ascending order. None if it is
    /// damaged.
    #[cfg(unix)]
    fn indexes(&self, segment: &Segment) -> Vec<std::ops::Range<u64>>;

    /// Makes the copy of a file in use consistent, where it moved while it was copied. Called
    /// before [`Contents::inspect`].
    ///
    /// # Errors
    /// What contradicts the layout.
    #[cfg(unix)]
    fn settle(&self, segment: &Segment) -> Result<(), Error>;

    /// Does these jobs, and forgets all claims and the lock of registration. The process that
    /// opened the file first calls this before it counts, while no other process has the file open.
    ///
    /// # Errors
    /// What cannot be mended, and the errors of the disk.
    fn mend(&self, segment: &Segment, jobs: &[Job]) -> Result<(), Error>;
}
