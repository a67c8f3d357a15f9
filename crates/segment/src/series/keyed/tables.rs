//! The tables of the index: growing into a larger table, a few slots at a time, and reusing old
//! tables.

use super::DynamicSeries;
use super::head as at;
use crate::error::Error;
use crate::lock;
use crate::offset::WordOffset;
use crate::series::index::{MAX_BITS, MIN_BITS, Table};
use crate::sync::{AtomicU64, Ordering, fence};

/// The number of slots of a table that move with each insertion.
pub(super) const STEP: u32 = 32;

/// The number of slots whose memory is returned to the system at a time.
const DISCARD: u32 = 1 << 15;

impl DynamicSeries {
    /// Announces that entries will move. The caller must hold the lock.
    pub(super) fn begin_change(&self) {
        // Release: a thread that sees the count sees the lock. And below: a thread that sees a part
        // of the change sees the count.
        self.head[at::CHANGES].fetch_add(1, Ordering::Release);
        fence(Ordering::Release);
    }

    /// Makes room in the table for one more entry.
    pub(super) fn make_room(&self) -> Result<(), Error> {
        let table = Table::unpack(self.head[at::TABLE].load(Ordering::Relaxed));
        if let Some(table) = table.filter(|table| !self.is_table(*table)) {
            let at = table.at.byte();
            return Err(self.damaged(&format!("the index of a family, at {at}")));
        }
        if !self.index().is_crowded() {
            return Ok(());
        }
        if self.head[at::PREVIOUS].load(Ordering::Relaxed) != 0 {
            self.move_some(u32::MAX);
            // This is zero already, unless another process wrote nonsense.
            self.head[at::PREVIOUS].store(0, Ordering::Release);
        }
        let live = self.head[at::LIVE].load(Ordering::Relaxed).saturating_add(1);
        // Use at least a quarter of the old size. The old table has then moved completely, in
        // `STEP`s, before the new one is crowded; it is at most half full by then.
        let old = Table::unpack(self.head[at::TABLE].load(Ordering::Relaxed));
        let old = old.map_or(MIN_BITS, |old| old.bits).clamp(MIN_BITS, MAX_BITS);
        // Use at most four times the old size, even if another process wrote nonsense into the
        // count.
        let bits = bits_for(live).clamp((old - 2).max(MIN_BITS), (old + 2).min(MAX_BITS));
        let is_free = |word: &&AtomicU64| word.load(Ordering::Relaxed) != 0;
        let free = self.retired(bits).iter().find(is_free);
        let table = match free.and_then(|word| Table::unpack(word.load(Ordering::Relaxed))) {
            Some(table) => table,
            None => Table { at: self.segment.take(1 << bits, lock::UPDATE)?, bits },
        };
        self.begin_change();
        self.index().replace(table);
        if let Some(word) = free {
            // Release: after the stores above, because a table must stay named if this process dies
            // in between.
            word.store(0, Ordering::Release);
        }
        Ok(())
    }

    /// Moves some entries to the new table, if there is one. Retires the old table when all entries
    /// have moved.
    pub(super) fn move_some(&self, slots: u32) {
        let moved = self.head[at::MIGRATED].load(Ordering::Relaxed);
        let previous = Table::unpack(self.head[at::PREVIOUS].load(Ordering::Relaxed));
        if let Some(previous) = previous
            && moved.saturating_add(slots.into()) >= previous.slots().into()
        {
            // This call completes the move. The table is named twice for a moment, because it must
            // stay named if this process dies in between.
            self.retire(previous);
        }
        let Some((table, moved, is_done)) = self.index().migrate(slots) else { return };
        // Discard large pieces, because each costs a system call, and a large table's pages take
        // time.
        let piece = |slot: u32| slot / DISCARD;
        if piece(moved.start) != piece(moved.end) || is_done {
            let end = if is_done { moved.end } else { piece(moved.end) * DISCARD };
            let offset = |slot: u32| table.at.byte_of(slot).get();
            self.region().discard(offset(piece(moved.start) * DISCARD)..offset(end));
        }
    }

    /// Names a table as free, but only once.
    pub(super) fn retire(&self, table: Table) {
        let words = self.retired(table.bits);
        let has = |value: u64| words.iter().find(|word| word.load(Ordering::Relaxed) == value);
        if has(table.pack()).is_none()
            && let Some(word) = has(0)
        {
            word.store(table.pack(), Ordering::Relaxed);
        }
    }

    /// Returns the words for the free tables of a size.
    pub(super) fn retired(&self, bits: u32) -> &[AtomicU64] {
        let first = at::RETIRED + 2 * bits as usize;
        &self.head[first..first + 2]
    }

    pub(super) fn table_words(&self) -> impl Iterator<Item = &AtomicU64> {
        let retired = &self.head[at::RETIRED..at::END];
        [&self.head[at::TABLE], &self.head[at::PREVIOUS]].into_iter().chain(retired)
    }

    /// Returns all tables inside the bytes in use, each once, the current one first.
    pub(super) fn tables(&self) -> Vec<Table> {
        let mut tables = Vec::new();
        for word in self.table_words() {
            let table = Table::unpack(word.load(Ordering::Relaxed));
            if let Some(table) = table.filter(|table| self.is_table(*table))
                && !tables.contains(&table)
            {
                tables.push(table);
            }
        }
        tables
    }

    fn is_table(&self, table: Table) -> bool {
        (MIN_BITS..=MAX_BITS).contains(&table.bits)
            && table.at != WordOffset::NONE
            && table.words().end <= self.end()
    }
}

/// Returns the logarithm of the number of slots for `live` series: two to four slots for each.
pub(super) fn bits_for(live: u64) -> u32 {
    let slots = live.min(1 << MAX_BITS) * 2;
    slots.next_power_of_two().trailing_zeros().clamp(MIN_BITS, MAX_BITS)
}
