//! The refusal of a whole request: status and message of the response, and the reason that the
//! metrics of the input count.

use std::fmt::Display;

use hyper::StatusCode;
use hyper::header::{ALLOW, HeaderName, HeaderValue, RETRY_AFTER};

use quipu_http::{Response, text};

/// A result whose error is a refusal by default.
pub type Result<T, E = Box<Refusal>> = std::result::Result<T, E>;

/// The refusal of a whole request, with the data for the response. Functions return it in a box,
/// because a small error keeps their results small.
#[derive(Debug)]
pub struct Refusal {
    /// The status of the response.
    pub status: StatusCode,
    /// The value of the label `reason`, if the input counts such refusals; otherwise empty.
    pub reason: &'static str,
    /// The error and the remedy, without a line feed.
    pub text: String,
    /// An additional response header.
    pub field: Option<(HeaderName, HeaderValue)>,
}

impl Refusal {
    /// Creates a refusal with this status and message.
    pub fn new(status: StatusCode, text: impl Display) -> Box<Self> {
        Box::new(Self { status, reason: "", text: text.to_string(), field: None })
    }

    /// Creates a refusal with status 400.
    pub fn bad(text: impl Display) -> Box<Self> {
        Self::new(StatusCode::BAD_REQUEST, text)
    }

    /// Creates a refusal with status 503. The client can try again in `seconds`.
    pub fn unavailable(text: impl Display, seconds: &'static str) -> Box<Self> {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, text)
            .with(RETRY_AFTER, HeaderValue::from_static(seconds))
    }

    /// Creates a refusal with status 405. `allow` contains the supported methods, for example
    /// `"GET, HEAD"`.
    pub fn method(allow: &'static str) -> Box<Self> {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, format_args!("use {allow}"))
            .with(ALLOW, HeaderValue::from_static(allow))
    }

    /// Sets the value of the label `reason`.
    pub fn named(mut self: Box<Self>, reason: &'static str) -> Box<Self> {
        self.reason = reason;
        self
    }

    /// Sets an additional response header.
    pub fn with(mut self: Box<Self>, name: HeaderName, value: impl Into<HeaderValue>) -> Box<Self> {
        self.field = Some((name, value.into()));
        self
    }

    /// Returns the response: the text as a line of plain text.
    pub fn respond(self) -> Response {
        let mut response = text(self.status, self.text + "\n");
        response.headers_mut().extend(self.field);
        response
    }
}

/// Creates a refusal with status 400.
impl From<String> for Box<Refusal> {
    fn from(text: String) -> Self {
        Refusal::bad(text)
    }
}
