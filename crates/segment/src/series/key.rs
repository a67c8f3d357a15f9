//! A key: the label values of one series, packed once to be hashed and compared.

use std::mem::MaybeUninit;

use super::strings::StringSet;

/// Takes the label values of a series in the order of the family's labels, and makes the key of
/// them: a number for all fixed values, and the texts of the dynamic ones.
///
/// It lies on the stack; only keys of more than 240 bytes take memory.
pub struct KeyWriter<'a> {
    /// The sets of values of the labels; `None` where a label is dynamic.
    sets: &'a [Option<StringSet>],
    /// How many labels were written.
    position: usize,
    group: u32,
    /// Whether some text was not among its label's fixed values.
    unknown: bool,
    /// Bytes of texts, lengths included.
    length: usize,
    bytes: [MaybeUninit<u64>; WORDS],
    /// All bytes, once they do not fit above.
    spill: Vec<u8>,
}

/// The words of a key on the stack.
const WORDS: usize = 32;

impl KeyWriter<'_> {
    /// Writes a value of fixed cardinality: the `index`th of `of` values.
    #[inline]
    pub fn index(&mut self, index: u32, of: u32) {
        let _ = (index, of);
        todo!()
    }

    /// Writes a text: one of the label's fixed values where it has them, else any.
    #[inline]
    pub fn text(&mut self, text: &str) {
        let _ = text;
        todo!()
    }
}
