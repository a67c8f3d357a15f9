//! A copy of a file that a process is using. The copy shows each series as that process sees it:
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

/// A copy of a segment; its origin is the file.
pub(super) struct SegmentCopy {
    segment: Segment,
    /// The origin's count of repeated reads when the current series was begun.
    readings: Cell<u64>,
}

impl Inspection {
    /// Like [`Inspection::of_file`], but if a process has the file open, this reads a copy made by
    /// [`Segment::copy_of`]. A file that is damaged, or has more than `most` bytes in use, is read
    /// without a copy.
    ///
    /// # Errors
    /// Returns the errors of [`Inspection::of_file`].
    pub fn of_copy(path: &Path, most: u64) -> std::io::Result<Self> {
        Self::of_open_copy(path, super::open_regular(path)?, most)
    }

    /// Like [`Inspection::of_copy`], for a regular file that you opened for reading. `path` is its
    /// name for messages.
    ///
    /// # Errors
    /// Returns the system's errors.
    pub fn of_open_copy(path: &Path, file: File, most: u64) -> std::io::Result<Self> {
        if presence::is_present(&file).unwrap_or(true)
            && let Ok(copy) = Segment::copy_of(path, &file, most)
        {
            return Self::on_copy(&file, copy);
        }
        Self::on_file(file)
    }

    /// Reads the contents of the copy of a file.
    ///
    /// # Errors
    /// Returns the system's errors.
    #[doc(hidden)]
    pub fn on_copy(file: &File, copy: Segment) -> std::io::Result<Self> {
        let length = file.metadata()?.len();
        let copied = SegmentCopy { segment: copy, readings: Cell::new(0) };
        let source = Source::of_copy(copied, length.min(MAX_LIMIT));
        Ok(Self::new(source, Some(file.try_clone()?), length))
    }

    /// Returns whether this inspection reads a copy.
    pub fn is_copy(&self) -> bool {
        self.source.copied().is_some()
    }

    /// Returns the number of series of a copy that are not shown: see [`Segment::omitted`]. The
    /// number grows while you read the families, because a series is counted when it is met.
    pub fn omitted(&self) -> u64 {
        self.source.copied().map_or(0, |copied| copied.segment.omitted())
    }
}

impl SegmentCopy {
    fn origin(&self) -> &Origin {
        self.segment.region.origin().expect("it was made as a copy")
    }

    /// Returns a word of the copy, or of the file's header; 0 if the copy does not contain the
    /// word.
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

    /// Returns the end of the copy in bytes.
    pub(super) fn end(&self) -> u64 {
        self.segment.region.limit()
    }

    /// Returns whether a family is hidden, because it did not settle.
    pub(super) fn is_hidden(&self, family: &FamilySeen) -> bool {
        self.origin().is_hidden(family.id())
    }

    pub(super) fn count_omitted(&self, series: u64) {
        self.origin().count_omitted(series);
    }

    /// Remembers the number of repeated reads before a series is read.
    pub(super) fn begin(&self) {
        self.readings.set(self.origin().readings());
    }

    /// Makes the cells of a series consistent, with the first cell as their sequence word. Returns
    /// false if that fails, or if the cells belong to another series by now. This series is then
    /// counted in [`Inspection::omitted`].
    pub(super) fn settle(&self, cells: Range<u64>, is_dense: bool, id: u64) -> bool {
        let origin = self.origin();
        if !origin.moved.any(cells.clone()) {
            return true;
        }
        let key = cells.start..cells.start + 1;
        if !origin.settle(&self.segment.region, cells, key) {
            origin.count_omitted(1);
            return false;
        }
        self.is_whole(is_dense, id)
    }

    fn is_whole(&self, is_dense: bool, id: u64) -> bool {
        let origin = self.origin();
        let is_whole = origin.readings() == self.readings.get()
            || if is_dense { !origin.is_refusing() } else { is_there(origin, id) };
        if !is_whole {
            origin.count_omitted(1);
        }
        is_whole
    }
}

/// Returns whether a series of a keyed family still owns its record in the file.
fn is_there(origin: &Origin, id: u64) -> bool {
    let at = id & u64::from(u32::MAX);
    let meta = origin.words(at..at + 1).and_then(|words| words.first().copied());
    meta.is_some_and(|meta| {
        meta::is_series(meta) && u64::from(meta::generation_of(meta)) == id >> 32
    })
}
