//! The work of the processes that this program starts as counting programs, with `--child`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use quipu::{
    Counter, CounterFamily, Description, FloatCounterFamily, Histogram, HistogramFamily,
    RecordingOptions, Registry,
};

use super::failed;
use crate::Result;
use crate::measure::black_box;

/// The series of a child.
pub(super) const SERIES: usize = 1_000;

/// The metrics of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// One counter, through its handle, for callgrind.
    Counter,
    /// A counter with two labels, among 1,000 series, for callgrind.
    Labels,
    /// A histogram, for callgrind.
    Histogram,
    /// 1,000 counters, with a flight recorder.
    RecordCounters,
    /// 1,000 sums of floats, with a flight recorder.
    RecordFloats,
    /// 1,000 histograms, with a flight recorder.
    RecordHistograms,
}

/// The arguments of a child.
#[derive(Clone, Debug)]
pub struct Child {
    /// The metrics.
    pub kind: Kind,
    /// The file of its segment.
    pub file: PathBuf,
    /// The number of operations, if it is limited.
    pub operations: u64,
    /// The pause between two ticks of a recorder.
    pub interval: Duration,
}

/// Counts as a child.
pub fn child(child: &Child) -> Result<()> {
    let registry = Registry::open(&child.file).map_err(failed)?;
    match child.kind {
        Kind::Counter => {
            let counter = registry.counter("jobs", "Jobs.").map_err(failed)?;
            warm(|| counter.inc());
            by_handle(&counter, child.operations);
        }
        Kind::Labels => {
            let family = counters(&registry)?;
            let names = names();
            for name in &names {
                family.inc(&["200", name.as_str()]);
            }
            by_labels(&family, &names, child.operations);
        }
        Kind::Histogram => {
            let histogram: Histogram =
                registry.register(Description::new("took", "Times.")).map_err(failed)?;
            warm(|| histogram.observe(0.1));
            observe(&histogram, child.operations);
        }
        Kind::RecordCounters => {
            let family = counters(&registry)?;
            record(child, &registry, |name, n| family.inc_by(&["200", name], n))?;
        }
        Kind::RecordFloats => {
            let family: FloatCounterFamily<[&str; 2]> =
                registry.register(description("seconds")).map_err(failed)?;
            record(child, &registry, |name, n| family.inc_by(&["200", name], n as f64 * 0.013))?;
        }
        Kind::RecordHistograms => {
            let family: HistogramFamily<[&str; 2]> =
                registry.register(description("took")).map_err(failed)?;
            record(child, &registry, |name, n| {
                family.observe(&["200", name], n as f64 * 0.013);
            })?;
        }
    }
    Ok(())
}

fn description(name: &str) -> Description {
    Description::new(name, "Counted by a benchmark.").labels(["code", "name"])
}

fn counters(registry: &Registry) -> Result<CounterFamily<[&'static str; 2]>> {
    registry.register(description("requests")).map_err(failed)
}

fn names() -> Vec<String> {
    (0..SERIES).map(|number| format!("name-{number:05}")).collect()
}

/// The first uses register the thread and fill caches.
fn warm(mut operation: impl FnMut()) {
    (0..1_000).for_each(|_| operation());
}

/// The functions whose instructions are counted.
#[inline(never)]
#[unsafe(export_name = "entry_watched_by_handle")]
fn by_handle(counter: &Counter, operations: u64) {
    for _ in 0..operations {
        black_box(counter).inc();
    }
}

#[inline(never)]
#[unsafe(export_name = "entry_watched_by_labels")]
fn by_labels(family: &CounterFamily<[&'static str; 2]>, names: &[String], operations: u64) {
    for name in names.iter().cycle().take(operations as usize) {
        black_box(family).inc(&["200", name.as_str()]);
    }
}

#[inline(never)]
#[unsafe(export_name = "entry_watched_observe")]
fn observe(histogram: &Histogram, operations: u64) {
    for operation in 0..operations {
        black_box(histogram).observe((operation % 100) as f64 * 0.01);
    }
}

/// Changes all series ten times a second, until the process is killed.
fn record(child: &Child, registry: &Registry, add: impl Fn(&str, u64)) -> Result<()> {
    const PAUSE: Duration = Duration::from_millis(100);
    let names = names();
    let change = |round: u64| {
        for (number, name) in names.iter().enumerate() {
            // Each series grows by different amounts from one tick to the next.
            add(name, 1 + (round * 7 + number as u64 * 13) % 101);
        }
    };
    change(0);
    let options = RecordingOptions::new().max_series(SERIES).interval(child.interval);
    let _recording = registry.record(&options).map_err(failed)?;
    std::fs::write(ready(&child.file), "").map_err(crate::Error::file("write", &child.file))?;
    for round in 1.. {
        change(round);
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

/// Returns the path of the file that a child creates when it begins to record.
pub(super) fn ready(file: &Path) -> PathBuf {
    file.with_extension("ready")
}
