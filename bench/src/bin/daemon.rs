//! Measures the daemon, compared to statsd_exporter, statsd, Pushgateway, vmagent and
//! VictoriaMetrics.
//!
//! `make bench-daemon` builds the peers and runs it. If you have built them, you can also run this
//! program directly.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use clap::builder::PossibleValuesParser;
use quipu_bench::daemon::{self, Bench, Plan, Program, WORKLOADS};
use quipu_bench::output::{self, Output};
use quipu_bench::{Error, Result};

/// The name of the report.
const NAME: &str = "daemon";

/// Measures the daemon and its peers, in rotation, each turn in a new process.
#[derive(Parser)]
#[command(name = "daemon")]
struct Arguments {
    /// The number of turns of each subject at each load.
    #[arg(long, default_value_t = 5)]
    runs: u32,
    /// Use short loads, small states and one turn, as a trial.
    #[arg(long)]
    quick: bool,
    /// Measure only this workload. Can be repeated.
    #[arg(long, value_parser = PossibleValuesParser::new(WORKLOADS.iter().map(|w| w.name)))]
    workload: Vec<String>,
    /// Measure only this peer. Can be repeated.
    #[arg(
        long,
        value_parser = PossibleValuesParser::new(Program::PEERS.iter().map(|p| p.name())),
    )]
    peer: Vec<String>,
    /// Measure only quipu.
    #[arg(long, conflicts_with = "peer")]
    alone: bool,
    /// The program of the daemon.
    #[arg(long, default_value_os_t = quipu_bench::root().join("target/release/quipu"))]
    quipu: PathBuf,
    /// The folder of the peers.
    #[arg(long, default_value_os_t = quipu_bench::root().join("target/bench-daemon"))]
    peers: PathBuf,
    /// A folder on a disk, for states.
    #[arg(long, default_value_os_t = quipu_bench::root().join("target"))]
    disk: PathBuf,
    /// The folder for the records.
    #[arg(long, default_value_os_t = output::default_folder())]
    folder: PathBuf,
}

fn main() -> ExitCode {
    quipu_bench::end(NAME, run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<()> {
    let absolute = |path: &PathBuf| std::path::absolute(path).map_err(Error::file("find", path));
    let is_chosen = |program: &Program| {
        !arguments.alone
            && (arguments.peer.is_empty() || arguments.peer.iter().any(|p| p == program.name()))
    };
    let bench = Bench {
        quipu: absolute(&arguments.quipu)?,
        peers: absolute(&arguments.peers)?,
        chosen: Program::PEERS.into_iter().filter(is_chosen).collect(),
        disk: absolute(&arguments.disk)?,
        plan: if arguments.quick { Plan::quick() } else { Plan::full(arguments.runs.max(1)) },
    };
    check(&bench)?;

    let output = Output::create(&arguments.folder, NAME)?;
    let (mut records, mut failures) = (Vec::new(), Vec::new());
    for workload in WORKLOADS {
        if arguments.workload.is_empty() || arguments.workload.iter().any(|w| w == workload.name) {
            eprintln!("{}:", workload.name);
            let outcome = (workload.run)(&bench)?;
            output.push(&outcome.records)?;
            records.extend(outcome.records);
            failures.extend(outcome.failures);
        }
    }
    output.push(&daemon::ratios(&records))?;
    match failures.is_empty() {
        true => Ok(()),
        false => Err(Error::report(format!("not measured:\n{}", failures.join("\n")))),
    }
}

/// Checks that all programs exist, and that the machine provides a core for each side.
fn check(bench: &Bench) -> Result<()> {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    if cores < 2 {
        return Err(Error::report("the daemon and its load need a core each"));
    }
    for program in bench.chosen.iter().chain([&Program::Quipu]) {
        let path = program.path(bench);
        if !path.is_file() {
            let missing = "it is not built: run `make bench-daemon`";
            return Err(Error::file("start", &path)(std::io::Error::other(missing)));
        }
    }
    Ok(())
}
