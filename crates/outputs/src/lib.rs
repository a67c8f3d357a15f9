//! What the daemon sends to others: all that `/metrics` shows, by remote write and by OTLP.
//!
//! Each receiver has a thread, or one for each shard, which takes a snapshot into requests and then
//! sends them. It holds nothing while it waits for a receiver.

mod files;
pub mod labels;
pub mod otlp;
mod remote_write;
mod schedule;

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use quipu::Registry;
use quipu::snapshot::Sink;
use tracing::warn;

use labels::ExternalLabel;
use otlp::Exporter;
use quipu_client::ReceiverUrl;
use quipu_client::headers::Headers;
use quipu_client::sender::Client;
use quipu_client::via::Via;
use quipu_translate::rules::{self, Relabelling};
pub use remote_write::Coding;
use remote_write::{Lane, Metrics, Queue, QueueMetrics, Shards, Writer};

/// What is sent.
pub trait Source: Send + Sync {
    /// Whose samples are in it.
    fn via(&self) -> &'static Via;

    /// Passes all families to a sink. It sees a group of series as it was before it was replaced,
    /// or after that.
    ///
    /// # Errors
    /// If the families are inconsistent.
    fn visit(&self, sink: &mut dyn Sink) -> Result<(), quipu::Error>;
}

/// The settings of the outputs.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The receivers of remote write.
    pub receivers: Vec<ReceiverUrl>,
    /// The time between two snapshots.
    pub interval: Duration,
    /// How many requests are sent to a receiver at once.
    pub shards: u8,
    /// Whether exemplars are sent.
    pub exemplars: bool,
    /// How requests of remote write are compressed.
    pub compression: Coding,
    /// Labels of all series, as name and value.
    pub labels: Vec<ExternalLabel>,
    /// The file of rules for all series, which have these labels by then.
    pub relabel: Option<PathBuf>,
    /// Where requests wait for a receiver that takes nothing.
    pub queue: Option<QueueOptions>,
    /// What users add to requests of remote write.
    pub headers: Headers,
    /// What is sent by OTLP.
    pub otlp: otlp::Options,
}

/// The queues on the disk.
#[derive(Debug, Clone)]
pub struct QueueOptions {
    /// Has a folder for each receiver.
    pub directory: PathBuf,
    /// The most bytes for each.
    pub bytes: u64,
}

/// Why the outputs cannot start.
#[derive(Debug)]
pub enum Error {
    /// A receiver needs certificates, and the system has none.
    Certificates(String),
    /// There is no memory for metrics.
    Metrics(quipu::Error),
    /// The rules cannot be used.
    Rules(rules::Error),
    /// A queue cannot be used.
    Queue(String),
    /// The system starts no thread.
    Thread(io::Error),
}

/// The threads that send.
#[derive(Debug)]
pub struct Outputs(Vec<Running>);

#[derive(Debug)]
struct Running {
    receiver: String,
    stop: Sender<()>,
    /// Is disconnected when the thread has ended.
    ended: Receiver<()>,
}

/// How long the daemon waits for the last samples to be sent while it stops.
const LAST: Duration = Duration::from_secs(5);

impl Outputs {
    /// Starts to send what the source has.
    ///
    /// # Errors
    /// [`Error`], which names the remedy.
    pub fn start(
        options: &Options,
        source: Arc<dyn Source>,
        registry: &Registry,
    ) -> Result<Self, Error> {
        let mut all = Self(Vec::new());
        // Each is much code, of which a daemon that sends nothing runs none.
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
        let metrics = Metrics::new(&scope).map_err(Error::Metrics)?;
        let relabelling = relabelling(options, registry)?;
        let queues = options.queue.as_ref().map(|_| QueueMetrics::new(&scope));
        let queues = queues.transpose().map_err(Error::Metrics)?;
        for receiver in &options.receivers {
            let client = Client::new(receiver, options.interval, &options.headers);
            let client = client.map_err(Error::Certificates)?;
            let name = receiver.name();
            let lanes = match (&options.queue, &queues) {
                (Some(queue), Some(metrics)) => {
                    let (metrics, shards) = (metrics.receiver(name), options.shards.max(1));
                    let open = Queue::open(&queue.directory, name, queue.bytes, shards, metrics);
                    Lane::all(open.map_err(Error::Queue)?)
                }
                _ => Vec::new(),
            };
            let (source, rules) = (source.clone(), relabelling.clone());
            let shards = Shards::new(source, options, rules, metrics.receiver(name));
            let (shards, mut lanes) = (Arc::new(shards), lanes.into_iter());
            for shard in 0..shards.count() {
                let (client, shards) = (client.another(), Arc::clone(&shards));
                let writer = Writer::new(client, shards, shard, options.interval, lanes.next());
                self.spawn("remote-write", receiver, move |stopped| writer.run(stopped))?;
            }
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
        let metrics = otlp::Metrics::new(&registry.prefix("quipu")).map_err(Error::Metrics)?;
        for receiver in &options.receivers {
            let client = Client::new(receiver, options.interval, &options.headers);
            let client = client.map_err(Error::Certificates)?;
            let metrics = metrics.receiver(receiver.name());
            let exporter = Exporter::new(client, source.clone(), &all.labels, options, metrics);
            self.spawn("otlp", receiver, move |stopped| exporter.run(stopped))?;
        }
        Ok(())
    }

    /// Starts the thread of a receiver.
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

    /// Has each thread send the last totals, and waits for a few seconds.
    pub fn stop(self) {
        let deadline = Instant::now() + LAST;
        // All are told before the first is waited for.
        let told = self.0.into_iter().map(|Running { receiver, stop, ended }| {
            drop(stop);
            (receiver, ended)
        });
        let mut late = BTreeSet::new();
        for (receiver, ended) in told.collect::<Vec<_>>() {
            let left = deadline.saturating_duration_since(Instant::now());
            let is_late = ended.recv_timeout(left) == Err(RecvTimeoutError::Timeout);
            // Once for all shards.
            if is_late && late.insert(receiver.clone()) {
                warn!(%receiver, "the last totals were not sent in time; the state has them");
            }
        }
    }
}

/// Reads the rules for what is sent, and counts what they do.
fn relabelling(options: &Options, registry: &Registry) -> Result<Option<Arc<Relabelling>>, Error> {
    let Some(path) = &options.relabel else { return Ok(None) };
    let mut rules = Relabelling::read(path).map_err(Error::Rules)?;
    let changed = ("quipu_remote_write_rule_changed", "Samples to send that a rule changed.");
    let dropped = ("quipu_remote_write_rule_dropped", "Samples to send that a rule dropped.");
    rules.count(registry, changed, dropped).map_err(Error::Metrics)?;
    Ok(Some(Arc::new(rules)))
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Certificates(what) => f.write_str(what),
            Self::Metrics(error) => write!(f, "cannot make the metrics of what is sent: {error}"),
            Self::Rules(error) => write!(f, "{error}"),
            Self::Queue(what) => write!(f, "cannot open the queue of remote write: {what}"),
            Self::Thread(error) => {
                write!(f, "the system starts no thread: {error}; raise its limits")
            }
        }
    }
}

impl std::error::Error for Error {}
