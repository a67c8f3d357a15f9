//! Changing, making, and hiding a series in separate steps: for callers that check limits between
//! them, or that decide what is shown.

use super::cells::SeriesCells;
use super::family::{Family, Series};
use super::key::{KeyWriter, Texts};
use crate::error::Error;
use crate::lock;

impl Family {
    /// Changes the cells of the series with the labels that `labels` writes, shown or not, if there
    /// is one; returns false, and changes nothing, if there is none or if that cannot be told
    /// without waiting. Takes no lock.
    #[inline]
    pub fn change(
        &self,
        labels: impl Fn(&mut KeyWriter<'_>),
        act: impl Fn(SeriesCells<'_>),
    ) -> bool {
        let inner = &*self.inner;
        match &inner.layout {
            Series::Dense(dense) => {
                let mut writer = KeyWriter::of_group(&inner.sets);
                labels(&mut writer);
                let slot = writer.group().filter(|&group| group < inner.groups);
                slot.is_some_and(|slot| {
                    dense.mark(slot);
                    act(dense.cells_at(slot));
                    true
                })
            }
            Series::Dynamic(keyed) => {
                let mut texts = Texts::new(keyed.secrets());
                let mut writer = KeyWriter::new(&inner.sets, &mut texts);
                labels(&mut writer);
                let Some(group) = writer.group() else { return false };
                if let Some(claim) = keyed.claim_at_hand()
                    && let Some(cells) = keyed.find_cells(group, &mut texts, claim.hold())
                {
                    act(cells);
                    return true;
                }
                let key = texts.finish(group, keyed.secrets(), keyed.texts);
                let (Some(key), Some(claim)) = (key, keyed.claim()) else { return false };
                let found = keyed.find_surely(&key, |at| claim.set(at)).ok().flatten();
                found.is_some_and(|found| {
                    act(keyed.cells_at(found.at));
                    true
                })
            }
        }
    }

    /// Makes the series with the labels that `labels` writes, unless there is one. Returns whether
    /// there is one now: unlike an update, this counts nothing in the overflow series.
    pub fn make_series(&self, labels: impl Fn(&mut KeyWriter<'_>)) -> bool {
        let inner = &*self.inner;
        match &inner.layout {
            Series::Dense(_) => self.change(labels, |_| {}),
            Series::Dynamic(keyed) => {
                let mut texts = Texts::new(keyed.secrets());
                let mut writer = KeyWriter::new(&inner.sets, &mut texts);
                labels(&mut writer);
                let key = writer.finish(keyed.secrets(), keyed.texts);
                let Some(claim) = keyed.claim() else { return false };
                self.find_or_make(keyed, key, &|at| claim.set(at)).is_some()
            }
        }
    }

    /// Shows the series with the labels that `labels` writes, or hides it; returns false if there
    /// is none. A hidden series keeps its cells. It is shown again by this method, or, in a family
    /// whose series expire, once a sweep sees that it has changed.
    ///
    /// # Errors
    /// Those of [`Family::remove`].
    pub fn set_shown(
        &self,
        labels: impl Fn(&mut KeyWriter<'_>),
        shown: bool,
    ) -> Result<bool, Error> {
        let inner = &*self.inner;
        let Series::Dynamic(keyed) = &inner.layout else { return Ok(false) };
        let mut texts = Texts::new(inner.secrets());
        let mut writer = KeyWriter::new(&inner.sets, &mut texts);
        labels(&mut writer);
        match writer.finish(keyed.secrets(), keyed.texts) {
            Some(key) => keyed.set_shown(&key, shown, lock::REMOVAL),
            None => Ok(false),
        }
    }

    /// The number of series that are hidden.
    pub fn hidden(&self) -> u64 {
        match &self.inner.layout {
            Series::Dense(_) => 0,
            Series::Dynamic(keyed) => keyed.hidden(),
        }
    }

    /// Removes up to `most` hidden series for good. Returns their number, which is less if the
    /// family has no more, or if another thread has the lock.
    ///
    /// # Errors
    /// Those of the lock, if the segment lies in a file.
    pub fn forget_hidden(&self, most: usize) -> Result<u64, Error> {
        match &self.inner.layout {
            Series::Dynamic(keyed) if keyed.hidden() > 0 => keyed.forget(most),
            _ => Ok(0),
        }
    }
}
