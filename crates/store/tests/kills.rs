//! Processes that count in one store while some of them are killed and a scraper reads.
//!
//! The processes run this test's program, with the test `worker`. After every update, a process
//! acknowledges it with a byte in a pipe.

#![cfg(all(target_os = "linux", not(miri)))]
#![allow(clippy::unwrap_used)]

mod common;

use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use common::{all, total};
use quipu_store::{Kind, Metric, SegmentStore, Spec, Store};

/// The number of processes that run at the same time.
const WORKERS: usize = 3;

/// A pseudo-random number generator (Steele, Lea, Flood 2014).
struct SplitMix(u64);

impl SplitMix {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % end
    }
}

fn open(kind: &str, path: &Path) -> Box<dyn Store> {
    match kind {
        "segment" => Box::new(SegmentStore::open(path).unwrap()),
        #[cfg(feature = "lmdb")]
        "embedded" => Box::new(quipu_store::EmbeddedStore::open(path).unwrap()),
        other => panic!("no store is called {other}"),
    }
}

/// A counter without labels, one with many, and the parts of a histogram.
fn metrics(store: &dyn Store) -> Vec<Arc<dyn Metric>> {
    let specs = [
        Spec::new("plain_total", Kind::Counter),
        Spec::new("requests_total", Kind::Counter).labels(["code", "path"]),
        Spec::new("seconds", Kind::Histogram).labels(["path", "le"]),
    ];
    specs.iter().map(|spec| store.metric(spec).unwrap()).collect()
}

/// The work of the processes that are killed.
#[test]
fn worker() {
    let (Ok(path), Ok(kind)) = (std::env::var("KILLS_PATH"), std::env::var("KILLS_STORE")) else {
        return;
    };
    let mut random = SplitMix(std::process::id().into());
    let store = open(&kind, Path::new(&path));
    let metrics = metrics(&*store);
    // Every process of `prometheus-client` does this.
    metrics[0].set(&[], 0.0);
    let mut acknowledge = std::io::stderr();
    loop {
        let number = random.below(3);
        let path = format!("/{}", random.below(500));
        let by = [1.0, 0.5, 1.0][random.below(3) as usize];
        let times = match number {
            0 => {
                metrics[0].add(&[], 1.0);
                1
            }
            1 => {
                metrics[1].add(&["200", &path], by);
                if by == 1.0 { 2 } else { 1 }
            }
            _ => {
                metrics[2].add(&[&path, "0.5"], 1.0);
                1
            }
        };
        // A byte for each half that was added to the second metric.
        let bytes = [b'0' + number as u8; 2];
        if acknowledge.write_all(&bytes[..times]).is_err() {
            return;
        }
    }
}

struct Worker {
    child: Child,
    acknowledged: JoinHandle<[u64; 3]>,
}

impl Worker {
    fn start(kind: &str, path: &Path) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "worker", "--nocapture", "--test-threads=1"]);
        command.env("KILLS_PATH", path).env("KILLS_STORE", kind);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut pipe = child.stderr.take().unwrap();
        let acknowledged = std::thread::spawn(move || {
            let (mut counts, mut bytes) = ([0; 3], [0; 1 << 16]);
            while let count @ 1.. = pipe.read(&mut bytes).unwrap() {
                for byte in &bytes[..count] {
                    let number = usize::from(byte.wrapping_sub(b'0'));
                    assert!(number < 3, "{}", String::from_utf8_lossy(&bytes[..count]));
                    counts[number] += 1;
                }
            }
            counts
        });
        Self { child, acknowledged }
    }

    /// Kills the worker, and returns its numbers of acknowledged updates.
    fn kill(mut self) -> [u64; 3] {
        self.child.kill().unwrap();
        assert_eq!(self.child.wait().unwrap().signal(), Some(9));
        self.acknowledged.join().unwrap()
    }
}

/// Ends the scraper when it is dropped.
struct Done<'d>(&'d AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Kills workers at random, and compares the totals with the acknowledged updates.
fn storm(kind: &'static str, kills: usize) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let store = open(kind, path);
    let metrics = metrics(&*store);
    let (done, mut scrapes) = (AtomicBool::new(false), 0);
    let (mut acknowledged, mut started) = ([0; 3], 0_u64);
    std::thread::scope(|scope| {
        // Ends the scraper even if this panics.
        let _done = Done(&done);
        let scraper = scope.spawn(|| {
            let mut last = 0.0;
            while !done.load(Ordering::Relaxed) {
                metrics.iter().for_each(|metric| {
                    all(&**metric);
                });
                let now = total(&*metrics[1]);
                assert!(now >= last, "a counter went back from {last} to {now}");
                last = now;
                scrapes += 1;
            }
        });
        let mut random = SplitMix(std::process::id().into());
        let mut start = || {
            started += 1;
            Worker::start(kind, path)
        };
        let mut workers: Vec<Worker> = (0..WORKERS).map(|_| start()).collect();
        for kill in 0..kills {
            std::thread::sleep(Duration::from_micros(random.below(40_000)));
            // Sometimes all of them die at once.
            for _ in 0..if kill % 20 == 19 { WORKERS } else { 1 } {
                let victim = workers.swap_remove(random.below(workers.len() as u64) as usize);
                let counts = victim.kill();
                acknowledged.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
            }
            while workers.len() < WORKERS {
                workers.push(start());
            }
        }
        for worker in workers {
            let counts = worker.kill();
            acknowledged.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        done.store(true, Ordering::Relaxed);
        scraper.join().unwrap();
    });
    let totals = [total(&*metrics[0]), 2.0 * total(&*metrics[1]), total(&*metrics[2])];
    for ((total, acknowledged), most) in totals.into_iter().zip(acknowledged).zip([1, 2, 1]) {
        let range = acknowledged as f64..=(acknowledged + started * most) as f64;
        assert!(range.contains(&total), "{total} is not in {range:?}");
        assert!(acknowledged > kills as u64, "{acknowledged}");
    }
    // Each worker had at most one update of one metric in flight.
    let sum = totals.iter().sum::<f64>();
    let in_flight = sum - acknowledged.iter().sum::<u64>() as f64;
    assert!(in_flight <= 2.0 * started as f64, "{in_flight} of {started}");
    assert!(scrapes > 0);
    assert_eq!(store.dropped(), 0);
    drop((metrics, store));
    // A store that is opened later returns the same values.
    let store = open(kind, path);
    let again = self::metrics(&*store);
    assert_eq!(2.0 * total(&*again[1]), totals[1]);
}

#[test]
fn a_segment_loses_nothing_that_was_acknowledged() {
    storm("segment", 100);
}

#[cfg(feature = "lmdb")]
#[test]
fn a_database_loses_nothing_that_was_acknowledged() {
    storm("embedded", 40);
}
