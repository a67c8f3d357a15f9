//! The interface between the sender and the protocols: remote write and OTLP implement
//! [`Protocol`].

use std::io;
use std::sync::MutexGuard;

use quipu_client::sender::Answer;

use super::Source;
use super::otlp::Deltas;
use super::snapshot::{Body, Requests, Writer};

/// A protocol, with the settings and the state of one receiver.
pub(super) trait Protocol: Send + Sync + 'static {
    type Writer: Writer + Send;

    /// The plural noun for samples in log messages.
    const SAMPLES: &'static str;

    /// Returns the daemons that the samples passed through.
    fn via(&self, source: &dyn Source) -> String {
        source.via().field()
    }

    /// Begins the requests of a snapshot with this timestamp.
    fn begin(&self, timestamp_ms: i64) -> Requests<Self::Writer>;

    /// Reads all series into one set of requests per shard. `series` is the size of the largest
    /// shard in the previous snapshot.
    ///
    /// # Errors
    /// Fails if the families of the state are inconsistent.
    fn read(
        &self,
        source: &dyn Source,
        timestamp_ms: i64,
        shards: usize,
        series: usize,
    ) -> Result<Vec<Requests<Self::Writer>>, quipu::Error>;

    /// Converts a request to another version of the protocol. `None` if the receiver accepts this
    /// version.
    fn converted(&self, _body: &Body, _is_asked: bool) -> Option<io::Result<Body>> {
        None
    }

    /// Interprets the response to a request.
    fn judge(&self, body: &Body, response: &Answer) -> Verdict;

    /// Returns the pending deltas, if the temporality is delta. Each request of a snapshot is then
    /// repeated until it is accepted or refused.
    fn deltas(&self) -> Option<MutexGuard<'_, Deltas>> {
        None
    }
}

/// The outcome of a request, according to its response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The request was accepted, except this number of samples. The string contains the reason.
    Taken(u64, String),
    /// The request was refused for good, except `written` samples. `is_of_sender` means that the
    /// sender or the path to the receiver is the reason, and not the samples.
    Refused { written: u64, is_of_sender: bool },
    /// The request failed for now: the unchanged request can succeed later.
    Later,
    /// The request can succeed in another version of the protocol.
    Other,
}
