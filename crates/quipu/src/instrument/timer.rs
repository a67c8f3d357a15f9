//! Timers: how long something took, into a histogram or a summary.

use std::time::Instant;

use super::histogram::Histogram;

/// Observes the seconds since it was made when it is dropped.
///
/// ```
/// # use quipu::{Description, Histogram, Registry};
/// # let registry = Registry::new();
/// # let latency: Histogram = registry.register(Description::new("latency_seconds", "Latency."))?;
/// {
///     let _timer = latency.start_timer();
///     // The work.
/// }
/// let answer = latency.time(|| 6 * 7);
/// # assert_eq!(answer, 42);
/// # Ok::<(), quipu::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "what is dropped at once measures nothing"]
pub struct Timer<'h> {
    histogram: &'h Histogram,
    start: Instant,
    discarded: bool,
}

impl<'h> Timer<'h> {
    pub(crate) fn start(histogram: &'h Histogram) -> Self {
        Self { histogram, start: Instant::now(), discarded: false }
    }

    /// Observes now, and answers the seconds.
    pub fn stop(mut self) -> f64 {
        self.discarded = true;
        let seconds = self.start.elapsed().as_secs_f64();
        self.histogram.observe(seconds);
        seconds
    }

    /// Does not observe.
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
