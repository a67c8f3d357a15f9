//! Measures remote write of many series, compared to vmagent: its cost, and its behaviour when the
//! receiver is down for ten minutes.
//!
//! All senders run at the same time, each with a separate receiver, because an outage then takes
//! its time only once. The cost of each is its own processor time. quipu reads the segments of the
//! programs. vmagent and one of the variants of quipu scrape the same values from a target instead.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::agents::{Program, Running};
use super::programs::{self, Programs};
use super::receiver::{Receiver, Tally};
use super::serving::Target;
use super::{Bench, MEMORY, OTHER_CORE, amount, folder};
use crate::measure::pin;
use crate::progress::Progress;
use crate::record::{Label, Record};
use crate::turns::Outcome;
use crate::{Error, Result};

/// The pause between two changes of all series.
const PAUSE: Duration = Duration::from_secs(1);
/// The pause between two checks of the receivers.
const LOOK: Duration = Duration::from_millis(50);
/// The time limit for senders to catch up: their pauses between attempts are up to a minute.
const MOST_TO_CATCH_UP: Duration = Duration::from_secs(240);

/// A program that sends, and its receiver.
struct Sender {
    subject: String,
    running: Running,
    receiver: Receiver,
    /// The folder of its unsent samples.
    own: tempfile::TempDir,
}

/// Measures the cost and the outage.
pub(super) fn sending(bench: &Bench) -> Result<Outcome> {
    let folder = folder(Path::new(MEMORY))?;
    let programs = Arc::new(Programs::create(folder.path(), bench.plan.programs)?);
    let its = Arc::clone(&programs);
    let target = Target::start(move || its.text())?;
    let has_ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pin(OTHER_CORE);
            while !has_ended.load(Ordering::Relaxed) {
                programs.change();
                std::thread::sleep(PAUSE);
            }
        });
        let measured = start(bench, folder.path(), &target)
            .and_then(|senders| measure(bench, &senders, programs.len() as u64));
        has_ended.store(true, Ordering::Relaxed);
        measured
    })
}

fn start(bench: &Bench, folder: &Path, target: &Target) -> Result<Vec<Sender>> {
    let interval = humantime::format_duration(bench.plan.interval).to_string();
    let segments = format!("--segments={}", programs::segments(folder).display());
    let quipu = |name: &str, is_2: bool, more: &[String]| {
        let mut options = vec![format!("--remote-write-interval={interval}")];
        options.extend_from_slice(more);
        let url = |receiver: &Receiver, _: &Path| {
            vec![format!("--remote-write=http://{}/api/v1/write", receiver.address)]
        };
        sender(bench, Program::Quipu, name, is_2, &options, url)
    };
    let scraping = [
        format!("--scrape=programs=http://{}/metrics", target.address),
        format!("--scrape-interval={interval}"),
    ];
    let queue = [segments.clone(), "--remote-write-queue=disk".into()];
    // VictoriaMetrics accepts zstd, and 1.0.
    let zstd = [segments.clone(), "--remote-write-compression=zstd".into()];
    let segments = [segments];
    let mut senders = vec![
        quipu("quipu", true, &segments)?,
        quipu("quipu (queue on disk)", true, &queue)?,
        quipu("quipu (1.0)", false, &segments)?,
        quipu("quipu (zstd)", false, &zstd)?,
        quipu("quipu (scraping)", true, &scraping)?,
    ];
    if bench.with_peers {
        let config = folder.join("scrape.yml");
        let text = format!(
            "global:\n  scrape_interval: {interval}\n  scrape_timeout: {interval}\n\
             scrape_configs:\n- job_name: programs\n  static_configs:\n  - targets: [\"{}\"]\n",
            target.address
        );
        fs::write(&config, text).map_err(Error::file("write", &config))?;
        let vmagent = |name: &str, more: &[&str]| {
            let mut options = vec![format!("-promscrape.config={}", config.display())];
            options.extend(more.iter().map(|option| option.to_string()));
            let url = |receiver: &Receiver, own: &Path| {
                vec![
                    format!("-remoteWrite.url=http://{}/api/v1/write", receiver.address),
                    format!("-remoteWrite.tmpDataPath={}", own.join("queue").display()),
                ]
            };
            sender(bench, Program::Vmagent, name, false, &options, url)
        };
        let name = Program::Vmagent.with_version();
        // In Prometheus' form, and in VictoriaMetrics' form.
        senders.push(vmagent(name, &["-remoteWrite.forcePromProto"])?);
        let zstd = format!("{name} (zstd)");
        senders.push(vmagent(&zstd, &["-remoteWrite.forceVMProto"])?);
    }
    Ok(senders)
}

fn sender(
    bench: &Bench,
    program: Program,
    name: &str,
    is_2: bool,
    options: &[String],
    url: impl FnOnce(&Receiver, &Path) -> Vec<String>,
) -> Result<Sender> {
    let receiver = Receiver::start(is_2)?;
    let own = folder(&bench.disk)?;
    let options = [options.to_vec(), url(&receiver, own.path())].concat();
    let running = program.start(bench, own.path(), &options)?;
    Ok(Sender { subject: name.into(), running, receiver, own })
}

fn measure(bench: &Bench, senders: &[Sender], series: u64) -> Result<Outcome> {
    let (interval, intervals) = (bench.plan.interval, bench.plan.intervals);
    let mut progress = Progress::new(intervals as usize + 3);
    progress.step("the first snapshots");
    let begun = Instant::now();
    while !senders.iter().all(|sender| sender.whole(series) >= 2) {
        check(senders, begun, 6 * interval + Duration::from_secs(30))?;
    }
    std::thread::sleep(until_quiet(senders, interval));
    let mut marks = vec![mark(senders)?];
    for number in 1..=intervals {
        progress.step(&format!("interval {number}"));
        std::thread::sleep(interval);
        marks.push(mark(senders)?);
    }
    let mut outcome = Outcome::default();
    let case = format!("sending/{} series", amount(series as usize));
    for (number, sender) in senders.iter().enumerate() {
        let marks: Vec<&Mark> = marks.iter().map(|marks| &marks[number]).collect();
        outcome.records.extend(costs(&case, sender, &marks, series, interval)?);
    }
    outcome.records.extend(outage(bench, senders, series, &mut progress)?);
    progress.finish("done");
    Ok(outcome)
}

/// The resource use and the progress of a sender at a moment.
struct Mark {
    cpu: Duration,
    tally: Tally,
}

fn mark(senders: &[Sender]) -> Result<Vec<Mark>> {
    let of = |sender: &Sender| {
        let cpu = sender.running.process.exact_cpu_time()?;
        Ok(Mark { cpu, tally: sender.receiver.tally() })
    };
    senders.iter().map(of).collect()
}

impl Sender {
    /// Returns the number of snapshots or scrapes whose samples have all arrived.
    fn whole(&self, series: u64) -> usize {
        let arrivals = self.receiver.tally().arrivals;
        arrivals.values().filter(|(count, _)| *count >= series).count()
    }
}

/// Waits a moment. Returns an error if a program has ended, a request cannot be read, or the time
/// limit is exceeded.
fn check(senders: &[Sender], begun: Instant, most: Duration) -> Result<()> {
    std::thread::sleep(LOOK);
    for sender in senders {
        let failed = |problem: &str| Err(sender.running.process.failed(problem));
        if let Some(problem) = sender.receiver.tally().problem {
            return failed(&format!("its receiver cannot read a request: {problem}"));
        }
        if let Some(status) = sender.running.process.ended() {
            return failed(&format!("ended with {status}"));
        }
        if begun.elapsed() > most {
            let tally = sender.receiver.tally();
            return failed(&format!("some sender takes too long; this one: {tally:?}"));
        }
    }
    Ok(())
}

/// Returns the time until the middle of the longest part of an interval without samples.
fn until_quiet(senders: &[Sender], interval: Duration) -> Duration {
    let whole = interval.as_secs_f64();
    let phase = |time: SystemTime| seconds(time) % whole;
    let arrivals: Vec<SystemTime> = senders
        .iter()
        .filter_map(|sender| Some(sender.receiver.tally().arrivals.last_key_value()?.1.1))
        .collect();
    let mut phases: Vec<f64> = arrivals.into_iter().map(phase).collect();
    phases.sort_by(f64::total_cmp);
    let Some(first) = phases.first().copied() else { return Duration::ZERO };
    phases.push(first + whole);
    let widest = phases.windows(2).max_by(|a, b| (a[1] - a[0]).total_cmp(&(b[1] - b[0])));
    let middle = widest.map_or(0.0, |pair| (pair[0] + pair[1]) / 2.0);
    Duration::from_secs_f64((middle - phase(SystemTime::now())).rem_euclid(whole))
}

fn seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// Returns the figures of each interval.
fn costs(
    case: &str,
    sender: &Sender,
    marks: &[&Mark],
    series: u64,
    interval: Duration,
) -> Result<Vec<Record>> {
    let each = |of: &dyn Fn(&Mark, &Mark) -> f64| -> Vec<f64> {
        marks.windows(2).map(|pair| of(pair[0], pair[1])).collect()
    };
    let label = |metric, unit| Label::new(case, &sender.subject, metric, unit);
    let cpu = each(&|a, b| (b.cpu - a.cpu).as_secs_f64());
    let used: Vec<f64> = cpu.iter().map(|cpu| 100.0 * cpu / interval.as_secs_f64()).collect();
    let times: Vec<f64> = cpu.iter().map(|cpu| cpu * 1e3).collect();
    let bytes = each(&|a, b| (b.tally.bytes - a.tally.bytes) as f64);
    let samples = each(&|a, b| (b.tally.samples - a.tally.samples) as f64);
    let requests = each(&|a, b| (b.tally.requests - a.tally.requests) as f64);
    let missing: f64 = samples.iter().map(|samples| series as f64 - samples).sum();
    if missing.abs() >= series as f64 / 2.0 {
        eprintln!("{case}: {}: samples of the intervals: {samples:?}", sender.subject);
    }
    Ok(vec![
        label("cpu time of an interval", "ms").of(&times),
        label("core used", "%").of(&used),
        label("memory", "B").of(&[sender.running.process.memory()? as f64]),
        label("bytes on the wire", "B").of(&bytes),
        label("samples", "samples").of(&samples),
        label("requests", "requests").of(&requests),
    ])
}

/// Takes the receivers down for a time, and up again.
fn outage(
    bench: &Bench,
    senders: &[Sender],
    series: u64,
    progress: &mut Progress,
) -> Result<Vec<Record>> {
    let (interval, time) = (bench.plan.interval, bench.plan.outage);
    progress.step(&format!("an outage of {}", humantime::format_duration(time)));
    let (before, down) = (mark(senders)?, SystemTime::now());
    senders.iter().for_each(|sender| sender.receiver.set_down(true));
    std::thread::sleep(time);
    let (up, at_end) = (SystemTime::now(), mark(senders)?);
    let mut kept = Vec::new();
    for sender in senders {
        // The state and the log are next to the folder of a queue.
        kept.push((sender.running.process.memory()?, queued(sender.own.path())));
    }
    senders.iter().for_each(|sender| sender.receiver.set_down(false));

    progress.step("catching up");
    let (begun, back) = (Instant::now(), millis(up));
    let is_current = |sender: &Sender| {
        let arrivals = sender.receiver.tally().arrivals;
        arrivals.range(back..).any(|(_, (count, _))| *count >= series)
    };
    while !senders.iter().all(is_current) {
        check(senders, begun, MOST_TO_CATCH_UP + 4 * interval)?;
    }
    // Wait for the samples after the first current ones.
    std::thread::sleep(2 * interval);

    let case = format!("outage/{}", humantime::format_duration(time));
    let mut records = Vec::new();
    for (number, sender) in senders.iter().enumerate() {
        let caught = CaughtUp::of(&sender.receiver.tally(), [down, up], interval, series);
        let label = |metric, unit| Label::new(&case, &sender.subject, metric, unit);
        let (memory, disk) = kept[number];
        let used = at_end[number].cpu - before[number].cpu;
        let used = 100.0 * used.as_secs_f64() / time.as_secs_f64();
        let refused = at_end[number].tally.bytes_refused;
        records.extend([
            label("until current", "s").of(&[caught.until_current]),
            label("until the last sample of the outage", "s").of(&[caught.until_last]),
            label("share of its samples received", "%").of(&[caught.share]),
            label("core used meanwhile", "%").of(&[used]),
            label("bytes sent in vain", "B").of(&[refused as f64]),
            label("memory at its end", "B").of(&[memory as f64]),
            label("peak memory", "B").of(&[sender.running.process.peak_memory()? as f64]),
            label("bytes on disk", "B").of(&[disk as f64]),
        ]);
    }
    Ok(records)
}

/// The samples that arrived after an outage.
#[derive(Debug, PartialEq)]
struct CaughtUp {
    /// Seconds from its end to the moment when all series had a sample from at most an interval
    /// before that end.
    until_current: f64,
    /// Seconds from its end to the last sample of its time; 0 if there is none.
    until_last: f64,
    /// The share of the samples of its time, in %.
    share: f64,
}

impl CaughtUp {
    fn of(tally: &Tally, [down, up]: [SystemTime; 2], interval: Duration, series: u64) -> CaughtUp {
        let since = |at: SystemTime| (seconds(at) - seconds(up)).max(0.0);
        let current = millis(up - interval);
        let until_current = tally
            .arrivals
            .range(current..)
            .filter(|(_, (count, _))| *count >= series)
            .map(|(_, (_, at))| since(*at))
            .min_by(f64::total_cmp);
        let of_outage = || tally.arrivals.range(millis(down)..millis(up));
        let received: u64 = of_outage().map(|(_, (count, _))| count).sum();
        let time = seconds(up) - seconds(down);
        let expected = (time / interval.as_secs_f64()).floor().max(1.0) * series as f64;
        CaughtUp {
            until_current: until_current.unwrap_or(f64::MAX),
            until_last: of_outage().map(|(_, (_, at))| since(*at)).fold(0.0, f64::max),
            share: (100.0 * received as f64 / expected).min(100.0),
        }
    }
}

fn millis(time: SystemTime) -> i64 {
    (seconds(time) * 1e3) as i64
}

/// Returns the bytes of all files in the folders in a folder.
fn queued(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    entries.flatten().map(|entry| bytes_below(&entry.path())).sum()
}

/// Returns the bytes of all files in a folder and its subfolders.
fn bytes_below(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => bytes_below(&entry.path()),
        Ok(metadata) => {
            use std::os::unix::fs::MetadataExt;
            metadata.blocks() * 512
        }
        Err(_) => 0,
    };
    entries.flatten().map(size).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn catching_up_is_of_the_times_of_samples() {
        let at = |seconds: u64| UNIX_EPOCH + Duration::from_secs(seconds);
        let mut tally = Tally::default();
        // Sent before the outage, during it, and after it.
        for (time, count, arrived) in
            [(990, 5, 990), (1_010, 5, 1_071), (1_055, 5, 1_068), (1_065, 5, 1_069)]
        {
            tally.arrivals.insert(time * 1000, (count, at(arrived)));
        }
        let outage = [at(1_000), at(1_060)];
        let caught = CaughtUp::of(&tally, outage, Duration::from_secs(15), 5);
        assert_eq!(caught, CaughtUp { until_current: 8.0, until_last: 11.0, share: 50.0 });
    }
}
