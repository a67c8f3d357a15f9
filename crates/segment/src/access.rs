//! How a segment is opened: for one process, or for several.

/// Whether other processes may have the file open at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// No other process may.
    Exclusive,
    /// All processes may that open it as shared.
    Shared,
}
