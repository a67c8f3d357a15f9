//! The threads that count at the same time: on one counter, and in a family of many series.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::cores::cores;
use super::{Axis, Entrant, case};
use crate::counting::contender::{ByUser, Contender, Handle};
use crate::counting::data::Keys;
use crate::counting::peer::{Measured, Prometheus, PrometheusClient};
use crate::counting::workload::time;
use crate::counting::{Plan, Quipu};
use crate::record::{Label, Record};

pub(super) const AXIS: Axis = Axis {
    name: "threads",
    points: &[1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 64, 128, 256, 512],
    fits: |threads| threads <= 8 || threads <= cores(),
    entrants: &[
        Entrant { key: Quipu::KEY, most: usize::MAX, turn: turn::<Quipu> },
        Entrant { key: Measured::KEY, most: usize::MAX, turn: turn::<Measured> },
        Entrant { key: PrometheusClient::KEY, most: usize::MAX, turn: turn::<PrometheusClient> },
        Entrant { key: Prometheus::KEY, most: usize::MAX, turn: turn::<Prometheus> },
    ],
};

const SERIES: usize = 10_000;

fn turn<C: Contender>(plan: &Plan, threads: usize) -> Vec<Record> {
    let (Some(counter), Some(family)) = (C::handle(), C::by_user()) else { return Vec::new() };
    let case = case(AXIS.name, threads);
    let label =
        |metric: &str| Label::new(&case, &C::subject(), metric, "ns").threads(threads as u32);
    let one = time::<C>(plan, &case, threads, |_, n| {
        for _ in 0..n {
            counter.inc();
        }
    });
    for (kind, route, user) in Keys::new(0..SERIES).iter() {
        family.inc(kind, route, user);
    }
    let keys = Keys::shuffled(SERIES, 1);
    // Each run continues where the previous one ended.
    let next = AtomicUsize::new(0);
    let many = time::<C>(plan, &case, threads, |_, n: u64| {
        let start = next.fetch_add(n as usize, Ordering::Relaxed);
        for index in start..start + n as usize {
            let (kind, route, user) = keys.key(index % SERIES);
            family.inc(kind, route, user);
        }
    });
    vec![label("one counter").of(&[one.median]), label("many series").of(&[many.median])]
}
