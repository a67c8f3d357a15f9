//! Measures the bump allocator beside others and the heap.
//!
//! `cargo run --release -p quipu-bench --bin arena`
//!
//! No allocator is installed that counts: the heap's own time is measured.

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
    /// How often each case runs.
    #[arg(long, default_value_t = 9)]
    runs: u32,
    /// Take a tenth of the time, to try it out.
    #[arg(long)]
    quick: bool,
    /// Measure this workload only. May be given more than once.
    #[arg(long, value_parser = PossibleValuesParser::new(WORKLOADS.iter().map(|(name, _)| *name)))]
    workload: Vec<String>,
    /// Print the memory of this subject's interned labels, and do nothing else.
    #[arg(long, hide = true)]
    resident: Option<String>,
    /// Where the records go.
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
    let output = Output::create(&arguments.folder, NAME)?;
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
