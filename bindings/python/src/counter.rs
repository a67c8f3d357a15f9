//! `Counter`.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use quipu::FloatCounter;

use crate::core::{Core, Raw, metric};
use crate::{error, exemplar};

/// A sum that only grows.
#[pyclass(frozen, subclass, module = "quipu._quipu")]
pub struct Counter {
    core: Core<Raw<FloatCounter>>,
}

/// The cell of the total.
const TOTAL: usize = 0;

metric!(Counter, Raw<FloatCounter>, {
    #[new]
    #[pyo3(signature = (origin, name, help = String::new(), unit = String::new(), labelnames = vec![]))]
    fn new(
        origin: &Bound<'_, PyAny>,
        name: &Bound<'_, PyAny>,
        help: String,
        unit: String,
        labelnames: Vec<String>,
    ) -> PyResult<Self> {
        let describe = |description: quipu::Description| description.exemplars();
        let core = Core::new::<Self>(origin, name, (help, unit, labelnames), describe)?;
        Ok(Self { core })
    }

    /// Adds `amount`.
    #[pyo3(signature = (amount = 1.0, exemplar = None))]
    fn inc(&self, amount: f64, exemplar: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let Some(bound) = &self.core.bound else { return Err(error::no_labels("counter")) };
        if amount < 0.0 {
            return Err(negative());
        }
        bound.instrument.inc_by(amount);
        match exemplar {
            None => Ok(()),
            Some(pairs) if pairs.is_none() => Ok(()),
            Some(pairs) => exemplar::read(pairs, |pairs| bound.instrument.exemplify(amount, pairs)),
        }
    }

    /// Makes it zero, for all processes.
    fn reset(&self) -> PyResult<()> {
        let Some(bound) = &self.core.bound else { return Err(error::no_labels("counter")) };
        bound.series.place().clear(TOTAL);
        Ok(())
    }

    /// The total of all processes.
    fn _get(&self) -> PyResult<f64> {
        let Some(bound) = &self.core.bound else { return Err(error::no_labels("counter")) };
        Ok(bound.instrument.get())
    }
});

#[cold]
fn negative() -> PyErr {
    PyValueError::new_err("Counters can only be incremented by non-negative amounts.")
}

impl Counter {
    /// What it is bound to.
    pub fn bound(&self) -> Option<&Raw<FloatCounter>> {
        self.core.bound.as_ref()
    }
}
