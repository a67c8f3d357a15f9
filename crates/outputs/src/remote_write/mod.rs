//! The remote write output: <https://prometheus.io/docs/specs/prw/remote_write_spec_2_0/>.
//!
//! A receiver is served by one or more shards, and a hash assigns each series to a shard
//! (`placement.rs`). A request that is sent again contains the same bytes, with one exception: if
//! the receiver turns out to support only version 1.0, the same samples are sent in this version
//! (`negotiation.rs`).

mod convert;
mod negotiation;
mod placement;
mod samples;
mod series;
mod settings;
mod shard_writer;

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hyper::header::HeaderMap;
use quipu::IntGauge;
use quipu_segment::hash::SeededState;
use quipu_wire::remote::write::WriteVersion;

use super::coding::Coding;
use super::labels::ExternalLabel;
use super::protocol::{Protocol, Verdict};
use super::queue::Form;
use super::snapshot::{Body, Requests};
use super::{Options, Source};
use negotiation::Negotiation;
use quipu_client::sender::Answer;
use quipu_client::via;
use quipu_translate::rules::Relabelling;
use samples::{Samples, in_version_1};
use series::SeriesSink;
pub use settings::RemoteWriteFlags;
use shard_writer::ShardWriter;

/// The remote write protocol for one receiver.
pub(super) struct RemoteWrite {
    labels: Vec<ExternalLabel>,
    relabelling: Option<Arc<Relabelling>>,
    coding: Coding,
    has_exemplars: bool,
    hash: SeededState,
    negotiation: Mutex<Negotiation>,
    /// The version that the receiver accepts; 0 before the first response.
    version: IntGauge,
}

impl RemoteWrite {
    pub(super) fn new(
        options: &Options,
        relabelling: Option<Arc<Relabelling>>,
        version: IntGauge,
    ) -> Self {
        Self {
            labels: options.labels.clone(),
            relabelling,
            coding: options.compression,
            has_exemplars: options.exemplars,
            hash: SeededState::default(),
            negotiation: Mutex::new(Negotiation::new()),
            version,
        }
    }

    fn negotiation(&self) -> MutexGuard<'_, Negotiation> {
        self.negotiation.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Protocol for RemoteWrite {
    type Writer = Samples;

    const SAMPLES: &'static str = "samples";

    fn via(&self, source: &dyn Source) -> String {
        match &self.relabelling {
            // We name only this daemon. Rules can drop the samples of other daemons, and a request
            // without their samples may return to them.
            Some(_) => source.via().own().to_owned(),
            None => source.via().field(),
        }
    }

    fn begin(&self, timestamp_ms: i64) -> Requests<Samples> {
        let writer = Samples::new(self.negotiation().version());
        Requests::new(writer, timestamp_ms, self.coding, &self.hash)
    }

    fn read(
        &self,
        source: &dyn Source,
        timestamp_ms: i64,
        shards: usize,
        series: usize,
    ) -> Result<Vec<Requests<Samples>>, quipu::Error> {
        let requests = (0..shards).map(|_| self.begin(timestamp_ms).expecting(series)).collect();
        let mut writer =
            ShardWriter::new(requests, self.relabelling.as_deref(), self.has_exemplars);
        source.visit(&mut SeriesSink::new(&mut writer, &self.labels))?;
        Ok(writer.requests)
    }

    fn converted(&self, body: &Body, is_asked: bool) -> Option<io::Result<Body>> {
        let is_refused = || self.negotiation().version() == WriteVersion::One;
        (is_asked || body.form == Form::Write2 && is_refused()).then(|| in_version_1(body))
    }

    fn judge(&self, body: &Body, response: &Answer) -> Verdict {
        let written = written(&response.headers);
        let sent = version(body.form);
        let mut negotiation = self.negotiation();
        let verdict = negotiation.judge(sent, response.status, written.is_some());
        if negotiation.is_known() {
            self.version.set(if negotiation.version() == WriteVersion::One { 1 } else { 2 });
        }
        match verdict {
            // The samples that were not refused are already stored.
            Verdict::Refused { .. } => Verdict::Refused {
                written: written.unwrap_or(0).min(body.samples),
                is_of_sender: is_of_sender(response.status, &response.headers),
            },
            verdict => verdict,
        }
    }
}

/// Returns the remote write version of a request.
fn version(form: Form) -> WriteVersion {
    if form == Form::Write1 { WriteVersion::One } else { WriteVersion::Two }
}

/// Returns whether a refusal has causes other than the samples. Status 409 usually concerns the
/// samples, because Thanos uses it for late samples. If the receiver is a quipu daemon, it means a
/// loop.
fn is_of_sender(status: u16, headers: &HeaderMap) -> bool {
    match status {
        400 | 413 | 422 => false,
        409 => headers.contains_key(via::FIELD),
        _ => true,
    }
}

/// Returns the number of written samples and histograms, if the response contains it.
pub(super) fn written(headers: &HeaderMap) -> Option<u64> {
    let count = |unit: &str| {
        let value = headers.get(format!("x-prometheus-remote-write-{unit}-written"))?;
        Some(value.to_str().ok()?.trim().parse::<u64>().unwrap_or(0))
    };
    let counts = ["samples", "histograms", "exemplars"].map(count);
    let sum = counts[..2].iter().flatten().fold(0_u64, |sum, count| sum.saturating_add(*count));
    counts.iter().any(Option::is_some).then_some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_written_counts_of_receivers_of_2_0_are_read() {
        let of = |fields: &[(&'static str, &'static str)]| {
            let fields = fields.iter().map(|(name, value)| {
                let name = format!("X-Prometheus-Remote-Write-{name}-Written");
                (name.parse().unwrap(), value.parse().unwrap())
            });
            written(&fields.collect())
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[("Exemplars", "0")]), Some(0));
        assert_eq!(of(&[("Samples", "3"), ("Histograms", "4"), ("Exemplars", "5")]), Some(7));
        assert_eq!(of(&[("Samples", "many")]), Some(0));
    }

    #[test]
    fn refusals_because_of_samples_are_distinguished() {
        let (none, mut own) = (HeaderMap::new(), HeaderMap::new());
        own.insert(via::FIELD, "a".parse().unwrap());
        for status in [400, 409, 413, 422] {
            assert!(!is_of_sender(status, &none), "{status}");
        }
        for status in [200, 301, 401, 403, 404, 405, 407, 415] {
            assert!(is_of_sender(status, &none), "{status}");
        }
        assert!(is_of_sender(409, &own));
    }
}
