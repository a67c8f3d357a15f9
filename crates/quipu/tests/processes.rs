//! Process gauges, with real processes that live, exit, and are killed.

#![cfg(all(target_os = "linux", not(miri)))]
#![allow(clippy::unwrap_used)]

mod common;

use std::time::Duration;

use common::{Child, alone, eventually, lines, sleep};
use quipu::label::Values;
use quipu::{Aggregation, Description, ProcessGauge, ProcessGaugeFamily, Registry};
use quipu_segment::Segment;

fn anonymous() -> Registry {
    Registry::from_segment(Segment::anonymous(64 << 20).unwrap())
}

fn gauge(registry: &Registry, aggregation: Aggregation) -> ProcessGauge {
    registry.register(description("g", aggregation)).unwrap()
}

fn description(name: &str, aggregation: Aggregation) -> Description {
    Description::new(name, "A gauge.").aggregation(aggregation)
}

type Labelled = ProcessGaugeFamily<Values<'static>>;

fn family(registry: &Registry, aggregation: Aggregation) -> Labelled {
    registry.register(description("g", aggregation).labels(["path"])).unwrap()
}

/// Starts a child that does `work`, and then stays alive.
fn living(work: impl FnOnce()) -> Child {
    let ready = anonymous().counter("ready", "").unwrap();
    let child = Child::start(|| {
        work();
        ready.inc();
        sleep()
    });
    eventually("the child is ready", || ready.get() > 0);
    child
}

/// Does `work` in a child, and waits until the child ended.
fn ended(work: impl FnOnce()) {
    let child = Child::start(|| {
        work();
        true
    });
    assert!(child.wait());
}

fn value(registry: &Registry) -> Option<f64> {
    let lines = lines(&registry.text(), "g");
    assert!(lines.len() <= 1, "{lines:?}");
    lines.first().map(|line| line.rsplit(' ').next().unwrap().parse().unwrap())
}

#[test]
fn values_are_put_together() {
    alone("values_are_put_together", || {
        use Aggregation::*;
        // This process sets 5, a living one 2, one that ended 11, and one that was killed -3.
        let cases = [
            (Min, Some(-3.0), -3.0),
            (LiveMin, Some(2.0), 5.0),
            (Max, Some(11.0), 11.0),
            (LiveMax, Some(5.0), 5.0),
            (Sum, Some(15.0), 15.0),
            (LiveSum, Some(7.0), 5.0),
            (MostRecent, Some(2.0), 2.0),
            (LiveMostRecent, Some(2.0), 5.0),
        ];
        for (aggregation, with_child, without) in cases {
            let registry = anonymous();
            let gauge = gauge(&registry, aggregation);
            gauge.set(5.0);
            ended(|| gauge.set(11.0));
            living(|| gauge.set(-3.0)).kill();
            let child = living(|| {
                gauge.add(3.0);
                gauge.sub(1.0);
                gauge.set(2.0);
                assert_eq!(gauge.get(), 2.0);
            });
            for _ in 0..3 {
                assert_eq!(value(&registry), with_child, "{aggregation}");
            }
            child.kill();
            let last = match aggregation {
                Sum => 15.0,
                _ => without,
            };
            for _ in 0..3 {
                assert_eq!(value(&registry), Some(last), "{aggregation}");
            }
            if aggregation != MostRecent {
                assert_eq!(gauge.get(), 5.0, "{aggregation}");
            }
        }
    });
}

#[test]
fn each_process_is_shown_by_its_id() {
    alone("each_process_is_shown_by_its_id", || {
        for aggregation in [Aggregation::All, Aggregation::LiveAll] {
            let registry = anonymous();
            let gauge = family(&registry, aggregation);
            gauge.set(&Values(&["/a"]), 1.0);
            let child = living(|| gauge.set(&Values(&["/a"]), 2.0));
            let id = child.id();
            let line = |id: u32, n: u32| format!("g{{path=\"/a\",pid=\"{id}\"}} {n}");
            let mut expected = [line(std::process::id(), 1), line(id, 2)];
            expected.sort_by_key(|line| line.len());
            let mut shown = lines(&registry.text(), "g");
            shown.sort_by_key(|line| line.len());
            let sorted = |mut lines: Vec<String>| {
                lines.sort();
                lines
            };
            assert_eq!(sorted(shown), sorted(expected.to_vec()));
            child.kill();
            let shown = lines(&registry.text(), "g");
            let is_there = aggregation == Aggregation::All;
            assert_eq!(shown.contains(&line(id, 2)), is_there, "{aggregation} {shown:?}");
            assert_eq!(shown.len(), 1 + usize::from(is_there));
        }
    });
}

#[test]
fn a_label_of_the_same_name_is_refused() {
    let registry = Registry::new();
    let description = description("g", Aggregation::All).labels(["pid"]);
    let error = registry.register::<Labelled>(description).unwrap_err();
    assert!(error.to_string().contains("the label \"pid\" appears twice"), "{error}");
}

#[test]
fn a_gauge_of_processes_is_combined_for_each_label_set() {
    alone("a_gauge_of_processes_is_combined_for_each_label_set", || {
        let registry = anonymous();
        let description = description("g", Aggregation::Sum)
            .labels(["kind", "path"])
            .values("kind", ["a", "b"])
            .max_series(1000);
        let scope = registry.scope().label("app", "test");
        let gauge: Labelled = scope.register(description).unwrap();
        let add = |n: f64| {
            gauge.add(&Values(&["a", "/x"]), n);
            gauge.add(&Values(&["b", "/x"]), 10.0 * n);
            gauge.bind(&Values(&["b", ""])).add(100.0 * n);
        };
        add(1.0);
        ended(|| add(2.0));
        ended(|| add(3.0));
        let child = living(|| add(4.0));
        let expected = [
            "g{kind=\"a\",app=\"test\",path=\"/x\"} 10",
            "g{kind=\"b\",app=\"test\",path=\"\"} 1000",
            "g{kind=\"b\",app=\"test\",path=\"/x\"} 100",
        ];
        for _ in 0..3 {
            assert_eq!(lines(&registry.text(), "g"), expected);
        }
        // In each group, one series is left of the ended processes.
        assert_eq!(gauge.len(), 9);
        assert!(gauge.remove(&Values(&["b", "/x"])).unwrap());
        assert!(!gauge.remove(&Values(&["b", "/x"])).unwrap());
        assert_eq!(lines(&registry.text(), "g"), [expected[0], expected[1]]);
        // An unknown value, and a wrong number of values, are counted in the overflow series.
        gauge.set(&Values(&["c", "/x"]), 7.0);
        gauge.set(&Values(&["a"]), 7.0);
        gauge.set(&Values(&["a", "b", "c"]), 7.0);
        assert_eq!(gauge.overflowed(), 3);
        assert!(registry.text().contains("g{quipu_overflow=\"true\"} 7"));
        let removed = gauge.retain(|pairs| {
            assert_eq!(
                pairs.iter().map(|pair| pair.0).collect::<Vec<_>>(),
                ["kind", "path", "app"]
            );
            pairs[0].1 == "b"
        });
        assert_eq!(removed.unwrap(), 3);
        drop(child);
    });
}

#[test]
fn a_handle_of_the_parent_sets_the_childs_own() {
    alone("a_handle_of_the_parent_sets_the_childs_own", || {
        let registry = anonymous();
        let gauge = family(&registry, Aggregation::LiveAll);
        let handle = gauge.bind(&Values(&["/a"]));
        assert_eq!(value(&registry), None, "nothing was set");
        handle.set(1.0);
        let child = living(|| {
            assert_eq!(handle.get(), 0.0);
            handle.set(2.0);
            handle.clone().add(1.0);
            let grandchild = Child::start(|| {
                handle.set(40.0);
                handle.get() == 40.0 && lines(&registry.text(), "g").len() == 3
            });
            assert!(grandchild.wait());
            assert_eq!(handle.get(), 3.0);
        });
        assert_eq!(handle.get(), 1.0);
        assert_eq!(lines(&registry.text(), "g").len(), 2);
        // A handle creates a removed series again.
        gauge.remove(&Values(&["/a"])).unwrap();
        assert_eq!(value(&registry), None);
        handle.add(7.0);
        assert_eq!(value(&registry), Some(7.0));
        drop(child);
    });
}

#[test]
fn private_memory_knows_its_own_process() {
    alone("private_memory_knows_its_own_process", || {
        for &aggregation in Aggregation::ALL {
            let registry = Registry::new();
            let gauge = gauge(&registry, aggregation);
            gauge.set(3.0);
            let child = Child::start(|| {
                gauge.set(4.0);
                aggregation.is_live() == (value_of_any(&registry) == vec![4.0])
                    || aggregation == Aggregation::Max
                    || aggregation == Aggregation::MostRecent
            });
            assert!(child.wait(), "{aggregation}");
            assert_eq!(value_of_any(&registry), [3.0]);
        }
    });
}

fn value_of_any(registry: &Registry) -> Vec<f64> {
    let lines = lines(&registry.text(), "g");
    lines.iter().map(|line| line.rsplit(' ').next().unwrap().parse().unwrap()).collect()
}

#[test]
fn a_scrape_omits_the_guards_of_a_killed_process() {
    alone("a_scrape_omits_the_guards_of_a_killed_process", || {
        let registry = anonymous();
        let family = family(&registry, Aggregation::LiveSum);
        let description = description("running", Aggregation::LiveSum);
        let running: ProcessGauge = registry.register(description).unwrap();
        let values = || {
            let label = [("path", "/")];
            (registry.value("running", &[]).unwrap(), registry.value("g", &label).unwrap())
        };
        let guards = (running.in_progress(), family.in_progress(&Values(&["/"])));
        let child = living(|| {
            std::mem::forget((running.in_progress_owned(), family.in_progress(&Values(&["/"]))));
        });
        assert_eq!(values(), (2.0, 2.0));
        child.kill();
        assert_eq!(values(), (1.0, 1.0));
        drop(guards);
        assert_eq!(values(), (0.0, 0.0));
        running.inc();
        family.inc(&Values(&["/"]));
        assert_eq!(values(), (1.0, 1.0));
        running.dec();
        family.dec(&Values(&["/"]));
        assert_eq!(values(), (0.0, 0.0));
    });
}

#[test]
fn processes_that_open_one_file_see_one_value() {
    alone("processes_that_open_one_file_see_one_value", || {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("shared");
        let run = |n: f64| {
            let registry = Registry::open(&path).unwrap();
            gauge(&registry, Aggregation::Sum).set(n);
        };
        ended(|| run(1.0));
        ended(|| run(2.0));
        run(4.0);
        let registry = Registry::open(&path).unwrap();
        assert_eq!(value(&registry), Some(7.0));
        let error = registry.register::<ProcessGauge>(description("g", Aggregation::Max));
        assert!(error.unwrap_err().is_mismatch());
    });
}

/// Many workers, one after the other, leave no more data than a few, with or without scrapes.
#[test]
fn workers_that_come_and_go_leave_no_more_than_a_few() {
    alone("workers_that_come_and_go_leave_no_more_than_a_few", || {
        for aggregation in [Aggregation::All, Aggregation::Sum, Aggregation::LiveMax] {
            let registry = anonymous();
            let gauge = family(&registry, aggregation);
            let paths: Vec<String> = (0..20).map(|i| format!("/{i}")).collect();
            let set = || paths.iter().for_each(|path| gauge.set(&Values(&[path]), 1.0));
            let round = || ended(set);
            // About the number that start later within a second, on a fast machine.
            let few: Vec<Child> = (0..149).map(|_| living(set)).collect();
            few.into_iter().for_each(Child::kill);
            round();
            // Records are reused after a second.
            std::thread::sleep(Duration::from_millis(1200));
            let text = registry.text();
            let before = registry.segment().used();
            for i in 0..300 {
                round();
                if i % 150 == 149 {
                    std::thread::sleep(Duration::from_millis(1200));
                }
            }
            let used = registry.segment().used();
            assert!(used < 2 * before, "{aggregation}: {before} and then {used} bytes");
            let _ = registry.text();
            match aggregation {
                Aggregation::All => assert_eq!(gauge.len(), 64 * 20),
                Aggregation::Sum => {
                    assert_eq!(gauge.len(), 20);
                    assert!(registry.text().contains("g{path=\"/7\"} 450\n"));
                    assert!(text.contains("g{path=\"/7\"} 150\n"));
                }
                _ => assert_eq!(gauge.len(), 0),
            }
        }
    });
}

/// Several concurrent scrapers are killed at random moments. No value of an ended process is lost,
/// and none is counted twice.
#[test]
fn scrapers_that_are_killed_lose_nothing() {
    alone("scrapers_that_are_killed_lose_nothing", || {
        let registry = anonymous();
        let gauge = gauge(&registry, Aggregation::Sum);
        let scrape = || loop {
            let _ = registry.text();
        };
        let mut scrapers: Vec<Child> = (0..3).map(|_| Child::start(scrape)).collect();
        for i in 1..=300_u32 {
            ended(|| gauge.set(1.0));
            if i % 3 == 0 {
                scrapers.remove(0).kill();
                scrapers.push(Child::start(scrape));
            }
            if i % 10 == 0 {
                assert_eq!(value(&registry), Some(f64::from(i)));
            }
        }
    });
}

/// Concurrent scrapes all show the value of the process that ended last, while one of them folds it
/// with the values of others.
#[test]
fn no_scrape_misses_what_another_puts_together() {
    alone("no_scrape_misses_what_another_puts_together", || {
        for aggregation in [Aggregation::Max, Aggregation::Min] {
            let registry = anonymous();
            let gauge = family(&registry, aggregation);
            let paths: Vec<String> = (0..200).map(|i| i.to_string()).collect();
            for round in 1..=40 {
                let value = if aggregation == Aggregation::Max { round } else { -round };
                ended(|| {
                    paths.iter().for_each(|path| gauge.set(&Values(&[path]), f64::from(value)));
                });
                let scrape = || {
                    let lines = lines(&registry.text(), "g");
                    assert_eq!(lines.len(), paths.len());
                    let expected = format!(" {value}");
                    let wrong = lines.iter().find(|line| !line.ends_with(&expected));
                    assert_eq!(wrong, None, "{aggregation} in round {round}");
                };
                std::thread::scope(|scope| {
                    (0..3).for_each(|_| drop(scope.spawn(scrape)));
                });
            }
        }
    });
}
