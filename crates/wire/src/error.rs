//! The crate's error: invalid input, or a message that a format cannot represent.

use core::fmt;

/// The reason why a message could not be read or written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    format: &'static str,
    /// The offset in the input, or `None` for a message that could not be written.
    offset: Option<u64>,
    fault: Fault,
}

/// The kind of an error and the expectation.
///
/// The offset is missing, because readers leave the input at the fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    kind: FaultKind,
    expected: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FaultKind {
    Incomplete,
    Malformed,
    Trailing,
    TooLarge,
    Unwritable,
    Memory,
}

impl Fault {
    /// Returns the expectation.
    pub(crate) const fn expected(self) -> &'static str {
        self.expected
    }

    /// Creates a fault for input that ends too early.
    #[cold]
    pub(crate) const fn incomplete(expected: &'static str) -> Fault {
        Fault { kind: FaultKind::Incomplete, expected }
    }

    /// Creates a fault for input that violates the expectation.
    #[cold]
    pub(crate) const fn malformed(expected: &'static str) -> Fault {
        Fault { kind: FaultKind::Malformed, expected }
    }

    /// Creates a fault for input that continues after the message.
    #[cold]
    pub(crate) const fn trailing() -> Fault {
        Fault { kind: FaultKind::Trailing, expected: "the end of the message" }
    }

    /// Creates a fault for a length that exceeds a limit.
    #[cold]
    pub(crate) const fn too_large(expected: &'static str) -> Fault {
        Fault { kind: FaultKind::TooLarge, expected }
    }

    /// Creates a fault for a message that the format cannot represent. `expected` describes the
    /// accepted messages.
    #[cold]
    pub(crate) const fn unwritable(expected: &'static str) -> Fault {
        Fault { kind: FaultKind::Unwritable, expected }
    }

    /// Creates a fault for a failed allocation.
    #[cold]
    pub(crate) const fn memory() -> Fault {
        Fault { kind: FaultKind::Memory, expected: "memory for the message" }
    }

    pub(crate) fn is_incomplete(self) -> bool {
        self.kind == FaultKind::Incomplete
    }
}

impl Error {
    #[cold]
    pub(crate) fn reading(format: &'static str, offset: u64, fault: Fault) -> Error {
        Error { format, offset: Some(offset), fault }
    }

    #[cold]
    pub(crate) fn writing(format: &'static str, fault: Fault) -> Error {
        Error { format, offset: None, fault }
    }

    /// Returns the name of the format.
    pub fn format(&self) -> &'static str {
        self.format
    }

    /// Returns the offset of the fault in bytes, from the start of the input or the stream. Returns
    /// `None` if a message could not be written.
    pub fn offset(&self) -> Option<u64> {
        self.offset
    }

    /// Returns a description of the expected input, or of the messages that the format accepts.
    pub fn expected(&self) -> &'static str {
        self.fault.expected
    }

    /// Returns whether the input ended too early. If so, you can retry with more bytes, because all
    /// bytes so far were the beginning of a message.
    pub fn is_incomplete(&self) -> bool {
        self.fault.is_incomplete()
    }

    /// Returns whether a length exceeds a limit.
    pub fn is_too_large(&self) -> bool {
        self.fault.kind == FaultKind::TooLarge
    }

    /// Returns whether the format cannot represent the message that you tried to write.
    pub fn is_unwritable(&self) -> bool {
        self.fault.kind == FaultKind::Unwritable
    }

    pub(crate) fn moved_by(self, bytes: u64) -> Error {
        Error { offset: self.offset.map(|offset| offset + bytes), ..self }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Error { format, offset, fault: Fault { kind, expected } } = self;
        let Some(offset) = offset else {
            return write!(f, "{format}: cannot write the message: {expected}");
        };
        write!(f, "{format}: at byte {offset}: ")?;
        match kind {
            FaultKind::Incomplete => write!(f, "expected {expected}, found the end of the input"),
            FaultKind::Malformed => write!(f, "expected {expected}"),
            FaultKind::Trailing => write!(f, "expected {expected}, found more bytes"),
            FaultKind::TooLarge => write!(f, "too large: expected {expected}"),
            FaultKind::Unwritable => write!(f, "{expected}"),
            FaultKind::Memory => write!(f, "no {expected}"),
        }
    }
}

impl core::error::Error for Error {}
