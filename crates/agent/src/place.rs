//! A place is one configured path of segments: a file, a directory or a pattern of paths. Each
//! place has a thread that does all of its scans and readings. If its file system hangs, the other
//! places stay up to date.
//!
//! While the thread is busy, the page shows the last state of its sources, until this state is too
//! old.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use quipu_segment::printable;
use tracing::{info, warn};

use super::Options;
use super::notice::Notice;
use super::own::SourceRow;
use super::source::{Budget, BudgetUse, Keep, Source};
use quipu_sources::offload::{OffloadedState, STALE};
use quipu_sources::places::{self, Kind, Scan, SourceEntry};
use quipu_sources::recorded::SourceSnapshot;
use quipu_sources::segment_file::SegmentFile;
use quipu_sources::watcher::Watcher;

/// A place, as the controlling thread sees it. [`Files`] belongs to the place's own thread while it
/// works.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) files: OffloadedState<Files>,
    /// The states of the sources, the earliest found first.
    pub(super) states: Vec<SourceState>,
    /// The absolute paths of the directories that the thread scans.
    pub(super) directories: Vec<PathBuf>,
    pub(super) unwatched: usize,
    pub(super) failures: u64,
    /// The time when the last completed reading started.
    read: Option<Instant>,
    /// The path in the settings.
    name: String,
}

/// The state that the place's thread owns while it works.
#[derive(Debug)]
pub(super) struct Files {
    watcher: Watcher,
    options: Options,
    /// The number of sources that this place can always have, regardless of the other places.
    share: usize,
    pub(super) notice: Notice,
    pub(super) sources: Vec<Source>,
    /// The sources to add.
    pub(super) coming: Vec<Source>,
    /// The numbers of the sources to drop.
    pub(super) leaving: HashSet<u64>,
    /// The result of the last scan.
    pub(super) scan: Option<Scan>,
    directories: Vec<PathBuf>,
    /// The rest of the budget after the last reading.
    pub(super) budget: Budget,
    /// The number of sources that were not read yet.
    pub(super) left: usize,
    failures: u64,
    pub(super) read: Option<Instant>,
    /// Hooks for tests: the first source waits for a message before it is read, and each source
    /// sends one after it was read.
    #[cfg(test)]
    pub(super) waits: Option<std::sync::mpsc::Receiver<()>>,
    #[cfg(test)]
    pub(super) tells: Option<std::sync::mpsc::Sender<()>>,
}

/// The state of a source. You can read it even while the place's thread is busy.
#[derive(Debug)]
pub(super) struct SourceState {
    /// The number of the source. Sources that were found earlier have smaller numbers.
    pub(super) number: u64,
    pub(super) path: PathBuf,
    pub(super) name: String,
    /// The part of the budget that the last reading took.
    pub(super) used: BudgetUse,
    /// The families to show, if any.
    pub(super) shown: Option<Arc<SourceSnapshot>>,
    /// The state for the daemon's own metrics; `None` before the first reading.
    pub(super) row: Option<SourceRow>,
}

/// The maximum number of scans in a row, if files keep appearing during a scan.
const LOOKS: usize = 3;

/// Starts the threads of all places.
///
/// # Errors
/// Fails if the system cannot create a thread.
pub(super) fn start(options: &Options) -> io::Result<Vec<Place>> {
    let watchers = Watcher::by_thread(&options.places, &options.own);
    let threads = watchers.len();
    watchers.into_iter().map(|watcher| Place::start(options, watcher, threads)).collect()
}

impl Place {
    fn start(options: &Options, watcher: Watcher, threads: usize) -> io::Result<Self> {
        let name = watcher.places.join(", ");
        let files = Files {
            watcher,
            share: options.most / threads,
            options: options.clone(),
            notice: Notice::new(),
            sources: Vec::new(),
            coming: Vec::new(),
            leaving: HashSet::new(),
            scan: None,
            directories: Vec::new(),
            budget: Budget::new(options.bytes),
            left: 0,
            failures: 0,
            read: None,
            #[cfg(test)]
            waits: None,
            #[cfg(test)]
            tells: None,
        };
        Ok(Self {
            files: OffloadedState::start("files", files)?,
            states: Vec::new(),
            directories: Vec::new(),
            unwatched: 0,
            failures: 0,
            read: None,
            name,
        })
    }

    /// Gets the files back if the thread has finished its task. Logs when the thread becomes late,
    /// and when it responds again.
    pub(super) fn take_back(&mut self) {
        if let Some(is_late) = self.files.take_back() {
            let place = printable(&self.name);
            match is_late {
                true => warn!(
                    %place,
                    "a file system does not respond: its watched files are shown as they were"
                ),
                false => info!(%place, "a file system responds again"),
            }
        }
    }

    /// Copies the states of the sources, unless the thread is busy.
    pub(super) fn note(&mut self, keep: Keep) {
        let Some(files) = self.files.here() else { return };
        self.states = files.sources.iter().map(|source| source.state(keep)).collect();
        self.directories.clone_from(&files.directories);
        (self.unwatched, self.failures) = (files.notice.unwatched(), files.failures);
        self.read = files.read;
    }

    /// Returns whether the files were read recently enough to be shown.
    pub(super) fn is_shown(&self, now: Instant) -> bool {
        self.read.is_some_and(|read| now.saturating_duration_since(read) < STALE)
    }
}

/// The tasks of the place's thread.
impl Files {
    /// Scans for sources, and updates the sources whose files were removed.
    pub(super) fn scan(&mut self) {
        // If a directory is newly watched, scan again, because a file can appear between the scan
        // and the watch.
        let mut scan = self.watcher.scan();
        for _ in 0..LOOKS {
            let directories = scan.directories.iter();
            self.directories = directories.flat_map(std::path::absolute).collect();
            if !self.notice.watch(std::mem::take(&mut scan.directories)) {
                break;
            }
            scan = self.watcher.scan();
        }
        self.log_faults(&scan);
        self.update(&scan);
        self.examine(&mut scan);
        self.scan = Some(scan);
    }

    /// Marks new files that are not segments, if there may be more files than we can watch.
    fn examine(&self, scan: &mut Scan) {
        if scan.sources.len() <= self.share {
            return;
        }
        let known: HashSet<&PathBuf> =
            self.sources.iter().map(|source| &source.entry.path).collect();
        let new = scan.sources.iter_mut().filter(|entry| !known.contains(&entry.path));
        for entry in new.filter(|entry| entry.kind == Kind::Segment) {
            let file = SegmentFile::open_below(&entry.root, &entry.path);
            entry.is_junk = !file.and_then(|file| file.is_segment()).unwrap_or(false);
        }
    }

    fn update(&mut self, scan: &Scan) {
        let keep = self.options.keep;
        // A single budget for all removed files, because each is read once more.
        let mut budget = Budget::new(self.options.bytes);
        let entries: HashMap<&PathBuf, &SourceEntry> =
            scan.sources.iter().map(|entry| (&entry.path, entry)).collect();
        self.sources.retain_mut(|source| {
            let entry = entries.get(&source.entry.path);
            if entry.is_some_and(|entry| source.note_entry(entry)) {
                info!(path = %printable(&source.entry.path), "a watched file was replaced");
                return false;
            }
            let was_gone = source.is_gone();
            let is_gone = entry.is_none() && (was_gone || source.is_absent(scan.is_incomplete));
            let is_kept = source.note_gone(is_gone, keep, &mut budget);
            if !is_kept || is_gone && !was_gone {
                let path = printable(&source.entry.path);
                info!(%path, kept = is_kept, "a watched file is gone");
            }
            is_kept
        });
    }

    fn log_faults(&mut self, scan: &Scan) {
        for (path, reason) in self.watcher.new_faults(scan) {
            let path = printable(path);
            if reason == places::NOT_THERE {
                info!(%path, "a path does not exist yet; checking every 5s");
            } else {
                warn!(%path, what = %reason, "a place cannot be watched");
            }
        }
    }

    /// Opens added files, closes dropped ones, and estimates the cost of a reading.
    pub(super) fn prepare(&mut self) {
        let leaving = std::mem::take(&mut self.leaving);
        self.sources.retain(|source| !leaving.contains(&source.number));
        for mut source in std::mem::take(&mut self.coming) {
            source.open();
            self.sources.push(source);
        }
        self.sources.iter_mut().for_each(Source::read_size);
    }

    /// Reads the first `count` of these sources, given by index. If this ends after `until`, reads
    /// all of them.
    pub(super) fn read(&mut self, sources: &[usize], count: usize, budget: Budget, until: Instant) {
        let begun = Instant::now();
        let (first, rest) = sources.split_at(count.min(sources.len()));
        (self.budget, self.left) = (budget, rest.len());
        self.read_each(first);
        if Instant::now() >= until {
            self.left = 0;
            self.read_each(rest);
        }
        self.read = Some(begun);
    }

    fn read_each(&mut self, sources: &[usize]) {
        for &at in sources {
            #[cfg(test)]
            if let Some(waits) = self.waits.take() {
                waits.recv_timeout(std::time::Duration::from_secs(20)).unwrap();
            }
            if let Some(source) = self.sources.get_mut(at) {
                source.read(&mut self.budget);
                self.failures += source.take_failures();
            }
            #[cfg(test)]
            if let Some(tells) = &self.tells {
                let _ = tells.send(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;

    #[test]
    fn files_of_a_thread_that_is_away_are_shown_until_they_are_too_old() {
        let home = tempfile::tempdir().unwrap();
        let places = vec![home.path().to_str().unwrap().to_owned()];
        let options = Options { places, bytes: 1 << 20, most: 10, ..Options::default() };
        let mut place = start(&options).unwrap().remove(0);
        let now = Instant::now();
        assert!(!place.is_shown(now));
        place.files.send(move |files| files.read(&[], 0, Budget::new(0), now));
        place.files.wait(now + STALE).unwrap();
        place.note(None);
        let (release, wait) = channel::<()>();
        place.files.send(move |_| wait.recv().unwrap());
        place.take_back();
        assert!(
            place.files.here().is_none() && place.is_shown(now + STALE - Duration::from_secs(1))
        );
        let later = Instant::now() + STALE;
        assert!(!place.is_shown(later));
        release.send(()).unwrap();
        assert!(place.files.wait(later).is_some());
    }
}
