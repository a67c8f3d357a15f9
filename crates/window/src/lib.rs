//! Sliding-window counters: how many events there were in the last second, minute, hour.
//!
//! | counter | count | memory | choose it |
//! |---|---|---|---|
//! | [`BucketedWindow`] | never too low; too high by at most the events of one bucket | 8 bytes per bucket | by default |
//! | [`ExactWindow`] | exact to the nanosecond | about 2.2 bytes per event | if one event too many matters |
//! | [`ConstantWindow`] | like `BucketedWindow`, with 20 buckets | half a kilobyte | if even reading a clock costs too much |
//! | [`KeyedWindows`] | like `BucketedWindow`, for each key | bounded; least recently used keys are evicted | to count by client, path, tenant |
//!
//! No counter needs a thread or a timer. `BucketedWindow` and `ConstantWindow` take no lock.
//! `BucketedWindow`, `ExactWindow` and `KeyedWindows` can also count windows of other lengths, from
//! the same additions. You save and load the first three through the trait [`SlidingWindow`];
//! `BucketedWindow` and `KeyedWindows` can live in a segment's file. You inject the
//! [`Clock`](clock::Clock), or pass the time with the event.
//!
//! ```
//! use std::time::Duration;
//! use quipu_window::{BucketedWindow, SlidingWindow};
//!
//! let requests = BucketedWindow::new(Duration::from_secs(60), Duration::from_millis(200))?;
//! requests.inc();
//! requests.add(16);
//! assert_eq!(requests.count(), 17);
//! # Ok::<(), quipu_window::Error>(())
//! ```
//!
//! In a test, give the counter a [`TestClock`](clock::TestClock), and advance it instead of
//! sleeping:
//!
//! ```
//! use std::time::Duration;
//! use quipu_window::clock::TestClock;
//! use quipu_window::{BucketedWindow, SlidingWindow};
//!
//! let clock = TestClock::new();
//! let requests = BucketedWindow::options(Duration::from_secs(60), Duration::from_secs(1))
//!     .build_with_clock(clock.clone())?;
//! requests.inc();
//! clock.advance(Duration::from_secs(59));
//! assert_eq!(requests.count(), 1);
//! clock.advance(Duration::from_secs(2));
//! assert_eq!(requests.count(), 0);
//! # Ok::<(), quipu_window::Error>(())
//! ```
//!
//! The counters follow their clock. This clock reads the wall clock only once, at its start, so
//! setting the wall clock moves no window. If you supply a clock that goes back nevertheless, the
//! window stands still until the clock catches up; no event is lost, and no arithmetic underflows.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(missing_debug_implementations)]
// These can block a forked child forever: see clippy.toml.
#![deny(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types)]

// The example of the README is tested, too.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

mod ring;

#[cfg(not(loom))]
mod bits;
#[cfg(not(loom))]
mod bucketed;
#[cfg(not(loom))]
mod constant;
#[cfg(not(loom))]
mod error;
#[cfg(not(loom))]
mod exact;
#[cfg(not(loom))]
mod json;
#[cfg(not(loom))]
mod keyed;
#[cfg(not(loom))]
mod log;
#[cfg(not(loom))]
mod save;
#[cfg(not(loom))]
mod shape;

#[cfg(not(loom))]
pub use bucketed::{BucketedOptions, BucketedWindow};
#[cfg(not(loom))]
pub use constant::ConstantWindow;
#[cfg(not(loom))]
pub use error::Error;
#[cfg(not(loom))]
#[doc(hidden)]
pub use error::ErrorKind;
#[cfg(not(loom))]
pub use exact::ExactWindow;
#[cfg(not(loom))]
pub use keyed::{KeyedOptions, KeyedWindows, MAX_EVENTS, Ranking};
#[cfg(not(loom))]
pub use ring::PeakSearch;
#[cfg(not(loom))]
pub use save::{LoadReport, SlidingWindow, load_file, save_file, save_file_synced};

/// A region of memory or a file in which counters can live.
///
/// This type and the [clocks](clock) belong to the stable part of the crate quipu-segment. Use them
/// from here, because each version of this crate works with exactly one version of quipu-segment.
#[cfg(not(loom))]
#[doc(inline)]
pub use quipu_segment::Segment;

/// Clocks: nanoseconds that never go back. By default, a counter uses the cheapest clock that fits.
#[cfg(not(loom))]
pub mod clock {
    #[doc(inline)]
    pub use quipu_segment::clock::{CachedClock, Clock, CoarseClock, PreciseClock, TestClock};
}

/// The ring without the counters around it, for the loom models.
#[cfg(loom)]
pub mod model {
    use quipu_segment::Cells;

    use crate::ring::{Lines, Ring};

    /// A ring whose threads share one line, driven by given times in ticks of one nanosecond.
    pub struct Model(Ring);

    impl Model {
        /// Makes a ring for windows of up to `span` ticks that starts at time `now`.
        pub fn new(span: u64, now: u64) -> Self {
            let cells = Cells::private(Ring::cells(span, Lines::ONE));
            let ring = Ring::new(&cells, 1, span, Lines::ONE);
            ring.begin(now);
            Self(ring)
        }

        /// Adds at a given time, like the counters.
        pub fn add(&self, now: u64, n: u64) {
            self.turn(now);
            self.0.add(n);
        }

        /// Counts at a given time, like the counters.
        pub fn count(&self, now: u64, ticks: u64) -> u64 {
            self.turn(now);
            self.0.count(ticks)
        }

        /// Adds and counts at a given time, like the counters.
        pub fn add_and_count(&self, now: u64, n: u64, ticks: u64) -> u64 {
            self.turn(now);
            self.0.add_and_count(n, ticks)
        }

        /// Forgets all events, like the counters.
        pub fn reset(&self) {
            self.0.reset();
        }

        fn turn(&self, now: u64) {
            if self.0.is_due(now) {
                self.0.advance(now);
            }
        }
    }
}
