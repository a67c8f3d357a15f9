//! For language bindings: what they need beyond the API of the crate.

use std::sync::Arc;

pub use quipu_segment::series::CachedSeries;
use quipu_segment::series::{Schema, SeriesHandle};

use crate::description::{Description, Setting};
use crate::error::Error;
use crate::kind::{self, Instrument};

/// The cell of a histogram's sum.
pub const HISTOGRAM_SUM: usize = kind::HISTOGRAM_SUM;
/// The cell of a histogram's first classic bucket; the others follow.
pub const FIRST_BUCKET: usize = kind::FIRST_BUCKET;
/// The cell of a summary's sum.
pub const SUMMARY_SUM: usize = kind::SUMMARY_SUM;
/// The cell of a summary's count.
pub const SUMMARY_COUNT: usize = kind::SUMMARY_COUNT;

/// An instrument of a kind that is bound to one series, and the handle of the series that it counts
/// in.
#[derive(Debug, Clone)]
pub struct WithSeries<I> {
    /// The instrument.
    pub instrument: I,
    /// The handle.
    pub series: SeriesHandle,
}

impl<I: Instrument> Instrument for WithSeries<I> {
    type Kind = I::Kind;
    const SETTINGS: &'static [Setting] = I::SETTINGS;

    fn describe(description: &Description, schema: &mut Schema) -> Result<(), Error> {
        I::describe(description, schema)
    }

    fn from_handle(handle: SeriesHandle, kind: &Arc<I::Kind>) -> Self {
        Self { instrument: I::from_handle(handle.clone(), kind), series: handle }
    }
}
