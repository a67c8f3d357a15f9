//! The table of all watched sources, in the order in which they were first found. The table never
//! waits for a file system: it gives the threads of all places (`place.rs`) the same task, and
//! continues with the threads that finish in time.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use quipu_segment::printable;
use tracing::{info, warn};

use super::Options;
use super::merged::{About, Conflict, MergedFamilies};
use super::notice::{EventSubject, Notice};
use super::own::{SourceRow, Status};
use super::pattern::{Matcher, SEGMENT};
use super::place::{self, Files, Place};
use super::selection::{self, Candidate, Rank};
use super::source::Source;
use super::turns;
use quipu_sources::places::{Names, SourceEntry};
use quipu_sources::recorded::Labels;
use quipu_sources::recorded::{Origin, SourceSnapshot};

/// All watched sources, grouped by place.
#[derive(Debug)]
pub(super) struct Table {
    options: Options,
    patterns: Vec<Matcher>,
    places: Vec<Place>,
    /// The number of the next source.
    next: u64,
    /// The number of sources that were omitted at the last scan, because there were too many.
    omitted: usize,
    /// The unreadable files that were dropped in favour of others: their fingerprints, and the
    /// times when they were dropped.
    refused: HashMap<u64, Instant>,
    /// The conflicts that were already logged, because each is logged only once.
    conflicts: BTreeSet<Conflict>,
    was_cut: bool,
    was_incomplete: bool,
    /// The numbers of complete and of incomplete scans.
    looks: [u64; 2],
}

/// The time to wait for all threads. This is less than the time that a scrape waits for a reading.
const PATIENCE: Duration = Duration::from_millis(2500);
/// The part of this time during which the places read one after the other.
const TURNS: Duration = Duration::from_millis(2000);
/// The maximum number of conflicts to remember.
const MAX_LOGGED: usize = 10_000;
/// How long an unreadable file is ignored after it was dropped, unless the file changes
/// or there is space for all files. This is also the longest interval between two attempts to read
/// a watched file.
const REFUSED: Duration = Duration::from_secs(5 * 60);
/// The maximum number of unreadable files to remember.
const MAX_REFUSED: usize = 100_000;

impl Table {
    /// Creates an empty table, and starts the threads of the places.
    ///
    /// # Errors
    /// Fails if the system cannot create a thread.
    pub(super) fn new(options: Options) -> io::Result<Self> {
        let patterns = options.labels.iter().filter_map(super::Pattern::matcher).collect();
        Ok(Self {
            places: place::start(&options)?,
            options,
            patterns,
            next: 0,
            omitted: 0,
            refused: HashMap::new(),
            conflicts: BTreeSet::new(),
            was_cut: false,
            was_incomplete: false,
            looks: [0; 2],
        })
    }

    /// Returns the event sources of all places whose threads are idle.
    pub(super) fn notices(&self) -> impl Iterator<Item = &Notice> {
        self.places.iter().filter_map(|place| place.files.here()).map(|files| &files.notice)
    }

    /// Reads the events of all idle places. Returns their most important subject.
    pub(super) fn heard(&mut self, names: &Names) -> EventSubject {
        let files = self.places.iter_mut().filter_map(|place| place.files.here_mut());
        files.map(|files| files.notice.read_events(names)).max().unwrap_or(EventSubject::Nothing)
    }

    /// Returns the absolute paths of the scanned directories. Omits places whose last values are
    /// too old, because their contents are unknown.
    pub(super) fn directories(&self, now: Instant) -> Vec<PathBuf> {
        let places = self.places.iter().filter(|place| place.is_shown(now));
        places.flat_map(|place| place.directories.iter().cloned()).collect()
    }

    /// Gives all idle threads a task, and waits for them until `until`. Returns whether all
    /// finished.
    fn each(&mut self, errand: fn(&mut Files), until: Instant) -> bool {
        let send = |place: &mut Place| place.files.send(errand);
        let sent: Vec<bool> = self.places.iter_mut().map(send).collect();
        let mut is_done = true;
        for (place, is_sent) in self.places.iter_mut().zip(sent) {
            let is_back = is_sent && place.files.wait(until).is_some();
            is_done &= is_back && !place.files.has_failed();
        }
        is_done
    }

    fn note(&mut self) {
        let keep = self.options.keep;
        self.places.iter_mut().for_each(|place| place.note(keep));
    }

    /// Scans all places for sources.
    pub(super) fn scan(&mut self) {
        self.places.iter_mut().for_each(Place::take_back);
        let is_complete = self.each(Files::scan, Instant::now() + PATIENCE);
        self.note();
        let (mut entries, mut is_cut, mut is_incomplete) = (Vec::new(), false, !is_complete);
        for (at, place) in self.places.iter_mut().enumerate() {
            let Some(scan) = place.files.here_mut().and_then(|files| files.scan.take()) else {
                continue;
            };
            is_cut |= scan.is_cut;
            is_incomplete |= scan.is_incomplete;
            entries.extend(scan.sources.into_iter().map(|entry| (at, entry)));
        }
        self.note_look(is_incomplete);
        self.add(entries);
        self.prepare(Instant::now() + PATIENCE);
        is_cut |= self.omitted > 0;
        if is_cut && !self.was_cut {
            warn!(
                watched = self.count(),
                omitted = self.omitted,
                "there are more files than are watched; see --segments-count"
            );
        }
        self.was_cut = is_cut;
    }

    fn count(&self) -> usize {
        self.places.iter().map(|place| place.states.len()).sum()
    }

    /// Opens new files, and estimates the cost of a reading, in all threads.
    fn prepare(&mut self, until: Instant) {
        self.each(Files::prepare, until);
        self.note();
    }

    /// Begins to watch new files.
    fn add(&mut self, entries: Vec<(usize, SourceEntry)>) {
        let known = || self.places.iter().flat_map(|place| &place.states);
        let mut paths: HashSet<PathBuf> = known().map(|one| one.path.clone()).collect();
        let mut names: HashSet<String> = known().map(|one| one.name.clone()).collect();
        // Two places can contain the same file.
        let new = entries.into_iter().filter(|(_, entry)| paths.insert(entry.path.clone()));
        let mut new: Vec<(usize, SourceEntry)> = new.collect();
        self.omitted = self.select(&mut new);
        let mut numbers: HashMap<String, u64> = HashMap::new();
        for (at, mut entry) in new {
            if !names.insert(entry.name.clone()) {
                let path = entry.path.to_string_lossy();
                entry.name = path.clone().into_owned();
                // Paths that are not valid UTF-8 can look the same.
                while !names.insert(entry.name.clone()) {
                    let number = numbers.entry(path.clone().into_owned()).or_insert(1_u64);
                    *number += 1;
                    entry.name = format!("{path}#{number}");
                }
            }
            info!(path = %printable(&entry.path), name = %printable(&entry.name), "watching a file");
            let labels = self.labels(&entry);
            let source = Source::new(entry, labels, self.next);
            self.next += 1;
            let state = source.state(self.options.keep);
            let place = &mut self.places[at];
            if let Some(files) = place.files.here_mut() {
                files.coming.push(source);
                // Add the state here too, because another thread can find a file with the same name
                // before this thread returns.
                place.states.push(state);
            }
        }
    }

    /// Selects the new sources to watch, and drops watched sources in their favour. Returns the
    /// number of existing files that are not watched.
    fn select(&mut self, new: &mut Vec<(usize, SourceEntry)>) -> usize {
        // The sources of a busy thread stay watched.
        let away = self.places.iter().filter(|place| place.files.here().is_none());
        let most = self.options.most.saturating_sub(away.map(|place| place.states.len()).sum());
        let now = Instant::now();
        self.refused.retain(|_, at| now.saturating_duration_since(*at) < REFUSED);
        let keep = self.options.keep;
        let files = self.places.iter().filter_map(|place| place.files.here());
        let mut watched: Vec<_> = files
            .flat_map(|files| &files.sources)
            .map(|source| (source.rank(keep), source))
            .collect();
        watched.sort_by_key(|((rank, since), source)| (*rank, Reverse(*since), source.number));
        let of_new = |entry: &SourceEntry| {
            let age = entry.modified.and_then(|at| SystemTime::now().duration_since(at).ok());
            if entry.is_junk || self.refused.contains_key(&fingerprint(entry)) {
                Rank::Unreadable
            } else if keep.zip(age).is_some_and(|(keep, age)| age >= keep) {
                Rank::Stale
            } else {
                Rank::Shown
            }
        };
        let candidate = |entry, rank| {
            let SourceEntry { root, branch, .. }: &SourceEntry = entry;
            Candidate { place: root, branch, rank }
        };
        let watched_ones =
            watched.iter().map(|((rank, _), source)| candidate(&source.entry, *rank));
        let new_ones = new.iter().map(|(_, entry)| candidate(entry, of_new(entry)));
        let candidates: Vec<Candidate<'_>> = watched_ones.chain(new_ones).collect();
        let is_chosen = selection::choose(&candidates, most);

        let (mut leaving, mut refused, mut omitted) = (HashSet::new(), Vec::new(), 0);
        for (((rank, _), source), is_chosen) in watched.iter().zip(&is_chosen) {
            if *is_chosen {
                continue;
            }
            leaving.insert(source.number);
            omitted += usize::from(*rank != Rank::Gone);
            if *rank == Rank::Unreadable {
                refused.push(fingerprint(&source.entry));
            }
        }
        let mut of_new = is_chosen[watched.len()..].iter();
        let before = new.len();
        new.retain(|_| of_new.next() == Some(&true));
        omitted += before - new.len();
        if self.refused.len() + refused.len() > MAX_REFUSED {
            self.refused.clear();
        }
        self.refused.extend(refused.into_iter().map(|print| (print, now)));
        for place in &mut self.places {
            let Some(files) = place.files.here_mut() else { continue };
            for one in place.states.extract_if(.., |one| leaving.contains(&one.number)) {
                let path = printable(&one.path);
                info!(%path, "a file is watched no more: another one needs its place");
                files.leaving.insert(one.number);
            }
        }
        omitted
    }

    /// Counts a scan, and logs the first of several incomplete scans.
    fn note_look(&mut self, is_incomplete: bool) {
        let before = std::mem::replace(&mut self.was_incomplete, is_incomplete);
        self.looks[usize::from(is_incomplete)] += 1;
        match (before, is_incomplete) {
            (false, true) => {
                warn!("not all watched places could be looked at: no file counts as gone for that");
            }
            (true, false) => info!("all watched places can be looked at again"),
            _ => {}
        }
    }

    fn labels(&self, entry: &SourceEntry) -> Labels {
        let mut labels = vec![(SEGMENT.to_owned(), entry.name.clone())];
        let more = self.patterns.iter().find_map(|pattern| pattern.labels(&entry.path));
        labels.extend(more.unwrap_or_default());
        labels
    }

    /// Reads all sources whose file systems respond. Returns the snapshots to show, and whether any
    /// source is missing because its last values are too old.
    pub(super) fn read(&mut self) -> (Vec<Arc<SourceSnapshot>>, bool) {
        self.places.iter_mut().for_each(Place::take_back);
        let start = Instant::now();
        self.prepare(start + TURNS);
        let begun = Instant::now();
        turns::read(&mut self.places, self.options.bytes, start + TURNS, start + PATIENCE);
        for files in self.places.iter_mut().filter_map(|place| place.files.here_mut()) {
            // We set this even for a place without sources.
            files.read = Some(begun);
        }
        self.note();
        let now = Instant::now();
        let places = self.places.iter().filter(|place| place.is_shown(now));
        let known = places.flat_map(|place| &place.states);
        let mut snapshots: Vec<(u64, Arc<SourceSnapshot>)> =
            known.filter_map(|one| Some((one.number, one.shown.clone()?))).collect();
        snapshots.sort_by_key(|(number, _)| *number);
        let is_part = self.places.iter().any(|place| !place.is_shown(now));
        (snapshots.into_iter().map(|(_, snapshot)| snapshot).collect(), is_part)
    }

    #[cfg(test)]
    pub(super) fn places_mut(&mut self) -> &mut [Place] {
        &mut self.places
    }

    /// Logs each conflict, but only once.
    pub(super) fn log(&mut self, conflicts: &[Conflict]) {
        for conflict in new_of(&mut self.conflicts, conflicts) {
            let Conflict { name, about, sources: [first, second], .. } = conflict;
            warn!(
                name = %printable(name),
                about = about.name(),
                first = %printable(first),
                second = %printable(second),
                result = conflict.result(),
                "conflicting {}",
                about.subject()
            );
        }
    }

    /// Returns the state of all sources for the daemon's own metrics.
    pub(super) fn status(&self, merged: &MergedFamilies) -> Status {
        let now = Instant::now();
        let mut sources: Vec<(u64, SourceRow)> = Vec::new();
        for place in &self.places {
            let is_old = !place.is_shown(now);
            let rows = place.states.iter().filter_map(|one| Some((one.number, one.row.clone()?)));
            sources.extend(rows.map(|(number, row)| (number, SourceRow { is_old, ..row })));
        }
        sources.sort_by_key(|(number, _)| *number);
        let count = |origin: Origin| {
            let conflicts = merged.conflicts.iter().filter(move |one| one.origin == origin);
            let mut counts = [0; About::ALL.len()];
            conflicts.for_each(|one| counts[one.about as usize] += 1);
            counts
        };
        let sum = |of: fn(&Place) -> u64| self.places.iter().map(of).sum();
        Status {
            sources: sources.into_iter().map(|(_, row)| row).collect(),
            conflicts: count(Origin::File),
            target_conflicts: count(Origin::Target),
            omitted: self.omitted,
            looks: self.looks,
            failures: sum(|place| place.failures),
            unwatched: sum(|place| place.unwatched as u64) as usize,
            late: sum(|place| place.files.here().is_none().into()) as usize,
            ..Status::default()
        }
    }
}

/// Returns a hash of a file and its current state. If two files have the same hash by chance, one
/// of them may be watched later than necessary.
fn fingerprint(entry: &SourceEntry) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&entry.path, entry.id, entry.modified).hash(&mut hasher);
    hasher.finish()
}

/// Returns the conflicts that are not in `known`, and adds them if there is space.
fn new_of<'c>(known: &mut BTreeSet<Conflict>, now: &'c [Conflict]) -> Vec<&'c Conflict> {
    if known.len() + now.len() > MAX_LOGGED {
        let now: BTreeSet<&Conflict> = now.iter().collect();
        known.retain(|one| now.contains(one));
    }
    let is_new = |one: &&Conflict| known.len() < MAX_LOGGED && known.insert((*one).clone());
    now.iter().filter(is_new).collect()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::fs;
    use std::os::unix::ffi::OsStrExt;

    use super::*;
    use quipu_sources::offload::STALE;

    fn table(home: &tempfile::TempDir) -> Table {
        let places = vec![home.path().to_str().unwrap().to_owned()];
        let options = Options { places, bytes: 1 << 20, most: 10, ..Options::default() };
        Table::new(options).unwrap()
    }

    #[test]
    fn directories_of_a_place_that_is_too_old_are_not_known() {
        let home = tempfile::tempdir().unwrap();
        let mut table = table(&home);
        table.scan();
        table.read();
        let now = Instant::now();
        assert_eq!(table.directories(now), [home.path()]);
        assert!(table.directories(now + STALE).is_empty());
    }

    #[test]
    fn a_place_whose_errand_failed_is_not_done() {
        let home = tempfile::tempdir().unwrap();
        let mut table = table(&home);
        let soon = Instant::now() + Duration::from_secs(60);
        assert!(!table.each(|_| std::panic::resume_unwind(Box::new(())), soon));
        assert!(table.each(Files::scan, soon));
    }

    #[test]
    fn files_whose_paths_look_alike_have_names_of_their_own() {
        let home = tempfile::tempdir().unwrap();
        for name in [b"a\xfd.quipu", b"a\xfe.quipu", b"a\xff.quipu"] {
            fs::write(home.path().join(OsStr::from_bytes(name)), "").unwrap();
        }
        let mut table = table(&home);
        table.scan();
        let names: Vec<&str> = table.places[0].states.iter().map(|one| &*one.name).collect();
        let path = home.path().join("a\u{fffd}.quipu").to_str().unwrap().to_owned();
        assert_eq!(names, ["a\u{fffd}", &path, &format!("{path}#2")]);
    }

    /// Creates a table of two directories: `a`, filled by the caller, and `b`, with this number of
    /// segments.
    fn table_of_two(home: &tempfile::TempDir, segments: usize) -> Table {
        let path = |name: &str| home.path().join(name);
        fs::create_dir(path("b")).unwrap();
        for number in 0..segments {
            let registry = quipu::Registry::open(path(&format!("b/{number}.quipu"))).unwrap();
            registry.counter("jobs", "").unwrap().inc();
        }
        let places = ["a", "b"].map(|name| path(name).to_str().unwrap().to_owned()).into();
        let options = Options { places, bytes: 1 << 30, most: 10, ..Options::default() };
        Table::new(options).unwrap()
    }

    /// Returns the number of sources of each place, and the number of unwatched files.
    fn counts(table: &Table) -> (Vec<usize>, usize) {
        (table.places.iter().map(|place| place.states.len()).collect(), table.omitted)
    }

    #[test]
    fn files_that_are_no_segments_leave_the_room_to_segments() {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join("a")).unwrap();
        for number in 0..30 {
            fs::write(home.path().join(format!("a/{number:02}.quipu")), "junk").unwrap();
        }
        let registry = quipu::Registry::open(home.path().join("a/z.quipu")).unwrap();
        registry.counter("jobs", "").unwrap().inc();
        let mut table = table_of_two(&home, 6);
        table.scan();
        assert_eq!(counts(&table), (vec![4, 6], 27));
        assert_eq!(table.read().0.len(), 7);
        table.scan();
        assert_eq!(counts(&table), (vec![4, 6], 27));
    }

    #[test]
    fn files_that_begin_like_segments_leave_the_room_once_they_could_not_be_read() {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join("a")).unwrap();
        for number in 0..30 {
            let path = home.path().join(format!("a/{number:02}.quipu"));
            fs::write(path, quipu_segment::MAGIC).unwrap();
        }
        let mut table = table_of_two(&home, 10);
        table.scan();
        assert_eq!(counts(&table), (vec![5, 5], 30));
        // Each scan tries other files.
        for _ in 0..30 {
            table.read();
            table.scan();
        }
        assert_eq!(counts(&table), (vec![0, 10], 30));
        // All files can be watched again.
        fs::remove_dir_all(home.path().join("b")).unwrap();
        table.scan();
        assert_eq!(counts(&table).0, [10, 0]);
    }

    #[test]
    fn each_of_many_conflicts_is_new_once() {
        let conflict = |number: usize| {
            let (about, origin) = (About::Help, Origin::File);
            let (sources, is_omitted) = (Default::default(), false);
            Conflict { name: number.to_string(), about, sources, origin, is_omitted }
        };
        let all: Vec<Conflict> = (0..2 * MAX_LOGGED).map(conflict).collect();
        let mut known = BTreeSet::new();
        for (range, count) in [
            (0..6000, 6000),
            (0..6000, 0),
            // Removed files make room.
            (3000..11_000, 5000),
            (3000..20_000, 2000),
            (3000..20_000, 0),
        ] {
            assert_eq!(new_of(&mut known, &all[range]).len(), count);
        }
    }
}
