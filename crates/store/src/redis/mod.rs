//! Totals over many machines, in Redis or Valkey.
//!
//! Increments go into a segment of this machine, and cost the same as any other increment in a
//! segment. All processes that share the segment are one *instance*. One thread of one of them
//! writes the changed values to the server. The values are absolute and under the name of the
//! instance, so writes are idempotent. The counts of dead instances are folded into an archive. A
//! reader adds up the instances and the archive.
//!
//! ```no_run
//! use quipu_store::redis::RedisOptions;
//! use quipu_store::{Kind, Spec, Store};
//!
//! let store = RedisOptions::new("redis://127.0.0.1/").namespace("shop").open()?;
//! let requests = store.metric(&Spec::new("requests", Kind::Counter).labels(["code"]))?;
//! requests.add(&["200"], 1.0);
//!
//! // What all machines counted, for a scrape.
//! let totals = quipu::Registry::new();
//! totals.register_collector(store.totals()).expect("the registry is new");
//! println!("{}", totals.text());
//! # Ok::<(), quipu_store::Error>(())
//! ```

mod flush;
mod instance;
mod key;
mod link;
mod meta;
mod metric;
mod number;
mod options;
mod read;
mod script;
mod sha1;
mod worker;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use quipu::{Description, Registry};

use self::instance::Instance;
use self::metric::RedisMetric;
pub use self::options::RedisOptions;
pub use self::read::{Sample, Total, Totals};
use self::worker::Worker;
use crate::error::Error;
use crate::interface::{Metric, Spec, Store};
use crate::table::Table;

/// A store of totals in Redis. You can clone it: clones share the store, and dropping the last one
/// flushes once more.
///
/// ```no_run
/// // Not run, because it needs a server.
/// use std::time::Duration;
/// use quipu_store::redis::RedisOptions;
/// use quipu_store::{Kind, Spec, Store};
///
/// let store = RedisOptions::new("redis://127.0.0.1/").namespace("shop").open()?;
/// store.metric(&Spec::new("requests", Kind::Counter))?.add(&[], 1.0);
/// store.flush(Duration::from_secs(5))?;
/// assert!(store.lag() < Duration::from_secs(60));
/// # Ok::<(), quipu_store::Error>(())
/// ```
#[derive(Clone)]
pub struct RedisStore {
    inner: Arc<RedisInner>,
}

struct RedisInner {
    options: RedisOptions,
    registry: Registry,
    metrics: Table<RedisMetric>,
    worker: Arc<Worker>,
    /// Describes metrics to the process that flushes.
    specs: metric::Specs,
    /// The generation of the process that created the store.
    generation: u32,
}

impl RedisStore {
    fn new(options: RedisOptions, registry: Registry) -> Result<Self, Error> {
        for url in &options.urls {
            let checked = ::redis::Client::open(url.as_str());
            checked.map_err(|error| Error::because(url, "not a valid server address", error))?;
        }
        if options.urls.is_empty() {
            return Err(Error::new("redis", "no server address is given; give at least one"));
        }
        if registry.segment().is_private() {
            let reason = "its registry is in private memory, which a fork would turn into two \
                        instances of one name; use a file, or Segment::anonymous";
            return Err(Error::new("redis", reason));
        }
        let instance = Arc::new(Instance::find_or_create(registry.segment(), &options.namespace)?);
        let specs = metric::Specs::register(&registry)?;
        let worker = Arc::new(Worker::new(options.clone(), registry.clone(), instance)?);
        worker.ensure_started();
        let (metrics, generation) = (Table::default(), quipu_segment::generation());
        let inner = RedisInner { options, registry, metrics, worker, specs, generation };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Returns the registry with this instance's counts. If you register other metrics in this
    /// registry, they are written to the server, too.
    pub fn registry(&self) -> &Registry {
        &self.inner.registry
    }

    /// Returns the name of this instance, which is the same in all processes that share the
    /// segment.
    pub fn instance(&self) -> &str {
        self.inner.worker.instance().id()
    }

    /// Waits until the server stores everything that was counted before the call, at most for
    /// `deadline`. Another process can do the writing.
    ///
    /// # Errors
    /// If the deadline passes; the message contains the last error of the server, if there was one.
    pub fn flush(&self, deadline: Duration) -> Result<(), Error> {
        self.inner.worker.flush(deadline)
    }

    /// Returns the totals over all instances. You can read them, or add them to a registry as a
    /// collector. Use another registry than this instance's, because that one contains metrics with
    /// the same names.
    pub fn totals(&self) -> Totals {
        Totals::new(self.inner.options.clone())
    }

    /// Returns the time since the server last acknowledged all changes.
    pub fn lag(&self) -> Duration {
        self.inner.worker.instance().lag()
    }
}

impl crate::interface::sealed::Sealed for RedisStore {}

impl Store for RedisStore {
    fn metric(&self, spec: &Spec) -> Result<Arc<dyn Metric>, Error> {
        self.inner.worker.ensure_started();
        let inner = &self.inner;
        let metric = inner.metrics.get_or_make(spec, || {
            inner.specs.describe(spec);
            RedisMetric::new(spec, &inner.registry, inner.generation, &inner.worker, self.totals())
        })?;
        Ok(metric)
    }

    fn dropped(&self) -> u64 {
        self.inner.worker.dropped().load(Ordering::Relaxed)
    }
}

impl std::fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisStore").field("instance", &self.instance()).finish_non_exhaustive()
    }
}

impl Drop for RedisInner {
    fn drop(&mut self) {
        self.worker.stop();
    }
}

/// Returns the description of a metric about the store itself.
fn own(name: &str, help: &str) -> Description {
    Description::new(format!("{}{name}", meta::OWN), help)
}
