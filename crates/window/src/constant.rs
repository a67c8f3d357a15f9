//! [`ConstantWindow`], the cheapest window: a few buckets, on a clock that the program sets.

use std::io::{Read, Write};
use std::time::Duration;

use crate::clock::{CachedClock, Clock};

use crate::bucketed::BucketedWindow;
use crate::error::{Error, ErrorKind};
use crate::save::sealed::Sealed;
use crate::save::{LoadReport, SlidingWindow};

/// A sliding window in a few buckets, on a clock whose reading costs one load.
///
/// Use this in code that already knows roughly what time it is: for example, an event loop, a
/// server that handles a batch, or a simulation. The loop calls [`CachedClock::note`] once per
/// iteration; adding and counting then read no clock. There is no timer and no thread, so you need
/// not stop anything.
///
/// # Error bound
/// The error bound of [`BucketedWindow`], with an accuracy of the window divided by the resolution
/// (20 by default): never too low, and too high by at most the events of one bucket, by default a
/// twentieth of the window. The age of the noted time adds to this, because an event between two
/// notes counts like one at the first note.
///
/// # Cost
/// Adding is one addition, counting one subtraction. When a bucket ends, one caller fills a cell
/// for each elapsed bucket, at most the number of buckets in the window. The memory is fixed: half
/// a kilobyte, and a cache line for each CPU.
///
/// ```
/// use std::time::Duration;
/// use quipu_window::{ConstantWindow, SlidingWindow};
///
/// let events = ConstantWindow::new(Duration::from_secs(60))?;
/// for batch in [3, 14] {
///     events.clock().note();
///     events.add(batch);
/// }
/// assert_eq!(events.count(), 17);
/// # Ok::<(), quipu_window::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct ConstantWindow<C = CachedClock> {
    buckets: BucketedWindow<C>,
    clock: C,
}

impl ConstantWindow {
    /// Creates a counter of 20 buckets, with a new clock that stands still until you call
    /// [`CachedClock::note`].
    ///
    /// # Errors
    /// If the window is zero, longer than 292 years, or not a multiple of 20 nanoseconds.
    pub fn new(window: Duration) -> Result<Self, Error> {
        Self::with_clock(window, RESOLUTION, CachedClock::new())
    }
}

impl<C: Clock + Clone> ConstantWindow<C> {
    /// Creates a counter of `resolution` buckets on the given clock.
    ///
    /// # Errors
    /// If the resolution is zero, or if the window is zero, longer than 292 years, or not a
    /// multiple of `resolution` nanoseconds.
    pub fn with_clock(window: Duration, resolution: u32, clock: C) -> Result<Self, Error> {
        // A resolution of zero becomes an accuracy of zero, which is refused below.
        let accuracy = window.checked_div(resolution).unwrap_or(Duration::ZERO);
        if !accuracy.is_zero() && accuracy * resolution != window {
            return Err(ErrorKind::NotMultiple { window, accuracy }.into());
        }
        let buckets = BucketedWindow::options(window, accuracy).build_with_clock(clock.clone())?;
        Ok(Self { buckets, clock })
    }

    /// Returns the counter's clock.
    pub fn clock(&self) -> &C {
        &self.clock
    }

    /// Returns the width of a bucket.
    pub fn accuracy(&self) -> Duration {
        self.buckets.accuracy()
    }

    /// Returns the highest rate of a bucket in the window, in events per second.
    pub fn max_rate(&self) -> f64 {
        self.buckets.max_rate()
    }
}

impl<C: Clock> Sealed for ConstantWindow<C> {}

impl<C: Clock> SlidingWindow for ConstantWindow<C> {
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

    /// Writes the same JSON as [`BucketedWindow`].
    fn save(&self, out: &mut dyn Write) -> Result<(), Error> {
        self.buckets.save(out)
    }

    fn load(&mut self, input: &mut dyn Read) -> Result<LoadReport, Error> {
        self.buckets.load(input)
    }
}

/// The default number of buckets, as in `paulbellamy/ratecounter`.
const RESOLUTION: u32 = 20;
