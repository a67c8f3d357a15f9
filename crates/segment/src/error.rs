//! The errors of a segment. Each message names the input that failed, and explains the way out.
//! Call a method of [`Error`] to learn, for example, whether you can replace the file or retry the
//! lock.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::layout::Kind;
use crate::lock::BusyReason;
use crate::{Record, printable};

/// A failed operation on a segment.
#[derive(Debug)]
pub struct Error {
    path: Option<PathBuf>,
    kind: ErrorKind,
}

/// The cause of an [`Error`].
#[doc(hidden)]
#[derive(Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The file does not begin with the magic of a segment: it belongs to another program.
    NotASegment,
    /// The file is shorter than a header, or than the size that its header states.
    TooShort {
        /// The current size of the file in bytes.
        length: u64,
        /// The expected size in bytes.
        expected: u64,
    },
    /// The file was truncated while it was in use.
    Cut {
        /// The current size of the file in bytes.
        length: u64,
        /// The previous size of the file in bytes.
        expected: u64,
    },
    /// The file is longer than its header states, and this is not due to an unfinished growth.
    TooLong {
        /// The current size of the file in bytes.
        length: u64,
        /// The expected size in bytes.
        expected: u64,
    },
    /// The file uses a layout version that this library does not know.
    Version {
        /// The version of the file.
        found: u32,
    },
    /// A field, an offset or a record contradicts the layout.
    Damaged(String),
    /// A record exists, but was created with other settings than the requested ones.
    Mismatch(String),
    /// A record is of a version that this library does not know.
    RecordVersion {
        /// The record's name.
        name: String,
        /// The record's kind and version.
        found: Kind,
        /// The kind and version that this library reads.
        expected: Kind,
    },
    /// The path now names another file, or none.
    Moved,
    /// Another process is using the file.
    Locked,
    /// No process is using the file, so you cannot join any.
    NotOpen,
    /// Another process already joined the processes that use the file.
    Joined,
    /// Another process held the file's exclusive lock, and did not share it in time.
    Busy {
        /// The length of the wait.
        waited: Duration,
    },
    /// A thread of a living process held a lock in the segment for too long, for example because it
    /// is stopped.
    Held(String),
    /// The path is a directory.
    IsDirectory,
    /// The file system is too full for the requested bytes.
    NoSpace {
        /// The size that the file would need.
        wanted: u64,
    },
    /// This process, or the file system, does not allow files of this size.
    FileTooLarge {
        /// The size that the file would need.
        wanted: u64,
        /// The limit of this process in bytes, if that is the cause (`RLIMIT_FSIZE`).
        limit: Option<u64>,
    },
    /// The file or its directory is not writable.
    NotWritable(io::Error),
    /// The directory of the file does not exist.
    NoDirectory,
    /// The system does not grant this process that much address space.
    NoMemory {
        /// The bytes to map.
        wanted: u64,
    },
    /// The segment would grow past its limit.
    Full {
        /// The bytes that did not fit.
        wanted: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// A requested name or size is out of bounds.
    Request(String),
    /// Any other error of the operating system.
    Io(io::Error),
}

impl Error {
    pub(crate) fn new(path: Option<&Path>, kind: ErrorKind) -> Self {
        Self { path: path.map(Path::to_owned), kind }
    }

    /// Returns the same error, for the file at this path.
    #[cfg(unix)]
    pub(crate) fn at(self, path: &Path) -> Self {
        Self { path: Some(path.to_owned()), ..self }
    }

    /// Returns the error for a record in `segment` that its reader cannot use.
    pub fn mismatch(segment: &crate::Segment, message: impl Into<String>) -> Self {
        Self::new(segment.path(), ErrorKind::Mismatch(message.into()))
    }

    /// Returns the error for a record in `segment` of another version than this program reads.
    pub(crate) fn record_version(segment: &crate::Segment, found: &Record, expected: Kind) -> Self {
        let (name, found) = (found.name().to_owned(), found.kind());
        Self::new(segment.path(), ErrorKind::RecordVersion { name, found, expected })
    }

    /// Returns the error for a record in `segment` that contradicts itself.
    pub fn damaged(segment: &crate::Segment, message: impl Into<String>) -> Self {
        Self::new(segment.path(), ErrorKind::Damaged(message.into()))
    }

    /// Returns the error for a request to `segment` that cannot be met.
    pub(crate) fn request(segment: &crate::Segment, message: String) -> Self {
        Self::new(segment.path(), ErrorKind::Request(message))
    }

    /// Returns the error for bytes that do not fit into `segment`.
    pub(crate) fn full(segment: &crate::Segment, wanted: u64) -> Self {
        Self::new(segment.path(), ErrorKind::Full { wanted, limit: segment.limit() })
    }

    /// Returns the error for a lock in `segment` that could not be taken.
    pub(crate) fn held(segment: &crate::Segment, lock: &str, busy: BusyReason) -> Self {
        let reason = match busy {
            BusyReason::Held(waited) => format!(
                "a thread of a living process has held the lock of {lock} for at least {waited:?}; \
                 if that process is stopped, resume it or end it, and try again"
            ),
            BusyReason::Interrupted => format!(
                "this thread was interrupted by a signal handler while it held the lock of {lock}; \
                 do this outside the handler"
            ),
        };
        Self::new(segment.path(), ErrorKind::Held(reason))
    }

    /// Returns the cause.
    #[doc(hidden)]
    pub fn kind(&self) -> &ErrorKind {
        &self.kind
    }

    /// Returns the path of the file, if the segment is in a file.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Returns whether the file is a segment that was truncated or damaged. You can then set it
    /// aside and start with a new one. A foreign file, a later version or a lock is not damage.
    pub fn is_damage(&self) -> bool {
        matches!(
            self.kind,
            ErrorKind::TooShort { .. } | ErrorKind::TooLong { .. } | ErrorKind::Damaged(_)
        )
    }

    /// Returns whether a record of this name exists, but with other settings or of another version.
    pub fn is_mismatch(&self) -> bool {
        matches!(self.kind, ErrorKind::Mismatch(_) | ErrorKind::RecordVersion { .. })
    }

    /// Returns whether a lock inside the segment was held for too long. You can retry the operation
    /// later.
    pub fn is_held(&self) -> bool {
        matches!(self.kind, ErrorKind::Held(_))
    }

    /// Returns whether another process holds the file.
    pub fn is_locked(&self) -> bool {
        matches!(self.kind, ErrorKind::Locked | ErrorKind::Busy { .. })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.path, &self.kind) {
            (Some(path), _) => write!(f, "segment file {}: ", printable(path))?,
            // Only this program can have made the other record.
            (None, ErrorKind::Mismatch(difference)) => {
                return write!(
                    f,
                    "the metric exists with other settings: {difference}; \
                     rename one, or give both the same settings"
                );
            }
            (None, _) => write!(f, "segment without a file: ")?,
        }
        write!(f, "{}", self.kind)
    }
}

/// Writes the failure and the remedy, without the path.
impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ErrorKind::NotASegment => write!(
                f,
                "it is not a segment (its first 8 bytes are not \"QUIPUSEG\"); \
                 it was left untouched: name another file, or move this one away"
            ),
            ErrorKind::TooShort { length, expected } => {
                write!(f, "truncated: {length} of {expected} bytes; {RESTORE}")
            }
            ErrorKind::Cut { length, expected } => write!(
                f,
                "it was cut to {length} bytes while it was in use, from {expected} or more; \
                 restart all processes that have it open before they touch what is gone (SIGBUS)"
            ),
            ErrorKind::TooLong { length, expected } => write!(
                f,
                "it has {length} bytes where {expected} are expected, so something was appended; \
                 {RESTORE}"
            ),
            ErrorKind::Version { found } => write!(
                f,
                "it has layout version {found} and this program reads only version {}; it was left \
                 untouched: use the quipu that wrote it, or move the file away to start afresh",
                crate::LAYOUT_VERSION
            ),
            ErrorKind::Damaged(fault) => write!(f, "it is damaged: {fault}; {RESTORE}"),
            ErrorKind::Mismatch(difference) => write!(
                f,
                "it was made with other settings: {difference}; \
                 start with those settings, or name another file"
            ),
            ErrorKind::RecordVersion { name, found, expected } => write!(
                f,
                "its record {name:?} is of kind {found:?} and this program reads only {expected:?}; \
                 use the quipu that wrote it, or name another file"
            ),
            ErrorKind::Moved => write!(
                f,
                "it was removed or replaced while it was open: counts go to a file that no longer \
                 has a name; stop this process, and start it again with a file of its own"
            ),
            ErrorKind::Locked => {
                write!(
                    f,
                    "another process has it open; stop that process, or name another file (a \
                     `quipu record` that is stopped has it open, too)"
                )
            }
            ErrorKind::NotOpen => write!(f, "no process has it open; start its program first"),
            ErrorKind::Joined => write!(
                f,
                "another process has joined its program already, and only one may; end that one \
                 first"
            ),
            ErrorKind::Busy { waited } => write!(
                f,
                "another process has locked it and did not share it within {waited:?}; find that \
                 process (fuser FILE), and end it if it is stopped or does not belong there"
            ),
            ErrorKind::IsDirectory => {
                write!(f, "it is a directory; name a file, for example one inside it")
            }
            ErrorKind::NoSpace { wanted } => write!(
                f,
                "no space left on the device for {wanted} bytes; \
                 free some, or name a file on another device"
            ),
            ErrorKind::FileTooLarge { wanted, limit } => write_too_large(*wanted, *limit, f),
            ErrorKind::NotWritable(error) => write!(
                f,
                "it cannot be written ({error}); \
                 make the file and its directory writable for this user, or name another file"
            ),
            ErrorKind::NoDirectory => {
                write!(f, "its directory does not exist; create it, or name another file")
            }
            ErrorKind::NoMemory { wanted } => write!(
                f,
                "the system does not let this process reserve {wanted} bytes of addresses; \
                 raise its limit (ulimit -v), or ask for a smaller segment"
            ),
            ErrorKind::Full { wanted, limit } => write!(
                f,
                "{wanted} more bytes do not fit into its limit of {limit} bytes; \
                 create it with a higher limit"
            ),
            ErrorKind::Request(reason) | ErrorKind::Held(reason) => write!(f, "{reason}"),
            ErrorKind::Io(error) => write!(f, "{error}"),
        }
    }
}

/// The remedy if the content of a file is wrong.
const RESTORE: &str = "it was left untouched: restore it, or move it away to start afresh";

fn write_too_large(wanted: u64, limit: Option<u64>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match limit {
        Some(limit) => write!(
            f,
            "this process may not make a file of {wanted} bytes: its limit is {limit}; \
             raise that limit (ulimit -f), or ask for a smaller segment"
        ),
        None => write!(
            f,
            "its file system does not support files of {wanted} bytes; name a file on another"
        ),
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.kind {
            ErrorKind::Io(error) | ErrorKind::NotWritable(error) => Some(error),
            _ => None,
        }
    }
}
