//! Offsets in a segment, counted from its start: of words, and of bytes.
//!
//! Series, blocks, tables and claims are found by a [`WordOffset`]. It has 32 bits, so that a word
//! of the segment can hold an offset and something else. Cells of the header and of the segment's
//! records are found by a [`ByteOffset`]. Lengths are plain integers, which [`bytes`] and [`words`]
//! convert.

use std::fmt;

/// The bytes of a cell.
pub const CELL_BYTES: u64 = 8;

/// The offset of a word. None names the segment's first word, so [`Self::NONE`] is 0, as in a
/// zeroed word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct WordOffset(u32);

/// The offset of a byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ByteOffset(u64);

impl WordOffset {
    /// Stands for nothing.
    pub(crate) const NONE: Self = Self(0);

    #[inline]
    pub(crate) const fn new(words: u32) -> Self {
        Self(words)
    }

    /// The offset in the lower half of a word of the segment.
    #[inline]
    pub(crate) const fn unpack(word: u64) -> Self {
        // Truncation is meant: the upper half holds something else.
        Self(word as u32)
    }

    /// A word of the segment whose lower half is the offset.
    #[inline]
    pub(crate) const fn pack(self) -> u64 {
        self.0 as u64
    }

    /// The offset as a number of words.
    #[inline]
    pub(crate) const fn get(self) -> u32 {
        self.0
    }

    /// The offset `words` words further on.
    #[inline]
    pub(crate) const fn plus(self, words: u32) -> Self {
        Self(self.0 + words)
    }

    /// As [`Self::plus`]; `None` beyond the reach of word offsets.
    #[inline]
    pub(crate) fn checked_plus(self, words: u32) -> Option<Self> {
        self.0.checked_add(words).map(Self)
    }

    /// The offset of the word's first byte.
    #[inline]
    pub(crate) const fn byte(self) -> ByteOffset {
        self.byte_of(0)
    }

    /// The offset of the first byte of the word `index` words further on, which may lie beyond the
    /// reach of word offsets.
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

    /// The offset as a number of bytes.
    #[inline]
    pub(crate) const fn get(self) -> u64 {
        self.0
    }

    /// The offset as a number of whole words.
    #[inline]
    pub(crate) const fn words(self) -> u64 {
        words(self.0)
    }

    /// The offset as an index into the bytes of a header.
    #[inline]
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }

    /// The offset `bytes` bytes further on.
    #[inline]
    pub(crate) const fn plus(self, bytes: u64) -> Self {
        Self(self.0 + bytes)
    }

    /// Whether a cell may begin there.
    #[inline]
    pub(crate) const fn is_of_cell(self) -> bool {
        self.0.is_multiple_of(CELL_BYTES)
    }
}

/// The bytes of `words` words; at most `u64::MAX`, for a number of words that was read and may be
/// anything.
#[inline]
pub(crate) const fn bytes(words: u64) -> u64 {
    words.saturating_mul(CELL_BYTES)
}

/// The number of whole words in `bytes` bytes.
#[inline]
pub(crate) const fn words(bytes: u64) -> u64 {
    bytes / CELL_BYTES
}

impl fmt::Display for ByteOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}
