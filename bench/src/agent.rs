//! Segments as an operator meets them: on a busy disk, watched by others, and after their process
//! died.

mod inspect;
mod worst;

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::record::Record;
use crate::{Error, Result};

/// Where and how much to measure.
#[derive(Clone, Debug)]
pub struct Bench {
    /// The command line.
    pub quipu: PathBuf,
    /// A folder on a disk.
    pub disk: PathBuf,
    /// The number of rounds.
    pub runs: u32,
    /// The time of a round in which each increment is timed.
    pub worst: Duration,
}

/// A part of the benchmark.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// Its name.
    pub name: &'static str,
    /// Measures it.
    pub run: fn(&Bench) -> Result<Vec<Record>>,
}

/// All workloads, in the order in which they run.
pub const WORKLOADS: [Workload; 2] = [
    Workload { name: "inspect", run: inspect::inspect },
    Workload { name: "worst", run: worst::worst },
];

/// A new folder for the files of a workload.
fn folder(place: &Path) -> Result<tempfile::TempDir> {
    let made = tempfile::Builder::new().prefix("quipu-agent-").tempdir_in(place);
    made.map_err(Error::file("make a folder in", place))
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::report(error.to_string())
}
