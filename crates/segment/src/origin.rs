//! The file that a segment in private memory is a copy of.
//!
//! Words that moved while the file was copied are read again, in the order in which a process that
//! has the file open reads them. Each reading is one or more system calls, and comes after the
//! readings before it.

use std::fs::File;
use std::ops::Range;

use crate::file::read_up_to;
use crate::moved::{Moved, Pass};
use crate::offset::{self, ByteOffset};
use crate::region::Region;
use crate::sync::{AtomicU64, Ordering, fence};

/// The file, and what is known of the copy.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) file: File,
    pub(crate) moved: Moved,
    /// The words that were copied. Those that the reader adds lie after them.
    copied: AtomicU64,
    /// How often words were read again, and how many more may be: a file in which all moves again
    /// and again takes time in proportion to its length.
    readings: AtomicU64,
    budget: AtomicU64,
    /// The series that are not shown, since they moved again and again.
    left_out: AtomicU64,
}

/// How often words that move are read again until they are consistent.
pub(crate) const TRIES: usize = 8;
/// The words that are read again at most: for each word that there is room for, and in any case.
const BUDGET: u64 = 32;
const MIN_BUDGET: u64 = 1 << 20;
/// The words that are read at a time.
const BLOCK: u64 = 1 << 13;

impl Origin {
    /// The file of a copy that has room for `words` words.
    pub(crate) fn new(file: File, words: u64) -> Self {
        Self {
            file,
            moved: Moved::new(words),
            copied: AtomicU64::new(0),
            readings: AtomicU64::new(0),
            budget: AtomicU64::new(MIN_BUDGET + BUDGET * words),
            left_out: AtomicU64::new(0),
        }
    }

    /// Notes how many words were copied.
    pub(crate) fn set_copied(&self, words: u64) {
        self.copied.store(words, Ordering::Relaxed);
    }

    /// How often words were read again.
    pub(crate) fn readings(&self) -> u64 {
        self.readings.load(Ordering::Relaxed)
    }

    /// Counts series that are not shown.
    pub(crate) fn leave_out(&self, series: u64) {
        self.left_out.fetch_add(series, Ordering::Relaxed);
    }

    /// The number of series that are not shown.
    pub(crate) fn left_out(&self) -> u64 {
        self.left_out.load(Ordering::Relaxed)
    }

    /// Reads words of the file again, and notes those that are others by now. What cannot be read
    /// stays as it is.
    pub(crate) fn read_again(&self, region: &Region, words: Range<u64>) {
        self.readings.fetch_add(1, Ordering::Relaxed);
        if self.spend(&words) {
            self.pass(region, Pass::Second, words);
        }
    }

    /// Takes words from the budget, and what a system call costs. Returns false if there are too
    /// few.
    fn spend(&self, words: &Range<u64>) -> bool {
        let cost = words.end.saturating_sub(words.start) + 64;
        let less = |budget: u64| budget.checked_sub(cost);
        self.budget.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }

    /// Reads words of the file again, until `key`, a part of them, stays the same from before to
    /// after a reading of all. Returns whether it did, in a few tries.
    pub(crate) fn settle(&self, region: &Region, words: Range<u64>, key: Range<u64>) -> bool {
        let mut before = self.words(key.clone());
        for _ in 0..TRIES {
            self.read_again(region, words.clone());
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

    /// The words of the file as they are now. `None` if they cannot be read.
    pub(crate) fn words(&self, words: Range<u64>) -> Option<Vec<u64>> {
        if !self.spend(&words) {
            return None;
        }
        let mut bytes = vec![0; offset::bytes(words.end.checked_sub(words.start)?) as usize];
        let filled = read_up_to(&self.file, &mut bytes, offset::bytes(words.start)).ok()?;
        // Acquire: what is read from here on is read after it.
        fence(Ordering::Acquire);
        let (found, _) = bytes.as_chunks();
        (filled == bytes.len())
            .then(|| found.iter().map(|word| u64::from_le_bytes(*word)).collect())
    }

    /// Takes words of the file as a pass does, as far as they were copied.
    fn pass(&self, region: &Region, pass: Pass, words: Range<u64>) {
        let end = words.end.min(self.copied.load(Ordering::Relaxed));
        let mut at = words.start;
        let mut bytes = vec![0; offset::bytes(end.saturating_sub(at).min(BLOCK)) as usize];
        while at < end {
            let count = (end - at).min(BLOCK);
            let part = &mut bytes[..offset::bytes(count) as usize];
            let Ok(filled) = read_up_to(&self.file, part, offset::bytes(at)) else { break };
            let cells = region.slice(byte_of(at), count as usize);
            self.moved.take(pass, cells, &part[..filled], at);
            at += count;
        }
        // Acquire: as above.
        fence(Ordering::Acquire);
    }
}

fn byte_of(word: u64) -> ByteOffset {
    ByteOffset::new(offset::bytes(word))
}
