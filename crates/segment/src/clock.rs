//! Clocks: nanoseconds that never go back. A reading costs from 4 ns, and your tests can set the
//! time.
//!
//! Time is an argument here, never a hidden call: every counter takes its clock, or you pass the
//! time instead. Use [`CoarseClock`] by default: it steps by the kernel's tick (1 to 10 ms), costs
//! a few nanoseconds, and needs no thread. [`PreciseClock`] steps by nanoseconds and costs five
//! times as much. Use [`CachedClock`] in a loop that already knows the time, because it only costs
//! a load. [`TestClock`] is for tests.
//!
//! All clocks count from 1970. They read the wall clock only once, when they are created, so
//! setting the wall clock later does not move them. After a suspend, they advance by the time that
//! the machine slept.

use std::time::Duration;

use crate::sync::{Arc, AtomicU64, Ordering};

/// A source of time in nanoseconds. It never goes back by more than its readers tolerate.
///
/// ```
/// use std::time::Instant;
/// use quipu_segment::clock::Clock;
///
/// /// The nanoseconds since the start of a simulation.
/// struct Simulated(Instant);
///
/// impl Clock for Simulated {
///     fn now(&self) -> u64 {
///         self.0.elapsed().as_nanos() as u64 * 60
///     }
/// }
///
/// let clock = Simulated(Instant::now());
/// assert!(clock.now() <= clock.now());
/// ```
pub trait Clock {
    /// Returns the current time in nanoseconds.
    fn now(&self) -> u64;

    /// Returns the current time in nanoseconds, including events that [`Clock::now`] is too cheap
    /// to notice, such as a suspend of the machine. Counters call this when a bucket begins.
    fn settle(&self) -> u64 {
        self.now()
    }

    /// Returns the wall clock's Unix time in nanoseconds, which can jump in either direction. This
    /// is the date of saved data.
    fn unix(&self) -> u64 {
        self.now()
    }
}

impl<C: Clock + ?Sized> Clock for &C {
    #[inline]
    fn now(&self) -> u64 {
        (**self).now()
    }

    fn settle(&self) -> u64 {
        (**self).settle()
    }

    fn unix(&self) -> u64 {
        (**self).unix()
    }
}

#[cfg(not(loom))]
pub use system::{CachedClock, CoarseClock, PreciseClock};

/// A clock that stands still until you set it. Use it in tests, or if you take the time from
/// events. Its clones share its time.
///
/// ```
/// use std::time::Duration;
/// use quipu_segment::clock::{Clock, TestClock};
///
/// let clock = TestClock::new();
/// let start = clock.now();
/// clock.clone().advance(Duration::from_secs(1));
/// assert_eq!(clock.now() - start, 1_000_000_000);
/// ```
#[derive(Debug, Clone)]
pub struct TestClock {
    now: Arc<AtomicU64>,
    /// The lead of the wall clock, modulo 2^64.
    ahead: Arc<AtomicU64>,
}

impl TestClock {
    /// Creates a clock that stands at the same time in every run, 14 November 2023.
    pub fn new() -> Self {
        Self::from_nanos(START)
    }

    /// Creates a clock that stands at `now` nanoseconds since 1970.
    pub fn from_nanos(now: u64) -> Self {
        Self { now: Arc::new(AtomicU64::new(now)), ahead: Arc::new(AtomicU64::new(0)) }
    }

    /// Sets the time, in nanoseconds since 1970. You can also set it back.
    pub fn set(&self, now_ns: u64) {
        self.now.store(now_ns, Ordering::Relaxed);
    }

    /// Advances the time, at most to the last nanosecond that fits into 64 bits.
    pub fn advance(&self, by: Duration) {
        let by = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        // Use a single step, because a thread that was stopped between two would set the time back.
        let advance = |now: u64| Some(now.saturating_add(by));
        let _ = self.now.fetch_update(Ordering::Relaxed, Ordering::Relaxed, advance);
    }

    /// Sets the wall clock, in nanoseconds since 1970, which is otherwise equal to this clock. The
    /// wall clock advances with this clock.
    pub fn set_unix(&self, unix_ns: u64) {
        self.ahead.store(unix_ns.wrapping_sub(self.now()), Ordering::Relaxed);
    }
}

impl Default for TestClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for TestClock {
    #[inline]
    fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    fn unix(&self) -> u64 {
        self.now().wrapping_add(self.ahead.load(Ordering::Relaxed))
    }
}

/// The time of a new [`TestClock`].
const START: u64 = 1_700_000_000_000_000_000;

#[cfg(not(loom))]
mod system {
    use super::*;
    use crate::anchor::Anchor;
    #[cfg(all(target_os = "linux", not(miri)))]
    use crate::readings::read;
    use crate::readings::{Readings, since_boot, unix};

    /// The kernel's tick: cheap, monotonic on every core, with steps of 1 to 10 ms.
    ///
    /// A suspend is noticed at the next [`Clock::settle`]. After the machine wakes, a counter is
    /// therefore late by at most one of its buckets.
    ///
    /// ```
    /// use quipu_segment::clock::{Clock, CoarseClock};
    ///
    /// let clock = CoarseClock::new();
    /// let start = clock.now();
    /// assert!(clock.now() - start < 1_000_000_000);
    /// ```
    #[derive(Debug, Clone)]
    pub struct CoarseClock {
        shift: Arc<Shift>,
    }

    /// The offset to the monotonic clock, on a separate cache line.
    #[derive(Debug)]
    #[repr(align(64))]
    struct Shift {
        /// The anchor plus the time that the machine was suspended since boot.
        shift: AtomicU64,
        anchor: Anchor,
    }

    impl CoarseClock {
        /// Creates a clock that starts at the wall clock's time.
        pub fn new() -> Self {
            Self::anchored(Anchor::at_wall(&Readings::now()))
        }

        /// Returns the clock of a segment: all processes that share the segment read the same time.
        #[doc(hidden)]
        pub fn anchored(anchor: Anchor) -> Self {
            let shift = AtomicU64::new(anchor.offset().wrapping_add(suspended()));
            Self { shift: Arc::new(Shift { shift, anchor }) }
        }
    }

    impl Default for CoarseClock {
        fn default() -> Self {
            Self::new()
        }
    }

    impl Clock for CoarseClock {
        #[inline]
        fn now(&self) -> u64 {
            self.shift.shift.load(Ordering::Relaxed).wrapping_add(coarse())
        }

        fn settle(&self) -> u64 {
            let found = self.shift.anchor.offset().wrapping_add(suspended());
            let known = self.shift.shift.load(Ordering::Relaxed);
            // Two clocks cannot be read at the same instant, so a smaller difference is the time
            // between the reads.
            if found.wrapping_sub(known).cast_signed() > SUSPEND {
                self.shift.shift.store(found, Ordering::Relaxed);
            }
            self.now()
        }

        fn unix(&self) -> u64 {
            unix()
        }
    }

    /// The time since boot to the nanosecond, including suspended time.
    ///
    /// ```
    /// use quipu_segment::clock::{Clock, PreciseClock};
    ///
    /// let clock = PreciseClock::new();
    /// let start = clock.now();
    /// std::hint::black_box((0..1000).sum::<u64>());
    /// assert!(clock.now() > start);
    /// ```
    #[derive(Debug, Clone, Copy)]
    pub struct PreciseClock {
        anchor: Anchor,
    }

    impl PreciseClock {
        /// Creates a clock that starts at the wall clock's time.
        pub fn new() -> Self {
            Self::anchored(Anchor::at_wall(&Readings::now()))
        }

        /// Returns the clock of a segment: all processes that share the segment read the same time.
        #[doc(hidden)]
        pub fn anchored(anchor: Anchor) -> Self {
            Self { anchor }
        }
    }

    impl Default for PreciseClock {
        fn default() -> Self {
            Self::new()
        }
    }

    impl Clock for PreciseClock {
        #[inline]
        fn now(&self) -> u64 {
            self.anchor.offset().wrapping_add(since_boot())
        }

        fn unix(&self) -> u64 {
            unix()
        }
    }

    /// The last noted time: reading it costs a load instead of a clock.
    ///
    /// Call [`CachedClock::note`] once per iteration of your loop. A counter on this clock is late
    /// by at most the age of the last iteration. Clones share the noted time.
    ///
    /// ```
    /// use quipu_segment::clock::{CachedClock, Clock};
    ///
    /// let clock = CachedClock::new();
    /// let noted = clock.note();
    /// assert_eq!(clock.now(), noted);
    /// assert_eq!(clock.clone().now(), noted);
    /// ```
    #[derive(Debug, Clone, Default)]
    pub struct CachedClock {
        source: CoarseClock,
        now: Arc<AtomicU64>,
    }

    impl CachedClock {
        /// Creates a clock that stands at the wall clock's time until the next note.
        pub fn new() -> Self {
            let noted = Self::default();
            noted.note();
            noted
        }

        /// Notes the current time, and returns it.
        pub fn note(&self) -> u64 {
            let now = self.source.settle();
            // Two threads that note at once must not move the time back.
            self.now.fetch_max(now, Ordering::Relaxed);
            now
        }
    }

    impl Clock for CachedClock {
        #[inline]
        fn now(&self) -> u64 {
            self.now.load(Ordering::Relaxed)
        }

        fn unix(&self) -> u64 {
            unix()
        }
    }

    /// The shortest suspend that is noticed.
    const SUSPEND: i64 = 1_000_000;

    /// The greatest distance of two readings that still counts as the same instant.
    #[cfg(all(target_os = "linux", not(miri)))]
    const MOMENT: u64 = 100_000;

    #[cfg(all(target_os = "linux", not(miri)))]
    #[inline]
    fn coarse() -> u64 {
        read(rustix::time::ClockId::MonotonicCoarse)
    }

    #[cfg(any(not(target_os = "linux"), miri))]
    fn coarse() -> u64 {
        since_boot()
    }

    /// Returns the nanoseconds that the machine was suspended since boot.
    #[cfg(all(target_os = "linux", not(miri)))]
    fn suspended() -> u64 {
        let monotonic = || read(rustix::time::ClockId::Monotonic);
        // An interruption of the thread between two readings would look like a suspend, so we use
        // only two close readings, or else the closest of a few.
        let (mut closest, mut found) = (u64::MAX, 0);
        for _ in 0..8 {
            let (before, all, after) = (monotonic(), since_boot(), monotonic());
            if after - before < closest {
                (closest, found) = (after - before, all.saturating_sub(before));
            }
            if closest < MOMENT {
                break;
            }
        }
        found
    }

    #[cfg(any(not(target_os = "linux"), miri))]
    fn suspended() -> u64 {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_advance() {
        let (coarse, precise, noted) =
            (CoarseClock::new(), PreciseClock::new(), CachedClock::new());
        let before = (coarse.now(), precise.now(), noted.now());
        std::thread::sleep(Duration::from_millis(25));
        assert!(coarse.now() > before.0);
        assert!(precise.now() > before.1);
        assert_eq!(noted.now(), before.2);
        noted.note();
        assert!(noted.now() > before.2);
    }

    #[test]
    fn settling_without_a_suspend_changes_nothing() {
        let coarse = CoarseClock::new();
        let now = coarse.now();
        assert!(coarse.settle() - now < 1_000_000_000);
        assert!(coarse.now() - now < 1_000_000_000);
    }

    #[test]
    fn clones_of_a_test_clock_share_its_time() {
        let clock = TestClock::from_nanos(5);
        let other = clock.clone();
        clock.advance(Duration::from_nanos(7));
        assert_eq!(other.now(), 12);
        other.set(3);
        assert_eq!(clock.now(), 3);
        clock.advance(Duration::MAX);
        assert_eq!(clock.now(), u64::MAX);
    }
}
