//! OTLP over HTTP: <https://opentelemetry.io/docs/specs/otlp/>.
//!
//! **Cumulative**, a snapshot has totals. **Delta**, it has what was added since the last one.
//!
//! | file | has |
//! |---|---|
//! | `points.rs` | families as points |
//! | `requests.rs` | points as requests, marks of the end of series |
//! | `resources.rs` | which labels are attributes of a resource |
//! | `growth.rs` | what was added to totals |
//! | `deltas.rs` | what a receiver of deltas has, and what it is owed |
//! | `verdict.rs` | what a response means |

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

/// The settings of OTLP that is sent.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The receivers.
    pub receivers: Vec<ReceiverUrl>,
    /// The time between two snapshots.
    pub interval: Duration,
    /// The moment that sums and histograms count from.
    pub temporality: Temporality,
    /// How requests are compressed.
    pub compression: Compression,
    /// The attributes of all resources, but for those that labels of series replace.
    pub resource: Vec<ResourceAttribute>,
    /// The header fields that users add to requests.
    pub headers: Headers,
    /// The state file; the directory of deltas is next to it.
    pub state: PathBuf,
}

/// The moment that sums and histograms count from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Temporality {
    /// Their start.
    #[default]
    Cumulative,
    /// The last snapshot that was sent.
    Delta,
}

/// How requests are compressed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// By gzip.
    Gzip,
}

/// OTLP to a receiver.
pub(super) struct Otlp {
    labels: Vec<ExternalLabel>,
    resource: Arc<BaseResource>,
    coding: Coding,
    hash: SeededState,
    deltas: Option<Mutex<Deltas>>,
    /// Data points that the receiver has rejected of requests that it took.
    rejected: Counter,
}

impl Otlp {
    /// # Errors
    /// If there are to be deltas, and their queue cannot be used.
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
