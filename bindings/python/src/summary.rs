//! `Summary`: a count and a sum, as `prometheus_client` has it.

use pyo3::prelude::*;

use crate::core::{Core, Raw, metric};
use crate::error;

/// How many observations there were, and their sum.
#[pyclass(frozen, subclass, module = "quipu._quipu")]
pub struct Summary {
    core: Core<Raw<quipu::Summary>>,
}

metric!(Summary, Raw<quipu::Summary>, {
    #[new]
    #[pyo3(signature = (origin, name, help = String::new(), unit = String::new(), labelnames = vec![]))]
    fn new(
        origin: &Bound<'_, PyAny>,
        name: &Bound<'_, PyAny>,
        help: String,
        unit: String,
        labelnames: Vec<String>,
    ) -> PyResult<Self> {
        let describe = |description: quipu::Description| description.quantiles([]);
        let core = Core::new::<Self>(origin, name, (help, unit, labelnames), describe)?;
        Ok(Self { core })
    }

    /// Counts `amount`.
    fn observe(&self, amount: f64) -> PyResult<()> {
        let Some(bound) = &self.core.bound else { return Err(error::no_labels("summary")) };
        bound.instrument.observe(amount);
        Ok(())
    }
});

impl Summary {
    /// What it is bound to.
    pub fn bound(&self) -> Option<&Raw<quipu::Summary>> {
        self.core.bound.as_ref()
    }
}
