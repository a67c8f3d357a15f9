//! Measures the bump allocator, compared to others and the heap.
//!
//! `cargo run --profile default-release -p quipu-bench --bin arena`
//!
//! No counting allocator is installed, because it would slow down the heap.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use clap::builder::PossibleValuesParser;
use quipu_bench::arena::{self, WORKLOADS, Workload};
use quipu_bench::measure::Options;
use quipu_bench::output::{self, Output};
use quipu_bench::progress::Progress;
use quipu_bench::{Error, Result};

/// The name of the report.
const NAME: &str = "arena";

/// Measures the bump allocators and the heap, in rotation.
#[derive(Parser)]
#[command(name = "arena")]
struct Arguments {
    /// The number of runs of each case.
    #[arg(long, default_value_t = 9)]
    runs: u32,
    /// Use a tenth of the time, as a trial.
    #[arg(long)]
    quick: bool,
    /// Measure only this workload. Can be repeated.
    #[arg(long, value_parser = PossibleValuesParser::new(WORKLOADS.iter().map(|(name, _)| *name)))]
    workload: Vec<String>,
    /// Print only the memory of this subject's interned labels.
    #[arg(long, hide = true)]
    resident: Option<String>,
    /// The folder for the records.
    #[arg(long, default_value_os_t = output::default_folder())]
    folder: PathBuf,
}

fn main() -> ExitCode {
    quipu_bench::end(NAME, run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<()> {
    if let Some(subject) = &arguments.resident {
        let bytes = arena::resident(subject);
        let bytes = bytes.ok_or_else(|| Error::report(format!("no subject is named {subject}")))?;
        let _ = writeln!(std::io::stdout(), "{bytes}");
        return Ok(());
    }
    let chosen: Vec<&Workload> = WORKLOADS
        .iter()
        .filter(|(name, _)| {
            arguments.workload.is_empty() || arguments.workload.iter().any(|n| n == name)
        })
        .collect();
    let output = Output::of_profile(&arguments.folder, NAME)?;
    let options = if arguments.quick { Options::quick() } else { Options::default() };
    let options = Options { runs: arguments.runs, ..options };
    let mut progress = Progress::new(chosen.len());
    for (name, workload) in chosen {
        progress.step(name);
        output.push(&workload(&options))?;
    }
    progress.finish("done");
    Ok(())
}
