//! `Summary`: a count and a sum without quantiles, as in `prometheus_client`.

use std::ffi::CStr;

use pyo3::prelude::*;
use quipu::binding::WithSeries;

use crate::core::{Core, Made, Metric, Slot, metric};
use crate::fastcall::Counting;

/// The number of observations, and their sum.
#[derive(Default)]
#[pyclass(frozen, subclass, module = "quipu_metrics._quipu")]
pub struct Summary {
    core: Slot<WithSeries<quipu::Summary>>,
}

metric!(Summary, WithSeries<quipu::Summary>, {
    /// Initializes the metric. Its Python class has checked the arguments.
    fn _make(&self, made: Made<'_>) -> PyResult<()> {
        self.take(Core::made(made, |description| description.quantiles([]))?)
    }
});

/// The method `Summary.observe`.
pub struct Observe;

impl Counting for Observe {
    type Class = Summary;
    const NAME: &'static CStr = c"observe";
    const DOC: &'static CStr = c"observe($self, amount)\n--\n\nRecords an observation of `amount`.";
    const PARAMETERS: &'static [&'static str] = &["amount"];
    const DEFAULT: Option<f64> = None;

    #[inline(always)]
    fn count(metric: &Summary, amount: f64, _: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let Some(bound) = metric.bound() else { return Err(metric.unbound("summary")) };
        bound.instrument.observe(amount);
        Ok(())
    }
}
