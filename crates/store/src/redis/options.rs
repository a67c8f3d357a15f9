//! [`RedisOptions`] for a store in Redis.

use std::time::Duration;

use quipu::Registry;
use quipu_segment::Segment;

use super::RedisStore;
use crate::error::Error;

/// Options for opening a store in Redis or Valkey.
///
/// ```no_run
/// // Not run, because it needs a server.
/// use std::time::Duration;
/// use quipu_store::redis::RedisOptions;
///
/// let registry = quipu::Registry::open("/dev/shm/shop.quipu")?;
/// let store = RedisOptions::new("redis://127.0.0.1/")
///     .namespace("shop")
///     .interval(Duration::from_secs(5))
///     .open_with_registry(registry)?;
/// assert_eq!(store.totals().read_one("requests")?.map(|total| total.samples.len()), None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "open the store with open or open_with_registry"]
pub struct RedisOptions {
    pub(super) urls: Vec<String>,
    pub(super) cluster: bool,
    pub(super) namespace: String,
    pub(super) interval: Duration,
    pub(super) refresh: Duration,
    pub(super) dead_after: Duration,
    pub(super) keep: Duration,
    pub(super) timeout: Duration,
    pub(super) backoff: Duration,
}

/// The maximum size of a segment without a file, in bytes.
const LIMIT: u64 = 256 << 20;

impl RedisOptions {
    /// Creates options for one server, at `redis://user:password@host:port/db` or `unix:///path`.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            urls: vec![url.into()],
            cluster: false,
            namespace: "quipu".into(),
            interval: Duration::from_secs(1),
            refresh: Duration::from_secs(60),
            dead_after: Duration::from_secs(60),
            keep: Duration::from_secs(7 * 24 * 3600),
            timeout: Duration::from_secs(2),
            backoff: Duration::from_secs(10),
        }
    }

    /// Creates options for a cluster, with the addresses of some of its nodes, which report the
    /// others.
    pub fn cluster<S: Into<String>>(urls: impl IntoIterator<Item = S>) -> Self {
        let urls = urls.into_iter().map(Into::into).collect();
        Self { urls, cluster: true, ..Self::new("") }
    }

    /// Sets the prefix of all keys. The totals of a namespace cover all of its instances, so each
    /// application needs a different namespace, for example its name. The default is `quipu`.
    pub fn namespace(mut self, name: impl Into<String>) -> Self {
        self.namespace = name.into();
        self
    }

    /// Sets how often changed values are written. The default is a second, the minimum a
    /// millisecond.
    pub fn interval(mut self, interval: Duration) -> Self {
        self.interval = interval.max(Duration::from_millis(1));
        self
    }

    /// Sets how often all values are written, changed or not. This restores values that a server
    /// lost silently. The default is a minute.
    pub fn refresh(mut self, interval: Duration) -> Self {
        self.refresh = interval;
        self
    }

    /// Sets how long an instance must be silent to be declared dead and folded. The default is a
    /// minute; set it to many intervals. If an instance turns out to be alive, its fold is undone.
    pub fn dead_after(mut self, time: Duration) -> Self {
        self.dead_after = time;
        self
    }

    /// Sets how long after its fold an instance can return and still be counted exactly. The server
    /// keeps a copy of its values for this time. The default is seven days.
    pub fn keep_folded(mut self, time: Duration) -> Self {
        self.keep = time;
        self
    }

    /// Sets the timeout for connecting, and for each response. The default is two seconds, the
    /// minimum a millisecond.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout.max(Duration::from_millis(1));
        self
    }

    /// Sets the longest pause between attempts while the server fails. The default is ten seconds;
    /// the interval is used if it is longer.
    pub fn max_backoff(mut self, time: Duration) -> Self {
        self.backoff = time;
        self
    }

    /// Opens a store whose counts are in anonymous memory. Children share this memory if you call
    /// this before the fork. Together they are one instance, which ends with the last process.
    ///
    /// # Errors
    /// The errors of [`RedisOptions::open_with_registry`], and an error on systems without such
    /// memory: only Linux supports it.
    pub fn open(&self) -> Result<RedisStore, Error> {
        let segment = Segment::anonymous(LIMIT)
            .map_err(|error| Error::because("redis", "no memory to share with children", error))?;
        self.open_with_registry(Registry::from_segment(segment))
    }

    /// Opens a store whose counts are in this registry. All other metrics of the registry are
    /// written to the server too. If the registry is in a file, all processes that open the file
    /// are one instance, and remain so after a restart.
    ///
    /// # Errors
    /// If an address is invalid; if the registry is in private memory, because a fork would
    /// duplicate it; or if the segment returns an error. No connection is made yet, so a server
    /// that is down is not an error.
    pub fn open_with_registry(&self, registry: Registry) -> Result<RedisStore, Error> {
        RedisStore::new(self.clone(), registry)
    }
}
