//! `Gauge`: one value that all processes share, or one value per process.

use std::ffi::CStr;
use std::sync::OnceLock;

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use quipu::{Aggregation, ProcessGauge};

use crate::core::{Core, Made, Metric, Slot, metric};
use crate::fastcall::Counting;

/// A value that goes up and down.
#[derive(Default)]
#[pyclass(frozen, subclass, module = "quipu_metrics._quipu")]
pub struct Gauge {
    core: Slot<ProcessGauge>,
    /// The mode, and whether the gauge refuses `inc` and `dec`.
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

    /// Sets the gauge to the current Unix time in seconds.
    fn set_to_current_time(&self) -> PyResult<()> {
        let Some(bound) = self.bound() else { return Err(self.unbound("gauge")) };
        bound.set_to_current_time();
        Ok(())
    }

    /// Returns the value; with a mode, the value of this process.
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

/// The method `Gauge.inc`.
pub struct Inc;

impl Counting for Inc {
    type Class = Gauge;
    const NAME: &'static CStr = c"inc";
    const DOC: &'static CStr = c"inc($self, amount=1.0)\n--\n\nAdds `amount`.";
    const PARAMETERS: &'static [&'static str] = &["amount"];
    const DEFAULT: Option<f64> = Some(1.0);

    #[inline(always)]
    fn count(metric: &Gauge, amount: f64, _: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let Some(bound) = metric.bound() else { return Err(metric.unbound("gauge")) };
        metric.check_add("inc")?;
        bound.add(amount);
        Ok(())
    }
}

/// The method `Gauge.dec`.
pub struct Dec;

impl Counting for Dec {
    type Class = Gauge;
    const NAME: &'static CStr = c"dec";
    const DOC: &'static CStr = c"dec($self, amount=1.0)\n--\n\nSubtracts `amount`.";
    const PARAMETERS: &'static [&'static str] = &["amount"];
    const DEFAULT: Option<f64> = Some(1.0);

    #[inline(always)]
    fn count(metric: &Gauge, amount: f64, _: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let Some(bound) = metric.bound() else { return Err(metric.unbound("gauge")) };
        metric.check_add("dec")?;
        bound.sub(amount);
        Ok(())
    }
}

/// The method `Gauge.set`.
pub struct Set;

impl Counting for Set {
    type Class = Gauge;
    const NAME: &'static CStr = c"set";
    const DOC: &'static CStr = c"set($self, value)\n--\n\nSets it to `value`.";
    const PARAMETERS: &'static [&'static str] = &["value"];
    const DEFAULT: Option<f64> = None;

    #[inline(always)]
    fn count(metric: &Gauge, amount: f64, _: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let Some(bound) = metric.bound() else { return Err(metric.unbound("gauge")) };
        bound.set(amount);
        Ok(())
    }
}
