//! Checks a family before its words are trusted, when its file is opened and when it is mended.
//!
//! A survey walks the blocks up to the first contradiction with the layout. When a file is opened,
//! the same walk determines whether the family is *whole*: no process died while it changed the
//! family, and the index, the lists of free records and the counts match the records. A whole
//! family is used without mending, so you can open a large file fast. Other families are mended or
//! refused.

use std::ops::Range;

use super::blocks::{BLOCK_HEAD, MIN_BLOCK};
use super::free::CLASSES;
use super::head as at;
use super::record::is_padding;
use super::{DynamicSeries, fingerprint};
use crate::claims::Memory;
use crate::offset::{self, WordOffset};
use crate::segment::ToDo;
use crate::series::index::{MAX_BITS, Table};
use crate::series::meta::{self, ESCAPE_FREE, WORDS, is_series, state, state_of};
use crate::sync::Ordering;

/// The valid part of a family's blocks.
pub(super) struct Survey {
    /// The last valid block, or 0 if there is none, and the number of its valid words.
    pub(super) last: WordOffset,
    pub(super) used: u32,
    /// A message on the first contradiction.
    pub(super) flaw: Option<String>,
}

/// A part of the family that a survey visits.
pub(super) enum Part {
    /// The words of a block.
    Block(Range<u64>),
    /// A record, its meta word, and the hash of its key. The hash is set if the record belongs to a
    /// series whose labels were checked.
    Record(WordOffset, u64, Option<u64>),
}

/// The counts of the records, for comparison with the head.
#[derive(Default)]
struct Tally {
    series: u64,
    hidden: u64,
    free: u64,
    /// The sum of these records' offset digests.
    free_digests: u64,
    /// Whether a record is half made, or a series is not in the index.
    is_odd: bool,
    /// The last series. Their entries in the index are looked up after others followed, because the
    /// processor has prefetched them by then.
    pending: [Option<(u32, WordOffset)>; AHEAD],
    /// The index in `pending` of the next series.
    next: usize,
}

/// The distance in series between prefetching an entry and looking it up. This makes opening a
/// million series a quarter faster.
const AHEAD: usize = 16;

/// Returns a number for an offset, such that different sets of offsets have different sums.
fn digest(at: WordOffset) -> u64 {
    let product = at.pack().wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (product ^ product >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93)
}

/// The maximum number of slots from the home of an entry to the entry, in a whole index. If three
/// of four slots are in use, a search passes `n` slots with a probability of about `exp(-n / 26)`.
const MOST_SLOTS: u32 = 1024;

impl DynamicSeries {
    /// Validates all words that an index and a walk will trust, without changing them. Adds the
    /// words that the family occupies to `extents`. `torn` means that power was lost: damage that
    /// this can explain is mended later, and is not an error. Returns the job to do before the
    /// family is used.
    ///
    /// # Errors
    /// A message on the contradiction with the layout.
    pub(crate) fn inspect(
        &self,
        torn: bool,
        extents: &mut Vec<Range<u64>>,
    ) -> Result<Option<ToDo>, String> {
        let mut tally = Tally::default();
        let survey = self.survey(torn, |part| match part {
            Part::Block(words) => extents.push(words),
            Part::Record(at, meta, hash) => self.count(&mut tally, at, meta, hash),
        });
        let tables = self.tables();
        extents.extend(tables.iter().map(|table| table.words()));
        if torn {
            return Ok(Some(ToDo::Mend));
        }
        if let Some(flaw) = survey.flaw {
            return Err(flaw);
        }
        for word in self.table_words() {
            let packed = word.load(Ordering::Relaxed);
            if packed != 0 && !tables.iter().any(|table| table.pack() == packed) {
                return Err(format!("its index {packed:#x} lies outside of the bytes in use"));
            }
        }
        if !self.has_overflow() {
            let overflow = self.head[at::OVERFLOW].load(Ordering::Relaxed);
            let byte = offset::bytes(overflow);
            return Err(format!("it has no overflow series at byte {byte}"));
        }
        if !self.is_whole(survey.last, &tally) {
            return Ok(Some(ToDo::Mend));
        }
        Ok(self.remembers_claims().then_some(ToDo::Unclaim))
    }

    fn count(&self, tally: &mut Tally, at: WordOffset, meta: u64, hash: Option<u64>) {
        match state_of(meta) {
            state::FREE => {
                tally.free += 1;
                tally.free_digests = tally.free_digests.wrapping_add(digest(at));
            }
            state::LIVE | state::HIDDEN if !self.is_overflow(at) => {
                tally.series += 1;
                tally.hidden += u64::from(state_of(meta) == state::HIDDEN);
                // Once the family must be mended, the rest does not matter.
                tally.is_odd = tally.is_odd
                    || self.texts > 0 && self.may_be_overflow(at)
                    || hash.is_none_or(|hash| self.is_missing_soon(tally, fingerprint(hash), at));
            }
            state::DRAFT => tally.is_odd = true,
            _ => {}
        }
    }

    /// Prefetches the entry of a series, and returns whether an earlier series lacks its entry.
    fn is_missing_soon(&self, tally: &mut Tally, fingerprint: u32, at: WordOffset) -> bool {
        let index = self.index();
        index.prefetch(fingerprint);
        let earlier = tally.pending[tally.next].replace((fingerprint, at));
        tally.next = (tally.next + 1) % AHEAD;
        earlier.is_some_and(|(fingerprint, at)| !index.has_entry(fingerprint, at, MOST_SLOTS))
    }

    /// Returns whether no process was changing the family, and its head matches the records.
    fn is_whole(&self, last_block: WordOffset, tally: &Tally) -> bool {
        let states = |at: usize, count: u64| self.head[at].load(Ordering::Relaxed) == count;
        let index = self.index();
        let has_entry = |entry: &(u32, WordOffset)| index.has_entry(entry.0, entry.1, MOST_SLOTS);
        states(at::LOCK, 0)
            && states(at::BROKEN, 0)
            && !tally.is_odd
            && tally.pending.iter().flatten().all(has_entry)
            && states(at::LIVE, tally.series)
            && states(at::HIDDEN, tally.hidden)
            && states(at::ENTRIES, self.index().used_slots())
            && states(at::LAST_BLOCK, last_block.pack())
            && self.tables_are_whole()
            && self.listed(tally.free) == Some((tally.free, tally.free_digests))
    }

    /// Returns whether each table is named once, under its size, and the free tables are empty.
    fn tables_are_whole(&self) -> bool {
        let tables = self.tables();
        let named = self.table_words().filter(|word| word.load(Ordering::Relaxed) != 0).count();
        let has_its_size = |bits: u32| {
            let words = self.retired(bits).iter().map(|word| word.load(Ordering::Relaxed));
            words.filter_map(Table::unpack).all(|table| table.bits == bits)
        };
        let previous = Table::unpack(self.head[at::PREVIOUS].load(Ordering::Relaxed));
        let migrated = self.head[at::MIGRATED].load(Ordering::Relaxed);
        let in_use = usize::from(previous.is_some()) + 1;
        let is_empty = |table: &Table| {
            let mut slots = self.region().words(table.at, table.slots()).iter();
            slots.all(|slot| slot.load(Ordering::Relaxed) == 0)
        };
        named == tables.len()
            && (0..=MAX_BITS).all(has_its_size)
            && previous.is_none_or(|previous| migrated <= previous.slots().into())
            // `tables` lists the current one and its predecessor first.
            && (self.head[at::TABLE].load(Ordering::Relaxed) != 0 || tables.is_empty())
            && tables.iter().skip(in_use).all(is_empty)
    }

    /// Returns the number of records on the lists of free records, and the sum of their offset
    /// digests. Returns `None` if there are more than `most`, if something else is on a list, or if
    /// a count or a bit contradicts a list.
    fn listed(&self, most: u64) -> Option<(u64, u64)> {
        let (mut count, mut digests) = (0, 0_u64);
        let mut walk = |first: usize, wanted: Option<u32>| {
            let before = count;
            let mut at = WordOffset::unpack(self.head[first].load(Ordering::Relaxed));
            while at != WordOffset::NONE {
                let class = self.free_class(at)?;
                if count == most || wanted.is_some_and(|wanted| wanted != class) {
                    return None;
                }
                digests = digests.wrapping_add(digest(at));
                (count, at) = (count + 1, self.link(at));
            }
            Some(count - before)
        };
        if walk(at::LIMBO, None)? != self.head[at::LIMBO_COUNT].load(Ordering::Relaxed) {
            return None;
        }
        for class in 0..CLASSES {
            let is_filled = walk(at::READY + class as usize, Some(class))? > 0;
            let bit = self.filled(class).load(Ordering::Relaxed) >> (class % 64) & 1;
            if is_filled != (bit == 1) {
                return None;
            }
        }
        Some((count, digests))
    }

    /// Walks the blocks up to the first error, and passes the blocks and the records to `each`.
    /// With `skip_label_checks`, the labels of a series may belong to another one.
    pub(super) fn survey(&self, skip_label_checks: bool, mut each: impl FnMut(Part)) -> Survey {
        let mut buffer = Vec::new();
        let region = self.region();
        let end = self.end();
        let mut survey = Survey { last: WordOffset::NONE, used: 0, flaw: None };
        let flaw = |at: u64, reason: &str| Some(format!("{reason}, at byte {}", offset::bytes(at)));
        let mut block = self.head[at::FIRST_BLOCK].load(Ordering::Acquire);
        // No block is shorter than MIN_BLOCK, so this bounds the walk over a circular list.
        let mut left = end / u64::from(MIN_BLOCK) + 1;
        while block != 0 {
            left -= 1;
            let at = u32::try_from(block).ok().filter(|_| left > 0 && block + 2 <= end);
            let at = at.map(WordOffset::new);
            let length = at.map(|at| region.word(at).load(Ordering::Acquire) >> 32);
            let (Some(at), Some(length)) = (at, length) else {
                survey.flaw = flaw(block, "a block that lies outside of the bytes in use");
                return survey;
            };
            // The block ends inside, so all of its offsets fit into 32 bits.
            if length < MIN_BLOCK.into() || block + length > end {
                survey.flaw = flaw(block, "a block that ends outside of the bytes in use");
                return survey;
            }
            each(Part::Block(block..block + length));
            (survey.last, survey.used) = (at, BLOCK_HEAD);
            let used = self.word_of(at, 1).load(Ordering::Acquire);
            if used < u64::from(BLOCK_HEAD) || used > length {
                survey.flaw = flaw(block, "a block with more words in use than it has");
                return survey;
            }
            while u64::from(survey.used) < used {
                let record = at.plus(survey.used);
                let meta = region.word(record).load(Ordering::Acquire);
                let words = meta & WORDS;
                let fits = meta::used_words(meta) >= u64::from(self.header + self.cells.get())
                    && u64::from(survey.used) + words <= used;
                if !fits || state_of(meta) > state::HIDDEN {
                    survey.flaw = flaw(record.pack(), "a record that contradicts the layout");
                    return survey;
                }
                let mut hash = None;
                if is_series(meta) && !skip_label_checks {
                    hash = self.sound_hash(record, meta, &mut buffer);
                    if hash.is_none() {
                        survey.flaw = flaw(record.pack(), "a series whose labels are unreadable");
                        return survey;
                    }
                }
                each(Part::Record(record, meta, hash));
                survey.used += words as u32;
            }
            let next = WordOffset::unpack(region.word(at).load(Ordering::Acquire)).pack();
            if next != 0 && next <= block {
                survey.flaw = flaw(next, "a block that does not lie after the one before");
                return survey;
            }
            block = next;
        }
        survey
    }

    /// Returns the hash of a series' key; `None` if its labels are not valid for this family.
    /// `buffer` is memory for the key.
    pub(super) fn sound_hash(
        &self,
        at: WordOffset,
        meta: u64,
        buffer: &mut Vec<u8>,
    ) -> Option<u64> {
        let group = (self.word_of(at, 1).load(Ordering::Relaxed) >> 32) as u32;
        let bytes = self.key_bytes(at, meta, buffer);
        if self.key_words(meta) == 0 {
            // With dynamic labels, only the overflow series does not have values, and its group is
            // 0.
            let is_sound = if self.texts == 0 { group < self.groups } else { group == 0 };
            return is_sound.then(|| self.secrets.hash(group, self.texts, bytes));
        }
        let summary = self.secrets.check_and_hash(group, self.texts, bytes)?;
        let is_sound = group < self.groups
            && is_padding(&bytes[summary.end..])
            && meta::has_checksum(meta, summary.hash)
            && (summary.is_ascii || self.texts(bytes).all(|text| str::from_utf8(text).is_ok()))
            && (meta & ESCAPE_FREE == 0 || !summary.has_escape);
        is_sound.then_some(summary.hash)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::Moment;
    use super::*;
    use crate::segment::Segment;
    use crate::series::family::{Family, Series};
    use crate::series::schema::{Label, Schema};

    fn family(segment: &Segment) -> Family {
        let labels = vec![Label { name: "user".into(), values: None }];
        let schema = Schema { name: "requests".into(), cells: 1, labels, ..Schema::default() };
        let family = segment.family(&schema).unwrap();
        // Enough for the index to grow, and for records both in limbo and ready.
        let users: Vec<String> =
            (0..100).map(|i| "u".repeat(1 + i % 40) + &i.to_string()).collect();
        users.iter().for_each(|user| family.add(|key| key.text(user), 0, 1));
        for user in &users[..50] {
            family.remove(|key| key.text(user)).unwrap();
        }
        users[..5].iter().for_each(|user| family.add(|key| key.text(user), 0, 1));
        family
    }

    fn to_do(keyed: &DynamicSeries) -> Option<ToDo> {
        keyed.inspect(false, &mut Vec::new()).unwrap()
    }

    /// Each change imitates a process that died, or a flipped bit.
    #[test]
    fn a_family_is_mended_unless_it_is_whole() {
        type Change = fn(&DynamicSeries);
        let store = |keyed: &DynamicSeries, at: usize, to: fn(u64) -> u64| {
            keyed.head[at].store(to(keyed.head[at].load(Ordering::Relaxed)), Ordering::Relaxed);
        };
        let words = [at::LOCK, at::BROKEN, at::LIVE, at::HIDDEN, at::ENTRIES, at::LIMBO_COUNT];
        let changes: [Change; 5] = [
            |keyed| keyed.head[at::LIMBO].store(0, Ordering::Relaxed),
            |keyed| keyed.head[at::FILLED].store(0, Ordering::Relaxed),
            |keyed| keyed.head[at::LAST_BLOCK].store(0, Ordering::Relaxed),
            // A record that is half made, at the end.
            |keyed| _ = keyed.take_new(8).unwrap(),
            |keyed| {
                let is_live = |at: &WordOffset| {
                    let meta = keyed.region().word(*at).load(Ordering::Relaxed);
                    state_of(meta) == state::LIVE && !keyed.is_overflow(*at)
                };
                let mut cursor = super::super::WalkPosition::default();
                let mut records = std::iter::from_fn(|| keyed.next_record(&mut cursor));
                let at = records.find(is_live).unwrap();
                keyed.index().remove(fingerprint(keyed.hash(at)), at);
            },
        ];
        let segment = Segment::private(1 << 20).unwrap();
        let family = family(&segment);
        let Series::Dynamic(keyed) = &family.inner.layout else { panic!("its label is dynamic") };
        assert_eq!(to_do(keyed), Some(ToDo::Unclaim));
        keyed.unclaim_alone();
        assert_eq!(to_do(keyed), None);
        let count = family.len();
        let is_mended = |case: &str| {
            assert_eq!(to_do(keyed), Some(ToDo::Mend), "{case}");
            keyed.mend_alone(Moment::now(&segment)).unwrap();
            assert_eq!(to_do(keyed), None, "{case}");
            assert_eq!(family.len(), count, "{case}");
        };
        for at in words {
            store(keyed, at, |word| word + 1);
            is_mended(&format!("word {at}"));
        }
        for (i, change) in changes.iter().enumerate() {
            // Mending puts all free records in limbo, so move some to the ready lists.
            for i in 0..40 {
                let user = format!("{i} comes and goes");
                family.add(|key| key.text(&user), 0, 1);
                family.remove(|key| key.text(&user)).unwrap();
            }
            change(keyed);
            is_mended(&format!("change {i}"));
        }
    }
}
