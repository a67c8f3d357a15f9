//! `Gauge`: one value that all processes share, or one for each.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use quipu::{Aggregation, ProcessGauge};

use crate::core::{Core, metric};
use crate::error;

/// A value that goes up and down.
#[pyclass(frozen, subclass, module = "quipu._quipu")]
pub struct Gauge {
    core: Core<ProcessGauge>,
    mode: Aggregation,
}

metric!(Gauge, ProcessGauge, {
    #[new]
    #[pyo3(signature = (origin, name, help = String::new(), unit = String::new(), labelnames = vec![], mode = "mostrecent"))]
    fn new(
        origin: &Bound<'_, PyAny>,
        name: &Bound<'_, PyAny>,
        help: String,
        unit: String,
        labelnames: Vec<String>,
        mode: &str,
    ) -> PyResult<Self> {
        let mode = match origin.cast::<Self>() {
            Ok(parent) => parent.get().mode,
            Err(_) => mode
                .parse()
                .map_err(|_| PyValueError::new_err(format!("Invalid multiprocess mode: {mode}")))?,
        };
        let describe = |description: quipu::Description| description.aggregation(mode);
        let core = Core::new::<Self>(origin, name, (help, unit, labelnames), describe)?;
        let made = Self { core, mode };
        made.begin();
        Ok(made)
    }

    /// Adds `amount`.
    #[pyo3(signature = (amount = 1.0))]
    fn inc(&self, amount: f64) -> PyResult<()> {
        let Some(bound) = &self.core.bound else { return Err(error::no_labels("gauge")) };
        bound.add(amount);
        Ok(())
    }

    /// Takes `amount` away.
    #[pyo3(signature = (amount = 1.0))]
    fn dec(&self, amount: f64) -> PyResult<()> {
        let Some(bound) = &self.core.bound else { return Err(error::no_labels("gauge")) };
        bound.sub(amount);
        Ok(())
    }

    /// Makes it `value`.
    fn set(&self, value: f64) -> PyResult<()> {
        let Some(bound) = &self.core.bound else { return Err(error::no_labels("gauge")) };
        bound.set(value);
        Ok(())
    }

    /// Makes it the wall clock's time, in seconds since 1970.
    fn set_to_current_time(&self) -> PyResult<()> {
        let Some(bound) = &self.core.bound else { return Err(error::no_labels("gauge")) };
        bound.set_to_current_time();
        Ok(())
    }

    /// The value; this process' own, where each has one.
    fn _get(&self) -> PyResult<f64> {
        let Some(bound) = &self.core.bound else { return Err(error::no_labels("gauge")) };
        Ok(bound.get())
    }
});

impl Gauge {
    /// What it is bound to.
    pub fn bound(&self) -> Option<&ProcessGauge> {
        self.core.bound.as_ref()
    }

    /// Shows a zero at once, where it is no value that others' would be compared with.
    fn begin(&self) {
        use Aggregation::{All, LiveAll, LiveSum, Sum};
        if let (Some(bound), All | LiveAll | Sum | LiveSum) = (&self.core.bound, self.mode) {
            bound.add(0.0);
        }
    }
}
