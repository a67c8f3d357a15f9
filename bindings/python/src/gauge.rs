//! `Gauge`: one value that all processes share, or one value per process.

use std::sync::OnceLock;

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use quipu::{Aggregation, ProcessGauge};

use crate::core::{Core, Made, Metric, Slot, metric};

/// A value that goes up and down.
#[derive(Default)]
#[pyclass(frozen, subclass, module = "quipu._quipu")]
pub struct Gauge {
    core: Slot<ProcessGauge>,
    /// Its mode, and whether it refuses `inc` and `dec`.
    mode: OnceLock<(Aggregation, bool)>,
}

metric!(Gauge, ProcessGauge, {
    /// Initializes the metric. Its Python class has checked the arguments.
    fn _make(&self, made: Made<'_>, mode: &str, is_set_only: bool) -> PyResult<()> {
        let mode = mode
            .parse()
            .map_err(|_| PyValueError::new_err(format!("Invalid multiprocess mode: {mode}")))?;
        self.take(Core::made(made, |description| description.aggregation(mode))?)?;
        let _ = self.mode.set((mode, is_set_only));
        self.begin();
        Ok(())
    }

    /// Adds `amount`.
    #[pyo3(signature = (amount = 1.0))]
    fn inc(&self, amount: f64) -> PyResult<()> {
        let Some(bound) = self.bound() else { return Err(self.unbound("gauge")) };
        self.check_add("inc")?;
        bound.add(amount);
        Ok(())
    }

    /// Subtracts `amount`.
    #[pyo3(signature = (amount = 1.0))]
    fn dec(&self, amount: f64) -> PyResult<()> {
        let Some(bound) = self.bound() else { return Err(self.unbound("gauge")) };
        self.check_add("dec")?;
        bound.sub(amount);
        Ok(())
    }

    /// Sets it to `value`.
    fn set(&self, value: f64) -> PyResult<()> {
        let Some(bound) = self.bound() else { return Err(self.unbound("gauge")) };
        bound.set(value);
        Ok(())
    }

    /// Sets it to the current Unix time in seconds.
    fn set_to_current_time(&self) -> PyResult<()> {
        let Some(bound) = self.bound() else { return Err(self.unbound("gauge")) };
        bound.set_to_current_time();
        Ok(())
    }

    /// The value; with a mode, that of this process.
    fn _get(&self) -> PyResult<f64> {
        let Some(bound) = self.bound() else { return Err(self.unbound("gauge")) };
        Ok(bound.get())
    }
} fn adopt(&self, parent: &Self) {
    if let Some(mode) = parent.mode.get() {
        let _ = self.mode.set(*mode);
    }
    self.begin();
});

impl Gauge {
    #[inline]
    fn check_add(&self, method: &str) -> PyResult<()> {
        match self.mode.get() {
            Some((_, true)) => Err(PyRuntimeError::new_err(format!(
                "{method} must not be used with the mostrecent mode"
            ))),
            _ => Ok(()),
        }
    }

    /// Shows a zero at once, except in modes that compare it with the values of other processes.
    fn begin(&self) {
        use Aggregation::{All, LiveAll, LiveSum, Sum};
        let mode = self.mode.get().map(|(mode, _)| *mode);
        if let (Some(bound), Some(All | LiveAll | Sum | LiveSum)) = (self.bound(), mode) {
            bound.add(0.0);
        }
    }
}
