//! Inspecting a family when its file is opened, and mending it after a process died during a
//! change, or power was lost.
//!
//! A survey walks the blocks up to the first word that contradicts the layout. Mending cuts off
//! what follows, if no other process is counting, and rebuilds the lists of free records, the
//! index, and the counts from the records.

use std::ops::Range;

use super::blocks::{At, BLOCK_HEAD, MIN_BLOCK};
use super::head as at;
use super::record::{is_padding, texts_end};
use super::tables::bits_for;
use super::{DynamicSeries, Moment, fingerprint};
use crate::claims::Memory;
use crate::error::Error;
use crate::lock;
use crate::offset::{self, WordOffset};
use crate::series::index::{Index, MAX_BITS, Table};
use crate::series::meta::{self, ESCAPE_FREE, WORDS, is_series, state, state_of};
use crate::sync::{AtomicU64, Ordering};

/// The valid part of a family's blocks.
struct Survey {
    /// The last valid block, or 0 if there is none, and the number of its valid words.
    last: WordOffset,
    used: u32,
    /// What is wrong after that, as text.
    flaw: Option<String>,
}

impl DynamicSeries {
    /// Validates everything that an index and a walk will trust, without changing it. Adds the
    /// words that the family occupies to `extents`. With `torn`, power was lost: damage that this
    /// explains is mended later, and is not an error.
    ///
    /// # Errors
    /// What contradicts the layout, as text.
    pub(crate) fn inspect(&self, torn: bool, extents: &mut Vec<Range<u64>>) -> Result<(), String> {
        let survey = self.survey(torn, |block| extents.push(block));
        let tables = self.tables();
        extents.extend(tables.iter().map(|table| table.words()));
        if torn {
            return Ok(());
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
        Ok(())
    }

    /// Mends the family. No other process may have the segment open.
    pub(crate) fn mend_alone(&self, now: Moment) -> Result<(), Error> {
        self.head[at::LOCK].store(0, Ordering::Relaxed);
        self.mend(true, now)?;
        self.head[at::BROKEN].store(0, Ordering::Relaxed);
        Ok(())
    }

    /// Mends the family after a process died during a change, or power was lost: removes what is
    /// incomplete, and rebuilds index, free records and counts. With `alone`, no other process has
    /// the segment open.
    pub(super) fn mend(&self, alone: bool, now: Moment) -> Result<(), Error> {
        let region = self.region();
        let torn = alone && self.segment.may_have_lost_power();
        // While others count, nothing is cut off: they have claimed records there. A series with
        // unreadable labels is an error only when the file is opened.
        let survey = self.survey(torn || !alone, |_| ());
        if survey.flaw.is_none() || alone {
            self.head[at::LAST_BLOCK].store(survey.last.pack(), Ordering::Relaxed);
        }
        if survey.flaw.is_some() && alone {
            // What follows was never complete, or was not on the disk when power was lost.
            if survey.last == WordOffset::NONE {
                self.head[at::FIRST_BLOCK].store(0, Ordering::Relaxed);
            } else {
                let head = region.word(survey.last);
                head.store(head.load(Ordering::Relaxed) >> 32 << 32, Ordering::Relaxed);
                self.word_of(survey.last, 1).store(survey.used.into(), Ordering::Relaxed);
            }
        }
        // Do this before allocating, which could extend the bytes in use over tables that lie
        // outside of them.
        let tables = self.tables();
        for word in self.table_words() {
            let packed = word.load(Ordering::Relaxed);
            if !tables.iter().any(|table| table.pack() == packed) {
                word.store(0, Ordering::Relaxed);
            }
        }
        for word in &self.head[at::LIMBO..at::RETIRED] {
            word.store(0, Ordering::Relaxed);
        }
        self.head[at::HIDDEN].store(0, Ordering::Relaxed);
        if !self.has_overflow() {
            let mut cursor = At::default();
            let known = std::iter::from_fn(|| self.next_record(&mut cursor))
                .find(|&at| self.may_be_overflow(at))
                .unwrap_or(WordOffset::NONE);
            self.head[at::OVERFLOW].store(known.pack(), Ordering::Relaxed);
        }
        let mut live = 0_u64;
        let torn_series = if torn { self.torn_series() } else { Vec::new() };
        let mut cursor = At::default();
        while let Some(at) = self.next_record(&mut cursor) {
            let meta = region.word(at).load(Ordering::Relaxed);
            if self.is_overflow(at) {
                // A loss of power may have left the group of another record there.
                self.word_of(at, 1).fetch_and(u32::MAX.into(), Ordering::Release);
                continue;
            }
            let is_kept = torn_series.binary_search(&at).is_err();
            if is_kept && is_series(meta) && (self.texts == 0 || !self.may_be_overflow(at)) {
                live += 1;
                let hidden = u64::from(state_of(meta) == state::HIDDEN);
                self.head[at::HIDDEN].fetch_add(hidden, Ordering::Relaxed);
            } else {
                if torn {
                    // The memory at the offsets in its cells may belong to another series.
                    (0..self.cells.get()).for_each(|cell| {
                        self.word_of(at, self.header + cell).store(0, Ordering::Relaxed);
                    });
                }
                // All of them go to limbo: handles may be bound to some of them.
                self.free(at);
            }
        }
        self.head[at::LIVE].store(live, Ordering::Relaxed);
        if !self.has_overflow() {
            self.make_overflow(now)?;
        }
        self.rebuild(live)
    }

    /// Rebuilds the index of all series, in the existing tables. Some word names each table at
    /// every moment, so a process that dies midway leaves all of them to the next.
    fn rebuild(&self, live: u64) -> Result<(), Error> {
        let mut tables = self.tables();
        // The table that was in use, if all entries fit: a full segment has no room for another
        // one.
        let roomy = |table: &&Table| live <= u64::from(table.slots()) / 4 * 3;
        let table = match tables.iter().find(roomy) {
            Some(table) => *table,
            None => {
                let bits = bits_for(live.saturating_add(1));
                let table = Table { at: self.segment.take(1 << bits, lock::UPDATE)?, bits };
                tables.push(table);
                table
            }
        };
        self.begin_change();
        for bits in 0..=MAX_BITS {
            // Only damage names a table under a wrong size: drop that name. The table gets the
            // right one below.
            for word in self.retired(bits) {
                let named = Table::unpack(word.load(Ordering::Relaxed));
                if named.is_some_and(|table| table.bits != bits) {
                    word.store(0, Ordering::Relaxed);
                }
            }
        }
        for one in &tables {
            // No table may be named twice.
            let others = self.retired(one.bits).iter();
            let named = others.filter(|word| word.load(Ordering::Relaxed) == one.pack());
            named.skip(1).for_each(|word| word.store(0, Ordering::Relaxed));
            self.retire(*one);
        }
        // Release: after the stores above.
        for at in [at::PREVIOUS, at::TABLE, at::MIGRATED, at::ENTRIES] {
            self.head[at].store(0, Ordering::Release);
        }
        for table in &tables {
            for slot in self.region().words(table.at, table.slots()) {
                // Loads first: most are zero already, and pages that are not written stay
                // unallocated.
                if slot.load(Ordering::Relaxed) != 0 {
                    slot.store(0, Ordering::Relaxed);
                }
            }
        }
        let in_use = table;
        let table = AtomicU64::new(in_use.pack());
        // No other thread sees it before it is complete.
        let index = Index { table: &table, ..self.index() };
        let mut cursor = At::default();
        while let Some(at) = self.next_record(&mut cursor) {
            let meta = self.region().word(at).load(Ordering::Relaxed);
            if is_series(meta) && !self.is_overflow(at) {
                index.insert(fingerprint(self.hash(at)), at);
            }
        }
        self.head[at::TABLE].store(in_use.pack(), Ordering::Release);
        for word in self.retired(in_use.bits) {
            if word.load(Ordering::Relaxed) == in_use.pack() {
                // Release: after the store above.
                word.store(0, Ordering::Release);
            }
        }
        Ok(())
    }

    /// Walks the blocks up to the first error. `each` gets the words of each block. With
    /// `skip_label_checks`, a series may have labels that are not its own.
    fn survey(&self, skip_label_checks: bool, mut each: impl FnMut(Range<u64>)) -> Survey {
        let region = self.region();
        let end = self.end();
        let mut survey = Survey { last: WordOffset::NONE, used: 0, flaw: None };
        let flaw = |at: u64, what: &str| Some(format!("{what}, at byte {}", offset::bytes(at)));
        let mut block = self.head[at::FIRST_BLOCK].load(Ordering::Acquire);
        // No block is shorter than MIN_BLOCK, so a circular list ends.
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
            // Since the block ends inside, all of its offsets are word offsets, of 32 bits.
            if length < MIN_BLOCK.into() || block + length > end {
                survey.flaw = flaw(block, "a block that ends outside of the bytes in use");
                return survey;
            }
            each(block..block + length);
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
                if is_series(meta) && !skip_label_checks && !self.is_sound(record, meta) {
                    survey.flaw = flaw(record.pack(), "a series whose labels are unreadable");
                    return survey;
                }
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

    /// The records, sorted, of series that a loss of power left incomplete: their labels are not
    /// their own, or another record has the same labels, since a removal was lost. Of the latter,
    /// the series that began last stays.
    fn torn_series(&self) -> Vec<WordOffset> {
        let (mut torn, mut whole) = (Vec::new(), Vec::new());
        let mut cursor = At::default();
        while let Some(at) = self.next_record(&mut cursor) {
            let meta = self.region().word(at).load(Ordering::Relaxed);
            if !is_series(meta) || self.is_overflow(at) {
                continue;
            }
            if self.is_sound(at, meta) {
                let start = self.word_of(at, 1).load(Ordering::Relaxed) & u64::from(u32::MAX);
                whole.push((self.hash(at), start, at));
            } else {
                torn.push(at);
            }
        }
        whole.sort_unstable();
        let key = |at: WordOffset| -> Vec<u64> {
            let meta = self.region().word(at).load(Ordering::Relaxed);
            let words = self.key_at(at, self.key_words(meta)).iter();
            words.map(|word| word.load(Ordering::Relaxed)).collect()
        };
        for pair in whole.windows(2) {
            let [(hash, _, at), (next_hash, _, next)] = [pair[0], pair[1]];
            if hash == next_hash && key(at) == key(next) {
                torn.push(at);
            }
        }
        torn.sort_unstable();
        torn
    }

    /// Whether the labels of a series are valid for this family.
    fn is_sound(&self, at: WordOffset, meta: u64) -> bool {
        let group = self.word_of(at, 1).load(Ordering::Relaxed) >> 32;
        let count = self.key_words(meta);
        if count == 0 {
            // With dynamic labels, only the overflow series has no texts, and its group is 0.
            return if self.texts == 0 { group < self.groups.into() } else { group == 0 };
        }
        let key = self.key_at(at, count);
        let bytes: Vec<u8> =
            key.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()).collect();
        let Some(end) = texts_end(&bytes, self.texts) else { return false };
        group < u64::from(self.groups)
            && is_padding(&bytes[end..])
            && meta::has_checksum(meta, self.hash(at))
            && self.texts(&bytes).all(|text| std::str::from_utf8(text).is_ok())
            && (meta & ESCAPE_FREE == 0 || self.is_escape_free(&bytes))
    }

    /// Whether a record belongs to a series without texts, as the overflow's does. With dynamic
    /// labels, no other record does; without, all do, and the overflow's was made first.
    pub(super) fn may_be_overflow(&self, at: WordOffset) -> bool {
        let meta = self.region().word(at).load(Ordering::Relaxed);
        let words = self.header + self.cells.get();
        is_series(meta)
            && self.key_words(meta) == 0
            && self.region().has(at.byte(), offset::bytes(words.into()))
    }
}
