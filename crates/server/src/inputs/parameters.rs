//! The query parameters of a request that brings metrics.

use hyper::StatusCode;
use percent_encoding::percent_decode_str;

use crate::http::{Request, Response, text};

/// The query parameters, with names checked and values decoded.
pub struct Parameters<'a>(Vec<(&'a str, String)>);

impl<'a> Parameters<'a> {
    /// Reads the query.
    ///
    /// # Errors
    /// The response to a parameter that is not known, or is not UTF-8.
    #[expect(clippy::result_large_err, reason = "the response to send, once for each request")]
    pub fn of(request: &'a Request, known: &[&str]) -> Result<Self, Response> {
        let mut parameters = Vec::new();
        for pair in request.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            if !known.contains(&name) {
                return Err(bad(&format!(
                    "unknown parameter {name:?}; this route takes {}",
                    known.join(", ")
                )));
            }
            let value = value.replace('+', " ");
            let value = percent_decode_str(&value).decode_utf8().map_err(|_| {
                bad(&format!(
                    "the parameter {name:?} is not UTF-8; percent-encode the bytes of a UTF-8 text"
                ))
            })?;
            parameters.push((name, value.into_owned()));
        }
        Ok(Self(parameters))
    }

    /// The value of a parameter.
    pub fn one(&self, name: &'static str) -> Option<&str> {
        self.all(name).next()
    }

    /// The values of a parameter that may be repeated.
    pub fn all(&self, name: &'static str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(other, _)| *other == name).map(|(_, value)| value.as_str())
    }
}

/// A 400 response.
pub fn bad(what: &str) -> Response {
    text(StatusCode::BAD_REQUEST, format!("{what}\n"))
}
