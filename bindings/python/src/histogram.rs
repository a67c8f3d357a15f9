//! `Histogram`: counts of observations in buckets.

use pyo3::prelude::*;
use quipu::binding::WithSeries;

use crate::core::{Core, Made, Metric, Slot, metric};
use crate::exemplar;

/// Counts of observations in buckets by size.
#[derive(Default)]
#[pyclass(frozen, subclass, module = "quipu._quipu")]
pub struct Histogram {
    core: Slot<WithSeries<quipu::Histogram>>,
}

metric!(Histogram, WithSeries<quipu::Histogram>, {
    /// Initializes the metric. Its Python class has checked the arguments.
    fn _make(&self, made: Made<'_>, buckets: Vec<f64>) -> PyResult<()> {
        self.take(Core::made(made, |description| description.buckets(buckets).exemplars())?)
    }

    /// Records an observation of `amount`.
    #[pyo3(signature = (amount, exemplar = None))]
    fn observe(&self, amount: f64, exemplar: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let Some(bound) = self.bound() else { return Err(self.unbound("histogram")) };
        bound.instrument.observe(amount);
        match exemplar {
            None => Ok(()),
            Some(pairs) if pairs.is_none() => Ok(()),
            Some(pairs) => exemplar::read(pairs, |pairs| bound.instrument.exemplify(amount, pairs)),
        }
    }
});
