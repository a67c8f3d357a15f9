//! `Histogram`.

use pyo3::prelude::*;

use crate::core::{Core, Raw, metric};
use crate::{error, exemplar};

/// Counts of observations by size.
#[pyclass(frozen, subclass, module = "quipu._quipu")]
pub struct Histogram {
    core: Core<Raw<quipu::Histogram>>,
}

metric!(Histogram, Raw<quipu::Histogram>, {
    #[new]
    #[pyo3(signature = (origin, name, help = String::new(), unit = String::new(), labelnames = vec![], buckets = vec![]))]
    fn new(
        origin: &Bound<'_, PyAny>,
        name: &Bound<'_, PyAny>,
        help: String,
        unit: String,
        labelnames: Vec<String>,
        buckets: Vec<f64>,
    ) -> PyResult<Self> {
        let describe = |description: quipu::Description| description.buckets(buckets).exemplars();
        let core = Core::new::<Self>(origin, name, (help, unit, labelnames), describe)?;
        Ok(Self { core })
    }

    /// Counts `amount`.
    #[pyo3(signature = (amount, exemplar = None))]
    fn observe(&self, amount: f64, exemplar: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let Some(bound) = &self.core.bound else { return Err(error::no_labels("histogram")) };
        bound.instrument.observe(amount);
        match exemplar {
            None => Ok(()),
            Some(pairs) if pairs.is_none() => Ok(()),
            Some(pairs) => exemplar::read(pairs, |pairs| bound.instrument.exemplify(amount, pairs)),
        }
    }
});

impl Histogram {
    /// What it is bound to.
    pub fn bound(&self) -> Option<&Raw<quipu::Histogram>> {
        self.core.bound.as_ref()
    }
}
