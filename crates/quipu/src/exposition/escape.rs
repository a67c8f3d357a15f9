//! Escaping of names, for readers that only accept legacy names, and of quoted strings.
//!
//! The schemes for names follow `prometheus/common`. Where its code differs from its specification,
//! this follows the code: digits of `values` are lower-case, and `dots` turns each character other
//! than dots and underscores into two underscores.

use std::borrow::Cow;
use std::fmt::Write;

use crate::error::named;

/// How names are escaped that contain other characters than ASCII letters, digits, `_` and `:`. You
/// usually get this from [`negotiate`](fn@super::negotiate), because the scraper asks for a scheme.
///
/// ```
/// use quipu::exposition::{Escaping, Format};
///
/// assert_eq!("dots".parse(), Ok(Escaping::Dots));
/// let registry = quipu::Registry::new();
/// registry.gauge("room.temperature", "Temperature.")?.set(21.5);
/// let mut page = Vec::new();
/// registry.scrape().format(Format::Text, Escaping::Dots).append_to(&mut page);
/// assert!(page.ends_with(b"room_dot_temperature 21.5\n"));
/// # Ok::<(), quipu::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Escaping {
    /// The name is unchanged, but quoted.
    AllowUtf8,
    /// Each other character becomes an underscore.
    #[default]
    Underscores,
    /// Dots become `_dot_`; underscores and all other characters become two underscores.
    Dots,
    /// The name gets the prefix `U__`, and each other character becomes its hexadecimal code point
    /// between underscores.
    Values,
}

impl Escaping {
    const ALL: [Self; 4] = [Self::AllowUtf8, Self::Underscores, Self::Dots, Self::Values];

    /// Returns the name in headers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AllowUtf8 => "allow-utf-8",
            Self::Underscores => "underscores",
            Self::Dots => "dots",
            Self::Values => "values",
        }
    }

    pub(super) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|escaping| escaping.as_str() == name)
    }
}

named!(Escaping, "escaping scheme", Escaping::ALL);

/// Returns whether every version of Prometheus accepts the name of a metric:
/// `[a-zA-Z_:][a-zA-Z0-9_:]*`.
pub fn is_legacy_name(name: &str) -> bool {
    name.bytes().next().is_some_and(|first| !first.is_ascii_digit())
        && name.bytes().all(|byte| IS_LEGACY[usize::from(byte)])
}

/// The bytes of names that every version of Prometheus accepts; digits are not the first.
const IS_LEGACY: [bool; 256] = {
    let mut is_legacy = [false; 256];
    let mut byte = 0;
    while byte < 128 {
        is_legacy[byte] = self::is_legacy(byte as u8 as char, 1);
        byte += 1;
    }
    is_legacy
};

const fn is_legacy(c: char, at: usize) -> bool {
    c.is_ascii_alphabetic() || c == '_' || c == ':' || (c.is_ascii_digit() && at > 0)
}

/// Like [`is_legacy_name`], for the name of a label, which must not contain a colon.
pub(crate) fn is_legacy_label(name: &str) -> bool {
    is_legacy_name(name) && !name.contains(':')
}

/// Appends the name of a metric to `out`, escaped.
pub fn escape_name(name: &str, escaping: Escaping, out: &mut String) {
    if is_unescaped(is_legacy_name(name), escaping) {
        out.push_str(name);
        return;
    }
    escape(name.char_indices(), true, escaping, out);
}

/// Like [`escape_name`], for a name in two parts, to bytes. The suffix needs no escapes.
pub(super) fn put_metric_name(name: &str, suffix: &str, escaping: Escaping, out: &mut Vec<u8>) {
    if is_unescaped(is_legacy_name(name), escaping) {
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(suffix.as_bytes());
        return;
    }
    let behind = suffix.char_indices().map(|(i, c)| (name.len() + i, c));
    escape(name.char_indices().chain(behind), true, escaping, &mut Bytes(out));
}

/// Like [`escape_name`], for the name of a label, where a colon is escaped, too.
pub(super) fn put_label_name(name: &str, escaping: Escaping, out: &mut Vec<u8>) {
    if is_unescaped(is_legacy_label(name), escaping) {
        out.extend_from_slice(name.as_bytes());
        return;
    }
    escape(name.char_indices(), false, escaping, &mut Bytes(out));
}

/// Returns whether two names of labels are the same once they are written.
pub(super) fn is_same_label(one: &str, other: &str, escaping: Escaping) -> bool {
    if [one, other].iter().all(|name| is_unescaped(is_legacy_label(name), escaping)) {
        return one == other;
    }
    let mut written = [Vec::new(), Vec::new()];
    put_label_name(one, escaping, &mut written[0]);
    put_label_name(other, escaping, &mut written[1]);
    written[0] == written[1]
}

/// Returns whether the name of a metric is written unchanged, without escapes and quotes.
pub(super) fn is_unchanged(name: &str, escaping: Escaping) -> bool {
    escaping != Escaping::Dots && is_legacy_name(name)
}

/// Returns the name of a metric with underscores for all characters that old readers do not accept.
pub(crate) fn underscored_name(name: &str) -> Cow<'_, str> {
    if is_legacy_name(name) {
        return name.into();
    }
    let mut out = String::with_capacity(name.len());
    escape(name.char_indices(), true, Escaping::Underscores, &mut out);
    out.into()
}

/// Like [`underscored_name`], for the name of a label.
pub(crate) fn underscored_label(name: &str) -> Cow<'_, str> {
    if is_legacy_label(name) {
        return name.into();
    }
    let mut out = String::with_capacity(name.len());
    escape(name.char_indices(), false, Escaping::Underscores, &mut out);
    out.into()
}

/// Returns whether escaping keeps a name unchanged.
fn is_unescaped(is_legacy_name: bool, escaping: Escaping) -> bool {
    escaping == Escaping::AllowUtf8 || (is_legacy_name && escaping != Escaping::Dots)
}

/// Writes a name that escaping changes.
fn escape(
    chars: impl Iterator<Item = (usize, char)>,
    colon: bool,
    escaping: Escaping,
    out: &mut impl Write,
) {
    let is_legacy = |c: char, at: usize| is_legacy(c, at) && (colon || c != ':');
    let mut chars = chars.peekable();
    if escaping == Escaping::Values && chars.peek().is_some() {
        let _ = out.write_str("U__");
    }
    // Writing to memory does not fail.
    for (i, c) in chars {
        let _ = match (escaping, c) {
            // With `dots`, underscores are doubled even in names that need no escaping.
            (Escaping::Dots | Escaping::Values, '_') => out.write_str("__"),
            (Escaping::Dots, '.') => out.write_str("_dot_"),
            (_, c) if is_legacy(c, i) => out.write_char(c),
            (Escaping::Dots, _) => out.write_str("__"),
            (Escaping::Values, c) => write!(out, "_{:x}_", u32::from(c)),
            _ => out.write_char('_'),
        };
    }
}

/// Writes strings to a vector of bytes.
struct Bytes<'o>(&'o mut Vec<u8>);

impl Write for Bytes<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

/// Appends a string, escaped for quotes: label values, quoted names, and help strings in
/// OpenMetrics. The caller writes the quotes.
pub(super) fn put_quoted(text: &str, out: &mut Vec<u8>) {
    put_quoted_bytes(text.as_bytes(), out);
}

/// Like [`put_quoted`], for bytes.
pub(super) fn put_quoted_bytes(text: &[u8], out: &mut Vec<u8>) {
    put_escaped(text, |byte| matches!(byte, b'"' | b'\\' | b'\n'), out);
}

/// Appends a help string for Prometheus' formats, where quotes are not escaped.
pub(super) fn put_help(text: &str, out: &mut Vec<u8>) {
    put_escaped(text.as_bytes(), |byte| matches!(byte, b'\\' | b'\n'), out);
}

/// Appends a string with a backslash before each special byte; a line feed becomes `n`.
fn put_escaped(text: &[u8], is_special: impl Fn(u8) -> bool, out: &mut Vec<u8>) {
    // Without an early exit, this takes a few instructions for 16 bytes.
    if text.iter().fold(0, |found, &byte| found | u8::from(is_special(byte))) == 0 {
        out.extend_from_slice(text);
        return;
    }
    let mut rest = text;
    while let Some(at) = rest.iter().position(|&byte| is_special(byte)) {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(&[b'\\', if rest[at] == b'\n' { b'n' } else { rest[at] }]);
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cases of `TestEscapeName` in `prometheus/common`.
    #[test]
    fn names_are_escaped_as_others_do() {
        // (name, underscores, dots, values)
        let cases = [
            ("", "", "", ""),
            (
                "no:escaping_required",
                "no:escaping_required",
                "no:escaping__required",
                "no:escaping_required",
            ),
            ("ns.subsys_dot", "ns_subsys_dot", "ns_dot_subsys__dot", "U__ns_2e_subsys__dot"),
            (
                "mysystem.prod.west.cpu.load",
                "mysystem_prod_west_cpu_load",
                "mysystem_dot_prod_dot_west_dot_cpu_dot_load",
                "U__mysystem_2e_prod_2e_west_2e_cpu_2e_load",
            ),
            (
                "mysystem.prod.west.cpu.load_total",
                "mysystem_prod_west_cpu_load_total",
                "mysystem_dot_prod_dot_west_dot_cpu_dot_load__total",
                "U__mysystem_2e_prod_2e_west_2e_cpu_2e_load__total",
            ),
            (
                "http.status:my-sample",
                "http_status:my_sample",
                "http_dot_status:my__sample",
                "U__http_2e_status:my_2d_sample",
            ),
            (
                "label with \u{1f631}",
                "label_with__",
                "label__with____",
                "U__label_20_with_20__1f631_",
            ),
            ("\u{82b1}\u{706b}", "__", "____", "U___82b1__706b_"),
            ("label with \u{100}", "label_with__", "label__with____", "U__label_20_with_20__100_"),
        ];
        for (name, underscores, dots, values) in cases {
            for (escaping, expected) in [
                (Escaping::Underscores, underscores),
                (Escaping::Dots, dots),
                (Escaping::Values, values),
                (Escaping::AllowUtf8, name),
            ] {
                let mut out = String::new();
                escape_name(name, escaping, &mut out);
                assert_eq!(out, expected, "{name:?} {escaping:?}");
            }
        }
    }
}
