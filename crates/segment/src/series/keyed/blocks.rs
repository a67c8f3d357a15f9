//! Blocks: ranges of words in which records lie one after the other, and the walk over them.
//!
//! Each block links to the next, which lies after it. Only the last one has room for new records.
//! The walk takes no lock.

use super::DynamicSeries;
use super::free::{class_of, class_words};
use super::head as at;
use crate::claims::Memory;
use crate::error::Error;
use crate::lock;
use crate::offset::{self, WordOffset};
use crate::series::meta::{self, WORDS};
use crate::sync::{AtomicU64, Ordering};

/// The position of a walk over the records: a block, and a word in it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct WalkPosition {
    pub(super) block: WordOffset,
    pub(super) word: u32,
    /// The words of the block that were in use when it was last looked at. All of them are in the
    /// segment, and have word offsets.
    used: u32,
}

impl WalkPosition {
    /// A position that was kept as two numbers.
    pub(super) fn new(block: WordOffset, word: u32) -> Self {
        Self { block, word, used: 0 }
    }
}

/// A walk over the records, with or without live series. Another walk may continue from its cursor.
pub(crate) struct Records<'s, 'c> {
    pub(crate) series: &'s DynamicSeries,
    cursor: &'c mut WalkPosition,
    /// The words of the block from the cursor on, as far as they were in use.
    rest: &'s [AtomicU64],
}

/// A record that a walk found.
#[derive(Clone, Copy)]
pub(crate) struct BlockRecord<'s> {
    pub(super) at: WordOffset,
    /// Its meta word, origin, mark and cells.
    pub(super) head: &'s [AtomicU64],
    /// Its key, and unused words.
    pub(super) tail: &'s [AtomicU64],
}

impl<'s> Records<'s, '_> {
    /// The next record.
    #[inline(always)]
    pub(crate) fn next(&mut self) -> Option<BlockRecord<'s>> {
        loop {
            if let Some((head, tail, rest)) = split(self.rest, self.series.before_key as usize) {
                let at = self.cursor.block.plus(self.cursor.word);
                // The words of a block are counted in 32 bits.
                self.cursor.word += (self.rest.len() - rest.len()) as u32;
                self.rest = rest;
                return Some(BlockRecord { at, head, tail });
            }
            self.rest = self.series.next_rest(self.cursor, self.rest)?;
        }
    }
}

/// Splits the first record off the rest of a block: (its words before the key, its other words, the
/// rest). `None` if there is no record.
#[inline(always)]
fn split(
    rest: &[AtomicU64],
    before_key: usize,
) -> Option<(&[AtomicU64], &[AtomicU64], &[AtomicU64])> {
    let (head, after) = rest.split_at_checked(before_key)?;
    // Acquire: a length that is seen is that of the record's block.
    let meta = head.first()?.load(Ordering::Acquire);
    let (tail, rest) =
        after.split_at_checked(((meta & WORDS) as usize).checked_sub(before_key)?)?;
    Some((head, tail, rest))
}

/// The words at the start of a block: next block and length; words in use.
pub(super) const BLOCK_HEAD: u32 = 2;
pub(super) const MIN_BLOCK: u32 = 128;
const MAX_BLOCK: u32 = 1 << 15;

impl DynamicSeries {
    /// Continues a walk.
    #[inline]
    pub(crate) fn records<'c>(&self, cursor: &'c mut WalkPosition) -> Records<'_, 'c> {
        Records { series: self, cursor, rest: &[] }
    }

    /// The next record of a walk, with or without a live series.
    pub(crate) fn next_record(&self, cursor: &mut WalkPosition) -> Option<WordOffset> {
        self.records(cursor).next().map(|record| record.at)
    }

    /// The words of a block from the cursor on, where a walk found no record in the words before.
    #[cold]
    fn next_rest(&self, cursor: &mut WalkPosition, before: &[AtomicU64]) -> Option<&[AtomicU64]> {
        if !before.is_empty() {
            // Another process wrote nonsense into it: the rest of this block cannot be walked.
            cursor.word = u32::MAX;
        }
        while cursor.word >= cursor.used {
            if !self.look_ahead(cursor) {
                return None;
            }
        }
        let at = cursor.block.plus(cursor.word);
        Some(self.region().slice(at.byte(), (cursor.used - cursor.word) as usize))
    }

    /// Looks at the block of the cursor again, which may have more records by now, or else moves on
    /// to the next one. Returns false if there is none.
    fn look_ahead(&self, cursor: &mut WalkPosition) -> bool {
        let region = self.region();
        if cursor.block == WordOffset::NONE {
            // Acquire: sees the blocks as they were linked.
            let first = self.head[at::FIRST_BLOCK].load(Ordering::Acquire);
            *cursor = WalkPosition::new(WordOffset::unpack(first), BLOCK_HEAD);
            if cursor.block == WordOffset::NONE {
                return false;
            }
        }
        let block = cursor.block;
        // Acquire: the records below are complete enough for a walk.
        let used = self.word_of(block, 1).load(Ordering::Acquire);
        // Acquire: sees the head of the next block.
        let next = WordOffset::unpack(region.word(block).load(Ordering::Acquire));
        // If another process wrote nonsense into that, the records of the next block are still
        // returned only once.
        let end = if next > block { next.get() } else { u32::MAX };
        let used = used.min(u64::from(end - block.get()));
        let used = if region.has(block.byte(), offset::bytes(used)) {
            used
        } else {
            offset::words(region.known()).saturating_sub(block.pack()).min(used)
        };
        // At most 2^32 - 1.
        cursor.used = used as u32;
        if cursor.word < cursor.used {
            return true;
        }
        // Each block lies after those that were taken before it, so that a walk ends.
        if next <= block {
            return false;
        }
        *cursor = WalkPosition::new(next, BLOCK_HEAD);
        true
    }

    /// Takes a record from the end of the last block, as a draft.
    pub(super) fn take_new(&self, used_words: u32) -> Result<WordOffset, Error> {
        let region = self.region();
        let words = class_words(class_of(used_words));
        let mut block = WordOffset::unpack(self.head[at::LAST_BLOCK].load(Ordering::Relaxed));
        let mut used = BLOCK_HEAD;
        let mut length = 0;
        if block != WordOffset::NONE {
            used = self.word_of(block, 1).load(Ordering::Relaxed) as u32;
            length = (region.word(block).load(Ordering::Relaxed) >> 32) as u32;
            // Both are read once: another process may write nonsense into them after the check.
            if used < BLOCK_HEAD || used > length || !self.has_words(block, length) {
                let at = block.byte();
                return Err(self.damaged(&format!("the last block of a family, at {at}")));
            }
        }
        if block == WordOffset::NONE || words > length - used {
            let wanted = length.saturating_mul(2).clamp(MIN_BLOCK, MAX_BLOCK);
            // A record has at most 2^15 words.
            let wanted = wanted.max(words + BLOCK_HEAD).next_multiple_of(8);
            let new = self.segment.take(wanted.into(), lock::UPDATE)?;
            region.word(new).store(u64::from(wanted) << 32, Ordering::Relaxed);
            self.word_of(new, 1).store(BLOCK_HEAD.into(), Ordering::Relaxed);
            // Release: a thread that finds the block finds its head.
            if block == WordOffset::NONE {
                self.head[at::FIRST_BLOCK].store(new.pack(), Ordering::Release);
            } else {
                let link = u64::from(length) << 32 | new.pack();
                region.word(block).store(link, Ordering::Release);
            }
            self.head[at::LAST_BLOCK].store(new.pack(), Ordering::Relaxed);
            (block, used) = (new, BLOCK_HEAD);
        }
        let at = block.plus(used);
        // A power loss may have set back the number of words in use: offsets that an earlier record
        // had there are not offsets of this one.
        for cell in self.header..self.header + self.cells.get() {
            self.word_of(at, cell).store(0, Ordering::Relaxed);
        }
        // The length first, so that a walk can step over the record if this process dies here.
        let meta = meta::draft(words.into(), used_words.into());
        region.word(at).store(meta, Ordering::Relaxed);
        self.word_of(block, 1).store(u64::from(used + words), Ordering::Release);
        Ok(at)
    }

    /// The end of the bytes in use, in words, or of what word offsets reach.
    pub(super) fn end(&self) -> u64 {
        offset::words(self.segment.used()).min(1 << u32::BITS)
    }
}
