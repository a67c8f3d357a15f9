//! Values of unknown type, which other programs send.

use std::sync::Arc;

use quipu_segment::series::{Family, SeriesCells, SideAllocations};

use super::exemplar::{self, Exemplars};
use super::gauge::{EXEMPLAR, number};
use super::metric_kind::{MetricKind, Scratch, check_cells};
use crate::error::Error;
use crate::snapshot::{self, Exemplar, Value};

/// The kind of values of unknown type. It uses the same cells as a gauge with a time.
pub(crate) struct UnknownKind;

impl MetricKind for UnknownKind {
    const NUMBER: u8 = 11;
    const SNAPSHOT_KIND: snapshot::Kind = snapshot::Kind::Unknown;

    fn decode(family: &Family) -> Result<Self, Error> {
        check_cells(family, 2..=3).map(|()| Self)
    }

    fn read(
        &self,
        _: &Family,
        cells: &SeriesCells<'_>,
        _: &mut Scratch,
        emit: impl FnOnce(Value<'_>),
    ) {
        emit(Value::Unknown(number(cells)));
    }

    fn read_all(
        &self,
        family: &Family,
        cells: &SeriesCells<'_>,
        scratch: &mut Scratch,
        emit: impl FnOnce(Value<'_>, Option<Exemplar<'_>>),
    ) {
        emit(Value::Unknown(number(cells)), exemplar::last(family, cells, EXEMPLAR, scratch));
    }

    fn side_allocations(self: &Arc<Self>) -> Option<Arc<dyn SideAllocations>> {
        Some(Arc::new(Exemplars(EXEMPLAR)))
    }
}
