//! Describes the error of a settings file, without quoting a line that may contain a secret.

use std::ops::Range;

use toml::de::Error;

use super::Flags;
use quipu_process::similar::closest;

/// Describes an error of a file. The line is quoted only if it cannot contain a secret: it must set
/// a single known setting that is neither for URLs nor for header fields. An unknown name is quoted
/// only if it is similar to a setting, and without the value, which can be a secret.
pub(super) fn describe(text: &str, error: &Error, is_harmless: impl Fn(&str) -> bool) -> String {
    let Some(span) = error.span() else { return shown(error.message()) };
    let location = Location::find(text, &span);
    if is_single(location.line).is_some_and(&is_harmless) {
        return error.to_string().trim_end().to_owned();
    }
    let Location { number, column, .. } = location;
    format!(
        "TOML parse error at line {number}, column {column}, which is not shown, as it may have a \
         secret: {}",
        shown(error.message())
    )
}

/// Returns a message without the value of the setting. For an unknown name, it contains the closest
/// setting instead of all settings.
fn shown(message: &str) -> String {
    if let Some(name) = message.strip_prefix("unknown field ") {
        return match closest_setting(name.trim_matches('`')) {
            Some(closest) => format!("{message}: did you mean `{closest}`? {LIST}"),
            None => format!("unknown field: {LIST}"),
        };
    }
    let has_value =
        ["invalid type", "invalid value"].iter().any(|start| message.starts_with(start));
    match message.rsplit_once(", expected ") {
        Some((_, expected)) if has_value => format!("invalid type or value, expected {expected}"),
        _ => message.to_owned(),
    }
}

const LIST: &str = "quipu serve --help lists the settings";

/// Returns the setting with the most similar name; `None` if more than a third of the name differs.
fn closest_setting(name: &str) -> Option<String> {
    // We ignore longer names, because they cannot be misspelled settings.
    const LONGEST: usize = 60;
    let names = Flags::names();
    let names = names.iter().map(String::as_str).filter(|_| name.len() <= LONGEST);
    closest(name, names, (name.len() / 3).max(1)).map(str::to_owned)
}

/// Returns the name that a line sets, if the rest of the line is a harmless value.
fn is_single(line: &str) -> Option<&str> {
    let (name, value) = line.split_once('=').unwrap_or((line, ""));
    let name = name.trim();
    let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    // We hide comments, because a comment can contain an old secret.
    let is_plain = !value.contains(['#', '=', '@', '?']);
    (is_name && is_plain).then_some(name)
}

/// A line of a file, with its number and the column of an error.
struct Location<'t> {
    line: &'t str,
    number: usize,
    column: usize,
}

impl<'t> Location<'t> {
    /// Returns the location where a span begins.
    fn find(text: &'t str, span: &Range<usize>) -> Self {
        let before = text.get(..span.start).unwrap_or(text);
        let start = before.rfind('\n').map_or(0, |at| at + 1);
        Self {
            line: text[start..].lines().next().unwrap_or_default(),
            number: before.matches('\n').count() + 1,
            column: before[start..].chars().count() + 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_gets_the_closest_one() {
        for (name, tip) in [
            ("widnow", "window"),
            ("keyz", "keys"),
            ("otlp_heder", "otlp-header"),
            ("kesy", ""),
            ("swordfish", ""),
            ("", ""),
            (&"x".repeat(1000), ""),
        ] {
            let expected = match tip {
                "" => format!("unknown field: {LIST}"),
                tip => format!("unknown field `{name}`: did you mean `{tip}`? {LIST}"),
            };
            assert_eq!(shown(&format!("unknown field `{name}`")), expected);
        }
    }
}
