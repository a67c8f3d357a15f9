//! An embedded transactional database, LMDB: each update is a transaction, of any process.
//!
//! It takes the place of Ruby's `PStore`: slower than a segment by two orders of magnitude, and for
//! whoever wants values that are on the disk when an update returns, or that other tools read.
//!
//! One value for all processes is kept for each series, as 8 little-endian bytes of a float. Its key
//! is the metric's name, a zero byte, its kind, the names of its labels each behind its length (four
//! little-endian bytes), a zero byte, and the label values in the same way. Metrics of one name that
//! two applications describe in different ways are so kept apart.
//!
//! LMDB's memory must not cross a fork: it is closed before each fork, and opened again by whoever
//! uses it next. An update waits for that of another process; should that process die, the kernel
//! releases its lock.

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
use crate::lock::{Lock, Locked};
use crate::table::Table;

/// Metrics in an LMDB database, which all processes that open its directory share.
pub struct Embedded {
    shared: Arc<Shared>,
    metrics: Table<Kept>,
}

/// How a database is opened.
#[derive(Debug, Clone)]
pub struct EmbeddedOptions {
    map_size: usize,
    is_durable: bool,
}

/// 64 MiB, some 500,000 series.
const MAP_SIZE: usize = 64 << 20;
/// What LMDB wants its sizes to be multiples of, on every machine.
const PAGE: usize = 64 << 10;
/// The table of readers, which LMDB maps: made whole, so that a full disk shows when it is made and
/// not as a signal when it is used.
const LOCK_BYTES: u64 = 32 << 10;
const LOCK_FILE: &str = "lock.mdb";
const DATA_FILE: &str = "data.mdb";

/// What the metrics of a store, and the handler of forks, share.
struct Shared {
    directory: PathBuf,
    options: EmbeddedOptions,
    open: Locked<Option<Open>>,
    dropped: AtomicU64,
}

struct Open {
    env: Env<WithoutTls>,
    values: Database<Bytes, Bytes>,
}

/// A metric in the database.
struct Kept {
    spec: Spec,
    /// What all keys of it begin with.
    prefix: Vec<u8>,
    together: Lock,
    shared: Arc<Shared>,
}

impl EmbeddedOptions {
    /// A map of 64 MiB, without waiting for the disk.
    pub fn new() -> Self {
        Self { map_size: MAP_SIZE, is_durable: false }
    }

    /// The bytes that the database may grow to. What comes beyond is dropped, and counted as such.
    pub fn map_size(mut self, bytes: usize) -> Self {
        self.map_size = bytes.max(PAGE).next_multiple_of(PAGE);
        self
    }

    /// Whether an update returns when it is on the disk, which takes as long as that takes. Without
    /// it, a process that dies loses nothing, and a machine that loses power may lose the database.
    pub fn durable(mut self, durable: bool) -> Self {
        self.is_durable = durable;
        self
    }

    /// Opens the database in a directory, which is made where there is none. A process opens a
    /// directory once.
    ///
    /// # Errors
    /// A directory that cannot be written, a full disk, a file that is no database or was cut, and
    /// one that this process has open already.
    pub fn open(&self, directory: impl AsRef<Path>) -> Result<Embedded, Error> {
        let directory = directory.as_ref().to_owned();
        let fail = |error| cannot(&directory, error);
        let _no_fork = forks::none();
        std::fs::create_dir_all(&directory).map_err(|error| fail(error.into()))?;
        let open = Open::new(&directory, self).map_err(fail)?;
        let shared = Arc::new(Shared {
            directory,
            options: self.clone(),
            open: Locked::new(Some(open)),
            dropped: AtomicU64::new(0),
        });
        forks::close_before(&shared);
        Ok(Embedded { shared, metrics: Table::default() })
    }
}

impl Default for EmbeddedOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl Embedded {
    /// Opens the database in a directory with the default options.
    ///
    /// # Errors
    /// Those of [`EmbeddedOptions::open`].
    pub fn open(directory: impl AsRef<Path>) -> Result<Self, Error> {
        EmbeddedOptions::new().open(directory)
    }

    /// Its options.
    pub fn options() -> EmbeddedOptions {
        EmbeddedOptions::new()
    }

    /// Waits until what was counted is on the disk.
    ///
    /// # Errors
    /// The disk's.
    pub fn sync(&self) -> Result<(), Error> {
        let synced = self.shared.with(|open| open.env.force_sync());
        synced.map_err(|error| cannot(&self.shared.directory, error))
    }
}

impl Store for Embedded {
    fn metric(&self, spec: &Spec) -> Result<Arc<dyn Metric>, Error> {
        let metric = self.metrics.get_or_make(spec, || {
            let is_shared = match (spec.kind, spec.aggregation) {
                (_, None) => true,
                (Kind::Gauge, Some(Aggregation::MostRecent)) => true,
                (Kind::Gauge, _) => false,
                (_, Some(aggregation)) => aggregation == Aggregation::Sum,
            };
            if !is_shared {
                let what = "a database keeps one value for all processes; leave the aggregation \
                            out, or take a segment";
                return Err(Error::new(format!("metric {:?}", spec.name), what));
            }
            let prefix = prefix(spec);
            let (spec, shared) = (spec.clone(), Arc::clone(&self.shared));
            Ok(Kept { spec, prefix, together: Lock::default(), shared })
        })?;
        Ok(metric)
    }

    fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }
}

impl Metric for Kept {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn increment(&self, labels: &[&str], by: f64) {
        let is_right = !by.is_nan() && (by >= 0.0 || self.spec.kind != Kind::Counter);
        self.update(labels, is_right, |old| Some(old.unwrap_or(0.0) + by));
    }

    fn set(&self, labels: &[&str], value: f64) {
        let is_cumulative = self.spec.is_cumulative();
        self.update(labels, true, |old| match old {
            Some(old) if is_cumulative => (value > old.max(0.0)).then_some(value),
            None if is_cumulative => Some(value.max(0.0)),
            _ => Some(value),
        });
    }

    fn get(&self, labels: &[&str]) -> f64 {
        let key = self.key(labels);
        let found = self.shared.with(|open| {
            let txn = open.env.read_txn()?;
            Ok(open.values.get(&txn, &key)?.and_then(float))
        });
        found.ok().flatten().unwrap_or(0.0)
    }

    fn all_values(&self, visit: &mut dyn FnMut(&[&str], f64)) -> Result<(), Error> {
        // A copy: no reader stays in the database while `visit` runs, which may count, or fork.
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
        let _guard = self.together.lock();
        work();
    }

    fn remove(&self, labels: &[&str]) -> bool {
        let key = self.key(labels);
        self.shared.write(|open, txn| open.values.delete(txn, &key)).unwrap_or(false)
    }
}

impl Kept {
    /// Makes of the value of these labels what `change` says, if `is_right` and it says anything,
    /// and counts what is dropped.
    fn update(&self, labels: &[&str], is_right: bool, change: impl Fn(Option<f64>) -> Option<f64>) {
        let is_right = is_right && labels.len() == self.spec.labels.len();
        let key = self.key(labels);
        let is_kept = is_right
            && self
                .shared
                .write(|open, txn| {
                    let old = open.values.get(txn, &key)?.and_then(float);
                    match change(old) {
                        Some(new) => open.values.put(txn, &key, &new.to_le_bytes()),
                        None => Ok(()),
                    }
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

impl Drop for Shared {
    fn drop(&mut self) {
        let _no_fork = forks::none();
        // Without the lock: a fork that began while others had this may hold it, and does not find
        // it any more to give it back.
        *self.open.get_mut() = None;
    }
}

impl Shared {
    /// Works with the database, which is opened where a fork has closed it.
    fn with<R>(&self, work: impl Fn(&Open) -> heed::Result<R>) -> heed::Result<R> {
        let done = self.open.with(|place| {
            let mut result = self.once(place, &work);
            if matches!(&result, Err(heed::Error::Mdb(MdbError::MapResized))) {
                // Another process lets it grow further: opened again, the map is as large.
                *place = None;
                result = self.once(place, &work);
            }
            result
        });
        done.unwrap_or(Err(heed::Error::EnvAlreadyOpened))
    }

    fn once<R>(
        &self,
        place: &mut Option<Open>,
        work: impl Fn(&Open) -> heed::Result<R>,
    ) -> heed::Result<R> {
        let open = match place {
            Some(open) => open,
            None => place.insert(Open::new(&self.directory, &self.options)?),
        };
        work(open)
    }

    /// Works in a transaction that writes.
    fn write<R>(&self, work: impl Fn(&Open, &mut RwTxn<'_>) -> heed::Result<R>) -> heed::Result<R> {
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
            // Readers that were killed may hold pages.
            && self.with(|open| open.env.clear_stale_readers()).is_ok_and(|readers| readers > 0)
        {
            return attempt();
        }
        result
    }
}

impl Open {
    fn new(directory: &Path, options: &EmbeddedOptions) -> heed::Result<Self> {
        without_size_signal(|| Self::make(directory, options))
    }

    fn make(directory: &Path, options: &EmbeddedOptions) -> heed::Result<Self> {
        make_whole(&directory.join(LOCK_FILE))?;
        let mut open = EnvOpenOptions::new().read_txn_without_tls();
        open.map_size(options.map_size);
        if !options.is_durable {
            // SAFETY: it gives up what a loss of power leaves, as the options say, and nothing else.
            unsafe { open.flags(EnvFlags::NO_SYNC) };
        }
        // SAFETY: a process maps the files of a directory once, as heed sees to, and not across a
        // fork, as the handler sees to. Nobody but LMDB writes to them, as for every database.
        let env = unsafe { open.open(directory)? };
        let used = (env.info().last_page_number as u64 + 1).saturating_mul(page_size());
        if env.real_disk_size()? < used {
            let what = format!(
                "{DATA_FILE} is shorter than the {used} bytes that are in use, so it was cut; \
                 restore it, or move it away to start afresh"
            );
            return Err(std::io::Error::other(what).into());
        }
        env.clear_stale_readers()?;
        let mut txn = env.write_txn()?;
        let values = env.create_database(&mut txn, None)?;
        txn.commit()?;
        Ok(Self { env, values })
    }
}

/// The bytes of a page, as LMDB takes them from the system.
fn page_size() -> u64 {
    // SAFETY: it asks for a constant of the system.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(size).unwrap_or(4096)
}

/// Gives a file its bytes on the disk.
fn make_whole(path: &Path) -> std::io::Result<()> {
    let mut options = OpenOptions::new();
    // As LMDB makes its files.
    let file = options.create(true).truncate(false).write(true).mode(0o600).open(path)?;
    if file.metadata()?.len() < LOCK_BYTES {
        // It never writes over what another process has there.
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

/// As many texts as there are labels, and nothing behind them.
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
    let what = match &error {
        heed::Error::EnvAlreadyOpened => {
            "this process has the database open already; keep the first store and share it"
        }
        heed::Error::Mdb(MdbError::Invalid | MdbError::VersionMismatch) => {
            "its data.mdb is no database of this version of LMDB; name another directory, or move \
             the file away"
        }
        _ => "the database cannot be used; make the directory writable, with room on its disk",
    };
    Error::because(printable(directory).to_string(), what, error)
}

/// Closes databases before a fork.
mod forks {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, Weak};

    use super::Shared;
    use crate::lock::{Guard, Lock, Locked};

    static OPEN: Locked<Vec<Weak<Shared>>> = Locked::new(Vec::new());
    /// Held from before a fork until after it, in the parent.
    static FORKING: Lock = Lock::new();

    /// No fork begins before what this returns is dropped: not the first time either, when the crate
    /// of the database makes what it shares, behind a lock that a child would find locked.
    pub(super) fn none() -> Guard<'static> {
        static WATCHED: AtomicBool = AtomicBool::new(false);
        // Acquire and Release: who finds the handlers registered has them run at its forks. Two
        // threads may both register them: they take the locks twice then, which these locks allow.
        if !WATCHED.load(Ordering::Acquire) {
            // Before the handlers below, so that a child has its own generation when they end.
            quipu_segment::watch_forks();
            // SAFETY: the first runs before the fork, where all is allowed; the second stores
            // atomics and allocates nothing.
            unsafe { libc::pthread_atfork(Some(before), Some(in_parent), None) };
            WATCHED.store(true, Ordering::Release);
        }
        FORKING.lock()
    }

    pub(super) fn close_before(shared: &Arc<Shared>) {
        OPEN.with(|open| {
            open.retain(|shared| shared.strong_count() > 0);
            open.push(Arc::downgrade(shared));
        });
    }

    fn each(work: impl Fn(&Shared)) {
        let all = OPEN.with(|open| open.clone()).unwrap_or_default();
        all.iter().filter_map(Weak::upgrade).for_each(|shared| work(&shared));
    }

    /// Nobody is in a database, and none is open, from here until the fork is over. A child finds
    /// the locks free, and opens what it uses.
    extern "C" fn before() {
        FORKING.hold();
        each(|shared| shared.open.reset_and_hold());
    }

    extern "C" fn in_parent() {
        each(|shared| shared.open.release());
        FORKING.release();
    }
}
