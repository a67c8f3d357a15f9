//! The errors of benchmarks and reports: of a file, a record, a template or another program.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The result of a step of a benchmark.
pub type Result<T> = std::result::Result<T, Error>;

/// The reason why a benchmark or its report failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be read, written or made.
    File {
        /// The file.
        path: PathBuf,
        /// The operation, such as "read".
        doing: &'static str,
        /// The error of the system.
        source: io::Error,
    },
    /// A line of a file or of a program's output is invalid.
    Line {
        /// The file or the program.
        place: String,
        /// The number of the line, from 1.
        line: usize,
        /// The fault of the line.
        problem: String,
    },
    /// The records do not match the report.
    Report {
        /// The problem, and the records that cause it.
        problem: String,
    },
    /// Another program could not be run, or failed.
    Command {
        /// The program and its arguments.
        command: String,
        /// The failure, and the way out.
        problem: String,
    },
}

impl Error {
    /// Returns a function for `map_err`: it adds the failed operation on a file.
    pub fn file(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
        let path = path.to_path_buf();
        move |source| Error::File { path, doing, source }
    }

    /// A line of a file or of a program's output is invalid.
    pub fn line(place: impl Into<String>, line: usize, problem: impl Into<String>) -> Error {
        Error::Line { place: place.into(), line, problem: problem.into() }
    }

    /// The records do not match the report.
    pub fn report(problem: impl Into<String>) -> Error {
        Error::Report { problem: problem.into() }
    }

    /// Another program could not be run, or failed.
    pub fn command(command: impl Into<String>, problem: impl Into<String>) -> Error {
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
