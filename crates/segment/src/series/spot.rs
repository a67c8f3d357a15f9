//! Spots: where series were found, for callers that come back to the same series again and again,
//! and to too many of them to bind each.
//!
//! A spot names the record of a series, and the generation of that record. It claims nothing: the
//! series may be removed at any time. Then its spot leads nowhere, also if another series has the
//! record by then.

use super::cells::SeriesCells;
use super::family::{Family, Series};
use super::key::{KeyWriter, Texts};
use super::keyed::NO_RECORD;
use super::meta;
use crate::offset::WordOffset;

/// Where a series was found. It is to be used with the family that found it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spot {
    at: WordOffset,
    generation: u32,
}

impl Spot {
    /// The spot of no series.
    pub const NOWHERE: Self = Self { at: NO_RECORD, generation: 0 };
}

impl Family {
    /// Finds the series with the labels that `labels` writes, if it is there and shown. Returns
    /// `None` also while the family's index is changing, and for a family whose labels all have
    /// fixed values: its series are found by arithmetic.
    pub fn spot(&self, labels: impl Fn(&mut KeyWriter<'_>)) -> Option<Spot> {
        let Series::Dynamic(keyed) = &self.inner.layout else { return None };
        let mut texts = Texts::new(keyed.secrets());
        let mut writer = KeyWriter::new(&self.inner.sets, &mut texts);
        labels(&mut writer);
        let key = writer.finish(keyed.secrets(), keyed.texts)?;
        let claim = keyed.claim()?;
        let found = keyed.find_live(&key, |at| claim.set(at))?;
        Some(Spot { at: found.at, generation: meta::generation_of(found.meta) })
    }

    /// Changes the cells of the series at a spot as [`Family::update`] does, if it is still there
    /// and shown; otherwise returns false, and changes nothing. Takes no lock. It may return false
    /// for a series that is there: then [`Family::change`] finds it.
    #[inline]
    pub fn change_at(&self, spot: Spot, act: impl FnOnce(SeriesCells<'_>)) -> bool {
        let Series::Dynamic(keyed) = &self.inner.layout else { return false };
        if spot == Spot::NOWHERE {
            return false;
        }
        let Some(claim) = keyed.claim_at_hand() else { return false };
        let found = keyed.find_at(spot.at, spot.generation, |at| claim.set(at));
        if let Some(found) = found {
            act(keyed.cells_at(found.at));
        }
        found.is_some()
    }

    /// Begins to fetch the series at a spot into the cache, for callers that will change it soon.
    #[inline]
    pub fn prefetch(&self, spot: Spot) {
        if let Series::Dynamic(keyed) = &self.inner.layout {
            keyed.prefetch(spot.at);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::schema::{Label, Schema};
    use super::*;
    use crate::segment::Segment;

    #[test]
    fn a_spot_leads_to_its_series_or_nowhere() {
        let segment = Segment::private(1 << 22).unwrap();
        let labels = vec![Label { name: "user".into(), values: None }];
        let schema = Schema { name: "requests".into(), cells: 1, labels, ..Schema::default() };
        let family = segment.family(&schema).unwrap();
        let count = |user: &str| family.read(|key| key.text(user), |cells| cells.sum(0));
        assert_eq!(family.spot(|key| key.text("ada")), None);
        let mut before: Option<Spot> = None;
        for round in 0..200 {
            family.add(|key| key.text("ada"), 0, 1);
            let spot = family.spot(|key| key.text("ada")).unwrap();
            family.prefetch(spot);
            assert!(family.change_at(spot, |cells| cells.add(0, 1)));
            assert_eq!(count("ada"), Some(2));
            if let Some(before) = before {
                assert!(!family.change_at(before, |_| panic!("that series was removed")));
            }
            assert!(family.remove(|key| key.text("ada")).unwrap());
            assert!(!family.change_at(spot, |_| panic!("it was removed")));
            // Records are used again, and not always for the same series.
            family.add(|key| key.text(&round.to_string()), 0, 1);
            assert!(!family.change_at(spot, |_| panic!("it is another series")));
            if round % 2 == 0 {
                family.remove(|key| key.text(&round.to_string())).unwrap();
            }
            before = Some(spot);
        }
        family.prefetch(Spot::NOWHERE);
        assert!(!family.change_at(Spot::NOWHERE, |_| panic!("no series is there")));
        let other = segment.family(&Schema { name: "other".into(), ..schema.clone() }).unwrap();
        // The spot of another family does no harm.
        let spot = family.spot(|key| key.text("1")).unwrap();
        other.prefetch(spot);
        other.change_at(Spot { at: WordOffset::new(u32::MAX), ..spot }, |_| {});
    }
}
