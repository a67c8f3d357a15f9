//! Escapes names from outside for use in messages.

use std::ffi::OsStr;
use std::fmt::{self, Write};

/// Returns a name from outside, such as a path, escaped for a message.
///
/// Characters that would break the line, control a terminal or change the direction of the text are
/// escaped like in a Rust literal, and bytes that are not UTF-8 as `\xff`. All others are
/// unchanged.
///
/// ```
/// use quipu_segment::printable;
///
/// assert_eq!(printable("a\nb\u{1b}[1m").to_string(), "a\\nb\\u{1b}[1m");
/// ```
pub fn printable<T: AsRef<OsStr> + ?Sized>(name: &T) -> Printable<'_> {
    Printable(name.as_ref())
}

/// A name that [`printable`] escaped.
#[derive(Clone, Copy, Debug)]
pub struct Printable<'a>(&'a OsStr);

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.as_encoded_bytes().utf8_chunks() {
            for c in chunk.valid().chars() {
                match is_printable(c) {
                    true => f.write_char(c)?,
                    false => write!(f, "{}", c.escape_default())?,
                }
            }
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

/// Returns whether [`printable`] leaves a character unchanged. It escapes control characters (C0,
/// DEL and C1), line and paragraph separators, and characters that change the direction of the
/// text.
///
/// Use this for formats that escape these characters in their own way, for example JSON as
/// `\u202e`. All of them are in the Basic Multilingual Plane.
pub fn is_printable(c: char) -> bool {
    let is_mark = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}');
    !(c.is_control() || is_mark || matches!(c, '\u{2066}'..='\u{2069}'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_control_characters_are_escaped() {
        for (name, shown) in [
            ("/run/app/\u{fc} \"x\\y\".db", "/run/app/\u{fc} \"x\\y\".db"),
            ("a\r\n\t\0", "a\\r\\n\\t\\u{0}"),
            ("\u{9b}1m\u{7f}\u{202e}", "\\u{9b}1m\\u{7f}\\u{202e}"),
            ("\u{61c}\u{2028}\u{2029}\u{2067}", "\\u{61c}\\u{2028}\\u{2029}\\u{2067}"),
        ] {
            assert_eq!(printable(name).to_string(), shown);
        }
    }

    #[cfg(unix)]
    #[test]
    fn bytes_that_are_no_text_are_escaped() {
        use std::os::unix::ffi::OsStrExt;
        let name = OsStr::from_bytes(b"a\xff\xc3b\n");
        assert_eq!(printable(name).to_string(), "a\\xff\\xc3b\\n");
    }
}
