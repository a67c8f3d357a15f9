//! The error type of the crate. An error names the failed operation and its input, and explains
//! what you can do.

use std::fmt;

/// Why a store cannot be opened, or a metric cannot be created or read.
///
/// ```
/// use quipu_store::{Kind, LocalStore, Spec, Store};
///
/// let spec = Spec::new("requests", Kind::Counter).labels(["code", "code"]);
/// let error = LocalStore::new().metric(&spec).err().expect("two labels of one name");
/// assert_eq!(error.to_string(), "metric \"requests\": duplicate label \"code\"; rename one");
/// ```
#[derive(Debug)]
pub struct Error {
    /// The input that failed: a metric, a directory, an address.
    subject: String,
    message: String,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// Creates an error. The reason describes the fault of `subject`, and what to do.
    pub(crate) fn new(subject: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { subject: subject.into(), message: reason.into(), source: None }
    }

    /// Like [`Error::new`], with the underlying error.
    pub(crate) fn because(
        subject: impl Into<String>,
        message: impl Into<String>,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self { subject: subject.into(), message: message.into(), source: Some(source.into()) }
    }

    /// Returns whether the name was already registered in the same store.
    pub fn is_duplicate(&self) -> bool {
        let source = self.source.as_ref().and_then(|source| source.downcast_ref::<quipu::Error>());
        source.is_some_and(quipu::Error::is_duplicate)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.subject, self.message)?;
        match &self.source {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&**self.source.as_ref()?)
    }
}
