//! The sources of metrics, directories and segments, as one registry.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use quipu::Registry;
use quipu::collector::Collector;
use quipu::exposition::ShownNames;
use quipu::snapshot::{Family, Kind, Number, Series, Sink, Texts, Value};
use quipu_segment::printable;
use quipu_store::files::{Directories, Hint};

use super::{Error, warn};
use crate::agent::suffix;
use crate::segment_file::{SegmentFile, is_segment};

/// The directories and segments at the paths.
#[derive(Default)]
pub(super) struct Sources {
    segments: Vec<SegmentFile>,
    directories: Option<Directories>,
    /// The directories, as named by the user.
    paths: Vec<PathBuf>,
    /// The segments that are in one of the directories and were not named, with their directory.
    unseen: Vec<(PathBuf, PathBuf)>,
    used: Arc<AtomicBool>,
    /// The paths of which standard error names families that are left out.
    told: Mutex<HashSet<String>>,
}

impl Sources {
    /// Opens what is at these paths.
    pub(super) fn open(
        paths: &[PathBuf],
        hints: impl Iterator<Item = (String, Hint)>,
    ) -> Result<Self, Error> {
        let mut sources = Self::default();
        for path in paths {
            let failed = |what: &str| Error(format!("{}: {what}", printable(path)));
            let metadata = std::fs::metadata(path).map_err(|error| match error.kind() {
                ErrorKind::NotFound => failed(
                    "there is no such directory or file; name the directory where the application \
                     keeps its metrics",
                ),
                _ => failed(&error.to_string()),
            })?;
            if metadata.is_dir() {
                if let Some(segment) = segment_in(path).filter(|segment| !paths.contains(segment)) {
                    sources.unseen.push((segment, path.clone()));
                }
                sources.paths.push(path.clone());
            } else if metadata.is_file() && is_segment(path).map_err(|e| failed(&e.to_string()))? {
                let segment =
                    SegmentFile::open(path).map_err(|error| failed(&error.to_string()))?;
                // One that cannot be shown is refused now.
                segment.visit(u64::MAX, &mut Nowhere).map_err(Error)?;
                sources.segments.push(segment);
            } else {
                return Err(failed(
                    "neither a directory nor a quipu segment; name the directory that holds the \
                     files",
                ));
            }
        }
        if !sources.paths.is_empty() {
            let mut directories = Directories::new(&sources.paths).on_warning(|w| warn(w));
            for (name, hint) in hints {
                directories = directories.hint(name, hint);
            }
            directories.count().map_err(|error| Error(error.to_string()))?;
            sources.directories = Some(directories);
        }
        Ok(sources)
    }

    /// Refuses directories that hold no file of any process, and warns of segments in the others.
    pub(super) fn refuse_nothing(&self) -> Result<(), Error> {
        let Some(directories) = &self.directories else { return Ok(()) };
        match directories.count() {
            Ok(0) => {
                if let Some(segment) = self.paths.iter().find_map(|path| segment_in(path)) {
                    return Err(Error(format!(
                        "{0} is a quipu segment; name the file, not its directory: quipu \
                         scrape {0}",
                        printable(&segment)
                    )));
                }
                let paths: Vec<_> = self.paths.iter().map(|p| printable(p).to_string()).collect();
                Err(Error(format!(
                    "{}: no files of prometheus_client (such as counter_1.db) or of Ruby's \
                     DirectFileStore (such as metric_x___1.bin) in there; is the application \
                     running, and does it write to this directory?",
                    paths.join(", ")
                )))
            }
            Ok(_) => {
                self.warn_of_unseen();
                Ok(())
            }
            Err(error) => Err(Error(error.to_string())),
        }
    }

    fn warn_of_unseen(&self) {
        for (segment, directory) in &self.unseen {
            warn(&format_args!(
                "{0}: this quipu segment in the directory is not shown; name it too: quipu scrape \
                 {0} {1}",
                printable(segment),
                printable(directory)
            ));
        }
    }

    /// Names the families of the current path that are left out, once.
    fn tell_left_out(&self, once: &mut Once<'_>) {
        if let (Some(what), Some((path, _))) = (once.left_out(), once.shown.last())
            && self.told.lock().unwrap_or_else(PoisonError::into_inner).insert(path.clone())
        {
            warn(&what);
        }
    }

    /// Whether a scrape could read any of the sources.
    pub(super) fn used(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.used)
    }

    /// All sources as one registry.
    pub(super) fn registry(self) -> Result<Registry, Error> {
        let registry = Registry::new();
        registry.collect(self).map_err(|error| Error(error.to_string()))?;
        Ok(registry)
    }
}

/// A segment in the directory, if there is one.
fn segment_in(path: &Path) -> Option<PathBuf> {
    let paths = std::fs::read_dir(path).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    let mut named = paths.filter(|path| path.extension().is_some_and(|end| end == "quipu"));
    named.find(|path| is_segment(path).unwrap_or(false))
}

/// Forgets what it gets.
struct Nowhere;

impl Sink for Nowhere {
    fn family(&mut self, _: &Family<'_>) {}

    fn series(&mut self, _: &Family<'_>, _: &Series<'_>) {}
}

impl Collector for Sources {
    fn names(&self) -> Vec<String> {
        Vec::new()
    }

    fn collect(&self, sink: &mut dyn Sink) {
        let mut once = Once::new(sink);
        for segment in &self.segments {
            once.begin(printable(segment.path()).to_string());
            match segment.visit(u64::MAX, &mut once) {
                // Relaxed: the same thread reads the flag.
                Ok(_) => self.used.store(true, Ordering::Relaxed),
                Err(what) => warn(&what),
            }
            self.tell_left_out(&mut once);
        }
        if let Some(directories) = &self.directories {
            let paths: Vec<_> = self.paths.iter().map(|path| printable(path).to_string()).collect();
            once.begin(paths.join(", "));
            directories.collect(&mut once);
            if directories.used() > 0 {
                self.used.store(true, Ordering::Relaxed);
            }
            self.tell_left_out(&mut once);
        }
        let Once { sink, repeated, .. } = once;
        if repeated > 0 || self.segments.len() + usize::from(self.directories.is_some()) > 1 {
            let value = Value::Gauge(Number::Unsigned(repeated));
            let texts = Texts::default();
            sink.family(&REPEATED);
            let (group, escape_free, overflow, start, exemplar) = (0, true, false, None, None);
            let series = Series { group, texts, escape_free, overflow, start, value, exemplar };
            sink.series(&REPEATED, &series);
        }
    }
}

/// Passes on a family only if no other one has one of the names under which it is shown. Families
/// of one path with the same name are variants of one, which differ in their labels: they follow
/// each other, and formats show them together.
struct Once<'a> {
    sink: &'a mut dyn Sink,
    /// The names that are shown, of each path. The current path is the last one.
    shown: Vec<(String, ShownNames)>,
    /// The name and the kind of the current path's last family, and whether it is left out.
    last: Option<(String, Kind, bool)>,
    /// The first names of the current path that are left out, with the path that has them.
    names: Vec<String>,
    /// How many names of the current path, and of all, are left out.
    left_out: usize,
    repeated: u64,
}

/// The most names in a warning.
const MAX_NAMES: usize = 5;

impl<'a> Once<'a> {
    fn new(sink: &'a mut dyn Sink) -> Self {
        let (shown, last, names) = (Vec::new(), None, Vec::new());
        Self { sink, shown, last, names, left_out: 0, repeated: 0 }
    }

    /// Begins a path.
    fn begin(&mut self, path: String) {
        self.shown.push((path, ShownNames::default()));
        self.names.clear();
        (self.last, self.left_out) = (None, 0);
    }

    /// What is left out of the current path, if anything is.
    fn left_out(&self) -> Option<String> {
        let (path, _) = self.shown.last().filter(|_| self.left_out > 0)?;
        let more = match self.left_out - self.names.len() {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        Some(format!(
            "{path}: families are left out, since others that come first have their names: {}{more}; \
             scrape each path alone, or rename one of the two",
            self.names.join(", ")
        ))
    }

    /// The path that has one of the names under which the family would be shown.
    fn taken(&self, family: &Family<'_>) -> Option<&str> {
        let mut shown = self.shown.iter();
        let taken = shown.find(|(_, names)| !names.are_free(family.name, family.kind));
        taken.map(|(path, _)| &**path)
    }

    fn is_left_out(&self) -> bool {
        self.last.as_ref().is_some_and(|(.., is_left_out)| *is_left_out)
    }
}

impl Sink for Once<'_> {
    fn family(&mut self, family: &Family<'_>) {
        let is_variant =
            |(name, kind, _): &(String, Kind, bool)| *name == family.name && *kind == family.kind;
        if !self.last.as_ref().is_some_and(is_variant) {
            let taken = self.taken(family).map(str::to_owned);
            self.last = Some((family.name.to_owned(), family.kind, taken.is_some()));
            if let Some(path) = taken {
                (self.left_out, self.repeated) = (self.left_out + 1, self.repeated + 1);
                if self.names.len() < MAX_NAMES {
                    let suffix = suffix(family.kind, family.bare);
                    self.names.push(format!("{}{suffix} (first in {path})", family.name));
                }
            } else if let Some((_, names)) = self.shown.last_mut() {
                names.add(family.name, family.kind);
            }
        }
        if !self.is_left_out() {
            self.sink.family(family);
        }
    }

    fn series(&mut self, family: &Family<'_>, series: &Series<'_>) {
        if !self.is_left_out() {
            self.sink.series(family, series);
        }
    }
}

const REPEATED: Family<'static> = Family {
    name: "quipu_scrape_families_repeated",
    help: "Families that are left out, since another one that comes first has one of their names.",
    unit: "",
    kind: Kind::Gauge,
    labels: &[],
    groups: 1,
    bare: false,
};
