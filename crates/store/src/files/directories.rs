//! [`Directories`], a collector that reads the metric files which processes keep in directories.
//!
//! A scrape lists the directories, reads the files on a few threads into tables by content, merges
//! the tables, and turns them into families.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::thread::Builder;
use std::time::Duration;

use quipu::collector::Collector;
use quipu::snapshot::{FamilyHeader, Kind, Sink};
use quipu_arena::Scope;
use quipu_segment::printable;
use rustix::fs::{Dir, FlockOperation, OFlags, flock};

use super::below::{open_below, open_in};
use super::emit::emit;
use super::families::{Families, Hint, fold};
use super::name::{Content, Name, is_candidate};
use super::table::{Keys, Place, RowTable};
use super::walk::{Entry, Flaw, Layout, Window, walk};
use crate::error::Error;
use crate::lock::LockedValue;

/// A collector of the metrics that processes of other applications keep in files.
///
/// ```
/// use quipu_store::files::{Directories, FileStore};
/// use quipu_store::{Kind, Spec, Store};
///
/// # let directory = tempfile::tempdir()?;
/// # let directory = directory.path();
/// // In a worker, here one of this library instead of the clients of Python or Ruby:
/// let workers = FileStore::open(directory)?;
/// workers.metric(&Spec::new("requests", Kind::Gauge))?.add(&[], 2.0);
///
/// let registry = quipu::Registry::new();
/// registry.register_collector(Directories::new([directory]))?;
/// assert!(registry.text().contains("requests"), "{}", registry.text());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Every scrape reads all files again. Its cost grows with their bytes: 500 files with 1,000 series
/// each take about 20 milliseconds on two CPUs.
pub struct Directories {
    paths: Vec<PathBuf>,
    /// The directories, if the caller has opened them: see [`Self::set_opened`].
    opened: Vec<OwnedFd>,
    /// See [`Self::below`].
    root: Option<PathBuf>,
    hints: HashMap<String, Hint>,
    warn: Option<WarningHandler>,
    threads: usize,
    state: LockedValue<ScrapeState>,
}

type WarningHandler = Box<dyn Fn(&Warning) + Send + Sync>;

/// A file or directory that could not be used in full.
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use quipu_store::files::Directories;
///
/// # let directory = tempfile::tempdir()?;
/// # let directory = directory.path();
/// std::fs::write(directory.join("counter_12.db"), b"not a metric file")?;
/// let paths = Arc::new(Mutex::new(Vec::new()));
/// let found = Arc::clone(&paths);
/// let directories = Directories::new([directory])
///     .on_warning(move |warning| found.lock().unwrap().push(warning.path().to_owned()));
///
/// let registry = quipu::Registry::new();
/// registry.register_collector(directories)?;
/// registry.text();
/// assert_eq!(*paths.lock().unwrap(), [directory.join("counter_12.db")]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Warning {
    path: PathBuf,
    message: String,
}

impl Warning {
    /// Returns the path of the file or directory.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", printable(&self.path), self.message)
    }
}

/// The state that is kept between scrapes.
#[derive(Default)]
struct ScrapeState {
    workers: Vec<FileBuffers>,
    /// The number of files that were omitted, in whole or in part, by reason.
    skipped: BTreeMap<&'static str, u64>,
    /// The number of entries that were omitted because their key cannot be used.
    entries: u64,
    /// The number of files that the last scrape used, in whole or in part.
    used: usize,
    warned: HashSet<(PathBuf, &'static str)>,
}

/// The buffers that a thread needs to read files.
#[derive(Default)]
struct FileBuffers {
    keys: Keys,
    window: Window,
}

/// A file that was found.
struct FoundFile {
    /// The number of its directory.
    directory: usize,
    name: String,
}

/// A file that cannot be used in full.
struct SkippedFile {
    path: PathBuf,
    reason: &'static str,
    message: String,
}

/// The maximum number of threads that read files, because more would wait for each other in the
/// kernel.
const MAX_THREADS: usize = 4;
/// The number of files that one thread can read in the time that another thread takes to start.
const FILES_PER_THREAD: usize = 16;
/// The maximum number of warnings that are remembered, because a repeated warning would be noise.
const MAX_WARNED: usize = 4096;

impl Directories {
    /// Collects from the directories at these paths. You can pass directories that do not exist
    /// yet.
    pub fn new<P: Into<PathBuf>>(paths: impl IntoIterator<Item = P>) -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            paths: paths.into_iter().map(Into::into).collect(),
            opened: Vec::new(),
            root: None,
            hints: HashMap::new(),
            warn: None,
            threads: threads.min(MAX_THREADS),
            state: LockedValue::default(),
        }
    }

    /// Sets the kind and the aggregation of a metric whose files do not contain them.
    pub fn hint(mut self, metric: impl Into<String>, hint: Hint) -> Self {
        self.hints.insert(metric.into(), hint);
        self
    }

    /// Follows symbolic links in paths that begin with `root`, but only up to `root`.
    #[doc(hidden)]
    pub fn below(mut self, root: impl Into<PathBuf>) -> Self {
        self.root = Some(root.into());
        self
    }

    /// Collects from these open directories from now on, wherever their paths lead, and keeps the
    /// earlier counts.
    #[doc(hidden)]
    pub fn set_opened(&mut self, directories: Vec<(PathBuf, OwnedFd)>) {
        (self.paths, self.opened) = directories.into_iter().unzip();
    }

    /// Counts a file that the caller omitted, for one of the shown reasons.
    #[doc(hidden)]
    pub fn note_skipped(&self, reason: &'static str) {
        self.state.with(|state| *state.skipped.entry(reason).or_default() += 1);
    }

    /// Calls `warn` for each file that cannot be used in full, once for each reason.
    pub fn on_warning(mut self, warn: impl Fn(&Warning) + Send + Sync + 'static) -> Self {
        self.warn = Some(Box::new(warn));
        self
    }

    /// Counts the files to read.
    ///
    /// # Errors
    /// If a path does not exist, is not a directory, or cannot be read.
    #[doc(hidden)]
    pub fn count_files(&self) -> Result<usize, Error> {
        let mut count = 0;
        for path in &self.paths {
            let names =
                self.open(path).and_then(|opened| list_opened(&opened)).map_err(|error| {
                    let message = match error.kind() {
                        ErrorKind::NotFound => "there is no such directory; name an existing one",
                        ErrorKind::NotADirectory => {
                            "it is not a directory; name the one that has the files"
                        }
                        ErrorKind::PermissionDenied => {
                            "it cannot be read; run as the user of the application"
                        }
                        _ => "it cannot be read",
                    };
                    Error::because(printable(path).to_string(), message, error)
                })?;
            count += names.iter().filter(|name| as_name(name).is_some()).count();
        }
        Ok(count)
    }

    /// Returns the number of files that the last scrape could use, in whole or in part.
    #[doc(hidden)]
    pub fn used_files(&self) -> usize {
        self.state.with(|state| state.used).unwrap_or_default()
    }

    /// Finds all files, in order of directory and name. Adds files that no client writes to
    /// `skipped`.
    fn find(&self, skipped: &mut Vec<SkippedFile>) -> (Vec<FoundFile>, Vec<Option<OwnedFd>>) {
        let (mut found, mut opened) = (Vec::new(), Vec::new());
        for (directory, path) in self.paths.iter().enumerate() {
            let one = match self.opened.get(directory) {
                Some(opened) => opened.try_clone(),
                None => self.open(path),
            };
            let listed = one.and_then(|one| Ok((list_opened(&one)?, one)));
            let mut names = match listed {
                Ok((names, one)) => {
                    opened.push(Some(one));
                    names
                }
                Err(error) => {
                    opened.push(None);
                    let message = format!("the directory cannot be read: {error}");
                    skipped.push(SkippedFile { path: path.clone(), reason: "unreadable", message });
                    continue;
                }
            };
            names.sort_unstable();
            for name in names {
                if as_name(&name).is_some() {
                    let name = name.to_string_lossy().into_owned();
                    found.push(FoundFile { directory, name });
                } else if is_candidate(&name.to_string_lossy()) {
                    let message =
                        "neither prometheus_client nor client_ruby uses such a file name; \
                                move it out of the directory"
                            .to_owned();
                    skipped.push(SkippedFile {
                        path: path.join(&name),
                        reason: "foreign",
                        message,
                    });
                }
            }
        }
        (found, opened)
    }

    /// Opens one of the directories. Its files are then opened in this directory, wherever its path
    /// leads.
    fn open(&self, path: &Path) -> io::Result<OwnedFd> {
        let root = self.root.as_deref().filter(|root| path.starts_with(root)).unwrap_or(path);
        open_below(root, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK)
    }

    fn path(&self, found: &FoundFile) -> PathBuf {
        self.paths[found.directory].join(&found.name)
    }

    fn read(&self, state: &mut ScrapeState, sink: &mut dyn Sink) {
        let (mut skipped, mut used) = (Vec::new(), 0);
        let (found, opened) = self.find(&mut skipped);
        let threads = found.len().div_ceil(FILES_PER_THREAD).clamp(1, self.threads);
        state.workers.resize_with(threads.max(state.workers.len()), FileBuffers::default);
        let mut workers = state.workers.iter_mut().take(threads);
        let Some(first) = workers.next() else { return };
        let (mut families, mut bad) = (Families::default(), HashMap::<u32, u64>::new());
        first.keys.reset();
        let scope = first.keys.as_scope();
        std::thread::scope(|threads_scope| {
            let (found, opened) = (&found, &opened[..]);
            // Each thread reads its share. This thread reads its own, and the shares of threads
            // that the system did not let it start.
            let mut own = vec![0];
            let mut others = Vec::new();
            for (worker, at) in workers.zip(1..) {
                let spawned = Builder::new().spawn_scoped(threads_scope, move || {
                    worker.keys.reset();
                    let FileBuffers { keys, window } = worker;
                    let scope = keys.as_scope();
                    let (mut skipped, mut used) = (Vec::new(), 0);
                    let files = numbered(found).skip(at).step_by(threads);
                    let tables =
                        self.tables(files, opened, window, &scope, &mut skipped, &mut used);
                    (tables, skipped, used)
                });
                match spawned {
                    Ok(other) => others.push(other),
                    Err(_) => own.push(at),
                }
            }
            let files = own.into_iter().flat_map(|at| numbered(found).skip(at).step_by(threads));
            let window = &mut first.window;
            let mut tables = self.tables(files, opened, window, &scope, &mut skipped, &mut used);
            for other in others {
                // Continues the panic of another thread on this thread.
                let (more, also, others_used) =
                    other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                skipped.extend(also);
                used += others_used;
                for (content, table) in more {
                    tables
                        .entry(content)
                        .or_insert_with(|| RowTable::new(table.fold))
                        .merge(&table, &scope);
                }
            }
            for (content, table) in &tables {
                let pid = |file: u32| {
                    let name = found.get(file as usize).map_or("", |found| &found.name);
                    Name::parse(name).map_or("", |name| name.pid)
                };
                let bad = |file| *bad.entry(file).or_default() += 1;
                families.add_table(*content, table, &self.hints, pid, bad);
            }
            families.remove_duplicates(OWN, |file| *bad.entry(file).or_default() += 1);
        });
        for (file, count) in bad {
            state.entries += count;
            let Some(found) = found.get(file as usize) else { continue };
            let message = format!(
                "{count} of its entries have a key that is damaged or contradicts another entry; \
                 they are omitted"
            );
            self.warn(&mut state.warned, self.path(found), "key", message);
        }
        for SkippedFile { path, reason, message } in skipped {
            *state.skipped.entry(reason).or_default() += 1;
            self.warn(&mut state.warned, path, reason, message);
        }
        state.used = used;
        emit(&mut families, sink);
        emit_own(&found, state, sink);
    }

    /// Reads files into one table for each content.
    fn tables<'f, 'a>(
        &self,
        files: impl Iterator<Item = (u32, &'f FoundFile)>,
        opened: &[Option<OwnedFd>],
        window: &mut Window,
        scope: &Scope<'a>,
        skipped: &mut Vec<SkippedFile>,
        used: &mut usize,
    ) -> BTreeMap<Content<'f>, RowTable<'a>> {
        let mut tables = BTreeMap::new();
        for (number, found) in files {
            let Some(name) = Name::parse(&found.name) else { continue };
            let Some(directory) = &opened[found.directory] else { continue };
            let table = tables
                .entry(name.content)
                .or_insert_with(|| RowTable::new(fold(name.content, &self.hints)));
            let (mut place, mut has_entries) = (Place::new(number), false);
            let file = open_in(directory, &*found.name, OFlags::RDONLY | OFlags::NONBLOCK);
            let file = file.and_then(regular).map_err(Flaw::Unreadable);
            let result = file.and_then(|file| {
                read_opened(&file, name.content, window, |entry| {
                    has_entries = true;
                    table.add(&mut place, entry.key, entry.reading, scope);
                })
            });
            *used += usize::from(has_entries || result.is_ok());
            match result {
                Ok(()) => {}
                // Its process exited and removed it after the directory was listed.
                Err(Flaw::Unreadable(error)) if error.kind() == ErrorKind::NotFound => {}
                Err(flaw) => {
                    let (reason, message) = (flaw.reason(), flaw.to_string());
                    skipped.push(SkippedFile { path: self.path(found), reason, message });
                }
            }
        }
        tables
    }

    fn warn(
        &self,
        warned: &mut HashSet<(PathBuf, &'static str)>,
        path: PathBuf,
        reason: &'static str,
        message: String,
    ) {
        let Some(warn) = &self.warn else { return };
        if warned.len() >= MAX_WARNED {
            warned.clear();
        }
        if warned.insert((path.clone(), reason)) {
            warn(&Warning { path, message });
        }
    }
}

fn numbered(found: &[FoundFile]) -> impl Iterator<Item = (u32, &FoundFile)> {
    (0..).zip(found)
}

pub(super) fn list(path: &Path) -> io::Result<Vec<OsString>> {
    fs::read_dir(path)?.map(|entry| Ok(entry?.file_name())).collect()
}

fn list_opened(directory: &OwnedFd) -> io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name != "." && name != ".." {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

pub(super) fn as_name(name: &OsString) -> Option<Name<'_>> {
    Name::parse(name.to_str()?)
}

/// Calls `visit` with each entry of a file.
pub(super) fn read_file(
    path: &Path,
    content: Content<'_>,
    window: &mut Window,
    visit: impl FnMut(Entry<'_>),
) -> Result<(), Flaw> {
    read_opened(&open(path).map_err(Flaw::Unreadable)?, content, window, visit)
}

fn read_opened(
    file: &File,
    content: Content<'_>,
    window: &mut Window,
    visit: impl FnMut(Entry<'_>),
) -> Result<(), Flaw> {
    if let Content::Ruby(_) = content {
        let _guard = SharedFileLock::new(file);
        walk(file, Layout::Ruby, window, visit)
    } else {
        walk(file, Layout::Python, window, visit)
    }
}

/// Opens a regular file for reading. Does not block on a FIFO without a writer.
fn open(path: &Path) -> io::Result<File> {
    regular(open_below(path, path, OFlags::RDONLY | OFlags::NONBLOCK)?)
}

fn regular(file: OwnedFd) -> io::Result<File> {
    let file = File::from(file);
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "it is not a regular file"));
    }
    Ok(file)
}

/// The file lock that Ruby's client holds while it updates several values that belong together. If
/// a reader cannot get this lock within about a millisecond, it reads without it.
struct SharedFileLock<'a>(&'a File);

impl<'a> SharedFileLock<'a> {
    fn new(file: &'a File) -> Option<Self> {
        for _ in 0..10 {
            if flock(file, FlockOperation::NonBlockingLockShared).is_ok() {
                return Some(Self(file));
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        None
    }
}

impl Drop for SharedFileLock<'_> {
    fn drop(&mut self) {
        let _ = flock(self.0, FlockOperation::Unlock);
    }
}

impl Collector for Directories {
    fn names(&self) -> Vec<String> {
        [FILES, SKIPPED, ENTRIES].map(|family| family.name.to_owned()).into()
    }

    fn collect(&self, sink: &mut dyn Sink) {
        // If a sink collects from this again within the call, it gets no metrics.
        self.state.with(|state| self.read(state, sink));
    }
}

impl fmt::Debug for Directories {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Directories").field("paths", &self.paths).finish_non_exhaustive()
    }
}

/// Emits the collector's own metrics.
fn emit_own(found: &[FoundFile], state: &ScrapeState, sink: &mut dyn Sink) {
    let count = |is_ruby: bool| {
        found.iter().filter(|found| found.name.ends_with(".bin") == is_ruby).count()
    };
    let mut files = sink.begin(FILES, ["format"]);
    files.sample(["client_python"], count(false)).sample(["client_ruby"], count(true));
    let mut skipped = sink.begin(SKIPPED, ["reason"]);
    for reason in ["damaged", "empty", "foreign", "old_format", "truncated", "unreadable"] {
        skipped.sample([reason], state.skipped.get(reason).copied().unwrap_or(0));
    }
    sink.begin(ENTRIES, []).sample([], state.entries);
}

/// The names of the collector's families and samples.
const OWN: [&str; 5] = [
    "quipu_scrape_files",
    "quipu_scrape_files_skipped",
    "quipu_scrape_files_skipped_total",
    "quipu_scrape_entries_skipped",
    "quipu_scrape_entries_skipped_total",
];

const FILES: FamilyHeader<'static> = FamilyHeader::new(
    Kind::Gauge,
    "quipu_scrape_files",
    "Files of processes in the directories, by the client that writes such files.",
);

const SKIPPED: FamilyHeader<'static> = FamilyHeader::new(
    Kind::Counter,
    "quipu_scrape_files_skipped",
    "How often a scrape left out a file, in whole or from where it is damaged.",
);

const ENTRIES: FamilyHeader<'static> = FamilyHeader::new(
    Kind::Counter,
    "quipu_scrape_entries_skipped",
    "How often a scrape left out a series because its key is damaged or contradicts another file.",
);
