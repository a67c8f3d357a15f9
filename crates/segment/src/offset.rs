//! Offsets in a segment, counted from its start: of words, and of bytes.
//!
//! You find series, blocks, tables and claims by a [`WordOffset`]. Its size is 32 bits, so a word
//! of the segment can contain an offset and something else. You find cells of the header and of the
//! segment's records by a [`ByteOffset`]. Lengths are plain integers, which [`bytes`] and [`words`]
//! convert.

use std::fmt;

/// The size of a cell in bytes.
pub const CELL_BYTES: u64 = 8;

/// The offset of a word. No offset refers to the first word of the segment, so [`Self::NONE`] is 0,
/// like a zeroed word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct WordOffset(u32);

/// The offset of a byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ByteOffset(u64);

impl WordOffset {
    /// The offset that means "no word".
    pub(crate) const NONE: Self = Self(0);

    #[inline]
    pub(crate) const fn new(words: u32) -> Self {
        Self(words)
    }

    /// Unpacks the offset from the lower half of a word of the segment.
    #[inline]
    pub(crate) const fn unpack(word: u64) -> Self {
        // The truncation is intended: the upper half contains something else.
        Self(word as u32)
    }

    /// Returns a word of the segment whose lower half is the offset.
    #[inline]
    pub(crate) const fn pack(self) -> u64 {
        self.0 as u64
    }

    /// Returns the offset as a number of words.
    #[inline]
    pub(crate) const fn get(self) -> u32 {
        self.0
    }

    /// Returns the offset `words` words further on.
    #[inline]
    pub(crate) const fn plus(self, words: u32) -> Self {
        Self(self.0 + words)
    }

    /// Like [`Self::plus`]; `None` beyond the reach of word offsets.
    #[inline]
    pub(crate) fn checked_plus(self, words: u32) -> Option<Self> {
        self.0.checked_add(words).map(Self)
    }

    /// Returns the offset of the word's first byte.
    #[inline]
    pub(crate) const fn byte(self) -> ByteOffset {
        self.byte_of(0)
    }

    /// Returns the offset of the first byte of the word `index` words further on, which may be
    /// beyond the reach of word offsets.
    #[inline]
    pub(crate) const fn byte_of(self, index: u32) -> ByteOffset {
        ByteOffset((self.0 as u64 + index as u64) * CELL_BYTES)
    }
}

impl ByteOffset {
    #[inline]
    pub(crate) const fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    /// Returns the offset as a number of bytes.
    #[inline]
    pub(crate) const fn get(self) -> u64 {
        self.0
    }

    /// Returns the offset as a number of whole words.
    #[inline]
    pub(crate) const fn words(self) -> u64 {
        words(self.0)
    }

    /// Returns the offset as an index into the bytes of a header.
    #[inline]
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }

    /// Returns the offset `bytes` bytes further on.
    #[inline]
    pub(crate) const fn plus(self, bytes: u64) -> Self {
        Self(self.0 + bytes)
    }

    /// Returns whether a cell can begin there.
    #[inline]
    pub(crate) const fn is_of_cell(self) -> bool {
        self.0.is_multiple_of(CELL_BYTES)
    }
}

/// Returns the bytes of `words` words. The result saturates at `u64::MAX`, because the number may
/// be untrusted.
#[inline]
pub(crate) const fn bytes(words: u64) -> u64 {
    words.saturating_mul(CELL_BYTES)
}

/// Returns the number of whole words in `bytes` bytes.
#[inline]
pub(crate) const fn words(bytes: u64) -> u64 {
    bytes / CELL_BYTES
}

impl fmt::Display for ByteOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}
