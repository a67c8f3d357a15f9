//! Makes the records of a copied file consistent: see `series/settle.rs`.
//!
//! A series owns its record as long as the generation in the meta word stays the same. If the meta
//! word and the origin of a record did not move while it was copied, its cells and key therefore
//! belong to one series, like for a thread that claims the record. Any other record with a series
//! is read again.

use std::ops::Range;

use super::DynamicSeries;
use super::blocks::BLOCK_HEAD;
use super::head as at;
use crate::claims::Memory;
use crate::offset::{self, ByteOffset, WordOffset};
use crate::origin::{Origin, TRIES};
use crate::series::meta::{self, WORDS, is_series, state, with_state};
use crate::sync::Ordering;

impl DynamicSeries {
    /// Returns the words of the index's tables.
    pub(crate) fn index_words(&self) -> impl Iterator<Item = Range<u64>> {
        self.tables().into_iter().map(|table| table.words())
    }

    /// Makes all records consistent.
    pub(crate) fn settle(&self, origin: &Origin) {
        for block in self.block_words(origin) {
            if origin.moved.any(block.clone()) {
                self.settle_block(origin, block);
            }
        }
    }

    /// Reads all records again. Returns false if some of them cannot be read, or if there is a
    /// further block by now that was not copied.
    pub(crate) fn read_again(&self, origin: &Origin) -> bool {
        let region = self.region();
        for block in self.block_words(origin) {
            // Skip the first word, which may name a block that was not copied, but read the words
            // in use.
            if !origin.read_again(region, block.start + 1..block.start + 2) {
                return false;
            }
        }
        let mut is_complete = true;
        for block in self.block_words(origin) {
            if !origin.read_again(region, block.start + u64::from(BLOCK_HEAD)..block.end) {
                return false;
            }
            self.settle_block(origin, block.clone());
            let Some(head) = origin.words(block.start..block.start + 1) else { return false };
            let word = region.slice(offset_of(block.start), 1).first();
            let word = word.map(|word| word.load(Ordering::Relaxed));
            is_complete &= word.is_some() && head.first().copied() == word;
        }
        is_complete
    }

    /// Returns whether the series with this number still owns its record in the file.
    pub(crate) fn is_there(&self, origin: &Origin, id: u64) -> bool {
        let at = WordOffset::unpack(id).pack();
        let meta = origin.words(at..at + 1).and_then(|words| words.first().copied());
        meta.is_some_and(|meta| is_series(meta) && u64::from(meta::generation_of(meta)) == id >> 32)
    }

    /// Returns the used words of each block.
    fn block_words(&self, origin: &Origin) -> Vec<Range<u64>> {
        let (mut blocks, region) = (Vec::new(), self.region());
        let first = self.head[at::FIRST_BLOCK].load(Ordering::Acquire);
        let mut block = WordOffset::unpack(first);
        let mut last = WordOffset::NONE;
        // Each block lies after the blocks before it.
        while block > last && self.has_words(block, BLOCK_HEAD) {
            let head = block.pack()..block.pack() + u64::from(BLOCK_HEAD);
            if self.word_of(block, 1).load(Ordering::Relaxed) == 0 {
                // The block before this one was copied after it linked here, and this one before
                // that.
                let _ = origin.read_again(region, head);
            }
            let next = WordOffset::unpack(region.word(block).load(Ordering::Relaxed));
            let length = region.word(block).load(Ordering::Relaxed) >> 32;
            let used = self.word_of(block, 1).load(Ordering::Relaxed).min(length);
            // This bounds the walk, even over nonsense.
            let most = if next > block { next.pack() } else { u64::MAX };
            let end = (block.pack() + used).min(most).min(offset::words(region.known()));
            blocks.push(block.pack()..end);
            (last, block) = (block, next);
        }
        blocks
    }

    fn settle_block(&self, origin: &Origin, block: Range<u64>) {
        let mut at = block.start + u64::from(BLOCK_HEAD);
        while at < block.end {
            let Ok(record) = u32::try_from(at).map(WordOffset::new) else { return };
            let word = self.region().word(record);
            let meta = word.load(Ordering::Relaxed);
            // A record without a length was created while its block was copied.
            let is_new = meta & WORDS == 0;
            if is_new || is_series(meta) && origin.moved.any(at..at + 2) {
                self.settle_record(origin, record, block.end);
            }
            let words = word.load(Ordering::Relaxed) & WORDS;
            if words == 0 {
                return;
            }
            at += words;
        }
    }

    /// Reads a record again until it is consistent, or hides it if it never becomes consistent.
    fn settle_record(&self, origin: &Origin, at: WordOffset, end: u64) {
        let (region, first) = (self.region(), at.pack());
        let word = region.word(at);
        for _ in 0..TRIES {
            if !origin.read_again(region, first..first + 1) {
                break;
            }
            let meta = word.load(Ordering::Relaxed);
            let words = meta & WORDS;
            if words < self.before_key.into() || first + words > end {
                break;
            }
            // A record without a series is not shown.
            if !is_series(meta) {
                return;
            }
            let record = first..first + words;
            if origin.settle(region, record, first..first + 2) {
                // Mark its cells as moved, because the memory that they refer to must be read
                // again, too.
                let cells = first + u64::from(self.header)..first + u64::from(self.before_key);
                origin.moved.note(cells);
                return;
            }
        }
        let meta = word.load(Ordering::Relaxed);
        if is_series(meta) {
            origin.count_omitted(1);
        }
        word.store(with_state(meta, state::FREE), Ordering::Relaxed);
    }
}

fn offset_of(word: u64) -> ByteOffset {
    ByteOffset::new(offset::bytes(word))
}
