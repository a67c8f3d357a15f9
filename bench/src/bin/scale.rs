//! Measures how the costs of quipu and of its peers grow with the amount of work, for example with
//! the number of series. You can select an axis by `--axis`.
//!
//! `cargo run --profile default-release -p quipu-bench --bin scale`

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::Parser;
use clap::builder::PossibleValuesParser;
use quipu_bench::counting::Plan;
use quipu_bench::output::{self, Output};
use quipu_bench::progress::Progress;
use quipu_bench::record;
use quipu_bench::scale::{AXES, Axis, child};
use quipu_bench::{Error, Result, peer};

/// The name of the report.
const NAME: &str = "scale";

/// Measures costs at growing numbers of series, labels, threads, cores, processes and families, in
/// rotation, each turn in a new process.
#[derive(Parser)]
#[command(name = "scale")]
struct Arguments {
    /// The number of runs of each case.
    #[arg(long, default_value_t = 3)]
    runs: u32,
    /// Use a small part of the time, and no great amounts, as a trial.
    #[arg(long)]
    quick: bool,
    /// Measure only this axis. Can be repeated.
    #[arg(long, value_parser = PossibleValuesParser::new(AXES.iter().map(|axis| axis.name)))]
    axis: Vec<String>,
    /// Take this contender's turn in this process and print its records.
    #[arg(long, hide = true, requires = "axis", requires = "point")]
    turn: Option<String>,
    /// The amount of the turn.
    #[arg(long, hide = true)]
    point: Option<usize>,
    /// Count on this metric, as one of several processes.
    #[arg(long, hide = true, requires = "file")]
    child: Option<String>,
    /// The core of that process.
    #[arg(long, hide = true, default_value_t = 0)]
    core: usize,
    /// Its file.
    #[arg(long, hide = true)]
    file: Option<PathBuf>,
    /// The folder for the records.
    #[arg(long, default_value_os_t = output::default_folder())]
    folder: PathBuf,
}

fn main() -> ExitCode {
    quipu_bench::end(NAME, run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<()> {
    let plan = if arguments.quick { Plan::quick() } else { Plan::full() };
    let axes: Vec<&Axis> = AXES
        .iter()
        .filter(|axis| arguments.axis.is_empty() || arguments.axis.iter().any(|n| n == axis.name))
        .collect();
    if let (Some(kind), Some(file)) = (&arguments.child, &arguments.file) {
        child(kind, arguments.core, file);
        return Ok(());
    }
    if let (Some(key), Some(point)) = (&arguments.turn, arguments.point) {
        let entrants = axes.iter().flat_map(|axis| axis.entrants);
        for entrant in entrants.filter(|entrant| entrant.key == key) {
            record::write(&mut std::io::stdout().lock(), &(entrant.turn)(&plan, point))
                .map_err(Error::file("write", Path::new("standard output")))?;
        }
        return Ok(());
    }

    let program = std::env::current_exe()
        .map_err(Error::file("find the program in", Path::new("/proc/self/exe")))?;
    let output = Output::create(&arguments.folder, NAME)?;
    let mut progress = Progress::new(axes.len() * arguments.runs as usize);
    for axis in axes {
        let mut rounds = Vec::new();
        for round in 1..=arguments.runs {
            progress.step(&format!("{}, round {round}", axis.name));
            let mut records = Vec::new();
            for point in axis.points(&plan) {
                let mut turns: Vec<_> =
                    axis.entrants.iter().filter(|entrant| point <= entrant.most).collect();
                // The first contender of a round is the last of the next.
                if round % 2 == 0 {
                    turns.reverse();
                }
                for entrant in turns {
                    let mut command = Command::new(&program);
                    command.args(["--axis", axis.name, "--turn", entrant.key]);
                    command.args(["--point", &point.to_string()]);
                    if arguments.quick {
                        command.arg("--quick");
                    }
                    records.extend(peer::run(&mut command)?);
                }
            }
            rounds.push(records);
        }
        output.push(&record::merge(&rounds)?)?;
    }
    progress.finish("done");
    Ok(())
}
