//! Reads the past values of series, tick by tick, from the recording of a segment's flight
//! recorder.
//!
//! The file can be in use and is not trusted, so `quipu_segment` limits the reading. Only the times
//! of the ticks are stored in memory; each look reads its tick again.

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
    /// The series that were shown. If a program removes a series, its labels are still known here.
    series: HashMap<SeriesId, SeriesInfo>,
    info: RecordingInfo,
}

/// The time of a tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Moment {
    /// The time by the segment's clock in nanoseconds, which never goes back.
    pub(crate) time: u64,
    /// The time by the wall clock, in nanoseconds of Unix time.
    pub(crate) unix: u64,
}

/// The state of the process that records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writer {
    Lives,
    /// The process ended in order.
    Ended,
    Died,
    /// The state is unknown.
    Unknown,
}

/// The labels and the start time of a series.
#[derive(Default)]
struct SeriesInfo {
    labels: Vec<(String, String)>,
    /// Whether the series was not found, so we made its labels up.
    is_removed: bool,
    is_overflow: bool,
    /// The start time of the series in nanoseconds of Unix time; 0 if it is unknown.
    start: u64,
}

/// The maximum number of cells to read from unwanted ticks. This is the size of the largest chunk
/// of a recorder, which contains 4 words for each tick of 2^14 cells in a sixteenth of 64 MiB.
const MAX_OTHER_CELLS: u64 = 1 << 31;
/// The maximum number of cells in a tick.
const CELLS_PER_TICK: u64 = 1 << 14;
/// The maximum number of stored series that the last moments do not contain.
const MAX_KNOWN_SERIES: usize = 1 << 12;

/// The limits of a walk over ticks.
struct Bounds<'s> {
    /// The number of cells that may still be read.
    cells: u64,
    /// Returns whether to stop, for example because the user ends the program.
    stop: &'s dyn Fn() -> bool,
    is_over: bool,
}

impl Bounds<'_> {
    /// Counts the cells of a tick, and ends the walk at a limit.
    fn take(&mut self, tick: &Tick<'_>) -> ControlFlow<()> {
        let left = self.cells.checked_sub(tick.cells() as u64);
        self.cells = left.unwrap_or(0);
        self.is_over |= left.is_none() || (self.stop)();
        if self.is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// The error of a file without a recording.
const NO_RECORDER: &str = "the file has no flight recorder; a program starts it with \
    Registry::record, and quipu record FILE from outside";

impl Recording {
    /// Opens a recording with at least one tick.
    ///
    /// # Errors
    /// Fails if there is no recorder or no tick. The message contains the name of the file.
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

    /// Reads the times of all ticks, which can be none.
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

    /// Returns the nanoseconds between two ticks, as set by the last recorder.
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

    /// Returns a sentence about the series that did not fit into the recorder, if any.
    pub(crate) fn dropped(&self) -> Option<String> {
        let count = self.info.dropped;
        let message = "series are not recorded, beyond the recorder's limits";
        (count > 0).then(|| format!("{count} {message}"))
    }

    /// Reads the new ticks in the file, until `stop` returns true.
    ///
    /// # Errors
    /// Fails if the file is unreadable. The message contains its name. Earlier ticks stay
    /// available.
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
        // Look up unknown series again, because a series that was created after the last inspection
        // can be found now.
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
        // We keep the damage of earlier chunks, because these chunks are not read again.
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

    /// Calls `act` with a look at each of these moments, given by index. Returns false if the walk
    /// ended early, because `stop` returned true or because too many cells of other ticks precede
    /// the moments. The latter happens only in damaged files.
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
        // The remaining series were removed, so a number distinguishes them.
        self.series.extend(unknown.into_iter().map(|id| {
            let labels = vec![("quipu_removed".to_owned(), format!("{:x}", id.id))];
            (id, SeriesInfo { labels, is_removed: true, ..SeriesInfo::default() })
        }));
    }
}

/// Returns a look with the values of a tick.
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
