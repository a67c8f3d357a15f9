//! Looks into a segment file from outside: of a process that runs, is stopped, or died, also into a
//! file that is damaged. Nothing is changed, locked, or trusted.
//!
//! [`Inspection::of_file`] reads the header, the records and the descriptions of all families.
//! [`Inspection::series`] then reads the series of one. Every offset is compared with the length of
//! the file, every loop has a bound, and what contradicts the layout ends up in
//! [`Report::damage`], with the place where trust ends. [`Inspection::history`] reads what the
//! flight recorder recorded. The numbers of a file that is in use are of
//! different moments, and a series may have cells that another one had: [`Inspection::of_copy`]
//! reads a copy of such a file, in which none has.
//!
//! `docs/formats.md` draws what is read here. The meaning of a series' cells is known to the layer
//! above.

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

/// A file that is being looked into.
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

/// What a file holds.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// The bytes of the file.
    pub length: u64,
    /// The header, if the file has one.
    pub header: Option<HeaderSeen>,
    /// The records that are not families, oldest first.
    pub records: Vec<RecordSeen>,
    /// The families, in the order in which they were made.
    pub families: Vec<FamilySeen>,
    /// The processes that the file names, and what they have there.
    pub owners: Vec<Owner>,
    /// Whether a process has the file open; `None` if that is not known.
    pub is_open: Option<bool>,
    /// Bytes of claims.
    pub claim_bytes: u64,
    /// What contradicts the layout.
    pub damage: Vec<Damage>,
}

/// A contradiction in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The byte at which it lies.
    pub at: u64,
    /// What is wrong there, and what was left out because of it.
    pub message: String,
}

/// Whether a process has that file open as a segment; `None` if that is not known. It takes no
/// lock.
pub fn is_open(file: &File) -> Option<bool> {
    presence::is_present(file).ok()
}

/// The bytes in use, as the header of a file says; `None` if it is not that of a segment.
pub fn bytes_in_use(file: &File) -> Option<u64> {
    let mut head = [0; HEADER_BYTES as usize];
    let filled = read_up_to(file, &mut head, 0).ok()?;
    (filled == head.len() && head.starts_with(&MAGIC)).then(|| head[..].word(at::CURSOR))
}

/// The most contradictions that are listed.
const MAX_DAMAGE: usize = 1000;

impl Report {
    fn add_damage(&mut self, at: u64, message: impl Into<String>) {
        if self.damage.len() < MAX_DAMAGE {
            self.damage.push(Damage { at, message: message.into() });
        }
    }

    /// The bytes in use that no family, record or claim accounts for: exemplars, exponential
    /// buckets, and what processes that died had begun.
    pub fn other_bytes(&self) -> u64 {
        let Some(header) = &self.header else { return 0 };
        let records: u64 = self.records.iter().map(|record| record.bytes).sum();
        let families = self.families.iter().map(FamilySeen::bytes).sum::<u64>();
        let known = crate::HEADER_BYTES + records + families + self.claim_bytes;
        header.used.saturating_sub(known)
    }
}

impl Inspection {
    /// Reads what a file holds.
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

    /// Reads what bytes hold that were taken from a file.
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

    /// What the file holds.
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

    /// Calls `visit` with the series of a family, hidden ones included, in the order in which they
    /// lie in the file. Returns what contradicts the layout.
    pub fn series(&self, family: &FamilySeen, visit: impl FnMut(&SeriesSeen<'_>)) -> Vec<Damage> {
        self.source.refill();
        family.visit(&self.source, false, visit).damage
    }

    /// As [`Inspection::series`], for a family of which the first cell of a series vouches for the
    /// others: a reader that finds the same number there before and after them has read them as
    /// they were together. A series of a copy of which that cannot be had is left out.
    pub fn series_that_settle(
        &self,
        family: &FamilySeen,
        visit: impl FnMut(&SeriesSeen<'_>),
    ) -> Vec<Damage> {
        self.source.refill();
        family.visit(&self.source, true, visit).damage
    }

    /// Whether the process of a token lives; `None` if that is not known.
    pub fn is_alive(&self, token: u64) -> Option<bool> {
        owners::is_alive(self.file.as_ref(), token)
    }
}

/// Opens a regular file for reading, and nothing else: opening a pipe would block until another
/// process opens it, too. The file that was opened is the one that is looked at: what a path names
/// may change at any time.
///
/// # Errors
/// Those of the system, and if it is not a regular file.
#[doc(hidden)]
pub fn open_regular(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    Ok(file)
}
