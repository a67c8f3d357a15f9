//! The sources that are watched, in the order in which they were seen first.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use quipu_segment::printable;
use tracing::{info, warn};

use super::Options;
use super::context::Contexts;
use super::merged::{About, Conflict, Merged, Origin, Seen};
use super::own::{Shown, Status};
use super::pattern::{Matcher, SEGMENT};
use super::places::{Found, Kind, Look};
use super::recorded::Labels;
use super::source::{Budget, Source, Terms};
use crate::segment_file::{SegmentFile, file_id};

/// The sources.
#[derive(Debug)]
pub(super) struct Table {
    options: Options,
    patterns: Vec<Matcher>,
    contexts: Option<Contexts>,
    sources: Vec<Source>,
    /// The sources that are left out because there are too many, at the last look.
    left_out: usize,
    /// What was logged: each fault of a place and each conflict is logged once.
    faults: HashMap<PathBuf, String>,
    conflicts: BTreeSet<Conflict>,
    was_cut: bool,
    was_incomplete: bool,
    /// The number of looks that were complete, and of others.
    looks: [u64; 2],
    /// How often a source could not be read.
    failures: u64,
}

/// The most conflicts and faults that are remembered so as not to log them again.
const MAX_LOGGED: usize = 10_000;

impl Table {
    /// An empty table.
    pub(super) fn new(options: Options) -> Self {
        let patterns = options.labels.iter().filter_map(super::Pattern::matcher).collect();
        let contexts = options.contexts.clone().map(Contexts::new);
        Self {
            options,
            patterns,
            contexts,
            sources: Vec::new(),
            left_out: 0,
            faults: HashMap::new(),
            conflicts: BTreeSet::new(),
            was_cut: false,
            was_incomplete: false,
            looks: [0; 2],
            failures: 0,
        }
    }

    pub(super) fn options(&self) -> &Options {
        &self.options
    }

    fn terms(&self) -> Terms {
        let own = std::fs::metadata(&self.options.own).ok();
        Terms { keep: self.options.keep, own: own.as_ref().map(file_id) }
    }

    /// Takes over what a look has found.
    pub(super) fn update(&mut self, look: Look) {
        let terms = self.terms();
        self.log_faults(&look);
        self.note_look(look.is_incomplete);
        // Of all files that are gone: each is read once more.
        let mut budget = Budget::new(self.options.bytes);
        let found: HashMap<&PathBuf, &Found> =
            look.found.iter().map(|found| (&found.path, found)).collect();
        self.sources.retain_mut(|source| {
            let found = found.get(&source.found.path);
            if found.is_some_and(|found| source.note_found(found)) {
                info!(path = %printable(&source.found.path), "a watched file was replaced");
                return false;
            }
            let was_gone = source.is_gone();
            let is_gone = found.is_none() && (was_gone || source.is_absent(look.is_incomplete));
            let is_kept = source.note_gone(is_gone, terms, &mut budget);
            if !is_kept || is_gone && !was_gone {
                let path = printable(&source.found.path);
                info!(%path, kept = is_kept, "a watched file is gone");
            }
            is_kept
        });
        self.add(look.found, terms);
        self.refresh_contexts(terms);
        let is_cut = look.is_cut || self.left_out > 0;
        if is_cut && !self.was_cut {
            warn!(
                watched = self.sources.len(),
                left_out = self.left_out,
                "there are more files than are watched; see --segments-count"
            );
        }
        self.was_cut = is_cut;
    }

    /// Watches what was found and is not watched yet.
    fn add(&mut self, found: Vec<Found>, terms: Terms) {
        let mut known: HashSet<PathBuf> =
            self.sources.iter().map(|source| source.found.path.clone()).collect();
        let mut names: HashSet<String> =
            self.sources.iter().map(|source| source.found.name.clone()).collect();
        // Two places may lead to one file.
        let new = found.into_iter().filter(|found| known.insert(found.path.clone()));
        let mut new: Vec<Found> = new.collect();
        let room = self.options.most.saturating_sub(self.sources.len());
        self.make_room(new.len().saturating_sub(room), &new, terms);
        let room = self.options.most.saturating_sub(self.sources.len());
        self.left_out = new.len().saturating_sub(room);
        new.truncate(room);
        for mut found in new {
            if !names.insert(found.name.clone()) {
                found.name = found.path.to_string_lossy().into_owned();
                names.insert(found.name.clone());
            }
            info!(path = %printable(&found.path), name = %printable(&found.name), "watching a file");
            let labels = self.labels(&found);
            let mut source = Source::new(found, labels);
            source.open();
            self.sources.push(source);
        }
    }

    /// Forgets up to `count` sources for new ones: those that are gone first, then those whose time
    /// is up, for files that changed later.
    fn make_room(&mut self, count: usize, new: &[Found], terms: Terms) {
        if count == 0 {
            return;
        }
        let is_fresh = |found: &&Found| {
            let age = found.modified.and_then(|at| SystemTime::now().duration_since(at).ok());
            terms.keep.is_none_or(|keep| age.is_none_or(|age| age < keep))
        };
        let fresh = new.iter().filter(is_fresh).count();
        let sources = self.sources.iter().enumerate();
        let mut give_way: Vec<_> =
            sources.filter_map(|(at, source)| Some((source.gives_way(terms)?, at))).collect();
        give_way.sort_unstable();
        let gone = give_way.iter().filter(|((is_there, _), _)| !is_there).count();
        // A file whose time is up must not take the place of another one in turn.
        give_way.truncate(count.min(gone.max(fresh)));
        let leaving: HashSet<usize> = give_way.into_iter().map(|(_, at)| at).collect();
        let mut at = 0;
        self.sources.retain(|source| {
            let is_kept = !leaving.contains(&at);
            at += 1;
            if !is_kept {
                let path = printable(&source.found.path);
                info!(%path, "an old file is watched no more: another one needs its place");
            }
            is_kept
        });
    }

    /// Counts a look, and logs the first of some that were not complete.
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

    fn labels(&self, found: &Found) -> Labels {
        let mut labels = vec![(SEGMENT.to_owned(), found.name.clone())];
        let more = self.patterns.iter().find_map(|pattern| pattern.labels(&found.path));
        labels.extend(more.unwrap_or_default());
        labels
    }

    fn log_faults(&mut self, look: &Look) {
        let now: HashMap<&PathBuf, &String> =
            look.faults.iter().take(MAX_LOGGED).map(|(path, what)| (path, what)).collect();
        for (path, what) in &now {
            if self.faults.get(*path) != Some(*what) {
                warn!(path = %printable(*path), %what, "a place cannot be watched");
            }
        }
        self.faults = now.into_iter().map(|(path, what)| (path.clone(), what.clone())).collect();
    }

    /// Finds out which labels processes give to the segments that they have open.
    fn refresh_contexts(&mut self, terms: Terms) {
        let Some(contexts) = &mut self.contexts else { return };
        let segments = self.sources.iter().filter_map(|source| source.segment(terms));
        let is_open = |file: &SegmentFile| (file.id(), file.is_open().unwrap_or(true));
        contexts.refresh(segments.map(is_open).collect());
        for source in &mut self.sources {
            if let Some(id) = source.segment(terms).map(SegmentFile::id) {
                source.note_context(contexts.labels(id));
            }
        }
    }

    /// Reads all sources, and returns what is to be shown.
    pub(super) fn read(&mut self) -> Vec<Arc<Seen>> {
        let terms = self.terms();
        self.refresh_contexts(terms);
        let mut budget = Budget::new(self.options.bytes);
        // The small ones first: a large one takes the room of none that is smaller.
        let mut sources: Vec<(u64, &mut Source)> =
            self.sources.iter_mut().map(|source| (source.size(), source)).collect();
        sources.sort_by_key(|(size, _)| *size);
        for (_, source) in sources {
            source.read(terms, &mut budget);
            self.failures += source.take_failures();
        }
        self.sources.iter().filter_map(|source| source.shown(terms).cloned()).collect()
    }

    /// Logs each conflict once.
    pub(super) fn log(&mut self, conflicts: &[Conflict]) {
        if self.conflicts.len() + conflicts.len() > MAX_LOGGED {
            self.conflicts.clear();
        }
        for conflict in conflicts.iter().take(MAX_LOGGED) {
            if self.conflicts.insert(conflict.clone()) {
                let Conflict { name, about, sources: [first, second], .. } = conflict;
                warn!(
                    name = %printable(name),
                    about = about.name(),
                    first = %printable(first),
                    second = %printable(second),
                    "metrics of several sources contradict each other"
                );
            }
        }
    }

    /// What the daemon's own metrics say of the sources.
    pub(super) fn status(&self, merged: &Merged) -> Status {
        let terms = self.terms();
        let known = self.sources.iter().filter(|source| source.is_known());
        let sources = known.map(|source| Shown {
            name: source.found.name.clone(),
            path: printable(&source.found.path).to_string(),
            kind: match source.found.kind {
                Kind::Segment => "segment",
                Kind::Directory => "directory",
            },
            header: source.header,
            is_open: source.is_open().map(|is_open| is_open && !source.is_gone()),
            is_faulty: source.fault.is_some(),
            is_shown: source.shown(terms).is_some(),
            read: source.read,
            series: source.seen.series,
        });
        let count = |origin: Origin| {
            let conflicts = merged.conflicts.iter().filter(move |one| one.origin == origin);
            let mut counts = [0; About::ALL.len()];
            conflicts.for_each(|one| counts[one.about as usize] += 1);
            counts
        };
        Status {
            sources: sources.collect(),
            conflicts: count(Origin::File),
            target_conflicts: count(Origin::Target),
            left_out: self.left_out,
            looks: self.looks,
            failures: self.failures,
            contexts: self.contexts.as_ref().map(Contexts::counts),
            ..Status::default()
        }
    }
}
