//! A cache of series handles for each push group. A push whose body has a known
//! [form](super::forms) writes straight to the cells of its series, without looking up names and
//! labels.
//!
//! The cache consists of two parts. A [`Destination`] is the family of a series; all groups share
//! it. A [`Spot`] is the record of a series; each group stores its own [`Spots`].
//!
//! This is fast because, with many groups, the CPU caches contain neither the position of a series
//! in an index, nor its labels, nor its cells. With spots, only the cells are needed, and we
//! prefetch them a few series ahead.
//!
//! A spot leads to its series or nowhere, even if the series was removed in the meantime (see
//! [`Intake::take_at`](quipu::intake::Intake::take_at)). If the spot leads nowhere, the value is
//! stored by its name and labels, and the new spot is cached. A spot takes 8 bytes. A group stores
//! one spot for each series of its last form.

use std::sync::Arc;

use quipu::intake::{FamilyHandle, Spot};

use super::content::SeriesPosition;

/// The family of a series, and its position in the body. All groups share it.
#[derive(Debug)]
pub(super) struct Destination {
    pub(super) position: SeriesPosition,
    /// The family; `None` if a value can only be stored by its name and labels.
    pub(super) handle: Option<FamilyHandle>,
}

/// The cached spots of a group, one for each series of a form, in the order of the form.
#[derive(Debug, Clone)]
pub(super) struct Spots {
    /// The number of the form.
    form: u64,
    /// The spots; empty if none is cached.
    list: Arc<[Spot]>,
}

impl Spots {
    /// Creates an empty cache for pushes of this form.
    pub(super) fn new(form: u64) -> Self {
        Self { form, list: Arc::default() }
    }

    /// Returns whether the cache belongs to this form.
    pub(super) fn is_of(&self, form: u64) -> bool {
        self.form == form
    }

    /// Returns the spot of the series with this index; [`Spot::NOWHERE`] if it is not cached.
    pub(super) fn get(&self, number: usize) -> Spot {
        self.list.get(number).copied().unwrap_or(Spot::NOWHERE)
    }

    /// Caches the spot of a series. `series` is the number of series in the form.
    pub(super) fn set(&mut self, number: usize, spot: Spot, series: usize) {
        if self.list.len() != series {
            self.list = vec![Spot::NOWHERE; series].into();
        }
        if let Some(position) = Arc::make_mut(&mut self.list).get_mut(number) {
            *position = spot;
        }
    }
}
