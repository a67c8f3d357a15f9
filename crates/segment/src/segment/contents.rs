//! The interface to the code that gives the records of a segment their meaning.

use std::any::Any;
use std::fmt::Debug;

use super::Segment;
use crate::error::Error;

/// What the records of an open segment hold: checked and mended before they are used. A new value
/// is made for each handle that opens a segment, and may remember what it found in the records.
pub(crate) trait Contents: Any + Debug + Send + Sync {
    /// Validates the contents, without changing any. The process that opens a file first calls this
    /// once the list of records is validated.
    ///
    /// # Errors
    /// What contradicts the layout. The file is then refused.
    fn inspect(&self, segment: &Segment) -> Result<(), Error>;

    /// Mends the contents. The process that opened the file first calls this before it counts,
    /// while no other process has the file open.
    ///
    /// # Errors
    /// What cannot be mended, and the errors of the disk.
    fn mend(&self, segment: &Segment) -> Result<(), Error>;
}
