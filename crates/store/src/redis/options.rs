//! What a store in Redis can be told.

use std::time::Duration;

use quipu::Registry;
use quipu_segment::Segment;

use super::Redis;
use crate::error::Error;

/// How a store in Redis (or Valkey) is made.
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

/// The bytes up to which a segment without a file may grow.
const LIMIT: u64 = 256 << 20;

impl Options {
    /// A server's address: `redis://user:password@host:port/db`, or `unix:///path`.
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

    /// The addresses of some nodes of a cluster, which tell of the others.
    pub fn cluster<S: Into<String>>(urls: impl IntoIterator<Item = S>) -> Self {
        let urls = urls.into_iter().map(Into::into).collect();
        Self { urls, cluster: true, ..Self::new("") }
    }

    /// What all keys begin with: one application, whose instances add up. The default is `quipu`.
    pub fn namespace(mut self, name: impl Into<String>) -> Self {
        self.namespace = name.into();
        self
    }

    /// How often what changed is written. The default is a second.
    pub fn interval(mut self, interval: Duration) -> Self {
        self.interval = interval.max(Duration::from_millis(1));
        self
    }

    /// How often everything is written, changed or not, so that what a server lost without saying
    /// so comes back. The default is a minute.
    pub fn refresh(mut self, interval: Duration) -> Self {
        self.refresh = interval;
        self
    }

    /// How long an instance is not heard of until it is taken for dead and folded. The default is a
    /// minute; it should be many intervals. An instance that is not dead after all comes back.
    pub fn dead_after(mut self, time: Duration) -> Self {
        self.dead_after = time;
        self
    }

    /// For how long an instance that was folded may come back and be counted exactly. The default is
    /// seven days, for which what it had is kept aside in the server.
    pub fn keep_folded(mut self, time: Duration) -> Self {
        self.keep = time;
        self
    }

    /// How long a connection, and an answer, may take. The default is two seconds.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout.max(Duration::from_millis(1));
        self
    }

    /// The longest pause between attempts while the server fails. The default is ten seconds.
    pub fn max_backoff(mut self, time: Duration) -> Self {
        self.backoff = time;
        self
    }

    /// A store whose counts lie in memory that this process shares with the children that it forks
    /// afterwards: make it before the fork. They are one instance, which ends with the last of them.
    ///
    /// # Errors
    /// Those of [`Options::on`], and a system without such memory: only Linux has.
    pub fn open(self) -> Result<Redis, Error> {
        let segment = Segment::anonymous(LIMIT)
            .map_err(|error| Error::because("redis", "no memory to share with children", error))?;
        self.on(Registry::on(segment))
    }

    /// A store whose counts lie in this registry, and with them all others that the registry has:
    /// they are written too. In a file that is shared, all processes that have it are one instance,
    /// and go on as the same after a restart.
    ///
    /// # Errors
    /// An address that is none, a registry in private memory, of which a fork would make two, and
    /// the segment's errors. No connection is made yet: a server that is down is no error.
    pub fn on(self, registry: Registry) -> Result<Redis, Error> {
        Redis::new(self, registry)
    }
}
