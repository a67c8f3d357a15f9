//! The thread that records the series of a registry's segment, second by second.

use std::io;
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

/// Options for [`Registry::record`]: what you want to record, and how much memory to use.
///
/// ```
/// use std::time::Duration;
///
/// let registry = quipu::Registry::new();
/// registry.counter("jobs", "Completed jobs.")?;
/// registry.counter("retries", "Retries of jobs.")?;
/// let options = quipu::RecordingOptions::new()
///     .max_bytes(1 << 20)
///     .interval(Duration::from_millis(100))
///     .families(["jobs"]);
/// let _recording = registry.record(&options)?;
/// # Ok::<(), quipu::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
#[must_use = "pass the options to Registry::record"]
pub struct RecordingOptions(Options);

impl RecordingOptions {
    /// Returns the defaults: up to 1,000 series of all families, each second, in 4 MiB.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the maximum number of bytes that the recorder uses in the segment, from 16 KiB to 64
    /// MiB. When they are full, the oldest sixteenth is overwritten. How long your history reaches
    /// back depends on the changes: for example, a counter that grows evenly takes one byte for
    /// each tick, and a constant one almost none.
    ///
    /// If the segment already contains a recorder, this setting is ignored.
    pub fn max_bytes(self, bytes: u64) -> Self {
        Self(self.0.bytes(bytes))
    }

    /// Sets the maximum number of series to record, from 1 to 16,384. The recorder takes the first
    /// series, in the order the families were registered. It also drops a series if all series
    /// together would hold more than 16,384 cells, or if one tick could take more than a sixteenth
    /// of the bytes. The history contains the number of dropped series.
    pub fn max_series(self, series: usize) -> Self {
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

    /// Checks the options, like [`Registry::record`].
    ///
    /// # Errors
    /// The fault, and the valid range.
    #[doc(hidden)]
    pub fn check(&self) -> Result<(), String> {
        self.0.check()
    }
}

/// A thread that records until you drop this. A child of a fork does not inherit the thread; call
/// [`Recording::resume`] there.
///
/// ```
/// let registry = quipu::Registry::new();
/// let mut recording = registry.record(&quipu::RecordingOptions::new())?;
/// registry.counter("jobs", "Completed jobs.")?.inc();
/// // The process has no recording thread during a fork, for example.
/// recording.pause()?;
/// recording.resume()?;
/// # Ok::<(), quipu::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "the recording ends when this is dropped"]
pub struct Recording {
    segment: Segment,
    options: Options,
    worker: Option<Worker>,
    /// The recorder, during a pause. It keeps the lead.
    recorder: Option<Recorder>,
}

#[derive(Debug)]
struct Worker {
    shared: Arc<WorkerState>,
    thread: JoinHandle<Recorder>,
    /// The fork generation of the process that runs the thread.
    generation: u32,
}

#[derive(Debug, Default)]
struct WorkerState {
    step: AtomicU8,
    is_writing: AtomicBool,
}

// The steps of a thread.
const RUNS: u8 = 0;
/// The thread was asked to end.
const ENDS: u8 = 1;
/// The thread has released the recorder, and only returns.
const ENDED: u8 = 2;

/// The maximum time to wait for the end of a thread. A tick takes about a millisecond, but a disk
/// can block it.
const PATIENCE: Duration = Duration::from_secs(1);
const NAP: Duration = Duration::from_micros(50);

impl Registry {
    /// Records the series of the segment from now on. After a crash, even by SIGKILL, you can see
    /// the history before the crash with `quipu inspect --history FILE`. By default, the recording
    /// keeps the last minutes of up to 1,000 series (an hour of counters, about 4 minutes of busy
    /// histograms), in 4 MiB of the segment, which it takes at once.
    ///
    /// A separate thread reads the series once a second, like a scrape, so counting is not slowed
    /// down. This thread blocks all signals. If several processes that share a file record, one of
    /// them does the work, and when it dies, another one continues.
    ///
    /// Histograms and summaries are recorded with their sums, counts and classic buckets. Values
    /// outside the segment are not recorded: collectors, callbacks, and the buckets of native
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
    /// If an option is out of bounds, if the segment is too full, or if the thread cannot be
    /// started. You can continue to count in any case.
    pub fn record(&self, options: &RecordingOptions) -> Result<Recording, Error> {
        let options = options.0.clone().filter(is_shown);
        let segment = self.segment().clone();
        let mut recording = Recording { segment, options, worker: None, recorder: None };
        recording.resume()?;
        Ok(recording)
    }

    /// Returns the recorder that [`Registry::record`] runs in its thread. Use this if you call
    /// [`Recorder::tick`] yourself: for example, for many segments in one thread.
    ///
    /// # Errors
    /// The errors of [`Registry::record`].
    #[doc(hidden)]
    pub fn recorder(&self, options: &Options) -> Result<Recorder, quipu_segment::Error> {
        options.clone().filter(is_shown).open(self.segment())
    }
}

/// Returns whether scrapes show the family.
fn is_shown(schema: &Schema) -> bool {
    schema.identity != Identity::Apart && Class::from_schema(schema).role == Role::Shown
}

impl Recording {
    /// Returns whether this process writes the recording, and not another process that shares the
    /// file.
    pub fn is_writing(&self) -> bool {
        self.worker.as_ref().is_some_and(|worker| {
            worker.is_own() && worker.shared.is_writing.load(Ordering::Relaxed)
        })
    }

    /// Ends the thread until [`Recording::resume`]. You can call this before a fork, if your
    /// program must not run other threads then; a fork does not require this. The process keeps the
    /// lead.
    ///
    /// Waits for the current tick, but at most a second.
    ///
    /// # Errors
    /// If the tick takes longer than a second. The thread then ends after the tick.
    pub fn pause(&mut self) -> Result<(), Error> {
        match self.worker.take() {
            Some(worker) if worker.is_own() => {
                if !worker.end() {
                    self.worker = Some(worker);
                    let reason = "the recording is still busy after a second: pause it again later";
                    return Err(io::Error::new(io::ErrorKind::TimedOut, reason).into());
                }
                self.recorder = worker.thread.join().ok();
            }
            worker => self.worker = worker,
        }
        Ok(())
    }

    /// Continues after a pause, and in a child of a fork, where the parent's thread does not exist.
    /// Has no effect if the thread runs.
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
    /// Waits for the current tick, but at most a second.
    fn drop(&mut self) {
        match self.worker.take() {
            Some(worker) if !worker.is_own() => worker.forget(),
            Some(worker) if worker.end() => drop(worker.thread.join()),
            // The thread ends as soon as the disk responds.
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

    /// Returns whether the thread belongs to this process, and not to its parent.
    fn is_own(&self) -> bool {
        self.generation == generation()
    }

    /// Forgets a thread of the parent, because it must not even be detached here.
    fn forget(self) {
        std::mem::forget(self);
    }

    /// Asks the thread to end. Returns whether it ended within the patience.
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

    /// Withdraws the request of `end`. Returns false if the thread already ended.
    fn goes_on(&self) -> bool {
        self.shared.step(ENDS, RUNS) != ENDED && !self.thread.is_finished()
    }
}

impl WorkerState {
    /// Changes one step into another; returns the previous one.
    fn step(&self, from: u8, to: u8) -> u8 {
        // Relaxed: the thread hands the recorder over when it ends.
        let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
        self.step.compare_exchange(from, to, success, failure).unwrap_or_else(|found| found)
    }
}

fn run(mut recorder: Recorder, shared: &WorkerState) -> Recorder {
    while shared.step(ENDS, ENDED) != ENDS {
        // If a family cannot be read, the others are recorded. If this process cannot lead now, it
        // tries again in a second.
        let _ = recorder.tick();
        shared.is_writing.store(recorder.is_leading(), Ordering::Relaxed);
        thread::park_timeout(recorder.until_next());
    }
    recorder
}
