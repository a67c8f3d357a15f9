//! Truncates long strings. Formatting stops at the limit, so a string of many megabytes costs no
//! more than its beginning.

use std::fmt::{self, Write};

use quipu_process::text::cut;

/// Appends at most `limit` bytes of a string. Returns false if the string was truncated.
pub(super) fn push_truncated(out: &mut String, text: &dyn fmt::Display, limit: usize) -> bool {
    write!(TruncatingWriter { out, left: limit }, "{text}").is_ok()
}

/// Returns the beginning of a string: at most `limit` bytes.
pub(super) fn truncate(text: &dyn fmt::Display, limit: usize) -> String {
    let mut out = String::new();
    push_truncated(&mut out, text, limit);
    out
}

/// A writer that fails at the first byte beyond its limit.
struct TruncatingWriter<'o> {
    out: &'o mut String,
    left: usize,
}

impl Write for TruncatingWriter<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let part = cut(text, self.left);
        self.out.push_str(part);
        if part.len() < text.len() {
            self.left = 0;
            return Err(fmt::Error);
        }
        self.left -= part.len();
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::cell::Cell;

    use super::*;

    /// Writes "a\u{e9}" a million times, and counts the writes.
    #[derive(Default)]
    pub(crate) struct Long(pub(crate) Cell<u32>);

    impl fmt::Display for Long {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            (0..1_000_000).try_for_each(|_| {
                self.0.set(self.0.get() + 1);
                f.write_str("a\u{e9}")
            })
        }
    }

    #[test]
    fn a_long_text_is_formatted_up_to_the_limit() {
        let long = Long::default();
        assert_eq!(truncate(&long, 8), "a\u{e9}a\u{e9}a");
        assert_eq!(long.0.get(), 3);
        let mut out = "x".to_owned();
        assert!(push_truncated(&mut out, &"a\u{e9}", 3));
        assert!(!push_truncated(&mut out, &"a\u{e9}", 2));
        assert!(push_truncated(&mut out, &"", 0));
        assert_eq!(out, "xa\u{e9}a");
    }
}
