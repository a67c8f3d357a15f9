//! The lanes of a slab in one process, and the decision when the slab earns more. `cells.rs`
//! explains lanes.
//!
//! Lanes for many CPUs take memory, and each scrape reads them. A slab therefore gets them only if
//! threads collide in its cells, or if they add so often that faster additions are worth the
//! memory.

use std::ops::Range;
use std::ptr::NonNull;

use super::cells::{Home, LANE_WORDS, MAX_LANE_WORDS};
use super::lanes::{self, APART, EarnedLanes, Layout};
use crate::cpus;
use crate::fork;
use crate::lock;
use crate::offset::{self, WordOffset};
use crate::readings::since_boot;
use crate::rseq::{Reach, Sequence};
use crate::segment::Segment;
use crate::sync::{Arc, AtomicU64, Ordering};

/// The lanes of a slab.
#[derive(Debug)]
pub(crate) struct LaneSet {
    /// The lanes of CPUs among the first ones, if sequences of this machine add to these lanes.
    home: Option<Home>,
    /// The number of the slab's first lanes that belong to CPUs.
    cpus: u16,
    /// The number of all first lanes of the slab. At least one of them is shared.
    count: u16,
    /// The state for earning lanes; `None` for side allocations, which earn none.
    demand: Option<Demand>,
    sides: Option<Arc<Sides>>,
}

/// The lanes of the side allocations of a family. Some use the same lanes as the family at its
/// creation, others use a few shared ones.
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
    adding: EarnedSequence,
    lanes: EarnedLanes,
    /// The word with the layout of the earned lanes; 0 if there are none.
    word: NonNull<AtomicU64>,
    segment: Segment,
    noted: LaneNotes,
}

/// The words that each addition to an earned lane reads, on one cache line.
#[derive(Debug)]
#[repr(C, align(64))]
struct EarnedSequence {
    /// The earned lanes of CPUs; empty if threads use the first lanes.
    reach: Reach,
    /// The sequence; `None` if the machine does not support any.
    sequence: Option<Sequence>,
}

/// Counts and times that threads note. They share no cache line with the words that each addition
/// reads. The alignment is twice a line, because processors fetch two lines at once.
#[derive(Debug, Default)]
#[repr(align(128))]
struct LaneNotes {
    /// The number of additions of this process that collided with another one.
    collisions: AtomicU64,
    /// The time of the last check of the collisions, in milliseconds since boot.
    collided: AtomicU64,
    /// The last time when a cell reached a round number, in milliseconds since boot.
    rounded: AtomicU64,
    /// Whether a thread is allocating lanes, or tried to: a [`state`].
    taking: AtomicU64,
}

// SAFETY: the word is an atomic of a region that `segment` keeps alive.
unsafe impl Send for Demand {}
// SAFETY: as above.
unsafe impl Sync for Demand {}

/// The number of collisions within [`COLLISION_TIME`] that earns lanes. For example, many threads
/// collide this often if they add to a cell about 20,000 times a second.
const COLLISIONS: u64 = 16;
/// The time for these collisions, in milliseconds.
const COLLISION_TIME: u64 = 1000;
/// A number is round if its lowest bits, at least this many, are zeros. Additions of 1 reach one
/// every 4,096 times.
const ROUND_BITS: u32 = 12;
/// The time between two round numbers that earns lanes, in milliseconds. At this rate, faster
/// additions save about a 3,000th of a CPU.
const ROUND_TIME: u64 = 40;

impl LaneSet {
    /// Returns a set of `count` lanes that earns no others. The first `cpus` belong to CPUs.
    /// Returns `None` if no lane is shared.
    fn begun(cpus: u16, count: u16) -> Option<Self> {
        let sequence = if cpus > 0 { Sequence::find() } else { None };
        let home = sequence.map(|sequence| Home { sequence, cpus: cpus.into() });
        let (demand, sides) = (None, None);
        (cpus < count).then_some(Self { home, cpus, count, demand, sides })
    }

    /// Returns the lanes of each slab of a family of sums. Its slabs began with `count` lanes, and
    /// the first `cpus` of them belong to CPUs. Returns `None` if no lane is shared.
    ///
    /// For each slab, `slabs` returns the word where the first lane begins, the number of words
    /// that the slab uses in a lane, and the word with the layout of its earned lanes.
    ///
    /// # Safety
    /// The words must be in the segment.
    pub(crate) unsafe fn of_slabs(
        segment: &Segment,
        (cpus, count): (u16, u16),
        slabs: impl ExactSizeIterator<Item = (u64, u32, NonNull<AtomicU64>)>,
    ) -> Option<Arc<[Self]>> {
        let here = cpus::lane_counts(Sequence::find().is_some());
        let is_at_home = is_at_home((cpus, count), here);
        // On a machine with many CPUs, a side allocation uses a few shared lanes, because each lane
        // takes a page. A large family contains too many series even for this.
        let begun = Self::begun(cpus, count)?;
        let home = begun.home.filter(|_| is_at_home);
        let few = Self::begun(0, cpus::SHARED as u16)?;
        let words = (slabs.len() * cpus::SHARED * LANE_WORDS) as u64;
        let has_few = !is_at_home && cpus::count() > cpus::FEW && words <= MAX_LANE_WORDS;
        let (new, old) = if has_few { (few, begun) } else { (begun, few) };
        let sides = Arc::new(Sides { new, old });
        let slabs = slabs.map(|(first, used, word)| {
            let lanes = EarnedLanes::new(first, used, is_at_home);
            let demand = Some(Demand::new(lanes, word, segment));
            let sides = Some(Arc::clone(&sides));
            Self { home, cpus, count, demand, sides }
        });
        Some(slabs.collect())
    }

    #[inline]
    pub(crate) fn home(&self) -> Option<Home> {
        self.home
    }

    /// Returns the sequence that adds to the earned lane of this thread's CPU, and the reach of
    /// these lanes.
    #[inline]
    pub(crate) fn earned_sequence(&self) -> Option<(Sequence, &Reach)> {
        let adding = &self.demand.as_ref()?.adding;
        Some((adding.sequence?, &adding.reach))
    }

    /// Returns the number of CPUs that own a lane from the start.
    #[inline]
    pub(crate) fn cpus(&self) -> u16 {
        self.cpus
    }

    /// Returns the number of lanes from the start.
    #[inline]
    pub(crate) fn count(&self) -> u16 {
        self.count
    }

    /// Returns the lanes of a new side allocation of a series in these lanes.
    #[inline]
    pub(crate) fn of_sides(&self) -> &Self {
        self.sides.as_deref().map_or(self, |sides| &sides.new)
    }

    /// Returns the lanes of an existing side allocation with these numbers of lanes, if there can
    /// be one.
    pub(crate) fn of_existing_side(&self, cpus: u16, count: u16) -> Option<&Self> {
        let sides = self.sides.as_deref()?;
        let mut sets = [&sides.new, &sides.old].into_iter();
        sets.find(|set| (set.cpus, set.count) == (cpus, count))
    }

    /// Returns the lanes that the slab earned, in any process.
    #[inline]
    pub(crate) fn earned(&self) -> Option<EarnedReach> {
        let demand = self.demand.as_ref()?;
        let lanes = &demand.lanes;
        let place = lanes.find(&demand.adding.reach, demand.word(), |place| {
            let words = usize::from(place.lanes) * lanes.words() as usize;
            demand.segment.region.cells(place.first.byte(), words).is_some()
        })?;
        let Layout { cpus, lanes: count, .. } = place;
        let (offset, distance) = (lanes.offset(place), lanes.words() as usize);
        Some(EarnedReach { offset, distance, cpus, lanes: count })
    }

    /// Returns whether the threads of this machine use the slab's earned lanes.
    #[inline]
    pub(crate) fn may_earn(&self) -> bool {
        self.demand.as_ref().is_some_and(|demand| !demand.lanes.is_at_home())
    }

    /// Returns the words of the slab's earned lanes, according to the slab's word.
    pub(crate) fn earned_words(&self) -> Option<Range<u64>> {
        let demand = self.demand.as_ref()?;
        let stated = demand.word().load(Ordering::Acquire);
        let place = (stated != 0).then(|| Layout::unpack(stated))?;
        let first = u64::from(place.first.get());
        Some(first..first + u64::from(place.lanes) * u64::from(demand.lanes.words()))
    }

    /// Drops the earned lanes with all of their counts. Bases may still include these counts. No
    /// process may have used the lanes since the file was opened.
    pub(crate) fn forget(&self) {
        if let Some(demand) = &self.demand {
            demand.word().store(0, Ordering::Relaxed);
        }
    }

    /// Records a collision of two threads' additions.
    #[cold]
    pub(crate) fn note_collision(&self) {
        let Some(demand) = &self.demand else { return };
        let noted = &demand.noted;
        if noted.collisions.fetch_add(1, Ordering::Relaxed) % COLLISIONS == COLLISIONS - 1 {
            self.note(&noted.collided, COLLISION_TIME, since_boot());
        }
    }

    /// Records that `n` was added to a cell whose value was `old`.
    #[inline]
    pub(crate) fn note_addition(&self, old: u64, n: u64) {
        if is_round(old, n) {
            self.note_round(since_boot);
        }
    }

    /// Records that a cell reached a round number.
    #[cold]
    fn note_round(&self, since_boot: impl FnOnce() -> u64) {
        let Some(demand) = &self.demand else { return };
        self.note(&demand.noted.rounded, ROUND_TIME, since_boot());
    }

    fn note(&self, last: &AtomicU64, within: u64, since_boot: u64) {
        let now = since_boot / 1_000_000;
        // Relaxed, here and above: if the times of two threads mix, the lanes are earned a little
        // earlier or later.
        if now.saturating_sub(last.swap(now, Ordering::Relaxed)) <= within {
            // Take no lock and don't grow the file, because this can be a signal handler.
            self.earn_by(|segment, words| segment.take_at_hand(words));
        }
    }

    /// Grows the segment if there is no room for the lanes that the slab may earn, because an
    /// update does not grow the segment for lanes.
    ///
    /// The room is not reserved. If it is gone when the lanes are wanted, only a walk in the same
    /// process grows the segment for these lanes. This process may never walk, for example because
    /// another one is scraped instead. The slab then stays unchanged until something else grows the
    /// segment.
    pub(crate) fn make_room(&self) {
        if let Some(demand) = self.demand.as_ref().filter(|_| self.may_earn()) {
            let words = demand.words_for(cpus::lane_counts(demand.adding.sequence.is_some()));
            if demand.may_take(words) {
                demand.segment.make_room(words);
            }
        }
    }

    /// Gives each CPU a lane, and grows the segment if necessary. This is skipped on a machine with
    /// one CPU, or if the lanes would end in the second half of the segment.
    #[cold]
    pub(crate) fn earn(&self) {
        self.earn_by(|segment, words| segment.take(words, lock::UPDATE).ok());
    }

    /// Calls [`LaneSet::earn`] if threads asked for lanes while the segment was full.
    pub(crate) fn earn_if_wanted(&self) {
        // A child of a fork does this, too, if its parent wanted the lanes.
        let is_wanted = |demand: &Demand| {
            let state = demand.noted.taking.load(Ordering::Relaxed);
            state & u64::from(u32::MAX) == WANTED
        };
        if self.demand.as_ref().is_some_and(is_wanted) {
            self.earn_by(|segment, words| segment.take(words, lock::SCRAPE).ok());
        }
    }

    #[cold]
    fn earn_by(&self, take: impl FnOnce(&Segment, u64) -> Option<WordOffset>) {
        let Some(demand) = &self.demand else { return };
        let counts = cpus::lane_counts(Sequence::find().is_some());
        // `earned` refuses a damaged word. The word stays, so new lanes would never be found.
        let has_word = || self.earned().is_some() || demand.word().load(Ordering::Relaxed) != 0;
        if !self.may_earn() || demand.is_copy() || has_word() {
            return;
        }
        let words = demand.words_for(counts);
        let (taking, is_taking) = (&demand.noted.taking, state(TAKING));
        if !demand.may_take(words) || taking.swap(is_taking, Ordering::Relaxed) == is_taking {
            return;
        }
        // The allocated words begin on a line of 8 words.
        if let Some(taken) = take(&demand.segment, words) {
            let first = WordOffset::new(taken.get().next_multiple_of(APART));
            // The cast is safe, because together they are at most a little more than 1,024.
            let (cpus, lanes) = (counts.0 as u16, (counts.0 + counts.1) as u16);
            // If another process was faster, these lanes are lost, which costs their memory.
            lanes::earn(demand.word(), Layout { first, cpus, lanes });
            self.earned();
        } else {
            taking.store(state(WANTED), Ordering::Relaxed);
        }
    }
}

/// Returns whether the first lanes of a family serve this machine as well as earned ones would. For
/// example, they don't in a file from a machine with fewer CPUs. The family has `count` lanes, of
/// which `cpus` belong to CPUs; this machine would use `cpus_here` lanes for CPUs and `shared_here`
/// shared ones.
fn is_at_home((cpus, count): (u16, u16), (cpus_here, shared_here): (usize, usize)) -> bool {
    let shared = usize::from(count.saturating_sub(cpus));
    let has_all = usize::from(cpus) >= cpus_here && shared >= shared_here;
    // Lanes do not pay on a machine with one CPU.
    has_all || cpus_here + shared_here <= 2
}

/// Returns whether adding `n` to `old` passes a round number. This happens once in about 4,096
/// additions of about `n`.
#[inline]
fn is_round(old: u64, n: u64) -> bool {
    // The bit is 12 for an addition of 1.
    let bit = ROUND_BITS - 1 + (u64::BITS - n.leading_zeros());
    (old ^ old.wrapping_add(n)).checked_shr(bit).unwrap_or(0) != 0
}

/// Returns a state for [`LaneNotes::taking`], with the number of forks in the upper half. A child
/// of a fork ignores its parent's states, because the thread that would change them does not exist
/// there.
fn state(state: u64) -> u64 {
    u64::from(fork::generation()) << 32 | state
}

/// A thread is allocating lanes, or did so.
const TAKING: u64 = 1;
/// Lanes are wanted, but the segment was full.
const WANTED: u64 = 2;

impl Demand {
    fn new(lanes: EarnedLanes, word: NonNull<AtomicU64>, segment: &Segment) -> Self {
        let reach = Reach::new(u64::from(lanes.words()) * 8);
        let adding = EarnedSequence { reach, sequence: Sequence::find() };
        Self { adding, lanes, word, segment: segment.clone(), noted: LaneNotes::default() }
    }

    /// Returns the number of words for this many lanes of CPUs and shared lanes.
    fn words_for(&self, (cpus, shared): (usize, usize)) -> u64 {
        (cpus + shared) as u64 * u64::from(self.lanes.words()) + u64::from(APART)
    }

    /// Returns whether lanes of that many words may be allocated. The second half of a segment is
    /// reserved for new series, because an update without a series counts in the overflow series.
    /// Threads that check at the same time can exceed the half slightly.
    fn may_take(&self, words: u64) -> bool {
        let end = self.segment.used().saturating_add(offset::bytes(words));
        end <= self.segment.limit() / 2
    }

    fn word(&self) -> &AtomicU64 {
        // SAFETY: `LaneSet::of_slabs` required that it is in the segment, which lives as long.
        unsafe { self.word.as_ref() }
    }

    /// Returns whether the segment is a copy of a file.
    fn is_copy(&self) -> bool {
        #[cfg(unix)]
        return self.segment.region.origin().is_some();
        #[cfg(not(unix))]
        false
    }
}

/// The lanes that a slab earned.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EarnedReach {
    /// The bytes from a cell of the slab to the same cell in the first of these lanes, modulo 2^64.
    offset: u64,
    /// The words from one lane to the next.
    distance: usize,
    cpus: u16,
    pub(crate) lanes: u16,
}

impl EarnedReach {
    /// Returns the cell in a lane.
    ///
    /// # Safety
    /// `cell` must be in the first lane of the slab that earned these lanes, among the words that
    /// the slab uses (see [`LaneSet::of_slabs`]), and the lane must exist.
    #[inline]
    pub(crate) unsafe fn cell(self, cell: NonNull<AtomicU64>, lane: usize) -> NonNull<AtomicU64> {
        // Both are in the same mapping, so the pointer keeps its provenance.
        let address = cell.as_ptr().wrapping_byte_add(self.offset as usize);
        // SAFETY: `LaneSet::earned` checked that the lanes are in the segment, for as long as it is
        // mapped, and each contains the words that the slab uses.
        unsafe { NonNull::new_unchecked(address.wrapping_add(lane * self.distance)) }
    }

    /// Returns the cells in all lanes.
    ///
    /// # Safety
    /// Same as for [`EarnedReach::cell`].
    #[inline]
    pub(crate) unsafe fn cells(
        self,
        cell: NonNull<AtomicU64>,
    ) -> impl Iterator<Item = NonNull<AtomicU64>> {
        // SAFETY: the caller's obligation; there are that many lanes.
        (0..usize::from(self.lanes)).map(move |lane| unsafe { self.cell(cell, lane) })
    }

    /// Returns the shared lane of the thread with this number.
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

    /// Returns a set of one lane, whose slab may earn others on any machine.
    fn abroad(segment: &Segment, word: &AtomicU64) -> LaneSet {
        let lanes = EarnedLanes::new(segment.used() / 8, 8, false);
        let demand = Some(Demand::new(lanes, NonNull::from(word), segment));
        LaneSet { demand, ..LaneSet::begun(0, 1).unwrap() }
    }

    #[test]
    fn lanes_of_a_machine_without_sequences_are_at_home_there() {
        rseq::FORBIDDEN.set(true);
        let segment = Segment::private(4 << 20).unwrap();
        let (cpus, shared) = cpus::lane_counts(false);
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
        // CPUs and lanes of the family, for 4 CPUs and 1 shared lane here.
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

    #[test]
    #[cfg(not(miri))]
    fn a_number_is_round_once_in_some_4096_additions() {
        for n in [1, 2, 3, 64, 1000, 1024, 1 << 40] {
            let count = (0..1_u64 << 20).filter(|i| is_round(i * n, n)).count();
            assert!((256..=512).contains(&count), "{count} for {n}");
        }
        assert!((0..1 << 20).all(|old| !is_round(old, 0)));
    }

    #[test]
    #[cfg(not(miri))]
    fn a_slab_earns_lanes_when_round_numbers_follow_at_once() {
        let (segment, word) = (Segment::private(4 << 20).unwrap(), AtomicU64::new(0));
        let set = abroad(&segment, &word);
        let ms = 1_000_000;
        for time in [100_000, 100_041, 100_082, 200_000] {
            set.note_round(|| time * ms);
            assert!(set.earned().is_none(), "at {time}");
        }
        set.note_round(|| 200_040 * ms);
        assert!(set.earned().is_some());
    }

    #[test]
    #[cfg(all(unix, not(miri)))]
    fn a_child_forked_while_a_thread_takes_lanes_can_take_them() {
        let (segment, word) = (Segment::private(4 << 20).unwrap(), AtomicU64::new(0));
        let set = abroad(&segment, &word);
        set.demand.as_ref().unwrap().noted.taking.store(state(TAKING), Ordering::Relaxed);
        set.earn();
        assert!(set.earned().is_none(), "the other thread does it");
        // SAFETY: the child uses only its memory, without allocating, and ends without any
        // clean-up.
        let status = unsafe {
            let child = libc::fork();
            if child == 0 {
                set.earn();
                libc::_exit(i32::from(set.earned().is_none()));
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
            status
        };
        assert_eq!(status, 0);
    }
}
