//! `GET /metrics`: what came in, and the daemon's own metrics, in steps.

use hyper::StatusCode;
use hyper::header::{
    ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderName, HeaderValue, VARY,
};
use quipu::Scrape;
use quipu::exposition::{
    Compression, Compressor, Escaping, Format, negotiate, negotiate_compression,
};

use crate::http::{Request, Response, Steps, text};
use crate::inputs::Inputs;
use crate::inputs::gate::{Scraping, WaitingScrape};

/// A scrape under way.
pub struct Exposing {
    inputs: Inputs,
    format: Format,
    escaping: Escaping,
    compression: Compression,
    compressor: Option<Compressor>,
    /// `None` until no group of series is being replaced.
    scrape: Option<(Scrape, Scraping<'static>)>,
    place: Option<WaitingScrape<'static>>,
    body: Vec<u8>,
}

impl Exposing {
    /// A scrape in the format and the compression that the request prefers.
    pub fn new(inputs: &Inputs, request: &Request) -> Self {
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
            scrape: None,
            place: None,
            body: Vec::new(),
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
        headers.insert(VARY, HeaderValue::from_static("accept, accept-encoding"));
        response
    }
}

impl Steps for Exposing {
    fn step(&mut self) -> Option<Response> {
        if self.scrape.is_none() {
            let shared = self.inputs.shared();
            let Some(scraping) = shared.gate.scrape(&mut self.place) else {
                shared.push.go_on(&mut self.inputs.intake(), &shared.refusals);
                return None;
            };
            let intake = self.inputs.intake();
            let scrape = intake.registry().scrape().format(self.format, self.escaping);
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
            match &mut self.compressor {
                Some(compressor) => compressor.write(piece, &mut self.body),
                None => self.body.extend_from_slice(piece),
            }
            if !is_last {
                return None;
            }
        }
    }

    fn is_waiting(&self) -> bool {
        self.place.is_some()
    }
}

/// The least size of a piece that others follow.
const FULL: usize = 64 << 10;
