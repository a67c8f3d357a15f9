//! A watched source: a segment file, or a directory with the files of several processes. This
//! module reads it within a memory budget, and determines whether its last values are still shown.
//!
//! A segment file stays open, because its program can write the last values shortly before the name
//! is removed. After the removal, the file is read once more and then closed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use quipu::collector::Collector;
use quipu_segment::printable;
use quipu_store::files::{Directories, Warning};
use tracing::{info, warn};

use super::own::SourceRow;
use super::place::SourceState;
use super::retry::{Retry, Stamp};
use super::selection::Rank;
use quipu_sources::places::{Kind, SourceEntry, explained, is_absent};
use quipu_sources::recorded::{Labels, RecordedFamily, Recorder};
use quipu_sources::recorded::{Origin, SourceSnapshot};
use quipu_sources::segment_file::{Header, SegmentFile};

/// A watched source, with the result of its last reading.
#[derive(Debug)]
pub(super) struct Source {
    /// The number of the source. A source that was found earlier gets a smaller number.
    pub(super) number: u64,
    pub(super) entry: SourceEntry,
    /// The labels of all series, from the path.
    labels: Labels,
    reader: Reader,
    /// The families of the last reading; empty if it failed.
    pub(super) snapshot: Arc<SourceSnapshot>,
    /// The reason why the last reading failed.
    pub(super) fault: Option<String>,
    /// The backoff after invalid contents.
    retry: Option<Retry>,
    /// The number of failed readings since the last call of [`Source::take_failures`].
    failures: u64,
    /// The header of the segment.
    pub(super) header: Option<Header>,
    /// The time when the last process closed the segment.
    closed: Option<SystemTime>,
    /// The time when we noticed that the file was removed.
    gone: Option<Instant>,
    /// Whether the source was ever read, even if that failed.
    is_read: bool,
    /// The approximate size of the rendered series at the last reading, in bytes.
    text: u64,
    /// The part of the budget that the last reading took.
    used: BudgetUse,
    /// The size of the file in bytes.
    bytes: u64,
    /// Whether an omitted metric was logged.
    has_flaw: bool,
    added: Instant,
    /// The time of the last successful reading.
    pub(super) read: Option<SystemTime>,
}

#[derive(Debug)]
enum Reader {
    /// A segment file; `None` before it is opened and after it is closed.
    Segment(Option<SegmentFile>),
    Directory(Box<Directories>),
}

/// How long to show the last values of a segment that no process keeps open; `None` for
/// no limit.
pub(super) type Keep = Option<Duration>;

/// The memory budget of one reading of all sources.
#[derive(Debug, Clone, Copy)]
pub(super) struct Budget {
    /// The maximum size in memory of a single file, including holes.
    most: u64,
    /// The remaining bytes to keep. This excludes holes, because they use no disk space.
    kept: u64,
    /// The remaining bytes to read. This includes holes, so a file can take more of it than of
    /// `kept`.
    read: u64,
    /// The remaining bytes of rendered series, for all sources together.
    text: u64,
    /// The maximum bytes of rendered series for a single source.
    most_text: u64,
}

/// The part of a budget that one reading took.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct BudgetUse {
    kept: u64,
    read: u64,
    text: u64,
}

impl Budget {
    pub(super) fn new(bytes: u64) -> Self {
        let most_text = bytes.max(LEAST_TEXT);
        let (read, text) = (bytes.saturating_mul(2), most_text.saturating_mul(TEXTS));
        Self { most: bytes, kept: bytes, read, text, most_text }
    }

    pub(super) fn take(&mut self, used: BudgetUse) {
        self.kept = self.kept.saturating_sub(used.kept);
        self.read = self.read.saturating_sub(used.read);
        self.text = self.text.saturating_sub(used.text);
    }
}

/// The reason why a reading failed.
enum Fault {
    /// The contents are invalid.
    Contents(String),
    /// A reason that can disappear although the file does not change, such as a full budget.
    Other(String),
}

impl Source {
    pub(super) fn new(entry: SourceEntry, labels: Labels, number: u64) -> Self {
        let reader = match entry.kind {
            Kind::Segment => Reader::Segment(None),
            Kind::Directory => {
                let warned = |warning: &Warning| {
                    warn!(%warning, "a watched file is omitted, in whole or in part");
                };
                let directories = Directories::new([&entry.path]).below(&entry.root);
                let directories = directories.on_warning(warned);
                Reader::Directory(Box::new(directories))
            }
        };
        let path = std::path::absolute(&entry.path).unwrap_or_default();
        let name = entry.name.clone();
        let snapshot = Arc::new(SourceSnapshot {
            name,
            path,
            labels: labels.clone(),
            ..SourceSnapshot::default()
        });
        Self {
            number,
            entry,
            labels,
            reader,
            snapshot,
            fault: None,
            retry: None,
            failures: 0,
            header: None,
            closed: None,
            gone: None,
            is_read: false,
            text: 0,
            used: BudgetUse::default(),
            bytes: 0,
            has_flaw: false,
            added: Instant::now(),
            read: None,
        }
    }

    /// Opens the file, because its values then stay readable even if its name is removed.
    pub(super) fn open(&mut self) {
        if let Reader::Segment(file @ None) = &mut self.reader {
            // We ignore the error, because the reading reports it.
            *file = open(&self.entry).ok();
        }
    }

    /// Gets the size of the file from the file system, for the order of reading.
    pub(super) fn read_size(&mut self) {
        let file = match &self.reader {
            Reader::Segment(file) => file.as_ref(),
            Reader::Directory(_) => None,
        };
        self.bytes = file.map_or(0, |file| file.allocated().max(file.used()));
    }

    /// Returns the current state of the source.
    pub(super) fn state(&self, keep: Keep) -> SourceState {
        let shown = self.shown(keep);
        let row = self.is_read.then(|| SourceRow {
            name: self.entry.name.clone(),
            path: printable(&self.entry.path).to_string(),
            kind: match self.entry.kind {
                Kind::Segment => "segment",
                Kind::Directory => "directory",
            },
            header: self.header,
            is_open: self.is_open().map(|is_open| is_open && !self.is_gone()),
            is_faulty: self.fault.is_some(),
            is_shown: shown.is_some(),
            is_old: false,
            read: self.read,
            series: self.snapshot.series,
        });
        SourceState {
            number: self.number,
            path: self.entry.path.clone(),
            name: self.entry.name.clone(),
            used: self.used,
            shown: shown.cloned(),
            row,
        }
    }

    /// Compares the source with the entry of a scan. Returns whether the path now leads to another
    /// file.
    pub(super) fn note_entry(&mut self, entry: &SourceEntry) -> bool {
        let is_other = match &self.reader {
            Reader::Segment(Some(file)) => entry.id != file.id(),
            // The file was closed when its name was removed.
            Reader::Segment(None) => self.gone.is_some(),
            Reader::Directory(_) => false,
        };
        let is_other = is_other || entry.kind != self.entry.kind;
        if !is_other {
            (self.entry.id, self.entry.modified) = (entry.id, entry.modified);
        }
        is_other
    }

    /// Returns whether the file was really removed, after a scan did not find it.
    pub(super) fn is_absent(&self, is_incomplete: bool) -> bool {
        match std::fs::symlink_metadata(&self.entry.path) {
            Err(error) => is_absent(&error),
            // The path exists, but a scan no longer accepts it: a directory contains no more
            // values, or a file was replaced by a symbolic link. An incomplete scan does not prove
            // this.
            Ok(_) => !is_incomplete,
        }
    }

    /// Records whether the file was removed. Returns whether the source can still show values.
    pub(super) fn note_gone(&mut self, is_gone: bool, keep: Keep, budget: &mut Budget) -> bool {
        match (is_gone, self.gone) {
            (false, _) => self.gone = None,
            (true, None) => {
                if keep.is_some() && matches!(self.reader, Reader::Segment(_)) {
                    self.retry = None;
                    self.read(budget);
                }
                self.gone = Some(Instant::now());
                self.used = BudgetUse::default();
                // Close the file, because it takes disk space as long as any process keeps it open.
                if let Reader::Segment(file) = &mut self.reader {
                    *file = None;
                }
            }
            (true, Some(_)) => {}
        }
        match (self.gone, keep) {
            (None, _) => true,
            // There are no last values.
            (Some(_), _) if self.fault.is_some() || self.snapshot.families.is_empty() => false,
            (Some(_), None) => false,
            (Some(since), Some(keep)) => since.elapsed() < keep,
        }
    }

    /// Returns the rank for the selection of sources, and a time. Within a rank, sources with a
    /// later time take precedence.
    pub(super) fn rank(&self, keep: Keep) -> (Rank, Option<Instant>) {
        if self.gone.is_some() {
            (Rank::Gone, self.gone)
        } else if self.fault.is_some() && self.read.is_none() {
            (Rank::Unreadable, None)
        } else if self.is_read && self.is_expired(keep) {
            (Rank::Expired, Some(self.added))
        } else {
            (Rank::Shown, None)
        }
    }

    /// Returns the approximate cost of a reading in bytes.
    pub(super) fn size(&self) -> u64 {
        self.bytes.max(self.text)
    }

    /// Returns the number of failed readings since the last call.
    pub(super) fn take_failures(&mut self) -> u64 {
        std::mem::take(&mut self.failures)
    }

    /// Returns whether any process keeps the source open; `None` if this is unknown.
    pub(super) fn is_open(&self) -> Option<bool> {
        match &self.reader {
            Reader::Segment(file) if file.is_some() || self.gone.is_some() => {
                Some(self.closed.is_none())
            }
            _ => None,
        }
    }

    /// Returns whether the file is removed.
    pub(super) fn is_gone(&self) -> bool {
        self.gone.is_some()
    }

    /// Returns the snapshot to show, if any.
    pub(super) fn shown(&self, keep: Keep) -> Option<&Arc<SourceSnapshot>> {
        let is_shown = self.is_read && self.fault.is_none() && !self.is_expired(keep);
        is_shown.then_some(&self.snapshot)
    }

    fn is_expired(&self, keep: Keep) -> bool {
        let is_over = |since: SystemTime| keep.is_some_and(|keep| age(since) >= keep);
        self.closed.is_some_and(is_over)
    }

    fn stamp(&self) -> Stamp {
        match &self.reader {
            Reader::Segment(Some(file)) => file.stamp(),
            _ => (0, None),
        }
    }

    /// Reads the source within the budget, and subtracts the cost.
    pub(super) fn read(&mut self, budget: &mut Budget) {
        let (now, stamp) = (Instant::now(), self.stamp());
        let is_left_alone = self.retry.is_some_and(|retry| !retry.is_due(now, stamp));
        if self.gone.is_some() || is_left_alone {
            return;
        }
        self.used = BudgetUse::default();
        let begun = SystemTime::now();
        // We catch panics, because the file is from another program, and a bug in a reader must not
        // end the agent.
        let read = catch_unwind(AssertUnwindSafe(|| self.record(budget)));
        let failed = |_| Err(Fault::Contents("its reader failed: report that".into()));
        let recorded = read.unwrap_or_else(failed);
        self.is_read = true;
        match recorded {
            Ok(recorder) => {
                if let (Some(flaw), false) = (recorder.flaw(), self.has_flaw) {
                    let (path, flaw) = (printable(&self.entry.path), printable(flaw));
                    warn!(%path, what = %flaw, "a part of a watched file is omitted");
                    self.has_flaw = true;
                }
                let (families, series) = recorder.finish();
                self.snapshot = self.snapshot(families, series);
                (self.read, self.retry) = (Some(begun), None);
                if self.fault.take().is_some() {
                    info!(path = %printable(&self.entry.path), "a watched file can be read again");
                }
            }
            Err(fault) => {
                self.forget();
                self.used = BudgetUse::default();
                self.failures += 1;
                let is_own = matches!(fault, Fault::Contents(_));
                self.retry = is_own.then(|| Retry::after(self.retry, Instant::now(), stamp));
                let (Fault::Contents(reason) | Fault::Other(reason)) = fault;
                if self.fault.as_ref() != Some(&reason) {
                    let path = printable(&self.entry.path);
                    warn!(%path, what = %reason, "a watched file is omitted");
                }
                self.fault = Some(reason);
            }
        }
    }

    fn forget(&mut self) {
        if !self.snapshot.families.is_empty() {
            self.snapshot = self.snapshot(Vec::new(), 0);
        }
    }

    fn snapshot(&self, families: Vec<RecordedFamily>, series: usize) -> Arc<SourceSnapshot> {
        let (name, path) = (self.entry.name.clone(), self.snapshot.path.clone());
        let (origin, labels) = (Origin::File, self.labels.clone());
        Arc::new(SourceSnapshot { origin, name, path, labels, families, series })
    }

    fn record(&mut self, budget: &mut Budget) -> Result<Recorder, Fault> {
        let most = budget.most_text.min(budget.text);
        let mut recorder = Recorder::of_file(&self.labels, most).after(&self.snapshot);
        let slot = match &mut self.reader {
            Reader::Directory(directories) => {
                directories.collect(&mut recorder);
                return self.take_text(recorder, budget);
            }
            Reader::Segment(slot) => slot,
        };
        let file = match slot {
            Some(file) => file,
            None => slot.insert(open(&self.entry).map_err(Fault::Other)?),
        };
        if file.is_empty() {
            // Nothing was ever read from this file, so its process only just created it.
            let is_new = self.header.is_none() && self.fault.is_none();
            return if is_new { Ok(recorder) } else { Err(Fault::Contents(EMPTY.to_owned())) };
        }
        match file.is_open() {
            Some(false) if self.closed.is_none() => {
                // At the first reading, use the modification time, because the segment may have
                // been closed long ago.
                let first = file.stamp().1.filter(|_| !self.is_read);
                self.closed = Some(first.unwrap_or_else(SystemTime::now));
            }
            Some(false) => {}
            _ => self.closed = None,
        }
        let used = file.used();
        let kept = file.allocated().min(used);
        if used > budget.most {
            return Err(Fault::Contents(TOO_LARGE.to_owned()));
        }
        if kept > budget.kept || used > budget.read {
            return Err(Fault::Other(NO_ROOM.to_owned()));
        }
        let read = file.visit(budget.read, &mut recorder);
        // A failed reading counts too, because its bytes were read.
        self.used = BudgetUse { kept, read: used, text: 0 };
        budget.take(self.used);
        let header = read.map_err(Fault::Contents)?;
        self.header = Some(header);
        self.take_text(recorder, budget)
    }

    /// Subtracts the rendered size of the recorded series from the budget.
    fn take_text(&mut self, recorder: Recorder, budget: &mut Budget) -> Result<Recorder, Fault> {
        let text = recorder.text();
        // This size determines the order of the next reading. If the recorder stopped early, the
        // size is only a lower bound.
        self.text = if recorder.is_over() { self.text.max(text) } else { text };
        if text > budget.most_text {
            return Err(Fault::Contents(TOO_MUCH_TEXT.to_owned()));
        }
        if recorder.is_over() {
            return Err(Fault::Other(NO_ROOM_FOR_TEXT.to_owned()));
        }
        budget.text -= text;
        self.used.text = text;
        Ok(recorder)
    }
}

/// The minimum limit on the rendered size of one source, in bytes. The limit is `--segments-bytes`
/// if this is larger.
const LEAST_TEXT: u64 = 1 << 30;
/// The limit on the rendered size of all sources, as a multiple of the limit on one.
const TEXTS: u64 = 4;

const EMPTY: &str = "truncated: it has 0 bytes";
const TOO_LARGE: &str = "it has more bytes in use than --segments-bytes, which are for all files";
const TOO_MUCH_TEXT: &str = "as text, its series are longer than --segments-bytes and than 1 GiB; \
                             see whether many of them share a long value of a label";
const NO_ROOM_FOR_TEXT: &str =
    "as text, all series together are longer than four times --segments-bytes, and than 4 GiB";

/// The message contains no numbers, because they change with each reading, and an error must be
/// logged only once.
const NO_ROOM: &str = "no room for it is left in --segments-bytes; smaller files take it first";

/// Opens the file of an entry. Fails if another file replaced it since the scan.
fn open(entry: &SourceEntry) -> Result<SegmentFile, String> {
    let file = SegmentFile::open_below(&entry.root, &entry.path);
    let file = file.map_err(|error| explained(&error))?;
    if file.id() != entry.id {
        return Err("another file took its place at this moment".to_owned());
    }
    Ok(file)
}

/// Reads a segment like a watched source, for tests and fuzzing.
#[doc(hidden)]
pub fn read_segment(
    path: &std::path::Path,
    name: String,
    shown_path: std::path::PathBuf,
    labels: Labels,
) -> Option<Arc<SourceSnapshot>> {
    let file = SegmentFile::open(path).ok()?;
    let mut recorder = Recorder::of_file(&labels, LEAST_TEXT);
    file.visit(LEAST_TEXT, &mut recorder).ok()?;
    let (families, series) = recorder.finish();
    let (origin, path) = (Origin::File, shown_path);
    Some(Arc::new(SourceSnapshot { origin, name, path, labels, families, series }))
}

/// Returns the time since `since`; zero if the clock was set back.
fn age(since: SystemTime) -> Duration {
    SystemTime::now().duration_since(since).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use quipu_sources::places::{self, Scan};

    /// Creates a source with a counter. Also returns the scan that found it, and the directory and
    /// the registry that both depend on.
    fn source() -> (Source, Scan, (tempfile::TempDir, quipu::Registry)) {
        let home = tempfile::tempdir().unwrap();
        let registry = quipu::Registry::open(home.path().join("a.quipu")).unwrap();
        registry.counter("jobs", "").unwrap().inc();
        let scan = places::scan(&[home.path().to_str().unwrap().to_owned()]);
        (Source::new(scan.sources[0].clone(), Labels::new(), 0), scan, (home, registry))
    }

    #[test]
    fn a_source_with_too_much_text_is_omitted() {
        let (mut source, _, _files) = source();
        let mut budget = Budget { text: 5000, ..Budget::new(1 << 30) };
        source.read(&mut budget);
        assert!(source.fault.is_none() && budget.text < 5000, "{:?}", source.fault);
        // The text budget is used up for a second source.
        budget.text = 5;
        source.read(&mut budget);
        assert!(source.fault.as_ref().unwrap().contains("all series together"));
        assert!(source.retry.is_none() && source.snapshot.families.is_empty());
        let mut budget = Budget { most_text: 5, ..Budget::new(1 << 30) };
        source.read(&mut budget);
        assert!(source.fault.as_ref().unwrap().contains("its series are longer"));
        assert!(source.retry.is_some());
        // The file itself is too large, too.
        source.retry = None;
        source.read(&mut Budget::new(100));
        assert!(source.fault.as_ref().unwrap().contains("more bytes in use"));
    }

    #[test]
    fn an_empty_file_is_new_or_was_cut() {
        let (mut source, _, _files) = source();
        let path = source.entry.path.clone();
        let bytes = fs::read(&path).unwrap();
        let mut fault = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            source.retry = None;
            source.read(&mut Budget::new(1 << 30));
            source.fault.clone().unwrap_or_default()
        };
        assert_eq!([fault(b""), fault(&bytes)], ["", ""]);
        // An empty file stays invalid until it contains something to read.
        assert_eq!([fault(b""), fault(b""), fault(&bytes)], [EMPTY, EMPTY, ""]);
        // A file that was never readable stays invalid, too, when it becomes empty.
        assert!(fault(b"not a segment").contains("is not a segment"));
        assert_eq!(fault(b""), EMPTY);
    }

    #[test]
    fn a_file_that_is_gone_is_read_once_more_and_closed() {
        let (mut source, scan, _files) = source();
        source.open();
        fs::remove_file(&source.entry.path).unwrap();
        let keep = Some(Duration::from_secs(3600));
        assert!(source.note_gone(true, keep, &mut Budget::new(1 << 30)));
        assert!(matches!(source.reader, Reader::Segment(None)));
        assert!(source.shown(keep).is_some() && source.is_open().is_some());
        // Another file can have the same number now.
        assert!(source.note_entry(&scan.sources[0]));
    }

    #[test]
    fn a_file_that_replaced_another_is_not_read() {
        let home = tempfile::tempdir().unwrap();
        let path = |name: &str| home.path().join(name);
        fs::write(path("a.quipu"), "not a segment").unwrap();
        let scan = places::scan(&[home.path().to_str().unwrap().to_owned()]);
        let fault = || {
            let mut source = Source::new(scan.sources[0].clone(), Labels::new(), 0);
            source.open();
            source.read(&mut Budget::new(1 << 20));
            source.fault.unwrap()
        };
        assert!(fault().contains("is not a segment"), "{}", fault());
        fs::write(path("other"), "something else").unwrap();
        fs::rename(path("other"), path("a.quipu")).unwrap();
        assert!(fault().contains("another file took its place"), "{}", fault());
        fs::rename(path("a.quipu"), path("other")).unwrap();
        symlink("other", path("a.quipu")).unwrap();
        assert!(fault().contains("it is a symbolic link"), "{}", fault());
    }
}
