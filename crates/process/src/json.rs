//! JSON for terminals and logs: escapes characters that control a terminal or change the direction
//! of text. JSON itself requires this for C0 only, and a parser reads both forms alike.

use std::fmt::{Display, Write};

use quipu_segment::is_printable;

/// Escapes all characters that are not [printable](is_printable), except the line feeds between the
/// parts of the JSON.
///
/// These characters occur only in strings, so the result is the same JSON for a parser.
pub fn escaped(json: &(impl Display + ?Sized)) -> String {
    let json = json.to_string();
    let is_plain = |c: char| is_printable(c) || c == '\n';
    if json.chars().all(is_plain) {
        return json;
    }
    let mut escaped = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        if is_plain(c) {
            escaped.push(c);
        } else {
            // All characters that are not printable are one unit of UTF-16. Writing to a string
            // does not fail.
            let _ = write!(escaped, "\\u{:04x}", u32::from(c));
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_commands_a_terminal_is_escaped_and_read_back() {
        let value =
            json!({"a\u{9b}\"": ["\u{7f}\u{1b}[2J\n", "\u{202e}\u{2028}\u{61c}", "\u{fc}"]});
        let text = escaped(&value);
        assert_eq!(
            text,
            "{\"a\\u009b\\\"\":[\"\\u007f\\u001b[2J\\n\",\"\\u202e\\u2028\\u061c\",\"\u{fc}\"]}"
        );
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
        let pretty = escaped(&format!("{value:#}"));
        assert_eq!(pretty.lines().count(), 7, "{pretty}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&pretty).unwrap(), value);
    }
}
