//! Forks at any moment: children and grandchildren, while threads count and create metrics.
//!
//! Each test runs in a new process of this program, because no other test may run where it forks.

#![cfg(all(target_os = "linux", not(miri)))]
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use common::{Child, all, alone, total};
use quipu_store::{
    Aggregation, Kind, LocalStore, Metric, SegmentStore, Spec, Store, SynchronizedStore,
};

const FORKS: usize = 12;
/// The number of increments that `count` makes.
const EACH: usize = 40;

fn requests() -> Spec {
    Spec::new("requests_total", Kind::Counter).labels(["code"])
}

fn count(metric: &dyn Metric) {
    for i in 0..EACH {
        metric.add(&[&(i % 7).to_string()], 1.0);
    }
}

/// Counts in children and grandchildren, while threads of the parent count, create metrics and
/// read. No count is lost.
fn storm(store: &(dyn Store + Sync)) {
    let metric = store.metric(&requests()).unwrap();
    let (done, counted) = (AtomicBool::new(false), AtomicU64::new(0));
    let work = |metric: &dyn Metric, name: &str| {
        count(metric);
        // Created in the children, by many of them at once.
        let own = store.metric(&Spec::new(name, Kind::Counter).labels(["code"])).unwrap();
        count(&*own);
        metric.synchronize(&mut || metric.synchronize(&mut || count(metric)));
        assert!(total(metric) >= 2.0 * EACH as f64);
    };
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (metric, done, counted) = (&metric, &done, &counted);
            scope.spawn(move || {
                for i in 0.. {
                    if done.load(Ordering::Relaxed) {
                        break;
                    }
                    let name = format!("of_thread_{thread}_{}", i % 50);
                    store.metric(&Spec::new(name, Kind::Counter)).unwrap().add(&[], 1.0);
                    metric.synchronize(&mut || metric.add(&["thread"], 1.0));
                    counted.fetch_add(1, Ordering::Relaxed);
                    all(&**metric);
                }
            });
        }
        let mut ended = 0;
        for _ in 0..FORKS {
            let child = Child::fork(|| {
                let grandchild = Child::fork(|| {
                    std::thread::scope(|scope| {
                        scope.spawn(|| work(&*metric, "of_children"));
                    });
                });
                work(&*metric, "of_children");
                assert!(grandchild.wait());
            });
            ended += usize::from(child.wait());
        }
        // Stop the threads before any assertion, because a failed assertion would wait for them.
        done.store(true, Ordering::Relaxed);
        assert_eq!(ended, FORKS, "a child failed, or waited for a thread that it does not have");
    });
    let processes = 2 * FORKS;
    let counted = counted.load(Ordering::Relaxed) as f64;
    assert_eq!(total(&*metric), (processes * 2 * EACH) as f64 + counted);
    let own = Spec::new("of_children", Kind::Counter).labels(["code"]);
    assert_eq!(total(&*store.metric(&own).unwrap()), (processes * EACH) as f64);
    assert_eq!(store.dropped(), 0);
}

#[test]
fn a_file_counts_all() {
    alone("a_file_counts_all", || {
        let directory = tempfile::tempdir().unwrap();
        storm(&SegmentStore::open(directory.path()).unwrap());
    });
}

#[test]
fn memory_without_a_name_counts_all() {
    alone("memory_without_a_name_counts_all", || {
        let store = SegmentStore::options().build_anonymous().unwrap();
        assert!(store.path().is_none());
        // Families that are created after the fork are shared with the children, too.
        storm(&store);
    });
}

#[cfg(feature = "lmdb")]
#[test]
fn a_database_counts_all() {
    alone("a_database_counts_all", || {
        let directory = tempfile::tempdir().unwrap();
        storm(&quipu_store::EmbeddedStore::open(directory.path()).unwrap());
    });
}

/// In this store each process counts for itself. The test only checks that a child can continue.
#[test]
fn a_child_of_a_store_in_memory_counts_on() {
    alone("a_child_of_a_store_in_memory_counts_on", || {
        let store = SynchronizedStore::new();
        let metric = store.metric(&requests()).unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for i in 0_u64.. {
                    if done.load(Ordering::Relaxed) {
                        break;
                    }
                    metric.synchronize(&mut || metric.add(&[&i.to_string()], 1.0));
                }
            });
            let mut ended = 0;
            for _ in 0..100 {
                let child = Child::fork(|| {
                    metric.synchronize(&mut || metric.add(&["child"], 1.0));
                    assert_eq!(metric.get(&["child"]), Some(1.0));
                    store.metric(&Spec::new("new", Kind::Gauge)).unwrap().set(&[], 3.0);
                });
                ended += usize::from(child.wait());
            }
            done.store(true, Ordering::Relaxed);
            assert_eq!(ended, 100, "a child failed");
        });
        assert_eq!(metric.get(&["child"]), None);
    });
}

/// A gauge stores one value per process; the aggregation determines whether the values of dead
/// processes count.
#[test]
fn gauges_of_several_processes_become_one() {
    alone("gauges_of_several_processes_become_one", || {
        let directory = tempfile::tempdir().unwrap();
        let store = SegmentStore::open(directory.path()).unwrap();
        let gauges: Vec<Arc<dyn Metric>> = Aggregation::ALL
            .iter()
            .map(|&aggregation| {
                let name = format!("gauge_{aggregation}");
                let spec = Spec::new(name, Kind::Gauge).labels(["a"]).aggregation(aggregation);
                store.metric(&spec).unwrap()
            })
            .collect();
        gauges.iter().for_each(|gauge| gauge.set(&["x"], 3.0));
        let child = Child::fork(|| {
            gauges.iter().for_each(|gauge| {
                gauge.set(&["x"], 5.0);
                assert_eq!(gauge.get(&["x"]), Some(5.0));
            });
        });
        assert!(child.wait());
        let values = |gauge: &dyn Metric| -> Vec<f64> {
            let all = all(gauge);
            let has_pid =
                matches!(gauge.spec().aggregation, Some(Aggregation::All | Aggregation::LiveAll));
            let is_right = |labels: &Vec<String>| labels.len() == 1 + usize::from(has_pid);
            assert!(all.keys().all(is_right), "{all:?}");
            let mut values: Vec<f64> = all.into_values().collect();
            values.sort_by(f64::total_cmp);
            values
        };
        for gauge in &gauges {
            let expected = match gauge.spec().aggregation.unwrap() {
                Aggregation::All => vec![3.0, 5.0],
                Aggregation::Max | Aggregation::MostRecent => vec![5.0],
                Aggregation::Sum => vec![8.0],
                // The smallest value, or only the value of this process, because the child is dead.
                _ => vec![3.0],
            };
            assert_eq!(values(&**gauge), expected, "{}", gauge.spec().name);
        }
    });
}

/// Forks many children while another thread does `work`. `check` must succeed in each child.
fn fork_amid(work: impl Fn() + Sync, check: impl Fn()) {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                work();
            }
        });
        let ended = (0..200).filter(|_| Child::fork(&check).wait()).count();
        done.store(true, Ordering::Relaxed);
        assert_eq!(ended, 200, "a child could not go on");
    });
}

#[test]
fn a_child_counts_where_another_thread_was_counting() {
    alone("a_child_counts_where_another_thread_was_counting", || {
        let metric = LocalStore::new().metric(&requests()).unwrap();
        fork_amid(
            || metric.add(&["thread"], 1.0),
            || {
                metric.add(&["child"], 1.0);
                assert_eq!(metric.get(&["child"]), Some(1.0));
            },
        );
    });
}

#[cfg(feature = "redis")]
#[test]
fn a_child_finds_the_metrics_that_another_thread_was_looking_for() {
    alone("a_child_finds_the_metrics_that_another_thread_was_looking_for", || {
        // No server listens on this port.
        let options = quipu_store::redis::RedisOptions::new("redis://127.0.0.1:1/");
        let store = options.open().unwrap();
        fork_amid(
            || drop(store.metric(&requests()).unwrap()),
            || store.metric(&requests()).unwrap().add(&["child"], 1.0),
        );
        assert_eq!(store.metric(&requests()).unwrap().get(&["child"]), Some(200.0));
    });
}
