//! Counts the instructions of `quipu-arena` and of its peers, checks them, and writes the tables.
//!
//! `cargo run --release -p quipu-bench-callgrind -- check`
//!
//! It needs valgrind. The runner of gungraun is installed into `target/tools` when it is missing.

mod check;
mod error;
mod figures;
mod measure;
mod table;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use error::Result;
use figures::Figures;

#[derive(Parser)]
#[command(name = "arena-table", about = "Counts the instructions of bump allocators.")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Count all cells, record the figures, and write the tables.
    Measure,
    /// Count all cells, and fail if one of ours is above the lowest peer or the recorded figure.
    Check,
    /// Write the tables of the recorded figures.
    Write,
}

fn main() -> ExitCode {
    match run(&Arguments::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("arena-table: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: &Command) -> Result<ExitCode> {
    let root = root();
    let kept = root.join("docs/benchmarks/arena-counts.jsonl");
    match command {
        Command::Measure => {
            let figures = measure::all(&root)?;
            figures.write(&kept)?;
            table::write_all(&root, &figures)?;
            let mut out = std::io::stdout().lock();
            let _ = writeln!(out, "{}", table::all_rows(&figures));
        }
        Command::Check => {
            let before = Figures::read(&kept)?;
            let figures = measure::all(&root)?;
            if !figures.setting.comparable(&before.setting) {
                eprintln!(
                    "arena-table: NOT COMPARED with the recorded figures, which another compiler, \
                     libc, valgrind or CPU counted; `make bench-arena` records new ones"
                );
            }
            let losses = check::losses(&figures, &before);
            let mut out = std::io::stdout().lock();
            let _ = writeln!(out, "{}", check::summary(&figures));
            if !losses.is_empty() {
                for loss in &losses {
                    eprintln!("arena-table: {loss}");
                }
                return Ok(ExitCode::FAILURE);
            }
        }
        Command::Write => table::write_all(&root, &Figures::read(&kept)?)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The root of the checkout.
fn root() -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    folder.ancestors().nth(2).unwrap_or(folder).to_path_buf()
}
