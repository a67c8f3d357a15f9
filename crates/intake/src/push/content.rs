//! What a push holds, with the grouping labels in place: families with their series, and a value
//! for each series. It is complete and checked in itself before anything of it is applied.
//!
//! The families are apart from the values: pushes whose bodies differ in values alone share them.
//! See [`super::forms`].

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use quipu::intake::Given;
use quipu::snapshot::{Native, Timestamp};
use quipu_segment::hash::Seeded;

use super::builder::Kind;
use super::forms::Form;
use super::packed::SeriesSet;

/// What a push holds.
#[derive(Debug)]
pub(super) struct Content {
    /// The job of the group.
    pub(super) job: String,
    pub(super) families: Arc<Families>,
    /// The values of all series, in the order of the families and their series.
    pub(super) values: Values,
    /// The form of its body, if that is known.
    pub(super) form: Option<Arc<Form>>,
}

/// The families of a push, each name once.
#[derive(Debug, Default)]
pub(super) struct Families {
    list: Vec<Family>,
    by_name: HashMap<Arc<str>, usize, Seeded>,
    /// The number of series.
    series: usize,
}

/// A family of a push.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Family {
    /// The name, as the text format shows it.
    pub(super) name: Arc<str>,
    pub(super) help: String,
    pub(super) unit: String,
    pub(super) kind: Kind,
    /// The labels of its series that are not grouping labels.
    pub(super) series: Arc<SeriesSet>,
}

/// A series of [`Families`]: the position of its family, and where its labels begin in the set of
/// the family's series.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Place {
    pub(super) family: usize,
    at: usize,
}

/// The values of series.
#[derive(Debug, Default)]
pub(super) struct Values {
    pub(super) held: Vec<Held>,
    /// The buckets and quantiles that values refer to.
    pub(super) points: Vec<(f64, f64)>,
    /// The native histograms that values refer to.
    pub(super) natives: Vec<NativeBuckets>,
}

/// The value of a series, by the type of its family.
#[derive(Debug, Clone, Default)]
pub(super) struct Held {
    /// The value, or the count of a summary.
    pub(super) value: f64,
    /// Of a histogram or a summary.
    pub(super) sum: f64,
    /// Its buckets, with the count of each alone, or its quantiles.
    pub(super) points: Range<usize>,
    /// The buckets of a native histogram.
    pub(super) native: Option<usize>,
    /// When the sender began to count, if it says so.
    pub(super) start: Option<Timestamp>,
}

/// The buckets of a native histogram.
#[derive(Debug)]
pub(super) struct NativeBuckets {
    pub(super) schema: i8,
    pub(super) zero_threshold: f64,
    pub(super) zero_count: u64,
    pub(super) positive: Vec<(i32, u64)>,
    pub(super) negative: Vec<(i32, u64)>,
}

impl Families {
    /// The families.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Family> {
        self.list.iter()
    }

    /// The number of families.
    pub(super) fn count(&self) -> usize {
        self.list.len()
    }

    /// The number of series.
    pub(super) fn len(&self) -> usize {
        self.series
    }

    /// The family of that name.
    pub(super) fn get(&self, name: &str) -> Option<&Family> {
        self.at(self.position(name)?)
    }

    /// The family at a position, of which 0 is the first.
    pub(super) fn at(&self, at: usize) -> Option<&Family> {
        self.list.get(at)
    }

    /// The series at a place or, if its family has no more, the first one after it: its family, its
    /// labels, its own place and the place of the next series.
    pub(super) fn series(&self, mut place: Place) -> Option<(&Family, &[u8], [Place; 2])> {
        loop {
            let family = self.at(place.family)?;
            if let Some((labels, at)) = family.series.next(place.at) {
                return Some((family, labels, [place, Place { at, ..place }]));
            }
            place = Place { family: place.family + 1, at: 0 };
        }
    }

    /// The position of the family of that name.
    pub(super) fn position(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// Adds a family, whose name is not there, without series. Returns its position.
    pub(super) fn add(&mut self, family: Family) -> usize {
        let at = self.list.len();
        self.by_name.insert(family.name.clone(), at);
        self.list.push(family);
        at
    }

    /// Adds a series to the family at a position; false if it was there.
    pub(super) fn add_series(&mut self, at: usize, labels: &[u8]) -> bool {
        let family = self.list.get_mut(at);
        // No group has the set yet, so none is copied.
        let is_new = family.is_some_and(|it| Arc::make_mut(&mut it.series).insert(labels));
        self.series += usize::from(is_new);
        is_new
    }

    /// Frees what is not needed once all series were added.
    pub(super) fn shrink(&mut self) {
        self.list.iter_mut().for_each(|family| Arc::make_mut(&mut family.series).shrink());
    }

    /// Whether these are the same families, with the same series in the same order.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.list == other.list
    }
}

impl Content {
    /// Makes a group that has the series of a family share the label sets, if other groups do.
    pub(super) fn share(&self, family: &Family, series: &mut Arc<SeriesSet>) {
        if self.form.is_some() && !Arc::ptr_eq(series, &family.series) {
            *series = Arc::clone(&family.series);
        }
    }
}

impl Values {
    /// The value of a series of that type, as an intake takes it.
    pub(super) fn with_given<R>(
        &self,
        kind: Kind,
        held: &Held,
        act: impl FnOnce(&Given<'_>) -> R,
    ) -> R {
        let Held { value, sum, .. } = *held;
        let points = &self.points[held.points.clone()];
        match (kind, held.native) {
            (Kind::Counter, _) => act(&Given::Counter(value)),
            (Kind::Gauge, _) => act(&Given::Gauge(value)),
            (Kind::Untyped, _) => act(&Given::Unknown(value)),
            (Kind::Histogram, None) => act(&Given::Histogram { buckets: points, sum }),
            (Kind::Histogram, Some(at)) => {
                let native = &self.natives[at];
                let buckets = Native {
                    schema: native.schema,
                    zero_threshold: native.zero_threshold,
                    zero_count: native.zero_count,
                    positive: &native.positive,
                    negative: &native.negative,
                    exemplars: &[],
                };
                act(&Given::Native { buckets, sum })
            }
            (Kind::Summary, _) => act(&Given::Summary { quantiles: points, count: value, sum }),
        }
    }

    /// These values of the series of families with other numbers in their places: `number` returns
    /// the one in place of each, as the body has it. `None` if it returns none for one, or if a
    /// number is not possible in its place.
    pub(super) fn with_numbers(
        &self,
        families: &Families,
        mut number: impl FnMut(f64) -> Option<f64>,
    ) -> Option<Self> {
        let mut points = Vec::with_capacity(self.points.len());
        let mut held = Vec::with_capacity(self.held.len());
        let mut all = self.held.iter();
        for family in families.iter() {
            for one in all.by_ref().take(family.series.len()) {
                let start = points.len();
                let value = number(one.value)?;
                family.kind.has_value(value).then_some(())?;
                let (mut before, mut place) = (0.0, 0.0);
                for (bound, at) in &self.points[one.points.clone()] {
                    if family.kind == Kind::Histogram {
                        // A body has the counts of buckets with all before them.
                        place += at;
                        let count = number(place).filter(|count| *count >= before)?;
                        points.push((*bound, count - before));
                        before = count;
                    } else {
                        points.push((*bound, number(*at)?));
                    }
                }
                let (sum, points) = (number(one.sum)?, start..points.len());
                held.push(Held { value, sum, points, ..*one });
            }
        }
        Some(Self { held, points, natives: Vec::new() })
    }
}
