//! The meta word of a record: its length, its state, its generation, and a checksum of its key. The
//! generation changes when the series in the record is removed.
//!
//! A thread that inserts or removes a series must hold the family's lock. To find a series, you
//! need no lock: claim the record (see `claims.rs`) and then read this word. From then on, until
//! the claim is cleared, the record belongs to the same series or to a removed one.

use crate::offset::WordOffset;
use crate::sync::{AtomicU64, Ordering};

/// The states of a record.
pub(crate) mod state {
    /// The record contains no series.
    pub(crate) const FREE: u64 = 0;
    /// Reserved for a series that is not in the index yet.
    pub(crate) const DRAFT: u64 = 1;
    pub(crate) const LIVE: u64 = 2;
    /// Idle for too long: lookups find the series, but scrapes do not show it.
    pub(crate) const HIDDEN: u64 = 3;
}

/// The mask of the record's length in words.
pub(crate) const WORDS: u64 = 0xffff;
const STATE_SHIFT: u32 = 16;
const STATE: u64 = 7 << STATE_SHIFT;
/// Set if no value of the key needs an escape in text formats.
pub(crate) const ESCAPE_FREE: u64 = 1 << 19;
const SLACK_SHIFT: u32 = 20;
/// The maximum number of unused words after the key that fits into the word.
pub(crate) const MAX_SLACK: u64 = 0xfff;
const GENERATION: u64 = 1 << 32;
/// The low bits of the hash of the series' key. After a loss of power, the sectors of a record may
/// be from different times. This checksum then reveals a key that does not belong to the series.
const CHECKSUM: u64 = 0xffff << CHECKSUM_SHIFT;
const CHECKSUM_SHIFT: u32 = 48;

#[inline]
pub(crate) fn state_of(meta: u64) -> u64 {
    (meta & STATE) >> STATE_SHIFT
}

pub(crate) fn with_state(meta: u64, state: u64) -> u64 {
    meta & !STATE | state << STATE_SHIFT
}

/// Returns the number of words of the record that its series uses.
#[inline]
pub(crate) fn used_words(meta: u64) -> u64 {
    (meta & WORDS).saturating_sub(meta >> SLACK_SHIFT & MAX_SLACK)
}

/// Returns whether the series uses `count` words of the record. It must use at least one.
#[inline]
pub(crate) fn uses(meta: u64, count: u64) -> bool {
    meta & WORDS == count + (meta >> SLACK_SHIFT & MAX_SLACK)
}

/// Returns the meta word of a draft that uses `used` words of the record.
pub(crate) fn draft(meta: u64, used: u64) -> u64 {
    let slack = (meta & WORDS).saturating_sub(used).min(MAX_SLACK);
    let kept = meta & (WORDS | !(GENERATION - 1));
    with_state(kept | slack << SLACK_SHIFT, state::DRAFT)
}

/// Returns the meta word with the checksum of a key with this hash.
pub(crate) fn with_checksum(meta: u64, hash: u64) -> u64 {
    meta & !CHECKSUM | hash << CHECKSUM_SHIFT
}

/// Returns whether the checksum matches a key with this hash.
pub(crate) fn has_checksum(meta: u64, hash: u64) -> bool {
    with_checksum(meta, hash) == meta
}

/// Returns whether the record contains a series, even if the series is hidden.
#[inline]
pub(crate) fn is_series(meta: u64) -> bool {
    matches!(state_of(meta), state::LIVE | state::HIDDEN)
}

/// Returns whether both words belong to the same series, or both to none.
#[inline]
pub(crate) fn is_same_series(one: u64, other: u64) -> bool {
    one / GENERATION == other / GENERATION
}

/// Returns a number that distinguishes the series of a record from earlier and later ones: its
/// generation, modulo 2^16, and the checksum of its key.
#[inline]
pub(crate) fn generation_of(meta: u64) -> u32 {
    // The truncation is intended: this is the upper half.
    (meta >> 32) as u32
}

/// Returns a number that distinguishes a series from all others of its family: the offset of its
/// record, and its generation in the upper half.
#[inline]
pub(crate) fn series_id(at: WordOffset, meta: u64) -> u64 {
    at.pack() | u64::from(generation_of(meta)) << 32
}

/// Changes the state, and returns the previous word. The caller must hold the family's lock, except
/// for the overflow series.
pub(crate) fn set_state(word: &AtomicU64, state: u64) -> u64 {
    let next = |meta| Some(with_state(meta, state));
    // Release: a thread that sees a series live sees its contents. Acquire: sees the stores of the
    // thread that changed the word before.
    let changed = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
    // `next` never declines.
    changed.unwrap_or_else(|meta| meta)
}

/// Frees the record; the next series gets another generation. The caller must hold the family's
/// lock.
pub(crate) fn set_free(word: &AtomicU64) {
    let meta = word.load(Ordering::Relaxed);
    // A carry goes into the checksum, which the next series overwrites.
    let meta = with_state(meta, state::FREE).wrapping_add(GENERATION);
    // Release: a thread that sees any later store sees the generation, too.
    word.store(meta, Ordering::Release);
}

/// A model for loom: a record with a key and one cell, which is reused, and claims on it.
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
    /// The token of the first owner of the block.
    pub const FIRST: u64 = 1;

    impl Default for ModelRecord {
        fn default() -> Self {
            Self::new()
        }
    }

    impl ModelRecord {
        /// Returns a live record with the key 1, whose cell is zero.
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

        /// Reserves a word for a claim.
        pub fn take(&self) -> Option<ClaimWord> {
            self.0.2.pop(self.words()).map(ClaimWord)
        }

        /// Returns a word to the free ones.
        pub fn give_back(&self, word: ClaimWord) {
            self.0.2.push(self.words(), word.0);
        }

        /// Claims the record, and returns whether it contains the series with this key.
        pub fn find(&self, word: ClaimWord, key: u64) -> bool {
            claim(self.word(word.0), RECORD.pack(), false);
            // Acquire, like in a family.
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

        /// Returns the value of the cell.
        pub fn sum(&self) -> u64 {
            self.word(CELL).load(Ordering::Acquire)
        }
    }
}
