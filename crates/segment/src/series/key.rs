//! A key: the label values of one series, packed once to be hashed and compared.
//!
//! All fixed values fold into one number, the *group*, in mixed radix. The texts of the dynamic
//! ones lie one behind the other, each behind its length: one byte below 255, else the byte 255 and
//! four little-endian bytes; zeros fill the last word. So two different sets of labels never have
//! the same key. A key lies on the stack; only long ones take memory.

use std::mem::MaybeUninit;

use rapidhash::v3::{RapidSecrets, rapidhash_v3_micro_inline};

use super::strings::StringSet;

/// Takes the label values of a series in the order of the family's labels.
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
    stack: [MaybeUninit<u8>; STACK],
    /// All bytes, once they do not fit above.
    spill: Vec<u8>,
}

/// A packed key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Key<'k> {
    pub(crate) group: u32,
    /// The texts: whole words.
    pub(crate) words: &'k [u8],
    pub(crate) hash: u64,
}

/// The bytes of a key that fit on the stack; a multiple of a word.
const STACK: usize = 232;

impl<'a> KeyWriter<'a> {
    #[inline]
    pub(crate) fn new(sets: &'a [Option<StringSet>]) -> Self {
        let stack = [MaybeUninit::uninit(); STACK];
        Self { sets, position: 0, group: 0, unknown: false, length: 0, stack, spill: Vec::new() }
    }

    /// Writes a value of fixed cardinality: the `index`th of `of` values.
    #[inline]
    pub fn index(&mut self, index: u32, of: u32) {
        self.position += 1;
        self.group = self.group.wrapping_mul(of).wrapping_add(index);
    }

    /// Writes a text: one of the label's fixed values where it has them, else any.
    ///
    /// A text that is none of the fixed values goes to the family's overflow series.
    #[inline]
    pub fn text(&mut self, text: &str) {
        let set = self.sets.get(self.position).and_then(Option::as_ref);
        match set {
            Some(set) => match set.find(text) {
                Some(index) => self.index(index, set.len()),
                None => {
                    self.unknown = true;
                    self.position += 1;
                }
            },
            None => {
                self.position += 1;
                self.push(text.as_bytes());
            }
        }
    }

    /// The group, where all labels are fixed; `None` where a text was unknown.
    #[inline]
    pub(crate) fn group(&self) -> Option<u32> {
        (!self.unknown).then_some(self.group)
    }

    /// Packs the key. `None` where a text was unknown.
    #[inline]
    pub(crate) fn finish(&mut self, secrets: &RapidSecrets) -> Option<Key<'_>> {
        if self.unknown {
            return None;
        }
        let length = self.length.next_multiple_of(8);
        let words = if self.spill.is_empty() {
            for byte in &mut self.stack[self.length..length] {
                byte.write(0);
            }
            let words = &self.stack[..length];
            // SAFETY: `push` and the loop above wrote the first `length` bytes; MaybeUninit<u8>
            // has the layout of u8.
            unsafe { std::slice::from_raw_parts(words.as_ptr().cast::<u8>(), length) }
        } else {
            self.spill.resize(length, 0);
            &self.spill[..]
        };
        Some(Key { group: self.group, words, hash: hash(words, self.group, secrets) })
    }

    #[inline]
    fn push(&mut self, text: &[u8]) {
        let end = self.length + 1 + text.len();
        if text.len() < usize::from(u8::MAX) && end <= STACK && self.spill.is_empty() {
            // The range lies inside: `end` was compared.
            self.stack[self.length].write(text.len() as u8);
            let to = &mut self.stack[self.length + 1..end];
            copy(text, to);
            self.length = end;
        } else {
            self.push_long(text);
        }
    }

    #[cold]
    fn push_long(&mut self, text: &[u8]) {
        if self.spill.is_empty() {
            let written = &self.stack[..self.length];
            // SAFETY: the first `length` bytes were written by `push`.
            let written =
                unsafe { std::slice::from_raw_parts(written.as_ptr().cast::<u8>(), self.length) };
            self.spill.extend_from_slice(written);
        }
        match u8::try_from(text.len()) {
            Ok(length) if length < u8::MAX => self.spill.push(length),
            _ => {
                self.spill.push(u8::MAX);
                // A key that does not fit into a record is refused there, by its length.
                let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
                self.spill.extend_from_slice(&length.to_le_bytes());
            }
        }
        self.spill.extend_from_slice(text);
        self.length = self.spill.len();
    }
}

/// The hash of a key: of the words and, spread by a multiplication, of the group.
#[inline]
pub(crate) fn hash(words: &[u8], group: u32, secrets: &RapidSecrets) -> u64 {
    rapidhash_v3_micro_inline::<true, false>(words, secrets)
        ^ u64::from(group).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Copies as many bytes, in overlapping words where they are few: a call costs more than the copy
/// for texts as short as labels are.
#[inline]
fn copy(from: &[u8], to: &mut [MaybeUninit<u8>]) {
    let count = from.len();
    debug_assert_eq!(count, to.len());
    let (from, to) = (from.as_ptr(), to.as_mut_ptr().cast::<u8>());
    // SAFETY: both ranges have `count` bytes and do not overlap, since one is borrowed mutably;
    // each branch stays inside of them by its condition on `count`.
    unsafe {
        if count > 32 {
            std::ptr::copy_nonoverlapping(from, to, count);
        } else if count >= 16 {
            let (head, tail) = (from.cast::<[u8; 16]>().read(), from.add(count - 16));
            let tail = tail.cast::<[u8; 16]>().read();
            to.cast::<[u8; 16]>().write(head);
            to.add(count - 16).cast::<[u8; 16]>().write(tail);
        } else if count >= 8 {
            let (head, tail) = (from.cast::<[u8; 8]>().read(), from.add(count - 8));
            let tail = tail.cast::<[u8; 8]>().read();
            to.cast::<[u8; 8]>().write(head);
            to.add(count - 8).cast::<[u8; 8]>().write(tail);
        } else if count >= 4 {
            let (head, tail) = (from.cast::<[u8; 4]>().read(), from.add(count - 4));
            let tail = tail.cast::<[u8; 4]>().read();
            to.cast::<[u8; 4]>().write(head);
            to.add(count - 4).cast::<[u8; 4]>().write(tail);
        } else {
            for i in 0..count {
                to.add(i).write(from.add(i).read());
            }
        }
    }
}

/// Reads the texts of a key one after the other: (the text, what is behind it).
pub(crate) fn next_text(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&first, rest) = bytes.split_first()?;
    let (length, rest) = if first < u8::MAX {
        (usize::from(first), rest)
    } else {
        let (length, rest) = rest.split_first_chunk()?;
        (u32::from_le_bytes(*length) as usize, rest)
    };
    rest.split_at_checked(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(texts: &[&str]) -> (u32, Vec<u8>, u64) {
        let mut writer = KeyWriter::new(&[]);
        texts.iter().for_each(|text| writer.text(text));
        let key = writer.finish(&RapidSecrets::seed(7)).unwrap();
        (key.group, key.words.to_vec(), key.hash)
    }

    #[test]
    fn texts_come_back_whatever_their_length() {
        for count in [0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 100, 230, 254, 255, 256, 70_000] {
            let long = "y".repeat(count);
            let texts = ["", &long, "z", &long];
            let (_, bytes, _) = packed(&texts);
            assert_eq!(bytes.len() % 8, 0);
            let mut rest = &bytes[..];
            for text in texts {
                let (found, behind) = next_text(rest).unwrap();
                assert_eq!(found, text.as_bytes());
                rest = behind;
            }
            assert!(rest.len() < 8 && rest.iter().all(|&byte| byte == 0));
        }
    }

    #[test]
    fn keys_of_shifted_texts_differ() {
        assert_ne!(packed(&["ab", "c"]), packed(&["a", "bc"]));
        assert_ne!(packed(&["", "abc"]), packed(&["abc", ""]));
    }

    #[test]
    fn fixed_values_fold_and_unknown_ones_are_told() {
        let sets = [Some(StringSet::new(&["a", "b", "c"]).unwrap()), None];
        let secrets = RapidSecrets::seed(1);
        let mut writer = KeyWriter::new(&sets);
        writer.text("c");
        writer.text("free");
        writer.index(1, 2);
        assert_eq!(writer.finish(&secrets).unwrap().group, 2 * 2 + 1);
        let mut writer = KeyWriter::new(&sets);
        writer.text("other");
        assert!(writer.finish(&secrets).is_none());
    }
}
