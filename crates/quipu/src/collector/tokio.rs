//! Statistics of a tokio runtime that are available without `--cfg tokio_unstable`.

use tokio::runtime::Handle;

use super::Collector;
use crate::snapshot::{FamilyHeader, Kind, Label, Number, Series, Sink, Texts, Value};

/// Collects the metrics `tokio_*` of one runtime.
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
        let mut one = |family: &FamilyHeader<'_>, value: usize| {
            sink.family(family);
            emit(sink, family, Texts::default(), Value::Gauge(Number::Unsigned(value as u64)));
        };
        one(&WORKERS, metrics.num_workers());
        one(&TASKS, metrics.num_alive_tasks());
        one(&QUEUE, metrics.global_queue_depth());
        #[cfg(target_has_atomic = "64")]
        {
            let mut each = |family: &FamilyHeader<'_>, total: &dyn Fn(usize) -> Number| {
                sink.family(family);
                let mut text = Vec::new();
                for worker in 0..metrics.num_workers() {
                    text.clear();
                    Texts::push(&mut text, &worker.to_string());
                    let value = Value::Counter { total: total(worker), exemplar: None };
                    emit(sink, family, Texts::new(&text), value);
                }
            };
            each(&BUSY, &|worker| {
                Number::Float(metrics.worker_total_busy_duration(worker).as_secs_f64())
            });
            each(&PARKS, &|worker| Number::Unsigned(metrics.worker_park_count(worker)));
        }
    }
}

fn emit(sink: &mut dyn Sink, family: &FamilyHeader<'_>, texts: Texts<'_>, value: Value<'_>) {
    let (group, escape_free, overflow, start, exemplar) = (0, true, false, None, None);
    let series = Series { group, texts, escape_free, overflow, start, value, exemplar };
    sink.series(family, &series);
}

const fn family(
    name: &'static str,
    unit: &'static str,
    kind: Kind,
    labels: &'static [Label<'static>],
    help: &'static str,
) -> FamilyHeader<'static> {
    FamilyHeader { name, help, unit, kind, labels, groups: 1, bare: false }
}

const WORKER: &[Label<'static>] = &[Label { name: "worker", values: None }];
const WORKERS: FamilyHeader<'static> =
    family("tokio_workers", "", Kind::Gauge, &[], "Threads that run tasks.");
const TASKS: FamilyHeader<'static> =
    family("tokio_alive_tasks", "", Kind::Gauge, &[], "Tasks that have not ended.");
const QUEUE: FamilyHeader<'static> = family(
    "tokio_global_queue_depth",
    "",
    Kind::Gauge,
    &[],
    "Tasks in the queue that all workers share.",
);
const BUSY: FamilyHeader<'static> = family(
    "tokio_worker_busy_seconds",
    "seconds",
    Kind::Counter,
    WORKER,
    "Time that a worker was busy.",
);
const PARKS: FamilyHeader<'static> = family(
    "tokio_worker_parks",
    "",
    Kind::Counter,
    WORKER,
    "Times that a worker parked for lack of tasks.",
);
