//! What can go wrong with a segment, each with the input that it names and the way out.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::lock::Busy;
use crate::printable;

/// An operation on a segment that failed.
#[derive(Debug)]
pub struct Error {
    path: Option<PathBuf>,
    flaw: Flaw,
}

/// Why it failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Flaw {
    /// The file does not begin with the magic of a segment: it is somebody else's.
    NotASegment,
    /// The file is shorter than a header, or than the size that its header states.
    TooShort {
        /// The bytes that the file has.
        length: u64,
        /// The bytes that it should have.
        expected: u64,
    },
    /// The file was cut while it was in use.
    Cut {
        /// The bytes that the file has.
        length: u64,
        /// The bytes that it had.
        expected: u64,
    },
    /// The file is longer than its header states, and not by an unfinished growth.
    TooLong {
        /// The bytes that the file has.
        length: u64,
        /// The bytes that it should have.
        expected: u64,
    },
    /// The file has a layout version that this library does not know.
    Version {
        /// The version that the file states.
        found: u32,
    },
    /// A field, an offset or a record contradicts the layout.
    Damaged(String),
    /// A record is there, but not as its reader laid it out.
    Mismatch(String),
    /// The path names another file by now, or none.
    Moved,
    /// Another process has the file open.
    Locked,
    /// Another process has locked the file, and did not share it in time.
    Busy {
        /// How long it was waited for.
        waited: Duration,
    },
    /// A thread has held a lock in the segment for too long, in a process that lives and may be
    /// stopped.
    Held(String),
    /// The path is a directory.
    IsDirectory,
    /// The file system has no room for the bytes asked for.
    NoSpace {
        /// The size that the file should have got.
        wanted: u64,
    },
    /// This process, or the file system, does not let files be of that size.
    FileTooLarge {
        /// The size that the file should have got.
        wanted: u64,
        /// The limit of this process in bytes, where that is the cause (`RLIMIT_FSIZE`).
        limit: Option<u64>,
    },
    /// The file or its directory may not be written.
    NotWritable(io::Error),
    /// The directory that should hold the file is not there.
    NoDirectory,
    /// The system has not as many addresses to give.
    NoMemory {
        /// The bytes that should have been mapped.
        wanted: u64,
    },
    /// The segment may not grow past its limit.
    Full {
        /// The bytes that did not fit.
        wanted: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// A name or a size that was asked for is out of its bounds.
    Request(String),
    /// Any other error of the operating system.
    Io(io::Error),
}

impl Error {
    pub(crate) fn new(path: Option<&Path>, flaw: Flaw) -> Self {
        Self { path: path.map(Path::to_owned), flaw }
    }

    /// Makes the error for a record in `segment` that its reader cannot use.
    pub fn mismatch(segment: &crate::Segment, what: impl Into<String>) -> Self {
        Self::new(segment.path(), Flaw::Mismatch(what.into()))
    }

    /// Makes the error for a record in `segment` that contradicts itself.
    pub fn damaged(segment: &crate::Segment, what: impl Into<String>) -> Self {
        Self::new(segment.path(), Flaw::Damaged(what.into()))
    }

    /// Makes the error for what was asked of `segment` and cannot be.
    pub(crate) fn request(segment: &crate::Segment, what: String) -> Self {
        Self::new(segment.path(), Flaw::Request(what))
    }

    /// Makes the error for bytes that do not fit into `segment`.
    pub(crate) fn full(segment: &crate::Segment, wanted: u64) -> Self {
        Self::new(segment.path(), Flaw::Full { wanted, limit: segment.limit() })
    }

    /// Makes the error for a lock in `segment` that was not to be had.
    pub(crate) fn held(segment: &crate::Segment, lock: &str, busy: Busy) -> Self {
        let what = match busy {
            Busy::Held(waited) => format!(
                "a thread has held the lock of {lock} for at least {waited:?}, and its process \
                 lives; should that be stopped, let it go on or end it, and try again"
            ),
            Busy::Interrupted => format!(
                "this thread was interrupted by a signal handler while it held the lock of {lock}; \
                 do this outside of the handler"
            ),
        };
        Self::new(segment.path(), Flaw::Held(what))
    }

    /// Why it failed.
    pub fn flaw(&self) -> &Flaw {
        &self.flaw
    }

    /// The file, where the segment lies in one.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Whether the file is a segment that was cut or damaged, so that setting it aside and
    /// starting afresh is an answer. A foreign file, a later version, a lock are not damage.
    pub fn is_damage(&self) -> bool {
        matches!(self.flaw, Flaw::TooShort { .. } | Flaw::TooLong { .. } | Flaw::Damaged(_))
    }

    /// Whether a record is there, but as other settings laid it out.
    pub fn is_mismatch(&self) -> bool {
        matches!(self.flaw, Flaw::Mismatch(_))
    }

    /// Whether a lock inside of the segment was held for too long: it may work later.
    pub fn is_held(&self) -> bool {
        matches!(self.flaw, Flaw::Held(_))
    }

    /// Whether another process holds the file.
    pub fn is_locked(&self) -> bool {
        matches!(self.flaw, Flaw::Locked | Flaw::Busy { .. })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.path {
            Some(path) => write!(f, "segment file {}: ", printable(path))?,
            None => write!(f, "segment without a file: ")?,
        }
        match &self.flaw {
            Flaw::NotASegment => write!(
                f,
                "it is not a segment (its first 8 bytes are not \"QUIPUSEG\"); \
                 it was left untouched: name another file, or move this one away"
            ),
            Flaw::TooShort { length, expected } => write!(
                f,
                "it has {length} bytes where {expected} are expected, so it was cut; \
                 it was left untouched: restore it, or move it away to start afresh"
            ),
            Flaw::Cut { length, expected } => write!(
                f,
                "it was cut to {length} bytes while it was in use, and had {expected} at least; \
                 restart all processes that have it open before one touches what is gone (SIGBUS)"
            ),
            Flaw::TooLong { length, expected } => write!(
                f,
                "it has {length} bytes where {expected} are expected, so something was appended; \
                 it was left untouched: restore it, or move it away to start afresh"
            ),
            Flaw::Version { found } => write!(
                f,
                "it has layout version {found} and this program reads version {} alone; it was left \
                 untouched: use the quipu that wrote it, or move the file away to start afresh",
                crate::LAYOUT_VERSION
            ),
            Flaw::Damaged(what) => write!(
                f,
                "it is damaged: {what}; \
                 it was left untouched: restore it, or move it away to start afresh"
            ),
            Flaw::Mismatch(what) => write!(
                f,
                "it was made with other settings: {what}; \
                 start with those settings, or name another file"
            ),
            Flaw::Moved => write!(
                f,
                "it was removed or replaced while it was open: what is counted goes to a file that has \
                 no name any more; stop this process, and start it again with a file of its own"
            ),
            Flaw::Locked => {
                write!(f, "another process has it open; stop that process, or name another file")
            }
            Flaw::Busy { waited } => write!(
                f,
                "another process has locked it and did not share it within {waited:?}; \
                 find that process (fuser FILE), and end it if it is stopped or does not belong there"
            ),
            Flaw::IsDirectory => {
                write!(f, "it is a directory; name a file, for example one inside it")
            }
            Flaw::NoSpace { wanted } => write!(
                f,
                "no space left on the device for {wanted} bytes; \
                 free some, or name a file on another device"
            ),
            Flaw::FileTooLarge { wanted, limit: Some(limit) } => write!(
                f,
                "this process may not make a file of {wanted} bytes, its limit is {limit}; \
                 raise that limit (ulimit -f), or ask for a smaller segment"
            ),
            Flaw::FileTooLarge { wanted, limit: None } => write!(
                f,
                "its file system takes no files of {wanted} bytes; name a file on another one"
            ),
            Flaw::NotWritable(error) => write!(
                f,
                "it cannot be written ({error}); \
                 make the file and its directory writable for this user, or name another file"
            ),
            Flaw::NoDirectory => {
                write!(f, "its directory does not exist; create it, or name another file")
            }
            Flaw::NoMemory { wanted } => write!(
                f,
                "the system does not let this process reserve {wanted} bytes of addresses; \
                 raise its limit (ulimit -v), or ask for a smaller segment"
            ),
            Flaw::Full { wanted, limit } => write!(
                f,
                "{wanted} more bytes do not fit into its limit of {limit} bytes; \
                 make it with a greater limit"
            ),
            Flaw::Request(what) | Flaw::Held(what) => write!(f, "{what}"),
            Flaw::Io(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.flaw {
            Flaw::Io(error) | Flaw::NotWritable(error) => Some(error),
            _ => None,
        }
    }
}
