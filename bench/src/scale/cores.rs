//! Measures quipu on all cores of a machine: threads that add to one counter or to 2,000 series, a
//! scrape in the meantime, and threads that create series in one family.
//!
//! Each figure is the time of one operation of one core. If this time stays the same with more
//! threads, the cores do not hinder each other. On a machine with several NUMA nodes, threads fill
//! one node after the other, and are then measured once more with threads that alternate between
//! the nodes.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::available_parallelism;
use std::time::Duration;

use quipu_segment::Segment;
use quipu_segment::series::{Cursor, Family, Label as SeriesLabel, Schema};
use rustix::thread::{CpuSet, sched_setaffinity};

use super::{Axis, Entrant, case, repeated};
use crate::counting::contender::Contender;
use crate::counting::{Plan, Quipu};
use crate::measure::{Case, Options, black_box, on_threads, pin};
use crate::record::{Label, Record};

pub(super) const AXIS: Axis = Axis {
    name: "cores",
    points: &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512],
    fits: |threads| threads <= cores() || threads == MANY,
    entrants: &[Entrant { key: Quipu::KEY, most: usize::MAX, turn }],
};

/// Measured on every machine, because that many threads share the cells of CPUs.
const MANY: usize = 128;
/// The series of the family of an enum.
const ENUMS: u32 = 2000;
const SPACE: u64 = 1 << 30;
/// The series that all threads create together.
const CREATED: u64 = 100_000;

fn turn(plan: &Plan, threads: usize) -> Vec<Record> {
    let mut records = measure(plan, threads, &Quipu::subject(), &[]);
    let nodes = nodes();
    if nodes.len() > 1 && threads > 1 {
        let subject = format!("{}, across nodes", Quipu::subject());
        records.extend(measure(plan, threads, &subject, &alternating(&nodes)));
    }
    records
}

/// Measures with threads on these CPUs, or, if there are none, on the cores in their order.
fn measure(plan: &Plan, threads: usize, subject: &str, order: &[usize]) -> Vec<Record> {
    let case = case(AXIS.name, threads);
    let label = |metric: &str| Label::new(&case, subject, metric, "ns").threads(threads as u32);
    let pinned = |thread: usize| match order.get(thread % order.len().max(1)) {
        Some(cpu) => pin_to(*cpu),
        None => pin(thread),
    };
    let core_time = |body: &(dyn Fn(usize, u64) + Sync)| {
        let options = Options { runs: 1, run_time: plan.run_time };
        let records = Case::new(&case)
            .threads(threads)
            .timed(subject, |threads, n| {
                together(threads, &|thread| {
                    pinned(thread);
                    body(thread, n);
                })
            })
            .run(&options);
        // The case returns the elapsed time divided by the operations of all threads.
        records[0].median * threads.min(cores()) as f64
    };

    let Some(counter) = family(None) else { return Vec::new() };
    let one = core_time(&|_, n| {
        let handle = counter.bind(|_| {});
        (0..n).for_each(|_| handle.cells().add(0, 1));
    });
    let Some(enums) = family(Some(ENUMS)) else { return Vec::new() };
    let add = |thread: usize, n: u64| {
        // Each thread begins at another series.
        let first = thread as u64 * 997;
        for i in first..first + n {
            enums.add(|key| key.index((i % u64::from(ENUMS)) as u32, ENUMS), 0, 1);
        }
    };
    let many = core_time(&add);
    let scraped = scrape_meanwhile(plan, threads, &enums, &|thread| {
        pinned(thread);
        move |n| add(thread, n)
    });
    vec![
        label("one counter").of(&[one]),
        label("2,000 enums").of(&[many]),
        label("scrape").of(&[scraped]),
        label("create").of(&[create(threads, &pinned)]),
    ]
}

/// Returns the time of a series in a scrape while all threads but one add.
fn scrape_meanwhile<A: Fn(u64)>(
    plan: &Plan,
    threads: usize,
    enums: &Family,
    adder: &(dyn Fn(usize) -> A + Sync),
) -> f64 {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 1..threads {
            let done = &done;
            scope.spawn(move || {
                let add = adder(thread);
                while !done.load(Ordering::Relaxed) {
                    add(1000);
                }
            });
        }
        let time = repeated(plan, ENUMS as usize, || {
            let mut sum = 0_u64;
            let _ = enums.walk(&mut Cursor::default(), &mut Vec::new(), |view| {
                sum = sum.wrapping_add(view.cells.sum(0));
                ControlFlow::Continue(())
            });
            black_box(sum);
        });
        done.store(true, Ordering::Relaxed);
        time
    })
}

/// Returns the core time of the creation of a series of one family by all threads.
fn create(threads: usize, pinned: &(dyn Fn(usize) + Sync)) -> f64 {
    let schema = Schema {
        name: "created".into(),
        cells: 1,
        additive: true,
        labels: vec![SeriesLabel { name: "user".into(), values: None }],
        ..Schema::default()
    };
    let family = Segment::private(SPACE).and_then(|segment| segment.family(&schema));
    let Ok(family) = family else { return 0.0 };
    let next = AtomicU64::new(0);
    let elapsed = together(threads, &|thread| {
        pinned(thread);
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= CREATED {
                break;
            }
            family.add(|key| key.text(&format!("user {number}")), 0, 1);
        }
    });
    elapsed.as_nanos() as f64 / CREATED as f64 * threads.min(cores()) as f64
}

/// Runs the body on threads that start together, and never on this thread, because it is not
/// pinned.
fn together(threads: usize, body: &(dyn Fn(usize) + Sync)) -> Duration {
    std::thread::scope(|scope| {
        let all = scope.spawn(|| on_threads(threads, body));
        // A panic of the body is a panic of the benchmark.
        all.join().expect("the body panicked")
    })
}

/// A family without labels, or of an enum of that many values.
fn family(values: Option<u32>) -> Option<Family> {
    let label = |count: u32| SeriesLabel {
        name: "kind".into(),
        values: Some((0..count).map(|value| value.to_string()).collect()),
    };
    let labels = values.map(label).into_iter().collect();
    let schema =
        Schema { name: "counted".into(), cells: 1, additive: true, labels, ..Schema::default() };
    Segment::private(SPACE).and_then(|segment| segment.family(&schema)).ok()
}

pub(super) fn cores() -> usize {
    available_parallelism().map_or(1, usize::from)
}

/// The CPUs of each NUMA node with CPUs.
fn nodes() -> Vec<Vec<usize>> {
    let list = |node: usize| {
        let path = format!("/sys/devices/system/node/node{node}/cpulist");
        std::fs::read_to_string(Path::new(&path)).map(|list| cpus(&list))
    };
    (0..1024).map_while(|node| list(node).ok()).filter(|cpus| !cpus.is_empty()).collect()
}

/// The numbers of a list such as `0-3,8`.
fn cpus(list: &str) -> Vec<usize> {
    let range = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse::<usize>().ok()?..=last.parse().ok()?)
    };
    list.trim().split(',').filter_map(range).flatten().collect()
}

/// The first CPU of each node, then the second one of each, and so on.
fn alternating(nodes: &[Vec<usize>]) -> Vec<usize> {
    let most = nodes.iter().map(Vec::len).max().unwrap_or(0);
    let of_all = |i: usize| nodes.iter().filter_map(move |node| node.get(i).copied());
    (0..most).flat_map(of_all).collect()
}

/// Pins this thread to a CPU. If the system refuses this, the thread stays unpinned.
fn pin_to(cpu: usize) {
    let mut chosen = CpuSet::new();
    if cpu < CpuSet::MAX_CPU {
        chosen.set(cpu);
        let _ = sched_setaffinity(None, &chosen);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_alternate_between_nodes() {
        assert_eq!(cpus("0-2,8\n"), [0, 1, 2, 8]);
        assert!(cpus("\n").is_empty());
        assert_eq!(alternating(&[vec![0, 1, 2], vec![4, 5]]), [0, 4, 1, 5, 2]);
    }
}
