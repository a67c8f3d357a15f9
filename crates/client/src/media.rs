//! Parses media types in `Content-Type`, such as `text/plain; version=0.0.4`.

use hyper::header::{CONTENT_TYPE, HeaderMap};

/// A media type with its parameters.
#[derive(Debug, Clone, Copy)]
pub struct Media<'t>(&'t str);

impl<'t> Media<'t> {
    /// Creates a media type from the value of a `Content-Type`.
    pub fn new(content_type: &'t str) -> Self {
        Self(content_type)
    }

    /// Returns the `Content-Type` of a request or response; empty if it is missing or not a string.
    pub fn from_headers(headers: &'t HeaderMap) -> Self {
        let given = headers.get(CONTENT_TYPE).and_then(|given| given.to_str().ok());
        Self(given.unwrap_or_default())
    }

    /// Returns the name, without parameters.
    pub fn name(self) -> &'t str {
        self.0.split(';').next().unwrap_or_default().trim()
    }

    /// Returns whether the name is equal, ignoring case.
    pub fn is(self, name: &str) -> bool {
        self.name().eq_ignore_ascii_case(name)
    }

    /// Returns the value of a parameter, without quotes.
    pub fn parameter(self, name: &str) -> Option<&'t str> {
        self.0.split(';').skip(1).find_map(|parameter| {
            let (found, value) = parameter.split_once('=')?;
            found.trim().eq_ignore_ascii_case(name).then(|| value.trim().trim_matches('"'))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_parameters_are_read() {
        let media = Media::new(" Application/X ; Proto=\"a.B\";q = 1 ;flag");
        assert_eq!(media.name(), "Application/X");
        assert!(media.is("application/x") && !media.is("application/xy"));
        assert_eq!(
            ["PROTO", "q", "flag"].map(|name| media.parameter(name)),
            [Some("a.B"), Some("1"), None]
        );
        assert!(Media::from_headers(&HeaderMap::new()).is(""));
    }
}
