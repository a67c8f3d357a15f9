//! Why a request is refused as a whole.

use std::fmt::Display;

use hyper::StatusCode;
use hyper::header::{ALLOW, HeaderName, HeaderValue, RETRY_AFTER};

use quipu_http::{Response, text};

/// A result whose error is a refusal, unless it is said otherwise.
pub type Result<T, E = Box<Refusal>> = std::result::Result<T, E>;

/// Why a request is refused as a whole: what its response needs. Functions return it in a box, so
/// that their results stay small.
#[derive(Debug)]
pub struct Refusal {
    /// The status of the response.
    pub status: StatusCode,
    /// A word for the reason, if the input counts such refusals; otherwise empty.
    pub reason: &'static str,
    /// The fault and the remedy, without the end of its line.
    pub text: String,
    /// A further header field.
    pub field: Option<(HeaderName, HeaderValue)>,
}

impl Refusal {
    /// A refusal with this status and text.
    pub fn new(status: StatusCode, text: impl Display) -> Box<Self> {
        Box::new(Self { status, reason: "", text: text.to_string(), field: None })
    }

    /// 400.
    pub fn bad(text: impl Display) -> Box<Self> {
        Self::new(StatusCode::BAD_REQUEST, text)
    }

    /// 503, after which the client can try again in some seconds.
    pub fn unavailable(text: impl Display, seconds: &'static str) -> Box<Self> {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, text)
            .with(RETRY_AFTER, HeaderValue::from_static(seconds))
    }

    /// 405, with the methods that the resource supports, such as `"GET, HEAD"`.
    pub fn method(allow: &'static str) -> Box<Self> {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, format_args!("use {allow}"))
            .with(ALLOW, HeaderValue::from_static(allow))
    }

    /// The same refusal for the reason of this name.
    pub fn named(mut self: Box<Self>, reason: &'static str) -> Box<Self> {
        self.reason = reason;
        self
    }

    /// The same refusal with a header field.
    pub fn with(mut self: Box<Self>, name: HeaderName, value: impl Into<HeaderValue>) -> Box<Self> {
        self.field = Some((name, value.into()));
        self
    }

    /// The response: a line of text.
    pub fn respond(self) -> Response {
        let mut response = text(self.status, self.text + "\n");
        response.headers_mut().extend(self.field);
        response
    }
}

/// 400.
impl From<String> for Box<Refusal> {
    fn from(text: String) -> Self {
        Refusal::bad(text)
    }
}
