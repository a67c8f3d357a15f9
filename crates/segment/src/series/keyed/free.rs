//! Records of removed series: in limbo while claims may name them, then ready for new series.
//!
//! Ready records are on lists by length class, so a fitting one can be found at once.

use super::blocks::WalkPosition;
use super::head as at;
use super::{DynamicSeries, fingerprint};
use crate::claims::{Memory, NamedRecords};
use crate::error::Error;
use crate::layout::HEADER_BYTES;
use crate::offset::WordOffset;
use crate::series::meta::{self, MAX_SLACK, WORDS, state, state_of};
use crate::sync::{AtomicU64, Ordering};

/// The number of length classes: one for each length up to 32 words, then four for each doubling.
pub(super) const CLASSES: u32 = EXACT + 4 * (MAX_WORDS.trailing_zeros() - EXACT.trailing_zeros());
const EXACT: u32 = 32;
/// The maximum number of words of a record.
pub(super) const MAX_WORDS: u32 = 1 << 15;
const _: () = assert!(MAX_WORDS as u64 <= WORDS && (MAX_WORDS / 8) as u64 <= MAX_SLACK + 1);

/// The minimum number of records in limbo for reading the claims.
const MIN_READ: u64 = 32;

impl DynamicSeries {
    /// Reserves a record of `words` words as a draft: a ready record, or a new one at the end of
    /// the last block.
    pub(super) fn take(&self, words: u32) -> Result<WordOffset, Error> {
        let count = |at: usize| self.head[at].load(Ordering::Relaxed);
        if let Some(at) = self.take_ready(words) {
            return Ok(at);
        }
        if count(at::LIMBO_COUNT) >= count(at::NEXT_READ).max(MIN_READ) {
            self.reclaim();
            if let Some(at) = self.take_ready(words) {
                return Ok(at);
            }
        }
        match self.take_new(words) {
            // Read the claims as the last resort.
            Err(full) if count(at::LIMBO_COUNT) > count(at::CLAIMED) => {
                self.reclaim();
                self.take_ready(words).ok_or(full)
            }
            taken => taken,
        }
    }

    /// Removes a series from the index, and puts its record in limbo.
    pub(super) fn detach(&self, at: WordOffset, fingerprint: u32) {
        let state = state_of(self.region().word(at).load(Ordering::Relaxed));
        self.index().remove(fingerprint, at);
        self.head[at::LIVE].fetch_sub(1, Ordering::Relaxed);
        if state == state::HIDDEN {
            self.head[at::HIDDEN].fetch_sub(1, Ordering::Relaxed);
        }
        self.free(at);
    }

    /// Puts a record in limbo, with the next generation.
    pub(super) fn free(&self, at: WordOffset) {
        meta::set_free(self.region().word(at));
        self.push(&self.head[at::LIMBO], at);
        self.head[at::LIMBO_COUNT].fetch_add(1, Ordering::Relaxed);
    }

    /// Moves the records in limbo that no claim names to the ready lists.
    pub(super) fn reclaim(&self) {
        let (limbo, count) = (&self.head[at::LIMBO], &self.head[at::LIMBO_COUNT]);
        let in_limbo = count.load(Ordering::Relaxed);
        let Some(named) = self.named(false) else {
            self.head[at::NEXT_READ].store(in_limbo.saturating_mul(2), Ordering::Relaxed);
            return;
        };
        let mut next = WordOffset::unpack(limbo.load(Ordering::Relaxed));
        let mut claimed = 0;
        limbo.store(0, Ordering::Relaxed);
        // The loop is bounded, because a damaged list may be circular.
        let most = self.end() / u64::from(self.header + self.cells.get());
        for _ in 0..in_limbo.min(most) {
            let at = next;
            // Records after a damaged one are not reused until the family is mended.
            let Some(class) = self.free_class(at) else { break };
            next = self.link(at);
            if named.has(at) {
                self.push(limbo, at);
                claimed += 1;
            } else {
                self.push(&self.head[at::READY + class as usize], at);
                self.filled(class).fetch_or(1 << (class % 64), Ordering::Relaxed);
            }
        }
        count.store(claimed, Ordering::Relaxed);
        self.head[at::CLAIMED].store(claimed, Ordering::Relaxed);
        // This bounds the time that each removal spends on reading the claims.
        let after = 2 * claimed + named.read / 8 + MIN_READ;
        self.head[at::NEXT_READ].store(after, Ordering::Relaxed);
    }

    /// Returns the class of a record without a series; `None` if there is no such record, for
    /// example at an offset that another process wrote.
    pub(super) fn free_class(&self, at: WordOffset) -> Option<u32> {
        let meta = self.region().word(at).load(Ordering::Relaxed);
        let words = (meta & WORDS) as u32;
        let is_record = (self.header + self.cells.get()..=MAX_WORDS).contains(&words)
            && at.byte().get() >= HEADER_BYTES
            && self.has_words(at, words);
        let class = is_record.then(|| class_of(words))?;
        (state_of(meta) == state::FREE && class_words(class) == words).then_some(class)
    }

    /// Returns the records that claims name; `None` if the claims cannot be read.
    pub(super) fn named(&self, handles_only: bool) -> Option<NamedRecords> {
        let region = self.region();
        self.segment.claim_blocks().named(handles_only, |token| region.is_alive(token))
    }

    /// Reserves a ready record of `words` to twice `words` words, as a draft.
    fn take_ready(&self, words: u32) -> Option<WordOffset> {
        let wanted = class_of(words);
        let from = |class: u32| {
            let filled = self.filled(class).load(Ordering::Relaxed) >> (class % 64);
            (filled != 0).then(|| class + filled.trailing_zeros())
        };
        let class = from(wanted).or_else(|| if wanted < 64 { from(64) } else { None })?;
        let slack = class_words(class).checked_sub(words)?;
        if slack > words || u64::from(slack) > MAX_SLACK {
            return None;
        }
        let first = self.head.get(at::READY + class as usize)?;
        let at = WordOffset::unpack(first.load(Ordering::Relaxed));
        // Always true, except in a damaged file, where this ends the list.
        let is_it = self.free_class(at) == Some(class);
        let next = if is_it { self.link(at) } else { WordOffset::NONE };
        first.store(next.pack(), Ordering::Relaxed);
        if next == WordOffset::NONE {
            self.filled(class).fetch_and(!(1 << (class % 64)), Ordering::Relaxed);
        }
        let word = self.region().word(at);
        let meta = word.load(Ordering::Relaxed);
        // Check the second read, because another process may have written nonsense since the first.
        if !is_it || meta & WORDS != u64::from(class_words(class)) {
            return None;
        }
        word.store(meta::draft(meta, words.into()), Ordering::Relaxed);
        Some(at)
    }

    /// Returns the word with the bit of a class.
    pub(super) fn filled(&self, class: u32) -> &AtomicU64 {
        &self.head[at::FILLED + class as usize / 64]
    }

    /// Pushes a record onto a list. This keeps the group, because a thread that claims the record
    /// may read it now.
    pub(super) fn push(&self, first: &AtomicU64, at: WordOffset) {
        let origin = self.word_of(at, 1);
        let group = origin.load(Ordering::Relaxed) >> 32 << 32;
        let next = WordOffset::unpack(first.load(Ordering::Relaxed));
        // Release: a walk that sees the link sees the new generation.
        origin.store(group | next.pack(), Ordering::Release);
        first.store(at.pack(), Ordering::Relaxed);
    }

    /// Returns the record after `at` on its list.
    pub(super) fn link(&self, at: WordOffset) -> WordOffset {
        WordOffset::unpack(self.word_of(at, 1).load(Ordering::Relaxed))
    }

    /// Removes a hidden series. The search continues where the last one ended, because it would
    /// otherwise pass the same records each time.
    pub(super) fn forget_one(&self) -> bool {
        if self.head[at::HIDDEN].load(Ordering::Relaxed) == 0 {
            return false;
        }
        let hand = self.hand.load(Ordering::Relaxed);
        // The truncation is intended: each half contains 32 bits.
        let mut cursor = WalkPosition::new(WordOffset::unpack(hand >> 32), hand as u32);
        let mut is_second_round = false;
        loop {
            let Some(at) = self.next_record(&mut cursor) else {
                if is_second_round {
                    // No series is hidden, so another process wrote a wrong number. Correct it,
                    // because the next call would search again.
                    self.head[at::HIDDEN].store(0, Ordering::Relaxed);
                    return false;
                }
                (cursor, is_second_round) = (WalkPosition::default(), true);
                continue;
            };
            let meta = self.region().word(at).load(Ordering::Relaxed);
            if state_of(meta) == state::HIDDEN && !self.is_overflow(at) {
                if self.has_changed(at) {
                    // An update arrived after the series was hidden.
                    self.show(at);
                    continue;
                }
                self.detach(at, fingerprint(self.hash(at)));
                let hand = cursor.block.pack() << 32 | u64::from(cursor.word);
                self.hand.store(hand, Ordering::Relaxed);
                return true;
            }
        }
    }
}

/// Returns the smallest class whose records can hold `words` words, 1 to 2^15.
pub(super) fn class_of(words: u32) -> u32 {
    if words <= EXACT {
        return words - 1;
    }
    let last = words - 1;
    let quarter = last.ilog2() - 2;
    EXACT + 4 * (last.ilog2() - EXACT.ilog2()) + (last >> quarter & 3)
}

/// Returns the words of a class's records.
pub(super) fn class_words(class: u32) -> u32 {
    if class < EXACT {
        return class + 1;
    }
    let (doubling, quarter) = ((class - EXACT) / 4, (class - EXACT) % 4);
    (quarter + 5) << (EXACT.ilog2() + doubling - 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_length_has_a_class_of_at_most_a_quarter_more() {
        let mut before = 0;
        let most_words = if cfg!(miri) { 600 } else { MAX_WORDS };
        for words in 1..=most_words {
            let class = class_of(words);
            let most = class_words(class);
            assert!(class < CLASSES && (class == before || class == before + 1));
            assert!(words <= most && most - words <= words / 4, "{words} in {most}");
            assert_eq!(class_of(most), class);
            before = class;
        }
        assert!(cfg!(miri) || before == CLASSES - 1);
    }
}
