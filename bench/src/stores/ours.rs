//! quipu's stores under their common interface, and helpers for measuring them.

use std::path::Path;
use std::sync::Arc;

use quipu::label::Values;
use quipu::{Counter, Description, Family, Histogram, Registry};
use quipu_store::files::FileStore;
use quipu_store::{EmbeddedStore, Kind, Metric, SegmentStore, Spec, Store};

use super::{Places, redis_store};
use crate::{Error, Result};

/// The names of the two labels in most workloads.
pub(super) const TWO: [&str; 2] = ["code", "path"];
/// The values of the two labels in workloads where these are constant.
pub(super) const VALUES: [&str; 2] = ["200", "/x"];
/// The number of series that a worker creates, to be scraped later.
pub(super) const SERIES: usize = 1000;

/// The family of counters in the workloads with labels.
pub(super) type Counters = Family<Counter, Values<'static>>;
/// The family of histograms of these workloads.
pub(super) type Histograms = Family<Histogram, Values<'static>>;

/// A registry on a segment in a file of the folder.
pub(super) fn registry(folder: &Path) -> Registry {
    Registry::open(folder.join("stores.quipu")).expect("the file is new")
}

/// A family of counters with labels.
pub(super) fn counters(registry: &Registry, name: &str, labels: &[&str]) -> Counters {
    let description = Description::new(name, "Counted by a benchmark.");
    registry.register(description.labels(labels.iter().copied())).expect("the name is new")
}

/// A family of histograms with labels.
pub(super) fn histograms(registry: &Registry, name: &str, labels: &[&str]) -> Histograms {
    let description = Description::new(name, "Observed by a benchmark.").buckets(BUCKETS);
    registry.register(description.labels(labels.iter().copied())).expect("the name is new")
}

/// The bounds of histograms: the default of the client libraries.
pub(super) const BUCKETS: [f64; 11] =
    [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// The paths of a thousand series.
pub(super) fn paths() -> Vec<String> {
    (0..SERIES).map(|number| format!("/path/{number}")).collect()
}

/// A store of quipu. You can add one in [`STORES`].
#[derive(Clone, Copy)]
pub(super) struct Contender {
    /// The name of the store in the records.
    pub(super) subject: &'static str,
    /// The place of its counts: `memory`, `disk`, which means a folder on any file system, or
    /// `server`.
    pub(super) place: &'static str,
    /// Whether threads can count at the same time.
    pub(super) many_threads: bool,
    /// Creates it. The folder is for its files, if any.
    pub(super) open: fn(&Places, &Path) -> Arc<dyn Store>,
}

/// All stores.
pub(super) const STORES: [Contender; 6] = [
    Contender {
        subject: "quipu (Local)",
        place: "memory",
        many_threads: false,
        open: |_, _| Arc::new(quipu_store::LocalStore::new()),
    },
    Contender {
        subject: "quipu (Synchronized)",
        place: "memory",
        many_threads: true,
        open: |_, _| Arc::new(quipu_store::SynchronizedStore::new()),
    },
    Contender {
        subject: "quipu (SegmentStore)",
        place: "disk",
        many_threads: true,
        open: |_, folder| segment(folder),
    },
    Contender {
        subject: "quipu (FileStore)",
        place: "disk",
        many_threads: true,
        open: |_, folder| Arc::new(FileStore::open(folder).expect("the folder is empty")),
    },
    Contender {
        subject: "quipu (Embedded, LMDB)",
        place: "disk",
        many_threads: true,
        open: |_, folder| Arc::new(EmbeddedStore::open(folder).expect("the folder is empty")),
    },
    Contender {
        subject: "quipu (Redis)",
        place: "server",
        many_threads: true,
        open: |places, folder| Arc::new(redis_store::open(places, folder)),
    },
];

/// Refuses the figures of a store that lost counts.
pub(super) fn check(subject: &str, store: &dyn Store) -> Result<()> {
    match store.dropped() {
        0 => Ok(()),
        n => Err(Error::report(format!("{subject} has dropped {n} increments"))),
    }
}

impl Contender {
    /// Returns the places to measure, with their names: the file systems for `disk`, otherwise one.
    pub(super) fn places<'p>(&self, places: &'p Places) -> Vec<(&'static str, &'p Path)> {
        match self.place {
            "disk" => vec![("tmpfs", &places.tmpfs), ("disk", &places.disk)],
            place => vec![(place, &places.tmpfs)],
        }
    }
}

/// The default store of quipu.
pub(super) fn segment(folder: &Path) -> Arc<dyn Store> {
    Arc::new(SegmentStore::open(folder).expect("the system has memory"))
}

/// A counter of a store.
pub(super) fn counter(store: &dyn Store, name: &str, labels: &[&str]) -> Arc<dyn Metric> {
    metric(store, name, Kind::Counter, labels)
}

/// A metric of a store.
pub(super) fn metric(
    store: &dyn Store,
    name: &str,
    kind: Kind,
    labels: &[&str],
) -> Arc<dyn Metric> {
    let spec = Spec::new(name, kind).labels(labels.iter().copied());
    store.metric(&spec).expect("the store can keep it")
}
