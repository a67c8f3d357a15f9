//! `POST /write` and `POST /api/v2/write`: InfluxDB's line protocol, as influxdb_exporter has it.
//!
//! Each field that is a number is a sample of unknown type, with the name `measurement_field`, or
//! `measurement` if the field is `value`. Tags are labels. The body is read piece by piece. A line
//! that is wrong is refused with its number and the reason, and its neighbours count.

mod points;

use std::time::{Duration, Instant};

use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use quipu_wire::remote::influx::InfluxLineBuffer;
use serde_json::json;

use super::Inputs;
use super::body::{Piece, Pieces};
use super::place::Place;
use points::{Points, Unit};
use quipu_http::{Query, Reply, Request, Response, Steps, bad_request};
use quipu_process::time::now_ms;

/// The names of the parameters of both versions. Only the precision counts.
const TAKES: [&str; 9] =
    ["precision", "bucket", "consistency", "db", "org", "orgID", "p", "rp", "u"];

/// Takes lines.
pub fn respond(inputs: &Inputs, request: &Request) -> Reply {
    match Writing::new(inputs, request) {
        Ok(mut writing) => match writing.step() {
            Some(response) => Reply::Now(response),
            None => Reply::Steps(Box::new(writing)),
        },
        Err(response) => Reply::Now(explained(response)),
    }
}

/// Lines that are being taken.
struct Writing {
    place: Place,
    pieces: Pieces,
    lines: InfluxLineBuffer,
    points: Points,
    buffer: Vec<u8>,
}

/// The bytes of the body that are read at a time.
const PIECE: usize = 16 << 10;
/// A step that has taken this long reads no more.
const STEP: Duration = Duration::from_micros(100);
/// The bytes of a line.
const MAX_LINE: usize = 64 << 10;

impl Writing {
    #[expect(clippy::result_large_err, reason = "the response to send, once for each request")]
    fn new(inputs: &Inputs, request: &Request) -> Result<Self, Response> {
        let query = Query::only(request, &TAKES).map_err(bad_request)?;
        let unit = Unit::of(query.one("precision").unwrap_or_default())?;
        let pieces = Pieces::new(request, inputs.shared().body_bytes)?;
        Ok(Self {
            place: Place::of(&inputs.shared().places, request),
            pieces,
            lines: InfluxLineBuffer::new(MAX_LINE),
            points: Points::new(inputs, request, unit, now_ms())?,
            buffer: vec![0; PIECE],
        })
    }
}

impl Steps for Writing {
    fn step(&mut self) -> Option<Response> {
        if !self.place.take() {
            return None;
        }
        if let Err(response) = self.points.begin() {
            return Some(explained(response));
        }
        let begun = Instant::now();
        let mut step = self.points.step();
        let failed = loop {
            match self.pieces.next(&mut self.buffer) {
                Ok(Piece::End) => break None,
                Ok(Piece::Nothing) => return None,
                Ok(Piece::Bytes(len)) => {
                    self.lines.push(&self.buffer[..len], |cut| step.take(cut));
                    if begun.elapsed() >= STEP {
                        return None;
                    }
                }
                Err(response) => break Some(response),
            }
        };
        // Of a body that is cut, the last line is, too.
        if failed.is_none() {
            self.lines.finish(|cut| step.take(cut));
        }
        drop(step);
        Some(explained(self.points.tally().response(failed)))
    }

    fn is_waiting(&self) -> bool {
        self.place.is_waiting()
    }
}

/// A refusal as InfluxDB has it: the text under the names that clients of its versions look for.
fn explained(mut response: Response) -> Response {
    if response.status() == StatusCode::BAD_REQUEST {
        let text = String::from_utf8_lossy(response.body());
        let text = text.trim_end();
        let json = json!({ "code": "invalid", "message": text, "error": text });
        *response.body_mut() = format!("{json}\n").into();
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(CONTENT_TYPE, json);
    }
    response
}

impl Unit {
    /// That of a `precision`, which is nanoseconds if it is empty.
    #[expect(clippy::result_large_err, reason = "the response to send, once for each request")]
    fn of(precision: &str) -> Result<Self, Response> {
        Ok(match precision {
            "" | "n" | "ns" => Self::Fraction(1_000_000),
            "u" | "us" | "\u{b5}" => Self::Fraction(1_000),
            "ms" => Self::Multiple(1),
            "s" => Self::Multiple(1_000),
            "m" => Self::Multiple(60_000),
            "h" => Self::Multiple(3_600_000),
            other => {
                let what = format!("precision {other:?} is not known; give ns, us, ms, s, m or h");
                return Err(bad_request(what));
            }
        })
    }
}
