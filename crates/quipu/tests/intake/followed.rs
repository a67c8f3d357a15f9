//! Totals of sources that restart, send again, and come beside increments.

use std::time::Duration;

use quipu::Registry;
use quipu::intake::{Followed, Given, Intake, Metric, Mode, Refused, Shape};
use quipu::snapshot::{Native, Timestamp};

use super::{has, intake, metric, observation, observed};

/// Makes times of a number of nanoseconds after a moment that has just passed.
fn times() -> impl Fn(u64) -> Option<Timestamp> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    move |n| Some(Timestamp(now.as_nanos() as u64 - 100 + n))
}

#[test]
fn totals_of_sources_that_restart_only_grow() {
    let registry = Registry::new();
    let mut intake = intake(&registry);
    let mut follow = |total: f64, start: Option<u64>, shown: &str| {
        let given = Given::Counter(total);
        let start = start.map(Timestamp);
        intake.take(metric("c_total"), &[("i", "1")], &given, Mode::Follow, start).unwrap();
        has(&registry, &[&format!("c_total{{i=\"1\"}} {shown}")]);
    };
    follow(5.0, None, "5");
    follow(5.0, None, "5");
    follow(7.0, None, "7");
    // Without a start, less is a restart.
    follow(2.0, None, "9");
    // The first start says nothing about what was before.
    follow(3.0, Some(100), "10");
    // A later start is a restart, though the total is greater.
    follow(4.0, Some(200), "14");
    // Late values of the old source, and of the new one, change nothing.
    follow(3.0, Some(100), "14");
    follow(3.0, Some(200), "14");
    follow(6.0, Some(200), "16");
    follow(1.0, Some(300), "17");
}

#[test]
fn what_is_sent_again_counts_once_though_the_source_says_no_start() {
    let registry = Registry::new();
    let mut intake = intake(&registry);
    let time = times();
    let mut follow = |total: f64, time, start| {
        let sample = Metric { time, ..metric("c_total") };
        intake.take(sample, &[], &Given::Counter(total), Mode::Follow, start).unwrap();
    };
    // A batch of two samples, twice.
    for (total, at) in [(90.0, 1), (100.0, 2), (90.0, 1), (100.0, 2)] {
        follow(total, time(at), None);
    }
    has(&registry, &["c_total 100"]);
    follow(5.0, time(3), None);
    has(&registry, &["c_total 105"]);
    // A start that is far ahead says nothing: the next one counts.
    follow(6.0, time(4), time(10_u64.pow(18)));
    follow(7.0, time(5), time(0));
    has(&registry, &["c_total 107"]);
    // Others add beside what the source counts.
    let grouped = Metric { grouped: true, ..metric("g") };
    for (n, mode) in [(1000.0, Mode::Set), (1.0, Mode::Add), (2.0, Mode::Add)] {
        intake.take(grouped, &[], &Given::Counter(n), mode, None).unwrap();
    }
    has(&registry, &["g 1003"]);
}

#[test]
fn a_source_may_change_its_buckets() {
    let registry = Registry::new();
    let mut intake = intake(&registry);
    let mut native = |schema: i8, positive: &[(i32, u64)]| {
        let (zero_threshold, zero_count, exemplars) = (0.0, 0, &[][..]);
        let buckets =
            Native { schema, zero_threshold, zero_count, positive, negative: &[], exemplars };
        let given = Given::Native { buckets, sum: 1.0 };
        intake.take(metric("n"), &[], &given, Mode::Follow, None)
    };
    native(8, &[(1, 1), (2, 1)]).unwrap();
    native(5, &[(1, 5)]).unwrap();
    has(&registry, &["n_count 5"]);
    native(8, &[(1, 4), (2, 3)]).unwrap();
    has(&registry, &["n_count 7"]);
    // No float falls into such a bucket.
    assert_eq!(native(-4, &[(100, 1)]), Err(Refused::Buckets));
    let mut classic = |pod: &str, bound: f64| {
        let buckets = [(bound, 1.0), (f64::INFINITY, 1.0)];
        let given = Given::Histogram { buckets: &buckets, sum: 1.0 };
        intake.take(metric("h"), &[("pod", pod)], &given, Mode::Follow, None).unwrap();
    };
    classic("a", 1.0);
    classic("b", 1.0);
    classic("a", 2.0);
    has(&registry, &["h_bucket{pod=\"a\",le=\"2\"} 1", "h_bucket{pod=\"b\",le=\"1\"} 1"]);
    assert!(!registry.text().contains("h_bucket{pod=\"a\",le=\"1\"}"));
    // What is known of the type precedes what was not.
    intake.take(metric("u"), &[], &Given::Unknown(1.0), Mode::Set, None).unwrap();
    intake.take(metric("u"), &[], &Given::Gauge(2.0), Mode::Set, None).unwrap();
    has(&registry, &["# TYPE u gauge", "u 2"]);
}

#[test]
fn a_followed_counter_keeps_the_order_of_its_samples() {
    let registry = Registry::new();
    let mut intake = intake(&registry);
    let time = times();
    let labels = [("a", "b")];
    let at = |n| Metric { time: time(n), ..metric("c") };
    let follow = |intake: &mut Intake, total, n| intake.follow(at(n), &labels, total, None);
    let take = |intake: &mut Intake, metric: Metric<'_>, total| {
        intake.take(metric, &labels, &Given::Counter(total), Mode::Follow, None).unwrap();
    };
    // There is no series at first, and then none with a time.
    assert_eq!(follow(&mut intake, 5.0, 1), Ok(None));
    take(&mut intake, metric("c"), 5.0);
    assert_eq!(follow(&mut intake, 6.0, 2), Ok(None));
    assert_eq!(intake.last_sample("c", &labels), None);
    take(&mut intake, at(2), 6.0);
    for (total, n, expected) in [
        (8.0, 3, Followed::Next),
        (8.0, 3, Followed::Again),
        (9.0, 3, Followed::Other),
        (9.0, 1, Followed::Late(Duration::from_nanos(2))),
    ] {
        assert_eq!(follow(&mut intake, total, n), Ok(Some(expected)));
    }
    has(&registry, &["c{a=\"b\"} 8"]);
    // The source restarted.
    assert_eq!(follow(&mut intake, 1.0, 4), Ok(Some(Followed::Next)));
    has(&registry, &["c{a=\"b\"} 9"]);
    assert_eq!(intake.last_sample("c", &labels), time(4));
    assert_eq!(intake.last_sample("c", &[]), None);
    // A time that is not after 1970 is earlier than any other.
    let early = Metric { time: Some(Timestamp(0)), ..metric("c") };
    take(&mut intake, early, 0.5);
    assert!(matches!(intake.follow(early, &labels, 0.5, None), Ok(Some(Followed::Late(_)))));
    has(&registry, &["c{a=\"b\"} 9"]);
    // These say nothing of an order.
    assert_eq!(follow(&mut intake, 2.0, 10_u64.pow(18)), Ok(None));
    assert_eq!(intake.follow(metric("c"), &labels, 2.0, None), Ok(None));
    let grouped = Metric { grouped: true, ..at(5) };
    assert_eq!(intake.follow(grouped, &labels, 2.0, None), Ok(None));
    assert_eq!(follow(&mut intake, -1.0, 5), Err(Refused::Value));
    has(&registry, &["c{a=\"b\"} 9"]);
    intake.remove("c", &labels).unwrap();
    assert_eq!(follow(&mut intake, 2.0, 6), Ok(None));
    assert_eq!(intake.last_sample("c", &labels), None);
}

#[test]
fn a_total_beside_increments_has_a_time_and_ends_with_them() {
    let registry = Registry::new();
    let mut intake = intake(&registry);
    let sample = Metric { time: times()(1), ..metric("c") };
    let labels = [("a", "b")];
    for _ in 0..2 {
        intake.take(metric("c"), &labels, &Given::Counter(2.0), Mode::Add, None).unwrap();
        intake.take(sample, &labels, &Given::Counter(5.0), Mode::Follow, None).unwrap();
        has(&registry, &["c{a=\"b\"} 7"]);
        assert_eq!(intake.last_sample("c", &labels), sample.time);
        assert_eq!(intake.last_sample("c", &[]), None);
        assert_eq!(intake.usage().series, 2);
        assert_eq!(intake.remove("c", &labels).unwrap(), 1);
        assert_eq!((intake.last_sample("c", &labels), intake.usage().series), (None, 0));
    }
}

/// Senders of increments and of totals, in both orders, and over the end of a process.
#[test]
fn increments_and_totals_of_one_name_add_up() {
    let directory = tempfile::tempdir().unwrap();
    let added = (2.0, Mode::Add);
    let followed = (5.0, Mode::Follow);
    for (name, first) in [("added", [added, followed]), ("followed", [followed, added])] {
        let path = directory.path().join(name);
        let take = |intake: &mut Intake, (number, mode): (f64, Mode)| {
            let labels = [("a", "b")];
            let given = Given::Counter(number);
            intake.take(metric("hits_total"), &labels, &given, mode, None).unwrap();
            let buckets = [(1.0, number), (f64::INFINITY, 0.0)];
            let given = Given::Histogram { buckets: &buckets, sum: number };
            intake.take(metric("took"), &labels, &given, mode, None).unwrap();
        };
        let shown = |registry: &Registry, total: f64| {
            let lines =
                ["hits_total{a=\"b\"}", "took_bucket{a=\"b\",le=\"1\"}", "took_sum{a=\"b\"}"];
            let lines = lines.map(|line| format!("{line} {total}"));
            has(registry, &lines.each_ref().map(String::as_str));
            let text = registry.text();
            assert!(!text.contains("not_shown") && text.matches("# TYPE").count() == 2, "{text}");
        };
        {
            let registry = Registry::open(&path).unwrap();
            let mut intake = intake(&registry);
            first.into_iter().for_each(|one| take(&mut intake, one));
            shown(&registry, 7.0);
        }
        let registry = Registry::open(&path).unwrap();
        let mut one = intake(&registry);
        let mut other = intake(&registry);
        take(&mut one, (6.0, Mode::Follow));
        take(&mut other, (1.0, Mode::Add));
        shown(&registry, 9.0);
        // The same again, and a restart of the source.
        take(&mut other, (6.0, Mode::Follow));
        shown(&registry, 9.0);
        take(&mut other, (3.0, Mode::Follow));
        take(&mut one, (3.0, Mode::Follow));
        shown(&registry, 12.0);
        let shape = Shape::Classic(vec![1.0]);
        for given in [observation(2.0, 3.0), observation(1.0, 1.0)] {
            one.take(observed("took", &shape), &[("a", "b")], &given, Mode::Add, None).unwrap();
        }
        has(&registry, &["took_bucket{a=\"b\",le=\"1\"} 13", "took_sum{a=\"b\"} 19"]);
        has(&registry, &["took_count{a=\"b\"} 16"]);
        // A source with other labels has series that differ from all of these.
        one.take(metric("hits_total"), &[], &Given::Counter(4.0), Mode::Follow, None).unwrap();
        has(&registry, &["hits_total 4", "hits_total{a=\"b\"} 12"]);
    }
}

#[test]
fn threads_that_add_and_follow_lose_nothing() {
    for is_added_first in [true, false] {
        let registry = Registry::new();
        let mut intake = intake(&registry);
        let mode = if is_added_first { Mode::Add } else { Mode::Follow };
        intake.take(metric("c"), &[], &Given::Counter(0.0), mode, None).unwrap();
        let take = |intake: &mut Intake, number: u32, mode: Mode| {
            let given = Given::Counter(number.into());
            intake.take(metric("c"), &[], &given, mode, None).unwrap();
        };
        let (mut adds, mut follows) = (intake.clone(), intake.clone());
        std::thread::scope(|scope| {
            scope.spawn(move || (0..2000).for_each(|_| take(&mut adds, 1, Mode::Add)));
            // A source that restarts again and again.
            let totals = (0..200).flat_map(|_| 1..=5);
            scope.spawn(move || totals.for_each(|n| take(&mut follows, n, Mode::Follow)));
        });
        has(&registry, &["c 3000"]);
    }
}
