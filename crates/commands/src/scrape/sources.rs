//! The sources of metrics, directories and segments, as one registry.
//!
//! Each scrape looks at the paths again: a file may be made, replaced or removed at any time. A
//! path of no use is left out, named and counted, and the others are shown.

use std::collections::HashSet;
use std::fmt;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use quipu::collector::Collector;
use quipu::snapshot::{Family, Series, Sink};
use quipu_segment::printable;
use quipu_store::files::{Directories, Hint, open_below};
use rustix::fs::OFlags;

use super::once::Once;
use crate::output::{Error, warn};
use quipu_sources::segment_file::{SegmentFile, file_id, is_segment};

/// The directories and segments at the paths, and what one scrape leaves to the next.
pub(super) struct Sources {
    paths: Vec<Named>,
    /// What was there when they were opened.
    first: First,
    /// It reads those of the paths that are directories, and counts all that is skipped.
    directories: Directories,
    /// Whether a path could not be read.
    has_skipped: bool,
    /// Whether there was a warning about a file in a directory.
    has_warned: Arc<AtomicBool>,
    /// Whether a scrape could read any of the sources.
    pub(super) is_used: bool,
    /// The paths of which standard error names families that are left out.
    told: HashSet<String>,
}

/// A path, as named by the user.
struct Named {
    path: PathBuf,
    /// Why it is left out, as standard error says it.
    told: Option<&'static str>,
}

/// What was there at first.
#[derive(Default)]
struct First {
    segments: usize,
    directories: Vec<PathBuf>,
    /// The files in the directories.
    files: usize,
    /// The segments that are in one of the directories and were not named, with their directory.
    unseen: Vec<(PathBuf, PathBuf)>,
}

/// What is at a path.
enum There {
    Directory(OwnedFd),
    Segment(SegmentFile),
}

/// Why nothing at a path can be used.
struct Fault {
    /// In `quipu_scrape_files_skipped_total`.
    reason: &'static str,
    what: String,
}

impl Fault {
    fn of(reason: &'static str, path: &Path, what: impl fmt::Display) -> Self {
        Self { reason, what: format!("{}: {what}", printable(path)) }
    }
}

const MISSING: &str = "there is no such directory or file; name the directory where the application \
                       keeps its metrics";
const NEITHER: &str =
    "neither a directory nor a quipu segment; name the directory that holds the files";
const EMPTY: &str = "it is empty: its process has just started, or was killed while it started";

impl There {
    fn at(path: &Path) -> Result<Self, Fault> {
        let unreadable = |error: &dyn fmt::Display| Fault::of("unreadable", path, error);
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
            return Err(Fault::of("foreign", path, NEITHER));
        }
        // Opening a device or a pipe can have effects, so the look at its type comes first.
        let file = SegmentFile::open(path).map_err(|error| unreadable(&error))?;
        if file.id() != file_id(&data) {
            return Err(unreadable(&"another file took its place at this moment"));
        }
        match file.is_segment() {
            Ok(true) => Ok(Self::Segment(file)),
            Ok(false) if file.is_empty() => Err(Fault::of("empty", path, EMPTY)),
            Ok(false) => Err(Fault::of("foreign", path, NEITHER)),
            Err(error) => Err(unreadable(&error)),
        }
    }
}

/// Reads a segment.
fn read(file: &SegmentFile, sink: &mut impl Sink) -> Result<(), Fault> {
    let read = file.visit(u64::MAX, sink);
    read.map(|_| ()).map_err(|what| Fault { reason: "damaged", what })
}

impl Sources {
    /// Opens what is at these paths.
    ///
    /// # Errors
    /// If none of them is of use: why.
    pub(super) fn open(
        paths: &[PathBuf],
        hints: impl Iterator<Item = (String, Hint)>,
    ) -> Result<Self, Error> {
        let (mut first, mut named, mut faults) = (First::default(), Vec::new(), Vec::new());
        for path in paths {
            let fault = first.look(path, paths).err();
            named.push(Named { path: path.clone(), told: fault.as_ref().map(|one| one.reason) });
            faults.extend(fault);
        }
        let last = match first.segments == 0 && first.directories.is_empty() {
            true => faults.pop(),
            false => None,
        };
        faults.iter().for_each(|fault| warn(&fault.what));
        if let Some(last) = last {
            return Err(Error::new(last.what));
        }
        let has_warned = Arc::<AtomicBool>::default();
        let noted = Arc::clone(&has_warned);
        let mut directories = Directories::new([""; 0]).on_warning(move |warning| {
            // Relaxed: it is read after the scrape, whose threads have ended then.
            noted.store(true, Ordering::Relaxed);
            warn(warning);
        });
        for (name, hint) in hints {
            directories = directories.hint(name, hint);
        }
        let (has_skipped, is_used, told) = (false, false, HashSet::new());
        Ok(Self { paths: named, first, directories, has_skipped, has_warned, is_used, told })
    }

    /// Refuses directories that hold no file of any process, unless there is a segment, and warns
    /// of segments in the others.
    pub(super) fn refuse_nothing(&self) -> Result<(), Error> {
        let First { segments, directories, files, unseen } = &self.first;
        if *files > 0 || directories.is_empty() {
            for (segment, directory) in unseen {
                warn(&format_args!(
                    "{0}: this quipu segment in the directory is not shown; name it too: quipu \
                     scrape {0} {1}",
                    printable(segment),
                    printable(directory)
                ));
            }
            return Ok(());
        }
        let what = match unseen.first() {
            Some((segment, _)) => format!(
                "{0} is a quipu segment; name the file, not its directory: quipu scrape {0}",
                printable(segment)
            ),
            None => format!(
                "{}: no files of prometheus_client (such as counter_1.db) or of Ruby's \
                 DirectFileStore (such as metric_x___1.bin) in there; is the application \
                 running, and does it write to this directory?",
                joined(directories)
            ),
        };
        match segments {
            0 => Err(Error::new(what)),
            _ => {
                warn(&what);
                Ok(())
            }
        }
    }

    /// Whether a scrape could not read some of the sources, or not in full.
    pub(super) fn is_part(&self) -> bool {
        // Relaxed: the threads of the scrape have ended.
        self.has_skipped || self.has_warned.load(Ordering::Relaxed)
    }

    /// Passes on what is at the paths now.
    pub(super) fn collect(&mut self, sink: &mut dyn Sink) {
        let Self { paths, directories, has_skipped, is_used, told, .. } = self;
        let mut once = Once::new(sink);
        let (mut of_directories, count) = (Vec::new(), paths.len());
        for named in paths {
            let read = match There::at(&named.path) {
                Ok(There::Directory(opened)) => {
                    of_directories.push((named.path.clone(), opened));
                    Ok(())
                }
                Ok(There::Segment(file)) => {
                    once.begin(printable(&named.path).to_string(), true);
                    let read = read(&file, &mut once);
                    *is_used |= read.is_ok();
                    tell_left_out(&once, told);
                    read
                }
                Err(fault) => Err(fault),
            };
            let fault = read.err();
            named.tell(fault.as_ref());
            if let Some(fault) = fault {
                directories.note_skipped(fault.reason);
                *has_skipped = true;
            }
        }
        let are_several = count > of_directories.len().max(1);
        if *has_skipped || !of_directories.is_empty() {
            let paths: Vec<_> = of_directories.iter().map(|(path, _)| path.clone()).collect();
            once.begin(joined(&paths), false);
            directories.set_opened(of_directories);
            directories.collect(&mut once);
            *is_used |= directories.used() > 0;
            tell_left_out(&once, told);
        }
        once.end(are_several);
    }
}

impl First {
    /// Notes what is at one of the paths.
    fn look(&mut self, path: &Path, paths: &[PathBuf]) -> Result<(), Fault> {
        match There::at(path)? {
            There::Segment(file) => {
                // One that cannot be shown is of no use.
                read(&file, &mut Nowhere)?;
                self.segments += 1;
            }
            There::Directory(_) => {
                let files = Directories::new([path]).count();
                // The error names the path.
                let what = |error: quipu_store::Error| error.to_string();
                let failed = |error| Fault { reason: "unreadable", what: what(error) };
                self.files += files.map_err(failed)?;
                self.directories.push(path.to_owned());
                let segment = segment_in(path).filter(|segment| !paths.contains(segment));
                self.unseen.extend(segment.map(|segment| (segment, path.to_owned())));
            }
        }
        Ok(())
    }
}

impl Named {
    /// Names what is at fault with it, or that nothing is any more: once.
    fn tell(&mut self, fault: Option<&Fault>) {
        let before = std::mem::replace(&mut self.told, fault.map(|fault| fault.reason));
        match fault {
            Some(fault) if before != Some(fault.reason) => warn(&fault.what),
            None if before.is_some() => {
                warn(&format_args!("{}: it can be read now", printable(&self.path)));
            }
            _ => {}
        }
    }
}

/// Names the families of the current path that are left out, once.
fn tell_left_out(once: &Once<'_>, told: &mut HashSet<String>) {
    if let Some((path, what)) = once.left_out()
        && told.insert(path.to_owned())
    {
        warn(&what);
    }
}

fn joined(paths: &[PathBuf]) -> String {
    let paths: Vec<_> = paths.iter().map(|path| printable(path).to_string()).collect();
    paths.join(", ")
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

/// Sources that are collected once, and asked then how that went.
pub(super) struct Shared(pub(super) Arc<Mutex<Sources>>);

impl Collector for Shared {
    fn names(&self) -> Vec<String> {
        Vec::new()
    }

    fn collect(&self, sink: &mut dyn Sink) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).collect(sink);
    }
}
