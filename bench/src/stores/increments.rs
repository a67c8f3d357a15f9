//! Measures increments from Rust: by labels and bound, on threads, and in stores with many metrics.

use std::cell::Cell;

use quipu::label::Values;
use quipu::{Counter, Registry};
use quipu_store::Kind;

use super::ours::{self, BUCKETS, Contender, STORES, TWO, VALUES};
use super::{Places, Plan};
use crate::Result;
use crate::measure::{Case, black_box};
use crate::record::Record;

/// The numbers of threads that count at the same time.
pub(super) const TOGETHER: [usize; 3] = [1, 2, 4];

/// The calls of an application: to counters and histograms of a segment, and through the interface
/// that all stores share.
pub(super) fn increments(plan: Plan, places: &Places) -> Result<Vec<Record>> {
    let folder = places.fresh(&places.tmpfs);
    let registry = ours::registry(folder.path());
    let private = Registry::new();
    let paths = ours::paths();
    let opened = open_all(places);

    let mut none = Case::new("rust increment/no labels");
    let mut two = Case::new("rust increment/2 labels");
    let mut many = Case::new("rust increment/2 labels among 1,000");
    let mut four = Case::new("rust increment/4 labels");
    let mut bound = Case::new("rust increment/bound");
    let mut observe = Case::new("rust observe/2 labels");
    let mut observe_bound = Case::new("rust observe/bound");
    for (subject, registry) in [("quipu", &registry), ("quipu (private memory)", &private)] {
        let counter: Counter = registry.counter("plain", "Counted.").expect("the name is new");
        none = none.each(subject, move || counter.inc());
        let counters = ours::counters(registry, "two", &TWO);
        let child = counters.bind(&Values(&VALUES));
        bound = bound.each(subject, move || child.inc());
        two = two.each(subject, move || counters.inc_by(&Values(&black_box(VALUES)), 1));
        let counters = ours::counters(registry, "many", &TWO);
        many = many.exclusive(
            subject,
            around(&paths, move |path| {
                counters.inc_by(&Values(&["200", path]), 1);
            }),
        );
        let counters = ours::counters(registry, "four", &["code", "path", "method", "host"]);
        four = four.each(subject, move || {
            counters.inc_by(&Values(&black_box(["200", "/x", "GET", "a"])), 1);
        });
        let histograms = ours::histograms(registry, "seen", &TWO);
        let child = histograms.bind(&Values(&VALUES));
        observe_bound = observe_bound.each(subject, move || child.observe(black_box(0.3)));
        observe = observe.each(subject, move || {
            histograms.observe(&Values(&black_box(VALUES)), black_box(0.3));
        });
    }
    for (contender, store, _folder) in &opened {
        let counter = ours::counter(&**store, "plain", &[]);
        none = none.each(contender.subject, move || counter.add(&[], 1.0));
        let counter = ours::counter(&**store, "two", &TWO);
        two = two.each(contender.subject, move || counter.add(&black_box(VALUES), 1.0));
        let counter = ours::counter(&**store, "many", &TWO);
        many = many.exclusive(
            contender.subject,
            around(&paths, move |path| {
                counter.add(&["200", path], 1.0);
            }),
        );
        let counter = ours::counter(&**store, "four", &["code", "path", "method", "host"]);
        four = four.each(contender.subject, move || {
            counter.add(&black_box(["200", "/x", "GET", "a"]), 1.0);
        });
    }
    let cases = [none, two, many, four, bound, observe, observe_bound];
    let records = cases.into_iter().flat_map(|case| case.run(&plan.options())).collect();
    for (contender, store, _) in &opened {
        ours::check(contender.subject, &**store)?;
    }
    Ok(records)
}

/// Threads that count in the same series with two labels.
pub(super) fn threads(plan: Plan, places: &Places) -> Result<Vec<Record>> {
    let folder = places.fresh(&places.tmpfs);
    let registry = ours::registry(folder.path());
    let opened = open_all(places);
    let counters = ours::counters(&registry, "threads", &TWO);
    let mut records = Vec::new();
    for threads in TOGETHER {
        let mut case = Case::new("rust threads/increment").threads(threads);
        case = case.each("quipu", || counters.inc_by(&Values(&black_box(VALUES)), 1));
        for (contender, store, _folder) in &opened {
            if !contender.many_threads {
                continue;
            }
            let counter = ours::counter(&**store, "threads", &TWO);
            case = case.each(contender.subject, move || {
                counter.add(&black_box(VALUES), 1.0);
            });
        }
        records.extend(case.run(&plan.options()));
    }
    for (contender, store, _) in &opened {
        ours::check(contender.subject, &**store)?;
    }
    Ok(records)
}

/// The main one of the original benchmarks, through the interface that all stores share: a hundred
/// metrics, a random one each time. "Simple" are counters without labels; "realistic" are 80
/// counters and 20 histograms with 0 to 4 labels, where an observation increments a bucket and the
/// sum.
pub(super) fn stores(plan: Plan, places: &Places) -> Result<Vec<Record>> {
    let mut records = Vec::new();
    for (scenario, counters, most_labels) in [("simple", 100, 0), ("realistic", 80, 4)] {
        for contender in STORES {
            for (place, path) in contender.places(places) {
                let folder = places.fresh(path);
                let store = (contender.open)(places, folder.path());
                let points = points(&*store, counters, most_labels);
                let next = Cell::new(0);
                let case = Case::new(format!("rust stores, {scenario}/{place}"));
                let case = case.exclusive(contender.subject, |n| {
                    for _ in 0..n {
                        points[next.get()].count();
                        next.set((next.get() + 1) % points.len());
                    }
                });
                records.extend(case.run(&plan.options()));
                ours::check(contender.subject, &*store)?;
            }
        }
    }
    Ok(records)
}

/// A prepared increment or observation.
struct Point {
    metric: std::sync::Arc<dyn quipu_store::Metric>,
    labels: Vec<&'static str>,
    /// The observation, for a histogram, whose last label is `le`.
    observed: Option<f64>,
}

impl Point {
    fn count(&self) {
        let mut labels = [""; 5];
        labels[..self.labels.len()].copy_from_slice(&self.labels);
        let Some(value) = self.observed else {
            return self.metric.add(&labels[..self.labels.len()], 1.0);
        };
        let bucket = BUCKETS.partition_point(|bound| *bound < value);
        let labels = &mut labels[..=self.labels.len()];
        labels[self.labels.len()] = BOUNDS[bucket];
        self.metric.add(labels, 1.0);
        labels[self.labels.len()] = "sum";
        self.metric.add(labels, value);
    }
}

/// The bounds of [`BUCKETS`] in client_ruby's form.
const BOUNDS: [&str; 12] =
    ["0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1", "2.5", "5", "10", "+Inf"];

fn points(store: &dyn quipu_store::Store, counters: usize, most_labels: u64) -> Vec<Point> {
    const NAMES: [&str; 4] = ["label1", "label2", "label3", "label4"];
    let mut random = Random(12_345_678);
    let metrics: Vec<_> = (0..100)
        .map(|number| {
            let mut names = NAMES[..random.below(most_labels + 1) as usize].to_vec();
            let labels = vec!["foo"; names.len()];
            let kind = if number < counters { Kind::Counter } else { Kind::Histogram };
            if kind == Kind::Histogram {
                names.push("le");
            }
            (ours::metric(store, &format!("metric{number}"), kind, &names), labels)
        })
        .collect();
    (0..10_000)
        .map(|_| {
            let (metric, labels) = &metrics[random.below(100) as usize];
            let is_histogram = metric.spec().kind == Kind::Histogram;
            let observed = is_histogram.then(|| random.below(10_000) as f64 / 1000.0);
            Point { metric: metric.clone(), labels: labels.clone(), observed }
        })
        .collect()
}

/// SplitMix64: a reproducible sequence of random numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }
}

type Opened = (Contender, std::sync::Arc<dyn quipu_store::Store>, tempfile::TempDir);

/// Every store in a separate folder, which is the last field, so it is dropped after the store.
fn open_all(places: &Places) -> Vec<Opened> {
    let open = |contender: Contender| {
        let folder = places.fresh(&places.tmpfs);
        (contender, (contender.open)(places, folder.path()), folder)
    };
    STORES.into_iter().map(open).collect()
}

/// A loop over the paths, which continues where the previous call ended.
fn around<'p>(paths: &'p [String], count: impl Fn(&str) + 'p) -> impl FnMut(u64) + 'p {
    let mut next = 0;
    move |n| {
        for _ in 0..n {
            count(&paths[next]);
            next = (next + 1) % paths.len();
        }
    }
}
