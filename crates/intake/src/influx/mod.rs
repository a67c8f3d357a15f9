//! `POST /write` and `POST /api/v2/write`: InfluxDB's line protocol, like in influxdb_exporter.
//!
//! Each numeric field becomes a sample of unknown type. Its name is `measurement_field`, or
//! `measurement` if the field is `value`, and the tags become labels. The body is parsed piece by
//! piece. An invalid line is refused with its number and the reason, and the other lines are
//! stored.

mod points;

use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use quipu_wire::remote::influx::InfluxLineBuffer;
use serde_json::json;

use super::requests::{BodyInput, Context, Input, Inputs, Pieces, Refusal, Result};
use points::{Points, Unit};
use quipu_http::{Query, Request, Response};

/// The query parameters of both versions. Only `precision` has an effect.
const PARAMETERS: [&str; 9] =
    ["precision", "bucket", "consistency", "db", "org", "orgID", "p", "rp", "u"];

/// A request with lines, in progress.
pub struct InfluxRequest {
    lines: InfluxLineBuffer,
    points: Points,
}

/// The maximum length of a line in bytes.
const MAX_LINE: usize = 64 << 10;

impl BodyInput for InfluxRequest {
    const INPUT: Input = Input::named("influx");

    fn new(_: &Inputs, request: &Request) -> Result<Self> {
        let query = Query::only(request, &PARAMETERS)?;
        let unit = Unit::from_precision(query.one("precision").unwrap_or_default())?;
        Ok(Self { lines: InfluxLineBuffer::new(MAX_LINE), points: Points::new(unit) })
    }

    fn step(&mut self, body: &mut Pieces, context: &mut Context<'_>) -> Result<bool> {
        let Self { lines, points } = self;
        let begun = context.begun;
        let mut step = points.step(context);
        let has_ended = body.each(begun, |bytes| lines.push(bytes, |cut| step.take(cut)))?;
        // If a body is truncated, its last line is incomplete too, and must not count.
        if has_ended {
            lines.finish(|cut| step.take(cut));
        }
        Ok(has_ended)
    }

    /// Returns a refusal as InfluxDB does: in JSON, with the message under the keys that its
    /// clients read.
    fn refuse(_: Option<&Self>, _: &Inputs, mut refusal: Refusal) -> Response {
        let is_json = refusal.status == StatusCode::BAD_REQUEST;
        if is_json {
            let text = refusal.text.trim_end();
            let json = json!({ "code": "invalid", "message": text, "error": text });
            refusal.text = json.to_string();
        }
        let mut response = refusal.respond();
        if is_json {
            let json = HeaderValue::from_static("application/json");
            response.headers_mut().insert(CONTENT_TYPE, json);
        }
        response
    }
}

impl Unit {
    /// Parses a `precision`. An empty one means nanoseconds.
    fn from_precision(precision: &str) -> Result<Self, String> {
        Ok(match precision {
            "" | "n" | "ns" => Self::Fraction(1_000_000),
            "u" | "us" | "\u{b5}" => Self::Fraction(1_000),
            "ms" => Self::Multiple(1),
            "s" => Self::Multiple(1_000),
            "m" => Self::Multiple(60_000),
            "h" => Self::Multiple(3_600_000),
            other => {
                return Err(format!(
                    "precision {other:?} is not known; give ns, us, ms, s, m or h"
                ));
            }
        })
    }
}
