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

/// Appends a name to `out`, as the scheme has it.
pub fn escape_name(name: &str, escaping: Escaping, out: &mut String) {
    let is_legacy_name = is_legacy_name(name);
    match escaping {
        Escaping::AllowUtf8 => out.push_str(name),
        Escaping::Underscores | Escaping::Values if is_legacy_name => out.push_str(name),
        Escaping::Underscores => {
            out.extend(name.char_indices().map(|(i, c)| if is_legacy(c, i) { c } else { '_' }));
        }
        // Names that need no escaping have their underscores doubled all the same.
        Escaping::Dots => {
            for (i, c) in name.char_indices() {
                match c {
                    '_' => out.push_str("__"),
                    '.' => out.push_str("_dot_"),
                    c if is_legacy(c, i) => out.push(c),
                    _ => out.push_str("__"),
                }
            }
        }
        Escaping::Values if name.is_empty() => {}
        Escaping::Values => {
            out.push_str("U__");
            for (i, c) in name.char_indices() {
                match c {
                    '_' => out.push_str("__"),
                    c if is_legacy(c, i) => out.push(c),
                    // A String takes whatever is written.
                    c => drop(write!(out, "_{:x}_", u32::from(c))),
                }
            }
        }
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
