//! Lanes by demand: a slab gets lanes for its CPUs when its cells are contended or busy.
//!
//! On a machine with few CPUs, a family begins with its lanes. On a larger one, it begins with one
//! lane, where all threads add atomically, and each slab can *earn* more. To earn them, a thread
//! allocates memory, and stores the layout of the lanes in the slab's word, once. The first lane
//! stays, and its values count in the sum. A process that finds the word checks the layout and
//! copies it to private memory. Only then can its sequences add there.
//!
//! A thread adds to the new lanes only after the word was stored. Because of this, a reader must
//! load the base first, then the word, and then the lanes. With this order, the reader misses no
//! addition that the base includes, or that happened before the read.

use crate::offset::WordOffset;
use crate::rseq::Reach;
use crate::sync::{AtomicU64, Ordering};

/// The layout of lanes: an offset in words and the numbers of lanes, packed into one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) first: WordOffset,
    pub(crate) cpus: u16,
    pub(crate) lanes: u16,
}

impl Layout {
    pub(crate) fn unpack(word: u64) -> Self {
        // The truncation is intended: each cast keeps one part.
        Self {
            first: WordOffset::unpack(word),
            cpus: (word >> 32) as u16,
            lanes: (word >> 48) as u16,
        }
    }

    /// Returns whether the offset is set, and at least one lane is shared.
    pub(crate) fn is_sound(self) -> bool {
        self.first != WordOffset::NONE && self.cpus < self.lanes
    }

    pub(crate) fn pack(self) -> u64 {
        self.first.pack() | u64::from(self.cpus) << 32 | u64::from(self.lanes) << 48
    }
}

/// The lanes that a slab earned, in this process.
#[derive(Debug)]
pub(crate) struct EarnedLanes {
    /// The layout that this process found and checked; 0 before.
    place: AtomicU64,
    /// The first word of the slab's first lane.
    home: u64,
    /// The words from one earned lane to the next.
    words: u32,
    /// Whether this machine's CPUs use the slab's first lanes instead of these.
    is_at_home: bool,
}

impl EarnedLanes {
    /// Returns the lanes of a slab that begins at `home`, and uses `used` words of each.
    pub(crate) fn new(home: u64, used: u32, is_at_home: bool) -> Self {
        let words = distance(used);
        Self { place: AtomicU64::new(0), home, words, is_at_home }
    }

    /// Returns whether this machine's CPUs use the slab's first lanes instead of these.
    #[inline]
    pub(crate) fn is_at_home(&self) -> bool {
        self.is_at_home
    }

    /// Returns the words from one earned lane to the next.
    #[inline]
    pub(crate) fn words(&self) -> u32 {
        self.words
    }

    /// Returns the bytes from a cell in the first lane to the same cell in the first of these
    /// lanes, modulo 2^64.
    #[inline]
    pub(crate) fn offset(&self, place: Layout) -> u64 {
        u64::from(place.first.get()).wrapping_sub(self.home).wrapping_mul(8)
    }

    /// Returns the layout in `word`; `None` if the word is 0, or if `check` refuses the layout.
    /// `reach` is the reach of the sequences that add in this slab.
    #[inline]
    pub(crate) fn find(
        &self,
        reach: &Reach,
        word: &AtomicU64,
        check: impl FnOnce(Layout) -> bool,
    ) -> Option<Layout> {
        // Acquire: like below, through the thread that found the word.
        let mut place = self.place.load(Ordering::Acquire);
        if place == 0 {
            // Acquire: the lanes that this thread reads were zeroed before.
            let stated = word.load(Ordering::Acquire);
            if stated == 0 {
                return None;
            }
            place = self.adopt(reach, stated, check)?;
        }
        Some(Layout::unpack(place))
    }

    /// Checks a layout, and stores it for this process. The process then never reads the word
    /// again, because a hostile process could change it.
    #[cold]
    fn adopt(&self, reach: &Reach, stated: u64, check: impl FnOnce(Layout) -> bool) -> Option<u64> {
        let layout = Layout::unpack(stated);
        if !layout.is_sound() || !check(layout) {
            return None;
        }
        // AcqRel: like in `find`. All threads use the layout that the first of them stored.
        let noted = self.place.compare_exchange(0, stated, Ordering::AcqRel, Ordering::Acquire);
        let place = noted.map_or_else(|noted| noted, |_| stated);
        if !self.is_at_home {
            let layout = Layout::unpack(place);
            reach.raise(layout.cpus.into(), self.offset(layout));
        }
        Some(place)
    }
}

/// Stores the layout of a slab's lanes. Returns false if another thread was faster.
pub(crate) fn earn(word: &AtomicU64, lanes: Layout) -> bool {
    // Release: a thread that finds the word finds the lanes zeroed.
    word.compare_exchange(0, lanes.pack(), Ordering::Release, Ordering::Relaxed).is_ok()
}

/// Returns the words from one earned lane to the next, for a slab that uses `used` words of each.
pub(crate) fn distance(used: u32) -> u32 {
    used.next_multiple_of(APART)
}

/// The words between earned lanes are a multiple of this: 128 bytes, because processors fetch two
/// lines at once.
pub(crate) const APART: u32 = 16;

/// A model for loom: a slab of one cell earns the lanes of two CPUs and a shared lane, in two
/// processes.
#[cfg(loom)]
pub mod model {
    use super::*;
    use crate::Cells;
    use crate::sync::Arc;

    /// The memory that processes share: the word, the base, the first lane, and room for lanes.
    #[derive(Debug, Clone)]
    pub struct SharedMemory(Cells);

    /// A process that uses the slab.
    #[derive(Debug, Clone)]
    pub struct Process {
        shared: SharedMemory,
        slab: Arc<(Reach, EarnedLanes)>,
    }

    const WORD: usize = 0;
    const BASE: usize = 1;
    const HOME: usize = 2;
    const ROOM: usize = 3;
    const LANES: Layout = Layout { first: WordOffset::new(ROOM as u32), cpus: 2, lanes: 3 };

    impl Default for SharedMemory {
        fn default() -> Self {
            Self(Cells::private(ROOM + 3))
        }
    }

    impl Process {
        /// Opens the slab.
        pub fn open(shared: &SharedMemory) -> Self {
            let home = HOME as u64;
            let place = AtomicU64::new(0);
            let lanes = EarnedLanes { place, home, words: 1, is_at_home: false };
            Self { shared: shared.clone(), slab: Arc::new((Reach::new(8), lanes)) }
        }

        fn earned(&self) -> Option<Layout> {
            let (reach, lanes) = &*self.slab;
            lanes.find(reach, &self.shared.0[WORD], |lanes| lanes == LANES)
        }

        /// Gives the slab its lanes, unless another thread has done so.
        pub fn earn(&self) {
            earn(&self.shared.0[WORD], LANES);
            self.earned();
        }

        /// Adds 1 on a CPU.
        pub fn add(&self, cpu: u64) {
            let at = |offset: u64| &self.shared.0[HOME + (offset / 8) as usize];
            let cell = match self.slab.0.offset_of(cpu) {
                Some(offset) => at(offset),
                None => match self.earned() {
                    Some(place) => at(self.slab.1.offset(place) + u64::from(place.cpus) * 8),
                    None => at(0),
                },
            };
            // A sequence adds in one instruction, and stores with release.
            cell.fetch_add(1, Ordering::Release);
        }

        fn raw_sum(&self) -> u64 {
            let count = self.earned().map_or(0, |lanes| usize::from(lanes.lanes));
            let cells = self.shared.0[HOME..=HOME].iter().chain(&self.shared.0[ROOM..][..count]);
            cells.fold(0, |sum, cell| sum.wrapping_add(cell.load(Ordering::Acquire)))
        }

        /// Returns the value.
        pub fn sum(&self) -> u64 {
            let base = self.shared.0[BASE].load(Ordering::Acquire);
            self.raw_sum().wrapping_sub(base)
        }

        /// Resets the value to zero.
        pub fn reset(&self) {
            self.shared.0[BASE].store(self.raw_sum(), Ordering::Release);
        }
    }
}
