//! A clock that a test advances.

use std::time::Duration;

use quipu_segment::clock;

/// A clock that stands still until you advance it, so tests of
/// [`Description::expire_after`](crate::Description::expire_after) need not sleep. Clones share the
/// time.
///
/// The idle time starts at the first scrape, or [`Registry::value`](crate::Registry::value), after
/// a change: call `value` before you advance the clock. A bound handle still returns the value of
/// an expired series. Windows and [`Summary`](crate::Summary) keep the clock of the machine.
///
/// ```
/// use std::time::Duration;
///
/// use quipu::label::Values;
/// use quipu::{CounterFamily, Description, Registry, TestClock};
///
/// let clock = TestClock::new();
/// let registry = Registry::options().clock(&clock).build()?;
/// let description = Description::new("views", "Views by page.").labels(["page"]);
/// let views: CounterFamily<Values> =
///     registry.register(description.expire_after(Duration::from_secs(60)))?;
/// let home = views.bind(&Values(&["/home"]));
/// home.inc();
/// assert_eq!(registry.value("views_total", &[("page", "/home")]), Some(1.0));
///
/// clock.advance(Duration::from_secs(61));
/// assert_eq!(registry.value("views_total", &[("page", "/home")]), None);
/// assert_eq!(home.get(), 1);
/// # Ok::<(), quipu::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct TestClock(clock::TestClock);

impl TestClock {
    /// Creates a clock that stands at the same time in every run.
    pub fn new() -> Self {
        Self::default()
    }

    /// Advances the time.
    pub fn advance(&self, by: Duration) {
        self.0.advance(by);
    }

    /// Returns the clock for a segment.
    pub(crate) fn inner(&self) -> clock::TestClock {
        self.0.clone()
    }
}
