//! Exemplars in the segment. A counter and each bucket of a histogram keep their last exemplar.
//! Gauges and values of unknown type keep one only if another program sends them.
//!
//! The exemplar cell of a series holds the offset of a table (a side allocation) with one word per
//! slot. Each word holds the offset of its slot, which is allocated for the first exemplar.
//!
//! A slot is a sequence lock: its sequence number is odd during a write. A reader checks the number
//! again after reading. A writer that finds the number odd drops its exemplar. If the time in the
//! slot is more than a second old, this writer also marks the slot, because it suspects that the
//! other writer died. A writer that arrives more than a second after the mark, with the slot still
//! unchanged, takes it over.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use quipu_segment::series::{Family, SeriesCells, SideAllocations};
use quipu_segment::sync::{AtomicU64, Ordering, fence};

use super::metric_kind::Scratch;
use crate::snapshot::{Exemplar, Texts, Timestamp};

/// The words of a slot: sequence, time of the write, value, length (its upper half is the age of
/// the observation at that time, in milliseconds), and the strings.
const SEQUENCE: usize = 0;
const TIME: usize = 1;
const VALUE: usize = 2;
const LENGTH: usize = 3;
const TEXT: usize = 4;
const WORDS: u16 = 36;
/// The number of bytes for names, values and their lengths.
const TEXT_BYTES: usize = (WORDS as usize - TEXT) * 8;
/// The maximum number of characters in names and values (OpenMetrics 1.0, section "Exemplars").
const MAX_CHARACTERS: usize = 128;
/// The time in nanoseconds until a slow writer is suspected to be dead, and again until another
/// writer takes its slot over.
const PATIENCE: u64 = 1_000_000_000;
const NANOS_PER_MILLI: u64 = 1_000_000;
/// The bit of a time that marks the writer as suspected to be dead.
const SUSPECT: u64 = 1;
/// The length field of an exemplar without labels, because zero means that there is no exemplar.
const NO_TEXT: u32 = 1 << 31;

/// An exemplar that was read from a slot.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadExemplar {
    time: u64,
    value: f64,
    /// The range of its strings in the buffer that it was read into.
    texts: (usize, usize),
}

impl ReadExemplar {
    /// Returns the exemplar, which borrows its strings from the buffer that it was read into.
    pub(super) fn exemplar<'t>(&self, texts: &'t [u8]) -> Exemplar<'t> {
        let labels = Texts::new(texts.get(self.texts.0..self.texts.1).unwrap_or(&[]));
        Exemplar { labels, value: self.value, time: Some(Timestamp::from_nanos(self.time)) }
    }
}

/// Keeps an exemplar in slot number `slot` of a series whose exemplar cell is `cell`. The exemplar
/// is dropped if the family keeps none, if it is too long or without labels, or if the segment is
/// full.
pub(crate) fn keep(
    family: &Family,
    cells: &SeriesCells<'_>,
    cell: usize,
    slot: usize,
    value: f64,
    pairs: &[(&str, &str)],
) {
    // A program that passes no labels does not keep an exemplar.
    if !pairs.is_empty() {
        keep_at(family, cells, (cell, slot), value, pairs, None);
    }
}

/// Like [`keep`], for a value that was observed at a time, in nanoseconds of Unix time; now, if
/// this time is unknown or in the future. The labels can be empty. Returns true if the exemplar is
/// kept, or if the slot already contains a later one, which would have replaced it.
pub(crate) fn keep_at(
    family: &Family,
    cells: &SeriesCells<'_>,
    (cell, slot): (usize, usize),
    value: f64,
    pairs: &[(&str, &str)],
    time: Option<u64>,
) -> bool {
    // Series without exemplars use one cell fewer.
    if cell >= cells.len() {
        return false;
    }
    let characters: usize =
        pairs.iter().map(|(name, value)| name.chars().count() + value.chars().count()).sum();
    let bytes: usize = pairs.iter().map(|(name, value)| name.len() + value.len() + 2).sum();
    // The encoding here uses one byte for the length of a string, which must be below 255.
    let is_short = pairs.iter().all(|(name, value)| name.len() < 255 && value.len() < 255);
    if characters > MAX_CHARACTERS || bytes > TEXT_BYTES || !is_short {
        return false;
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = u64::try_from(now.as_nanos()).unwrap_or(0);
    let root = cells.plain(cell);
    let slots = slot + 1;
    let Some(table) = find_or_take(family, cells, root, || family_slots(family).max(slots)) else {
        return false;
    };
    let Some(word) = family.side(cells, table).and_then(|side| side.words().get(slot)) else {
        return false;
    };
    let Some(at) = find_or_take(family, cells, word, || usize::from(WORDS)) else { return false };
    let Some(side) = family.side(cells, at) else { return false };
    let words = side.words();
    if time.is_some_and(|time| observed(words).is_some_and(|last| last > time)) {
        // The slot already holds a later exemplar.
        return true;
    }
    write(words, now, time.unwrap_or(now), value, pairs)
}

/// Returns whether an exemplar in this slot would take memory, because the slot was never used.
pub(crate) fn takes_memory(
    family: &Family,
    cells: &SeriesCells<'_>,
    (cell, slot): (usize, usize),
) -> bool {
    let Some(root) = (cell < cells.len()).then(|| cells.plain(cell)) else { return false };
    // A value of more than 32 bits is damaged, and is treated like an unused cell.
    let table = u32::try_from(root.load(Ordering::Acquire)).unwrap_or(0);
    let side = family.side(cells, table);
    let word = side.as_ref().and_then(|side| side.words().get(slot));
    word.is_none_or(|word| word.load(Ordering::Relaxed) == 0)
}

/// The exemplar cell of series whose only side allocations are exemplars.
pub(crate) struct Exemplars(pub(crate) usize);

impl SideAllocations for Exemplars {
    fn is_offset(&self, cell: usize) -> bool {
        cell == self.0
    }

    fn clear(&self, family: &Family, cells: &SeriesCells<'_>) {
        clear(family, cells, self.0);
    }

    fn renew(&self, family: &Family, cells: &SeriesCells<'_>) {
        clear(family, cells, self.0);
    }
}

/// Clears the exemplars of a series.
pub(crate) fn clear(family: &Family, cells: &SeriesCells<'_>, cell: usize) {
    each(family, cells, cell, |words| {
        if let Some(length) = words.get(LENGTH) {
            // A slot of length zero is empty: see `read`.
            length.store(0, Ordering::Release);
        }
    });
}

/// Reads the exemplars of a series into `scratch.slots`, indexed by slot, and `scratch.texts`.
pub(crate) fn read_all(
    family: &Family,
    cells: &SeriesCells<'_>,
    cell: usize,
    scratch: &mut Scratch,
) {
    let Scratch { slots, texts, .. } = scratch;
    slots.clear();
    texts.clear();
    each(family, cells, cell, |words| {
        // An exemplar of a copy that is rewritten again and again is omitted, like an exemplar that
        // is being written.
        let is_settled = family.settle(words, SEQUENCE);
        slots.push(if is_settled { read(words, texts) } else { None });
    });
}

/// Reads the exemplar of a series that keeps at most one.
#[inline]
pub(crate) fn last<'m>(
    family: &Family,
    cells: &SeriesCells<'_>,
    cell: usize,
    scratch: &'m mut Scratch,
) -> Option<Exemplar<'m>> {
    if cell >= cells.len() {
        return None;
    }
    // We pass a copy, so the caller's cells can stay in registers.
    let cells = *cells;
    read_all(family, &cells, cell, scratch);
    let slot = scratch.slots.first().copied().flatten()?;
    Some(slot.exemplar(&scratch.texts))
}

/// Calls `act` with the words of each slot of a series; with an empty slice for an unused slot.
fn each(family: &Family, cells: &SeriesCells<'_>, cell: usize, mut act: impl FnMut(&[AtomicU64])) {
    if cell >= cells.len() {
        return;
    }
    // Acquire, here and below: pairs with the release in `find_or_take`; a thread that sees an
    // offset sees the side allocation at this offset.
    let root = cells.plain(cell).load(Ordering::Acquire);
    if root == 0 {
        return;
    }
    let Some(table) = family.side(cells, u32::try_from(root).unwrap_or(0)) else { return };
    for word in table.words().iter().take(cells.len()) {
        let at = u32::try_from(word.load(Ordering::Acquire)).unwrap_or(0);
        act(family.side(cells, at).map_or(&[], |slot| slot.words()));
    }
}

/// The last exemplar of a counter or bucket, which you can read back, for example in a test.
///
/// ```
/// use quipu::{Description, FloatCounter, Registry};
///
/// let registry = Registry::new();
/// let description = Description::new("cpu", "CPU time.").unit("seconds").exemplars();
/// let cpu: FloatCounter = registry.register(description)?;
/// cpu.inc_with_exemplar(0.5, &[("trace_id", "4bf92f35")]);
/// let exemplar = cpu.exemplar().unwrap();
/// assert_eq!(exemplar.labels, [("trace_id".to_owned(), "4bf92f35".to_owned())]);
/// assert_eq!(exemplar.value, 0.5);
/// # Ok::<(), quipu::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct OwnedExemplar {
    /// Pairs of names and values.
    pub labels: Vec<(String, String)>,
    /// The observed value.
    pub value: f64,
    /// The time of the observation.
    pub time: Timestamp,
}

/// Returns the exemplar in a slot, if there is one.
pub(crate) fn kept(
    family: &Family,
    cells: &SeriesCells<'_>,
    cell: usize,
    slot: usize,
) -> Option<OwnedExemplar> {
    let mut scratch = Scratch::default();
    read_all(family, cells, cell, &mut scratch);
    let exemplar = scratch.slots.get(slot)?.as_ref()?.exemplar(&scratch.texts);
    let pairs = exemplar.pairs().map(|(name, value)| (name.to_owned(), value.to_owned()));
    Some(OwnedExemplar { labels: pairs.collect(), value: exemplar.value, time: exemplar.time? })
}

/// Writes an exemplar into a slot. `time` is when its value was observed; now, if that is later.
/// Returns whether the exemplar is in the slot: another writer may own the slot, or may have taken
/// it over.
fn write(words: &[AtomicU64], now: u64, time: u64, value: f64, pairs: &[(&str, &str)]) -> bool {
    if words.len() < usize::from(WORDS) {
        return false;
    }
    let sequence = words[SEQUENCE].load(Ordering::Relaxed);
    if sequence % 2 == 1 && !is_stuck(&words[TIME], now) {
        return false;
    }
    let odd = sequence.wrapping_add(if sequence % 2 == 1 { 2 } else { 1 });
    // Acquire: the stores below stay after this exchange.
    if words[SEQUENCE]
        .compare_exchange(sequence, odd, Ordering::Acquire, Ordering::Relaxed)
        .is_err()
    {
        return false;
    }
    // Release, here and below: pairs with the fence in `read`; a reader that sees one of these
    // stores also sees the odd number.
    // The time of the write is also the writer's heartbeat, so the time of the observation is
    // stored as an age.
    let age = Duration::from_nanos(now.saturating_sub(time)).as_millis();
    let age = u32::try_from(age).unwrap_or(u32::MAX);
    let begun = time.saturating_add(u64::from(age) * NANOS_PER_MILLI);
    let begun = if age == u32::MAX { now } else { begun.min(now) };
    words[TIME].store(begun & !SUSPECT, Ordering::Release);
    words[VALUE].store(value.to_bits(), Ordering::Release);
    let mut bytes = [0; TEXT_BYTES];
    let mut length = 0;
    for text in pairs.iter().flat_map(|(name, value)| [name, value]) {
        // `keep` checked that all fit, and that each is shorter than 255 bytes.
        bytes[length] = text.len() as u8;
        bytes[length + 1..=length + text.len()].copy_from_slice(text.as_bytes());
        length += 1 + text.len();
    }
    // At most TEXT_BYTES.
    let stored = if length == 0 { NO_TEXT } else { length as u32 };
    words[LENGTH].store(u64::from(stored) | u64::from(age) << 32, Ordering::Release);
    for (word, chunk) in words[TEXT..].iter().zip(bytes[..length].chunks(8)) {
        let mut padded = [0; 8];
        padded[..chunk.len()].copy_from_slice(chunk);
        word.store(u64::from_le_bytes(padded), Ordering::Release);
    }
    // Release: pairs with the acquire load in `read`; a reader that sees the even number sees the
    // whole exemplar. If another writer took the slot over, the exchange fails, and that writer
    // completes the slot.
    words[SEQUENCE]
        .compare_exchange(odd, odd.wrapping_add(1), Ordering::Release, Ordering::Relaxed)
        .is_ok()
}

/// Returns whether the current writer was marked as suspected more than [`PATIENCE`] ago, without
/// progress since. Marks it if the time in the slot is older than that and carries no mark. Until
/// the writer stores a time, the slot contains the time of the previous exemplar.
fn is_stuck(time: &AtomicU64, now: u64) -> bool {
    let seen = time.load(Ordering::Relaxed);
    if now.saturating_sub(seen) <= PATIENCE {
        return false;
    }
    if seen & SUSPECT == 0 {
        let suspect = now | SUSPECT;
        let _ = time.compare_exchange(seen, suspect, Ordering::Relaxed, Ordering::Relaxed);
        return false;
    }
    true
}

/// Returns when the value of the exemplar in a slot was observed; `None` if the slot is empty, or
/// if it is being written.
fn observed(words: &[AtomicU64]) -> Option<u64> {
    read(words, &mut Vec::new()).map(|exemplar| exemplar.time)
}

fn read(words: &[AtomicU64], texts: &mut Vec<u8>) -> Option<ReadExemplar> {
    if words.len() < usize::from(WORDS) {
        return None;
    }
    // Acquire: the loads below see stores that are at least as new.
    let before = words[SEQUENCE].load(Ordering::Acquire);
    if before % 2 == 1 || before == 0 {
        return None;
    }
    let time = words[TIME].load(Ordering::Relaxed);
    let value = f64::from_bits(words[VALUE].load(Ordering::Relaxed));
    let length = words[LENGTH].load(Ordering::Relaxed);
    let time = time.saturating_sub((length >> 32) * NANOS_PER_MILLI);
    // The truncation is intended: the other half is the age.
    let length = match length as u32 {
        0 => return None,
        NO_TEXT => 0,
        length => length as usize,
    };
    if length > TEXT_BYTES {
        return None;
    }
    let start = texts.len();
    for word in words[TEXT..].iter().take(length.div_ceil(8)) {
        texts.extend_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
    }
    texts.truncate(start + length);
    // Acquire: if a load above read a later writer's store, the load below sees that writer's odd
    // number, or a later one.
    fence(Ordering::Acquire);
    let pairs = Texts::new(&texts[start..]).count();
    if words[SEQUENCE].load(Ordering::Relaxed) != before || pairs % 2 == 1 {
        texts.truncate(start);
        return None;
    }
    Some(ReadExemplar { time, value, texts: (start, start + length) })
}

/// Returns the offset in `word`. If there is none, takes a side allocation of `words()` words and
/// stores its offset there.
fn find_or_take(
    family: &Family,
    like: &SeriesCells<'_>,
    word: &AtomicU64,
    words: impl FnOnce() -> usize,
) -> Option<u32> {
    // Acquire: pairs with the release below; a thread that sees the offset sees the side
    // allocation.
    let found = word.load(Ordering::Acquire);
    if found != 0 {
        return u32::try_from(found).ok();
    }
    let at = family.allocate_side(like, u16::try_from(words()).ok()?, 0).ok()?;
    // Release: pairs with the acquire above. If two threads are here at once, the second one's side
    // allocation is leaked.
    match word.compare_exchange(0, at.into(), Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Some(at),
        Err(found) => u32::try_from(found).ok(),
    }
}

/// Returns the maximum number of exemplars of a series in the family: its number of cells.
fn family_slots(family: &Family) -> usize {
    usize::from(family.schema().cells)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// A writer is not considered dead just because the previous exemplar is old.
    #[test]
    fn a_writer_is_taken_for_dead_a_while_after_it_was_suspected() {
        let words: Vec<AtomicU64> = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
        let shown = |words: &[AtomicU64]| read(words, &mut Vec::new()).map(|slot| slot.value);
        assert!(write(&words, PATIENCE, PATIENCE, 1.0, &[("a", "b")]));
        assert_eq!(shown(&words), Some(1.0));
        // Another writer starts, and stops before it stores its time.
        let odd = words[SEQUENCE].fetch_add(1, Ordering::Relaxed) + 1;
        for (now, taken) in [(9.0, false), (9.5, false), (9.9, false), (10.1, true)] {
            let at = (now * PATIENCE as f64) as u64;
            assert_eq!(write(&words, at, at, now, &[("a", "b")]), taken, "{now}");
            assert_eq!(words[SEQUENCE].load(Ordering::Relaxed) != odd, taken, "{now}");
        }
        assert_eq!(shown(&words), Some(10.1));
        assert_eq!(read(&words, &mut Vec::new()).map(|slot| slot.time % 2), Some(0));
        // The source sends the time of the observation, which differs from the time of the write.
        let now = 100 * PATIENCE + 123_456_789;
        for (time, shown) in [(2 * PATIENCE, 2 * PATIENCE), (now + 9, now - 1), (now - 1, now - 1)]
        {
            assert!(write(&words, now, time, 1.0, &[("a", "b")]));
            assert_eq!(observed(&words), Some(shown), "{time}");
            assert!(now - words[TIME].load(Ordering::Relaxed) < 2 * NANOS_PER_MILLI, "{time}");
        }
    }

    #[test]
    fn an_exemplar_without_labels_is_one() {
        let words: Vec<AtomicU64> = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
        for (now, value, pairs) in [(9, 1.0, &[("a", "b")][..]), (10, 2.0, &[])] {
            let now = now * PATIENCE;
            assert!(write(&words, now, now - PATIENCE, value, pairs));
            let mut texts = Vec::new();
            let slot = read(&words, &mut texts).unwrap();
            assert_eq!((slot.value, slot.time), (value, now - PATIENCE));
            assert_eq!(slot.exemplar(&texts).labels.count(), 2 * pairs.len());
        }
        words[LENGTH].store(0, Ordering::Relaxed);
        assert!(read(&words, &mut Vec::new()).is_none());
    }
}
