//! Finds the files to record, and joins the processes of their programs. There is a thread for each
//! configured path, because a file system can hang. All threads share a table of the files' states.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use quipu::Registry;
use quipu_segment::{ErrorKind, Kind, Options, Segment, history, inspect, printable};
use quipu_store::files::open_below;
use rustix::fs::{OFlags, fstatvfs};

use super::report::{State, StateChange};
use super::rounds::{Event, RecordedSegment};
use super::{LEAST_BYTES, Record};
use crate::output::warn;
use quipu_sources::places::{self, Kind as PlaceKind, SourceEntry};
use quipu_sources::segment_file::{FileId, file_id};
use quipu_sources::watcher::Watcher;

/// The table of files, which the threads share.
#[derive(Debug, Default)]
pub(super) struct Files(Mutex<Table>);

/// The state of each file.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// Whether any file was ever recorded.
    pub(super) has_recorded: bool,
    files: HashMap<PathBuf, FileStatus>,
    /// The changes that were not reported yet.
    changes: Vec<StateChange>,
}

/// The state of a file, and the thread that found it.
#[derive(Debug)]
struct FileStatus {
    id: FileId,
    state: State,
    reason: String,
    /// The time since which the file is in this state.
    since: Instant,
    /// The number of the thread that last examined the file.
    thread: usize,
}

/// The state of a file that is not recorded, and the reason.
pub(super) type Refusal = (State, String);

/// The maximum number of pending changes. Further changes are not reported.
const MAX_CHANGES: usize = 10_000;

impl Files {
    pub(super) fn table(&self) -> MutexGuard<'_, Table> {
        // A poisoned mutex is fine, because no change of the table can panic half way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// Records that the recording of a file has ended.
    pub(super) fn end_recording(&mut self, path: &Path, refusal: Refusal) {
        if let Some((id, thread)) = self.files.get(path).map(|status| (status.id, status.thread)) {
            self.note(path, id, thread, refusal);
        }
    }

    /// Removes and returns the oldest changes, at most `most`.
    pub(super) fn take_changes(&mut self, most: usize) -> Vec<StateChange> {
        let count = most.min(self.changes.len());
        self.changes.drain(..count).collect()
    }

    /// Returns the number of files in each state, in the order of [`State::ALL`].
    pub(super) fn counts(&self) -> [usize; State::ALL.len()] {
        let mut counts = [0; State::ALL.len()];
        self.files.values().for_each(|status| counts[status.state as usize] += 1);
        counts
    }

    fn note(&mut self, path: &Path, id: FileId, thread: usize, (state, reason): Refusal) {
        let since = Instant::now();
        self.has_recorded |= state == State::Recorded;
        let new = FileStatus { id, state, reason: reason.clone(), since, thread };
        let old = self.files.insert(path.to_owned(), new);
        let is_new = old.as_ref().is_none_or(|old| (old.state, &old.reason) != (state, &reason));
        if is_new && self.changes.len() < MAX_CHANGES {
            let before = old.map(|old| old.state);
            let path = printable(path).to_string();
            self.changes.push(StateChange { path, before, state, reason });
        }
    }

    /// Returns the number of recorded files.
    fn recorded(&self) -> usize {
        self.files.values().filter(|status| status.state == State::Recorded).count()
    }

    /// Returns whether to examine a file again.
    fn is_due(&self, entry: &SourceEntry, now: Instant) -> bool {
        let Some(status) = self.files.get(&entry.path) else { return true };
        match status.state {
            State::Recorded => false,
            _ if status.id != entry.id => true,
            state => now.saturating_duration_since(status.since) >= state.patience(),
        }
    }
}

/// A thread that finds files below one configured path. The threads are separate, because a file
/// system that hangs must not stop the others.
#[derive(Debug)]
pub(super) struct Finder {
    /// The number of this thread.
    number: usize,
    watcher: Watcher,
    arguments: Record,
    files: Arc<Files>,
    sender: Sender<Event>,
    /// The number of threads that have neither finished a scan nor found a file.
    empty: Arc<AtomicUsize>,
    /// The time when each unrecorded file was first seen open.
    opened: HashMap<FileId, Instant>,
}

/// The minimum time for which a file must be open. A command that opens the file only to count must
/// not start a recording.
const LEAST_OPEN: Duration = Duration::from_millis(500);
/// The minimum time between two scans.
const PERIOD: Duration = Duration::from_secs(1);
/// The minimum pause after a scan, as a multiple of its duration.
const SHARE: u32 = 20;
/// The maximum pause after a scan, even if a file system hung during the scan.
const LONGEST: Duration = Duration::from_secs(60);
/// The maximum number of used bytes of a recorded segment. This is limited because its series are
/// visited once a second.
const MOST_USED: u64 = 1 << 30;
/// A recording takes at most one part in `PART` of the free space.
const PART: u64 = 4;
/// The kind of the record that contains a recording.
const RECORD: Kind = Kind::new(*b"FREC", 1);

impl Finder {
    /// Creates the finders of all threads.
    pub(super) fn for_places(
        arguments: &Record,
        files: &Arc<Files>,
        sender: &Sender<Event>,
    ) -> Vec<Self> {
        let except = arguments.except.as_deref().unwrap_or(Path::new(""));
        let watchers = Watcher::by_thread(&arguments.places, except);
        let empty = Arc::new(AtomicUsize::new(watchers.len()));
        let each = |(number, watcher)| Self {
            number,
            watcher,
            arguments: arguments.clone(),
            files: Arc::clone(files),
            sender: sender.clone(),
            empty: Arc::clone(&empty),
            opened: HashMap::new(),
        };
        watchers.into_iter().enumerate().map(each).collect()
    }

    /// Scans until the recording thread has ended.
    pub(super) fn run(mut self) {
        let mut is_first = true;
        loop {
            let began = Instant::now();
            let scan = self.watcher.scan();
            let is_empty = is_first && scan.sources.is_empty();
            let is_last = is_empty && self.empty.fetch_sub(1, Ordering::Relaxed) == 1;
            if is_last && !self.arguments.child {
                warn(&"no segment yet; waiting for one");
            }
            is_first = false;
            for (path, reason) in self.watcher.new_faults(&scan) {
                // The daemon reports the same error itself.
                if !self.arguments.child {
                    warn(&format_args!("{}: {reason}", printable(path)));
                }
            }
            let is_segment = |entry: &SourceEntry| entry.kind == PlaceKind::Segment;
            let entries: Vec<SourceEntry> = scan.sources.into_iter().filter(is_segment).collect();
            if !self.look_at(&entries, scan.is_incomplete) {
                return;
            }
            thread::sleep(pause(began.elapsed()));
        }
    }

    /// Joins the programs of new files. Returns false if the recording thread has ended.
    fn look_at(&mut self, entries: &[SourceEntry], is_incomplete: bool) -> bool {
        self.forget(entries, is_incomplete);
        let ids: HashSet<FileId> = entries.iter().map(|entry| entry.id).collect();
        self.opened.retain(|id, _| ids.contains(id));
        for entry in entries {
            let recorded = {
                let table = self.files.table();
                if !table.is_due(entry, Instant::now()) {
                    continue;
                }
                table.recorded()
            };
            // We catch panics, because the file is from another program, and a bug in a reader must
            // not end the scans.
            let outcome = catch_unwind(AssertUnwindSafe(|| self.join(entry, recorded)));
            let outcome = outcome.unwrap_or_else(|_| Err((State::Unusable, FLAW.to_owned())));
            if !self.note(entry, outcome) {
                return false;
            }
        }
        // In most scans, this is the only event.
        self.sender.send(Event::Looked).is_ok()
    }

    /// Removes files that this thread no longer finds from the table.
    fn forget(&self, entries: &[SourceEntry], is_incomplete: bool) {
        let paths: HashSet<&PathBuf> = entries.iter().map(|entry| &entry.path).collect();
        let is_gone = |path: &PathBuf, status: &FileStatus| {
            status.thread == self.number && status.state != State::Recorded && !paths.contains(path)
        };
        let mut gone: Vec<PathBuf> = {
            let table = self.files.table();
            let paths = table.files.iter().filter(|(path, status)| is_gone(path, status));
            paths.map(|(path, _)| path.clone()).collect()
        };
        // An incomplete scan can miss a file, so check each path. No thread waits for these calls.
        gone.retain(|path| !is_incomplete || places::is_missing(path));
        let mut table = self.files.table();
        for path in gone {
            if table.files.get(&path).is_some_and(|status| is_gone(&path, status)) {
                table.files.remove(&path);
            }
        }
    }

    /// Stores the result of a join, and sends the segment to the recording thread. Returns false if
    /// this thread has ended.
    fn note(&self, entry: &SourceEntry, outcome: Result<Option<RecordedSegment>, Refusal>) -> bool {
        let mut table = self.files.table();
        // Another thread whose path contains the same file may have joined it first.
        let is_recorded =
            table.files.get(&entry.path).is_some_and(|status| status.state == State::Recorded);
        let refusal = match outcome {
            Ok(None) => return true,
            Err(_) if is_recorded => return true,
            Err(refusal) => refusal,
            Ok(Some(segment)) if table.recorded() < self.arguments.count.into() => {
                table.note(&entry.path, entry.id, self.number, (State::Recorded, String::new()));
                drop(table);
                return self.sender.send(Event::Joined(Box::new(segment))).is_ok();
            }
            Ok(Some(segment)) => {
                // Close the segment after unlocking the table, because other threads must not wait.
                drop(table);
                drop(segment);
                table = self.files.table();
                too_many_files()
            }
        };
        table.note(&entry.path, entry.id, self.number, refusal);
        true
    }

    /// Joins the program of a file, unless the program has only just opened it. `recorded` is the
    /// number of recorded files.
    fn join(
        &mut self,
        entry: &SourceEntry,
        recorded: usize,
    ) -> Result<Option<RecordedSegment>, Refusal> {
        let file = open_below(&entry.root, &entry.path, OFlags::RDWR | OFlags::NONBLOCK);
        let file = File::from(file.map_err(|error| match error.kind() {
            std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => {
                (State::NotWritable, places::explained(&error))
            }
            _ => (State::Unusable, error.to_string()),
        })?);
        let unusable = |reason: &str| (State::Unusable, reason.to_owned());
        let data = file.metadata().map_err(|error| unusable(&error.to_string()))?;
        if !data.is_file() || file_id(&data) != entry.id {
            return Err(unusable("another file took its place at this moment"));
        }
        match inspect::is_open(&file) {
            Some(true) => {}
            Some(false) => {
                self.opened.remove(&entry.id);
                return Err((State::Closed, CLOSED.to_owned()));
            }
            None => {
                return Err(unusable("its file system does not say which processes have it open"));
            }
        }
        let now = Instant::now();
        let since = *self.opened.entry(entry.id).or_insert(now);
        if now.saturating_duration_since(since) < LEAST_OPEN {
            return Ok(None);
        }
        if inspect::bytes_in_use(&file).is_some_and(|used| used > MOST_USED) {
            return Err(unusable("it has more than 1 GiB in use"));
        }
        if recorded >= self.arguments.count.into() {
            return Err(too_many_files());
        }
        let free = free_on_disk(&file);
        let segment = Options::new().join(&entry.path, file).map_err(|error| refusal(&error))?;
        let bytes = self.room(&segment, free)?;
        let options = history::Options::new().bytes(bytes).series(self.arguments.series.into());
        let recorder = Registry::from_segment(segment.clone()).recorder(&options.give_way());
        let recorder = recorder.map_err(|error| refusal(&error))?;
        // Make the first tick here, because a slow file or a file system that hangs must not delay
        // the recording thread.
        let mut segment = RecordedSegment::new(entry.path.clone(), segment, recorder);
        segment.tick()?;
        Ok(Some(segment))
    }

    /// Returns the size of a new recording, which leaves enough space for the program.
    fn room(&self, segment: &Segment, free: Option<u64>) -> Result<u64, Refusal> {
        let bytes = self.arguments.bytes;
        if segment.find(RECORD, "").is_ok_and(|record| record.is_some()) {
            return Ok(bytes);
        }
        let within_limit = segment.limit().saturating_sub(segment.used());
        let room = free.map_or(within_limit, |free| free.min(within_limit));
        match bytes.min(room / PART) / 64 * 64 {
            bytes if bytes >= LEAST_BYTES => Ok(bytes),
            // The reason contains no number of bytes, because a changing reason would be reported
            // again and again.
            _ => Err((State::NoRoom, "its program may need all of the room that is left".into())),
        }
    }
}

/// Returns the refusal of a file beyond the maximum number of files.
fn too_many_files() -> Refusal {
    (State::Omitted, "more files are recorded than may be".to_owned())
}

/// Returns the pause after a scan with this duration.
fn pause(took: Duration) -> Duration {
    PERIOD.max(took.saturating_mul(SHARE)).min(LONGEST)
}

/// The reason if the reader of a file panicked.
pub(super) const FLAW: &str = "its reader failed: report that";
const CLOSED: &str = "no process has it open";

/// Checks that the path still names the open file, and that the file was not truncated. Call this
/// before each reading.
pub(super) fn check(segment: &Segment) -> Result<(), Refusal> {
    segment.check_file().map_err(|error| refusal(&error))?;
    #[cfg(target_os = "linux")]
    if segment.was_cut() {
        return Err((State::Unusable, "it was cut while it was in use".to_owned()));
    }
    Ok(())
}

/// Checks that any program still keeps the file open.
pub(super) fn check_program(segment: &Segment) -> Result<(), Refusal> {
    match segment.is_last() {
        Some(false) => Ok(()),
        Some(true) => Err((State::Closed, CLOSED.to_owned())),
        None => Err((State::Closed, "it is not known whether a process has it open".to_owned())),
    }
}

/// Returns the free bytes of the file system of a file; `None` if they are unknown.
fn free_on_disk(file: &File) -> Option<u64> {
    let system = fstatvfs(file).ok().filter(|system| system.f_blocks > 0)?;
    Some(system.f_bavail.saturating_mul(system.f_frsize))
}

/// Converts an error of a segment to a state and a reason.
fn refusal(error: &quipu_segment::Error) -> Refusal {
    let state = match error.kind() {
        ErrorKind::NotOpen | ErrorKind::Moved => State::Closed,
        ErrorKind::Locked | ErrorKind::Busy { .. } => State::Exclusive,
        ErrorKind::Joined => State::Joined,
        ErrorKind::NotWritable(_) => State::NotWritable,
        ErrorKind::NoSpace { .. } | ErrorKind::Full { .. } | ErrorKind::FileTooLarge { .. } => {
            State::NoRoom
        }
        _ => State::Unusable,
    };
    let reason = match error.kind() {
        ErrorKind::NotOpen => CLOSED.to_owned(),
        ErrorKind::Moved => "it was removed or replaced".to_owned(),
        ErrorKind::Locked => "its program has it open for itself alone".to_owned(),
        ErrorKind::Joined => "another quipu record records it".to_owned(),
        // The caller prints the path before this.
        kind => kind.to_string(),
    };
    (state, reason)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    fn finders(places: &[&str]) -> Vec<Finder> {
        let arguments = Record {
            places: places.iter().map(|&place| place.to_owned()).collect(),
            time: None,
            bytes: LEAST_BYTES,
            series: 10,
            count: 10,
            child: true,
            except: None,
        };
        Finder::for_places(&arguments, &Arc::default(), &channel().0)
    }

    #[test]
    fn a_long_look_is_followed_by_a_bounded_pause() {
        assert_eq!(pause(Duration::from_millis(1)), PERIOD);
        assert_eq!(pause(Duration::from_secs(2)), Duration::from_secs(40));
        assert_eq!(pause(Duration::from_secs(600)), LONGEST);
    }

    #[test]
    fn a_thread_forgets_the_files_that_it_no_longer_finds() {
        let home = tempfile::tempdir().unwrap();
        let (there, gone) = (home.path().join("there"), home.path().join("gone"));
        std::fs::write(&there, "").unwrap();
        let id = file_id(&there.metadata().unwrap());
        let threads = finders(&["a", "b"]);
        let files = Arc::clone(&threads[0].files);
        let known = || files.table().files.len();
        for path in [&there, &gone] {
            files.table().note(path, id, 0, (State::Closed, String::new()));
        }
        threads[1].forget(&[], false);
        assert_eq!(known(), 2);
        // An incomplete scan can miss a file.
        threads[0].forget(&[], true);
        assert_eq!(known(), 1);
        assert!(files.table().files.contains_key(&there));
        threads[0].forget(&[], false);
        assert_eq!(known(), 0);
    }
}
