//! The series of a family, with three labels: the cost of the first addition to a series, which
//! creates it, of a later one, of its memory, and of encoding it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use super::{Axis, EVERY, Entrant, case, repeated};
use crate::counting::Plan;
use crate::counting::QuipuLarge;
use crate::counting::contender::{ByUser, Contender, Scrape};
use crate::counting::data::Keys;
use crate::counting::peer::{MeasuredParacord, Prometheus, PrometheusClient};
use crate::counting::workload::time;
use crate::measure::{black_box, on_core};
use crate::memory::resident_bytes;
use crate::record::{Label, Record};

pub(super) const AXIS: Axis = Axis {
    name: "series",
    points: &[10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000],
    fits: EVERY,
    entrants: &[
        Entrant { key: QuipuLarge::KEY, most: usize::MAX, turn: turn::<QuipuLarge> },
        Entrant { key: MeasuredParacord::KEY, most: usize::MAX, turn: turn::<MeasuredParacord> },
        Entrant { key: PrometheusClient::KEY, most: usize::MAX, turn: turn::<PrometheusClient> },
        Entrant { key: Prometheus::KEY, most: 1_000_000, turn: turn::<Prometheus> },
    ],
};

/// The number of series that a turn tries to reach, with several families if necessary, because a
/// few series are created too fast for a clock.
const LEAST: usize = 10_000;
/// The highest number of families.
const FAMILIES: usize = 100;

fn turn<C: Contender>(plan: &Plan, series: usize) -> Vec<Record> {
    let case = case(AXIS.name, series);
    let keys = Keys::new(0..series);
    let label = |metric: &str, unit: &str| Label::new(&case, &C::subject(), metric, unit);
    let (mut records, family) = on_core(0, || {
        // Initialize the library first, because one-time costs do not belong to these series.
        std::mem::forget(C::by_user());
        let count = (LEAST / series).clamp(1, FAMILIES);
        let before = resident_bytes();
        let start = Instant::now();
        let families: Vec<_> = (0..count).filter_map(|_| filled::<C>(&keys)).collect();
        let elapsed = start.elapsed().as_nanos() as f64;
        if families.len() < count {
            return (Vec::new(), None);
        }
        let resident = (resident_bytes() - before) as f64;
        let of_a_series = |amount: f64| amount / (count * series) as f64;
        let records = vec![
            label("create", "ns").of(&[of_a_series(elapsed)]),
            label("memory", "B").of(&[of_a_series(resident)]),
        ];
        (records, families.into_iter().next())
    });
    let Some(family) = family else { return Vec::new() };
    drop(keys);

    let keys = Keys::shuffled(series, 1);
    // Each run continues where the previous one ended.
    let next = AtomicUsize::new(0);
    let add = time::<C>(plan, &case, 1, |_, n: u64| {
        let mut index = next.fetch_add(n as usize, Ordering::Relaxed) % keys.len();
        for _ in 0..n {
            let (kind, route, user) = keys.key(index);
            family.inc(kind, route, user);
            index = if index + 1 == keys.len() { 0 } else { index + 1 };
        }
    });
    records.push(label("add", "ns").of(&[add.median]));

    on_core(0, || {
        let mut page = Default::default();
        let lines = family.scrape(&mut page).split(|byte| *byte == b'\n');
        let shown = lines.filter(|line| line.starts_with(b"http_request_errors_total{")).count();
        assert!(shown >= series, "{} of {series} series are in the text", shown);
        let time = repeated(plan, series, || {
            black_box(family.scrape(&mut page));
        });
        records.push(label("encode", "ns").of(&[time]));
    });
    // Some libraries take seconds to free the family; the process is about to exit anyway.
    std::mem::forget(family);
    records
}

fn filled<C: Contender>(keys: &Keys) -> Option<impl ByUser + Scrape + use<C>> {
    let family = C::by_user()?;
    for (kind, route, user) in keys.iter() {
        family.inc(kind, route, user);
    }
    Some(family)
}
