//! Reads a recording, during or after its writing. The reader trusts none of the words.

use std::ops::{ControlFlow, RangeInclusive};

use super::HISTORY;
use super::frame::{SeriesId, SeriesList};
use super::ring::{Geometry, KEY, Lap, Load, head};
use crate::error::Error;
use crate::lease::leader;
use crate::segment::Segment;

/// All recorded series at one time.
#[derive(Debug)]
pub struct Tick<'l> {
    /// The time of the segment in nanoseconds.
    pub time: u64,
    /// The wall clock's Unix time in nanoseconds. The clock was read when the chunk of this tick
    /// began.
    pub unix: u64,
    list: &'l SeriesList,
}

impl<'l> Tick<'l> {
    /// Returns the series with their cells: sums for an additive family, otherwise plain values. A
    /// float cell contains the float's bits. A series of pairs holds a single sum, followed by all
    /// counts.
    pub fn series(&self) -> impl Iterator<Item = (SeriesId, &'l [u64])> + use<'l> {
        let mut values = &self.list.values[..];
        self.list.entries.iter().map_while(move |entry| {
            let (cells, rest) = values.split_at_checked(entry.cells.into())?;
            values = rest;
            Some((entry.series, cells))
        })
    }

    /// Returns the number of cells of all series. This is also the cost of reading the tick.
    pub fn cells(&self) -> usize {
        self.list.values.len()
    }
}

/// Information on a recording and on its writer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecordingInfo {
    /// The number of ticks that were read.
    pub ticks: u64,
    /// The nanoseconds from one tick to the next; set by the last writer.
    pub interval: u64,
    /// The number of series that were dropped because there were too many, counted within the last
    /// minute.
    pub dropped: u64,
    /// The token of the process that records or was the last to do so; 0 if it ended in good order.
    pub owner: u64,
    /// The segment's time at the beginning of the oldest chunk. There are no earlier ticks. This is
    /// 0 if the time is unknown.
    pub begun: u64,
    /// The number of chunks that were overwritten while they were read. Their ticks are missing.
    pub overwritten: u64,
    /// The contradictions with the layout, and the skipped parts. The byte counts from the
    /// beginning of the file, or of the record's cells if they were not read from a file.
    pub damage: Vec<(u64, String)>,
}

/// Reads the recording of a segment, from the segment's time `since` on. The first ticks may be
/// from before that time. Returns `None` if the segment was never recorded.
///
/// # Errors
/// If the recorder is of another version, or the list of records is damaged.
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

/// The cells that may be read for each word of the record. This bounds the work, because an idle
/// series takes almost no words, but must be visited at each tick.
const CELLS_PER_WORD: usize = 1 << 12;

/// Like [`replay`], for the words of a record. Stops at the end of `times`, or when `visit` breaks.
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
        let reason = "the flight recorder's chunks cannot be: it is omitted";
        replayed.damage.push((0, reason.to_owned()));
        return replayed;
    };
    if geometry.all_words() > memory.words() {
        let reason =
            "the flight recorder's chunks do not all lie in its record: the others are omitted";
        replayed.damage.push((0, reason.to_owned()));
    }
    let laps = geometry.laps(memory);
    let begun = begun(&laps, &mut replayed.damage);
    // A chunk without frames contains no ticks.
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
                0 => "too many cells in too few bytes: the ticks from there on are omitted",
                _ => "a tick contradicts itself: the rest of its chunk is omitted",
            };
            replayed.damage.push((at as u64 * 8, reason.to_owned()));
        }
    }
    replayed
}

/// Returns the beginning of each lap, if it is known. Because TIME has no checksum, it must match
/// the first frame's time, and must not be before the beginning of an earlier lap.
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
