//! Statistics of a tokio runtime that are available without `--cfg tokio_unstable`.

use tokio::runtime::Handle;

use super::Collector;
use crate::snapshot::{FamilyHeader, Kind, Number, Sink};

/// Collects the metrics `tokio_*` of one runtime.
///
/// ```
/// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
/// let registry = quipu::Registry::new();
/// registry.register_collector(quipu::collector::Tokio::new(runtime.handle().clone()))?;
/// assert_eq!(registry.value("tokio_workers", &[]), Some(1.0));
/// # Ok::<(), quipu::Error>(())
/// ```
#[derive(Debug)]
pub struct Tokio {
    runtime: Handle,
}

impl Tokio {
    /// Creates a collector for the current runtime.
    ///
    /// # Panics
    /// If called outside of a runtime.
    pub fn current() -> Self {
        Self::new(Handle::current())
    }

    /// Creates a collector for a runtime.
    pub fn new(runtime: Handle) -> Self {
        Self { runtime }
    }
}

impl Collector for Tokio {
    fn names(&self) -> Vec<String> {
        let mut families = vec![WORKERS, TASKS, QUEUE];
        #[cfg(target_has_atomic = "64")]
        families.extend([BUSY, PARKS]);
        families.iter().map(|family| family.name.to_owned()).collect()
    }

    fn collect(&self, sink: &mut dyn Sink) {
        let metrics = self.runtime.metrics();
        sink.begin(WORKERS, []).sample([], metrics.num_workers());
        sink.begin(TASKS, []).sample([], metrics.num_alive_tasks());
        sink.begin(QUEUE, []).sample([], metrics.global_queue_depth());
        #[cfg(target_has_atomic = "64")]
        {
            let mut each = |family: FamilyHeader<'_>, total: &dyn Fn(usize) -> Number| {
                let mut family = sink.begin(family, ["worker"]);
                for worker in 0..metrics.num_workers() {
                    family.sample([&worker.to_string()], total(worker));
                }
            };
            each(BUSY, &|worker| metrics.worker_total_busy_duration(worker).as_secs_f64().into());
            each(PARKS, &|worker| metrics.worker_park_count(worker).into());
        }
    }
}

const WORKERS: FamilyHeader<'static> =
    FamilyHeader::new(Kind::Gauge, "tokio_workers", "Threads that run tasks.");
const TASKS: FamilyHeader<'static> =
    FamilyHeader::new(Kind::Gauge, "tokio_alive_tasks", "Tasks that have not ended.");
const QUEUE: FamilyHeader<'static> = FamilyHeader::new(
    Kind::Gauge,
    "tokio_global_queue_depth",
    "Tasks in the queue that all workers share.",
);
const BUSY: FamilyHeader<'static> =
    FamilyHeader::new(Kind::Counter, "tokio_worker_busy_seconds", "Time that a worker was busy.")
        .unit("seconds");
const PARKS: FamilyHeader<'static> = FamilyHeader::new(
    Kind::Counter,
    "tokio_worker_parks",
    "Times that a worker parked for lack of tasks.",
);
