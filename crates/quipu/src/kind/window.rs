//! Windows: how much was counted in the last minute or another sliding window, as a gauge.

use std::sync::Arc;
use std::time::Duration;

use quipu_window::{BucketedWindow, SlidingWindow as _};

use crate::description::{Description, Setting};
use crate::error::Error;
use crate::scope::{Register, Scope};
use crate::snapshot;

/// Counts events, and shows how many there were within [`Description::window`], by default one
/// minute. You can keep the window in a file, where it continues after a restart. Processes that
/// share the segment count in the same window.
///
/// A [`TestClock`](crate::TestClock) does not advance a window. To test code that counts in one,
/// use `quipu_window::BucketedWindow`, which you can build with a clock:
/// `BucketedWindow::options(window, accuracy).build_with_clock(clock)`.
///
/// ```
/// use std::time::Duration;
///
/// use quipu::{Description, Registry, Window};
///
/// let registry = Registry::new();
/// let description = Description::new("logins_last_hour", "Logins within an hour.");
/// let logins: Window = registry.register(description.window(Duration::from_secs(3600)))?;
/// logins.inc();
/// logins.add(2);
/// assert_eq!(registry.value("logins_last_hour", &[]), Some(3.0));
/// # Ok::<(), quipu::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Window(Arc<BucketedWindow>);

const DEFAULT_WINDOW: Duration = Duration::from_secs(60);
/// The number of buckets of a window without [`Description::accuracy`].
const BUCKETS: u32 = 300;

/// The name of a window in errors, and the settings that it uses.
const USED: (&str, &[Setting]) = ("a window", &[Setting::Window, Setting::Accuracy]);

impl Window {
    /// Counts `n` events.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.add(n);
    }

    /// Counts one event.
    #[doc(alias = "increment")]
    #[inline]
    pub fn inc(&self) {
        self.add(1);
    }

    /// Returns the number of events in the window.
    pub fn count(&self) -> u64 {
        self.0.count()
    }
}

impl crate::kind::sealed::Sealed for Window {}

impl Register for Window {
    fn register(scope: &Scope, description: Description) -> Result<Self, Error> {
        let window = description.window.unwrap_or(DEFAULT_WINDOW);
        let accuracy = description.accuracy.unwrap_or(window / BUCKETS);
        let name = scope.full_name(&description);
        // Names of records are short: the record is named after a digest of the metric's name.
        let digest = quipu_segment::hash::fnv1a(name.as_bytes());
        let record = format!("window {digest:016x}");
        let fail = |error| Error::window(&name, error);
        let bucketed = BucketedWindow::options(window, accuracy)
            .build_in(scope.registry().segment(), &record)
            .map_err(fail)?;
        let window = Self(Arc::new(bucketed));
        let (shown, begun) = (window.clone(), window.clone());
        let callback = scope
            .callback(description, snapshot::Kind::Gauge, USED, move || shown.count() as f64)?
            .on_reset(move || begun.0.reset());
        scope.registry().register_collector(callback)?;
        Ok(window)
    }
}
