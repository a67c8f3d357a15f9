//! Records. You reserve a record as a [`Draft`], which only you can see, fill it, and publish it
//! with one store. A published record stays forever, unless it belongs to a family that is freed.

use super::Segment;
use crate::cells::Cells;
use crate::error::Error;
use crate::layout::{Kind, RecordHeader, at, record_at};
use crate::list;
use crate::offset::{ByteOffset, CELL_BYTES};
use crate::sync::Ordering;

/// A record that is not published yet.
#[derive(Debug)]
#[must_use = "dropping a draft without publishing it loses its space"]
pub struct Draft {
    pub(super) segment: Segment,
    pub(super) record: Record,
}

impl Draft {
    /// Returns the cells. They are zeroed, unless the record belonged to another family before.
    pub fn cells(&self) -> &Cells {
        &self.record.cells
    }

    /// Links the draft to the newest record, which is returned, and syncs it to the disk. After
    /// this, [`Draft::publish_before`] need not wait.
    pub(crate) fn prepare(&self) -> Result<u64, Error> {
        let region = &self.segment.region;
        let RecordHeader { offset, length, .. } = self.record.found;
        let newest = region.cell(at::ROOT).load(Ordering::Relaxed);
        region.cell(ByteOffset::new(offset + record_at::NEXT)).store(newest, Ordering::Relaxed);
        self.segment.sync_range(offset..offset + length)?;
        Ok(newest)
    }

    /// Makes the record visible like [`Draft::publish`], but without a sync. Returns `None` if the
    /// record that [`Draft::prepare`] returned is not the newest any more.
    pub(crate) fn publish_before(&self, newest: u64) -> Option<Record> {
        let root = self.segment.region.cell(at::ROOT);
        list::push_before(root, newest, self.record.found.offset).then(|| self.record.clone())
    }

    /// Returns the reserved bytes to the segment. If other bytes were allocated after them, the
    /// bytes are lost. No thread may use the cells any more.
    pub(crate) fn give_back(self) {
        let region = &self.segment.region;
        let RecordHeader { offset, length, .. } = self.record.found;
        let end = offset + length;
        for at in (offset..end).step_by(CELL_BYTES as usize) {
            let cell = region.cell(ByteOffset::new(at));
            if cell.load(Ordering::Relaxed) != 0 {
                cell.store(0, Ordering::Relaxed);
            }
        }
        // Release: the next thread that allocates the bytes finds zeros.
        let cursor = region.cell(at::CURSOR);
        let _ = cursor.compare_exchange(end, offset, Ordering::Release, Ordering::Relaxed);
    }

    /// Makes the record visible to every walk of the segment, now and after a restart. This syncs
    /// the cells first, so that a power loss cannot show the record without its contents. The link
    /// that makes the record visible reaches the disk with the next sync, or when the system writes
    /// it.
    ///
    /// # Errors
    /// Returns the errors of the disk, if the segment is in a file.
    pub fn publish(mut self) -> Result<Record, Error> {
        let region = &self.segment.region;
        let RecordHeader { offset, length, .. } = self.record.found;
        let root = region.cell(at::ROOT);
        let next = region.cell(ByteOffset::new(offset + record_at::NEXT));
        let sync = || self.segment.sync_range(offset..offset + length);
        self.record.found.next = list::push(root, next, offset, sync)?;
        Ok(self.record)
    }
}

/// A published record.
#[derive(Debug, Clone)]
pub struct Record {
    pub(super) found: RecordHeader,
    pub(super) cells: Cells,
}

impl Record {
    /// Returns the kind of the record.
    pub fn kind(&self) -> Kind {
        self.found.kind
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.found.name
    }

    /// Returns the byte offset of its first cell.
    pub(crate) fn offset(&self) -> ByteOffset {
        self.found.cells()
    }

    /// Returns the offset of the record before this one, at the time of publishing or reading; 0 if
    /// there was none.
    pub(crate) fn next(&self) -> u64 {
        self.found.next
    }

    /// Returns its cells: the requested number, rounded up to whole cache lines.
    pub fn cells(&self) -> &Cells {
        &self.cells
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const KIND: Kind = Kind::new(*b"TEST", 1);

    #[test]
    fn returned_bytes_are_zeros_for_the_next_record() {
        let segment = Segment::private(1 << 16).unwrap();
        let used = segment.used();
        let draft = segment.reserve(KIND, "a", 100).unwrap();
        draft.cells()[99].store(7, Ordering::Relaxed);
        draft.prepare().unwrap();
        draft.give_back();
        assert_eq!(segment.used(), used);
        let first = segment.reserve(KIND, "", 100).unwrap();
        assert!(first.cells().iter().all(|cell| cell.load(Ordering::Relaxed) == 0));
        // Bytes before a later record cannot be returned.
        let second = segment.reserve(KIND, "b", 8).unwrap();
        let used = segment.used();
        first.give_back();
        assert_eq!(segment.used(), used);
        second.publish().unwrap();
        assert_eq!(segment.records().count(), 1);
    }

    #[test]
    fn a_record_that_is_prepared_is_published_before_the_newest_one_alone() {
        let segment = Segment::private(1 << 16).unwrap();
        let draft = segment.reserve(KIND, "a", 8).unwrap();
        let newest = draft.prepare().unwrap();
        segment.reserve(KIND, "b", 8).unwrap().publish().unwrap();
        assert!(draft.publish_before(newest).is_none());
        let newest = draft.prepare().unwrap();
        assert!(draft.publish_before(newest).is_some());
        let names: Vec<String> =
            segment.records().map(|record| record.unwrap().name().to_owned()).collect();
        assert_eq!(names, ["a", "b"]);
    }
}
