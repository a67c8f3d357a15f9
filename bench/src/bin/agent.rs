//! Measures segments as an operator meets them.
//!
//! `make bench-agent` runs it.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use clap::builder::PossibleValuesParser;
use quipu_bench::Result;
use quipu_bench::agent::{Bench, WORKLOADS};
use quipu_bench::output::{self, Output};

/// The name of the report.
const NAME: &str = "agent";

/// Measures segments on a busy disk.
#[derive(Parser)]
#[command(name = "agent")]
struct Arguments {
    /// The number of rounds.
    #[arg(long, default_value_t = 5)]
    runs: u32,
    /// The time of a round of the worst case.
    #[arg(long, default_value = "2m", value_parser = humantime::parse_duration)]
    worst: Duration,
    /// Use short rounds, as a trial.
    #[arg(long)]
    quick: bool,
    /// Measure only this workload. May be repeated.
    #[arg(long, value_parser = PossibleValuesParser::new(WORKLOADS.iter().map(|w| w.name)))]
    workload: Vec<String>,
    /// The program of the command line.
    #[arg(long, default_value_os_t = quipu_bench::root().join("target/release/quipu"))]
    quipu: PathBuf,
    /// A folder on a disk.
    #[arg(long, default_value_os_t = quipu_bench::root().join("target"))]
    disk: PathBuf,
    /// The folder for the records.
    #[arg(long, default_value_os_t = output::default_folder())]
    folder: PathBuf,
}

fn main() -> ExitCode {
    quipu_bench::end(NAME, run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<()> {
    let quick = Duration::from_secs(2);
    let bench = Bench {
        quipu: arguments.quipu.clone(),
        disk: arguments.disk.clone(),
        runs: if arguments.quick { 1 } else { arguments.runs.max(1) },
        worst: if arguments.quick { quick } else { arguments.worst },
    };
    let output = Output::create(&arguments.folder, NAME)?;
    for workload in WORKLOADS {
        if arguments.workload.is_empty() || arguments.workload.iter().any(|w| w == workload.name) {
            eprintln!("{}:", workload.name);
            output.push(&(workload.run)(&bench)?)?;
        }
    }
    Ok(())
}
