//! Property tests: for random sequences of operations, each store returns the same values as
//! [`SynchronizedStore`], a map under a lock.

#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;

use common::all;
use proptest::prelude::*;
#[cfg(feature = "files")]
use quipu_store::files::FileStore;
use quipu_store::{
    Aggregation, Kind, LocalStore, Metric, SegmentStore, Spec, Store, SynchronizedStore,
};

#[derive(Debug, Clone)]
enum Step {
    Increment(usize, usize, f64),
    Set(usize, usize, f64),
    Remove(usize, usize),
    Get(usize, usize),
    /// Gets the metric from the store again.
    Again(usize),
}

/// Label values that a format or a key could mistake for something else.
const TEXTS: [&str; 8] =
    ["", "a", "200", "/x?y=\"1\"\\\n", "\0", "quipu_overflow", "ab", "\u{fffd}é"];

fn specs() -> Vec<Spec> {
    vec![
        Spec::new("plain", Kind::Counter).help("No labels."),
        Spec::new("requests_total", Kind::Counter).labels(["code", "path"]),
        Spec::new("requests", Kind::Gauge).labels(["code"]).aggregation(Aggregation::MostRecent),
        Spec::new("seconds", Kind::Histogram).labels(["code", "le"]),
        Spec::new("seconds_sum", Kind::Summary).labels(["quantile"]),
    ]
}

/// Metrics with separate values for each process.
fn specs_of_each() -> Vec<Spec> {
    let aggregations = [Aggregation::Max, Aggregation::Min];
    let mut specs = specs();
    for (number, spec) in specs.iter_mut().enumerate() {
        spec.aggregation = Some(aggregations[number % 2]);
    }
    specs
}

fn labels(spec: &Spec, number: usize) -> Vec<&'static str> {
    (0..spec.labels.len()).map(|i| TEXTS[(number >> (3 * i)) % TEXTS.len()]).collect()
}

fn number() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => Just(1.0),
        2 => (0_u32..1000).prop_map(f64::from),
        2 => (0_i32..4000).prop_map(|n| f64::from(n) / 8.0),
        1 => (-1000_i32..0).prop_map(|n| f64::from(n) / 8.0),
        1 => Just(f64::NAN),
        1 => Just(0.0),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let which = || (0..specs().len(), 0_usize..64);
    prop::collection::vec(
        prop_oneof![
            8 => (which(), number()).prop_map(|((m, l), by)| Step::Increment(m, l, by)),
            3 => (which(), number()).prop_map(|((m, l), value)| Step::Set(m, l, value)),
            1 => which().prop_map(|(m, l)| Step::Remove(m, l)),
            1 => which().prop_map(|(m, l)| Step::Get(m, l)),
            1 => (0..specs().len()).prop_map(Step::Again),
        ],
        0..60,
    )
}

/// Returns whether two values are equal, or both NaN. A missing series is like 0, because some
/// stores contain the series of a metric without labels from the start.
fn is_same(a: Option<f64>, b: Option<f64>) -> bool {
    let (a, b) = (a.unwrap_or(0.0), b.unwrap_or(0.0));
    a == b || (a.is_nan() && b.is_nan())
}

fn same(store: &dyn Store, specs: &[Spec], steps: &[Step]) -> Result<(), TestCaseError> {
    let oracle = SynchronizedStore::new();
    let of = |store: &dyn Store| -> Vec<Arc<dyn Metric>> {
        specs.iter().map(|spec| store.metric(spec).unwrap()).collect()
    };
    let (mut metrics, expected) = (of(store), of(&oracle));
    let dropped = store.dropped();
    for step in steps {
        match *step {
            Step::Increment(m, l, by) => {
                let labels = labels(expected[m].spec(), l);
                expected[m].add(&labels, by);
                metrics[m].add(&labels, by);
                prop_assert!(is_same(metrics[m].get(&labels), expected[m].get(&labels)));
            }
            // A read must not create the series.
            Step::Get(m, l) => {
                let labels = labels(expected[m].spec(), l);
                prop_assert!(is_same(metrics[m].get(&labels), expected[m].get(&labels)));
            }
            Step::Set(m, l, value) => {
                let labels = labels(expected[m].spec(), l);
                expected[m].set(&labels, value);
                metrics[m].set(&labels, value);
                prop_assert!(is_same(metrics[m].get(&labels), expected[m].get(&labels)));
            }
            Step::Remove(m, l) => {
                let labels = labels(expected[m].spec(), l);
                let removed = expected[m].remove(&labels).unwrap();
                if !labels.is_empty() {
                    prop_assert_eq!(metrics[m].remove(&labels).unwrap(), removed);
                } else {
                    metrics[m].remove(&labels).unwrap();
                }
            }
            Step::Again(m) => metrics[m] = store.metric(&specs[m]).unwrap(),
        }
    }
    for (metric, expected) in metrics.iter().zip(&expected) {
        let (all, expected_all) = (all(&**metric), all(&**expected));
        prop_assert!(
            all.len() == expected_all.len()
                && all
                    .iter()
                    .zip(&expected_all)
                    .all(|(a, b)| a.0 == b.0 && is_same(Some(*a.1), Some(*b.1))),
            "{all:?} instead of {expected_all:?}"
        );
        prop_assert_eq!(metric.spec(), expected.spec());
    }
    prop_assert_eq!(store.dropped() - dropped, oracle.dropped());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn local(steps in steps()) {
        same(&LocalStore::new(), &specs(), &steps)?;
    }

    #[test]
    fn segment(steps in steps()) {
        for specs in [specs(), specs_of_each()] {
            same(&SegmentStore::options().max_bytes(4 << 20).build().unwrap(), &specs, &steps)?;
            same(&SegmentStore::options().max_bytes(4 << 20).build_anonymous().unwrap(), &specs, &steps)?;
            let directory = tempfile::tempdir().unwrap();
            same(&SegmentStore::open(directory.path()).unwrap(), &specs, &steps)?;
        }
    }

    #[cfg(feature = "files")]
    #[test]
    fn files(mut steps in steps()) {
        // Files keep series that were removed.
        steps.retain(|step| !matches!(step, Step::Remove(..)));
        let directory = tempfile::tempdir().unwrap();
        same(&FileStore::open(directory.path()).unwrap(), &specs(), &steps)?;
    }

    #[cfg(all(feature = "lmdb", target_os = "linux"))]
    #[test]
    fn embedded(steps in steps()) {
        let directory = tempfile::tempdir().unwrap();
        same(&quipu_store::EmbeddedStore::open(directory.path()).unwrap(), &specs(), &steps)?;
    }
}

/// An existing metric that is requested with another description is refused; the error names the
/// difference.
#[test]
fn a_contradicting_description_is_refused() {
    let refused = |store: &dyn Store| {
        store.metric(&Spec::new("m", Kind::Counter).labels(["a"])).unwrap();
        let tell = |spec: Spec| store.metric(&spec).err().unwrap().to_string();
        let told = tell(Spec::new("m", Kind::Gauge).labels(["a"]));
        assert!(told.contains("it is a Counter, not a Gauge"), "{told}");
        let told = tell(Spec::new("m", Kind::Counter).labels(["b"]));
        assert!(told.contains("its labels are (a), not (b)"), "{told}");
        assert!(tell(Spec::new("", Kind::Counter)).contains("the name is empty"));
        let told = tell(Spec::new("twice", Kind::Counter).labels(["a", "a"]));
        assert!(told.contains("duplicate label"), "{told}");
        assert!(tell(Spec::new("m", Kind::Counter).labels(["__a"])).contains("rename"));
    };
    refused(&LocalStore::new());
    refused(&SynchronizedStore::new());
    refused(&SegmentStore::options().max_bytes(4 << 20).build().unwrap());
    #[cfg(all(feature = "lmdb", target_os = "linux"))]
    refused(&quipu_store::EmbeddedStore::open(tempfile::tempdir().unwrap().path()).unwrap());
}

#[test]
fn a_wrong_number_of_labels_is_dropped_and_counted() {
    let dropped = |store: &dyn Store| {
        let metric = store.metric(&Spec::new("m", Kind::Counter).labels(["a"])).unwrap();
        metric.add(&[], 1.0);
        metric.add(&["x", "y"], 1.0);
        metric.set(&[], 1.0);
        metric.add(&["x"], -1.0);
        metric.add(&["x"], f64::NAN);
        assert_eq!(store.dropped(), 5);
        assert_eq!((metric.get(&[]), metric.get(&["x"])), (None, None));
        assert!(all(&*metric).is_empty());
    };
    dropped(&LocalStore::new());
    dropped(&SynchronizedStore::new());
    dropped(&SegmentStore::options().max_bytes(4 << 20).build().unwrap());
    #[cfg(feature = "files")]
    dropped(&FileStore::open(tempfile::tempdir().unwrap().path()).unwrap());
    #[cfg(all(feature = "lmdb", target_os = "linux"))]
    dropped(&quipu_store::EmbeddedStore::open(tempfile::tempdir().unwrap().path()).unwrap());
}
