//! `POST /api/v1/write`: Prometheus remote write, 1.0 and 2.0.
//!
//! <https://prometheus.io/docs/specs/prw/remote_write_spec/> and
//! <https://prometheus.io/docs/specs/prw/remote_write_spec_2_0/>. A request is taken as far as it
//! is valid. What is not is refused with a 400, which tells the sender not to send it again, or
//! with a 503 if the state is full; the rest counts, and 2.0 is told how much that is. A request
//! that is sent again counts once: totals are followed, and other values replace what is there.
//!
//! Bodies are compressed with Snappy, as the specification says, or with zstd, as VictoriaMetrics'
//! agents and other daemons do it.

mod families;
mod taking;

use std::time::{Duration, Instant};

use hyper::StatusCode;
use hyper::body::Bytes;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderName, HeaderValue};
use quipu_wire::remote::{Entry, WriteReader, WriteVersion};
use self_cell::self_cell;

use super::body::Pieces;
use super::place::{Place, SMALL};
use super::{Inputs, body};
use quipu_client::media::Media;
use quipu_client::via::{Came, FIELD, LOOP, Loop, Via};
use quipu_http::{Reply, Request, Response, Steps, text};

pub use families::Families;
use taking::{Step, Taking, Written};

/// The most bytes of a request before compression, as in Prometheus.
const MOST_BYTES: usize = 32 << 20;

/// Takes a request.
pub fn respond(inputs: &Inputs, request: &Request) -> Reply {
    match read(inputs, request) {
        Ok(mut writing) => match writing.step() {
            Some(response) => Reply::Now(response),
            None => Reply::Steps(Box::new(writing)),
        },
        Err(response) => Reply::Now(response),
    }
}

#[expect(clippy::result_large_err, reason = "the response to send, once for each request")]
fn read(inputs: &Inputs, request: &Request) -> Result<Writing, Response> {
    // The head is checked before the body is touched.
    let version = version(request)?;
    let via = &inputs.shared().via;
    let came = via.check(request.headers()).map_err(|Loop| is_own(via))?;
    let coding =
        request.headers().get(CONTENT_ENCODING).map_or(&b"snappy"[..], HeaderValue::as_bytes);
    let limit = inputs.shared().body_bytes.min(MOST_BYTES);
    let (is_large, body) = match coding.trim_ascii() {
        coding if coding.eq_ignore_ascii_case(b"snappy") => {
            let block = request.body().clone();
            (body::may_exceed(&block, SMALL), Body::Block(block, limit))
        }
        // How much a body of zstd expands to is not known before.
        coding if coding.eq_ignore_ascii_case(b"zstd") => {
            (true, Body::Pieces(Pieces::new(request, limit)?))
        }
        _ => {
            let remedy = "compress the body with Snappy, in its block format, or with zstd";
            return Err(unsupported(remedy));
        }
    };
    Ok(Writing {
        place: Place::new(&inputs.shared().places, is_large),
        body,
        has_begun: false,
        reading: None,
        taking: Taking::new(inputs, request, version)?,
        version,
        via,
        came,
    })
}

/// The response to the daemon's own samples. Its number tells the sender that the response is about
/// a loop, not about the samples.
fn is_own(via: &Via) -> Response {
    let mut response = text(StatusCode::CONFLICT, format!("{LOOP}\n"));
    if let Ok(own) = HeaderValue::from_str(via.own()) {
        response.headers_mut().insert(FIELD, own);
    }
    response
}

/// The version that the content type names. A type without parameters is 1.0, and so is none.
#[expect(clippy::result_large_err, reason = "the response to send, once for each request")]
fn version(request: &Request) -> Result<WriteVersion, Response> {
    if !request.headers().contains_key(CONTENT_TYPE) {
        return Ok(WriteVersion::One);
    }
    let media = Media::from_headers(request.headers());
    match (media.is("application/x-protobuf"), media.parameter("proto")) {
        (true, None | Some("prometheus.WriteRequest")) => Ok(WriteVersion::One),
        (true, Some("io.prometheus.write.v2.Request")) => Ok(WriteVersion::Two),
        _ => Err(unsupported(
            "send Content-Type: application/x-protobuf, for 2.0 with the parameter \
             proto=io.prometheus.write.v2.Request",
        )),
    }
}

fn unsupported(what: &str) -> Response {
    text(StatusCode::UNSUPPORTED_MEDIA_TYPE, format!("{what}\n"))
}

self_cell! {
    /// A request and its reader.
    struct Reading {
        owner: Bytes,
        #[covariant]
        dependent: WriteReader,
    }
}

/// A compressed body.
enum Body {
    /// A block of Snappy as it came, until the request has its place, and the most bytes of it
    /// before compression.
    Block(Bytes, usize),
    /// What is read piece by piece.
    Pieces(Pieces),
}

/// A request that is being taken.
struct Writing {
    place: Place,
    body: Body,
    has_begun: bool,
    reading: Option<Reading>,
    taking: Taking,
    version: WriteVersion,
    via: &'static Via,
    /// Until a sample was taken.
    came: Came,
}

/// How long a step takes, and after how many series and values it looks at the time.
const STEP: Duration = Duration::from_micros(100);
const WORK_PER_LOOK: usize = 32;

impl Writing {
    /// Expands the body, or a part of it if that takes long.
    #[expect(clippy::result_large_err, reason = "the response to send, once for each request")]
    fn open(&mut self, begun: Instant) -> Result<Option<Reading>, Response> {
        let Self { body, has_begun, taking, version, .. } = self;
        if !std::mem::replace(has_begun, true) {
            taking.begin()?;
        }
        let bytes = match body {
            Body::Block(block, limit) => body::expand_block(&std::mem::take(block), *limit)?,
            Body::Pieces(pieces) => loop {
                if let Some(bytes) = pieces.gather()? {
                    break bytes;
                }
                if begun.elapsed() >= STEP {
                    return Ok(None);
                }
            },
        };
        let reading = Reading::try_new(bytes, |bytes| WriteReader::new(*version, bytes));
        reading.map(Some).map_err(|error| {
            taking.refuse_request(&error);
            response(*version, taking)
        })
    }
}

impl Steps for Writing {
    fn step(&mut self) -> Option<Response> {
        if !self.place.take() {
            return None;
        }
        let begun = Instant::now();
        if self.reading.is_none() {
            match self.open(begun) {
                Ok(Some(reading)) => self.reading = Some(reading),
                Ok(None) => return None,
                Err(response) => return Some(response),
            }
        }
        let Self { reading: Some(reading), taking, version, via, came, .. } = self else {
            return None;
        };
        let has_ended = reading.with_dependent_mut(|_, reader| {
            let mut taking = taking.step();
            loop {
                let (mut work, mut has_ended) = (0, false);
                while work < WORK_PER_LOOK && !has_ended {
                    match take_next(reader, &mut taking) {
                        Some(done) => work += done,
                        None => has_ended = true,
                    }
                }
                if taking.has_taken() {
                    via.note(came);
                }
                if has_ended {
                    return true;
                }
                if begun.elapsed() >= STEP {
                    return false;
                }
            }
        });
        has_ended.then(|| response(*version, taking))
    }

    fn is_waiting(&self) -> bool {
        self.place.is_waiting()
    }
}

/// Takes the next entry of a request. Returns how much work that was; `None` if it was the last
/// one.
fn take_next(reader: &mut WriteReader<'_>, taking: &mut Step<'_>) -> Option<usize> {
    let taken = match reader.next_known(|series| taking.find(series)) {
        Some(Ok(Entry::Known { series, samples, metadata })) => {
            let taken = taking.known(series, samples, &metadata);
            if taken == samples.len() {
                return Some(1 + taken);
            }
            taken
        }
        entry => return take(entry, 0, taking),
    };
    take(reader.again(), taken, taking)
}

/// Takes an entry, without the first `taken` samples of a series.
fn take(
    entry: Option<Result<Entry<'_, '_>, quipu_wire::Error>>,
    taken: usize,
    taking: &mut Step<'_>,
) -> Option<usize> {
    match entry? {
        Ok(Entry::Series(series)) => {
            taking.series(&series, taken);
            Some(1 + series.samples.len() + series.histograms().count())
        }
        Ok(Entry::Family(family)) => {
            taking.family(&family);
            Some(1)
        }
        // Entry::Skipped, of many fields.
        Ok(_) => Some(WORK_PER_LOOK),
        Err(error) => {
            taking.refuse_request(&error);
            None
        }
    }
}

/// The response of the tally. Only 2.0 is told what was written.
fn response(version: WriteVersion, taking: &mut Taking) -> Response {
    let (Written { samples, histograms, exemplars }, tally) = taking.finish();
    let mut response = tally.response(None);
    if version == WriteVersion::Two {
        for (name, count) in [(SAMPLES, samples), (HISTOGRAMS, histograms), (EXEMPLARS, exemplars)]
        {
            let name = HeaderName::from_static(name);
            response.headers_mut().insert(name, HeaderValue::from(count));
        }
    }
    response
}

const SAMPLES: &str = "x-prometheus-remote-write-samples-written";
const HISTOGRAMS: &str = "x-prometheus-remote-write-histograms-written";
const EXEMPLARS: &str = "x-prometheus-remote-write-exemplars-written";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_are_skipped_are_read_in_parts() {
        // Empty fields that no version has.
        let request = b"\x7a\0".repeat(2500);
        for version in [WriteVersion::One, WriteVersion::Two] {
            let mut reader = WriteReader::new(version, &request).unwrap();
            for part in [2000, 4000] {
                assert!(matches!(reader.next(), Some(Ok(Entry::Skipped))));
                assert_eq!(reader.position(), part);
            }
            assert!(reader.next().is_none());
        }
    }
}
