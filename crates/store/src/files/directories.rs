//! A collector of directories in which processes leave files.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread::Builder;
use std::time::Duration;

use quipu::collector::Collector;
use quipu::snapshot::{Family, Kind, Label, Number, Series, Sink, Texts, Value};
use quipu_arena::Scope;
use quipu_segment::printable;
use rustix::fs::{FlockOperation, OFlags, flock};

use super::emit::emit;
use super::families::{Families, Hint, fold};
use super::name::{Content, Name, is_candidate};
use super::table::{Keys, Place, Table};
use super::walk::{Entry, Flaw, Layout, Window, walk};
use crate::error::Error;
use crate::lock::Locked;

/// Shows what the processes of applications keep in files of their own.
///
/// ```no_run
/// let registry = quipu::Registry::new();
/// registry.collect(quipu_store::files::Directories::new(["/run/app/metrics"]))?;
/// print!("{}", registry.text());
/// # Ok::<(), quipu::Error>(())
/// ```
///
/// Every scrape reads all files anew. Its cost grows with their bytes: 500 files with 1,000 series
/// each take some 20 milliseconds on two CPUs.
pub struct Directories {
    paths: Vec<PathBuf>,
    hints: HashMap<String, Hint>,
    warn: Option<Warn>,
    threads: usize,
    state: Locked<State>,
}

type Warn = Box<dyn Fn(&Warning) + Send + Sync>;

/// A file, or a whole directory, of which not all could be used.
#[derive(Debug)]
pub struct Warning {
    path: PathBuf,
    what: String,
}

impl Warning {
    /// Which file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", printable(&self.path), self.what)
    }
}

/// What stays from scrape to scrape.
#[derive(Default)]
struct State {
    workers: Vec<Worker>,
    /// How many files were left out, in whole or in part, by reason.
    skipped: BTreeMap<&'static str, u64>,
    /// How many entries were left out whose key is of no use.
    entries: u64,
    /// Files of which the last scrape used anything.
    used: usize,
    warned: HashSet<(PathBuf, &'static str)>,
}

/// What a thread needs to read files.
#[derive(Default)]
struct Worker {
    keys: Keys,
    window: Window,
}

/// A file that was found.
struct Found {
    /// The number of its directory.
    directory: usize,
    name: String,
}

/// A file that is of no use, or not all of it.
struct Skipped {
    path: PathBuf,
    reason: &'static str,
    what: String,
}

/// The most threads that read: more wait for one another in the kernel.
const MOST_THREADS: usize = 4;
/// So many files keep one thread busy for longer than it takes to begin another one.
const FILES_A_THREAD: usize = 16;
/// Of how many files it is remembered that a warning was given.
const MOST_WARNED: usize = 4096;

impl Directories {
    /// The directories at these paths. None has to be there yet.
    pub fn new<P: Into<PathBuf>>(paths: impl IntoIterator<Item = P>) -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            paths: paths.into_iter().map(Into::into).collect(),
            hints: HashMap::new(),
            warn: None,
            threads: threads.min(MOST_THREADS),
            state: Locked::default(),
        }
    }

    /// Says what a metric is whose files do not say it.
    pub fn hint(mut self, metric: impl Into<String>, hint: Hint) -> Self {
        self.hints.insert(metric.into(), hint);
        self
    }

    /// Calls `warn` once for each file that cannot be used, and for what reason.
    pub fn on_warning(mut self, warn: impl Fn(&Warning) + Send + Sync + 'static) -> Self {
        self.warn = Some(Box::new(warn));
        self
    }

    /// How many files there are to be read.
    ///
    /// # Errors
    /// A path that is not there, is no directory, or cannot be read.
    pub fn count(&self) -> Result<usize, Error> {
        let mut count = 0;
        for path in &self.paths {
            let names = list(path).map_err(|error| {
                let what = match error.kind() {
                    ErrorKind::NotFound => "there is no such directory; name one that is there",
                    ErrorKind::NotADirectory => "it is no directory; name the one of the files",
                    ErrorKind::PermissionDenied => {
                        "it cannot be read; run as the user of the application"
                    }
                    _ => "it cannot be read",
                };
                Error::because(printable(path).to_string(), what, error)
            })?;
            count += names.iter().filter(|name| as_name(name).is_some()).count();
        }
        Ok(count)
    }

    /// How many files the last scrape could use, in whole or in part.
    pub fn used(&self) -> usize {
        self.state.with(|state| state.used).unwrap_or_default()
    }

    /// All files by directory and name, and those that nobody knows.
    fn find(&self, skipped: &mut Vec<Skipped>) -> Vec<Found> {
        let mut found = Vec::new();
        for (directory, path) in self.paths.iter().enumerate() {
            let mut names = match list(path) {
                Ok(names) => names,
                Err(error) => {
                    let what = format!("the directory cannot be read: {error}");
                    skipped.push(Skipped { path: path.clone(), reason: "unreadable", what });
                    continue;
                }
            };
            names.sort_unstable();
            for name in names {
                if as_name(&name).is_some() {
                    let name = name.to_string_lossy().into_owned();
                    found.push(Found { directory, name });
                } else if is_candidate(&name.to_string_lossy()) {
                    let what = "neither prometheus_client nor client_ruby names a file so; move \
                                it out of the directory"
                        .to_owned();
                    skipped.push(Skipped { path: path.join(&name), reason: "foreign", what });
                }
            }
        }
        found
    }

    fn path(&self, found: &Found) -> PathBuf {
        self.paths[found.directory].join(&found.name)
    }

    fn read(&self, state: &mut State, sink: &mut dyn Sink) {
        let (mut skipped, mut used) = (Vec::new(), 0);
        let found = self.find(&mut skipped);
        let threads = found.len().div_ceil(FILES_A_THREAD).clamp(1, self.threads);
        state.workers.resize_with(threads.max(state.workers.len()), Worker::default);
        let mut workers = state.workers.iter_mut().take(threads);
        let Some(first) = workers.next() else { return };
        let (mut families, mut bad) = (Families::default(), HashMap::<u32, u64>::new());
        first.keys.reset();
        let scope = first.keys.as_scope();
        std::thread::scope(|threads_scope| {
            let found = &found;
            // Others take what is theirs; this thread takes its own meanwhile, and that of those
            // which the system did not give.
            let mut own = vec![0];
            let mut others = Vec::new();
            for (worker, at) in workers.zip(1..) {
                let spawned = Builder::new().spawn_scoped(threads_scope, move || {
                    worker.keys.reset();
                    let Worker { keys, window } = worker;
                    let scope = keys.as_scope();
                    let (mut skipped, mut used) = (Vec::new(), 0);
                    let files = numbered(found).skip(at).step_by(threads);
                    let tables = self.tables(files, window, &scope, &mut skipped, &mut used);
                    (tables, skipped, used)
                });
                match spawned {
                    Ok(other) => others.push(other),
                    Err(_) => own.push(at),
                }
            }
            let files = own.into_iter().flat_map(|at| numbered(found).skip(at).step_by(threads));
            let window = &mut first.window;
            let mut tables = self.tables(files, window, &scope, &mut skipped, &mut used);
            for other in others {
                // A thread that panicked had a bug, which is shown as that of this one.
                let (more, also, others_used) =
                    other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                skipped.extend(also);
                used += others_used;
                for (content, table) in more {
                    tables
                        .entry(content)
                        .or_insert_with(|| Table::new(table.fold))
                        .merge(&table, &scope);
                }
            }
            for (content, table) in &tables {
                let pid = |file: u32| {
                    let name = found.get(file as usize).map_or("", |found| &found.name);
                    Name::parse(name).map_or("", |name| name.pid)
                };
                let bad = |file| *bad.entry(file).or_default() += 1;
                families.take(*content, table, &self.hints, pid, bad);
            }
            families.settle(OWN, |file| *bad.entry(file).or_default() += 1);
        });
        for (file, count) in bad {
            state.entries += count;
            let Some(found) = found.get(file as usize) else { continue };
            let what = format!(
                "{count} of its entries have a key that is damaged, or contradicts another entry; \
                 they are left out"
            );
            self.warn(&mut state.warned, self.path(found), "key", what);
        }
        for Skipped { path, reason, what } in skipped {
            *state.skipped.entry(reason).or_default() += 1;
            self.warn(&mut state.warned, path, reason, what);
        }
        state.used = used;
        emit(&mut families, sink);
        emit_own(&found, state, sink);
    }

    /// Reads files into tables of their contents.
    fn tables<'f, 'a>(
        &self,
        files: impl Iterator<Item = (u32, &'f Found)>,
        window: &mut Window,
        scope: &Scope<'a>,
        skipped: &mut Vec<Skipped>,
        used: &mut usize,
    ) -> BTreeMap<Content<'f>, Table<'a>> {
        let mut tables = BTreeMap::new();
        let mut path = PathBuf::new();
        for (number, found) in files {
            let Some(name) = Name::parse(&found.name) else { continue };
            path.clear();
            path.push(&self.paths[found.directory]);
            path.push(&found.name);
            let table = tables
                .entry(name.content)
                .or_insert_with(|| Table::new(fold(name.content, &self.hints)));
            let (mut place, mut has_entries) = (Place::new(number), false);
            let result = read_file(&path, name.content, window, |entry| {
                has_entries = true;
                table.take(&mut place, entry.key, entry.reading, scope);
            });
            *used += usize::from(has_entries || result.is_ok());
            match result {
                Ok(()) => {}
                // Its process ended, and said so, since the directory was listed.
                Err(Flaw::Unreadable(error)) if error.kind() == ErrorKind::NotFound => {}
                Err(flaw) => {
                    let (reason, what) = (flaw.reason(), flaw.to_string());
                    skipped.push(Skipped { path: path.clone(), reason, what });
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
        what: String,
    ) {
        let Some(warn) = &self.warn else { return };
        if warned.len() >= MOST_WARNED {
            warned.clear();
        }
        if warned.insert((path.clone(), reason)) {
            warn(&Warning { path, what });
        }
    }
}

fn numbered(found: &[Found]) -> impl Iterator<Item = (u32, &Found)> {
    (0..).zip(found)
}

pub(super) fn list(path: &Path) -> io::Result<Vec<OsString>> {
    fs::read_dir(path)?.map(|entry| Ok(entry?.file_name())).collect()
}

pub(super) fn as_name(name: &OsString) -> Option<Name<'_>> {
    Name::parse(name.to_str()?)
}

/// Gives the entries of a file.
pub(super) fn read_file(
    path: &Path,
    content: Content<'_>,
    window: &mut Window,
    visit: impl FnMut(Entry<'_>),
) -> Result<(), Flaw> {
    let file = open(path).map_err(Flaw::Unreadable)?;
    if let Content::Ruby(_) = content {
        let _guard = Guard::new(&file);
        walk(&file, Layout::Ruby, window, visit)
    } else {
        walk(&file, Layout::Python, window, visit)
    }
}

/// Opens a file for reading, and waits for nobody who might write to what is none.
fn open(path: &Path) -> io::Result<File> {
    // The bits of flags are the same in both types.
    let flags = OFlags::NONBLOCK.bits() as i32;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "it is no regular file"));
    }
    Ok(file)
}

/// A lock that Ruby's client takes while it counts several values that belong together. Whoever has
/// it for longer than that is not waited for.
struct Guard<'a>(&'a File);

impl<'a> Guard<'a> {
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

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        let _ = flock(self.0, FlockOperation::Unlock);
    }
}

impl Collector for Directories {
    fn names(&self) -> Vec<String> {
        [FILES, SKIPPED, ENTRIES].map(|family| family.name.to_owned()).into()
    }

    fn collect(&self, sink: &mut dyn Sink) {
        // A sink that asks for these files again gets none.
        self.state.with(|state| self.read(state, sink));
    }
}

impl fmt::Debug for Directories {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Directories").field("paths", &self.paths).finish_non_exhaustive()
    }
}

/// What a scrape says of itself.
fn emit_own(found: &[Found], state: &State, sink: &mut dyn Sink) {
    let count = |is_ruby: bool| {
        let is_of = |found: &&Found| found.name.ends_with(".bin") == is_ruby;
        Number::Unsigned(found.iter().filter(is_of).count() as u64)
    };
    sink.family(&FILES);
    labelled(&FILES, "client_python", Value::Gauge(count(false)), sink);
    labelled(&FILES, "client_ruby", Value::Gauge(count(true)), sink);
    let total = |count| Value::Counter { total: Number::Unsigned(count), exemplar: None };
    sink.family(&SKIPPED);
    for reason in ["damaged", "empty", "foreign", "old_format", "truncated", "unreadable"] {
        let count = state.skipped.get(reason).copied().unwrap_or(0);
        labelled(&SKIPPED, reason, total(count), sink);
    }
    sink.family(&ENTRIES);
    let (texts, value) = (Texts::default(), total(state.entries));
    let series = Series { group: 0, texts, plain: true, overflow: false, start: None, value };
    sink.series(&ENTRIES, &series);
}

fn labelled(family: &Family<'_>, label: &str, value: Value<'_>, sink: &mut dyn Sink) {
    let mut texts = Vec::new();
    Texts::push(&mut texts, label);
    let texts = Texts::new(&texts);
    let series = Series { group: 0, texts, plain: true, overflow: false, start: None, value };
    sink.series(family, &series);
}

/// The names of its own families and their samples.
const OWN: [&str; 5] = [
    "quipu_scrape_files",
    "quipu_scrape_files_skipped",
    "quipu_scrape_files_skipped_total",
    "quipu_scrape_entries_skipped",
    "quipu_scrape_entries_skipped_total",
];

const FILES: Family<'static> = Family {
    name: "quipu_scrape_files",
    help: "Files of processes that were found, by the client that writes such files.",
    unit: "",
    kind: Kind::Gauge,
    labels: &[Label { name: "format", values: None }],
    groups: 1,
};

const SKIPPED: Family<'static> = Family {
    name: "quipu_scrape_files_skipped",
    help: "How often a file was left out of a scrape, in whole or from where it is damaged.",
    unit: "",
    kind: Kind::Counter,
    labels: &[Label { name: "reason", values: None }],
    groups: 1,
};

const ENTRIES: Family<'static> = Family {
    name: "quipu_scrape_entries_skipped",
    help: "How often a series was left out of a scrape because its key is damaged, or says what \
           another file contradicts.",
    unit: "",
    kind: Kind::Counter,
    labels: &[],
    groups: 1,
};
