//! The beginnings of texts that may be long: formatting stops where the beginning ends, so that a
//! text of many megabytes costs no more than its beginning.

use std::fmt::{self, Write};

use quipu_process::text::cut;

/// Appends the beginning of a text, at most `limit` bytes of it. Returns whether that is all of it.
pub(super) fn push_brief(out: &mut String, what: &dyn fmt::Display, limit: usize) -> bool {
    write!(Brief { out, left: limit }, "{what}").is_ok()
}

/// The beginning of a text: at most `limit` bytes.
pub(super) fn brief(what: &dyn fmt::Display, limit: usize) -> String {
    let mut out = String::new();
    push_brief(&mut out, what, limit);
    out
}

/// Takes what fits, and fails at the first byte that does not.
struct Brief<'o> {
    out: &'o mut String,
    left: usize,
}

impl Write for Brief<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let fits = cut(text, self.left);
        self.out.push_str(fits);
        if fits.len() < text.len() {
            self.left = 0;
            return Err(fmt::Error);
        }
        self.left -= fits.len();
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::cell::Cell;

    use super::*;

    /// Writes "a\u{e9}" a million times, and counts how often it was asked to.
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
    fn a_long_text_is_not_formatted_beyond_its_beginning() {
        let long = Long::default();
        assert_eq!(brief(&long, 8), "a\u{e9}a\u{e9}a");
        assert_eq!(long.0.get(), 3);
        let mut out = "x".to_owned();
        assert!(push_brief(&mut out, &"a\u{e9}", 3));
        assert!(!push_brief(&mut out, &"a\u{e9}", 2));
        assert!(push_brief(&mut out, &"", 0));
        assert_eq!(out, "xa\u{e9}a");
    }
}
