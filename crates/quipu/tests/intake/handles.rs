//! Cached families and series: they lead to the same series as a name and labels, or to none.

use std::time::Duration;

use quipu::Registry;
use quipu::intake::{InputValue, Intake, Limits, Metric, Mode, Rejection, Spot};

use super::{has, intake, metric, observation, observed, shapes, wait_until};

/// Names, and the possible values of groups.
const GROUPED: [(&str, InputValue<'static>); 3] = [
    ("c", InputValue::Counter(5.0)),
    ("g", InputValue::Gauge(5.0)),
    ("u", InputValue::Unknown(5.0)),
];

#[test]
fn a_handle_follows_what_happens_to_its_series() {
    let registry = Registry::new();
    let limits = Limits { series: 2, ..Limits::default() };
    let mut intake = Intake::new(&registry, limits).unwrap();
    let mut other = intake.clone();
    let (hits, one, add) = (metric("hits"), InputValue::Counter(1.0), Mode::Add);
    let labels = [("b", "2"), ("a", "1")];
    assert!(intake.handle(hits, &labels, &one, add).is_none());
    intake.take(hits, &labels, &one, add, None).unwrap();
    let handle = intake.handle(hits, &labels, &one, add).unwrap();
    let take = |intake: &mut Intake, values: &[&str]| intake.take_in(&handle, values, &one, add);
    assert_eq!(take(&mut intake, &["1", "2"]), Ok(true));
    assert_eq!(take(&mut other, &["1", "2"]), Ok(true));
    for values in [&["2", "1"][..], &["1"], &["1", "2", "3"], &["1", ""], &[]] {
        assert_eq!(take(&mut intake, values), Ok(false), "{values:?}");
    }
    has(&registry, &["hits{a=\"1\",b=\"2\"} 3"]);
    // The series is removed, and another series can take over its record.
    assert_eq!(other.remove("hits", &labels).unwrap(), 1);
    assert_eq!(take(&mut intake, &["1", "2"]), Ok(false));
    other.take(hits, &[("a", "x"), ("b", "y")], &one, add, None).unwrap();
    assert_eq!(take(&mut intake, &["1", "2"]), Ok(false));
    intake.take(hits, &labels, &one, add, None).unwrap();
    assert_eq!(take(&mut intake, &["1", "2"]), Ok(true));
    // There is no room for a third one.
    assert_eq!(take(&mut intake, &["3", "3"]), Ok(false));
    let third = intake.take(hits, &[("a", "3"), ("b", "3")], &one, add, None);
    assert_eq!(third, Err(Rejection::Series));
    let lines = ["hits{a=\"1\",b=\"2\"} 2", "hits{a=\"x\",b=\"y\"} 1"];
    has(&registry, &lines);
    // Values that are not increments of counters are none of this family.
    let mut take_in =
        |input: InputValue<'_>, mode| intake.take_in(&handle, &["1", "2"], &input, mode);
    assert_eq!(take_in(InputValue::Counter(-1.0), add), Err(Rejection::Value));
    assert_eq!(take_in(InputValue::Counter(9.0), Mode::Follow), Ok(false));
    assert_eq!(take_in(InputValue::Gauge(9.0), Mode::Set), Ok(false));
    assert_eq!(take_in(InputValue::Unknown(9.0), Mode::Set), Ok(false));
    assert_eq!(take_in(observation(9.0, 1.0), add), Ok(false));
    has(&registry, &lines);
}

#[test]
fn a_value_counts_through_a_handle_as_without_one() {
    let registry = Registry::new();
    let mut intake = intake(&registry);
    for (name, shape) in &shapes() {
        for labels in [&[][..], &[("l", "v")]] {
            let values: Vec<&str> = labels.iter().map(|(_, value)| *value).collect();
            let (took, one) = (observed(name, shape), observation(0.25, 1.0));
            assert!(intake.handle(took, labels, &one, Mode::Add).is_none());
            intake.take(took, labels, &one, Mode::Add, None).unwrap();
            let handle = intake.handle(took, labels, &one, Mode::Add).unwrap();
            let mut take = |value, weight| {
                intake.take_in(&handle, &values, &observation(value, weight), Mode::Add)
            };
            for (value, weight) in [(0.75, 10.0), (2.0, 1.0)] {
                assert_eq!(take(value, weight), Ok(true));
            }
            for (value, weight) in [(f64::NAN, 1.0), (1.0, -1.0), (1.0, f64::NAN)] {
                assert_eq!(take(value, weight), Err(Rejection::Value));
            }
            let shown = if labels.is_empty() { "" } else { "{l=\"v\"}" };
            let lines = [format!("{name}_count{shown} 12"), format!("{name}_sum{shown} 9.75")];
            has(&registry, &lines.each_ref().map(String::as_str));
        }
    }
    let mut gauge = |n: f64, mode| {
        let (input, level) = (InputValue::Gauge(n), metric("level"));
        match intake.handle(level, &[], &input, mode) {
            Some(handle) => assert!(intake.take_in(&handle, &[], &input, mode).unwrap()),
            None => intake.take(level, &[], &input, mode, None).unwrap(),
        }
    };
    gauge(5.0, Mode::Set);
    gauge(-2.0, Mode::Add);
    has(&registry, &["level 3"]);
    gauge(1.0, Mode::Set);
    has(&registry, &["level 1"]);
    // Some values need more than additions to cells.
    for (metric, input, mode) in [
        (metric("c"), InputValue::Counter(1.0), Mode::Set),
        (metric("d"), InputValue::Summary { quantiles: &[], count: 1.0, sum: 1.0 }, Mode::Add),
    ] {
        intake.take(metric, &[], &input, mode, None).unwrap();
        assert!(intake.handle(metric, &[], &input, mode).is_none());
    }
}

#[test]
fn a_handle_of_groups_accepts_the_values_of_its_groups() {
    let registry = Registry::new();
    let mut intake = intake(&registry);
    let labels = [("job", "j"), ("instance", "")];
    let grouped = |name| Metric { grouped: true, help: "Help.", ..metric(name) };
    for (name, input) in GROUPED {
        assert!(intake.handle(grouped(name), &labels, &input, Mode::Set).is_none());
        intake.take(grouped(name), &labels, &input, Mode::Set, None).unwrap();
        let handle = intake.handle(grouped(name), &labels, &input, Mode::Set).unwrap();
        let take = |intake: &mut Intake, values: &[&str], mode| {
            intake.take_in(&handle, values, &input, mode).unwrap()
        };
        let shown = |n| format!("{name}{{instance=\"\",job=\"j\"}} {n}");
        assert!(take(&mut intake, &["", "j"], Mode::Set));
        has(&registry, &[&shown(5)]);
        assert!(take(&mut intake, &["", "j"], Mode::Add));
        has(&registry, &[&shown(10)]);
        assert!(!take(&mut intake, &["j", ""], Mode::Set));
        // A hidden series is shown in the usual way, because this requires a lock.
        intake.hide_grouped(name, &labels).unwrap();
        assert!(!take(&mut intake, &["", "j"], Mode::Set));
        intake.take(grouped(name), &labels, &input, Mode::Set, None).unwrap();
        has(&registry, &[&shown(5)]);
        intake.remove_grouped(name, &labels).unwrap();
        assert!(!take(&mut intake, &["", "j"], Mode::Set));
        assert!(!registry.text().contains(&shown(5)));
    }
}

#[test]
fn the_spot_of_a_series_of_a_group_leads_to_it_or_nowhere() {
    let registry = Registry::new();
    let mut intake = intake(&registry);
    let grouped = |name| Metric { grouped: true, ..metric(name) };
    let shown = |name: &str, n: f64| format!("{name}{{instance=\"\",job=\"j\"}} {n}");
    let labels = [("job", "j"), ("instance", "")];
    for (name, input) in GROUPED {
        intake.take(grouped(name), &labels, &input, Mode::Set, None).unwrap();
        let locate = |intake: &mut Intake, labels: &[(&str, &str)]| {
            intake.locate(grouped(name), labels, &input, Mode::Set)
        };
        let (handle, spot) = locate(&mut intake, &labels).unwrap();
        for labels in [&[("job", "k"), ("instance", "")][..], &[("job", "j")], &[]] {
            assert!(locate(&mut intake, labels).is_none(), "{labels:?}");
        }
        let take = |intake: &Intake, spot, mode| {
            handle.prefetch(spot);
            intake.take_at(&handle, spot, &input, mode)
        };
        assert!(take(&intake, spot, Mode::Set) && take(&intake, spot, Mode::Add));
        has(&registry, &[&shown(name, 10.0)]);
        // A hidden series is shown in the usual way; then it can be located again.
        intake.hide_grouped(name, &labels).unwrap();
        assert!(!take(&intake, spot, Mode::Set) && locate(&mut intake, &labels).is_none());
        intake.take(grouped(name), &labels, &input, Mode::Set, None).unwrap();
        assert!(take(&intake, spot, Mode::Add));
        has(&registry, &[&shown(name, 10.0)]);
        // The record is given to another series, and later to the first series again.
        for round in 0..100 {
            intake.remove_grouped(name, &labels).unwrap();
            assert!(!take(&intake, spot, Mode::Set), "{round}");
            let other = [("job", "k"), ("instance", "")];
            let of = if round % 2 == 0 { &other } else { &labels };
            intake.take(grouped(name), of, &input, Mode::Set, None).unwrap();
            assert!(!take(&intake, spot, Mode::Set), "{round}");
            intake.remove_grouped(name, &other).unwrap();
        }
        // Values that are not of this family, or that are refused.
        intake.take(grouped(name), &labels, &input, Mode::Set, None).unwrap();
        let (handle, spot) = locate(&mut intake, &labels).unwrap();
        for (input, mode) in [
            (InputValue::Counter(-1.0), Mode::Set),
            (InputValue::Summary { quantiles: &[], count: 1.0, sum: 1.0 }, Mode::Set),
        ] {
            assert!(!intake.take_at(&handle, spot, &input, mode));
        }
        assert!(!take(&intake, Spot::NOWHERE, Mode::Set));
        has(&registry, &[&shown(name, 5.0)]);
    }
}

#[test]
fn a_handle_leaves_series_that_expired_to_the_intake() {
    let registry = Registry::new();
    let mut intake = intake(&registry);
    // Long enough that a busy machine looks at a series before it expires.
    let expiry = Some(Duration::from_secs(3));
    let counter = (Metric { expiry, ..metric("c") }, InputValue::Counter(1.0), Mode::Add);
    let gauge = (Metric { expiry, ..metric("g") }, InputValue::Gauge(1.0), Mode::Add);
    let handle = [counter, gauge].map(|(metric, input, mode)| {
        intake.take(metric, &[], &input, mode, None).unwrap();
        intake.handle(metric, &[], &input, mode).unwrap()
    });
    let is_own = |line: &str| line.starts_with("c ") || line.starts_with("g ");
    wait_until(|| !registry.text().lines().any(is_own));
    let [hidden, gone] = &handle;
    // Another metric can use the name of the hidden one by now.
    assert_eq!(intake.take_in(hidden, &[], &counter.1, counter.2), Ok(false));
    assert_eq!(intake.take_in(gone, &[], &gauge.1, gauge.2), Ok(false));
    for (metric, input, mode) in [counter, gauge] {
        intake.take(metric, &[], &input, mode, None).unwrap();
    }
    has(&registry, &["c 2", "g 1"]);
    assert_eq!(intake.take_in(hidden, &[], &counter.1, counter.2), Ok(true));
}
