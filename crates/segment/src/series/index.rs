//! The index of a family: from the hash of a key to its series.
//!
//! An open-addressed table of 64-bit entries: the upper half of the hash, and the word offset of
//! the series' record. A lookup takes no lock and compares whole keys, so a hash collision is
//! harmless. To change the table, you must hold the family's lock.
//!
//! A full table is not rehashed at once. A new one replaces it, the old one becomes its
//! predecessor, and every insertion moves a few entries, in the order of their slots. A lookup
//! searches the new table, then its predecessor. It can miss an entry that moves at that moment, or
//! read a table that is reused. A thread that does not find the key therefore searches again under
//! the lock, and a thread that finds an entry compares the key. This is why a table needs no claim,
//! but a record does, see `claims.rs`.
//!
//! The top bits of an entry's hash determine its slot, because entries then move to the new table
//! in order, and touch its pages one after the other.

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
    /// Unpacks a table from a word made by `pack`; `None` for 0, and for a word that is not a
    /// table.
    #[inline]
    pub(crate) fn unpack(word: u64) -> Option<Self> {
        let table = Self { at: WordOffset::unpack(word), bits: (word >> 32) as u32 };
        (1..=MAX_BITS).contains(&table.bits).then_some(table)
    }

    pub(crate) fn pack(self) -> u64 {
        u64::from(self.bits) << 32 | self.at.pack()
    }

    /// Returns the number of slots.
    pub(crate) fn slots(self) -> u32 {
        1 << self.bits
    }

    /// Returns the table's words.
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

/// The words that describe an index, and the memory with its tables.
pub(crate) struct Index<'m, M> {
    pub(crate) memory: &'m M,
    /// The current table, packed.
    pub(crate) table: &'m AtomicU64,
    /// The predecessor, whose entries are being moved; 0 if there is none.
    pub(crate) previous: &'m AtomicU64,
    /// The number of slots of the predecessor that were moved.
    pub(crate) migrated: &'m AtomicU64,
    /// The number of used slots of the current table.
    pub(crate) entries: &'m AtomicU64,
}

/// The binary logarithm of the number of slots of the smallest table.
pub(crate) const MIN_BITS: u32 = 4;
/// The binary logarithm of the number of slots of the largest table.
pub(crate) const MAX_BITS: u32 = 30;

const EMPTY: u64 = 0;
/// A slot whose entry was removed: searches continue past it.
const DEAD: u64 = 1;

impl<M: Memory> Index<'_, M> {
    /// Finds the entry of a fingerprint that `matches` accepts, without the lock.
    #[inline(always)]
    pub(crate) fn find<T>(
        self,
        fingerprint: u32,
        matches: impl Fn(WordOffset) -> Option<T>,
    ) -> Option<T> {
        // Acquire: a thread that sees a table sees its entries, and its predecessor.
        let table = Table::unpack(self.table.load(Ordering::Acquire))?;
        let found = self.probe(table, 0, fingerprint, &matches);
        if found.is_some() {
            return found.map(|(_, found)| found);
        }
        self.find_unmoved(fingerprint, matches)
    }

    /// Searches the entries that have not moved. Out of line, because `find` can then be inlined
    /// into its callers. Takes all arguments by value, because they then stay in registers there.
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

    /// Returns the first entry of a fingerprint between its home and the end of the table. This
    /// search is cheap and calls no function, but can miss entries that [`Index::find`] finds.
    #[inline]
    pub(crate) fn first(&self, fingerprint: u32) -> Option<WordOffset> {
        // Acquire: like in `find`.
        let table = Table::unpack(self.table.load(Ordering::Acquire))?;
        let slots = self.memory.known_words(table.at, table.slots());
        for slot in slots.get(table.home(fingerprint) as usize..)? {
            // Acquire: like in `probe`.
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

    /// Like [`Index::find`], but misses no entry. The caller must hold the lock.
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

    /// Inserts the entry of a record that is not in the index. The caller must hold the lock, and
    /// [`Index::is_crowded`] must have returned false.
    pub(crate) fn insert(&self, fingerprint: u32, record: WordOffset) {
        let Some(table) = Table::unpack(self.table.load(Ordering::Relaxed)) else {
            return;
        };
        self.put(table, u64::from(fingerprint) << 32 | record.pack());
    }

    /// Removes the entry of a record. The caller must hold the lock.
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

    /// Returns whether the table is too full for another entry.
    pub(crate) fn is_crowded(&self) -> bool {
        Table::unpack(self.table.load(Ordering::Relaxed)).is_none_or(|table| {
            let most = u64::from(table.slots()) / 4 * 3;
            self.entries.load(Ordering::Relaxed) >= most
        })
    }

    /// Returns whether the entry of a record lies within `most` slots of its home. No other thread
    /// may change the table. The search is bounded, because a damaged table may contain no empty
    /// slot, and there are many records.
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

    /// Prefetches the slot where a search for a fingerprint begins, in the current table.
    #[inline]
    pub(crate) fn prefetch(&self, fingerprint: u32) {
        // Acquire: like in `find`.
        let table = Table::unpack(self.table.load(Ordering::Acquire));
        let slots = table.map(|table| (self.slots(table), table.home(fingerprint)));
        if let Some(slot) = slots.and_then(|(slots, home)| slots.get(home as usize)) {
            prefetch(slot);
        }
    }

    /// Counts the used slots of the table. No other thread may change it.
    pub(crate) fn used_slots(&self) -> u64 {
        let table = Table::unpack(self.table.load(Ordering::Relaxed));
        let slots = table.map_or_else(Default::default, |table| self.slots(table));
        slots.iter().map(|slot| u64::from(slot.load(Ordering::Relaxed) != EMPTY)).sum()
    }

    /// Installs an empty table, and makes the current one its predecessor. There must be no
    /// predecessor yet. The caller must hold the lock.
    pub(crate) fn replace(&self, table: Table) {
        let old = self.table.load(Ordering::Relaxed);
        self.migrated.store(0, Ordering::Relaxed);
        self.entries.store(0, Ordering::Relaxed);
        // Release: a thread that sees the predecessor or the table sees its entries. Store the
        // predecessor first, because a thread that sees the new table must see that there is one.
        self.previous.store(old, Ordering::Release);
        self.table.store(table.pack(), Ordering::Release);
    }

    /// Moves the entries of the predecessor's next `slots` slots, and empties these slots. Returns
    /// the range of emptied slots, and whether the predecessor is now empty. The caller must hold
    /// the lock.
    pub(crate) fn migrate(&self, slots: u32) -> Option<(Table, std::ops::Range<u32>, bool)> {
        let previous = Table::unpack(self.previous.load(Ordering::Relaxed))?;
        let table = Table::unpack(self.table.load(Ordering::Relaxed))?;
        // The cast is safe, because the number of slots is a u32.
        let start = (self.migrated.load(Ordering::Relaxed) as u32).min(previous.slots());
        let end = start.saturating_add(slots).min(previous.slots());
        // Empty if the table lies outside of the segment.
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

    /// Returns the number of slots of the predecessor that were moved and emptied. Entries whose
    /// home is one of these slots, but which are not moved yet, follow right after them without a
    /// gap. The same holds for entries that wrapped around from the end of the table and found no
    /// room in its first slots.
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

    /// Searches from the home of a fingerprint to the first empty slot, and skips the first `moved`
    /// slots of the table.
    #[inline(always)]
    fn probe<T>(
        &self,
        table: Table,
        moved: u32,
        fingerprint: u32,
        matches: &impl Fn(WordOffset) -> Option<T>,
    ) -> Option<(&AtomicU64, T)> {
        let slots = self.slots(table);
        // There are zero slots if the table lies outside of the segment.
        let mask = slots.len().checked_sub(1)?;
        let mut slot = table.home(fingerprint).max(moved) as usize & mask;
        // Bounded, because a table that is reused in the meantime may contain no empty slot.
        for _ in 0..slots.len() {
            // Acquire: a thread that finds an entry finds its record complete.
            let entry = slots[slot].load(Ordering::Acquire);
            // Compare the fingerprint first, because an equal one is most likely the right entry.
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

    /// Returns the slots of a table; empty if it lies outside of the segment.
    #[inline]
    fn slots(&self, table: Table) -> &[AtomicU64] {
        self.memory.words(table.at, table.slots())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::claims::WordList;

    /// Entries whose home is at the end of a table can wrap around to its first slots. This moves
    /// every possible number of them, and then searches for the entries after them.
    #[test]
    fn wrapped_entries_are_found_after_moved_slots() {
        const BITS: u32 = 6;
        for moved in (0..64).step_by(if cfg!(miri) { 21 } else { 1 }) {
            let memory = WordList((0..3 * 64).map(|_| AtomicU64::new(0)).collect());
            let head: [AtomicU64; 4] = Default::default();
            let [table, previous, migrated, entries] = &head;
            let index = Index { memory: &memory, table, previous, migrated, entries };
            index.replace(Table { at: WordOffset::new(64), bits: BITS });
            // All records share a home, which is the second-to-last slot.
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

/// A model for loom: an index of two tables and some records, whose keys are small numbers.
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
    /// A record consists of a state and a key.
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
        /// Returns an index whose table has two slots.
        pub fn new(records: u32) -> Self {
            let cells = Cells::private((RECORDS + 2 * records) as usize);
            cells[0].store(TABLES[0].pack(), Ordering::Relaxed);
            Self { cells, lock: Mutex::new(()) }
        }

        fn index(&self) -> Index<'_, Self> {
            let [table, previous, migrated, entries] = [0, 1, 2, 3].map(|i| &self.cells[i]);
            Index { memory: self, table, previous, migrated, entries }
        }

        /// Returns the same home for all keys, because their entries are then adjacent.
        fn fingerprint(_key: u64) -> u32 {
            0b0110 << 28
        }

        /// Returns the offset of record `n`: its state, and then its key.
        fn record(n: u32) -> WordOffset {
            WordOffset::new(RECORDS + 2 * n)
        }

        fn matches(&self, at: WordOffset, key: u64) -> Option<u32> {
            // Acquire, like in a family: a thread that sees the record live sees its key.
            let is_live = self.word(at).load(Ordering::Acquire) == LIVE;
            (is_live && self.word(at.plus(1)).load(Ordering::Relaxed) == key)
                .then_some((at.get() - RECORDS) / 2)
        }

        /// Returns the record of a key, without the lock.
        pub fn find(&self, key: u64) -> Option<u32> {
            // Like in a family: check the first entry, and then search.
            let first = self.index().first(Self::fingerprint(key));
            let found = first.and_then(|at| self.matches(at, key));
            found.or_else(|| self.index().find(Self::fingerprint(key), |at| self.matches(at, key)))
        }

        /// Returns the record of a key. If a search without the lock finds none, this searches
        /// again under the lock.
        pub fn find_surely(&self, key: u64) -> Option<u32> {
            self.find(key).or_else(|| {
                let _lock = self.lock.lock();
                self.index().find_locked(Self::fingerprint(key), |at| self.matches(at, key))
            })
        }

        /// Inserts record `n` for a key.
        pub fn insert(&self, n: u32, key: u64) {
            let _lock = self.lock.lock();
            let at = Self::record(n);
            self.word(at.plus(1)).store(key, Ordering::Release);
            self.index().insert(Self::fingerprint(key), at);
            self.word(at).store(LIVE, Ordering::Release);
        }

        /// Removes record `n` of this key.
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
