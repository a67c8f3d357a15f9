//! Counters by three labels, one of them not known in advance. This workload adds to existing
//! series in random order, because then no cache contains the series of an addition.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Plan, count, fill, time};
use crate::counting::contender::{ByUser, Contender};
use crate::counting::data::Keys;
use crate::record::Record;

/// One contender's turn.
pub fn run<C: Contender>(plan: &Plan) -> Vec<Record> {
    let sizes = plan.sizes([18_000, 1_000_000]);
    sizes.into_iter().flat_map(|series| among::<C>(plan, series)).collect()
}

fn among<C: Contender>(plan: &Plan, series: usize) -> Vec<Record> {
    let Some(family) = C::by_user() else { return Vec::new() };
    fill(&family, &Keys::new(0..series));
    let keys = Keys::shuffled(series, 1);
    // Each run continues where the previous one ended.
    let next = AtomicUsize::new(0);
    let add = |_, n: u64| {
        let mut index = next.fetch_add(n as usize, Ordering::Relaxed) % keys.len();
        for _ in 0..n {
            let (kind, route, user) = keys.key(index);
            family.inc(kind, route, user);
            index = if index + 1 == keys.len() { 0 } else { index + 1 };
        }
    };
    let case = format!("three labels/add among {}", count(series));
    let records = [1, 2].map(|threads| time::<C>(plan, &case, threads, add));
    // Some libraries take seconds to free the family; the process is about to exit anyway.
    std::mem::forget(family);
    records.into()
}
