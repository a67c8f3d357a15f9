//! The error for a line that could not be read, shared by all line-based formats.

use core::fmt;

/// The error for a line that could not be read: its position and the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineError<R> {
    pub(super) line: u64,
    pub(super) offset: usize,
    pub(super) reason: R,
}

/// The reasons for errors in the lines of one format.
pub(super) trait LineReason: Copy {
    /// The name of the format.
    const FORMAT: &'static str;

    /// Describes the reason in a few words.
    fn problem(self) -> &'static str;
}

impl<R: Copy> LineError<R> {
    /// Returns the line number in the input, from 1. Line feeds are counted.
    pub fn line(&self) -> u64 {
        self.line
    }

    /// Returns the offset of the fault, in bytes from the beginning of the line.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Returns the reason.
    pub fn reason(&self) -> R {
        self.reason
    }
}

impl<R: LineReason> fmt::Display for LineError<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LineError { line, offset, reason } = self;
        write!(f, "{}: line {line}, byte {offset}: {}", R::FORMAT, reason.problem())
    }
}

impl<R: LineReason + fmt::Debug> core::error::Error for LineError<R> {}
