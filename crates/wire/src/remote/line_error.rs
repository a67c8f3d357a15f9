//! Why a line could not be read, in all formats whose lines are read one by one.

use core::fmt;

/// Why a line could not be read: where the fault is, and what is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineError<R> {
    pub(super) line: u64,
    pub(super) offset: usize,
    pub(super) reason: R,
}

/// What may be wrong with a line of a format.
pub(super) trait LineReason: Copy {
    /// The name of the format.
    const FORMAT: &'static str;

    /// What is wrong, in a few words.
    fn problem(self) -> &'static str;
}

impl<R: Copy> LineError<R> {
    /// The number of the line in the input, by its line feeds; that of the first line is 1.
    pub fn line(&self) -> u64 {
        self.line
    }

    /// Where the fault is, in bytes from the beginning of the line.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// What is wrong.
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
