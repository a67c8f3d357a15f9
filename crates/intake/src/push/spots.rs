//! The spots of a group's series: where the values of a [form](super::forms) go in this one group,
//! so that a push of the same form changes them without looking for them by their labels.
//!
//! With many groups, what a push looks at is in no cache: the place of each series in an index,
//! then its labels, then its cells. With spots, only the cells are left, and they are fetched a few
//! series ahead.
//!
//! A spot leads to its series or nowhere, whatever happened meanwhile (see
//! [`Intake::take_prepared_at`](quipu::intake::Intake::take_prepared_at)). A value whose spot leads
//! nowhere is taken in the usual way, and then the next push finds all spots again. A spot takes 8
//! bytes; a group has one for each series of its last form.

use std::sync::Arc;

use quipu::intake::Spot;

/// The spots of a group's series, in the order of a form's.
#[derive(Debug, Clone)]
pub(super) struct Spots {
    /// The number of the form.
    form: u64,
    list: Arc<[Spot]>,
}

/// The spots as a push uses or finds them.
#[derive(Debug)]
pub(super) enum Spotting {
    /// They are found: the spots so far.
    Finding(Vec<Spot>),
    /// They are known. Whether one led nowhere, though its series is there.
    Using(Spots, bool),
}

/// What a group learns of its spots.
#[derive(Debug)]
pub(super) enum Learnt {
    /// They are as they were.
    Nothing,
    Spots(Spots),
    /// The next push has to find them again.
    Stale,
}

impl Spots {
    /// Whether they are for pushes of the form with that number.
    pub(super) fn is_of(&self, form: u64) -> bool {
        self.form == form
    }

    /// The spot of a series, by its number.
    pub(super) fn get(&self, number: usize) -> Spot {
        self.list.get(number).copied().unwrap_or(Spot::NOWHERE)
    }
}

impl Learnt {
    /// Whether a group need not be told.
    pub(super) fn is_nothing(&self) -> bool {
        matches!(self, Self::Nothing)
    }
}

impl Spotting {
    /// For a push to a group with these spots, if they are of its form.
    pub(super) fn new(spots: Option<Spots>) -> Self {
        match spots {
            Some(spots) => Self::Using(spots, false),
            None => Self::Finding(Vec::new()),
        }
    }

    /// The spots, if they are known.
    pub(super) fn known(&self) -> Option<&Spots> {
        match self {
            Self::Using(spots, _) => Some(spots),
            Self::Finding(_) => None,
        }
    }

    /// Notes that the series with that number was taken in the usual way. `find` looks for its
    /// spot.
    pub(super) fn took(&mut self, number: usize, find: impl FnOnce() -> Spot) {
        match self {
            Self::Using(_, is_stale) => *is_stale = *is_stale || find() != Spot::NOWHERE,
            Self::Finding(found) => {
                found.resize(number, Spot::NOWHERE);
                found.push(find());
            }
        }
    }

    /// What the group learns when a push of that form ends.
    pub(super) fn learnt(self, form: u64) -> Learnt {
        match self {
            Self::Using(_, true) => Learnt::Stale,
            Self::Using(_, false) => Learnt::Nothing,
            Self::Finding(found) if found.iter().all(|spot| *spot == Spot::NOWHERE) => {
                Learnt::Nothing
            }
            Self::Finding(found) => Learnt::Spots(Spots { form, list: found.into() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use quipu::Registry;
    use quipu::intake::{Given, Intake, Limits, Metric, Mode};

    use super::*;

    /// The spots of two series.
    fn two_spots() -> [Spot; 2] {
        let mut intake = Intake::new(&Registry::new(), Limits::default()).unwrap();
        let (metric, given) = (Metric::new("x"), Given::Gauge(1.0));
        ["a", "b"].map(|value| {
            intake.take(metric, &[("l", value)], &given, Mode::Set, None).unwrap();
            let prepared = intake.prepare(metric, &[("l", value)], &given, Mode::Set).unwrap();
            prepared.spot(&[value]).unwrap()
        })
    }

    #[test]
    fn spots_are_found_once_and_again_when_they_lead_nowhere() {
        let [first, second] = two_spots();
        let mut finding = Spotting::new(None);
        assert!(finding.known().is_none());
        // One between them is taken in another way, and so are those before a form was known.
        finding.took(1, || first);
        finding.took(2, || Spot::NOWHERE);
        finding.took(3, || second);
        let Learnt::Spots(spots) = finding.learnt(5) else { panic!("they were found") };
        assert!(spots.is_of(5) && !spots.is_of(6));
        let of = |number| spots.get(number);
        assert_eq!([of(0), of(1), of(2)], [Spot::NOWHERE, first, Spot::NOWHERE]);
        assert_eq!([of(3), of(4)], [second, Spot::NOWHERE]);

        let mut using = Spotting::new(Some(spots.clone()));
        assert!(using.known().is_some());
        using.took(2, || Spot::NOWHERE);
        assert!(using.learnt(5).is_nothing());
        let mut using = Spotting::new(Some(spots));
        using.took(1, || second);
        using.took(2, || Spot::NOWHERE);
        assert!(matches!(using.learnt(5), Learnt::Stale));
        let mut none = Spotting::new(None);
        none.took(0, || Spot::NOWHERE);
        assert!(none.learnt(5).is_nothing() && Spotting::new(None).learnt(5).is_nothing());
    }
}
