//! [`Options`], with which a store in Redis is opened.

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
/// use quipu_store::redis::Options;
///
/// let registry = quipu::Registry::open("/dev/shm/shop.quipu")?;
/// let store = Options::new("redis://127.0.0.1/")
///     .namespace("shop")
///     .interval(Duration::from_secs(5))
///     .open_with_registry(registry)?;
/// assert_eq!(store.totals().read_one("requests")?.map(|total| total.samples.len()), None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Options {
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

impl Options {
    /// Options for one server, at `redis://user:password@host:port/db` or `unix:///path`.
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

    /// Options for a cluster, with the addresses of some of its nodes, which report the others.
    pub fn cluster<S: Into<String>>(urls: impl IntoIterator<Item = S>) -> Self {
        let urls = urls.into_iter().map(Into::into).collect();
        Self { urls, cluster: true, ..Self::new("") }
    }

    /// The prefix of all keys. The totals of a namespace cover all of its instances, so each
    /// application needs its own. The default is `quipu`.
    pub fn namespace(mut self, name: impl Into<String>) -> Self {
        self.namespace = name.into();
        self
    }

    /// How often changed values are written. The default is a second, the minimum a millisecond.
    pub fn interval(mut self, interval: Duration) -> Self {
        self.interval = interval.max(Duration::from_millis(1));
        self
    }

    /// How often all values are written, changed or not, which restores values that a server lost
    /// silently. The default is a minute.
    pub fn refresh(mut self, interval: Duration) -> Self {
        self.refresh = interval;
        self
    }

    /// How long an instance must be silent to be declared dead and folded. The default is a minute;
    /// set it to many intervals. An instance that turns out to be alive comes back.
    pub fn dead_after(mut self, time: Duration) -> Self {
        self.dead_after = time;
        self
    }

    /// How long after it was folded an instance may come back and still be counted exactly. The
    /// server keeps a copy of its values for that time. The default is seven days.
    pub fn keep_folded(mut self, time: Duration) -> Self {
        self.keep = time;
        self
    }

    /// The timeout for connecting, and for each response. The default is two seconds, the minimum a
    /// millisecond.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout.max(Duration::from_millis(1));
        self
    }

    /// The longest pause between attempts while the server fails. The default is ten seconds; the
    /// interval is used if it is longer.
    pub fn max_backoff(mut self, time: Duration) -> Self {
        self.backoff = time;
        self
    }

    /// Opens a store whose counts are in anonymous memory, which children that are forked later
    /// share: call this before the fork. Together they are one instance, which ends with the last
    /// of them.
    ///
    /// # Errors
    /// The errors of [`Options::open_with_registry`], and a system without such memory: only Linux
    /// has it.
    pub fn open(self) -> Result<RedisStore, Error> {
        let segment = Segment::anonymous(LIMIT)
            .map_err(|error| Error::because("redis", "no memory to share with children", error))?;
        self.open_with_registry(Registry::from_segment(segment))
    }

    /// Opens a store whose counts are in this registry. All other metrics of the registry are
    /// written to the server too. If the registry is in a file, all processes that open the file
    /// are one instance, and remain so after a restart.
    ///
    /// # Errors
    /// An invalid address, a registry in private memory, which a fork would duplicate, and the
    /// segment's errors. No connection is made yet, so a server that is down is not an error.
    pub fn open_with_registry(self, registry: Registry) -> Result<RedisStore, Error> {
        RedisStore::new(self, registry)
    }
}
