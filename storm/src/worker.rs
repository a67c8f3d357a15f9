//! The worker in Rust. It reads commands from standard input and writes one byte for each completed
//! operation. The workers in `workers` use the same protocol:
//!
//! | command | effect |
//! |---|---|
//! | `go TAG SEED COUNT` | the operations of that seed, each acknowledged by `.`; then `d` |
//! | `fork TAG SEED COUNT` | the same in a child, acknowledged by `,`; then `c` |
//!
//! The first byte of the output shows where the worker counts: `S` in the segment file, `M` in
//! memory because the file was not available. You can find warnings in standard error.

use std::collections::HashMap;
use std::error::Error;
use std::io::{BufRead, Write};
use std::path::Path;

use quipu::label::Values;
use quipu::{Description, HistogramFamily, MixedCounter, MixedCounterFamily, Registry};
use quipu_store::SegmentStore;

use crate::model::Command;
use crate::sequence::{self, BUCKETS, Operation, Sequence};

/// The metrics of every worker.
pub(crate) struct Metrics {
    jobs: MixedCounterFamily<Values<'static>>,
    seconds: HistogramFamily<Values<'static>>,
    bound: HashMap<u64, MixedCounter>,
}

/// Opens the store in `directory`. Every worker and the reader use this.
pub(crate) fn open(directory: &Path) -> Result<SegmentStore, Box<dyn Error>> {
    let warn = |what: &str| eprintln!("warning: {what}");
    Ok(SegmentStore::options().on_warning(warn).open(directory)?)
}

/// Counts according to the driver's commands.
pub(crate) fn run(directory: &Path) -> Result<(), Box<dyn Error>> {
    let store = open(directory)?;
    let mut metrics = Metrics::on(store.scrape_registry())?;
    acknowledge(if store.path().is_some() { b'S' } else { b'M' });
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let mut words = line.split(' ');
        let verb = words.next().unwrap_or_default();
        let mut number = || words.next().unwrap_or_default().parse::<u64>();
        let command = Command { tag: number()?, seed: number()?, count: number()? };
        if verb == "go" {
            metrics.begin(command).for_each(|()| acknowledge(b'.'));
            acknowledge(b'd');
            continue;
        }
        // SAFETY: The process is single-threaded.
        match unsafe { libc::fork() } {
            0 => {
                metrics.begin(command).for_each(|()| acknowledge(b','));
                acknowledge(b'c');
                // SAFETY: This ends the child without the exit handlers of its parent.
                unsafe { libc::_exit(0) };
            }
            // SAFETY: No handler is installed. From now on, the system reaps the children.
            _ => unsafe {
                libc::signal(libc::SIGCHLD, libc::SIG_IGN);
            },
        }
    }
    Ok(())
}

impl Metrics {
    /// Registers the metrics.
    pub(crate) fn on(registry: &Registry) -> Result<Self, Box<dyn Error>> {
        // All workers must describe a family in the same way, and Python's metrics use exemplars.
        let describe = |name: &str, help: &str, label: &str| {
            Description::new(name, help).labels([label]).exemplars().verbatim()
        };
        let jobs = describe("storm_jobs", "Jobs.", "job");
        let seconds = describe("storm_seconds", "Seconds.", "host");
        let jobs = registry.register(jobs)?;
        let seconds = registry.register(seconds.buckets(BUCKETS))?;
        Ok(Self { jobs, seconds, bound: HashMap::new() })
    }

    /// Returns an iterator that does one operation of a command at each `next`.
    pub(crate) fn begin(&mut self, command: Command) -> impl Iterator<Item = ()> {
        let mut sequence = Sequence::new(command.seed);
        let mut created = Vec::new();
        (0..command.count).map(move |index| {
            let operation = sequence.draw();
            self.act(command.tag, index, operation, &mut created);
        })
    }

    fn act(&mut self, tag: u64, index: u64, operation: Operation, created: &mut Vec<String>) {
        match operation {
            Operation::Add { job, halves } => {
                let job = sequence::job(job);
                self.jobs.inc_by(&Values(&[&job]), halves as f64 / 2.0);
            }
            Operation::AddBound { job } => {
                let bind = || self.jobs.bind(&Values(&[&sequence::job(job)]));
                self.bound.entry(job).or_insert_with(bind).inc();
            }
            Operation::Observe { host, value } => {
                let host = sequence::host(host);
                self.seconds.observe(&Values(&[&host]), value as f64);
            }
            Operation::Create { padding } => {
                let label = sequence::created(tag, index, padding);
                self.jobs.inc(&Values(&[&label]));
                created.push(label);
            }
            Operation::Remove => {
                if let Some(label) = created.pop()
                    && let Err(error) = self.jobs.remove(&Values(&[&label]))
                {
                    eprintln!("warning: {error}");
                }
            }
        }
    }

    /// Removes the series that operations created.
    pub(crate) fn forget_created(&self) -> Result<u64, quipu::Error> {
        self.jobs.retain(|labels| !labels.iter().any(|(_, value)| value.starts_with('c')))
    }
}

fn acknowledge(byte: u8) {
    // If the driver is gone, the worker ends.
    if std::io::stdout().write_all(&[byte]).and_then(|()| std::io::stdout().flush()).is_err() {
        std::process::exit(0);
    }
}
