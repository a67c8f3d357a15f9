//! Finds the ends of lines: a line feed that is not within a quoted field. This works on an input
//! that arrives in pieces.

use alloc::vec::Vec;
use core::mem;

use crate::remote::Cut;
use crate::remote::lines::find;

/// Finds the ends of lines, whose bytes can arrive in pieces.
///
/// A quote after the equals sign of a field begins a string, even in a malformed line. This matters
/// because a string may contain anything, for example a logged request: its contents are never
/// mistaken for a line, whatever precedes them.
#[derive(Clone, Debug, Default)]
pub(super) struct Ends {
    place: Place,
    /// The byte before the next piece.
    last: u8,
}

/// The position of the next byte within a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    /// Before the first character, except spaces.
    #[default]
    Begin,
    Comment,
    /// In the measurement or the tags.
    Names,
    /// In the fields, or after them.
    Fields,
    /// After the equals sign of a field.
    Equals,
    /// In a quoted string.
    Text,
    /// After a backslash in a quoted string.
    Escape,
}

impl Ends {
    /// Returns the index of the line feed that ends the line. The next call takes the bytes after
    /// this line feed. Returns `None` if the line continues after these bytes.
    pub(super) fn next(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut at = 0;
        loop {
            at = match self.place {
                Place::Comment => find(bytes, at, *b"\n"),
                Place::Names => find(bytes, at, *b" \n"),
                Place::Fields => find(bytes, at, *b"=\n"),
                Place::Text => find(bytes, at, *b"\"\\"),
                Place::Begin | Place::Equals | Place::Escape => at,
            };
            let Some(byte) = bytes.get(at) else {
                self.last = bytes.last().copied().unwrap_or(self.last);
                return None;
            };
            let before = at.checked_sub(1).map_or(self.last, |before| bytes[before]);
            self.place = match (self.place, byte) {
                (Place::Text, b'"') => Place::Fields,
                (Place::Text, _) => Place::Escape,
                (Place::Equals, b'"') | (Place::Escape, _) => Place::Text,
                (_, b'\n') => {
                    *self = Self::default();
                    return Some(at);
                }
                (Place::Begin, b'#') => Place::Comment,
                (Place::Begin, byte) if byte.is_ascii_whitespace() => Place::Begin,
                (Place::Begin, _) => Place::Names,
                (Place::Names, b' ') if before != b'\\' => Place::Fields,
                (Place::Fields | Place::Equals, b'=') if before != b'\\' => Place::Equals,
                (Place::Equals, _) => Place::Fields,
                (place, _) => place,
            };
            at += 1;
        }
    }
}

/// Cuts an input that arrives in pieces into complete lines. This is like
/// [`LineBuffer`](crate::remote::LineBuffer), except that a line feed within a quoted field does
/// not end a line. If a line is too long, its strings are skipped up to their closing quotes.
///
/// ```
/// use quipu_wire::remote::{Cut, influx::InfluxLineBuffer};
///
/// let mut buffer = InfluxLineBuffer::new(100);
/// let mut seen = Vec::new();
/// for piece in ["m f=1\nm g=\"a", "\nb\"", "\n"] {
///     buffer.push(piece.as_bytes(), |cut| match cut {
///         Cut::Lines(lines) => seen.push(String::from_utf8_lossy(lines).into_owned()),
///         Cut::TooLong => unreachable!("all lines are short"),
///     });
/// }
/// assert_eq!(seen, ["m f=1\n", "m g=\"a\nb\"\n"]);
/// ```
#[derive(Clone, Debug)]
pub struct InfluxLineBuffer {
    ends: Ends,
    /// The beginning of an incomplete line.
    held: Vec<u8>,
    max_line: usize,
    /// Whether the current line is too long.
    is_skipping: bool,
}

impl InfluxLineBuffer {
    /// Creates a buffer for lines of at most this many bytes, without their line feeds.
    pub fn new(max_line: usize) -> InfluxLineBuffer {
        InfluxLineBuffer { ends: Ends::default(), held: Vec::new(), max_line, is_skipping: false }
    }

    /// Adds a piece of the input and calls `each` for the lines that are now complete. Only a line
    /// that spans two pieces is copied.
    pub fn push(&mut self, piece: &[u8], mut each: impl FnMut(Cut<'_>)) {
        // The start of the lines not yet passed on, and the start of the line whose end is
        // searched.
        let (mut begin, mut line) = (0, 0);
        while let Some(len) = self.ends.next(&piece[line..]) {
            let end = line + len;
            let is_long = self.is_skipping || len > self.max_line - self.held.len();
            if is_long && begin < line {
                each(Cut::Lines(&piece[begin..line]));
            }
            line = end + 1;
            if is_long {
                each(Cut::TooLong);
                begin = line;
            } else if !self.held.is_empty() {
                // Only the first line of a piece can begin in an earlier piece.
                self.held.extend_from_slice(&piece[..line]);
                each(Cut::Lines(&self.held));
                begin = line;
            }
            self.is_skipping = false;
            self.held.clear();
        }
        if begin < line {
            each(Cut::Lines(&piece[begin..line]));
        }
        let rest = &piece[line..];
        if self.is_skipping || rest.len() > self.max_line - self.held.len() {
            self.is_skipping = true;
            self.held.clear();
        } else {
            self.held.extend_from_slice(rest);
        }
    }

    /// Ends the input: calls `each` with the last line if it lacks a line feed. Afterwards, you can
    /// reuse the buffer.
    pub fn finish(&mut self, mut each: impl FnMut(Cut<'_>)) {
        self.ends = Ends::default();
        if mem::take(&mut self.is_skipping) {
            each(Cut::TooLong);
        } else if !self.held.is_empty() {
            each(Cut::Lines(&self.held));
        }
        self.held.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_any_size_are_the_same_lines() {
        let lines: [&[u8]; 9] = [
            b"m f=1\n",
            b"m f=\"a\nb\",g=2\n",
            b"# it is f=\"\n",
            b"\n",
            b"m,t=\"x f=\"\\\\\",g=\"\\\"\n\\\" 7\" 7\n",
            b"m,bad f=\"\nm f=\n\"\n",
            b"m f\\=\"a\n",
            b"m f=\"a long\ntext\nm f=3\n\"\n",
            b"m f=\"open\nm f=1\n",
        ];
        let input = lines.concat();
        for size in 1..=input.len() {
            for max_line in [0, 5, 12, 25, 100] {
                let mut buffer = InfluxLineBuffer::new(max_line);
                let (mut kept, mut skipped) = (Vec::new(), 0);
                let mut each = |cut: Cut<'_>| match cut {
                    Cut::Lines(lines) => kept.extend_from_slice(lines),
                    Cut::TooLong => skipped += 1,
                };
                input.chunks(size).for_each(|piece| buffer.push(piece, &mut each));
                buffer.finish(&mut each);
                let (mut expected, mut long) = (Vec::new(), 0);
                for (index, line) in lines.into_iter().enumerate() {
                    // The last line has an open quote, so no line feed ends it.
                    let len = line.len() - usize::from(index + 1 < lines.len());
                    match len <= max_line {
                        true => expected.extend_from_slice(line),
                        false => long += 1,
                    }
                }
                assert_eq!((kept, skipped), (expected, long), "{size} {max_line}");
                buffer.finish(|cut| panic!("{cut:?}"));
            }
        }
    }
}
