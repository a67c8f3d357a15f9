//! Records. A record is reserved as a [`Draft`], which only its owner sees, filled, and published
//! by one store. From then on it is there for good, unless it is that of a family that is freed.

use super::Segment;
use crate::cells::Cells;
use crate::error::Error;
use crate::layout::{Found, Kind, at, record_at};
use crate::list;
use crate::offset::ByteOffset;

/// A record that is not yet published.
#[derive(Debug)]
#[must_use = "dropping a draft without publishing it loses its space"]
pub struct Draft {
    pub(super) segment: Segment,
    pub(super) record: Record,
}

impl Draft {
    /// Its cells: zeroed, unless the record was another family's.
    pub fn cells(&self) -> &Cells {
        &self.record.cells
    }

    /// Writes its cells to the disk, and waits for it: publishing then has little to wait for.
    pub(crate) fn sync(&self) -> Result<(), Error> {
        let Found { offset, length, .. } = self.record.found;
        self.segment.sync_range(offset..offset + length)
    }

    /// Makes the record visible to everything that walks the segment, now and after a restart. The
    /// current contents of its cells are written to the disk first, so that no power loss shows the
    /// record without them. The link that makes it visible reaches the disk with the next sync, or
    /// when the system writes it.
    ///
    /// # Errors
    /// The errors of the disk, if the segment lies in a file.
    pub fn publish(self) -> Result<Record, Error> {
        let region = &self.segment.region;
        let Found { offset, length, .. } = self.record.found;
        let root = region.cell(at::ROOT);
        let next = region.cell(ByteOffset::new(offset + record_at::NEXT));
        list::push(root, next, offset, || self.segment.sync_range(offset..offset + length))?;
        Ok(self.record)
    }
}

/// A published record.
#[derive(Debug, Clone)]
pub struct Record {
    pub(super) found: Found,
    pub(super) cells: Cells,
}

impl Record {
    /// The kind of the record.
    pub fn kind(&self) -> Kind {
        self.found.kind
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.found.name
    }

    /// The byte offset of its first cell.
    pub(crate) fn offset(&self) -> ByteOffset {
        self.found.cells()
    }

    /// Its cells: the number that was requested, rounded up to whole cache lines.
    pub fn cells(&self) -> &Cells {
        &self.cells
    }
}
