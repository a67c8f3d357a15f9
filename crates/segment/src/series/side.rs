//! Memory that a series uses in addition to its cells, for example for the buckets of a native
//! histogram or for exemplars.
//!
//! A *side allocation* consists of shared words, and of cells with the same layout as the series'
//! cells: in lanes or not. It is never moved. The code that requests side allocations implements
//! [`SideAllocations`], which identifies the cells that contain their offsets, because the next
//! series in the same record inherits the allocations. `docs/formats.md` draws their head.

use std::num::NonZeroU32;
use std::slice;

use super::cells::{LANE_WORDS, SeriesCells};
use super::family::Family;
use crate::error::Error;
use crate::lock;
use crate::offset::WordOffset;
use crate::sync::{AtomicU64, Ordering};

/// The number of words of the head: link, user data, words and cells, lanes, user data, spare,
/// owner, and an unused word.
const HEAD: u32 = 8;

/// Memory in addition to the cells of a series.
#[derive(Debug, Clone, Copy)]
pub struct SideAllocation<'a> {
    head: &'a [AtomicU64; HEAD as usize],
    words: &'a [AtomicU64],
    cells: Option<SeriesCells<'a>>,
}

/// Describes the side allocations of a family's series. The code that knows the meaning of the
/// cells implements this.
pub trait SideAllocations: Send + Sync {
    /// Returns whether a cell contains the offset of a side allocation.
    fn is_offset(&self, cell: usize) -> bool;

    /// Empties the side allocations of a series that is reset. Other threads may use them: their
    /// additions may be lost, or stay.
    fn clear(&self, family: &Family, cells: &SeriesCells<'_>);

    /// Empties the side allocations of a removed series before another one takes its record. They
    /// have no other users.
    fn renew(&self, family: &Family, cells: &SeriesCells<'_>);
}

impl<'a> SideAllocation<'a> {
    /// Returns the offset of the side allocation that existed before this one; 0 if there is none.
    pub fn link(&self) -> u32 {
        // The cast is safe, because a word offset was stored.
        self.head[0].load(Ordering::Acquire) as u32
    }

    /// Sets the link. Call this only while no other thread can find this side allocation, or to
    /// remove the link.
    pub fn set_link(&self, at: u32) {
        self.head[0].store(at.into(), Ordering::Release);
    }

    /// Returns two words for the code that requested the side allocation.
    #[inline]
    pub fn user_data(&self) -> [&'a AtomicU64; 2] {
        [&self.head[1], &self.head[4]]
    }

    /// Returns the word with the offset of a side allocation that is reserved for the owner; 0 if
    /// there is none.
    pub fn spare(&self) -> &'a AtomicU64 {
        &self.head[5]
    }

    /// Returns the shared words.
    #[inline]
    pub fn words(&self) -> &'a [AtomicU64] {
        self.words
    }

    /// Returns the numbers of words and of cells, if the cells' layout is the same as the series'.
    pub(super) fn sizes(&self, of: &SeriesCells<'_>) -> Option<(u16, u16)> {
        let cells = self.cells.filter(|cells| cells.lanes().is(of.lanes().of_sides()))?;
        // The casts are safe, because both numbers have 16 bits in the head.
        Some((self.words.len() as u16, cells.len() as u16))
    }

    /// Returns the cells; `None` if it was created without any.
    #[inline]
    pub fn cells(&self) -> Option<SeriesCells<'a>> {
        self.cells
    }
}

impl Family {
    /// Allocates `words` shared words and `cells` cells (at most 512). Their layout is the same as
    /// for `like` or, on a machine with many CPUs, a few lanes. Returns the offset of the memory.
    /// Store this offset, because it is not stored elsewhere.
    ///
    /// # Errors
    /// If the segment is full. Also returns the errors of the disk.
    pub fn allocate_side(
        &self,
        like: &SeriesCells<'_>,
        words: u16,
        cells: u16,
    ) -> Result<u32, Error> {
        debug_assert!(usize::from(cells) <= LANE_WORDS);
        let lanes = like.lanes().of_sides();
        let (cpus, lanes) = (lanes.cpus(), lanes.count());
        let segment = self.segment();
        if self.owner(like) >= segment.region.limit() {
            // This is the handle of a series that was removed before a fork: its cells are never
            // shown.
            return Err(Error::full(segment, 0));
        }
        let cell_words = match (lanes, cells) {
            (_, 0) => 0,
            (1, cells) => u64::from(cells),
            (lanes, _) => u64::from(lanes) * LANE_WORDS as u64,
        };
        let shared = u64::from(words).next_multiple_of(8);
        let at = segment.take(u64::from(HEAD) + shared + cell_words, lock::UPDATE)?;
        let head = segment.region.slice(at.byte(), HEAD as usize);
        let [_, _, sizes, lanes_word, _, _, owner, _] = head else {
            let reason = format!("words at byte {} that were just taken are not there", at.byte());
            return Err(Error::damaged(segment, reason));
        };
        sizes.store(u64::from(words) | u64::from(cells) << 32, Ordering::Relaxed);
        lanes_word.store(u64::from(cpus) | u64::from(lanes) << 32, Ordering::Relaxed);
        owner.store(self.owner(like), Ordering::Relaxed);
        Ok(at.get())
    }

    /// Returns the memory at an offset that [`Family::allocate_side`] returned for these cells. You
    /// stored the offset in the segment, so it may be damaged. Returns `None` if there is no such
    /// memory, or if it belongs to another series, for example after a power loss. In a copy of a
    /// file, this also returns `None` once more words were read than such a file contains; the
    /// series is then not [there](Family::is_there) any more.
    #[inline]
    pub fn side(&self, of: &SeriesCells<'_>, at: u32) -> Option<SideAllocation<'_>> {
        let (region, at) = (&self.segment().region, WordOffset::new(at));
        let head = region.slice(at.byte(), HEAD as usize);
        let head: &[AtomicU64; HEAD as usize] =
            head.try_into().ok().filter(|_| at != WordOffset::NONE)?;
        #[cfg(unix)]
        if !self.settle_side(of, head) {
            return None;
        }
        // Each word is read only once, because another process can write nonsense after the check.
        if head[6].load(Ordering::Relaxed) != self.owner(of) {
            return None;
        }
        let sizes = head[2].load(Ordering::Relaxed);
        let (words, cells) = (u32::from(sizes as u16), (sizes >> 32) as u16);
        let lanes = head[3].load(Ordering::Relaxed);
        let (cpus, lanes) = (lanes as u16, (lanes >> 32) as u16);
        let cell_words = match (lanes, cells) {
            (_, 0) => 0,
            (0, _) => return None,
            (lanes, cells) => u64::from(lanes - 1) * LANE_WORDS as u64 + u64::from(cells),
        };
        let lanes = of.lanes().of_existing_side(cpus, lanes)?;
        if usize::from(cells) > LANE_WORDS {
            return None;
        }
        let first =
            region.cells(at.byte_of(HEAD + words.next_multiple_of(8)), cell_words as usize)?;
        // The casts are safe: `words` has 16 bits, and the words lie before the cells.
        let shared = region.slice(at.byte_of(HEAD), words as usize);
        let cells = NonZeroU32::new(cells.into()).map(|cells| {
            // SAFETY: all cells in all lanes lie inside the segment, which the family keeps alive
            // for longer than the borrow.
            unsafe { SeriesCells::new(first, cells, lanes, None) }
        });
        Some(SideAllocation { head, words: shared, cells })
    }

    /// Returns the memory at an offset, without reading its head again.
    ///
    /// # Safety
    /// [`Family::side`] must have returned it for the same cells and offset, and
    /// [`SideAllocation::sizes`] these numbers of words and cells. It is never moved or freed.
    #[inline]
    pub(super) unsafe fn known_side(
        &self,
        of: &SeriesCells<'_>,
        at: WordOffset,
        (words, cells): (u16, u16),
    ) -> SideAllocation<'_> {
        // SAFETY: `side` checked that head, words and cells exist, and the family keeps the segment
        // alive for longer than the borrow.
        unsafe {
            let head = self.segment().region.known_cell(at.byte());
            let shared = head.add(HEAD as usize);
            // This is the next multiple of 8, in two instructions: 16 bits do not overflow.
            let first = shared.add((usize::from(words) + 7) & !7);
            let cells = NonZeroU32::new(cells.into())
                .map(|cells| SeriesCells::new(first, cells, of.lanes().of_sides(), None));
            let words = slice::from_raw_parts(shared.as_ptr(), words.into());
            SideAllocation { head: head.cast().as_ref(), words, cells }
        }
    }

    /// Returns a number unique to the series of these cells: the offset of its first cell.
    #[inline]
    fn owner(&self, cells: &SeriesCells<'_>) -> u64 {
        cells.address().wrapping_sub(self.segment().region.address()) as u64
    }
}

/// Returns the numbers of shared words and of words of cells, from the head of a side allocation.
#[cfg(unix)]
pub(super) fn side_words(head: &[AtomicU64]) -> [u64; 2] {
    let word = |at: usize| head.get(at).map_or(0, |word| word.load(Ordering::Relaxed));
    let (sizes, lanes) = (word(2), word(3) >> 32 & u64::from(u16::MAX));
    // Each of the numbers has 16 bits.
    let (words, cells) = (sizes & u64::from(u16::MAX), sizes >> 32 & u64::from(u16::MAX));
    [words, lanes.saturating_sub(1) * LANE_WORDS as u64 * u64::from(cells > 0) + cells]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use crate::segment::Segment;
    use crate::series::{Label, Schema};

    #[test]
    fn a_handle_has_the_side_allocation_at_hand_that_it_found_last() {
        let segment = Segment::private(1 << 20).unwrap();
        let dynamic = vec![Label { name: "user".into(), values: None }];
        for (name, labels) in [("in lanes", Vec::new()), ("in a record", dynamic)] {
            let (name, cells, additive) = (name.to_owned(), 1, true);
            let schema = Schema { name, cells, additive, labels, ..Schema::default() };
            let family = segment.family(&schema).unwrap();
            let handle = family.bind(|key| {
                if !schema.labels.is_empty() {
                    key.text("ada");
                }
            });
            let cells = handle.cells();
            let taken = [(9, 9), (16, 8)]
                .map(|(words, count)| family.allocate_side(cells, words, count).unwrap());
            for at in [taken[0], taken[1], taken[0]] {
                assert!(handle.side_at_hand(cells, at).is_none());
                let found = handle.side(cells, at).unwrap();
                let at_hand = handle.side_at_hand(cells, at).unwrap();
                assert!(std::ptr::eq(found.words(), at_hand.words()));
                assert!(std::ptr::eq(found.head, at_hand.head));
                let [found, at_hand] = [found, at_hand].map(|side| side.cells().unwrap());
                assert_eq!(found.address(), at_hand.address());
                at_hand.add(at_hand.len() - 1, 2);
                found.add(found.len() - 1, 3);
            }
            // An equal copy of the cells could belong to another series.
            assert!(handle.side_at_hand(&{ *cells }, taken[0]).is_none());
            let sums = taken.map(|at| family.side(cells, at).unwrap().cells().unwrap());
            assert_eq!(sums.map(|cells| cells.sum(cells.len() - 1)), [10, 5]);
            assert!(handle.side(cells, 0).is_none() && handle.side_at_hand(cells, 0).is_none());
        }
    }
}
