//! The keys of entries: JSON in the files of Python's client, a query string in Ruby's files.

use std::borrow::Cow;
use std::collections::BTreeMap;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode, utf8_percent_encode};

/// Names and values, sorted by name, each name once.
pub(crate) type Labels = BTreeMap<String, String>;

/// A key of Python's client: an array of metric name, sample name, labels, and help.
pub(crate) struct PythonKey {
    pub(crate) metric: String,
    pub(crate) sample: String,
    pub(crate) labels: Labels,
    pub(crate) help: String,
}

impl PythonKey {
    pub(crate) fn parse(key: &[u8]) -> Option<Self> {
        let (metric, sample, labels, help) = serde_json::from_slice(key).ok()?;
        Some(Self { metric, sample, labels, help })
    }
}

/// Parses the labels of a key of Ruby's client. If a name occurs twice, the first value counts,
/// like in `CGI.parse`.
pub(crate) fn parse_query(key: &[u8]) -> Option<Labels> {
    let mut labels = Labels::new();
    // Escaping leaves only printable ASCII.
    if !key.iter().all(u8::is_ascii_graphic) {
        return None;
    }
    for pair in key.split(|byte| matches!(byte, b'&' | b';')).filter(|pair| !pair.is_empty()) {
        let at = pair.iter().position(|&byte| byte == b'=').unwrap_or(pair.len());
        let name = unescape(&pair[..at])?;
        let value = unescape(pair.get(at + 1..).unwrap_or_default())?;
        labels.entry(name).or_insert(value);
    }
    Some(labels)
}

fn unescape(text: &[u8]) -> Option<String> {
    let spaced: Cow<'_, [u8]> = match text.contains(&b'+') {
        true => text.iter().map(|&byte| if byte == b'+' { b' ' } else { byte }).collect(),
        false => text.into(),
    };
    percent_decode(&spaced).decode_utf8().ok().map(Cow::into_owned)
}

/// Appends `name=value`, after an ampersand unless it is the first pair.
pub(crate) fn push_query(out: &mut String, name: &str, value: &str) {
    if !out.is_empty() {
        out.push('&');
    }
    escape(out, name);
    out.push('=');
    escape(out, value);
}

/// Escapes like Ruby's `CGI.escape`.
fn escape(out: &mut String, text: &str) {
    for piece in utf8_percent_encode(text, ESCAPED) {
        match piece {
            "%20" => out.push('+'),
            piece => out.push_str(piece),
        }
    }
}

const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'_').remove(b'.').remove(b'-').remove(b'~');

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn queries_are_read_back() {
        let pairs = [("a", "x y+z"), ("b", ""), ("c", "1&2=3;%"), ("d", "\u{82b1}\n"), ("e", "~*")];
        let mut query = String::new();
        for (name, value) in pairs {
            push_query(&mut query, name, value);
        }
        assert_eq!(query, "a=x+y%2Bz&b=&c=1%262%3D3%3B%25&d=%E8%8A%B1%0A&e=~%2A");
        let labels = parse_query(query.as_bytes()).unwrap();
        assert!(labels.iter().map(|(n, v)| (&**n, &**v)).eq(pairs));
        assert!(parse_query(b"").unwrap().is_empty());
        assert_eq!(parse_query(b"a=1&a=2").unwrap()["a"], "1");
        assert!(parse_query(b"a=%ff").is_none());
        assert!(parse_query(b"a=\0").is_none());
    }

    #[test]
    fn python_keys_have_four_parts() {
        let key = PythonKey::parse(br#"["m", "m_total", {"b": "\u00e9", "a": "1"}, "A help"]"#);
        let key = key.unwrap();
        assert_eq!((&*key.metric, &*key.sample, &*key.help), ("m", "m_total", "A help"));
        assert!(key.labels.values().eq(["1", "\u{e9}"]));
        for bad in
            ["", "[]", r#"["m","m",[],[]]"#, r#"["m","m",{"a":1},""]"#, "[[[[", "[\"\\ud800\""]
        {
            assert!(PythonKey::parse(bad.as_bytes()).is_none(), "{bad}");
        }
    }
}
