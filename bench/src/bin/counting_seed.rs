//! Five groups of the benchmark of `measured`: the two groups that it was published with, and three
//! of its latest, of version 0.0.25. They keep the form of that benchmark: tables by divan,
//! including allocations.
//!
//! `cargo run --profile default-release -p quipu-bench --bin counting_seed`
//!
//! An iteration of `fixed_cardinality` adds 36,000 times to 18 series of two labels and encodes
//! them. An iteration of `high_cardinality` adds once to each of 18,000 new series of three labels
//! and encodes all series so far. All threads do this at the same time, on the same family, and
//! each iteration starts with a new buffer.
//!
//! An iteration of a latest group is one call with random labels, prepared in advance. For example,
//! `counters` adds to 18 series, and `histograms` observes in 18 series, both on all threads;
//! `users` adds to series of three labels on one thread, with names that are seldom repeated. The
//! other latest groups, `encoding` and `memory`, are workloads of `counting`.

use std::cell::RefCell;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use clap::Parser;
use divan::{AllocProfiler, Bencher, Divan, black_box};
use fake::Fake;
use fake::faker::name::raw::Name;
use fake::locales::EN;
use fake::rand::SeedableRng;
use fake::rand::rngs::StdRng;
use quipu_bench::counting::Quipu;
use quipu_bench::counting::contender::{ByRoute, ByUser, Contender, ObserveBy, Scrape};
use quipu_bench::counting::data::{Kind, Random, Route, routes};
use quipu_bench::counting::peer::{
    Fastmetrics, Measured, MeasuredParacord, Metrics, MetricsLib, Prometheus, PrometheusClient,
};
use quipu_bench::output::{self, Output};
use quipu_bench::{Error, Result, divan_table, profile};

#[global_allocator]
static ALLOCATOR: AllocProfiler = AllocProfiler::system();

/// The name of the records.
const NAME: &str = "counting-seed";

/// The number of rounds through all kinds and routes in an iteration.
const FIXED_ROUNDS: usize = 2000;
const HIGH_ROUNDS: usize = 1000;

/// Measures the benchmark of `measured` on all threads, prints its tables, and writes them and
/// their medians.
#[derive(Parser)]
#[command(name = "counting_seed")]
struct Arguments {
    /// Take only a few samples, as a trial.
    #[arg(long)]
    quick: bool,
    /// Measure in this process and print the tables.
    #[arg(long, hide = true)]
    tables: bool,
    /// The folder for the records.
    #[arg(long, default_value_os_t = output::default_folder())]
    folder: PathBuf,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.tables {
        let divan = Divan::default();
        let divan = if arguments.quick { divan.sample_count(2).sample_size(1) } else { divan };
        divan.run_benches();
        return ExitCode::SUCCESS;
    }
    quipu_bench::end(NAME, run(&arguments))
}

/// Measures the tables in a child process, because its output must be captured.
fn run(arguments: &Arguments) -> Result<()> {
    let output = Output::of_profile(&arguments.folder, NAME)?;
    let itself = Path::new("/proc/self/exe");
    let mut command = Command::new(itself);
    command.arg("--tables").args(arguments.quick.then_some("--quick"));
    let tables = command.stderr(Stdio::inherit()).output().map_err(Error::file("run", itself))?;
    let text = String::from_utf8_lossy(&tables.stdout);
    let mut stdout = std::io::stdout().lock();
    stdout
        .write_all(text.as_bytes())
        .map_err(Error::file("write", Path::new("standard output")))?;
    if !tables.status.success() {
        let problem = format!("failed with {}", tables.status);
        return Err(Error::Command { command: format!("{NAME} --tables"), problem });
    }
    let path = arguments.folder.join(format!("{}.txt", profile::records_name(NAME)));
    fs::write(&path, text.as_bytes()).map_err(Error::file("write", &path))?;
    let subject = |name: &str| {
        let subjects = subjects();
        subjects.into_iter().find(|(of, _)| of.ends_with(&format!("::{name}"))).map(|(_, is)| is)
    };
    output.push(&divan_table::records("seed", &text, subject)?)
}

/// The names of the contenders' types, and of their libraries.
fn subjects() -> Vec<(&'static str, String)> {
    fn of<C: Contender>() -> (&'static str, String) {
        (std::any::type_name::<C>(), C::subject())
    }
    vec![
        of::<Quipu>(),
        of::<Measured>(),
        of::<MeasuredParacord>(),
        of::<Fastmetrics>(),
        of::<PrometheusClient>(),
        of::<Prometheus>(),
        of::<Metrics>(),
        of::<MetricsLib>(),
    ]
}

#[divan::bench(
    types = [Quipu, Measured, Fastmetrics, PrometheusClient, Prometheus, Metrics, MetricsLib],
    threads = [0],
    sample_size = 5,
    sample_count = 500,
)]
fn fixed_cardinality<C: Contender>(bencher: Bencher) {
    let family = C::by_route().expect("it has counters by route");
    fixed(bencher, &family);
}

fn fixed<F: ByRoute + Scrape>(bencher: Bencher, family: &F) {
    let routes: Vec<&'static str> = routes().collect();
    bencher.with_inputs(F::Page::default).bench_refs(|page| {
        for _ in 0..black_box(FIXED_ROUNDS) {
            for kind in black_box(Kind::ALL) {
                for route in black_box(&routes) {
                    family.inc(kind, route);
                }
            }
        }
        black_box(family.scrape(page));
    });
}

#[divan::bench(
    types = [Quipu, Measured, Fastmetrics, PrometheusClient, Prometheus, Metrics, MetricsLib],
    threads = [0],
    sample_size = 2,
    sample_count = 20,
)]
fn high_cardinality<C: Contender>(bencher: Bencher) {
    let family = C::by_user().expect("it has counters by user");
    high(bencher, &family);
}

fn high<F: ByUser + Scrape>(bencher: Bencher, family: &F) {
    let routes: Vec<&'static str> = routes().collect();
    let seed = AtomicU64::new(0);
    bencher.with_inputs(|| (F::Page::default(), names(&seed))).bench_refs(|(page, names)| {
        let mut names = names.iter();
        for _ in 0..black_box(HIGH_ROUNDS) {
            for kind in black_box(Kind::ALL) {
                for (route, name) in black_box(&routes).iter().zip(&mut names) {
                    family.inc(kind, route, name);
                }
            }
        }
        black_box(family.scrape(page));
    });
}

/// A name for each addition of an iteration.
fn names(seed: &AtomicU64) -> Vec<String> {
    let mut random = StdRng::seed_from_u64(seed.fetch_add(1, Ordering::Relaxed));
    let names = std::iter::repeat_with(|| Name(EN).fake_with_rng(&mut random));
    names.take(HIGH_ROUNDS * Kind::ALL.len() * routes().len()).collect()
}

#[divan::bench(
    types = [Quipu, Measured, Fastmetrics, PrometheusClient, Prometheus, Metrics, MetricsLib],
    threads = [0],
    sample_size = 100_000,
    sample_count = 100,
)]
fn counters<C: Contender>(bencher: Bencher) {
    let family = C::by_route().expect("it has counters by route");
    bencher.with_inputs(pair).bench_values(|(kind, route)| family.inc(kind, route));
}

#[divan::bench(
    types = [Quipu, Measured, Fastmetrics, PrometheusClient, Prometheus, Metrics, MetricsLib],
    threads = [0],
    sample_size = 100_000,
    sample_count = 100,
)]
fn histograms<C: Contender>(bencher: Bencher) {
    let family = C::histograms().expect("it has histograms by route");
    let input = || (pair(), with_random(|random| 0.0005 * 2f64.powf(9.0 * random.unit())));
    bencher
        .with_inputs(input)
        .bench_values(|((kind, route), value)| family.observe(kind, route, value));
}

#[divan::bench(
    types = [
        Quipu, Measured, MeasuredParacord, Fastmetrics, PrometheusClient, Prometheus, Metrics,
        MetricsLib,
    ],
    threads = [1],
    sample_size = 100,
    sample_count = 5_000,
)]
fn users<C: Contender>(bencher: Bencher) {
    let family = C::by_user().expect("it has counters by user");
    let random = RefCell::new(StdRng::seed_from_u64(1));
    let name = || Name(EN).fake_with_rng::<String, _>(&mut *random.borrow_mut());
    bencher.with_inputs(|| (pair(), name())).bench_local_values(|((kind, route), name)| {
        family.inc(kind, route, &name);
        // The name is freed after the clock has stopped.
        name
    });
}

/// A random kind and route.
fn pair() -> (Kind, &'static str) {
    with_random(|random| {
        let route = Route::ALL[random.below(Route::ALL.len())];
        (Kind::ALL[random.below(Kind::ALL.len())], route.text())
    })
}

fn with_random<T>(draw: impl FnOnce(&mut Random) -> T) -> T {
    thread_local! {
        static RANDOM: RefCell<Random> = RefCell::new(Random::new(1));
    }
    RANDOM.with_borrow_mut(draw)
}
