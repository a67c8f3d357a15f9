//! The outputs of the daemon: they send all series on `/metrics` to other programs, by remote write
//! and by OTLP.
//!
//! Each receiver is served by one thread per shard. A thread first copies all series into requests,
//! and then sends the requests. No lock is held while a thread waits for a receiver, so a slow
//! receiver never blocks the daemon.

mod backlog;
mod coding;
mod fields;
pub mod labels;
mod metrics;
pub mod otlp;
mod protocol;
mod queue;
mod remote_write;
mod schedule;
mod sender;
pub mod settings;
mod shards;
mod snapshot;

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use quipu::snapshot::Sink;
use quipu::{CounterFamily, Description, IntGaugeFamily, Registry};
use tracing::warn;

use backlog::Backlog;
pub use coding::Coding;
use labels::ExternalLabel;
use metrics::Metrics;
use otlp::{Otlp, Temporality};
use protocol::Protocol;
use queue::{Metrics as QueueMetrics, Queue};
use quipu_client::ReceiverUrl;
use quipu_client::headers::Headers;
use quipu_client::sender::Client;
use quipu_client::via::Via;
use quipu_translate::rules::{self, Relabelling};
use remote_write::RemoteWrite;
pub use remote_write::RemoteWriteFlags;
use sender::Sender;
use shards::Shards;

/// The provider of the families to send; implemented by the daemon.
pub trait Source: Send + Sync {
    /// Returns the daemons that the samples passed through, to detect loops.
    fn via(&self) -> &'static Via;

    /// Passes all families to a sink. A group that is replaced in the meantime appears either in
    /// its old or in its new state.
    ///
    /// # Errors
    /// Fails if the families are inconsistent.
    fn visit(&self, sink: &mut dyn Sink) -> Result<(), quipu::Error>;
}

/// The options of all outputs.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The receivers of remote write.
    pub receivers: Vec<ReceiverUrl>,
    /// The time between two snapshots.
    pub interval: Duration,
    /// The number of shards of each receiver, which send in parallel.
    pub shards: u8,
    /// Whether to send exemplars.
    pub exemplars: bool,
    /// The compression of remote write requests.
    pub compression: Coding,
    /// The labels to add to all series.
    pub labels: Vec<ExternalLabel>,
    /// The path of a file with relabelling rules for all series. The rules also see the added
    /// labels.
    pub relabel: Option<PathBuf>,
    /// The options of the queue on the disk, where requests wait while a receiver is unavailable.
    pub queue: Option<QueueOptions>,
    /// The additional header fields of remote write requests.
    pub headers: Headers,
    /// The settings of OTLP.
    pub otlp: otlp::Options,
}

/// The options of the queues on the disk.
#[derive(Debug, Clone)]
pub struct QueueOptions {
    /// The directory that contains a folder for each receiver.
    pub directory: PathBuf,
    /// The maximum size of each queue in bytes.
    pub bytes: u64,
}

const REMEDY: &str = "give each daemon its own by --remote-write-queue-directory";

/// The reason why the outputs cannot start.
#[derive(Debug)]
pub enum Error {
    /// HTTPS needs trusted certificates, but the system provides none.
    Certificates(String),
    /// There is not enough memory for the metrics.
    Metrics(quipu::Error),
    /// The relabelling rules are invalid.
    Rules(rules::Error),
    /// A queue cannot be used: the protocol, and the error.
    Queue(&'static str, String),
    /// The system cannot create a thread.
    Thread(io::Error),
}

/// The running threads of all outputs.
#[derive(Debug)]
pub struct Outputs(Vec<Running>);

#[derive(Debug)]
struct Running {
    receiver: String,
    stop: mpsc::Sender<()>,
    /// Closed when the thread ends.
    ended: Receiver<()>,
}

/// The time limit for sending the last samples when the daemon stops.
const LAST: Duration = Duration::from_secs(5);

impl Outputs {
    /// Starts the threads that send the families of the source.
    ///
    /// # Errors
    /// Returns an [`Error`] that names the remedy.
    pub fn start(
        options: &Options,
        source: Arc<dyn Source>,
        registry: &Registry,
    ) -> Result<Self, Error> {
        let mut all = Self(Vec::new());
        // We use separate functions because each contains much code, which a daemon without
        // receivers should not load.
        if !options.receivers.is_empty() {
            all.start_remote_write(options, &source, registry)?;
        }
        if !options.otlp.receivers.is_empty() {
            all.start_otlp(options, &source, registry)?;
        }
        Ok(all)
    }

    fn start_remote_write(
        &mut self,
        options: &Options,
        source: &Arc<dyn Source>,
        registry: &Registry,
    ) -> Result<(), Error> {
        let scope = registry.prefix("quipu");
        let of_writes = scope.prefix("remote_write");
        let refused =
            "Samples that the receiver has refused, by status code. They are not sent again.";
        let metrics = Metrics::new(&of_writes, ("samples", "Samples"), refused)?;
        let help =
            "Version of remote write that the receiver accepts: 1 or 2; 0 before it is known.";
        let versions = Description::new("version", help).labels(["receiver"]);
        let versions: IntGaugeFamily<[&'static str; 1]> = of_writes.register(versions)?;
        let relabelling = relabelling(options, registry)?;
        let queues = options.queue.as_ref().map(|_| QueueMetrics::new(&scope));
        let queues = queues.transpose()?;
        let failing = match options.queue {
            Some(_) => "remote write fails; requests wait in the queue",
            None => {
                "remote write fails; the receiver gets the current totals when it takes them again"
            }
        };
        for receiver in &options.receivers {
            let (name, count) = (receiver.name(), options.shards.max(1));
            let queue = options.queue.as_ref().zip(queues.as_ref()).map(|(queue, metrics)| {
                let metrics = metrics.receiver(name);
                Queue::open(&queue.directory, name, queue.bytes, count, metrics, REMEDY)
            });
            let queue = queue.transpose().map_err(|reason| Error::Queue("remote write", reason))?;
            let version = versions.bind(&[name]);
            let protocol = RemoteWrite::new(options, relabelling.clone(), version);
            let (source, metrics) = (source.clone(), metrics.receiver(name));
            let (count, interval) = (count.into(), options.interval);
            let shards = Shards::new(source, protocol, count, interval, metrics, failing);
            let settings = (options.interval, &options.headers);
            self.start_shards("remote-write", receiver, settings, shards, queue)?;
        }
        Ok(())
    }

    fn start_otlp(
        &mut self,
        all: &Options,
        source: &Arc<dyn Source>,
        registry: &Registry,
    ) -> Result<(), Error> {
        let options = &all.otlp;
        let scope = registry.prefix("quipu").prefix("otlp_output");
        let refused = "Data points of requests that the receiver has refused, by status code. They \
                       are not sent again, except for deltas of a snapshot that was refused as a \
                       whole because of the sender.";
        let metrics = Metrics::new(&scope, ("points", "Data points"), refused)?;
        let help = "Data points that the receiver has rejected within accepted requests.";
        let rejected = Description::new("points_rejected", help).labels(["receiver"]);
        let rejected: CounterFamily<[&'static str; 1]> = scope.register(rejected)?;
        let failing = match options.temporality {
            Temporality::Cumulative => "OTLP export failed; will resend the current totals",
            Temporality::Delta => "OTLP export failed; will send these increments later",
        };
        for receiver in &options.receivers {
            let name = receiver.name();
            let protocol = Otlp::new(&all.labels, options, name, rejected.bind(&[name]));
            let protocol = protocol.map_err(|reason| Error::Queue("OTLP", reason))?;
            let (source, metrics) = (source.clone(), metrics.receiver(name));
            let shards = Shards::new(source, protocol, 1, options.interval, metrics, failing);
            let settings = (options.interval, &options.headers);
            self.start_shards("otlp", receiver, settings, shards, None)?;
        }
        Ok(())
    }

    /// Starts the threads of a receiver, one for each shard.
    fn start_shards<P: Protocol>(
        &mut self,
        name: &str,
        receiver: &ReceiverUrl,
        (interval, headers): (Duration, &Headers),
        shards: Shards<P>,
        queue: Option<Queue>,
    ) -> Result<(), Error> {
        let client = Client::new(receiver, interval, headers).map_err(Error::Certificates)?;
        let (shards, queue) = (Arc::new(shards), queue.map(|queue| Arc::new(Mutex::new(queue))));
        for shard in 0..shards.count {
            let backlog = queue.clone().map(|queue| Backlog::new(queue, shard as u8));
            let (client, shards) = (client.another(), Arc::clone(&shards));
            let sender = Sender::new(client, shards, shard, interval, backlog);
            self.spawn(name, receiver, move |stopped| sender.run(stopped))?;
        }
        Ok(())
    }

    /// Starts the thread of one shard.
    fn spawn(
        &mut self,
        name: &str,
        receiver: &ReceiverUrl,
        run: impl FnOnce(&Receiver<()>) + Send + 'static,
    ) -> Result<(), Error> {
        let receiver = receiver.name().to_owned();
        let (stop, stopped) = mpsc::channel();
        let (running, ended) = mpsc::channel::<()>();
        let run = move || {
            run(&stopped);
            drop(running);
        };
        let thread = thread::Builder::new().name(name.into()).spawn(run);
        thread.map_err(Error::Thread)?;
        self.0.push(Running { receiver, stop, ended });
        Ok(())
    }

    /// Stops the threads. Each first sends the last totals; this waits for a few seconds at most.
    pub fn stop(self) {
        let deadline = Instant::now() + LAST;
        // Signal all threads before waiting for the first.
        let told = self.0.into_iter().map(|Running { receiver, stop, ended }| {
            drop(stop);
            (receiver, ended)
        });
        let mut late = BTreeSet::new();
        for (receiver, ended) in told.collect::<Vec<_>>() {
            let left = deadline.saturating_duration_since(Instant::now());
            let is_late = ended.recv_timeout(left) == Err(RecvTimeoutError::Timeout);
            // Log this only once for all shards.
            if is_late && late.insert(receiver.clone()) {
                warn!(%receiver, "the last totals were not sent in time; the state has them");
            }
        }
    }
}

/// Returns the path of the state file with a suffix, for a neighbouring file.
fn next_to(state: &Path, end: &str) -> PathBuf {
    let mut path = state.as_os_str().to_owned();
    path.push(end);
    path.into()
}

/// Reads the relabelling rules, and registers the metrics that count their effects.
fn relabelling(options: &Options, registry: &Registry) -> Result<Option<Arc<Relabelling>>, Error> {
    let Some(path) = &options.relabel else { return Ok(None) };
    let mut rules = Relabelling::read(path).map_err(Error::Rules)?;
    let changed = ("quipu_remote_write_rule_changed", "Samples to send that a rule changed.");
    let dropped = ("quipu_remote_write_rule_dropped", "Samples to send that a rule dropped.");
    rules.count(registry, changed, dropped)?;
    Ok(Some(Arc::new(rules)))
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Certificates(reason) => f.write_str(reason),
            Self::Metrics(error) => write!(f, "cannot make the metrics of what is sent: {error}"),
            Self::Rules(error) => write!(f, "{error}"),
            Self::Queue(protocol, reason) => {
                write!(f, "cannot open the queue of {protocol}: {reason}")
            }
            Self::Thread(error) => {
                write!(f, "the system starts no thread: {error}; raise its limits")
            }
        }
    }
}

impl std::error::Error for Error {}

impl From<quipu::Error> for Error {
    fn from(error: quipu::Error) -> Self {
        Self::Metrics(error)
    }
}
