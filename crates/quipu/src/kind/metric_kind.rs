//! The reading end of a kind, and the macro for the list of all kinds.

use std::ops::RangeInclusive;
use std::sync::Arc;

use quipu_arena::Arena;
use quipu_segment::series::{Family, Schema, SeriesCells, SideAllocations};

use super::aggregation::Aggregation;
use super::exemplar::ReadExemplar;
use crate::error::Error;
use crate::snapshot::{self, Exemplar, Value};

/// The meaning of a family's cells. This trait is how a scrape reads the series of a family, even
/// if another process created it.
pub trait MetricKind: Sized + Send + Sync + 'static {
    /// The number of the kind in the family's record on disk. `docs/formats.md` lists the numbers,
    /// with the cells and settings of each.
    const NUMBER: u8;
    /// The kind that formats show.
    const SNAPSHOT_KIND: snapshot::Kind;

    /// Reads what [`Instrument::describe`](super::Instrument::describe) wrote, from untrusted
    /// bytes.
    ///
    /// # Errors
    /// If the settings in the segment are damaged.
    fn decode(family: &Family) -> Result<Self, Error>;

    /// Passes the value of a series to `emit`. This does not change the values that another scrape
    /// sees.
    fn read(
        &self,
        family: &Family,
        cells: &SeriesCells<'_>,
        scratch: &mut Scratch,
        emit: impl FnOnce(Value<'_>),
    );

    /// Like [`MetricKind::read`], but also reads the exemplar of a value that cannot hold one.
    #[inline]
    fn read_all(
        &self,
        family: &Family,
        cells: &SeriesCells<'_>,
        scratch: &mut Scratch,
        emit: impl FnOnce(Value<'_>, Option<Exemplar<'_>>),
    ) {
        self.read(family, cells, scratch, |value| emit(value, None));
    }

    /// Returns the memory of each series outside its cells, such as exemplars; `None` if there is
    /// none.
    fn side_allocations(self: &Arc<Self>) -> Option<Arc<dyn SideAllocations>> {
        None
    }

    /// Returns the label that the instrument itself writes, if any.
    fn own_label(&self) -> Option<&'static str> {
        None
    }

    /// Returns the [`own_label`](Self::own_label), if the formats omit it.
    fn hidden_label(&self) -> Option<&'static str> {
        None
    }

    /// Returns how a scrape combines the series of several processes, if each process owns one.
    fn aggregation(&self) -> Option<Aggregation> {
        None
    }
}

/// Memory for reading values, reused from series to series.
#[derive(Default)]
pub struct Scratch {
    /// The memory that a value borrows; emptied after each series.
    pub(crate) arena: Arena,
    /// Exemplars, by slot.
    pub(crate) slots: Vec<Option<ReadExemplar>>,
    /// The strings of exemplars.
    pub(crate) texts: Vec<u8>,
    pub(crate) quantiles: Vec<(f64, f64)>,
    /// Exponential buckets.
    pub(crate) positive: Vec<(i32, u64)>,
    pub(crate) negative: Vec<(i32, u64)>,
    pub(crate) all: Vec<(i32, u64)>,
}

impl std::fmt::Debug for Scratch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scratch").finish_non_exhaustive()
    }
}

/// Adds to a count that another program reported, up to 2^63, because a count that wraps around
/// looks like a restart. Beyond this, only single increments are added, which never wrap.
pub(crate) fn add_count(cells: &SeriesCells<'_>, cell: usize, n: u64) {
    // Adding 1 skips the check, because reading the sum can mean reading many lanes.
    cells.add(cell, if n > 1 { most_added(cells.sum(cell), n) } else { n });
}

/// Returns the part of `n` that [`add_count`] adds to a count.
pub(crate) fn most_added(count: u64, n: u64) -> u64 {
    if n > 1 { n.min((1_u64 << 63).saturating_sub(count)) } else { n }
}

/// Checks the number of cells in a family's record against the kind's.
pub(crate) fn check_cells(family: &Family, valid: RangeInclusive<u16>) -> Result<(), Error> {
    let schema = family.schema();
    if valid.contains(&schema.cells) {
        return Ok(());
    }
    Err(damaged(schema))
}

/// Returns whether these numbers from a family's record can be the bounds of buckets: sorted,
/// without duplicates, and without `+Inf`, because formats show a bucket of `+Inf` after them.
pub(crate) fn are_bounds(numbers: &[f64]) -> bool {
    is_ascending(numbers) && numbers.last() != Some(&f64::INFINITY)
}

/// Returns whether these numbers from a family's record can be quantiles.
pub(crate) fn are_quantiles(numbers: &[f64]) -> bool {
    is_ascending(numbers) && numbers.iter().all(|quantile| (0.0..=1.0).contains(quantile))
}

/// Returns whether each number is greater than the previous one; false if there is a NaN.
fn is_ascending(numbers: &[f64]) -> bool {
    numbers.windows(2).all(|pair| pair[0] < pair[1]) && !numbers.iter().any(|n| n.is_nan())
}

/// Returns the error for a family whose record contradicts its kind.
pub(crate) fn damaged(schema: &Schema) -> Error {
    let reason = "its settings in the segment are damaged: restore the file, or move it away to \
                start afresh";
    Error::invalid(&schema.name, reason)
}

/// Declares the enum of all kinds, which dispatches to them without a virtual call.
macro_rules! kinds {
    ($($name:ident, $words:literal: $kind:ty,)+) => {
        /// The kind of a family, by the number in its record.
        pub(crate) enum AnyKind {
            $($name(std::sync::Arc<$kind>),)+
        }

        impl AnyKind {
            /// Finds the kind of a family, and reads its settings.
            pub(crate) fn decode(
                family: &quipu_segment::series::Family,
            ) -> Result<Self, crate::error::Error> {
                let schema = family.schema();
                match schema.kind {
                    $(<$kind as MetricKind>::NUMBER => {
                        <$kind as MetricKind>::decode(family).map(|kind| Self::$name(kind.into()))
                    })+
                    _ => {
                        let reason = "its kind is unknown to this version: use a later one";
                        Err(crate::error::Error::invalid(&schema.name, reason))
                    }
                }
            }

            /// Returns the kind that formats show, and the name, of the kind with this number;
            /// `None` if this version does not know it.
            pub(crate) fn known(number: u8) -> Option<(crate::snapshot::Kind, &'static str)> {
                match number {
                    $(<$kind as MetricKind>::NUMBER => {
                        Some((<$kind as MetricKind>::SNAPSHOT_KIND, $words))
                    })+
                    _ => None,
                }
            }

            pub(crate) fn snapshot_kind(&self) -> crate::snapshot::Kind {
                match self {
                    $(Self::$name(_) => <$kind as MetricKind>::SNAPSHOT_KIND,)+
                }
            }

            #[inline]
            pub(crate) fn read(
                &self,
                family: &quipu_segment::series::Family,
                cells: &quipu_segment::series::SeriesCells<'_>,
                scratch: &mut Scratch,
                emit: impl FnOnce(crate::snapshot::Value<'_>),
            ) {
                match self {
                    $(Self::$name(kind) => kind.read(family, cells, scratch, emit),)+
                }
            }

            #[inline]
            pub(crate) fn read_all(
                &self,
                family: &quipu_segment::series::Family,
                cells: &quipu_segment::series::SeriesCells<'_>,
                scratch: &mut Scratch,
                emit: impl FnOnce(
                    crate::snapshot::Value<'_>,
                    Option<crate::snapshot::Exemplar<'_>>,
                ),
            ) {
                match self {
                    $(Self::$name(kind) => kind.read_all(family, cells, scratch, emit),)+
                }
            }

            pub(crate) fn side_allocations(
                &self,
            ) -> Option<std::sync::Arc<dyn quipu_segment::series::SideAllocations>> {
                match self {
                    $(Self::$name(kind) => kind.side_allocations(),)+
                }
            }

            pub(crate) fn hidden_label(&self) -> Option<&'static str> {
                match self {
                    $(Self::$name(kind) => kind.hidden_label(),)+
                }
            }

            pub(crate) fn aggregation(&self) -> Option<crate::Aggregation> {
                match self {
                    $(Self::$name(kind) => kind.aggregation(),)+
                }
            }
        }
    };
}

pub(crate) use kinds;
