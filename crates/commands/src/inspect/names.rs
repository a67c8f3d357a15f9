//! Names, labels and numbers as the text formats write them.

use std::borrow::Cow;

use quipu::snapshot::Number;

/// A series as the text formats write it.
pub(super) fn series_text<'l, V: AsRef<str>>(
    name: &str,
    labels: impl Iterator<Item = (&'l str, V)>,
    more: Option<(&str, &str)>,
) -> String {
    let mut text = String::new();
    let name = quoted_name(name);
    let (is_quoted, mut is_first) = (name.starts_with('"'), true);
    if is_quoted {
        text.push('{');
    }
    text.push_str(&name);
    let mut put = |name: &str, value: &str| {
        text.push(if is_first && !is_quoted { '{' } else { ',' });
        is_first = false;
        append_label(&mut text, name, value);
    };
    labels.for_each(|(name, value)| put(name, value.as_ref()));
    more.into_iter().for_each(|(name, value)| put(name, value));
    if is_quoted || !is_first {
        text.push('}');
    }
    text
}

/// Appends `name="value"`.
pub(crate) fn append_label(text: &mut String, name: &str, value: &str) {
    text.push_str(&quoted_name(name));
    text.push_str("=\"");
    text.push_str(&escaped(value));
    text.push('"');
}

/// A name, in quotes if it has other characters than names had before Prometheus 3.
pub(crate) fn quoted_name(name: &str) -> Cow<'_, str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b':';
    let is_first = |byte: &u8| !byte.is_ascii_digit();
    match name.bytes().all(is_plain) && name.as_bytes().first().is_some_and(is_first) {
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

/// A number with all of its digits.
pub(crate) fn exact(n: Number) -> String {
    match n {
        Number::Unsigned(n) => n.to_string(),
        Number::Signed(n) => n.to_string(),
        Number::Float(n) => number(n),
    }
}

/// A number as OpenMetrics writes it.
pub(crate) fn number(n: f64) -> String {
    if n == f64::INFINITY {
        "+Inf".into()
    } else if n == f64::NEG_INFINITY {
        "-Inf".into()
    } else {
        format!("{n}")
    }
}
