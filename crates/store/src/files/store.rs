//! [`FileStore`], a store that writes one file per process and metric.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use quipu::Aggregation;
use quipu_arena::Arena;
use quipu_segment::printable;
use rustix::fs::{Access, access};

use super::directories::{as_name, list, read_file};
use super::families::fold_for;
use super::key::{parse_query, push_query};
use super::name::Content;
use super::table::{Fold, Place, RowTable};
use super::walk::Window;
use super::writer::Writer;
use crate::error::Error;
use crate::interface::{Kind, Metric, Spec, Store};
use crate::lock::{Lock, LockedValue};
use crate::table;

/// A store that keeps each metric of each process in a separate file, like the `DirectFileStore` of
/// Ruby's client. Each of the two can read the files of the other.
///
/// An update is a system call and takes about a microsecond. Files of exited processes remain, and
/// the cost of a read grows with the number of files. If you do not need this format, a shared
/// segment serves you better. A forked child gets new files at its first update.
///
/// You can use the aggregations of Ruby's client: sum, min, max, most recent (for gauges), and all.
/// With all, each series also carries the label `pid`. An update that fails because of a full disk
/// or a missing directory is counted in [`Store::dropped`]. If a file cannot be created, the store
/// tries again after a second. Clones share the store.
///
/// ```
/// use quipu_store::files::FileStore;
/// use quipu_store::{Kind, Spec, Store};
///
/// # let directory = tempfile::tempdir()?;
/// # let directory = directory.path();
/// let store = FileStore::open(directory)?;
/// let requests = store.metric(&Spec::new("requests", Kind::Counter).labels(["code"]))?;
/// requests.add(&["200"], 2.0);
/// assert_eq!(requests.get(&["200"]), Some(2.0));
/// assert_eq!(std::fs::read_dir(directory)?.count(), 1, "a file for the metric of this process");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct FileStore {
    shared: Arc<FileStoreInner>,
    metrics: table::Table<FileMetric>,
}

impl std::fmt::Debug for FileStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileStore")
            .field("directory", &self.shared.directory)
            .finish_non_exhaustive()
    }
}

struct FileStoreInner {
    directory: PathBuf,
    dropped: AtomicU64,
}

struct FileMetric {
    spec: Spec,
    /// `None` if each process writes separate series.
    fold: Option<Fold>,
    /// The indexes of the labels, in order of their names. The index after the last is the pid.
    order: Vec<usize>,
    shared: Arc<FileStoreInner>,
    synchronizing: Lock,
    state: LockedValue<ProcessPart>,
}

/// This process's part of a metric.
#[derive(Default)]
struct ProcessPart {
    /// The generation of the process that owns this part.
    generation: u32,
    writer: Option<Writer>,
    /// When the file last could not be created.
    failed: Option<Instant>,
    /// The number of nested calls of `synchronize`.
    depth: u32,
    is_locked: bool,
    /// The key of the last update.
    key: String,
}

const PATIENCE: Duration = Duration::from_secs(1);
const PID: &str = "pid";
const MAX_NAME: usize = 200;

impl FileStore {
    /// Opens a store in this directory, which is created if it does not exist.
    ///
    /// # Errors
    /// If the directory cannot be created or written.
    pub fn open(directory: impl AsRef<Path>) -> Result<Self, Error> {
        let directory = directory.as_ref();
        let failed = |error: std::io::Error| {
            let reason = "the directory cannot be written to; use one that this user may write to";
            Error::because(printable(&directory).to_string(), reason, error)
        };
        std::fs::create_dir_all(directory).map_err(failed)?;
        access(directory, Access::WRITE_OK | Access::EXEC_OK).map_err(|e| failed(e.into()))?;
        let (directory, dropped) = (directory.to_owned(), AtomicU64::new(0));
        let shared = Arc::new(FileStoreInner { directory, dropped });
        Ok(Self { shared, metrics: table::Table::default() })
    }
}

impl crate::interface::sealed::Sealed for FileStore {}

impl Store for FileStore {
    fn metric(&self, spec: &Spec) -> Result<Arc<dyn Metric>, Error> {
        let make = || FileMetric::new(spec, &self.shared);
        let metric: Arc<dyn Metric> = self.metrics.get_or_make(spec, make)?;
        Ok(metric)
    }

    fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }
}

impl FileMetric {
    fn new(spec: &Spec, shared: &Arc<FileStoreInner>) -> Result<Self, Error> {
        let refuse = |message: String| Err(Error::new(format!("metric {:?}", spec.name), message));
        if spec.name.contains('/') || spec.name.len() > MAX_NAME {
            let reason = format!(
                "the name cannot be part of a file name; use at most {MAX_NAME} bytes and no slash"
            );
            return refuse(reason);
        }
        let default = if spec.kind == Kind::Gauge { Aggregation::All } else { Aggregation::Sum };
        let aggregation = spec.aggregation.unwrap_or(default);
        if aggregation.is_live() {
            let reason = format!(
                "files do not record which processes are alive; use {} instead of {aggregation}, \
                 or use another store",
                &aggregation.as_str()["live".len()..]
            );
            return refuse(reason);
        }
        if aggregation == Aggregation::MostRecent && spec.kind != Kind::Gauge {
            return refuse("only a gauge can show the most recent value; use the sum".into());
        }
        let fold = Some(fold_for(aggregation)).filter(|&fold| fold != Fold::Each);
        let mut names: Vec<&str> = spec.labels.iter().map(String::as_str).collect();
        if fold.is_none() {
            if names.contains(&PID) {
                let reason = "the store adds a label \"pid\" to each series; rename yours".into();
                return refuse(reason);
            }
            names.push(PID);
        }
        let mut order: Vec<usize> = (0..names.len()).collect();
        order.sort_unstable_by_key(|&at| names[at]);
        let (spec, shared) = (spec.clone(), Arc::clone(shared));
        let (synchronizing, state) = (Lock::new(), LockedValue::default());
        Ok(Self { spec, fold, order, shared, synchronizing, state })
    }

    /// Calls `work` with the file of this process and the key of these labels. Returns `None` if
    /// the number of labels is wrong, if there is no file, or if `work` returns `None`.
    fn with<R>(
        &self,
        labels: &[&str],
        work: impl FnOnce(&mut Writer, &str) -> Option<R>,
    ) -> Option<R> {
        if !self.spec.fits(labels) {
            return None;
        }
        let done = self.state.with(|state| {
            state.open(&self.shared.directory, &self.spec.name);
            let ProcessPart { writer: Some(writer), key, .. } = state else { return None };
            key.clear();
            for &at in &self.order {
                match (self.spec.labels.get(at), labels.get(at)) {
                    (Some(name), Some(value)) => push_query(key, name, value),
                    _ => push_query(key, PID, writer.identity()),
                }
            }
            work(writer, key)
        });
        done.flatten()
    }

    /// Changes a value, or counts the update as dropped.
    fn update(&self, labels: &[&str], is_right: bool, change: impl FnOnce(Option<f64>) -> f64) {
        let set = || self.with(labels, |writer, key| writer.set(key, change(writer.get(key))).ok());
        if !is_right || set().is_none() {
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl ProcessPart {
    fn open(&mut self, directory: &Path, metric: &str) {
        let generation = quipu_segment::generation();
        if self.generation != generation {
            // This is a forked child; the file stays the parent's.
            *self = Self { generation, ..Self::default() };
        }
        if self.writer.is_some() || self.failed.is_some_and(|at| at.elapsed() < PATIENCE) {
            return;
        }
        self.writer = Writer::open(directory, metric).ok();
        self.failed = if self.writer.is_none() { Some(Instant::now()) } else { None };
    }
}

impl crate::interface::sealed::Sealed for FileMetric {}

impl Metric for FileMetric {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn add(&self, labels: &[&str], by: f64) {
        self.update(labels, self.spec.accepts(by), |old| old.unwrap_or(0.0) + by);
    }

    fn set(&self, labels: &[&str], value: f64) {
        self.update(labels, true, |old| self.spec.after_set(old, value));
    }

    fn get(&self, labels: &[&str]) -> Option<f64> {
        self.with(labels, |writer, key| writer.get(key))
    }

    fn for_each(&self, visit: &mut dyn FnMut(&[&str], f64)) -> Result<(), Error> {
        let directory = &self.shared.directory;
        let mut names = list(directory).map_err(|error| {
            let reason = "the directory cannot be read; it may have been removed";
            Error::because(printable(&directory).to_string(), reason, error)
        })?;
        names.sort_unstable();
        let mut arena: Arena = Arena::new();
        let scope = arena.as_scope();
        let mut window = Window::default();
        let mut table = RowTable::new(self.fold.unwrap_or(Fold::Sum));
        let wanted = Content::Ruby(&self.spec.name);
        for (number, name) in (0..).zip(&names) {
            if as_name(name).is_none_or(|name| name.content != wanted) {
                continue;
            }
            let mut place = Place::new(number);
            // A damaged file counts up to the damage, so the read does not fail.
            let _ = read_file(&directory.join(name), wanted, &mut window, |entry| {
                table.add(&mut place, entry.key, entry.reading, &scope);
            });
        }
        let pid = self.fold.is_none().then_some(PID);
        let expected = self.spec.labels.len() + usize::from(pid.is_some());
        for row in &table.rows {
            let Some(labels) = parse_query(row.key) else { continue };
            let names = self.spec.labels.iter().map(String::as_str).chain(pid);
            let values: Vec<&str> =
                names.filter_map(|name| labels.get(name).map(String::as_str)).collect();
            // Rows with other labels belong to another description of the metric.
            if values.len() == expected && labels.len() == expected {
                visit(&values, row.reading.value);
            }
        }
        Ok(())
    }

    fn synchronize(&self, work: &mut dyn FnMut()) {
        let _guard = self.synchronizing.lock();
        let _together = Together::new(self);
        work();
    }
}

/// A guard: readers see either all or none of the updates during its lifetime.
struct Together<'a>(&'a FileMetric);

impl<'a> Together<'a> {
    fn new(metric: &'a FileMetric) -> Self {
        metric.state.with(|state| {
            state.open(&metric.shared.directory, &metric.spec.name);
            state.depth += 1;
            if let (1, Some(writer)) = (state.depth, &state.writer) {
                state.is_locked = writer.lock();
            }
        });
        Self(metric)
    }
}

impl Drop for Together<'_> {
    fn drop(&mut self) {
        self.0.state.with(|state| {
            if state.generation != quipu_segment::generation() {
                return;
            }
            state.depth = state.depth.saturating_sub(1);
            if state.depth == 0
                && std::mem::take(&mut state.is_locked)
                && let Some(writer) = &state.writer
            {
                writer.unlock();
            }
        });
    }
}
