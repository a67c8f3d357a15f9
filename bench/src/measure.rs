//! Times code in this process.
//!
//! A [`Case`] holds subjects that do the same work and measures them in rotation, one run of each
//! in turn, because a drift of the machine then affects all equally. The number of operations of
//! each subject is calibrated to make a run take [`Options::run_time`]; this also warms the subject
//! up.
//!
//! The figure is the wall time per operation. On several threads it is aggregate: the elapsed time,
//! from the start of the first thread to the end of the last, divided by the operations of all
//! threads. For example, perfect scaling to two threads halves it.
//!
//! ```
//! use std::sync::atomic::{AtomicU64, Ordering};
//! use quipu_bench::measure::{Case, Options};
//!
//! let counter = AtomicU64::new(0);
//! let options = Options { runs: 3, ..Options::quick() };
//! let records = Case::new("atomic/add")
//!     .threads(2)
//!     .each("std", || counter.fetch_add(1, Ordering::Relaxed))
//!     .run(&options);
//! assert_eq!((records[0].threads, records[0].unit.as_str()), (2, "ns"));
//! ```

pub use std::hint::black_box;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::record::{Label, Record};

/// The durations and repetitions of a measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// The number of timed runs of a subject.
    pub runs: u32,
    /// The target duration of a run.
    pub run_time: Duration,
}

impl Default for Options {
    /// Nine runs of 100 ms.
    fn default() -> Options {
        Options { runs: 9, run_time: Duration::from_millis(100) }
    }
}

impl Options {
    /// Nine runs of 10 ms, to try out a benchmark.
    pub fn quick() -> Options {
        Options { run_time: Duration::from_millis(10), ..Options::default() }
    }
}

/// Subjects that do the same work.
pub struct Case<'a> {
    name: String,
    threads: usize,
    subjects: Vec<Subject<'a>>,
}

/// A subject. `run(threads, n)` does `n` operations on each thread and returns the elapsed time.
struct Subject<'a> {
    name: String,
    run: Box<dyn FnMut(usize, u64) -> Duration + 'a>,
}

impl<'a> Case<'a> {
    /// A case on one thread, without subjects.
    pub fn new(name: impl Into<String>) -> Case<'a> {
        Case { name: name.into(), threads: 1, subjects: Vec::new() }
    }

    /// Measures on this number of threads at the same time.
    pub fn threads(self, threads: usize) -> Case<'a> {
        assert!(threads > 0, "a case needs a thread");
        Case { threads, ..self }
    }

    /// Adds a subject whose operation is one call. The result goes through [`black_box`].
    pub fn each<R>(self, subject: &str, operation: impl Fn() -> R + Sync + 'a) -> Case<'a> {
        self.shared(subject, move |_, n| {
            for _ in 0..n {
                black_box(operation());
            }
        })
    }

    /// Adds a subject whose `body(thread, n)` does `n` operations. It is called on all threads at
    /// the same time.
    pub fn shared(self, subject: &str, body: impl Fn(usize, u64) + Sync + 'a) -> Case<'a> {
        self.timed(subject, move |threads, n| on_threads(threads, |thread| body(thread, n)))
    }

    /// Adds a subject that starts each run from a new state. Its creation is not timed, so you can
    /// fill a table there, for example.
    pub fn prepared<T: Sync>(
        self,
        subject: &str,
        mut setup: impl FnMut() -> T + 'a,
        body: impl Fn(&T, usize, u64) + Sync + 'a,
    ) -> Case<'a> {
        self.timed(subject, move |threads, n| {
            let state = setup();
            on_threads(threads, |thread| body(&state, thread, n))
        })
    }

    /// Adds a subject for one thread. You can use this if the body needs exclusive access to its
    /// state.
    ///
    /// # Panics
    ///
    /// [`Case::run`] panics if you set more threads.
    pub fn exclusive(self, subject: &str, mut body: impl FnMut(u64) + 'a) -> Case<'a> {
        self.timed(subject, move |threads, n| {
            assert_eq!(threads, 1, "exclusive access is for one thread");
            let start = Instant::now();
            body(n);
            start.elapsed()
        })
    }

    /// Adds a subject that measures its own time: `run(threads, n)` does `n` operations on each
    /// thread and returns the elapsed wall time. You can use this if a part of the work must not be
    /// timed.
    pub fn timed(
        mut self,
        subject: &str,
        run: impl FnMut(usize, u64) -> Duration + 'a,
    ) -> Case<'a> {
        self.subjects.push(Subject { name: subject.into(), run: Box::new(run) });
        self
    }

    /// Measures all subjects. The records use the metric `time` in ns, in the subjects' order.
    pub fn run(mut self, options: &Options) -> Vec<Record> {
        let threads = self.threads;
        let operations: Vec<u64> = self
            .subjects
            .iter_mut()
            .map(|subject| calibrate(|n| (subject.run)(threads, n), options.run_time))
            .collect();
        let mut values = vec![Vec::new(); self.subjects.len()];
        for _ in 0..options.runs.max(1) {
            for (index, subject) in self.subjects.iter_mut().enumerate() {
                let elapsed = (subject.run)(threads, operations[index]);
                let total = threads as f64 * operations[index] as f64;
                values[index].push(elapsed.as_nanos() as f64 / total);
            }
        }
        self.subjects
            .iter()
            .zip(&values)
            .map(|(subject, values)| {
                let label = Label::new(&self.name, &subject.name, "time", "ns");
                label.threads(threads as u32).of(values)
            })
            .collect()
    }
}

/// Runs the body on threads that start together; returns the wall time from the start of the first
/// to the end of the last.
pub fn on_threads(threads: usize, body: impl Fn(usize) + Sync) -> Duration {
    if threads == 1 {
        let start = Instant::now();
        body(0);
        return start.elapsed();
    }
    together(threads, body)
}

/// Like [`on_threads`], with each thread pinned to a different core as long as there are enough.
pub fn on_cores(threads: usize, body: impl Fn(usize) + Sync) -> Duration {
    together(threads, |thread| {
        pin(thread);
        body(thread);
    })
}

/// Pins this thread to a core. Numbers beyond the last core wrap around.
///
/// If the system refuses this, the thread stays unpinned, and the figures are noisier.
pub fn pin(core: usize) {
    let Ok(allowed) = sched_getaffinity(None) else { return };
    let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).collect();
    let mut chosen = CpuSet::new();
    if let Some(core) = cores.get(core % cores.len().max(1)) {
        chosen.set(*core);
        let _ = sched_setaffinity(None, &chosen);
    }
}

/// Runs the body on a thread that is pinned to a core.
pub fn on_core<T: Send>(core: usize, body: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            pin(core);
            body()
        });
        // A panic of the body is a panic of the benchmark.
        thread.join().expect("the body panicked")
    })
}

fn together(threads: usize, body: impl Fn(usize) + Sync) -> Duration {
    let barrier = Barrier::new(threads);
    let spans: Vec<(Instant, Instant)> = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads)
            .map(|thread| {
                let (barrier, body) = (&barrier, &body);
                scope.spawn(move || {
                    barrier.wait();
                    let start = Instant::now();
                    body(thread);
                    (start, Instant::now())
                })
            })
            .collect();
        // A panic of the body is a panic of the benchmark.
        handles.into_iter().map(|handle| handle.join().expect("the body panicked")).collect()
    });
    let first = spans.iter().map(|span| span.0).min();
    let last = spans.iter().map(|span| span.1).max();
    last.zip(first).map_or(Duration::ZERO, |(last, first)| last - first)
}

/// The number of operations, at least 1, that take about the given time.
fn calibrate(mut run: impl FnMut(u64) -> Duration, run_time: Duration) -> u64 {
    let mut n = 1u64;
    loop {
        let elapsed = run(n);
        // The bound on n ends the search if the operation was optimised away.
        if elapsed >= run_time / 4 || n >= 1 << 40 {
            let scale = run_time.as_secs_f64() / elapsed.as_secs_f64().max(1e-9);
            return ((n as f64 * scale) as u64).max(1);
        }
        n *= 4;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn calibrates_to_the_run_time() {
        let micros = |n: u64| Duration::from_micros(2 * n);
        let n = calibrate(micros, Duration::from_millis(100));
        assert!((49_000..=51_000).contains(&n), "{n}");
        assert_eq!(calibrate(|_| Duration::from_secs(1), Duration::from_millis(100)), 1);
    }

    #[test]
    fn subjects_run_in_rotation() {
        let order = RefCell::new(Vec::new());
        let body = |name: &'static str| {
            let order = &order;
            move |_: usize, _: u64| {
                order.borrow_mut().push(name);
                Duration::from_millis(1)
            }
        };
        let options = Options { runs: 2, run_time: Duration::from_millis(1) };
        let case = Case::new("c").timed("a", body("a")).timed("b", body("b"));
        let records = case.run(&options);
        assert_eq!(*order.borrow(), ["a", "b", "a", "b", "a", "b"]);
        assert_eq!((records[0].subject.as_str(), records[1].subject.as_str()), ("a", "b"));
        assert_eq!((records[0].median, records[0].runs), (1e6, 2));
    }

    #[test]
    fn aggregate_time_is_by_all_operations_of_all_threads() {
        let options = Options { runs: 1, run_time: Duration::from_millis(1) };
        let run = |_: usize, n: u64| Duration::from_nanos(100 * n);
        let records = Case::new("c").threads(4).timed("a", run).run(&options);
        assert_eq!((records[0].median, records[0].threads), (25.0, 4));
    }

    #[test]
    fn every_thread_does_its_operations_on_a_fresh_state() {
        let states = AtomicU64::new(0);
        let total = AtomicU64::new(0);
        let options = Options { runs: 2, run_time: Duration::from_micros(1) };
        let records = Case::new("c")
            .threads(3)
            .prepared(
                "a",
                || states.fetch_add(1, Ordering::Relaxed),
                |_, thread, n| {
                    assert!(thread < 3);
                    total.fetch_add(n, Ordering::Relaxed);
                },
            )
            .run(&options);
        assert!(states.into_inner() >= 3, "calibration and two runs");
        assert!(total.into_inner() >= 9 && records[0].median > 0.0);
    }
}
