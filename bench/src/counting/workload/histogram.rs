//! Histograms: with 8 buckets, on a handle and over 18 series, and with exponential buckets.

use super::{Plan, each, time};
use crate::counting::contender::{Contender, Observe, ObserveBy};
use crate::counting::data;
use crate::record::Record;

/// One contender's turn.
pub fn run<C: Contender>(plan: &Plan) -> Vec<Record> {
    let values = [1, 2].map(data::observations);
    let mut records = Vec::new();
    if let Some(histogram) = C::histogram() {
        records.extend(observe::<C>(plan, "histogram/observe", &histogram, &values));
    }
    if let Some(family) = C::histograms() {
        let inputs = [1usize, 2].map(|seed| {
            let pairs = data::pairs(seed as u64).into_iter();
            pairs.zip(values[seed - 1].iter().copied()).collect::<Vec<_>>()
        });
        let observe = |thread: usize, n| {
            each(&inputs[thread], n, |((kind, route), value)| family.observe(kind, route, value));
        };
        let case = "histogram/observe among 18";
        records.extend([1, 2].map(|threads| time::<C>(plan, case, threads, observe)));
    }
    if let Some(histogram) = C::native_histogram() {
        records.extend(observe::<C>(plan, "native histogram/observe", &histogram, &values));
    }
    records
}

fn observe<C: Contender>(
    plan: &Plan,
    case: &str,
    histogram: &impl Observe,
    values: &[Vec<f64>; 2],
) -> [Record; 2] {
    let observe = |thread: usize, n| each(&values[thread], n, |value| histogram.observe(value));
    [1, 2].map(|threads| time::<C>(plan, case, threads, observe))
}
