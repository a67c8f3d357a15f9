//! The OTLP input: metrics over HTTP (`POST /v1/metrics`), in protobuf and JSON.
//!
//! | file | contents |
//! |---|---|
//! | `encoding.rs` | the types of requests, and the responses |
//! | `points.rs` | converts data points to the form of an intake |
//! | `labels.rs` | the labels of resources, scopes and points |
//! | `values.rs` | formats the values of attributes as strings |

mod encoding;
pub(crate) mod labels;
mod points;
mod settings;
mod values;

use std::fmt::Write as _;

use hyper::StatusCode;
use hyper::body::Bytes;
use quipu::intake::Rejection;
use quipu_wire::remote::{
    self,
    otlp::{MetricsReader, Progress},
};
use self_cell::self_cell;

use super::requests::{
    BodyInput, Context, Input, Inputs, Pieces, Refusal, RequestOutcome, Result, STEP,
};
use encoding::Encoding;
use points::{PointError, Translator};
use quipu_http::{Request, Response};
use quipu_process::address::Source;

use quipu_translate::otlp::Translation;
pub use settings::OtlpInputFlags;

/// The settings of the OTLP input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Whether requests are accepted.
    pub enabled: bool,
    /// The translation of names.
    pub translation: Translation,
    /// The resource attributes that become labels of all series of their resource.
    pub promote: Vec<String>,
}

self_cell!(
    /// The body of a request, and the reader of its points.
    struct Points {
        owner: Bytes,
        #[covariant]
        dependent: MetricsReader,
    }
);

/// A request with data points, in progress.
pub struct OtlpRequest {
    encoding: Encoding,
    /// The reader of the points, after the body was decompressed.
    points: Option<Points>,
    translator: Translator,
    rejected: RejectedPoints,
}

/// The refused points of a request: their numbers, and a message about the first ones. We collect
/// this, because an OTLP response reports refused points in a separate protobuf message.
#[derive(Debug, Default)]
struct RejectedPoints {
    refused: u64,
    /// The number of refused points that could be accepted later.
    retryable: u64,
    /// The error message about the first refusals.
    message: String,
    /// The number of points whose series another process sends at the same time.
    overlaps: u64,
}

impl RejectedPoints {
    fn refuse(&mut self, name: &str, error: &PointError) {
        self.refused += 1;
        self.retryable += u64::from(is_temporary(error));
        if self.refused <= LISTED {
            note(&mut self.message, name, error);
        }
    }

    /// Returns whether the client should retry the whole request: no point was accepted (a retry
    /// would count it twice), and every refusal is temporary.
    fn may_be_repeated(&self, taken: u64) -> bool {
        taken == 0 && self.refused > 0 && self.retryable == self.refused
    }
}

impl BodyInput for OtlpRequest {
    const INPUT: Input = Input::named("otlp");
    const IS_RELAYED: bool = true;

    fn new(inputs: &Inputs, request: &Request) -> Result<Self> {
        Ok(Self {
            encoding: Encoding::from_request(request)?,
            points: None,
            translator: Translator::new(inputs.shared()),
            rejected: RejectedPoints::default(),
        })
    }

    fn body(&self, request: &Request, limit: usize) -> Result<Pieces> {
        let limit = if self.encoding == Encoding::Json { limit.min(JSON_LIMIT) } else { limit };
        Pieces::new(request, limit)
    }

    fn step(&mut self, body: &mut Pieces, context: &mut Context<'_>) -> Result<bool> {
        if self.points.is_none() {
            let Some(bytes) = body.gather(context.begun)? else { return Ok(false) };
            let bytes = match self.encoding {
                Encoding::Protobuf => bytes,
                Encoding::Json => remote::otlp::metrics_request_from_json(&bytes)
                    .map_err(|error| Refusal::bad(error).named("malformed"))?
                    .into(),
            };
            self.points = Some(Points::new(bytes, |bytes| MetricsReader::new(bytes)));
        }
        self.take(context)
    }

    fn finish(
        &mut self,
        outcome: &RequestOutcome,
        failed: Option<Box<Refusal>>,
    ) -> Result<Response> {
        let rejected = &self.rejected;
        match failed {
            Some(refusal) => Err(refusal),
            None if rejected.may_be_repeated(outcome.taken()) => {
                Err(Refusal::unavailable(&rejected.message, "1"))
            }
            None if rejected.overlaps > 0 && rejected.refused == 0 => {
                Ok(self.encoding.success(0, OVERLAP))
            }
            None => Ok(self.encoding.success(rejected.refused, &rejected.message)),
        }
    }

    /// Returns the response in the encoding of the request, or in JSON if the encoding is unknown.
    fn refuse(input: Option<&Self>, inputs: &Inputs, mut refusal: Refusal) -> Response {
        let encoding = input.map_or(Encoding::Json, |input| input.encoding);
        if refusal.status == StatusCode::PAYLOAD_TOO_LARGE && encoding == Encoding::Json {
            refusal.text.push_str(", or protobuf");
        }
        if !refusal.reason.is_empty() {
            inputs.refusals().refuse(Self::INPUT, "", refusal.reason, &refusal.text);
        }
        let mut response = encoding.failure(refusal.status, &refusal.text);
        response.headers_mut().extend(refusal.field);
        response
    }
}

impl OtlpRequest {
    /// Stores points until the time slice of the step is over. Returns whether these were the last
    /// points.
    fn take(&mut self, context: &mut Context<'_>) -> Result<bool> {
        let Self { points: Some(points), translator, rejected, .. } = self else { return Ok(true) };
        let Context { inputs, outcome, begun } = context;
        let mut intake = inputs.intake();
        let mut overlaps = intake.overlaps();
        // Set the source again, because other requests of this thread have used the intake in the
        // meantime.
        intake.set_source(&Source::Job(translator.source()));
        let read = points.with_dependent_mut(|_, reader| {
            for count in 1.. {
                let mut is_time = count % 16 == 0;
                match reader.next_progress()? {
                    Progress::Point(point) => match translator.take(&mut intake, &point) {
                        Ok(()) => {
                            outcome.count_taken(1);
                            if intake.overlaps() != overlaps {
                                overlaps = intake.overlaps();
                                rejected.overlaps += 1;
                                inputs.refusals().count_overlap(translator.source());
                            }
                        }
                        Err(error) => {
                            let error = error.explained(&intake);
                            let name = point.metric.name;
                            // We don't report a duplicate, because the client need not change
                            // anything.
                            if !error.is_duplicate() {
                                rejected.refuse(name, &error);
                            }
                            let detail = format_args!("{name}: {error}");
                            outcome.omit_from(translator.source(), error.reason(), detail);
                        }
                    },
                    Progress::Nothing => is_time = true,
                    Progress::End => return Ok(true),
                }
                if is_time && begun.elapsed() > STEP {
                    break;
                }
            }
            Ok(false)
        });
        read.map_err(|error: quipu_wire::Error| {
            outcome.omit_from(translator.source(), "malformed", format_args!("{error}"));
            let taken = outcome.taken();
            Refusal::bad(format_args!("{error}; {taken} data points before it were taken"))
        })
    }
}

/// Returns whether the same point could be accepted later.
fn is_temporary(error: &PointError) -> bool {
    use Rejection::{Families, Full, Series, SourceSeries};
    matches!(error, PointError::Intake(Families | Full | Series | SourceSeries))
}

/// Appends a refused point to the error message.
fn note(message: &mut String, name: &str, error: &PointError) {
    if !message.is_empty() {
        message.push_str("; ");
    }
    let end = name.char_indices().nth(NAME_CHARS).map_or(name.len(), |(end, _)| end);
    // Writing to a string cannot fail.
    let _ = write!(message, "{:?}: {error}", &name[..end]);
}

/// The warning about processes that send the same series.
const OVERLAP: &str = "another process sends the same series: set service.instance.id for each \
                       process";
/// The maximum number of refused points that a response lists.
const LISTED: u64 = 3;
/// The maximum number of characters of a name in a response.
const NAME_CHARS: usize = 100;
/// The maximum size of a JSON body in bytes. This is limited because JSON is parsed in a single
/// step, and other connections wait for its end.
const JSON_LIMIT: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_repeated_only_if_all_points_may_be_taken() {
        let full = PointError::Intake(Rejection::Full);
        let mut rejected = RejectedPoints::default();
        assert!(!rejected.may_be_repeated(0));
        rejected.refuse("a", &full);
        rejected.refuse("a", &full);
        assert!(rejected.may_be_repeated(0) && !rejected.may_be_repeated(1));
        rejected.refuse("a", &PointError::Name);
        assert!(!rejected.may_be_repeated(0));
    }
}
