//! The query parameters of `/ingest`: the format, kind and framing of the messages, and the metric
//! type of timers.

use std::time::Duration;

use hyper::StatusCode;
use quipu::intake::Shape;
use quipu_wire::{AnyFormat, Framing, Kind, UnknownName};

use crate::refusal::{Refusal, Result};
use quipu_client::media::Media;
use quipu_http::{Query, Request};

/// The options of one request.
#[derive(Debug)]
pub(super) struct Options {
    pub(super) format: AnyFormat,
    pub(super) kind: Kind,
    pub(super) framing: Framing,
    /// The metric type for timers: a summary or a histogram.
    pub(super) timers: Shape,
}

/// The names of the parameters.
const PARAMETERS: [&str; 4] = ["format", "message", "framing", "timers"];

/// The formats by content type.
const TYPES: [(&str, &str); 12] = [
    ("application/vnd.quipu", "quipu"),
    ("application/json", "json"),
    ("application/x-ndjson", "json"),
    ("application/protobuf", "protobuf"),
    ("application/x-protobuf", "protobuf"),
    ("application/msgpack", "tinylib-msgp"),
    ("application/x-msgpack", "tinylib-msgp"),
    ("application/bson", "bson"),
    ("application/x-sereal", "sereal"),
    ("application/vnd.apache.thrift.binary", "thrift"),
    ("application/vnd.apache.thrift.compact", "thrift-compact"),
    ("text/tab-separated-values", "tsv"),
];

/// The quantiles of timers: the minimum, the median, two high ones, and the maximum.
const QUANTILES: [f64; 5] = [0.0, 0.5, 0.9, 0.99, 1.0];
/// The sliding window of these quantiles.
const WINDOW: Duration = Duration::from_secs(600);
/// The default buckets of Prometheus' client libraries.
const BOUNDS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

impl Options {
    /// Parses the query parameters and the content type.
    pub(super) fn from_request(request: &Request) -> Result<Self> {
        let query = Query::only(request, &PARAMETERS)?;
        let format = match query.one("format") {
            Some(name) => name.parse().map_err(|error: UnknownName| Refusal::bad(error))?,
            None => by_content_type(request)?,
        };
        let kind = match query.one("message") {
            None | Some("union") => Kind::MetricUnion,
            Some("counter") => Kind::Counter,
            Some("batch-timer") => Kind::BatchTimer,
            Some("gauge") => Kind::Gauge,
            Some(other) => {
                return Err(unknown("message", other, "counter, batch-timer, gauge or union"));
            }
        };
        let framing = match query.one("framing") {
            None | Some("own") => Framing::Own,
            Some("u32le") => Framing::U32Le,
            Some("varint") => Framing::Varint,
            Some("none") => Framing::None,
            Some(other) => return Err(unknown("framing", other, "own, u32le, varint or none")),
        };
        let timers = match query.one("timers") {
            None | Some("summary") => Shape::Summary(QUANTILES.to_vec(), WINDOW),
            Some("histogram") => Shape::Classic(BOUNDS.to_vec()),
            Some("native") => Shape::Native(3, 160),
            Some(other) => return Err(unknown("timers", other, "summary, histogram or native")),
        };
        Ok(Self { format, kind, framing, timers })
    }
}

fn by_content_type(request: &Request) -> Result<AnyFormat> {
    let media = Media::from_headers(request.headers()).name();
    let found = TYPES.iter().find(|(name, _)| media.eq_ignore_ascii_case(name));
    found.and_then(|(_, format)| format.parse().ok()).ok_or_else(|| {
        let types: Vec<_> = TYPES.iter().map(|(name, _)| *name).collect();
        let detail = format!(
            "the content type {media:?} names no format; add ?format=NAME, or send one of {}",
            types.join(", ")
        );
        Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail)
    })
}

fn unknown(name: &str, value: &str, known: &str) -> Box<Refusal> {
    Refusal::bad(format_args!("unknown {name} {value:?}; give {known}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_formats_of_content_types_exist() {
        for (_, format) in TYPES {
            assert!(format.parse::<AnyFormat>().is_ok(), "{format}");
        }
    }
}
