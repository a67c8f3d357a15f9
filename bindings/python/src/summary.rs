//! `Summary`: a count and a sum, as `prometheus_client` has it.

use pyo3::prelude::*;

use crate::core::{Core, Made, Metric, Raw, Slot, metric};

/// How many observations there were, and their sum.
#[derive(Default)]
#[pyclass(frozen, subclass, module = "quipu._quipu")]
pub struct Summary {
    core: Slot<Raw<quipu::Summary>>,
}

metric!(Summary, Raw<quipu::Summary>, {
    /// Makes it of what its Python class has checked.
    fn _make(&self, made: Made<'_>) -> PyResult<()> {
        self.take(Core::made(made, |description| description.quantiles([]))?)
    }

    /// Counts `amount`.
    fn observe(&self, amount: f64) -> PyResult<()> {
        let Some(bound) = self.bound() else { return Err(self.unbound("summary")) };
        bound.instrument.observe(amount);
        Ok(())
    }
});
