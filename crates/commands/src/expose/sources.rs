//! The sources of `quipu expose`, which are directories and segments, combined in one registry.
//!
//! Each scrape examines the paths again, because files can be created, replaced or removed at any
//! time. An unusable path is omitted, reported and counted, and the other paths are shown.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use quipu::collector::Collector;
use quipu::snapshot::{FamilyHeader, Series, Sink};
use quipu_segment::printable;
use quipu_store::files::{Directories, Hint, open_below};
use rustix::fs::OFlags;

use super::dedup::DedupSink;
use crate::output::{Error, warn};
use quipu_sources::places::{SegmentPaths, segment_paths_in};
use quipu_sources::segment_file::{SegmentFile, file_id};

/// All sources, with the state between scrapes.
pub(super) struct Sources {
    paths: Vec<SourcePath>,
    /// The segments in the directories, each with the last reported reason why it is omitted.
    found: BTreeMap<PathBuf, SourcePath>,
    /// The contents of the paths at the start.
    first: InitialSources,
    /// The reader of the directories, which also counts all skipped files.
    directories: Directories,
    /// Whether a path was unreadable.
    has_skipped: bool,
    /// Whether a warning about a file in a directory was reported.
    has_warned: Arc<AtomicBool>,
    /// Whether any scrape could read at least one source.
    pub(super) is_used: bool,
    /// The paths whose omitted families were reported.
    reported: HashSet<String>,
}

/// A path that the user named.
struct SourcePath {
    path: PathBuf,
    /// The last reported reason why the path is omitted.
    reported: Option<&'static str>,
}

/// The contents of the paths at the start.
#[derive(Default)]
struct InitialSources {
    segments: usize,
    /// The number of segments in the directories.
    found: usize,
    directories: Vec<PathBuf>,
    /// The number of files in the directories.
    files: usize,
}

/// The contents of a path.
enum PathContents {
    Directory(OwnedFd),
    Segment(SegmentFile),
}

/// The error of an unusable path.
struct Fault {
    /// The value of the label `reason` in `quipu_scrape_files_skipped_total`.
    reason: &'static str,
    message: String,
}

impl Fault {
    fn new(reason: &'static str, path: &Path, message: impl fmt::Display) -> Self {
        Self { reason, message: format!("{}: {message}", printable(path)) }
    }
}

const MISSING: &str = "there is no such directory or file; name the directory where the \
                       application keeps its metrics";
const NEITHER: &str =
    "neither a directory nor a quipu segment; name the directory that holds the files";
const CUT: &str = "it has more than 100000 entries, and the others are not shown: move files that \
                   are not metrics to another directory";
const EMPTY: &str = "it is empty: its process has just started, or was killed while it started";

impl PathContents {
    /// Opens a directory or a segment.
    fn open(path: &Path) -> Result<Self, Fault> {
        let unreadable = |error: &dyn fmt::Display| Fault::new("unreadable", path, error);
        let data = std::fs::metadata(path).map_err(|error| match error.kind() {
            ErrorKind::NotFound => unreadable(&MISSING),
            _ => unreadable(&error),
        })?;
        if data.is_dir() {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK;
            let opened = open_below(path, path, flags);
            return opened.map(Self::Directory).map_err(|error| unreadable(&error));
        }
        if !data.is_file() {
            return Err(Fault::new("foreign", path, NEITHER));
        }
        // We check the type first, because opening a device or a pipe can change its state.
        let file = SegmentFile::open(path).map_err(|error| unreadable(&error))?;
        if file.id() != file_id(&data) {
            return Err(unreadable(&"another file took its place at this moment"));
        }
        match file.is_segment() {
            Ok(true) => Ok(Self::Segment(file)),
            Ok(false) if file.is_empty() => Err(Fault::new("empty", path, EMPTY)),
            Ok(false) => Err(Fault::new("foreign", path, NEITHER)),
            Err(error) => Err(unreadable(&error)),
        }
    }
}

/// Reads a segment.
fn read(file: &SegmentFile, sink: &mut impl Sink) -> Result<(), Fault> {
    let read = file.visit(u64::MAX, sink);
    read.map(|_| ()).map_err(|message| Fault { reason: "damaged", message })
}

impl Sources {
    /// Opens the directories and segments at these paths.
    ///
    /// # Errors
    /// Fails with the last error if every path is unusable.
    pub(super) fn open(
        paths: &[PathBuf],
        hints: impl Iterator<Item = (String, Hint)>,
    ) -> Result<Self, Error> {
        let (mut first, mut sources, mut faults) =
            (InitialSources::default(), Vec::new(), Vec::new());
        for path in paths {
            let fault = first.look(path).err();
            sources.push(SourcePath {
                path: path.clone(),
                reported: fault.as_ref().map(|fault| fault.reason),
            });
            faults.extend(fault);
        }
        let last = match first.segments == 0 && first.directories.is_empty() {
            true => faults.pop(),
            false => None,
        };
        faults.iter().for_each(|fault| warn(&fault.message));
        if let Some(last) = last {
            return Err(Error::new(last.message));
        }
        let has_warned = Arc::<AtomicBool>::default();
        let flag = Arc::clone(&has_warned);
        let mut directories = Directories::new([""; 0]).on_warning(move |warning| {
            // Relaxed: this is read after the threads of the scrape ended.
            flag.store(true, Ordering::Relaxed);
            warn(warning);
        });
        for (name, hint) in hints {
            directories = directories.hint(name, hint);
        }
        Ok(Self {
            paths: sources,
            found: BTreeMap::new(),
            first,
            directories,
            has_skipped: false,
            has_warned,
            is_used: false,
            reported: HashSet::new(),
        })
    }

    /// Fails if the directories contain no files of any process, and there is no segment.
    pub(super) fn refuse_nothing(&self) -> Result<(), Error> {
        let InitialSources { segments, found, directories, files } = &self.first;
        if *files > 0 || *found > 0 || directories.is_empty() {
            return Ok(());
        }
        let message = format!(
            "{}: no segments (*.quipu), and no files of prometheus_client (such as counter_1.db) \
             or of Ruby's DirectFileStore (such as metric_x___1.bin) in there; is the application \
             running, and does it write to this directory?",
            joined(directories)
        );
        if *segments == 0 {
            return Err(Error::new(message));
        }
        warn(&message);
        Ok(())
    }

    /// Returns whether any source was unreadable, or only partly readable.
    pub(super) fn is_part(&self) -> bool {
        // Relaxed: the threads of the scrape ended before.
        self.has_skipped || self.has_warned.load(Ordering::Relaxed)
    }

    /// Passes the current families of all paths to a sink.
    pub(super) fn collect(&mut self, sink: &mut dyn Sink) {
        let Self { paths, found, directories, has_skipped, is_used, reported, .. } = self;
        let mut dedup = DedupSink::new(sink);
        let (mut opened, mut segments) = (Vec::new(), Vec::new());
        // A file can have several names, but is read only once.
        let mut read_files = HashSet::new();
        let mut count = paths.len();
        for source in &mut *paths {
            let read = match PathContents::open(&source.path) {
                Ok(PathContents::Directory(directory)) => {
                    let SegmentPaths { paths, is_cut, error } = segment_paths_in(&source.path);
                    segments.extend(paths.into_iter().map(|path| (path, source.path.clone())));
                    opened.push((source.path.clone(), directory));
                    match error {
                        Some(error) => Err(Fault::new("unreadable", &source.path, error)),
                        None if is_cut => Err(Fault::new("unreadable", &source.path, CUT)),
                        None => Ok(()),
                    }
                }
                Ok(PathContents::Segment(file)) if !read_files.insert(file.id()) => Ok(()),
                Ok(PathContents::Segment(file)) => {
                    dedup.begin(printable(&source.path).to_string(), true);
                    let read = read(&file, &mut dedup);
                    *is_used |= read.is_ok();
                    report_omitted(&dedup, reported);
                    read
                }
                Err(fault) => Err(fault),
            };
            *has_skipped |= source.note_reading(read, directories);
        }
        segments.retain(|(segment, _)| !paths.iter().any(|source| source.path == *segment));
        found.retain(|path, _| segments.iter().any(|(segment, _)| segment == path));
        count += segments.len();
        for (segment, directory) in segments {
            let file = open_segment(&segment, &directory);
            if file.as_ref().is_ok_and(|file| !read_files.insert(file.id())) {
                continue;
            }
            let read = file.and_then(|file| {
                dedup.begin(printable(&segment).to_string(), true);
                read(&file, &mut dedup)
            });
            *is_used |= read.is_ok();
            report_omitted(&dedup, reported);
            let source = || SourcePath { path: segment.clone(), reported: None };
            let source = found.entry(segment.clone()).or_insert_with(source);
            *has_skipped |= source.note_reading(read, directories);
        }
        let are_several = count > opened.len().max(1);
        if *has_skipped || !opened.is_empty() {
            let paths: Vec<_> = opened.iter().map(|(path, _)| path.clone()).collect();
            dedup.begin(joined(&paths), false);
            directories.set_opened(opened);
            directories.collect(&mut dedup);
            *is_used |= directories.used_files() > 0;
            report_omitted(&dedup, reported);
        }
        dedup.end(are_several);
    }
}

impl InitialSources {
    /// Adds the contents of a path.
    fn look(&mut self, path: &Path) -> Result<(), Fault> {
        match PathContents::open(path)? {
            PathContents::Segment(file) => {
                // We read the segment, because a segment that cannot be shown is unusable.
                read(&file, &mut NullSink)?;
                self.segments += 1;
            }
            PathContents::Directory(_) => {
                let files = Directories::new([path]).count_files();
                // The message already names the path.
                let message = |error: quipu_store::Error| error.to_string();
                let failed = |error| Fault { reason: "unreadable", message: message(error) };
                self.files += files.map_err(failed)?;
                self.directories.push(path.to_owned());
                self.found += segment_paths_in(path).paths.len();
            }
        }
        Ok(())
    }
}

impl SourcePath {
    /// Reports and counts the error of a reading. Returns whether there was one.
    fn note_reading(&mut self, read: Result<(), Fault>, directories: &mut Directories) -> bool {
        let fault = read.err();
        self.report(fault.as_ref());
        if let Some(fault) = &fault {
            directories.note_skipped(fault.reason);
        }
        fault.is_some()
    }

    /// Reports a new error of the path, or the end of an error, but only once.
    fn report(&mut self, fault: Option<&Fault>) {
        let before = std::mem::replace(&mut self.reported, fault.map(|fault| fault.reason));
        match fault {
            Some(fault) if before != Some(fault.reason) => warn(&fault.message),
            None if before.is_some() => {
                warn(&format_args!("{}: it can be read now", printable(&self.path)));
            }
            _ => {}
        }
    }
}

/// Reports the omitted families of the current path, but only once.
fn report_omitted(dedup: &DedupSink<'_>, reported: &mut HashSet<String>) {
    if let Some((path, message)) = dedup.omitted_message()
        && reported.insert(path.to_owned())
    {
        warn(&message);
    }
}

fn joined(paths: &[PathBuf]) -> String {
    let paths: Vec<_> = paths.iter().map(|path| printable(path).to_string()).collect();
    paths.join(", ")
}

/// Opens a segment in a directory. A symbolic link must not lead out of the directory, because
/// another user may have created the link.
fn open_segment(path: &Path, directory: &Path) -> Result<SegmentFile, Fault> {
    let unreadable = |error: &dyn fmt::Display| Fault::new("unreadable", path, error);
    let file = SegmentFile::open_below(directory, path).map_err(|error| unreadable(&error))?;
    match file.is_segment() {
        Ok(true) => Ok(file),
        Ok(false) if file.is_empty() => Err(Fault::new("empty", path, EMPTY)),
        Ok(false) => Err(Fault::new("foreign", path, "it is not a segment of quipu")),
        Err(error) => Err(unreadable(&error)),
    }
}

/// A sink that ignores all series.
struct NullSink;

impl Sink for NullSink {
    fn family(&mut self, _: &FamilyHeader<'_>) {}

    fn series(&mut self, _: &FamilyHeader<'_>, _: &Series<'_>) {}
}

/// Sources as a collector of a registry. The owner can still access their state after a scrape.
pub(super) struct SharedSources(pub(super) Arc<Mutex<Sources>>);

impl Collector for SharedSources {
    fn names(&self) -> Vec<String> {
        Vec::new()
    }

    fn collect(&self, sink: &mut dyn Sink) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).collect(sink);
    }
}
