//! The meta word of a record: its length, its state, how many handles are bound to it, and its
//! generation, which changes when the record becomes another series.
//!
//! Who inserts or removes a series holds the family's lock; who binds a handle, or adds without
//! one, does not. The word is what they agree on. A thread that adds looks at it before and after:
//! is it another one then, the record may have become another series, and the addition is taken
//! back.

use crate::sync::{AtomicU64, Ordering, fence};

/// A record's states.
pub(crate) mod state {
    pub(crate) const FREE: u64 = 0;
    /// Taken, and not yet in the index.
    pub(crate) const DRAFT: u64 = 1;
    pub(crate) const LIVE: u64 = 2;
    /// Idle for too long: found, and not shown.
    pub(crate) const HIDDEN: u64 = 3;
    /// Removed, while handles are bound to it.
    pub(crate) const DETACHED: u64 = 4;
}

/// The words of the record.
pub(crate) const WORDS: u64 = 0xffff;
const STATE_SHIFT: u32 = 16;
const STATE: u64 = 7 << STATE_SHIFT;
/// No text in it needs an escape in text formats.
pub(crate) const PLAIN: u64 = 1 << 19;
const PIN: u64 = 1 << 20;
/// The handles that are bound to it. At their most, it is bound for good.
pub(crate) const PINS: u64 = 0xfff << 20;
const GENERATION: u64 = 1 << 32;

#[inline]
pub(crate) fn state_of(meta: u64) -> u64 {
    (meta & STATE) >> STATE_SHIFT
}

pub(crate) fn with_state(meta: u64, state: u64) -> u64 {
    meta & !STATE | state << STATE_SHIFT
}

/// Whether a series has the record, shown or not.
#[inline]
pub(crate) fn is_series(meta: u64) -> bool {
    matches!(state_of(meta), state::LIVE | state::HIDDEN)
}

/// Whether both are of one series.
#[inline]
pub(crate) fn is_same_series(one: u64, other: u64) -> bool {
    one / GENERATION == other / GENERATION
}

/// What tells the series of a record from those that have it before and after.
#[inline]
pub(crate) fn generation_of(meta: u64) -> u32 {
    // The upper half is taken whole.
    (meta >> 32) as u32
}

/// Whether the record still is what it was found as: the same series, and shown as it was.
#[inline]
pub(crate) fn is_still(word: &AtomicU64, found: u64) -> bool {
    // Acquire, on the loads and additions before too: had they met what another series wrote, this
    // would see that series' generation.
    fence(Ordering::Acquire);
    (word.load(Ordering::Relaxed) ^ found) & !PINS == 0
}

/// Binds a handle to what was found, unless it is something else by now.
pub(crate) fn pin(word: &AtomicU64, found: u64) -> bool {
    change(word, |meta| ((meta ^ found) & !PINS == 0).then(|| pinned(meta))).is_ok()
}

/// Binds one more handle to a record that one is bound to.
pub(crate) fn pin_again(word: &AtomicU64) {
    let _ = change(word, |meta| Some(pinned(meta)));
}

fn pinned(meta: u64) -> u64 {
    if meta & PINS == PINS { meta } else { meta + PIN }
}

/// Releases a handle. Whether the record is nobody's now, and to be freed.
pub(crate) fn unpin(word: &AtomicU64) -> bool {
    let is_counted = |meta: u64| meta & PINS != PINS && meta & PINS != 0;
    let before = change(word, |meta| is_counted(meta).then(|| meta - PIN));
    before.is_ok_and(|meta| is_nobodys(meta - PIN))
}

/// Whether the record was removed, and no handle is bound to it.
pub(crate) fn is_nobodys(meta: u64) -> bool {
    state_of(meta) == state::DETACHED && meta & PINS == 0
}

/// Changes the state, with the lock held: handles may come and go at the same time. Answers the
/// word before.
pub(crate) fn set_state(word: &AtomicU64, state: u64) -> u64 {
    // It never declines.
    change(word, |meta| Some(with_state(meta, state))).unwrap_or_else(|meta| meta)
}

/// Makes the record free, with the lock held: the next series in it is of another generation.
pub(crate) fn set_free(word: &AtomicU64, meta: u64) {
    let meta = with_state(meta & !PINS, state::FREE).wrapping_add(GENERATION);
    // Release: whoever sees what is written from here on sees the generation, too.
    word.store(meta, Ordering::Release);
}

/// Stores what `next` makes of the word, and answers what it was; an error where `next` declines.
fn change(word: &AtomicU64, next: impl Fn(u64) -> Option<u64>) -> Result<u64, u64> {
    // Release: who sees a series live sees all of it. Acquire: who finds it changed sees by whom.
    word.fetch_update(Ordering::AcqRel, Ordering::Acquire, next)
}

/// What loom checks: a record with one cell, which is used again.
#[cfg(loom)]
pub mod model {
    use loom::sync::Mutex;

    use super::*;
    use crate::Cells;
    use crate::sync::Arc;

    /// The meta word, then the cell; and the family's lock.
    #[derive(Clone)]
    pub struct Record(Cells, Arc<Mutex<()>>);

    impl Default for Record {
        fn default() -> Self {
            Self::new()
        }
    }

    impl Record {
        /// A live record whose cell is zero.
        pub fn new() -> Self {
            let cells = Cells::private(2);
            cells[0].store(with_state(2, state::LIVE), Ordering::Relaxed);
            Self(cells, Arc::new(Mutex::new(())))
        }

        /// Finds the series of the first generation.
        pub fn find(&self) -> Option<u64> {
            let meta = self.0[0].load(Ordering::Acquire);
            (is_series(meta) && meta < GENERATION).then_some(meta)
        }

        /// Adds to what was found; false where the addition was taken back.
        pub fn add(&self, found: u64, n: u64) -> bool {
            self.0[1].fetch_add(n, Ordering::AcqRel);
            if is_still(&self.0[0], found) {
                return true;
            }
            self.0[1].fetch_sub(n, Ordering::AcqRel);
            false
        }

        /// Binds a handle to what was found.
        pub fn bind(&self, found: u64) -> bool {
            pin(&self.0[0], found)
        }

        /// Adds by a handle.
        pub fn add_bound(&self, n: u64) {
            self.0[1].fetch_add(n, Ordering::AcqRel);
        }

        /// Releases a handle; the record is freed if nobody has it then.
        pub fn release(&self) {
            if unpin(&self.0[0]) {
                let _lock = self.1.lock();
                self.free();
            }
        }

        /// Removes the series; the record is freed if no handle is bound to it.
        pub fn remove(&self) {
            let _lock = self.1.lock();
            set_state(&self.0[0], state::DETACHED);
            self.free();
        }

        fn free(&self) {
            let meta = self.0[0].load(Ordering::Acquire);
            if is_nobodys(meta) {
                set_free(&self.0[0], meta);
            }
        }

        /// Makes another series of the record, if it is free and, which the quarantine sees to,
        /// nobody is between a look at the old one and its addition.
        pub fn use_again(&self) -> bool {
            let _lock = self.1.lock();
            let meta = self.0[0].load(Ordering::Relaxed);
            if state_of(meta) != state::FREE {
                return false;
            }
            // In place of a store of zero, which the quarantine keeps apart from late additions.
            if self.0[1].fetch_add(0, Ordering::AcqRel) != 0 {
                return false;
            }
            set_state(&self.0[0], state::LIVE);
            true
        }

        /// Whether it is of the first generation.
        pub fn is_first(&self) -> bool {
            self.0[0].load(Ordering::Acquire) < GENERATION
        }

        /// Whether nobody has it.
        pub fn is_free(&self) -> bool {
            state_of(self.0[0].load(Ordering::Acquire)) == state::FREE
        }

        /// The cell.
        pub fn sum(&self) -> u64 {
            self.0[1].load(Ordering::Acquire)
        }
    }
}
