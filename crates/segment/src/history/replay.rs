//! Reads what was recorded, while it is being written or after that. Nothing in it is trusted.

use std::ops::{ControlFlow, RangeInclusive};

use super::HISTORY;
use super::frame::{SeriesId, SeriesList};
use super::ring::{Geometry, KEY, Lap, Load, head};
use crate::error::Error;
use crate::lease::leader;
use crate::segment::Segment;

/// The series at one time.
#[derive(Debug)]
pub struct Tick<'l> {
    /// The segment's time in nanoseconds.
    pub time: u64,
    /// The wall clock's Unix time in nanoseconds, as it was set when the chunk of this tick began.
    pub unix: u64,
    list: &'l SeriesList,
}

impl<'l> Tick<'l> {
    /// The series with their cells: the sums of an additive family, otherwise the cells as they
    /// are. A cell of floats is its bits. Of pairs, the cells are one sum and then all counts.
    pub fn series(&self) -> impl Iterator<Item = (SeriesId, &'l [u64])> + use<'l> {
        let mut values = &self.list.values[..];
        self.list.entries.iter().map_while(move |entry| {
            let (cells, rest) = values.split_at_checked(entry.cells.into())?;
            values = rest;
            Some((entry.series, cells))
        })
    }

    /// The number of cells of all series, which is what it took to read the tick.
    pub fn cells(&self) -> usize {
        self.list.values.len()
    }
}

/// What is known of a recording beside its ticks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecordingInfo {
    /// The number of ticks that were read.
    pub ticks: u64,
    /// The nanoseconds from one tick to the next, as the last writer set them.
    pub interval: u64,
    /// The series that were not recorded, since there were too many; as of the last minute.
    pub dropped: u64,
    /// The token of the process that records, or did so last; 0 if it ended in good order.
    pub owner: u64,
    /// The segment's time at which the oldest chunk began: there are no ticks before. 0 if that is
    /// not known.
    pub begun: u64,
    /// The chunks that started over while they were read. Their ticks are missing.
    pub overwritten: u64,
    /// What contradicts the layout, and was left out because of it: the byte of the file, or of the
    /// record's cells if it was not read from a file.
    pub damage: Vec<(u64, String)>,
}

/// Reads what was recorded in a segment, from the segment's time `since` on, and perhaps some ticks
/// before it. `None` if nothing ever was.
///
/// # Errors
/// A recorder of another version, and a damaged list of records.
pub fn replay(
    segment: &Segment,
    since: u64,
    mut visit: impl FnMut(&Tick<'_>),
) -> Result<Option<RecordingInfo>, Error> {
    let record = segment.find(HISTORY, "")?;
    let mut visit = |tick: &Tick<'_>| {
        visit(tick);
        ControlFlow::Continue(())
    };
    Ok(record.map(|record| replay_words(record.cells(), since..=u64::MAX, &mut visit)))
}

/// The cells that may be read for each word of the record: an idle series costs next to nothing in
/// the record, but must be visited at each tick.
const CELLS_PER_WORD: usize = 1 << 12;

/// As [`replay`], for the words of a record, and up to the end of `times`, or until `visit` breaks.
pub(crate) fn replay_words(
    memory: &impl Load,
    times: RangeInclusive<u64>,
    visit: &mut dyn FnMut(&Tick<'_>) -> ControlFlow<()>,
) -> RecordingInfo {
    let mut replayed = RecordingInfo {
        interval: memory.load(head::INTERVAL),
        dropped: memory.load(head::DROPPED),
        owner: leader(memory.load(head::OWNER)),
        ..RecordingInfo::default()
    };
    let geometry = Geometry::unpack(memory.load(head::GEOMETRY));
    let Some(geometry) = geometry else {
        let reason = "the flight recorder's chunks cannot be: it is left out";
        replayed.damage.push((0, reason.to_owned()));
        return replayed;
    };
    if geometry.all_words() > memory.words() {
        let reason =
            "the flight recorder's chunks do not all lie in its record: the others are left out";
        replayed.damage.push((0, reason.to_owned()));
    }
    let laps = geometry.laps(memory);
    let begun = begun(&laps, &mut replayed.damage);
    // A chunk without frames has no ticks.
    let oldest = laps.iter().position(|lap| lap.first.is_some());
    replayed.begun = oldest.and_then(|oldest| begun[oldest]).unwrap_or(0);
    let mut budget = memory.words().saturating_mul(CELLS_PER_WORD);
    let mut list = SeriesList::default();
    let mut bytes = Vec::new();
    for (i, lap) in laps.iter().enumerate() {
        if begun.get(i + 1).copied().flatten().is_some_and(|next| next < *times.start()) {
            continue;
        }
        let Some(chunk) = geometry.read(memory, lap.number) else {
            replayed.overwritten += 1;
            continue;
        };
        let ahead = chunk.unix.wrapping_sub(chunk.first().unwrap_or(chunk.time));
        list.clear();
        let (mut is_begun, mut is_done) = (false, false);
        let ended = chunk.frames(|frame| {
            is_begun |= frame.first().is_some_and(|mark| mark & KEY != 0);
            let spend = |cells: usize| {
                let left = budget.checked_sub(cells);
                budget = left.unwrap_or(0);
                left.is_some()
            };
            let time = if is_begun { list.decode(frame, &mut bytes, spend) } else { None };
            let Some(time) = time else { return false };
            is_done = time > *times.end();
            if is_done {
                return false;
            }
            replayed.ticks += 1;
            is_done = visit(&Tick { time, unix: time.wrapping_add(ahead), list: &list }).is_break();
            !is_done
        });
        if is_done {
            break;
        }
        if let Err(at) = ended {
            let reason = match budget {
                0 => "too many cells in too few bytes: the ticks from there on are left out",
                _ => "a tick contradicts itself: the rest of its chunk is left out",
            };
            replayed.damage.push((at as u64 * 8, reason.to_owned()));
        }
    }
    replayed
}

/// When each lap began, where that is known. TIME has no checksum: it counts if the first frame has
/// the same time, and if no lap before it began later.
fn begun(laps: &[Lap], damage: &mut Vec<(u64, String)>) -> Vec<Option<u64>> {
    let mut last = 0;
    let times = laps.iter().map(|lap| {
        let first = lap.first?;
        if lap.time != first || lap.time < last {
            let reason = "a chunk began at another time than its first tick, or before an earlier \
                        chunk: that time is not used";
            damage.push((lap.time_at() as u64 * 8, reason.to_owned()));
            return None;
        }
        last = lap.time;
        Some(last)
    });
    times.collect()
}
