//! Looks at the past: the recording of a segment's flight recorder, tick by tick.
//!
//! The file can be in use, and is not trusted: `quipu_segment` limits the reading. Only the times
//! of the ticks are stored, and a look reads its tick again.

use std::collections::{HashMap, HashSet};
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};

use quipu::snapshot::{Decoder, Sink};
use quipu_segment::history::{RecordingInfo, SeriesId, Tick};
use quipu_segment::inspect::{Inspection, SeriesSeen};
use quipu_segment::printable;

use super::sink::LookSink;
use super::{Look, MAX_PROBLEMS, foreign};

/// The recording in a segment file.
pub(crate) struct Recording {
    path: PathBuf,
    inspection: Inspection,
    families: HashMap<u64, Decoder>,
    moments: Vec<Moment>,
    /// The series that were shown. If a program removes a series, its labels are still available
    /// here.
    series: HashMap<SeriesId, SeriesInfo>,
    info: RecordingInfo,
}

/// The time of a tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Moment {
    /// The segment's time in nanoseconds, which never goes back.
    pub(crate) time: u64,
    /// The Unix time of the wall clock in nanoseconds.
    pub(crate) unix: u64,
}

/// The state of the recording process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writer {
    Lives,
    /// The process ended in good order.
    Ended,
    Died,
    /// The state is unknown.
    Unknown,
}

/// The labels and the start of a series.
#[derive(Default)]
struct SeriesInfo {
    labels: Vec<(String, String)>,
    /// Whether the series was not found. Its labels are then invented.
    is_removed: bool,
    is_overflow: bool,
    /// The start of the series in nanoseconds of Unix time; 0 if it is unknown.
    start: u64,
}

/// The maximum number of cells read from unwanted ticks. This is the size of the largest chunk of a
/// recorder, which contains 4 words for each tick of 2^14 cells in a sixteenth of 64 MiB.
const MAX_OTHER_CELLS: u64 = 1 << 31;
/// The maximum number of cells in a tick.
const CELLS_PER_TICK: u64 = 1 << 14;
/// The maximum number of stored series that are missing in the last moments.
const MAX_KNOWN_SERIES: usize = 1 << 12;

/// The limits of a walk over ticks.
struct Bounds<'s> {
    /// The number of cells that can still be read.
    cells: u64,
    /// Whether the walk should stop, for example because the user ends the program.
    stop: &'s dyn Fn() -> bool,
    is_over: bool,
}

impl Bounds<'_> {
    /// Counts the cells of a tick, and ends the walk if it must end.
    fn take(&mut self, tick: &Tick<'_>) -> ControlFlow<()> {
        let left = self.cells.checked_sub(tick.cells() as u64);
        self.cells = left.unwrap_or(0);
        self.is_over |= left.is_none() || (self.stop)();
        if self.is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// The error for a file without a recording.
const NO_RECORDER: &str = "the file has no flight recorder; a program starts it with \
    Registry::record, and quipu record FILE from outside";

impl Recording {
    /// Opens a file with at least one tick.
    ///
    /// # Errors
    /// Fails if there is no tick or no recorder. The message contains the name of the file.
    pub(crate) fn open(path: &Path) -> Result<Self, String> {
        let with_name = |message: String| format!("{}: {message}", printable(path));
        let recording = inspect(path).and_then(|inspection| Self::new(path, inspection));
        let recording = recording.map_err(with_name)?;
        match (&recording.moments[..], recording.info.damage.first()) {
            ([], Some((at, message))) => Err(with_name(format!(
                "it is damaged at byte {at}, and no tick can be read: {message}"
            ))),
            ([], None) => Err(with_name("its flight recorder has recorded nothing yet".into())),
            _ => Ok(recording),
        }
    }

    /// Reads the times of the ticks in a file. There can be none.
    ///
    /// # Errors
    /// Fails if the file contains no flight recorder.
    pub(crate) fn new(path: &Path, inspection: Inspection) -> Result<Self, String> {
        let mut recording = Self {
            path: path.to_owned(),
            families: families(&inspection),
            inspection,
            moments: Vec::new(),
            series: HashMap::new(),
            info: RecordingInfo::default(),
        };
        recording.read_moments(&|| false)?;
        Ok(recording)
    }

    /// Returns the state of the recorder.
    pub(crate) fn info(&self) -> &RecordingInfo {
        &self.info
    }

    /// Returns the times of all ticks. After [`Self::open`], there is at least one.
    pub(crate) fn moments(&self) -> &[Moment] {
        &self.moments
    }

    /// Returns the nanoseconds from one tick to the next, in the settings of the last writer.
    pub(crate) fn interval(&self) -> u64 {
        self.info.interval
    }

    /// Returns the state of the recording process.
    pub(crate) fn writer(&self) -> Writer {
        match (self.info.owner, self.inspection.is_alive(self.info.owner)) {
            (0, _) => Writer::Ended,
            (_, Some(true)) => Writer::Lives,
            (_, Some(false)) => Writer::Died,
            (_, None) => Writer::Unknown,
        }
    }

    /// Returns the longest time between two ticks that is not a gap.
    pub(crate) fn longest_step(&self) -> u64 {
        match self.info.interval {
            // The interval is unknown in a damaged file.
            0 => u64::MAX,
            interval => interval.saturating_add(interval / 2),
        }
    }

    /// Returns the damage: byte offsets and descriptions.
    pub(crate) fn damage(&self) -> impl Iterator<Item = (u64, &str)> {
        let damage = &self.inspection.report().damage;
        let file_damage = damage.iter().map(|damage| (damage.at, &*damage.message));
        file_damage.chain(self.info.damage.iter().map(|(at, message)| (*at, &**message)))
    }

    /// Returns the damage as sentences that begin with the name of the file.
    pub(crate) fn problems(&self) -> Vec<String> {
        let name = printable(&self.path);
        let all =
            self.damage().map(|(at, message)| format!("{name}: damaged at byte {at}: {message}"));
        all.take(MAX_PROBLEMS).collect()
    }

    /// Returns a sentence with the number of series that did not fit into the recorder.
    pub(crate) fn dropped(&self) -> Option<String> {
        let count = self.info.dropped;
        let message = "series are not recorded, beyond the recorder's limits";
        (count > 0).then(|| format!("{count} {message}"))
    }

    /// Reads the new ticks in the file, until `stop` returns true.
    ///
    /// # Errors
    /// Fails if the file is unreadable. The message contains its name. Earlier ticks remain.
    pub(crate) fn refresh(&mut self, stop: &dyn Fn() -> bool) -> Result<(), String> {
        let failed = |message: String| format!("{}: {message}", printable(&self.path));
        let inspection = inspect(&self.path).map_err(failed)?;
        let instance = |inspection: &Inspection| {
            inspection.report().header.as_ref().map(|header| header.instance)
        };
        if instance(&inspection) != instance(&self.inspection) {
            return Err(failed(
                "it is another file now: what is shown is from the one before".into(),
            ));
        }
        self.families = families(&inspection);
        self.inspection = inspection;
        // Look them up again, because a series that was created after the last inspection can be
        // found now.
        self.series.retain(|_, info| !info.is_removed);
        self.read_moments(stop).map_err(|message| format!("{}: {message}", printable(&self.path)))
    }

    /// Reads the times of new ticks, and removes overwritten ticks.
    fn read_moments(&mut self, stop: &dyn Fn() -> bool) -> Result<(), String> {
        let known = self.moments.last().map_or(0, |last| last.time);
        let moments = &mut self.moments;
        let mut bounds = Bounds { cells: MAX_OTHER_CELLS, stop, is_over: false };
        let info = self.inspection.history_while(known..=u64::MAX, |tick| {
            // Times can go back in a damaged file.
            if moments.last().is_none_or(|last| tick.time > last.time) {
                moments.push(Moment { time: tick.time, unix: tick.unix });
                bounds.cells = bounds.cells.saturating_add(tick.cells() as u64);
            }
            bounds.take(tick)
        });
        let mut info = info.ok_or(NO_RECORDER)?;
        // Keep the damage of earlier chunks, because they are not read again.
        let is_new = |damage: &(u64, String)| !info.damage.contains(damage);
        let known: Vec<_> = self.info.damage.drain(..).filter(is_new).collect();
        info.damage.extend(known);
        info.damage.truncate(MAX_PROBLEMS);
        let gone = moments.partition_point(|moment| moment.time < info.begun);
        // Always keep the last tick.
        moments.drain(..gone.min(moments.len().saturating_sub(1)));
        self.info = info;
        Ok(())
    }

    /// Calls `act` with a look at each of these moments, which are given as indexes. Returns false
    /// if the walk ended early, because `stop` returned true, or because too many cells of other
    /// ticks precede the moments, which happens only in damaged files.
    pub(crate) fn visit(
        &mut self,
        places: Range<usize>,
        stop: &dyn Fn() -> bool,
        mut act: impl FnMut(Moment, Look),
    ) -> bool {
        let moments = self.moments.get(places).unwrap_or_default();
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
        if self.series.len() > MAX_KNOWN_SERIES {
            self.series.retain(|id, _| unknown.contains(id));
        }
        unknown.retain(|id| !self.series.contains_key(id));
        self.find_labels(unknown);
        let mut before = None;
        bounds.cells = cells;
        let Self { path, inspection, families, series, .. } = self;
        inspection.history_while(first..=last, |tick| {
            bounds.take(tick)?;
            if tick.time >= first && before.is_none_or(|before| tick.time > before) {
                before = Some(tick.time);
                act(
                    Moment { time: tick.time, unix: tick.unix },
                    look(path, families, series, tick),
                );
            }
            ControlFlow::Continue(())
        });
        !bounds.is_over
    }

    /// Finds the labels of these series.
    fn find_labels(&mut self, mut unknown: HashSet<SeriesId>) {
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
                    let info = SeriesInfo { labels, is_removed: false, is_overflow, start };
                    self.series.insert(id, info);
                }
            });
        }
        // The other series were removed, so a number distinguishes them.
        self.series.extend(unknown.into_iter().map(|id| {
            let labels = vec![("quipu_removed".to_owned(), format!("{:x}", id.id))];
            (id, SeriesInfo { labels, is_removed: true, ..SeriesInfo::default() })
        }));
    }
}

/// Returns the values at a tick.
fn look(
    path: &Path,
    families: &mut HashMap<u64, Decoder>,
    known: &HashMap<SeriesId, SeriesInfo>,
    tick: &Tick<'_>,
) -> Look {
    let mut look = Look::at(printable(path).to_string());
    let mut sink = LookSink::for_recording(&mut look);
    let mut nameless = 0;
    for (id, cells) in tick.series() {
        let Some(decoder) = families.get_mut(&id.family) else {
            nameless += 1;
            continue;
        };
        if !decoder.is_shown() {
            continue;
        }
        let info = known.get(&id);
        let labels = info.into_iter().flat_map(|info| &info.labels);
        let series = SeriesSeen {
            labels: labels.map(|(name, value)| (&**name, &**value)).collect(),
            is_overflow: info.is_some_and(|info| info.is_overflow),
            start: info.map_or(0, |info| info.start),
            cells,
            ..SeriesSeen::default()
        };
        sink.family(&decoder.family(&[]));
        decoder.pass(&series, &mut sink);
    }
    if nameless > 0 {
        look.add_target_problem(&format!("{nameless} series are of families that cannot be read"));
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
