//! Formats attribute values as strings, like OpenTelemetry's collector and Prometheus: numbers and
//! lists as JSON, bytes in base64.

use std::borrow::Cow;
use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use quipu::intake::Rejection;
use quipu_wire::remote::otlp::AttributeValue;

/// Formats a value; fails if the result exceeds `limit` bytes. A list or a map becomes JSON with
/// sorted keys.
pub(super) fn text<'a>(
    value: &AttributeValue<'a>,
    limit: usize,
) -> Result<Cow<'a, str>, Rejection> {
    // Check the size before formatting, because the result can be many times as large as a nested
    // value.
    let is_long = match *value {
        AttributeValue::Bytes(bytes) => bytes.len() > limit,
        AttributeValue::Nested(encoded) => encoded.len() > NESTED_BYTES.saturating_mul(limit),
        _ => false,
    };
    if is_long {
        return Err(Rejection::LabelValue);
    }
    let text = to_text(value);
    if text.len() > limit { Err(Rejection::LabelValue) } else { Ok(text) }
}

fn to_text<'a>(value: &AttributeValue<'a>) -> Cow<'a, str> {
    match *value {
        AttributeValue::Text(text) => text.into(),
        AttributeValue::Bool(true) => "true".into(),
        AttributeValue::Bool(false) => "false".into(),
        AttributeValue::Int(number) => number.to_string().into(),
        AttributeValue::Double(number) => double(number).into(),
        AttributeValue::Bytes(bytes) => STANDARD.encode(bytes).into(),
        AttributeValue::Nested(encoded) => {
            let mut out = String::new();
            write_nested(&mut out, encoded, 0);
            out.into()
        }
        _ => "".into(),
    }
}

/// Formats a double like JavaScript.
fn double(number: f64) -> String {
    let magnitude = number.abs();
    if number.is_nan() {
        "NaN".into()
    } else if number.is_infinite() {
        if number > 0.0 { "Infinity".into() } else { "-Infinity".into() }
    } else if magnitude != 0.0 && !(1e-6..1e21).contains(&magnitude) {
        let text = format!("{number:e}");
        if text.contains("e-") { text } else { text.replace('e', "e+") }
    } else {
        format!("{number}")
    }
}

fn write_json(out: &mut String, value: &AttributeValue<'_>, depth: usize) {
    match *value {
        AttributeValue::Text(text) => write_text(out, text),
        AttributeValue::Bytes(bytes) => write_text(out, &STANDARD.encode(bytes)),
        AttributeValue::Nested(encoded) => write_nested(out, encoded, depth + 1),
        AttributeValue::Double(number) if !number.is_finite() => out.push_str("null"),
        AttributeValue::Bool(_) | AttributeValue::Int(_) | AttributeValue::Double(_) => {
            out.push_str(&to_text(value))
        }
        _ => out.push_str("null"),
    }
}

fn write_nested(out: &mut String, encoded: &[u8], depth: usize) {
    if depth > MAX_DEPTH {
        return out.push_str("null");
    }
    let mut entries = Vec::new();
    let is_map = AttributeValue::each_nested(encoded, |key, value| {
        let mut json = String::new();
        write_json(&mut json, &value, depth);
        entries.push((key.unwrap_or_default(), json));
    });
    if is_map == Some(true) {
        entries.sort_by_key(|(key, _)| *key);
    }
    out.push(if is_map == Some(true) { '{' } else { '[' });
    for (index, (key, json)) in entries.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        if is_map == Some(true) {
            write_text(out, key);
            out.push(':');
        }
        out.push_str(json);
    }
    out.push(if is_map == Some(true) { '}' } else { ']' });
}

fn write_text(out: &mut String, text: &str) {
    let json = serde_json::Value::from(text);
    // Writing to a string cannot fail.
    let _ = write!(out, "{json}");
}

/// The maximum nesting depth of lists and maps. Deeper values are omitted.
const MAX_DEPTH: usize = 16;
/// The maximum number of encoded bytes for one byte of JSON. For example, the element 0 of a list
/// of doubles is encoded in 11 bytes, and becomes the two bytes `0,`.
const NESTED_BYTES: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_as_json_but_texts_are_not() {
        for (value, expected) in [
            (AttributeValue::Empty, ""),
            (AttributeValue::Text("a\"b"), "a\"b"),
            (AttributeValue::Bool(true), "true"),
            (AttributeValue::Int(i64::MIN), "-9223372036854775808"),
            (AttributeValue::Double(0.5), "0.5"),
            (AttributeValue::Double(3.0), "3"),
            (AttributeValue::Double(1e21), "1e+21"),
            (AttributeValue::Double(2.5e-7), "2.5e-7"),
            (AttributeValue::Double(f64::NEG_INFINITY), "-Infinity"),
            (AttributeValue::Bytes(&[0, 255]), "AP8="),
            // A list of the string `a"` and of a map of `z` to 1 and `a` to an empty value.
            (
                AttributeValue::Nested(
                    b"\x2a\x18\x0a\x04\x0a\x02a\"\x0a\x10\x32\x0e\x0a\x07\x0a\x01z\x12\x02\x18\x01\
                      \x0a\x03\x0a\x01a",
                ),
                "[\"a\\\"\",{\"a\":null,\"z\":1}]",
            ),
            (
                AttributeValue::Nested(
                    b"\x32\x0e\x0a\x07\x0a\x01z\x12\x02\x18\x01\x0a\x03\x0a\x01a",
                ),
                "{\"a\":null,\"z\":1}",
            ),
        ] {
            assert_eq!(text(&value, 24).as_deref(), Ok(expected), "{value:?}");
        }
    }

    #[test]
    fn values_that_are_too_long_are_not_written() {
        let list = |items: usize| {
            let items = [0x0a, 0].repeat(items);
            let mut list = vec![0x2a];
            let mut rest = items.len();
            while rest >= 0x80 {
                list.push(rest as u8 | 0x80);
                rest >>= 7;
            }
            list.push(rest as u8);
            [list, items].concat()
        };
        assert_eq!(text(&AttributeValue::Nested(&list(3)), 16).as_deref(), Ok("[null,null,null]"));
        assert_eq!(text(&AttributeValue::Nested(&list(3)), 15), Err(Rejection::LabelValue));
        let (text_of_4, bytes) = (AttributeValue::Text("abcd"), AttributeValue::Bytes(&[0; 3]));
        for value in [text_of_4, bytes] {
            assert!(text(&value, 4).is_ok());
            assert_eq!(text(&value, 3), Err(Rejection::LabelValue));
        }
        // Formatting these would take many seconds.
        let many = list(16 << 20);
        for _ in 0..10_000 {
            assert_eq!(text(&AttributeValue::Nested(&many), 4096), Err(Rejection::LabelValue));
        }
    }
}
