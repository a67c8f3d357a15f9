//! The errors, with advice on how to fix them.

use std::path::{Path, PathBuf};
use std::{fmt, io};

pub(crate) type Result<T> = std::result::Result<T, Error>;

/// The reason why there are no counts.
#[derive(Debug)]
pub(crate) enum Error {
    /// An operation on a file or folder failed.
    File(&'static str, PathBuf, io::Error),
    /// The content of a file is invalid.
    Content(PathBuf, String),
    /// A program failed.
    Program(String, String),
}

impl Error {
    /// For `map_err`: the failed operation on a file.
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
