//! Drives HTTP servers that count requests, on the loopback interface only.
//!
//! You can measure any [`Program`] that responds to a GET with the count as 20 digits and keeps the
//! count in a state file. [`loads`] measures it under `ab`, `ab -k` and `wrk`; [`kills`] kills it
//! with SIGKILL under load and checks its count after a restart. Every measurement starts a new
//! process with an empty state, and the servers take turns.

mod client;
mod http;
mod load;
mod process;
mod program;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::progress::Progress;
use crate::record::{Label, Record};
use crate::{Error, Result};

pub use client::{Tally, ask};
pub use http::{Connection, Response, get};
pub use load::{Figures, Load, Sizes};
pub use process::Process;
pub(crate) use process::{end_with_us, exact_cpu_time};
pub(crate) use program::free_port;
pub use program::{Program, Running};

/// The window of the servers' counts. In a longer trial, events would expire.
const WINDOW: Duration = Duration::from_secs(60);

/// The durations and repetitions of a measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// The number of runs of each load on each server.
    pub rounds: u32,
    /// The size of each load.
    pub sizes: Sizes,
    /// The number of kills of each server.
    pub kills: u32,
    /// Whether each load also runs with the server and its client on one core. There, a client that
    /// is slower than the server cannot hide the difference between servers.
    pub one_core: bool,
}

impl Default for Options {
    /// Five rounds, and 20 kills.
    fn default() -> Options {
        Options { rounds: 5, sizes: Sizes::default(), kills: 20, one_core: false }
    }
}

/// Measures each program under each load.
///
/// The cases are `ab`, `ab -k` and `wrk`, the metrics `requests/s`, `p50`, `p99`, `failed
/// requests`, `cpu us/request` (user and system time of the server) and `memory` (the peak resident
/// memory). Cases with both on one core end with `, one core`.
pub fn loads(programs: &[Program], options: &Options) -> Result<Vec<Record>> {
    let mut cases = Vec::new();
    for one_core in [false, true] {
        for load in [Load::Ab, Load::AbKeepAlive, Load::Wrk] {
            if !one_core || options.one_core {
                cases.push((load, one_core));
            }
        }
    }
    load::check_tools(options.one_core)?;

    let rounds = options.rounds.max(1);
    let mut samples = vec![Vec::new(); cases.len() * programs.len()];
    let mut progress = Progress::new(samples.len() * rounds as usize);
    for round in 1..=rounds {
        for (index, (load, one_core)) in cases.iter().enumerate() {
            for (turn, program) in programs.iter().enumerate() {
                let name = case_name(*load, *one_core);
                progress.step(&format!("round {round}: {name}: {}", program.subject));
                let core = one_core.then_some(0);
                let sample = measure(program, *load, &options.sizes, core)?;
                samples[index * programs.len() + turn].push(sample);
            }
        }
    }
    progress.finish("loads are done");

    let mut records = Vec::new();
    for (index, (load, one_core)) in cases.iter().enumerate() {
        for (turn, program) in programs.iter().enumerate() {
            let samples = &samples[index * programs.len() + turn];
            records.extend(sample_records(&case_name(*load, *one_core), &program.subject, samples));
        }
    }
    Ok(records)
}

/// Kills each program under load and asks it for the count after a restart on the same state.
///
/// The case is `kill -9`. The metrics are `lost requests` (requests in a count that was returned
/// before the kill, but not in the count after it) and `share kept` (of the requests with a
/// response, in %). The count can include requests without a response that were in flight at the
/// kill. A higher count is an error, because it includes requests that were never sent.
pub fn kills(programs: &[Program], options: &Options) -> Result<Vec<Record>> {
    let trials = options.kills as usize;
    let mut outcomes = vec![Vec::new(); programs.len()];
    let mut progress = Progress::new(trials * programs.len());
    for trial in 0..trials {
        for (program, outcomes) in programs.iter().zip(&mut outcomes) {
            progress.step(&format!("kill {}: {}", trial + 1, program.subject));
            outcomes.push(kill(program, time_to_kill(trial))?);
        }
    }
    progress.finish("kills are done");

    let mut records = Vec::new();
    for (program, outcomes) in programs.iter().zip(&outcomes) {
        if outcomes.is_empty() {
            continue;
        }
        let values = |value: fn(&Outcome) -> f64| outcomes.iter().map(value).collect::<Vec<f64>>();
        let label = |metric, unit| Label::new("kill -9", &program.subject, metric, unit);
        records.push(label("lost requests", "requests").of(&values(|o| o.lost() as f64)));
        records.push(label("share kept", "%").of(&values(|o| 100.0 * o.share_kept())));
        records.push(label("answered requests", "requests").of(&values(|o| o.answered as f64)));
    }
    Ok(records)
}

/// The results of one load on a server.
#[derive(Clone, Copy, Debug)]
struct Sample {
    figures: Figures,
    cpu_us_per_request: f64,
    memory: f64,
}

fn measure(program: &Program, load: Load, sizes: &Sizes, core: Option<usize>) -> Result<Sample> {
    let folder = temporary_folder()?;
    let server = program.start(folder.path(), None, core)?;
    // Some keep-alive requests fault in the server's code and buffers.
    warm_up(&server);
    let before = server.process().cpu_time()?;
    let figures = load.run(server.address(), sizes, core)?;
    let spent = server.process().cpu_time()?.saturating_sub(before);
    let memory = server.process().peak_memory()? as f64;
    server.stop()?;
    let completed = figures.completed.max(1) as f64;
    Ok(Sample { figures, cpu_us_per_request: spent.as_secs_f64() * 1e6 / completed, memory })
}

fn warm_up(server: &Running) {
    load_for(server, Duration::from_millis(200), || ());
}

fn sample_records(case: &str, subject: &str, samples: &[Sample]) -> Vec<Record> {
    let record = |metric, unit, value: fn(&Sample) -> f64| {
        Label::new(case, subject, metric, unit).of(&samples.iter().map(value).collect::<Vec<_>>())
    };
    vec![
        record("requests/s", "1/s", |s| s.figures.requests_per_second),
        record("p50", "ms", |s| s.figures.p50_ms),
        record("p99", "ms", |s| s.figures.p99_ms),
        record("failed requests", "requests", |s| s.figures.failed as f64),
        record("cpu us/request", "us", |s| s.cpu_us_per_request),
        record("memory", "B", |s| s.memory),
    ]
}

/// The counts around a kill.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Outcome {
    /// The number of responses before the kill.
    answered: u64,
    /// A lower bound on the requests that were counted: the highest count in a response, or the
    /// number of responses if that is higher. This way, requests that were counted without a
    /// response cannot hide lost ones.
    counted: u64,
    /// The count after the restart, including the request that asks for the count.
    shown: u64,
}

impl Outcome {
    fn lost(&self) -> u64 {
        (self.counted + 1).saturating_sub(self.shown)
    }

    fn share_kept(&self) -> f64 {
        1.0 - self.lost() as f64 / (self.counted + 1) as f64
    }
}

fn kill(program: &Program, after: Duration) -> Result<Outcome> {
    let folder = temporary_folder()?;
    let started = Instant::now();
    let server = program.start(folder.path(), None, None)?;
    let (port, probes) = (server.port(), server.probes());
    let mut load = load_for(&server, after, || server.process().kill());
    load.sent += probes.sent;
    load.answered += probes.answered;
    drop(server);

    let restarted = program.start(folder.path(), Some(port), None)?;
    let probes = restarted.probes();
    let counted = load.greatest.max(load.answered);
    let outcome = Outcome { answered: load.answered, counted, shown: restarted.first_count() };
    restarted.stop()?;

    let problem = |text: String| Err(Error::command(&program.subject, text));
    if started.elapsed() > WINDOW / 2 {
        return problem(format!("a kill took {:?}, so events may expire", started.elapsed()));
    }
    if outcome.shown > load.sent + probes.sent {
        return problem(format!(
            "shows {} requests after a kill, but only {} were sent",
            outcome.shown,
            load.sent + probes.sent,
        ));
    }
    Ok(outcome)
}

/// Sends keep-alive requests for `duration`, calls `at_the_end` under this load, and returns the
/// numbers of requests and responses. The clients also stop when the server ends.
fn load_for(server: &Running, duration: Duration, at_the_end: impl FnOnce()) -> Tally {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..client::THREADS)
            .map(|_| scope.spawn(|| client::load(server.address(), &stop)))
            .collect();
        std::thread::sleep(duration);
        at_the_end();
        stop.store(true, Ordering::Relaxed);
        let mut sum = Tally::default();
        for client in clients {
            // The client never panics, because it treats every failure as the end of the server.
            let tally = client.join().expect("the client panicked");
            sum.sent += tally.sent;
            sum.answered += tally.answered;
            sum.greatest = sum.greatest.max(tally.greatest);
        }
        sum
    })
}

/// Returns a time between 1 and 2 seconds after the start, spread evenly over the trials, because
/// kills must hit every phase of a server that saves on a timer.
pub(crate) fn time_to_kill(trial: usize) -> Duration {
    let golden = 0.618_033_988_75;
    Duration::from_secs_f64(1.0 + (trial as f64 * golden).fract())
}

fn case_name(load: Load, one_core: bool) -> String {
    format!("{}{}", load.name(), if one_core { ", one core" } else { "" })
}

fn temporary_folder() -> Result<tempfile::TempDir> {
    tempfile::tempdir().map_err(Error::file("make a folder in", Path::new(&std::env::temp_dir())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_is_what_was_answered_but_not_counted() {
        let outcome = |counted, shown| Outcome { answered: counted, counted, shown };
        assert_eq!(outcome(100, 101).lost(), 0);
        assert_eq!(outcome(100, 61).lost(), 40);
        assert_eq!(outcome(100, 104).lost(), 0, "requests in flight were counted");
        assert_eq!(outcome(99, 50).share_kept(), 0.5);
    }

    #[test]
    fn kills_meet_every_phase_of_a_timer() {
        let mut phases: Vec<u128> = (0..20).map(|t| time_to_kill(t).as_millis() % 500).collect();
        phases.sort_unstable();
        let gaps = phases.windows(2).map(|pair| pair[1] - pair[0]);
        assert!(gaps.max() < Some(80), "{phases:?}");
    }
}
