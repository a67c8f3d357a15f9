//! A key: the label values of one series, packed once to be hashed and compared.
//!
//! All fixed values fold into one number, the *group*, in mixed radix. The texts of the dynamic
//! ones are concatenated, each preceded by its length: one byte if it is less than 255, else the
//! byte 255 and four little-endian bytes. Zeros fill the last word. So two different label sets
//! never have the same key. A key lies on the stack; only long ones allocate memory.

use std::mem::MaybeUninit;

use rapidhash::v3::{RapidSecrets, rapidhash_v3_micro_inline};

use super::strings::StringSet;

/// Collects the label values of a series, in the order of the family's labels.
///
/// It refers to the texts of dynamic labels, so that functions that change those do not have a
/// reference to the writer: it stays in registers.
pub struct KeyWriter<'a> {
    /// The sets of values of the labels; `None` where a label is dynamic.
    sets: &'a [Option<StringSet>],
    /// Where texts of dynamic labels go; `None` if the family has no dynamic label.
    texts: Option<&'a mut Texts>,
    /// The number of labels that were written.
    position: usize,
    group: u32,
    /// Whether a text was not among its label's fixed values.
    unknown: bool,
}

/// The texts of dynamic labels, packed.
///
/// Its fields stay in this order: with `stack` between fields that begin as zeros, the compiler would
/// zero all of it.
#[repr(C)]
pub(crate) struct Texts {
    /// The number of texts.
    texts: usize,
    /// The number of complete words.
    count: usize,
    /// All words, once they do not fit into `stack`.
    #[allow(clippy::box_collection, reason = "one word to set, not three")]
    spill: Option<Box<Vec<u64>>>,
    last: Last,
    stack: [MaybeUninit<u64>; STACK],
}

/// The last word of a key, which is not complete: its bytes, and the number of their bits, less
/// than 64.
#[derive(Debug, Clone, Copy, Default)]
struct Last {
    word: u64,
    bits: u32,
}

/// Label values that were written once, to be written again with [`KeyWriter::kept`].
#[derive(Debug, Clone)]
pub struct Values {
    position: usize,
    texts: usize,
    group: u32,
    unknown: bool,
    last: Last,
    words: Box<[u64]>,
}

impl Values {
    /// The rest of a series' texts after these values; `None` if the series does not begin with
    /// them.
    pub fn rest_of<'t>(&self, group: u32, texts: &'t [u8]) -> Option<&'t [u8]> {
        if self.unknown || group != self.group {
            return None;
        }
        let last = self.last.word.to_le_bytes();
        with_bytes(&self.words, |whole| {
            let rest = texts.strip_prefix(whole)?;
            rest.strip_prefix(&last[..self.last.bits as usize / 8])
        })
    }
}

/// A packed key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Key<'k> {
    pub(crate) group: u32,
    /// The texts.
    pub(crate) words: &'k [u64],
    pub(crate) hash: u64,
}

/// The number of words of a key that fit on the stack.
const STACK: usize = 32;
/// The longest text that is packed without a loop.
const MEDIUM: usize = 40;

impl<'a> KeyWriter<'a> {
    /// A writer of labels of fixed cardinality alone, whose key is the group.
    #[inline]
    pub(crate) fn of_group(sets: &'a [Option<StringSet>]) -> Self {
        Self { sets, texts: None, position: 0, group: 0, unknown: false }
    }

    #[inline]
    pub(crate) fn new(sets: &'a [Option<StringSet>], texts: &'a mut Texts) -> Self {
        Self { texts: Some(texts), ..Self::of_group(sets) }
    }

    /// Writes a value of fixed cardinality: value number `index` of `of` values.
    #[inline]
    pub fn index(&mut self, index: u32, of: u32) {
        self.position += 1;
        self.group = self.group.wrapping_mul(of).wrapping_add(index);
    }

    /// Writes a text: one of the label's fixed values if it has them, else any text.
    ///
    /// A text that is not one of the fixed values goes to the family's overflow series.
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
                if let Some(texts) = &mut self.texts {
                    texts.push(text.as_bytes());
                }
            }
        }
    }

    /// Writes all labels of a series at once, as a [`View`](super::View) has them: the group, and
    /// the texts preceded by their lengths.
    pub fn series(&mut self, group: u32, texts: &[u8]) {
        self.position = self.sets.len();
        self.group = group;
        let Some(packed) = &mut self.texts else { return };
        let mut rest = texts;
        while let Some((text, behind)) = next_text(rest) {
            packed.push(text);
            rest = behind;
        }
    }

    /// Writes kept values. Must be called before anything else is written.
    pub fn kept(&mut self, values: &Values) {
        debug_assert_eq!(self.position, 0);
        (self.position, self.group, self.unknown) = (values.position, values.group, values.unknown);
        let Some(texts) = &mut self.texts else { return };
        values.words.iter().for_each(|word| texts.store(*word));
        (texts.texts, texts.last) = (values.texts, values.last);
    }

    /// Keeps what was written so far.
    pub(crate) fn keep(self) -> Values {
        let Self { position, group, unknown, texts, .. } = self;
        let (texts, last, words) = texts
            .map_or_else(Default::default, |texts| (texts.texts, texts.last, texts.words().into()));
        Values { position, texts, group, unknown, last, words }
    }

    /// The group of all fixed labels; `None` if a text was unknown.
    #[inline]
    pub(crate) fn group(&self) -> Option<u32> {
        (!self.unknown).then_some(self.group)
    }

    /// The key, packed.
    #[inline]
    pub(crate) fn finish(self, secrets: &RapidSecrets, texts: usize) -> Option<Key<'a>> {
        let group = self.group()?;
        self.texts?.finish(group, secrets, texts)
    }
}

impl Texts {
    #[inline]
    pub(crate) fn new() -> Self {
        let stack = [MaybeUninit::uninit(); STACK];
        Self { texts: 0, count: 0, spill: None, last: Last::default(), stack }
    }

    /// Packs the key. `None` if the number of texts is not `texts`.
    #[inline]
    pub(crate) fn finish(
        &mut self,
        group: u32,
        secrets: &RapidSecrets,
        texts: usize,
    ) -> Option<Key<'_>> {
        if self.texts != texts {
            return None;
        }
        if self.last.bits > 0 {
            self.store(self.last.word);
            self.last = Last::default();
        }
        let words = self.words();
        Some(Key { group, words, hash: hash(words, group, secrets) })
    }

    /// As [`Texts::finish`], for a key of at most `SHORT` words: without a call.
    #[inline]
    pub(crate) fn finish_short(
        &mut self,
        group: u32,
        secrets: &RapidSecrets,
        texts: usize,
    ) -> Option<Key<'_>> {
        if self.texts != texts || self.count >= SHORT {
            return None;
        }
        // Not counted: `finish` does not find it there.
        self.stack[self.count].write(self.last.word);
        let count = self.count + usize::from(self.last.bits > 0);
        // SAFETY: `push` wrote the first words, and the last one was written above.
        let words = unsafe { std::slice::from_raw_parts(self.stack.as_ptr().cast::<u64>(), count) };
        let hash = hash_short(words, secrets) ^ spread(group);
        Some(Key { group, words, hash })
    }

    /// The complete words.
    #[inline]
    fn words(&self) -> &[u64] {
        match &self.spill {
            // SAFETY: `store` and `push` wrote the first `count` words.
            None => unsafe {
                std::slice::from_raw_parts(self.stack.as_ptr().cast::<u64>(), self.count)
            },
            Some(words) => words,
        }
    }

    /// Appends a length and a text.
    #[inline(never)]
    fn push(&mut self, text: &[u8]) {
        self.texts += 1;
        // Beside the words of the text, its length and its last bytes may complete one each.
        let most = self.count + text.len() / 8 + 2;
        if text.len() > MEDIUM || most > STACK {
            return self.push_long(text);
        }
        // Copies, since the compiler cannot tell that a store to the stack leaves the fields alone.
        let (mut last, mut count) = (self.last, self.count);
        last.put_text::<false>(text, |word| {
            // SAFETY: `put_text` completes no more words than `most` allows for.
            unsafe { self.stack.get_unchecked_mut(count) }.write(word);
            count += 1;
        });
        (self.last, self.count) = (last, count);
    }

    /// Appends a long text, or one for which the stack may have no room. A separate function, so that
    /// the one above calls none, and saves no registers.
    #[inline(never)]
    fn push_long(&mut self, text: &[u8]) {
        let mut last = self.last;
        last.put_text::<true>(text, |word| self.store(word));
        self.last = last;
    }

    #[inline]
    fn store(&mut self, word: u64) {
        match self.stack.get_mut(self.count) {
            Some(place) => {
                place.write(word);
                self.count += 1;
            }
            None => self.spill(word),
        }
    }

    #[cold]
    #[inline(never)]
    fn spill(&mut self, word: u64) {
        // SAFETY: the stack is full: `store` and `push` wrote all of it.
        let all =
            || Box::new(self.stack.iter().map(|word| unsafe { word.assume_init() }).collect());
        self.spill.get_or_insert_with(all).push(word);
    }
}

impl Last {
    /// Appends a length and a text, and calls `store` with each word that this completes. Words are
    /// assembled in registers and stored whole: reading a word after storing parts of it waits for
    /// all of the parts (measured: 20 ns per key). A text that is not `LONG` has at most `MEDIUM` bytes.
    #[inline(always)]
    fn put_text<const LONG: bool>(&mut self, text: &[u8], mut store: impl FnMut(u64)) {
        match text.len() {
            // At most 254.
            length if length < usize::from(u8::MAX) => self.put(length as u64, 8, &mut store),
            length => {
                self.put(u8::MAX.into(), 8, &mut store);
                // A key that does not fit into a record is refused there, because of its length.
                self.put(u64::from(u32::try_from(length).unwrap_or(u32::MAX)), 32, &mut store);
            }
        }
        // The first and the last bytes, at the start and at the end of a word.
        let (first, last) = match (text.first_chunk(), text.last_chunk()) {
            (Some(first), Some(last)) => (u64::from_le_bytes(*first), u64::from_le_bytes(*last)),
            _ => {
                let short = short(text);
                (short, short << 1 << (63 - 8 * text.len()))
            }
        };
        // The word has room for 1 to 8 bytes.
        let room = 8 - self.bits as usize / 8;
        self.word |= first << self.bits;
        let Some(rest) = text.get(room..) else {
            // At most 7 bytes, which do not complete the word.
            self.bits += 8 * text.len() as u32;
            return;
        };
        store(self.word);
        let (chunks, rest) = rest.as_chunks();
        let mut store = |chunk: &[u8; 8]| store(u64::from_le_bytes(*chunk));
        if LONG {
            chunks.iter().for_each(store);
        } else if let [chunk, chunks @ ..] = chunks {
            // At most four, without a loop, which the compiler would make a call of `memcpy`.
            store(chunk);
            if let [chunk, chunks @ ..] = chunks {
                store(chunk);
                if let [chunk, chunks @ ..] = chunks {
                    store(chunk);
                    chunks.first().into_iter().for_each(store);
                }
            }
        }
        self.bits = 8 * rest.len() as u32;
        self.word = last >> 1 >> (63 - self.bits);
    }

    /// Appends the lowest `bits` bits of `value`, fewer than 64. The other bits of `value` must be
    /// zero.
    #[inline(always)]
    fn put(&mut self, value: u64, bits: u32, store: &mut impl FnMut(u64)) {
        self.word |= value << self.bits;
        if self.bits + bits < 64 {
            self.bits += bits;
        } else {
            store(self.word);
            self.word = value >> 1 >> (63 - self.bits);
            self.bits = self.bits + bits - 64;
        }
    }
}

/// A text of at most 7 bytes as a number, by loads that stay inside the text.
#[inline]
fn short(text: &[u8]) -> u64 {
    if let (Some(first), Some(last)) = (text.first_chunk::<4>(), text.last_chunk::<4>()) {
        let first = u64::from(u32::from_le_bytes(*first));
        return first | u64::from(u32::from_le_bytes(*last)) << (8 * (text.len() - 4));
    }
    text.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// The hash of a key: that of the words, and the group, spread by a multiplication.
#[inline]
pub(crate) fn hash(words: &[u64], group: u32, secrets: &RapidSecrets) -> u64 {
    let texts =
        if words.len() <= SHORT { hash_short(words, secrets) } else { hash_long(words, secrets) };
    texts ^ spread(group)
}

#[inline]
fn spread(group: u32) -> u64 {
    u64::from(group).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cold]
#[inline(never)]
fn hash_long(words: &[u64], secrets: &RapidSecrets) -> u64 {
    // SAFETY: words may be read as bytes, of which there are eight each.
    let bytes = unsafe { std::slice::from_raw_parts(words.as_ptr().cast::<u8>(), 8 * words.len()) };
    rapidhash_v3_micro_inline::<true, false>(bytes, secrets)
}

/// The most words of which [`hash_short`] is the hash.
const SHORT: usize = 10;

/// What [`hash_long`] returns, for up to 10 words: the library's function takes any bytes, and is
/// called, so that the caller would save its registers.
#[inline]
fn hash_short(words: &[u64], secrets: &RapidSecrets) -> u64 {
    let mix = |a: u64, b: u64| {
        let product = u128::from(a) * u128::from(b);
        // Truncation is meant: both halves.
        (product as u64, (product >> 64) as u64)
    };
    let fold = |(low, high): (u64, u64)| low ^ high;
    let [_, one, two, ..] = secrets.secrets;
    let (bytes, mut seed) = (8 * words.len() as u64, secrets.seed);
    // As the library reads them from bytes.
    let word = u64::from_le;
    let (a, b);
    if let [first, second, _, ..] = *words {
        seed = fold(mix(word(first) ^ two, word(second) ^ seed));
        if let [_, _, first, second, _, ..] = *words {
            seed = fold(mix(word(first) ^ two, word(second) ^ seed));
            if let [_, _, _, _, first, second, _, ..] = *words {
                seed = fold(mix(word(first) ^ one, word(second) ^ seed));
                if let [_, _, _, _, _, _, first, second, _, ..] = *words {
                    seed = fold(mix(word(first) ^ one, word(second) ^ seed));
                }
            }
        }
        (a, b) = (word(words[words.len() - 2]) ^ bytes, word(words[words.len() - 1]));
    } else {
        seed ^= bytes;
        (a, b) = match *words {
            [first, .., last] => (word(first), word(last)),
            [only] => (word(only), word(only)),
            [] => (0, 0),
        };
    }
    let (low, high) = mix(a ^ one, b ^ seed);
    fold(mix(low ^ 0xaaaa_aaaa_aaaa_aaaa, high ^ one ^ bytes))
}

/// Calls `look` with the bytes of a key's words; only long keys allocate memory.
pub(crate) fn with_bytes<T>(words: &[u64], look: impl FnOnce(&[u8]) -> T) -> T {
    let mut stack = [[0; 8]; STACK];
    match stack.get_mut(..words.len()) {
        Some(bytes) => {
            bytes.iter_mut().zip(words).for_each(|(bytes, word)| *bytes = word.to_le_bytes());
            look(bytes.as_flattened())
        }
        None => look(&words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>()),
    }
}

/// Splits the first text off the texts of a key: (the text, the rest).
#[inline]
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
    use crate::hash::fnv1a;

    fn packed(texts: &[&str]) -> (u32, Vec<u8>, u64) {
        let mut packed = Texts::new();
        let mut writer = KeyWriter::new(&[], &mut packed);
        texts.iter().for_each(|text| writer.text(text));
        let secrets = RapidSecrets::seed(7);
        let group = writer.group().unwrap();
        let short = packed.finish_short(group, &secrets, texts.len());
        let short = short.map(|key| (key.words.to_vec(), key.hash));
        let key = packed.finish(group, &secrets, texts.len()).unwrap();
        if let Some(short) = short {
            assert_eq!(short, (key.words.to_vec(), key.hash));
        }
        let bytes = key.words.iter().flat_map(|word| word.to_le_bytes()).collect();
        (key.group, bytes, key.hash)
    }

    #[test]
    fn texts_come_back_whatever_their_length() {
        let lengths =
            [0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 100, 230, 254, 255, 256, 70_000];
        for count in lengths.into_iter().take(if cfg!(miri) { 20 } else { 21 }) {
            let long = "y".repeat(count);
            let texts = ["", &long, "z", &long];
            let (_, bytes, _) = packed(&texts);
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
    fn a_short_hash_is_that_of_the_library() {
        let words: [u64; SHORT] = std::array::from_fn(|i| fnv1a(&[i as u8]));
        for seed in [0, 7, u64::MAX] {
            let secrets = RapidSecrets::seed(seed);
            for count in 0..=SHORT {
                let words = &words[..count];
                assert_eq!(
                    hash_short(words, &secrets),
                    hash_long(words, &secrets),
                    "{count} words"
                );
            }
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
        for (count, group) in [(2, None), (1, Some(2 * 2 + 1))] {
            let mut texts = Texts::new();
            let mut writer = KeyWriter::new(&sets, &mut texts);
            writer.text("c");
            writer.text("free");
            writer.index(1, 2);
            assert_eq!(writer.finish(&secrets, count).map(|key| key.group), group);
        }
        let mut texts = Texts::new();
        let mut writer = KeyWriter::new(&sets, &mut texts);
        writer.text("other");
        assert!(writer.finish(&secrets, 0).is_none());
    }
}
