//! State sets: some named states, each of which is on or off.

use std::collections::HashSet;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use quipu_segment::series::{self, Schema, SeriesCells, SeriesHandle};
use quipu_segment::sync::Ordering;

use super::family::{Family, Instrument, single};
use super::metric_kind::{MetricKind, Scratch, damaged};
use crate::description::{Description, Setting};
use crate::error::Error;
use crate::label::LabelValue;
use crate::scope::{Register, Scope};
use crate::snapshot::{self, Value};

/// A set of states. An enum that derives [`LabelValue`] names them; those of a `StateSet<&str>` are
/// named by [`Description::states`]. All states are off initially.
pub struct StateSet<S> {
    bound: SeriesHandle,
    states: PhantomData<fn(S)>,
}

/// State sets by label.
pub type StateSetFamily<S, L> = Family<StateSet<S>, L>;

/// The meaning of a state set's cells: one for each state.
pub struct StateSetKind {
    states: Box<[String]>,
}

impl<S: LabelValue> StateSet<S> {
    /// Turns this state on, and all others off.
    pub fn set(&self, state: &S) {
        self.set_index(Self::index(state));
    }

    /// Turns the state with index `on` on, and all others off: for states whose names are known at
    /// run time only. An index without a state turns all off.
    pub fn set_index(&self, on: usize) {
        for i in 0..self.bound.cells().len() {
            self.bound.cells().plain(i).store(u64::from(i == on), Ordering::Relaxed);
        }
    }

    /// Turns one state on or off, and leaves the others as they are.
    pub fn set_one(&self, state: &S, on: bool) {
        self.bound.cells().plain(Self::index(state)).store(u64::from(on), Ordering::Relaxed);
    }

    /// Whether the state is on.
    pub fn is_on(&self, state: &S) -> bool {
        self.bound.cells().plain(Self::index(state)).load(Ordering::Relaxed) != 0
    }

    fn index(state: &S) -> usize {
        state.index().unwrap_or(0) as usize
    }
}

impl<S> Clone for StateSet<S> {
    fn clone(&self) -> Self {
        Self { bound: self.bound.clone(), states: PhantomData }
    }
}

impl<S> fmt::Debug for StateSet<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bound.fmt(f)
    }
}

impl<S: LabelValue> Instrument for StateSet<S> {
    type Kind = StateSetKind;
    const SETTINGS: &'static [Setting] = &[Setting::States];

    fn describe(description: &Description, schema: &mut Schema) -> Result<(), Error> {
        let named: Vec<&str> = description.states.iter().map(String::as_str).collect();
        let states = S::VALUES.unwrap_or(&named);
        if states.is_empty() || states.len() > 512 || states.iter().any(|s| s.contains('\0')) {
            let what = "it needs 1 to 512 states without NUL in their names: use an enum that \
                        derives LabelValue, or name them in the description";
            return Err(Error::invalid(&description.full_name(), what));
        }
        // At most 512.
        schema.cells = states.len() as u16;
        schema.settings = states.join("\0").into_bytes();
        Ok(())
    }

    fn from_handle(handle: SeriesHandle, _: &Arc<StateSetKind>) -> Self {
        Self { bound: handle, states: PhantomData }
    }
}

impl MetricKind for StateSetKind {
    const NUMBER: u8 = 8;
    const SNAPSHOT_KIND: snapshot::Kind = snapshot::Kind::StateSet;

    fn decode(family: &series::Family) -> Result<Self, Error> {
        let schema = family.schema();
        let names = std::str::from_utf8(&schema.settings).map_err(|_| damaged(schema))?;
        let states: Box<[String]> = names.split('\0').map(str::to_owned).collect();
        // Two states of one name would be two series of one.
        let is_repeated = states.iter().collect::<HashSet<_>>().len() < states.len();
        if states.len() != usize::from(schema.cells) || is_repeated {
            return Err(damaged(schema));
        }
        Ok(Self { states })
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
    fn register(scope: &Scope<'_>, description: Description) -> Result<Self, Error> {
        single(scope, &description)
    }
}
