//! The error type of the crate. Each message names the wrong value, and what you can do.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use quipu_segment::printable;

/// A failed operation on a window.
///
/// ```
/// use std::time::Duration;
/// use quipu_window::BucketedWindow;
///
/// let error = BucketedWindow::new(Duration::from_secs(1), Duration::from_millis(300)).unwrap_err();
/// assert!(error.is_invalid_duration());
/// assert_eq!(
///     error.to_string(),
///     "a window of 1s is not a whole number of buckets of 300ms; take 900ms or 1.2s",
/// );
/// ```
#[derive(Debug)]
pub struct Error {
    /// The file that the window was saved to or loaded from.
    path: Option<PathBuf>,
    kind: ErrorKind,
}

/// The cause of an [`Error`].
#[doc(hidden)]
#[derive(Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A window or an accuracy of zero.
    ZeroDuration(&'static str),
    /// A window or an accuracy over 292 years, which does not fit into 63 bits of nanoseconds.
    TooLong(&'static str, Duration),
    /// The window is not a whole number of accuracies.
    NotMultiple {
        /// The window.
        window: Duration,
        /// The width of a bucket.
        accuracy: Duration,
    },
    /// The window would need more buckets than allowed.
    TooManyBuckets {
        /// The window.
        window: Duration,
        /// The width of a bucket.
        accuracy: Duration,
    },
    /// A window longer than the counter's span.
    OverSpan {
        /// The requested window.
        window: Duration,
        /// The longest window that the counter can count.
        span: Duration,
    },
    /// A key that is empty, or longer than the table allows.
    KeyLength {
        /// The length of the key in bytes.
        length: usize,
        /// The greatest length that fits, in bytes.
        most: usize,
    },
    /// More events than one addition to a key can count.
    TooManyEvents {
        /// The number of events.
        n: u64,
    },
    /// A table with room for no key or for too many, or for keys of no bytes.
    NoCapacity,
    /// Bytes that are not a valid saved counter.
    Malformed(String),
    /// Reading or writing failed.
    Io(io::Error),
    /// An error of the segment.
    Segment(quipu_segment::Error),
}

impl Error {
    /// Creates an error of a segment.
    #[doc(hidden)]
    pub fn from_segment(error: quipu_segment::Error) -> Self {
        ErrorKind::Segment(error).into()
    }

    /// Returns the segment's error, or this error if it has another cause.
    ///
    /// # Errors
    /// This error.
    #[doc(hidden)]
    pub fn into_segment(self) -> Result<quipu_segment::Error, Self> {
        match self.kind {
            ErrorKind::Segment(error) => Ok(error),
            kind => Err(Self { kind, ..self }),
        }
    }

    pub(crate) fn malformed(reason: String) -> Self {
        ErrorKind::Malformed(reason).into()
    }

    pub(crate) fn in_file(self, path: &Path) -> Self {
        Self { path: Some(path.to_owned()), ..self }
    }

    /// Returns the cause.
    #[doc(hidden)]
    pub fn kind(&self) -> &ErrorKind {
        &self.kind
    }

    /// Returns the path of the file that the window was saved to or loaded from.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Returns whether a window, an accuracy or a span is zero or too long, is not a whole number
    /// of buckets, or would need too many buckets.
    pub fn is_invalid_duration(&self) -> bool {
        matches!(
            self.kind,
            ErrorKind::ZeroDuration(_)
                | ErrorKind::TooLong(..)
                | ErrorKind::NotMultiple { .. }
                | ErrorKind::TooManyBuckets { .. }
        )
    }

    /// Returns whether a requested window is longer than the span of the counter.
    pub fn is_over_span(&self) -> bool {
        matches!(self.kind, ErrorKind::OverSpan { .. })
    }

    /// Returns whether a key is empty, or longer than the table allows.
    pub fn is_invalid_key(&self) -> bool {
        matches!(self.kind, ErrorKind::KeyLength { .. })
    }

    /// Returns whether one addition to a key was over [`MAX_EVENTS`](crate::MAX_EVENTS).
    pub fn is_too_many_events(&self) -> bool {
        matches!(self.kind, ErrorKind::TooManyEvents { .. })
    }

    /// Returns whether a table was to have room for no key or for too many, or for keys of no
    /// bytes.
    pub fn is_invalid_capacity(&self) -> bool {
        matches!(self.kind, ErrorKind::NoCapacity)
    }

    /// Returns whether the bytes are not a valid saved counter.
    pub fn is_malformed(&self) -> bool {
        matches!(self.kind, ErrorKind::Malformed(_))
    }

    /// Returns whether reading or writing failed. The [source](std::error::Error::source) is the
    /// [`io::Error`].
    pub fn is_io(&self) -> bool {
        matches!(self.kind, ErrorKind::Io(_))
    }

    /// Returns whether the segment contains a record of this name with other settings.
    pub fn is_mismatch(&self) -> bool {
        matches!(&self.kind, ErrorKind::Segment(error) if error.is_mismatch())
    }

    /// Returns whether the segment is damaged.
    pub fn is_damage(&self) -> bool {
        matches!(&self.kind, ErrorKind::Segment(error) if error.is_damage())
    }
}

impl From<ErrorKind> for Error {
    fn from(kind: ErrorKind) -> Self {
        Self { path: None, kind }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.path {
            Some(path) => write!(f, "{}: {}", printable(path), self.kind),
            None => self.kind.fmt(f),
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ZeroDuration(name) => {
                write!(f, "the {name} is zero; give at least a nanosecond")
            }
            Self::TooLong(name, value) => {
                write!(f, "a {name} of {value:?} is too long; give at most {LONGEST:?}")
            }
            Self::NotMultiple { window, accuracy } => {
                write!(
                    f,
                    "a window of {window:?} is not a whole number of buckets of {accuracy:?}; "
                )?;
                let (below, above) = neighbours(*window, *accuracy);
                match below {
                    Some(below) => write!(f, "take {below:?} or {above:?}"),
                    None => write!(f, "take {above:?}, or a finer accuracy"),
                }
            }
            Self::TooManyBuckets { window, accuracy } => write!(
                f,
                "a window of {window:?} in buckets of {accuracy:?} takes more than {MAX_BUCKETS} \
                 buckets; give a coarser accuracy or a shorter window"
            ),
            Self::OverSpan { window, span } => write!(
                f,
                "a window of {window:?} is longer than the {span:?} that are remembered; \
                 ask for less, or give the counter a longer span"
            ),
            Self::KeyLength { length, most } => {
                write!(f, "a key has 1 to {most} bytes; this one has {length}")
            }
            Self::TooManyEvents { n } => {
                let most = crate::keyed::MAX_EVENTS;
                write!(
                    f,
                    "{n} events are too many for one hit; give at most {most}, and split the rest"
                )
            }
            Self::NoCapacity => {
                write!(f, "a table has room for 1 to 2^28 keys, of at least one byte each")
            }
            Self::Malformed(reason) => write!(f, "not a saved counter: {reason}"),
            Self::Io(error) => write!(f, "{error}"),
            Self::Segment(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.kind {
            ErrorKind::Io(error) => Some(error),
            ErrorKind::Segment(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        ErrorKind::Io(error).into()
    }
}

/// The longest window: the maximum of 63 bits of nanoseconds.
pub(crate) const LONGEST: Duration = Duration::from_nanos(i64::MAX as u64);

/// The maximum number of buckets of a counter; they take 8 bytes each.
pub(crate) const MAX_BUCKETS: u64 = 1 << 24;

/// Returns the multiples of the accuracy below and above a window. `None` below the first multiple.
fn neighbours(window: Duration, accuracy: Duration) -> (Option<Duration>, Duration) {
    let nanos = accuracy.as_nanos().max(1);
    let below = window.as_nanos() / nanos * nanos;
    let duration = |nanos: u128| Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
    ((below > 0).then(|| duration(below)), duration(below + nanos))
}
