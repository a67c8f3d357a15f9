//! Parses the grouping labels in the path of a push: `/metrics/job/NAME[/LABEL/VALUE...]`. If
//! `@base64` follows `job` or a label, the value is in URL-safe base64.
//!
//! Like in Pushgateway, the path is percent-decoded before it is split. You therefore need base64
//! for a value with a slash, for example, and for an empty name of a job. Later labels override
//! earlier ones, and the job overrides all.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use percent_encoding::percent_decode_str;

use super::packed;

/// The grouping labels of Pushgateway's API, which all series of a group share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Grouping {
    /// The labels by name, including the job.
    labels: BTreeMap<String, String>,
}

/// The reason why a path does not name a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PathError {
    /// A percent sign without two hexadecimal digits, or bytes that are not UTF-8.
    Encoding,
    /// The job is empty.
    Job,
    /// A label without a value.
    Odd(String),
    /// The name of a label is not valid.
    Name(String),
    /// The value of a label or the job is not base64.
    Base64(String, String),
}

impl Grouping {
    /// Parses the labels in the part of a path after `/metrics/`.
    pub(super) fn parse(path: &str) -> Result<Self, PathError> {
        let path = decode(path)?;
        let (first, rest) = path.split_once('/').unwrap_or((&path, ""));
        let is_base64 = first == BASE64;
        let (job, rest) = rest.split_once('/').map_or((rest, ""), |(job, rest)| (job, rest));
        let job = if is_base64 { base64("job", job)? } else { job.to_owned() };
        let mut labels = BTreeMap::new();
        if !rest.is_empty() {
            let parts: Vec<&str> = rest.split('/').collect();
            if !parts.len().is_multiple_of(2) {
                return Err(PathError::Odd(rest.to_owned()));
            }
            for pair in parts.chunks_exact(2) {
                let (name, value) = match pair[0].strip_suffix("@base64") {
                    Some(name) => (name, base64(name, pair[1])?),
                    None => (pair[0], pair[1].to_owned()),
                };
                if !is_label_name(name) {
                    return Err(PathError::Name(name.to_owned()));
                }
                labels.insert(name.to_owned(), value);
            }
        }
        if job.is_empty() {
            return Err(PathError::Job);
        }
        labels.insert("job".to_owned(), job);
        Ok(Self { labels })
    }

    /// Returns the labels by name.
    pub(super) fn labels(&self) -> impl Iterator<Item = (&str, &str)> + Clone {
        self.labels.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Returns the value of a label.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        self.labels.get(name).map(String::as_str)
    }

    /// Returns the job.
    pub(super) fn job(&self) -> &str {
        self.value("job").unwrap_or_default()
    }

    /// Returns the identity of the group: its packed labels in order. An empty `instance` is
    /// omitted, because every series without an instance carries an empty one.
    pub(super) fn key(&self) -> Box<[u8]> {
        packed::pack(self.labels().filter(|label| *label != ("instance", ""))).into()
    }
}

/// The first part of a path whose job is in base64.
const BASE64: &str = "job@base64";

/// Decodes percent-encoding, for example `%2F`.
fn decode(path: &str) -> Result<String, PathError> {
    let bytes = path.as_bytes();
    let is_whole = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'%').all(|(at, _)| {
        let digits = bytes.get(at + 1..at + 3);
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    });
    let text = percent_decode_str(path).decode_utf8();
    text.ok().filter(|_| is_whole).map(Into::into).ok_or(PathError::Encoding)
}

fn base64(name: &str, value: &str) -> Result<String, PathError> {
    let decoded = URL_SAFE_NO_PAD.decode(value.trim_end_matches('='));
    let text = decoded.ok().and_then(|bytes| String::from_utf8(bytes).ok());
    text.ok_or_else(|| PathError::Base64(name.to_owned(), value.to_owned()))
}

/// Returns whether a name is a valid label name by Prometheus' classic rules, and not reserved.
fn is_label_name(name: &str) -> bool {
    let is_first = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    let bytes = name.as_bytes();
    let is_valid = bytes.first().is_some_and(|byte| is_first(*byte))
        && bytes.iter().all(|byte| is_first(*byte) || byte.is_ascii_digit());
    is_valid && !name.starts_with("__")
}

impl fmt::Display for PathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Encoding => {
                f.write_str("the path is not percent-encoded UTF-8: write %25 for a percent sign")
            }
            Self::Job => f.write_str("job name is required"),
            Self::Odd(rest) => write!(
                f,
                "odd number of components in label string {:?}: each label needs a value; write an \
                 empty one as LABEL@base64/=",
                format!("/{rest}")
            ),
            Self::Name(name) => write!(
                f,
                "improper label name {name:?}: use letters, digits and underscores, not two \
                 underscores or a digit at the beginning"
            ),
            Self::Base64(name, value) => write!(
                f,
                "invalid base64 encoding for label {name}={value:?}: encode the UTF-8 text with \
                 the URL-safe alphabet (RFC 4648, section 5)"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(path: &str) -> Vec<(String, String)> {
        let grouping = Grouping::parse(path).unwrap();
        grouping.labels().map(|(name, value)| (name.into(), value.into())).collect()
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
    }

    #[test]
    fn the_path_contains_the_labels() {
        for (path, expected) in [
            ("job/a", &[("job", "a")][..]),
            ("job/a/", &[("job", "a")]),
            ("job/a/b/c", &[("b", "c"), ("job", "a")]),
            ("job/a/b/", &[("b", ""), ("job", "a")]),
            ("job/a/b/c/b/d", &[("b", "d"), ("job", "a")]),
            ("job/a/job/c", &[("job", "a")]),
            ("job@base64/YS9i", &[("job", "a/b")]),
            ("job@base64/YS9i/e@base64/=", &[("e", ""), ("job", "a/b")]),
            ("job/a/path@base64/L3Zhci90bXA=", &[("job", "a"), ("path", "/var/tmp")]),
            ("job/a%20b/c/%E2%82%AC", &[("c", "\u{20ac}"), ("job", "a b")]),
        ] {
            assert_eq!(labels(path), pairs(expected), "{path}");
        }
    }

    #[test]
    fn errors_name_the_fault() {
        for (path, part) in [
            ("job/", "job name is required"),
            ("job@base64/=", "job name is required"),
            ("job", "job name is required"),
            ("job/a/b", "odd number of components in label string \"/b\""),
            ("job/a%2Fb", "odd number"),
            ("job/a/b/c/", "odd number"),
            ("job/a/__b/c", "improper label name \"__b\""),
            ("job/a//c", "improper label name \"\""),
            ("job/a/1b/c", "improper label name"),
            ("job/a/b@base64/a+b", "invalid base64 encoding for label b=\"a+b\""),
            ("job@base64/%C3%A4", "invalid base64"),
            ("job@base64/_w", "invalid base64"),
            ("job/a%zz", "percent"),
            ("job/a%f", "percent"),
            ("job/%ff", "UTF-8"),
        ] {
            let fault = Grouping::parse(path).unwrap_err().to_string();
            assert!(fault.contains(part), "{path}: {fault}");
        }
    }

    #[test]
    fn an_empty_instance_names_no_other_group() {
        let key = |path| Grouping::parse(path).unwrap().key();
        assert_eq!(key("job/a/instance/"), key("job/a"));
        assert_ne!(key("job/a/e/"), key("job/a"));
        assert_eq!(key("job/a/x/1/b/2"), key("job/a/b/2/x/1"));
    }
}
