//! One source that is watched: a segment file, or a directory with files of several processes.
//!
//! A segment file stays open: after its name is gone, it is read once more, so that the last values
//! are the final ones.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use quipu::collector::Collector;
use quipu_segment::printable;
use quipu_store::files::{Directories, Warning};
use tracing::{info, warn};

use super::merged::{Origin, Seen};
use super::places::{Found, Kind};
use super::recorded::{Labels, Recorded, Recorder};
use crate::segment_file::{FileId, Header, SegmentFile, file_id};

/// A source that is watched.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) found: Found,
    labels: Labels,
    reader: Reader,
    /// What was read of it last; nothing if that failed.
    pub(super) seen: Arc<Seen>,
    /// Why it could not be read, the last time.
    pub(super) fault: Option<String>,
    /// What the header of a segment says.
    pub(super) header: Option<Header>,
    /// Since when no process has had it open.
    closed: Option<SystemTime>,
    /// Since when its name is gone.
    gone: Option<SystemTime>,
    /// Whether it has been read.
    is_read: bool,
    /// When it could be read last.
    pub(super) read: Option<SystemTime>,
}

#[derive(Debug)]
enum Reader {
    /// The file, once it could be opened.
    Segment(Option<SegmentFile>),
    Directory(Box<Directories>),
}

/// What is asked of a source.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms {
    /// How long the last values are shown.
    pub(super) keep: Option<Duration>,
    /// The daemon's own state file, which is not a source.
    pub(super) own: Option<FileId>,
}

impl Source {
    pub(super) fn new(found: Found, labels: Labels) -> Self {
        let reader = match found.kind {
            Kind::Segment => Reader::Segment(None),
            Kind::Directory => {
                let warned = |warning: &Warning| {
                    warn!(%warning, "a watched file is left out, in whole or in part");
                };
                let directories = Directories::new([&found.path]).on_warning(warned);
                Reader::Directory(Box::new(directories))
            }
        };
        let path = std::path::absolute(&found.path).unwrap_or_default();
        let (name, given) = (found.name.clone(), labels.clone());
        let seen = Arc::new(Seen { name, path, labels: given, ..Seen::default() });
        Self {
            found,
            labels,
            reader,
            seen,
            fault: None,
            header: None,
            closed: None,
            gone: None,
            is_read: false,
            read: None,
        }
    }

    /// Opens the file, so that its values can be read even if its name is gone soon.
    pub(super) fn open(&mut self) {
        if let Reader::Segment(file @ None) = &mut self.reader {
            // What is wrong shows when it is read.
            *file = SegmentFile::open(&self.found.path).ok();
        }
    }

    /// Whether the path leads to another file by now.
    pub(super) fn is_replaced(&self) -> bool {
        match &self.reader {
            Reader::Segment(Some(file)) => {
                std::fs::metadata(&self.found.path).is_ok_and(|data| file_id(&data) != file.id())
            }
            _ => false,
        }
    }

    /// Notes that the name of the source is gone, or there again. Returns whether the source is
    /// still of use.
    pub(super) fn note_gone(&mut self, is_gone: bool, terms: Terms, budget: &mut u64) -> bool {
        match (is_gone, self.gone) {
            (false, _) => self.gone = None,
            (true, None) => {
                if terms.keep.is_some() && matches!(self.reader, Reader::Segment(_)) {
                    self.read(terms, budget);
                }
                self.gone = Some(SystemTime::now());
            }
            (true, Some(_)) => {}
        }
        match (self.gone, terms.keep) {
            (None, _) => true,
            // Nothing is known of it that could be kept.
            (Some(_), _) if self.fault.is_some() || self.seen.families.is_empty() => false,
            (Some(_), None) => false,
            (Some(since), Some(keep)) => age(since) < keep,
        }
    }

    /// Whether a process has the source open; `None` if that is not known.
    pub(super) fn is_open(&self) -> Option<bool> {
        match &self.reader {
            Reader::Segment(Some(_)) => Some(self.closed.is_none()),
            _ => None,
        }
    }

    /// Whether it was read, or could not be. The daemon's own state file is not.
    pub(super) fn is_known(&self) -> bool {
        self.is_read
    }

    /// Whether its name is gone.
    pub(super) fn is_gone(&self) -> bool {
        self.gone.is_some()
    }

    /// What to show of it.
    pub(super) fn shown(&self, terms: Terms) -> Option<&Arc<Seen>> {
        let is_over = |since: SystemTime| terms.keep.is_some_and(|keep| age(since) >= keep);
        let is_over = self.closed.is_some_and(is_over);
        (self.is_read && self.fault.is_none() && !is_over).then_some(&self.seen)
    }

    /// Reads the source. The bytes that a segment has in use are taken from the budget.
    pub(super) fn read(&mut self, terms: Terms, budget: &mut u64) {
        if self.gone.is_some() {
            return;
        }
        let begun = SystemTime::now();
        // What is read was written by others: a flaw of a reader must not end the agent.
        let read = catch_unwind(AssertUnwindSafe(|| self.record(terms, budget)));
        let recorded = read.unwrap_or_else(|_| Err("its reader failed: report that".into()));
        self.is_read = true;
        match recorded {
            Ok(Some(recorder)) => {
                let (families, series) = recorder.finish();
                self.seen = self.seen(families, series);
                self.read = Some(begun);
                if self.fault.take().is_some() {
                    info!(path = %printable(&self.found.path), "a watched file can be read again");
                }
            }
            // It is not a source.
            Ok(None) => self.is_read = false,
            Err(what) => {
                self.forget();
                if self.fault.as_ref() != Some(&what) {
                    let path = printable(&self.found.path);
                    warn!(%path, %what, "a watched file is left out");
                }
                self.fault = Some(what);
            }
        }
    }

    fn forget(&mut self) {
        if !self.seen.families.is_empty() {
            self.seen = self.seen(Vec::new(), 0);
        }
    }

    fn seen(&self, families: Vec<Recorded>, series: usize) -> Arc<Seen> {
        let (name, path) = (self.found.name.clone(), self.seen.path.clone());
        let (origin, labels) = (Origin::File, self.labels.clone());
        Arc::new(Seen { origin, name, path, labels, families, series })
    }

    fn record(&mut self, terms: Terms, budget: &mut u64) -> Result<Option<Recorder>, String> {
        let path = &self.found.path;
        let mut recorder = Recorder::default();
        let slot = match &mut self.reader {
            Reader::Directory(directories) => {
                directories.collect(&mut recorder);
                return Ok(Some(recorder));
            }
            Reader::Segment(slot) => slot,
        };
        let file = match slot {
            Some(file) => file,
            None => slot.insert(SegmentFile::open(path).map_err(|error| error.to_string())?),
        };
        if terms.own == Some(file.id()) {
            return Ok(None);
        }
        // Its process has just created it.
        if file.is_empty() {
            return Ok(Some(recorder));
        }
        match file.is_open() {
            Some(false) if self.closed.is_none() => {
                // The first time, it may have been closed long ago.
                let first = file.modified().filter(|_| !self.is_read);
                self.closed = Some(first.unwrap_or_else(SystemTime::now));
            }
            Some(false) => {}
            _ => self.closed = None,
        }
        let header = file.visit(*budget, &mut recorder)?;
        *budget = budget.saturating_sub(header.used);
        self.header = Some(header);
        Ok(Some(recorder))
    }
}

/// How long ago that was; nothing if the clock was set back.
fn age(since: SystemTime) -> Duration {
    SystemTime::now().duration_since(since).unwrap_or_default()
}
