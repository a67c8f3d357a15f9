//! Where the values of a [form](super::forms) go: the family and the labels of each series, so that
//! a push finds its series by the values of its labels alone.
//!
//! It knows nothing of the series themselves (see [`Prepared`]), so it stays right whatever happens
//! to them. A value whose series is not there goes the usual way.

use std::fmt;
use std::ops::Range;

use quipu::intake::{Given, Intake, Mode, Moment, Prepared, Refused, Spot};

use super::groups::Key;
use super::packed;

/// Where values go, in the order of the families and their series.
#[derive(Default)]
pub(super) struct Known {
    series: Vec<Series>,
    /// From where each series' labels get their values, in the order of the labels' names.
    sources: Vec<Source>,
    /// Values of labels that are not of the group.
    texts: String,
}

/// Where the value of a series goes.
struct Series {
    /// `None` if it goes the usual way.
    prepared: Option<Prepared>,
    place: Place,
    sources: Range<usize>,
}

/// A series of [`Families`](super::content::Families): the position of its family, and where its
/// labels begin in the set of the family's series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) family: usize,
    pub(super) at: usize,
}

/// From where a label gets its value.
enum Source {
    /// From this label of the group.
    Group(usize),
    /// From the texts.
    Own(Range<usize>),
}

/// The most labels of a series that does not go the usual way.
const MAX_LABELS: usize = 16;

impl Known {
    /// Adds the next series. `labels` are all its labels by name, in a group with this key.
    pub(super) fn add(
        &mut self,
        place: Place,
        key: &Key,
        labels: &[(&str, &str)],
        prepared: Option<Prepared>,
    ) {
        let start = self.sources.len();
        for (name, value) in labels {
            let of_group = packed::unpack(key).position(|(other, _)| other == *name);
            self.sources.push(of_group.map_or_else(
                || {
                    let start = self.texts.len();
                    self.texts.push_str(value);
                    Source::Own(start..self.texts.len())
                },
                Source::Group,
            ));
        }
        let prepared = prepared.filter(|_| labels.len() <= MAX_LABELS);
        self.series.push(Series { prepared, place, sources: start..self.sources.len() });
    }

    /// The series with that number.
    pub(super) fn place(&self, number: usize) -> Option<Place> {
        self.series.get(number).map(|series| series.place)
    }

    /// Begins to fetch what the values of these series need. `group` is the values of the group's
    /// labels, in the order of its key.
    pub(super) fn prefetch(&self, series: Range<usize>, group: &[&str]) {
        let mut room = [""; MAX_LABELS];
        let all = self.series.iter().take(series.end).skip(series.start);
        let prepared = all.filter_map(|series| Some((series, series.prepared.as_ref()?)));
        let sought: Vec<_> = prepared
            .map(|(series, prepared)| {
                (prepared, prepared.seek(self.labels(series, group, &mut room)))
            })
            .collect();
        sought.into_iter().for_each(|(prepared, sought)| prepared.fetch(sought));
    }

    /// Takes the value of the series with that number; returns false, and changes nothing, if the
    /// value has to go the usual way. `group` is as for [`Known::prefetch`].
    ///
    /// # Errors
    /// Those of [`Intake::take_prepared`].
    pub(super) fn take(
        &self,
        number: usize,
        group: &[&str],
        intake: &mut Intake,
        (given, mode): (&Given<'_>, Mode),
    ) -> Result<bool, Refused> {
        let mut room = [""; MAX_LABELS];
        let Some(series) = self.series.get(number) else { return Ok(false) };
        let Some(prepared) = &series.prepared else { return Ok(false) };
        let labels = self.labels(series, group, &mut room);
        intake.take_prepared(prepared, labels, given, mode)
    }

    /// Where the series with that number is. `group` is as for [`Known::prefetch`].
    pub(super) fn spot(&self, number: usize, group: &[&str]) -> Spot {
        let mut room = [""; MAX_LABELS];
        let series = self.series.get(number);
        let spot = series.and_then(|series| {
            series.prepared.as_ref()?.spot(self.labels(series, group, &mut room))
        });
        spot.unwrap_or(Spot::NOWHERE)
    }

    /// Begins to fetch the series with that number, which is at this spot.
    pub(super) fn prefetch_at(&self, number: usize, spot: Spot) {
        let series = self.series.get(number);
        if let Some(prepared) = series.and_then(|series| series.prepared.as_ref()) {
            prepared.prefetch(spot);
        }
    }

    /// Takes the value of the series with that number, which is at this spot; returns false, and
    /// changes nothing, if the value has to go the usual way.
    pub(super) fn take_at(
        &self,
        number: usize,
        spot: Spot,
        intake: &Intake,
        (given, mode, moment): (&Given<'_>, Mode, &Moment),
    ) -> bool {
        let prepared = self.series.get(number).and_then(|series| series.prepared.as_ref());
        prepared.is_some_and(|it| intake.take_prepared_at(it, spot, given, mode, moment))
    }

    /// The values of a series' labels. `room` is memory for them.
    fn labels<'r, 'a>(
        &'a self,
        series: &Series,
        group: &[&'a str],
        room: &'r mut [&'a str; MAX_LABELS],
    ) -> &'r [&'a str] {
        let sources = self.sources.get(series.sources.clone()).unwrap_or_default();
        for (value, source) in room.iter_mut().zip(sources) {
            *value = match source {
                Source::Group(at) => group.get(*at).copied().unwrap_or_default(),
                Source::Own(range) => self.texts.get(range.clone()).unwrap_or_default(),
            };
        }
        room.get(..sources.len()).unwrap_or_default()
    }
}

impl fmt::Debug for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Known").field("series", &self.series.len()).finish_non_exhaustive()
    }
}
