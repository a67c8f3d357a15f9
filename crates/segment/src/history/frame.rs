//! A frame of the flight recorder: the record of one tick of all recorded series.
//!
//! A tick is a list of series, in the order of a walk, with the cells of each. A frame stores the
//! differences of the list and of the cells from the last tick. A key frame depends on no earlier
//! tick: it stores the differences from an empty list.

use super::code::{Coder, Decoder, MAX_CODE};
use super::ring::KEY;
use crate::series::MAX_CELLS;

/// Identifies a series among all series of a segment, present and past.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SeriesId {
    /// The byte offset of its family's record: see
    /// [`FamilySeen::at`](crate::inspect::FamilySeen::at).
    pub family: u64,
    /// The number of the series in its family: see [`View::id`](crate::series::View::id).
    pub id: u64,
}

/// A series of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) series: SeriesId,
    /// The number of cells, from 1 to 512.
    pub(super) cells: u16,
    /// A bit for each of the first 14 cells that is a float.
    pub(super) floats: u16,
}

const FAMILY_BITS: u32 = 40;
const CELL_BITS: u32 = 10;
/// The cells that an entry can mark as floats. Further float cells are recorded as integers, in
/// more bytes.
const FLOATS: u16 = (1 << 14) - 1;

impl Entry {
    /// Returns an entry; `floats` contains a bit for each float cell.
    pub(super) fn new(series: SeriesId, cells: u16, floats: u64) -> Self {
        // The truncation is intended: an entry does not mark further cells.
        Self { series, cells, floats: floats as u16 & FLOATS }
    }

    fn pack(self) -> [u64; 2] {
        let numbers = u64::from(self.floats) << CELL_BITS | u64::from(self.cells);
        [self.series.family & ((1 << FAMILY_BITS) - 1) | numbers << FAMILY_BITS, self.series.id]
    }

    fn unpack(words: [u64; 2]) -> Option<Self> {
        let (family, numbers) = (words[0] & ((1 << FAMILY_BITS) - 1), words[0] >> FAMILY_BITS);
        let cells = (numbers & ((1 << CELL_BITS) - 1)) as u16;
        let series = SeriesId { family, id: words[1] };
        let entry = Self { series, cells, floats: (numbers >> CELL_BITS) as u16 };
        (1..=MAX_CELLS).contains(&cells).then_some(entry)
    }

    fn is_float(self, cell: u16) -> bool {
        cell < 14 && self.floats >> cell & 1 == 1
    }
}

/// The series of a tick, with their cells.
#[derive(Debug, Clone, Default)]
pub(super) struct SeriesList {
    pub(super) entries: Vec<Entry>,
    /// The cells of all entries, concatenated.
    pub(super) values: Vec<u64>,
    /// The difference of each cell from the last tick, modulo 2^64. This is 0 for floats and for
    /// the first tick of a series.
    changes: Vec<u64>,
}

/// The maximum number of cells of all series together.
pub(super) const MAX_ALL_CELLS: usize = 1 << 14;
/// The words of a frame before the changes of the list.
const HEAD: usize = 3;

/// Returns the maximum number of words of a frame whose series are all new.
pub(super) fn most_words(series: usize, cells: usize) -> usize {
    HEAD + 2 * series + (series + MAX_CODE * cells).div_ceil(8) + 1
}

/// The differences between two lists.
#[derive(Debug, Default)]
struct Changes {
    /// The indexes of removed series in the old list.
    removed: Vec<usize>,
    /// The indexes of added series in the new list.
    added: Vec<usize>,
}

impl Changes {
    /// Compares two lists that are sorted by `order`. In an unsorted list, a series that stays may
    /// be removed and added again.
    fn between(old: &[Entry], new: &[Entry], order: impl Fn(SeriesId) -> (u64, u32)) -> Self {
        let mut changes = Self::default();
        let (mut from, mut to) = (0, 0);
        loop {
            match (old.get(from), new.get(to)) {
                (None, None) => return changes,
                (Some(one), Some(other)) if one == other => {
                    (from, to) = (from + 1, to + 1);
                }
                (Some(one), Some(other)) if order(one.series) > order(other.series) => {
                    changes.added.push(to);
                    to += 1;
                }
                (Some(_), _) => {
                    changes.removed.push(from);
                    from += 1;
                }
                (None, Some(_)) => {
                    changes.added.push(to);
                    to += 1;
                }
            }
        }
    }
}

impl SeriesList {
    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.values.clear();
        self.changes.clear();
    }

    /// Appends a series with its cells.
    pub(super) fn push(&mut self, entry: Entry, cells: impl Iterator<Item = u64>) {
        self.entries.push(entry);
        let end = self.values.len() + usize::from(entry.cells);
        self.values.extend(cells);
        self.values.resize(end, 0);
    }

    /// Writes the frame that turns the tick `old` into this one. For a key frame, `old` is empty.
    pub(super) fn encode(
        &mut self,
        old: &Self,
        time: u64,
        order: impl Fn(SeriesId) -> (u64, u32),
        coder: &mut Coder,
        out: &mut Vec<u64>,
    ) {
        let changes = Changes::between(&old.entries, &self.entries, order);
        self.changes.clear();
        out.clear();
        let mark = if old.entries.is_empty() { KEY } else { 0 };
        // Each count is at most 2^14.
        let counts = changes.removed.len() as u64 | (changes.added.len() as u64) << 32;
        out.extend([mark, time, counts]);
        changes.added.iter().for_each(|&at| out.extend(self.entries[at].pack()));
        coder.clear();
        for places in [&changes.removed, &changes.added] {
            let mut next = 0;
            for &place in places {
                coder.number((place - next) as u64);
                next = place + 1;
            }
        }
        let Self { entries, values, changes: differences } = self;
        carry(old, entries, &changes, |entry, last| {
            for cell in 0..entry.cells {
                let value = values[differences.len()];
                let (before, difference) = last.map_or((0, 0), |last| last(cell));
                let mut now = 0;
                if entry.is_float(cell) {
                    coder.float(value ^ before);
                } else {
                    now = value.wrapping_sub(before);
                    coder.whole(now.wrapping_sub(difference));
                }
                // A new series differs from 0, so its first difference does not predict the next
                // one.
                differences.push(if last.is_some() { now } else { 0 });
            }
            Some(())
        });
        let bytes = coder.finish();
        out.extend(bytes.chunks(8).map(|chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_le_bytes(word)
        }));
    }

    /// Reads the frame after this tick, and returns its time. If the frame contradicts itself or
    /// this tick, it returns `None`, and you must not use the list any more. `spend` takes a number
    /// of cells, and returns whether you may read that many.
    pub(super) fn decode(
        &mut self,
        frame: &[u64],
        bytes: &mut Vec<u8>,
        mut spend: impl FnMut(usize) -> bool,
    ) -> Option<u64> {
        let (&[mark, time, counts], rest) = frame.split_first_chunk()?;
        if mark & KEY != 0 {
            self.clear();
        }
        let (removed, added) = ((counts as u32) as usize, (counts >> 32) as usize);
        let (described, codes) = rest.split_at_checked(added.checked_mul(2)?)?;
        bytes.clear();
        bytes.extend(codes.iter().flat_map(|word| word.to_le_bytes()));
        let mut decoder = Decoder::new(bytes);
        let mut places = |count: usize, end: usize| {
            let mut next = 0_usize;
            let place = |_| {
                let place = next.checked_add(usize::try_from(decoder.number()?).ok()?)?;
                (place < end).then(|| {
                    next = place + 1;
                    place
                })
            };
            (count <= end).then(|| (0..count).map(place).collect::<Option<Vec<_>>>()).flatten()
        };
        let removed = places(removed, self.entries.len())?;
        let count = self.entries.len() - removed.len() + added;
        let added = places(added, count)?;
        let changes = Changes { removed, added };
        let entries = merged(&self.entries, described.as_chunks().0, &changes)?;
        let cells: usize = entries.iter().map(|entry| usize::from(entry.cells)).sum();
        if cells > MAX_ALL_CELLS || !spend(cells) {
            return None;
        }
        let mut next = Self { values: Vec::with_capacity(cells), ..Self::default() };
        next.changes.reserve(cells);
        carry(self, &entries, &changes, |entry, last| {
            for cell in 0..entry.cells {
                let (before, difference) = last.map_or((0, 0), |last| last(cell));
                let (value, now) = if entry.is_float(cell) {
                    (decoder.float()? ^ before, 0)
                } else {
                    let now = decoder.whole()?.wrapping_add(difference);
                    (before.wrapping_add(now), now)
                };
                next.values.push(value);
                next.changes.push(if last.is_some() { now } else { 0 });
            }
            Some(())
        })?;
        *self = Self { entries, ..next };
        decoder.is_at_end().then_some(time)
    }
}

/// Returns the value and the difference of a cell at the last tick.
type Last<'l> = &'l dyn Fn(u16) -> (u64, u64);

/// Calls `visit` with each entry of the new list. If the old list contains the series, `visit` can
/// look up its cells there.
fn carry(
    old: &SeriesList,
    new: &[Entry],
    changes: &Changes,
    mut visit: impl FnMut(&Entry, Option<Last<'_>>) -> Option<()>,
) -> Option<()> {
    let (mut removed, mut added) =
        (changes.removed.iter().peekable(), changes.added.iter().peekable());
    let (mut from, mut first) = (0, 0);
    for (at, entry) in new.iter().enumerate() {
        if added.next_if(|place| **place == at).is_some() {
            visit(entry, None)?;
            continue;
        }
        while removed.next_if(|place| **place == from).is_some() {
            first += usize::from(old.entries[from].cells);
            from += 1;
        }
        let last = |cell: u16| {
            let at = first + usize::from(cell);
            (old.values[at], old.changes[at])
        };
        visit(entry, Some(&last))?;
        first += usize::from(entry.cells);
        from += 1;
    }
    Some(())
}

/// Returns the list after the changes; `None` if an entry is invalid.
fn merged(old: &[Entry], described: &[[u64; 2]], changes: &Changes) -> Option<Vec<Entry>> {
    let mut removed = changes.removed.iter().peekable();
    let mut kept = old
        .iter()
        .enumerate()
        .filter(|(at, _)| removed.next_if(|place| *place == at).is_none())
        .map(|(_, entry)| *entry);
    let (mut added, mut described) = (changes.added.iter().peekable(), described.iter());
    // `decode` has checked that this many entries exist.
    let count = old.len() - changes.removed.len() + changes.added.len();
    (0..count)
        .map(|at| match added.next_if(|place| **place == at) {
            Some(_) => described.next().and_then(|words| Entry::unpack(*words)),
            None => kept.next(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    fn order(series: SeriesId) -> (u64, u32) {
        // The slot of the series.
        (series.family, series.id as u32)
    }

    /// Returns a series by its number, with one of a few generations.
    fn entry(number: u64, generation: u64) -> Entry {
        let series = SeriesId { family: 256 + number % 3 * 64, id: number | generation << 32 };
        Entry::new(series, 1 + number as u16 % 4, number % 16)
    }

    fn tick() -> impl Strategy<Value = Vec<(u64, u64, u64)>> {
        let value = prop_oneof![
            Just(0),
            0_u64..100,
            any::<u64>(),
            (0_u64..50).prop_map(|n| (n as f64).to_bits())
        ];
        prop::collection::vec((0_u64..12, 0_u64..2, value), 0..10)
    }

    fn list(tick: &[(u64, u64, u64)]) -> SeriesList {
        let mut tick: Vec<_> = tick
            .iter()
            .map(|&(number, generation, value)| (entry(number, generation), value))
            .collect();
        tick.sort_by_key(|(entry, _)| order(entry.series));
        tick.dedup_by_key(|(entry, _)| order(entry.series));
        let mut list = SeriesList::default();
        for (entry, value) in tick {
            list.push(entry, (0..entry.cells).map(|cell| value.wrapping_mul(u64::from(cell) + 1)));
        }
        list
    }

    proptest! {
        #[test]
        fn written_frames_are_read(ticks in prop::collection::vec(tick(), 1..20), keys in any::<u32>()) {
            let (mut old, mut read) = (SeriesList::default(), SeriesList::default());
            let (mut coder, mut frame, mut bytes) = (Coder::default(), Vec::new(), Vec::new());
            for (time, tick) in ticks.iter().enumerate() {
                if keys >> time & 1 == 1 {
                    old.clear();
                }
                let mut next = list(tick);
                let cells = next.values.len();
                next.encode(&old, time as u64, order, &mut coder, &mut frame);
                if old.entries.is_empty() {
                    prop_assert!(frame.len() <= most_words(next.entries.len(), cells));
                }
                let found = read.decode(&frame, &mut bytes, |count| count == cells);
                prop_assert_eq!(found, Some(time as u64));
                prop_assert_eq!(&read.entries, &next.entries);
                prop_assert_eq!(&read.values, &next.values);
                prop_assert_eq!(&read.changes, &next.changes);
                old = next;
            }
        }

        #[test]
        fn any_frame_is_read_or_refused(
            tick in tick(),
            words in prop::collection::vec(any::<u64>(), 0..20),
            counts in (0_u64..6, 0_u64..6),
        ) {
            let mut list = list(&tick);
            let (mut coder, mut frame) = (Coder::default(), Vec::new());
            list.encode(&SeriesList::default(), 1, order, &mut coder, &mut frame);
            for mark in [0, KEY] {
                let mut words = words.clone();
                if let [first, _, third, ..] = &mut words[..] {
                    (*first, *third) = (mark, counts.0 | counts.1 << 32);
                }
                let mut bytes = Vec::new();
                let _ = list.clone().decode(&words, &mut bytes, |_| true);
                for end in 0..frame.len() {
                    let read = SeriesList::default().decode(&frame[..end], &mut bytes, |_| true);
                    prop_assert!(read.is_none() || list.entries.is_empty() || end + 1 == frame.len());
                }
            }
        }
    }

    #[test]
    fn a_place_beyond_all_numbers_is_refused() {
        let mut coder = Coder::default();
        coder.number(u64::MAX);
        let mut codes = coder.finish().to_vec();
        codes.resize(16, 0);
        let mut frame = vec![KEY, 1, 1 << 32];
        frame.extend(entry(1, 0).pack());
        frame.extend(codes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)));
        assert_eq!(SeriesList::default().decode(&frame, &mut Vec::new(), |_| true), None);
    }

    #[test]
    fn counters_that_grow_evenly_take_few_bytes() {
        let mut old = SeriesList::default();
        let (mut coder, mut frame) = (Coder::default(), Vec::new());
        for time in 0..10_u64 {
            let mut next = SeriesList::default();
            for number in 0..1000 {
                let noise = (time + 1) * number * 7919 % 13;
                next.push(
                    Entry::new(SeriesId { family: 0, id: number }, 1, 0),
                    [time * 500 + noise].into_iter(),
                );
            }
            next.encode(&old, time, order, &mut coder, &mut frame);
            old = next;
        }
        assert!(frame.len() * 8 < 1400, "{}", frame.len() * 8);
    }
}
