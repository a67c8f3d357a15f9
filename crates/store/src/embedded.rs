//! [`EmbeddedStore`], a store in an embedded transactional database, LMDB. Each update is a
//! transaction.
//!
//! This store replaces Ruby's `PStore`. It is slower than a segment by two orders of magnitude. Use
//! it for values that must be on the disk when an update returns, or that other tools read.
//!
//! Each series stores one value for all processes: a float in 8 little-endian bytes. Its key is the
//! metric's name, a zero byte, its kind, each label name after its length (four little-endian
//! bytes), a zero byte, and the label values in the same form. So if two applications describe
//! metrics of one name differently, these stay separate.
//!
//! LMDB's memory mapping must not cross a fork, so the store closes it before each fork, and opens
//! it again at the next use. An update waits for the updates of other processes; if such a process
//! dies, the kernel releases its lock.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use heed::types::Bytes;
use heed::{Database, Env, EnvFlags, EnvOpenOptions, MdbError, RwTxn, WithoutTls};
use quipu::Aggregation;
use quipu_segment::{printable, without_size_signal};

use crate::error::Error;
use crate::interface::{Kind, Metric, Spec, Store};
use crate::lock::{Lock, LockedValue};
use crate::table::Table;

/// Metrics in an LMDB database. All processes that open its directory share these metrics. Clones
/// share the open database.
///
/// ```
/// use quipu_store::{EmbeddedStore, Kind, Spec, Store};
///
/// # let directory = tempfile::tempdir()?;
/// # let directory = directory.path();
/// let jobs = Spec::new("jobs", Kind::Counter);
/// let store = EmbeddedStore::open(directory)?;
/// store.metric(&jobs)?.add(&[], 3.0);
/// store.sync()?;
/// drop(store);
/// assert_eq!(EmbeddedStore::open(directory)?.metric(&jobs)?.get(&[]), Some(3.0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct EmbeddedStore {
    shared: Arc<EmbeddedInner>,
    metrics: Table<EmbeddedMetric>,
}

impl std::fmt::Debug for EmbeddedStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EmbeddedStore")
            .field("directory", &self.shared.directory)
            .finish_non_exhaustive()
    }
}

/// Options for opening a database.
///
/// ```
/// use quipu_store::{EmbeddedStore, Kind, Spec, Store};
///
/// # let directory = tempfile::tempdir()?;
/// # let directory = directory.path();
/// let store = EmbeddedStore::options().max_bytes(1 << 20).durable(true).open(directory)?;
/// let jobs = store.metric(&Spec::new("jobs", Kind::Counter))?;
/// jobs.add(&[], 1.0);
/// assert_eq!((jobs.get(&[]), store.dropped()), (Some(1.0), 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "open the database with open"]
pub struct EmbeddedOptions {
    map_size: usize,
    is_durable: bool,
}

/// 64 MiB: about 500,000 series.
const MAP_SIZE: usize = 64 << 20;
/// A multiple of the page size of every machine, as LMDB requires of map sizes.
const PAGE: usize = 64 << 10;
/// The size of LMDB's reader table, which it maps. The table is allocated in full, because a full
/// disk must be an error here and not a signal at a later access.
const LOCK_BYTES: u64 = 32 << 10;
const LOCK_FILE: &str = "lock.mdb";
const DATA_FILE: &str = "data.mdb";

/// The state that the metrics of a store share with each other and with the fork handlers.
struct EmbeddedInner {
    directory: PathBuf,
    options: EmbeddedOptions,
    open: LockedValue<Option<OpenDatabase>>,
    dropped: AtomicU64,
}

struct OpenDatabase {
    env: Env<WithoutTls>,
    values: Database<Bytes, Bytes>,
}

/// A metric in the database.
struct EmbeddedMetric {
    spec: Spec,
    /// The prefix of all keys of the metric.
    prefix: Vec<u8>,
    synchronizing: Lock,
    shared: Arc<EmbeddedInner>,
}

impl EmbeddedOptions {
    /// Creates the default options: a map of 64 MiB, and updates that do not wait for the disk.
    pub fn new() -> Self {
        Self { map_size: MAP_SIZE, is_durable: false }
    }

    /// Sets the maximum size of the database in bytes. Updates that do not fit are dropped, and
    /// counted as dropped.
    pub fn max_bytes(mut self, bytes: u64) -> Self {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).min(usize::MAX / 2);
        self.map_size = bytes.max(PAGE).next_multiple_of(PAGE);
        self
    }

    /// Sets whether an update only returns when it is on the disk. You then wait for the disk at
    /// each update. Without this, the death of a process loses no update, but a power loss can
    /// destroy the database.
    pub fn durable(mut self, durable: bool) -> Self {
        self.is_durable = durable;
        self
    }

    /// Opens the database in a directory, which is created if it does not exist. A process can open
    /// a directory only once.
    ///
    /// # Errors
    /// If the directory cannot be written, if the disk is full, if a file is not a database or was
    /// truncated, or if this process already opened the database.
    pub fn open(&self, directory: impl AsRef<Path>) -> Result<EmbeddedStore, Error> {
        let directory = directory.as_ref().to_owned();
        let fail = |error| cannot(&directory, error);
        let _no_fork = forks::none();
        std::fs::create_dir_all(&directory).map_err(|error| fail(error.into()))?;
        let open = OpenDatabase::new(&directory, self).map_err(fail)?;
        let shared = Arc::new(EmbeddedInner {
            directory,
            options: self.clone(),
            open: LockedValue::new(Some(open)),
            dropped: AtomicU64::new(0),
        });
        forks::close_before(&shared);
        Ok(EmbeddedStore { shared, metrics: Table::default() })
    }
}

impl Default for EmbeddedOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl EmbeddedStore {
    /// Opens the database in a directory with the default options.
    ///
    /// # Errors
    /// The errors of [`EmbeddedOptions::open`].
    pub fn open(directory: impl AsRef<Path>) -> Result<Self, Error> {
        EmbeddedOptions::new().open(directory)
    }

    /// Returns the default options.
    pub fn options() -> EmbeddedOptions {
        EmbeddedOptions::new()
    }

    /// Waits until all updates made so far are on the disk.
    ///
    /// # Errors
    /// The errors of the disk.
    pub fn sync(&self) -> Result<(), Error> {
        let synced = self.shared.with(|open| open.env.force_sync());
        synced.map_err(|error| cannot(&self.shared.directory, error))
    }
}

impl crate::interface::sealed::Sealed for EmbeddedStore {}

impl Store for EmbeddedStore {
    fn metric(&self, spec: &Spec) -> Result<Arc<dyn Metric>, Error> {
        let metric = self.metrics.get_or_make(spec, || {
            let is_shared = match (spec.kind, spec.aggregation) {
                (_, None) => true,
                (Kind::Gauge, Some(Aggregation::MostRecent)) => true,
                (Kind::Gauge, _) => false,
                (_, Some(aggregation)) => aggregation == Aggregation::Sum,
            };
            if !is_shared {
                let reason = "a database keeps one value for all processes; omit the aggregation, \
                            or use a segment";
                return Err(Error::new(format!("metric {:?}", spec.name), reason));
            }
            let prefix = prefix(spec);
            let (spec, shared) = (spec.clone(), Arc::clone(&self.shared));
            Ok(EmbeddedMetric { spec, prefix, synchronizing: Lock::default(), shared })
        })?;
        Ok(metric)
    }

    fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }
}

impl crate::interface::sealed::Sealed for EmbeddedMetric {}

impl Metric for EmbeddedMetric {
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
        let key = self.key(labels);
        let found = self.shared.with(|open| {
            let txn = open.env.read_txn()?;
            Ok(open.values.get(&txn, &key)?.and_then(float))
        });
        found.ok().flatten()
    }

    fn for_each(&self, visit: &mut dyn FnMut(&[&str], f64)) -> Result<(), Error> {
        // Copies the values, because `visit` can count or fork: no read transaction may be open
        // then.
        let all = self.shared.with(|open| {
            let txn = open.env.read_txn()?;
            let mut all = Vec::new();
            for entry in open.values.prefix_iter(&txn, &self.prefix)? {
                let (key, value) = entry?;
                all.push((key.get(self.prefix.len()..).unwrap_or(&[]).to_vec(), float(value)));
            }
            Ok(all)
        });
        let all = all.map_err(|error| cannot(&self.shared.directory, error))?;
        for (key, value) in &all {
            if let (Some(labels), Some(value)) = (texts(key, self.spec.labels.len()), value) {
                visit(&labels, *value);
            }
        }
        Ok(())
    }

    fn synchronize(&self, work: &mut dyn FnMut()) {
        let _guard = self.synchronizing.lock();
        work();
    }

    fn remove(&self, labels: &[&str]) -> Result<bool, Error> {
        let key = self.key(labels);
        let removed = self.shared.write(|open, txn| open.values.delete(txn, &key));
        removed.map_err(|error| cannot(&self.shared.directory, error))
    }
}

impl EmbeddedMetric {
    /// Changes the value of these labels to the result of `change`, if `is_right`. `change` gets
    /// `None` for a new series. Counts an update that cannot be made as dropped.
    fn update(&self, labels: &[&str], is_right: bool, change: impl Fn(Option<f64>) -> f64) {
        let is_right = is_right && self.spec.fits(labels);
        let key = self.key(labels);
        let is_kept = is_right
            && self
                .shared
                .write(|open, txn| {
                    let old = open.values.get(txn, &key)?.and_then(float);
                    let new = change(old);
                    if old.is_some_and(|old| old.to_bits() == new.to_bits()) {
                        return Ok(());
                    }
                    open.values.put(txn, &key, &new.to_le_bytes())
                })
                .is_ok();
        if !is_kept {
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn key(&self, labels: &[&str]) -> Vec<u8> {
        let mut key = self.prefix.clone();
        labels.iter().for_each(|text| put_text(&mut key, text));
        key
    }
}

impl Drop for EmbeddedInner {
    fn drop(&mut self) {
        let _no_fork = forks::none();
        // Bypasses the lock: a fork handler may hold it since a time when other handles existed,
        // and can no longer find this store to release it.
        *self.open.get_mut() = None;
    }
}

impl EmbeddedInner {
    /// Calls `work` with the database. If a fork closed the database, this opens it first.
    fn with<R>(&self, work: impl Fn(&OpenDatabase) -> heed::Result<R>) -> heed::Result<R> {
        let done = self.open.with(|place| {
            let mut result = self.once(place, &work);
            if matches!(&result, Err(heed::Error::Mdb(MdbError::MapResized))) {
                // Another process allows a larger size: a reopened map uses this size.
                *place = None;
                result = self.once(place, &work);
            }
            result
        });
        done.unwrap_or(Err(heed::Error::EnvAlreadyOpened))
    }

    fn once<R>(
        &self,
        place: &mut Option<OpenDatabase>,
        work: impl Fn(&OpenDatabase) -> heed::Result<R>,
    ) -> heed::Result<R> {
        let open = match place {
            Some(open) => open,
            None => place.insert(OpenDatabase::new(&self.directory, &self.options)?),
        };
        work(open)
    }

    /// Calls `work` in a write transaction.
    fn write<R>(
        &self,
        work: impl Fn(&OpenDatabase, &mut RwTxn<'_>) -> heed::Result<R>,
    ) -> heed::Result<R> {
        let attempt = || {
            self.with(|open| {
                without_size_signal(|| {
                    let mut txn = open.env.write_txn()?;
                    let result = work(open, &mut txn)?;
                    txn.commit()?;
                    Ok(result)
                })
            })
        };
        let result = attempt();
        if matches!(&result, Err(heed::Error::Mdb(MdbError::MapFull)))
            // Killed readers may still hold pages.
            && self.with(|open| open.env.clear_stale_readers()).is_ok_and(|readers| readers > 0)
        {
            return attempt();
        }
        result
    }
}

impl OpenDatabase {
    fn new(directory: &Path, options: &EmbeddedOptions) -> heed::Result<Self> {
        without_size_signal(|| Self::make(directory, options))
    }

    fn make(directory: &Path, options: &EmbeddedOptions) -> heed::Result<Self> {
        make_whole(&directory.join(LOCK_FILE))?;
        let mut open = EnvOpenOptions::new().read_txn_without_tls();
        open.map_size(options.map_size);
        if !options.is_durable {
            // SAFETY: without syncs, only a power loss can damage the file, as documented in the
            // options.
            unsafe { open.flags(EnvFlags::NO_SYNC) };
        }
        // SAFETY: heed ensures that a process maps the files of a directory only once, and the
        // handlers ensure that no mapping crosses a fork. Like with any database, only LMDB writes
        // to its files.
        let env = unsafe { open.open(directory)? };
        let used = (env.info().last_page_number as u64 + 1).saturating_mul(page_size());
        if env.real_disk_size()? < used {
            let reason = format!(
                "{DATA_FILE} is shorter than the {used} bytes that are in use: it was truncated; \
                 restore it, or move it away to start afresh"
            );
            return Err(std::io::Error::other(reason).into());
        }
        env.clear_stale_readers()?;
        let mut txn = env.write_txn()?;
        let values = env.create_database(&mut txn, None)?;
        txn.commit()?;
        Ok(Self { env, values })
    }
}

/// Returns the system's page size in bytes, which LMDB uses too.
fn page_size() -> u64 {
    // SAFETY: reads a constant of the system.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(size).unwrap_or(4096)
}

/// Allocates the blocks of the lock file on the disk.
fn make_whole(path: &Path) -> std::io::Result<()> {
    let mut options = OpenOptions::new();
    // LMDB creates its files with this mode.
    let file = options.create(true).truncate(false).write(true).mode(0o600).open(path)?;
    if file.metadata()?.len() < LOCK_BYTES {
        // This keeps the bytes that another process wrote there.
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, LOCK_BYTES)?;
    }
    Ok(())
}

fn prefix(spec: &Spec) -> Vec<u8> {
    let kind = match spec.kind {
        Kind::Counter => b'c',
        Kind::Gauge => b'g',
        Kind::Histogram => b'h',
        Kind::Summary => b's',
    };
    let mut prefix = [spec.name.as_bytes(), &[0, kind]].concat();
    spec.labels.iter().for_each(|label| put_text(&mut prefix, label));
    prefix.push(0);
    prefix
}

fn put_text(key: &mut Vec<u8>, text: &str) {
    let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
    key.extend_from_slice(&length.to_le_bytes());
    key.extend_from_slice(text.as_bytes());
}

/// Returns the label values in the rest of a key. `None` unless there are exactly `count` values.
fn texts(mut key: &[u8], count: usize) -> Option<Vec<&str>> {
    let mut texts = Vec::with_capacity(count);
    for _ in 0..count {
        let (length, rest) = key.split_first_chunk()?;
        let (text, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        texts.push(std::str::from_utf8(text).ok()?);
        key = rest;
    }
    key.is_empty().then_some(texts)
}

fn float(bytes: &[u8]) -> Option<f64> {
    Some(f64::from_le_bytes(bytes.try_into().ok()?))
}

fn cannot(directory: &Path, error: heed::Error) -> Error {
    let reason = match &error {
        heed::Error::EnvAlreadyOpened => {
            "this process already has the database open; share the store that opened it"
        }
        heed::Error::Mdb(MdbError::Invalid | MdbError::VersionMismatch) => {
            "its data.mdb is not a database of this LMDB version; use another directory, or move \
             the file away"
        }
        _ => "the database cannot be used; check that the directory is writable and has space",
    };
    Error::because(printable(directory).to_string(), reason, error)
}

/// Fork handlers, which close all databases before a fork.
mod forks {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, Weak};

    use super::EmbeddedInner;
    use crate::lock::{Lock, LockGuard, LockedValue};

    static OPEN: LockedValue<Vec<Weak<EmbeddedInner>>> = LockedValue::new(Vec::new());
    /// Held from before a fork until after it, in the parent.
    static FORKING: Lock = Lock::new();

    /// Keeps forks from starting until the returned guard is dropped. This includes the first call,
    /// because heed then initializes shared state under a lock, which a child would find locked.
    pub(super) fn none() -> LockGuard<'static> {
        static WATCHED: AtomicBool = AtomicBool::new(false);
        // Acquire pairs with the Release below: if a thread sees the flag, the handlers run at its
        // forks. If two threads register them, each fork takes the locks twice, which these locks
        // allow.
        if !WATCHED.load(Ordering::Acquire) {
            // Before the handlers below, because a child needs its new generation when they end.
            quipu_segment::watch_forks();
            // SAFETY: the first handler runs before the fork, where everything is allowed; the
            // second only stores atomics and allocates no memory.
            unsafe { libc::pthread_atfork(Some(before), Some(in_parent), None) };
            WATCHED.store(true, Ordering::Release);
        }
        FORKING.lock()
    }

    pub(super) fn close_before(shared: &Arc<EmbeddedInner>) {
        OPEN.with(|open| {
            open.retain(|shared| shared.strong_count() > 0);
            open.push(Arc::downgrade(shared));
        });
    }

    fn each(work: impl Fn(&EmbeddedInner)) {
        let all = OPEN.with(|open| open.clone()).unwrap_or_default();
        all.iter().filter_map(Weak::upgrade).for_each(|shared| work(&shared));
    }

    /// Closes every database. From here until the fork is over, no thread uses one and none is
    /// open. A child finds the locks free, and opens a database when it uses one.
    extern "C" fn before() {
        FORKING.hold();
        each(|shared| shared.open.reset_and_hold());
    }

    extern "C" fn in_parent() {
        each(|shared| shared.open.release());
        FORKING.release();
    }
}
