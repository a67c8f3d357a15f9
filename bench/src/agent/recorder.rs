//! Measures the flight recorder: its cost for 1,000 series, its memory, and whether you can read
//! its history after a SIGKILL.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::ValueEnum;
use serde::Deserialize;

use super::children::{SERIES, ready};
use super::{Bench, Kind, MEMORY, PATIENCE, amount, folder};
use crate::progress::Progress;
use crate::record::{Label, Record};
use crate::server::{Process, time_to_kill};
use crate::turns::Outcome;
use crate::{Error, Result};

const KINDS: [(Kind, &str); 3] = [
    (Kind::RecordCounters, "counters"),
    (Kind::RecordFloats, "sums of floats"),
    (Kind::RecordHistograms, "histograms"),
];
/// The interval of normal programs.
const INTERVAL: Duration = Duration::from_secs(1);
/// The shortest interval, because kills must hit the writing of a tick.
const SHORTEST: Duration = Duration::from_millis(1);
/// The number of processes that are killed in one round.
const TOGETHER: usize = 5;

/// Measures the recorder.
pub(super) fn recorder(bench: &Bench) -> Result<Outcome> {
    let folder = folder(Path::new(MEMORY))?;
    let rounds = bench.plan.kills.div_ceil(TOGETHER as u32);
    let mut progress = Progress::new((bench.plan.runs + 2 * rounds) as usize);
    let mut records = costs(bench, folder.path(), &mut progress)?;
    for (interval, name) in [(INTERVAL, "a tick each second"), (SHORTEST, "a tick each ms")] {
        let case = format!("recorder/kills, {name}");
        records.extend(kills(bench, folder.path(), interval, &case, &mut progress)?);
    }
    progress.finish("done");
    Ok(Outcome { records, failures: Vec::new() })
}

/// Starts a process that counts and records, and waits until it does.
fn start(bench: &Bench, kind: Kind, interval: Duration, file: &Path) -> Result<Process> {
    let kind = kind.to_possible_value().map(|value| value.get_name().to_owned());
    let words = [
        bench.program.display().to_string(),
        "--child".into(),
        kind.unwrap_or_default(),
        "--interval".into(),
        humantime::format_duration(interval).to_string(),
        "--file".into(),
        file.display().to_string(),
    ];
    let process = Process::start(&words, None, crate::root(), &file.with_extension("log"))?;
    let begun = Instant::now();
    while !ready(file).exists() {
        if process.ended().is_some() || begun.elapsed() > PATIENCE {
            return Err(process.failed("does not begin to record"));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(process)
}

/// Measures the thread of the recorder, in a process for each kind. All run at the same time.
fn costs(bench: &Bench, folder: &Path, progress: &mut Progress) -> Result<Vec<Record>> {
    let mut children = Vec::new();
    for (kind, name) in KINDS {
        let file = folder.join(format!("{}.quipu", name.replace(' ', "-")));
        let process = start(bench, kind, INTERVAL, &file)?;
        children.push((name, file, process, Vec::new()));
    }
    // The first ticks make room.
    std::thread::sleep(2 * INTERVAL);
    for round in 1..=bench.plan.runs {
        progress.step(&format!("round {round}: 1,000 series of each kind"));
        let mut before = Vec::new();
        for (_, _, process, _) in &children {
            before.push(thread_time(process)?);
        }
        let begun = Instant::now();
        std::thread::sleep(bench.plan.recorder);
        let elapsed = begun.elapsed().as_secs_f64();
        for ((_, _, process, shares), before) in children.iter_mut().zip(before) {
            let used = thread_time(process)?.saturating_sub(before).as_secs_f64();
            shares.push(100.0 * used / elapsed);
        }
    }
    let mut records = Vec::new();
    for (name, file, process, shares) in &children {
        process.kill();
        let case = format!("recorder/{} {name}", amount(SERIES));
        let label = |metric, unit| Label::new(&case, "quipu", metric, unit);
        records.push(label("core used", "%").of(shares));
        records.push(label("bytes", "B").of(&[recorded_bytes(bench, file)? as f64]));
    }
    Ok(records)
}

/// Returns the processor time of the thread that records.
fn thread_time(process: &Process) -> Result<Duration> {
    let tasks = PathBuf::from(format!("/proc/{}/task", process.pid()));
    let entries = fs::read_dir(&tasks).map_err(Error::file("read", &tasks))?;
    for task in entries.flatten() {
        let read = |name: &str| fs::read_to_string(task.path().join(name)).unwrap_or_default();
        if read("comm").trim_end() == "quipu recorder" {
            // The first field is the time on a processor, in nanoseconds.
            let text = read("schedstat");
            let time = text.split(' ').next().and_then(|time| time.parse().ok());
            return time
                .map(Duration::from_nanos)
                .ok_or_else(|| process.failed("its thread has no schedstat"));
        }
    }
    Err(process.failed("has no thread that records"))
}

/// Returns the bytes that the recorder takes in a file.
fn recorded_bytes(bench: &Bench, file: &Path) -> Result<u64> {
    #[derive(Deserialize)]
    struct Inspected {
        records: Vec<Held>,
    }
    #[derive(Deserialize)]
    struct Held {
        kind: String,
        bytes: u64,
    }
    let inspected: Inspected = inspect(bench, file, &[])?;
    let held = inspected.records.iter().filter(|record| record.kind.starts_with("FREC"));
    Ok(held.map(|record| record.bytes).sum())
}

/// Returns the output of `quipu inspect` for a file as JSON. This fails if the file is damaged.
fn inspect<T: for<'d> Deserialize<'d>>(bench: &Bench, file: &Path, more: &[&str]) -> Result<T> {
    let mut command = Command::new(&bench.quipu);
    command.args(["inspect", "--format", "json"]).args(more).arg(file);
    let output = command.output().map_err(Error::file("start", &bench.quipu))?;
    let failed = |problem: String| Error::command(format!("{command:?}"), problem);
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(failed(format!("{}: {said}", output.status)));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| failed(error.to_string()))
}

/// Kills processes that count and record, and reads their histories.
fn kills(
    bench: &Bench,
    folder: &Path,
    interval: Duration,
    case: &str,
    progress: &mut Progress,
) -> Result<Vec<Record>> {
    let (mut readable, mut oldest) = (0, 0.0_f64);
    let mut numbers = 0..bench.plan.kills as usize;
    loop {
        let round: Vec<usize> = numbers.by_ref().take(TOGETHER).collect();
        let Some(first) = round.first() else { break };
        progress.step(&format!("{case}: from kill {}", first + 1));
        let mut running = Vec::new();
        for number in round {
            let file = folder.join(format!("{}-{number}.quipu", interval.as_millis()));
            let process = start(bench, KINDS[number % KINDS.len()].0, interval, &file)?;
            running.push((number, file, process, Instant::now()));
        }
        running.sort_by_key(|(number, ..)| time_to_kill(*number));
        for (number, file, process, started) in running {
            std::thread::sleep(time_to_kill(number).saturating_sub(started.elapsed()));
            process.kill();
            let killed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            match last_tick(bench, &file) {
                Ok(last) => {
                    readable += 1;
                    oldest = oldest.max(killed.as_secs_f64() - last);
                }
                Err(error) => eprintln!("{case}: kill {}: {error}", number + 1),
            }
            for path in [file.clone(), ready(&file), file.with_extension("log")] {
                fs::remove_file(&path).map_err(Error::file("remove", &path))?;
            }
        }
    }
    let label = |metric, unit| Label::new(case, "quipu", metric, unit);
    Ok(vec![
        label("kills", "kills").of(&[f64::from(bench.plan.kills)]),
        label("readable", "kills").of(&[f64::from(readable)]),
        label("greatest age of the last tick", "s").of(&[oldest]),
    ])
}

/// Returns the time of the last tick, in seconds since 1970, of a history that contains all series
/// and is not damaged. This reads only the last second, because more ticks of histograms would be
/// more values than `inspect` reads at once.
fn last_tick(bench: &Bench, file: &Path) -> Result<f64> {
    #[derive(Deserialize)]
    struct History {
        times: Vec<f64>,
        series: Vec<serde::de::IgnoredAny>,
        damage: Vec<serde::de::IgnoredAny>,
    }
    let history: History = inspect(bench, file, &["--history", "--last", "1s"])?;
    let problem = |text: String| Err(Error::command("quipu inspect --history", text));
    if !history.damage.is_empty() {
        return problem(format!("{} damages", history.damage.len()));
    }
    if history.series.len() < SERIES {
        return problem(format!("{} of {SERIES} series", history.series.len()));
    }
    match history.times.last() {
        Some(last) => Ok(*last),
        None => problem("no ticks".into()),
    }
}
