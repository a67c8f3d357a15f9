//! The meta word of a record: its length, its state, its generation, which changes when the series
//! in the record is removed, and a checksum of the series' key.
//!
//! A thread that inserts or removes a series holds the family's lock. A thread that finds one does
//! not: it claims the record (see `claims.rs`) and then reads this word. From then on, until the
//! claim is cleared, the record belongs to the same series or to a removed one.

use crate::offset::WordOffset;
use crate::sync::{AtomicU64, Ordering};

/// The states of a record.
pub(crate) mod state {
    /// It has no series.
    pub(crate) const FREE: u64 = 0;
    /// Taken, and not yet in the index.
    pub(crate) const DRAFT: u64 = 1;
    pub(crate) const LIVE: u64 = 2;
    /// Idle for too long: it is found, but not shown.
    pub(crate) const HIDDEN: u64 = 3;
}

/// The mask of the record's length in words.
pub(crate) const WORDS: u64 = 0xffff;
const STATE_SHIFT: u32 = 16;
const STATE: u64 = 7 << STATE_SHIFT;
/// No text of its key needs an escape in text formats.
pub(crate) const ESCAPE_FREE: u64 = 1 << 19;
const SLACK_SHIFT: u32 = 20;
/// The most unused words after the key that the word can state.
pub(crate) const MAX_SLACK: u64 = 0xfff;
const GENERATION: u64 = 1 << 32;
/// The low bits of the hash of the series' key. After a loss of power, the sectors of a record may
/// be of different times: this reveals a key that is not the series'.
const CHECKSUM: u64 = 0xffff << CHECKSUM_SHIFT;
const CHECKSUM_SHIFT: u32 = 48;

#[inline]
pub(crate) fn state_of(meta: u64) -> u64 {
    (meta & STATE) >> STATE_SHIFT
}

pub(crate) fn with_state(meta: u64, state: u64) -> u64 {
    meta & !STATE | state << STATE_SHIFT
}

/// The number of words of the record that its series uses.
#[inline]
pub(crate) fn used_words(meta: u64) -> u64 {
    (meta & WORDS).saturating_sub(meta >> SLACK_SHIFT & MAX_SLACK)
}

/// Whether the series uses `count` words of the record, of which it uses at least one.
#[inline]
pub(crate) fn uses(meta: u64, count: u64) -> bool {
    meta & WORDS == count + (meta >> SLACK_SHIFT & MAX_SLACK)
}

/// The meta word of a draft that uses `used` words of the record.
pub(crate) fn draft(meta: u64, used: u64) -> u64 {
    let slack = (meta & WORDS).saturating_sub(used).min(MAX_SLACK);
    let kept = meta & (WORDS | !(GENERATION - 1));
    with_state(kept | slack << SLACK_SHIFT, state::DRAFT)
}

/// The meta word with the checksum of a key of that hash.
pub(crate) fn with_checksum(meta: u64, hash: u64) -> u64 {
    meta & !CHECKSUM | hash << CHECKSUM_SHIFT
}

/// Whether the checksum is that of a key with that hash.
pub(crate) fn has_checksum(meta: u64, hash: u64) -> bool {
    with_checksum(meta, hash) == meta
}

/// Whether the record has a series, shown or not.
#[inline]
pub(crate) fn is_series(meta: u64) -> bool {
    matches!(state_of(meta), state::LIVE | state::HIDDEN)
}

/// Whether both words belong to the same series, or both to none.
#[inline]
pub(crate) fn is_same_series(one: u64, other: u64) -> bool {
    one / GENERATION == other / GENERATION
}

/// Distinguishes the series of a record from those before and after it: its generation, modulo
/// 2^16, and the checksum of its key.
#[inline]
pub(crate) fn generation_of(meta: u64) -> u32 {
    // Truncation is meant: the upper half.
    (meta >> 32) as u32
}

/// Distinguishes a series from all others of its family: the offset of its record, and its
/// generation there in the upper half.
#[inline]
pub(crate) fn series_id(at: WordOffset, meta: u64) -> u64 {
    at.pack() | u64::from(generation_of(meta)) << 32
}

/// Changes the state, and returns the previous word. Requires the family's lock, except for the
/// overflow series.
pub(crate) fn set_state(word: &AtomicU64, state: u64) -> u64 {
    let next = |meta| Some(with_state(meta, state));
    // Release: a thread that sees a series live sees all of it. Acquire: sees what the thread that
    // changed the word wrote.
    let changed = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
    // It never declines.
    changed.unwrap_or_else(|meta| meta)
}

/// Frees the record; the next series in it has another generation. Requires the family's lock.
pub(crate) fn set_free(word: &AtomicU64) {
    let meta = word.load(Ordering::Relaxed);
    // A carry goes into the checksum, which the next series sets.
    let meta = with_state(meta, state::FREE).wrapping_add(GENERATION);
    // Release: a thread that sees anything written from here on sees the generation, too.
    word.store(meta, Ordering::Release);
}

/// The model for loom: a record with a key and one cell, which is reused, and claims on it.
#[cfg(loom)]
pub mod model {
    use loom::sync::Mutex;

    use super::*;
    use crate::Cells;
    use crate::claims::{Block, Blocks, LINE, MIN_LINES, Memory, Stack, claim, release};
    use crate::sync::Arc;

    /// The record, the root of the blocks, and a block; and the family's lock.
    #[derive(Clone)]
    pub struct ModelRecord(Arc<(ModelWords, Mutex<()>, Stack)>);

    /// A word for a claim.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct ClaimWord(WordOffset);

    struct ModelWords(Cells);

    impl Memory for ModelWords {
        fn word(&self, at: WordOffset) -> &AtomicU64 {
            &self.0[at.get() as usize]
        }

        fn words(&self, at: WordOffset, count: u32) -> &[AtomicU64] {
            &self.0[at.get() as usize..][..count as usize]
        }
    }

    const RECORD: WordOffset = WordOffset::new(1);
    const KEY: WordOffset = WordOffset::new(2);
    const CELL: WordOffset = WordOffset::new(3);
    const ROOT: WordOffset = WordOffset::new(4);
    const BLOCK: Block = Block { at: WordOffset::new(LINE), lines: MIN_LINES };
    /// The token of the process that has the block at first.
    pub const FIRST: u64 = 1;

    impl Default for ModelRecord {
        fn default() -> Self {
            Self::new()
        }
    }

    impl ModelRecord {
        /// A live record with the key 1, whose cell is zero.
        pub fn new() -> Self {
            let words = ModelWords(Cells::private(BLOCK.range().end as usize));
            words.word(RECORD).store(with_state(3, state::LIVE), Ordering::Relaxed);
            words.word(KEY).store(1, Ordering::Relaxed);
            let stack = Stack::default();
            let record = Self(Arc::new((words, Mutex::new(()), stack)));
            record.blocks().add(BLOCK, FIRST, false);
            BLOCK.claim_lines().for_each(|at| {
                (0..2).for_each(|i| record.0.2.push(record.words(), at.plus(i)));
            });
            record
        }

        fn words(&self) -> &ModelWords {
            &self.0.0
        }

        fn word(&self, at: WordOffset) -> &AtomicU64 {
            self.words().word(at)
        }

        fn blocks(&self) -> Blocks<'_, ModelWords> {
            let words = self.words();
            Blocks { memory: words, root: words.word(ROOT), end: BLOCK.range().end }
        }

        /// Takes a word for a claim.
        pub fn take(&self) -> Option<ClaimWord> {
            self.0.2.pop(self.words()).map(ClaimWord)
        }

        /// Gives a word back.
        pub fn give_back(&self, word: ClaimWord) {
            self.0.2.push(self.words(), word.0);
        }

        /// Claims the record, and returns whether it is the series with that key.
        pub fn find(&self, word: ClaimWord, key: u64) -> bool {
            claim(self.word(word.0), RECORD.pack(), false);
            // Acquire: as a family does.
            let meta = self.word(RECORD).load(Ordering::Acquire);
            is_series(meta) && self.word(KEY).load(Ordering::Relaxed) == key
        }

        /// Adds to the cell.
        pub fn add(&self, n: u64) {
            self.word(CELL).fetch_add(n, Ordering::AcqRel);
        }

        /// Clears a claim.
        pub fn release(&self, word: ClaimWord) {
            release(self.word(word.0));
        }

        /// Removes the series.
        pub fn remove(&self) {
            let _lock = self.0.1.lock();
            set_free(self.word(RECORD));
        }

        /// Reuses the record for a series with another key, if no claim of a living process names
        /// it.
        pub fn use_again(&self, key: u64, is_alive: impl Fn(u64) -> bool) -> bool {
            let _lock = self.0.1.lock();
            let named = self.blocks().named(false, is_alive);
            if named.is_none_or(|named| named.has(RECORD)) {
                return false;
            }
            self.word(CELL).store(0, Ordering::Release);
            self.word(KEY).store(key, Ordering::Release);
            set_state(self.word(RECORD), state::LIVE);
            true
        }

        /// Takes over the block of the first process.
        pub fn take_over(&self, token: u64) -> Option<ClaimWord> {
            let block = self.blocks().take_over(token, false, |_| false)?;
            block.claim_lines().next().map(ClaimWord)
        }

        /// The cell.
        pub fn sum(&self) -> u64 {
            self.word(CELL).load(Ordering::Acquire)
        }
    }
}
