//! Changes, creates, and hides a series in separate steps. Use these if you check limits between
//! the steps, or decide yourself which series are shown.

use super::cells::SeriesCells;
use super::family::{Family, Series};
use super::key::{KeyWriter, PackedValues};
use crate::error::Error;
use crate::lock;

impl Family {
    /// Calls `act` on the cells of the series with these labels, hidden or not. Returns false if
    /// there is no such series, or if finding out would require the lock.
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
                let mut texts = PackedValues::new(keyed.secrets());
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

    /// Creates the series with these labels, unless it exists. Returns whether it exists now.
    /// Unlike an update, this never counts in the overflow series.
    pub fn make_series(&self, labels: impl Fn(&mut KeyWriter<'_>)) -> bool {
        let inner = &*self.inner;
        match &inner.layout {
            Series::Dense(_) => self.change(labels, |_| {}),
            Series::Dynamic(keyed) => {
                let mut texts = PackedValues::new(keyed.secrets());
                let mut writer = KeyWriter::new(&inner.sets, &mut texts);
                labels(&mut writer);
                let key = writer.finish(keyed.secrets(), keyed.texts);
                let Some(claim) = keyed.claim() else { return false };
                self.find_or_make(keyed, key, &|at| claim.set(at)).is_some()
            }
        }
    }

    /// Shows or hides the series with these labels; returns false if there is no such series. A
    /// hidden series keeps its cells. You can show it again with this method. In a family whose
    /// series expire, a sweep shows it, too, once it has changed.
    ///
    /// # Errors
    /// Returns the errors of [`Family::remove`].
    pub fn set_shown(
        &self,
        labels: impl Fn(&mut KeyWriter<'_>),
        shown: bool,
    ) -> Result<bool, Error> {
        let inner = &*self.inner;
        let Series::Dynamic(keyed) = &inner.layout else { return Ok(false) };
        let mut texts = PackedValues::new(inner.secrets());
        let mut writer = KeyWriter::new(&inner.sets, &mut texts);
        labels(&mut writer);
        match writer.finish(keyed.secrets(), keyed.texts) {
            Some(key) => keyed.set_shown(&key, shown, lock::REMOVAL),
            None => Ok(false),
        }
    }

    /// Returns the number of hidden series.
    pub fn hidden(&self) -> u64 {
        match &self.inner.layout {
            Series::Dense(_) => 0,
            Series::Dynamic(keyed) => keyed.hidden(),
        }
    }

    /// Removes up to `most` hidden series for good. Returns their number, which is smaller if there
    /// are no more, or if another thread holds the lock.
    ///
    /// # Errors
    /// Returns the errors of the lock, if the segment is in a file.
    pub fn forget_hidden(&self, most: usize) -> Result<u64, Error> {
        match &self.inner.layout {
            Series::Dynamic(keyed) if keyed.hidden() > 0 => keyed.forget(most),
            _ => Ok(0),
        }
    }
}
