//! `POST /api/v1/import/prometheus`: Prometheus' text format, or OpenMetrics by its content type.
//!
//! The body is parsed piece by piece. An invalid line is refused with its number and the reason,
//! and the other lines are stored. You can repeat a request: it counts only once, because the
//! sender's totals are stored instead of added, and other values replace the current values.

mod lines;

use quipu_wire::remote::exposition::text::{Options, Stream, TextFormat, Visitor};

use super::requests::{BodyInput, Context, Input, Inputs, Pieces, Result};
use lines::{ImportParameters, Lines};
use quipu_client::exposition::text_format;
use quipu_client::media::Media;
use quipu_http::{Query, Request};

/// The names of the parameters.
const PARAMETERS: [&str; 2] = ["timestamp", "extra_label"];

/// A request of an import, in progress.
pub struct ImportRequest {
    /// The splitter of the body into lines; `None` after the end.
    stream: Option<Stream>,
    lines: Lines,
}

impl BodyInput for ImportRequest {
    const INPUT: Input = Input::named("import");

    fn new(_: &Inputs, request: &Request) -> Result<Self> {
        let parameters = ImportParameters::from_query(&Query::only(request, &PARAMETERS)?)?;
        let format = format(request);
        let stream = Some(Stream::new(Options::new(format)));
        Ok(Self { stream, lines: Lines::new(format, parameters) })
    }

    fn step(&mut self, body: &mut Pieces, context: &mut Context<'_>) -> Result<bool> {
        let Self { stream, lines } = self;
        let begun = context.begun;
        let mut step = lines.step(context);
        let has_ended = body.each(begun, |text| {
            if let Some(stream) = stream {
                stream.visit(text, &mut step);
            }
        })?;
        // If the body is truncated, its last line and its last family are incomplete too, and must
        // not count.
        if has_ended && let Some(stream) = stream.take() {
            stream.finish(|item| step.item(item));
            step.finish();
        }
        Ok(has_ended)
    }
}

/// Returns the text format that the content type selects.
fn format(request: &Request) -> TextFormat {
    text_format(Media::from_headers(request.headers()))
}

impl ImportParameters {
    /// Reads the parameters: `timestamp`, in milliseconds since 1970, for lines without a time, and
    /// `extra_label=name=value`.
    fn from_query(query: &Query) -> Result<Self, String> {
        let mut parameters = Self::default();
        if let Some(timestamp) = query.one("timestamp") {
            let parsed = timestamp.parse().map_err(|error| {
                format!(
                    "timestamp cannot be read: {error}; give a whole number of milliseconds since \
                     1970"
                )
            })?;
            parameters.timestamp_ms = Some(parsed);
        }
        let labels = query.iter().filter(|(name, _)| *name == "extra_label");
        for (_, label) in labels {
            let pair = label.split_once('=').filter(|(name, _)| !name.is_empty());
            let (name, value) = pair
                .ok_or_else(|| format!("extra_label cannot be read: {label:?}; give name=value"))?;
            parameters.labels.retain(|(other, _)| other != name);
            parameters.labels.push((name.to_owned(), value.to_owned()));
        }
        Ok(parameters)
    }
}
