//! What can go wrong when a metric is registered, read or sent, each with the way out.
//!
//! Nothing goes wrong when a metric is counted: whatever cannot be kept apart is counted in the
//! family's overflow series.

use std::fmt;

/// An operation that failed.
#[derive(Debug)]
pub struct Error {
    metric: String,
    flaw: Flaw,
}

#[derive(Debug)]
enum Flaw {
    /// The name, a label or a setting cannot be.
    Invalid(String),
    /// The metric is there already.
    Duplicate,
    /// The segment refuses it.
    Segment(quipu_segment::Error),
    /// The window cannot be.
    Window(quipu_window::Error),
    /// Whatever sends or reads fails.
    Io(std::io::Error),
}

impl Error {
    pub(crate) fn invalid(metric: &str, what: impl Into<String>) -> Self {
        Self { metric: metric.to_owned(), flaw: Flaw::Invalid(what.into()) }
    }

    pub(crate) fn duplicate(metric: &str) -> Self {
        Self { metric: metric.to_owned(), flaw: Flaw::Duplicate }
    }

    pub(crate) fn segment(metric: &str, error: quipu_segment::Error) -> Self {
        Self { metric: metric.to_owned(), flaw: Flaw::Segment(error) }
    }

    pub(crate) fn window(metric: &str, error: quipu_window::Error) -> Self {
        Self { metric: metric.to_owned(), flaw: Flaw::Window(error) }
    }

    /// The name of the metric; empty where it is about all of them.
    pub fn metric(&self) -> &str {
        &self.metric
    }

    /// Whether a metric of that name is registered already.
    pub fn is_duplicate(&self) -> bool {
        matches!(self.flaw, Flaw::Duplicate)
    }

    /// Whether the segment refuses it: it is full, or the disk, or the system gives no more.
    pub fn is_of_segment(&self) -> bool {
        matches!(self.flaw, Flaw::Segment(_))
    }

    /// Whether the segment that is there has a family of that name which is of another kind, or has
    /// other labels or settings.
    pub fn is_mismatch(&self) -> bool {
        matches!(&self.flaw, Flaw::Segment(error) if error.is_mismatch())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.metric.is_empty() {
            write!(f, "metric {:?}: ", self.metric)?;
        }
        match &self.flaw {
            Flaw::Invalid(what) => write!(f, "{what}"),
            Flaw::Duplicate => write!(
                f,
                "it is registered already; keep the first one's handle and clone it, or choose \
                 another name or prefix"
            ),
            Flaw::Segment(error) => write!(f, "{error}"),
            Flaw::Window(error) => write!(f, "{error}"),
            Flaw::Io(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.flaw {
            Flaw::Invalid(_) | Flaw::Duplicate => None,
            Flaw::Segment(error) => Some(error),
            Flaw::Window(error) => Some(error),
            Flaw::Io(error) => Some(error),
        }
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Self { metric: String::new(), flaw: Flaw::Io(error) }
    }
}

impl From<quipu_segment::Error> for Error {
    fn from(error: quipu_segment::Error) -> Self {
        Self::segment("", error)
    }
}
