//! Measures quipu's stores, compared to the stores that users of Ruby and Python use today.
//!
//! `cargo run --release -p quipu-bench --bin stores`

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::Parser;
use clap::builder::PossibleValuesParser;
use quipu_bench::output::{self, Output};
use quipu_bench::progress::Progress;
use quipu_bench::record::{self, Record};
use quipu_bench::stores::{Language, Peers, Places, Plan, RedisServer, WORKLOADS, Workload};
use quipu_bench::stores::{drop_in, recorded};
use quipu_bench::{Error, Result, peer};

/// The name of the report.
const NAME: &str = "stores";

/// Measures stores from Rust, Ruby and Python, in rotation, each turn in a new process.
#[derive(Parser)]
#[command(name = "stores")]
struct Arguments {
    /// The number of runs of each case.
    #[arg(long, default_value_t = 5)]
    runs: u32,
    /// Use a small part of the time, of the workers and of the rounds, as a trial.
    #[arg(long)]
    quick: bool,
    /// Measure only this workload. Can be repeated.
    #[arg(long, value_parser = PossibleValuesParser::new(WORKLOADS.iter().map(|w| w.name)))]
    workload: Vec<String>,
    /// The Ruby to measure, with Debian's packages ruby-redis and ruby-prometheus-client-mmap.
    #[arg(long, default_value = "/usr/bin/ruby")]
    ruby: PathBuf,
    /// The folder of quipu's gem, with its extension built.
    #[arg(long, default_value_os_t = quipu_bench::root().join("bindings/ruby"))]
    gem: PathBuf,
    /// Omit quipu's gem.
    #[arg(long)]
    without_gem: bool,
    /// A checkout of prometheus/client_ruby. Without one, recorded figures are used instead.
    #[arg(long)]
    client_ruby: Option<PathBuf>,
    /// The Python to measure, with prometheus_client and quipu's wheel.
    #[arg(long, default_value_os_t = quipu_bench::root().join("target/bench-python/bin/python"))]
    python: PathBuf,
    /// Omit quipu's wheel.
    #[arg(long)]
    without_wheel: bool,
    /// The program of the daemon, for `quipu expose`.
    #[arg(long, default_value_os_t = quipu_bench::root().join("target/release/quipu"))]
    quipu: PathBuf,
    /// A folder in memory.
    #[arg(long, default_value = "/dev/shm")]
    tmpfs: PathBuf,
    /// A folder on a disk.
    #[arg(long, default_value_os_t = quipu_bench::root().join("target"))]
    disk: PathBuf,
    /// Take one turn in this process and print its records.
    #[arg(long, hide = true, requires = "workload")]
    turn: bool,
    /// The socket of the Redis server, for a turn.
    #[arg(long, hide = true, requires = "turn")]
    redis: Option<PathBuf>,
    /// Its port.
    #[arg(long, hide = true, requires = "turn", default_value_t = 0)]
    redis_port: u16,
    /// The folder for the records.
    #[arg(long, default_value_os_t = output::default_folder())]
    folder: PathBuf,
}

fn main() -> ExitCode {
    quipu_bench::end(NAME, run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<()> {
    let chosen = WORKLOADS.iter().filter(|workload| {
        arguments.workload.is_empty() || arguments.workload.iter().any(|n| n == workload.name)
    });
    let chosen: Vec<&Workload> = chosen.collect();
    if arguments.turn {
        return turn(arguments, &chosen);
    }
    let rust = std::env::current_exe()
        .map_err(Error::file("find the program in", Path::new("/proc/self/exe")))?;
    let peers = Peers {
        ruby: arguments.ruby.clone(),
        gem: (!arguments.without_gem).then(|| arguments.gem.clone()),
        client_ruby: arguments.client_ruby.clone(),
        python: arguments.python.clone(),
        wheel: !arguments.without_wheel,
    };
    let bench = Bench { arguments, rust, peers };
    let rounds = if arguments.quick { arguments.runs.min(2) } else { arguments.runs };
    let steps = |workload: &&&Workload| if workload.in_rounds { rounds } else { 1 };

    let output = Output::create(&arguments.folder, NAME)?;
    let total = chosen.iter().map(|workload| steps(&workload)).sum::<u32>();
    let mut progress = Progress::new(total as usize);
    for workload in &chosen {
        let mut measured = if workload.in_rounds {
            let mut all = Vec::new();
            for round in 1..=rounds {
                progress.step(&format!("{}, round {round}", workload.name));
                all.push(bench.round(workload)?);
            }
            record::merge(&all)?
        } else {
            progress.step(workload.name);
            bench.round(workload)?
        };
        if arguments.client_ruby.is_none() {
            measured.extend(drop_in(&measured));
            measured.extend(recorded(workload.name));
        }
        output.push(&measured)?;
    }
    progress.finish("done");
    Ok(())
}

/// The programs that take turns.
struct Bench<'a> {
    arguments: &'a Arguments,
    rust: PathBuf,
    peers: Peers,
}

impl Bench<'_> {
    /// A turn of each contender, with empty folders and an empty server.
    fn round(&self, workload: &Workload) -> Result<Vec<Record>> {
        let folder = |parent: &Path| {
            std::fs::create_dir_all(parent)
                .and_then(|()| tempfile::Builder::new().prefix("quipu-stores-").tempdir_in(parent))
                .map_err(Error::file("make a folder in", parent))
        };
        let tmpfs = folder(&self.arguments.tmpfs)?;
        let disk = folder(&self.arguments.disk)?;
        let server = RedisServer::start(tmpfs.path())?;
        let places = Places {
            tmpfs: tmpfs.path().into(),
            disk: disk.path().into(),
            redis: server.socket().into(),
            redis_port: server.port(),
            quipu: self.arguments.quipu.clone(),
        };
        let mut records = Vec::new();
        // Python goes first, because it leaves files that this program reads.
        let peers = self.peers.of(workload);
        for contender in peers.iter().filter(|(language, _)| *language == Language::Python) {
            records.extend(self.peers.turn(*contender, workload, &places, self.arguments.quick)?);
        }
        let mut ours = self.own_turn(workload, &places)?;
        for contender in peers.iter().filter(|(language, _)| *language == Language::Ruby) {
            ours.extend(self.peers.turn(*contender, workload, &places, self.arguments.quick)?);
        }
        ours.extend(records);
        Ok(ours)
    }

    /// The turn of Rust, in a new process.
    fn own_turn(&self, workload: &Workload, places: &Places) -> Result<Vec<Record>> {
        let mut command = Command::new(&self.rust);
        command.args(["--turn", "--workload", workload.name]);
        command.arg("--tmpfs").arg(&places.tmpfs).arg("--disk").arg(&places.disk);
        command.arg("--redis").arg(&places.redis);
        command.args(["--redis-port", &places.redis_port.to_string()]);
        command.arg("--quipu").arg(&places.quipu);
        if self.arguments.quick {
            command.arg("--quick");
        }
        peer::turn(&mut command)
    }
}

/// Takes one turn.
fn turn(arguments: &Arguments, workloads: &[&Workload]) -> Result<()> {
    let plan = if arguments.quick { Plan::quick() } else { Plan::full() };
    let places = Places {
        tmpfs: arguments.tmpfs.clone(),
        disk: arguments.disk.clone(),
        redis: arguments.redis.clone().unwrap_or_default(),
        redis_port: arguments.redis_port,
        quipu: arguments.quipu.clone(),
    };
    for workload in workloads {
        record::write(&mut std::io::stdout().lock(), &(workload.rust)(plan, &places)?)
            .map_err(Error::file("write", Path::new("standard output")))?;
    }
    Ok(())
}
