//! A key: the label values of one series, packed and hashed once for comparison.
//!
//! All fixed values fold into one number, the *group*, in mixed radix. The values of dynamic labels
//! are concatenated, each preceded by its length: one byte if it is less than 255, otherwise the
//! byte 255 and four little-endian bytes. Zeros fill the last word. This encoding is unique: two
//! different label sets never share a key. For example, ("a", "bc") and ("ab", "c") differ in their
//! lengths. A key is built on the stack, and only long keys allocate memory.
//!
//! The [hash](Secrets) covers the values, not the packed words: each value is hashed by the loads
//! that pack it. Reading words that were just stored in parts would stall until the stores are
//! done; by the time we compare the key, they are done.

use std::mem::MaybeUninit;

use rapidhash::v3::RapidSecrets;

use super::strings::{StringSet, middle};

/// Collects the label values of a series, in the order of the family's labels.
///
/// The writer only borrows the values of dynamic labels, because the functions that pack them then
/// need no reference to the writer, and the writer stays in registers.
pub struct KeyWriter<'a> {
    /// The fixed values of each label; `None` for a dynamic label.
    sets: &'a [Option<StringSet>],
    /// The values of dynamic labels; `None` if the family has no dynamic label.
    texts: Option<&'a mut PackedValues>,
    /// The number of labels that were written.
    position: usize,
    group: u32,
    /// Whether a value was not among its label's fixed values.
    unknown: bool,
}

impl std::fmt::Debug for KeyWriter<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyWriter").field("position", &self.position).finish_non_exhaustive()
    }
}

/// The values of dynamic labels, packed.
///
/// Keep this order of fields: with `stack` between fields that begin as zeros, the compiler would
/// zero the whole stack.
#[repr(C)]
pub(crate) struct PackedValues {
    /// The hash of the values so far.
    hash: u64,
    /// The secret for values, from [`Secrets`].
    secret: u64,
    /// The number of values.
    count: usize,
    /// The number of bytes; at most `ROOM` while they are on the stack.
    length: usize,
    /// All bytes, once there are more than `ROOM`.
    #[allow(clippy::box_collection, reason = "one word to set, not three")]
    spill: Option<Box<Vec<u8>>>,
    stack: [MaybeUninit<u8>; ROOM + WORD],
}

/// Label values that you write once, and can reuse with [`KeyWriter::write_saved`] for many series.
#[derive(Debug, Clone)]
pub struct Values {
    position: usize,
    value_count: usize,
    group: u32,
    unknown: bool,
    hash: u64,
    bytes: Box<[u8]>,
}

impl Values {
    /// Returns the rest of a series' dynamic values after these values; `None` if the series begins
    /// with other values.
    pub fn rest_of<'t>(&self, group: u32, texts: &'t [u8]) -> Option<&'t [u8]> {
        if self.unknown || group != self.group {
            return None;
        }
        texts.strip_prefix(&*self.bytes)
    }
}

/// A packed key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Key<'k> {
    pub(crate) group: u32,
    /// The packed values.
    pub(crate) words: &'k [[u8; WORD]],
    pub(crate) hash: u64,
}

const WORD: usize = 8;
/// The capacity for values on the stack, in bytes. Zeros that fill the last word can follow.
const ROOM: usize = 248;
/// The maximum length of a value that is packed without a loop.
const SHORT: usize = 32;

impl<'a> KeyWriter<'a> {
    /// Returns a writer for fixed labels only, where the key is just the group.
    #[inline]
    pub(crate) fn of_group(sets: &'a [Option<StringSet>]) -> Self {
        Self { sets, texts: None, position: 0, group: 0, unknown: false }
    }

    #[inline]
    pub(crate) fn new(sets: &'a [Option<StringSet>], texts: &'a mut PackedValues) -> Self {
        Self { texts: Some(texts), ..Self::of_group(sets) }
    }

    /// Returns the index of the single value that `write` writes, either as an index or as a string
    /// in `set`, the values of one label. Returns `None` if the value is not in the set.
    pub fn index_of(
        set: &'a [Option<StringSet>; 1],
        write: impl FnOnce(&mut KeyWriter<'_>),
    ) -> Option<u32> {
        let mut writer = Self::of_group(set);
        write(&mut writer);
        writer.group().filter(|_| writer.position == 1)
    }

    /// Writes fixed value number `index` of `of` values.
    #[inline]
    pub fn index(&mut self, index: u32, of: u32) {
        self.position += 1;
        self.group = self.group.wrapping_mul(of).wrapping_add(index);
    }

    /// Writes a value by its index among the label's fixed values.
    ///
    /// An index out of range leads to the family's overflow series, and so does any index of a
    /// label without fixed values.
    pub fn fixed(&mut self, index: u32) {
        match self.sets.get(self.position).and_then(Option::as_ref) {
            Some(set) if index < set.len() => self.index(index, set.len()),
            _ => {
                self.unknown = true;
                self.position += 1;
            }
        }
    }

    /// Lends the writer to `write`, which must return it. A layer above can wrap it in its own type
    /// in the meantime.
    #[inline(always)]
    pub fn lend(&mut self, write: impl FnOnce(KeyWriter<'_>) -> KeyWriter<'_>) {
        let KeyWriter { position, group, unknown, .. } = write(KeyWriter {
            sets: self.sets,
            texts: self.texts.as_deref_mut(),
            position: self.position,
            group: self.group,
            unknown: self.unknown,
        });
        (self.position, self.group, self.unknown) = (position, group, unknown);
    }

    /// Writes a value: one of the label's fixed values if there are any, otherwise any string.
    ///
    /// A string that is not one of the fixed values leads to the family's overflow series.
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

    /// Writes all labels of a series at once, in the form of a [`View`](super::View): the group,
    /// and the dynamic values preceded by their lengths.
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

    /// Writes saved values without packing and hashing them again. You must call this before you
    /// write anything else.
    pub fn write_saved(&mut self, values: &Values) {
        debug_assert_eq!(self.position, 0);
        (self.position, self.group, self.unknown) = (values.position, values.group, values.unknown);
        let Some(texts) = &mut self.texts else { return };
        texts.append(&values.bytes);
        (texts.count, texts.hash) = (values.value_count, values.hash);
    }

    /// Saves the values that were written so far, for [`KeyWriter::write_saved`].
    pub(crate) fn save(self) -> Values {
        let Self { position, group, unknown, texts, .. } = self;
        let (value_count, hash, bytes) = texts
            .map_or_else(Default::default, |texts| (texts.count, texts.hash, texts.bytes().into()));
        Values { position, value_count, group, unknown, hash, bytes }
    }

    /// Returns the group of all fixed labels; `None` if a value was unknown.
    #[inline]
    pub(crate) fn group(&self) -> Option<u32> {
        (!self.unknown).then_some(self.group)
    }

    /// Packs the key. Returns `None` if a value was unknown, if the family has only fixed labels,
    /// or if the number of dynamic values is not `texts`.
    #[inline]
    pub(crate) fn finish(self, secrets: &Secrets, texts: usize) -> Option<Key<'a>> {
        let group = self.group()?;
        self.texts?.finish(group, secrets, texts)
    }
}

impl PackedValues {
    #[inline]
    pub(crate) fn new(secrets: &Secrets) -> Self {
        let Secrets { seed, text, .. } = *secrets;
        let stack = [MaybeUninit::uninit(); ROOM + WORD];
        Self { hash: seed, secret: text, count: 0, length: 0, spill: None, stack }
    }

    /// Packs the key. Returns `None` if the number of values is not `texts`.
    #[inline]
    pub(crate) fn finish(
        &mut self,
        group: u32,
        secrets: &Secrets,
        texts: usize,
    ) -> Option<Key<'_>> {
        if self.spill.is_none() {
            return self.finish_short(group, secrets, texts);
        }
        let hash = secrets.of_key(self.hash, group);
        let bytes = self.spill.as_mut().filter(|_| self.count == texts)?;
        bytes.resize(self.length.next_multiple_of(WORD), 0);
        Some(Key { group, words: bytes.as_chunks().0, hash })
    }

    /// Like [`PackedValues::finish`], but only for a key on the stack, and without a call.
    #[inline]
    pub(crate) fn finish_short(
        &mut self,
        group: u32,
        secrets: &Secrets,
        texts: usize,
    ) -> Option<Key<'_>> {
        if self.count != texts || self.length > ROOM {
            return None;
        }
        let words = self.length.div_ceil(WORD);
        // SAFETY: the zeros end at most `WORD` bytes after ROOM. `append` and `push` wrote all
        // `length` bytes before the zeros.
        let words = unsafe {
            self.stack.as_mut_ptr().add(self.length).cast::<[u8; WORD]>().write([0; WORD]);
            std::slice::from_raw_parts(self.stack.as_ptr().cast(), words)
        };
        Some(Key { group, words, hash: secrets.of_key(self.hash, group) })
    }

    fn bytes(&self) -> &[u8] {
        match &self.spill {
            // SAFETY: `append` and `push` wrote the first `length` bytes.
            None => unsafe { std::slice::from_raw_parts(self.stack.as_ptr().cast(), self.length) },
            Some(bytes) => bytes,
        }
    }

    /// Appends a length and a value.
    #[inline(never)]
    fn push(&mut self, text: &[u8]) {
        self.count += 1;
        let (at, length) = (self.length, text.len());
        if length > SHORT || at > ROOM - SHORT - 1 {
            return self.push_long(text);
        }
        self.length = at + 1 + length;
        let start = (&raw mut self.stack).cast::<u8>();
        let put = |offset, word: u64| {
            // SAFETY: each word lies in the value, or is the only one of a value that is shorter
            // than a word. So it ends at most `1 + SHORT` bytes after `at`, and inside the stack.
            unsafe { start.add(at + 1 + offset).cast::<[u8; WORD]>().write(word.to_le_bytes()) };
        };
        // SAFETY: as above.
        unsafe { start.add(at).write(length as u8) };
        let hash = with_length(self.secret, self.hash, length);
        self.hash = match (text.first_chunk(), text.last_chunk()) {
            (Some(first), Some(last)) => {
                let (first, last) = (u64::from_le_bytes(*first), u64::from_le_bytes(*last));
                put(0, first);
                put(length - WORD, last);
                match middle(text) {
                    Some([second, third]) if length > 2 * WORD => {
                        put(WORD, second);
                        put(length - 2 * WORD, third);
                        mix(self.secret, mix(self.secret, hash, first, second), third, last)
                    }
                    _ => mix(self.secret, hash, first, last),
                }
            }
            _ => {
                let word = short(text);
                put(0, word);
                mix(self.secret, hash, word, 0)
            }
        };
    }

    /// Appends a long value, or one that may not fit on the stack. Out of line, so that `push`
    /// calls no function and saves no registers.
    #[cold]
    #[inline(never)]
    fn push_long(&mut self, text: &[u8]) {
        match u8::try_from(text.len()) {
            Ok(length) if length < u8::MAX => self.append(&[length]),
            _ => {
                self.append(&[u8::MAX]);
                // A key of this length does not fit into a record, and is refused there.
                let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
                self.append(&length.to_le_bytes());
            }
        }
        self.append(text);
        self.hash = hash_text(self.secret, self.hash, text);
    }

    fn append(&mut self, bytes: &[u8]) {
        let at = self.length;
        self.length += bytes.len();
        if let Some(spill) = &mut self.spill {
            spill.extend_from_slice(bytes);
        } else if self.length <= ROOM {
            let (_, room) = self.stack.split_at_mut(at);
            room.iter_mut().zip(bytes).for_each(|(place, byte)| _ = place.write(*byte));
        } else {
            // SAFETY: this function and `push` wrote the first `at` bytes.
            let all = unsafe { std::slice::from_raw_parts(self.stack.as_ptr().cast(), at) };
            self.spill = Some(Box::new([all, bytes].concat()));
        }
    }
}

/// The secrets of the hash of a segment's keys. Without them, an outsider could choose keys that
/// collide.
///
/// Like in rapidhash and foldhash, a step XORs two words of 64 bits with the current hash and a
/// secret, multiplies them, and folds the product. For each value, its length is multiplied by the
/// secret and XORed into the hash. Then follows a step for each 16 bytes. The last step takes the
/// last 16 bytes of the value, which may overlap the step before. The first word of a step is at
/// the lower address. For a value of 8 to 15 bytes, the two words are at its start and at its end;
/// a shorter value is a single word, filled with zeros, and a zero. The final step is for the
/// group.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Secrets {
    seed: u64,
    text: u64,
    group: u64,
}

impl Secrets {
    /// The secrets of a family without keys.
    pub(crate) const NONE: Self = Self { seed: 0, text: 0, group: 0 };

    /// Derives the secrets from a seed like rapidhash.
    pub(crate) fn new(seed: u64) -> Self {
        let RapidSecrets { seed, secrets: [text, group, ..] } = RapidSecrets::seed(seed);
        // The secret is odd, because different lengths then have different products.
        Self { seed, text: text | 1, group }
    }

    /// Returns the hash of a key, from its packed values and its group.
    pub(crate) fn hash(&self, group: u32, texts: usize, bytes: &[u8]) -> u64 {
        let (mut hash, mut rest) = (self.seed, bytes);
        for _ in 0..texts {
            let Some((text, behind)) = next_text(rest) else { break };
            (hash, rest) = (hash_text(self.text, hash, text), behind);
        }
        self.of_key(hash, group)
    }

    /// Checks and hashes a key that may be damaged, and reads each word only once. Returns `None`
    /// if there are fewer than `texts` values.
    #[inline]
    pub(crate) fn check_and_hash(
        &self,
        group: u32,
        texts: usize,
        bytes: &[u8],
    ) -> Option<KeySummary> {
        let (mut hash, mut rest, mut seen) = (self.seed, bytes, ByteClasses::default());
        for _ in 0..texts {
            let (text, behind) = next_text(rest)?;
            hash = hash_words(self.text, hash, text, |word| seen.add(word));
            rest = behind;
        }
        Some(KeySummary {
            hash: self.of_key(hash, group),
            end: bytes.len() - rest.len(),
            is_ascii: seen.all & TOPS == 0,
            has_escape: seen.escapes & TOPS != 0,
        })
    }

    #[inline]
    fn of_key(&self, texts: u64, group: u32) -> u64 {
        fold(texts ^ self.text, u64::from(group) ^ self.group)
    }
}

/// A summary of the values of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeySummary {
    /// The hash of the key.
    pub(crate) hash: u64,
    /// The end of the values.
    pub(crate) end: usize,
    pub(crate) is_ascii: bool,
    /// Whether any byte needs an escape in text formats.
    pub(crate) has_escape: bool,
}

/// Finds non-ASCII bytes and bytes that need an escape, eight bytes at a time. Each result is in
/// the top bit of a byte.
#[derive(Default)]
struct ByteClasses {
    /// The OR of all words.
    all: u64,
    /// The top bit of at least one byte is set if a byte needed an escape.
    escapes: u64,
}

/// The top bit of each byte.
const TOPS: u64 = 0x8080_8080_8080_8080;

impl ByteClasses {
    #[inline(always)]
    fn add(&mut self, word: u64) {
        self.all |= word;
        for byte in *b"\"\\\n" {
            // This sets the top bit of the first zero byte; without a zero byte, it sets none ("Bit
            // Twiddling Hacks", S. E. Anderson).
            let other = word ^ (ONES * u64::from(byte));
            self.escapes |= other.wrapping_sub(ONES) & !other;
        }
    }
}

/// The lowest bit of each byte.
const ONES: u64 = 0x0101_0101_0101_0101;

/// Returns the hash after one more value.
fn hash_text(secret: u64, hash: u64, text: &[u8]) -> u64 {
    hash_words(secret, hash, text, |_| ())
}

/// Like [`hash_text`]; calls `see` with words that together contain all bytes of the value, and
/// zeros.
#[inline(always)]
fn hash_words(secret: u64, hash: u64, text: &[u8], mut see: impl FnMut(u64)) -> u64 {
    let mut hash = with_length(secret, hash, text.len());
    let mut rest = text;
    while let Some((piece, behind)) = rest.split_first_chunk::<{ 2 * WORD }>()
        && !behind.is_empty()
    {
        let [first, second] = halves(piece);
        see(first);
        see(second);
        (hash, rest) = (mix(secret, hash, first, second), behind);
    }
    let [first, last] = match (text.last_chunk(), text.first_chunk(), text.last_chunk()) {
        (Some(piece), ..) => halves(piece),
        (_, Some(first), Some(last)) => [first, last].map(|word| u64::from_le_bytes(*word)),
        _ => [short(text), 0],
    };
    see(first);
    see(last);
    mix(secret, hash, first, last)
}

/// Returns the hash before a value of this length. The length is multiplied, because a value could
/// cancel a plain length in the hash with any secret.
#[inline]
fn with_length(secret: u64, hash: u64, length: usize) -> u64 {
    hash ^ (length as u64).wrapping_mul(secret)
}

/// Hashes two words of a value.
#[inline]
fn mix(secret: u64, hash: u64, first: u64, second: u64) -> u64 {
    fold(first ^ secret, second ^ hash)
}

#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    // The truncation is intended: both halves are used.
    product as u64 ^ (product >> 64) as u64
}

fn halves(piece: &[u8; 2 * WORD]) -> [u64; 2] {
    // The truncation is intended: this returns the first word and the second.
    let both = u128::from_le_bytes(*piece);
    [both as u64, (both >> 64) as u64]
}

/// Returns a value of at most 7 bytes as a number, with loads that stay inside the value.
#[inline]
fn short(text: &[u8]) -> u64 {
    if let (Some(first), Some(last)) = (text.first_chunk::<4>(), text.last_chunk::<4>()) {
        let first = u64::from(u32::from_le_bytes(*first));
        return first | u64::from(u32::from_le_bytes(*last)) << (8 * (text.len() - 4));
    }
    text.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// Splits the first value off the values of a key: (the value, the rest).
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

    fn packed(texts: &[&str]) -> (u32, Vec<u8>, u64) {
        let secrets = Secrets::new(7);
        let mut packed = PackedValues::new(&secrets);
        let mut writer = KeyWriter::new(&[], &mut packed);
        texts.iter().for_each(|text| writer.text(text));
        let group = writer.group().unwrap();
        let key = packed.finish(group, &secrets, texts.len()).unwrap();
        let (group, bytes, hash) = (key.group, key.words.as_flattened().to_vec(), key.hash);
        let short = packed.finish_short(group, &secrets, texts.len());
        if let Some(short) = short {
            assert_eq!((short.words.as_flattened(), short.hash), (&bytes[..], hash));
        }
        (group, bytes, hash)
    }

    #[test]
    fn texts_come_back_whatever_their_length() {
        let lengths = (0..70).chain([100, 200, 230, 254, 255, 256, 70_000]);
        for count in lengths.filter(|count| !cfg!(miri) || count % 9 < 3 && *count < 1000) {
            let long: String = ('a'..='z').cycle().take(count).collect();
            let texts = ["", &long, "z", &long];
            let (group, bytes, hash) = packed(&texts);
            let mut rest = &bytes[..];
            for text in texts {
                let (found, behind) = next_text(rest).unwrap();
                assert_eq!(found, text.as_bytes());
                rest = behind;
            }
            assert!(rest.len() < 8 && rest.iter().all(|&byte| byte == 0));
            assert_eq!(Secrets::new(7).hash(group, texts.len(), &bytes), hash, "{count} bytes");
        }
    }

    /// Tries each byte at each place of values of many lengths.
    #[test]
    fn one_look_at_a_key_tells_what_several_do() {
        let secrets = Secrets::new(7);
        let bytes: &[u8] = match cfg!(miri) {
            true => b"\0\"\\\n\x80\xff",
            false => &std::array::from_fn::<u8, 256, _>(|byte| byte as u8),
        };
        for length in (0..40).filter(|length| !cfg!(miri) || length % 8 < 2) {
            for (at, &byte) in (0..length).flat_map(|at| bytes.iter().map(move |b| (at, b))) {
                // The bytes before and after do not belong to the value.
                let mut text = vec![b'a'; length];
                text[at] = byte;
                let mut key = vec![1, b'x', length as u8];
                key.extend_from_slice(&text);
                let end = key.len();
                key.extend_from_slice(b"\n\"\xff");
                let is_special = matches!(byte, b'"' | b'\\' | b'\n');
                let expected = KeySummary {
                    hash: secrets.hash(3, 2, &key),
                    end,
                    is_ascii: byte.is_ascii(),
                    has_escape: is_special,
                };
                assert_eq!(
                    secrets.check_and_hash(3, 2, &key),
                    Some(expected),
                    "{byte} at {at} of {length}"
                );
            }
        }
        for (texts, key) in [(1, &b""[..]), (1, b"\x01"), (2, b"\x01a"), (1, b"\xff\0\0\0")] {
            assert_eq!(secrets.check_and_hash(0, texts, key), None);
        }
    }

    /// Keys that differ in a few bits at any place, such as the names of users and routes.
    #[test]
    fn hashes_of_similar_keys_are_spread() {
        let keys = if cfg!(miri) { 1 << 4 } else { 1 << 16 };
        let pad = |width: usize, key: usize| format!("{key:0width$}");
        let shapes: [&dyn Fn(usize) -> [String; 2]; 6] = [
            &|key| [pad(1, key), String::new()],
            &|key| ["x".repeat(key % 64), pad(1, key / 64)],
            &|key| [pad(40, key), "tail of some length".into()],
            &|key| ["/api/v1/".to_owned() + &pad(12, key) + "/owner", pad(1, key % 7)],
            &|key| [format!("{key:b}"), format!("{:x}", key * 4096)],
            &|key| ["\0".repeat(key % 256), "\0".repeat(key / 256)],
        ];
        for (shape, texts) in shapes.iter().enumerate() {
            let hashes = (0..keys).map(|key| {
                let [one, other] = texts(key);
                packed(&[&one, &other]).2
            });
            let hashes: Vec<u64> = hashes.collect();
            // The bits for the slot, for the comparison in the index, and for the checksum must all
            // be spread like random numbers.
            for shift in [64 - keys.ilog2(), 32, 0] {
                let mut seen: Vec<u64> =
                    hashes.iter().map(|hash| hash >> shift & u64::from(u32::MAX)).collect();
                if shift == 0 {
                    seen.iter_mut().for_each(|hash| *hash &= 0xffff);
                }
                seen.sort_unstable();
                seen.dedup();
                let range = match shift {
                    32 => 32.0_f64.exp2(),
                    0 => 16.0_f64.exp2(),
                    _ => keys as f64,
                };
                let expected = -range * (-(keys as f64) / range).exp_m1();
                let off = (seen.len() as f64 - expected).abs() / (keys as f64).sqrt();
                assert!(off < 4.0, "shape {shape}, bits {shift}: {} of {expected}", seen.len());
            }
        }
    }

    /// Values whose bytes would cancel their length, if it were XORed into the hash without the
    /// secret.
    #[test]
    fn the_text_does_not_cancel_its_length() {
        let x = |count: usize| "x".repeat(count);
        let sets: [Vec<String>; 4] = [
            vec!["zabbbbbby".into(), "zabbbbbbby".into()],
            vec![String::new(), "\0".repeat(8) + "\x10" + &"\0".repeat(7)],
            (25..=32).map(|n| x(8) + &char::from(0x40 ^ n as u8).to_string() + &x(n - 9)).collect(),
            (1..=16).map(|i| x(8) + &char::from(0x60 + i as u8).to_string() + &x(23 + i)).collect(),
        ];
        for set in sets {
            let mut hashes: Vec<u64> = set.iter().map(|text| packed(&[text, "tail"]).2).collect();
            hashes.sort_unstable();
            hashes.dedup();
            assert_eq!(hashes.len(), set.len(), "{set:?}");
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
        let secrets = Secrets::new(1);
        for (count, group) in [(2, None), (1, Some(2 * 2 + 1))] {
            let mut texts = PackedValues::new(&secrets);
            let mut writer = KeyWriter::new(&sets, &mut texts);
            writer.text("c");
            writer.text("free");
            writer.index(1, 2);
            assert_eq!(writer.finish(&secrets, count).map(|key| key.group), group);
        }
        let mut texts = PackedValues::new(&secrets);
        let mut writer = KeyWriter::new(&sets, &mut texts);
        writer.text("other");
        assert!(writer.finish(&secrets, 0).is_none());
    }
}
