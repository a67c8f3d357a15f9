//! Interprets the responses of OTLP receivers, by
//! <https://opentelemetry.io/docs/specs/otlp/#otlphttp-response>.

use quipu_segment::printable;
use quipu_wire::remote::otlp::read_metrics_response;

use crate::protocol::Verdict;
use quipu_client::media::Media;
use quipu_client::sender::Answer;
use quipu_process::text::cut;

/// Interprets the response to a request with this number of points.
pub(super) fn judge(response: &Answer, points: u64) -> Verdict {
    // A refusal can concern the daemon itself or the path to the receiver, instead of the points.
    let refused = |is_of_sender| Verdict::Refused { written: 0, is_of_sender };
    match response.status {
        429 | 502..=504 => Verdict::Later,
        200..=299 => taken(response, points).unwrap_or(refused(false)),
        status => refused(matches!(status, 300..=399 | 401 | 403..=405 | 407 | 409)),
    }
}

/// Interprets a response with a successful status. Returns `None` for an HTML page, because the URL
/// is then not a receiver.
fn taken(response: &Answer, points: u64) -> Option<Verdict> {
    let media = Media::from_headers(&response.headers);
    if media.is("text/html") {
        return None;
    }
    let partly = |rejected: u64, message: &str| match rejected {
        0 => Some(Verdict::Taken(0, String::new())),
        rejected => {
            let why = printable(cut(message, MOST_SHOWN)).to_string();
            Some(Verdict::Taken(rejected.min(points), why))
        }
    };
    if media.is("application/json") {
        let response: serde_json::Value =
            serde_json::from_slice(&response.body).unwrap_or_default();
        let partial = &response["partialSuccess"];
        let rejected = &partial["rejectedDataPoints"];
        // JSON represents 64-bit integers as strings, by the JSON mapping of Protocol Buffers.
        let rejected = rejected.as_u64().or_else(|| rejected.as_str()?.parse().ok());
        let message = partial["errorMessage"].as_str().unwrap_or_default();
        return partly(rejected.unwrap_or(0), message);
    }
    // Some receivers accept a request, but respond with another body than the protocol requires.
    read_metrics_response(&response.body)
        .map_or(partly(0, ""), |response| partly(response.rejected, response.message))
}

/// The maximum length of a receiver's message in our log, in bytes.
const MOST_SHOWN: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue};

    #[test]
    fn responses_are_judged_by_the_protocol() {
        let judge = |status, media: &'static str, body: &[u8]| {
            let mut headers = HeaderMap::new();
            if !media.is_empty() {
                headers.insert(CONTENT_TYPE, HeaderValue::from_static(media));
            }
            judge(&Answer { status, headers, retry_after: None, body: body.to_vec() }, 400)
        };
        let taken = |rejected, why: &str| Verdict::Taken(rejected, why.into());
        let refused = |is_of_sender| Verdict::Refused { written: 0, is_of_sender };
        let protobuf = "application/x-protobuf";
        assert_eq!(judge(200, protobuf, b""), taken(0, ""));
        assert_eq!(judge(202, "", b""), taken(0, ""));
        assert_eq!(judge(200, "text/plain", b"ok"), taken(0, ""));
        let partly = taken(300, "why");
        assert_eq!(judge(200, protobuf, b"\x0a\x08\x08\xac\x02\x12\x03why"), partly);
        let json = br#"{"partialSuccess": {"rejectedDataPoints": "300", "errorMessage": "why"}}"#;
        assert_eq!(judge(200, "application/json; charset=utf-8", json), partly);
        assert_eq!(judge(200, "application/json", b"{}"), taken(0, ""));
        // A warning does not reject anything.
        assert_eq!(judge(200, protobuf, b"\x0a\x05\x12\x03why"), taken(0, ""));
        assert_eq!(judge(200, "text/html; charset=utf-8", b"<html>"), refused(false));
        for status in [429, 502, 503, 504] {
            assert_eq!(judge(status, protobuf, b""), Verdict::Later);
        }
        for status in [301, 401, 404] {
            assert_eq!(judge(status, protobuf, b""), refused(true));
        }
        for status in [400, 413, 500, 501] {
            assert_eq!(judge(status, protobuf, b""), refused(false));
        }
    }
}
