//! The index of a family: from the hash of a key to its series.
//!
//! An open-addressed table of 64-bit entries: the upper half of the hash, and the word offset of
//! the series' record. A lookup takes no lock and compares whole keys, so a hash collision is
//! harmless. Changing the table requires the family's lock.
//!
//! A table that is full is not rehashed at once: a new one takes its place, the old one becomes its
//! predecessor, and every insertion moves a few entries over, in the order of their slots. A lookup
//! searches the new table, then its predecessor. It may miss an entry that moves at that moment, or
//! read a table that is reused: a thread that does not find the key searches again under the lock,
//! and a thread that finds an entry compares the key. So a table needs no claim; a record does, see
//! `claims.rs`.
//!
//! The slot of an entry is the top bits of its hash, so that entries move to the new table in
//! order, and touch its pages one after the other.

use crate::claims::Memory;
use crate::offset::WordOffset;
use crate::prefetch::prefetch;
use crate::sync::{AtomicU64, Ordering};

/// A table: its word offset, and the binary logarithm of its number of slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) at: WordOffset,
    pub(crate) bits: u32,
}

impl Table {
    /// Makes a table from a word that `pack` made; `None` for 0, and for a word that is not a
    /// table.
    #[inline]
    pub(crate) fn unpack(word: u64) -> Option<Self> {
        let table = Self { at: WordOffset::unpack(word), bits: (word >> 32) as u32 };
        (1..=MAX_BITS).contains(&table.bits).then_some(table)
    }

    pub(crate) fn pack(self) -> u64 {
        u64::from(self.bits) << 32 | self.at.pack()
    }

    /// The number of slots.
    pub(crate) fn slots(self) -> u32 {
        1 << self.bits
    }

    /// Its words.
    #[cfg(not(loom))]
    pub(crate) fn words(self) -> std::ops::Range<u64> {
        let start = u64::from(self.at.get());
        start..start + u64::from(self.slots())
    }

    #[inline]
    fn home(self, fingerprint: u32) -> u32 {
        fingerprint >> (u32::BITS - self.bits)
    }
}

/// The words that describe an index, and the memory that contains its tables.
pub(crate) struct Index<'m, M> {
    pub(crate) memory: &'m M,
    /// The table, packed.
    pub(crate) table: &'m AtomicU64,
    /// Its predecessor, whose entries are being moved; 0 if there is none.
    pub(crate) previous: &'m AtomicU64,
    /// The number of slots of the predecessor that were moved.
    pub(crate) migrated: &'m AtomicU64,
    /// The number of slots of the table that are not empty.
    pub(crate) entries: &'m AtomicU64,
}

/// The size of the smallest table.
pub(crate) const MIN_BITS: u32 = 4;
/// The size of the largest table.
pub(crate) const MAX_BITS: u32 = 30;

const EMPTY: u64 = 0;
/// A slot whose entry was removed: searches continue past it.
const DEAD: u64 = 1;

impl<M: Memory> Index<'_, M> {
    /// Finds what `matches` accepts among the entries of a fingerprint, without the lock.
    #[inline(always)]
    pub(crate) fn find<T>(
        self,
        fingerprint: u32,
        matches: impl Fn(WordOffset) -> Option<T>,
    ) -> Option<T> {
        // Acquire: a thread that sees a table sees what was written into it, and its predecessor.
        let table = Table::unpack(self.table.load(Ordering::Acquire))?;
        let found = self.probe(table, 0, fingerprint, &matches);
        if found.is_some() {
            return found.map(|(_, found)| found);
        }
        self.find_unmoved(fingerprint, matches)
    }

    /// Searches the entries that have not moved. A separate function, so that the search above is
    /// inlined into its callers. It takes all arguments by value, so that they stay in registers
    /// there.
    #[cold]
    #[inline(never)]
    fn find_unmoved<T>(
        self,
        fingerprint: u32,
        matches: impl Fn(WordOffset) -> Option<T>,
    ) -> Option<T> {
        // Acquire: if there is no predecessor any more, all its entries are in the table.
        let previous = Table::unpack(self.previous.load(Ordering::Acquire))?;
        self.probe(previous, self.moved(), fingerprint, &matches).map(|(_, found)| found)
    }

    /// The first entry of a fingerprint between its home and the end of the table: a search that
    /// costs little and calls no function. It may miss what [`Index::find`] finds.
    #[inline]
    pub(crate) fn first(&self, fingerprint: u32) -> Option<WordOffset> {
        // Acquire: as in `find`.
        let table = Table::unpack(self.table.load(Ordering::Acquire))?;
        let slots = self.memory.known_words(table.at, table.slots());
        for slot in slots.get(table.home(fingerprint) as usize..)? {
            // Acquire: as in `probe`.
            let entry = slot.load(Ordering::Acquire);
            if (entry >> 32) as u32 == fingerprint {
                return (entry > DEAD).then(|| WordOffset::unpack(entry));
            }
            if entry == EMPTY {
                break;
            }
        }
        None
    }

    /// As [`Index::find`], but misses nothing. Requires the lock.
    pub(crate) fn find_locked<T>(
        &self,
        fingerprint: u32,
        matches: impl Fn(WordOffset) -> Option<T>,
    ) -> Option<T> {
        let table = Table::unpack(self.table.load(Ordering::Relaxed))?;
        if let Some((_, found)) = self.probe(table, 0, fingerprint, &matches) {
            return Some(found);
        }
        let previous = Table::unpack(self.previous.load(Ordering::Relaxed))?;
        self.probe(previous, self.moved(), fingerprint, &matches).map(|(_, found)| found)
    }

    /// Inserts the entry of a record that is not in the index. Requires the lock, and that
    /// [`Index::is_crowded`] returned false.
    pub(crate) fn insert(&self, fingerprint: u32, record: WordOffset) {
        let Some(table) = Table::unpack(self.table.load(Ordering::Relaxed)) else {
            return;
        };
        self.put(table, u64::from(fingerprint) << 32 | record.pack());
    }

    /// Removes the entry of a record. Requires the lock.
    pub(crate) fn remove(&self, fingerprint: u32, record: WordOffset) {
        let is_it = |at: WordOffset| (at == record).then_some(());
        for (table, moved) in [(self.table, 0), (self.previous, self.moved())] {
            if let Some(table) = Table::unpack(table.load(Ordering::Relaxed))
                && let Some((slot, ())) = self.probe(table, moved, fingerprint, &is_it)
            {
                slot.store(DEAD, Ordering::Relaxed);
            }
        }
    }

    /// Whether the table has no room for another entry.
    pub(crate) fn is_crowded(&self) -> bool {
        Table::unpack(self.table.load(Ordering::Relaxed)).is_none_or(|table| {
            let most = u64::from(table.slots()) / 4 * 3;
            self.entries.load(Ordering::Relaxed) >= most
        })
    }

    /// Whether the entry of a record lies within `most` slots of its home. No other thread may
    /// change the table. A damaged one may have no empty slot to end the search, and there are many
    /// records.
    pub(crate) fn has_entry(&self, fingerprint: u32, record: WordOffset, most: u32) -> bool {
        let entry = u64::from(fingerprint) << 32 | record.pack();
        [(self.table, 0), (self.previous, self.moved())].into_iter().any(|(table, moved)| {
            let Some(table) = Table::unpack(table.load(Ordering::Relaxed)) else { return false };
            let slots = self.slots(table);
            let Some(mask) = slots.len().checked_sub(1) else { return false };
            let mut slot = table.home(fingerprint).max(moved) as usize & mask;
            for _ in 0..most {
                match slots[slot].load(Ordering::Relaxed) {
                    found if found == entry => return true,
                    EMPTY => return false,
                    _ => slot = if slot == mask { moved as usize & mask } else { slot + 1 },
                }
            }
            false
        })
    }

    /// Prefetches the slot in which a search for a fingerprint begins, in the current table.
    #[inline]
    pub(crate) fn prefetch(&self, fingerprint: u32) {
        // Acquire: as in `find`.
        let table = Table::unpack(self.table.load(Ordering::Acquire));
        let slots = table.map(|table| (self.slots(table), table.home(fingerprint)));
        if let Some(slot) = slots.and_then(|(slots, home)| slots.get(home as usize)) {
            prefetch(slot);
        }
    }

    /// The number of slots of the table that are not empty, counted. No other thread may change it.
    pub(crate) fn used_slots(&self) -> u64 {
        let table = Table::unpack(self.table.load(Ordering::Relaxed));
        let slots = table.map_or_else(Default::default, |table| self.slots(table));
        slots.iter().map(|slot| u64::from(slot.load(Ordering::Relaxed) != EMPTY)).sum()
    }

    /// Makes an empty table the current one, and the current one its predecessor. There must be no
    /// predecessor. Requires the lock.
    pub(crate) fn replace(&self, table: Table) {
        let old = self.table.load(Ordering::Relaxed);
        self.migrated.store(0, Ordering::Relaxed);
        self.entries.store(0, Ordering::Relaxed);
        // Release: a thread that sees the predecessor or the table sees what is in it. The
        // predecessor comes first: a thread that sees the new table sees that there is a
        // predecessor.
        self.previous.store(old, Ordering::Release);
        self.table.store(table.pack(), Ordering::Release);
    }

    /// Moves the entries of the next `slots` slots of the predecessor, and empties those slots.
    /// Returns the range of slots that were emptied, and whether the predecessor is now empty.
    /// Requires the lock.
    pub(crate) fn migrate(&self, slots: u32) -> Option<(Table, std::ops::Range<u32>, bool)> {
        let previous = Table::unpack(self.previous.load(Ordering::Relaxed))?;
        let table = Table::unpack(self.table.load(Ordering::Relaxed))?;
        // At most the number of slots, which is a u32.
        let start = (self.migrated.load(Ordering::Relaxed) as u32).min(previous.slots());
        let end = start.saturating_add(slots).min(previous.slots());
        // Empty if the table does not lie inside the segment.
        let moving = self.slots(previous).get(start as usize..end as usize).unwrap_or_default();
        for slot in moving {
            let entry = slot.load(Ordering::Relaxed);
            if entry != EMPTY && entry != DEAD {
                self.put(table, entry);
            }
        }
        self.migrated.store(u64::from(end), Ordering::Relaxed);
        for slot in moving {
            // Release: a thread that finds the slot empty and then searches the table finds the
            // entry there.
            slot.store(EMPTY, Ordering::Release);
        }
        let is_done = end == previous.slots();
        if is_done {
            // Release: a thread that finds no predecessor finds all entries in the table.
            self.previous.store(0, Ordering::Release);
        }
        Some((previous, start..end, is_done))
    }

    /// The number of slots of the predecessor that are moved and empty. Entries whose home is one
    /// of these, and which are not moved yet, lie right after them without a gap. So do entries
    /// whose home is at the end of the table, and which found no room before its first slots.
    fn moved(&self) -> u32 {
        self.migrated.load(Ordering::Relaxed) as u32
    }

    fn put(&self, table: Table, entry: u64) {
        let slots = self.slots(table);
        let mut slot = table.home((entry >> 32) as u32) as usize;
        for _ in 0..slots.len() {
            let word = &slots[slot];
            if word.load(Ordering::Relaxed) == EMPTY {
                // Release: a thread that finds the entry finds the record complete.
                word.store(entry, Ordering::Release);
                self.entries.fetch_add(1, Ordering::Relaxed);
                return;
            }
            slot = (slot + 1) & (slots.len() - 1);
        }
    }

    /// Searches from the home of a fingerprint to the first empty slot, and skips the slots at the
    /// start of the table that are `moved`.
    #[inline(always)]
    fn probe<T>(
        &self,
        table: Table,
        moved: u32,
        fingerprint: u32,
        matches: &impl Fn(WordOffset) -> Option<T>,
    ) -> Option<(&AtomicU64, T)> {
        let slots = self.slots(table);
        // Zero slots if the table does not lie inside the segment.
        let mask = slots.len().checked_sub(1)?;
        let mut slot = table.home(fingerprint).max(moved) as usize & mask;
        // Bounded: a table that is reused meanwhile may have no empty slot at all.
        for _ in 0..slots.len() {
            // Acquire: a thread that finds an entry finds its record complete.
            let entry = slots[slot].load(Ordering::Acquire);
            // The fingerprint first: an entry that has it is most likely the one.
            if (entry >> 32) as u32 == fingerprint
                && entry > DEAD
                && let Some(found) = matches(WordOffset::unpack(entry))
            {
                return Some((&slots[slot], found));
            }
            if entry == EMPTY {
                return None;
            }
            slot = if slot == mask { moved as usize & mask } else { slot + 1 };
        }
        None
    }

    /// The slots of a table; empty if it does not lie inside the segment.
    #[inline]
    fn slots(&self, table: Table) -> &[AtomicU64] {
        self.memory.words(table.at, table.slots())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::claims::WordList;

    /// Entries whose home is at the end of a table and that wrap around lie after its first slots.
    /// This moves every possible number of those, and then searches for the entries that come after
    /// them.
    #[test]
    fn what_goes_round_is_found_behind_what_has_moved() {
        const BITS: u32 = 6;
        for moved in (0..64).step_by(if cfg!(miri) { 21 } else { 1 }) {
            let memory = WordList((0..3 * 64).map(|_| AtomicU64::new(0)).collect());
            let head: [AtomicU64; 4] = Default::default();
            let [table, previous, migrated, entries] = &head;
            let index = Index { memory: &memory, table, previous, migrated, entries };
            index.replace(Table { at: WordOffset::new(64), bits: BITS });
            // The home of all of them is the last slot but one.
            let fingerprint = |record: u32| 62 << (u32::BITS - BITS) | record;
            let found = |record: u32| {
                let is_it = |at: WordOffset| (at.get() == record).then_some(record);
                index.find_locked(fingerprint(record), is_it)
            };
            let at = WordOffset::new;
            (1..48).for_each(|record| index.insert(fingerprint(record), at(record)));
            index.replace(Table { at: WordOffset::new(128), bits: BITS });
            index.migrate(moved);
            for record in 1..48 {
                assert_eq!(found(record), Some(record), "{moved} slots are moved");
            }
            (1..48).for_each(|record| index.remove(fingerprint(record), at(record)));
            for record in 1..48 {
                assert_eq!(found(record), None, "{moved} slots are moved");
            }
        }
    }
}

/// The model for loom: an index of two tables and some records, whose keys are small numbers.
#[cfg(loom)]
pub mod model {
    use loom::sync::Mutex;

    use super::*;
    use crate::Cells;

    /// The words of the head, then the tables, then the records.
    pub struct SmallIndex {
        cells: Cells,
        lock: Mutex<()>,
    }

    const LIVE: u64 = 1;
    const GONE: u64 = 2;
    /// Tables of two and of four slots.
    const TABLES: [Table; 2] =
        [Table { at: WordOffset::new(4), bits: 1 }, Table { at: WordOffset::new(6), bits: 2 }];
    /// A record has a state and a key.
    const RECORDS: u32 = 10;

    impl Memory for SmallIndex {
        fn word(&self, at: WordOffset) -> &AtomicU64 {
            &self.cells[at.get() as usize]
        }

        fn words(&self, at: WordOffset, count: u32) -> &[AtomicU64] {
            &self.cells[at.get() as usize..][..count as usize]
        }
    }

    impl SmallIndex {
        /// An index whose table has two slots.
        pub fn new(records: u32) -> Self {
            let cells = Cells::private((RECORDS + 2 * records) as usize);
            cells[0].store(TABLES[0].pack(), Ordering::Relaxed);
            Self { cells, lock: Mutex::new(()) }
        }

        fn index(&self) -> Index<'_, Self> {
            let [table, previous, migrated, entries] = [0, 1, 2, 3].map(|i| &self.cells[i]);
            Index { memory: self, table, previous, migrated, entries }
        }

        /// All keys have the same home, so that their entries are adjacent.
        fn fingerprint(_key: u64) -> u32 {
            0b0110 << 28
        }

        /// Where record `n` lies: its state, and then its key.
        fn record(n: u32) -> WordOffset {
            WordOffset::new(RECORDS + 2 * n)
        }

        fn matches(&self, at: WordOffset, key: u64) -> Option<u32> {
            // As a family does: Acquire, so that a thread that sees the record live sees its key.
            let is_live = self.word(at).load(Ordering::Acquire) == LIVE;
            (is_live && self.word(at.plus(1)).load(Ordering::Relaxed) == key)
                .then_some((at.get() - RECORDS) / 2)
        }

        /// The record of a key, without the lock.
        pub fn find(&self, key: u64) -> Option<u32> {
            // As a family does: one look at the first entry, and then a search.
            let first = self.index().first(Self::fingerprint(key));
            let found = first.and_then(|at| self.matches(at, key));
            found.or_else(|| self.index().find(Self::fingerprint(key), |at| self.matches(at, key)))
        }

        /// The record of a key; if a search without the lock finds none, searches again with it.
        pub fn find_surely(&self, key: u64) -> Option<u32> {
            self.find(key).or_else(|| {
                let _lock = self.lock.lock();
                self.index().find_locked(Self::fingerprint(key), |at| self.matches(at, key))
            })
        }

        /// Makes record `n` the record of a key.
        pub fn insert(&self, n: u32, key: u64) {
            let _lock = self.lock.lock();
            let at = Self::record(n);
            self.word(at.plus(1)).store(key, Ordering::Release);
            self.index().insert(Self::fingerprint(key), at);
            self.word(at).store(LIVE, Ordering::Release);
        }

        /// Removes record `n`, which has that key.
        pub fn remove(&self, n: u32, key: u64) {
            let _lock = self.lock.lock();
            let at = Self::record(n);
            self.index().remove(Self::fingerprint(key), at);
            self.word(at).store(GONE, Ordering::Release);
        }

        /// Replaces the current table by the other of the two.
        pub fn replace(&self) {
            let _lock = self.lock.lock();
            let current = Table::unpack(self.cells[0].load(Ordering::Relaxed));
            let is_other = |table: &&Table| Some(**table) != current;
            if let Some(table) = TABLES.iter().find(is_other) {
                self.index().replace(*table);
            }
        }

        /// Moves the entries of the next `slots` slots.
        pub fn migrate(&self, slots: u32) {
            let _lock = self.lock.lock();
            self.index().migrate(slots);
        }
    }
}
