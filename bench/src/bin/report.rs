//! Generates the tables and plots of a benchmark from its records.
//!
//! `cargo run --profile default-release -p quipu-bench --bin report -- NAME...`

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use quipu_bench::report::Report;

/// Generates docs/benchmarks/NAME.md and its plots from NAME.jsonl and bench/reports/NAME.md.
#[derive(Parser)]
#[command(name = "report")]
struct Arguments {
    /// The benchmarks to report on.
    #[arg(required = true)]
    names: Vec<String>,
    /// The folder of the records and the report, instead of docs/benchmarks.
    #[arg(long)]
    folder: Option<PathBuf>,
    /// The text with placeholders, instead of bench/reports/NAME.md.
    #[arg(long)]
    template: Option<PathBuf>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    for name in &arguments.names {
        let mut report = Report::of(name);
        if let Some(folder) = &arguments.folder {
            report = report.folder(folder);
        }
        if let Some(template) = &arguments.template {
            report = report.template(template);
        }
        match report.write() {
            Ok(paths) => paths.iter().for_each(|path| eprintln!("wrote {}", path.display())),
            Err(error) => {
                eprintln!("report {name}: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}
