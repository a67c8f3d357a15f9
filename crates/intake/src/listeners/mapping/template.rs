//! Templates for names and labels, with references to the parts of the name that a pattern matched:
//! `$1`, `${1}`, or `$0` for the whole name.

/// A parsed template of a glob rule.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Template(Vec<Piece>);

#[derive(Debug, PartialEq, Eq)]
enum Piece {
    Text(Box<str>),
    /// The whole name.
    Name,
    /// The part that the n-th asterisk matched, starting at 0.
    Capture(usize),
}

impl Template {
    /// Parses a template. Like in statsd_exporter, a reference includes all following letters,
    /// digits, underscores and dollar signs. A reference that is not a number, or that exceeds the
    /// number of asterisks, becomes an empty string.
    pub(super) fn read(text: &str, captures: usize) -> Self {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find('$') {
            let brace = usize::from(rest[at + 1..].starts_with('{'));
            let begin = at + 1 + brace;
            let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$');
            let length = rest.as_bytes()[begin..].iter().take_while(|byte| is_part(byte)).count();
            let mut end = begin + length;
            let text = if length == 0 { &rest[..begin] } else { &rest[..at] };
            if !text.is_empty() {
                pieces.push(Piece::Text(text.into()));
            }
            if length > 0 {
                match rest[begin..end].parse::<usize>() {
                    Ok(0) => pieces.push(Piece::Name),
                    Ok(n) if n <= captures => pieces.push(Piece::Capture(n - 1)),
                    _ => {}
                }
                // We consume a closing brace after the reference, even without an opening one.
                end += usize::from(rest[end..].starts_with('}'));
            }
            rest = &rest[end..];
        }
        if !rest.is_empty() {
            pieces.push(Piece::Text(rest.into()));
        }
        Self(pieces)
    }

    /// Returns the template with its references replaced.
    pub(super) fn expand(&self, name: &str, captures: &[&str]) -> String {
        let pieces = self.0.iter().map(|piece| match piece {
            Piece::Text(text) => text,
            Piece::Name => name,
            Piece::Capture(n) => captures.get(*n).copied().unwrap_or_default(),
        });
        pieces.collect()
    }
}

/// Returns whether a template always produces a valid metric name: letters, digits, underscores and
/// numeric references, without a leading digit.
pub(super) fn is_name(text: &str) -> bool {
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        if first == '$' {
            let digits = rest[1..].strip_prefix('{').unwrap_or(&rest[1..]);
            let after = digits.trim_start_matches(|c: char| c.is_ascii_digit());
            if after.len() == digits.len() {
                return false;
            }
            rest = after.strip_prefix('}').unwrap_or(after);
        } else {
            let is_first = rest.len() == text.len();
            if !(first == '_' || first.is_ascii_alphabetic() || first.is_ascii_digit() && !is_first)
            {
                return false;
            }
            rest = &rest[1..];
        }
    }
    !text.is_empty()
}

/// Returns whether a string is a valid label name.
pub(super) fn is_label(text: &str) -> bool {
    !text.starts_with(|c: char| c.is_ascii_digit()) && is_name(text) && !text.contains('$')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_expand_like_in_statsd_exporter() {
        for (text, expected) in [
            ("", ""),
            ("plain", "plain"),
            ("$1", "x"),
            ("${1}_server", "x_server"),
            ("a_$2.$1", "a_y.x"),
            ("$1_server", ""),
            ("$1$2", ""),
            ("${0}$1", "n.x.yx"),
            ("$0$1", ""),
            ("$3 $9 ${name}!", "  !"),
            ("$", "$"),
            ("${", "${"),
            ("a$-b", "a$-b"),
            ("$0", "n.x.y"),
            ("$1}", "x"),
            ("${1", "x"),
            ("%s $1 %d", "%s x %d"),
        ] {
            assert_eq!(Template::read(text, 2).expand("n.x.y", &["x", "y"]), expected, "{text}");
        }
    }

    #[test]
    fn names_consist_of_letters_digits_and_underscores() {
        for good in ["a", "_a1", "$1", "${1}_total", "a$0b", "$0"] {
            assert!(is_name(good), "{good}");
        }
        for bad in ["", "1a", "a.b", "a-b", "$", "${}", "$a", "a b", "\u{e9}"] {
            assert!(!is_name(bad), "{bad}");
        }
        assert!(is_label("a") && is_label("_a1"));
        assert!(!is_label("") && !is_label("1") && !is_label("$1") && !is_label("a-b"));
    }
}
