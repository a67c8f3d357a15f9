//! Segments from an operator's view: watched by other programs, on a busy disk, and after their
//! process died; compared to the programs that you would use today to watch, collect and send
//! metrics.
//!
//! You can measure each [`Workload`] by itself. The counting programs are this program: its
//! threads, or processes that it starts with `--child`.

mod agents;
mod children;
mod inspect;
mod instructions;
mod programs;
mod receiver;
mod recorder;
mod segments;
mod sending;
mod serving;
mod terminal;
mod times;
mod top;
mod watched;
mod worst;

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::turns::Outcome;
use crate::{Error, Result};

pub use children::{Child, Kind, child};

/// The core of a subject. The load runs on the other core.
const CORE: usize = 0;
const OTHER_CORE: usize = 1;

/// The folder of segment files that must not be on a disk.
const MEMORY: &str = "/dev/shm";

/// The longest wait for the start of a subject, or for its response.
const PATIENCE: Duration = Duration::from_secs(60);

/// The programs to measure, and the amount.
#[derive(Clone, Debug)]
pub struct Bench {
    /// The command line.
    pub quipu: PathBuf,
    /// This program.
    pub program: PathBuf,
    /// The folder of the peers written in Go.
    pub peers: PathBuf,
    /// A Python with prometheus_client installed.
    pub python: PathBuf,
    /// Whether the peers are measured.
    pub with_peers: bool,
    /// A folder on a disk.
    pub disk: PathBuf,
    /// The amount to measure.
    pub plan: Plan,
}

/// The durations and repetitions of a measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// The number of rounds.
    pub runs: u32,
    /// The number of operations for the counts of instructions.
    pub instructions: u64,
    /// The time of a turn that times increments, with or without a watcher.
    pub watched: Duration,
    /// The numbers of series of a segment that is inspected.
    pub inspected: [usize; 2],
    /// The number of series that `quipu top` shows, and the duration.
    pub top: (usize, Duration),
    /// The number of programs, and of the series of each.
    pub programs: [usize; 2],
    /// The scrapes of a turn.
    pub scrapes: u32,
    /// The pause between two sendings.
    pub interval: Duration,
    /// The number of these intervals that are measured.
    pub intervals: u32,
    /// The downtime of the receiver.
    pub outage: Duration,
    /// The time of a round that measures a recorder.
    pub recorder: Duration,
    /// The number of kills of a program with a recorder.
    pub kills: u32,
    /// The time of a round of the worst case.
    pub worst: Duration,
}

impl Plan {
    /// A full measurement.
    pub fn full(runs: u32) -> Plan {
        Plan {
            runs,
            instructions: 2_000_000,
            watched: Duration::from_secs(10),
            inspected: [100_000, 1_000_000],
            top: (100_000, Duration::from_secs(6)),
            programs: [100, 1_000],
            scrapes: 10,
            interval: Duration::from_secs(15),
            intervals: 10,
            outage: Duration::from_secs(600),
            recorder: Duration::from_secs(15),
            kills: 100,
            worst: Duration::from_secs(120),
        }
    }

    /// A trial: short rounds, and small states.
    pub fn quick() -> Plan {
        Plan {
            runs: 1,
            instructions: 20_000,
            watched: Duration::from_millis(500),
            inspected: [1_000, 10_000],
            top: (10_000, Duration::from_secs(1)),
            programs: [10, 100],
            scrapes: 2,
            interval: Duration::from_secs(2),
            intervals: 2,
            outage: Duration::from_secs(6),
            recorder: Duration::from_secs(2),
            kills: 4,
            worst: Duration::from_secs(2),
        }
    }
}

/// A part of the benchmark.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// The name of the part.
    pub name: &'static str,
    /// The beginnings of the cases of its records.
    pub cases: &'static [&'static str],
    /// Measures it.
    pub run: fn(&Bench) -> Result<Outcome>,
}

impl Workload {
    /// Returns whether a case belongs to this workload.
    pub fn has(&self, case: &str) -> bool {
        self.cases.iter().any(|beginning| case.starts_with(beginning))
    }
}

/// All workloads, in the order of their execution.
pub const WORKLOADS: [Workload; 8] = [
    Workload { name: "instructions", cases: &["instructions/"], run: instructions::instructions },
    Workload { name: "watched", cases: &["watched"], run: watched::watched },
    Workload { name: "inspect", cases: &["inspect/"], run: inspect::inspect },
    Workload { name: "top", cases: &["top/"], run: top::top },
    Workload { name: "segments", cases: &["segments/"], run: segments::segments },
    Workload { name: "sending", cases: &["sending/", "outage/"], run: sending::sending },
    Workload { name: "recorder", cases: &["recorder/"], run: recorder::recorder },
    Workload { name: "worst", cases: &["worst case"], run: worst::worst },
];

/// A new folder for the files of a workload.
fn folder(place: &Path) -> Result<tempfile::TempDir> {
    let made = std::fs::create_dir_all(place)
        .and_then(|()| tempfile::Builder::new().prefix("quipu-agent-").tempdir_in(place));
    made.map_err(Error::file("make a folder in", place))
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::report(error.to_string())
}

/// A number with commas: `100,000`.
fn amount(number: usize) -> String {
    quipu_bench_report::report::format::commas(&number.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_of_one_workload() {
        for workload in WORKLOADS {
            for case in workload.cases {
                let all = WORKLOADS.iter().filter(|other| other.has(case));
                assert_eq!(all.count(), 1, "{case}");
            }
        }
    }
}
