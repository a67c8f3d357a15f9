//! The thread that records the series of a registry's segment, second by second.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use quipu_segment::generation;
use quipu_segment::history::{Options, Recorder};
use quipu_segment::series::{Identity, Schema};

use crate::error::Error;
use crate::intake::class::{Class, Role};
use crate::registry::Registry;

/// A thread that records, until this is dropped. A child of a fork does not have the thread: it
/// calls [`Registry::record`] again.
#[derive(Debug)]
#[must_use = "the recording ends when this is dropped"]
pub struct Recording {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// Of the process that has the thread.
    generation: u32,
}

#[derive(Debug, Default)]
struct Shared {
    is_stopped: AtomicBool,
    is_writing: AtomicBool,
}

impl Registry {
    /// Records the series of the segment from now on, so that `quipu inspect --history FILE` shows
    /// what led to a crash, also after a SIGKILL. By default, it keeps the last minutes of up to
    /// 1,000 series (an hour of counters, about 4 minutes of busy histograms), in 4 MiB of the
    /// segment, which it takes at once.
    ///
    /// A separate thread reads the series once a second, as a scrape does: counting does not
    /// notice. If several processes that share a file record, one of them does the work, and when
    /// it dies, another one continues.
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
    pub fn record(&self, options: &Options) -> Result<Recording, Error> {
        let mut recorder = options.clone().filter(is_shown).open(self.segment())?;
        let shared = Arc::new(Shared::default());
        let its = Arc::clone(&shared);
        let thread = thread::Builder::new().name("quipu recorder".into());
        let thread = thread.spawn(move || run(&mut recorder, &its))?;
        Ok(Recording { shared, thread: Some(thread), generation: generation() })
    }
}

/// Whether scrapes show the family.
fn is_shown(schema: &Schema) -> bool {
    schema.identity != Identity::Apart && Class::of(schema).role == Role::Shown
}

fn run(recorder: &mut Recorder, shared: &Shared) {
    while !shared.is_stopped.load(Ordering::Acquire) {
        // If a family cannot be read, the others are recorded. If this process cannot lead now, it
        // may in a second.
        let _ = recorder.tick();
        shared.is_writing.store(recorder.is_leading(), Ordering::Relaxed);
        thread::park_timeout(recorder.until_next());
    }
}

impl Recording {
    /// Whether this process writes, and not another one that shares the file.
    pub fn is_writing(&self) -> bool {
        self.shared.is_writing.load(Ordering::Relaxed) && self.generation == generation()
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        if self.generation != generation() {
            // The thread is the parent's, and must not even be detached here.
            return std::mem::forget(thread);
        }
        // Release: nothing that the caller did before is recorded after it.
        self.shared.is_stopped.store(true, Ordering::Release);
        thread.thread().unpark();
        let _ = thread.join();
    }
}
