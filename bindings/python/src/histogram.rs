//! `Histogram`: counts of observations in buckets.

use std::ffi::CStr;

use pyo3::prelude::*;
use quipu::binding::WithSeries;

use crate::core::{Core, Made, Metric, Slot, metric};
use crate::exemplar;
use crate::fastcall::Counting;

/// Counts of observations in buckets by size.
#[derive(Default)]
#[pyclass(frozen, subclass, module = "quipu_metrics._quipu")]
pub struct Histogram {
    core: Slot<WithSeries<quipu::Histogram>>,
}

metric!(Histogram, WithSeries<quipu::Histogram>, {
    /// Initializes the metric. Its Python class has checked the arguments.
    fn _make(&self, made: Made<'_>, buckets: Vec<f64>) -> PyResult<()> {
        self.take(Core::made(made, |description| description.buckets(buckets).exemplars())?)
    }
});

/// The method `Histogram.observe`.
pub struct Observe;

impl Counting for Observe {
    type Class = Histogram;
    const NAME: &'static CStr = c"observe";
    const DOC: &'static CStr =
        c"observe($self, amount, exemplar=None)\n--\n\nRecords an observation of `amount`.";
    const PARAMETERS: &'static [&'static str] = &["amount", "exemplar"];
    const DEFAULT: Option<f64> = None;

    #[inline(always)]
    fn count(metric: &Histogram, amount: f64, exemplar: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let Some(bound) = metric.bound() else { return Err(metric.unbound("histogram")) };
        bound.instrument.observe(amount);
        match exemplar {
            None => Ok(()),
            Some(pairs) => {
                exemplar::read(pairs, |pairs| bound.instrument.set_exemplar(amount, pairs))
            }
        }
    }
}
