//! `POST /api/v1/import/prometheus`: Prometheus' text format, or OpenMetrics by its content type.
//!
//! The text is read piece by piece. A line that is wrong is refused with its number and the reason,
//! and its neighbours count. A text that is sent again counts once: totals are followed, and other
//! values replace what is there.

mod lines;

use std::time::{Duration, Instant};

use quipu_wire::remote::exposition::text::{Options, Stream, TextFormat, Visitor};

use super::Inputs;
use super::body::{Piece, Pieces};
use super::place::Place;
use lines::{Extra, Lines};
use quipu_client::exposition::text_format;
use quipu_client::media::Media;
use quipu_http::{Query, Reply, Request, Response, Steps, bad_request};

/// The names of the parameters.
const TAKES: [&str; 2] = ["timestamp", "extra_label"];

/// Takes a text.
pub fn respond(inputs: &Inputs, request: &Request) -> Reply {
    match Importing::new(inputs, request) {
        Ok(mut importing) => match importing.step() {
            Some(response) => Reply::Now(response),
            None => Reply::Steps(Box::new(importing)),
        },
        Err(response) => Reply::Now(response),
    }
}

/// A text that is being taken.
struct Importing {
    place: Place,
    pieces: Pieces,
    stream: Option<Stream>,
    lines: Lines,
    buffer: Vec<u8>,
}

/// The bytes of the text that are read at a time.
const PIECE: usize = 16 << 10;
/// A step that has taken this long reads no more.
const STEP: Duration = Duration::from_micros(100);

impl Importing {
    #[expect(clippy::result_large_err, reason = "the response to send, once for each request")]
    fn new(inputs: &Inputs, request: &Request) -> Result<Self, Response> {
        let query = Query::only(request, &TAKES).map_err(bad_request)?;
        let extra = Extra::of(&query)?;
        let format = format(request);
        let pieces = Pieces::new(request, inputs.shared().body_bytes)?;
        Ok(Self {
            place: Place::of(&inputs.shared().places, request),
            pieces,
            stream: Some(Stream::new(Options::new(format))),
            lines: Lines::new(inputs, request, format, extra)?,
            buffer: vec![0; PIECE],
        })
    }
}

impl Steps for Importing {
    fn step(&mut self) -> Option<Response> {
        if !self.place.take() {
            return None;
        }
        if let Err(response) = self.lines.begin() {
            return Some(response);
        }
        let begun = Instant::now();
        let mut step = self.lines.step();
        let failed = loop {
            match self.pieces.next(&mut self.buffer) {
                Ok(Piece::End) => break None,
                Ok(Piece::Nothing) => return None,
                Ok(Piece::Bytes(len)) => {
                    if let Some(stream) = &mut self.stream {
                        stream.visit(&self.buffer[..len], &mut step);
                    }
                    if begun.elapsed() >= STEP {
                        return None;
                    }
                }
                Err(response) => break Some(response),
            }
        };
        // Of a body that is cut, the last line and the last family are, too.
        if failed.is_none() {
            if let Some(stream) = self.stream.take() {
                stream.finish(|item| step.item(item));
            }
            step.finish();
        }
        drop(step);
        Some(self.lines.tally().response(failed))
    }

    fn is_waiting(&self) -> bool {
        self.place.is_waiting()
    }
}

/// The format that the content type names.
fn format(request: &Request) -> TextFormat {
    text_format(Media::from_headers(request.headers()))
}

impl Extra {
    /// The parameters: `timestamp`, in milliseconds since 1970, for lines without a time, and
    /// `extra_label=name=value`.
    #[expect(clippy::result_large_err, reason = "the response to send, once for each request")]
    fn of(query: &Query) -> Result<Self, Response> {
        let mut extra = Self::default();
        if let Some(given) = query.one("timestamp") {
            let parsed = given.parse().map_err(|error| {
                bad_request(format!(
                    "timestamp cannot be read: {error}; give a whole number of milliseconds since \
                     1970"
                ))
            })?;
            extra.timestamp_ms = Some(parsed);
        }
        let labels = query.iter().filter(|(name, _)| *name == "extra_label");
        for (_, label) in labels {
            let (name, value) =
                label.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or_else(|| {
                    bad_request(format!("extra_label cannot be read: {label:?}; give name=value"))
                })?;
            extra.labels.retain(|(other, _)| other != name);
            extra.labels.push((name.to_owned(), value.to_owned()));
        }
        Ok(extra)
    }
}
