//! Guards that count operations in progress, for example requests, in a gauge.

use std::borrow::Cow;

use super::gauge::Gauge;
use super::int_gauge::IntGauge;
use super::process_gauge::ProcessGauge;

/// Counts one thing as in progress until you drop this guard of [`Gauge::in_progress`],
/// [`IntGauge::in_progress`] or [`ProcessGauge::in_progress`].
///
/// If the process is killed, its guards are not dropped, so a gauge in a file keeps their count.
/// There, use a [`ProcessGauge`] with [`Aggregation::LiveSum`](crate::Aggregation::LiveSum),
/// because a scrape then omits the values of ended processes.
///
/// In a child of a fork, do not drop a guard of the parent, because this subtracts one again.
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
    Process(Cow<'g, ProcessGauge>),
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

    #[inline]
    pub(super) fn process(gauge: Cow<'g, ProcessGauge>) -> Self {
        gauge.inc();
        Self(AnyGauge::Process(gauge))
    }
}

impl Drop for InProgress<'_> {
    #[inline]
    fn drop(&mut self) {
        match &self.0 {
            AnyGauge::Whole(gauge) => gauge.dec(),
            AnyGauge::Float(gauge) => gauge.dec(),
            AnyGauge::Process(gauge) => gauge.dec(),
        }
    }
}
