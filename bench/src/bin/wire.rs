//! Measures quipu's formats, compared to Go libraries and to crates. You can select a part of it,
//! for example by `--workload`.
//!
//! `cargo run --profile default-release -p quipu-bench --bin wire`
//!
//! No counting allocator is installed, because it would slow down the heap.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::Parser;
use clap::builder::PossibleValuesParser;
use quipu_bench::output::{self, Output};
use quipu_bench::progress::Progress;
use quipu_bench::record::{self, Record};
use quipu_bench::wire::{Plan, WITH_GO, WORKLOADS};
use quipu_bench::{Error, Result, peer};

/// The name of the report of single messages.
const NAME: &str = "wire";
/// The name of the report of streams. You can measure them by themselves if only they changed.
const STREAMS: &str = "streams";

/// Measures message formats in rotation; the Go libraries take separate turns.
#[derive(Parser)]
#[command(name = "wire")]
struct Arguments {
    /// The number of runs of each case.
    #[arg(long, default_value_t = 7)]
    runs: u32,
    /// Use a small part of the time and of the messages, as a trial.
    #[arg(long)]
    quick: bool,
    /// Omit the Go libraries.
    #[arg(long)]
    without_go: bool,
    /// Measure only this workload. Can be repeated.
    #[arg(long, value_parser = PossibleValuesParser::new(WORKLOADS.iter().map(|(name, _)| *name)))]
    workload: Vec<String>,
    /// Take one turn in this process and print its records.
    #[arg(long, hide = true, requires = "workload")]
    turn: bool,
    /// The folder for the records.
    #[arg(long, default_value_os_t = output::default_folder())]
    folder: PathBuf,
}

fn main() -> ExitCode {
    quipu_bench::end(NAME, run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<()> {
    let chosen: Vec<_> = WORKLOADS
        .iter()
        .filter(|(name, _)| {
            arguments.workload.is_empty() || arguments.workload.iter().any(|n| n == name)
        })
        .collect();
    if arguments.turn {
        let plan = if arguments.quick { Plan::quick() } else { Plan::full() };
        for (_, workload) in chosen {
            record::write(&mut std::io::stdout().lock(), &workload(plan))
                .map_err(Error::file("write", Path::new("standard output")))?;
        }
        return Ok(());
    }
    let (streams, singles): (Vec<_>, Vec<_>) =
        chosen.into_iter().map(|(name, _)| *name).partition(|name| name.starts_with("stream-"));
    let mut progress = Progress::new((streams.len() + singles.len()) * arguments.runs as usize);
    for (report, names) in [(NAME, singles), (STREAMS, streams)] {
        if !names.is_empty() {
            let output = Output::of_profile(&arguments.folder, report)?;
            measure(arguments, &names, &output, &mut progress)?;
        }
    }
    progress.finish("done");
    Ok(())
}

/// Takes all turns at some workloads.
fn measure(
    arguments: &Arguments,
    names: &[&str],
    output: &Output,
    progress: &mut Progress,
) -> Result<()> {
    let rust = std::env::current_exe()
        .map_err(Error::file("find the program in", Path::new("/proc/self/exe")))?;
    let with_go = !arguments.without_go && names.iter().any(|name| WITH_GO.contains(name));
    let go = if with_go { Some(peer::go("wirebench")?) } else { None };
    for name in names {
        let mut rounds = Vec::new();
        for round in 1..=arguments.runs {
            progress.step(&format!("{name}, round {round}"));
            let turn = |program: &Path, arguments_before: &[&str]| -> Result<Vec<Record>> {
                let mut command = Command::new(program);
                command.args(arguments_before);
                if arguments.quick {
                    command.arg("--quick");
                }
                peer::run(&mut command)
            };
            let mut records = turn(&rust, &["--turn", "--workload", name])?;
            if let Some(go) = &go {
                records.extend(turn(go, &["-workload", name])?);
            }
            rounds.push(records);
        }
        output.push(&record::merge(&rounds)?)?;
    }
    Ok(())
}
