//! The copy of a file that a process has open, which shows each series as such a process sees it:
//! see `segment/copy.rs`.

use std::cell::Cell;
use std::fs::File;
use std::ops::Range;
use std::path::Path;

use super::Inspection;
use super::families::FamilySeen;
use super::source::Source;
use crate::layout::{HEADER_BYTES, MAX_LIMIT};
use crate::offset::ByteOffset;
use crate::origin::Origin;
use crate::presence;
use crate::segment::Segment;
use crate::series::meta;
use crate::sync::Ordering;

/// A copy, and the file that it is a copy of.
pub(super) struct SegmentCopy {
    segment: Segment,
    /// How often words were read again when the last series was come to.
    readings: Cell<u64>,
}

impl Inspection {
    /// As [`Inspection::of_file`], but of a file that a process has open, it reads a copy, as
    /// [`Segment::copy_of`] does. A file that is damaged, or that has more than `most` bytes in
    /// use, is read as it is.
    ///
    /// # Errors
    /// Those of [`Inspection::of_file`].
    pub fn of_copy(path: &Path, most: u64) -> std::io::Result<Self> {
        Self::of_open_copy(path, super::open_regular(path)?, most)
    }

    /// As [`Inspection::of_copy`], of a regular file that is open for reading. `path` is its name,
    /// for messages.
    ///
    /// # Errors
    /// Those of the system.
    pub fn of_open_copy(path: &Path, file: File, most: u64) -> std::io::Result<Self> {
        if presence::is_present(&file).unwrap_or(true)
            && let Ok(copy) = Segment::copy_of(path, &file, most)
        {
            return Self::on_copy(&file, copy);
        }
        Self::on_file(file)
    }

    /// Reads what the copy of a file holds.
    ///
    /// # Errors
    /// Those of the system.
    #[doc(hidden)]
    pub fn on_copy(file: &File, copy: Segment) -> std::io::Result<Self> {
        let length = file.metadata()?.len();
        let copied = SegmentCopy { segment: copy, readings: Cell::new(0) };
        let source = Source::of_copy(copied, length.min(MAX_LIMIT));
        Ok(Self::new(source, Some(file.try_clone()?), length))
    }

    /// Whether it reads a copy.
    pub fn is_copy(&self) -> bool {
        self.source.copied().is_some()
    }

    /// The series of a copy that are not shown: see [`Segment::left_out`]. It counts them as they
    /// are met.
    pub fn left_out(&self) -> u64 {
        self.source.copied().map_or(0, |copied| copied.segment.left_out())
    }
}

impl SegmentCopy {
    fn origin(&self) -> &Origin {
        self.segment.region.origin().expect("it was made as a copy")
    }

    /// A word of the copy; 0 if it is not there. The header is that of the file.
    #[inline]
    pub(super) fn at(&self, word: u64) -> u64 {
        if word < HEADER_BYTES / 8 {
            return self.origin().head(word);
        }
        let region = &self.segment.region;
        match word.checked_mul(8).filter(|at| at + 8 <= region.limit()) {
            Some(at) => region.cell(ByteOffset::new(at)).load(Ordering::Relaxed),
            None => 0,
        }
    }

    /// Where its words end.
    pub(super) fn end(&self) -> u64 {
        self.segment.region.limit()
    }

    /// Whether a family is not shown, since it did not settle.
    pub(super) fn is_hidden(&self, family: &FamilySeen) -> bool {
        self.origin().is_hidden(family.id())
    }

    pub(super) fn leave_out(&self, series: u64) {
        self.origin().leave_out(series);
    }

    /// Begins to read a series.
    pub(super) fn begin(&self) {
        self.readings.set(self.origin().readings());
    }

    /// Makes cells consistent for which the first word vouches. Returns false, and counts the
    /// series, if that fails, or if they are another one's by now.
    pub(super) fn settle(&self, cells: Range<u64>, is_dense: bool, id: u64) -> bool {
        let origin = self.origin();
        if !origin.moved.any(cells.clone()) {
            return true;
        }
        let key = cells.start..cells.start + 1;
        if !origin.settle(&self.segment.region, cells, key) {
            origin.leave_out(1);
            return false;
        }
        self.is_whole(is_dense, id)
    }

    fn is_whole(&self, is_dense: bool, id: u64) -> bool {
        let origin = self.origin();
        let is_whole = origin.readings() == self.readings.get()
            || if is_dense { !origin.is_refusing() } else { is_there(origin, id) };
        if !is_whole {
            origin.leave_out(1);
        }
        is_whole
    }
}

/// Whether a series of a family that is not dense still has its record in the file.
fn is_there(origin: &Origin, id: u64) -> bool {
    let at = id & u64::from(u32::MAX);
    let meta = origin.words(at..at + 1).and_then(|words| words.first().copied());
    meta.is_some_and(|meta| {
        meta::is_series(meta) && u64::from(meta::generation_of(meta)) == id >> 32
    })
}
