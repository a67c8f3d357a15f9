//! Totals of sources that restart, send again, and share a series with increments.

use quipu::Registry;
use quipu::intake::{InputValue, Intake, Metric, Mode, Order, Rejection, Shape};
use quipu::snapshot::{Native, Timestamp};

use super::{has, intake, metric, observation, observed};

/// Returns times of a number of nanoseconds after a moment in the recent past.
fn times() -> impl Fn(u64) -> Option<Timestamp> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    move |n| Some(Timestamp::from_nanos(now.as_nanos() as u64 - 100 + n))
}

#[test]
fn totals_of_sources_that_restart_only_grow() {
    let registry = Registry::new();
    let mut intake = intake(&registry);
    let mut follow = |total: f64, start: Option<u64>, shown: &str| {
        let input = InputValue::Counter(total);
        let start = start.map(Timestamp::from_nanos);
        intake.take(metric("c_total"), &[("i", "1")], &input, Mode::Follow, start).unwrap();
        has(&registry, &[&format!("c_total{{i=\"1\"}} {shown}")]);
    };
    follow(5.0, None, "5");
    follow(5.0, None, "5");
    follow(7.0, None, "7");
    // Without a start, less is a restart.
    follow(2.0, None, "9");
    // The first start does not show what the source counted before.
    follow(3.0, Some(100), "10");
    // A later start is a restart, though the total is greater.
    follow(4.0, Some(200), "14");
    // Late values of the old source, and of the new one, are ignored.
    follow(3.0, Some(100), "14");
    follow(3.0, Some(200), "14");
    follow(6.0, Some(200), "16");
    follow(1.0, Some(300), "17");
}

#[test]
fn a_repeated_total_counts_once_without_a_start_time() {
    let registry = Registry::new();
    let mut intake = intake(&registry);
    let time = times();
    let mut follow = |total: f64, time, start| {
        let sample = Metric { time, ..metric("c_total") };
        intake.take(sample, &[], &InputValue::Counter(total), Mode::Follow, start).unwrap();
    };
    // A batch of two samples, twice.
    for (total, at) in [(90.0, 1), (100.0, 2), (90.0, 1), (100.0, 2)] {
        follow(total, time(at), None);
    }
    has(&registry, &["c_total 100"]);
    follow(5.0, time(3), None);
    has(&registry, &["c_total 105"]);
    // A start that is far ahead is ignored: the next one counts.
    follow(6.0, time(4), time(10_u64.pow(18)));
    follow(7.0, time(5), time(0));
    has(&registry, &["c_total 107"]);
    // Other senders add to the same series.
    let grouped = Metric { grouped: true, ..metric("g") };
    for (n, mode) in [(1000.0, Mode::Set), (1.0, Mode::Add), (2.0, Mode::Add)] {
        intake.take(grouped, &[], &InputValue::Counter(n), mode, None).unwrap();
    }
    has(&registry, &["g 1003"]);
}

#[test]
fn a_source_may_change_its_buckets() {
    let registry = Registry::new();
    let mut intake = intake(&registry);
    let mut native = |schema: i8, positive: &[(i32, u64)]| {
        let (zero_threshold, zero_count, exemplars) = (0.0, 0, &[][..]);
        let buckets = Native::new(schema)
            .zero(zero_threshold, zero_count)
            .positive(positive)
            .exemplars(exemplars);
        let input = InputValue::Native { buckets, sum: 1.0 };
        intake.take(metric("n"), &[], &input, Mode::Follow, None)
    };
    native(8, &[(1, 1), (2, 1)]).unwrap();
    native(5, &[(1, 5)]).unwrap();
    has(&registry, &["n_count 5"]);
    native(8, &[(1, 4), (2, 3)]).unwrap();
    has(&registry, &["n_count 7"]);
    // No float falls into such a bucket.
    assert_eq!(native(-4, &[(100, 1)]), Err(Rejection::Buckets));
    let mut classic = |pod: &str, bound: f64| {
        let buckets = [(bound, 1.0), (f64::INFINITY, 1.0)];
        let input = InputValue::Histogram { buckets: &buckets, sum: 1.0 };
        intake.take(metric("h"), &[("pod", pod)], &input, Mode::Follow, None).unwrap();
    };
    classic("a", 1.0);
    classic("b", 1.0);
    classic("a", 2.0);
    has(&registry, &["h_bucket{pod=\"a\",le=\"2\"} 1", "h_bucket{pod=\"b\",le=\"1\"} 1"]);
    assert!(!registry.text().contains("h_bucket{pod=\"a\",le=\"1\"}"));
    // A known type precedes an unknown one.
    intake.take(metric("u"), &[], &InputValue::Unknown(1.0), Mode::Set, None).unwrap();
    intake.take(metric("u"), &[], &InputValue::Gauge(2.0), Mode::Set, None).unwrap();
    has(&registry, &["# TYPE u gauge", "u 2"]);
}

/// Takes a sample in the given order.
fn take_at(
    intake: &mut Intake,
    (time, order): (Option<Timestamp>, Order),
    input: &InputValue<'_>,
) -> Result<(), Rejection> {
    let metric = Metric { time, order, replaces: true, ..metric("c") };
    let is_total = matches!(input, InputValue::Counter(_) | InputValue::Native { .. });
    let mode = if is_total { Mode::Follow } else { Mode::Set };
    intake.take(metric, &[("a", "b")], input, mode, None)
}

#[test]
fn a_series_keeps_the_order_of_its_samples_over_the_end_of_a_process() {
    const HOUR: u64 = 3_600_000_000_000;
    let (now, directory) = (times()(0).unwrap().as_nanos(), tempfile::tempdir().unwrap());
    let native = |n: u64| Native::new(3).zero(0.0, n);
    let kinds: [(&str, &dyn Fn(f64) -> InputValue<'static>); 4] = [
        ("c{a=\"b\"}", &InputValue::Counter),
        ("c{a=\"b\"}", &InputValue::Gauge),
        ("c{a=\"b\"}", &InputValue::Unknown),
        ("c_count{a=\"b\"}", &|n| InputValue::Native { buckets: native(n as u64), sum: n / 3.0 }),
    ];
    for (number, (shown, input)) in kinds.into_iter().enumerate() {
        let path = directory.path().join(number.to_string());
        let mut last = (0, 0.0);
        for round in 0..3 {
            let registry = Registry::open(&path).unwrap();
            let mut intake = intake(&registry);
            let mut take = |value: f64, time: u64| {
                take_at(
                    &mut intake,
                    (Some(Timestamp::from_nanos(time)), Order::Strict),
                    &input(value),
                )
            };
            if round > 0 {
                assert_eq!(take(last.1, last.0), Ok(()));
                assert_eq!(take(last.1 + 1.0, last.0), Err(Rejection::Duplicate));
                assert_eq!(take(1.0, last.0 - 1), Ok(()));
                assert_eq!(take(1.0, last.0 - 3 * HOUR), Err(Rejection::OutOfOrder));
                assert_eq!(take(1.0, 0), Err(Rejection::OutOfOrder));
            }
            for n in 1..3 {
                last = (now + 10 * round + n, (10 * round + n) as f64);
                assert_eq!(take(last.1, last.0), Ok(()));
            }
            assert_eq!(take(1.0, now + HOUR), Err(Rejection::TooNew));
            has(&registry, &[&format!("{shown} {}", last.1)]);
        }
    }
}

#[test]
fn the_latest_value_counts_and_a_later_type_replaces_another() {
    let registry = Registry::new();
    let (mut intake, time) = (intake(&registry), times());
    let time = |n: u64| time(10 * n);
    for (value, n, shown) in [(1.0, 1, 1.0), (2.0, 1, 2.0), (3.0, 0, 2.0), (1.0, 2, 1.0)] {
        take_at(&mut intake, (time(n), Order::Latest), &InputValue::Gauge(value)).unwrap();
        has(&registry, &[&format!("c{{a=\"b\"}} {shown}")]);
    }
    // An update without a time leaves the order.
    take_at(&mut intake, (None, Order::Latest), &InputValue::Gauge(7.0)).unwrap();
    for (input, n, shown) in [
        (InputValue::Gauge(4.0), 1, 7.0),
        (InputValue::Counter(5.0), 2, 7.0),
        (InputValue::Counter(5.0), 3, 5.0),
        (InputValue::Counter(1.0), 4, 6.0),
        (InputValue::Gauge(8.0), 4, 6.0),
        (InputValue::Gauge(8.0), 5, 8.0),
    ] {
        take_at(&mut intake, (time(n), Order::Strict), &input).unwrap();
        has(&registry, &[&format!("c{{a=\"b\"}} {shown}")]);
        assert_eq!(registry.text().matches("c{").count(), 1);
    }
    // The end of the series.
    let labels = [("a", "b")];
    assert_eq!(intake.end("c", &labels, time(5)), Ok(0));
    assert_eq!(
        intake.end("c", &labels, Some(Timestamp::from_nanos(u64::MAX))),
        Err(Rejection::TooNew)
    );
    assert_eq!(intake.end("c", &labels, time(6)), Ok(1));
    assert_eq!(intake.end("c", &labels, None), Ok(0));
}

#[test]
fn a_total_with_increments_has_a_time_and_ends_with_them() {
    let registry = Registry::new();
    let mut intake = intake(&registry);
    let time = times()(1);
    let labels = [("a", "b")];
    for _ in 0..2 {
        intake.take(metric("c"), &labels, &InputValue::Counter(2.0), Mode::Add, None).unwrap();
        for total in [5.0, 6.0] {
            take_at(&mut intake, (time, Order::Latest), &InputValue::Counter(total)).unwrap();
            has(&registry, &["c{a=\"b\"} 7"]);
        }
        assert_eq!(intake.usage().series, 2);
        assert_eq!(intake.remove("c", &labels).unwrap(), 1);
        assert_eq!(intake.usage().series, 0);
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
            let input = InputValue::Counter(number);
            intake.take(metric("hits_total"), &labels, &input, mode, None).unwrap();
            let buckets = [(1.0, number), (f64::INFINITY, 0.0)];
            let input = InputValue::Histogram { buckets: &buckets, sum: number };
            intake.take(metric("took"), &labels, &input, mode, None).unwrap();
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
        for input in [observation(2.0, 3.0), observation(1.0, 1.0)] {
            one.take(observed("took", &shape), &[("a", "b")], &input, Mode::Add, None).unwrap();
        }
        has(&registry, &["took_bucket{a=\"b\",le=\"1\"} 13", "took_sum{a=\"b\"} 19"]);
        has(&registry, &["took_count{a=\"b\"} 16"]);
        // A source with other labels creates different series.
        one.take(metric("hits_total"), &[], &InputValue::Counter(4.0), Mode::Follow, None).unwrap();
        has(&registry, &["hits_total 4", "hits_total{a=\"b\"} 12"]);
    }
}

#[test]
fn threads_that_add_and_follow_lose_nothing() {
    for is_added_first in [true, false] {
        let registry = Registry::new();
        let mut intake = intake(&registry);
        let mode = if is_added_first { Mode::Add } else { Mode::Follow };
        intake.take(metric("c"), &[], &InputValue::Counter(0.0), mode, None).unwrap();
        let take = |intake: &mut Intake, number: u32, mode: Mode| {
            let input = InputValue::Counter(number.into());
            intake.take(metric("c"), &[], &input, mode, None).unwrap();
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
