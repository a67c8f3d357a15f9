//! The OTLP output, over HTTP: <https://opentelemetry.io/docs/specs/otlp/>.
//!
//! With **cumulative** temporality, a snapshot contains totals. With **delta** temporality, it
//! contains the growth of each series since the last snapshot.
//!
//! | file | contents |
//! |---|---|
//! | `points.rs` | converts families to points |
//! | `requests.rs` | writes points to requests, and marks the end of series |
//! | `resources.rs` | selects the labels that become resource attributes |
//! | `growth.rs` | computes the growth of totals |
//! | `deltas.rs` | stores a receiver's totals and pending requests |
//! | `verdict.rs` | interprets responses |

mod deltas;
mod growth;
mod points;
mod requests;
mod resources;
pub mod settings;
mod verdict;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clap::ValueEnum;
use quipu::Counter;
use quipu_segment::hash::SeededState;
use serde::{Deserialize, Serialize};

use super::coding::Coding;
use super::labels::{ExternalLabel, ResourceAttribute};
use super::protocol::{Protocol, Verdict};
use super::queue::Form;
use super::snapshot::{Body, Requests};
use super::{Headers, Source};
pub(super) use deltas::Deltas;
use growth::DeltaConverter;
use points::Translation;
use quipu_client::ReceiverUrl;
use quipu_client::sender::Answer;
use quipu_process::time::now_ns;
use requests::Points;
use resources::BaseResource;

/// The options of the OTLP output.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The URLs of the receivers.
    pub receivers: Vec<ReceiverUrl>,
    /// The time between two snapshots.
    pub interval: Duration,
    /// The start of sums and histograms.
    pub temporality: Temporality,
    /// The compression of requests.
    pub compression: Compression,
    /// The attributes of all resources. The labels `job` and `instance` of a series override some
    /// of these attributes.
    pub resource: Vec<ResourceAttribute>,
    /// The additional header fields of requests.
    pub headers: Headers,
    /// The path of the state file. The queues for deltas are stored next to this file.
    pub state: PathBuf,
}

/// The temporality of sums and histograms.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Temporality {
    /// Totals since the start of the series.
    #[default]
    Cumulative,
    /// Deltas: the growth since the last snapshot.
    Delta,
}

/// The compression of OTLP requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Compression {
    /// No compression.
    #[default]
    None,
    /// Gzip.
    Gzip,
}

/// The OTLP protocol for one receiver.
pub(super) struct Otlp {
    labels: Vec<ExternalLabel>,
    resource: Arc<BaseResource>,
    coding: Coding,
    hash: SeededState,
    deltas: Option<Mutex<Deltas>>,
    /// The number of data points that the receiver rejected from accepted requests.
    rejected: Counter,
}

impl Otlp {
    /// Creates the protocol of a receiver.
    ///
    /// # Errors
    /// Fails if deltas are requested but their queue cannot be used.
    pub(super) fn new(
        labels: &[ExternalLabel],
        options: &Options,
        receiver: &str,
        rejected: Counter,
    ) -> Result<Self, String> {
        let hash = SeededState::default();
        let deltas = match options.temporality {
            Temporality::Cumulative => None,
            Temporality::Delta => Some(Mutex::new(Deltas::open(&options.state, receiver, &hash)?)),
        };
        let coding = match options.compression {
            Compression::None => Coding::Plain,
            Compression::Gzip => Coding::Gzip,
        };
        let resource = Arc::new(BaseResource::new(&options.resource));
        Ok(Self { labels: labels.to_vec(), resource, coding, hash, deltas, rejected })
    }

    fn requests(&self, timestamp_ms: i64, time_ns: u64) -> Requests<Points> {
        let writer = Points::new(Form::Points, time_ns).by_resource(&self.resource, &self.hash);
        Requests::new(writer, timestamp_ms, self.coding, &self.hash)
    }
}

impl Protocol for Otlp {
    type Writer = Points;

    const SAMPLES: &'static str = "data points";

    fn begin(&self, timestamp_ms: i64) -> Requests<Points> {
        self.requests(timestamp_ms, now_ns())
    }

    fn read(
        &self,
        source: &dyn Source,
        timestamp_ms: i64,
        _: usize,
        series: usize,
    ) -> Result<Vec<Requests<Points>>, quipu::Error> {
        let mut deltas = self.deltas();
        let time_ns = deltas.as_ref().map_or_else(now_ns, |deltas| deltas.next_ns());
        let requests = self.requests(timestamp_ms, time_ns).expecting(series);
        let converter = deltas
            .as_ref()
            .map(|deltas| DeltaConverter::new(&deltas.totals, time_ns, deltas.begun_ns));
        let labels = (&*self.labels, &*self.resource);
        let mut translation = Translation::new(requests, converter, labels);
        source.visit(&mut translation)?;
        let (requests, converter) = translation.into_parts();
        let totals = converter.map(DeltaConverter::finish);
        if let (Some(deltas), Some(totals)) = (&mut deltas, totals) {
            deltas.advance(totals);
        }
        Ok(vec![requests])
    }

    fn judge(&self, body: &Body, response: &Answer) -> Verdict {
        let verdict = verdict::judge(response, body.samples);
        if let Verdict::Taken(rejected, _) = verdict {
            self.rejected.inc_by(rejected);
        }
        verdict
    }

    fn deltas(&self) -> Option<MutexGuard<'_, Deltas>> {
        let deltas = self.deltas.as_ref()?;
        Some(deltas.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
