//! Stores in the memory of one process, with a map per metric: [`LocalStore`] for one thread, and
//! [`SynchronizedStore`], which takes a lock.
//!
//! A forked child gets a copy, and parent and child count independently, because these stores share
//! no memory between processes. You can use them as the baseline for the other stores.

use std::cell::UnsafeCell;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use hashbrown::{Equivalent, HashMap};
use quipu::Aggregation;
use quipu_segment::hash::SeededState;

use crate::error::Error;
use crate::interface::{Metric, Spec, Store};
use crate::lock::{Lock, LockedValue};
use crate::table::Table;

/// A store for one thread, the cheapest of the in-memory stores. Other threads can use it too, one
/// at a time: an update that collides with an update of another thread is dropped, and counted as
/// dropped. This store never waits. Clones share the store.
///
/// ```
/// use quipu_store::{Kind, LocalStore, Spec, Store};
///
/// let store = LocalStore::new();
/// let jobs = store.metric(&Spec::new("jobs", Kind::Counter).labels(["queue"]))?;
/// jobs.add(&["mail"], 3.0);
/// assert_eq!(jobs.get(&["mail"]), Some(3.0));
/// let clone = store.clone();
/// assert_eq!(clone.metric(jobs.spec())?.get(&["mail"]), Some(3.0));
/// # Ok::<(), quipu_store::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct LocalStore(Memory<Busy>);

impl std::fmt::Debug for LocalStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalStore").finish_non_exhaustive()
    }
}

/// A store for all threads of a process: a map under a lock for each metric. Clones share the
/// store.
///
/// ```
/// use quipu_store::{Kind, Spec, Store, SynchronizedStore};
///
/// let store = SynchronizedStore::new();
/// let jobs = store.metric(&Spec::new("jobs", Kind::Counter))?;
/// std::thread::scope(|scope| {
///     for _ in 0..4 {
///         scope.spawn(|| jobs.add(&[], 1.0));
///     }
/// });
/// assert_eq!(jobs.get(&[]), Some(4.0));
/// # Ok::<(), quipu_store::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct SynchronizedStore(Memory<LockedValue<MemorySeries>>);

impl std::fmt::Debug for SynchronizedStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SynchronizedStore").finish_non_exhaustive()
    }
}

impl LocalStore {
    /// Creates an empty store.
    pub fn new() -> Self {
        Self::default()
    }
}

impl SynchronizedStore {
    /// Creates an empty store.
    pub fn new() -> Self {
        Self::default()
    }
}

impl crate::interface::sealed::Sealed for LocalStore {}

impl Store for LocalStore {
    fn metric(&self, spec: &Spec) -> Result<Arc<dyn Metric>, Error> {
        self.0.metric(spec)
    }

    fn dropped(&self) -> u64 {
        self.0.dropped.load(Ordering::Relaxed)
    }
}

impl crate::interface::sealed::Sealed for SynchronizedStore {}

impl Store for SynchronizedStore {
    fn metric(&self, spec: &Spec) -> Result<Arc<dyn Metric>, Error> {
        self.0.metric(spec)
    }

    fn dropped(&self) -> u64 {
        self.0.dropped.load(Ordering::Relaxed)
    }
}

/// The values of a metric, by label values.
type MemorySeries = HashMap<Box<[Box<str>]>, f64, SeededState>;

/// Guards the values of a metric against concurrent access.
trait ValueGuard: Default + Send + Sync {
    /// Whether `synchronize` keeps other threads out.
    const EXCLUDES: bool;

    /// Calls `work` with the values. Returns `None` if they are in use.
    fn with<R>(&self, work: impl FnOnce(&mut MemorySeries) -> R) -> Option<R>;
}

struct Memory<G> {
    metrics: Table<MemoryMetric<G>>,
    dropped: Arc<AtomicU64>,
}

impl<G> Clone for Memory<G> {
    fn clone(&self) -> Self {
        Self { metrics: self.metrics.clone(), dropped: Arc::clone(&self.dropped) }
    }
}

impl<G> Default for Memory<G> {
    fn default() -> Self {
        Self { metrics: Table::default(), dropped: Arc::default() }
    }
}

/// A metric in memory.
struct MemoryMetric<G> {
    spec: Spec,
    series: G,
    synchronizing: Lock,
    dropped: Arc<AtomicU64>,
}

impl<G: ValueGuard> Memory<G> {
    fn metric(&self, spec: &Spec) -> Result<Arc<dyn Metric>, Error>
    where
        G: 'static,
    {
        let metric = self.metrics.get_or_make(spec, || {
            let (spec, dropped) = (spec.clone(), Arc::clone(&self.dropped));
            Ok(MemoryMetric { spec, series: G::default(), synchronizing: Lock::default(), dropped })
        });
        metric.map(|metric| metric as Arc<dyn Metric>)
    }
}

impl<G: ValueGuard> MemoryMetric<G> {
    /// Calls `change` with the value of these labels, if `is_right`. Otherwise, or if the value
    /// cannot be reached, counts the update as dropped.
    #[inline]
    fn change(&self, labels: &[&str], is_right: bool, change: impl FnOnce(&mut f64)) {
        let is_kept = is_right
            && self.spec.fits(labels)
            && self.series.with(|series| update(series, labels, change)).is_some();
        if !is_kept {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl<G: ValueGuard> crate::interface::sealed::Sealed for MemoryMetric<G> {}

impl<G: ValueGuard> Metric for MemoryMetric<G> {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn add(&self, labels: &[&str], by: f64) {
        self.change(labels, self.spec.accepts(by), |value| *value += by);
    }

    fn set(&self, labels: &[&str], value: f64) {
        self.change(labels, true, |old| *old = self.spec.after_set(Some(*old), value));
    }

    fn get(&self, labels: &[&str]) -> Option<f64> {
        self.series.with(|series| series.get(&BorrowedLabels(labels)).copied()).flatten()
    }

    fn for_each(&self, visit: &mut dyn FnMut(&[&str], f64)) -> Result<(), Error> {
        // Copies the values, because `visit` may count.
        let Some(series) = self.series.with(|series| series.clone()) else {
            return Err(Error::new(&self.spec.name, "it is in use; call it from one thread only"));
        };
        let is_each =
            matches!(self.spec.aggregation, Some(Aggregation::All | Aggregation::LiveAll));
        let pid = is_each.then(|| std::process::id().to_string());
        for (labels, value) in &series {
            let labels: Vec<&str> =
                labels.iter().map(|text| &**text).chain(pid.as_deref()).collect();
            visit(&labels, *value);
        }
        Ok(())
    }

    fn synchronize(&self, work: &mut dyn FnMut()) {
        let _guard = G::EXCLUDES.then(|| self.synchronizing.lock());
        work();
    }

    fn remove(&self, labels: &[&str]) -> Result<bool, Error> {
        let removed = self.series.with(|series| series.remove(&BorrowedLabels(labels)));
        Ok(removed.flatten().is_some())
    }
}

/// Changes the value of these labels. A new series starts at 0.
#[inline]
fn update(series: &mut MemorySeries, labels: &[&str], change: impl FnOnce(&mut f64)) {
    if let Some(value) = series.get_mut(&BorrowedLabels(labels)) {
        return change(value);
    }
    let mut value = 0.0;
    change(&mut value);
    series.insert(labels.iter().map(|&text| text.into()).collect(), value);
}

/// Label values in the form that the caller passes, because a lookup must not copy them.
struct BorrowedLabels<'a>(&'a [&'a str]);

impl Hash for BorrowedLabels<'_> {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        // The same hash as for a slice of boxed strings.
        self.0.hash(state);
    }
}

impl Equivalent<Box<[Box<str>]>> for BorrowedLabels<'_> {
    #[inline]
    fn equivalent(&self, key: &Box<[Box<str>]>) -> bool {
        self.0.len() == key.len() && self.0.iter().zip(key).all(|(a, b)| *a == &**b)
    }
}

impl ValueGuard for LockedValue<MemorySeries> {
    const EXCLUDES: bool = true;

    #[inline]
    fn with<R>(&self, work: impl FnOnce(&mut MemorySeries) -> R) -> Option<R> {
        LockedValue::with(self, work)
    }
}

/// Values that one thread at a time can reach; other threads do not wait but fail.
#[derive(Default)]
struct Busy {
    /// The generation of the process whose thread uses the values, plus one; 0 for none.
    busy: AtomicU32,
    series: UnsafeCell<MemorySeries>,
}

// SAFETY: the mark `busy` lets only one thread at a time reach the values.
unsafe impl Sync for Busy {}

impl ValueGuard for Busy {
    const EXCLUDES: bool = false;

    #[inline]
    fn with<R>(&self, work: impl FnOnce(&mut MemorySeries) -> R) -> Option<R> {
        let own = quipu_segment::generation().wrapping_add(1);
        // Acquire: sees the stores of the last thread.
        let take =
            |free| self.busy.compare_exchange(free, own, Ordering::Acquire, Ordering::Relaxed);
        if let Err(other) = take(0) {
            // A mark of another generation belongs to a thread of an ancestor process, which does
            // not exist here. The values can be in the middle of a change.
            if other == own || take(other).is_err() {
                return None;
            }
            // SAFETY: as below. The old values are not dropped, because dropping would read them.
            unsafe { self.series.get().write(MemorySeries::default()) };
        }
        let _done = ClearOnDrop(&self.busy);
        // SAFETY: this thread set the mark, which was not set: there is no other reference.
        Some(work(unsafe { &mut *self.series.get() }))
    }
}

/// Clears the mark, even if the work panics.
struct ClearOnDrop<'b>(&'b AtomicU32);

impl Drop for ClearOnDrop<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release: the next thread sees the stores of this one.
        self.0.store(0, Ordering::Release);
    }
}
