//! Measures counters and histograms, compared to other libraries. You can select a part of it, for
//! example by `--contender` or `--workload`.
//!
//! `cargo run --profile default-release -p quipu-bench --bin counting`

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::Parser;
use quipu_bench::counting::{Plan, WORKLOADS, entrants};
use quipu_bench::memory::OnDemand;
use quipu_bench::output::{self, Output};
use quipu_bench::progress::Progress;
use quipu_bench::record::{self, Record};
use quipu_bench::{Error, Result, peer};

#[global_allocator]
static ALLOCATOR: OnDemand = OnDemand;

/// The name of the report of operations.
const NAME: &str = "counting";
/// The name of the report of millions of series, and its workloads, which take half of the time.
const SERIES: &str = "series";
const OF_SERIES: [&str; 3] = ["insert", "memory", "scrape"];

/// A contender in another language: its name on the command line, its workloads, and a function
/// that builds it and returns its command.
type Program = (&'static str, &'static [&'static str], fn() -> Result<Vec<OsString>>);

const PROGRAMS: [Program; 4] = [
    ("client_golang", &["handle", "route", "user", "histogram"], || {
        Ok(vec![peer::go("counting")?.into_os_string()])
    }),
    ("client_java", &["handle", "route", "user", "histogram", "encode"], || {
        peer::java("counting.Main")
    }),
    ("prometheus-cpp", &["handle", "route", "user", "histogram", "encode"], || {
        Ok(vec![
            peer::cpp("counting", "prometheus-cpp-dev", "prometheus-cpp-core")?.into_os_string(),
        ])
    }),
    ("prom-client", &["handle", "route", "user", "histogram", "encode"], || {
        peer::node("counting.js")
    }),
];

/// The number of runs of the workload `memory`, because its figures hardly differ from run to run.
const RUNS_OF_MEMORY: u32 = 3;

/// Measures counters and histograms of quipu and of its peers, in rotation, each turn in a new
/// process.
#[derive(Parser)]
#[command(name = "counting")]
struct Arguments {
    /// The number of runs of each case.
    #[arg(long, default_value_t = 5)]
    runs: u32,
    /// Use a small part of the time and of the series, as a trial.
    #[arg(long)]
    quick: bool,
    /// Measure only this contender. Can be repeated.
    #[arg(long)]
    contender: Vec<String>,
    /// Measure only this workload. Can be repeated.
    #[arg(long)]
    workload: Vec<String>,
    /// Omit the programs in other languages.
    #[arg(long)]
    only_rust: bool,
    /// Take one turn in this process and print its records.
    #[arg(long, hide = true, requires = "contender", requires = "workload")]
    turn: bool,
    /// The folder for the records.
    #[arg(long, default_value_os_t = output::default_folder())]
    folder: PathBuf,
}

fn main() -> ExitCode {
    quipu_bench::end(NAME, run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<()> {
    if arguments.turn {
        return turn(arguments);
    }
    let programs = if arguments.only_rust { &[][..] } else { &PROGRAMS[..] };
    let mut keys: Vec<_> = entrants().iter().map(|entrant| entrant.key).collect();
    keys.extend(programs.iter().map(|(key, ..)| key));
    let contenders = chosen("contender", keys, &arguments.contender)?;
    let workloads = chosen("workload", WORKLOADS.to_vec(), &arguments.workload)?;
    let programs = Programs::build(&contenders)?;

    let mut progress = Progress::new(workloads.len() * arguments.runs as usize);
    let (of_series, others): (Vec<_>, Vec<_>) =
        workloads.into_iter().partition(|workload| OF_SERIES.contains(workload));
    for (report, workloads) in [(NAME, others), (SERIES, of_series)] {
        if !workloads.is_empty() {
            let output = Output::of_profile(&arguments.folder, report)?;
            measure(arguments, &workloads, &contenders, &programs, &output, &mut progress)?;
        }
    }
    progress.finish("done");
    Ok(())
}

/// Lets the contenders take turns at each workload.
fn measure(
    arguments: &Arguments,
    workloads: &[&'static str],
    contenders: &[&'static str],
    programs: &Programs,
    output: &Output,
    progress: &mut Progress,
) -> Result<()> {
    for &workload in workloads {
        let mut rounds = Vec::new();
        for round in 1..=arguments.runs {
            progress.step(&format!("{workload}, round {round}"));
            if workload == "memory" && round > RUNS_OF_MEMORY {
                continue;
            }
            // The first contender of a round is the last of the next.
            let mut order = contenders.to_vec();
            if round % 2 == 0 {
                order.reverse();
            }
            let mut records = Vec::new();
            for contender in order {
                records.extend(programs.turn(contender, workload, arguments.quick)?);
            }
            rounds.push(records);
        }
        output.push(&record::merge(&rounds)?)?;
    }
    Ok(())
}

/// The names in `asked`, or all if it is empty.
fn chosen(what: &str, all: Vec<&'static str>, asked: &[String]) -> Result<Vec<&'static str>> {
    if let Some(unknown) = asked.iter().find(|name| !all.contains(&name.as_str())) {
        let problem = format!("no {what} is named {unknown}; there are: {}", all.join(", "));
        return Err(Error::Report { problem });
    }
    let wanted = |name: &&str| asked.is_empty() || asked.iter().any(|asked| asked == name);
    Ok(all.into_iter().filter(wanted).collect())
}

/// Takes one turn.
fn turn(arguments: &Arguments) -> Result<()> {
    let plan = if arguments.quick { Plan::quick() } else { Plan::full() };
    let entrants = entrants();
    let turns = entrants
        .iter()
        .filter(|entrant| arguments.contender.iter().any(|name| name == entrant.key))
        .flat_map(|entrant| arguments.workload.iter().filter_map(|name| entrant.turn(name)));
    let stdout = std::io::stdout();
    for turn in turns {
        record::write(&mut stdout.lock(), &turn(&plan))
            .map_err(Error::file("write", Path::new("standard output")))?;
    }
    Ok(())
}

/// The programs that take turns.
struct Programs {
    rust: PathBuf,
    others: Vec<Other>,
}

/// A program in another language.
struct Other {
    key: &'static str,
    workloads: &'static [&'static str],
    command: Vec<OsString>,
}

impl Programs {
    fn build(contenders: &[&str]) -> Result<Programs> {
        let rust = std::env::current_exe()
            .map_err(Error::file("find the program in", Path::new("/proc/self/exe")))?;
        let chosen = PROGRAMS.iter().filter(|(key, ..)| contenders.contains(key));
        let others = chosen
            .map(|(key, workloads, build)| Ok(Other { key, workloads, command: build()? }))
            .collect::<Result<_>>()?;
        Ok(Programs { rust, others })
    }

    /// One turn of a contender, in a new process.
    fn turn(&self, contender: &str, workload: &str, quick: bool) -> Result<Vec<Record>> {
        let mut command = match self.others.iter().find(|other| other.key == contender) {
            Some(other) if !other.workloads.contains(&workload) => return Ok(Vec::new()),
            Some(other) => {
                let mut command = Command::new(&other.command[0]);
                command.args(&other.command[1..]).args(["-workload", workload]);
                command
            }
            None => {
                let mut command = Command::new(&self.rust);
                command.args(["--turn", "--contender", contender, "--workload", workload]);
                command
            }
        };
        if quick {
            command.arg("--quick");
        }
        peer::turn(&mut command)
    }
}
