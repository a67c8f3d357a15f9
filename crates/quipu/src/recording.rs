//! The thread that records the series of a registry's segment, second by second.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use quipu_segment::history::{Options, Recorder};
use quipu_segment::series::{Identity, Schema};
use quipu_segment::{Segment, generation, spawn_without_signals};

use crate::error::Error;
use crate::intake::class::{Class, Role};
use crate::registry::Registry;

/// Options for [`Registry::record`]: what to record, and in how much memory.
///
/// ```
/// use std::time::Duration;
///
/// let registry = quipu::Registry::new();
/// registry.counter("jobs", "Completed jobs.")?;
/// registry.counter("retries", "Retries of jobs.")?;
/// let options = quipu::RecordingOptions::new()
///     .bytes(1 << 20)
///     .interval(Duration::from_millis(100))
///     .families(["jobs"]);
/// let _recording = registry.record(&options)?;
/// # Ok::<(), quipu::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct RecordingOptions(Options);

impl RecordingOptions {
    /// Returns the defaults: up to 1,000 series of all families, each second, in 4 MiB.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the most bytes that the recorder may use in the segment, from 16 KiB to 64 MiB. When
    /// they are full, the oldest sixteenth is overwritten. How long your history reaches back
    /// depends on the changes: for example, a counter that grows evenly takes one byte for each
    /// tick, and a constant one almost none.
    ///
    /// If the segment already contains a recorder, this setting is ignored.
    pub fn bytes(self, bytes: u64) -> Self {
        Self(self.0.bytes(bytes))
    }

    /// Sets the most series to record, from 1 to 16,384. The first series are taken, in the order
    /// in which the families were registered. A series is dropped, too, if all series together
    /// would hold more than 16,384 cells, or if one tick could take more than a sixteenth of the
    /// bytes. The history contains the number of dropped series.
    pub fn series(self, series: usize) -> Self {
        Self(self.0.series(series))
    }

    /// Sets the time from one tick to the next, from 1 ms to an hour.
    pub fn interval(self, interval: Duration) -> Self {
        Self(self.0.interval(interval))
    }

    /// Sets the names of the families to record. Without names, all families are recorded.
    pub fn families<N: Into<String>>(self, names: impl IntoIterator<Item = N>) -> Self {
        Self(self.0.families(names))
    }

    /// Checks the options, as [`Registry::record`] does.
    ///
    /// # Errors
    /// The fault and the valid range.
    #[doc(hidden)]
    pub fn check(&self) -> Result<(), String> {
        self.0.check()
    }
}

/// A thread that records, until this is dropped. A child of a fork does not have the thread: it
/// calls [`Recording::resume`].
///
/// ```
/// let registry = quipu::Registry::new();
/// let mut recording = registry.record(&quipu::RecordingOptions::new())?;
/// registry.counter("jobs", "Completed jobs.")?.inc();
/// // The process has no recording thread during a fork, for example.
/// assert!(recording.pause());
/// recording.resume()?;
/// # Ok::<(), quipu::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "the recording ends when this is dropped"]
pub struct Recording {
    segment: Segment,
    options: Options,
    worker: Option<Worker>,
    /// While it is paused. It keeps the lead.
    recorder: Option<Recorder>,
}

#[derive(Debug)]
struct Worker {
    shared: Arc<WorkerState>,
    thread: JoinHandle<Recorder>,
    /// Of the process that has the thread.
    generation: u32,
}

#[derive(Debug, Default)]
struct WorkerState {
    step: AtomicU8,
    is_writing: AtomicBool,
}

// The steps of a thread.
const RUNS: u8 = 0;
/// It was asked to end.
const ENDS: u8 = 1;
/// It has taken its leave, and only returns.
const ENDED: u8 = 2;

/// How long the end of a thread is waited for. A tick takes about a millisecond, but a disk may
/// stand still.
const PATIENCE: Duration = Duration::from_secs(1);
const NAP: Duration = Duration::from_micros(50);

impl Registry {
    /// Records the series of the segment from now on, so that `quipu inspect --history FILE` shows
    /// what led to a crash, also after a SIGKILL. By default, it keeps the last minutes of up to
    /// 1,000 series (an hour of counters, about 4 minutes of busy histograms), in 4 MiB of the
    /// segment, which it takes at once.
    ///
    /// A separate thread reads the series once a second, as a scrape does: counting does not
    /// notice. It takes no signals. If several processes that share a file record, one of them does
    /// the work, and when it dies, another one continues.
    ///
    /// Histograms and summaries are recorded with their sums, counts and classic buckets. What is
    /// not in the segment is not recorded: collectors, callbacks, and the buckets of native
    /// histograms.
    ///
    /// ```
    /// let registry = quipu::Registry::new();
    /// registry.counter("jobs", "Completed jobs.")?.inc();
    /// let _recording = registry.record(&quipu::RecordingOptions::new())?;
    /// # Ok::<(), quipu::Error>(())
    /// ```
    ///
    /// # Errors
    /// Options out of bounds, a segment without room, and a thread that cannot be started. Counting
    /// goes on.
    pub fn record(&self, options: &RecordingOptions) -> Result<Recording, Error> {
        let options = options.0.clone().filter(is_shown);
        let segment = self.segment().clone();
        let mut recording = Recording { segment, options, worker: None, recorder: None };
        recording.resume()?;
        Ok(recording)
    }

    /// What [`Registry::record`] runs in its thread, for a program that calls [`Recorder::tick`]
    /// itself: for many segments in one thread, for example.
    ///
    /// # Errors
    /// The errors of [`Registry::record`].
    #[doc(hidden)]
    pub fn recorder(&self, options: &Options) -> Result<Recorder, quipu_segment::Error> {
        options.clone().filter(is_shown).open(self.segment())
    }
}

/// Whether scrapes show the family.
fn is_shown(schema: &Schema) -> bool {
    schema.identity != Identity::Apart && Class::from_schema(schema).role == Role::Shown
}

impl Recording {
    /// Whether this process writes, and not another one that shares the file.
    pub fn is_writing(&self) -> bool {
        self.worker.as_ref().is_some_and(|worker| {
            worker.is_own() && worker.shared.is_writing.load(Ordering::Relaxed)
        })
    }

    /// Ends the thread until [`Recording::resume`], such as before a fork in a program that wants
    /// to have no other threads then. A fork does not require it. This process keeps the lead.
    ///
    /// Waits for the tick that is under way, at most a second. Returns false if that was not
    /// enough: then the thread ends after that tick.
    pub fn pause(&mut self) -> bool {
        match self.worker.take() {
            Some(worker) if worker.is_own() => {
                if !worker.end() {
                    self.worker = Some(worker);
                    return false;
                }
                self.recorder = worker.thread.join().ok();
            }
            worker => self.worker = worker,
        }
        true
    }

    /// Goes on after a pause, and in a child of a fork, where the thread of the parent does not
    /// exist. Does nothing if the thread runs.
    ///
    /// # Errors
    /// The errors of [`Registry::record`].
    pub fn resume(&mut self) -> Result<(), Error> {
        match self.worker.take() {
            Some(worker) if !worker.is_own() => worker.forget(),
            Some(worker) if worker.goes_on() => {
                self.worker = Some(worker);
                return Ok(());
            }
            Some(worker) => self.recorder = worker.thread.join().ok(),
            None => {}
        }
        let recorder = match self.recorder.take() {
            Some(recorder) => recorder,
            None => self.options.open(&self.segment).map_err(Error::from_segment)?,
        };
        self.worker = Some(Worker::start(recorder)?);
        Ok(())
    }
}

impl Drop for Recording {
    /// Waits for the tick that is under way, at most a second.
    fn drop(&mut self) {
        match self.worker.take() {
            Some(worker) if !worker.is_own() => worker.forget(),
            Some(worker) if worker.end() => drop(worker.thread.join()),
            // The thread ends when the disk lets it.
            _ => {}
        }
    }
}

impl Worker {
    fn start(recorder: Recorder) -> Result<Self, Error> {
        let shared = Arc::new(WorkerState::default());
        let its = Arc::clone(&shared);
        let thread = spawn_without_signals("quipu recorder", move || run(recorder, &its));
        let thread = thread.map_err(|error| {
            let reason = format!(
                "the thread of the flight recorder cannot be started ({error}): raise the limits on \
                 threads and memory (ulimit -u, ulimit -v)"
            );
            std::io::Error::new(error.kind(), reason)
        })?;
        Ok(Self { shared, thread, generation: generation() })
    }

    /// Whether the thread is one of this process, and not of its parent.
    fn is_own(&self) -> bool {
        self.generation == generation()
    }

    /// Leaves alone a thread of the parent, which must not even be detached here.
    fn forget(self) {
        std::mem::forget(self);
    }

    /// Asks the thread to end. Returns whether it has ended within the patience.
    fn end(&self) -> bool {
        self.shared.step(RUNS, ENDS);
        self.thread.thread().unpark();
        let begun = Instant::now();
        while !self.thread.is_finished() {
            if begun.elapsed() >= PATIENCE {
                return false;
            }
            thread::sleep(NAP);
        }
        true
    }

    /// Takes back what `end` asked for. Returns false if the thread has ended.
    fn goes_on(&self) -> bool {
        self.shared.step(ENDS, RUNS) != ENDED && !self.thread.is_finished()
    }
}

impl WorkerState {
    /// Changes one step into another; returns the one before.
    fn step(&self, from: u8, to: u8) -> u8 {
        // Relaxed: the thread hands the recorder over by its end.
        let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
        self.step.compare_exchange(from, to, success, failure).unwrap_or_else(|found| found)
    }
}

fn run(mut recorder: Recorder, shared: &WorkerState) -> Recorder {
    while shared.step(ENDS, ENDED) != ENDS {
        // If a family cannot be read, the others are recorded. If this process cannot lead now, it
        // may in a second.
        let _ = recorder.tick();
        shared.is_writing.store(recorder.is_leading(), Ordering::Relaxed);
        thread::park_timeout(recorder.until_next());
    }
    recorder
}
