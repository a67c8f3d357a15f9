//! The files that `quipu record` knows, and the threads that look for them and join their
//! programs: one for each place.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use quipu::{RecordingOptions, Registry};
use quipu_segment::{ErrorKind, Kind, Options, Segment, inspect, printable};
use quipu_store::files::open_below;
use rustix::fs::{OFlags, fstatvfs};

use super::report::{Change, State};
use super::rounds::{Event, Joined};
use super::{LEAST_BYTES, Record};
use crate::output::warn;
use quipu_sources::places::{self, Found, Kind as PlaceKind};
use quipu_sources::segment_file::{FileId, file_id};
use quipu_sources::watcher::Watcher;

/// What is known of the files; the threads share it.
#[derive(Debug, Default)]
pub(super) struct Files(Mutex<Table>);

#[derive(Debug, Default)]
pub(super) struct Table {
    /// Whether a file was recorded at any time.
    pub(super) has_recorded: bool,
    known: HashMap<PathBuf, Known>,
    /// What was not reported yet.
    changes: Vec<Change>,
}

#[derive(Debug)]
struct Known {
    id: FileId,
    state: State,
    what: String,
    /// When it was found so.
    since: Instant,
    /// The number of the thread that looked at it last.
    looker: usize,
}

/// Why a file is not recorded.
pub(super) type Refusal = (State, String);

/// The most changes that wait to be reported; what is beyond is not reported.
const MAX_CHANGES: usize = 10_000;

impl Files {
    pub(super) fn table(&self) -> MutexGuard<'_, Table> {
        // No change of the table can panic half way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// Notes that a file is not recorded any more.
    pub(super) fn left(&mut self, path: &Path, refusal: Refusal) {
        if let Some((id, looker)) = self.known.get(path).map(|known| (known.id, known.looker)) {
            self.note(path, id, looker, refusal);
        }
    }

    /// Takes what has changed since the last call, up to that many changes.
    pub(super) fn take_changes(&mut self, most: usize) -> Vec<Change> {
        let count = most.min(self.changes.len());
        self.changes.drain(..count).collect()
    }

    /// The number of files in each state, in the order of [`State::ALL`].
    pub(super) fn counts(&self) -> [usize; State::ALL.len()] {
        let mut counts = [0; State::ALL.len()];
        self.known.values().for_each(|known| counts[known.state as usize] += 1);
        counts
    }

    fn note(&mut self, path: &Path, id: FileId, looker: usize, (state, what): Refusal) {
        let since = Instant::now();
        self.has_recorded |= state == State::Recorded;
        let new = Known { id, state, what: what.clone(), since, looker };
        let old = self.known.insert(path.to_owned(), new);
        let is_new = old.as_ref().is_none_or(|old| (old.state, &old.what) != (state, &what));
        if is_new && self.changes.len() < MAX_CHANGES {
            let before = old.map(|old| old.state);
            let path = printable(path).to_string();
            self.changes.push(Change { path, before, state, what });
        }
    }

    /// The number of files that are recorded.
    fn recorded(&self) -> usize {
        self.known.values().filter(|known| known.state == State::Recorded).count()
    }

    /// Whether there may be something new about a file.
    fn is_due(&self, found: &Found, now: Instant) -> bool {
        let Some(known) = self.known.get(&found.path) else { return true };
        match known.state {
            State::Recorded => false,
            _ if known.id != found.id => true,
            state => now.saturating_duration_since(known.since) >= state.patience(),
        }
    }
}

/// A thread that looks for files. Each place has its own: a file system that hangs does not keep
/// the others from a look.
#[derive(Debug)]
pub(super) struct Looks {
    /// The number of this thread.
    number: usize,
    watcher: Watcher,
    arguments: Record,
    files: Arc<Files>,
    sender: Sender<Event>,
    /// The number of threads whose first look has not found nothing.
    empty: Arc<AtomicUsize>,
    /// Since when processes have had the files open that are not recorded yet.
    opened: HashMap<FileId, Instant>,
}

/// How long a file has to be open: that of a command which counts and ends is not recorded.
const LEAST_OPEN: Duration = Duration::from_millis(500);
/// The least time from one look to the next, and that in multiples of the time that one takes.
const PERIOD: Duration = Duration::from_secs(1);
const SHARE: u32 = 20;
/// The longest pause between looks, also after one for which a file system hung.
const LONGEST: Duration = Duration::from_secs(60);
/// The most bytes that a segment which is recorded may have in use: its series are walked over once
/// a second.
const MOST_USED: u64 = 1 << 30;
/// The part of the room that is left which a recording takes.
const PART: u64 = 4;
/// The record of a recording.
const RECORD: Kind = Kind::new(*b"FREC", 1);

impl Looks {
    /// Those of all places.
    pub(super) fn all(arguments: &Record, files: &Arc<Files>, sender: &Sender<Event>) -> Vec<Self> {
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

    /// Looks until there is no thread that records any more.
    pub(super) fn run(mut self) {
        let mut is_first = true;
        loop {
            let began = Instant::now();
            let look = self.watcher.look();
            let is_empty = is_first && look.found.is_empty();
            let is_last = is_empty && self.empty.fetch_sub(1, Ordering::Relaxed) == 1;
            if is_last && !self.arguments.child {
                warn(&"no segment is there yet: this waits for one");
            }
            is_first = false;
            for (path, what) in self.watcher.new_faults(&look) {
                // The daemon says it itself.
                if !self.arguments.child {
                    warn(&format_args!("{}: {what}", printable(path)));
                }
            }
            let is_segment = |found: &Found| found.kind == PlaceKind::Segment;
            let found: Vec<Found> = look.found.into_iter().filter(is_segment).collect();
            if !self.look_at(&found, look.is_incomplete) {
                return;
            }
            thread::sleep(pause(began.elapsed()));
        }
    }

    /// Joins the programs of the files that are new; false if nothing records any more.
    fn look_at(&mut self, found: &[Found], is_incomplete: bool) -> bool {
        self.forget(found, is_incomplete);
        let ids: HashSet<FileId> = found.iter().map(|found| found.id).collect();
        self.opened.retain(|id, _| ids.contains(id));
        for found in found {
            let recorded = {
                let table = self.files.table();
                if !table.is_due(found, Instant::now()) {
                    continue;
                }
                table.recorded()
            };
            // What is read was written by others: a flaw of a reader must not end the looks.
            let joined = catch_unwind(AssertUnwindSafe(|| self.join(found, recorded)));
            let joined = joined.unwrap_or_else(|_| Err((State::Unusable, FLAW.to_owned())));
            if !self.note(found, joined) {
                return false;
            }
        }
        // There is nothing to send most of the time.
        self.sender.send(Event::Looked).is_ok()
    }

    /// Forgets files of this thread that are gone.
    fn forget(&self, found: &[Found], is_incomplete: bool) {
        let paths: HashSet<&PathBuf> = found.iter().map(|found| &found.path).collect();
        let is_left = |path: &PathBuf, known: &Known| {
            known.looker == self.number && known.state != State::Recorded && !paths.contains(path)
        };
        let mut gone: Vec<PathBuf> = {
            let table = self.files.table();
            let left = table.known.iter().filter(|(path, known)| is_left(path, known));
            left.map(|(path, _)| path.clone()).collect()
        };
        // A look that is incomplete may not have come as far. Nothing waits for these calls.
        gone.retain(|path| !is_incomplete || places::is_missing(path));
        let mut table = self.files.table();
        for path in gone {
            if table.known.get(&path).is_some_and(|known| is_left(&path, known)) {
                table.known.remove(&path);
            }
        }
    }

    /// Notes how a join ended, and hands over what is to be recorded; false if nothing records any
    /// more.
    fn note(&self, found: &Found, joined: Result<Option<Joined>, Refusal>) -> bool {
        let mut table = self.files.table();
        // Another thread, whose place has the same file, may have been faster.
        let is_recorded =
            table.known.get(&found.path).is_some_and(|known| known.state == State::Recorded);
        let refusal = match joined {
            Ok(None) => return true,
            Err(_) if is_recorded => return true,
            Err(refusal) => refusal,
            Ok(Some(joined)) if table.recorded() < self.arguments.count.into() => {
                table.note(&found.path, found.id, self.number, (State::Recorded, String::new()));
                drop(table);
                return self.sender.send(Event::Joined(Box::new(joined))).is_ok();
            }
            Ok(Some(joined)) => {
                // Others were faster. It is closed while nothing waits for the table.
                drop(table);
                drop(joined);
                table = self.files.table();
                left_out()
            }
        };
        table.note(&found.path, found.id, self.number, refusal);
        true
    }

    /// Joins the program of a file, unless that has opened it just now. `recorded` is the number of
    /// files that are recorded.
    fn join(&mut self, found: &Found, recorded: usize) -> Result<Option<Joined>, Refusal> {
        let file = open_below(&found.root, &found.path, OFlags::RDWR | OFlags::NONBLOCK);
        let file = File::from(file.map_err(|error| match error.kind() {
            std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => {
                (State::NotWritable, places::explained(&error))
            }
            _ => (State::Unusable, error.to_string()),
        })?);
        let unusable = |what: &str| (State::Unusable, what.to_owned());
        let data = file.metadata().map_err(|error| unusable(&error.to_string()))?;
        if !data.is_file() || file_id(&data) != found.id {
            return Err(unusable("another file took its place at this moment"));
        }
        match inspect::is_open(&file) {
            Some(true) => {}
            Some(false) => {
                self.opened.remove(&found.id);
                return Err((State::Closed, CLOSED.to_owned()));
            }
            None => {
                return Err(unusable("its file system does not say which processes have it open"));
            }
        }
        let now = Instant::now();
        let since = *self.opened.entry(found.id).or_insert(now);
        if now.saturating_duration_since(since) < LEAST_OPEN {
            return Ok(None);
        }
        if inspect::bytes_in_use(&file).is_some_and(|used| used > MOST_USED) {
            return Err(unusable("it has more than 1 GiB in use"));
        }
        if recorded >= self.arguments.count.into() {
            return Err(left_out());
        }
        let left = left_on_disk(&file);
        let segment = Options::new().join(&found.path, file).map_err(|error| refusal(&error))?;
        let bytes = self.room(&segment, left)?;
        let options = RecordingOptions::new().bytes(bytes).series(self.arguments.series.into());
        let recorder = Registry::on(segment.clone()).recorder(&options.give_way());
        let recorder = recorder.map_err(|error| refusal(&error))?;
        // The first tick is made here: a file that is slow, or a file system that hangs, does not
        // come to the thread that records.
        let mut joined = Joined::new(found.path.clone(), segment, recorder);
        joined.tick()?;
        Ok(Some(joined))
    }

    /// The bytes that a new recording takes, so that enough is left for the program.
    fn room(&self, segment: &Segment, left: Option<u64>) -> Result<u64, Refusal> {
        let bytes = self.arguments.bytes;
        if segment.find(RECORD, "").is_ok_and(|record| record.is_some()) {
            return Ok(bytes);
        }
        let of_limit = segment.limit().saturating_sub(segment.used());
        let room = left.map_or(of_limit, |left| left.min(of_limit));
        match bytes.min(room / PART) / 64 * 64 {
            bytes if bytes >= LEAST_BYTES => Ok(bytes),
            // Without the number of bytes: a text that changes would be reported again and again.
            _ => Err((State::NoRoom, "its program may need all of the room that is left".into())),
        }
    }
}

fn left_out() -> Refusal {
    (State::LeftOut, "more files are recorded than may be".to_owned())
}

/// How long to wait after a look that took that long.
fn pause(took: Duration) -> Duration {
    PERIOD.max(took.saturating_mul(SHARE)).min(LONGEST)
}

/// The reader of a file panicked.
pub(super) const FLAW: &str = "its reader failed: report that";
const CLOSED: &str = "no process has it open";

/// Whether the file is still what was opened. It comes before anything is read.
pub(super) fn check(segment: &Segment) -> Result<(), Refusal> {
    segment.check_file().map_err(|error| refusal(&error))?;
    #[cfg(target_os = "linux")]
    if segment.was_cut() {
        return Err((State::Unusable, "it was cut while it was in use".to_owned()));
    }
    Ok(())
}

/// Whether a program still has the file open.
pub(super) fn check_program(segment: &Segment) -> Result<(), Refusal> {
    match segment.is_last() {
        Some(false) => Ok(()),
        Some(true) => Err((State::Closed, CLOSED.to_owned())),
        None => Err((State::Closed, "it is not known whether a process has it open".to_owned())),
    }
}

/// The bytes that the file system of a file has left; `None` if it does not say.
fn left_on_disk(file: &File) -> Option<u64> {
    let system = fstatvfs(file).ok().filter(|system| system.f_blocks > 0)?;
    Some(system.f_bavail.saturating_mul(system.f_frsize))
}

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
    let what = match error.kind() {
        ErrorKind::NotOpen => CLOSED.to_owned(),
        ErrorKind::Moved => "it was removed or replaced".to_owned(),
        ErrorKind::Locked => "its program has it open for itself alone".to_owned(),
        ErrorKind::Joined => "another quipu record records it".to_owned(),
        // The path is shown before it.
        kind => kind.to_string(),
    };
    (state, what)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    fn all(places: &[&str]) -> Vec<Looks> {
        let arguments = Record {
            places: places.iter().map(|&place| place.to_owned()).collect(),
            time: None,
            bytes: LEAST_BYTES,
            series: 10,
            count: 10,
            child: true,
            except: None,
        };
        Looks::all(&arguments, &Arc::default(), &channel().0)
    }

    #[test]
    fn a_long_look_is_followed_by_a_bounded_pause() {
        assert_eq!(pause(Duration::from_millis(1)), PERIOD);
        assert_eq!(pause(Duration::from_secs(2)), Duration::from_secs(40));
        assert_eq!(pause(Duration::from_secs(600)), LONGEST);
    }

    #[test]
    fn files_that_are_gone_are_forgotten_by_the_thread_that_knew_them() {
        let home = tempfile::tempdir().unwrap();
        let (there, gone) = (home.path().join("there"), home.path().join("gone"));
        std::fs::write(&there, "").unwrap();
        let id = file_id(&there.metadata().unwrap());
        let threads = all(&["a", "b"]);
        let files = Arc::clone(&threads[0].files);
        let known = || files.table().known.len();
        for path in [&there, &gone] {
            files.table().note(path, id, 0, (State::Closed, String::new()));
        }
        threads[1].forget(&[], false);
        assert_eq!(known(), 2);
        // A look that is incomplete may not have come as far.
        threads[0].forget(&[], true);
        assert_eq!(known(), 1);
        assert!(files.table().known.contains_key(&there));
        threads[0].forget(&[], false);
        assert_eq!(known(), 0);
    }
}
