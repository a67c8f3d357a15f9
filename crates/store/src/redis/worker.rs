//! The background thread that flushes. Of all processes that share a segment, one leads, and only
//! its thread flushes.
//! A forked child runs none of its parent's threads. It starts a new one at its next increment,
//! which then waits to lead. The connection belongs to the thread, so no child uses the connection
//! of its parent.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};

use quipu::label::Values;
use quipu::{CounterFamily, Registry};
use quipu_segment::LeaderLease;

use super::flush::Flusher;
use super::instance::Instance;
use super::link::{Cause, Failure};
use super::options::RedisOptions;
use super::own;
use crate::error::Error;
use crate::lock::LockedValue;

/// The state that the thread and the store share.
pub(super) struct Worker {
    options: RedisOptions,
    registry: Registry,
    instance: Arc<Instance>,
    /// The generation of the process that runs the thread, plus one; 0 for none.
    runs: AtomicU32,
    thread: LockedValue<Option<Thread>>,
    /// When the system last refused to start a thread.
    refused: LockedValue<Option<Instant>>,
    is_stopping: AtomicBool,
    dropped: AtomicU64,
    last_error: LockedValue<Option<String>>,
    metrics: Metrics,
}

/// The store's metrics about itself.
struct Metrics {
    errors: CounterFamily<Values<'static>>,
    flushes: CounterFamily<Values<'static>>,
    series: CounterFamily<Values<'static>>,
    folded: CounterFamily<Values<'static>>,
}

/// How often the leading thread checks for requests to flush.
const REQUEST_CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// How often a caller that waits for a flush checks whether it is done.
const DONE_CHECK_INTERVAL: Duration = Duration::from_millis(1);
/// The shortest pause after an error.
const MIN_BACKOFF: Duration = Duration::from_millis(50);

impl Worker {
    pub(super) fn new(
        options: RedisOptions,
        registry: Registry,
        instance: Arc<Instance>,
    ) -> Result<Self, Error> {
        let metrics = Metrics::register(&registry, &instance)
            .map_err(|error| Error::because("redis", "its own metrics", error))?;
        Ok(Self {
            options,
            registry,
            instance,
            runs: AtomicU32::new(0),
            thread: LockedValue::default(),
            refused: LockedValue::default(),
            is_stopping: AtomicBool::new(false),
            dropped: AtomicU64::new(0),
            last_error: LockedValue::default(),
            metrics,
        })
    }

    pub(super) fn instance(&self) -> &Instance {
        &self.instance
    }

    pub(super) fn dropped(&self) -> &AtomicU64 {
        &self.dropped
    }

    /// Starts the thread, unless this process already runs it.
    #[inline]
    pub(super) fn ensure_started(self: &Arc<Self>) {
        if self.runs.load(Ordering::Relaxed) != quipu_segment::generation() + 1 {
            self.start();
        }
    }

    #[cold]
    fn start(self: &Arc<Self>) {
        let (own, old) = (quipu_segment::generation() + 1, self.runs.load(Ordering::Relaxed));
        if self.refused.with(|at| at.is_some_and(|at| at.elapsed() < MIN_BACKOFF)) == Some(true) {
            return;
        }
        if old == own
            || self.is_stopping.load(Ordering::Relaxed)
            || self.runs.compare_exchange(old, own, Ordering::AcqRel, Ordering::Relaxed).is_err()
        {
            return;
        }
        let worker = Arc::clone(self);
        let thread = std::thread::Builder::new().name("quipu-redis".into());
        match thread.spawn(move || worker.run(own)) {
            Ok(handle) => drop(self.thread.with(|t| *t = Some(handle.thread().clone()))),
            // Another process can flush in the meantime. A later increment of this one tries again.
            Err(_) => {
                self.refused.with(|at| *at = Some(Instant::now()));
                self.runs.store(0, Ordering::Release);
            }
        }
    }

    fn run(&self, own: u32) {
        let mut lead: Option<LeaderLease> = None;
        let mut flusher: Option<Flusher> = None;
        let mut failures = 0_u32;
        loop {
            let is_stopping = self.is_stopping.load(Ordering::Acquire);
            if !lead.as_ref().is_some_and(LeaderLease::is_held) {
                lead = self.instance.lead();
                flusher = None;
            }
            if lead.is_some() {
                let make = || Flusher::new(self.options.clone(), Arc::clone(&self.instance));
                let result = flusher.get_or_insert_with(make).flush(&self.registry);
                failures = if result.is_ok() { 0 } else { failures.saturating_add(1) };
                self.note(result.and_then(|mut done| {
                    let unfolded = done.unfolded.take();
                    self.metrics.note(done);
                    unfolded.map_or(Ok(()), Err)
                }));
            }
            if is_stopping {
                break;
            }
            self.wait(lead.is_some(), failures);
        }
        drop(lead);
        // Release: `stop` sees that the thread is finished.
        let _ = self.runs.compare_exchange(own, 0, Ordering::AcqRel, Ordering::Relaxed);
    }

    fn note(&self, result: Result<(), Failure>) {
        let text = match result {
            Ok(()) => None,
            Err(failure) => {
                self.metrics.errors.inc(&Values(&[failure.cause.name()]));
                Some(failure.error.to_string())
            }
        };
        self.last_error.with(|last| *last = text);
    }

    /// Waits until the next flush is due, or is requested while this process leads.
    fn wait(&self, is_leading: bool, failures: u32) {
        let interval = self.options.interval;
        let pause = if failures == 0 || !is_leading {
            interval
        } else {
            let pause = MIN_BACKOFF.saturating_mul(1 << failures.min(16));
            let pause = pause.min(self.options.backoff.max(interval));
            // Jitter, because instances must not reconnect together.
            pause.mul_f64(0.75 + 0.5 * f64::from(std::process::id() % 1024) / 1024.0)
        };
        let begin = Instant::now();
        let requested = self.instance.requested();
        loop {
            let left = pause.saturating_sub(begin.elapsed());
            if left.is_zero() || self.is_stopping.load(Ordering::Acquire) {
                return;
            }
            let now = self.instance.requested();
            if is_leading && now > self.instance.done() && (failures == 0 || now > requested) {
                // A pause, because repeated requests must not make the failure of a server worse.
                std::thread::park_timeout(if failures == 0 {
                    DONE_CHECK_INTERVAL
                } else {
                    MIN_BACKOFF
                });
                return;
            }
            std::thread::park_timeout(if is_leading {
                left.min(REQUEST_CHECK_INTERVAL)
            } else {
                left
            });
        }
    }

    pub(super) fn flush(self: &Arc<Self>, deadline: Duration) -> Result<(), Error> {
        self.ensure_started();
        let begin = Instant::now();
        let requested = self.instance.request_flush();
        self.wake();
        while self.instance.done() < requested {
            if begin.elapsed() >= deadline {
                let reason = match self.last_error.with(|last| last.clone()).flatten() {
                    Some(error) => {
                        format!("not everything was written within {deadline:?}: {error}")
                    }
                    None => {
                        format!("not everything was written within {deadline:?}; allow more time")
                    }
                };
                return Err(Error::new("redis", reason));
            }
            std::thread::sleep(DONE_CHECK_INTERVAL);
        }
        Ok(())
    }

    fn wake(&self) {
        self.thread.with(|thread| {
            if let Some(thread) = thread {
                thread.unpark();
            }
        });
    }

    /// Lets the thread flush once more and exit. Waits for this at most twice the timeout of a
    /// response.
    pub(super) fn stop(&self) {
        self.is_stopping.store(true, Ordering::Release);
        let own = quipu_segment::generation() + 1;
        if self.runs.load(Ordering::Acquire) != own {
            return;
        }
        self.wake();
        let (begin, most) = (Instant::now(), self.options.timeout.saturating_mul(2));
        while self.runs.load(Ordering::Acquire) == own && begin.elapsed() < most {
            std::thread::sleep(DONE_CHECK_INTERVAL);
        }
    }
}

impl Metrics {
    fn register(registry: &Registry, instance: &Arc<Instance>) -> Result<Self, quipu::Error> {
        let description = own("errors", "Flushes to Redis that failed, by cause.");
        let errors: CounterFamily<Values<'static>> =
            registry.register(description.labels(["cause"]))?;
        // Creates the series of all causes, because you can then see the first error as an
        // increase.
        Cause::EVERY.iter().for_each(|cause| errors.inc_by(&Values(&[cause.name()]), 0));
        let counter = |name, help| registry.register(own(name, help));
        let metrics = Self {
            errors,
            flushes: counter("flushes", "Flushes to Redis that were acknowledged.")?,
            series: counter("series_written", "Series that were written to Redis.")?,
            folded: counter("instances_folded", "Dead instances that were folded.")?,
        };
        for family in [&metrics.flushes, &metrics.series, &metrics.folded] {
            family.bind(&Values(&[]));
        }
        let lag = Arc::clone(instance);
        let description = own("lag", "Time since Redis last acknowledged all changes.");
        registry.scope().gauge_fn(description.unit("seconds"), move || lag.lag().as_secs_f64())?;
        let pending = Arc::clone(instance);
        let description = own("pending_series", "Series that Redis is not known to have.");
        registry.scope().gauge_fn(description, move || pending.pending() as f64)?;
        Ok(metrics)
    }

    fn note(&self, done: super::flush::Done) {
        self.flushes.inc(&Values(&[]));
        self.series.inc_by(&Values(&[]), done.series);
        self.folded.inc_by(&Values(&[]), done.folded);
    }
}
