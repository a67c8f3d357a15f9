//! Regular expressions with Prometheus' rules: an expression must match the whole string, a dot
//! matches a line feed, and `\d`, `\w`, `\s` and `\b` are ASCII like in Go.

use regex::Regex;

/// Compiles an expression that must match the whole string.
///
/// # Errors
/// Returns the problem with the expression.
pub(super) fn anchored(expression: &str) -> Result<Regex, String> {
    // Compile without anchors first. For example, `a)|(b` is invalid, but would become valid within
    // parentheses.
    let ascii = with_ascii_classes(expression);
    Regex::new(&ascii).map_err(|error| error.to_string())?;
    Regex::new(&format!("^(?s:{ascii})$")).map_err(|error| error.to_string())
}

/// Replaces the classes that Rust interprets as Unicode by their ASCII versions.
fn with_ascii_classes(expression: &str) -> String {
    let mut out = String::with_capacity(expression.len());
    let mut chars = expression.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('d') => out.push_str("[0-9]"),
            Some('D') => out.push_str("[^0-9]"),
            Some('w') => out.push_str("[0-9A-Za-z_]"),
            Some('W') => out.push_str("[^0-9A-Za-z_]"),
            Some('s') => out.push_str("[\\t\\n\\f\\r ]"),
            Some('S') => out.push_str("[^\\t\\n\\f\\r ]"),
            Some('b') => out.push_str("(?-u:\\b)"),
            Some('B') => out.push_str("(?-u:\\B)"),
            Some(escaped) => out.extend(['\\', escaped]),
            None => out.push('\\'),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_match_whole_texts() {
        let is_match = |expression: &str, text: &str| anchored(expression).unwrap().is_match(text);
        assert!(is_match("a|b", "b") && !is_match("a|b", "ab"));
        assert!(is_match("a.c", "a\nc"));
        assert!(is_match("\\d+[\\w.]", "12_") && !is_match("\\d", "\u{663}"));
        assert!(is_match("[\\D]", "x") && is_match("\\\\d", "\\d"));
        assert!(is_match("", "") && !is_match("", "x"));
        assert!(anchored("a)|(b").is_err() && anchored("(").is_err());
    }
}
