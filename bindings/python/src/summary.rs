//! `Summary`: a count and a sum without quantiles, as in `prometheus_client`.

use pyo3::prelude::*;
use quipu::binding::WithSeries;

use crate::core::{Core, Made, Metric, Slot, metric};

/// The number of observations, and their sum.
#[derive(Default)]
#[pyclass(frozen, subclass, module = "quipu._quipu")]
pub struct Summary {
    core: Slot<WithSeries<quipu::Summary>>,
}

metric!(Summary, WithSeries<quipu::Summary>, {
    /// Initializes the metric. Its Python class has checked the arguments.
    fn _make(&self, made: Made<'_>) -> PyResult<()> {
        self.take(Core::made(made, |description| description.quantiles([]))?)
    }

    /// Records an observation of `amount`.
    fn observe(&self, amount: f64) -> PyResult<()> {
        let Some(bound) = self.bound() else { return Err(self.unbound("summary")) };
        bound.instrument.observe(amount);
        Ok(())
    }
});
