//! `Enum`: one of several states.

use std::sync::OnceLock;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use quipu::StateSet;

use crate::core::{Core, Made, Metric, Raw, Slot, metric};

type States = StateSet<&'static str>;

/// Which of its states is on.
#[derive(Default)]
#[pyclass(frozen, subclass, module = "quipu._quipu")]
pub struct Enum {
    core: Slot<Raw<States>>,
    states: OnceLock<Vec<String>>,
}

metric!(Enum, Raw<States>, {
    /// Makes it of what its Python class has checked.
    fn _make(&self, made: Made<'_>, states: Vec<String>) -> PyResult<()> {
        self.take(Core::made(made, |description| description.states(&states))?)?;
        let _ = self.states.set(states);
        self.begin();
        Ok(())
    }

    /// Turns the state of that name on, and all others off.
    fn state(&self, state: &str) -> PyResult<()> {
        let Some(bound) = self.bound() else { return Err(self.unbound("stateset")) };
        let states = self.states.get().map_or(&[][..], Vec::as_slice);
        let Some(index) = states.iter().position(|known| known == state) else {
            let what = format!("{state:?} is none of the states {states:?}");
            return Err(PyValueError::new_err(what));
        };
        bound.instrument.set_index(index);
        Ok(())
    }

    /// The number of the state that is on.
    fn _index(&self) -> PyResult<Option<usize>> {
        let Some(bound) = self.bound() else { return Err(self.unbound("stateset")) };
        let place = bound.series.place();
        let is_on = |i: &usize| place.plain(*i).load(std::sync::atomic::Ordering::Relaxed) != 0;
        Ok((0..place.len()).find(is_on))
    }
} fn adopt(&self, parent: &Self) {
    if let Some(states) = parent.states.get() {
        let _ = self.states.set(states.clone());
    }
    self.begin();
});

impl Enum {
    /// Turns the first state on, where none is: another process may have set one before.
    fn begin(&self) {
        let Some(bound) = self.bound() else { return };
        let place = bound.series.place();
        let load = |i| place.plain(i).load(std::sync::atomic::Ordering::Relaxed);
        if (0..place.len()).all(|i| load(i) == 0) {
            bound.instrument.set_index(0);
        }
    }
}
