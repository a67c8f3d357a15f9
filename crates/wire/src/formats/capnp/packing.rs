//! The packed form: <https://capnproto.org/encoding.html#packing>.
//!
//! ```text
//! tag        a bit for each byte of the word that is not zero, the first byte's is the lowest
//! bytes      those bytes
//! after the tag 0      how many more words of zeros there are
//! after the tag 255    how many words follow unpacked: up to one with two zeros or more
//! ```
//!
//! A run of words can extend from the table into a segment, and ends with the message.

use quipu_arena::Scope;

use super::segments::{MAX_SEGMENTS, SEGMENTS, Segments, segment_lens, table_len};
use crate::error::Fault;
use crate::pieces::Piece;
use crate::reader::Reader;
use crate::values;

/// A message that is packed while it is written: words, an id padded to a full word, values.
pub(super) struct PackedWords<'a, const N: usize> {
    pub(super) head: [u64; N],
    pub(super) id: &'a [u8],
    pub(super) values: &'a [f64],
}

// SAFETY: A word takes at most 10 bytes, including its tag and the length of a run. Bytes written
// beyond its end are also within these 10 bytes.
unsafe impl<const N: usize> Piece for PackedWords<'_, N> {
    #[inline(always)]
    fn bound(&self) -> usize {
        let words = N + self.id.len().div_ceil(8);
        words.saturating_add(self.values.len()).saturating_mul(10)
    }

    #[inline(always)]
    unsafe fn put(&self, at: *mut u8) -> *mut u8 {
        let mut packer = Packer { at, length: at, run: Run::None, len: 0 };
        let (words, rest) = self.id.as_chunks::<8>();
        // SAFETY: `at` is valid for 10 bytes for each of these words.
        unsafe {
            for word in self.head {
                packer.put(word);
            }
            for word in words {
                packer.put(u64::from_le_bytes(*word));
            }
            if !rest.is_empty() {
                packer.put(last_word(self.id, rest));
            }
            for value in self.values {
                packer.put(value.to_bits());
            }
        }
        packer.at
    }
}

/// Returns the last bytes of an id, padded with zeros.
#[inline(always)]
fn last_word(id: &[u8], rest: &[u8]) -> u64 {
    match id.last_chunk::<8>() {
        // Loads the rest together with some bytes before it.
        Some(word) => u64::from_le_bytes(*word) >> (64 - 8 * rest.len()),
        None => rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
    }
}

/// Packs one word after another.
struct Packer {
    at: *mut u8,
    /// The address of the length of the last run, if there is one.
    length: *mut u8,
    run: Run,
    /// The length of the last run, not counting its first word.
    len: u8,
}

/// The run that the next word can extend.
#[derive(Clone, Copy, PartialEq)]
enum Run {
    None,
    Zeros,
    Raw,
}

impl Packer {
    /// # Safety
    ///
    /// `at` is valid for writes of 10 bytes for this word and for each after it.
    #[inline(always)]
    unsafe fn put(&mut self, word: u64) {
        let tag = tag(word);
        let zeros = !tag;
        let goes_on = match self.run {
            Run::None => false,
            Run::Zeros => tag == 0,
            // At most one byte is zero.
            Run::Raw => zeros & zeros.wrapping_sub(1) == 0,
        };
        // SAFETY: A word of a run takes 8 bytes or none. Any other word takes a tag, a byte for
        // each bit of the tag, and the length of a run. These, and the 8 bytes of the word, are
        // within 10. The previous length was already written.
        unsafe {
            if goes_on && self.len < u8::MAX {
                self.len += 1;
                self.length.write(self.len);
                if self.run == Run::Raw {
                    self.at.cast::<[u8; 8]>().write_unaligned(word.to_le_bytes());
                    self.at = self.at.add(8);
                }
                return;
            }
            self.at.write(tag);
            let bytes = if tag == 0xff {
                word
            } else if is_one_piece(tag) {
                word >> (word.trailing_zeros() & 0x38)
            } else {
                compress(word, tag)
            };
            self.at.add(1).cast::<[u8; 8]>().write_unaligned(bytes.to_le_bytes());
            self.at = self.at.add(1 + ones(tag));
            self.run = match tag {
                0 => Run::Zeros,
                0xff => Run::Raw,
                _ => Run::None,
            };
            if self.run != Run::None {
                self.len = 0;
                self.length = self.at;
                self.at.write(0);
                self.at = self.at.add(1);
            }
        }
    }
}

/// Reads a message into the scope.
#[inline(always)]
pub(super) fn unpack<'m>(input: &mut Reader<'m>, scope: &Scope<'m>) -> Result<Segments<'m>, Fault> {
    let mut unpacker = Unpacker::new(*input);
    let first = u64::from_le_bytes(unpacker.next().inspect_err(|_| *input = unpacker.input)?);
    if first as u32 != 0 || unpacker.left != 0 {
        return input.apart(|input| unpack_segments(input, first, scope));
    }
    *input = unpacker.input;
    let body = unpack_words(input, first >> 32, scope)?;
    Ok(Segments::new(&[], body))
}

/// Reads a message of several segments, or a message whose table begins with a run.
#[cold]
#[inline(never)]
fn unpack_segments<'m>(
    input: &mut Reader<'m>,
    first: u64,
    scope: &Scope<'m>,
) -> Result<Segments<'m>, Fault> {
    let words = table_len(first as u32)? / 8;
    let mut table = [[0; 8]; 1 + MAX_SEGMENTS / 2];
    let mut unpacker = Unpacker::new(*input);
    for word in table.iter_mut().take(words) {
        *word = unpacker.next().inspect_err(|_| *input = unpacker.input)?;
    }
    let all = words as u64 + segment_lens(table.as_flattened()).sum::<u64>();
    let (table, body) = unpack_words(input, all, scope)?.split_at(words);
    Ok(Segments::new(table.as_flattened(), body))
}

/// Unpacks the number of words from a table. All messages share this function, because the unpacker
/// is then inlined completely into its loop.
#[inline(never)]
fn unpack_words<'m>(
    input: &mut Reader<'m>,
    words: u64,
    scope: &Scope<'m>,
) -> Result<&'m [[u8; 8]], Fault> {
    // 2 bytes can stand for 256 words. Up to 8 bytes for each byte of input need no check.
    if words > MAX_WORDS.min(input.len() as u64) {
        input.apart(|input| check(input, words))?;
    }
    let before = *input;
    let mut unpacker = Unpacker::new(*input);
    let unpacked = values::fill(words as usize, scope, || unpacker.next());
    *input = unpacker.input;
    if unpacked.is_ok() && unpacker.left != 0 {
        *input = before;
        input.apart(|input| check(input, words))?;
    }
    unpacked
}

/// Checks that an input contains this number of words, enough bytes for them, and no run beyond
/// them.
#[cold]
#[inline(never)]
fn check(input: &mut Reader<'_>, words: u64) -> Result<(), Fault> {
    let before = *input;
    let left = walk(input, usize::try_from(words).unwrap_or(usize::MAX))?;
    if left != 0 {
        return Err(Fault::malformed(RUN));
    }
    let packed = before.len() - input.len();
    *input = before;
    if words > MAX_WORDS.max(packed as u64) {
        return Err(Fault::too_large(
            "a packed message of at most 8 MiB, or 8 times its packed length",
        ));
    }
    Ok(())
}

/// Skips this number of words. If they end within a run, this goes to the start of that run instead
/// and returns how many of the words are in the run.
pub(super) fn walk(input: &mut Reader<'_>, mut words: usize) -> Result<usize, Fault> {
    while words > 0 {
        let before = *input;
        let tag = input.byte(SEGMENTS)?;
        input.take(ones(tag), SEGMENTS)?;
        let mut len = 1;
        if tag == 0 || tag == 0xff {
            let more = usize::from(input.byte(SEGMENTS)?);
            let raw = if tag == 0 { 0 } else { 8 * more };
            input.take(raw, SEGMENTS)?;
            len += more;
        }
        if len > words {
            *input = before;
            return Ok(words);
        }
        words -= len;
    }
    Ok(0)
}

/// The limit of other readers: the number of words that a message can have beyond 8 times its
/// packed length.
const MAX_WORDS: u64 = 1 << 20;

const RUN: &str = "a run of words that ends with the message";

/// Unpacks one word after another.
struct Unpacker<'m> {
    input: Reader<'m>,
    /// The remaining words of the run.
    left: u8,
    /// Whether the run consists of unpacked words rather than zeros.
    raw: bool,
}

impl<'m> Unpacker<'m> {
    #[inline(always)]
    fn new(input: Reader<'m>) -> Unpacker<'m> {
        Unpacker { input, left: 0, raw: false }
    }

    #[inline(always)]
    fn next(&mut self) -> Result<[u8; 8], Fault> {
        if self.left != 0 {
            self.left -= 1;
            return if self.raw { self.input.array(SEGMENTS) } else { Ok([0; 8]) };
        }
        match self.input.byte(SEGMENTS)? {
            0 => {
                self.left = self.input.byte(SEGMENTS)?;
                self.raw = false;
                Ok([0; 8])
            }
            0xff => {
                let word = self.input.array(SEGMENTS)?;
                self.left = self.input.byte(SEGMENTS)?;
                self.raw = true;
                Ok(word)
            }
            tag => {
                let bytes = self.input.little_endian(ones(tag), SEGMENTS)?;
                let word = if is_one_piece(tag) {
                    bytes << (8 * (tag.trailing_zeros() & 7))
                } else {
                    spread(bytes, tag)
                };
                Ok(word.to_le_bytes())
            }
        }
    }
}

/// Returns a bit for each byte that is not zero.
#[inline(always)]
fn tag(word: u64) -> u8 {
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    let high_bits = (((word & LOW) + LOW) | word) & !LOW;
    // Gathers the 8 bits in the highest byte.
    ((high_bits >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8
}

/// Returns whether these bytes are contiguous, for example in a string, a small number or a round
/// double.
#[inline(always)]
fn is_one_piece(tag: u8) -> bool {
    tag & tag.wrapping_add(tag & tag.wrapping_neg()) == 0
}

/// Returns the number of set bits.
#[inline(always)]
fn ones(tag: u8) -> usize {
    usize::from(ONES[usize::from(tag)])
}

/// Returns the bytes selected by the tag, moved together and followed by zeros.
#[inline(always)]
fn compress(word: u64, tag: u8) -> u64 {
    let (low, high) = (usize::from(tag & 0xf), usize::from(tag >> 4));
    let move_down = |half: u32, masks: &[u32; 4]| {
        half & masks[0] | half >> 8 & masks[1] | half >> 16 & masks[2] | half >> 24 & masks[3]
    };
    let low_bytes = move_down(word as u32, &DOWN[low]);
    let high_bytes = move_down((word >> 32) as u32, &DOWN[high]);
    u64::from(low_bytes) | u64::from(high_bytes) << (8 * ONES[low])
}

/// Reverses `compress`: moves each byte to its place in the tag.
#[inline(always)]
fn spread(bytes: u64, tag: u8) -> u64 {
    let (low, high) = (usize::from(tag & 0xf), usize::from(tag >> 4));
    let move_up = |half: u32, masks: &[u32; 4]| {
        half & masks[0] | half << 8 & masks[1] | half << 16 & masks[2] | half << 24 & masks[3]
    };
    let low_bytes = move_up(bytes as u32, &UP[low]);
    let high_bytes = move_up((bytes >> (8 * ONES[low])) as u32, &UP[high]);
    u64::from(low_bytes) | u64::from(high_bytes) << 32
}

const ONES: [u8; 256] = {
    let mut ones = [0; 256];
    let mut tag = 0;
    while tag < 256 {
        ones[tag] = (tag as u8).count_ones() as u8;
        tag += 1;
    }
    ones
};

/// For each half of a tag and each distance: the bytes of the result that move down by this
/// distance.
const DOWN: [[u32; 4]; 16] = moves(false);

/// For each half of a tag and each distance: the bytes of the result that move up by this distance.
const UP: [[u32; 4]; 16] = moves(true);

const fn moves(up: bool) -> [[u32; 4]; 16] {
    let mut masks = [[0; 4]; 16];
    let mut tag = 0;
    while tag < 16 {
        let mut packed = 0;
        let mut byte = 0;
        while byte < 4 {
            if tag >> byte & 1 == 1 {
                let result = if up { byte } else { packed };
                masks[tag][byte - packed] |= 0xff << (8 * result);
                packed += 1;
            }
            byte += 1;
        }
        tag += 1;
    }
    masks
}

#[cfg(test)]
pub(super) mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use quipu_arena::Arena;

    use super::super::CapnpPacked;
    use super::*;
    use crate::message::{BatchTimer, Counter, Metric};
    use crate::pieces::append;

    /// A naive packer.
    pub(in super::super) fn pack(bytes: &[u8]) -> Vec<u8> {
        let mut words = bytes.chunks(8).peekable();
        let mut out = Vec::new();
        let zeros = |word: &[u8]| word.iter().filter(|byte| **byte == 0).count();
        while let Some(word) = words.next() {
            out.push((0..8).map(|byte| u8::from(word[byte] != 0) << byte).sum());
            out.extend(word.iter().filter(|byte| **byte != 0));
            if zeros(word) == 8 || zeros(word) == 0 {
                let length = out.len();
                out.push(0);
                while out[length] < 255 {
                    let goes_on = |next: &&[u8]| match zeros(word) {
                        8 => zeros(next) == 8,
                        _ => zeros(next) < 2,
                    };
                    let Some(next) = words.next_if(goes_on) else { break };
                    out[length] += 1;
                    if zeros(word) == 0 {
                        out.extend(next);
                    }
                }
            }
        }
        out
    }

    /// Returns words, some dense and some sparse, in runs.
    fn words(mut seed: u64, len: usize) -> Vec<u64> {
        let mut random = || {
            seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            seed ^ seed >> 29
        };
        let mut words = Vec::new();
        while words.len() < len {
            let (kind, run) = (random() % 5, random() % 7 * (random() % 90));
            words.extend((0..run).map(|_| match kind {
                0 => 0,
                1 => random() | 0x0101_0101_0101_0101,
                2 => (random() | 0x0101_0101_0101_0101) & !(0xff << (random() % 8 * 8)),
                3 => random() & random() & random() & random() & random(),
                _ => tags_to_bytes(random() as u8),
            }));
        }
        words.truncate(len);
        words
    }

    fn tags_to_bytes(tag: u8) -> u64 {
        (0..8).map(|byte| (u64::from(tag) >> byte & 1) << (8 * byte)).sum()
    }

    #[test]
    fn every_tag() {
        for number in 0..=255 {
            let word = tags_to_bytes(number).wrapping_mul(0x17);
            assert_eq!(tag(word), number);
            assert_eq!(tag(word << 3), number);
            assert_eq!(ones(number), number.count_ones() as usize);
            let bytes = 0x8877_6655_4433_2211;
            let kept = bytes & (u64::MAX >> (64 - 8 * ones(number).max(1)));
            let kept = if number == 0 { 0 } else { kept };
            assert_eq!(compress(spread(bytes, number), number), kept);
            assert_eq!(super::tag(spread(bytes, number)), number);
        }
    }

    #[test]
    fn packs_as_the_obvious_packer() {
        for seed in 0..60 {
            let all = words(seed, 1 + seed as usize * 40);
            let bytes: Vec<u8> = all.iter().flat_map(|word| word.to_le_bytes()).collect();
            let expected = pack(&bytes);
            let values: Vec<f64> = all[1..].iter().map(|word| f64::from_bits(*word)).collect();
            let mut out = Vec::new();
            append(&mut out, PackedWords { head: [all[0]], id: &[], values: &values });
            assert!(out == expected, "{seed}");
            for cut in 0..8 {
                let id = &bytes[8..bytes.len().max(16 + cut) - 8 - cut];
                let mut bytes = bytes[..8 + id.len()].to_vec();
                bytes.resize(bytes.len().next_multiple_of(8), 0);
                bytes.extend(1f64.to_le_bytes());
                out.clear();
                append(&mut out, PackedWords { head: [all[0]], id, values: &[1.0] });
                assert!(out == pack(&bytes), "{seed} {cut}");
            }
            let mut arena = Arena::new();
            let mut input = Reader::new(&expected);
            let read = unpack_words(&mut input, all.len() as u64, &arena.as_scope()).unwrap();
            assert!(read.as_flattened() == bytes && input.is_empty(), "{seed}");
            let mut input = Reader::new(&expected);
            assert_eq!(walk(&mut input, all.len()).unwrap(), 0);
            assert!(input.is_empty());
        }
    }

    #[test]
    fn zeros_expand_within_bounds() {
        let mut arena = Arena::new();
        let values = vec![0.0; 1_000_000];
        let mut out = Vec::new();
        BatchTimer { id: b"", values: &values }.encode::<CapnpPacked>(&mut out).unwrap();
        assert!(out.len() < 8000);
        let read = BatchTimer::decode::<CapnpPacked>(&out, &arena.as_scope()).unwrap();
        assert_eq!(read.values, values);

        let mut fault = |bytes: &[u8]| {
            let error = Counter::decode::<CapnpPacked>(bytes, &arena.as_scope()).unwrap_err();
            (error.is_incomplete(), error.offset().unwrap(), error.expected())
        };
        // 2^32 - 1 words, of which few are present; then one word of zeros more than is allowed.
        assert_eq!(fault(b"\xf0\xff\xff\xff\xff\0\xff"), (true, 7, SEGMENTS));
        assert_eq!(fault(b"\x40\x7f\0\xff\0\xff"), (true, 6, SEGMENTS));
        let mut zeros = b"\x50\x01\x80".to_vec();
        zeros.extend([0, 255].repeat(8 << 12));
        zeros.extend([0, 0]);
        let large = "a packed message of at most 8 MiB, or 8 times its packed length";
        assert_eq!(fault(&zeros), (false, 3, large));
        // Runs that extend beyond the end of the message.
        assert_eq!(fault(b"\x10\x02\0\x02"), (false, 2, RUN));
        assert_eq!(fault(b"\x10\x01\0\x01"), (false, 2, RUN));
        let raw = b"\x10\x02\xff12345678\x0212345678abcdefgh";
        assert_eq!(fault(raw), (false, 2, RUN));
        assert_eq!(fault(b"\0\0"), (false, 2, "a first segment that begins with a pointer"));
        assert_eq!(fault(b"\0\x01"), (false, 0, RUN));
        assert_eq!(fault(&[0xff; 30]), (false, 0, "at most 512 segments"));
    }

    #[test]
    fn faults_stand_in_the_packed_input() {
        // The pointer to the id is the third word after the table.
        let bytes = b"\x10\x05\x50\x01\x01\x01\x64\x31\x7d\x2a\x01\0\x01";
        let mut arena = Arena::new();
        let error = Counter::decode::<CapnpPacked>(bytes, &arena.as_scope()).unwrap_err();
        assert_eq!(error.offset(), Some(7));
        assert!(!error.is_incomplete());
    }

    #[test]
    fn a_run_continues_from_the_table() {
        // Three segments, the last two without words. The root is null.
        let bytes = b"\x11\x02\x01\0\x01";
        let mut arena = Arena::new();
        let read = Counter::decode::<CapnpPacked>(bytes, &arena.as_scope());
        assert_eq!(read, Ok(Counter { id: b"", value: 0 }));
    }
}
