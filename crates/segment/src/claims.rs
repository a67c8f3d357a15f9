//! Claims: words of a segment that keep removed records from being reused (hazard pointers; Michael
//! 2004, "Hazard Pointers: Safe Memory Reclamation for Lock-Free Objects").
//!
//! A *claim* is a word that names a record by its word offset, or is 0. As long as it names a
//! record and the process that owns the claim lives, the record is not reused, however long that
//! process is stopped. Each thread that updates series has claims of its own, and so has each
//! handle.
//!
//! A thread stores the claim, passes a [barrier](barrier::light), and then reads the record's meta
//! word: if that says that the series is there, the thread may use the record until it clears the
//! claim. A thread that wants to reuse removed records has changed their meta words before; it
//! passes the other [barrier](barrier::heavy), and then reads all claims. Either it sees the claim,
//! or the first thread saw that the series was removed.
//!
//! Claims lie in *blocks*. A block belongs to one process, by its token; the block of a process
//! that ended goes to the next process that needs a block. `docs/formats.md` draws one.

use std::collections::BTreeMap;

use crate::barrier;
use crate::offset::WordOffset;
use crate::sync::{AtomicU64, Ordering, fence};

/// Access to the words of a segment.
pub(crate) trait Memory {
    /// The word at an offset.
    fn word(&self, at: WordOffset) -> &AtomicU64;

    /// The `count` words from an offset on; empty if they are not all there.
    fn words(&self, at: WordOffset, count: u32) -> &[AtomicU64];

    /// As [`Memory::words`], as far as this process knows the memory.
    #[inline]
    fn known_words(&self, at: WordOffset, count: u32) -> &[AtomicU64] {
        self.words(at, count)
    }
}

/// The words of a cache line.
pub(crate) const LINE: u32 = 8;
/// The lines of a block: of the first one of a process, and at most.
pub(crate) const MIN_LINES: u32 = if cfg!(loom) { 2 } else { 16 };
pub(crate) const MAX_LINES: u32 = 1024;
/// Set in the claim of a handle, not in that of a thread.
pub(crate) const HANDLE: u64 = 1 << 32;
/// Marks a word that is not a claim: it is on a stack of free words, and has the offset of the
/// next.
const FREE: u64 = 1 << 63;

/// The words of a block's first line.
mod at {
    /// The next block (bits 0-31), and the lines of this one (32-63).
    pub(super) const NEXT: u32 = 0;
    /// The token of the process that has the block; 0 for none.
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
    // Release: a thread that sees the claim cleared sees all that was done with the record.
    word.store(0, Ordering::Release);
}

/// A stack of free words, each of which has the offset of the next. Its word has the offset of the
/// first, and in the upper half the number of pops, against ABA.
#[derive(Debug, Default)]
pub(crate) struct Stack(AtomicU64);

impl Stack {
    pub(crate) fn pop(&self, memory: &impl Memory) -> Option<WordOffset> {
        // Acquire, here and below: the first word's link is seen as it was stored.
        let mut head = self.0.load(Ordering::Acquire);
        loop {
            let first = WordOffset::unpack(head);
            if first == WordOffset::NONE {
                return None;
            }
            // If another thread has taken the first word meanwhile, the link may be anything, and
            // the exchange fails.
            let link = memory.word(first).load(Ordering::Relaxed);
            // If a free word has no link, another process wrote nonsense into it: the words below
            // it are leaked.
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
            // Release, both: a thread that sees the claim cleared sees all that was done with the
            // record, and a thread that pops the word sees its link.
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
    /// One past the last word that may be used. It fits into 32 bits.
    pub(crate) end: u64,
}

/// A block: its word offset and its number of lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) at: WordOffset,
    pub(crate) lines: u32,
}

impl Block {
    /// The words that can be claims.
    fn words(self) -> impl Iterator<Item = WordOffset> {
        (LINE..self.lines * LINE).map(move |i| self.at.plus(i))
    }

    /// The offsets of its lines except the first.
    pub(crate) fn claim_lines(self) -> impl Iterator<Item = WordOffset> {
        self.words().step_by(LINE as usize)
    }

    /// All its words, the first line included.
    pub(crate) fn range(self) -> std::ops::Range<u64> {
        let start = u64::from(self.at.get());
        start..start + u64::from(self.lines) * u64::from(LINE)
    }
}

/// The records that claims name.
#[derive(Debug, Default)]
pub(crate) struct NamedRecords {
    /// Sorted.
    records: Vec<WordOffset>,
    /// The number of words read.
    pub(crate) read: u64,
}

impl NamedRecords {
    pub(crate) fn has(&self, record: WordOffset) -> bool {
        self.records.binary_search(&record).is_ok()
    }
}

impl<M: Memory> Blocks<'_, M> {
    /// The blocks, newest first; an error where the list contradicts itself.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Result<Block, u64>> {
        // Acquire, here and below: a thread that sees a block sees its head.
        let mut next = self.root.load(Ordering::Acquire);
        // The number of words that no block has had yet: a circular list ends when it is used up.
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

    /// Takes the block of a process that ended for the process of `token`, and empties it.
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
            // Loads first: most are zero already.
            if word.load(Ordering::Relaxed) != 0 {
                word.store(0, Ordering::Relaxed);
            }
        }
        // SeqCst: as in `add`, for the owner and for whether it relies on barriers.
        fence(Ordering::SeqCst);
    }

    /// Frees all blocks. No other process may have the segment open.
    pub(crate) fn free_all(&self) {
        for block in self.iter().map_while(Result::ok) {
            self.memory.word(block.at.plus(at::OWNER)).store(0, Ordering::Relaxed);
        }
    }

    /// The records that claims of living processes name; with `handles_only`, only claims of
    /// handles. All records that were removed before and are not among them may be reused. `None`
    /// if that is unknown.
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
            // Acquire: sees what the previous owner left in the block.
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
                // Acquire: a thread that sees a claim cleared sees all that was done with the
                // record.
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

    /// As a large block that another process linked to itself.
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
    fn what_is_no_link_ends_a_stack() {
        let words = WordList((0..4).map(|_| AtomicU64::new(0)).collect());
        let stack = Stack::default();
        (1..4).for_each(|at| stack.push(&words, WordOffset::new(at)));
        words.word(WordOffset::new(2)).store(7, Ordering::Relaxed);
        let popped: Vec<WordOffset> = std::iter::from_fn(|| stack.pop(&words)).collect();
        assert_eq!(popped, [3, 2].map(WordOffset::new));
    }
}
