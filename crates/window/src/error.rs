//! What can go wrong with a window, each with the value that it names and the way out.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use quipu_segment::printable;

/// An operation on a window that failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A window or an accuracy of zero.
    Zero(&'static str),
    /// A window or an accuracy over 292 years, which 63 bits of nanoseconds do not hold.
    TooLong(&'static str, Duration),
    /// The window is not a whole number of accuracies.
    NotMultiple {
        /// The window.
        window: Duration,
        /// The width of a bucket.
        accuracy: Duration,
    },
    /// The window would take more buckets than a counter may have.
    TooManyBuckets {
        /// The window.
        window: Duration,
        /// The width of a bucket.
        accuracy: Duration,
    },
    /// A window longer than the counter remembers.
    OverSpan {
        /// The window that was asked for.
        window: Duration,
        /// The longest that there is.
        span: Duration,
    },
    /// A key that is empty, or longer than the table has room for.
    Key {
        /// The bytes of the key.
        length: usize,
        /// The bytes that fit.
        most: usize,
    },
    /// More events than one hit of a key may count.
    Events {
        /// The events.
        n: u64,
    },
    /// A table without room for a key, or with room for too many.
    NoCapacity,
    /// A saved counter that cannot be read as one.
    Malformed(String),
    /// Reading or writing failed.
    Io(io::Error),
    /// As the inner error, for this file.
    File(PathBuf, Box<Error>),
    /// The segment's error.
    Segment(quipu_segment::Error),
}

impl Error {
    pub(crate) fn in_file(self, path: &Path) -> Self {
        Self::File(path.to_owned(), Box::new(self))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zero(what) => {
                write!(f, "zero is no {what}; give at least a nanosecond")
            }
            Self::TooLong(what, value) => {
                write!(f, "a {what} of {value:?} is too long; give at most {LONGEST:?}")
            }
            Self::NotMultiple { window, accuracy } => {
                write!(
                    f,
                    "a window of {window:?} is no whole number of buckets of {accuracy:?}; "
                )?;
                let (below, above) = neighbours(*window, *accuracy);
                match below {
                    Some(below) => write!(f, "take {below:?} or {above:?}"),
                    None => write!(f, "take {above:?}, or a finer accuracy"),
                }
            }
            Self::TooManyBuckets { window, accuracy } => write!(
                f,
                "a window of {window:?} in buckets of {accuracy:?} takes more than {MOST_BUCKETS} \
                 buckets; give a coarser accuracy or a shorter window"
            ),
            Self::OverSpan { window, span } => write!(
                f,
                "a window of {window:?} is longer than the {span:?} that are remembered; \
                 ask for less, or have more remembered"
            ),
            Self::Key { length, most } => {
                write!(f, "a key has 1 to {most} bytes; this one has {length}")
            }
            Self::Events { n } => {
                let most = crate::keyed::MOST_EVENTS;
                write!(
                    f,
                    "{n} events are too many for one hit; give at most {most}, more in several"
                )
            }
            Self::NoCapacity => {
                write!(f, "a table has room for 1 to 2^28 keys, of at least a byte each")
            }
            Self::Malformed(what) => write!(f, "not a saved counter: {what}"),
            Self::Io(error) => write!(f, "{error}"),
            Self::File(path, error) => write!(f, "{}: {error}", printable(path)),
            Self::Segment(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            Self::File(_, error) => Some(error),
            Self::Segment(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<quipu_segment::Error> for Error {
    fn from(error: quipu_segment::Error) -> Self {
        Self::Segment(error)
    }
}

/// The longest window: what 63 bits of nanoseconds hold.
pub(crate) const LONGEST: Duration = Duration::from_nanos(i64::MAX as u64);

/// The most buckets of a counter; they take 8 bytes each.
pub(crate) const MOST_BUCKETS: u64 = 1 << 24;

/// The multiples of the accuracy next to a window that is none; none below for the first.
fn neighbours(window: Duration, accuracy: Duration) -> (Option<Duration>, Duration) {
    let nanos = accuracy.as_nanos().max(1);
    let below = window.as_nanos() / nanos * nanos;
    let duration = |nanos: u128| Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
    ((below > 0).then(|| duration(below)), duration(below + nanos))
}
