//! Splits input into lines, and reads numbers. [`Lines`] takes a complete input and checks it for
//! UTF-8 once. [`LineBuffer`] takes an input that arrives in pieces.

use alloc::vec::Vec;
use core::mem;
#[cfg(any(feature = "exposition", feature = "graphite", feature = "statsd"))]
use core::str;

use memchr::{memchr, memrchr};

/// Returns the lines of an input one after another, without line feeds.
#[cfg(any(feature = "exposition", feature = "graphite", feature = "statsd"))]
#[derive(Clone, Debug)]
pub(super) struct Lines<'a> {
    /// Complete lines, known to be UTF-8.
    text: &'a str,
    /// The bytes after these lines: empty, or beginning with a line that is not UTF-8.
    rest: &'a [u8],
}

#[cfg(any(feature = "exposition", feature = "graphite", feature = "statsd"))]
impl<'a> Lines<'a> {
    pub(super) fn new(input: &'a [u8]) -> Lines<'a> {
        let mut lines = Lines { text: "", rest: input };
        lines.check();
        lines
    }

    /// Returns whether all lines were read.
    #[cfg(feature = "exposition")]
    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty() && self.rest.is_empty()
    }

    /// Returns the next line. If it is not UTF-8, returns the length of its valid prefix.
    #[inline(always)]
    pub(super) fn next(&mut self) -> Option<Result<&'a str, usize>> {
        if self.text.is_empty() {
            return self.next_bad();
        }
        Some(Ok(match memchr(b'\n', self.text.as_bytes()) {
            Some(end) => {
                let (line, rest) = (&self.text[..end], &self.text[end + 1..]);
                self.text = rest;
                line
            }
            None => mem::take(&mut self.text),
        }))
    }

    #[cold]
    fn next_bad(&mut self) -> Option<Result<&'a str, usize>> {
        if self.rest.is_empty() {
            return None;
        }
        let end = memchr(b'\n', self.rest).unwrap_or(self.rest.len());
        let line = &self.rest[..end];
        self.rest = self.rest.get(end + 1..).unwrap_or_default();
        self.check();
        let valid = str::from_utf8(line).map_or_else(|error| error.valid_up_to(), str::len);
        Some(Err(valid))
    }

    /// Moves lines from `rest` to `text`, up to a line that is not UTF-8.
    fn check(&mut self) {
        (self.text, self.rest) = match str::from_utf8(self.rest) {
            Ok(text) => (text, &[][..]),
            Err(error) => {
                let valid = &self.rest[..error.valid_up_to()];
                let (lines, rest) = self.rest.split_at(memrchr(b'\n', valid).map_or(0, |n| n + 1));
                (str::from_utf8(lines).unwrap_or_default(), rest)
            }
        };
    }
}

/// Cuts an input that arrives in pieces into complete lines.
///
/// ```
/// use quipu_wire::remote::{Cut, LineBuffer};
///
/// let mut buffer = LineBuffer::new(100);
/// let mut seen = Vec::new();
/// for piece in [&b"a 1\nb "[..], b"2", b"\nc 3"] {
///     buffer.push(piece, |cut| match cut {
///         Cut::Lines(lines) => seen.push(lines.to_vec()),
///         Cut::TooLong => unreachable!("all lines are short"),
///     });
/// }
/// assert_eq!(seen, [&b"a 1\n"[..], b"b 2\n"]);
/// buffer.finish(|cut| assert_eq!(cut, Cut::Lines(b"c 3")));
/// ```
#[derive(Clone, Debug)]
pub struct LineBuffer {
    /// The beginning of an incomplete line.
    held: Vec<u8>,
    max_line: usize,
    /// Whether the current line is too long.
    is_skipping: bool,
}

/// A part of an input, cut by a [`LineBuffer`]. The enum is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "a line is too long or not")]
pub enum Cut<'a> {
    /// One or more lines, each with its line feed. Only the last line of an input can lack it.
    Lines(&'a [u8]),
    /// A line was skipped because it exceeds the limit.
    TooLong,
}

impl LineBuffer {
    /// Creates a buffer for lines of at most this many bytes, without their line feeds.
    pub fn new(max_line: usize) -> LineBuffer {
        LineBuffer { held: Vec::new(), max_line, is_skipping: false }
    }

    /// Adds a piece of the input and calls `each` for the lines that are now complete. Only a line
    /// that spans two pieces is copied.
    pub fn push(&mut self, piece: &[u8], mut each: impl FnMut(Cut<'_>)) {
        let Some(last) = memrchr(b'\n', piece) else {
            return self.hold(piece);
        };
        let (lines, rest) = piece.split_at(last + 1);
        let mut lines = lines;
        if self.is_skipping || !self.held.is_empty() {
            let first = memchr(b'\n', lines).map_or(lines.len(), |end| end + 1);
            let (end, others) = lines.split_at(first);
            self.hold(&end[..first - 1]);
            if mem::take(&mut self.is_skipping) {
                each(Cut::TooLong);
            } else {
                self.held.push(b'\n');
                each(Cut::Lines(&self.held));
            }
            self.held.clear();
            lines = others;
        }
        self.cut(lines, &mut each);
        self.hold(rest);
    }

    /// Ends the input: calls `each` with the last line if it lacks a line feed. Afterwards, you can
    /// reuse the buffer.
    pub fn finish(&mut self, mut each: impl FnMut(Cut<'_>)) {
        if mem::take(&mut self.is_skipping) {
            each(Cut::TooLong);
        } else if !self.held.is_empty() {
            each(Cut::Lines(&self.held));
        }
        self.held.clear();
    }

    /// Passes on complete lines, except those that are too long.
    fn cut(&self, lines: &[u8], each: &mut impl FnMut(Cut<'_>)) {
        if lines.is_empty() {
            return;
        }
        if lines.len() <= self.max_line {
            return each(Cut::Lines(lines));
        }
        let mut begin = 0;
        let mut line = 0;
        for end in memchr::memchr_iter(b'\n', lines) {
            if end - line > self.max_line {
                if begin < line {
                    each(Cut::Lines(&lines[begin..line]));
                }
                each(Cut::TooLong);
                begin = end + 1;
            }
            line = end + 1;
        }
        if begin < lines.len() {
            each(Cut::Lines(&lines[begin..]));
        }
    }

    fn hold(&mut self, part: &[u8]) {
        if self.is_skipping || part.len() > self.max_line - self.held.len() {
            self.is_skipping = true;
            self.held.clear();
        } else {
            self.held.extend_from_slice(part);
        }
    }
}

/// Returns the index of the first of these ASCII characters at or after `at`, or the length.
///
/// This examines eight bytes at a time. A loop over single bytes took three times the instructions.
/// A call of memchr costs too much, because names and tags are short.
#[inline(always)]
pub(super) fn find<const N: usize>(bytes: &[u8], at: usize, needles: [u8; N]) -> usize {
    scan(bytes, at, |word| {
        let marks = needles.map(|needle| {
            // Sets the top bit of the lowest byte that is zero. Lower bytes keep a clear top bit.
            let zero = word ^ (ONES * u64::from(needle));
            zero.wrapping_sub(ONES) & !zero
        });
        marks.iter().fold(0, |all, marks| all | marks)
    })
}

/// Returns the end of the name that begins at `at`. A name consists of ASCII letters, digits and
/// underscores, and of colons if `COLONS` is true.
#[cfg(feature = "exposition")]
#[inline(always)]
pub(super) fn name_end<const COLONS: bool>(bytes: &[u8], at: usize) -> usize {
    // Adding to the low seven bits of each byte sets the top bit if the byte is at least `first`.
    let from = |word: u64, first: u8| word + ONES * u64::from(0x80 - first);
    scan(bytes, at, |word| {
        let low = word & !(ONES << 7);
        let lower = low | ONES << 5;
        let letters = from(lower, b'a') & !from(lower, b'z' + 1);
        let digits = from(low, b'0') & !from(low, if COLONS { b':' } else { b'9' } + 1);
        let underscores = !from(low ^ (ONES * u64::from(b'_')), 1);
        !(letters | digits | underscores) | word
    })
}

const ONES: u64 = u64::from_le_bytes([1; 8]);

/// Returns the first position from `at` on where `marks` sets the top bit of a byte. Only the
/// lowest top bit in each word must be correct.
#[inline(always)]
fn scan(bytes: &[u8], at: usize, marks: impl Fn(u64) -> u64) -> usize {
    let mut rest = &bytes[at..];
    while let Some((word, after)) = rest.split_first_chunk::<8>() {
        let found = marks(u64::from_le_bytes(*word)) & (ONES << 7);
        if found != 0 {
            return bytes.len() - rest.len() + found.trailing_zeros() as usize / 8;
        }
        rest = after;
    }
    if rest.is_empty() {
        return bytes.len();
    }
    let word = match bytes.last_chunk::<8>() {
        // The last bytes are examined together with some bytes before them.
        Some(word) => u64::from_le_bytes(*word) >> (64 - 8 * rest.len()),
        None => rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
    };
    let found = marks(word) & (ONES << 7);
    bytes.len() - rest.len() + (found.trailing_zeros() as usize / 8).min(rest.len())
}

/// Reads a decimal number with the rules of `strtod` and Go's `ParseFloat`, but refuses a magnitude
/// beyond the range of a double. Hexadecimal numbers are not supported.
#[inline]
pub(super) fn float(text: &str) -> Option<f64> {
    let (is_negative, digits) = match text.as_bytes() {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    // If a double can represent both numbers exactly, their quotient is rounded once, so this is
    // the correct result.
    let (mut mantissa, mut point) = (0_u64, None);
    if digits.len() > EXACT_DIGITS + 1 {
        return long_float(text);
    }
    for (index, byte) in digits.iter().enumerate() {
        let digit = byte.wrapping_sub(b'0');
        if digit < 10 {
            mantissa = mantissa * 10 + u64::from(digit);
        } else if *byte == b'.' && point.is_none() {
            point = Some(index + 1);
        } else {
            return long_float(text);
        }
    }
    let decimals = point.map_or(0, |point| digits.len() - point);
    if mantissa > 1 << 53 || digits.len() == usize::from(point.is_some()) {
        return long_float(text);
    }
    let mut value = mantissa as f64;
    if decimals > 0 {
        value /= POWERS[decimals];
    }
    Some(if is_negative { -value } else { value })
}

#[cold]
#[inline(never)]
fn long_float(text: &str) -> Option<f64> {
    let value: f64 = text.parse().ok()?;
    let is_infinity = text.bytes().any(|byte| matches!(byte, b'n' | b'N'));
    match value {
        // Go refuses NaN with a sign.
        value if value.is_nan() => (text.len() == 3).then_some(value),
        value => (value.is_finite() || is_infinity).then_some(value),
    }
}

/// The number of digits that a double always represents exactly.
const EXACT_DIGITS: usize = 15;

const POWERS: [f64; EXACT_DIGITS + 2] =
    [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16];

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    #[cfg(any(feature = "exposition", feature = "graphite", feature = "statsd"))]
    #[test]
    fn lines_that_are_not_utf_8_stand_alone() {
        let mut lines = Lines::new(b"a\n\xff\n\nb\xe2\x82\xac\nc\xe2\x82\n\xfe");
        let mut seen = Vec::new();
        while let Some(line) = lines.next() {
            seen.push(line);
        }
        assert_eq!(seen, [Ok("a"), Err(0), Ok(""), Ok("b\u{20ac}"), Err(1), Err(0)]);
        assert_eq!(Lines::new(b"").next(), None);
        assert_eq!(Lines::new(b"\n").next(), Some(Ok("")));
    }

    #[test]
    fn pieces_of_any_size_are_the_same_lines() {
        let input = b"one\n\nfour\ntoo long a line\nend\nmuch too long\n\nlast";
        for size in 1..=input.len() {
            for max_line in [0, 3, 4, 100] {
                let mut buffer = LineBuffer::new(max_line);
                let (mut kept, mut skipped) = (Vec::new(), 0);
                for piece in input.chunks(size) {
                    buffer.push(piece, |cut| match cut {
                        Cut::Lines(lines) => kept.extend_from_slice(lines),
                        Cut::TooLong => skipped += 1,
                    });
                }
                buffer.finish(|cut| match cut {
                    Cut::Lines(lines) => kept.extend_from_slice(lines),
                    Cut::TooLong => skipped += 1,
                });
                let (mut expected, mut long) = (vec![], 0);
                for line in input.split_inclusive(|byte| *byte == b'\n') {
                    if line.trim_ascii_end().len() <= max_line {
                        expected.extend_from_slice(line);
                    } else {
                        long += 1;
                    }
                }
                assert_eq!((kept, skipped), (expected, long), "{size} {max_line}");
                buffer.finish(|cut| panic!("{cut:?}"));
            }
        }
    }

    #[test]
    fn characters_are_found_where_they_are() {
        let text = b"ab:\x80c\xba:|d,::\x00\xff#\x3b\x39e:";
        for end in 0..=text.len() {
            for at in 0..=end {
                let text = &text[..end];
                let expected = |needles: &[u8]| {
                    let found = text[at..].iter().position(|byte| needles.contains(byte));
                    found.map_or(end, |found| at + found)
                };
                assert_eq!(find(text, at, [b':']), expected(b":"), "{at} {end}");
                assert_eq!(find(text, at, [b'|', b'#']), expected(b"|#"), "{at} {end}");
            }
        }
    }

    #[cfg(feature = "exposition")]
    #[test]
    fn names_end_where_they_do() {
        for byte in 0..=255 {
            for at in 0..11 {
                let mut text = *b"a_Z:9b_0zA:";
                text[at] = byte;
                let text = &text[..];
                let end = |colons: bool| {
                    let is_part = |byte: &u8| match byte {
                        b'_' => true,
                        b':' => colons,
                        byte => byte.is_ascii_alphanumeric(),
                    };
                    text.iter().position(|byte| !is_part(byte)).unwrap_or(text.len())
                };
                assert_eq!(name_end::<true>(text, 0), end(true), "{byte} {at}");
                assert_eq!(name_end::<false>(text, 0), end(false), "{byte} {at}");
            }
        }
    }

    #[test]
    fn numbers_are_those_of_the_standard_library() {
        let mut bits = 0x9e37_79b9_7f4a_7c15_u64;
        for round in 0..if cfg!(miri) { 200 } else { 100_000 } {
            bits = bits.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            let text = match round % 5 {
                0 => std::format!("{:?}", f64::from_bits(bits)),
                1 => std::format!("{}", (bits >> 34) as f64 / 1000.0),
                2 => std::format!("{}", bits >> 10),
                3 => std::format!("-{}.{}", bits >> 50, bits & 0xffff),
                _ => std::format!("+.{}", bits >> 16),
            };
            let expected: f64 = text.parse().unwrap();
            let read = float(&text).unwrap();
            assert!(read.to_bits() == expected.to_bits() || read.is_nan(), "{text} {read}");
        }
        for text in [
            "", "+", "-", ".", "+.", "1..2", "1.2.3", "0x1", "1_0", "1e", "e1", "1e999", "-1e999",
            "--1", "+-1", " 1", "1 ", "1o", "in", "nano", "-nan", "+NaN", "infinit", "\u{e9}",
        ] {
            assert_eq!(float(text), None, "{text}");
        }
        for (text, value) in [
            ("+Inf", f64::INFINITY),
            ("-infinity", f64::NEG_INFINITY),
            ("1.", 1.0),
            (".5", 0.5),
            ("-0", -0.0),
            ("9007199254740993", 9007199254740992.0),
            ("1e3", 1000.0),
            ("0000000000000000001", 1.0),
        ] {
            assert_eq!(float(text).map(f64::to_bits), Some(value.to_bits()), "{text}");
        }
        assert!(float("NaN").is_some_and(f64::is_nan));
    }
}
