//! Writes JSON for terminals and logs. Characters that control a terminal or change the direction
//! of text are escaped, because the strings can be from other programs. JSON itself only requires
//! this for C0, but a parser reads both forms in the same way.

use std::fmt::{Display, Write as _};
use std::io::{self, Write};

use quipu_segment::is_printable;
use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};

/// Escapes all characters that are not [printable](is_printable), except line feeds between values.
///
/// These characters occur only in strings, so a parser reads the same values.
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
            // Each of these characters is a single UTF-16 unit. Writing to a string cannot fail.
            let _ = write!(escaped, "\\u{:04x}", u32::from(c));
        }
    }
    escaped
}

/// Serializes a value as JSON, with a line for each object in an array. Escapes the same characters
/// as [`escaped`].
///
/// # Errors
/// Fails if the output cannot be written.
pub fn write(value: &impl Serialize, out: &mut impl Write) -> io::Result<()> {
    value.serialize(&mut Serializer::with_formatter(out, Lines::default()))?;
    Ok(())
}

/// Compact JSON with a line for each object in an array.
#[derive(Default)]
struct Lines {
    /// Whether the next value is an element of an array.
    is_element: bool,
}

impl Formatter for Lines {
    fn begin_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.is_element = false;
        out.write_all(b"[")
    }

    fn begin_array_value<W: ?Sized + Write>(
        &mut self,
        out: &mut W,
        is_first: bool,
    ) -> io::Result<()> {
        self.is_element = true;
        if is_first { Ok(()) } else { out.write_all(b",") }
    }

    fn end_array_value<W: ?Sized + Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.is_element = false;
        Ok(())
    }

    fn begin_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        out.write_all(if std::mem::take(&mut self.is_element) { b"\n{" } else { b"{" })
    }

    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        out: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        if fragment.chars().all(is_printable) {
            out.write_all(fragment.as_bytes())
        } else {
            out.write_all(escaped(fragment).as_bytes())
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn characters_that_control_a_terminal_are_escaped_and_read_back() {
        let value =
            json!({"a\u{9b}\"": ["\u{7f}\u{1b}[2J\n", "\u{202e}\u{2028}\u{61c}", "\u{fc}"]});
        let text = escaped(&value);
        assert_eq!(
            text,
            "{\"a\\u009b\\\"\":[\"\\u007f\\u001b[2J\\n\",\"\\u202e\\u2028\\u061c\",\"\u{fc}\"]}"
        );
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
        let pretty = escaped(&format!("{value:#}"));
        assert_eq!(pretty.lines().count(), 7, "{pretty}");
        assert_eq!(serde_json::from_str::<Value>(&pretty).unwrap(), value);
        let mut written = Vec::new();
        write(&value, &mut written).unwrap();
        assert_eq!(String::from_utf8(written).unwrap(), text);
    }

    #[test]
    fn each_object_in_an_array_has_a_line() {
        let value = json!({"a": [{"b": [1, [2], {}]}, [{"c": null}], 3], "d": {}});
        let mut written = Vec::new();
        write(&value, &mut written).unwrap();
        let expected = "{\"a\":[\n{\"b\":[1,[2],\n{}]},[\n{\"c\":null}],3],\"d\":{}}";
        assert_eq!(String::from_utf8(written).unwrap(), expected);
    }
}
