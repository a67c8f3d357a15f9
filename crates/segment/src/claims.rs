//! Claims: words of a segment that keep removed records from being reused (hazard pointers; Michael
//! 2004, "Hazard Pointers: Safe Memory Reclamation for Lock-Free Objects").
//!
//! A *claim* is a word that names a record by its word offset, or is 0. As long as it names a
//! record and the owner of the claim lives, the record is not reused, even if that process is
//! stopped for hours. Each thread that updates series uses separate claims, and so does each
//! handle.
//!
//! To use a record, a thread stores the claim, passes a [barrier](barrier::light), and then reads
//! the record's meta word. If the series is there, the thread can use the record until it clears
//! the claim. To reuse removed records, a thread has changed their meta words before, passes the
//! other [barrier](barrier::heavy), and then reads all claims. Either this thread sees the claim,
//! or the first thread sees that the series was removed.
//!
//! Claims are in *blocks*. A block belongs to one process, by its token. If the process ends, the
//! next process that needs a block takes it over. `docs/formats.md` draws a block.

use std::collections::BTreeMap;

use crate::barrier;
use crate::offset::WordOffset;
use crate::sync::{AtomicU64, Ordering, fence};

/// Access to the words of a segment.
pub(crate) trait Memory {
    /// Returns the word at an offset.
    fn word(&self, at: WordOffset) -> &AtomicU64;

    /// Returns the `count` words from an offset on; empty if one of them does not exist.
    fn words(&self, at: WordOffset, count: u32) -> &[AtomicU64];

    /// Like [`Memory::words`], but limited to the memory that this process knows.
    #[inline]
    fn known_words(&self, at: WordOffset, count: u32) -> &[AtomicU64] {
        self.words(at, count)
    }
}

/// The number of words of a cache line.
pub(crate) const LINE: u32 = 8;
/// The number of lines of a process's first block.
pub(crate) const MIN_LINES: u32 = if cfg!(loom) { 2 } else { 16 };
/// The maximum number of lines of a block.
pub(crate) const MAX_LINES: u32 = 1024;
/// Set in the claim of a handle, but not of a thread.
pub(crate) const HANDLE: u64 = 1 << 32;
/// Marks a word that is not a claim, because it is on a stack of free words. It then contains the
/// offset of the next.
const FREE: u64 = 1 << 63;

/// Indexes into a block's first line.
mod at {
    /// The next block (bits 0-31), and the number of lines of this one (32-63).
    pub(super) const NEXT: u32 = 0;
    /// The token of the process that owns the block; 0 for none.
    pub(super) const OWNER: u32 = 1;
    /// 1 if the owner's threads rely on the barriers of others.
    pub(super) const RELIES: u32 = 2;
}

/// Claims a record. The caller must then check that the record is there.
#[inline]
pub(crate) fn claim(word: &AtomicU64, value: u64, relies: bool) {
    word.store(value, Ordering::Relaxed);
    barrier::light(relies);
}

/// Clears a claim.
#[inline]
pub(crate) fn release(word: &AtomicU64) {
    // Release: a thread that sees the claim cleared sees all stores to the record before.
    word.store(0, Ordering::Release);
}

/// A stack of free words; each contains the offset of the next. The stack's word contains the
/// offset of the first, and in the upper half the number of pops, against ABA.
#[derive(Debug, Default)]
pub(crate) struct Stack(AtomicU64);

impl Stack {
    pub(crate) fn pop(&self, memory: &impl Memory) -> Option<WordOffset> {
        // Acquire, here and below: this sees the store of the first word's link.
        let mut head = self.0.load(Ordering::Acquire);
        loop {
            let first = WordOffset::unpack(head);
            if first == WordOffset::NONE {
                return None;
            }
            // If another thread takes the first word in the meantime, the link can be anything, but
            // the exchange fails.
            let link = memory.word(first).load(Ordering::Relaxed);
            // A free word without a link means that another process wrote nonsense there: the words
            // below it are leaked.
            let next = if link & FREE == 0 { WordOffset::NONE } else { WordOffset::unpack(link) };
            let after = (head >> 32).wrapping_add(1) << 32 | next.pack();
            match self.0.compare_exchange_weak(head, after, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => {
                    memory.word(first).store(0, Ordering::Relaxed);
                    return Some(first);
                }
                Err(found) => head = found,
            }
        }
    }

    pub(crate) fn push(&self, memory: &impl Memory, at: WordOffset) {
        let mut head = self.0.load(Ordering::Relaxed);
        loop {
            // Release, both: a thread that sees the claim cleared sees all stores to the record
            // before, and a thread that pops the word sees its link.
            let next = WordOffset::unpack(head);
            memory.word(at).store(FREE | next.pack(), Ordering::Release);
            let after = head >> 32 << 32 | at.pack();
            match self.0.compare_exchange_weak(head, after, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(found) => head = found,
            }
        }
    }
}

/// The blocks of a segment.
pub(crate) struct Blocks<'m, M> {
    pub(crate) memory: &'m M,
    /// The offset of the newest block.
    pub(crate) root: &'m AtomicU64,
    /// The end of the words that may be used. It fits into 32 bits.
    pub(crate) end: u64,
}

/// A block: its word offset and its number of lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) at: WordOffset,
    pub(crate) lines: u32,
}

impl Block {
    /// Returns the words that can be claims.
    fn words(self) -> impl Iterator<Item = WordOffset> {
        (LINE..self.lines * LINE).map(move |i| self.at.plus(i))
    }

    /// Returns the offsets of its lines except the first.
    pub(crate) fn claim_lines(self) -> impl Iterator<Item = WordOffset> {
        self.words().step_by(LINE as usize)
    }

    /// Returns all its words, including the first line.
    pub(crate) fn range(self) -> std::ops::Range<u64> {
        let start = u64::from(self.at.get());
        start..start + u64::from(self.lines) * u64::from(LINE)
    }
}

/// The records that claims name.
#[derive(Debug, Default)]
pub(crate) struct NamedRecords {
    /// The records, sorted.
    records: Vec<WordOffset>,
    /// The number of words that were read.
    pub(crate) read: u64,
}

impl NamedRecords {
    pub(crate) fn has(&self, record: WordOffset) -> bool {
        self.records.binary_search(&record).is_ok()
    }
}

impl<M: Memory> Blocks<'_, M> {
    /// Returns the blocks, newest first; an error if the list contradicts itself.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Result<Block, u64>> {
        // Acquire, here and below: a thread that sees a block sees its head.
        let mut next = self.root.load(Ordering::Acquire);
        // The number of words for further blocks. This bounds the walk over a circular list.
        let mut left = self.end;
        std::iter::from_fn(move || {
            if next == 0 {
                return None;
            }
            let here = std::mem::take(&mut next);
            let at = u32::try_from(here)
                .ok()
                .filter(|at| at.is_multiple_of(LINE) && here + u64::from(LINE) <= self.end);
            let Some(at) = at.map(WordOffset::new) else { return Some(Err(here)) };
            let head = self.memory.word(at.plus(at::NEXT)).load(Ordering::Acquire);
            let block = Block { at, lines: (head >> 32) as u32 };
            if !(MIN_LINES..=MAX_LINES).contains(&block.lines) || block.range().end > self.end {
                return Some(Err(here));
            }
            let Some(after) = left.checked_sub(u64::from(block.lines * LINE)) else {
                return Some(Err(here));
            };
            left = after;
            next = WordOffset::unpack(head).pack();
            Some(Ok(block))
        })
    }

    /// Takes over and empties the block of an ended process, for the process of `token`.
    pub(crate) fn take_over(
        &self,
        token: u64,
        relies: bool,
        is_alive: impl Fn(u64) -> bool,
    ) -> Option<Block> {
        for block in self.iter().map_while(Result::ok) {
            let word = self.memory.word(block.at.plus(at::OWNER));
            let owner = word.load(Ordering::Relaxed);
            if owner == token || owner != 0 && is_alive(owner) {
                continue;
            }
            // Tokens are never reused, so no block is taken over twice.
            if word.compare_exchange(owner, token, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                self.reset(block, relies);
                return Some(block);
            }
        }
        None
    }

    /// Adds a block of new words for the process of `token`.
    pub(crate) fn add(&self, block: Block, token: u64, relies: bool) {
        self.memory.word(block.at.plus(at::OWNER)).store(token, Ordering::Relaxed);
        self.reset(block, relies);
        let link = self.memory.word(block.at.plus(at::NEXT));
        let mut next = self.root.load(Ordering::Relaxed);
        loop {
            link.store(u64::from(block.lines) << 32 | next, Ordering::Relaxed);
            // Release: a thread that sees the block sees its head, and through its link the blocks
            // before it.
            let (success, failure) = (Ordering::Release, Ordering::Relaxed);
            match self.root.compare_exchange_weak(next, block.at.pack(), success, failure) {
                Ok(_) => break,
                Err(found) => next = found,
            }
        }
        // SeqCst: either a thread that reads the claims sees the block, or every claim in the block
        // is made after that read, and its check finds that a removed series is gone.
        fence(Ordering::SeqCst);
    }

    fn reset(&self, block: Block, relies: bool) {
        self.memory.word(block.at.plus(at::RELIES)).store(relies.into(), Ordering::Relaxed);
        for word in block.words().map(|at| self.memory.word(at)) {
            // Load first, because most words are zero already.
            if word.load(Ordering::Relaxed) != 0 {
                word.store(0, Ordering::Relaxed);
            }
        }
        // SeqCst: like in `add`, for the owner and for whether it relies on barriers.
        fence(Ordering::SeqCst);
    }

    /// Frees all blocks. No other process may have the segment open.
    pub(crate) fn free_all(&self) {
        for block in self.iter().map_while(Result::ok) {
            self.memory.word(block.at.plus(at::OWNER)).store(0, Ordering::Relaxed);
        }
    }

    /// Returns the records that claims of living processes name; with `handles_only`, only claims
    /// of handles count. You can reuse all other records that were removed before this call.
    /// Returns `None` if the claims cannot be read.
    pub(crate) fn named(
        &self,
        handles_only: bool,
        is_alive: impl Fn(u64) -> bool,
    ) -> Option<NamedRecords> {
        let reaches_all = barrier::heavy();
        let mut named = NamedRecords::default();
        let mut known = BTreeMap::<u64, bool>::new();
        for block in self.iter() {
            let block = block.ok()?;
            // Acquire: sees the stores of the previous owner to the block.
            let owner = self.memory.word(block.at.plus(at::OWNER)).load(Ordering::Acquire);
            if owner == 0 {
                continue;
            }
            let lives = *known.entry(owner).or_insert_with(|| is_alive(owner));
            named.read += u64::from(block.lines * LINE);
            if !lives {
                continue;
            }
            let relies = self.memory.word(block.at.plus(at::RELIES)).load(Ordering::Relaxed) != 0;
            if relies && !reaches_all {
                return None;
            }
            for at in block.words() {
                // Acquire: a thread that sees a claim cleared sees all stores to the record before.
                let value = self.memory.word(at).load(Ordering::Acquire);
                let is_claim = value & FREE == 0 && (!handles_only || value & HANDLE != 0);
                let record = WordOffset::unpack(value);
                if is_claim && record != WordOffset::NONE {
                    named.records.push(record);
                }
            }
        }
        named.records.sort_unstable();
        Some(named)
    }
}

/// Words in a list, for tests.
#[cfg(all(test, not(loom)))]
pub(crate) struct WordList(pub(crate) Vec<AtomicU64>);

#[cfg(all(test, not(loom)))]
impl Memory for WordList {
    fn word(&self, at: WordOffset) -> &AtomicU64 {
        &self.0[at.get() as usize]
    }

    fn words(&self, at: WordOffset, count: u32) -> &[AtomicU64] {
        &self.0[at.get() as usize..][..count as usize]
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// Imitates a large block that another process linked to itself.
    #[test]
    #[cfg_attr(miri, ignore = "it reads some 20,000 words one by one, which takes miri minutes")]
    fn a_list_of_blocks_in_a_circle_ends_before_it_has_more_words_than_there_are() {
        let words = WordList((0..5 * MAX_LINES * LINE / 2).map(|_| AtomicU64::new(0)).collect());
        let (root, end) = (AtomicU64::new(0), words.0.len() as u64);
        let blocks = Blocks { memory: &words, root: &root, end };
        let block = Block { at: WordOffset::new(LINE), lines: MAX_LINES };
        blocks.add(block, 1, false);
        words.word(block.at).fetch_or(block.at.pack(), Ordering::Relaxed);
        let seen: Vec<Result<Block, u64>> = blocks.iter().collect();
        assert_eq!(seen, [Ok(block), Ok(block), Err(block.at.pack())]);
        assert!(blocks.named(false, |_| true).is_none());
    }

    #[test]
    fn an_invalid_link_ends_a_stack() {
        let words = WordList((0..4).map(|_| AtomicU64::new(0)).collect());
        let stack = Stack::default();
        (1..4).for_each(|at| stack.push(&words, WordOffset::new(at)));
        words.word(WordOffset::new(2)).store(7, Ordering::Relaxed);
        let popped: Vec<WordOffset> = std::iter::from_fn(|| stack.pop(&words)).collect();
        assert_eq!(popped, [3, 2].map(WordOffset::new));
    }
}
