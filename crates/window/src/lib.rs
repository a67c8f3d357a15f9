//! Sliding-window counters: how many events there were in the last second, minute, hour.
//!
//! | counter | answers | memory | choose it |
//! |---|---|---|---|
//! | [`Bucketed`] | never too few, too many by at most the events of one bucket | 8 bytes a bucket | unless there is a reason |
//! | [`Exact`] | exact to the nanosecond | about 2.3 bytes an event | where an event too many matters |
//! | [`Constant`] | as `Bucketed`, in 20 buckets | half a kilobyte | where even a clock is too dear |
//! | [`Keyed`] | as `Bucketed`, for each key | bounded, oldest keys leave | to count by client, path, tenant |
//!
//! None keeps a thread or a timer. `Bucketed` and `Constant` take no lock; `Bucketed`, `Exact` and
//! `Keyed` count other windows too, at the price of one add. The first three are saved and loaded
//! by the trait [`Window`]; `Bucketed` and `Keyed` can live in a segment's file. Time comes from a
//! [`Clock`](quipu_segment::clock::Clock) that is injected, or is given with the event.
//!
//! ```
//! use std::time::Duration;
//! use quipu_window::{Bucketed, Window};
//!
//! let requests = Bucketed::new(Duration::from_secs(60), Duration::from_millis(200))?;
//! requests.increment();
//! requests.add(16);
//! assert_eq!(requests.count(), 17);
//! # Ok::<(), quipu_window::Error>(())
//! ```
//!
//! The counters keep the clock's time, which follows the wall clock only when it begins: setting
//! the wall clock moves no window. Where a clock that the program supplies goes back all the same,
//! the window stands still until it has caught up; nothing is lost and nothing underflows.

// A child of a fork would wait for ever: see clippy.toml.
#![deny(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types)]

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
pub use bucketed::{Bucketed, BucketedOptions, Over};
#[cfg(not(loom))]
pub use constant::Constant;
#[cfg(not(loom))]
pub use error::Error;
#[cfg(not(loom))]
pub use exact::Exact;
#[cfg(not(loom))]
pub use keyed::{Keyed, KeyedOptions, MOST_EVENTS, Ranking};
#[cfg(not(loom))]
pub use ring::Peak;
#[cfg(not(loom))]
pub use save::{Loaded, Window, load_file, save_file, save_file_synced};

/// The ring alone, for the models that loom checks.
#[cfg(loom)]
pub mod model {
    use quipu_segment::Cells;

    use crate::ring::{Lines, Ring};

    /// A ring with one line for all, driven by given times in ticks of one nanosecond.
    pub struct Model(Ring);

    impl Model {
        /// A ring for windows of up to `span` ticks that begins at time `now`.
        pub fn new(span: u64, now: u64) -> Self {
            let cells = Cells::private(Ring::cells(span, Lines::ONE));
            let ring = Ring::new(&cells, 1, span, Lines::ONE);
            ring.begin(now);
            Self(ring)
        }

        /// Adds at a time, as the counters do.
        pub fn add(&self, now: u64, n: u64) {
            self.turn(now);
            self.0.add(n);
        }

        /// Counts at a time, as the counters do.
        pub fn count(&self, now: u64, ticks: u64) -> u64 {
            self.turn(now);
            self.0.count(ticks)
        }

        /// Adds and counts at a time, as the counters do.
        pub fn add_and_count(&self, now: u64, n: u64, ticks: u64) -> u64 {
            self.turn(now);
            self.0.add_and_count(n, ticks)
        }

        /// Forgets, as the counters do.
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
