//! The file that a segment in private memory is a copy of.
//!
//! Words that moved while the file was copied are read again, in the order that a process with the
//! file open uses. Each reading is one or more system calls, and is made after the readings before
//! it.
//!
//! The number of words to read again is bounded. Once a reading is refused or fails, all later ones
//! are refused, too, because words that were read again must not be combined with words that were
//! not. The caller skips everything that did not settle.

use std::fs::File;
use std::ops::Range;

use crate::file::read_up_to;
use crate::moved::{MovedWords, Pass};
use crate::offset::{self, ByteOffset};
use crate::region::Region;
use crate::sync::{AtomicU64, Ordering, fence};

/// The file, and the state of the copy.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) file: File,
    pub(crate) moved: MovedWords,
    /// The number of copied words. Words that the reader adds lie after them.
    copied: AtomicU64,
    /// The words of the header in the file.
    #[allow(
        clippy::disallowed_types,
        reason = "it is set while the copy is made, before a child of a fork or a thread has it"
    )]
    head: std::sync::OnceLock<Box<[u64]>>,
    /// The number of repeated reads.
    readings: AtomicU64,
    /// The number of words that may still be read again; 0 once a reading was refused or failed.
    /// This bounds the time, because all words of a file could keep moving.
    budget: AtomicU64,
    /// The number of words of side allocations that may still be added up.
    work: AtomicU64,
    /// The number of series that are not shown, because they kept moving.
    omitted: AtomicU64,
    /// The numbers of the hidden families, in ascending order.
    #[allow(
        clippy::disallowed_types,
        reason = "it is set while the copy is made, before a child of a fork or a thread has it"
    )]
    hidden: std::sync::OnceLock<Vec<u64>>,
}

/// The number of times that moved words are read again until they are consistent.
pub(crate) const TRIES: usize = 8;
/// The number of words that may be read again for each word of room.
const BUDGET: u64 = 32;
/// The number of words that may be read again in any case.
const MIN_BUDGET: u64 = 1 << 20;
/// The number of words of side allocations that may be added up for each word of room. A walk adds
/// up each of them once or twice, unless they overlap in a damaged file.
const WORK: u64 = 16;
/// The number of words of side allocations that may be added up in any case.
const MIN_WORK: u64 = 1 << 20;
/// The number of words to read at a time.
const BLOCK: u64 = 1 << 13;

impl Origin {
    /// Returns the origin of a copy, whose first `words` words may move.
    pub(crate) fn new(file: File, words: u64) -> Self {
        Self {
            file,
            moved: MovedWords::new(words),
            copied: AtomicU64::new(0),
            head: Default::default(),
            readings: AtomicU64::new(0),
            budget: AtomicU64::new(MIN_BUDGET + BUDGET * words),
            work: AtomicU64::new(MIN_WORK + WORK * words),
            omitted: AtomicU64::new(0),
            hidden: Default::default(),
        }
    }

    /// Stores the words of the file's header, which differ in the copy.
    pub(crate) fn set_head(&self, words: impl Iterator<Item = u64>) {
        let _ = self.head.set(words.collect());
    }

    /// Returns a word of the file's header.
    #[cfg(not(loom))]
    pub(crate) fn head(&self, word: u64) -> u64 {
        let words = self.head.get().map_or(&[][..], |words| words);
        usize::try_from(word).ok().and_then(|at| words.get(at)).copied().unwrap_or(0)
    }

    /// Stores the number of copied words.
    pub(crate) fn set_copied(&self, words: u64) {
        self.copied.store(words, Ordering::Relaxed);
    }

    /// Sets the number of words that may be read again, for tests.
    pub(crate) fn set_budget(&self, words: u64) {
        self.budget.store(words, Ordering::Relaxed);
    }

    /// Returns the number of times that words were read again, or should have been.
    pub(crate) fn readings(&self) -> u64 {
        self.readings.load(Ordering::Relaxed)
    }

    /// Counts series that are not shown.
    pub(crate) fn count_omitted(&self, series: u64) {
        self.omitted.fetch_add(series, Ordering::Relaxed);
    }

    /// Returns the number of series that are not shown.
    pub(crate) fn omitted(&self) -> u64 {
        self.omitted.load(Ordering::Relaxed)
    }

    /// Hides these families.
    pub(crate) fn hide(&self, mut families: Vec<u64>) {
        families.sort_unstable();
        let _ = self.hidden.set(families);
    }

    /// Returns whether a family is hidden.
    pub(crate) fn is_hidden(&self, family: u64) -> bool {
        self.hidden.get().is_some_and(|hidden| hidden.binary_search(&family).is_ok())
    }

    /// Returns the number of copied words.
    pub(crate) fn copied(&self) -> u64 {
        self.copied.load(Ordering::Relaxed)
    }

    /// Reads words of the file again, among the copied ones, and marks the words that differ by
    /// now. Returns false if this fails; some of them may then be unchanged.
    #[must_use]
    pub(crate) fn read_again(&self, region: &Region, words: Range<u64>) -> bool {
        self.readings.fetch_add(1, Ordering::Relaxed);
        self.spend(&words) && self.pass(region, Pass::Second, words)
    }

    /// Subtracts words and the cost of a system call from the budget. If it is too small, this
    /// empties the budget and returns false.
    fn spend(&self, words: &Range<u64>) -> bool {
        let cost = words.end.saturating_sub(words.start) + 64;
        take(&self.budget, cost) || self.refuse()
    }

    /// Refuses all readings from now on.
    fn refuse(&self) -> bool {
        self.budget.store(0, Ordering::Relaxed);
        false
    }

    /// Returns whether a reading was refused or failed.
    pub(crate) fn is_refusing(&self) -> bool {
        self.budget.load(Ordering::Relaxed) == 0
    }

    /// Subtracts the words of a side allocation from the work budget. Returns false if it is too
    /// small. A walk then notices that it has not read the whole series.
    pub(crate) fn work(&self, words: u64) -> bool {
        take(&self.work, words) || {
            self.readings.fetch_add(1, Ordering::Relaxed);
            self.refuse()
        }
    }

    /// Reads words of the file again, until `key`, a part of them, is the same before and after a
    /// reading of all. Returns whether this happened within a few tries.
    pub(crate) fn settle(&self, region: &Region, words: Range<u64>, key: Range<u64>) -> bool {
        let mut before = self.words(key.clone());
        for _ in 0..TRIES {
            if !self.read_again(region, words.clone()) {
                return false;
            }
            let after = self.words(key.clone());
            let cells = region.slice(byte_of(key.start), (key.end - key.start) as usize);
            let is = |cells: &[AtomicU64], words: &[u64]| {
                cells.len() == words.len()
                    && cells.iter().zip(words).all(|(a, b)| a.load(Ordering::Relaxed) == *b)
            };
            if let (Some(one), Some(other)) = (&before, &after)
                && one == other
                && is(cells, one)
            {
                return true;
            }
            before = after;
        }
        false
    }

    /// Returns the current words of the file; `None` if they cannot be read.
    pub(crate) fn words(&self, words: Range<u64>) -> Option<Vec<u64>> {
        if !self.spend(&words) {
            return None;
        }
        let mut bytes = vec![0; offset::bytes(words.end.checked_sub(words.start)?) as usize];
        if !self.fill(&mut bytes, words.start) {
            return None;
        }
        let (found, _) = bytes.as_chunks();
        Some(found.iter().map(|word| u64::from_le_bytes(*word)).collect())
    }

    /// Applies one pass to words of the file, among the copied ones. Returns false if they cannot
    /// be read.
    fn pass(&self, region: &Region, pass: Pass, words: Range<u64>) -> bool {
        let end = words.end.min(self.copied());
        let mut at = words.start;
        let mut bytes = vec![0; offset::bytes(end.saturating_sub(at).min(BLOCK)) as usize];
        while at < end {
            let count = (end - at).min(BLOCK);
            let part = &mut bytes[..offset::bytes(count) as usize];
            if !self.fill(part, at) {
                return false;
            }
            let cells = region.slice(byte_of(at), count as usize);
            self.moved.take(pass, cells, part, at);
            at += count;
        }
        true
    }

    /// Fills a buffer with the bytes of the file from a word on. Returns false if that fails.
    fn fill(&self, bytes: &mut [u8], word: u64) -> bool {
        let filled = read_up_to(&self.file, bytes, offset::bytes(word));
        // Acquire: later reads are made after this one.
        fence(Ordering::Acquire);
        filled.is_ok_and(|filled| filled == bytes.len()) || self.refuse()
    }
}

/// Subtracts a number. Returns false if less than that is left.
fn take(left: &AtomicU64, number: u64) -> bool {
    let less = |left: u64| left.checked_sub(number);
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
}

fn byte_of(word: u64) -> ByteOffset {
    ByteOffset::new(offset::bytes(word))
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn after_a_reading_that_is_refused_or_fails_there_is_none() {
        // The words of the file, and the words that may be read.
        for (length, budget) in [(64, 64 + 20 + 100), (20, 1000)] {
            let file = tempfile::tempfile().unwrap();
            file.set_len(length * 8).unwrap();
            let region = Region::copy_of(file, 1 << 12, 1 << 12).unwrap();
            let origin = region.origin().unwrap();
            origin.set_copied(64);
            origin.set_budget(budget);
            assert!(origin.read_again(&region, 0..20) && !origin.is_refusing());
            assert!(!origin.read_again(&region, 8..60) && origin.is_refusing());
            assert!(!origin.read_again(&region, 0..1) && origin.words(0..1).is_none());
            assert!(!origin.settle(&region, 0..8, 0..1));
            assert_eq!(origin.readings(), 4);
        }
    }
}
