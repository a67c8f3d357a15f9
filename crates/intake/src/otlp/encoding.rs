//! The encodings of OTLP requests and responses: protobuf and JSON.
//!
//! A successful response is an `ExportMetricsServiceResponse`, and an error is a
//! `google.rpc.Status`.

use hyper::StatusCode;
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderValue};

use crate::refusal::{Refusal, Result};
use quipu_client::media::Media;
use quipu_http::{Request, Response};

/// The encoding of a request, which is also used for its response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    Protobuf,
    Json,
}

/// The prefix of gRPC's media types, which this input does not support.
const GRPC: &str = "application/grpc";
/// The media types, in the order of [`Encoding`].
const TYPES: [&str; 2] = ["application/x-protobuf", "application/json"];

impl Encoding {
    /// Returns the encoding that the `Content-Type` of a request names.
    ///
    /// # Errors
    /// Fails if this type is not supported.
    pub(super) fn from_request(request: &Request) -> Result<Self> {
        let media = Media::from_headers(request.headers());
        if media.is(TYPES[0]) {
            Ok(Self::Protobuf)
        } else if media.is(TYPES[1]) {
            Ok(Self::Json)
        } else {
            let is_grpc =
                media.name().get(..GRPC.len()).is_some_and(|m| m.eq_ignore_ascii_case(GRPC));
            let way_out =
                if is_grpc { ": set OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf" } else { "" };
            let detail =
                format!("the type is not supported; send {} or {}{way_out}", TYPES[0], TYPES[1]);
            Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail).named("type"))
        }
    }

    /// Returns the response to an accepted request, with the number of refused points. If this
    /// number is zero, `message` is a warning.
    pub(super) fn success(self, refused: u64, message: &str) -> Response {
        let is_plain = refused == 0 && message.is_empty();
        let body = match self {
            Self::Protobuf if is_plain => Vec::new(),
            Self::Protobuf => {
                let mut partial = Vec::new();
                if refused > 0 {
                    push_number(&mut partial, 1, refused);
                }
                push_bytes(&mut partial, 2, message.as_bytes());
                let mut body = Vec::new();
                push_bytes(&mut body, 1, &partial);
                body
            }
            Self::Json if is_plain => b"{}".to_vec(),
            Self::Json => {
                // JSON represents 64-bit integers as strings, by the JSON mapping of Protocol
                // Buffers.
                let partial = serde_json::json!({"partialSuccess": {
                    "rejectedDataPoints": refused.to_string(), "errorMessage": message}});
                partial.to_string().into_bytes()
            }
        };
        self.response(StatusCode::OK, body)
    }

    /// Returns the response to a refused request.
    pub(super) fn failure(self, status: StatusCode, message: &str) -> Response {
        let code = match status {
            StatusCode::SERVICE_UNAVAILABLE => UNAVAILABLE,
            StatusCode::PAYLOAD_TOO_LARGE | StatusCode::TOO_MANY_REQUESTS => RESOURCE_EXHAUSTED,
            StatusCode::UNSUPPORTED_MEDIA_TYPE => UNIMPLEMENTED,
            _ => INVALID_ARGUMENT,
        };
        let body = match self {
            Self::Protobuf => {
                let mut body = Vec::new();
                push_number(&mut body, 1, code);
                push_bytes(&mut body, 2, message.as_bytes());
                body
            }
            Self::Json => {
                let status = serde_json::json!({"code": code, "message": message});
                status.to_string().into_bytes()
            }
        };
        self.response(status, body)
    }

    fn response(self, status: StatusCode, body: Vec<u8>) -> Response {
        let mut response = Response::new(Bytes::from(body));
        *response.status_mut() = status;
        let media = HeaderValue::from_static(TYPES[self as usize]);
        response.headers_mut().insert(CONTENT_TYPE, media);
        response
    }
}

/// The status codes of gRPC.
const INVALID_ARGUMENT: u64 = 3;
const RESOURCE_EXHAUSTED: u64 = 8;
const UNIMPLEMENTED: u64 = 12;
const UNAVAILABLE: u64 = 14;

fn push_number(out: &mut Vec<u8>, field: u8, number: u64) {
    out.push(field << 3);
    push_varint(out, number);
}

fn push_bytes(out: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    out.push(field << 3 | 2);
    push_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn push_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_have_the_encoding_of_the_protocol() {
        let body = |response: Response| response.into_body();
        assert_eq!(body(Encoding::Protobuf.success(0, "")), b""[..]);
        assert_eq!(
            body(Encoding::Protobuf.success(300, "why")),
            b"\x0a\x08\x08\xac\x02\x12\x03why"[..]
        );
        assert_eq!(body(Encoding::Json.success(0, "")), b"{}"[..]);
        assert_eq!(
            body(Encoding::Json.success(3, "why")),
            br#"{"partialSuccess":{"errorMessage":"why","rejectedDataPoints":"3"}}"#[..]
        );
        assert_eq!(body(Encoding::Protobuf.success(0, "why")), b"\x0a\x05\x12\x03why"[..]);
        let failure = Encoding::Protobuf.failure(StatusCode::BAD_REQUEST, "why");
        assert_eq!(failure.headers()[CONTENT_TYPE], TYPES[0]);
        assert_eq!(body(failure), b"\x08\x03\x12\x03why"[..]);
        let failure = Encoding::Json.failure(StatusCode::SERVICE_UNAVAILABLE, "why");
        assert_eq!(body(failure), br#"{"code":14,"message":"why"}"#[..]);
    }
}
