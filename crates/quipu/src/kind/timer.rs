//! Timers: guards that observe in a histogram how long something took.

use std::time::Instant;

use super::histogram::Histogram;

/// On drop, observes the seconds since it was started.
///
/// ```
/// # use quipu::{Description, Histogram, Registry};
/// # let registry = Registry::new();
/// # let latency: Histogram = registry.register(Description::new("latency_seconds", "Latency."))?;
/// {
///     let _timer = latency.start_timer();
///     // The work.
/// }
/// let product = latency.time(|| 6 * 7);
/// # assert_eq!(product, 42);
/// # Ok::<(), quipu::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "if unused, the timer stops at once"]
pub struct Timer<'h> {
    histogram: &'h Histogram,
    start: Instant,
    discarded: bool,
}

impl<'h> Timer<'h> {
    pub(crate) fn start(histogram: &'h Histogram) -> Self {
        Self { histogram, start: Instant::now(), discarded: false }
    }

    /// Observes the seconds so far, and returns them.
    pub fn stop(mut self) -> f64 {
        self.discarded = true;
        let seconds = self.start.elapsed().as_secs_f64();
        self.histogram.observe(seconds);
        seconds
    }

    /// Ends the timer without observing.
    pub fn discard(mut self) {
        self.discarded = true;
    }
}

impl Drop for Timer<'_> {
    fn drop(&mut self) {
        if !self.discarded {
            self.histogram.observe(self.start.elapsed().as_secs_f64());
        }
    }
}
