//! The error type of the crate. An error explains the failed operation, such as registering,
//! reading or sending metrics, and what you can do.
//!
//! Counting never fails: an update that cannot get a separate series is counted in the family's
//! overflow series.

use std::fmt;

use crate::intake::Rejection;

/// A failed operation.
///
/// ```
/// let registry = quipu::Registry::new();
/// let _jobs = registry.counter("jobs", "Completed jobs.")?;
/// let error = registry.gauge("jobs", "Jobs in the queue.").unwrap_err();
/// assert!(error.is_duplicate());
/// assert_eq!(error.metric(), Some("jobs"));
/// # Ok::<(), quipu::Error>(())
/// ```
pub struct Error {
    metric: String,
    kind: ErrorKind,
}

#[derive(Debug)]
enum ErrorKind {
    /// A name, a label, or a setting is invalid.
    Invalid(String),
    /// An intake rejected a value, with this explanation.
    Rejected(Rejection, String),
    /// The metric is already registered.
    Duplicate,
    /// The segment returned an error.
    Segment(quipu_segment::Error),
    /// The window's settings are invalid, or its record cannot be opened.
    #[cfg(feature = "window")]
    Window(Box<quipu_window::Error>),
    /// Sending or reading failed.
    Io(std::io::Error),
}

/// The error for an unknown name of a value, such as an unknown aggregation. Its message contains
/// the possible names.
///
/// ```
/// use quipu::{Aggregation, UnknownName};
///
/// let error: UnknownName = "median".parse::<Aggregation>().unwrap_err();
/// assert!(error.to_string().starts_with("unknown gauge aggregation \"median\": use one of all, "));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownName {
    /// The type of the value, in a message.
    noun: &'static str,
    name: String,
    names: Vec<&'static str>,
}

impl UnknownName {
    pub(crate) fn new(
        noun: &'static str,
        name: &str,
        names: impl IntoIterator<Item = &'static str>,
    ) -> Self {
        Self { noun, name: name.to_owned(), names: names.into_iter().collect() }
    }
}

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { noun, name, names } = self;
        write!(f, "unknown {noun} {name:?}: use one of {}", names.join(", "))
    }
}

impl std::error::Error for UnknownName {}

/// Implements the conversion from and to the name, for an enum with `as_str` and `from_name`.
macro_rules! named {
    ($type:ty, $noun:literal, $all:expr) => {
        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl std::str::FromStr for $type {
            type Err = $crate::error::UnknownName;

            fn from_str(name: &str) -> Result<Self, Self::Err> {
                Self::from_name(name).ok_or_else(|| {
                    let names = $all.iter().map(|value| value.as_str());
                    $crate::error::UnknownName::new($noun, name, names)
                })
            }
        }
    };
}

pub(crate) use named;

impl Error {
    pub(crate) fn invalid(metric: &str, reason: impl Into<String>) -> Self {
        Self { metric: metric.to_owned(), kind: ErrorKind::Invalid(reason.into()) }
    }

    pub(crate) fn rejected(metric: &str, rejection: Rejection, reason: String) -> Self {
        Self { metric: metric.to_owned(), kind: ErrorKind::Rejected(rejection, reason) }
    }

    /// Returns why an intake rejected a value, if this is the error.
    #[doc(hidden)]
    pub fn rejection(&self) -> Option<Rejection> {
        match self.kind {
            ErrorKind::Rejected(rejection, _) => Some(rejection),
            _ => None,
        }
    }

    pub(crate) fn duplicate(metric: &str) -> Self {
        Self { metric: metric.to_owned(), kind: ErrorKind::Duplicate }
    }

    pub(crate) fn global_in_use() -> Self {
        let reason = "the global registry is already set or in use: call Registry::set_global only \
                      once, at the start of main, before any macro and Registry::global";
        Self::invalid("", reason)
    }

    pub(crate) fn segment(metric: &str, error: quipu_segment::Error) -> Self {
        Self { metric: metric.to_owned(), kind: ErrorKind::Segment(error) }
    }

    /// Creates an error that concerns all metrics of a segment.
    #[doc(hidden)]
    pub fn from_segment(error: quipu_segment::Error) -> Self {
        Self::segment("", error)
    }

    #[cfg(feature = "window")]
    pub(crate) fn window(metric: &str, error: quipu_window::Error) -> Self {
        Self { metric: metric.to_owned(), kind: ErrorKind::Window(Box::new(error)) }
    }

    /// Returns the name of the metric; `None` if the error concerns all metrics.
    pub fn metric(&self) -> Option<&str> {
        Some(self.metric.as_str()).filter(|name| !name.is_empty())
    }

    /// Returns the error without the name of the metric.
    pub(crate) fn reason(&self) -> String {
        self.kind.to_string()
    }

    /// Returns whether a metric of this name is already registered.
    pub fn is_duplicate(&self) -> bool {
        matches!(self.kind, ErrorKind::Duplicate)
    }

    /// Returns whether the segment returned the error: the segment or the disk is full, the system
    /// refuses more memory, or the family in the segment does not match.
    #[doc(hidden)]
    pub fn is_of_segment(&self) -> bool {
        matches!(self.kind, ErrorKind::Segment(_))
    }

    /// Returns whether the segment already contains a family of this name with another kind, other
    /// labels, or other settings.
    pub fn is_mismatch(&self) -> bool {
        matches!(&self.kind, ErrorKind::Segment(error) if error.is_mismatch())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.metric.is_empty() {
            write!(f, "metric {:?}: ", self.metric)?;
        }
        self.kind.fmt(f)
    }
}

/// Shows the message, because `unwrap` prints an error with `Debug`.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Error").field(&self.to_string()).finish()
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(reason) | Self::Rejected(_, reason) => write!(f, "{reason}"),
            Self::Duplicate => write!(
                f,
                "already registered: clone the handle of the first registration, use \
                 register_or_get, or choose another name or prefix"
            ),
            Self::Segment(error) => write!(f, "{error}"),
            #[cfg(feature = "window")]
            Self::Window(error) => write!(f, "{error}"),
            Self::Io(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.kind {
            ErrorKind::Invalid(_) | ErrorKind::Rejected(..) | ErrorKind::Duplicate => None,
            ErrorKind::Segment(error) => Some(error),
            #[cfg(feature = "window")]
            ErrorKind::Window(error) => Some(&**error),
            ErrorKind::Io(error) => Some(error),
        }
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Self { metric: String::new(), kind: ErrorKind::Io(error) }
    }
}
