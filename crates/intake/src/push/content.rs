//! The parsed body of a push: families with their series, and a value for each series. The body is
//! parsed and checked completely before any value is stored, because an invalid push must not
//! change its group.
//!
//! The families are separate from the values, because pushes whose bodies differ only in values
//! share the families. See [`super::forms`].

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use quipu::intake::InputValue;
use quipu::snapshot::{Native, Timestamp};
use quipu_segment::hash::SeededState;

use super::builder::Kind;
use super::forms::BodyForm;
use super::packed::SeriesSet;

/// The parsed body of a push, and the job of its group.
#[derive(Debug)]
pub(super) struct Content {
    /// The job in the labels of the group.
    pub(super) job: String,
    pub(super) families: Arc<PushFamilies>,
    /// The values of all series, in the order of `families`.
    pub(super) values: Values,
    /// The cached form of the body, see [`super::forms`]. `None` if the form is not cached.
    pub(super) form: Option<Arc<BodyForm>>,
}

/// The families of a push, without duplicate names.
#[derive(Debug, Default)]
pub(super) struct PushFamilies {
    list: Vec<PushFamily>,
    by_name: HashMap<Arc<str>, usize, SeededState>,
    /// The number of series in all families.
    series: usize,
}

/// A family of a push.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PushFamily {
    /// The name in the text format, for example with the suffix `_total` of a counter.
    pub(super) name: Arc<str>,
    pub(super) help: String,
    pub(super) unit: String,
    pub(super) kind: Kind,
    /// The labels of the series, without the labels of the group.
    pub(super) series: Arc<SeriesSet>,
}

/// The position of a series in [`PushFamilies`]: the index of its family, and the byte offset of
/// its labels in the family's [`SeriesSet`].
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SeriesPosition {
    pub(super) family: usize,
    at: usize,
}

/// The values of a push, one for each series.
#[derive(Debug, Default)]
pub(super) struct Values {
    pub(super) series: Vec<SeriesValue>,
    /// The buckets and quantiles of all values; each value refers to a range.
    pub(super) points: Vec<(f64, f64)>,
    /// The native histograms of all values; a value refers to one by index.
    pub(super) natives: Vec<NativeBuckets>,
}

/// The value of a series, by the type of its family.
#[derive(Debug, Clone, Default)]
pub(super) struct SeriesValue {
    /// The value, or the count of a summary.
    pub(super) value: f64,
    /// The sum of a histogram or a summary.
    pub(super) sum: f64,
    /// The classic buckets (their counts are not cumulative), or the quantiles: a range of
    /// [`Values::points`].
    pub(super) points: Range<usize>,
    /// The native histogram: an index in [`Values::natives`].
    pub(super) native: Option<usize>,
    /// The start time (`_created`), if the body contains it.
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

impl PushFamilies {
    pub(super) fn iter(&self) -> impl Iterator<Item = &PushFamily> {
        self.list.iter()
    }

    pub(super) fn count(&self) -> usize {
        self.list.len()
    }

    /// Returns the number of series in all families.
    pub(super) fn len(&self) -> usize {
        self.series
    }

    pub(super) fn get(&self, name: &str) -> Option<&PushFamily> {
        self.at(self.position(name)?)
    }

    /// Returns the family with this index.
    pub(super) fn at(&self, at: usize) -> Option<&PushFamily> {
        self.list.get(at)
    }

    /// Returns the series at a position; at the end of a family, this is the first series of the
    /// next family. The result is the family, the labels, the position of this series, and the
    /// position of the following one.
    pub(super) fn series(
        &self,
        mut place: SeriesPosition,
    ) -> Option<(&PushFamily, &[u8], [SeriesPosition; 2])> {
        loop {
            let family = self.at(place.family)?;
            if let Some((labels, at)) = family.series.next(place.at) {
                return Some((family, labels, [place, SeriesPosition { at, ..place }]));
            }
            place = SeriesPosition { family: place.family + 1, at: 0 };
        }
    }

    /// Returns the index of the family with this name.
    pub(super) fn position(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// Adds a family without series, and returns its index. The name must be new.
    pub(super) fn add(&mut self, family: PushFamily) -> usize {
        let at = self.list.len();
        self.by_name.insert(family.name.clone(), at);
        self.list.push(family);
        at
    }

    /// Adds a series to the family with this index. Returns false for a duplicate.
    pub(super) fn add_series(&mut self, at: usize, labels: &[u8]) -> bool {
        let family = self.list.get_mut(at);
        // This copies nothing, because no group uses the set yet.
        let is_new = family.is_some_and(|family| Arc::make_mut(&mut family.series).insert(labels));
        self.series += usize::from(is_new);
        is_new
    }

    /// Frees unused memory. Call this after the last series.
    pub(super) fn shrink(&mut self) {
        self.list.iter_mut().for_each(|family| Arc::make_mut(&mut family.series).shrink());
    }

    /// Returns whether both contain the same families, with the same series in the same order.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.list == other.list
    }
}

impl Content {
    /// Replaces a group's label set with the equal set of the cached form, because several groups
    /// then share one allocation.
    pub(super) fn share(&self, family: &PushFamily, series: &mut Arc<SeriesSet>) {
        if self.form.is_some() && !Arc::ptr_eq(series, &family.series) {
            *series = Arc::clone(&family.series);
        }
    }
}

impl Values {
    /// Converts the value of a series to the type of the intake, and calls `act` with it.
    pub(super) fn with_input_value<R>(
        &self,
        kind: Kind,
        value: &SeriesValue,
        act: impl FnOnce(&InputValue<'_>) -> R,
    ) -> R {
        let SeriesValue { value: number, sum, .. } = *value;
        let points = &self.points[value.points.clone()];
        match (kind, value.native) {
            (Kind::Counter, _) => act(&InputValue::Counter(number)),
            (Kind::Gauge, _) => act(&InputValue::Gauge(number)),
            (Kind::Untyped, _) => act(&InputValue::Unknown(number)),
            (Kind::Histogram, None) => act(&InputValue::Histogram { buckets: points, sum }),
            (Kind::Histogram, Some(at)) => {
                let native = &self.natives[at];
                let buckets = Native::new(native.schema)
                    .zero(native.zero_threshold, native.zero_count)
                    .positive(&native.positive)
                    .negative(&native.negative);
                act(&InputValue::Native { buckets, sum })
            }
            (Kind::Summary, _) => {
                act(&InputValue::Summary { quantiles: points, count: number, sum })
            }
        }
    }

    /// Returns a copy where `number` replaces each number. Returns `None` if `number` returns
    /// `None` for one, or if a result is invalid, for example if cumulative buckets decrease.
    pub(super) fn with_numbers(
        &self,
        families: &PushFamilies,
        mut number: impl FnMut(f64) -> Option<f64>,
    ) -> Option<Self> {
        let mut points = Vec::with_capacity(self.points.len());
        let mut series = Vec::with_capacity(self.series.len());
        let mut all = self.series.iter();
        for family in families.iter() {
            for old in all.by_ref().take(family.series.len()) {
                let start = points.len();
                let value = number(old.value)?;
                family.kind.has_value(value).then_some(())?;
                let (mut before, mut place) = (0.0, 0.0);
                for (bound, at) in &self.points[old.points.clone()] {
                    if family.kind == Kind::Histogram {
                        // Sum up, because a bucket in a body includes the smaller buckets.
                        place += at;
                        let count = number(place).filter(|count| *count >= before)?;
                        points.push((*bound, count - before));
                        before = count;
                    } else {
                        points.push((*bound, number(*at)?));
                    }
                }
                let (sum, points) = (number(old.sum)?, start..points.len());
                series.push(SeriesValue { value, sum, points, ..*old });
            }
        }
        Some(Self { series, points, natives: Vec::new() })
    }
}
