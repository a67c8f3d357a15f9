//! What can go wrong in a benchmark: a file, a record, a template or another program.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The result of a step of a benchmark.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a benchmark or its report could not be made.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be read, written or made.
    File {
        /// The file.
        path: PathBuf,
        /// What was tried, as in "read".
        doing: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// A line of a file or of a program's output is not what it should be.
    Line {
        /// The file or the program.
        place: String,
        /// The number of the line, from 1.
        line: usize,
        /// What is wrong with it.
        problem: String,
    },
    /// The records of a report do not fit together.
    Report {
        /// What is wrong, and with which records.
        problem: String,
    },
    /// Another program could not be run, or failed.
    Command {
        /// The program and its arguments.
        command: String,
        /// What happened, and what to do about it.
        problem: String,
    },
}

impl Error {
    /// For `map_err`: what was tried with a file.
    pub fn file(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
        let path = path.to_path_buf();
        move |source| Error::File { path, doing, source }
    }

    pub(crate) fn line(place: impl Into<String>, line: usize, problem: impl Into<String>) -> Error {
        Error::Line { place: place.into(), line, problem: problem.into() }
    }

    /// What is asked for is not there.
    pub fn report(problem: impl Into<String>) -> Error {
        Error::Report { problem: problem.into() }
    }

    pub(crate) fn command(command: impl Into<String>, problem: impl Into<String>) -> Error {
        Error::Command { command: command.into(), problem: problem.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::File { path, doing, source } => {
                write!(f, "cannot {doing} {}: {source}", path.display())
            }
            Error::Line { place, line, problem } => write!(f, "{place}:{line}: {problem}"),
            Error::Report { problem } => f.write_str(problem),
            Error::Command { command, problem } => write!(f, "`{command}`: {problem}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::File { source, .. } => Some(source),
            _ => None,
        }
    }
}
