//! Exemplars in the segment: the last one of a counter, or of each bucket.
//!
//! The exemplar cell of a series has the offset of an extra with one word a slot; each of those has
//! the offset of a slot of its own, which is taken when the first exemplar comes. A slot is written
//! under a sequence number, which is odd meanwhile: whoever reads it looks again afterwards, and a
//! writer that finds another one at it leaves its exemplar out. One that comes more than a second
//! after the time that is there suspects the other to be dead; one that comes a second later, and
//! finds that nobody went on, takes the slot over.

use std::time::{SystemTime, UNIX_EPOCH};

use quipu_segment::series::{Beside, Family, Place};
use quipu_segment::sync::{AtomicU64, Ordering, fence};

use crate::snapshot::{Texts, Timestamp};

/// The words of a slot: sequence, time, value, length, and the text.
const SEQUENCE: usize = 0;
const TIME: usize = 1;
const VALUE: usize = 2;
const LENGTH: usize = 3;
const TEXT: usize = 4;
const WORDS: u16 = 36;
/// The bytes of names, values and their lengths that fit.
const TEXT_BYTES: usize = (WORDS as usize - TEXT) * 8;
/// The most characters of names and values (OpenMetrics 1.0, section "Exemplars").
const MOST_CHARACTERS: usize = 128;
/// How long a writer may take before it counts as dead, in nanoseconds.
const PATIENCE: u64 = 1_000_000_000;
/// The bit of a time that says that somebody suspects the writer to be dead.
const SUSPECT: u64 = 1;

/// An exemplar as it was read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slot {
    pub(crate) time: u64,
    pub(crate) value: f64,
    /// Where its texts are in the buffer that it was read into.
    pub(crate) texts: (usize, usize),
}

/// Keeps an exemplar in slot `slot` of the series, whose exemplar cell is `cell`. It is left out
/// where the family keeps none, where it is too long, or where the segment is full.
pub(crate) fn keep(
    family: &Family,
    place: &Place<'_>,
    cell: usize,
    slot: usize,
    value: f64,
    pairs: &[(&str, &str)],
) {
    // Those that have no exemplars have one cell less.
    if cell >= place.len() {
        return;
    }
    let characters: usize =
        pairs.iter().map(|(name, value)| name.chars().count() + value.chars().count()).sum();
    let bytes: usize = pairs.iter().map(|(name, value)| name.len() + value.len() + 2).sum();
    // A text of 255 bytes or more would have a longer length; none of 128 characters needs it here,
    // since all have to fit.
    let is_short = pairs.iter().all(|(name, value)| name.len() < 255 && value.len() < 255);
    if characters > MOST_CHARACTERS || bytes > TEXT_BYTES || !is_short {
        return;
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = u64::try_from(now.as_nanos()).unwrap_or(0);
    let root = place.plain(cell);
    let slots = slot + 1;
    let Some(table) = find_or_take(family, place, root, || family_slots(family).max(slots)) else {
        return;
    };
    let Some(word) = family.extra(place, table).and_then(|extra| extra.words().get(slot)) else {
        return;
    };
    let Some(at) = find_or_take(family, place, word, || usize::from(WORDS)) else { return };
    let Some(extra) = family.extra(place, at) else { return };
    write(extra.words(), now, value, pairs);
}

/// The exemplars of series that have nothing else beside their cells: the cell of their offset.
pub(crate) struct Exemplars(pub(crate) usize);

impl Beside for Exemplars {
    fn is_offset(&self, cell: usize) -> bool {
        cell == self.0
    }

    fn renew(&self, family: &Family, place: &Place<'_>) {
        clear(family, place, self.0);
    }
}

/// Forgets the exemplars of a series.
pub(crate) fn clear(family: &Family, place: &Place<'_>, cell: usize) {
    each(family, place, cell, |words| {
        if let Some(length) = words.get(LENGTH) {
            // One without labels is none.
            length.store(0, Ordering::Release);
        }
    });
}

/// Reads the exemplars of a series into `slots`, one an index; their texts go to `texts`.
pub(crate) fn slots_of(
    family: &Family,
    place: &Place<'_>,
    cell: usize,
    slots: &mut Vec<Option<Slot>>,
    texts: &mut Vec<u8>,
) {
    slots.clear();
    texts.clear();
    each(family, place, cell, |words| slots.push(read(words, texts)));
}

/// Calls `act` with the words of each slot of a series; with none for a slot that never was used.
fn each(family: &Family, place: &Place<'_>, cell: usize, mut act: impl FnMut(&[AtomicU64])) {
    if cell >= place.len() {
        return;
    }
    // Acquire, here and below: whoever sees the offset sees what is there.
    let root = place.plain(cell).load(Ordering::Acquire);
    let Some(table) = family.extra(place, u32::try_from(root).unwrap_or(0)) else { return };
    for word in table.words().iter().take(place.len()) {
        let at = u32::try_from(word.load(Ordering::Acquire)).unwrap_or(0);
        act(family.extra(place, at).map_or(&[], |slot| slot.words()));
    }
}

/// An exemplar that was kept.
#[derive(Debug, Clone, PartialEq)]
pub struct KeptExemplar {
    /// Pairs of names and values.
    pub labels: Vec<(String, String)>,
    /// What was observed.
    pub value: f64,
    /// When.
    pub time: Timestamp,
}

/// The exemplar of an index, where there is one.
pub(crate) fn kept(
    family: &Family,
    place: &Place<'_>,
    cell: usize,
    slot: usize,
) -> Option<KeptExemplar> {
    let (mut slots, mut texts) = (Vec::new(), Vec::new());
    slots_of(family, place, cell, &mut slots, &mut texts);
    let Slot { time, value, texts: (start, end) } = slots.into_iter().nth(slot)??;
    let mut texts = Texts::new(texts.get(start..end)?);
    let mut labels = Vec::new();
    while let (Some(name), Some(value)) = (texts.next(), texts.next()) {
        labels.push((name.to_owned(), value.to_owned()));
    }
    Some(KeptExemplar { labels, value, time: Timestamp(time) })
}

fn write(words: &[AtomicU64], now: u64, value: f64, pairs: &[(&str, &str)]) {
    if words.len() < usize::from(WORDS) {
        return;
    }
    let sequence = words[SEQUENCE].load(Ordering::Relaxed);
    if sequence % 2 == 1 && !is_stuck(&words[TIME], now) {
        return;
    }
    let odd = sequence.wrapping_add(if sequence % 2 == 1 { 2 } else { 1 });
    // Acquire: what is written below is written after this.
    if words[SEQUENCE]
        .compare_exchange(sequence, odd, Ordering::Acquire, Ordering::Relaxed)
        .is_err()
    {
        return;
    }
    // Release, here and below: whoever reads what is written sees the odd number.
    words[TIME].store(now & !SUSPECT, Ordering::Release);
    words[VALUE].store(value.to_bits(), Ordering::Release);
    let mut bytes = [0; TEXT_BYTES];
    let mut length = 0;
    for text in pairs.iter().flat_map(|(name, value)| [name, value]) {
        // `keep` saw that all fit, and that each is shorter than 255 bytes.
        bytes[length] = text.len() as u8;
        bytes[length + 1..=length + text.len()].copy_from_slice(text.as_bytes());
        length += 1 + text.len();
    }
    words[LENGTH].store(length as u64, Ordering::Release);
    for (word, chunk) in words[TEXT..].iter().zip(bytes[..length].chunks(8)) {
        let mut padded = [0; 8];
        padded[..chunk.len()].copy_from_slice(chunk);
        word.store(u64::from_le_bytes(padded), Ordering::Release);
    }
    // Release: whoever sees the even number sees the whole. Who was taken for stuck leaves it to the
    // other.
    let _ = words[SEQUENCE].compare_exchange(
        odd,
        odd.wrapping_add(1),
        Ordering::Release,
        Ordering::Relaxed,
    );
}

/// Whether the one who is writing has not gone on since somebody suspected that a while ago. Its time
/// may be that of the one before, for as long as it has not written its own.
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

fn read(words: &[AtomicU64], texts: &mut Vec<u8>) -> Option<Slot> {
    if words.len() < usize::from(WORDS) {
        return None;
    }
    // Acquire: what is read below is at least as new.
    let before = words[SEQUENCE].load(Ordering::Acquire);
    if before % 2 == 1 || before == 0 {
        return None;
    }
    let time = words[TIME].load(Ordering::Relaxed);
    let value = f64::from_bits(words[VALUE].load(Ordering::Relaxed));
    let length = usize::try_from(words[LENGTH].load(Ordering::Relaxed)).ok()?;
    if length > TEXT_BYTES || length == 0 {
        return None;
    }
    let start = texts.len();
    for word in words[TEXT..].iter().take(length.div_ceil(8)) {
        texts.extend_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
    }
    texts.truncate(start + length);
    // Acquire: had a load above read what a later writer wrote, this would see that writer.
    fence(Ordering::Acquire);
    let pairs = Texts::new(&texts[start..]).count();
    if words[SEQUENCE].load(Ordering::Relaxed) != before || pairs % 2 == 1 {
        texts.truncate(start);
        return None;
    }
    Some(Slot { time, value, texts: (start, start + length) })
}

/// The offset in a word; takes an extra of so many words where it has none.
fn find_or_take(
    family: &Family,
    like: &Place<'_>,
    word: &AtomicU64,
    words: impl FnOnce() -> usize,
) -> Option<u32> {
    // Acquire: whoever sees the offset sees what is there.
    let found = word.load(Ordering::Acquire);
    if found != 0 {
        return u32::try_from(found).ok();
    }
    let at = family.take_extra(like, u16::try_from(words()).ok()?, 0).ok()?;
    // Release: as above. Who comes second loses what it took, once.
    match word.compare_exchange(0, at.into(), Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Some(at),
        Err(found) => u32::try_from(found).ok(),
    }
}

/// How many exemplars a series of the family has at most: no more than it has cells.
fn family_slots(family: &Family) -> usize {
    usize::from(family.schema().cells)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who writes is not taken for dead because the exemplar before is old.
    #[test]
    fn a_writer_is_taken_for_dead_a_while_after_it_was_suspected() {
        let words: Vec<AtomicU64> = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
        let shown = |words: &[AtomicU64]| read(words, &mut Vec::new()).map(|slot| slot.value);
        write(&words, PATIENCE, 1.0, &[("a", "b")]);
        assert_eq!(shown(&words), Some(1.0));
        // Another one begins, and does not come to write its time.
        let odd = words[SEQUENCE].fetch_add(1, Ordering::Relaxed) + 1;
        for (now, taken) in [(9.0, false), (9.5, false), (9.9, false), (10.1, true)] {
            write(&words, (now * PATIENCE as f64) as u64, now, &[("a", "b")]);
            assert_eq!(words[SEQUENCE].load(Ordering::Relaxed) != odd, taken, "{now}");
        }
        assert_eq!(shown(&words), Some(10.1));
        assert_eq!(read(&words, &mut Vec::new()).map(|slot| slot.time % 2), Some(0));
    }
}
