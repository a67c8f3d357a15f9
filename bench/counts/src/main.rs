//! Counts the instructions of quipu's hottest operations, and those of `quipu-arena` and its peers;
//! checks them, and writes the tables.
//!
//! `cargo run -p quipu-bench-counts -- check`. It needs valgrind.

mod callgrind;
mod check;
mod error;
mod figures;
mod hottest;
mod table;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use callgrind::Profile;
use error::{Error, Result};
use figures::Figures;

#[derive(Parser)]
#[command(name = "counts", about = "Counts instructions of quipu and of bump allocators.")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Count everything, record the figures, and write the tables.
    Measure,
    /// Count everything, and fail if a figure rose, or if an arena's is above that of a peer that
    /// does the same.
    Check,
    /// Write the tables of the recorded figures.
    Write,
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
    let root = root();
    let kept = root.join("docs/benchmarks/arena-counts.jsonl");
    match command {
        Command::Measure => {
            let figures = arenas(&root)?;
            figures.write(&kept)?;
            table::write_all(&root, &figures)?;
            say(&table::all_rows(&figures));
            let hottest = hottest::count_both(&root)?;
            hottest.write(&root)?;
            say(&hottest.table());
        }
        Command::Check => {
            let before = Figures::read(&kept)?;
            let figures = arenas(&root)?;
            figures.setting.compare(&before.setting, "figures");
            say(&check::summary(&figures));
            let mut losses = check::losses(&figures, &before);
            let hottest = hottest::count(&root)?;
            say(&hottest.table());
            losses.extend(hottest.losses(&hottest::Hottest::read(&root)?));
            for loss in &losses {
                eprintln!("counts: {loss}");
            }
            if !losses.is_empty() {
                return Ok(ExitCode::FAILURE);
            }
        }
        Command::Write => {
            table::write_all(&root, &Figures::read(&kept)?)?;
            hottest::Hottest::read(&root)?.write(&root)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Counts every case of every bump allocator.
fn arenas(root: &Path) -> Result<Figures> {
    let counted = callgrind::count(root, "arena", Profile::Default)?;
    let mut counts = BTreeMap::new();
    for cell in counted {
        let Some((case, library)) = cell.name.split_once('-') else {
            return Err(Error::Content(
                cell.name.into(),
                "does not name a case and a library".into(),
            ));
        };
        counts.insert((case.to_owned(), library.to_owned()), cell.total);
    }
    Ok(Figures { setting: callgrind::setting(root)?, counts })
}

fn say(text: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}

/// The root of the checkout.
fn root() -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    folder.ancestors().nth(2).unwrap_or(folder).to_path_buf()
}
