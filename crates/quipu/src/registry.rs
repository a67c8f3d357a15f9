//! The registry: you register metrics by name, and scrapes read them.

use std::fmt;
#[cfg(unix)]
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use quipu_segment::{ForkSafeCell, Segment};

use crate::collector::Collector;
use crate::description::Description;
use crate::error::Error;
use crate::exposition::underscored_name;
use crate::kind::{Counter, Gauge, Histogram, IntGauge};
use crate::name_set::NameSet;
use crate::names::{find, with, without};
use crate::registry_options::RegistryOptions;
use crate::sample_search::SampleSearch;
use crate::scope::{Metrics, Register, Scope};
use crate::scrape::{Readers, Scrape, SpareBuffers, Walk};
use crate::snapshot;

/// A set of metrics that are scraped together. Clones share this set.
///
/// Its metrics are stored in a segment: private memory, or memory or a file that several processes
/// share.
///
/// You can use it in a forked child, whatever other threads of the parent were doing at the time of
/// the fork.
///
/// ```
/// use quipu::Registry;
///
/// let registry = Registry::new();
/// let jobs = registry.counter("jobs", "Completed jobs.")?;
/// let queue = registry.gauge("queue_length", "Jobs in the queue.")?;
/// jobs.inc();
/// queue.set(3.0);
/// assert_eq!(registry.value("jobs_total", &[]), Some(1.0));
/// assert!(registry.text().ends_with("# TYPE queue_length gauge\nqueue_length 3\n"));
/// # Ok::<(), quipu::Error>(())
/// ```
#[derive(Clone)]
pub struct Registry {
    inner: Arc<RegistryInner>,
}

/// The registry of the whole program: from `Box::into_raw`, or null before its first use.
static GLOBAL: AtomicPtr<Registry> = AtomicPtr::new(std::ptr::null_mut());

struct RegistryInner {
    segment: Segment,
    /// The registered names.
    names: NameSet,
    /// The registered names that are escaped for readers without UTF-8 names, in their escaped
    /// form.
    escaped: NameSet,
    /// The unregistered names, sorted. Their families are not shown.
    hidden: ForkSafeCell<Arc<[Arc<str>]>>,
    collectors: ForkSafeCell<Arc<[Arc<dyn Collector>]>>,
    readers: Readers,
    spare_buffers: SpareBuffers,
}

impl Registry {
    /// Creates a registry in private memory, of at most 1 GiB.
    ///
    /// # Panics
    /// If the system does not let this process reserve even 16 MiB of address space.
    pub fn new() -> Self {
        match Self::options().build() {
            Ok(registry) => registry,
            Err(error) => panic!("cannot reserve memory for metrics: {error}"),
        }
    }

    /// Returns the options for a new registry. You can set, for example, a limit or the permissions
    /// of its file.
    pub fn options() -> RegistryOptions {
        RegistryOptions::default()
    }

    /// Creates a registry on an existing segment.
    #[doc(hidden)]
    pub fn from_segment(segment: Segment) -> Self {
        let inner = RegistryInner {
            segment,
            names: NameSet::default(),
            escaped: NameSet::default(),
            hidden: ForkSafeCell::default(),
            collectors: ForkSafeCell::new(Arc::new([])),
            readers: Readers::default(),
            spare_buffers: SpareBuffers::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Opens a registry in a file, or creates the file. Other processes can open it, too: all count
    /// in the same cells, and you can scrape any of them for everything. The file outlives them, so
    /// a program that starts again continues with its counts. If you want to share counts but not
    /// keep them, use a file in `/dev/shm`, and remove it before the first process starts.
    ///
    /// ```
    /// use quipu::Registry;
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("app.quipu");
    /// let registry = Registry::open(&path)?;
    /// let jobs = registry.counter("jobs", "Completed jobs.")?;
    /// jobs.inc();
    /// // A second process does the same.
    /// let second = Registry::open(&path)?;
    /// second.counter("jobs", "Completed jobs.")?.inc();
    /// assert_eq!(registry.value("jobs_total", &[]), Some(2.0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the file is not a segment, is damaged, or cannot be written.
    #[cfg(unix)]
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::options().open(path)
    }

    /// Returns the registry of the whole program, which the macros count in. The first use creates
    /// it in private memory, unless you chose a registry with [`Registry::set_global`].
    pub fn global() -> &'static Self {
        // Acquire: sees the registry, which another thread created or set.
        let mut global = GLOBAL.load(Ordering::Acquire);
        if global.is_null() {
            // No lock, because a child that is forked while another thread is here would wait for
            // it forever. If two threads get here at once, one of them drops the registry that it
            // created.
            let made = Box::into_raw(Box::new(Self::new()));
            // Release: the new registry precedes its pointer, for the loads of other threads.
            // Acquire: sees the registry of the faster thread.
            let (success, failure) = (Ordering::Release, Ordering::Acquire);
            global = match GLOBAL.compare_exchange(global, made, success, failure) {
                Ok(_) => made,
                Err(first) => {
                    // SAFETY: the pointer is from above, and no other thread can see it.
                    drop(unsafe { Box::from_raw(made) });
                    first
                }
            };
        }
        // SAFETY: the pointer is from `Box::into_raw`, and is never dropped or changed.
        unsafe { &*global }
    }

    /// Makes `registry` the registry of the whole program, which [`Registry::global`] returns and
    /// the macros count in. Use this, for example, to let the macros count in a file. Call it at
    /// the start of `main`, because the first use of the global registry also chooses it.
    ///
    /// ```
    /// use quipu::{Registry, counter};
    ///
    /// let registry = Registry::new(); // or Registry::open("/run/app/metrics.quipu")?
    /// Registry::set_global(registry.clone())?;
    /// counter!("jobs", "Completed jobs.").inc();
    /// assert_eq!(registry.value("jobs_total", &[]), Some(1.0));
    /// # Ok::<(), quipu::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the global registry was set or used before.
    #[doc(alias = "with_local_recorder")]
    pub fn set_global(registry: Self) -> Result<(), Error> {
        // No lock, because a child that is forked while another thread is here would wait for it
        // forever.
        let made = Box::into_raw(Box::new(registry));
        // Release: the registry precedes its pointer, for the loads in `global`. Relaxed: another
        // registry is not used here.
        let (success, failure) = (Ordering::Release, Ordering::Relaxed);
        match GLOBAL.compare_exchange(std::ptr::null_mut(), made, success, failure) {
            Ok(_) => Ok(()),
            Err(_) => {
                // SAFETY: the pointer is from above, and no other thread can see it.
                drop(unsafe { Box::from_raw(made) });
                Err(Error::global_in_use())
            }
        }
    }

    /// Returns the segment that holds the metrics.
    #[doc(hidden)]
    pub fn segment(&self) -> &Segment {
        &self.inner.segment
    }

    /// Registers an instrument or a family.
    ///
    /// # Errors
    /// The errors of [`Register::register`].
    pub fn register<R: Register>(&self, description: Description) -> Result<R, Error> {
        R::register(&self.scope(), description)
    }

    /// Registers an instrument or a family. If this registry already contains a metric of the name,
    /// this returns another handle of that metric. Use this in libraries that share a metric.
    ///
    /// ```
    /// use quipu::{Counter, Description, Registry};
    ///
    /// let registry = Registry::new();
    /// let hits = || registry.register_or_get::<Counter>(Description::new("hits", "Hits."));
    /// hits()?.inc();
    /// hits()?.inc();
    /// assert_eq!(registry.value("hits_total", &[]), Some(2.0));
    /// # Ok::<(), quipu::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`Register::register`], for example if the metric is of another kind or uses
    /// other labels. You cannot get a second handle of collectors, computed values and windows:
    /// their names are taken.
    pub fn register_or_get<R: Register>(&self, description: Description) -> Result<R, Error> {
        R::register(&self.scope().reuse(), description)
    }

    /// Registers a group of metrics.
    ///
    /// # Errors
    /// The errors of [`Metrics::register`].
    pub fn metrics<M: Metrics>(&self) -> Result<M, Error> {
        M::register(&self.scope())
    }

    /// Registers a counter.
    ///
    /// # Errors
    /// The errors of [`Register::register`].
    pub fn counter(&self, name: &str, help: &str) -> Result<Counter, Error> {
        self.register(Description::new(name, help))
    }

    /// Registers a gauge.
    ///
    /// # Errors
    /// The errors of [`Register::register`].
    pub fn gauge(&self, name: &str, help: &str) -> Result<Gauge, Error> {
        self.register(Description::new(name, help))
    }

    /// Registers an integer gauge.
    ///
    /// # Errors
    /// The errors of [`Register::register`].
    pub fn int_gauge(&self, name: &str, help: &str) -> Result<IntGauge, Error> {
        self.register(Description::new(name, help))
    }

    /// Registers a histogram with the default buckets.
    ///
    /// # Errors
    /// The errors of [`Register::register`].
    pub fn histogram(&self, name: &str, help: &str) -> Result<Histogram, Error> {
        self.register(Description::new(name, help))
    }

    /// Registers a gauge whose value every scrape obtains by calling `value`.
    ///
    /// # Errors
    /// The errors of [`Register::register`].
    pub fn gauge_fn(
        &self,
        description: Description,
        value: impl Fn() -> f64 + Send + Sync + 'static,
    ) -> Result<(), Error> {
        self.scope().gauge_fn(description, value)
    }

    /// Registers a counter whose total every scrape obtains by calling `total`. The total must
    /// never decrease.
    ///
    /// # Errors
    /// The errors of [`Register::register`].
    #[doc(alias = "absolute")]
    pub fn counter_fn(
        &self,
        description: Description,
        total: impl Fn() -> f64 + Send + Sync + 'static,
    ) -> Result<(), Error> {
        self.scope().counter_fn(description, total)
    }

    /// Returns a scope without prefix and labels, as a base for other scopes.
    pub fn scope(&self) -> Scope {
        Scope::new(self)
    }

    /// Returns a scope whose names begin with `prefix` and an underscore.
    #[doc(alias = "sub_registry_with_prefix")]
    pub fn prefix(&self, prefix: &str) -> Scope {
        self.scope().prefix(prefix)
    }

    /// Adds a collector. Every scrape calls this collector after it reads the registry's own
    /// families.
    ///
    /// # Errors
    /// If the name of one of its families is taken.
    pub fn register_collector(&self, collector: impl Collector + 'static) -> Result<(), Error> {
        let names = collector.names();
        for (at, name) in names.iter().enumerate() {
            if let Err(error) = self.claim(name) {
                names[..at].iter().for_each(|name| _ = self.release(name));
                return Err(error);
            }
        }
        let collector: Arc<dyn Collector> = Arc::new(collector);
        self.inner.collectors.replace(|collectors| {
            (Some(collectors.iter().cloned().chain([collector]).collect()), ())
        });
        Ok(())
    }

    /// Removes a metric from the registry of this process: it is no longer shown, and you can
    /// register its name again. Returns false if no metric of this name is registered.
    ///
    /// The family and its counts stay in the segment, because other processes may use them. If you
    /// register the name again, the metric continues with these counts, and the description must
    /// not contradict the first. A collector is removed with all of its names.
    pub fn unregister(&self, name: &str) -> bool {
        let inner = &*self.inner;
        let mut names = vec![name.to_owned()];
        inner.collectors.replace(|collectors| {
            let has_name = |collector: &&Arc<dyn Collector>| {
                collector.names().iter().any(|other| other == name)
            };
            let Some(gone) = collectors.iter().find(has_name) else { return (None, ()) };
            names = gone.names();
            let is_other = |other: &&Arc<dyn Collector>| !Arc::ptr_eq(other, gone);
            (Some(collectors.iter().filter(is_other).cloned().collect()), ())
        });
        // Hide the metric before its name is free, because a later registration must be able to
        // show it again.
        if inner.names.has(name) {
            inner.hidden.replace(|hidden| match find(hidden, name) {
                Ok(_) => (None, ()),
                Err(at) => (Some(with(hidden, at, name).into()), ()),
            });
        }
        let was_there = names.iter().map(|name| self.release(name));
        was_there.fold(false, |any, one| any | one)
    }

    /// Resets all counts to zero, for all processes that count in the segment, and removes the
    /// series with dynamic labels that are not bound to a handle. Concurrent updates can be lost.
    ///
    /// # Errors
    /// If the families of the segment are inconsistent, or its locks cannot be taken.
    pub fn reset(&self) -> Result<(), Error> {
        for reader in self.inner.readers.list(&self.inner.segment)?.all() {
            reader.reset()?;
        }
        for collector in self.collectors().iter() {
            collector.reset();
        }
        Ok(())
    }

    /// Writes a registry in a file to the disk, and waits until this is done: all earlier updates
    /// then survive a power loss. Other threads can continue to count. Has no effect in private
    /// memory.
    ///
    /// # Errors
    /// The errors of the disk.
    pub fn sync(&self) -> Result<(), Error> {
        self.inner.segment.sync().map_err(Error::from_segment)
    }

    /// Starts a scrape. This takes no lock that counting waits for, and does not allocate after an
    /// earlier scrape is complete.
    pub fn scrape(&self) -> Scrape {
        Scrape::new(self.clone(), self.inner.spare_buffers.take())
    }

    /// Passes all families and series to a sink: for example, an encoder, a sender, or a test.
    ///
    /// # Errors
    /// If the families of the segment are inconsistent.
    pub fn visit(&self, sink: &mut impl snapshot::Sink) -> Result<(), Error> {
        self.walk()?.step(sink, |_| false);
        Ok(())
    }

    /// Begins a walk over all families and series, in steps.
    ///
    /// # Errors
    /// If the families of the segment are inconsistent.
    #[doc(hidden)]
    pub fn walk(&self) -> Result<Walk, Error> {
        let mut walk = Walk::default();
        walk.begin(self)?;
        Ok(walk)
    }

    /// Passes the family of this name to a sink, with all of its variants; returns false if there
    /// is none.
    ///
    /// # Errors
    /// If the families of the segment are inconsistent.
    #[doc(hidden)]
    pub fn visit_family(&self, name: &str, sink: &mut impl snapshot::Sink) -> Result<bool, Error> {
        let mut walk = self.walk()?;
        let is_there = walk.narrow(name);
        if is_there {
            walk.step(sink, |_| false);
        }
        Ok(is_there)
    }

    /// Passes the families of the segment whose names `is_wanted` accepts to a sink, and then the
    /// accepted families of `more`.
    ///
    /// # Errors
    /// If the families of the segment are inconsistent.
    #[doc(hidden)]
    pub fn visit_with(
        &self,
        is_wanted: impl Fn(&str) -> bool,
        more: impl IntoIterator<Item = snapshot::Source>,
        sink: &mut impl snapshot::Sink,
    ) -> Result<(), Error> {
        let own = self.inner.readers.list(&self.inner.segment)?;
        let own = own.iter().filter(|reader| is_wanted(reader.name())).cloned();
        Walk::over(own.chain(more.into_iter().map(snapshot::Source::into_reader)))
            .step(sink, |_| false);
        Ok(())
    }

    /// Like [`Registry::visit`], but only for families in the segment, including unregistered ones.
    /// Collectors and callbacks are not visited.
    ///
    /// # Errors
    /// The errors of [`Registry::visit`].
    #[doc(hidden)]
    pub fn visit_segment(&self, sink: &mut impl snapshot::Sink) -> Result<(), Error> {
        let mut walk = Walk::default();
        walk.begin_segment(self)?;
        walk.step(sink, |_| false);
        Ok(())
    }

    /// Returns the value of a sample by its name and labels, in the spelling of [`Registry::text`]:
    /// the sample of a counter ends in `_total`, and the samples of a histogram end in `_bucket`,
    /// `_sum` and `_count`. Returns `None` if there is no such sample, for example for `jobs`
    /// instead of `jobs_total`. This creates no series, and reads all metrics, so you should only
    /// use it in tests. You can pass the labels in any order.
    ///
    /// ```
    /// use quipu::{CounterFamily, Description, LabelGroup, Registry};
    ///
    /// #[derive(LabelGroup)]
    /// struct Outcome {
    ///     ok: bool,
    /// }
    ///
    /// let registry = Registry::new();
    /// let calls: CounterFamily<Outcome> = registry.register(Description::new("calls", "Calls."))?;
    /// calls.inc(&Outcome { ok: true });
    /// assert_eq!(registry.value("calls_total", &[("ok", "true")]), Some(1.0));
    /// assert_eq!(registry.value("calls", &[("ok", "true")]), None);
    /// # Ok::<(), quipu::Error>(())
    /// ```
    pub fn value(&self, sample: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let mut search = SampleSearch::new(sample, labels);
        // A segment whose families are inconsistent contains no such sample.
        self.visit(&mut search).ok()?;
        search.value()
    }

    /// Returns all metrics in Prometheus' format 0.0.4, the default
    /// [`Format`](crate::exposition::Format).
    #[doc(alias = "render")]
    #[doc(alias = "encode")]
    pub fn text(&self) -> String {
        let mut out = Vec::new();
        self.scrape().append_to(&mut out);
        // Another process can write any bytes into a shared file.
        String::from_utf8(out)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
    }

    pub(crate) fn readers(&self) -> &Readers {
        &self.inner.readers
    }

    pub(crate) fn collectors(&self) -> Arc<[Arc<dyn Collector>]> {
        self.inner.collectors.read(Arc::clone)
    }

    pub(crate) fn hidden(&self) -> Arc<[Arc<str>]> {
        self.inner.hidden.read(Arc::clone)
    }

    pub(crate) fn spare_buffers(&self) -> &SpareBuffers {
        &self.inner.spare_buffers
    }

    /// Takes a name for a metric that is being registered.
    pub(crate) fn claim(&self, name: &str) -> Result<(), Error> {
        if !self.inner.names.claim(name) {
            return Err(Error::duplicate(name));
        }
        // Claimed before the check of the others: of two threads, at least one sees the other.
        let shown = underscored_name(name);
        let (is_claimed, is_taken) = match shown == name {
            true => (true, self.inner.escaped.has(name)),
            false => (self.inner.escaped.claim(&shown), self.inner.names.has(&shown)),
        };
        if is_taken || !is_claimed {
            self.inner.names.release(name);
            if is_claimed && shown != name {
                self.inner.escaped.release(&shown);
            }
            let reason = format!(
                "another metric has the same name once escaped for readers without UTF-8 names, \
                 {shown:?}: rename one of the two"
            );
            return Err(Error::invalid(name, reason));
        }
        self.inner.hidden.replace(|hidden| match find(hidden, name) {
            Ok(at) => (Some(without(hidden, at).into()), ()),
            Err(_) => (None, ()),
        });
        Ok(())
    }

    /// Returns whether a collector shows a family of this name.
    pub(crate) fn is_collected(&self, name: &str) -> bool {
        let has_name =
            |collector: &Arc<dyn Collector>| collector.names().iter().any(|other| other == name);
        self.collectors().iter().any(has_name)
    }

    /// Returns whether the segment contains a family of this name that is registered here. Returns
    /// false while the family is being created.
    pub(crate) fn has_family(&self, name: &str) -> bool {
        let readers = self.inner.readers.list(&self.inner.segment);
        self.inner.names.has(name) && readers.is_ok_and(|readers| !readers.named(name).is_empty())
    }

    /// Releases a name; returns false if it was not claimed.
    pub(crate) fn release(&self, name: &str) -> bool {
        let was_there = self.inner.names.release(name);
        let shown = underscored_name(name);
        if was_there && shown != name {
            self.inner.escaped.release(&shown);
        }
        was_there
    }
}

impl Default for Registry {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").field("segment", &self.inner.segment).finish_non_exhaustive()
    }
}
