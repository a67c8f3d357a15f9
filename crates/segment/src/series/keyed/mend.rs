//! Mends a family after a process died during a change, or power was lost.
//!
//! If no other process is counting, everything after the first contradiction with the layout is cut
//! off. The lists of free records, the index, and the counts are rebuilt from the records.

use super::blocks::WalkPosition;
use super::head as at;
use super::tables::bits_for;
use super::{DynamicSeries, Moment, fingerprint};
use crate::claims::Memory;
use crate::error::Error;
use crate::lock;
use crate::offset::{self, WordOffset};
use crate::series::index::{Index, MAX_BITS, Table};
use crate::series::meta::{is_series, state, state_of};
use crate::sync::{AtomicU64, Ordering};

impl DynamicSeries {
    /// Returns whether the family stores how many records were claimed at the last read of the
    /// claims.
    pub(super) fn remembers_claims(&self) -> bool {
        let remembers = |at: usize| self.head[at].load(Ordering::Relaxed) != 0;
        remembers(at::CLAIMED) || remembers(at::NEXT_READ)
    }

    /// Clears these numbers. No other process may have the segment open, so there are no claims.
    pub(crate) fn unclaim_alone(&self) {
        self.head[at::CLAIMED].store(0, Ordering::Relaxed);
        self.head[at::NEXT_READ].store(0, Ordering::Relaxed);
    }

    /// Mends the family. No other process may have the segment open.
    pub(crate) fn mend_alone(&self, now: Moment) -> Result<(), Error> {
        // If this process dies before the end, the next one must know that the family is broken.
        self.head[at::BROKEN].store(1, Ordering::Relaxed);
        // Release: after the store above.
        self.head[at::LOCK].store(0, Ordering::Release);
        self.mend(true, now)?;
        // Release: after all stores of the mending.
        self.head[at::BROKEN].store(0, Ordering::Release);
        Ok(())
    }

    /// Mends the family after a process died during a change, or power was lost: removes incomplete
    /// parts, and rebuilds the index, the free records and the counts. `alone` means that no other
    /// process is using the segment.
    pub(super) fn mend(&self, alone: bool, now: Moment) -> Result<(), Error> {
        let region = self.region();
        let torn = alone && self.segment.may_have_lost_power();
        // If others count, nothing is cut off, because they may have claimed records there. A
        // series with unreadable labels is an error only when the file is opened.
        let survey = self.survey(torn || !alone, |_| ());
        if survey.flaw.is_none() || alone {
            self.head[at::LAST_BLOCK].store(survey.last.pack(), Ordering::Relaxed);
        }
        if survey.flaw.is_some() && alone {
            // The rest was never complete, or was not on the disk when power was lost.
            if survey.last == WordOffset::NONE {
                self.head[at::FIRST_BLOCK].store(0, Ordering::Relaxed);
            } else {
                let head = region.word(survey.last);
                head.store(head.load(Ordering::Relaxed) >> 32 << 32, Ordering::Relaxed);
                self.word_of(survey.last, 1).store(survey.used.into(), Ordering::Relaxed);
            }
        }
        // Do this before allocating, because allocating can extend the bytes in use over tables
        // beyond their end.
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
            let mut cursor = WalkPosition::default();
            let known = std::iter::from_fn(|| self.next_record(&mut cursor))
                .find(|&at| self.may_be_overflow(at))
                .unwrap_or(WordOffset::NONE);
            self.head[at::OVERFLOW].store(known.pack(), Ordering::Relaxed);
        }
        let mut live = 0_u64;
        let torn_series = if torn { self.torn_series() } else { Vec::new() };
        let mut cursor = WalkPosition::default();
        while let Some(at) = self.next_record(&mut cursor) {
            let meta = region.word(at).load(Ordering::Relaxed);
            if self.is_overflow(at) {
                // After a power loss, this word may contain the group of another record.
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
                // All of them go to limbo, because handles may be bound to some.
                self.free(at);
            }
        }
        self.head[at::LIVE].store(live, Ordering::Relaxed);
        if !self.has_overflow() {
            self.make_overflow(now)?;
        }
        self.rebuild(live)
    }

    /// Rebuilds the index of all series, in the existing tables. Each table is named by a word at
    /// every moment. If this process dies midway, the next one therefore finds all tables.
    pub(super) fn rebuild(&self, live: u64) -> Result<(), Error> {
        let mut tables = self.tables();
        // Take the table that was in use, if all entries fit, because a full segment has no room
        // for another.
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
            // A table is named under a wrong size only if the file is damaged. Drop such a name,
            // because the table gets the right one below.
            for word in self.retired(bits) {
                let named = Table::unpack(word.load(Ordering::Relaxed));
                if named.is_some_and(|table| table.bits != bits) {
                    word.store(0, Ordering::Relaxed);
                }
            }
        }
        for one in &tables {
            // Drop further names, because each table must be named only once.
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
                // Load first: most slots are zero already, and unwritten pages stay unallocated.
                if slot.load(Ordering::Relaxed) != 0 {
                    slot.store(0, Ordering::Relaxed);
                }
            }
        }
        let in_use = table;
        let table = AtomicU64::new(in_use.pack());
        // No other thread sees the table before it is complete.
        let index = Index { table: &table, ..self.index() };
        let (mut cursor, mut buffer) = (WalkPosition::default(), Vec::new());
        while let Some(at) = self.next_record(&mut cursor) {
            let meta = self.region().word(at).load(Ordering::Relaxed);
            if is_series(meta) && !self.is_overflow(at) {
                index.insert(fingerprint(self.hash_in(at, &mut buffer)), at);
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

    /// Returns the records, sorted, of series that a power loss left incomplete. Either the labels
    /// do not belong to the record, or another record contains the same labels because a removal
    /// was lost. Of these, the series with the latest start stays.
    fn torn_series(&self) -> Vec<WordOffset> {
        let (mut torn, mut whole) = (Vec::new(), Vec::new());
        let (mut cursor, mut buffer) = (WalkPosition::default(), Vec::new());
        while let Some(at) = self.next_record(&mut cursor) {
            let meta = self.region().word(at).load(Ordering::Relaxed);
            if !is_series(meta) || self.is_overflow(at) {
                continue;
            }
            match self.sound_hash(at, meta, &mut buffer) {
                Some(hash) => {
                    let start = self.word_of(at, 1).load(Ordering::Relaxed) & u64::from(u32::MAX);
                    whole.push((hash, start, at));
                }
                None => torn.push(at),
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

    /// Returns whether a record belongs to a series without values, like the overflow's. In a
    /// family with dynamic labels, it is the only such record. In other families, all records are
    /// like this, and the overflow's is the first.
    pub(super) fn may_be_overflow(&self, at: WordOffset) -> bool {
        let meta = self.region().word(at).load(Ordering::Relaxed);
        let words = self.header + self.cells.get();
        is_series(meta)
            && self.key_words(meta) == 0
            && self.region().has(at.byte(), offset::bytes(words.into()))
    }
}
