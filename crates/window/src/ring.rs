//! The ring under every bucketed counter: one sum that only grows, and its value at the start of
//! each of the last buckets.
//!
//! We divide time into *ticks* of one accuracy. Slot `k` (modulo the length of the ring) holds the
//! *prefix* of tick `k`: the sum at the start of that tick. The count of a window is the sum minus
//! the prefix of the tick where the window begins. For example, if the sum is 130 now and was 100
//! when the window began, the window contains 30 events. Therefore:
//!
//! - Adding is one addition. No bucket is ever emptied, so the count cannot drift.
//! - Counting is one subtraction, at the same cost for any window up to the span.
//! - Events expire because later counts use a later prefix. This needs no thread or timer.
//!
//! All arithmetic is modulo 2^64: a count is correct as long as the count itself is below 2^64.
//!
//! # Advancing
//!
//! `last` is the tick of the newest filled slot. A thread with a later time fills the next slot and
//! then advances `last`, each by compare-and-swap. No thread waits for another. If a thread dies
//! halfway, the next thread can fill its slot again. The order is: read the slot, read the sum,
//! check that `last` did not change, swap the slot, swap `last`. From this order, we can prove:
//!
//! 1. The sum for a prefix is read while `last` is before its tick. An adder sees `last` at its
//!    tick or later before it adds. So the prefix of a tick, and every earlier prefix, never
//!    contains an addition of that tick: *no event leaves a window early*.
//! 2. A thread that is suspended between its check and its swap does no harm. The value that it
//!    expects in the slot is at most the sum that it would store, because it read the slot before
//!    the sum. Slots only grow. If the slot is filled for a later tick in the meantime, it holds at
//!    least the sum at the time when `last` moved. This is at least the sum that the suspended
//!    thread would store. So its swap finds another value and fails, or it finds the expected
//!    value, which then equals the sum that it would store.
//! 3. A slot that a reader at `last` needs is at most `span` ticks old, and the ring is longer than
//!    this. So it is not filled again before `last` moves, and the reader can notice this because
//!    it reads `last` a second time.
//!
//! After a silence longer than the span, every window is empty. Then all slots that matter are
//! filled with the same sum, and `last` jumps. A reader can see the window empty before `last`
//! jumps, which is already correct.

use quipu_segment::sync::{AtomicU64, Ordering};
use quipu_segment::{Cells, Cycle, Line, Stripes};

/// A ring on cells that the caller allocated.
#[derive(Debug, Clone)]
pub(crate) struct Ring {
    /// The width of a tick in nanoseconds.
    accuracy: u64,
    /// The maximum number of ticks in a window.
    span: u64,
    head: Line,
    sum: Stripes,
    slots: Cycle,
}

/// The cells of the head, on a cache line that is written once per tick.
mod head {
    /// The tick of the newest filled slot.
    pub(super) const LAST: usize = 0;
    /// The sum at the last reset.
    pub(super) const FLOOR: usize = 1;
    /// The tick of the last reset. For ticks up to it, the floor replaces the prefix.
    pub(super) const RESET: usize = 2;
    pub(super) const CELLS: usize = 8;
}

/// The slots beyond the span: for the tick that begins, for the tick that ends, and for late
/// readers.
const SPARE: u64 = 4;

/// How far a ring can be ahead of its clock, in nanoseconds, even if its span is shorter. If the
/// wall clock was set back across a reboot, the segment's time lags by the time that passed between
/// the last sync and the end of the earlier boot.
const AHEAD: u64 = 600_000_000_000;

/// The number of attempts before a reader accepts a count that overlapped the end of a tick.
const MAX_ATTEMPTS: usize = 16;

/// The number of prefixes that we read before the sum.
const PEAK_CHUNK: usize = 512;

/// A search, in steps, for the bucket of a window with the most events.
///
/// ```
/// use std::time::Duration;
/// use quipu_window::{BucketedWindow, SlidingWindow};
///
/// let hour = Duration::from_secs(3600);
/// let requests = BucketedWindow::new(hour, Duration::from_millis(10))?;
/// requests.add(17);
/// let mut search = requests.peak_over(hour)?;
/// let most = loop {
///     // A server can respond to other requests between two steps.
///     if let Some(most) = requests.peak_step(&mut search, 10_000) {
///         break most;
///     }
/// };
/// assert_eq!(most, 17);
/// # Ok::<(), quipu_window::Error>(())
/// ```
#[derive(Debug, Clone)]
#[doc(hidden)]
pub struct PeakSearch {
    /// The current tick when the search started.
    last: u64,
    /// The newest tick that is not visited yet.
    newest: u64,
    /// The number of ticks that are not visited yet.
    left: u64,
    most: u64,
}

/// The number of cache lines of a ring's sum: one for each CPU, and shared ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lines {
    pub(crate) cpus: usize,
    pub(crate) shared: usize,
}

impl Lines {
    /// One line for all threads: each `add_and_count` returns a different number.
    pub(crate) const ONE: Self = Self { cpus: 0, shared: 1 };
}

impl Ring {
    /// Returns the number of slots of a ring for windows of up to `span` ticks.
    pub(crate) const fn slots(span: u64) -> usize {
        (span + SPARE).next_power_of_two() as usize
    }

    /// Returns the number of cells of a ring.
    pub(crate) const fn cells(span: u64, lines: Lines) -> usize {
        head::CELLS + Stripes::cells(lines.cpus, lines.shared) + Self::slots(span)
    }

    /// Creates a ring on cells that are zeroed or already used by a ring.
    ///
    /// # Panics
    /// If there are fewer cells than [`Ring::cells`] returns.
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

    /// Returns whether a new tick began by `now`, so [`Ring::advance`] is due.
    #[inline]
    pub(crate) fn is_due(&self, now: u64) -> bool {
        let last = self.head[head::LAST].load(Ordering::Acquire);
        // Wraps in the last tick of 64-bit nanoseconds; the result is then true more often than
        // needed.
        now >= last.wrapping_add(1).wrapping_mul(self.accuracy)
    }

    /// Adds `n` to the newest tick of the ring.
    #[inline]
    pub(crate) fn add(&self, n: u64) {
        self.sum.add(n);
    }

    /// Returns the sum of the additions in the last `ticks` ticks and in the current one.
    #[inline]
    pub(crate) fn count(&self, ticks: u64) -> u64 {
        let (count, late) = self.read(ticks);
        if late == 0 { count } else { self.count_again(ticks) }
    }

    /// Like `count`, after a tick ended during the first attempt.
    #[cold]
    fn count_again(&self, ticks: u64) -> u64 {
        for _ in 0..MAX_ATTEMPTS {
            let (count, late) = self.read(ticks);
            if late == 0 {
                return count;
            }
        }
        loop {
            // If ticks are as short as an attempt, a reader cannot keep up. It then accepts a count
            // whose window begins too early, by fewer ticks than there are spare slots. The count
            // is too great by the events of these ticks.
            let (count, late) = self.read(ticks);
            if late <= SPARE - 2 {
                return count;
            }
        }
    }

    /// Returns a count, and the number of ticks that ended during the read.
    #[inline]
    fn read(&self, ticks: u64) -> (u64, u64) {
        let last = self.last();
        let prefix = self.prefix(last.saturating_sub(ticks));
        let count = self.sum.sum().wrapping_sub(prefix);
        (count, self.last().wrapping_sub(last))
    }

    /// Adds `n` and counts, with one addition. With [`Lines::ONE`], no two callers get the same
    /// number unless events expire.
    #[inline]
    pub(crate) fn add_and_count(&self, n: u64, ticks: u64) -> u64 {
        let sum = self.sum.add_and_sum(n);
        let mut attempts = 0;
        loop {
            let last = self.last();
            let count = sum.wrapping_sub(self.prefix(last.saturating_sub(ticks)));
            if count.cast_signed() < 0 {
                // A reset, or a silence between the two loads, removed the addition again, or there
                // are 2^63 events.
                return self.count(ticks);
            }
            // Like in `count_again`, a slot that was filled again holds the prefix of another tick.
            let late = self.last().wrapping_sub(last);
            if late == 0 || attempts >= MAX_ATTEMPTS && late <= SPARE - 2 {
                return count;
            }
            attempts += 1;
        }
    }

    /// Like `count`, but at a time that can be after the last tick, and without advancing.
    pub(crate) fn peek(&self, now: u64, ticks: u64) -> u64 {
        let passed = (now / self.accuracy).saturating_sub(self.last());
        if passed > ticks { 0 } else { self.count(ticks - passed) }
    }

    /// Returns the sum of all additions so far.
    pub(crate) fn total(&self) -> u64 {
        self.sum.sum()
    }

    /// Like `count`, but with the events of the oldest bucket spread evenly over its width: only
    /// the part of the bucket that the window still covers at `now` counts.
    pub(crate) fn estimate(&self, ticks: u64, now: u64) -> f64 {
        let whole = self.count(ticks) as f64;
        let inner = self.count(ticks - 1) as f64;
        let begun = self.last().wrapping_mul(self.accuracy);
        let part = now.saturating_sub(begun).min(self.accuracy) as f64 / self.accuracy as f64;
        whole - (whole - inner).max(0.0) * part
    }

    /// Returns the last `ticks` ticks and the current one, oldest first, each with the sum of its
    /// additions.
    pub(crate) fn buckets(&self, ticks: u64) -> Vec<(u64, u64)> {
        let last = self.last();
        let first = last.saturating_sub(ticks);
        // If a slot is filled again during the read, it holds a greater prefix. This looks as if
        // less had been added since an older tick than since a newer one. `max` corrects this.
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

    /// Starts a search for the bucket with the most events, among the last `ticks` ticks and the
    /// current one.
    pub(crate) fn peak(&self, ticks: u64) -> PeakSearch {
        let last = self.last();
        PeakSearch { last, newest: last, left: last - last.saturating_sub(ticks) + 1, most: 0 }
    }

    /// Visits up to `buckets` more buckets, from the newest to the oldest. Returns the events of
    /// the fullest bucket when all are visited. A bucket that expires between two steps can count
    /// as empty.
    pub(crate) fn peak_step(&self, peak: &mut PeakSearch, buckets: u64) -> Option<u64> {
        let mut prefixes = [0; PEAK_CHUNK];
        let mut allowed = buckets.min(peak.left);
        while allowed > 0 {
            let ticks = allowed.min(PEAK_CHUNK as u64);
            // The order matters, like in `buckets`: prefixes from the oldest on, and the sum last.
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

    /// Makes counts forget all earlier additions.
    pub(crate) fn reset(&self) {
        loop {
            let last = self.last();
            let floor = self.head[head::FLOOR].load(Ordering::Acquire);
            let sum = self.sum.sum();
            if self.last() != last {
                continue;
            }
            // Release: a thread that sees the tick sees the floor. If this fails, another reset
            // overtook this one; it may have read its sum before this one began, so try again.
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

    /// Advances the ring to the tick of `now`.
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
                // Release: a thread that sees the tick sees its slot. If this fails, another thread
                // advanced the ring.
                let _ = self.head[head::LAST].compare_exchange(
                    last,
                    next,
                    Ordering::Release,
                    Ordering::Relaxed,
                );
            }
        }
    }

    /// Starts a new ring at the tick of `now`, or empties one. No other thread may use the ring
    /// during this call.
    pub(crate) fn begin(&self, now: u64) {
        self.fill_with(now, |_| 0);
    }

    /// Fills a ring with the buckets `count(tick)`, for each tick of the span up to the tick of
    /// `now`. No other thread may use the ring during this call.
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

    /// Returns whether the ring's time is plausible for a clock that reads `now`. A ring that is
    /// far ahead would stand still until the clock catches up, and no counter leaves a ring in this
    /// state.
    pub(crate) fn fits(&self, now: u64) -> bool {
        let most = self.span.max(AHEAD / self.accuracy);
        self.last().saturating_sub(now / self.accuracy) <= most
            && self.last().checked_mul(self.accuracy).is_some()
    }

    /// Repairs a ring after a power loss, when only some of its pages had reached the disk. Other
    /// threads can count during this call. Returns the number of wrong slots.
    ///
    /// A correct prefix is at most the sum and at least its predecessor. Any other prefix was
    /// written at another time than its neighbours. We replace it by its predecessor, or by its
    /// successor if all slots before it are wrong.
    pub(crate) fn mend(&self) -> usize {
        let last = self.last();
        let ticks = last.saturating_sub(self.span)..=last;
        let found: Vec<u64> =
            ticks.clone().map(|tick| self.slot(tick).load(Ordering::Acquire)).collect();
        let floor = self.head[head::FLOOR].load(Ordering::Acquire);
        // Read last: every correct prefix is at most this, even if other threads add in the
        // meantime.
        let sum = self.sum.sum();
        if self.last() != last {
            // Another thread advances this ring, so it was repaired before.
            return 0;
        }
        let swap = |cell: &AtomicU64, old: u64, new: u64| {
            // If this fails, another thread stored a newer value, which is correct.
            let _ = cell.compare_exchange(old, new, Ordering::Release, Ordering::Relaxed);
        };
        if floor > sum {
            swap(&self.head[head::FLOOR], floor, sum);
        }
        // For each tick, the sum of the additions since it began. `older` is this sum for the
        // newest correct tick so far.
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

    /// Returns the tick of the newest filled slot.
    #[inline]
    pub(crate) fn last(&self) -> u64 {
        // Acquire: a thread that sees the tick sees its slot.
        self.head[head::LAST].load(Ordering::Acquire)
    }

    #[inline]
    fn prefix(&self, tick: u64) -> u64 {
        // Acquire: a thread that sees the tick of a reset sees its floor. A thread that sees a
        // prefix sees the additions in this prefix, so a sum read later is at least as great.
        if tick <= self.head[head::RESET].load(Ordering::Acquire) {
            self.head[head::FLOOR].load(Ordering::Acquire)
        } else {
            self.slot(tick).load(Ordering::Acquire)
        }
    }

    /// Stores the sum in the slots from `oldest` to `next`. Returns false if `last` moved.
    fn fill(&self, oldest: u64, next: u64, last: u64) -> bool {
        for tick in oldest..=next {
            let slot = self.slot(tick);
            // Acquire: keeps the read of the sum after this one, and the read of `last` after the
            // sum.
            let old = slot.load(Ordering::Acquire);
            let sum = self.sum.sum();
            if self.last() != last {
                return false;
            }
            // Release: a thread that reads the prefix sees the additions in this prefix. If this
            // fails, another thread stored a sum that is as good.
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

    /// Returns a ring with this span and its cells, after `ticks` ticks with ten events in each.
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
        // The disk was not written for 40 ticks. Then the slots were written, but not the head.
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
        // For any mix of pages from the last sync and newer pages: no window counts more than a
        // longer one, and the error is at most the additions since the sync.
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
