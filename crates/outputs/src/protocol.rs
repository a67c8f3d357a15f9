//! The differences between the protocols of the outputs.

use std::io;
use std::sync::MutexGuard;

use quipu_client::sender::Answer;

use super::Source;
use super::otlp::Deltas;
use super::snapshot::{Body, Requests, Writer};

/// A protocol, with the settings and the state of one receiver.
pub(super) trait Protocol: Send + Sync + 'static {
    type Writer: Writer + Send;

    /// The plural noun for the contents of requests.
    const SAMPLES: &'static str;

    /// Returns the daemons that the samples passed through.
    fn via(&self, source: &dyn Source) -> String {
        source.via().field()
    }

    /// Begins the requests of a reading at this time.
    fn begin(&self, timestamp_ms: i64) -> Requests<Self::Writer>;

    /// Reads all series into one part per shard. `series` is the size of the previous largest part.
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

    /// Converts the request to another version, if the receiver only accepts or requested that one.
    fn converted(&self, _body: &Body, _is_asked: bool) -> Option<io::Result<Body>> {
        None
    }

    /// Judges the response to a request.
    fn judge(&self, body: &Body, response: &Answer) -> Verdict;

    /// Returns the pending deltas, if snapshots contain the growth since the previous one. Each
    /// request of such a snapshot is repeated until it is accepted or refused.
    fn deltas(&self) -> Option<MutexGuard<'_, Deltas>> {
        None
    }
}

/// The meaning of a response for its request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The request was accepted, except for this number of samples, with the reason.
    Taken(u64, String),
    /// The request was refused for good, except for `written` samples. `is_of_sender` means that
    /// the sender or the path to the receiver is the reason, and not the samples.
    Refused { written: u64, is_of_sender: bool },
    /// The request can succeed if it is sent again.
    Later,
    /// The request can succeed in another version.
    Other,
}
