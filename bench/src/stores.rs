//! Stores for the processes of one application: quipu's, compared to the stores that users of Ruby
//! and of Python use today.
//!
//! Programs in three languages take turns at a [`Workload`] and measure themselves: this one, and
//! the programs in `peers/ruby` and `peers/python`. The workloads include the six original
//! benchmarks: a raw hash, keys as strings, system calls, Redis, threads, and stores with many
//! metrics. This benchmark started from them.

mod children;
mod increments;
mod metrics;
mod ours;
mod peers;
mod raw;
mod recorded;
mod redis_server;
mod redis_store;
mod respawns;
mod scrape;
mod workers;

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::Result;
use crate::measure::Options;
use crate::record::Record;

pub use peers::{Language, Peers};
pub use recorded::{drop_in, recorded};
pub use redis_server::RedisServer;

/// The amount to measure in a turn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// The duration of a loop.
    pub run_time: Duration,
    /// The highest number of dead workers before a scrape.
    pub dead: usize,
    /// The number of timed scrapes.
    pub scrapes: u32,
    /// The number of workers that start and end.
    pub respawns: usize,
}

impl Plan {
    /// A full turn.
    pub fn full() -> Plan {
        Plan { run_time: Duration::from_millis(60), dead: 500, scrapes: 15, respawns: 10_000 }
    }

    /// A turn of a second, to try out the benchmark.
    pub fn quick() -> Plan {
        Plan { run_time: Duration::from_millis(4), dead: 60, scrapes: 2, respawns: 200 }
    }

    fn options(self) -> Options {
        Options { runs: 1, run_time: self.run_time }
    }
}

/// The folders for the files of a turn, and the servers and programs that it can use.
#[derive(Clone, Debug)]
pub struct Places {
    /// A folder in memory.
    pub tmpfs: PathBuf,
    /// A folder on a disk.
    pub disk: PathBuf,
    /// The socket of a Redis server that is private to the benchmark.
    pub redis: PathBuf,
    /// The port of the same server.
    pub redis_port: u16,
    /// The program of the daemon, for `quipu expose`.
    pub quipu: PathBuf,
}

impl Places {
    /// An empty folder in another one.
    fn fresh(&self, folder: &Path) -> tempfile::TempDir {
        tempfile::tempdir_in(folder).expect("a folder for temporary files takes one")
    }
}

/// A task to measure, and the contenders in other languages.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// The name of the task.
    pub name: &'static str,
    /// Whether it is measured in rounds, because a drift of the machine then affects all equally.
    /// Otherwise there is one turn, which repeats itself.
    pub in_rounds: bool,
    /// The contenders of Ruby.
    pub ruby: &'static [&'static str],
    /// The contenders of Python.
    pub python: &'static [&'static str],
    /// The turn of this program.
    pub rust: fn(Plan, &Places) -> Result<Vec<Record>>,
}

/// All workloads, in the order of their execution.
pub const WORKLOADS: [Workload; 12] = [
    Workload {
        name: "raw_hash",
        in_rounds: true,
        ruby: &["raw"],
        python: &["raw"],
        rust: raw::hash,
    },
    Workload { name: "keys", in_rounds: true, ruby: &["raw"], python: &["raw"], rust: raw::keys },
    Workload {
        name: "system_calls",
        in_rounds: true,
        ruby: &["raw"],
        python: &["raw"],
        rust: raw::system_calls,
    },
    Workload { name: "redis", in_rounds: true, ruby: &["raw"], python: &[], rust: raw::redis },
    Workload {
        name: "redis_store",
        in_rounds: false,
        ruby: &[],
        python: &[],
        rust: redis_store::redis_store,
    },
    Workload {
        name: "increments",
        in_rounds: true,
        ruby: &[
            "quipu",
            "quipu-store",
            "quipu-client-ruby",
            "nothing",
            "hash",
            "synchronized",
            "no-store",
            "mmap",
            "direct-file-store",
            "pstore",
            "redis",
        ],
        python: &["quipu", "quipu-install", "prometheus-client", "multi-process"],
        rust: increments::increments,
    },
    Workload {
        name: "threads",
        in_rounds: true,
        ruby: &[
            "quipu",
            "quipu-client-ruby",
            "hash",
            "synchronized",
            "mmap",
            "direct-file-store",
            "pstore",
            "redis",
        ],
        python: &["quipu", "quipu-install", "prometheus-client", "multi-process"],
        rust: increments::threads,
    },
    Workload {
        name: "workers",
        in_rounds: true,
        ruby: &["quipu", "quipu-client-ruby", "mmap", "direct-file-store"],
        python: &["quipu", "quipu-install", "multi-process"],
        rust: workers::workers,
    },
    Workload {
        name: "stores",
        in_rounds: true,
        ruby: &[
            "quipu",
            "quipu-client-ruby",
            "nothing",
            "hash",
            "synchronized",
            "mmap",
            "direct-file-store",
            "pstore",
            "redis",
        ],
        python: &["quipu", "quipu-install", "prometheus-client", "multi-process"],
        rust: increments::stores,
    },
    Workload {
        name: "scrape",
        in_rounds: false,
        ruby: &["quipu", "quipu-client-ruby", "mmap", "direct-file-store"],
        python: &["quipu", "quipu-install", "multi-process"],
        rust: scrape::scrape,
    },
    Workload {
        name: "metrics",
        in_rounds: true,
        ruby: &["quipu", "quipu-client-ruby", "mmap", "direct-file-store"],
        python: &["quipu", "quipu-install", "prometheus-client", "multi-process"],
        rust: metrics::metrics,
    },
    Workload {
        name: "respawns",
        in_rounds: false,
        ruby: &["mmap", "direct-file-store"],
        python: &["multi-process"],
        rust: respawns::respawns,
    },
];
