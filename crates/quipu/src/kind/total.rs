//! The common part of all counters: a total, followed by an exemplar and the time of the last
//! increment, in families that keep them.

use std::marker::PhantomData;
use std::sync::Arc;

use quipu_segment::series::{Family, Schema, SeriesCells, SideAllocations};

use super::exemplar::{self, Exemplars};
use super::metric_kind::{MetricKind, Scratch, check_cells};
use crate::description::Description;
use crate::error::Error;
use crate::snapshot::{self, CounterValue, Number, Value};

/// A kind of counter: how its cells store the total.
pub trait Total: 'static {
    /// The [`MetricKind::NUMBER`] of its kind.
    const NUMBER: u8;
    /// The cells that hold floats, as bits.
    const FLOATS: u64;
    /// The cell of the exemplar, if the family keeps exemplars. The cells before it hold the total.
    const EXEMPLAR: usize;
    /// The maximum number of cells after the total: the exemplar, and the time of the last
    /// increment.
    const MORE: u16 = 1;

    /// Reads the total of a series.
    fn total(cells: &SeriesCells<'_>) -> Number;
}

/// The kind of a counter.
#[derive(Debug)]
pub struct TotalKind<T>(PhantomData<fn() -> T>);

/// Writes the cells of a counter into the schema of a family.
pub(super) fn describe<T: Total>(description: &Description, schema: &mut Schema) {
    // A counter uses one or two cells before its exemplar.
    schema.cells = T::EXEMPLAR as u16 + u16::from(description.exemplars);
    schema.floats = T::FLOATS;
    schema.additive = true;
}

impl<T: Total> MetricKind for TotalKind<T> {
    const NUMBER: u8 = T::NUMBER;
    const SNAPSHOT_KIND: snapshot::Kind = snapshot::Kind::Counter;

    fn decode(family: &Family) -> Result<Self, Error> {
        let least = T::EXEMPLAR as u16;
        check_cells(family, least..=least + T::MORE).map(|()| Self(PhantomData))
    }

    #[inline]
    fn read(
        &self,
        family: &Family,
        cells: &SeriesCells<'_>,
        scratch: &mut Scratch,
        emit: impl FnOnce(Value<'_>),
    ) {
        let total = T::total(cells);
        let exemplar = exemplar::last(family, cells, T::EXEMPLAR, scratch);
        emit(Value::Counter(CounterValue::new(total).exemplar(exemplar)));
    }

    fn side_allocations(self: &Arc<Self>) -> Option<Arc<dyn SideAllocations>> {
        Some(Arc::new(Exemplars(T::EXEMPLAR)))
    }
}
