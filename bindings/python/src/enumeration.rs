//! `Enum`: one of several states.

use std::sync::OnceLock;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use quipu::StateSet;
use quipu::binding::WithSeries;

use crate::core::{Core, Made, Metric, Slot, metric};

type States = StateSet<&'static str>;

/// A set of states. Exactly one is on.
#[derive(Default)]
#[pyclass(frozen, subclass, module = "quipu_metrics._quipu")]
pub struct Enum {
    core: Slot<WithSeries<States>>,
    states: OnceLock<Vec<String>>,
}

metric!(Enum, WithSeries<States>, {
    /// Initializes the metric. Its Python class has checked the arguments.
    fn _make(&self, made: Made<'_>, states: Vec<String>) -> PyResult<()> {
        self.take(Core::made(made, |description| description.states(&states))?)?;
        let _ = self.states.set(states);
        self.begin();
        Ok(())
    }

    /// Turns the state with this name on, and all others off.
    fn state(&self, state: &str) -> PyResult<()> {
        let Some(bound) = self.bound() else { return Err(self.unbound("stateset")) };
        let states = self.states.get().map_or(&[][..], Vec::as_slice);
        let Some(index) = states.iter().position(|known| known == state) else {
            let what = format!("unknown state {state:?}: use one of {states:?}");
            return Err(PyValueError::new_err(what));
        };
        bound.instrument.set_index(index);
        Ok(())
    }

    /// Returns the index of the state that is on.
    fn _index(&self) -> PyResult<Option<usize>> {
        let Some(bound) = self.bound() else { return Err(self.unbound("stateset")) };
        let cells = bound.series.cells();
        let is_on = |i: &usize| cells.plain(*i).load(std::sync::atomic::Ordering::Relaxed) != 0;
        Ok((0..cells.len()).find(is_on))
    }
} fn adopt(&self, parent: &Self) {
    if let Some(states) = parent.states.get() {
        let _ = self.states.set(states.clone());
    }
    self.begin();
});

impl Enum {
    /// Turns the first state on unless another process has already set one.
    fn begin(&self) {
        let Some(bound) = self.bound() else { return };
        let cells = bound.series.cells();
        let load = |i| cells.plain(i).load(std::sync::atomic::Ordering::Relaxed);
        if (0..cells.len()).all(|i| load(i) == 0) {
            bound.instrument.set_index(0);
        }
    }
}
