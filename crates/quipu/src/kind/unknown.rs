//! Values of unknown type, which come from other programs.

use quipu_segment::series::{Family, SeriesCells};
use quipu_segment::sync::Ordering;

use super::gauge::VALUE;
use super::metric_kind::{MetricKind, Scratch, check_cells};
use crate::error::Error;
use crate::snapshot::{self, Number, Value};

/// The kind of a value of unknown type. Its cells are those of a gauge with a stamp.
pub(crate) struct UnknownKind;

impl MetricKind for UnknownKind {
    const NUMBER: u8 = 11;
    const SNAPSHOT_KIND: snapshot::Kind = snapshot::Kind::Unknown;

    fn decode(family: &Family) -> Result<Self, Error> {
        check_cells(family, 2..=2).map(|()| Self)
    }

    fn read(
        &self,
        _: &Family,
        cells: &SeriesCells<'_>,
        _: &mut Scratch,
        emit: impl FnOnce(Value<'_>),
    ) {
        let value = cells.plain(VALUE).load(Ordering::Relaxed);
        emit(Value::Unknown(Number::Float(f64::from_bits(value))));
    }
}
