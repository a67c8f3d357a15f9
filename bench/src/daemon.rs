//! The daemon, compared to programs that accept the same metrics.
//!
//! A [`Workload`] consists of turns: a subject, which is quipu or a peer, under one load. Each turn
//! starts a new process on the first core, with an empty state, and the load is generated on the
//! second. Losses are counted on both sides: the sent lines are compared with the subject's
//! exposition.

mod exposition;
mod goals;
mod imports;
mod kills;
mod memory;
mod overload;
mod packets;
mod pushes;
mod requests;
mod search;
mod series;
mod starts;
mod statsd;
mod subject;
mod ways;

use std::path::PathBuf;
use std::time::Duration;

use crate::{Error, Result};

pub use crate::turns::Outcome;
pub use goals::ratios;
pub use subject::Program;

/// The core of the subject. The load runs on the other core.
const CORE: usize = 0;
const LOAD_CORE: usize = 1;

/// The programs to measure, and the amount.
#[derive(Clone, Debug)]
pub struct Bench {
    /// The program of the daemon.
    pub quipu: PathBuf,
    /// The folder of the peers that were built.
    pub peers: PathBuf,
    /// The peers to measure.
    pub chosen: Vec<Program>,
    /// A folder on a disk, for states.
    pub disk: PathBuf,
    /// The amount to measure.
    pub plan: Plan,
}

impl Bench {
    /// Returns whether a program is measured.
    fn has(&self, program: Program) -> bool {
        program == Program::Quipu || self.chosen.contains(&program)
    }

    /// A new folder for the files of a turn.
    fn folder(&self) -> Result<tempfile::TempDir> {
        let failed = Error::file("make a folder in", &self.disk);
        std::fs::create_dir_all(&self.disk)
            .and_then(|()| tempfile::Builder::new().prefix("quipu-daemon-").tempdir_in(&self.disk))
            .map_err(failed)
    }
}

/// The durations and repetitions of a measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// The number of turns of each subject.
    pub runs: u32,
    /// The time of one load.
    pub load: Duration,
    /// The number of loads in a search for the greatest rate.
    pub probes: u32,
    /// The number of prepared requests of remote write.
    pub requests: usize,
    /// The lesser number of series, and the greater one.
    pub series: [usize; 2],
    /// The number of series of the greatest states.
    pub most_series: usize,
    /// The numbers of groups in the cases of pushes.
    pub groups: [usize; 3],
    /// The number of kills of quipu, and of a peer.
    pub kills: [u32; 2],
    /// The duration of an overload.
    pub overload: Duration,
}

impl Plan {
    /// A full measurement, with this number of turns.
    pub fn full(runs: u32) -> Plan {
        Plan {
            runs,
            load: Duration::from_secs(2),
            probes: 7,
            requests: 4_000,
            series: [1_000, 100_000],
            most_series: 1_000_000,
            groups: [1, 100, 10_000],
            kills: [100, 10],
            overload: Duration::from_secs(5),
        }
    }

    /// A trial: short loads, and small states.
    pub fn quick() -> Plan {
        Plan {
            runs: 1,
            load: Duration::from_millis(300),
            probes: 3,
            requests: 400,
            series: [1_000, 10_000],
            most_series: 50_000,
            groups: [1, 10, 200],
            kills: [3, 1],
            overload: Duration::from_millis(800),
        }
    }
}

/// A kind of load.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// The name of the load.
    pub name: &'static str,
    /// Measures it.
    pub run: fn(&Bench) -> Result<Outcome>,
}

/// All workloads, in the order of their execution.
pub const WORKLOADS: [Workload; 8] = [
    Workload { name: "statsd", run: statsd::statsd },
    Workload { name: "remote-write", run: imports::remote_write },
    Workload { name: "import", run: imports::text },
    Workload { name: "push", run: pushes::pushes },
    Workload { name: "memory", run: memory::memory },
    Workload { name: "overload", run: overload::overload },
    Workload { name: "start", run: starts::starts },
    Workload { name: "kills", run: kills::kills },
];
