//! Measures the worst case of an increment, in segments in memory and on a busy disk.
//!
//! One thread adds to a series in each segment in rotation, and times each addition. This way,
//! other work of the machine disturbs all segments alike, and a subject that only reads the clock
//! shows this disturbance. Another thread writes files to the same disk at full speed, because the
//! kernel then writes dirty pages back all the time, and slows down the threads that dirty more
//! pages.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use quipu::{CounterFamily, Description, Registry};

use super::times::Times;
use super::{Bench, CORE, MEMORY, OTHER_CORE, failed, folder};
use crate::counting::data::Random;
use crate::measure::{on_core, pin};
use crate::progress::Progress;
use crate::record::Label;
use crate::turns::Outcome;
use crate::{Error, Result};

/// The number of series of each segment, which take some hundred pages.
const SERIES: usize = 10_000;
/// The number of names in the sequence of additions.
const NAMES: usize = 1 << 16;
/// The pause between two syncs of a segment, if it is synced: the same as in the daemon.
const SYNC: Duration = Duration::from_millis(500);
/// The number of files that are written at the same time, and the bytes of each.
const FILES: usize = 8;
const FILE_BYTES: usize = 256 << 20;
const BLOCK: usize = 1 << 20;

/// The quantiles of the times.
const QUANTILES: [(&str, f64); 4] =
    [("median", 0.5), ("99 %", 0.99), ("99.99 %", 0.9999), ("99.9999 %", 0.999_999)];

/// Measures all segments.
pub(super) fn worst(bench: &Bench) -> Result<Outcome> {
    let mut rounds: Vec<Vec<(String, Times)>> = Vec::new();
    let mut progress = Progress::new(bench.plan.runs as usize);
    for round in 1..=bench.plan.runs {
        progress.step(&format!("round {round}: increments on a busy disk"));
        rounds.push(one_round(bench)?);
    }
    progress.finish("done");
    let Some(first) = rounds.first() else { return Ok(Outcome::default()) };
    let mut records = Vec::new();
    for (number, (subject, _)) in first.iter().enumerate() {
        let mut record = |metric: &str, unit: &str, of: &dyn Fn(&Times) -> f64| {
            let values: Vec<f64> = rounds.iter().map(|round| of(&round[number].1)).collect();
            records.push(Label::new("worst case", subject, metric, unit).of(&values));
        };
        for (metric, quantile) in QUANTILES {
            record(metric, "ns", &|times| times.quantile(quantile));
        }
        record("greatest", "ns", &|times| times.greatest.as_nanos() as f64);
        record("over 1 ms", "increments", &|times| times.over as f64);
        record("timed", "increments", &|times| times.count as f64);
    }
    Ok(Outcome { records, failures: Vec::new() })
}

/// A segment to count in.
struct Place {
    subject: &'static str,
    family: Option<CounterFamily<[&'static str; 1]>>,
    times: Times,
}

/// Measures all segments once. Returns the times of the additions for each of them.
fn one_round(bench: &Bench) -> Result<Vec<(String, Times)>> {
    let in_memory = folder(Path::new(MEMORY))?;
    let on_disk = folder(&bench.disk)?;
    let synced = Registry::open(on_disk.path().join("synced.quipu")).map_err(failed)?;
    let places = [
        ("the clock alone", None),
        ("quipu (private memory)", Some(Registry::new())),
        ("quipu (file on tmpfs)", Some(open(&in_memory.path().join("shared.quipu"))?)),
        ("quipu (file on ext4)", Some(open(&on_disk.path().join("shared.quipu"))?)),
        ("quipu (file on ext4, synced)", Some(synced.clone())),
    ];
    let names: Vec<String> = (0..SERIES).map(|number| format!("name-{number:05}")).collect();
    let names: &'static [String] = names.leak();
    let mut random = Random::new(1);
    let order: Vec<&'static str> =
        (0..NAMES).map(|_| names[random.below(SERIES)].as_str()).collect();
    let mut counting = Vec::new();
    for (subject, registry) in places {
        let family = registry.map(|registry| make(&registry, names)).transpose()?;
        counting.push(Place { subject, family, times: Times::default() });
    }

    let has_ended = AtomicBool::new(false);
    let written = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            pin(OTHER_CORE);
            write_files(on_disk.path(), &has_ended)
        });
        let syncer = scope.spawn(|| {
            pin(OTHER_CORE);
            while !has_ended.load(Ordering::Relaxed) {
                std::thread::sleep(SYNC);
                synced.segment().sync().map_err(failed)?;
            }
            Ok(())
        });
        on_core(CORE, || count(&mut counting, &order, bench.plan.worst));
        has_ended.store(true, Ordering::Relaxed);
        // A panic of a thread is a panic of the benchmark.
        let written = writer.join().expect("the writer panicked");
        written.and(syncer.join().expect("the syncer panicked"))
    });
    written?;
    Ok(counting.into_iter().map(|place| (place.subject.to_owned(), place.times)).collect())
}

/// Adds in all segments until the time is over.
fn count(places: &mut [Place], order: &[&'static str], time: Duration) {
    let begun = Instant::now();
    let mut names = order.iter().cycle();
    while begun.elapsed() < time {
        let Some(name) = names.next() else { return };
        for place in &mut *places {
            let start = Instant::now();
            if let Some(family) = &place.family {
                family.inc(&[*name]);
            }
            place.times.add(start.elapsed());
        }
    }
}

/// Makes a family with all series, because the timed additions must not create any.
fn make(registry: &Registry, names: &'static [String]) -> Result<CounterFamily<[&'static str; 1]>> {
    let description = Description::new("requests", "Requests.").labels(["name"]);
    let family: CounterFamily<[&'static str; 1]> =
        registry.register(description).map_err(failed)?;
    names.iter().for_each(|name| family.inc(&[name.as_str()]));
    Ok(family)
}

/// Writes files at full speed, each synced at its end, repeatedly.
fn write_files(folder: &Path, has_ended: &AtomicBool) -> Result<()> {
    let block: Vec<u8> = (0..BLOCK).map(|i| (i * 31) as u8).collect();
    let mut number = 0;
    while !has_ended.load(Ordering::Relaxed) {
        let path = folder.join(format!("written-{}", number % FILES));
        number += 1;
        let write = || {
            let mut file = File::create(&path)?;
            for _ in 0..FILE_BYTES / BLOCK {
                file.write_all(&block)?;
                if has_ended.load(Ordering::Relaxed) {
                    break;
                }
            }
            file.sync_all()
        };
        write().map_err(Error::file("write", &path))?;
    }
    Ok(())
}

fn open(path: &Path) -> Result<Registry> {
    Registry::open(path).map_err(failed)
}
