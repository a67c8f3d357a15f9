//! `GET /metrics`: what came in, the daemon's own metrics, and what is watched, in steps.

use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::StatusCode;
use hyper::header::{
    ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderName, HeaderValue, VARY,
};
use quipu::Scrape;
use quipu::exposition::{
    Compression, Compressor, Encoder, Escaping, Format, negotiate, negotiate_compression,
};
use quipu::snapshot::{Family, Series, Sink};
use quipu_segment::printable;

use quipu_agent::{All, Asked, Filter, Merged, Reading, Walk, Watched};
use quipu_client::via;
use quipu_http::{Request, Response, Steps, text, unavailable};
use quipu_intake::Inputs;
use quipu_intake::gate::{Scraping, WaitingScrape};
use quipu_process::memory;

/// A scrape under way.
pub struct Exposing {
    inputs: Inputs,
    format: Format,
    escaping: Escaping,
    compression: Compression,
    compressor: Option<Compressor>,
    filter: Filter,
    stage: Stage,
    place: Option<WaitingScrape<'static>>,
    body: Vec<u8>,
}

/// How far a scrape is.
enum Stage {
    /// What is watched is being read.
    Reading(Asked),
    /// A part of what is watched is shown, and nothing else.
    Part(Box<(Walk, Paced)>),
    /// No group of series may be being replaced. With what is watched, if anything is.
    Waiting(Option<Arc<Merged>>),
    /// What came in is shown, and the daemon's own metrics.
    Own(Scrape, Scraping<'static>),
    /// All is shown; the second part holds off replacements until what came in was shown.
    All(Box<(All, Paced)>, Option<Scraping<'static>>),
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
            stage: watched.map_or(Stage::Waiting(None), |watched| Stage::Reading(watched.ask())),
            place: None,
            body: Vec::new(),
        }
    }

    /// A scrape of what was merged, in this format.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn over(
        inputs: &Inputs,
        format: Format,
        escaping: Escaping,
        filter: Filter,
        merged: Arc<Merged>,
    ) -> Self {
        let compression = Compression::Identity;
        let mut exposing = Self {
            inputs: inputs.clone(),
            format,
            escaping,
            compression,
            compressor: None,
            filter,
            stage: Stage::Waiting(None),
            place: None,
            body: Vec::new(),
        };
        if exposing.begin(Reading::Of(merged)).is_some() {
            exposing.filter = Filter::default();
        }
        exposing
    }

    /// Goes on from a reading.
    fn begin(&mut self, reading: Reading) -> Option<Response> {
        let merged = match reading {
            Reading::Of(merged) if merged.has(&self.filter) => merged,
            Reading::Of(merged) if !merged.is_part => {
                return Some(text(StatusCode::NOT_FOUND, unknown(&self.filter)));
            }
            // What the filter names may be among what is missing.
            Reading::Of(_) | Reading::Stale if self.filter.is_part() => {
                return Some(unavailable(STALE, "15"));
            }
            Reading::Of(_) | Reading::Stale => Arc::default(),
        };
        self.stage = if self.filter.is_part() {
            let walk = Walk::over(&merged, self.filter.clone());
            Stage::Part(Box::new((walk, Paced::new(self.format, self.escaping))))
        } else {
            Stage::Waiting(Some(merged))
        };
        None
    }

    /// Begins to show what came in, unless a group of series is being replaced.
    fn enter(&mut self, merged: Option<&Arc<Merged>>) {
        let shared = self.inputs.shared();
        let Some(scraping) = shared.gate.scrape(&mut self.place) else {
            shared.push.go_on(&mut self.inputs.intake(), &shared.refusals);
            return;
        };
        let intake = self.inputs.intake();
        let (registry, names) = (intake.registry(), &self.filter.names);
        // Inconsistent segments are rejected when they are opened.
        let all = merged.and_then(|merged| All::over(registry, merged, names).ok());
        self.stage = match all {
            Some(all) => {
                let paced = Paced::new(self.format, self.escaping);
                Stage::All(Box::new((all, paced)), Some(scraping))
            }
            None => {
                let mut scrape = registry.scrape().format(self.format, self.escaping);
                if !names.is_empty() {
                    scrape = scrape.only(names.iter().cloned());
                }
                Stage::Own(scrape, scraping)
            }
        };
    }

    /// Appends a piece to the body. Returns the response that ends the scrape if there is no
    /// memory.
    fn put(
        compressor: &mut Option<Compressor>,
        piece: &[u8],
        body: &mut Vec<u8>,
    ) -> Option<Response> {
        // Bytes that cannot be compressed take a few more.
        if !memory::reserve(body, piece.len() + piece.len() / 8 + 1024) {
            return Some(unavailable(NO_MEMORY, "1"));
        }
        match compressor {
            Some(compressor) => compressor.write(piece, body),
            None => body.extend_from_slice(piece),
        }
        None
    }

    /// Takes what a step has written, and ends the exposition if there is no more.
    fn take(&mut self, paced: &mut Paced, is_more: bool) -> Option<Response> {
        if !is_more {
            paced.encoder.finish();
            self.inputs.shared().omitted.log(paced.encoder.omissions());
        }
        let failed = Self::put(&mut self.compressor, paced.encoder.buffer(), &mut self.body);
        if failed.is_some() {
            return failed;
        }
        paced.encoder.buffer_mut().clear();
        paced.series = 0;
        (!is_more).then(|| self.response(&self.format.content_type(self.escaping)))
    }

    /// Takes what one step of a scrape writes.
    fn scrape(&mut self, scrape: &mut Scrape) -> Option<Response> {
        // A piece of 64 KiB takes about 100 us; one that is not full is the last.
        loop {
            let Some(piece) = scrape.next_piece() else {
                scrape.omissions().iter().for_each(|one| self.inputs.shared().omitted.log(one));
                return Some(self.response(&scrape.content_type()));
            };
            let is_last = piece.len() < FULL;
            let failed = Self::put(&mut self.compressor, piece, &mut self.body);
            if failed.is_some() {
                return failed;
            }
            if !is_last {
                return None;
            }
        }
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
        match std::mem::replace(&mut self.stage, Stage::Waiting(None)) {
            Stage::Reading(asked) => match asked.reading() {
                Some(reading) => self.begin(reading),
                None => {
                    self.stage = Stage::Reading(asked);
                    None
                }
            },
            Stage::Part(mut part) => {
                let (walk, paced) = &mut *part;
                let is_more = walk.step(paced, Paced::is_full);
                let response = self.take(paced, is_more);
                if response.is_none() {
                    self.stage = Stage::Part(part);
                }
                response
            }
            Stage::Waiting(merged) => {
                self.stage = Stage::Waiting(merged.clone());
                self.enter(merged.as_ref());
                // The first piece is part of this step.
                if matches!(self.stage, Stage::Own(..)) { self.step() } else { None }
            }
            Stage::Own(mut scrape, scraping) => {
                let response = self.scrape(&mut scrape);
                if response.is_none() {
                    self.stage = Stage::Own(scrape, scraping);
                }
                response
            }
            Stage::All(mut all, mut scraping) => {
                let (walk, paced) = &mut *all;
                let is_more = if scraping.is_some() {
                    if !walk.step_own(paced, Paced::is_full) {
                        scraping = None;
                    }
                    true
                } else {
                    walk.step_rest(paced, Paced::is_full)
                };
                let response = self.take(paced, is_more);
                if response.is_none() {
                    self.stage = Stage::All(all, scraping);
                }
                response
            }
        }
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.stage {
            Stage::Reading(asked) => asked.poll(cx),
            _ => Poll::Ready(()),
        }
    }

    fn held(&self) -> usize {
        let paced = match &self.stage {
            Stage::Reading(_) | Stage::Waiting(_) => return self.body.len(),
            Stage::Own(..) => FULL,
            Stage::Part(part) => part.1.held(),
            Stage::All(all, _) => all.1.held(),
        };
        let compressor = if self.compressor.is_some() { COMPRESSOR } else { 0 };
        self.body.len() + paced + compressor
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

/// The body of the response to a scrape that finds no memory.
const NO_MEMORY: &str = "there is no memory for the response: try again, ask for less by name[], or \
                         raise the limit on address space (ulimit -v)\n";

/// An encoder, and the number of series in this step.
struct Paced {
    encoder: Encoder,
    series: usize,
}

impl Paced {
    fn new(format: Format, escaping: Escaping) -> Self {
        Self { encoder: Encoder::new(format, escaping), series: 0 }
    }

    /// The memory of the buffers, also while they are empty.
    fn held(&self) -> usize {
        FULL + self.encoder.pending()
    }

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

/// The most series in a step.
const SERIES: usize = 1000;
/// About the memory of a compressor.
const COMPRESSOR: usize = 256 << 10;
/// The least size of a piece that others follow.
const FULL: usize = 64 << 10;
