//! Measures segments from an operator's view: watched, shown, sent, on a busy disk, and after their
//! process died.
//!
//! `make bench-agent` builds the peers and runs it. If you have built them, you can also run this
//! program directly.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use clap::builder::PossibleValuesParser;
use quipu_bench::agent::{Bench, Child, Kind, Plan, WORKLOADS, Workload, child};
use quipu_bench::output::{self, Output};
use quipu_bench::{Error, Result};

/// The name of the report.
const NAME: &str = "agent";

/// Measures segments from an operator's view, next to the programs that watch and send metrics.
#[derive(Parser)]
#[command(name = "agent")]
struct Arguments {
    /// The number of rounds.
    #[arg(long, default_value_t = 5)]
    runs: u32,
    /// The time of a round of the worst case.
    #[arg(long, default_value = "2m", value_parser = humantime::parse_duration)]
    worst: Duration,
    /// The downtime of the receiver of remote write.
    #[arg(long, default_value = "10m", value_parser = humantime::parse_duration)]
    outage: Duration,
    /// Use short rounds and small states, as a trial.
    #[arg(long)]
    quick: bool,
    /// Measure only this workload, and replace only its records. Can be repeated.
    #[arg(long, value_parser = PossibleValuesParser::new(WORKLOADS.iter().map(|w| w.name)))]
    workload: Vec<String>,
    /// Measure only quipu.
    #[arg(long)]
    alone: bool,
    /// The program of the command line.
    #[arg(long, default_value_os_t = quipu_bench::root().join("target/release/quipu"))]
    quipu: PathBuf,
    /// The folder of the peers written in Go.
    #[arg(long, default_value_os_t = quipu_bench::root().join("target/bench-daemon"))]
    peers: PathBuf,
    /// The Python with prometheus_client.
    #[arg(long, default_value_os_t = quipu_bench::root().join("target/bench-agent/bin/python"))]
    python: PathBuf,
    /// A folder on a disk.
    #[arg(long, default_value_os_t = quipu_bench::root().join("target"))]
    disk: PathBuf,
    /// The folder for the records.
    #[arg(long, default_value_os_t = output::default_folder())]
    folder: PathBuf,
    /// Count as a process of the benchmark.
    #[arg(long, hide = true, requires = "file")]
    child: Option<Kind>,
    /// The file of this process.
    #[arg(long, hide = true)]
    file: Option<PathBuf>,
    /// The number of operations of this process.
    #[arg(long, hide = true, default_value_t = 0)]
    operations: u64,
    /// The pause between two ticks of its recorder.
    #[arg(long, hide = true, default_value = "1s", value_parser = humantime::parse_duration)]
    interval: Duration,
}

fn main() -> ExitCode {
    quipu_bench::end(NAME, run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<()> {
    if let (Some(kind), Some(file)) = (arguments.child, &arguments.file) {
        let (file, operations) = (file.clone(), arguments.operations);
        return child(&Child { kind, file, operations, interval: arguments.interval });
    }
    let absolute = |path: &PathBuf| std::path::absolute(path).map_err(Error::file("find", path));
    let full = Plan::full(arguments.runs.max(1));
    let full = Plan { worst: arguments.worst, outage: arguments.outage, ..full };
    let bench = Bench {
        quipu: absolute(&arguments.quipu)?,
        program: std::env::current_exe()
            .map_err(Error::file("find the program in", Path::new("/proc/self/exe")))?,
        peers: absolute(&arguments.peers)?,
        python: absolute(&arguments.python)?,
        with_peers: !arguments.alone,
        disk: absolute(&arguments.disk)?,
        plan: if arguments.quick { Plan::quick() } else { full },
    };
    let chosen = |workload: &&Workload| {
        arguments.workload.is_empty() || arguments.workload.iter().any(|w| w == workload.name)
    };
    let chosen: Vec<Workload> = WORKLOADS.iter().filter(chosen).copied().collect();
    let output = Output::replace(&arguments.folder, NAME, |record| {
        chosen.iter().any(|workload| workload.has(&record.case))
    })?;
    let mut failures = Vec::new();
    for workload in chosen {
        eprintln!("{}:", workload.name);
        let outcome = (workload.run)(&bench)?;
        output.push(&outcome.records)?;
        failures.extend(outcome.failures);
    }
    match failures.is_empty() {
        true => Ok(()),
        false => Err(Error::report(format!("not measured:\n{}", failures.join("\n")))),
    }
}
