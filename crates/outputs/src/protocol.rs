//! The differences between the protocols by which snapshots are sent.

use std::io;
use std::sync::MutexGuard;

use quipu_client::sender::Answer;

use super::Source;
use super::otlp::Deltas;
use super::snapshot::{Body, Requests, Writer};

/// A protocol, with the settings and the knowledge of one receiver.
pub(super) trait Protocol: Send + Sync + 'static {
    type Writer: Writer + Send;

    /// The name of what requests have, in the plural.
    const SAMPLES: &'static str;

    /// The way that the samples have gone.
    fn via(&self, source: &dyn Source) -> String {
        source.via().field()
    }

    /// Begins requests that are read at this time.
    fn begin(&self, timestamp_ms: i64) -> Requests<Self::Writer>;

    /// Reads all series into a part for each of `shards` shards, of which the largest had this many
    /// series before.
    ///
    /// # Errors
    /// If the families of the state are inconsistent.
    fn read(
        &self,
        source: &dyn Source,
        timestamp_ms: i64,
        shards: usize,
        series: usize,
    ) -> Result<Vec<Requests<Self::Writer>>, quipu::Error>;

    /// The request in another version, if the receiver takes only that, or asked for it.
    fn converted(&self, _body: &Body, _is_asked: bool) -> Option<io::Result<Body>> {
        None
    }

    /// Judges the response to a request.
    fn judge(&self, body: &Body, response: &Answer) -> Verdict;

    /// The deltas that the receiver is owed, if a snapshot has the growth since the one before:
    /// each request of it is sent until it is taken or refused.
    fn deltas(&self) -> Option<MutexGuard<'_, Deltas>> {
        None
    }
}

/// The meaning of a response for its request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It was taken but for that many samples, with the reason.
    Taken(u64, String),
    /// It was not taken but for that many samples, and never will be. The receiver may refuse it
    /// for the sender, or for the way to the receiver, and not for the samples.
    Refused { written: u64, is_of_sender: bool },
    /// It may be taken if it is sent again.
    Later,
    /// It may be taken in another version.
    Other,
}
