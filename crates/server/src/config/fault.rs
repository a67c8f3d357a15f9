//! What is wrong with a settings file, without a line of it that may have a secret.

use std::ops::Range;

use toml::de::Error;

/// Describes an error of a file. The line is shown if it surely has no secret: it sets a single
/// setting that is known and not for URLs or header fields.
pub(super) fn describe(text: &str, error: &Error, is_harmless: impl Fn(&str) -> bool) -> String {
    let Some(span) = error.span() else { return shown(error.message()) };
    let at = Place::of(text, &span);
    if is_single(at.line).is_some_and(is_harmless) {
        return error.to_string().trim_end().to_owned();
    }
    let Place { number, column, .. } = at;
    format!(
        "TOML parse error at line {number}, column {column}, which is not shown, as it may have a \
         secret: {}",
        shown(error.message())
    )
}

/// A message without the value that it is about.
fn shown(message: &str) -> String {
    let is_of_value =
        ["invalid type", "invalid value"].iter().any(|what| message.starts_with(what));
    match message.rsplit_once(", expected ") {
        Some((_, expected)) if is_of_value => format!("invalid type or value, expected {expected}"),
        _ => message.to_owned(),
    }
}

/// The name that a line sets, if the line has no other part but a value that looks harmless.
fn is_single(line: &str) -> Option<&str> {
    let (name, value) = line.split_once('=').unwrap_or((line, ""));
    let name = name.trim();
    let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    // A comment may have what was there before.
    let is_plain = !value.contains(['#', '=', '@', '?']);
    (is_name && is_plain).then_some(name)
}

struct Place<'t> {
    line: &'t str,
    number: usize,
    column: usize,
}

impl<'t> Place<'t> {
    fn of(text: &'t str, span: &Range<usize>) -> Self {
        let before = text.get(..span.start).unwrap_or(text);
        let start = before.rfind('\n').map_or(0, |at| at + 1);
        Self {
            line: text[start..].lines().next().unwrap_or_default(),
            number: before.matches('\n').count() + 1,
            column: before[start..].chars().count() + 1,
        }
    }
}
