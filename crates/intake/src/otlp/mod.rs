//! OTLP over HTTP: `POST /v1/metrics`, in protobuf and JSON.
//!
//! | file | has |
//! |---|---|
//! | `encoding.rs` | the types of requests, and responses |
//! | `points.rs` | data points as what an intake takes |
//! | `labels.rs` | labels of resources, scopes and points |
//! | `values.rs` | values of attributes as texts |

mod encoding;
pub(crate) mod labels;
mod points;
pub mod settings;
mod values;

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use hyper::StatusCode;
use hyper::body::Bytes;
use hyper::header::{HeaderValue, RETRY_AFTER};
use quipu::intake::Refused;
use quipu_wire::remote::{self, MetricsReader, Progress};
use self_cell::self_cell;

use super::admission::Admission;
use super::body::Pieces;
use super::place::Place;
use super::refusals::Input;
use super::{Inputs, source};
use encoding::Encoding;
use points::{Rejected, Translator};
use quipu_client::via::{Came, LOOP, Loop};
use quipu_http::{Reply, Request, Response, Steps};
use quipu_process::address::Source;

use quipu_translate::otlp::Translation;

/// How points become series.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Whether requests are taken.
    pub enabled: bool,
    /// How names are translated.
    pub translation: Translation,
    /// The attributes of resources that become labels of all their series.
    pub promote: Vec<String>,
}

/// Takes a request.
pub fn respond(inputs: &Inputs, request: &Request) -> Reply {
    match Coming::new(inputs, request) {
        Ok(coming) => Reply::in_steps(coming),
        Err(response) => Reply::Now(response),
    }
}

/// A request whose body is expanded once it has its place.
struct Coming {
    inputs: Inputs,
    place: Place,
    encoding: Encoding,
    /// What the client may bring.
    admission: Admission,
    /// Until points are taken.
    came: Came,
    stage: Stage,
}

enum Stage {
    Expanding(Pieces),
    Taking(Box<Export>),
}

impl Coming {
    #[expect(clippy::result_large_err, reason = "the response to send, once for each request")]
    fn new(inputs: &Inputs, request: &Request) -> Result<Self, Response> {
        let encoding =
            Encoding::of(request).map_err(|response| refuse(inputs, "type", response))?;
        let is_own = |Loop| encoding.failure(StatusCode::CONFLICT, LOOP);
        let came = inputs.shared().via.check(request.headers()).map_err(is_own)?;
        let admission = Admission::new(inputs, Input::Otlp, &source(request))
            .map_err(|refused| too_many(encoding, &refused))?;
        let limit = match encoding {
            Encoding::Protobuf => inputs.shared().body_bytes,
            Encoding::Json => inputs.shared().body_bytes.min(JSON_LIMIT),
        };
        let body = Pieces::new(request, limit)
            .map_err(|response| refuse_body(inputs, encoding, &response))?;
        Ok(Self {
            inputs: inputs.clone(),
            place: Place::of(&inputs.shared().places, request),
            encoding,
            admission,
            came,
            stage: Stage::Expanding(body),
        })
    }

    /// Expands a piece of the body, or takes some points.
    #[expect(clippy::result_large_err, reason = "the response to send, once for each request")]
    fn go_on(&mut self) -> Result<Option<Response>, Response> {
        let Self { inputs, encoding, admission, came, stage, .. } = self;
        let body = match stage {
            Stage::Taking(export) => {
                let before = export.counts.brought();
                let response = export.step();
                admission.brought(export.counts.brought() - before);
                return Ok(response);
            }
            Stage::Expanding(body) => {
                body.gather().map_err(|response| refuse_body(inputs, *encoding, &response))?
            }
        };
        if let Some(bytes) = body {
            admission.check().map_err(|refused| too_many(*encoding, &refused))?;
            let came = std::mem::take(came);
            *stage = Stage::Taking(Box::new(Export::begin(inputs, *encoding, bytes, came)?));
        }
        Ok(None)
    }
}

impl Steps for Coming {
    fn step(&mut self) -> Option<Response> {
        if !self.place.take() {
            return None;
        }
        self.go_on().unwrap_or_else(Some)
    }

    fn is_waiting(&self) -> bool {
        self.place.is_waiting()
    }
}

/// The response to a client that brings too much, in the encoding of its request.
fn too_many(encoding: Encoding, refused: &Response) -> Response {
    let message = String::from_utf8_lossy(refused.body());
    let mut response = encoding.failure(refused.status(), message.trim_end());
    if let Some(after) = refused.headers().get(RETRY_AFTER) {
        response.headers_mut().insert(RETRY_AFTER, after.clone());
    }
    response
}

/// Reports a body that cannot be read.
fn refuse_body(inputs: &Inputs, encoding: Encoding, response: &Response) -> Response {
    let is_too_large = response.status() == StatusCode::PAYLOAD_TOO_LARGE;
    let or = if is_too_large && encoding == Encoding::Json { ", or protobuf" } else { "" };
    let message = String::from_utf8_lossy(response.body());
    let message = format!("{}{or}", message.trim_end());
    refuse(inputs, "body", encoding.failure(response.status(), &message))
}

/// Reports a request that is refused as a whole.
fn refuse(inputs: &Inputs, reason: &'static str, response: Response) -> Response {
    let what = String::from_utf8_lossy(response.body());
    inputs.refusals().refused(Input::Otlp, "", reason, &what);
    response
}

self_cell!(
    /// A request, and the reader of its points.
    struct Points {
        owner: Bytes,
        #[covariant]
        dependent: MetricsReader,
    }
);

/// A request that is being taken.
struct Export {
    inputs: Inputs,
    encoding: Encoding,
    points: Points,
    translator: Translator,
    counts: Counts,
    /// Until a point was taken.
    came: Came,
}

/// What was taken and refused of a request.
#[derive(Debug, Default)]
struct Counts {
    taken: u64,
    refused: u64,
    /// How many of the refused points may be taken later.
    later: u64,
    /// What was refused first.
    message: String,
    /// Points that were taken before.
    again: u64,
    /// Points of processes that send the same series at the same time as another one.
    overlaps: u64,
}

impl Counts {
    fn brought(&self) -> u64 {
        self.taken + self.refused + self.again
    }

    fn refused(&mut self, name: &str, rejected: &Rejected) {
        self.refused += 1;
        self.later += u64::from(is_temporary(rejected));
        if self.refused <= TOLD {
            note(&mut self.message, name, rejected);
        }
    }

    /// Whether to send the same request again: it has no point that was taken, which would count
    /// twice, and none that is never taken.
    fn may_come_again(&self) -> bool {
        self.taken == 0 && self.refused > 0 && self.later == self.refused
    }
}

impl Export {
    #[expect(clippy::result_large_err, reason = "the response to send, once for each request")]
    fn begin(
        inputs: &Inputs,
        encoding: Encoding,
        bytes: Bytes,
        came: Came,
    ) -> Result<Self, Response> {
        let bytes = match encoding {
            Encoding::Protobuf => bytes,
            Encoding::Json => remote::metrics_request_from_json(&bytes)
                .map_err(|error| {
                    let response = encoding.failure(StatusCode::BAD_REQUEST, &error.to_string());
                    refuse(inputs, "malformed", response)
                })?
                .into(),
        };
        Ok(Self {
            inputs: inputs.clone(),
            encoding,
            points: Points::new(bytes, |bytes| MetricsReader::new(bytes)),
            translator: Translator::new(inputs.shared()),
            counts: Counts::default(),
            came,
        })
    }

    /// The response after the last point.
    fn finish(&self) -> Response {
        let counts = &self.counts;
        self.inputs.refusals().took(Input::Otlp, counts.taken);
        if counts.may_come_again() {
            let status = StatusCode::SERVICE_UNAVAILABLE;
            let mut response = self.encoding.failure(status, &counts.message);
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
            return response;
        }
        if counts.overlaps > 0 && counts.refused == 0 {
            return self.encoding.success(0, OVERLAP);
        }
        self.encoding.success(counts.refused, &counts.message)
    }

    /// The response to a request that is damaged after some points.
    fn damaged(&self, error: &quipu_wire::Error) -> Response {
        let (Self { inputs, encoding, .. }, taken) = (self, self.counts.taken);
        inputs.refusals().took(Input::Otlp, taken);
        inputs.refusals().refused(Input::Otlp, self.translator.source(), "malformed", error);
        let what = format!("{error}; {taken} data points before it were taken");
        encoding.failure(StatusCode::BAD_REQUEST, &what)
    }
}

impl Export {
    /// Takes points for about [`TURN`]; returns the response after the last.
    fn step(&mut self) -> Option<Response> {
        let Self { inputs, points, translator, counts, came, .. } = self;
        let begun = Instant::now();
        let mut intake = inputs.intake();
        let mut overlaps = intake.overlaps();
        // Other requests had their turns meanwhile.
        intake.set_source(&Source::Job(translator.source()));
        let read = points.with_dependent_mut(|_, reader| {
            for count in 1.. {
                let mut is_time = count % 16 == 0;
                match reader.next_progress()? {
                    Progress::Point(point) => match translator.take(&mut intake, &point) {
                        Ok(()) => {
                            counts.taken += 1;
                            inputs.shared().via.note(came);
                            if intake.overlaps() != overlaps {
                                overlaps = intake.overlaps();
                                counts.overlaps += 1;
                                inputs.refusals().overlapped(translator.source());
                            }
                        }
                        Err(rejected) => {
                            let rejected = rejected.explained(&intake);
                            let name = point.metric.name;
                            if rejected.is_duplicate() {
                                // The client cannot know, and need not change anything.
                                counts.again += 1;
                            } else {
                                counts.refused(name, &rejected);
                            }
                            let what = format_args!("{name}: {rejected}");
                            let (source, reason) = (translator.source(), rejected.reason());
                            inputs.refusals().refused(Input::Otlp, source, reason, &what);
                        }
                    },
                    Progress::Nothing => is_time = true,
                    Progress::End => return Ok(true),
                }
                if is_time && begun.elapsed() > TURN {
                    break;
                }
            }
            Ok(false)
        });
        drop(intake);
        match read {
            Ok(true) => Some(self.finish()),
            Ok(false) => None,
            Err(error) => Some(self.damaged(&error)),
        }
    }
}

/// Whether the same point may be taken later.
fn is_temporary(rejected: &Rejected) -> bool {
    use Refused::{Families, Full, Series, SourceSeries};
    matches!(rejected, Rejected::Intake(Families | Full | Series | SourceSeries))
}

/// Adds a refused point to the message of the response.
fn note(message: &mut String, name: &str, rejected: &Rejected) {
    if !message.is_empty() {
        message.push_str("; ");
    }
    let end = name.char_indices().nth(NAME_CHARS).map_or(name.len(), |(end, _)| end);
    // Writing to a string cannot fail.
    let _ = write!(message, "{:?}: {rejected}", &name[..end]);
}

/// The warning for processes that send the same series.
const OVERLAP: &str = "another process sends the same series: set service.instance.id for each \
                       process";
/// How long a step works.
const TURN: Duration = Duration::from_micros(100);
/// The number of refused points that a response tells about.
const TOLD: u64 = 3;
/// The characters of a name that a response repeats.
const NAME_CHARS: usize = 100;
/// The most bytes of JSON, which is read in one go: other connections wait meanwhile.
const JSON_LIMIT: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_comes_again_only_if_all_of_it_may_be_taken() {
        let full = Rejected::Intake(Refused::Full);
        let mut counts = Counts::default();
        assert!(!counts.may_come_again());
        counts.refused("a", &full);
        counts.refused("a", &full);
        assert!(counts.may_come_again());
        counts.refused("a", &Rejected::Name);
        assert!(!counts.may_come_again());
        let mut counts = Counts { taken: 1, ..Counts::default() };
        counts.refused("a", &full);
        assert!(!counts.may_come_again());
    }
}
