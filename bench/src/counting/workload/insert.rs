//! New series while a family grows from zero to millions: the mean time, and the slowest.

use super::{Plan, count, label};
use crate::counting::contender::{ByUser, Contender};
use crate::counting::data::Keys;
use crate::counting::latency::Latencies;
use crate::measure::on_core;
use crate::record::Record;

/// One contender's turn.
pub fn run<C: Contender>(plan: &Plan) -> Vec<Record> {
    let Some(family) = C::by_user() else { return Vec::new() };
    let series = plan.series(5_000_000);
    let keys = Keys::new(0..series);
    let times = on_core(0, || {
        let mut latencies = Latencies::new(series);
        latencies.start();
        for (kind, route, user) in keys.iter() {
            family.inc(kind, route, user);
            latencies.note();
        }
        latencies.finish()
    });
    let case = format!("insert/growing to {}", count(series));
    // Some libraries take seconds to free the family; the process is about to exit anyway.
    std::mem::forget(family);
    vec![
        label::<C>(&case, "time", "ns").of(&[times.mean()]),
        label::<C>(&case, "p99.99", "ns").of(&[times.quantile(0.9999)]),
        label::<C>(&case, "slowest", "ns").of(&[times.quantile(1.0)]),
    ]
}
