//! Measures the rate server and its peer under load, and kills both.
//!
//! `cargo run --release -p quipu-bench --bin rates_server`

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use quipu_bench::output::{self, Output};
use quipu_bench::server::{self, Options, Program, Sizes};
use quipu_bench::{Error, Result, peer};

/// The name of the report.
const NAME: &str = "rates-server";

/// The subject of the peer's records.
const PEER: &str = "derlaft/ratecounter rateserver (equivalent)";

/// Measures rate servers with ab, ab -k and wrk, and kills them under load.
#[derive(Parser)]
#[command(name = "rates_server")]
struct Arguments {
    /// A server, as SUBJECT=COMMAND with {port} and {state}. Can be repeated. Default: quipu, from
    /// the folder of this program, and the peer written in Go, which is built.
    #[arg(long = "server", value_name = "SUBJECT=COMMAND", value_parser = Program::parse)]
    servers: Vec<Program>,
    /// The number of runs of each load on each server; 0 for no load.
    #[arg(long, default_value_t = Options::default().rounds)]
    rounds: u32,
    /// The number of kills of each server; 0 for none.
    #[arg(long, default_value_t = Options::default().kills)]
    kills: u32,
    /// Send a million requests with ab and with ab -k.
    #[arg(long, conflicts_with = "quick")]
    full: bool,
    /// Send a tenth of the requests, as a trial.
    #[arg(long)]
    quick: bool,
    /// Also run each load with the server and its client on one core.
    #[arg(long)]
    one_core: bool,
    /// The folder for the records.
    #[arg(long, default_value_os_t = output::default_folder())]
    folder: PathBuf,
}

fn main() -> ExitCode {
    quipu_bench::end(NAME, run(Arguments::parse()))
}

fn run(arguments: Arguments) -> Result<()> {
    let sizes = match (arguments.full, arguments.quick) {
        (true, _) => Sizes::full(),
        (_, true) => Sizes::quick(),
        _ => Sizes::default(),
    };
    let options = Options {
        rounds: arguments.rounds,
        sizes,
        kills: arguments.kills,
        one_core: arguments.one_core,
    };
    let servers = match arguments.servers.is_empty() {
        true => default_servers()?,
        false => arguments.servers,
    };
    let output = Output::create(&arguments.folder, NAME)?;
    if options.rounds > 0 {
        output.push(&server::loads(&servers, &options)?)?;
    }
    if options.kills > 0 {
        output.push(&server::kills(&servers, &options)?)?;
    }
    Ok(())
}

fn default_servers() -> Result<Vec<Program>> {
    let program = std::env::current_exe().map_err(Error::file("find", Path::new(NAME)))?;
    let quipu = program.with_file_name("quipu");
    let missing = "is not built: run `cargo build --release --bin quipu` first";
    if !quipu.is_file() {
        let problem = std::io::Error::other(missing);
        return Err(Error::file("start", &quipu)(problem));
    }
    let go = peer::go("rateserver")?;
    let program = |subject, path: PathBuf, arguments: &str| Program {
        subject: String::from(subject),
        // The path can contain spaces; the arguments do not.
        command: std::iter::once(path.display().to_string())
            .chain(arguments.split(' ').map(String::from))
            .collect(),
    };
    Ok(vec![
        program("quipu", quipu, "serve --listen 127.0.0.1:{port} --state {state}"),
        program(PEER, go, "-listen 127.0.0.1:{port} -state {state}"),
    ])
}
