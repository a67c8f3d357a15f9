//! `GET /metrics`: writes the metrics of the inputs, of the daemon, and of watched sources, in
//! steps, because a large page would block the other requests of a thread.

use std::cell::Cell;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::StatusCode;
use hyper::header::{
    ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderName, HeaderValue, VARY,
};
use quipu::exposition::{
    Compression, Compressor, Encoder, Escaping, Format, negotiate, negotiate_compression,
};
use quipu::snapshot::{FamilyHeader, FamilyKey, Series, Sink};
use quipu_segment::printable;

use quipu_agent::{AgentReadings, Filter, MergedFamilies, PageWalk, Reading, ReadingRequest};
use quipu_client::via;
use quipu_http::{Request, Response, Steps, text};
use quipu_intake::Inputs;
use quipu_intake::gate::{ScrapeGuard, WaitingScrape};
use quipu_intake::refusal::Refusal;
use quipu_process::memory;

/// A scrape in progress.
pub struct ScrapeSteps {
    inputs: Inputs,
    format: Format,
    escaping: Escaping,
    compression: Compression,
    compressor: Option<Compressor>,
    filter: Filter,
    stage: Stage,
    place: Option<WaitingScrape<'static>>,
    encoder: StepEncoder,
    body: Vec<u8>,
}

/// The stage of a scrape.
enum Stage {
    /// A reading of the watched sources is in progress.
    Reading(ReadingRequest),
    /// Waits until no group of series is being replaced.
    Waiting(Arc<MergedFamilies>),
    /// Writes the selected series. The guard delays replacements until all series of inputs are
    /// written.
    Showing(Box<PageWalk>, Option<ScrapeGuard<'static>>),
}

impl ScrapeSteps {
    /// Creates a scrape, in the format and the compression that the request prefers. It includes
    /// the watched sources, if any, and also the other series, unless the filter selects a watched
    /// source.
    pub fn new(
        inputs: &Inputs,
        request: &Request,
        watched: Option<&AgentReadings>,
        filter: Filter,
    ) -> Self {
        let header = |name: HeaderName| {
            let values = request.headers().get_all(name).iter();
            let values = values.filter_map(|value| value.to_str().ok());
            values.collect::<Vec<_>>().join(",")
        };
        let wanted = negotiate(&header(ACCEPT));
        let compression = negotiate_compression(&header(ACCEPT_ENCODING));
        let mut exposing = Self::waiting(inputs, wanted.format, wanted.escaping, filter);
        (exposing.compression, exposing.compressor) = (compression, Compressor::new(compression));
        if let Some(watched) = watched {
            exposing.stage = Stage::Reading(watched.ask());
        }
        exposing
    }

    /// Creates an uncompressed scrape of the inputs only.
    fn waiting(inputs: &Inputs, format: Format, escaping: Escaping, filter: Filter) -> Self {
        Self {
            inputs: inputs.clone(),
            format,
            escaping,
            compression: Compression::Identity,
            compressor: None,
            filter,
            stage: Stage::Waiting(Arc::default()),
            place: None,
            encoder: StepEncoder::new(format, escaping),
            body: Vec::new(),
        }
    }

    /// Creates a scrape of merged sources in this format.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn over(
        inputs: &Inputs,
        format: Format,
        escaping: Escaping,
        filter: Filter,
        merged: Arc<MergedFamilies>,
    ) -> Self {
        let mut exposing = Self::waiting(inputs, format, escaping, filter);
        if exposing.begin(Reading::Families(merged)).is_some() {
            exposing.filter = Filter::default();
        }
        exposing
    }

    /// Continues with the result of a reading.
    fn begin(&mut self, reading: Reading) -> Option<Response> {
        let merged = match reading {
            Reading::Families(merged) if merged.has(&self.filter) => merged,
            Reading::Families(merged) if !merged.is_part => {
                return Some(text(StatusCode::NOT_FOUND, unknown(&self.filter)));
            }
            // The missing sources may include the selected one.
            Reading::Families(_) | Reading::Stale if self.filter.is_part() => {
                return Some(Refusal::unavailable(STALE, "15").respond());
            }
            Reading::Families(_) | Reading::Stale => Arc::default(),
        };
        self.stage = if self.filter.is_part() {
            Stage::Showing(Box::new(PageWalk::of_sources(&merged, self.filter.clone())), None)
        } else {
            Stage::Waiting(merged)
        };
        None
    }

    /// Begins to write the series of inputs. Returns false if a group of series is being replaced.
    fn enter(&mut self, merged: &Arc<MergedFamilies>) -> bool {
        let shared = self.inputs.shared();
        let Some(scraping) = shared.gate.scrape(&mut self.place) else {
            shared.push.continue_parked(&mut self.inputs.intake(), &shared.refusals);
            return false;
        };
        let intake = self.inputs.intake();
        let all = PageWalk::over(intake.registry(), merged, &self.filter.names);
        // This cannot fail, because an invalid segment is already rejected when it is opened.
        let all = all.unwrap_or_else(|_| PageWalk::of_sources(merged, self.filter.clone()));
        self.stage = Stage::Showing(Box::new(all), Some(scraping));
        true
    }

    /// Compresses the output of a step, and ends the page after the last step. Returns the response
    /// at the end, or an error response if there is not enough memory.
    fn take(&mut self, is_more: bool) -> Option<Response> {
        let Self { encoder, compressor, body, .. } = self;
        if !is_more {
            encoder.inner.finish();
            self.inputs.shared().omitted.log(encoder.inner.omissions());
        }
        let piece = encoder.inner.buffer();
        // Incompressible bytes need a little more space.
        if !memory::reserve(body, piece.len() + piece.len() / 8 + 1024) {
            return Some(Refusal::unavailable(NO_MEMORY, "1").respond());
        }
        match compressor {
            Some(compressor) => compressor.write(piece, body),
            None => body.extend_from_slice(piece),
        }
        encoder.inner.buffer_mut().clear();
        encoder.series = 0;
        (!is_more).then(|| self.response(&self.format.content_type(self.escaping)))
    }

    fn response(&mut self, content_type: &str) -> Response {
        if let Some(mut compressor) = self.compressor.take() {
            compressor.finish(&mut self.body);
        }
        let mut response = text(StatusCode::OK, mem::take(&mut self.body));
        let headers = response.headers_mut();
        if let Ok(content_type) = HeaderValue::from_str(content_type) {
            headers.insert(CONTENT_TYPE, content_type);
        }
        if self.compression != Compression::Identity {
            let name = HeaderValue::from_static(self.compression.as_str());
            headers.insert(CONTENT_ENCODING, name);
        }
        // The metrics of watched files did not pass through another daemon.
        let via = (!self.filter.is_part()).then(|| self.inputs.shared().via.field());
        if let Some(Ok(via)) = via.as_deref().map(HeaderValue::from_str) {
            headers.insert(via::FIELD, via);
        }
        headers.insert(VARY, HeaderValue::from_static("accept, accept-encoding"));
        response
    }
}

impl Steps for ScrapeSteps {
    fn step(&mut self) -> Option<Response> {
        match &mut self.stage {
            Stage::Reading(asked) => {
                let reading = asked.reading()?;
                self.begin(reading)
            }
            Stage::Waiting(merged) => {
                let merged = Arc::clone(merged);
                // We write the first series in this step.
                if self.enter(&merged) { self.step() } else { None }
            }
            Stage::Showing(all, scraping) => {
                let is_more = all.step_own(&mut self.encoder, StepEncoder::is_full) || {
                    *scraping = None;
                    all.step_rest(&mut self.encoder, StepEncoder::is_full)
                };
                self.take(is_more)
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
        let Stage::Showing(..) = self.stage else { return self.body.len() };
        let compressor = if self.compressor.is_some() { COMPRESSOR } else { 0 };
        self.body.len() + self.encoder.held() + compressor
    }

    fn is_waiting(&self) -> bool {
        self.place.is_some()
    }
}

/// Returns the error for a filter that selects no watched file.
fn unknown(filter: &Filter) -> String {
    let (place, list) = match (&filter.source, &filter.directory) {
        (Some(source), _) => (format!("called {}", printable(source)), "names"),
        (None, Some(path)) => (format!("in {}", printable(path)), "paths"),
        (None, None) => (String::from("there"), "names"),
    };
    format!("no watched segment is {place}; quipu_segments_info in /metrics has the {list}\n")
}

/// The error if all readings are too old.
const STALE: &str = "the last reading of the watched files is too old to be shown: a file system \
                     does not answer; quipu_segments_last_read_time_seconds in /metrics has the \
                     time";

/// The error if there is not enough memory.
const NO_MEMORY: &str = "there is no memory for the response: try again, ask for less by name[], \
                         or raise the limit on address space (ulimit -v)";

/// An encoder that counts the series of a step.
struct StepEncoder {
    inner: Encoder,
    series: usize,
}

thread_local! {
    /// The encoder of an earlier scrape, which still caches the rendered headers of its families.
    static SPARE: Cell<Option<Encoder>> = const { Cell::new(None) };
}

impl StepEncoder {
    fn new(format: Format, escaping: Escaping) -> Self {
        let mut inner = SPARE.take().unwrap_or_default();
        inner.reset(format, escaping);
        Self { inner, series: 0 }
    }

    /// Returns the memory of the buffers, even while they are empty, and of the cached headers.
    fn held(&self) -> usize {
        FULL + self.inner.pending() + self.inner.cached()
    }

    fn is_full(&self) -> bool {
        // A protobuf message is only written to the buffer when it is complete.
        self.series >= SERIES || self.inner.buffer().len() >= FULL
    }
}

impl Drop for StepEncoder {
    fn drop(&mut self) {
        // We free the memory of a long protobuf message, because such messages are rare.
        if self.inner.buffer_mut().capacity().max(self.inner.pending()) <= 4 * FULL {
            // We ignore the error, because it only means that the thread is ending.
            let _ = SPARE.try_with(|spare| spare.set(Some(mem::take(&mut self.inner))));
        }
    }
}

impl Sink for StepEncoder {
    fn family(&mut self, family: &FamilyHeader<'_>) {
        self.inner.family(family);
    }

    fn known_family(&mut self, key: FamilyKey, family: &FamilyHeader<'_>) {
        self.inner.known_family(key, family);
    }

    #[inline]
    fn series(&mut self, family: &FamilyHeader<'_>, series: &Series<'_>) {
        self.series += 1;
        self.inner.series(family, series);
    }
}

/// The maximum number of series in a step.
const SERIES: usize = 1000;
/// The approximate memory of a compressor in bytes.
const COMPRESSOR: usize = 256 << 10;
/// The number of bytes at which a step ends.
const FULL: usize = 64 << 10;
