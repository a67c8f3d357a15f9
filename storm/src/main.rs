//! Fault injection for processes in Rust, Ruby and Python that count in one segment. At random, a
//! process is killed, stopped, forked, limited, or given another clock; the file system is full or
//! read-only; the file is copied, restored, or opened by all processes at once. A model in the
//! driver knows the acknowledged operations.
//!
//! You can run it with `make storm ROUNDS=10000 SEED=1`. The last line of the output contains the
//! numbers of rounds, acknowledged, lost, doubled, hung and died. The storm fails unless the last
//! four are 0.

#![allow(clippy::print_stdout, reason = "printing is its purpose")]

mod disk;
mod model;
mod power;
mod process;
mod sequence;
mod storm;
mod worker;

use std::error::Error;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::model::Command;
use crate::power::Power;
use crate::process::Language;

#[derive(Parser)]
#[command(about = "Injects random faults into processes that count in one segment")]
struct Flags {
    #[command(subcommand)]
    command: What,
}

#[derive(Subcommand)]
enum What {
    /// Run the storm.
    Run(Run),
    /// Simulate power loss at many moments.
    Power(Power),
    #[command(hide = true)]
    PowerWorker { directory: PathBuf, tag: u64, seed: u64, count: u64 },
    #[command(hide = true)]
    PowerReader { file: PathBuf },
    /// Count, as the driver commands on standard input.
    #[command(hide = true)]
    Worker { directory: PathBuf },
    /// Print the contents of the segment.
    #[command(hide = true)]
    Read {
        directory: PathBuf,
        /// Afterwards, remove the series that commands created.
        #[arg(long)]
        forget: bool,
    },
}

/// Options of the storm.
#[derive(Args, Clone)]
pub(crate) struct Run {
    /// The number of rounds, each with at least one fault.
    #[arg(long, default_value_t = 200)]
    pub(crate) rounds: u64,
    /// The seed of all random choices; 0 draws one.
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
    /// The languages of the workers, assigned in turn.
    #[arg(long, value_delimiter = ',', default_value = "rust,python,ruby,rust")]
    pub(crate) languages: Vec<Language>,
    /// The Python interpreter that has the wheel installed.
    #[arg(long, default_value = "python3")]
    pub(crate) python: PathBuf,
    /// The Ruby interpreter.
    #[arg(long, default_value = "ruby")]
    pub(crate) ruby: PathBuf,
    /// The folder of the compiled gem.
    #[arg(long, default_value = "bindings/ruby")]
    pub(crate) gem: PathBuf,
    /// The folder of the Python and Ruby workers.
    #[arg(long, default_value = "storm/workers")]
    pub(crate) workers: PathBuf,
}

fn main() -> ExitCode {
    let result = match Flags::parse().command {
        What::Run(flags) => {
            disk::enter_namespace().map_err(Into::into).and_then(|()| storm::run(&flags))
        }
        What::Power(flags) => power::run(&flags),
        What::PowerWorker { directory, tag, seed, count } => {
            power::work(&directory, Command { tag, seed, count }).map(|()| true)
        }
        What::PowerReader { file } => power::show(&file).map(|()| true),
        What::Worker { directory } => worker::run(&directory).map(|()| true),
        What::Read { directory, forget } => read(&directory, forget).map(|()| true),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("storm: {error}");
            ExitCode::from(2)
        }
    }
}

fn read(directory: &Path, forget: bool) -> Result<(), Box<dyn Error>> {
    let store = worker::open(directory)?;
    let metrics = worker::Metrics::on(store.scrape_registry())?;
    if store.path().is_none() {
        return Err("the segment's file could not be opened".into());
    }
    let text = store.scrape_registry().text();
    std::io::stdout().write_all(text.as_bytes())?;
    if forget {
        metrics.forget_created()?;
    }
    Ok(())
}
