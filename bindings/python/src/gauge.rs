//! `Gauge`: one value that all processes share.

use pyo3::prelude::*;

use crate::core::{Core, metric};
use crate::error;

/// A value that goes up and down.
#[pyclass(frozen, subclass, module = "quipu._quipu")]
pub struct Gauge {
    core: Core<quipu::Gauge>,
}

metric!(Gauge, quipu::Gauge, {
    #[new]
    #[pyo3(signature = (origin, name, help = String::new(), unit = String::new(), labelnames = vec![]))]
    fn new(
        origin: &Bound<'_, PyAny>,
        name: &Bound<'_, PyAny>,
        help: String,
        unit: String,
        labelnames: Vec<String>,
    ) -> PyResult<Self> {
        let core = Core::new::<Self>(origin, name, (help, unit, labelnames), |d| d)?;
        Ok(Self { core })
    }

    /// Adds `amount`.
    #[pyo3(signature = (amount = 1.0))]
    fn inc(&self, amount: f64) -> PyResult<()> {
        let Some(bound) = &self.core.bound else { return Err(error::no_labels("gauge")) };
        bound.instrument.add(amount);
        Ok(())
    }

    /// Takes `amount` away.
    #[pyo3(signature = (amount = 1.0))]
    fn dec(&self, amount: f64) -> PyResult<()> {
        let Some(bound) = &self.core.bound else { return Err(error::no_labels("gauge")) };
        bound.instrument.sub(amount);
        Ok(())
    }

    /// Makes it `value`.
    fn set(&self, value: f64) -> PyResult<()> {
        let Some(bound) = &self.core.bound else { return Err(error::no_labels("gauge")) };
        bound.instrument.set(value);
        Ok(())
    }

    /// Makes it the wall clock's time, in seconds since 1970.
    fn set_to_current_time(&self) -> PyResult<()> {
        let Some(bound) = &self.core.bound else { return Err(error::no_labels("gauge")) };
        bound.instrument.set_to_current_time();
        Ok(())
    }

    /// The value.
    fn _get(&self) -> PyResult<f64> {
        let Some(bound) = &self.core.bound else { return Err(error::no_labels("gauge")) };
        Ok(bound.instrument.get())
    }
});

impl Gauge {
    /// What it is bound to.
    pub fn bound(&self) -> Option<&crate::core::Raw<quipu::Gauge>> {
        self.core.bound.as_ref()
    }
}
