//! Blocks: ranges of words where records lie one after the other, and the walk over them.
//!
//! Each block links to the next, which lies after it. Only the last block can have room for new
//! records. The walk takes no lock.

use super::DynamicSeries;
use super::free::{class_of, class_words};
use super::head as at;
use crate::claims::Memory;
use crate::error::Error;
use crate::lock;
use crate::offset::{self, WordOffset};
use crate::series::meta::{self, WORDS};
use crate::sync::{AtomicU64, Ordering};

/// The position of a walk over the records: a block, and a word in the block.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct WalkPosition {
    pub(super) block: WordOffset,
    pub(super) word: u32,
    /// The used words of the block, at the last load. All of them lie in the segment, at word
    /// offsets of 32 bits.
    used: u32,
}

impl WalkPosition {
    /// Returns a position that was stored as two numbers.
    pub(super) fn new(block: WordOffset, word: u32) -> Self {
        Self { block, word, used: 0 }
    }
}

/// A walk over the records, with or without live series. You can continue it from its cursor.
pub(crate) struct Records<'s, 'c> {
    pub(crate) series: &'s DynamicSeries,
    cursor: &'c mut WalkPosition,
    /// The words of the block from the cursor on, up to the end of the used words.
    rest: &'s [AtomicU64],
}

/// A record that a walk found.
#[derive(Clone, Copy)]
pub(crate) struct BlockRecord<'s> {
    pub(super) at: WordOffset,
    /// The record's meta word, origin, mark and cells.
    pub(super) head: &'s [AtomicU64],
    /// The record's key, and unused words.
    pub(super) tail: &'s [AtomicU64],
}

impl<'s> Records<'s, '_> {
    /// Returns the next record.
    #[inline(always)]
    pub(crate) fn next(&mut self) -> Option<BlockRecord<'s>> {
        loop {
            if let Some((head, tail, rest)) = split(self.rest, self.series.before_key as usize) {
                let at = self.cursor.block.plus(self.cursor.word);
                // The cast is safe, because the words of a block are counted in 32 bits.
                self.cursor.word += (self.rest.len() - rest.len()) as u32;
                self.rest = rest;
                return Some(BlockRecord { at, head, tail });
            }
            self.rest = self.series.next_rest(self.cursor, self.rest)?;
        }
    }
}

/// Splits the first record off the rest of a block: (its words before the key, its other words, the
/// rest). Returns `None` if there is no record.
#[inline(always)]
fn split(
    rest: &[AtomicU64],
    before_key: usize,
) -> Option<(&[AtomicU64], &[AtomicU64], &[AtomicU64])> {
    let (head, after) = rest.split_at_checked(before_key)?;
    // Acquire: the length that this sees belongs to the record's block.
    let meta = head.first()?.load(Ordering::Acquire);
    let (tail, rest) =
        after.split_at_checked(((meta & WORDS) as usize).checked_sub(before_key)?)?;
    Some((head, tail, rest))
}

/// The number of words of a block's head: next block and length; words in use.
pub(super) const BLOCK_HEAD: u32 = 2;
/// The minimum length of a block, in words.
pub(super) const MIN_BLOCK: u32 = 128;
/// The maximum length of a block, in words.
const MAX_BLOCK: u32 = 1 << 15;

impl DynamicSeries {
    /// Continues a walk.
    #[inline]
    pub(crate) fn records<'c>(&self, cursor: &'c mut WalkPosition) -> Records<'_, 'c> {
        Records { series: self, cursor, rest: &[] }
    }

    /// Returns the next record of a walk, with or without a live series.
    pub(crate) fn next_record(&self, cursor: &mut WalkPosition) -> Option<WordOffset> {
        self.records(cursor).next().map(|record| record.at)
    }

    /// Returns the words of a block from the cursor on. `before` is the rest where the walk found
    /// no record.
    #[cold]
    fn next_rest(&self, cursor: &mut WalkPosition, before: &[AtomicU64]) -> Option<&[AtomicU64]> {
        if !before.is_empty() {
            // Another process wrote nonsense here, so the rest of this block cannot be walked.
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

    /// Loads the used words of the cursor's block again, because there can be more records by now.
    /// Otherwise moves on to the next block. Returns false if there is none.
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
        // If another process wrote nonsense there, this still returns the records of the next block
        // only once.
        let end = if next > block { next.get() } else { u32::MAX };
        let used = used.min(u64::from(end - block.get()));
        let used = if region.has(block.byte(), offset::bytes(used)) {
            used
        } else {
            offset::words(region.known()).saturating_sub(block.pack()).min(used)
        };
        // The number is at most 2^32 - 1.
        cursor.used = used as u32;
        if cursor.word < cursor.used {
            return true;
        }
        // Each block lies after earlier ones. This check ends the walk in any case.
        if next <= block {
            return false;
        }
        *cursor = WalkPosition::new(next, BLOCK_HEAD);
        true
    }

    /// Reserves a record at the end of the last block, as a draft.
    pub(super) fn take_new(&self, used_words: u32) -> Result<WordOffset, Error> {
        let region = self.region();
        let words = class_words(class_of(used_words));
        let mut block = WordOffset::unpack(self.head[at::LAST_BLOCK].load(Ordering::Relaxed));
        let mut used = BLOCK_HEAD;
        let mut length = 0;
        if block != WordOffset::NONE {
            used = self.word_of(block, 1).load(Ordering::Relaxed) as u32;
            length = (region.word(block).load(Ordering::Relaxed) >> 32) as u32;
            // Both are read only once, because another process can write nonsense after the check.
            if used < BLOCK_HEAD || used > length || !self.has_words(block, length) {
                let at = block.byte();
                return Err(self.damaged(&format!("the last block of a family, at {at}")));
            }
        }
        if block == WordOffset::NONE || words > length - used {
            let wanted = length.saturating_mul(2).clamp(MIN_BLOCK, MAX_BLOCK);
            // A record is at most 2^15 words long.
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
        // Zero the cells: after a power loss, the number of used words may be outdated, and the
        // offsets of an earlier record must not become this one's.
        for cell in self.header..self.header + self.cells.get() {
            self.word_of(at, cell).store(0, Ordering::Relaxed);
        }
        // Store the length first, because a walk can then step over the record if this process
        // dies.
        let meta = meta::draft(words.into(), used_words.into());
        region.word(at).store(meta, Ordering::Relaxed);
        self.word_of(block, 1).store(u64::from(used + words), Ordering::Release);
        Ok(at)
    }

    /// Returns the end of the bytes in use, in words, limited by the reach of word offsets.
    pub(super) fn end(&self) -> u64 {
        offset::words(self.segment.used()).min(1 << u32::BITS)
    }
}
