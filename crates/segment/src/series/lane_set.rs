//! The lanes of a slab, as one process knows them, and when the slab earns more.
//!
//! Lanes for many CPUs take memory, and each scrape reads them. So a slab gets them only if threads
//! collide in its cells, or if they add so often that the faster addition is worth the memory.

use std::ops::Range;
use std::ptr::NonNull;

use super::cells::{LANE_WORDS, MAX_LANE_WORDS};
use super::lanes::{self, APART, EarnedLanes, Layout};
use crate::cpus;
use crate::lock;
use crate::offset::WordOffset;
use crate::readings::since_boot;
use crate::rseq::{Reach, Sequence};
use crate::segment::Segment;
use crate::sync::{Arc, AtomicU64, Ordering};

/// The lanes of a slab.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct LaneSet {
    /// The lanes of CPUs, for sequences. The first field, so that one address serves for both.
    reach: Reach,
    /// `None` if the machine has no sequences, or no CPU ever gets a lane.
    sequence: Option<Sequence>,
    /// The numbers of lanes with which the slab began: of CPUs, and in all. At least one is shared.
    cpus: u16,
    count: u16,
    /// `None` for side allocations, which earn no lanes.
    demand: Option<Demand>,
    sides: Option<Arc<Sides>>,
}

/// The lanes of the side allocations of a family: like those with which the family began, or a few
/// shared ones.
#[derive(Debug)]
pub(crate) struct Sides {
    /// For new side allocations.
    new: LaneSet,
    /// For side allocations from a machine with more CPUs, or with fewer.
    old: LaneSet,
}

/// The part of a slab's state that decides when the slab earns lanes.
#[derive(Debug)]
struct Demand {
    lanes: EarnedLanes,
    /// The word that states their place.
    word: NonNull<AtomicU64>,
    segment: Segment,
    /// The number of additions of this process that collided with another one.
    collisions: AtomicU64,
    /// The time of the last check of the collisions, in milliseconds since boot.
    collided: AtomicU64,
    /// The time at which a cell last reached a round number, in milliseconds since boot.
    rounded: AtomicU64,
    /// 1 while a thread takes memory for lanes. Stays 1 once that succeeded or the segment was
    /// full.
    taking: AtomicU64,
}

// SAFETY: the word is an atomic of a region that `segment` keeps alive.
unsafe impl Send for Demand {}
// SAFETY: as above.
unsafe impl Sync for Demand {}

/// Sixteen collisions within a second: a cell to which many threads add some 20,000 times a second.
const COLLISIONS: u64 = 16;
const COLLISION_TIME: u64 = 1000;
/// 4,096 additions within 40 milliseconds: the faster addition then saves some 3,000th of a CPU.
const ROUND_BITS: u32 = 12;
const ROUND_TIME: u64 = 40;

impl LaneSet {
    /// A set of `count` lanes, of which the first `cpus` belong to CPUs, and that earns no others.
    /// `None` if no lane is shared.
    fn begun(cpus: u16, count: u16) -> Option<Self> {
        let sequence = if cpus > 0 { Sequence::find() } else { None };
        let reach = Reach::new(cpus.into(), LANE_WORDS as u64 * 8);
        let (demand, sides) = (None, None);
        (cpus < count).then_some(Self { reach, sequence, cpus, count, demand, sides })
    }

    /// The lanes of the slabs of a family of sums, which began with `count` lanes, of which the
    /// first `cpus` belong to CPUs. `None` if no lane is shared.
    ///
    /// For each slab, `slabs` returns the word at which the first lane begins, the number of words
    /// that the slab uses in a lane, and the word that states the place of its earned lanes.
    ///
    /// # Safety
    /// The words are in the segment.
    pub(crate) unsafe fn of_slabs(
        segment: &Segment,
        (cpus, count): (u16, u16),
        slabs: impl ExactSizeIterator<Item = (u64, u32, NonNull<AtomicU64>)>,
    ) -> Option<Arc<[Self]>> {
        let here = cpus::places(Sequence::find().is_some());
        let is_at_home = is_at_home((cpus, count), here);
        // On a machine with many CPUs, a side allocation has a few shared lanes, because each takes
        // a page. In a large family, these would take too much: its series are too many.
        let begun = Self::begun(cpus, count)?;
        let few = Self::begun(0, cpus::SHARED as u16)?;
        let words = (slabs.len() * cpus::SHARED * LANE_WORDS) as u64;
        let has_few = !is_at_home && cpus::count() > cpus::FEW && words <= MAX_LANE_WORDS;
        let (new, old) = if has_few { (few, begun) } else { (begun, few) };
        let sides = Arc::new(Sides { new, old });
        let sequence = Sequence::find();
        let slabs = slabs.map(|(home, used, word)| {
            let lanes = EarnedLanes::new(home, used, is_at_home);
            let (cpus_here, distance) =
                if is_at_home { (cpus, LANE_WORDS as u64) } else { (0, lanes.words().into()) };
            let reach = Reach::new(cpus_here.into(), distance * 8);
            let [collisions, collided, rounded, taking] = [0; 4].map(AtomicU64::new);
            let segment = segment.clone();
            let demand = Demand { lanes, word, segment, collisions, collided, rounded, taking };
            let (demand, sides) = (Some(demand), Some(Arc::clone(&sides)));
            Self { reach, sequence, cpus, count, demand, sides }
        });
        Some(slabs.collect())
    }

    #[inline]
    pub(crate) fn reach(&self) -> &Reach {
        &self.reach
    }

    #[inline]
    pub(crate) fn sequence(&self) -> Option<Sequence> {
        self.sequence
    }

    /// The CPUs that have a lane from the start.
    #[inline]
    pub(crate) fn cpus(&self) -> u16 {
        self.cpus
    }

    /// The number of lanes from the start.
    #[inline]
    pub(crate) fn count(&self) -> u16 {
        self.count
    }

    /// The lanes of a new side allocation of a series in these.
    #[inline]
    pub(crate) fn of_sides(&self) -> &Self {
        self.sides.as_deref().map_or(self, |sides| &sides.new)
    }

    /// The lanes of an existing side allocation with these numbers of lanes, if there can be one.
    pub(crate) fn of_existing_side(&self, cpus: u16, count: u16) -> Option<&Self> {
        let sides = self.sides.as_deref()?;
        let mut sets = [&sides.new, &sides.old].into_iter();
        sets.find(|set| (set.cpus, set.count) == (cpus, count))
    }

    /// The lanes that the slab earned, in any process.
    #[inline]
    pub(crate) fn earned(&self) -> Option<Earned> {
        let demand = self.demand.as_ref()?;
        let lanes = &demand.lanes;
        let place = lanes.find(&self.reach, demand.word(), |place| {
            let words = usize::from(place.lanes) * lanes.words() as usize;
            demand.segment.region.cells(place.first.byte(), words).is_some()
        })?;
        let Layout { cpus, lanes: count, .. } = place;
        let (offset, distance) = (lanes.offset(place), lanes.words() as usize);
        Some(Earned { offset, distance, cpus, lanes: count })
    }

    /// Whether the threads of this machine use the slab's earned lanes.
    #[inline]
    pub(crate) fn may_earn(&self) -> bool {
        self.demand.as_ref().is_some_and(|demand| !demand.lanes.is_at_home())
    }

    /// The words of the lanes that the slab earned, as its word states them.
    pub(crate) fn earned_words(&self) -> Option<Range<u64>> {
        let demand = self.demand.as_ref()?;
        let stated = demand.word().load(Ordering::Acquire);
        let place = (stated != 0).then(|| Layout::unpack(stated))?;
        let first = u64::from(place.first.get());
        Some(first..first + u64::from(place.lanes) * u64::from(demand.lanes.words()))
    }

    /// Forgets the earned lanes and everything that was counted in them; bases may still include
    /// that. No process may have used them since the file was opened.
    pub(crate) fn forget(&self) {
        if let Some(demand) = &self.demand {
            demand.word().store(0, Ordering::Relaxed);
        }
    }

    /// Notes that an addition collided with the addition of another thread.
    #[cold]
    pub(crate) fn note_collision(&self) {
        let Some(demand) = &self.demand else { return };
        if demand.collisions.fetch_add(1, Ordering::Relaxed) % COLLISIONS == COLLISIONS - 1 {
            self.note(&demand.collided, COLLISION_TIME);
        }
    }

    /// Notes that `n` was added to a cell that held `old`.
    #[inline]
    pub(crate) fn note_addition(&self, old: u64, n: u64) {
        // A bit that changes once in some 4,096 additions of about `n`.
        let bit = ROUND_BITS + (u64::BITS - n.leading_zeros());
        if (old ^ old.wrapping_add(n)).checked_shr(bit).unwrap_or(0) != 0 {
            self.demand.iter().for_each(|demand| self.note(&demand.rounded, ROUND_TIME));
        }
    }

    #[cold]
    fn note(&self, last: &AtomicU64, within: u64) {
        let now = since_boot() / 1_000_000;
        // Relaxed, here and above: a mix of two threads' times earns the lanes sooner or later.
        if now.saturating_sub(last.swap(now, Ordering::Relaxed)) <= within {
            // No lock and no growing file: this may be a signal handler.
            self.earn_by(|segment, words| segment.take_at_hand(words));
        }
    }

    /// Grows the segment if it has no room for the lanes that the slab may earn: an update does not
    /// grow it for them.
    pub(crate) fn make_room(&self) {
        if let Some(demand) = self.demand.as_ref().filter(|_| self.may_earn()) {
            let (cpus, shared) = cpus::places(self.sequence.is_some());
            // Together, they are a little more than 1,024 at most.
            let words = (cpus + shared) as u64 * u64::from(demand.lanes.words());
            demand.segment.make_room(words + u64::from(APART));
        }
    }

    /// Gives each CPU a lane, and grows the segment if necessary. Does nothing on a machine with
    /// one CPU or in a full segment.
    #[cold]
    pub(crate) fn earn(&self) {
        self.earn_by(|segment, words| segment.take(words, lock::UPDATE).ok());
    }

    /// [`LaneSet::earn`], if threads asked for lanes while the segment had no room for them.
    pub(crate) fn earn_if_wanted(&self) {
        let is_wanted = |demand: &Demand| demand.taking.load(Ordering::Relaxed) == WANTED;
        if self.demand.as_ref().is_some_and(is_wanted) {
            self.earn_by(|segment, words| segment.take(words, lock::SCRAPE).ok());
        }
    }

    #[cold]
    fn earn_by(&self, take: impl FnOnce(&Segment, u64) -> Option<WordOffset>) {
        let Some(demand) = &self.demand else { return };
        let (count, shared) = cpus::places(Sequence::find().is_some());
        let is_needed = self.may_earn() && !demand.is_copy();
        if !is_needed
            || self.earned().is_some()
            || demand.taking.swap(TAKING, Ordering::Relaxed) == TAKING
        {
            return;
        }
        // Together, they are a little more than 1,024 at most.
        let (cpus, lanes) = (count as u16, (count + shared) as u16);
        let words = u64::from(lanes) * u64::from(demand.lanes.words());
        // The words that are taken begin on a line of 8 words.
        if let Some(taken) = take(&demand.segment, words + u64::from(APART)) {
            let first = WordOffset::new(taken.get().next_multiple_of(APART));
            // If another process was faster, these lanes are lost, which costs their memory.
            lanes::earn(demand.word(), Layout { first, cpus, lanes });
            self.earned();
        } else {
            demand.taking.store(WANTED, Ordering::Relaxed);
        }
    }
}

/// Whether lanes with these numbers, of CPUs and in all, serve a machine with these places as well
/// as lanes that a slab would earn. If not, as in a file from a machine with fewer CPUs, the slab
/// earns lanes for all of them.
fn is_at_home((cpus, count): (u16, u16), (cpus_here, shared_here): (usize, usize)) -> bool {
    let shared = usize::from(count.saturating_sub(cpus));
    let has_all = usize::from(cpus) >= cpus_here && shared >= shared_here;
    // Lanes do not pay on a machine with one CPU.
    has_all || cpus_here + shared_here <= 2
}

/// States of [`Demand::taking`]: a thread is taking memory, or has taken it; and lanes are wanted,
/// but there was no room.
const TAKING: u64 = 1;
const WANTED: u64 = 2;

impl Demand {
    fn word(&self) -> &AtomicU64 {
        // SAFETY: `LaneSet::of_slabs` was promised that it is in the segment, which lives as long.
        unsafe { self.word.as_ref() }
    }

    /// Whether the segment is a copy of a file.
    fn is_copy(&self) -> bool {
        #[cfg(unix)]
        return self.segment.region.origin().is_some();
        #[cfg(not(unix))]
        false
    }
}

/// The lanes that a slab earned.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Earned {
    /// The bytes from a cell of the slab to the same cell in the first one of the lanes, modulo
    /// 2^64.
    offset: u64,
    /// The words from one lane to the next.
    distance: usize,
    cpus: u16,
    pub(crate) lanes: u16,
}

impl Earned {
    /// The cell in a lane.
    ///
    /// # Safety
    /// `cell` is in the first lane of the slab that earned these, and there is such a lane.
    #[inline]
    pub(crate) unsafe fn cell(self, cell: NonNull<AtomicU64>, lane: usize) -> NonNull<AtomicU64> {
        // Both are in the same mapping, so the pointer keeps its provenance.
        let address = cell.as_ptr().wrapping_byte_add(self.offset as usize);
        // SAFETY: `LaneSet::earned` checked that the lanes are in the segment, for as long as it is
        // mapped.
        unsafe { NonNull::new_unchecked(address.wrapping_add(lane * self.distance)) }
    }

    /// The shared lane of the thread with that number.
    #[inline]
    pub(crate) fn shared(self, thread: usize) -> usize {
        usize::from(self.cpus) + thread % usize::from(self.lanes - self.cpus)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::rseq;
    use crate::series::{Family, Label, Schema};

    fn family(segment: &Segment, name: &str, count: u32) -> Family {
        let values = (0..count).map(|i| i.to_string()).collect();
        let labels = vec![Label { name: "kind".into(), values: Some(values) }];
        let name = name.to_owned();
        let schema = Schema { name, cells: 1, additive: true, labels, ..Schema::default() };
        segment.family(&schema).unwrap()
    }

    #[test]
    fn lanes_of_a_machine_without_sequences_are_at_home_there() {
        rseq::FORBIDDEN.set(true);
        let segment = Segment::private(4 << 20).unwrap();
        let (cpus, shared) = cpus::places(false);
        let hits = family(&segment, "hits", 18);
        hits.update(
            |key| key.index(3, 18),
            |cells| {
                let set = cells.lanes().set().unwrap();
                assert_eq!((set.cpus(), set.count()), (cpus as u16, shared as u16));
                assert!(!set.may_earn(), "additions need not look for earned lanes");
                let sides = set.of_sides();
                assert_eq!((sides.cpus(), sides.count()), (set.cpus(), set.count()));
            },
        );
        let used = segment.used();
        hits.stripe();
        assert_eq!(segment.used(), used);
        rseq::FORBIDDEN.set(false);
    }

    #[test]
    fn lanes_are_at_home_on_machines_that_need_no_others() {
        // CPUs and lanes of the family; places for CPUs and shared ones here.
        for lanes in [(4, 5), (5, 6), (4, 12), (1024, 1032)] {
            assert!(is_at_home(lanes, (4, 1)), "{lanes:?}");
        }
        for (lanes, here) in
            [((0, 4), (0, 4)), ((4, 8), (0, 4)), ((0, 1), (1, 1)), ((0, 1), (0, 1))]
        {
            assert!(is_at_home(lanes, here), "{lanes:?} with {here:?}");
        }
        for (lanes, here) in [
            ((0, 1), (4, 1)),
            ((3, 4), (4, 1)),
            ((0, 8), (4, 1)),
            ((0, 4), (0, 8)),
            ((16, 17), (0, 16)),
            ((0, 1), (128, 8)),
        ] {
            assert!(!is_at_home(lanes, here), "{lanes:?} with {here:?}");
        }
    }
}
