//! Names for readers that know ASCII only, and texts in quotes.
//!
//! The schemes are those of `prometheus/common`, whose code and not whose specification is followed
//! where the two differ: digits of `values` are lower-case, and `dots` makes two underscores of
//! what is neither dot nor underscore.

use std::fmt::Write;

/// What becomes of a name that has more than ASCII letters, digits, `_` and `:` in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Escaping {
    /// It stays as it is, in quotes.
    AllowUtf8,
    /// Every other character becomes an underscore.
    #[default]
    Underscores,
    /// Dots become `_dot_`, underscores and all others two underscores.
    Dots,
    /// It begins with `U__`, and every other character becomes its hexadecimal number.
    Values,
}

impl Escaping {
    /// Its name in headers.
    pub fn name(self) -> &'static str {
        match self {
            Self::AllowUtf8 => "allow-utf-8",
            Self::Underscores => "underscores",
            Self::Dots => "dots",
            Self::Values => "values",
        }
    }

    /// The scheme of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::AllowUtf8, Self::Underscores, Self::Dots, Self::Values]
            .into_iter()
            .find(|escaping| escaping.name() == name)
    }
}

/// Whether a name is one that every version of Prometheus reads: `[a-zA-Z_:][a-zA-Z0-9_:]*`.
pub fn is_legacy_name(name: &str) -> bool {
    !name.is_empty() && name.char_indices().all(|(i, c)| is_legacy(c, i))
}

fn is_legacy(c: char, at: usize) -> bool {
    c.is_ascii_alphabetic() || c == '_' || c == ':' || (c.is_ascii_digit() && at > 0)
}

/// Whether a name is one that every version of Prometheus reads as a label's: without a colon.
pub(super) fn is_legacy_label(name: &str) -> bool {
    is_legacy_name(name) && !name.contains(':')
}

/// Appends the name of a metric to `out`, as the scheme has it.
pub fn escape_name(name: &str, escaping: Escaping, out: &mut String) {
    escape(name.char_indices(), is_legacy_name(name), true, escaping, out);
}

/// As [`escape_name`], of a name in two parts, to bytes.
pub(super) fn put_metric_name(name: &str, suffix: &str, escaping: Escaping, out: &mut Vec<u8>) {
    let behind = suffix.char_indices().map(|(i, c)| (name.len() + i, c));
    let is_legacy = is_legacy_name(name);
    escape(name.char_indices().chain(behind), is_legacy, true, escaping, &mut Bytes(out));
}

/// As [`escape_name`], of the name of a label, which has no colon.
pub(super) fn put_label_name(name: &str, escaping: Escaping, out: &mut Vec<u8>) {
    let chars = name.char_indices();
    escape(chars, is_legacy_label(name), false, escaping, &mut Bytes(out));
}

fn escape(
    chars: impl Iterator<Item = (usize, char)>,
    is_legacy_name: bool,
    colon: bool,
    escaping: Escaping,
    out: &mut impl Write,
) {
    let is_legacy = |c: char, at: usize| is_legacy(c, at) && (colon || c != ':');
    let keep = escaping == Escaping::AllowUtf8 || (is_legacy_name && escaping != Escaping::Dots);
    let mut chars = chars.peekable();
    if escaping == Escaping::Values && !is_legacy_name && chars.peek().is_some() {
        let _ = out.write_str("U__");
    }
    // Memory takes whatever is written.
    for (i, c) in chars {
        let _ = match (escaping, c) {
            _ if keep => out.write_char(c),
            // Names that need no escaping have their underscores doubled all the same.
            (Escaping::Dots | Escaping::Values, '_') => out.write_str("__"),
            (Escaping::Dots, '.') => out.write_str("_dot_"),
            (_, c) if is_legacy(c, i) => out.write_char(c),
            (Escaping::Dots, _) => out.write_str("__"),
            (Escaping::Values, c) => write!(out, "_{:x}_", u32::from(c)),
            _ => out.write_char('_'),
        };
    }
}

/// Memory for bytes, as text is written to it.
struct Bytes<'o>(&'o mut Vec<u8>);

impl Write for Bytes<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

/// Appends a text between quotes: label values, names in quotes, and OpenMetrics' helps.
pub(super) fn put_quoted(text: &str, out: &mut Vec<u8>) {
    put_quoted_bytes(text.as_bytes(), out);
}

/// As [`put_quoted`], of a text's bytes.
pub(super) fn put_quoted_bytes(text: &[u8], out: &mut Vec<u8>) {
    let mut rest = text;
    while let Some(at) = rest.iter().position(|byte| matches!(byte, b'"' | b'\\' | b'\n')) {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(&[b'\\', if rest[at] == b'\n' { b'n' } else { rest[at] }]);
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
}

/// Appends the help of text format: quotes stay as they are.
pub(super) fn put_help(text: &str, out: &mut Vec<u8>) {
    for byte in text.bytes() {
        match byte {
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            byte => out.push(byte),
        }
    }
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
