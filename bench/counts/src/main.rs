//! Counts the instructions of quipu's hottest operations, and of `quipu-arena` and its peers, and
//! records or checks them. The crate `quipu-bench-report` writes the tables.
//!
//! `cargo run -p quipu-bench-counts -- check`. It needs valgrind.

mod callgrind;
mod check;
mod hottest;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use quipu_bench_report::counts::figures::{Figures, Setting};
use quipu_bench_report::counts::hottest::Hottest;
use quipu_bench_report::counts::{self, table};
use quipu_bench_report::{Error, Result, output, root};

use callgrind::Profile;

#[derive(Parser)]
#[command(name = "counts", about = "Counts instructions of quipu and of bump allocators.")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Count everything, and record the figures.
    Measure,
    /// Count everything, and fail if a figure rose, or if an arena's is above a peer that does the
    /// same.
    Check,
}

fn main() -> ExitCode {
    match run(&Arguments::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("counts: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: &Command) -> Result<ExitCode> {
    let folder = output::default_folder();
    let (arena, hottest) = (counts::arena_path(&folder), counts::hottest_path(&folder));
    match command {
        Command::Measure => {
            arenas(root())?.write(&arena)?;
            hottest::count_both(root())?.write(&hottest)?;
        }
        Command::Check => {
            let before = Figures::read(&arena)?;
            let figures = arenas(root())?;
            is_comparable(&figures.setting, &before.setting, "figures");
            say(&table::render(&figures, "standing").unwrap_or_default());
            let mut losses = check::losses(&figures, &before);
            let now = hottest::count(root())?;
            say(&now.table());
            losses.extend(hottest::losses(&now, &Hottest::read(&hottest)?));
            for loss in &losses {
                eprintln!("counts: {loss}");
            }
            if !losses.is_empty() {
                return Ok(ExitCode::FAILURE);
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns whether two settings are comparable; if not, writes a notice.
fn is_comparable(now: &Setting, recorded: &Setting, figures: &str) -> bool {
    let comparable = now.comparable(recorded);
    if !comparable {
        eprintln!(
            "counts: NOT COMPARED with the recorded {figures}, which another compiler, libc or \
             valgrind counted; `make record-counts` records new ones"
        );
    }
    comparable
}

/// Counts every case of every bump allocator.
fn arenas(root: &Path) -> Result<Figures> {
    let counted = callgrind::count(root, "arena", Profile::Default)?;
    let mut counts = BTreeMap::new();
    for cell in counted {
        let Some((case, library)) = cell.name.split_once('-') else {
            return Err(Error::report(format!("{} names no case and library", cell.name)));
        };
        counts.insert((case.to_owned(), library.to_owned()), cell.total);
    }
    Ok(Figures { setting: callgrind::setting(root)?, counts })
}

fn say(text: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}
