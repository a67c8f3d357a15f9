//! What looks add up to: a row for each series, with its rate, its resets, and its last values.
//!
//! Rows are kept by family and labels. A series that a look does not have loses its row. Nothing is
//! formatted here.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use hashbrown::HashTable;
use quipu::snapshot::{Kind, Number};

use super::history::History;
use crate::look::{Family, Look, Points, Series, Value, began_again, growth};

/// All rows, and what is known of their families.
#[derive(Debug, Default)]
pub(super) struct Model {
    families: Vec<Family>,
    /// The sums of the points of each family's series: one for each look since the first one that
    /// has any.
    trends: Vec<Option<History>>,
    numbers: HashMap<(String, Kind), u32>,
    rows: Vec<Row>,
    /// The rows by name and labels.
    order: Vec<u32>,
    is_ordered: bool,
    /// The rows by family and labels.
    index: HashTable<u32>,
    hasher: RandomState,
    /// How many looks there were.
    looks: u32,
    /// Series that an earlier one of the same look has the name and the labels of.
    duplicates: usize,
    /// How many families have series.
    used: usize,
}

/// A series.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) family: u32,
    /// As [`Series::labels`].
    pub(super) labels: Box<str>,
    pub(super) value: Shown,
    /// Events a second since the look before: of a counter, of observations. `None` if that is not
    /// known yet, or if the value does not count events.
    pub(super) rate: Option<f64>,
    /// How often it started again from zero.
    pub(super) resets: u32,
    /// Nanoseconds of Unix time since which it counts.
    pub start: Option<u64>,
    /// Its last points. `None` if all of them were the same.
    history: Option<History>,
    /// How many points it had: one for each look since the first one that has any.
    points: usize,
    /// Whether it counts events, so that its points are rates. Otherwise they are values.
    is_sum: bool,
    /// When it was seen last, and by which look.
    at: Duration,
    look: u32,
}

/// The value of a row.
#[derive(Debug, Clone)]
pub(super) enum Shown {
    Number(Number),
    Histogram(Box<Buckets>),
    Summary { count: f64, sum: f64, quantiles: Vec<(f64, f64)> },
}

/// A histogram.
#[derive(Debug, Clone, Default)]
pub(super) struct Buckets {
    pub(super) count: f64,
    pub(super) sum: f64,
    /// Upper bounds with the number of observations in each alone.
    pub(super) now: Vec<(f64, f64)>,
    /// How many of those came since the look before; empty if that is not known.
    pub(super) recent: Vec<f64>,
    /// Whether the bounds are those that are in use, of a native histogram.
    pub(super) is_exponential: bool,
}

/// What the rows of a family add up to.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    has_rows: bool,
    /// The sum of their points, if one of them has any.
    points: Option<f64>,
}

/// The most families that are kept without rows, for their numbers to stay.
const MAX_EMPTY: usize = 10_000;

impl Model {
    /// Takes a look of this moment, which is the time since any fixed point.
    pub(super) fn update(&mut self, look: &Look, at: Duration) {
        self.looks = self.looks.wrapping_add(1);
        self.duplicates = 0;
        let numbers: Vec<u32> =
            look.families().iter().map(|family| self.family_number(family)).collect();
        let mut sums = vec![Sum::default(); self.families.len()];
        let (mut next, mut seen) = (0, 0);
        for series in look.series() {
            let family = numbers[series.family as usize];
            let Some(row) = self.take(family, &series, at, next) else { continue };
            sums[family as usize].add(self.rows[row].point());
            seen += 1;
            next = row + 1;
        }
        self.add_trends(&sums);
        if seen < self.rows.len() {
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

    /// The numbers of the rows, by name and labels.
    pub(super) fn order(&self) -> &[u32] {
        &self.order
    }

    /// The number of a family, if it had series.
    pub(super) fn number(&self, key: &(String, Kind)) -> Option<u32> {
        self.numbers.get(key).copied()
    }

    /// The values for a sparkline of a family: the sums over its series.
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

    /// How many families have series.
    pub(super) fn used(&self) -> usize {
        self.used
    }

    /// The number of the row of a series.
    pub(super) fn find(&self, family: u32, labels: &str) -> Option<u32> {
        let is_it = |row: &u32| self.rows[*row as usize].is(family, labels);
        self.index.find(self.hasher.hash_one((family, labels)), is_it).copied()
    }

    fn family_number(&mut self, family: &Family) -> u32 {
        let key = (family.name.clone(), family.of);
        if let Some(&number) = self.numbers.get(&key) {
            // A help may come late.
            self.families[number as usize].clone_from(family);
            return number;
        }
        let number = u32::try_from(self.families.len()).expect("empty families are dropped");
        self.numbers.insert(key, number);
        self.families.push(family.clone());
        self.trends.push(None);
        number
    }

    /// Takes a series, and returns its row; `None` if the look had it before. Most looks have their
    /// series in the order of the look before, so it is likely to be in the `next` row.
    fn take(
        &mut self,
        family: u32,
        series: &Series<'_>,
        at: Duration,
        next: usize,
    ) -> Option<usize> {
        let of = self.families[family as usize].of;
        let rows = &mut self.rows;
        let number = match rows.get(next).is_some_and(|row| row.is(family, series.labels)) {
            true => next,
            false => {
                let hash = self.hasher.hash_one((family, series.labels));
                let is_it = |row: &u32| rows[*row as usize].is(family, series.labels);
                match self.index.find(hash, is_it) {
                    Some(&row) => row as usize,
                    None => {
                        self.is_ordered = false;
                        // A look has fewer series.
                        let number = u32::try_from(rows.len()).expect("there are fewer rows");
                        rows.push(Row::new(family, of, series, at, self.looks));
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
        row.update(of, series, at, self.looks);
        Some(number)
    }

    /// Drops the rows that the last look did not have.
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

    /// Drops the families without rows. The others get other numbers.
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
            .map(|(number, family)| ((family.name.clone(), family.of), number))
            .collect();
        self.rows.iter_mut().for_each(|row| row.family = numbers[row.family as usize]);
        self.is_ordered = false;
        self.build_index();
    }

    fn add_trends(&mut self, sums: &[Sum]) {
        for (trend, sum) in self.trends.iter_mut().zip(sums) {
            match (trend, sum.points) {
                (Some(trend), sum) => trend.push(sum.unwrap_or(f64::NAN)),
                (trend, Some(sum)) => *trend = Some(History::of(sum, 1)),
                (None, None) => {}
            }
        }
    }

    /// Sorts the rows by name, type and labels. Names are compared once for each family.
    fn sort(&mut self) {
        let Self { families, rows, order, .. } = self;
        let mut by_name: Vec<usize> = (0..families.len()).collect();
        by_name.sort_by_key(|&number| (&*families[number].name, families[number].of.name()));
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
    fn new(family: u32, of: Kind, series: &Series<'_>, at: Duration, look: u32) -> Self {
        let value = Shown::of(&series.value);
        let is_sum = of == Kind::Counter || !matches!(value, Shown::Number(_));
        Self {
            family,
            labels: series.labels.into(),
            value,
            rate: None,
            resets: 0,
            start: series.start,
            history: None,
            // The first look knows no rate.
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

    /// The value as one number: that of a counter or gauge, the observations of a histogram.
    pub(super) fn total(&self) -> f64 {
        self.value.total()
    }

    fn update(&mut self, of: Kind, series: &Series<'_>, at: Duration, look: u32) {
        let seconds = at.saturating_sub(self.at).as_secs_f64();
        // It counts since another time: it is a new series with old labels.
        let is_new = began_again(self.start, series.start);
        let before = self.point();
        let growth = self.value.replace(of, &series.value, is_new);
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

    /// The value that its history has for this moment.
    fn point(&self) -> Option<f64> {
        match (self.is_sum, &self.value) {
            (false, Shown::Number(number)) => Some(number.as_f64()),
            _ => self.rate,
        }
    }

    /// Adds the new point to the history, which begins when the points change for the first time. A
    /// look without a point leaves a gap, because the points of all rows belong to the same looks.
    fn remember(&mut self, before: Option<f64>) {
        let point = self.point();
        if self.points == 0 && point.is_none() {
            return;
        }
        let (point, before) = (point.unwrap_or(f64::NAN), before.unwrap_or(f64::NAN));
        match &mut self.history {
            Some(history) => history.push(point),
            None if self.points > 0 && point.to_bits() != before.to_bits() => {
                let mut history = History::of(before, self.points);
                history.push(point);
                self.history = Some(history);
            }
            None => {}
        }
        self.points = self.points.saturating_add(1);
    }

    /// The values for a sparkline, oldest first: rates, or values if there are no rates.
    pub(super) fn points(&self) -> Vec<f32> {
        match (&self.history, self.point()) {
            (Some(history), _) => history.values().collect(),
            (None, Some(point)) => History::of(point, self.points).values().collect(),
            (None, None) => Vec::new(),
        }
    }
}

impl Shown {
    fn of(value: &Value<Points<'_>>) -> Self {
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

    /// Takes a new value. Returns by how much it grew, and whether it started again from zero;
    /// `None` if it is not a sum.
    fn replace(
        &mut self,
        of: Kind,
        value: &Value<Points<'_>>,
        is_new: bool,
    ) -> Option<(f64, bool)> {
        match (&mut *self, value) {
            (Self::Number(before), Value::Number(now)) => {
                let growth = (of == Kind::Counter).then(|| growth(*before, *now, is_new));
                *before = *now;
                growth
            }
            (
                Self::Histogram(buckets),
                &Value::Histogram { count, sum, buckets: now, is_exponential },
            ) => {
                if is_exponential {
                    // Those that are new in use had no observations before.
                    buckets.use_bounds_of(now);
                }
                buckets.is_exponential = is_exponential;
                Some(buckets.replace(count, sum, now, is_new))
            }
            (
                Self::Summary { count, sum, quantiles },
                &Value::Summary { count: count_now, sum: sum_now, quantiles: now },
            ) => {
                let growth = growth(Number::Float(*count), Number::Float(count_now), is_new);
                (*count, *sum) = (count_now, sum_now);
                quantiles.clear();
                quantiles.extend_from_slice(now);
                Some(growth)
            }
            _ => {
                *self = Self::of(value);
                None
            }
        }
    }
}

impl Buckets {
    fn replace(&mut self, count: f64, sum: f64, now: &[(f64, f64)], is_new: bool) -> (f64, bool) {
        let (growth, is_reset) = growth(Number::Float(self.count), Number::Float(count), is_new);
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

    /// Adds bounds that it does not have, with empty buckets. Leaves out those that a list does not
    /// have, if they are empty.
    fn use_bounds_of(&mut self, now: &[(f64, f64)]) {
        let mut before = std::mem::take(&mut self.now).into_iter().peekable();
        for &(bound, _) in now {
            while let Some(gone) = before.next_if(|(other, _)| *other < bound) {
                // Its observations are in a wider bucket now: they cannot be compared.
                if gone.1 > 0.0 {
                    self.now.push(gone);
                }
            }
            let same = before.next_if(|(other, _)| *other == bound);
            self.now.push(same.unwrap_or((bound, 0.0)));
        }
        self.now.extend(before.filter(|(_, count)| *count > 0.0));
    }

    /// Adds the exponential buckets of another series, whose bounds may differ.
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

    /// The buckets to take quantiles from, and whether these are the recent observations: all, if
    /// there were none since the look before.
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
