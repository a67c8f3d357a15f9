//! The destinations of the values of a [form](super::forms): the family of each series, which all
//! groups share, and the spot of each series, which each group has for itself. So a push of a known
//! form changes its series without a lookup by names and labels.
//!
//! With many groups, no data of a push is in a cache: neither the position of each series in an
//! index, nor its labels, nor its cells. With spots, only the cells are left, and they are fetched
//! a few series ahead.
//!
//! A spot leads to its series or nowhere, whatever happened meanwhile (see
//! [`Intake::take_at`](quipu::intake::Intake::take_at)). A value whose spot leads nowhere is taken
//! in the usual way, and its spot is found again. A spot takes 8 bytes; a group has one for each
//! series of its last form.

use std::sync::Arc;

use quipu::intake::{FamilyHandle, Spot};

use super::content::SeriesPosition;

/// The destination of the values of a series, in all groups.
#[derive(Debug)]
pub(super) struct Destination {
    pub(super) position: SeriesPosition,
    /// `None` if the values are always taken in the usual way.
    pub(super) handle: Option<FamilyHandle>,
}

/// The spots of a group's series, in the order of the form.
#[derive(Debug, Clone)]
pub(super) struct Spots {
    /// The number of the form.
    form: u64,
    /// Empty if none is known.
    list: Arc<[Spot]>,
}

impl Spots {
    /// No spots yet, for pushes of the form with that number.
    pub(super) fn new(form: u64) -> Self {
        Self { form, list: Arc::default() }
    }

    /// Whether they are for pushes of the form with that number.
    pub(super) fn is_of(&self, form: u64) -> bool {
        self.form == form
    }

    /// The spot of a series, by its number.
    pub(super) fn get(&self, number: usize) -> Spot {
        self.list.get(number).copied().unwrap_or(Spot::NOWHERE)
    }

    /// Keeps the spot of a series, one of that many.
    pub(super) fn set(&mut self, number: usize, spot: Spot, series: usize) {
        if self.list.len() != series {
            self.list = vec![Spot::NOWHERE; series].into();
        }
        if let Some(position) = Arc::make_mut(&mut self.list).get_mut(number) {
            *position = spot;
        }
    }
}
