//! The crate's error: an input that is not valid, or a message that a format cannot represent.

use core::fmt;

/// Why a message could not be read or written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    format: &'static str,
    /// Offset in the input, or `None` for a message that could not be written.
    offset: Option<u64>,
    fault: Fault,
}

/// The kind of an error, and what was expected.
///
/// It has no offset, since readers leave the input at the fault.
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
    /// What was expected.
    pub(crate) const fn expected(self) -> &'static str {
        self.expected
    }

    /// The input ends where something was expected.
    #[cold]
    pub(crate) const fn incomplete(expected: &'static str) -> Fault {
        Fault { kind: FaultKind::Incomplete, expected }
    }

    /// The input has something other than what was expected.
    #[cold]
    pub(crate) const fn malformed(expected: &'static str) -> Fault {
        Fault { kind: FaultKind::Malformed, expected }
    }

    /// The message ends before the input does.
    #[cold]
    pub(crate) const fn trailing() -> Fault {
        Fault { kind: FaultKind::Trailing, expected: "the end of the message" }
    }

    /// A length exceeds a limit.
    #[cold]
    pub(crate) const fn too_large(expected: &'static str) -> Fault {
        Fault { kind: FaultKind::TooLarge, expected }
    }

    /// The format cannot represent a message; the text says what the format accepts.
    #[cold]
    pub(crate) const fn unwritable(expected: &'static str) -> Fault {
        Fault { kind: FaultKind::Unwritable, expected }
    }

    /// Memory for the message could not be allocated.
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

    /// The format's name.
    pub fn format(&self) -> &'static str {
        self.format
    }

    /// The offset of the fault in bytes, from the start of the input or of the stream. `None` when
    /// a message could not be written.
    pub fn offset(&self) -> Option<u64> {
        self.offset
    }

    /// What was expected there, or what the format accepts.
    pub fn expected(&self) -> &'static str {
        self.fault.expected
    }

    /// Whether the input ended too early: as far as it goes, it is the beginning of a message.
    pub fn is_incomplete(&self) -> bool {
        self.fault.is_incomplete()
    }

    /// Whether a length exceeds a limit.
    pub fn is_too_large(&self) -> bool {
        self.fault.kind == FaultKind::TooLarge
    }

    /// Whether the format cannot represent a message that was to be written.
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
