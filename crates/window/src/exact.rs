//! [`ExactWindow`], a window that keeps the time of every event to the nanosecond.
//!
//! The events are in up to 8 stripes. Each stripe is a log under a separate lock. A thread keeps
//! adding to one stripe; if another thread holds the lock of this stripe, it switches to another
//! one. A new stripe is only begun if threads that add hold the locks of all others, or if there is
//! only the first stripe and it is locked. So a counter uses one stripe for each of the threads
//! that add at the same time, and a single one if threads take turns.
//!
//! With one lock for all, two threads took 140 to 200 ns per add, and now take 32, including 24 for
//! the clock.
//!
//! A read of several stripes locks all stripes. Locks are taken in the order of the stripes, and no
//! thread waits for a lock while it holds the lock of a later stripe.

use std::cell::Cell;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::clock::{Clock, PreciseClock};
#[allow(
    clippy::disallowed_types,
    reason = "a child of a fork makes windows of its own, as the page says"
)]
use parking_lot::{Mutex, MutexGuard};

use crate::error::{Error, ErrorKind};
use crate::log::{Log, Snapshot};
use crate::save::sealed::Sealed;
use crate::save::{LoadReport, SlidingWindow};
use crate::shape::nanoseconds;

/// A sliding window that knows the time of every event to the nanosecond. Use this if one event too
/// many matters, for example to enforce a quota.
///
/// # Error bound
/// None: an event counts if and only if it is younger than the window, by the clock. A count
/// belongs to one moment, and includes all events that were added before the call. If a thread
/// reads the clock and another one adds an event with a later time first, the event can get that
/// later time.
///
/// # Range
/// Counts go up to 2^64 - 1; further events are not counted. Saving writes 8 bytes per event.
///
/// # Cost
/// Adding takes a lock that is held for some nanoseconds. Threads that add at the same time spread
/// over different locks, up to 8. Counting takes all locks in use, and so does adding and counting
/// in one call; saving does not hold them while it writes. An event takes about 2.2 bytes if events
/// arrive at random, and up to 20 if several share a nanosecond; you can limit the memory with
/// [`ExactWindow::max_bytes`].
///
/// Create a new counter in a forked child, because the child could wait forever for the lock of its
/// parent's counter.
///
/// ```
/// use std::time::Duration;
/// use quipu_window::clock::TestClock;
/// use quipu_window::{ExactWindow, SlidingWindow};
///
/// let (clock, minute) = (TestClock::new(), Duration::from_secs(60));
/// let logins = ExactWindow::with_clock(minute, clock.clone())?;
/// logins.inc();
/// clock.advance(minute - Duration::from_nanos(1));
/// assert_eq!(logins.count(), 1);
/// clock.advance(Duration::from_nanos(1));
/// assert_eq!(logins.count(), 0);
/// # Ok::<(), quipu_window::Error>(())
/// ```
#[derive(Debug)]
pub struct ExactWindow<C = PreciseClock> {
    window: u64,
    limit: usize,
    clock: C,
    /// The maximum number of stripes.
    most: usize,
    /// The number of stripes in use, which are the first ones.
    used: AtomicUsize,
    stripes: [Stripe; STRIPES],
}

/// A part of the events, on separate cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe {
    #[allow(
        clippy::disallowed_types,
        reason = "a child of a fork makes windows of its own, as the page says"
    )]
    state: Mutex<State>,
    /// In the first stripe: whether a thread holds the locks of all stripes, which makes a further
    /// stripe useless. Written by that thread; a hint for the others.
    whole: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    log: Log,
    dropped: u64,
}

impl State {
    /// Returns the time of the newest event, or `now` if this is later, because a clock that went
    /// back must not make events younger.
    #[inline]
    fn latest(&self, now: u64) -> u64 {
        now.max(self.log.last())
    }

    /// Drops the events outside a window that ends at `now`, and returns the number of the
    /// remaining events.
    #[inline]
    fn expire(&mut self, now: u64, window: u64) -> u64 {
        if let Some(border) = self.latest(now).checked_sub(window) {
            self.log.drop_until(border);
        }
        self.log.events()
    }

    /// Drops the oldest events until no more than `limit` bytes are taken.
    fn trim(&mut self, limit: usize) {
        while self.log.bytes() > limit && self.log.oldest_sealed().is_some() {
            self.dropped += self.log.drop_block();
        }
    }
}

const STRIPES: usize = 8;
/// The minimum limit for each stripe, because its last block always stays.
const STRIPE_BYTES: usize = 64 << 10;

thread_local! {
    /// The index of the stripe that this thread uses, in all counters with enough stripes.
    static OWN: Cell<usize> = const { Cell::new(0) };
}

impl ExactWindow {
    /// Creates a counter on the system's precise clock.
    ///
    /// # Errors
    /// If the window is zero or over 292 years.
    pub fn new(window: Duration) -> Result<Self, Error> {
        Self::with_clock(window, PreciseClock::new())
    }
}

impl<C: Clock> ExactWindow<C> {
    /// Creates a counter on the given clock.
    ///
    /// # Errors
    /// The errors of [`ExactWindow::new`].
    pub fn with_clock(window: Duration, clock: C) -> Result<Self, Error> {
        let window = nanoseconds("window", window)?;
        Ok(Self {
            window,
            limit: usize::MAX,
            clock,
            most: STRIPES,
            used: AtomicUsize::new(1),
            stripes: Default::default(),
        })
    }

    /// Limits the memory: beyond `bytes`, the oldest events are dropped early, and counted as
    /// [`dropped`](ExactWindow::dropped). They are dropped in blocks of up to 2048 events, starting
    /// with the block of the oldest events. About 20 KiB are always kept. Threads use one lock for
    /// each 64 KiB.
    #[must_use]
    pub fn max_bytes(mut self, bytes: usize) -> Self {
        self.limit = bytes;
        self.most = (bytes / STRIPE_BYTES).clamp(1, STRIPES);
        self
    }

    /// Returns the number of events that were dropped early because of the limit on memory.
    pub fn dropped(&self) -> u64 {
        self.all(self.first()).iter().map(|state| state.dropped).sum()
    }

    /// Returns the memory that the events take, in bytes.
    pub fn bytes(&self) -> usize {
        self.all(self.first()).bytes()
    }

    /// Counts `n` events at time `now_ns`, in nanoseconds of the counter's clock. Does not read the
    /// clock.
    #[inline]
    pub fn add_at(&self, now_ns: u64, n: u64) {
        match self.try_own() {
            Some(mut state) => {
                if n != 1 || !state.log.push_short(now_ns) {
                    self.add_slowly(state, now_ns, n);
                }
            }
            None => self.add_slowly(self.another(), now_ns, n),
        }
    }

    /// Returns the events of the window that ends at time `now_ns`, in nanoseconds of the counter's
    /// clock.
    #[inline]
    pub fn count_at(&self, now_ns: u64) -> u64 {
        let mut first = self.first();
        if self.used.load(Ordering::Relaxed) == 1 {
            return first.expire(now_ns, self.window);
        }
        self.all(first).expire(now_ns, self.window)
    }

    /// Adds and counts at time `now_ns`, in nanoseconds of the counter's clock, with all events of
    /// other threads before or after both.
    #[inline]
    pub fn add_and_count_at(&self, now_ns: u64, n: u64) -> u64 {
        let mut first = self.first();
        if self.used.load(Ordering::Relaxed) > 1 {
            return self.add_and_count_all(first, now_ns, n);
        }
        let sealed = n > 0 && first.log.push(now_ns, n);
        let count = first.expire(now_ns, self.window);
        if sealed {
            first.trim(self.limit);
        }
        count
    }

    /// Returns the events of a shorter window that ends now. This takes some microseconds, for a
    /// window of any length up to the counter's.
    ///
    /// # Errors
    /// If the window is zero, or longer than the counter's.
    pub fn count_over(&self, window: Duration) -> Result<u64, Error> {
        let nanos = nanoseconds("window", window)?;
        if nanos > self.window {
            return Err(ErrorKind::OverSpan { window, span: self.window() }.into());
        }
        let now = self.clock.now();
        let mut all = self.all(self.first());
        let events = all.expire(now, self.window);
        Ok(match all.latest(now).checked_sub(nanos) {
            Some(border) => sum(all.iter().map(|state| state.log.count_after(border))),
            None => events,
        })
    }

    #[inline(never)]
    fn add_slowly(&self, mut state: MutexGuard<'_, State>, now: u64, n: u64) {
        let sealed = n > 0 && state.log.push_any(now, n);
        if sealed {
            // Drop expired events, and events beyond the limit. All locks are taken in order.
            drop(state);
            let mut all = self.all(self.first());
            all.expire(now, self.window);
            all.trim(self.limit);
        }
    }

    #[inline(never)]
    fn add_and_count_all(&self, first: MutexGuard<'_, State>, now: u64, n: u64) -> u64 {
        let mut all = self.all(first);
        // Use no time before any other event, because the new event could then already be outside
        // the window.
        let now = all.latest(now);
        let sealed = n > 0 && all.first.log.push(now, n);
        let count = all.expire(now, self.window);
        if sealed {
            all.trim(self.limit);
        }
        count
    }

    /// Locks this thread's stripe, unless it is locked.
    #[inline]
    fn try_own(&self) -> Option<MutexGuard<'_, State>> {
        let used = self.used.load(Ordering::Relaxed);
        self.stripes[own(used) % STRIPES].state.try_lock()
    }

    /// Locks a stripe after this thread's stripe was found locked.
    #[cold]
    fn another(&self) -> MutexGuard<'_, State> {
        let used = self.used.load(Ordering::Relaxed);
        let own = own(used);
        // Twice, because a single moment with all stripes locked must not begin a new one.
        for _ in 0..2 {
            if let Some(state) = (own..used).chain(0..own).find_map(|stripe| self.take(stripe)) {
                return state;
            }
            if self.stripes[0].whole.load(Ordering::Relaxed) {
                return self.stripes[own].state.lock();
            }
        }
        let further = if used < self.most { self.take(used) } else { None };
        further.unwrap_or_else(|| self.stripes[own].state.lock())
    }

    /// Makes a stripe this thread's and locks it, unless it is locked.
    fn take(&self, stripe: usize) -> Option<MutexGuard<'_, State>> {
        let state = self.stripes[stripe].state.try_lock()?;
        // Before the lock is released, because a thread that knows of the event must find the
        // stripe.
        self.used.fetch_max(stripe + 1, Ordering::Relaxed);
        _ = OWN.try_with(|own| own.set(stripe));
        Some(state)
    }

    /// Locks the first stripe. This is the first step to lock all.
    #[inline]
    fn first(&self) -> MutexGuard<'_, State> {
        self.stripes[0].state.lock()
    }

    /// Locks all other stripes.
    fn all<'a>(&'a self, first: MutexGuard<'a, State>) -> All<'a> {
        let whole = &self.stripes[0].whole;
        whole.store(true, Ordering::Relaxed);
        let used = self.used.load(Ordering::Relaxed);
        let mut rest = [const { None }; STRIPES - 1];
        for (stripe, rest) in self.stripes[1..used].iter().zip(&mut rest) {
            *rest = Some(stripe.state.lock());
        }
        All { first, rest, whole }
    }
}

/// Returns the index of this thread's stripe in a counter with `used` stripes in use.
#[inline]
fn own(used: usize) -> usize {
    // A thread that is ending cannot access its locals any more, so we let it use any stripe.
    OWN.try_with(Cell::get).unwrap_or(0).min(used - 1)
}

/// All stripes, locked.
struct All<'a> {
    first: MutexGuard<'a, State>,
    rest: [Option<MutexGuard<'a, State>>; STRIPES - 1],
    whole: &'a AtomicBool,
}

impl Drop for All<'_> {
    fn drop(&mut self) {
        // First: a thread that finds the hint cleared must find a stripe that is not locked.
        self.rest.iter_mut().for_each(|state| *state = None);
        self.whole.store(false, Ordering::Relaxed);
    }
}

impl All<'_> {
    fn iter(&self) -> impl Iterator<Item = &State> {
        [&*self.first].into_iter().chain(self.rest.iter().flatten().map(|state| &**state))
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = &mut State> {
        let rest = self.rest.iter_mut().flatten().map(|state| &mut **state);
        [&mut *self.first].into_iter().chain(rest)
    }

    fn bytes(&self) -> usize {
        self.iter().map(|state| state.log.bytes()).sum()
    }

    fn latest(&self, now: u64) -> u64 {
        self.iter().fold(now, |latest, state| state.latest(latest))
    }

    /// Drops the events outside a window that ends at `now`, and returns the number of the
    /// remaining events.
    fn expire(&mut self, now: u64, window: u64) -> u64 {
        let now = self.latest(now);
        sum(self.iter_mut().map(|state| state.expire(now, window)))
    }

    /// Drops the oldest blocks until no more than `limit` bytes are taken.
    fn trim(&mut self, limit: usize) {
        if limit == usize::MAX {
            return;
        }
        while self.bytes() > limit {
            let oldest = self
                .iter_mut()
                .filter_map(|state| Some((state.log.oldest_sealed()?, state)))
                .min_by_key(|(time, _)| *time);
            let Some((_, state)) = oldest else { return };
            state.dropped += state.log.drop_block();
        }
    }
}

fn sum(counts: impl Iterator<Item = u64>) -> u64 {
    counts.fold(0, u64::saturating_add)
}

impl<C: Clock> Sealed for ExactWindow<C> {}

impl<C: Clock> SlidingWindow for ExactWindow<C> {
    fn window(&self) -> Duration {
        Duration::from_nanos(self.window)
    }

    #[inline]
    fn add(&self, n: u64) {
        self.add_at(self.clock.now(), n);
    }

    #[inline]
    fn count(&self) -> u64 {
        self.count_at(self.clock.now())
    }

    #[inline]
    fn add_and_count(&self, n: u64) -> u64 {
        self.add_and_count_at(self.clock.now(), n)
    }

    fn reset(&self) {
        for state in self.all(self.first()).iter_mut() {
            let last = state.log.last();
            state.log.drop_until(last);
        }
    }

    /// Writes the binary format of `derlaft/ratecounter/nanocounter`: the Unix time of each event
    /// in nanoseconds, oldest first, as little-endian 64-bit integers. Other threads can add during
    /// this call.
    fn save(&self, out: &mut dyn Write) -> Result<(), Error> {
        let (now, unix) = (self.clock.now(), self.clock.unix());
        let snapshots: Vec<_> = {
            let mut all = self.all(self.first());
            all.expire(now, self.window);
            let logs = all.iter().map(|state| &state.log);
            logs.filter(|log| log.events() > 0).map(Log::snapshot).collect()
        };
        let mut buffer = vec![0; BUFFER];
        let mut filled = 0;
        Snapshot::try_for_each_of(&snapshots, |time, events| {
            let bytes = time.wrapping_sub(now).wrapping_add(unix).to_le_bytes();
            for _ in 0..events {
                buffer[filled..filled + 8].copy_from_slice(&bytes);
                filled += 8;
                if filled == BUFFER {
                    out.write_all(&buffer)?;
                    filled = 0;
                }
            }
            Ok::<(), Error>(())
        })?;
        Ok(out.write_all(&buffer[..filled])?)
    }

    fn load(&mut self, input: &mut dyn Read) -> Result<LoadReport, Error> {
        let (now, unix) = (self.clock.now(), self.clock.unix());
        let mut loaded = LoadReport::default();
        let mut times = WindowTimes { limit: self.limit, ..WindowTimes::default() };
        let mut buffer = vec![0; BUFFER];
        let mut kept = 0;
        loop {
            let read = match input.read(&mut buffer[kept..]) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            };
            let filled = kept + read;
            let whole = filled / 8 * 8;
            for bytes in buffer[..whole].chunks_exact(8) {
                let time = i64::from_le_bytes(bytes.try_into().expect("a chunk has 8 bytes"));
                // A time before 1970 is older than any window.
                let time = u64::try_from(time).unwrap_or(0);
                if time > unix {
                    loaded.future += 1;
                } else if unix - time >= self.window {
                    loaded.expired += 1;
                } else {
                    times.push(now.saturating_sub(unix - time));
                    loaded.counted += 1;
                }
            }
            buffer.copy_within(whole..filled, 0);
            kept = filled - whole;
        }
        loaded.ragged_bytes = kept as u64;
        self.stripes = Default::default();
        *self.used.get_mut() = 1;
        let state = self.stripes[0].state.get_mut();
        *state = times.into_state();
        loaded.counted -= state.dropped;
        Ok(loaded)
    }
}

/// Loaded times: a log as long as they are in order, then a list that we sort.
#[derive(Default)]
struct WindowTimes {
    state: State,
    list: Vec<u64>,
    limit: usize,
}

impl WindowTimes {
    #[inline]
    fn push(&mut self, time: u64) {
        if self.list.is_empty() && time >= self.state.log.last() {
            if self.state.log.push(time, 1) {
                self.state.trim(self.limit);
            }
        } else {
            self.push_out_of_order(time);
        }
    }

    #[cold]
    fn push_out_of_order(&mut self, time: u64) {
        if self.list.is_empty() {
            let Ok(()) = self.state.log.snapshot().try_for_each(|time, events| {
                self.list.extend((0..events).map(|_| time));
                Ok::<(), std::convert::Infallible>(())
            });
        }
        self.list.push(time);
    }

    fn into_state(mut self) -> State {
        if self.list.is_empty() {
            return self.state;
        }
        self.list.sort_unstable();
        let mut state = State { log: Log::new(), dropped: self.state.dropped };
        for time in self.list {
            if state.log.push(time, 1) {
                state.trim(self.limit);
            }
        }
        state
    }
}

const BUFFER: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::TestClock;
    use proptest::prelude::*;

    const START: u64 = 1_700_000_000_000_000_000;

    /// Returns a counter whose steps can choose the stripe.
    fn counter(window: u64) -> (TestClock, ExactWindow<TestClock>) {
        let clock = TestClock::from_nanos(START);
        let counter = ExactWindow::with_clock(Duration::from_nanos(window), clock.clone()).unwrap();
        counter.used.store(STRIPES, Ordering::Relaxed);
        (clock, counter)
    }

    fn saved(counter: &ExactWindow<TestClock>) -> Vec<u64> {
        let mut bytes = Vec::new();
        counter.save(&mut bytes).unwrap();
        bytes.chunks_exact(8).map(|time| u64::from_le_bytes(time.try_into().unwrap())).collect()
    }

    #[derive(Debug, Clone)]
    enum WindowStep {
        Wait(u64),
        /// Adds at a time before the clock's time.
        Add {
            stripe: usize,
            back: u64,
            n: u64,
        },
        AddAndCount(u64),
        Count,
        Over(u64),
        Reset,
        SaveAndLoad,
    }

    fn steps() -> impl Strategy<Value = Vec<WindowStep>> {
        let back = prop_oneof![3 => Just(0), 1 => 0..300u64];
        let step = prop_oneof![
            4 => (0..200u64).prop_map(WindowStep::Wait),
            8 => (0..STRIPES, back, 0..4u64).prop_map(|(stripe, back, n)| WindowStep::Add {
                stripe,
                back,
                n
            }),
            2 => (0..4u64).prop_map(WindowStep::AddAndCount),
            2 => Just(WindowStep::Count),
            1 => (1..1000u64).prop_map(WindowStep::Over),
            1 => prop_oneof![Just(WindowStep::Reset), Just(WindowStep::SaveAndLoad)],
        ];
        prop::collection::vec(step, 1..if cfg!(miri) { 30 } else { 200 })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 300 }))]
        #[test]
        fn stripes_together_are_one_window(steps in steps()) {
            const WINDOW: u64 = 1000;
            let (clock, mut counter) = counter(WINDOW);
            let (mut events, mut lasts) = (Vec::new(), [0; STRIPES]);
            for step in steps {
                let now = clock.now();
                let latest = lasts.iter().fold(now, |latest, &last| latest.max(last));
                let younger = |events: &[u64], window: u64| {
                    events.iter().filter(|&&time| time > latest - window).count() as u64
                };
                match step {
                    WindowStep::Wait(by) => clock.advance(Duration::from_nanos(by)),
                    WindowStep::Add { stripe, back, n } => {
                        OWN.set(stripe);
                        let last = lasts[stripe].max(now - back);
                        counter.add_at(now - back, n);
                        if n > 0 {
                            lasts[stripe] = last;
                        }
                        events.extend((0..n).map(|_| last));
                    }
                    WindowStep::AddAndCount(n) => {
                        events.extend((0..n).map(|_| latest));
                        if n > 0 {
                            lasts[0] = latest;
                        }
                        prop_assert_eq!(counter.add_and_count(n), younger(&events, WINDOW));
                    }
                    WindowStep::Count => prop_assert_eq!(counter.count(), younger(&events, WINDOW)),
                    WindowStep::Over(window) => {
                        let count = counter.count_over(Duration::from_nanos(window)).unwrap();
                        prop_assert_eq!(count, younger(&events, window));
                    }
                    WindowStep::Reset => {
                        counter.reset();
                        prop_assert_eq!(counter.count(), 0);
                        events.clear();
                    }
                    WindowStep::SaveAndLoad => {
                        events.retain(|time| *time > latest - WINDOW);
                        events.sort_unstable();
                        let times = saved(&counter);
                        prop_assert_eq!(&times, &events);
                        let bytes: Vec<u8> = times.iter().flat_map(|t| t.to_le_bytes()).collect();
                        let loaded = counter.load(&mut &bytes[..]).unwrap();
                        prop_assert_eq!(loaded.counted, events.len() as u64);
                        prop_assert_eq!(*counter.used.get_mut(), 1);
                        *counter.used.get_mut() = STRIPES;
                        lasts = [0; STRIPES];
                        lasts[0] = events.last().copied().unwrap_or(0);
                    }
                }
            }
        }
    }

    // Miri refuses the system call that parking_lot uses to wait.
    #[cfg(not(miri))]
    #[test]
    fn a_stripe_is_begun_only_if_all_others_are_locked_by_threads_that_add() {
        let counter = ExactWindow::new(Duration::from_secs(60)).unwrap();
        let used = || counter.used.load(Ordering::Relaxed);
        OWN.set(STRIPES - 1);
        counter.add(1);
        assert_eq!(used(), 1);
        let adding = counter.stripes[0].state.lock();
        counter.add(1);
        assert_eq!((used(), OWN.get()), (2, 1));
        drop(adding);
        // This one goes back to the first stripe.
        let adding = counter.stripes[1].state.lock();
        counter.add(1);
        assert_eq!((used(), OWN.get()), (2, 0));
        drop(adding);
        // While all are counted, others wait.
        let counting = counter.all(counter.first());
        std::thread::scope(|scope| {
            scope.spawn(|| counter.add(1));
            drop(counting);
        });
        assert_eq!((used(), counter.count()), (2, 4));
    }

    #[test]
    fn a_bound_on_memory_holds_for_all_stripes_together() {
        let limit = 300_000;
        let (clock, counter) = counter(3_600_000_000_000);
        let counter = counter.max_bytes(limit);
        assert_eq!(counter.most, 4);
        counter.used.store(counter.most, Ordering::Relaxed);
        let events = if cfg!(miri) { 3000 } else { 600_000 };
        for i in 0..events {
            clock.advance(Duration::from_micros(60));
            OWN.set(i % 4);
            counter.inc();
            assert!(i % 1000 > 0 || counter.bytes() <= limit);
        }
        assert_eq!(counter.count() + counter.dropped(), events as u64);
        // The oldest were dropped, up to a block of each stripe.
        let times = saved(&counter);
        assert!(times.is_sorted());
        let age = (clock.now() - times[0]) / 60_000;
        assert!(age <= counter.count() + 4 * 2048, "{age} {}", counter.count());
        assert!(cfg!(miri) || counter.dropped() > 400_000);
    }
}
