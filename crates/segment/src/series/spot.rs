//! Spots: the records where series were found. Use them if you update the same series again and
//! again, for example for each push of a group, but there are too many series to bind each.
//!
//! A spot names the record of a series, and the generation of this record. It is not a claim, so
//! the series can be removed at any time. Its spot then leads nowhere, even if another series
//! reused the record.

use super::cells::SeriesCells;
use super::family::{Family, Series};
use super::key::{KeyWriter, PackedValues};
use super::keyed::NO_RECORD;
use super::meta;
use crate::offset::WordOffset;

/// The record where a series was found, and its generation. Use it only with the family that found
/// the series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spot {
    at: WordOffset,
    generation: u32,
}

impl Spot {
    /// A spot that leads to no series.
    pub const NOWHERE: Self = Self { at: NO_RECORD, generation: 0 };
}

impl Family {
    /// Finds the series with these labels, if it exists and is shown. Returns `None`, too, while
    /// the family's index is changing. A family whose labels all have fixed values does not use
    /// spots, because the storage of each series is computed.
    pub fn spot(&self, labels: impl Fn(&mut KeyWriter<'_>)) -> Option<Spot> {
        let Series::Dynamic(keyed) = &self.inner.layout else { return None };
        let mut texts = PackedValues::new(keyed.secrets());
        let mut writer = KeyWriter::new(&self.inner.sets, &mut texts);
        labels(&mut writer);
        let key = writer.finish(keyed.secrets(), keyed.texts)?;
        let claim = keyed.claim()?;
        let found = keyed.find_live(&key, |at| claim.set(at))?;
        Some(Spot { at: found.at, generation: meta::generation_of(found.meta) })
    }

    /// Changes the cells of the series at a spot, like [`Family::update`]. Returns false, and calls
    /// `act` for no series, if the series is gone or hidden. This takes no lock, so it can return
    /// false even for a series that exists: call [`Family::change`] then.
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

    /// Prefetches the series at a spot. Use this if you will change the series soon.
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
            // Records are reused, and not always for the same series.
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
        // The spot of another family is harmless.
        let spot = family.spot(|key| key.text("1")).unwrap();
        other.prefetch(spot);
        other.change_at(Spot { at: WordOffset::new(u32::MAX), ..spot }, |_| {});
    }
}
