//! Histograms in both layouts: with pairs of a sum and a count in a family in lanes, and with one
//! sum in a family with dynamic labels, with many buckets, or with native ones.
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

#[cfg(target_os = "linux")]
#[path = "../../segment/tests/common/affinity.rs"]
mod affinity;

use std::collections::BTreeMap;

use proptest::prelude::*;
use quipu::intake::{Buckets, Change, Intake, Limits, Metric, Shape};
use quipu::snapshot::{FamilyHeader, Series, Sink, Value};
use quipu::{Description, Histogram, HistogramFamily, LabelGroup, LabelValue, Registry};

#[derive(Clone, Copy, Debug, LabelValue)]
enum Kind {
    Read,
    Write,
}

#[derive(Clone, Copy, LabelGroup)]
struct ByKind {
    kind: Kind,
}

#[derive(Clone, Copy, LabelGroup)]
struct ByUser<'a> {
    user: &'a str,
}

/// The sum, and the counts of the buckets.
type Sums = (f64, Vec<u64>);

/// The sums and the exemplars' values, by name and label.
#[derive(Debug, Default, PartialEq)]
struct Seen(BTreeMap<(String, String), (Sums, Vec<f64>)>);

impl Sink for Seen {
    fn family(&mut self, _: &FamilyHeader<'_>) {}

    fn series(&mut self, family: &FamilyHeader<'_>, series: &Series<'_>) {
        let Value::Histogram(histogram) = &series.value else { return };
        let fixed = family.fixed(series.group).map(|(_, value)| value.to_owned());
        let labels: Vec<String> = fixed.chain(series.texts.map(str::to_owned)).collect();
        let counts: Vec<u64> = histogram.buckets.iter().map(|bucket| bucket.count).collect();
        assert_eq!(histogram.count, counts.iter().sum::<u64>());
        let exemplars = histogram.buckets.iter().filter_map(|bucket| bucket.exemplar);
        let exemplars = exemplars.map(|exemplar| exemplar.value).collect();
        let key = (family.name.to_owned(), labels.join(","));
        self.0.insert(key, ((histogram.sum, counts), exemplars));
    }
}

impl Seen {
    fn in_registry(registry: &Registry) -> Self {
        let mut seen = Self::default();
        registry.visit(&mut seen).unwrap();
        seen
    }

    fn get(&self, name: &str, label: &str) -> Sums {
        self.0[&(name.to_owned(), label.to_owned())].0.clone()
    }
}

/// Returns the number of pairs of the family with this name.
fn pairs(registry: &Registry, name: &str) -> u8 {
    let families = registry.segment().families().unwrap();
    families.iter().find(|family| family.schema().name == name).unwrap().schema().pairs
}

fn about(name: &str) -> Description {
    Description::new(name, "A help.")
}

/// Counts and adds up, slowly.
fn oracle(bounds: &[f64], values: &[f64]) -> Sums {
    let mut counts = vec![0; bounds.len() + 1];
    for value in values {
        let bucket = bounds.iter().position(|bound| value <= bound).unwrap_or(bounds.len());
        counts[bucket] += 1;
    }
    (values.iter().sum(), counts)
}

fn bounds() -> impl Strategy<Value = Vec<f64>> {
    let bound = prop_oneof![
        8 => (-40_i32..40).prop_map(|n| f64::from(n) / 4.0),
        1 => Just(f64::MIN),
        1 => Just(f64::MAX),
        1 => Just(f64::NEG_INFINITY),
    ];
    prop::collection::vec(bound, 0..=20).prop_map(|mut bounds| {
        bounds.sort_by(f64::total_cmp);
        bounds.dedup();
        bounds
    })
}

/// Values on the bounds and between them. Their sums are exact, unless one is infinite or NaN.
fn values() -> impl Strategy<Value = Vec<f64>> {
    let value = prop_oneof![
        20 => (-90_i32..90).prop_map(|n| f64::from(n) / 8.0),
        1 => Just(f64::INFINITY),
        1 => Just(f64::NEG_INFINITY),
        1 => Just(f64::NAN),
        1 => Just(-0.0),
    ];
    prop::collection::vec(value, 0..60)
}

fn is_same(one: &Sums, other: &Sums) -> bool {
    one.1 == other.1 && (one.0 == other.0 || (one.0.is_nan() && other.0.is_nan()))
}

proptest! {
    #[test]
    fn both_layouts_agree_with_a_slow_count(
        bounds in bounds(), values in values(), others in values(), exemplars: bool,
    ) {
        let registry = Registry::new();
        let about = |name| {
            let about = about(name).buckets(bounds.clone());
            if exemplars { about.exemplars() } else { about }
        };
        let single: Histogram = registry.register(about("single")).unwrap();
        let by_kind: HistogramFamily<ByKind> = registry.register(about("by_kind")).unwrap();
        let by_user: HistogramFamily<ByUser> = registry.register(about("by_user")).unwrap();
        let expected_pairs = if bounds.len() < 16 { bounds.len() as u8 + 1 } else { 0 };
        prop_assert_eq!(pairs(&registry, "single"), expected_pairs);
        prop_assert_eq!(pairs(&registry, "by_kind"), expected_pairs);
        prop_assert_eq!(pairs(&registry, "by_user"), 0);
        let handle = by_kind.bind(&ByKind { kind: Kind::Write });
        for &value in &values {
            single.observe_with_exemplar(value, &[("trace", "1")]);
            by_kind.observe(&ByKind { kind: Kind::Read }, value);
            by_user.observe(&ByUser { user: "ada" }, value);
        }
        others.iter().for_each(|&value| handle.observe(value));
        // An intake adds to the same cells.
        let mut intake = Intake::new(&registry, Limits::default()).unwrap();
        for value in others.iter().filter(|value| !value.is_nan()) {
            let shape = Shape::Classic(bounds.clone());
            let observe = Change::Observe(*value, Buckets::OrElse(&shape));
            intake.change(Metric::new("single"), &[], &observe).unwrap();
        }

        let seen = Seen::in_registry(&registry);
        let expected = oracle(&bounds, &values);
        if !values.is_empty() {
            for (name, label) in [("by_kind", "read"), ("by_user", "ada")] {
                let found = seen.get(name, label);
                prop_assert!(is_same(&found, &expected), "{name}: {found:?} {expected:?}");
            }
        }
        let found = seen.get("by_kind", "write");
        let expected = oracle(&bounds, &others);
        prop_assert!(is_same(&found, &expected), "{found:?} {expected:?}");
        prop_assert!(is_same(&(handle.sum(), expected.1.clone()), &expected));
        prop_assert_eq!(handle.count(), others.len() as u64);
        let both: Vec<f64> =
            values.iter().chain(others.iter().filter(|value| !value.is_nan())).copied().collect();
        let (found, expected) = (seen.get("single", ""), oracle(&bounds, &both));
        prop_assert!(is_same(&found, &expected), "{found:?} {expected:?}");
        registry.reset().unwrap();
        prop_assert_eq!((single.count(), single.sum()), (0, 0.0));
        single.observe(0.25);
        prop_assert_eq!((single.count(), single.sum()), (1, 0.25));
    }
}

/// An old file is read by its stated layout, whichever layout the library prefers.
#[test]
fn a_file_of_each_layout_is_read_when_it_is_opened_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("both.quipu");
    let bounds = [0.5, 1.0];
    let register = |registry: &Registry| {
        let about = |name| about(name).buckets(bounds).exemplars();
        let paired: Histogram = registry.register(about("paired")).unwrap();
        let plain: Histogram = registry.register(about("plain").striped(false)).unwrap();
        let native: Histogram = registry.register(about("native").native(3)).unwrap();
        let keyed: HistogramFamily<ByUser> = registry.register(about("keyed")).unwrap();
        let observe = |value| {
            for histogram in [&paired, &plain, &native] {
                histogram.observe_with_exemplar(value, &[("trace", "1")]);
            }
            keyed.observe(&ByUser { user: "ada" }, value);
        };
        [0.25, 0.5, 0.75, 7.0].into_iter().for_each(observe);
    };
    let before = {
        let registry = Registry::open(&path).unwrap();
        register(&registry);
        let names = ["paired", "plain", "native", "keyed"];
        assert_eq!(names.map(|name| pairs(&registry, name)), [3, 0, 0, 0]);
        Seen::in_registry(&registry)
    };
    for name in ["paired", "plain", "native"] {
        assert_eq!(before.get(name, ""), (8.5, vec![2, 1, 1]), "{name}");
        let (_, exemplars) = &before.0[&(name.to_owned(), String::new())];
        assert_eq!(*exemplars, [0.5, 0.75, 7.0], "{name}");
    }
    assert_eq!(before.get("keyed", "ada"), (8.5, vec![2, 1, 1]));
    let registry = Registry::open(&path).unwrap();
    assert_eq!(Seen::in_registry(&registry), before);
    register(&registry);
    let after = Seen::in_registry(&registry);
    for key in before.0.keys() {
        assert_eq!(after.get(&key.0, &key.1), (17.0, vec![4, 2, 2]), "{key:?}");
    }
}

#[test]
fn large_families_and_families_in_one_lane_have_no_pairs() {
    let registry = Registry::new();
    let about = |name| about(name).buckets([1.0]).labels(["number"]);
    let numbers = |count: usize| (0..count).map(|number| number.to_string()).collect::<Vec<_>>();
    // Four cells each in pairs, and one more series: up to 16,384 words.
    for (name, count, expected) in [("most", 4095, 2), ("more", 4096, 0)] {
        let about = about(name).values("number", numbers(count));
        let family: HistogramFamily<[&str; 1]> = registry.register(about).unwrap();
        family.observe(&["7"], 0.5);
        assert_eq!(pairs(&registry, name), expected, "{name}");
        assert_eq!(Seen::in_registry(&registry).get(name, "7"), (0.5, vec![1, 0]));
    }
    let _: Histogram = registry.register(self::about("alone").striped(false)).unwrap();
    assert_eq!(pairs(&registry, "alone"), 0);
}

/// A thread moves the others from CPU to CPU: this interrupts additions at any instruction.
#[cfg(target_os = "linux")]
#[test]
fn threads_that_are_moved_between_cpus_count_and_add_up_all_observations() {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;
    use std::thread;

    const THREADS: usize = 4;
    const TURNS: usize = 300_000;
    let bounds: Vec<f64> = (0..11).map(f64::from).collect();
    let registry = Registry::new();
    let about = |name| about(name).buckets(bounds.clone());
    let single: Histogram = registry.register(about("single")).unwrap();
    let by_kind: HistogramFamily<ByKind> = registry.register(about("by_kind")).unwrap();
    let value = |i: usize| (i * 7 % 13) as f64;
    let is_over = AtomicBool::new(false);
    let (ids, movers) = mpsc::channel();
    let moves = thread::scope(|scope| {
        let (is_over, single, by_kind) = (&is_over, &single, &by_kind);
        let mover = scope.spawn(move || {
            let threads: Vec<i32> = movers.iter().take(THREADS).collect();
            let mut moves = 0_usize;
            while !is_over.load(Ordering::Relaxed) {
                threads
                    .iter()
                    .enumerate()
                    .for_each(|(i, thread)| affinity::pin(*thread, moves + i));
                moves += 1;
            }
            moves
        });
        let observers: Vec<_> = (0..THREADS)
            .map(|_| {
                let ids = ids.clone();
                scope.spawn(move || {
                    // SAFETY: this call requires no preconditions.
                    ids.send(unsafe { libc::gettid() }).unwrap();
                    for i in 0..TURNS {
                        single.observe(value(i));
                        by_kind.observe(&ByKind { kind: Kind::Write }, value(i));
                    }
                })
            })
            .collect();
        observers.into_iter().for_each(|observer| observer.join().unwrap());
        is_over.store(true, Ordering::Relaxed);
        mover.join().unwrap()
    });
    let all: Vec<f64> = (0..THREADS * TURNS).map(|i| value(i % TURNS)).collect();
    let (expected, seen) = (oracle(&bounds, &all), Seen::in_registry(&registry));
    assert_eq!(seen.get("single", ""), expected, "after {moves} moves");
    assert_eq!(seen.get("by_kind", "write"), expected, "after {moves} moves");
}
