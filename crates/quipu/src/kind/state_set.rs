//! State sets: some named states, which are on or off.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use quipu_segment::series::{self, KeyWriter, Schema, SeriesCells, SeriesHandle, StringSet};
use quipu_segment::sync::Ordering;

use super::family::{Family, Instrument, single};
use super::metric_kind::{MetricKind, Scratch, damaged};
use crate::description::{Description, Setting};
use crate::error::Error;
use crate::label::{LabelValue, LabelWriter};
use crate::scope::{Register, Scope};
use crate::snapshot::{self, Value};

/// A set of states. An enum that derives [`LabelValue`] names them; for a `StateSet<&str>`, you
/// name the states with [`Description::states`]. All states are off initially.
///
/// ```
/// use quipu::{LabelValue, Registry, StateSet, Description};
///
/// #[derive(LabelValue)]
/// enum Phase { Starting, Running }
///
/// let registry = Registry::new();
/// let phase: StateSet<Phase> = registry.register(Description::new("phase", "Phase."))?;
/// phase.set(&Phase::Starting);
/// phase.set(&Phase::Running);
/// assert!(phase.is_on(&Phase::Running) && !phase.is_on(&Phase::Starting));
/// assert_eq!(registry.value("phase", &[("phase", "running")]), Some(1.0));
/// # Ok::<(), quipu::Error>(())
/// ```
pub struct StateSet<S> {
    bound: SeriesHandle,
    kind: Arc<StateSetKind>,
    states: PhantomData<fn(S)>,
}

/// State sets by label.
pub type StateSetFamily<S, L> = Family<StateSet<S>, L>;

/// The meaning of a state set's cells: one for each state.
pub struct StateSetKind {
    states: Box<[String]>,
    /// The index of each state, by name.
    indices: [Option<StringSet>; 1],
}

impl fmt::Debug for StateSetKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateSetKind").field("states", &self.states).finish_non_exhaustive()
    }
}

impl<S: LabelValue> StateSet<S> {
    /// Turns this state on, and all others off. A value that is not one of the states, such as an
    /// unknown string, turns all off.
    ///
    /// ```
    /// use quipu::{Description, Registry, StateSet};
    ///
    /// let registry = Registry::new();
    /// let phase: StateSet<&str> =
    ///     registry.register(Description::new("phase", "").states(["starting", "running"]))?;
    /// phase.set(&"running");
    /// assert!(phase.is_on(&"running") && !phase.is_on(&"starting"));
    /// # Ok::<(), quipu::Error>(())
    /// ```
    pub fn set(&self, state: &S) {
        self.set_index(self.index(state).unwrap_or(usize::MAX));
    }

    /// Turns the state with index `on` on, and all others off. Use this for states whose names are
    /// only known at run time. An index without a state turns all off.
    #[doc(hidden)]
    pub fn set_index(&self, on: usize) {
        for i in 0..self.bound.cells().len() {
            self.bound.cells().plain(i).store(u64::from(i == on), Ordering::Relaxed);
        }
    }

    /// Turns one state on or off, and keeps the others. A value that is not one of the states is
    /// ignored.
    pub fn set_one(&self, state: &S, on: bool) {
        if let Some(index) = self.index(state) {
            self.bound.cells().plain(index).store(u64::from(on), Ordering::Relaxed);
        }
    }

    /// Returns whether the state is on; false for a value that is not one of the states.
    pub fn is_on(&self, state: &S) -> bool {
        let index = self.index(state);
        index.is_some_and(|at| self.bound.cells().plain(at).load(Ordering::Relaxed) != 0)
    }

    fn index(&self, state: &S) -> Option<usize> {
        let encode = |key: &mut KeyWriter<'_>| LabelWriter::wrap(key, |to| state.encode(to));
        let by_name = || KeyWriter::index_of(&self.kind.indices, encode);
        let index = state.index().or_else(by_name)? as usize;
        (index < self.bound.cells().len()).then_some(index)
    }
}

impl<S> Clone for StateSet<S> {
    fn clone(&self) -> Self {
        Self { bound: self.bound.clone(), kind: Arc::clone(&self.kind), states: PhantomData }
    }
}

impl<S> fmt::Debug for StateSet<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bound.fmt(f)
    }
}

impl<S: LabelValue> crate::kind::sealed::Sealed for StateSet<S> {}

impl<S: LabelValue> Instrument for StateSet<S> {
    type Kind = StateSetKind;
    const SETTINGS: &'static [Setting] = &[Setting::States];

    fn describe(description: &Description, schema: &mut Schema) -> Result<(), Error> {
        let fail = |message: &str| Err(Error::invalid(&description.full_name(), message));
        let named: Vec<&str> = description.states.iter().map(String::as_str).collect();
        if S::VALUES.is_some() && !named.is_empty() {
            return fail("the type of its states names them: omit them in the description");
        }
        let states = S::VALUES.unwrap_or(&named);
        if let Err(twice) = StringSet::new(states) {
            return fail(&format!("the state {twice:?} appears twice: name each once"));
        }
        let is_wrong = |state: &&str| state.is_empty() || state.contains('\0');
        if !(1..=512).contains(&states.len()) || states.iter().any(is_wrong) {
            let reason = "it needs 1 to 512 states whose names are not empty and have no NUL: use an \
                        enum that derives LabelValue, or name them in the description";
            return fail(reason);
        }
        // At most 512.
        schema.cells = states.len() as u16;
        schema.settings = states.join("\0").into_bytes();
        Ok(())
    }

    fn from_handle(handle: SeriesHandle, kind: &Arc<StateSetKind>) -> Self {
        Self { bound: handle, kind: Arc::clone(kind), states: PhantomData }
    }
}

impl MetricKind for StateSetKind {
    const NUMBER: u8 = 8;
    const SNAPSHOT_KIND: snapshot::Kind = snapshot::Kind::StateSet;

    fn decode(family: &series::Family) -> Result<Self, Error> {
        let schema = family.schema();
        let names = std::str::from_utf8(&schema.settings).map_err(|_| damaged(schema))?;
        let states: Box<[String]> = names.split('\0').map(str::to_owned).collect();
        // A label with an empty value counts as missing, so the samples of such a state would lack
        // the label.
        if states.len() != usize::from(schema.cells) || states.iter().any(String::is_empty) {
            return Err(damaged(schema));
        }
        let texts: Vec<&str> = states.iter().map(String::as_str).collect();
        // Two states with the same name would be two series with the same labels.
        let indices = StringSet::new(&texts).map_err(|_| damaged(schema))?;
        Ok(Self { states, indices: [Some(indices)] })
    }

    fn read(
        &self,
        _: &series::Family,
        cells: &SeriesCells<'_>,
        scratch: &mut Scratch,
        emit: impl FnOnce(Value<'_>),
    ) {
        let states =
            self.states.iter().enumerate().map(|(cell, name)| {
                (name.as_str(), cells.plain(cell).load(Ordering::Relaxed) != 0)
            });
        scratch.arena.scoped(|scope| emit(Value::StateSet(scope.alloc_iter(states))));
    }
}

impl<S: LabelValue> Register for StateSet<S> {
    fn register(scope: &Scope, description: Description) -> Result<Self, Error> {
        single(scope, &description)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Registry;

    #[test]
    fn a_text_turns_on_the_state_of_its_name() {
        let registry = Registry::new();
        let states = Description::new("s", "").states(["a", "b", "c"]);
        let set: StateSet<&str> = registry.register(states).unwrap();
        let on = || ["a", "b", "c", "d", ""].map(|state| set.is_on(&state));
        set.set(&"b");
        assert_eq!(on(), [false, true, false, false, false]);
        set.set_one(&"c", true);
        set.set_one(&"d", true);
        assert_eq!(on(), [false, true, true, false, false]);
        assert!(registry.text().contains("s{s=\"b\"} 1\n"));
        set.set(&"d");
        assert_eq!(on(), [false; 5]);
    }

    #[test]
    fn a_state_is_named_once() {
        let registry = Registry::new();
        let twice =
            registry.register::<StateSet<&str>>(Description::new("s", "").states(["a", "a"]));
        assert!(twice.unwrap_err().to_string().contains("\"a\" appears twice"));
        let both = registry.register::<StateSet<bool>>(Description::new("s", "").states(["a"]));
        assert!(both.unwrap_err().to_string().contains("omit them"));
        let unnamed = Description::new("s", "").states(["a", ""]);
        let unnamed = registry.register::<StateSet<&str>>(unnamed);
        assert!(unnamed.unwrap_err().to_string().contains("not empty"));
    }
}
