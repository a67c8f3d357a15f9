//! A validated URL of a receiver. The query can contain a secret, so logs show the URL without it.

use std::str::FromStr;

use hyper::Uri;

/// A valid URL of a receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiverUrl(String);

impl ReceiverUrl {
    /// Returns the whole URL.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the URL without the query, for logs and labels, because the query can contain a
    /// secret.
    pub fn name(&self) -> &str {
        self.0.split_once('?').map_or(&self.0, |(name, _)| name)
    }

    /// Returns whether the path is missing or only `/`.
    pub fn is_without_path(&self) -> bool {
        let name = self.name();
        // The authority follows the two slashes of the scheme.
        let rest = name.split_once("://").map_or(name, |(_, rest)| rest);
        rest.split_once('/').is_none_or(|(_, path)| path.is_empty())
    }

    /// Returns whether the connection is encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.0.starts_with("https://")
    }
}

impl FromStr for ReceiverUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // The comparison is case-sensitive because `is_encrypted` depends on it. For a URL without
        // a scheme, the error of the parser would not help.
        if !text.starts_with("http://") && !text.starts_with("https://") {
            return Err(format!("it does not begin with http:// or https://; write {EXAMPLE}"));
        }
        let uri: Uri = text.parse().map_err(|error| format!("{error}; write {EXAMPLE}"))?;
        match uri.authority() {
            Some(authority) if !authority.host().is_empty() => Ok(Self(text.to_owned())),
            _ => Err(format!("it has no host; write {EXAMPLE}")),
        }
    }
}

/// The form of a URL, for error messages.
pub const EXAMPLE: &str = "http://HOST:PORT/PATH, such as http://prometheus:9090/api/v1/write";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_checked() {
        for text in ["http://a:1/api/v1/write", "https://a/w?token=x", "http://[::1]:9/"] {
            assert_eq!(text.parse::<ReceiverUrl>().unwrap().as_str(), text);
        }
        assert_eq!("https://a/w?token=x".parse::<ReceiverUrl>().unwrap().name(), "https://a/w");
        for (text, part) in [
            ("", "such as http://prometheus:9090"),
            ("localhost:9090", "does not begin with http://"),
            ("localhost:9090/api/v1/write", "does not begin with http://"),
            ("ftp://a/", "does not begin with"),
            ("http:///w", "such as http://prometheus:9090"),
        ] {
            let error = text.parse::<ReceiverUrl>().unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
        for (text, is_without) in [
            ("http://a", true),
            ("http://[::1]:9090/", true),
            ("https://a?x=/w", true),
            ("http://a/w", false),
            ("http://a/w/", false),
        ] {
            assert_eq!(
                text.parse::<ReceiverUrl>().unwrap().is_without_path(),
                is_without,
                "{text}"
            );
        }
    }
}
