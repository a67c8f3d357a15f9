//! Guards that count things as in progress.

use std::borrow::Cow;

use super::gauge::Gauge;
use super::int_gauge::IntGauge;

/// Counts one thing as in progress until you drop this guard of [`Gauge::in_progress`] or
/// [`IntGauge::in_progress`].
///
/// If the process is killed, its guards are not dropped, so a gauge in a file keeps their count.
/// There, use a [`ProcessGauge`](crate::ProcessGauge) with
/// [`Aggregation::LiveSum`](crate::Aggregation::LiveSum), because a scrape then omits the values
/// of ended processes.
///
/// ```
/// # let registry = quipu::Registry::new();
/// let running = registry.int_gauge("jobs_running", "Running jobs.")?;
/// let guard = running.in_progress_owned();
/// assert_eq!(running.get(), 1);
/// std::thread::spawn(move || drop(guard)).join().unwrap();
/// assert_eq!(running.get(), 0);
/// # Ok::<(), quipu::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "if unused, the gauge is decremented at once"]
pub struct InProgress<'g>(AnyGauge<'g>);

#[derive(Debug)]
enum AnyGauge<'g> {
    Whole(Cow<'g, IntGauge>),
    Float(Cow<'g, Gauge>),
}

impl<'g> InProgress<'g> {
    #[inline]
    pub(super) fn whole(gauge: Cow<'g, IntGauge>) -> Self {
        gauge.inc();
        Self(AnyGauge::Whole(gauge))
    }

    #[inline]
    pub(super) fn float(gauge: Cow<'g, Gauge>) -> Self {
        gauge.inc();
        Self(AnyGauge::Float(gauge))
    }
}

impl Drop for InProgress<'_> {
    #[inline]
    fn drop(&mut self) {
        match &self.0 {
            AnyGauge::Whole(gauge) => gauge.dec(),
            AnyGauge::Float(gauge) => gauge.dec(),
        }
    }
}
