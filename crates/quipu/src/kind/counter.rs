//! Counters: integer sums that only grow.

use std::sync::Arc;

use quipu_segment::series::{self, Schema, SeriesCells, SeriesHandle, SideAllocations};

use super::exemplar::{self, Exemplars};
use super::family::{Family, Instrument, single};
use super::metric_kind::{Memory, MetricKind, check_cells};
use crate::description::Description;
use crate::error::Error;
use crate::label::LabelGroup;
use crate::scope::{Register, Scope};
use crate::snapshot::{self, Number, Value};

/// A counter of integers, modulo 2^64.
#[derive(Debug, Clone)]
pub struct Counter(SeriesHandle);

/// Counters by label.
pub type CounterFamily<L> = Family<Counter, L>;

/// The meaning of a counter's cells.
pub struct CounterKind;

/// The cell of the total.
const TOTAL: usize = 0;
/// The cell of the exemplar, if the family keeps exemplars.
const EXEMPLAR: usize = 1;

impl Counter {
    /// Adds one.
    #[inline]
    pub fn inc(&self) {
        self.0.cells().add(TOTAL, 1);
    }

    /// Adds `n`.
    #[inline]
    pub fn inc_by(&self, n: u64) {
        self.0.cells().add(TOTAL, n);
    }

    /// Adds `n`, and keeps `exemplar`: pairs of names and values, such as the ID of a trace. It is
    /// dropped if the names and values together have more than 128 characters, or more than 256
    /// bytes with one byte added for each. Without [`Description::exemplars`], none is kept.
    pub fn inc_with(&self, n: u64, exemplar: &[(&str, &str)]) {
        self.inc_by(n);
        exemplar::keep(self.0.family(), self.0.cells(), EXEMPLAR, 0, n as f64, exemplar);
    }

    /// Returns the total, the sum over all lanes. Concurrent additions may be included or not.
    pub fn get(&self) -> u64 {
        self.0.cells().sum(TOTAL)
    }
}

impl<L: LabelGroup> Family<Counter, L> {
    /// Adds one to the series of these labels.
    #[inline]
    pub fn inc<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K) {
        self.inc_by(labels, 1);
    }

    /// Adds `n` to the series of these labels.
    #[inline]
    pub fn inc_by<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K, n: u64) {
        self.family.add(Self::key(labels), TOTAL, n);
    }
}

impl Instrument for Counter {
    type Kind = CounterKind;

    fn describe(description: &Description, schema: &mut Schema) -> Result<(), Error> {
        schema.cells = 1 + u16::from(description.exemplars);
        schema.additive = true;
        Ok(())
    }

    fn bound(bound: SeriesHandle, _: &Arc<CounterKind>) -> Self {
        Self(bound)
    }
}

impl MetricKind for CounterKind {
    const NUMBER: u8 = 1;
    const SHOWN: snapshot::Kind = snapshot::Kind::Counter;

    fn decode(family: &series::Family) -> Result<Self, Error> {
        check_cells(family, 1..=2).map(|()| Self)
    }

    #[inline]
    fn read(
        &self,
        family: &series::Family,
        cells: &SeriesCells<'_>,
        memory: &mut Memory,
        give: impl FnOnce(Value<'_>),
    ) {
        let total = Number::Unsigned(cells.sum(TOTAL));
        give(Value::Counter { total, exemplar: exemplar::last(family, cells, EXEMPLAR, memory) });
    }

    fn sides(self: &Arc<Self>) -> Option<Arc<dyn SideAllocations>> {
        Some(Arc::new(Exemplars(EXEMPLAR)))
    }
}

impl Register for Counter {
    fn register(scope: &Scope<'_>, description: Description) -> Result<Self, Error> {
        single(scope, &description)
    }
}
