//! The destinations of the values of a [form](super::forms): the family of each series, which all
//! groups share, and the spot of each series, which is separate for each group. With these
//! destinations, a push of a known form changes its series without looking up names and labels.
//!
//! With many groups, no data of a push is in the CPU caches, neither the position of each series in
//! an index, nor its labels, nor its cells. With spots, only the cells are needed, and we prefetch
//! them a few series ahead.
//!
//! A spot leads to its series or nowhere, no matter what happened in the meantime (see
//! [`Intake::take_at`](quipu::intake::Intake::take_at)). If it leads nowhere, the value is stored
//! in the usual way, and the new spot is remembered. A spot takes 8 bytes, and a group contains one
//! for each series of its last form.

use std::sync::Arc;

use quipu::intake::{FamilyHandle, Spot};

use super::content::SeriesPosition;

/// The destination of the values of a series, in all groups.
#[derive(Debug)]
pub(super) struct Destination {
    pub(super) position: SeriesPosition,
    /// The family; `None` if the values are always stored in the usual way.
    pub(super) handle: Option<FamilyHandle>,
}

/// The spots of a group's series, in the order of the form.
#[derive(Debug, Clone)]
pub(super) struct Spots {
    /// The number of the form.
    form: u64,
    /// The spots; empty if none is known.
    list: Arc<[Spot]>,
}

impl Spots {
    /// Creates an empty list for pushes of the form with this number.
    pub(super) fn new(form: u64) -> Self {
        Self { form, list: Arc::default() }
    }

    /// Returns whether these spots are for pushes of the form with this number.
    pub(super) fn is_of(&self, form: u64) -> bool {
        self.form == form
    }

    /// Returns the spot of a series, by its number.
    pub(super) fn get(&self, number: usize) -> Spot {
        self.list.get(number).copied().unwrap_or(Spot::NOWHERE)
    }

    /// Sets the spot of a series. `series` is the number of all series.
    pub(super) fn set(&mut self, number: usize, spot: Spot, series: usize) {
        if self.list.len() != series {
            self.list = vec![Spot::NOWHERE; series].into();
        }
        if let Some(position) = Arc::make_mut(&mut self.list).get_mut(number) {
            *position = spot;
        }
    }
}
