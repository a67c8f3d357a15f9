//! Reads a segment file from outside, for example after a crash or while a process uses the file.
//! This module changes and locks no part of the file, and trusts none of its bytes, so you can also
//! give it a damaged file.
//!
//! [`Inspection::of_file`] reads the header, the records and the descriptions of all families.
//! [`Inspection::series`] then reads the series of one family, and [`Inspection::history`] the
//! ticks of the flight recorder. Every offset is compared with the length of the file, and every
//! loop is bounded. A contradiction with the layout ends up in [`Report::damage`], with the byte
//! where trust ends.
//!
//! The numbers of a file in use are from different moments, and a series may be read with the cells
//! of a series that used them before. Use [`Inspection::of_copy`] for such a file: it reads a copy
//! where all cells of a series are its own.
//!
//! `docs/formats.md` draws the layout. Only the layer above this crate knows the meaning of a
//! series' cells.

mod copied;
mod families;
mod history;
mod owners;
mod records;
mod source;

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

pub use families::{FamilySeen, SeriesSeen};
pub use owners::Owner;
pub use records::{HeaderSeen, RecordSeen};

use crate::file::read_up_to;
use crate::layout::{HEADER_BYTES, MAGIC, MAX_LIMIT, Words, at};
use crate::presence;
use source::Source;

/// An open file with the report on its contents.
pub struct Inspection {
    source: Source,
    file: Option<File>,
    report: Report,
}

impl std::fmt::Debug for Inspection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inspection").field("report", &self.report).finish_non_exhaustive()
    }
}

/// The contents of a file.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// The length of the file in bytes.
    pub length: u64,
    /// The header; `None` if the file is too short.
    pub header: Option<HeaderSeen>,
    /// The records that are not families, oldest first.
    pub records: Vec<RecordSeen>,
    /// The families, in the order in which they were made.
    pub families: Vec<FamilySeen>,
    /// The processes that the file names, with the locks and claims they hold.
    pub owners: Vec<Owner>,
    /// Whether a process is using the file; `None` if that cannot be determined.
    pub is_open: Option<bool>,
    /// Bytes of claims.
    pub claim_bytes: u64,
    /// The contradictions with the layout.
    pub damage: Vec<Damage>,
}

/// A contradiction with the layout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The byte of the contradiction.
    pub at: u64,
    /// The contradiction, and the consequence, such as a skipped family.
    pub message: String,
    /// Whether the file is shorter than its header requires.
    pub is_truncation: bool,
}

/// Returns whether a process is using this file as a segment; `None` if that cannot be determined.
/// Takes no lock.
pub fn is_open(file: &File) -> Option<bool> {
    presence::is_present(file).ok()
}

/// Returns the bytes in use, read from the header; `None` if the file is not a segment.
pub fn bytes_in_use(file: &File) -> Option<u64> {
    let mut head = [0; HEADER_BYTES as usize];
    let filled = read_up_to(file, &mut head, 0).ok()?;
    (filled == head.len() && head.starts_with(&MAGIC)).then(|| head[..].word(at::CURSOR))
}

/// The maximum number of contradictions that a report lists.
const MAX_DAMAGE: usize = 1000;

impl Report {
    fn add_damage(&mut self, at: u64, message: impl Into<String>) {
        if self.damage.len() < MAX_DAMAGE {
            self.damage.push(Damage { at, message: message.into(), is_truncation: false });
        }
    }

    /// Returns the bytes in use that no family, record or claim accounts for: exemplars,
    /// exponential buckets, and records that a process began to write before it died.
    pub fn other_bytes(&self) -> u64 {
        let Some(header) = &self.header else { return 0 };
        let records: u64 = self.records.iter().map(|record| record.bytes).sum();
        let families = self.families.iter().map(FamilySeen::bytes).sum::<u64>();
        let known = crate::HEADER_BYTES + records + families + self.claim_bytes;
        header.used.saturating_sub(known)
    }
}

impl Inspection {
    /// Reads the header, the records and the families of a file.
    ///
    /// # Errors
    /// If the file cannot be opened for reading, or is not a regular file.
    pub fn of_file(path: &Path) -> io::Result<Self> {
        Self::on_file(open_regular(path)?)
    }

    fn on_file(file: File) -> io::Result<Self> {
        let length = file.metadata()?.len();
        let source = Source::new(Box::new(file.try_clone()?), length.min(MAX_LIMIT));
        Ok(Self::new(source, Some(file), length))
    }

    /// Reads bytes that were taken from a file, for example a part of a core dump.
    pub fn of_bytes(bytes: Vec<u8>) -> Self {
        let length = bytes.len() as u64;
        Self::new(Source::new(Box::new(bytes), length), None, length)
    }

    fn new(source: Source, file: Option<File>, length: u64) -> Self {
        let report = Report { length, ..Report::default() };
        let mut inspection = Self { source, file, report };
        inspection.read();
        inspection
    }

    /// Returns the report on the file.
    pub fn report(&self) -> &Report {
        &self.report
    }

    fn read(&mut self) {
        let Self { source, file, report } = self;
        if let Some(found) = records::read(source, report) {
            for record in found {
                match record.kind == crate::series::family::FAMILY {
                    true => families::read(source, &record, report),
                    false => report.records.push(RecordSeen::from_header(&record)),
                }
            }
            owners::read(source, file.as_ref(), report);
        }
        if source.has_failed() {
            report.add_damage(0, "the system cannot read all of its bytes: they count as zeros");
        }
    }

    /// Calls `visit` with the series of a family, including hidden ones, in the order of the file.
    /// Returns the contradictions with the layout.
    pub fn series(&self, family: &FamilySeen, visit: impl FnMut(&SeriesSeen<'_>)) -> Vec<Damage> {
        self.source.refill();
        family.visit(&self.source, false, visit).damage
    }

    /// Like [`Inspection::series`], for a family whose first cell works as a sequence number for
    /// the others: if the number is the same before and after you read the other cells, they belong
    /// together. A series of a copy that cannot be read this way is skipped.
    pub fn series_that_settle(
        &self,
        family: &FamilySeen,
        visit: impl FnMut(&SeriesSeen<'_>),
    ) -> Vec<Damage> {
        self.source.refill();
        family.visit(&self.source, true, visit).damage
    }

    /// Returns whether the process of a token lives; `None` if that cannot be determined.
    pub fn is_alive(&self, token: u64) -> Option<bool> {
        owners::is_alive(self.file.as_ref(), token)
    }
}

/// Opens a path for reading if it is a regular file. Opening a pipe, for example, would block until
/// another process opens it, too. The check looks at the opened file, because a path can name
/// another file at any time.
///
/// # Errors
/// Returns the system's errors, and an error if the file is not regular.
#[doc(hidden)]
pub fn open_regular(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    Ok(file)
}
