//! The data of `quipu top`: a row for each series, with its rate, its resets, and its last
//! values.
//!
//! Each [`Look`] (a reading of all series) updates the rows. A row is identified by its family and
//! labels, and is removed if its series is missing. The rows contain numbers; other modules format
//! them.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use hashbrown::HashTable;
use quipu::snapshot::{Kind, Number};

use super::trend::Trend;
use crate::look::{Family, Look, Points, Series, Value, began_again, growth};

/// All rows, and their families.
#[derive(Debug, Default)]
pub(super) struct Model {
    families: Vec<Family>,
    /// The trend of each family: the sum over its series in each look. A trend begins with the
    /// first look that contains points.
    trends: Vec<Option<Trend>>,
    numbers: HashMap<(String, Kind), u32>,
    rows: Vec<Row>,
    /// The indices of the rows, sorted by name and labels.
    order: Vec<u32>,
    is_ordered: bool,
    /// A hash table of the rows, by family and labels.
    index: HashTable<u32>,
    hasher: RandomState,
    /// The number of looks so far.
    looks: u32,
    /// The number of repeated series in the last look.
    duplicates: usize,
    /// The number of families with series.
    used: usize,
}

/// A series with its value, and its rate since the previous look.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) family: u32,
    /// The labels, formatted like [`Series::labels`].
    pub(super) labels: Box<str>,
    pub(super) value: RowValue,
    /// The number of events or observations per second since the previous look. `None` if the rate
    /// is unknown, or if the series does not count events.
    pub(super) rate: Option<f64>,
    /// The number of times that the series began again from zero.
    pub(super) resets: u32,
    /// The start time of the series in nanoseconds of Unix time.
    pub start: Option<u64>,
    /// The last points. `None` while all points are equal.
    trend: Option<Trend>,
    /// The number of points, one for each look since the first one with a point.
    points: usize,
    /// Whether the series counts events. Its points are then rates, otherwise values.
    is_sum: bool,
    /// The time of the last look that contained this series.
    at: Duration,
    /// The number of this look.
    look: u32,
}

/// The value of a row.
#[derive(Debug, Clone)]
pub(super) enum RowValue {
    Number(Number),
    Histogram(Box<Buckets>),
    Summary { count: f64, sum: f64, quantiles: Vec<(f64, f64)> },
}

/// The values of a histogram, and its observations since the previous look.
#[derive(Debug, Clone, Default)]
pub(super) struct Buckets {
    pub(super) count: f64,
    pub(super) sum: f64,
    /// The upper bounds, each with the number of observations in only this bucket.
    pub(super) now: Vec<(f64, f64)>,
    /// The number of observations in each bucket since the previous look; empty if this is unknown.
    pub(super) recent: Vec<f64>,
    /// Whether the bounds are the exponential buckets of a native histogram. Only buckets in use
    /// exist.
    pub(super) is_exponential: bool,
}

/// The sum over the rows of a family.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    has_rows: bool,
    /// The sum of the points; `None` if no row contains a point.
    points: Option<f64>,
}

/// The maximum number of families without rows. They are kept because a family's number must not
/// change.
const MAX_EMPTY: usize = 10_000;

impl Model {
    /// Updates the rows with a look. `at` is the time of the look, relative to any fixed time.
    pub(super) fn update(&mut self, look: &Look, at: Duration) {
        self.looks = self.looks.wrapping_add(1);
        self.duplicates = 0;
        let numbers: Vec<u32> =
            look.families().iter().map(|family| self.family_number(family)).collect();
        let mut sums = vec![Sum::default(); self.families.len()];
        let (mut next, mut found) = (0, 0);
        for series in look.series() {
            let family = numbers[series.family as usize];
            let Some(row) = self.take(family, &series, at, next) else { continue };
            sums[family as usize].add(self.rows[row].point());
            found += 1;
            next = row + 1;
        }
        self.add_trends(&sums);
        if found < self.rows.len() {
            self.drop_gone();
        }
        self.used = sums.iter().filter(|sum| sum.has_rows).count();
        if sums.len() - self.used > MAX_EMPTY {
            self.drop_families(&sums);
        }
        if !self.is_ordered {
            self.sort();
        }
    }

    pub(super) fn families(&self) -> &[Family] {
        &self.families
    }

    pub(super) fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Returns the indices of the rows, sorted by name and labels.
    pub(super) fn order(&self) -> &[u32] {
        &self.order
    }

    /// Returns the number of a family, if it was ever in a look.
    pub(super) fn number(&self, key: &(String, Kind)) -> Option<u32> {
        self.numbers.get(key).copied()
    }

    /// Returns the points for a sparkline of a family: the sums over its series.
    pub(super) fn trend(&self, family: u32) -> Vec<f32> {
        let trend = self.trends[family as usize].as_ref();
        trend.map_or_else(Vec::new, |trend| trend.values().collect())
    }

    pub(super) fn family(&self, row: &Row) -> &Family {
        &self.families[row.family as usize]
    }

    pub(super) fn looks(&self) -> u32 {
        self.looks
    }

    pub(super) fn duplicates(&self) -> usize {
        self.duplicates
    }

    /// Returns the number of families with series.
    pub(super) fn used(&self) -> usize {
        self.used
    }

    /// Returns the number of families that contain series and whose names begin with `prefix`.
    pub(super) fn used_with_prefix(&self, prefix: &str) -> usize {
        let mut found: Vec<u32> = (self.rows.iter().map(|row| row.family))
            .filter(|&family| self.families[family as usize].name.starts_with(prefix))
            .collect();
        found.sort_unstable();
        found.dedup();
        found.len()
    }

    /// Returns the index of the row with this family and these labels.
    pub(super) fn find(&self, family: u32, labels: &str) -> Option<u32> {
        let matches = |row: &u32| self.rows[*row as usize].is(family, labels);
        self.index.find(self.hasher.hash_one((family, labels)), matches).copied()
    }

    fn family_number(&mut self, family: &Family) -> u32 {
        let key = (family.name.clone(), family.kind);
        if let Some(&number) = self.numbers.get(&key) {
            // We update the metadata, because the help can appear in a later look.
            self.families[number as usize].clone_from(family);
            return number;
        }
        let number = u32::try_from(self.families.len()).expect("empty families are dropped");
        self.numbers.insert(key, number);
        self.families.push(family.clone());
        self.trends.push(None);
        number
    }

    /// Updates the row of a series, and returns the row's index; `None` if the look repeats the
    /// series. Most looks use the order of the previous one, so the row is probably `next`.
    fn take(
        &mut self,
        family: u32,
        series: &Series<'_>,
        at: Duration,
        next: usize,
    ) -> Option<usize> {
        let kind = self.families[family as usize].kind;
        let rows = &mut self.rows;
        let number = match rows.get(next).is_some_and(|row| row.is(family, series.labels)) {
            true => next,
            false => {
                let hash = self.hasher.hash_one((family, series.labels));
                let matches = |row: &u32| rows[*row as usize].is(family, series.labels);
                match self.index.find(hash, matches) {
                    Some(&row) => row as usize,
                    None => {
                        self.is_ordered = false;
                        // This fits, because a look contains fewer series.
                        let number = u32::try_from(rows.len()).expect("there are fewer rows");
                        rows.push(Row::new(family, kind, series, at, self.looks));
                        let hasher = &self.hasher;
                        let rehash = |row: &u32| rows[*row as usize].hash(hasher);
                        self.index.insert_unique(hash, number, rehash);
                        return Some(number as usize);
                    }
                }
            }
        };
        let row = &mut rows[number];
        if row.look == self.looks {
            self.duplicates += 1;
            return None;
        }
        row.update(kind, series, at, self.looks);
        Some(number)
    }

    /// Removes the rows whose series are missing in the last look.
    fn drop_gone(&mut self) {
        self.rows.retain(|row| row.look == self.looks);
        self.is_ordered = false;
        self.build_index();
    }

    fn build_index(&mut self) {
        let (rows, hasher) = (&self.rows, &self.hasher);
        let hash = |row: &u32| rows[*row as usize].hash(hasher);
        self.index.clear();
        for row in (0..).take(rows.len()) {
            self.index.insert_unique(hash(&row), row, hash);
        }
    }

    /// Removes the families without rows, and renumbers the others.
    fn drop_families(&mut self, sums: &[Sum]) {
        let mut numbers = Vec::with_capacity(sums.len());
        let mut next = 0;
        for sum in sums {
            numbers.push(next);
            next += u32::from(sum.has_rows);
        }
        let mut used = sums.iter();
        self.families.retain(|_| used.next().is_some_and(|sum| sum.has_rows));
        let mut used = sums.iter();
        self.trends.retain(|_| used.next().is_some_and(|sum| sum.has_rows));
        self.numbers = (0..)
            .zip(&self.families)
            .map(|(number, family)| ((family.name.clone(), family.kind), number))
            .collect();
        self.rows.iter_mut().for_each(|row| row.family = numbers[row.family as usize]);
        self.is_ordered = false;
        self.build_index();
    }

    fn add_trends(&mut self, sums: &[Sum]) {
        for (trend, sum) in self.trends.iter_mut().zip(sums) {
            match (trend, sum.points) {
                (Some(trend), sum) => trend.push(sum.unwrap_or(f64::NAN)),
                (trend, Some(sum)) => *trend = Some(Trend::repeat(sum, 1)),
                (None, None) => {}
            }
        }
    }

    /// Sorts the rows by name, type and labels. Compares the names only once per family.
    fn sort(&mut self) {
        let Self { families, rows, order, .. } = self;
        let mut by_name: Vec<usize> = (0..families.len()).collect();
        by_name.sort_by_key(|&number| (&*families[number].name, families[number].kind.as_str()));
        let mut ranks = vec![0; families.len()];
        by_name.iter().enumerate().for_each(|(rank, &number)| ranks[number] = rank);
        order.clear();
        order.extend((0..).take(rows.len()));
        let key = |row: u32| {
            let row = &rows[row as usize];
            (ranks[row.family as usize], &*row.labels)
        };
        order.sort_unstable_by(|&a, &b| key(a).cmp(&key(b)));
        self.is_ordered = true;
    }
}

impl Sum {
    fn add(&mut self, point: Option<f64>) {
        self.has_rows = true;
        if let Some(point) = point {
            *self.points.get_or_insert(0.0) += point;
        }
    }
}

impl Row {
    fn new(family: u32, kind: Kind, series: &Series<'_>, at: Duration, look: u32) -> Self {
        let value = RowValue::new(&series.value);
        let is_sum = kind == Kind::Counter || !matches!(value, RowValue::Number(_));
        Self {
            family,
            labels: series.labels.into(),
            value,
            rate: None,
            resets: 0,
            start: series.start,
            trend: None,
            // A rate is unknown at the first look.
            points: usize::from(!is_sum),
            is_sum,
            at,
            look,
        }
    }

    fn is(&self, family: u32, labels: &str) -> bool {
        self.family == family && *self.labels == *labels
    }

    fn hash(&self, hasher: &RandomState) -> u64 {
        hasher.hash_one((self.family, &*self.labels))
    }

    /// Returns the value as one number: the value of a counter or gauge, or the number of
    /// observations.
    pub(super) fn total(&self) -> f64 {
        self.value.total()
    }

    fn update(&mut self, kind: Kind, series: &Series<'_>, at: Duration, look: u32) {
        let seconds = at.saturating_sub(self.at).as_secs_f64();
        // A series with a later start time is a new series with old labels.
        let is_restarted = began_again(self.start, series.start);
        let before = self.point();
        let growth = self.value.replace(kind, &series.value, is_restarted);
        self.is_sum = growth.is_some();
        self.rate = growth
            .filter(|_| seconds > 0.0)
            .map(|(growth, _)| growth / seconds)
            .filter(|rate| rate.is_finite());
        self.resets += u32::from(growth.is_some_and(|(_, is_reset)| is_reset));
        self.start = series.start;
        (self.at, self.look) = (at, look);
        self.remember(before);
    }

    /// Returns the current point of the trend: the rate, or the value of a gauge.
    fn point(&self) -> Option<f64> {
        match (self.is_sum, &self.value) {
            (false, RowValue::Number(number)) => Some(number.as_f64()),
            _ => self.rate,
        }
    }

    /// Adds the current point to the trend. The trend begins when the points change for the first
    /// time. A look without a point leaves a gap, because the points of all rows must belong to the
    /// same looks.
    fn remember(&mut self, before: Option<f64>) {
        let point = self.point();
        if self.points == 0 && point.is_none() {
            return;
        }
        let (point, before) = (point.unwrap_or(f64::NAN), before.unwrap_or(f64::NAN));
        match &mut self.trend {
            Some(trend) => trend.push(point),
            None if self.points > 0 && point.to_bits() != before.to_bits() => {
                let mut trend = Trend::repeat(before, self.points);
                trend.push(point);
                self.trend = Some(trend);
            }
            None => {}
        }
        self.points = self.points.saturating_add(1);
    }

    /// Returns the points for a sparkline, oldest first: rates, or values if there are no rates.
    pub(super) fn points(&self) -> Vec<f32> {
        match (&self.trend, self.point()) {
            (Some(trend), _) => trend.values().collect(),
            (None, Some(point)) => Trend::repeat(point, self.points).values().collect(),
            (None, None) => Vec::new(),
        }
    }
}

impl RowValue {
    fn new(value: &Value<Points<'_>>) -> Self {
        match *value {
            Value::Number(number) => Self::Number(number),
            Value::Histogram { count, sum, buckets, is_exponential } => {
                let (now, recent) = (buckets.to_vec(), Vec::new());
                Self::Histogram(Box::new(Buckets { count, sum, now, recent, is_exponential }))
            }
            Value::Summary { count, sum, quantiles } => {
                Self::Summary { count, sum, quantiles: quantiles.to_vec() }
            }
        }
    }

    fn total(&self) -> f64 {
        match self {
            Self::Number(number) => number.as_f64(),
            Self::Histogram(buckets) => buckets.count,
            Self::Summary { count, .. } => *count,
        }
    }

    /// Replaces the value. Returns the growth, and whether the value began again from zero; `None`
    /// if it is not a sum.
    fn replace(
        &mut self,
        kind: Kind,
        value: &Value<Points<'_>>,
        is_restarted: bool,
    ) -> Option<(f64, bool)> {
        match (&mut *self, value) {
            (Self::Number(before), Value::Number(now)) => {
                let growth = (kind == Kind::Counter).then(|| growth(*before, *now, is_restarted));
                *before = *now;
                growth
            }
            (
                Self::Histogram(buckets),
                &Value::Histogram { count, sum, buckets: now, is_exponential },
            ) => {
                if is_exponential {
                    // A new bucket contained no observations before.
                    buckets.use_bounds(now);
                }
                buckets.is_exponential = is_exponential;
                Some(buckets.replace(count, sum, now, is_restarted))
            }
            (
                Self::Summary { count, sum, quantiles },
                &Value::Summary { count: count_now, sum: sum_now, quantiles: now },
            ) => {
                let growth = growth(Number::Float(*count), Number::Float(count_now), is_restarted);
                (*count, *sum) = (count_now, sum_now);
                quantiles.clear();
                quantiles.extend_from_slice(now);
                Some(growth)
            }
            _ => {
                *self = Self::new(value);
                None
            }
        }
    }
}

impl Buckets {
    fn replace(
        &mut self,
        count: f64,
        sum: f64,
        now: &[(f64, f64)],
        is_restarted: bool,
    ) -> (f64, bool) {
        let (growth, is_reset) =
            growth(Number::Float(self.count), Number::Float(count), is_restarted);
        let is_same = self.now.len() == now.len()
            && self.now.iter().zip(now).all(|(a, b)| a.0.to_bits() == b.0.to_bits());
        self.recent.clear();
        if is_same {
            let counts = self.now.iter().zip(now);
            self.recent.extend(counts.map(|(before, now)| match is_reset {
                true => now.1,
                false => (now.1 - before.1).max(0.0),
            }));
        }
        self.now.clear();
        self.now.extend_from_slice(now);
        (self.count, self.sum) = (count, sum);
        (growth, is_reset)
    }

    /// Adopts the bounds of `now`: adds missing bounds with empty buckets, and removes empty
    /// buckets with other bounds.
    fn use_bounds(&mut self, now: &[(f64, f64)]) {
        let mut before = std::mem::take(&mut self.now).into_iter().peekable();
        for &(bound, _) in now {
            while let Some(gone) = before.next_if(|(other, _)| *other < bound) {
                // Its observations cannot be compared, because they are now in a wider bucket.
                if gone.1 > 0.0 {
                    self.now.push(gone);
                }
            }
            let same = before.next_if(|(other, _)| *other == bound);
            self.now.push(same.unwrap_or((bound, 0.0)));
        }
        self.now.extend(before.filter(|(_, count)| *count > 0.0));
    }

    /// Adds the exponential buckets of another series, whose bounds can differ.
    pub(super) fn merge(&mut self, more: &Self) {
        let (all, own) = (std::mem::take(&mut self.now), std::mem::take(&mut self.recent));
        let with = |buckets: &Self, at: usize| buckets.recent.get(at).copied().unwrap_or(0.0);
        let ours = all
            .iter()
            .enumerate()
            .map(|(at, &(bound, count))| (bound, count, own.get(at).copied().unwrap_or(0.0)));
        let theirs = more.now.iter().enumerate();
        let theirs = theirs.map(|(at, &(bound, count))| (bound, count, with(more, at)));
        let mut buckets: Vec<_> = ours.chain(theirs).collect();
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        buckets.dedup_by(|later, kept| {
            let is_same = later.0 == kept.0;
            if is_same {
                (kept.1, kept.2) = (kept.1 + later.1, kept.2 + later.2);
            }
            is_same
        });
        self.count += more.count;
        self.sum += more.sum;
        self.now.extend(buckets.iter().map(|(bound, count, _)| (*bound, *count)));
        self.recent.extend(buckets.iter().map(|(_, _, recent)| *recent));
    }

    /// Returns the buckets for computing quantiles. The flag is true if they contain only the
    /// observations since the previous look. If there were none, they contain all observations.
    pub(super) fn latest(&self) -> (impl Iterator<Item = (f64, f64)> + Clone, bool) {
        let is_recent = self.recent.iter().any(|count| *count > 0.0);
        let counts = (0..self.now.len()).map(move |i| {
            let (bound, count) = self.now[i];
            (bound, if is_recent { self.recent.get(i).copied().unwrap_or(0.0) } else { count })
        });
        (counts, is_recent)
    }
}

#[cfg(test)]
mod tests;
