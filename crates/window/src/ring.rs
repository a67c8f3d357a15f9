//! The ring under every bucketed counter: one sum that only grows, and what it was when each of
//! the last buckets began.
//!
//! Time is cut into *ticks* of one accuracy. Slot `k` (modulo the ring) holds the *prefix* of
//! tick `k`: the sum at its beginning. The count of a window is the sum minus the prefix of the
//! tick in which the window begins, so that
//!
//! - adding is one addition, and no bucket is ever emptied: nothing can drift;
//! - counting is a subtraction, for any window up to the span, at the same price;
//! - what expires is forgotten by looking elsewhere, with no thread and no timer.
//!
//! All arithmetic is modulo 2^64: a count is right as long as it is below 2^64 itself.
//!
//! # Advancing
//!
//! `last` is the tick up to which the slots are filled. Whoever comes with a later time fills the
//! next slot and moves `last` on, by compare-and-swap both times; nobody waits for anybody, and
//! whoever dies half-way leaves a slot that the next one fills again. The order is: read the slot,
//! read the sum, see that `last` is still what it was, swap the slot, swap `last`. It follows:
//!
//! 1. A prefix is read while `last` is older than its tick. An adder has seen `last` at its own
//!    tick or later before it adds. So an addition is never in the prefix of its own tick or of
//!    an earlier one: *no event leaves a window early*.
//! 2. A filler that sleeps between its look and its swap does no harm. It expects a value that is
//!    at most the sum that it brings, since it read the value first. Slots only grow; a slot that
//!    was filled meanwhile for a later tick holds at least the sum of when `last` moved, which is
//!    at least what the sleeper brings. So it finds another value and fails, or that same value,
//!    and then brings it as well.
//! 3. A slot that a reader at `last` needs is at most `span` ticks old, and the ring is longer: it
//!    is not filled anew before `last` has moved, which the reader sees when it looks again.
//!
//! After a silence longer than the span every window is empty. Then all slots that matter are
//! filled with the one sum, and `last` jumps: readers in between see an empty window early, which
//! by that time is the truth.

use quipu_segment::sync::{AtomicU64, Ordering};
use quipu_segment::{Cells, Cycle, Line, Stripes};

/// A ring on cells that somebody else laid out.
#[derive(Debug, Clone)]
pub(crate) struct Ring {
    /// The width of a tick in nanoseconds.
    accuracy: u64,
    /// The longest window in ticks.
    span: u64,
    head: Line,
    sum: Stripes,
    slots: Cycle,
}

/// The cells of the head, on a line that is written once a tick.
mod head {
    /// The tick up to which slots are filled.
    pub(super) const LAST: usize = 0;
    /// The sum at the last reset.
    pub(super) const FLOOR: usize = 1;
    /// The tick of the last reset: windows that begin then or before begin at the floor instead.
    pub(super) const RESET: usize = 2;
    pub(super) const CELLS: usize = 8;
}

/// Slots more than the span: the tick that begins, the one that ends, and room for a reader that
/// is late.
const SPARE: u64 = 4;

/// How far ahead of its clock a ring may be, in nanoseconds, whatever its span: a clock that was
/// set back before a reboot costs the time since the last sync.
const AHEAD: u64 = 600_000_000_000;

/// How often a reader looks again before it accepts an answer whose window began late.
const PATIENCE: usize = 16;

/// How many prefixes are read before the sum.
const PEAK_CHUNK: usize = 512;

/// A search for the fullest bucket of a window that goes on in steps.
#[derive(Debug, Clone)]
pub struct Peak {
    /// The tick that had begun when the search did.
    last: u64,
    /// The newest tick that is left.
    newest: u64,
    /// The ticks that are left.
    left: u64,
    most: u64,
}

/// The lines of a ring's sum: one for each CPU, and shared ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lines {
    pub(crate) cpus: usize,
    pub(crate) shared: usize,
}

impl Lines {
    /// One line for all: each `add_and_count` gets a number of its own.
    pub(crate) const ONE: Self = Self { cpus: 0, shared: 1 };
}

impl Ring {
    /// The slots of a ring for windows of up to `span` ticks.
    pub(crate) const fn slots(span: u64) -> usize {
        (span + SPARE).next_power_of_two() as usize
    }

    /// The cells of a ring.
    pub(crate) const fn cells(span: u64, lines: Lines) -> usize {
        head::CELLS + Stripes::cells(lines.cpus, lines.shared) + Self::slots(span)
    }

    /// Takes over the cells of a ring, zeroed or in use.
    ///
    /// # Panics
    /// If there are not as many as [`Ring::cells`] says.
    pub(crate) fn new(cells: &Cells, accuracy: u64, span: u64, lines: Lines) -> Self {
        let sum_end = head::CELLS + Stripes::cells(lines.cpus, lines.shared);
        let slots_end = sum_end + Self::slots(span);
        Self {
            accuracy,
            span,
            head: Line::new(cells.slice(0..head::CELLS)),
            sum: Stripes::new(cells.slice(head::CELLS..sum_end), lines.cpus, lines.shared),
            slots: Cycle::new(cells.slice(sum_end..slots_end)),
        }
    }

    pub(crate) fn accuracy(&self) -> u64 {
        self.accuracy
    }

    pub(crate) fn span(&self) -> u64 {
        self.span
    }

    /// Whether a tick begins by `now`, so that [`Ring::advance`] is due.
    #[inline]
    pub(crate) fn is_due(&self, now: u64) -> bool {
        let last = self.head[head::LAST].load(Ordering::Acquire);
        // Wraps in the last tick that 64 bits of nanoseconds hold, and is due too often then.
        now >= last.wrapping_add(1).wrapping_mul(self.accuracy)
    }

    /// Adds `n` to the tick up to which the ring was last advanced.
    #[inline]
    pub(crate) fn add(&self, n: u64) {
        self.sum.add(n);
    }

    /// What was added in the last `ticks` ticks and in the one that has begun.
    #[inline]
    pub(crate) fn count(&self, ticks: u64) -> u64 {
        let (count, late) = self.look(ticks);
        if late == 0 { count } else { self.count_again(ticks) }
    }

    /// As `count`, when a tick ended between two looks.
    #[cold]
    fn count_again(&self, ticks: u64) -> u64 {
        for _ in 0..PATIENCE {
            let (count, late) = self.look(ticks);
            if late == 0 {
                return count;
            }
        }
        loop {
            // Who cannot keep up with the ticks, because they are as short as a look, accepts an
            // answer whose window began late, by less than the spare slots.
            let (count, late) = self.look(ticks);
            if late <= SPARE - 2 {
                return count;
            }
        }
    }

    /// A count, and how many ticks ended while it was taken.
    #[inline]
    fn look(&self, ticks: u64) -> (u64, u64) {
        let last = self.last();
        let prefix = self.prefix(last.saturating_sub(ticks));
        let count = self.sum.sum().wrapping_sub(prefix);
        (count, self.last().wrapping_sub(last))
    }

    /// Adds `n` and counts, by one addition. With [`Lines::ONE`], no two callers get the same
    /// number while nothing expires.
    #[inline]
    pub(crate) fn add_and_count(&self, n: u64, ticks: u64) -> u64 {
        let sum = self.sum.add_and_sum(n);
        let mut tries = 0;
        loop {
            let last = self.last();
            let count = sum.wrapping_sub(self.prefix(last.saturating_sub(ticks)));
            if count.cast_signed() < 0 {
                // A reset, or a silence between the two loads, took the addition away again; or
                // there are 2^63 events.
                return self.count(ticks);
            }
            if self.last() == last || tries >= PATIENCE {
                return count;
            }
            tries += 1;
        }
    }

    /// As `count` at a time that may be later than the last tick, without advancing.
    pub(crate) fn peek(&self, now: u64, ticks: u64) -> u64 {
        let passed = (now / self.accuracy).saturating_sub(self.last());
        if passed > ticks { 0 } else { self.count(ticks - passed) }
    }

    /// All that was added so far.
    pub(crate) fn total(&self) -> u64 {
        self.sum.sum()
    }

    /// What was added, as if each bucket's events were spread evenly over it: the oldest bucket
    /// counts by the part of it that the window still covers at `now`.
    pub(crate) fn estimate(&self, ticks: u64, now: u64) -> f64 {
        let whole = self.count(ticks) as f64;
        let inner = self.count(ticks - 1) as f64;
        let begun = self.last().wrapping_mul(self.accuracy);
        let part = now.saturating_sub(begun).min(self.accuracy) as f64 / self.accuracy as f64;
        whole - (whole - inner).max(0.0) * part
    }

    /// The buckets of the last `ticks` ticks and of the one that has begun, oldest first, as the
    /// tick and what was added in it.
    pub(crate) fn buckets(&self, ticks: u64) -> Vec<(u64, u64)> {
        let last = self.last();
        let first = last.saturating_sub(ticks);
        // A slot that is filled anew meanwhile holds a greater prefix: as if less had been added
        // since an older tick than since a newer one.
        let mut buckets: Vec<(u64, u64)> =
            (first..=last).map(|tick| (tick, self.prefix(tick))).collect();
        let sum = self.sum.sum();
        let mut newer = 0;
        for (_, count) in buckets.iter_mut().rev() {
            let since = sum.wrapping_sub(*count).max(newer);
            *count = since - newer;
            newer = since;
        }
        buckets
    }

    /// Begins to look for the fullest bucket of the last `ticks` ticks and of the one that has
    /// begun.
    pub(crate) fn peak(&self, ticks: u64) -> Peak {
        let last = self.last();
        Peak { last, newest: last, left: last - last.saturating_sub(ticks) + 1, most: 0 }
    }

    /// Looks at up to `buckets` more, from the newest to the oldest. Returns the events of the
    /// fullest one after the last. A bucket that expires between two steps may count as empty.
    pub(crate) fn peak_step(&self, peak: &mut Peak, buckets: u64) -> Option<u64> {
        let mut prefixes = [0; PEAK_CHUNK];
        let mut allowed = buckets.min(peak.left);
        while allowed > 0 {
            let ticks = allowed.min(PEAK_CHUNK as u64);
            // In this order, as in `buckets`: prefixes from the oldest on, and the sum last.
            let prefixes = &mut prefixes[..ticks as usize];
            for (tick, prefix) in (peak.newest + 1 - ticks..).zip(&mut *prefixes) {
                *prefix = self.prefix(tick);
            }
            let next = (peak.newest < peak.last).then(|| self.prefix(peak.newest + 1));
            let sum = self.sum.sum();
            let mut newer = next.map_or(0, |prefix| sum.wrapping_sub(prefix));
            for prefix in prefixes.iter().rev() {
                let since = sum.wrapping_sub(*prefix).max(newer);
                peak.most = peak.most.max(since - newer);
                newer = since;
            }
            peak.newest = peak.newest.saturating_sub(ticks);
            peak.left -= ticks;
            allowed -= ticks;
        }
        (peak.left == 0).then_some(peak.most)
    }

    /// Forgets everything that was added so far.
    pub(crate) fn reset(&self) {
        loop {
            let last = self.last();
            let floor = self.head[head::FLOOR].load(Ordering::Acquire);
            let sum = self.sum.sum();
            if self.last() != last {
                continue;
            }
            // Release: who sees the tick sees the floor. Who fails was overtaken by another reset,
            // which may have read its sum before this one began.
            let swapped = self.head[head::FLOOR].compare_exchange(
                floor,
                sum,
                Ordering::Release,
                Ordering::Relaxed,
            );
            if swapped.is_err() {
                continue;
            }
            self.head[head::RESET].fetch_max(last, Ordering::Release);
            return;
        }
    }

    /// Brings the ring to the tick of `now`.
    #[cold]
    #[inline(never)]
    pub(crate) fn advance(&self, now: u64) {
        let target = now / self.accuracy;
        loop {
            let last = self.last();
            if target <= last {
                return;
            }
            let (next, oldest) = if target - last > self.span {
                (target, target - self.span)
            } else {
                (last + 1, last + 1)
            };
            if self.fill(oldest, next, last) {
                // Release: who sees the tick sees its slot. Who fails was overtaken.
                let _ = self.head[head::LAST].compare_exchange(
                    last,
                    next,
                    Ordering::Release,
                    Ordering::Relaxed,
                );
            }
        }
    }

    /// Begins a new ring at the tick of `now`, or empties one that nobody uses meanwhile.
    pub(crate) fn begin(&self, now: u64) {
        self.fill_with(now, |_| 0);
    }

    /// Gives a ring that nobody uses meanwhile these buckets: `count(tick)` for each tick of the
    /// span up to that of `now`.
    pub(crate) fn fill_with(&self, now: u64, mut count: impl FnMut(u64) -> u64) {
        let last = now / self.accuracy;
        for slot in self.slots.iter() {
            slot.store(0, Ordering::Relaxed);
        }
        self.head[head::FLOOR].store(0, Ordering::Relaxed);
        self.head[head::RESET].store(0, Ordering::Relaxed);
        let mut sum: u64 = 0;
        for tick in last.saturating_sub(self.span)..=last {
            self.slot(tick).store(sum, Ordering::Relaxed);
            sum = sum.wrapping_add(count(tick));
        }
        self.sum.set(sum);
        self.head[head::LAST].store(last, Ordering::Release);
    }

    /// Whether the ring's time fits a clock that shows `now`. A ring that is far ahead would stand
    /// still until the clock has caught up, and was not left so by anything that counts.
    pub(crate) fn fits(&self, now: u64) -> bool {
        let most = self.span.max(AHEAD / self.accuracy);
        self.last().saturating_sub(now / self.accuracy) <= most
            && self.last().checked_mul(self.accuracy).is_some()
    }

    /// Mends a ring of which some pages reached the disk and some did not, when power was lost.
    /// Others may count meanwhile. Returns how many slots were wrong.
    ///
    /// A prefix is at most the sum and at least its predecessor. One that is not was written at
    /// another time than its neighbours: it takes its predecessor's value, or its successor's where
    /// all before it are wrong.
    pub(crate) fn mend(&self) -> usize {
        let last = self.last();
        let ticks = last.saturating_sub(self.span)..=last;
        let found: Vec<u64> =
            ticks.clone().map(|tick| self.slot(tick).load(Ordering::Acquire)).collect();
        let floor = self.head[head::FLOOR].load(Ordering::Acquire);
        // Read last: a prefix that is right is at most this, whoever adds meanwhile.
        let sum = self.sum.sum();
        if self.last() != last {
            // Somebody counts here, so that all of it was mended before.
            return 0;
        }
        let swap = |cell: &AtomicU64, old: u64, new: u64| {
            // Who fails was overtaken by one who knows better.
            let _ = cell.compare_exchange(old, new, Ordering::Release, Ordering::Relaxed);
        };
        if floor > sum {
            swap(&self.head[head::FLOOR], floor, sum);
        }
        // How much was added since a tick began, in the newest one so far that is right.
        let sound = found.iter().map(|prefix| sum.wrapping_sub(*prefix));
        let mut older = sound.clone().find(|since| *since <= sum).unwrap_or(0);
        let mut mended = 0;
        for ((tick, since), prefix) in ticks.zip(sound).zip(&found) {
            if since > older {
                swap(self.slot(tick), *prefix, sum.wrapping_sub(older));
                mended += 1;
            } else {
                older = since;
            }
        }
        mended
    }

    /// The tick up to which slots are filled.
    #[inline]
    pub(crate) fn last(&self) -> u64 {
        // Acquire: with the tick comes its slot.
        self.head[head::LAST].load(Ordering::Acquire)
    }

    #[inline]
    fn prefix(&self, tick: u64) -> u64 {
        // Acquire: with the tick of a reset comes its floor; with a prefix come the additions
        // that are in it, so that a sum read later is at least as great.
        if tick <= self.head[head::RESET].load(Ordering::Acquire) {
            self.head[head::FLOOR].load(Ordering::Acquire)
        } else {
            self.slot(tick).load(Ordering::Acquire)
        }
    }

    /// Puts the sum into the slots from `oldest` to `next`. False where `last` has moved.
    fn fill(&self, oldest: u64, next: u64, last: u64) -> bool {
        for tick in oldest..=next {
            let slot = self.slot(tick);
            // Acquire: the sum is read after this, and `last` after the sum.
            let old = slot.load(Ordering::Acquire);
            let sum = self.sum.sum();
            if self.last() != last {
                return false;
            }
            // Release: who reads the prefix sees the additions that are in it. Who fails was
            // overtaken by one who read a sum as good.
            let _ = slot.compare_exchange(old, sum, Ordering::Release, Ordering::Relaxed);
        }
        true
    }

    #[inline]
    fn slot(&self, tick: u64) -> &AtomicU64 {
        self.slots.at(tick)
    }
}

#[cfg(test)]
mod tests {
    use quipu_segment::{Kind, Segment};

    use super::*;

    /// A ring of ten slots and its cells, with ten events in each of the last ticks.
    fn filled(span: u64, ticks: u64) -> (Ring, Cells) {
        let count = Ring::cells(span, Lines::ONE);
        let segment = Segment::private(1 << 20).unwrap();
        let draft = segment.reserve(Kind::new(*b"TEST", 1), "ring", count).unwrap();
        let cells = draft.cells().slice(0..count);
        let ring = Ring::new(&cells, 1, span, Lines::ONE);
        ring.begin(1000);
        for tick in 1..=ticks {
            ring.advance(1000 + tick);
            ring.add(10);
        }
        (ring, cells)
    }

    fn image(cells: &Cells) -> Vec<u64> {
        cells.iter().map(|cell| cell.load(Ordering::Relaxed)).collect()
    }

    #[test]
    fn slots_that_are_newer_than_the_sum_are_mended() {
        // The disk stood still for 40 ticks, then took the slots and not the head.
        let (ring, cells) = filled(100, 2000);
        let old = image(&cells);
        for tick in 2001..=2040 {
            ring.advance(1000 + tick);
            ring.add(10);
        }
        for (cell, old) in cells.iter().zip(&old).take(head::CELLS + 8) {
            cell.store(*old, Ordering::Relaxed);
        }
        assert!(ring.mend() > 0);
        for ticks in 0..=100 {
            assert!(ring.count(ticks) <= 1010, "{ticks}: {}", ring.count(ticks));
        }
        assert_eq!(ring.count(20), 210);
        assert_eq!(ring.mend(), 0);
    }

    #[test]
    fn pages_that_power_loss_left_behind_are_mended() {
        // Whatever pages are of the last sync and whatever are newer: no window counts more than
        // a longer one, and none is off by more than what was added since the sync.
        let (ring, cells) = filled(300, if cfg!(miri) { 310 } else { 2000 });
        let old = image(&cells);
        for tick in 1..=5 {
            ring.advance(ring.last() + tick.min(1));
            ring.add(10);
        }
        let (new, all) = (image(&cells), ring.count(300));
        let pages = cells.len().div_ceil(64);
        let combinations = if cfg!(miri) { 3 } else { 1u32 << pages };
        for of_new in 0..combinations {
            for (i, cell) in cells.iter().enumerate() {
                let image = if of_new >> (i / 64) & 1 == 0 { &old } else { &new };
                cell.store(image[i], Ordering::Relaxed);
            }
            ring.mend();
            let counts: Vec<u64> = (0..=300).map(|ticks| ring.count(ticks)).collect();
            assert!(counts.is_sorted(), "pages {of_new:b}: {counts:?}");
            assert!(counts[300].abs_diff(all) <= 60, "pages {of_new:b}: {} {all}", counts[300]);
        }
    }

    #[test]
    fn a_floor_that_is_newer_than_the_sum_is_mended() {
        let (ring, cells) = filled(10, 20);
        ring.reset();
        assert_eq!(ring.count(10), 0);
        cells[head::FLOOR].store(1000, Ordering::Relaxed);
        ring.mend();
        assert_eq!(ring.count(10), 0);
    }

    #[test]
    fn a_sound_ring_needs_no_mending() {
        for ticks in [0, 1, 5, 10, 11, 500] {
            assert_eq!(filled(10, ticks).0.mend(), 0);
        }
    }
}
