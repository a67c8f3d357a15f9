//! API that only language bindings need: the cells of instruments, and handles of their series.

use std::sync::Arc;

pub use quipu_segment::series::CachedSeries;
use quipu_segment::series::{Schema, SeriesHandle};

use crate::description::{Description, Setting};
use crate::error::Error;
use crate::kind::{self, Histogram, Instrument};

/// The cell of a summary's sum.
pub const SUMMARY_SUM: usize = kind::SUMMARY_SUM;
/// The cell of a summary's count.
pub const SUMMARY_COUNT: usize = kind::SUMMARY_COUNT;

/// An instrument of a kind that is bound to one series, and the handle of the series that it counts
/// in.
#[derive(Debug, Clone)]
pub struct WithSeries<I> {
    /// The instrument that counts.
    pub instrument: I,
    /// The handle of the series.
    pub series: SeriesHandle,
}

impl WithSeries<Histogram> {
    /// Returns the cell with the count of a classic bucket, if there is such a bucket. The last
    /// bucket is `+Inf`.
    pub fn bucket_cell(&self, bucket: usize) -> Option<usize> {
        self.instrument.layout().bucket_cell(bucket)
    }

    /// Returns the cells of floats that add up to the sum: one, or one for each bucket.
    pub fn sum_cells(&self) -> impl Iterator<Item = usize> + use<> {
        self.instrument.layout().sum_cells()
    }
}

impl<I: Instrument> crate::kind::sealed::Sealed for WithSeries<I> {}

impl<I: Instrument> Instrument for WithSeries<I> {
    type Kind = I::Kind;
    const SETTINGS: &'static [Setting] = I::SETTINGS;

    fn describe(description: &Description, schema: &mut Schema) -> Result<(), Error> {
        I::describe(description, schema)
    }

    fn arrange(schema: &mut Schema) {
        I::arrange(schema);
    }

    fn from_handle(handle: SeriesHandle, kind: &Arc<I::Kind>) -> Self {
        Self { instrument: I::from_handle(handle.clone(), kind), series: handle }
    }
}
