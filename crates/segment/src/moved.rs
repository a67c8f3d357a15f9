//! The words of a file that moved while it was copied: a bit for each word.
//!
//! A file in use is read in three passes. The words of the second pass are kept. If a word was
//! different in the first or in the third pass, it has *moved*. This allows three conclusions:
//!
//! - Words that did not move had these values at one moment, after the first pass and before the
//!   third. They are consistent with each other, even if a pass reads them in any order.
//! - If a word did not move, the memory that it refers to was complete before the second pass, like
//!   for a thread that loads the word first (Acquire), and then this memory.
//! - A word that did not move can guard others, like the number of a sequence lock, because they
//!   were read after it and before it.
//!
//! A sum that only grows may move, because its value is one that it had during the second pass. No
//! pass relies on the order of its reads, because a system call that copies memory uses no
//! particular order.

use std::ops::Range;

use crate::sync::{AtomicU64, Ordering};

/// The words that moved, counted from the start of the segment. A bit that is set stays set.
#[derive(Debug)]
pub(crate) struct MovedWords(Box<[AtomicU64]>);

/// One reading of the words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pass {
    /// Fills memory that is zero.
    First,
    /// Replaces the words that differ by now, and marks them. Any later reading does this, too.
    Second,
    /// Marks the words that differ by now, and keeps the words of the pass before.
    Third,
}

const BITS: u64 = u64::BITS as u64;

impl MovedWords {
    /// Returns the bits for a segment of this many words.
    pub(crate) fn new(words: u64) -> Self {
        Self((0..words.div_ceil(BITS)).map(|_| AtomicU64::new(0)).collect())
    }

    /// Returns whether no word moved.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|word| word.load(Ordering::Relaxed) == 0)
    }

    /// Returns whether any of these words moved.
    pub(crate) fn any(&self, words: Range<u64>) -> bool {
        let mut at = words.start;
        while at < words.end {
            let end = (at / BITS + 1) * BITS;
            let count = end.min(words.end) - at;
            let mask = (u64::MAX >> (BITS - count)) << (at % BITS);
            if self.word(at).is_some_and(|word| word.load(Ordering::Relaxed) & mask != 0) {
                return true;
            }
            at = end;
        }
        false
    }

    /// Marks these words as moved.
    pub(crate) fn note(&self, words: Range<u64>) {
        for at in words {
            if let Some(word) = self.word(at) {
                word.fetch_or(1 << (at % BITS), Ordering::Relaxed);
            }
        }
    }

    /// Applies the bytes that a pass read to these cells, which begin at word `first`.
    pub(crate) fn take(&self, pass: Pass, cells: &[AtomicU64], bytes: &[u8], first: u64) {
        let (words, _) = bytes.as_chunks::<8>();
        if pass == Pass::First {
            for (cell, word) in cells.iter().zip(words) {
                let word = u64::from_le_bytes(*word);
                // Don't touch pages of zeros.
                if word != 0 {
                    cell.store(word, Ordering::Relaxed);
                }
            }
            return;
        }
        let (mut at, mut cells, mut words) = (first, cells, words);
        while !cells.is_empty() && !words.is_empty() {
            // The words that share one word of bits.
            let count = ((BITS - at % BITS) as usize).min(cells.len()).min(words.len());
            let mut moved = 0;
            // Most words are equal: this finds out without a branch for each.
            let differ = cells.iter().zip(&words[..count]).fold(0, |differ, (cell, word)| {
                differ | (cell.load(Ordering::Relaxed) ^ u64::from_le_bytes(*word))
            });
            let looked_at = if differ == 0 { 0 } else { count };
            for (i, (cell, word)) in cells.iter().zip(words).take(looked_at).enumerate() {
                let word = u64::from_le_bytes(*word);
                if cell.load(Ordering::Relaxed) != word {
                    moved |= 1 << (at % BITS + i as u64);
                    if pass == Pass::Second {
                        cell.store(word, Ordering::Relaxed);
                    }
                }
            }
            if moved != 0
                && let Some(word) = self.word(at)
            {
                word.fetch_or(moved, Ordering::Relaxed);
            }
            (cells, words) = (&cells[count..], &words[count..]);
            at += count as u64;
        }
    }

    /// Returns the word that contains the bit of a word.
    fn word(&self, at: u64) -> Option<&AtomicU64> {
        self.0.get(usize::try_from(at / BITS).ok()?)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn words_that_differ_between_passes_have_moved() {
        const FIRST: u64 = 60;
        let moved = MovedWords::new(200);
        let cells: Vec<AtomicU64> = (0..100).map(|_| AtomicU64::new(0)).collect();
        let bytes = |changed: &[usize]| -> Vec<u8> {
            let word = |i: usize| if changed.contains(&i) { 1000 } else { i as u64 };
            (0..100).flat_map(|i| word(i).to_le_bytes()).collect()
        };
        moved.take(Pass::First, &cells, &bytes(&[]), FIRST);
        moved.take(Pass::Second, &cells, &bytes(&[3, 4, 70]), FIRST);
        moved.take(Pass::Third, &cells, &bytes(&[3, 4, 70, 99]), FIRST);
        let found: Vec<u64> = (0..200).filter(|&at| moved.any(at..at + 1)).collect();
        assert_eq!(found, [3, 4, 70, 99].map(|i| FIRST + i));
        let value = |i: usize| cells[i].load(Ordering::Relaxed);
        assert_eq!([3, 70, 99, 98].map(value), [1000, 1000, 99, 98]);
        assert!(moved.any(0..200) && moved.any(64..65) && moved.any(62..64));
        assert!(!moved.any(0..63) && !moved.any(65..130) && !moved.any(70..70));
        // Words that the reader adds lie after the copied ones.
        assert!(!moved.any(300..400));
    }
}

/// A model for loom: a file of a few words is copied while a thread stores into it.
#[cfg(loom)]
pub mod model {
    use super::*;
    use crate::Cells;
    use crate::sync::fence;

    /// A copy of a few words.
    pub struct WordsCopy {
        cells: Cells,
        moved: MovedWords,
    }

    impl WordsCopy {
        /// Copies the words in three passes. Each pass reads them in no particular order.
        pub fn new(file: &Cells) -> Self {
            let copied = Self { cells: Cells::private(file.len()), moved: MovedWords::new(64) };
            let all: Vec<usize> = (0..file.len()).collect();
            for pass in [Pass::First, Pass::Second, Pass::Third] {
                copied.pass(pass, file, &all);
            }
            copied
        }

        /// Reads these words again.
        pub fn read_again(&self, file: &Cells, words: &[usize]) {
            self.pass(Pass::Second, file, words);
        }

        fn pass(&self, pass: Pass, file: &Cells, words: &[usize]) {
            for &at in words {
                let word = file[at].load(Ordering::Relaxed).to_le_bytes();
                self.moved.take(pass, &self.cells[at..=at], &word, at as u64);
            }
            // Acquire: like after a pass over a file.
            fence(Ordering::Acquire);
        }

        /// Returns whether one of these words moved.
        pub fn has_moved(&self, words: Range<u64>) -> bool {
            self.moved.any(words)
        }

        /// Returns a word of the copy.
        pub fn word(&self, at: usize) -> u64 {
            self.cells[at].load(Ordering::Relaxed)
        }
    }
}
