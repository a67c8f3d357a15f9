//! Lists of strings in one buffer.

use std::borrow::Cow;
use std::fmt;

/// A list of strings without an allocation: the values of a series' dynamic labels, or the names
/// and values of an exemplar's labels. This type is an iterator over the strings.
///
/// The encoding is the same as in the segment: each string follows its length in bytes, which is
/// one byte if below 255, else the byte 255 and four bytes, little-endian.
///
/// ```
/// use quipu::snapshot::Texts;
///
/// let mut buffer = Vec::new();
/// let texts = Texts::encode(["get", "/cart"], &mut buffer);
/// assert_eq!(texts.collect::<Vec<_>>(), ["get", "/cart"]);
/// ```
#[derive(Clone, Copy, Default)]
pub struct Texts<'a>(&'a [u8]);

impl<'a> Texts<'a> {
    /// Encodes strings into a buffer, whose previous contents are removed.
    ///
    /// # Panics
    /// If a string is 4 GiB or longer.
    pub fn encode<T: AsRef<str>>(
        texts: impl IntoIterator<Item = T>,
        buffer: &'a mut Vec<u8>,
    ) -> Self {
        buffer.clear();
        texts.into_iter().for_each(|text| Self::push(buffer, text.as_ref()));
        Self(buffer)
    }

    /// Wraps encoded strings.
    #[doc(hidden)]
    pub fn new(encoded: &'a [u8]) -> Self {
        Self(encoded)
    }

    /// Appends a string to encoded ones.
    ///
    /// # Panics
    /// If the string is 4 GiB or longer.
    #[doc(hidden)]
    pub fn push(encoded: &mut Vec<u8>, text: &str) {
        match u8::try_from(text.len()) {
            Ok(length) if length < u8::MAX => encoded.push(length),
            _ => {
                encoded.push(u8::MAX);
                let length = u32::try_from(text.len()).expect("a label is shorter than 4 GiB");
                encoded.extend_from_slice(&length.to_le_bytes());
            }
        }
        encoded.extend_from_slice(text.as_bytes());
    }
}

impl<'a> Texts<'a> {
    /// Returns the encoded strings.
    #[inline]
    pub(crate) fn encoded(&self) -> &'a [u8] {
        self.0
    }

    /// Returns whether no string contains a character that needs an escape: `"`, `\\`, line feed.
    pub(crate) fn is_escape_free(self) -> bool {
        let mut texts = self;
        std::iter::from_fn(|| texts.next_bytes()).all(is_escape_free)
    }

    /// Returns the strings of an untrusted file: as UTF-8, with a replacement character for invalid
    /// bytes, and whether no character needs an escape.
    pub(crate) fn checked(self) -> (Cow<'a, [u8]>, bool) {
        let (mut texts, mut is_utf8, mut escape_free) = (self, true, true);
        while let Some(text) = texts.next_bytes() {
            is_utf8 = is_utf8 && (is_ascii(text) || std::str::from_utf8(text).is_ok());
            escape_free &= is_escape_free(text);
        }
        if is_utf8 {
            return (Cow::Borrowed(self.0), escape_free);
        }
        let (mut texts, mut encoded) = (self, Vec::new());
        while let Some(text) = texts.next_bytes() {
            Self::push(&mut encoded, &String::from_utf8_lossy(text));
        }
        (Cow::Owned(encoded), escape_free)
    }

    /// Returns the next string as bytes, for callers that only copy it: UTF-8 is not validated
    /// again.
    #[inline]
    pub(crate) fn next_bytes(&mut self) -> Option<&'a [u8]> {
        let (&first, rest) = self.0.split_first()?;
        let (length, rest) = if first < u8::MAX {
            (usize::from(first), rest)
        } else {
            let (length, rest) = rest.split_first_chunk()?;
            (u32::from_le_bytes(*length) as usize, rest)
        };
        let (text, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some(text)
    }
}

impl<'a> Iterator for Texts<'a> {
    type Item = &'a str;

    #[inline]
    fn next(&mut self) -> Option<&'a str> {
        let bytes = self.next_bytes()?;
        if is_ascii(bytes) {
            // SAFETY: ASCII is UTF-8.
            return Some(unsafe { std::str::from_utf8_unchecked(bytes) });
        }
        std::str::from_utf8(bytes).ok()
    }
}

/// Returns whether no byte needs an escape.
fn is_escape_free(text: &[u8]) -> bool {
    let is_escaped = |byte: &u8| matches!(byte, b'"' | b'\\' | b'\n');
    // Without an early exit, because it would keep the compiler from checking many bytes at once.
    !text.iter().fold(false, |any, byte| any | is_escaped(byte))
}

/// Returns whether all bytes are ASCII. Most strings are short, where the standard library checks
/// each byte. Five labels of 3 to 19 bytes take 91 instructions here, and 399 in
/// [`std::str::from_utf8`].
#[inline]
fn is_ascii(bytes: &[u8]) -> bool {
    const HIGH: u64 = 0x8080_8080_8080_8080;
    let Some(last) = bytes.last_chunk::<8>() else {
        return bytes.iter().fold(0, |all, byte| all | byte) < 0x80;
    };
    let (words, _) = bytes.as_chunks::<8>();
    let words = words.iter().chain([last]).map(|word| u64::from_le_bytes(*word));
    words.fold(0, |all, word| all | word) & HIGH == 0
}

impl fmt::Debug for Texts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(*self).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ascii_is_found_at_any_place() {
        for len in 0..40 {
            let mut bytes = vec![b'a'; len];
            assert!(is_ascii(&bytes), "{len}");
            for at in 0..len {
                bytes[at] = 0x80;
                assert!(!is_ascii(&bytes), "{at} of {len}");
                bytes[at] = 0x7f;
            }
            assert!(is_ascii(&bytes), "{len}");
        }
    }

    #[test]
    fn texts_are_utf_8() {
        let mut encoded = Vec::new();
        let texts = ["", "a", "caf\u{e9}", "a longer text, of ASCII alone", "\u{2192} and more"];
        texts.iter().for_each(|text| Texts::push(&mut encoded, text));
        assert_eq!(Texts::new(&encoded).collect::<Vec<_>>(), texts);
        assert_eq!(Texts::new(b"\x02a\xff\x01b").next(), None);
    }
}
