//! `Enum`: one of several states.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use quipu::StateSet;

use crate::core::{Core, Raw, metric};
use crate::error;

type States = StateSet<&'static str>;

/// Which of its states is on.
#[pyclass(frozen, subclass, module = "quipu._quipu")]
pub struct Enum {
    core: Core<Raw<States>>,
    states: Vec<String>,
}

metric!(Enum, Raw<States>, {
    #[new]
    #[pyo3(signature = (origin, name, help = String::new(), unit = String::new(), labelnames = vec![], states = vec![]))]
    fn new(
        origin: &Bound<'_, PyAny>,
        name: &Bound<'_, PyAny>,
        help: String,
        unit: String,
        labelnames: Vec<String>,
        states: Vec<String>,
    ) -> PyResult<Self> {
        let states = origin.cast::<Self>().map_or(states, |parent| parent.get().states.clone());
        let describe = |description: quipu::Description| description.states(&states);
        let core = Core::new::<Self>(origin, name, (help, unit, labelnames), describe)?;
        let made = Self { core, states };
        made.begin();
        Ok(made)
    }

    /// Turns the state of that name on, and all others off.
    fn state(&self, state: &str) -> PyResult<()> {
        let Some(bound) = &self.core.bound else { return Err(error::no_labels("stateset")) };
        let Some(index) = self.states.iter().position(|known| known == state) else {
            let what = format!("{state:?} is none of the states {:?}", self.states);
            return Err(PyValueError::new_err(what));
        };
        bound.instrument.set_index(index);
        Ok(())
    }
});

impl Enum {
    /// Turns the first state on, where none is: another process may have set one before.
    fn begin(&self) {
        let Some(bound) = &self.core.bound else { return };
        let place = bound.series.place();
        let load = |i| place.plain(i).load(std::sync::atomic::Ordering::Relaxed);
        if (0..place.len()).all(|i| load(i) == 0) {
            bound.instrument.set_index(0);
        }
    }
}
