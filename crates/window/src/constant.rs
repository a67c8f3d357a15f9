//! A few buckets and a time that somebody else noted: the cheapest window there is.

use std::io::{Read, Write};
use std::time::Duration;

use quipu_segment::clock::{Clock, Noted};

use crate::bucketed::Bucketed;
use crate::error::Error;
use crate::save::{Loaded, Window};

/// A sliding window in a few buckets, on a clock that costs a load.
///
/// It is for code that already knows roughly what time it is: an event loop, a server that handles
/// a batch, a simulation. Whoever runs the loop calls [`Noted::note`] once a turn; adding and
/// counting then read no clock at all. There is no timer, no thread, nothing to stop.
///
/// # Error bound
/// That of [`Bucketed`], with an accuracy of the window divided by its resolution (20 unless
/// another is given): never too small, and too great by at most the events of one bucket, a
/// twentieth of the window. To this comes the age of the note: what happens between two notes
/// counts as if it happened at the first.
///
/// # Cost
/// Adding is one addition, counting a subtraction; when a bucket ends, one caller fills a cell for
/// each bucket that has passed, at most as many as the resolution. The memory is the same for
/// ever: half a kilobyte and a cache line for each CPU.
#[derive(Debug, Clone)]
pub struct Constant<C = Noted> {
    buckets: Bucketed<C>,
    clock: C,
}

impl Constant {
    /// Makes a counter of 20 buckets, and a clock for it that stands until it is noted.
    ///
    /// # Errors
    /// Windows that are zero, over 292 years, or no multiple of 20 nanoseconds.
    pub fn new(window: Duration) -> Result<Self, Error> {
        Self::on(Noted::new(), window, RESOLUTION)
    }
}

impl<C: Clock + Clone> Constant<C> {
    /// Makes a counter of `resolution` buckets on a clock of the caller's.
    ///
    /// # Errors
    /// Windows that are zero, over 292 years, or no multiple of so many nanoseconds.
    pub fn on(clock: C, window: Duration, resolution: u32) -> Result<Self, Error> {
        // A resolution of zero makes an accuracy over the window, which is refused as such.
        let accuracy = window.checked_div(resolution).unwrap_or(Duration::ZERO);
        if !accuracy.is_zero() && accuracy * resolution != window {
            return Err(Error::NotMultiple { window, accuracy });
        }
        let buckets = Bucketed::options(window, accuracy).private_on(clock.clone())?;
        Ok(Self { buckets, clock })
    }

    /// The clock that it counts by.
    pub fn clock(&self) -> &C {
        &self.clock
    }

    /// The width of a bucket.
    pub fn accuracy(&self) -> Duration {
        self.buckets.accuracy()
    }

    /// The greatest rate in events a second that a bucket of the window had.
    pub fn max_rate(&self) -> f64 {
        self.buckets.max_rate_over(self.buckets.own())
    }
}

impl<C: Clock> Window for Constant<C> {
    fn window(&self) -> Duration {
        self.buckets.window()
    }

    #[inline]
    fn add(&self, n: u64) {
        self.buckets.add(n);
    }

    #[inline]
    fn count(&self) -> u64 {
        self.buckets.count()
    }

    #[inline]
    fn add_and_count(&self, n: u64) -> u64 {
        self.buckets.add_and_count(n)
    }

    fn rate(&self) -> f64 {
        self.buckets.rate()
    }

    fn reset(&self) {
        self.buckets.reset();
    }

    /// Writes the same JSON as [`Bucketed`].
    fn save(&self, out: &mut dyn Write) -> Result<(), Error> {
        self.buckets.save(out)
    }

    fn load(&mut self, input: &mut dyn Read) -> Result<Loaded, Error> {
        self.buckets.load(input)
    }
}

/// The buckets of a window, as `paulbellamy/ratecounter` has them.
const RESOLUTION: u32 = 20;
