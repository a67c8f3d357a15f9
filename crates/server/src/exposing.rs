//! `GET /metrics`: what is watched, what came in, and the daemon's own metrics, in steps.

use std::task::{Context, Poll};

use hyper::StatusCode;
use hyper::header::{
    ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER,
    VARY,
};
use quipu::Scrape;
use quipu::exposition::{
    Compression, Compressor, Encoder, Escaping, Format, negotiate, negotiate_compression,
};
use quipu::snapshot::{Family, Series, Sink};
use quipu_segment::printable;

use crate::agent::{Asked, Filter, Reading, Walk, Watched};
use crate::http::{Request, Response, Steps, text};
use crate::inputs::Inputs;
use crate::inputs::gate::{Scraping, WaitingScrape};
use crate::via;

/// A scrape under way.
pub struct Exposing {
    inputs: Inputs,
    format: Format,
    escaping: Escaping,
    compression: Compression,
    compressor: Option<Compressor>,
    filter: Filter,
    watching: Watching,
    /// `None` until no group of series is being replaced.
    scrape: Option<(Scrape, Scraping<'static>)>,
    place: Option<WaitingScrape<'static>>,
    body: Vec<u8>,
}

impl Exposing {
    /// A scrape in the format and the compression that the request prefers: of what is watched, if
    /// anything is; and of the rest, unless the filter names a watched source.
    pub fn new(
        inputs: &Inputs,
        request: &Request,
        watched: Option<&Watched>,
        filter: Filter,
    ) -> Self {
        let header = |name: HeaderName| {
            let values = request.headers().get_all(name).iter();
            let values = values.filter_map(|value| value.to_str().ok());
            values.collect::<Vec<_>>().join(",")
        };
        let wanted = negotiate(&header(ACCEPT));
        let compression = negotiate_compression(&header(ACCEPT_ENCODING));
        Self {
            inputs: inputs.clone(),
            format: wanted.format,
            escaping: wanted.escaping,
            compression,
            compressor: Compressor::new(compression),
            filter,
            watching: watched.map_or(Watching::Over, |watched| Watching::Reading(watched.ask())),
            scrape: None,
            place: None,
            body: Vec::new(),
        }
    }

    /// A step of what is watched.
    fn watch(&mut self) -> Option<Response> {
        match &mut self.watching {
            Watching::Reading(asked) => {
                let merged = match asked.reading()? {
                    Reading::Of(merged) if merged.has(&self.filter) => merged,
                    Reading::Of(merged) if !merged.is_part => {
                        return Some(text(StatusCode::NOT_FOUND, unknown(&self.filter)));
                    }
                    // What the filter names may be among what is missing.
                    Reading::Of(_) | Reading::Stale if self.filter.is_part() => {
                        let mut response = text(StatusCode::SERVICE_UNAVAILABLE, STALE);
                        let headers = response.headers_mut();
                        headers.insert(RETRY_AFTER, HeaderValue::from_static("15"));
                        return Some(response);
                    }
                    Reading::Of(_) | Reading::Stale => {
                        self.watching = Watching::Over;
                        return None;
                    }
                };
                let encoder = Encoder::new(self.format, self.escaping);
                let walk = Walk::over(&merged, self.filter.clone());
                self.watching = Watching::Walking(Box::new((walk, Paced { encoder, series: 0 })));
            }
            Watching::Walking(walking) => {
                let (walk, paced) = &mut **walking;
                paced.series = 0;
                let is_more = walk.step(paced, Paced::is_full);
                let is_all = self.filter.is_part();
                // The rest of an exposition in text has its end.
                if !is_more && (is_all || self.format == Format::Protobuf) {
                    paced.encoder.finish();
                }
                put(&mut self.compressor, paced.encoder.buffer(), &mut self.body);
                paced.encoder.buffer_mut().clear();
                if !is_more {
                    self.watching = Watching::Over;
                    if is_all {
                        return Some(self.response(&self.format.content_type(self.escaping)));
                    }
                }
            }
            Watching::Over => {}
        }
        None
    }

    fn response(&mut self, content_type: &str) -> Response {
        if let Some(mut compressor) = self.compressor.take() {
            compressor.finish(&mut self.body);
        }
        let mut response = text(StatusCode::OK, std::mem::take(&mut self.body));
        let headers = response.headers_mut();
        if let Ok(content_type) = HeaderValue::from_str(content_type) {
            headers.insert(CONTENT_TYPE, content_type);
        }
        if self.compression != Compression::Identity {
            let name = HeaderValue::from_static(self.compression.name());
            headers.insert(CONTENT_ENCODING, name);
        }
        // Watched files have not come through another daemon.
        let via = (!self.filter.is_part()).then(|| self.inputs.shared().via.field());
        if let Some(Ok(via)) = via.as_deref().map(HeaderValue::from_str) {
            headers.insert(via::FIELD, via);
        }
        headers.insert(VARY, HeaderValue::from_static("accept, accept-encoding"));
        response
    }
}

impl Steps for Exposing {
    fn step(&mut self) -> Option<Response> {
        if !matches!(self.watching, Watching::Over) {
            return self.watch();
        }
        if self.scrape.is_none() {
            let shared = self.inputs.shared();
            let Some(scraping) = shared.gate.scrape(&mut self.place) else {
                shared.push.go_on(&mut self.inputs.intake(), &shared.refusals);
                return None;
            };
            let intake = self.inputs.intake();
            let mut scrape = intake.registry().scrape().format(self.format, self.escaping);
            if !self.filter.names.is_empty() {
                scrape = scrape.only(self.filter.names.iter().cloned());
            }
            drop(intake);
            self.scrape = Some((scrape, scraping));
        }
        let (scrape, _) = self.scrape.as_mut()?;
        // A piece of 64 KiB takes about 100 us; one that is not full is the last.
        loop {
            let Some(piece) = scrape.next_piece() else {
                let content_type = scrape.content_type();
                self.scrape = None;
                return Some(self.response(&content_type));
            };
            let is_last = piece.len() < FULL;
            put(&mut self.compressor, piece, &mut self.body);
            if !is_last {
                return None;
            }
        }
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.watching {
            Watching::Reading(asked) => asked.poll(cx),
            _ => Poll::Ready(()),
        }
    }

    fn is_waiting(&self) -> bool {
        self.place.is_some()
    }
}

/// Why no watched file is what the filter wants.
fn unknown(filter: &Filter) -> String {
    let (what, which) = match (&filter.source, &filter.directory) {
        (Some(source), _) => (format!("called {}", printable(source)), "names"),
        (None, Some(path)) => (format!("in {}", printable(path)), "paths"),
        (None, None) => (String::from("there"), "names"),
    };
    format!("no watched segment is {what}; quipu_segments_info in /metrics has the {which}\n")
}

/// The text of a response without values.
const STALE: &str = "the last reading of the watched files is too old to be shown: a file system does \
                     not answer; quipu_segments_last_read_time_seconds in /metrics has the time\n";

/// What is being done about watched sources.
enum Watching {
    /// They are being read.
    Reading(Asked),
    Walking(Box<(Walk, Paced)>),
    /// All was shown.
    Over,
}

/// An encoder, and the number of series in this step.
struct Paced {
    encoder: Encoder,
    series: usize,
}

impl Paced {
    fn is_full(&self) -> bool {
        // A message of protobuf is in the buffer only once it is complete.
        self.series >= SERIES || self.encoder.buffer().len() >= FULL
    }
}

impl Sink for Paced {
    fn family(&mut self, family: &Family<'_>) {
        self.encoder.family(family);
    }

    fn series(&mut self, family: &Family<'_>, series: &Series<'_>) {
        self.series += 1;
        self.encoder.series(family, series);
    }
}

fn put(compressor: &mut Option<Compressor>, piece: &[u8], body: &mut Vec<u8>) {
    match compressor {
        Some(compressor) => compressor.write(piece, body),
        None => body.extend_from_slice(piece),
    }
}

/// The most series in a step.
const SERIES: usize = 1000;
/// The least size of a piece that others follow.
const FULL: usize = 64 << 10;
