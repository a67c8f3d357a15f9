//! [`SegmentStore`], the default store: metrics in a segment that all processes of an application
//! share.
//!
//! Counters, and the parts of histograms and summaries, use one cell for all processes. So a dead
//! worker leaves no stale series, and a scrape reads each series once. Gauges store one value per
//! process, which a scrape combines.
//!
//! Problems with a file or a directory never fail your application: the store then counts in memory
//! that children forked later share, and passes the reason to the callback for warnings.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use quipu::exposition::counter_stem;
use quipu::label::Values;
use quipu::snapshot::{CounterValue, FamilyHeader, Series, Sink, Value};
use quipu::{
    Aggregation, Description, GaugeFamily, MixedCounterFamily, ProcessGaugeFamily, Register,
    Registry,
};
use quipu_segment::{Options, Segment, printable};

use crate::error::Error;
use crate::interface::{Kind, Metric, Spec, Store};
use crate::lock::Lock;
use crate::pool::{Pool, Registries};
use crate::table::{Table, register};

/// Metrics in a segment: a file, or memory that the children of a fork share. Clones share
/// the store.
///
/// ```
/// use quipu_store::{Kind, SegmentStore, Spec, Store};
///
/// # let directory = tempfile::tempdir()?;
/// # let directory = directory.path();
/// let store = SegmentStore::open(directory)?;
/// let requests = store.metric(&Spec::new("requests", Kind::Counter).labels(["code", "path"]))?;
/// requests.add(&["200", "/x"], 1.0);
/// let text = store.scrape_registry().text();
/// assert!(text.contains("requests_total{code=\"200\",path=\"/x\"} 1"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct SegmentStore {
    inner: Arc<StoreInner>,
    metrics: Table<SegmentMetric>,
}

impl std::fmt::Debug for SegmentStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SegmentStore").finish_non_exhaustive()
    }
}

/// Options for opening a [`SegmentStore`].
///
/// ```
/// use quipu_store::{Kind, SegmentStore, Spec, Store};
///
/// let store = SegmentStore::options()
///     .max_series(10)
///     .on_warning(|warning| eprintln!("metrics: {warning}"))
///     .build()?;
/// let requests = store.metric(&Spec::new("requests", Kind::Counter).labels(["path"]))?;
/// (0..50).for_each(|n| requests.add(&[&format!("/{n}")], 1.0));
/// assert_eq!(requests.get(&["/0"]), Some(1.0));
/// assert!(store.dropped() >= 40, "they are in the series quipu_overflow");
/// # Ok::<(), quipu_store::Error>(())
/// ```
#[derive(Clone)]
#[must_use = "open the store with open or build"]
pub struct SegmentOptions {
    pub(crate) limit: u64,
    series: Option<u64>,
    /// The options for files.
    pub(crate) file: Options,
    pub(crate) warn: Warn,
}

impl std::fmt::Debug for SegmentOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SegmentOptions")
            .field("limit", &self.limit)
            .field("series", &self.series)
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}

type Warn = Arc<dyn Fn(&str) + Send + Sync>;

/// The state that the metrics of a store share.
struct StoreInner {
    registries: Registries,
    updates: Arc<Updates>,
    /// The generation of the process that created the store.
    generation: u32,
}

/// The state of updates that a store and its views share.
#[derive(Default)]
struct Updates {
    dropped: AtomicU64,
    /// Whether the application was warned of an overflow.
    has_warned: AtomicBool,
}

/// A metric in a segment.
struct SegmentMetric {
    spec: Spec,
    family: String,
    registry: Registry,
    cells: Cells,
    synchronizing: Lock,
    inner: Arc<StoreInner>,
}

/// The instruments that a metric counts in.
enum Cells {
    /// One total for all processes.
    Total(MixedCounterFamily<Values<'static>>),
    /// One sum for all processes; you can add negative numbers.
    Sum(GaugeFamily<Values<'static>>),
    /// One value per process.
    Each(ProcessGaugeFamily<Values<'static>>),
}

/// The name of the file in a directory.
const FILE: &str = "metrics.quipu";
const DEFAULT_LIMIT: u64 = 256 << 20;

impl SegmentOptions {
    /// Creates the defaults: a limit of 256 MiB, files of mode 0600, and no callback for warnings.
    pub fn new() -> Self {
        let warn = Arc::new(|_: &str| ());
        Self { limit: DEFAULT_LIMIT, series: None, file: Options::new().shared(), warn }
    }

    /// Sets the maximum size of the segment in bytes. A series takes about 100 bytes.
    pub fn max_bytes(mut self, bytes: u64) -> Self {
        self.limit = bytes;
        self
    }

    /// Sets the maximum number of series of each metric. Further label sets are counted in one
    /// series whose label values are all `quipu_overflow`.
    pub fn max_series(mut self, series: u64) -> Self {
        self.series = Some(series);
        self
    }

    /// Sets the permission bits of a new file, regardless of the umask. The default is 0600. A
    /// process that can read the file can hold its locks, and so make other processes wait or count
    /// in memory; a process that can write it can change every count.
    pub fn mode(mut self, bits: u32) -> Self {
        self.file = self.file.mode(bits);
        self
    }

    /// Sets the group id of a new file. An unprivileged process must be a member of the group.
    pub fn group(mut self, group: u32) -> Self {
        self.file = self.file.group(group);
        self
    }

    /// Sets the callback for warnings: for example, a damaged file, a directory that cannot be
    /// written, or a full disk. Each problem is reported once. The store calls it when you open the
    /// store, create a metric, or read, but never during an increment.
    pub fn on_warning(mut self, warn: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.warn = Arc::new(warn);
        self
    }

    /// Opens a store in a file. If `path` ends in an extension and is not a directory, it is the
    /// file. Otherwise, it is a directory, which is created if it does not exist, and the file is
    /// `metrics.quipu` in this directory.
    ///
    /// A file that is damaged, or of an unknown version, is renamed to `NAME.aside-1` (`-2`, and so
    /// on) and replaced by a new one, unless other processes use it. If the file cannot be used
    /// after all, for example because another process keeps it locked for 10 seconds, the store is
    /// in anonymous memory.
    ///
    /// All processes that open a file count in the same series, even if they belong to different
    /// applications. If two describe a metric of one name differently, the series of the later one
    /// are in another file, `metrics.1.quipu`, which all processes with this description use.
    ///
    /// # Errors
    /// If the system is out of memory.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<SegmentStore, Error> {
        let path = path.as_ref();
        let file = if path.is_dir() || path.extension().is_none() {
            if let Err(error) = fs::create_dir_all(path) {
                let reason =
                    format!("the directory {} cannot be created: {error}", printable(path));
                return Ok(self.on(self.in_memory(Some(&reason))?));
            }
            path.join(FILE)
        } else {
            path.to_owned()
        };
        Ok(self.on(self.in_file(&file)?))
    }

    /// Creates a store in anonymous memory, which forked children share. Use this on systems
    /// without a writable directory, and create the store before the fork.
    ///
    /// # Errors
    /// The errors of [`SegmentOptions::open`].
    pub fn build_anonymous(&self) -> Result<SegmentStore, Error> {
        Ok(self.on(self.in_memory(None)?))
    }

    /// Creates a store in private memory. A forked child gets a copy.
    ///
    /// # Errors
    /// The errors of [`SegmentOptions::open`].
    pub fn build(&self) -> Result<SegmentStore, Error> {
        Ok(self.on(self.in_private_memory()?))
    }

    fn on(&self, segment: Segment) -> SegmentStore {
        SegmentStore::new(Registries::new(Pool::new(self.clone(), segment)), Arc::default())
    }
}

impl Default for SegmentOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl SegmentStore {
    /// Opens a store in a file or a directory with the default options. See
    /// [`SegmentOptions::open`].
    ///
    /// # Errors
    /// The errors of [`SegmentOptions::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        SegmentOptions::new().open(path)
    }

    /// Returns the default options.
    pub fn options() -> SegmentOptions {
        SegmentOptions::new()
    }

    fn new(registries: Registries, updates: Arc<Updates>) -> Self {
        let inner = StoreInner { registries, updates, generation: quipu_segment::generation() };
        Self { inner: Arc::new(inner), metrics: Table::default() }
    }

    /// Returns a store in the same segments, with separate metrics and registries: a name that is
    /// taken or hidden in one of them is free in the other.
    #[doc(hidden)]
    pub fn view(&self) -> Self {
        Self::new(self.inner.registries.view(), Arc::clone(&self.inner.updates))
    }

    /// Returns the path of the file; `None` for a store in memory.
    pub fn path(&self) -> Option<&Path> {
        self.inner.registries.first().segment().path()
    }

    /// Returns the registry of the store's metrics, for scrapes and for your application's other
    /// instruments. Each call visits every family to look for overflows, because the store must
    /// warn of overflows. So keep the reference if you need it often.
    pub fn scrape_registry(&self) -> &Registry {
        self.inner.warn_of_overflow();
        self.inner.registries.first()
    }

    /// Returns all registries of the store: the [registry for
    /// scrapes](SegmentStore::scrape_registry), the registries of metrics that another application
    /// describes differently, and the registry of metrics that did not fit.
    #[doc(hidden)]
    pub fn registries(&self) -> Vec<Registry> {
        self.inner.registries.all()
    }

    /// Registers an instrument of your application, or a family of instruments, like
    /// [`Registry::register`]. If another application describes the name differently, the
    /// instrument is in another file, like a metric would be. Also returns its registry.
    ///
    /// # Errors
    /// If this store already registered the name ([`Error::is_duplicate`]), if the description is
    /// invalid, or if the underlying storage fails.
    pub fn register<R: Register>(&self, description: Description) -> Result<(R, Registry), Error> {
        let name = description.full_name();
        let once = |registry: &Registry| registry.register(description.clone());
        self.inner.registries.register(&name, once, quipu::Error::is_mismatch)
    }

    fn make(&self, spec: &Spec, family: String) -> Result<SegmentMetric, Error> {
        let inner = &self.inner;
        let mut description = Description::new(&family, &spec.help).labels(&spec.labels).verbatim();
        if let (CellsKind::Each, Some(aggregation)) = (cells_kind(spec), spec.aggregation) {
            description = description.aggregation(aggregation);
        }
        if let Some(series) = inner.registries.options().series {
            description = description.max_series(series);
        }
        let once = |registry: &Registry| inner.register(registry, spec, &description);
        // The name can also belong to an instrument of the application, or to a metric whose name
        // differs only by the `_total` of counters.
        let is_taken = |error: &quipu::Error| error.is_mismatch() || error.is_duplicate();
        let (cells, registry) = inner.registries.register(&spec.name, once, is_taken)?;
        let (spec, synchronizing, inner) = (spec.clone(), Lock::new(), Arc::clone(inner));
        Ok(SegmentMetric { spec, family, registry, cells, synchronizing, inner })
    }
}

impl crate::interface::sealed::Sealed for SegmentStore {}

impl Store for SegmentStore {
    fn metric(&self, spec: &Spec) -> Result<Arc<dyn Metric>, Error> {
        // The family's name lacks `_total`, because the formats add it.
        let is_total = cells_kind(spec) == CellsKind::Total;
        let family = if is_total { counter_stem(&spec.name) } else { &spec.name };
        let make = || self.make(spec, family.to_owned());
        Ok(self.metrics.get_or_make(spec, make)?)
    }

    /// Returns the updates that this process could not keep, and the updates of all processes that
    /// were counted in overflow series because the segment, its disk or the metric was full.
    fn dropped(&self) -> u64 {
        self.inner.warn_of_overflow();
        self.inner.updates.dropped.load(Ordering::Relaxed) + self.inner.overflowed()
    }
}

impl StoreInner {
    fn register(
        &self,
        registry: &Registry,
        spec: &Spec,
        description: &Description,
    ) -> Result<Cells, quipu::Error> {
        let once = |registry: &Registry| -> Result<Cells, quipu::Error> {
            let description = description.clone();
            Ok(match cells_kind(spec) {
                CellsKind::Total => Cells::Total(registry.register(description)?),
                CellsKind::Sum => Cells::Sum(registry.register(description)?),
                CellsKind::Each => Cells::Each(registry.register(description)?),
            })
        };
        register(registry, self.generation, once)
    }

    fn overflowed(&self) -> u64 {
        let registries = self.registries.all();
        let families = registries.iter().filter_map(|registry| registry.segment().families().ok());
        families.flatten().map(|family| family.overflowed()).sum()
    }

    /// Warns once if any series overflowed. Visits every family.
    fn warn_of_overflow(&self) {
        let has_warned = &self.updates.has_warned;
        if has_warned.load(Ordering::Relaxed) {
            return;
        }
        let overflowed = self.overflowed();
        if overflowed > 0 && !has_warned.swap(true, Ordering::Relaxed) {
            let segment = self.registries.first().segment();
            let place = segment.path();
            let place = place.map_or_else(|| "the segment".into(), Path::to_string_lossy);
            (self.registries.options().warn)(&format!(
                "{place}: {overflowed} updates are counted without their labels, in overflow \
                 series: the disk is full, the segment has reached its limit of {} bytes, a metric \
                 has reached its limit of series, or labels are longer than 256 KiB",
                segment.limit()
            ));
        }
    }

    fn drop_one(&self) {
        self.updates.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

impl SegmentMetric {
    /// Returns whether the number of label values is right. If not, counts the update as dropped.
    #[inline]
    fn fits(&self, labels: &[&str]) -> bool {
        let fits = self.spec.fits(labels);
        if !fits {
            self.inner.drop_one();
        }
        fits
    }
}

impl crate::interface::sealed::Sealed for SegmentMetric {}

impl Metric for SegmentMetric {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    #[inline]
    fn add(&self, labels: &[&str], by: f64) {
        if !self.fits(labels) {
            return;
        }
        if !self.spec.accepts(by) {
            return self.inner.drop_one();
        }
        let key = Values(labels);
        match &self.cells {
            Cells::Total(total) if by == 0.0 => total.raise(&key, 0.0),
            Cells::Total(total) => total.inc_by(&key, by),
            Cells::Sum(sum) => sum.add(&key, by),
            Cells::Each(each) => each.add(&key, by),
        }
    }

    fn set(&self, labels: &[&str], value: f64) {
        if !self.fits(labels) {
            return;
        }
        let key = Values(labels);
        match &self.cells {
            Cells::Total(total) => total.raise(&key, value),
            Cells::Sum(sum) if value > 0.0 => sum.raise(&key, value),
            Cells::Sum(sum) => sum.add(&key, 0.0),
            Cells::Each(each) if self.spec.is_cumulative() => {
                // No other process changes this value, so a lock between threads is enough.
                let _guard = self.synchronizing.lock();
                let old = each.get(&key).unwrap_or(0.0);
                let new = self.spec.after_set(Some(old), value);
                // An addition keeps concurrent additions of other threads, but cannot lead away
                // from infinity.
                if old.is_finite() { each.add(&key, new - old) } else { each.set(&key, new) }
            }
            Cells::Each(each) => each.set(&key, value),
        }
    }

    fn get(&self, labels: &[&str]) -> Option<f64> {
        if !self.spec.fits(labels) {
            return None;
        }
        let key = Values(labels);
        match &self.cells {
            Cells::Total(total) => total.get(&key),
            Cells::Sum(sum) => sum.get(&key),
            Cells::Each(each) => each.get(&key),
        }
    }

    fn for_each(&self, visit: &mut dyn FnMut(&[&str], f64)) -> Result<(), Error> {
        let mut each =
            Each { labels: self.spec.labels.len(), overflows: false, families: 0, visit };
        let visited = self.registry.visit_family(&self.family, &mut each);
        visited.map_err(|error| Error::because(&self.spec.name, "it cannot be read", error))?;
        if each.overflows {
            self.inner.warn_of_overflow();
        }
        Ok(())
    }

    fn synchronize(&self, work: &mut dyn FnMut()) {
        let _guard = self.synchronizing.lock();
        work();
    }

    fn remove(&self, labels: &[&str]) -> Result<bool, Error> {
        if !self.spec.fits(labels) {
            return Ok(false);
        }
        let key = Values(labels);
        let removed = match &self.cells {
            Cells::Total(total) => total.remove(&key),
            Cells::Sum(sum) => sum.remove(&key),
            Cells::Each(each) => each.remove(&key),
        };
        let fail = |error| Error::because(&self.spec.name, "its series cannot be removed", error);
        removed.map_err(fail)
    }
}

/// Passes the series of a family to `visit`, by their label values.
struct Each<'v> {
    labels: usize,
    /// Whether there was an overflow series.
    overflows: bool,
    /// The number of families so far. The metric is the first; the others are variants of its name.
    families: u32,
    visit: &'v mut dyn FnMut(&[&str], f64),
}

impl Sink for Each<'_> {
    fn family(&mut self, _: &FamilyHeader<'_>) {
        self.families += 1;
    }

    fn series(&mut self, _: &FamilyHeader<'_>, series: &Series<'_>) {
        let (Value::Counter(CounterValue { total: number, .. }) | Value::Gauge(number)) =
            series.value
        else {
            return;
        };
        if self.families > 1 {
            return;
        }
        self.overflows |= series.overflow;
        let labels: Vec<&str> = if series.overflow {
            vec!["quipu_overflow"; self.labels]
        } else {
            series.texts.collect()
        };
        (self.visit)(&labels, number.as_f64());
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CellsKind {
    Total,
    Sum,
    Each,
}

fn cells_kind(spec: &Spec) -> CellsKind {
    let is_sum = matches!(spec.aggregation, None | Some(Aggregation::Sum));
    match spec.kind {
        Kind::Counter if is_sum => CellsKind::Total,
        Kind::Histogram | Kind::Summary if is_sum => CellsKind::Sum,
        _ => CellsKind::Each,
    }
}
