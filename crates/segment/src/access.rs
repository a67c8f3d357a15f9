//! The sharing of a segment's file: for one process, or for several.

/// Whether other processes can open the file at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// No other process can.
    Exclusive,
    /// All processes can that open it as shared.
    Shared,
}
