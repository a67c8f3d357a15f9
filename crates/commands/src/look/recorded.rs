//! Looks at the past: what the flight recorder of a segment recorded, tick by tick.
//!
//! The file may be in use, and is not trusted: `quipu_segment` reads it with bounds. Only the times
//! of the ticks are kept; a look reads its tick again.

use std::collections::{HashMap, HashSet};
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};

use quipu::snapshot::{Decoder, Sink};
use quipu_segment::history::{RecordingInfo, SeriesId, Tick};
use quipu_segment::inspect::{Inspection, SeriesSeen};
use quipu_segment::printable;

use super::sink::LookSink;
use super::{Look, MAX_PROBLEMS, foreign};

/// A file with a flight recorder.
pub(crate) struct Recorded {
    path: PathBuf,
    inspection: Inspection,
    families: HashMap<u64, Decoder>,
    moments: Vec<Moment>,
    /// The series that were shown. What is removed in a file that is in use keeps its labels here.
    names: HashMap<SeriesId, Name>,
    info: RecordingInfo,
}

/// When a tick was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Moment {
    /// Nanoseconds of the segment's time, which never goes back.
    pub(crate) time: u64,
    /// Nanoseconds of Unix time, as the wall clock was set.
    pub(crate) unix: u64,
}

/// What happened to the process that records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writer {
    Lives,
    /// It ended in good order.
    Ended,
    Died,
    /// Nothing is known of it.
    Unknown,
}

/// What is known of a series.
#[derive(Default)]
struct Name {
    labels: Vec<(String, String)>,
    /// Whether they are none of its own, since it was not found.
    is_removed: bool,
    is_overflow: bool,
    /// Nanoseconds of Unix time since which it counts; 0 if that is not known.
    start: u64,
}

/// The most cells of ticks that are read beside those that are wanted: those of the largest chunk
/// of a recorder, which has 4 words for each tick of 2^14 cells in a sixteenth of 64 MiB.
const MAX_OTHER_CELLS: u64 = 1 << 31;
/// The most cells of a tick.
const CELLS_PER_TICK: u64 = 1 << 14;
/// The names that are kept, although the last moments have no such series.
const MAX_NAMES: usize = 1 << 12;

/// How far a walk over ticks may go.
struct Bounds<'s> {
    /// The cells that may still be read.
    cells: u64,
    /// Whether the user waits for something else, such as the end of the program.
    stop: &'s dyn Fn() -> bool,
    is_over: bool,
}

impl Bounds<'_> {
    /// Takes a tick.
    fn take(&mut self, tick: &Tick<'_>) -> ControlFlow<()> {
        let left = self.cells.checked_sub(tick.cells() as u64);
        self.cells = left.unwrap_or(0);
        self.is_over |= left.is_none() || (self.stop)();
        if self.is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// Why a file has no past.
const NO_RECORDER: &str = "the file has no flight recorder; a program starts it with \
    Registry::record, and quipu record FILE from outside";

impl Recorded {
    /// Opens a file, in which something is recorded.
    ///
    /// # Errors
    /// What is missing, with the name of the file.
    pub(crate) fn open(path: &Path) -> Result<Self, String> {
        let with_name = |what: String| format!("{}: {what}", printable(path));
        let recorded = inspect(path).and_then(|inspection| Self::new(path, inspection));
        let recorded = recorded.map_err(with_name)?;
        match (&recorded.moments[..], recorded.info.damage.first()) {
            ([], Some((at, what))) => Err(with_name(format!(
                "it is damaged at byte {at}, and no tick can be read: {what}"
            ))),
            ([], None) => Err(with_name("its flight recorder has recorded nothing yet".into())),
            _ => Ok(recorded),
        }
    }

    /// Reads when the ticks of a file were, in which something may be recorded.
    ///
    /// # Errors
    /// A file without a flight recorder.
    pub(crate) fn new(path: &Path, inspection: Inspection) -> Result<Self, String> {
        let mut recorded = Self {
            path: path.to_owned(),
            families: families(&inspection),
            inspection,
            moments: Vec::new(),
            names: HashMap::new(),
            info: RecordingInfo::default(),
        };
        recorded.read_moments(&|| false)?;
        Ok(recorded)
    }

    /// The state of the recorder.
    pub(crate) fn info(&self) -> &RecordingInfo {
        &self.info
    }

    /// All ticks: of a file that was opened, there is at least one.
    pub(crate) fn moments(&self) -> &[Moment] {
        &self.moments
    }

    /// The nanoseconds from one tick to the next, as the last writer set them.
    pub(crate) fn interval(&self) -> u64 {
        self.info.interval
    }

    pub(crate) fn writer(&self) -> Writer {
        match (self.info.owner, self.inspection.is_alive(self.info.owner)) {
            (0, _) => Writer::Ended,
            (_, Some(true)) => Writer::Lives,
            (_, Some(false)) => Writer::Died,
            (_, None) => Writer::Unknown,
        }
    }

    /// The longest time between two ticks that is not a gap.
    pub(crate) fn longest_step(&self) -> u64 {
        match self.info.interval {
            // Nothing is known of it, in a damaged file.
            0 => u64::MAX,
            interval => interval.saturating_add(interval / 2),
        }
    }

    /// The bytes at which something is damaged, and what that is.
    pub(crate) fn damage(&self) -> impl Iterator<Item = (u64, &str)> {
        let damage = &self.inspection.report().damage;
        let of_file = damage.iter().map(|damage| (damage.at, &*damage.message));
        of_file.chain(self.info.damage.iter().map(|(at, what)| (*at, &**what)))
    }

    /// What is damaged, one sentence each, with the name of the file.
    pub(crate) fn problems(&self) -> Vec<String> {
        let name = printable(&self.path);
        let all = self.damage().map(|(at, what)| format!("{name}: damaged at byte {at}: {what}"));
        all.take(MAX_PROBLEMS).collect()
    }

    /// How many series the recorder had no room for, as a sentence.
    pub(crate) fn dropped(&self) -> Option<String> {
        let count = self.info.dropped;
        let what = "series are not recorded, beyond the recorder's limits";
        (count > 0).then(|| format!("{count} {what}"))
    }

    /// Reads what was recorded since the file was opened, until `stop` says that it must end.
    ///
    /// # Errors
    /// What failed, with the name of the file. What was read stays.
    pub(crate) fn refresh(&mut self, stop: &dyn Fn() -> bool) -> Result<(), String> {
        let failed = |what: String| format!("{}: {what}", printable(&self.path));
        let inspection = inspect(&self.path).map_err(failed)?;
        let instance = |it: &Inspection| it.report().header.as_ref().map(|header| header.instance);
        if instance(&inspection) != instance(&self.inspection) {
            return Err(failed(
                "it is another file now: what is shown is from the one before".into(),
            ));
        }
        self.families = families(&inspection);
        self.inspection = inspection;
        // A series that was made after the last inspection was read is there now.
        self.names.retain(|_, name| !name.is_removed);
        self.read_moments(stop).map_err(|what| format!("{}: {what}", printable(&self.path)))
    }

    /// Reads when the ticks were that are not yet known, and forgets those that were overwritten.
    fn read_moments(&mut self, stop: &dyn Fn() -> bool) -> Result<(), String> {
        let known = self.moments.last().map_or(0, |last| last.time);
        let moments = &mut self.moments;
        let mut bounds = Bounds { cells: MAX_OTHER_CELLS, stop, is_over: false };
        let replayed = self.inspection.history_while(known..=u64::MAX, |tick| {
            // In a damaged file, times may go back.
            if moments.last().is_none_or(|last| tick.time > last.time) {
                moments.push(Moment { time: tick.time, unix: tick.unix });
                bounds.cells = bounds.cells.saturating_add(tick.cells() as u64);
            }
            bounds.take(tick)
        });
        let mut replayed = replayed.ok_or(NO_RECORDER)?;
        // A chunk of an earlier time is not read again: what was found there is kept.
        let is_new = |one: &(u64, String)| !replayed.damage.contains(one);
        let known: Vec<_> = self.info.damage.drain(..).filter(is_new).collect();
        replayed.damage.extend(known);
        replayed.damage.truncate(MAX_PROBLEMS);
        let gone = moments.partition_point(|moment| moment.time < replayed.begun);
        // The last one stays in any case.
        moments.drain(..gone.min(moments.len().saturating_sub(1)));
        self.info = replayed;
        Ok(())
    }

    /// Calls `visit` with what was at each of these moments, given by their places. Returns false
    /// if it ended before the last of them: when `stop` said so, or since too many cells of other
    /// ticks are before them, which is so in damaged files only.
    pub(crate) fn looks(
        &mut self,
        of: Range<usize>,
        stop: &dyn Fn() -> bool,
        mut visit: impl FnMut(Moment, Look),
    ) -> bool {
        let moments = self.moments.get(of).unwrap_or_default();
        let (Some(first), Some(last)) = (moments.first(), moments.last()) else { return true };
        let (first, last) = (first.time, last.time);
        let cells = MAX_OTHER_CELLS + moments.len() as u64 * CELLS_PER_TICK;
        let mut bounds = Bounds { cells, stop, is_over: false };
        let mut unknown = HashSet::new();
        self.inspection.history_while(first..=last, |tick| {
            if tick.time >= first {
                unknown.extend(tick.series().map(|(id, _)| id));
            }
            bounds.take(tick)
        });
        if bounds.is_over {
            return false;
        }
        if self.names.len() > MAX_NAMES {
            self.names.retain(|id, _| unknown.contains(id));
        }
        unknown.retain(|id| !self.names.contains_key(id));
        self.name(unknown);
        let mut before = None;
        bounds.cells = cells;
        let Self { path, inspection, families, names, .. } = self;
        inspection.history_while(first..=last, |tick| {
            bounds.take(tick)?;
            if tick.time >= first && before.is_none_or(|before| tick.time > before) {
                before = Some(tick.time);
                visit(
                    Moment { time: tick.time, unix: tick.unix },
                    look(path, families, names, tick),
                );
            }
            ControlFlow::Continue(())
        });
        !bounds.is_over
    }

    /// Finds the labels of series.
    fn name(&mut self, mut unknown: HashSet<SeriesId>) {
        if unknown.is_empty() {
            return;
        }
        for family in &self.inspection.report().families {
            if !unknown.iter().any(|id| id.family == family.at) {
                continue;
            }
            self.inspection.series(family, |series| {
                let id = SeriesId { family: family.at, id: series.id };
                if unknown.remove(&id) {
                    let labels = series.labels.iter();
                    let labels = labels.map(|(name, value)| ((*name).into(), (*value).into()));
                    let (is_overflow, start) = (series.is_overflow, series.start);
                    let labels = labels.collect();
                    let name = Name { labels, is_removed: false, is_overflow, start };
                    self.names.insert(id, name);
                }
            });
        }
        // The others were removed since: a number distinguishes them.
        self.names.extend(unknown.into_iter().map(|id| {
            let labels = vec![("quipu_removed".to_owned(), format!("{:x}", id.id))];
            (id, Name { labels, is_removed: true, ..Name::default() })
        }));
    }
}

/// The values at a tick.
fn look(
    path: &Path,
    families: &mut HashMap<u64, Decoder>,
    names: &HashMap<SeriesId, Name>,
    tick: &Tick<'_>,
) -> Look {
    let mut look = Look::at(printable(path).to_string());
    let mut adding = LookSink::of_recording(&mut look);
    let mut nameless = 0;
    for (id, cells) in tick.series() {
        let Some(decoder) = families.get_mut(&id.family) else {
            nameless += 1;
            continue;
        };
        if !decoder.is_shown() {
            continue;
        }
        let name = names.get(&id);
        let labels = name.into_iter().flat_map(|name| &name.labels);
        let series = SeriesSeen {
            labels: labels.map(|(name, value)| (&**name, &**value)).collect(),
            is_overflow: name.is_some_and(|name| name.is_overflow),
            start: name.map_or(0, |name| name.start),
            cells,
            ..SeriesSeen::default()
        };
        adding.family(&decoder.family(&[]));
        decoder.pass(&series, &mut adding);
    }
    if nameless > 0 {
        look.own_problem(&format!("{nameless} series are of families that cannot be read"));
    }
    look
}

fn inspect(path: &Path) -> Result<Inspection, String> {
    let inspection = Inspection::of_file(path).map_err(|error| error.to_string())?;
    match (&inspection.report().header, inspection.report().damage.first()) {
        (None, Some(damage)) => Err(foreign::describe(path)
            .unwrap_or_else(|| format!("byte {}: {}", damage.at, damage.message))),
        _ => Ok(inspection),
    }
}

fn families(inspection: &Inspection) -> HashMap<u64, Decoder> {
    let families = inspection.report().families.iter();
    families.map(|family| (family.at, Decoder::new(&family.schema))).collect()
}

#[cfg(test)]
mod tests;
