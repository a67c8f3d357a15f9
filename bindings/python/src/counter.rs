//! `Counter`: a sum that only increases.

use std::ffi::CStr;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use quipu::MixedCounter;
use quipu::binding::WithSeries;

use crate::core::{Core, Made, Metric, Slot, metric};
use crate::exemplar;
use crate::fastcall::Counting;

/// A sum that only increases.
#[derive(Default)]
#[pyclass(frozen, subclass, module = "quipu_metrics._quipu")]
pub struct Counter {
    core: Slot<WithSeries<MixedCounter>>,
}

metric!(Counter, WithSeries<MixedCounter>, {
    /// Initializes the metric. Its Python class has already checked the arguments.
    fn _make(&self, made: Made<'_>) -> PyResult<()> {
        self.take(Core::made(made, |description| description.exemplars())?)
    }

    /// Sets the total to zero for all processes, and the creation time to now.
    fn reset(&self) -> PyResult<()> {
        let Some(bound) = self.bound() else { return Err(self.unbound("counter")) };
        bound.instrument.reset();
        bound.series.restart();
        Ok(())
    }

    /// Returns the total of all processes.
    fn _get(&self) -> PyResult<f64> {
        let Some(bound) = self.bound() else { return Err(self.unbound("counter")) };
        Ok(bound.instrument.get())
    }
});

/// The method `Counter.inc`.
pub struct Inc;

impl Counting for Inc {
    type Class = Counter;
    const NAME: &'static CStr = c"inc";
    const DOC: &'static CStr = c"inc($self, amount=1.0, exemplar=None)\n--\n\nAdds `amount`.";
    const PARAMETERS: &'static [&'static str] = &["amount", "exemplar"];
    const DEFAULT: Option<f64> = Some(1.0);

    #[inline(always)]
    fn count(metric: &Counter, amount: f64, exemplar: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let Some(bound) = metric.bound() else { return Err(metric.unbound("counter")) };
        if amount < 0.0 {
            return Err(negative());
        }
        if amount == 1.0 {
            bound.instrument.inc();
        } else {
            bound.instrument.inc_by(amount);
        }
        match exemplar {
            None => Ok(()),
            Some(pairs) => {
                exemplar::read(pairs, |pairs| bound.instrument.set_exemplar(amount, pairs))
            }
        }
    }
}

#[cold]
fn negative() -> PyErr {
    PyValueError::new_err("Counters can only be incremented by non-negative amounts.")
}
