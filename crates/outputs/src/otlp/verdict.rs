//! What a response means, by <https://opentelemetry.io/docs/specs/otlp/#otlphttp-response>.

use quipu_segment::printable;
use quipu_wire::remote::read_metrics_response;

use quipu_client::media::Media;
use quipu_client::sender::Answer;
use quipu_process::text::cut;

/// What a response means for the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// All of it was taken.
    Taken,
    /// It was taken but for that many points, with the reason.
    Partly(u64, String),
    /// It was not taken, and never will be.
    Refused,
    /// It may be taken if it is sent again.
    Later,
}

pub(super) fn judge(answer: &Answer) -> Verdict {
    match answer.status {
        429 | 502..=504 => Verdict::Later,
        200..=299 => taken(answer),
        _ => Verdict::Refused,
    }
}

fn taken(answer: &Answer) -> Verdict {
    let media = Media::of(&answer.headers);
    if media.is("text/html") {
        // A page for people: the URL is not that of a receiver.
        return Verdict::Refused;
    }
    let partly = |rejected: u64, message: &str| match rejected {
        0 => Verdict::Taken,
        rejected => Verdict::Partly(rejected, printable(cut(message, MOST_SHOWN)).to_string()),
    };
    if media.is("application/json") {
        let response: serde_json::Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        let partial = &response["partialSuccess"];
        let rejected = &partial["rejectedDataPoints"];
        // The mapping writes integers of 64 bits as texts.
        let rejected = rejected.as_u64().or_else(|| rejected.as_str()?.parse().ok());
        let message = partial["errorMessage"].as_str().unwrap_or_default();
        return partly(rejected.unwrap_or(0), message);
    }
    // Some receivers respond with another text than the protocol says; they took the request.
    read_metrics_response(&answer.body)
        .map_or(Verdict::Taken, |response| partly(response.rejected, response.message))
}

/// The most bytes of a message that are shown.
const MOST_SHOWN: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue};

    #[test]
    fn responses_are_judged_as_the_protocol_says() {
        let judge = |status, media: &'static str, body: &[u8]| {
            let mut headers = HeaderMap::new();
            if !media.is_empty() {
                headers.insert(CONTENT_TYPE, HeaderValue::from_static(media));
            }
            judge(&Answer { status, headers, retry_after: None, body: body.to_vec() })
        };
        let protobuf = "application/x-protobuf";
        assert_eq!(judge(200, protobuf, b""), Verdict::Taken);
        assert_eq!(judge(202, "", b""), Verdict::Taken);
        assert_eq!(judge(200, "text/plain", b"ok"), Verdict::Taken);
        let partly = Verdict::Partly(300, "why".into());
        assert_eq!(judge(200, protobuf, b"\x0a\x08\x08\xac\x02\x12\x03why"), partly);
        let json = br#"{"partialSuccess": {"rejectedDataPoints": "300", "errorMessage": "why"}}"#;
        assert_eq!(judge(200, "application/json; charset=utf-8", json), partly);
        assert_eq!(judge(200, "application/json", b"{}"), Verdict::Taken);
        // A warning rejects nothing.
        assert_eq!(judge(200, protobuf, b"\x0a\x05\x12\x03why"), Verdict::Taken);
        assert_eq!(judge(200, "text/html; charset=utf-8", b"<html>"), Verdict::Refused);
        for status in [429, 502, 503, 504] {
            assert_eq!(judge(status, protobuf, b""), Verdict::Later);
        }
        for status in [301, 400, 401, 404, 413, 500, 501] {
            assert_eq!(judge(status, protobuf, b""), Verdict::Refused);
        }
    }
}
