//! The responses that the transport writes itself, because the handler cannot or must not handle
//! the request.

use std::time::SystemTime;

use hyper::StatusCode;

use super::limits::Limits;

/// The reason why a request did not reach the handler or failed there. Every refusal closes the
/// connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// 400: the request is not HTTP/1; or an HTTP/1.1 request lacks `Host`; or `Host` is repeated
    /// or invalid.
    Malformed,
    /// 403: a page of another origin sent a request that may change state.
    Origin,
    /// 408: the request was not complete within the read timeout.
    Timeout,
    /// 413: the body is over the limit.
    BodyTooLarge,
    /// 413: a body that would be kept is over the limit.
    KeptBodyTooLarge,
    /// 414: the request line exceeds the limit of the head.
    TargetTooLong,
    /// 421: the host is unknown, and the sender can be a browser.
    Host,
    /// 431: the head is over a limit.
    HeadTooLarge,
    /// 500: the handler panicked.
    Panicked,
    /// 501: a transfer coding other than `chunked`.
    Coding,
    /// 505: the client speaks HTTP/2, for example gRPC. It receives the reason in an HTTP/2 frame.
    Http2,
    /// 503: the maximum number of connections is open.
    Busy,
    /// 503: other bodies use all memory for bodies.
    NoRoom,
    /// 503: unread responses use all memory for responses.
    Unread,
}

impl Refusal {
    /// All refusals, in the order of their status codes.
    pub const ALL: [Refusal; 14] = [
        Refusal::Malformed,
        Refusal::Origin,
        Refusal::Timeout,
        Refusal::BodyTooLarge,
        Refusal::KeptBodyTooLarge,
        Refusal::TargetTooLong,
        Refusal::Host,
        Refusal::HeadTooLarge,
        Refusal::Panicked,
        Refusal::Coding,
        Refusal::Busy,
        Refusal::NoRoom,
        Refusal::Unread,
        Refusal::Http2,
    ];

    /// Returns the status code of the response.
    pub fn status(self) -> StatusCode {
        match self {
            Refusal::Malformed => StatusCode::BAD_REQUEST,
            Refusal::Origin => StatusCode::FORBIDDEN,
            Refusal::Timeout => StatusCode::REQUEST_TIMEOUT,
            Refusal::BodyTooLarge | Refusal::KeptBodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Refusal::TargetTooLong => StatusCode::URI_TOO_LONG,
            Refusal::Host => StatusCode::MISDIRECTED_REQUEST,
            Refusal::HeadTooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Refusal::Panicked => StatusCode::INTERNAL_SERVER_ERROR,
            Refusal::Coding => StatusCode::NOT_IMPLEMENTED,
            Refusal::Busy | Refusal::NoRoom | Refusal::Unread => StatusCode::SERVICE_UNAVAILABLE,
            Refusal::Http2 => StatusCode::HTTP_VERSION_NOT_SUPPORTED,
        }
    }

    /// Returns a short identifier for labels and logs.
    pub fn reason(self) -> &'static str {
        match self {
            Refusal::Malformed => "malformed",
            Refusal::Origin => "origin",
            Refusal::Timeout => "timeout",
            Refusal::BodyTooLarge => "body_too_large",
            Refusal::KeptBodyTooLarge => "kept_body_too_large",
            Refusal::TargetTooLong => "target_too_long",
            Refusal::Host => "host",
            Refusal::HeadTooLarge => "head_too_large",
            Refusal::Panicked => "panicked",
            Refusal::Coding => "coding",
            Refusal::Busy => "busy",
            Refusal::NoRoom => "no_room",
            Refusal::Unread => "unread",
            Refusal::Http2 => "http2",
        }
    }

    /// Returns the body of the response, which describes the exceeded limit.
    pub(super) fn text(self, limits: &Limits) -> String {
        match self {
            Refusal::Malformed => "malformed HTTP/1 request\n".to_owned(),
            Refusal::Origin => "a web page of another origin may not change anything\n".to_owned(),
            Refusal::Timeout => {
                format!("request not complete within {:?}\n", limits.read_timeout)
            }
            Refusal::BodyTooLarge => {
                format!("request body larger than {} bytes\n", limits.body_bytes)
            }
            Refusal::KeptBodyTooLarge => {
                format!("request body larger than {} bytes\n", limits.kept_body_bytes)
            }

            Refusal::TargetTooLong => {
                format!("request line longer than {} bytes\n", limits.header_bytes)
            }
            Refusal::Host => "the host of the request is not known here\n".to_owned(),
            Refusal::HeadTooLarge => format!(
                "request head larger than {} bytes or {} fields\n",
                limits.header_bytes, limits.headers
            ),
            Refusal::Panicked => "internal error\n".to_owned(),
            Refusal::Coding => "send the body as it is or chunked, in no other coding\n".to_owned(),
            Refusal::Busy => "too many connections, try again\n".to_owned(),
            Refusal::NoRoom => "the bodies of other requests take all room, try again\n".to_owned(),
            Refusal::Unread => {
                "responses that clients have not read yet take all room, try again\n".to_owned()
            }
            Refusal::Http2 => format!("{HTTP2}\n"),
        }
    }

    /// Returns the frames that end an HTTP/2 connection: settings, which must be first, and the
    /// reason, which gRPC clients show (RFC 9113, sections 3.4 and 6.8).
    pub(super) fn http2_frames() -> Vec<u8> {
        const SETTINGS: u8 = 4;
        const GOAWAY: u8 = 7;
        const HTTP_1_1_REQUIRED: u8 = 13;
        let head = |length: u8, kind: u8| [0, 0, length, kind, 0, 0, 0, 0, 0];
        // No stream was processed.
        let goaway = [0, 0, 0, 0, 0, 0, 0, HTTP_1_1_REQUIRED];
        let length = goaway.len() + HTTP2.len();
        [&head(0, SETTINGS)[..], &head(length as u8, GOAWAY), &goaway, HTTP2.as_bytes()].concat()
    }

    /// Returns the complete HTTP response, for a connection that hyper no longer handles.
    pub(super) fn response(self, limits: &Limits) -> Vec<u8> {
        self.response_with(&self.text(limits))
    }

    /// Returns the complete HTTP response with another body.
    pub(super) fn response_with(self, text: &str) -> Vec<u8> {
        let status = self.status();
        // The crate panics for times before the epoch.
        let date = httpdate::fmt_http_date(SystemTime::now().max(SystemTime::UNIX_EPOCH));
        let retry =
            if status == StatusCode::SERVICE_UNAVAILABLE { "retry-after: 1\r\n" } else { "" };
        format!(
            "HTTP/1.1 {} {}\r\n{retry}connection: close\r\ncontent-type: {TEXT}\r\n\
             content-length: {}\r\ndate: {date}\r\n\r\n{text}",
            status.as_str(),
            status.canonical_reason().unwrap_or("Refused"),
            text.len(),
        )
        .into_bytes()
    }
}

/// The reason for HTTP/2 clients. This must fit into a frame with a one-byte length.
const HTTP2: &str = "use HTTP/1.1: there is no gRPC here; senders of OTLP need \
                     OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf";
const _: () = assert!(HTTP2.len() + 8 < 256);

/// The content type of the bodies written here.
pub(super) const TEXT: &str = "text/plain; charset=utf-8";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_is_a_complete_response() {
        for refusal in Refusal::ALL {
            let response = String::from_utf8(refusal.response(&Limits::default())).unwrap();
            let (head, body) = response.split_once("\r\n\r\n").unwrap();
            assert!(head.starts_with(&format!("HTTP/1.1 {} ", refusal.status().as_u16())));
            assert!(head.contains(&format!("content-length: {}\r\n", body.len())), "{head}");
            assert!(head.contains("connection: close\r\n"), "{head}");
            assert_eq!(head.contains("retry-after: 1\r\n"), refusal.status() == 503);
        }
    }
}
