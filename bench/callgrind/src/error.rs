//! What can go wrong, and the way out.

use std::path::{Path, PathBuf};
use std::{fmt, io};

pub(crate) type Result<T> = std::result::Result<T, Error>;

/// Why the counts are not there.
#[derive(Debug)]
pub(crate) enum Error {
    /// A file or folder.
    File(&'static str, PathBuf, io::Error),
    /// A file does not hold what it should.
    Content(PathBuf, String),
    /// A program.
    Program(String, String),
}

impl Error {
    /// For `map_err` of what is done with a file.
    pub(crate) fn file(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
        let path = path.to_path_buf();
        move |error| Error::File(what, path, error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::File(what, path, error) => {
                write!(f, "cannot {what} {}: {error}", path.display())
            }
            Error::Content(path, what) => write!(f, "{}: {what}", path.display()),
            Error::Program(program, what) => write!(f, "{program}: {what}"),
        }
    }
}

impl std::error::Error for Error {}
