//! Generates the tables and plots of benchmarks from their records, or compares them.
//!
//! `make pages` writes all of them, and `make lint` compares.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use quipu_bench_report::report::{self, Report};
use quipu_bench_report::{Result, root};

/// Generates docs/benchmarks/NAME.md and its plots from NAME.jsonl and bench/reports/NAME.md.
#[derive(Parser)]
#[command(name = "report")]
struct Arguments {
    /// The benchmarks to report on; all if you give no name.
    names: Vec<String>,
    /// Write no file, and fail if a page of the checkout differs from the generated one.
    #[arg(long, conflicts_with_all = ["names", "folder", "template"])]
    check: bool,
    /// The folder of the records and the report, instead of docs/benchmarks.
    #[arg(long)]
    folder: Option<PathBuf>,
    /// The template, instead of bench/reports/NAME.md.
    #[arg(long)]
    template: Option<PathBuf>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = if arguments.check { check() } else { write(&arguments) };
    result.unwrap_or_else(|error| {
        eprintln!("report: {error}");
        ExitCode::FAILURE
    })
}

fn write(arguments: &Arguments) -> Result<ExitCode> {
    let reports = if arguments.names.is_empty() {
        Report::all()?
    } else {
        arguments.names.iter().map(|name| Report::of(name)).collect()
    };
    for mut report in reports {
        if let Some(folder) = &arguments.folder {
            report = report.folder(folder);
        }
        if let Some(template) = &arguments.template {
            report = report.template(template);
        }
        for path in report.write()? {
            eprintln!("wrote {}", path.display());
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn check() -> Result<ExitCode> {
    let stale = report::stale()?;
    for path in &stale {
        let path = path.strip_prefix(root()).unwrap_or(path);
        eprintln!(
            "{} differs from its records and its text in bench/reports: `make pages` writes it, \
             and a file that no report generates is to be deleted",
            path.display()
        );
    }
    Ok(if stale.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
