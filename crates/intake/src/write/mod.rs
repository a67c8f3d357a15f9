//! Prometheus remote write 1.0 and 2.0: `POST /api/v1/write`. You can find the specifications at
//! <https://prometheus.io/docs/specs/prw/remote_write_spec/> and
//! <https://prometheus.io/docs/specs/prw/remote_write_spec_2_0/>.
//!
//! The valid part of a request is accepted. If a part is invalid, the response is 400, because the
//! sender should then not retry, or 503 if the state is full. The response of 2.0 contains the
//! numbers of written samples. A request that is repeated counts only once, because the sender's
//! totals are stored instead of added, and other values replace the current values.
//!
//! A body can be compressed with Snappy, like in the specification, or with zstd, for example by
//! VictoriaMetrics' agents and other quipu daemons.

mod metadata;
mod progress;

use hyper::StatusCode;
use hyper::body::Bytes;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderName, HeaderValue};
use quipu_wire::remote::write::{Entry, WriteReader, WriteVersion};
use self_cell::self_cell;

use super::requests::{
    BodyInput, Context, Input, Inputs, Pieces, Refusal, RequestOutcome, Result, STEP,
};
use quipu_client::media::Media;
use quipu_http::{Request, Response};

pub use metadata::MetadataCache;
use progress::{WriteProgress, WriteStep, WrittenCounts};

/// The maximum size of a request after decompression, like in Prometheus.
const MAX_BYTES: usize = 32 << 20;

/// Returns the version that the content type names. A type without parameters means 1.0, and so
/// does a missing type.
fn version(request: &Request) -> Result<WriteVersion> {
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

fn unsupported(detail: &str) -> Box<Refusal> {
    Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail)
}

self_cell! {
    /// The body of a request, and its reader.
    struct RequestReader {
        owner: Bytes,
        #[covariant]
        dependent: WriteReader,
    }
}

/// A remote write request, in progress.
pub struct RemoteWriteRequest {
    version: WriteVersion,
    /// The reader, after the body was decompressed.
    reading: Option<RequestReader>,
    progress: WriteProgress,
}

/// The number of series and values between two checks of the clock.
const WORK_PER_LOOK: usize = 32;

impl BodyInput for RemoteWriteRequest {
    const INPUT: Input = Input::named("remote_write");
    const IS_RELAYED: bool = true;

    fn new(_: &Inputs, request: &Request) -> Result<Self> {
        let version = version(request)?;
        Ok(Self { version, reading: None, progress: WriteProgress::new(version) })
    }

    fn body(&self, request: &Request, limit: usize) -> Result<Pieces> {
        let coding =
            request.headers().get(CONTENT_ENCODING).map_or(&b"snappy"[..], HeaderValue::as_bytes);
        let limit = limit.min(MAX_BYTES);
        match coding.trim_ascii() {
            coding if coding.eq_ignore_ascii_case(b"snappy") => {
                Ok(Pieces::block(request.body(), limit))
            }
            coding if coding.eq_ignore_ascii_case(b"zstd") => Pieces::new(request, limit),
            _ => {
                Err(unsupported("compress the body with Snappy, in its block format, or with zstd"))
            }
        }
    }

    fn step(&mut self, body: &mut Pieces, context: &mut Context<'_>) -> Result<bool> {
        let Self { version, reading, progress } = self;
        let begun = context.begun;
        if reading.is_none() {
            let Some(bytes) = body.gather(begun)? else { return Ok(false) };
            match RequestReader::try_new(bytes, |bytes| WriteReader::new(*version, bytes)) {
                Ok(opened) => *reading = Some(opened),
                Err(error) => {
                    progress.step(context).refuse_request(&error);
                    return Ok(true);
                }
            }
        }
        let Some(reading) = reading else { return Ok(true) };
        let mut step = progress.step(context);
        reading.with_dependent_mut(|_, reader| {
            loop {
                let mut work = 0;
                while work < WORK_PER_LOOK {
                    match take_next(reader, &mut step) {
                        Some(done) => work += done,
                        None => return Ok(true),
                    }
                }
                if begun.elapsed() >= STEP {
                    return Ok(false);
                }
            }
        })
    }

    /// Returns the response. In 2.0, its headers contain the numbers of written samples.
    fn finish(
        &mut self,
        outcome: &RequestOutcome,
        failed: Option<Box<Refusal>>,
    ) -> Result<Response> {
        if let Some(refusal) = failed {
            return Err(refusal);
        }
        let mut response = outcome.end(None).unwrap_or_else(|refusal| refusal.respond());
        if self.version == WriteVersion::Two {
            let WrittenCounts { samples, histograms, exemplars } = self.progress.written();
            for (name, count) in
                [(SAMPLES, samples), (HISTOGRAMS, histograms), (EXEMPLARS, exemplars)]
            {
                let name = HeaderName::from_static(name);
                response.headers_mut().insert(name, HeaderValue::from(count));
            }
        }
        Ok(response)
    }
}

/// Stores the next entry of a request. Returns the amount of work; `None` after the last entry.
fn take_next(reader: &mut WriteReader<'_>, progress: &mut WriteStep<'_>) -> Option<usize> {
    let taken = match reader.next_known(|series| progress.find(series)) {
        Some(Ok(Entry::Known { series, samples, metadata })) => {
            let taken = progress.known(series, samples, &metadata);
            if taken == samples.len() {
                return Some(1 + taken);
            }
            taken
        }
        entry => return take(entry, 0, progress),
    };
    take(reader.reread(), taken, progress)
}

/// Stores an entry. `taken` is the number of leading samples that were already stored.
fn take(
    entry: Option<Result<Entry<'_, '_>, quipu_wire::Error>>,
    taken: usize,
    progress: &mut WriteStep<'_>,
) -> Option<usize> {
    match entry? {
        Ok(Entry::Series(series)) => {
            progress.series(&series, taken);
            Some(1 + series.samples.len() + series.histograms().count())
        }
        Ok(Entry::Family(family)) => {
            progress.family(&family);
            Some(1)
        }
        // An `Entry::Skipped` can contain many fields.
        Ok(_) => Some(WORK_PER_LOOK),
        Err(error) => {
            progress.refuse_request(&error);
            None
        }
    }
}

const SAMPLES: &str = "x-prometheus-remote-write-samples-written";
const HISTOGRAMS: &str = "x-prometheus-remote-write-histograms-written";
const EXEMPLARS: &str = "x-prometheus-remote-write-exemplars-written";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_are_skipped_are_read_in_parts() {
        // Empty fields that no version defines.
        let request = b"\x7a\0".repeat(2500);
        for version in [WriteVersion::One, WriteVersion::Two] {
            let mut reader = WriteReader::new(version, &request).unwrap();
            for progress in [2000, 4000] {
                assert!(matches!(reader.next(), Some(Ok(Entry::Skipped))));
                assert_eq!(reader.position(), progress);
            }
            assert!(reader.next().is_none());
        }
    }
}
