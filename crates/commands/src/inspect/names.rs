//! Formats names, labels and numbers in the syntax of expositions.

use std::borrow::Cow;

use quipu::exposition::is_legacy_name;
use quipu::snapshot::Number;

/// Returns a series in the syntax of an exposition, for example `jobs{queue="mail"}`.
pub(super) fn series_text<'l, V: AsRef<str>>(
    name: &str,
    labels: impl Iterator<Item = (&'l str, V)>,
) -> String {
    let mut text = String::new();
    for (name, value) in labels {
        text.push_str(if text.is_empty() { "" } else { "," });
        append_label(&mut text, name, value.as_ref());
    }
    series_name(name, &text)
}

/// Works like [`series_text`], for labels that are already formatted.
pub(crate) fn series_name(name: &str, labels: &str) -> String {
    let name = quoted_name(name);
    match (name.starts_with('"'), labels.is_empty()) {
        (false, true) => name.into_owned(),
        (false, false) => format!("{name}{{{labels}}}"),
        (true, true) => format!("{{{name}}}"),
        (true, false) => format!("{{{name},{labels}}}"),
    }
}

/// Appends `name="value"`.
pub(crate) fn append_label(text: &mut String, name: &str, value: &str) {
    text.push_str(&quoted_name(name));
    text.push_str("=\"");
    text.push_str(&escaped(value));
    text.push('"');
}

/// Returns a name, in quotes if it contains characters that were invalid before Prometheus 3.
fn quoted_name(name: &str) -> Cow<'_, str> {
    match is_legacy_name(name) {
        true => name.into(),
        false => format!("\"{}\"", escaped(name)).into(),
    }
}

fn escaped(text: &str) -> Cow<'_, str> {
    if !text.contains(['\\', '"', '\n']) {
        return text.into();
    }
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n").into()
}

/// Formats a number with all of its digits.
pub(crate) fn exact(n: Number) -> String {
    match n {
        Number::Unsigned(n) => n.to_string(),
        Number::Signed(n) => n.to_string(),
        Number::Float(n) => number(n),
    }
}

/// Formats a number like OpenMetrics.
pub(crate) fn number(n: f64) -> String {
    if n == f64::INFINITY {
        "+Inf".into()
    } else if n == f64::NEG_INFINITY {
        "-Inf".into()
    } else {
        format!("{n}")
    }
}
