//! A segment that all processes of an application share: the store to take.
//!
//! Counters, and the parts of histograms and summaries, have one cell for all processes: a worker
//! that dies leaves nothing behind, and a scrape reads each series once. Gauges have a value for
//! each process, which a scrape puts together.
//!
//! Nothing that is wrong with a file or a directory reaches the application: the store counts in
//! memory then, which the children of a later fork share, and says why to whom it is told to warn.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use quipu::label::Values;
use quipu::snapshot::{Family, Number, Series, Sink, Value};
use quipu::{
    Aggregation, Description, GaugeFamily, MixedCounterFamily, ProcessGaugeFamily, Registry,
};
use quipu_segment::{Flaw, Options, Replaced, Segment, SetAside, printable};

use crate::error::Error;
use crate::interface::{Kind, Metric, Spec, Store};
use crate::lock::Lock;
use crate::table::{Table, register};

/// Metrics in a segment: a file, or memory that the children of a fork share.
///
/// ```
/// use quipu_store::{Kind, SegmentStore, Spec, Store};
///
/// # let directory = tempfile::tempdir()?;
/// # let directory = directory.path();
/// let store = SegmentStore::open(directory)?;
/// let requests = store.metric(&Spec::new("requests", Kind::Counter).labels(["code", "path"]))?;
/// requests.increment(&["200", "/x"], 1.0);
/// let text = store.registry().text();
/// assert!(text.contains("requests_total{code=\"200\",path=\"/x\"} 1"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct SegmentStore {
    inner: Arc<Inner>,
    metrics: Table<Kept>,
}

/// How a [`SegmentStore`] is made.
#[derive(Clone)]
pub struct SegmentOptions {
    limit: u64,
    series: Option<u64>,
    mode: u32,
    group: Option<u32>,
    warn: Warn,
}

type Warn = Arc<dyn Fn(&str) + Send + Sync>;

/// What the metrics of a store share.
struct Inner {
    options: SegmentOptions,
    registry: Registry,
    /// Those of metrics that another application describes differently in the ones before.
    more: Replaced<Vec<Registry>>,
    /// In this process' own memory: that of metrics for which there was no room in a segment that
    /// is shared.
    own: Replaced<Option<Registry>>,
    dropped: AtomicU64,
    has_warned: AtomicBool,
    /// The process that made it.
    generation: u32,
}

/// A metric in a segment.
struct Kept {
    spec: Spec,
    family: String,
    registry: Registry,
    cells: Cells,
    together: Lock,
    inner: Arc<Inner>,
}

/// What a metric counts in.
enum Cells {
    /// One total for all processes.
    Total(MixedCounterFamily<Values<'static>>),
    /// One sum for all processes, to which negative numbers are added too.
    Sum(GaugeFamily<Values<'static>>),
    /// A value for each process.
    Each(ProcessGaugeFamily<Values<'static>>),
}

/// The name of the file in a directory.
const FILE: &str = "metrics.quipu";
/// How many descriptions of one name are kept apart.
const MOST_FILES: usize = 10;
/// How many files are set aside in one directory.
const MOST_ASIDE: u32 = 100;
const DEFAULT_LIMIT: u64 = 256 << 20;
const LEAST_LIMIT: u64 = 256 << 10;

impl SegmentOptions {
    /// A limit of 256 MiB, files of mode 0600; warnings go nowhere.
    pub fn new() -> Self {
        let warn = Arc::new(|_: &str| ());
        Self { limit: DEFAULT_LIMIT, series: None, mode: 0o600, group: None, warn }
    }

    /// The bytes to which the segment may grow: some 100 for each series.
    pub fn limit(mut self, bytes: u64) -> Self {
        self.limit = bytes;
        self
    }

    /// The most series of each metric. What comes beyond is counted in one series, whose label
    /// values are all `quipu_overflow`.
    pub fn series(mut self, most: u64) -> Self {
        self.series = Some(most);
        self
    }

    /// The permission bits of a new file, whatever the umask is; 0600 without this. A process that may
    /// read the file may hold its locks, and make others wait or count in memory; one that may write
    /// it may change every count.
    pub fn mode(mut self, bits: u32) -> Self {
        self.mode = bits;
        self
    }

    /// The group of a new file, by its number: one that this process is in, unless it is privileged.
    pub fn group(mut self, group: u32) -> Self {
        self.group = Some(group);
        self
    }

    /// Whom to tell, once each, what keeps the store from what it was asked for: a damaged file, a
    /// directory that cannot be written, a full disk. It is called where the store is opened and
    /// read, and never by an increment.
    pub fn warn(mut self, warn: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.warn = Arc::new(warn);
        self
    }

    /// A store in a file. `path` is the file, if it has an extension, or a directory, which is made
    /// where there is none; in it, the file is called `metrics.quipu`.
    ///
    /// A file that is damaged, or of a version that is not known, is renamed to `NAME.aside-1` and
    /// so on, and a new one begun, unless other processes use it. Where a file cannot be had, the
    /// store lies in memory without a name: also where another process has the file locked, and does
    /// not let this one in within 10 seconds.
    ///
    /// All processes that open one file count in the same series, those of several applications
    /// too. Where they describe a metric of one name differently, the later one's is kept in a file
    /// beside the first, `metrics.1.quipu`, for all processes that describe it in its way.
    ///
    /// # Errors
    /// A system that has no memory left.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<SegmentStore, Error> {
        let path = path.as_ref();
        let file = if path.is_dir() || path.extension().is_none() {
            if let Err(error) = fs::create_dir_all(path) {
                let what = format!("the directory {} cannot be made: {error}", printable(path));
                return self.in_memory(Some(&what));
            }
            path.join(FILE)
        } else {
            path.to_owned()
        };
        match self.file(&file) {
            Ok(segment) => Ok(self.on(segment)),
            Err(error) => self.in_memory(Some(&error.to_string())),
        }
    }

    /// A store in memory without a name, which the children of forks share: for where nothing can
    /// be written. It is made before the fork.
    ///
    /// # Errors
    /// As [`SegmentOptions::open`].
    pub fn anonymous(&self) -> Result<SegmentStore, Error> {
        self.in_memory(None)
    }

    /// A store in memory of this process' own. A child of a fork has a copy.
    ///
    /// # Errors
    /// As [`SegmentOptions::open`].
    pub fn private(&self) -> Result<SegmentStore, Error> {
        let segment = least(self.limit, Segment::private);
        segment.map(|segment| self.on(segment)).map_err(no_memory)
    }

    fn on(&self, segment: Segment) -> SegmentStore {
        let inner = Inner {
            options: self.clone(),
            registry: Registry::on(segment),
            more: Replaced::default(),
            own: Replaced::default(),
            dropped: AtomicU64::new(0),
            has_warned: AtomicBool::new(false),
            generation: quipu_segment::generation(),
        };
        SegmentStore { inner: Arc::new(inner), metrics: Table::default() }
    }

    fn in_memory(&self, why: Option<&str>) -> Result<SegmentStore, Error> {
        let mut why = why.map(str::to_owned);
        let (segment, who) = match least(self.limit, Segment::anonymous) {
            Ok(segment) => (segment, "this process and the children of its forks"),
            Err(error) => {
                why.get_or_insert_with(|| error.to_string());
                let segment = least(self.limit, Segment::private).map_err(no_memory)?;
                (segment, "this process alone")
            }
        };
        if let Some(why) = why {
            (self.warn)(&format!("{why}; metrics are kept in memory, for {who}"));
        }
        Ok(self.on(segment))
    }

    /// Opens or makes a file; one that cannot be used is set aside.
    fn file(&self, path: &Path) -> Result<Segment, quipu_segment::Error> {
        let mut options = Options::new().limit(self.limit).mode(self.mode).shared();
        if let Some(group) = self.group {
            options = options.group(group);
        }
        let names = |error: &quipu_segment::Error| is_useless(error).then(|| asides(path));
        let (segment, aside) = options.open_or_replace(path, names)?;
        if let Some(SetAside { error, name }) = aside {
            (self.warn)(&format!("{error}; it is now {}, and a new one begun", printable(&name)));
        }
        Ok(segment)
    }
}

impl Default for SegmentOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl SegmentStore {
    /// A store in a file or in a directory, with the default options. See [`SegmentOptions::open`].
    ///
    /// # Errors
    /// As there.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        SegmentOptions::new().open(path)
    }

    /// Its options.
    pub fn options() -> SegmentOptions {
        SegmentOptions::new()
    }

    /// The file, where it lies in one.
    pub fn path(&self) -> Option<&Path> {
        self.inner.registry.segment().path()
    }

    /// The registry of its metrics, for a scrape, and for instruments of the application's own. It
    /// looks at every family for what there is to warn of: keep it where it is asked for often.
    pub fn registry(&self) -> &Registry {
        self.inner.look();
        &self.inner.registry
    }

    /// All of its registries: the first, those of metrics that another application describes
    /// differently there, and that of metrics for which there was no room.
    pub fn registries(&self) -> Vec<Registry> {
        self.inner.registries()
    }

    fn make(&self, spec: &Spec, family: String) -> Result<Kept, Error> {
        let inner = &self.inner;
        let mut description = Description::new(&family, &spec.help)
            .labels(&spec.labels)
            .aggregation(spec.aggregation.unwrap_or_default())
            .verbatim();
        if let Some(series) = inner.options.series {
            description = description.limit(series);
        }
        let kept = |registry: Registry, cells: Cells, why: Option<quipu::Error>| {
            if let Some(why) = why {
                let place = registry.segment().path();
                let place = place.map_or_else(|| "memory".into(), Path::to_string_lossy);
                (inner.options.warn)(&format!("{why}; it is kept apart, in {place}"));
            }
            let (spec, inner) = (spec.clone(), Arc::clone(inner));
            Kept { spec, family: family.clone(), registry, cells, together: Lock::new(), inner }
        };
        let mut last = None;
        for number in 0..MOST_FILES {
            let registry = inner.registry_of(number)?;
            match inner.register(&registry, spec, &description) {
                Ok(cells) => return Ok(kept(registry, cells, last)),
                // What has its name there may be a metric of the application's own, too, or one that
                // differs by the `_total` of counters.
                Err(error) if error.is_mismatch() || error.is_duplicate() => last = Some(error),
                Err(error) => {
                    // The system or the segment has no room for it; a description that is wrong is
                    // refused again.
                    let own = inner.own()?;
                    return match inner.register(&own, spec, &description) {
                        Ok(cells) => {
                            let warning = "it is kept in the memory of this process alone";
                            (inner.options.warn)(&format!("{error}; {warning}"));
                            Ok(kept(own, cells, None))
                        }
                        Err(_) => Err(Error::because(&spec.name, "it cannot be made", error)),
                    };
                }
            }
        }
        let what = "too many applications describe it differently in one directory; give each its \
                    own, or remove the files while none runs";
        Err(Error::new(&spec.name, what))
    }
}

impl Store for SegmentStore {
    fn metric(&self, spec: &Spec) -> Result<Arc<dyn Metric>, Error> {
        // What a family of counters is called; formats add the rest.
        let family = match spec.name.strip_suffix("_total") {
            Some(name) if cells_of(spec) == Which::Total => name,
            _ => &spec.name,
        };
        let make = || self.make(spec, family.to_owned());
        Ok(self.metrics.get_or_make(spec, make)?)
    }

    /// As everywhere; and the updates, of all processes, that were counted in the overflow series,
    /// since the segment, its disk or the metric was full.
    fn dropped(&self) -> u64 {
        self.inner.look();
        self.inner.dropped.load(Ordering::Relaxed) + self.inner.overflowed()
    }
}

impl Inner {
    /// The registry of that number, made where it is not there yet.
    fn registry_of(&self, number: usize) -> Result<Registry, Error> {
        let Some(number) = number.checked_sub(1) else { return Ok(self.registry.clone()) };
        let found = self.more.read(|more| more.get(number).cloned());
        if let Some(registry) = found {
            return Ok(registry);
        }
        let segment = match self.registry.segment().path() {
            Some(path) => {
                let name = numbered(path, number + 1);
                let made = self.options.file(&name);
                made.map_err(|error| {
                    Error::because(printable(&name).to_string(), "no file", error)
                })?
            }
            None => least(self.options.limit, Segment::anonymous)
                .or_else(|_| least(self.options.limit, Segment::private))
                .map_err(no_memory)?,
        };
        let registry = Registry::on(segment);
        self.more
            .replace(|more| (Some(more.iter().cloned().chain([registry.clone()]).collect()), ()));
        Ok(registry)
    }

    /// The registry in this process' own memory, made where it is not there yet.
    fn own(&self) -> Result<Registry, Error> {
        if let Some(own) = self.own.read(Option::clone) {
            return Ok(own);
        }
        let segment = least(self.options.limit, Segment::private).map_err(no_memory)?;
        let made = Registry::on(segment);
        // Of two threads that come first, one has made it in vain.
        Ok(self.own.replace(|own| match own {
            Some(own) => (None, own.clone()),
            None => (Some(Some(made.clone())), made.clone()),
        }))
    }

    fn registries(&self) -> Vec<Registry> {
        let (more, own) = (self.more.read(Vec::clone), self.own.read(Option::clone));
        std::iter::once(self.registry.clone()).chain(more).chain(own).collect()
    }

    fn register(
        &self,
        registry: &Registry,
        spec: &Spec,
        description: &Description,
    ) -> Result<Cells, quipu::Error> {
        let once = |registry: &Registry| -> Result<Cells, quipu::Error> {
            let description = description.clone();
            Ok(match cells_of(spec) {
                Which::Total => Cells::Total(registry.register(description)?),
                Which::Sum => Cells::Sum(registry.register(description)?),
                Which::Each => Cells::Each(registry.register(description)?),
            })
        };
        register(registry, self.generation, once)
    }

    fn overflowed(&self) -> u64 {
        let registries = self.registries();
        let families = registries.iter().filter_map(|registry| registry.segment().families().ok());
        families.flatten().map(|family| family.overflowed()).sum()
    }

    /// Warns if something overflows, once. It looks at every family.
    fn look(&self) {
        if self.has_warned.load(Ordering::Relaxed) {
            return;
        }
        let overflowed = self.overflowed();
        if overflowed > 0 && !self.has_warned.swap(true, Ordering::Relaxed) {
            let place = self.registry.segment().path();
            let place = place.map_or_else(|| "the segment".into(), Path::to_string_lossy);
            (self.options.warn)(&format!(
                "{place}: {overflowed} updates are counted without their labels, in overflow \
                 series: the disk is full, the segment's limit of {} bytes is reached, or that of a \
                 metric's series, or labels are longer than 256 KiB",
                self.registry.segment().limit()
            ));
        }
    }

    fn drop_one(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

impl Kept {
    /// Whether there are as many label values as names; else it is counted as dropped.
    #[inline]
    fn fits(&self, labels: &[&str]) -> bool {
        let fits = labels.len() == self.spec.labels.len();
        if !fits {
            self.inner.drop_one();
        }
        fits
    }
}

impl Metric for Kept {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    #[inline]
    fn increment(&self, labels: &[&str], by: f64) {
        if !self.fits(labels) {
            return;
        }
        if by.is_nan() || (by < 0.0 && self.spec.kind == Kind::Counter) {
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
                // This process' own: others do not set it.
                let _guard = self.together.lock();
                each.add(&key, (value - each.get(&key).max(0.0)).max(0.0));
            }
            Cells::Each(each) => each.set(&key, value),
        }
    }

    fn get(&self, labels: &[&str]) -> f64 {
        if labels.len() != self.spec.labels.len() {
            return 0.0;
        }
        let key = Values(labels);
        match &self.cells {
            Cells::Total(total) => total.get(&key).unwrap_or(0.0),
            Cells::Sum(sum) => sum.get(&key).unwrap_or(0.0),
            Cells::Each(each) => each.get(&key),
        }
    }

    fn all_values(&self, visit: &mut dyn FnMut(&[&str], f64)) -> Result<(), Error> {
        let mut each = Each { labels: self.spec.labels.len(), overflows: false, visit };
        let visited = self.registry.visit_family(&self.family, &mut each);
        visited.map_err(|error| Error::because(&self.spec.name, "it cannot be read", error))?;
        if each.overflows {
            self.inner.look();
        }
        Ok(())
    }

    fn synchronize(&self, work: &mut dyn FnMut()) {
        let _guard = self.together.lock();
        work();
    }

    fn remove(&self, labels: &[&str]) -> bool {
        if labels.len() != self.spec.labels.len() {
            return false;
        }
        let key = Values(labels);
        let removed = match &self.cells {
            Cells::Total(total) => total.remove(&key),
            Cells::Sum(sum) => sum.remove(&key),
            Cells::Each(each) => each.remove(&key),
        };
        removed.unwrap_or(false)
    }
}

/// Gives series by their label values.
struct Each<'v> {
    labels: usize,
    /// Whether there was a series for what found no room.
    overflows: bool,
    visit: &'v mut dyn FnMut(&[&str], f64),
}

impl Sink for Each<'_> {
    fn family(&mut self, _: &Family<'_>) {}

    fn series(&mut self, _: &Family<'_>, series: &Series<'_>) {
        let (Value::Counter { total: number, .. } | Value::Gauge(number)) = series.value else {
            return;
        };
        let value = match number {
            Number::Unsigned(n) => n as f64,
            Number::Signed(n) => n as f64,
            Number::Float(n) => n,
        };
        self.overflows |= series.overflow;
        let labels: Vec<&str> = if series.overflow {
            vec!["quipu_overflow"; self.labels]
        } else {
            series.texts.collect()
        };
        (self.visit)(&labels, value);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Which {
    Total,
    Sum,
    Each,
}

fn cells_of(spec: &Spec) -> Which {
    let is_sum = matches!(spec.aggregation, None | Some(Aggregation::Sum));
    match spec.kind {
        Kind::Counter if is_sum => Which::Total,
        Kind::Histogram | Kind::Summary if is_sum => Which::Sum,
        _ => Which::Each,
    }
}

/// Makes a segment of that limit, or of less where the system has not as many addresses.
fn least(
    mut limit: u64,
    make: impl Fn(u64) -> Result<Segment, quipu_segment::Error>,
) -> Result<Segment, quipu_segment::Error> {
    loop {
        match make(limit) {
            Err(_) if limit / 2 >= LEAST_LIMIT => limit /= 2,
            result => return result,
        }
    }
}

fn no_memory(error: quipu_segment::Error) -> Error {
    Error::because("segment", "there is no memory for it; raise this process' limits", error)
}

/// Whether the file is one of ours, and cannot be read.
fn is_useless(error: &quipu_segment::Error) -> bool {
    error.is_damage() || matches!(error.flaw(), Flaw::Version { .. })
}

/// The names that a file may be given.
fn asides(path: &Path) -> impl Iterator<Item = PathBuf> {
    let name = path.as_os_str().to_owned();
    (1..=MOST_ASIDE).map(move |number| {
        let mut name = name.clone();
        name.push(format!(".aside-{number}"));
        name.into()
    })
}

/// `metrics.1.quipu` beside `metrics.quipu`.
fn numbered(path: &Path, number: usize) -> PathBuf {
    let extension = path.extension().map(|extension| extension.to_string_lossy());
    path.with_extension(format!("{number}.{}", extension.as_deref().unwrap_or("quipu")))
}
