//! Builds the items of a list in `quipu top`: families, groups of series by the value of a label,
//! or series.

use std::cmp::Ordering;
use std::collections::HashMap;

use clap::ValueEnum;
use quipu::snapshot::Kind;

use super::model::{Buckets, Model, Row, RowValue};
use crate::filter::Filter;
use crate::look::{labels, quantile};

/// The key of a family: its name and its type.
pub(super) type FamilyKey = (String, Kind);

/// A list or a page that the user can open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ListView {
    /// All families.
    Families,
    /// All series of all families.
    All,
    /// The series of a family with these values of labels, optionally in groups by another label.
    Family { family: FamilyKey, chosen: Vec<(String, String)>, by: Option<String> },
    /// One series.
    Series { family: FamilyKey, labels: String },
}

/// An order of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Sort {
    /// By name and labels
    Name,
    /// Most events a second first
    Rate,
    /// Greatest value first: of a gauge, or the total of what counts
    Value,
    /// Most series first
    Series,
}

/// A line of a list.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) subject: Subject,
    /// The number of series in the item.
    pub(super) count: usize,
    pub(super) kind: Kind,
    /// The sum of the series' counts, or the value of a gauge.
    pub(super) total: f64,
    /// The minimum and the maximum of the gauges.
    pub(super) range: (f64, f64),
    /// The number of events per second.
    pub(super) rate: Option<f64>,
    /// The index of the item's first row.
    pub(super) row: u32,
    /// The merged buckets; boxed, because most items of a list of series contain none.
    buckets: Option<Box<MergedBuckets>>,
}

/// The family, group or series of an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Subject {
    /// The number of a family.
    Family(u32),
    /// The series with this value of the label.
    Group(String),
    /// The number of a row.
    Row(u32),
}

/// The merged buckets of several histograms.
#[derive(Debug)]
struct MergedBuckets {
    buckets: Buckets,
    /// Whether all histograms use the same bounds. Otherwise, common quantiles are impossible.
    is_uniform: bool,
}

/// Lists the items of a view.
pub(super) fn list(
    model: &Model,
    view: &ListView,
    filter: &Filter,
    sort: Sort,
    is_reversed: bool,
) -> Vec<Item> {
    let mut items = match view {
        ListView::Families => families(model, filter),
        ListView::All => rows(model, filter, None, &[]),
        ListView::Family { family, chosen, by } => match (model.number(family), by) {
            (None, _) => Vec::new(),
            (Some(family), None) => rows(model, filter, Some(family), chosen),
            (Some(family), Some(by)) => groups(model, filter, family, chosen, by),
        },
        ListView::Series { .. } => Vec::new(),
    };
    // The sort is stable, so items with equal numbers stay sorted by name.
    match sort {
        Sort::Name => {}
        Sort::Rate => items.sort_by(|a, b| descending(a.rate, b.rate)),
        Sort::Value => items.sort_by(|a, b| descending(Some(a.total), Some(b.total))),
        Sort::Series => items.sort_by_key(|item| std::cmp::Reverse(item.count)),
    }
    if is_reversed {
        items.reverse();
    }
    items
}

/// Compares numbers, the greatest first. Items without a number are last.
fn descending(a: Option<f64>, b: Option<f64>) -> Ordering {
    let number = |n: Option<f64>| n.filter(|n| !n.is_nan());
    match (number(a), number(b)) {
        (Some(a), Some(b)) => b.total_cmp(&a),
        (a, b) => b.is_some().cmp(&a.is_some()),
    }
}

fn families(model: &Model, filter: &Filter) -> Vec<Item> {
    let mut items: Vec<Item> = Vec::new();
    // The rows of a family are adjacent in this order.
    for &number in model.order() {
        let row = &model.rows()[number as usize];
        let family = model.family(row);
        if !filter.is_empty() && !filter.matches(&family.name, &row.labels) {
            continue;
        }
        match items.last_mut().filter(|item| item.subject == Subject::Family(row.family)) {
            Some(item) => item.add(row),
            None => items.push(Item::new(Subject::Family(row.family), family.kind, number, row)),
        }
    }
    items
}

fn rows(
    model: &Model,
    filter: &Filter,
    family: Option<u32>,
    chosen: &[(String, String)],
) -> Vec<Item> {
    let order = model.order().iter();
    let all = order.map(|&number| (number, &model.rows()[number as usize]));
    all.filter(|(_, row)| family.is_none_or(|family| row.family == family) && has(row, chosen))
        .filter(|(_, row)| {
            filter.is_empty() || filter.matches(&model.family(row).name, &row.labels)
        })
        .map(|(number, row)| Item::from_row(model.family(row).kind, number, row))
        .collect()
}

fn groups(
    model: &Model,
    filter: &Filter,
    family: u32,
    chosen: &[(String, String)],
    by: &str,
) -> Vec<Item> {
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut items: Vec<Item> = Vec::new();
    for (number, row) in (0..).zip(model.rows()) {
        let (name, kind) = (&model.family(row).name, model.family(row).kind);
        if row.family != family || !has(row, chosen) || !filter.matches(name, &row.labels) {
            continue;
        }
        let value = labels(&row.labels).find(|(name, _)| *name == by);
        let value = value.map_or_else(String::new, |(_, value)| value.into_owned());
        match places.get(&value) {
            Some(&at) => items[at].add(row),
            None => {
                places.insert(value.clone(), items.len());
                items.push(Item::new(Subject::Group(value), kind, number, row));
            }
        }
    }
    items.sort_by(|a, b| match (&a.subject, &b.subject) {
        (Subject::Group(a), Subject::Group(b)) => a.cmp(b),
        _ => Ordering::Equal,
    });
    items
}

/// Returns whether a row contains all of these labels.
fn has(row: &Row, chosen: &[(String, String)]) -> bool {
    chosen.iter().all(|(name, value)| {
        let found = labels(&row.labels).find(|(other, _)| other == name);
        found.map_or(value.is_empty(), |(_, found)| found == *value)
    })
}

/// Returns the names of the labels in a family's series, except the chosen ones.
pub(super) fn label_names(
    model: &Model,
    family: &FamilyKey,
    chosen: &[(String, String)],
) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let number = model.number(family);
    for row in model.rows().iter().filter(|row| Some(row.family) == number) {
        for (name, _) in labels(&row.labels) {
            let is_chosen = chosen.iter().any(|(other, _)| *other == name);
            if !is_chosen && !names.iter().any(|other| *other == name) {
                names.push(name.into_owned());
            }
        }
    }
    names
}

impl Item {
    fn from_row(kind: Kind, number: u32, row: &Row) -> Self {
        let total = row.total();
        Self {
            subject: Subject::Row(number),
            count: 1,
            kind,
            total,
            range: (total, total),
            rate: row.rate,
            row: number,
            buckets: None,
        }
    }

    fn new(subject: Subject, kind: Kind, number: u32, row: &Row) -> Self {
        let buckets = match &row.value {
            RowValue::Histogram(buckets) => {
                Some(Box::new(MergedBuckets { buckets: (**buckets).clone(), is_uniform: true }))
            }
            _ => None,
        };
        Self { subject, buckets, ..Self::from_row(kind, number, row) }
    }

    fn add(&mut self, row: &Row) {
        let total = row.total();
        self.count += 1;
        self.total += total;
        self.range = (self.range.0.min(total), self.range.1.max(total));
        self.rate = match (self.rate, row.rate) {
            (Some(a), Some(b)) => Some(a + b),
            (a, b) => a.or(b),
        };
        if let (Some(merged), RowValue::Histogram(buckets)) = (&mut self.buckets, &row.value) {
            merged.add(buckets);
        }
    }

    /// Returns quantiles of the observations, if they are known. The flag is true if they cover
    /// only the observations since the previous look.
    pub(super) fn quantiles<const N: usize>(
        &self,
        model: &Model,
        wanted: [f64; N],
    ) -> ([Option<f64>; N], bool) {
        match (&self.buckets, &model.rows()[self.row as usize].value) {
            (Some(merged), _) if !merged.is_uniform => ([None; N], false),
            (Some(merged), _) => bucket_quantiles(&merged.buckets, wanted),
            (None, RowValue::Histogram(buckets)) if self.count == 1 => {
                bucket_quantiles(buckets, wanted)
            }
            (None, RowValue::Summary { quantiles, .. }) if self.count == 1 => {
                let known = |q| quantiles.iter().find(|(other, _)| *other == q);
                (wanted.map(|q| known(q).map(|(_, value)| *value)), true)
            }
            _ => ([None; N], false),
        }
    }
}

/// Returns quantiles of a histogram. The flag is true if they cover only the observations since the
/// previous look.
pub(super) fn bucket_quantiles<const N: usize>(
    buckets: &Buckets,
    wanted: [f64; N],
) -> ([Option<f64>; N], bool) {
    let (latest, is_recent) = buckets.latest();
    (wanted.map(|q| quantile(q, latest.clone(), buckets.is_exponential)), is_recent)
}

impl MergedBuckets {
    fn add(&mut self, more: &Buckets) {
        let all = &mut self.buckets;
        if all.is_exponential && more.is_exponential {
            return all.merge(more);
        }
        self.is_uniform &= all.now.len() == more.now.len()
            && all.now.iter().zip(&more.now).all(|(a, b)| a.0.to_bits() == b.0.to_bits());
        if !self.is_uniform {
            return;
        }
        all.count += more.count;
        all.sum += more.sum;
        all.now.iter_mut().zip(&more.now).for_each(|(a, b)| a.1 += b.1);
        // A new series contains no recent observations yet.
        if all.recent.is_empty() {
            all.recent.clone_from(&more.recent);
        } else {
            all.recent.iter_mut().zip(&more.recent).for_each(|(a, b)| *a += b);
        }
    }
}

#[cfg(test)]
mod tests;
