//! Refusals and their reasons, the limits on series and families, and names that are freed.

use std::time::Duration;

use quipu::Registry;
use quipu::intake::{InputExemplar, InputValue, Intake, Limits, Metric, Mode, Rejection};

use super::{has, intake, metric, observation, observed, wait_until};

#[test]
fn an_invalid_value_is_rejected_and_changes_nothing() {
    let registry = Registry::new();
    let limits = Limits {
        series: 3,
        series_per_source: 2,
        families: 3,
        families_per_source: 3,
        labels: 2,
        name_bytes: 10,
        value_bytes: 5,
        reserved: Some("own_"),
        bytes_for_series: u64::MAX,
    };
    let mut intake = Intake::new(&registry, limits).unwrap();
    let one = InputValue::Counter(1.0);
    let mut take = |name: &str, labels: &[(&str, &str)], input: &InputValue<'_>| {
        intake.take(metric(name), labels, input, Mode::Add, None)
    };
    for name in ["", "a\nb", "01234567890"] {
        assert_eq!(take(name, &[], &one), Err(Rejection::Name), "{name:?}");
    }
    assert_eq!(take("own_x", &[], &one), Err(Rejection::Reserved));
    for name in ["", "__name__", "01234567890", "quipu_overflow"] {
        assert_eq!(take("a", &[(name, "x")], &one), Err(Rejection::LabelName), "{name:?}");
    }
    // The samples of the formats use these names.
    let histogram = InputValue::Histogram { buckets: &[(f64::INFINITY, 1.0)], sum: 1.0 };
    let summary = InputValue::Summary { quantiles: &[(0.5, 1.0)], count: 1.0, sum: 1.0 };
    for (name, input) in [("le", &histogram), ("quantile", &summary)] {
        assert_eq!(take("a", &[(name, "1")], input), Err(Rejection::LabelName), "{name:?}");
    }
    let twice = [("a", "x"), ("b", "y"), ("a", "z")];
    assert_eq!(take("a", &twice[..2], &InputValue::Counter(-1.0)), Err(Rejection::Value));
    assert_eq!(take("a", &twice, &one), Err(Rejection::Labels));
    assert_eq!(take("a", &[("a", "x"), ("a", "y")], &one), Err(Rejection::LabelName));
    assert_eq!(take("a", &[("a", "123456")], &one), Err(Rejection::LabelValue));
    assert_eq!(take("a", &[], &InputValue::Counter(f64::NAN)), Err(Rejection::Value));
    let open = InputValue::Histogram { buckets: &[(1.0, 1.0)], sum: 1.0 };
    assert_eq!(take("a", &[], &open), Err(Rejection::Buckets));
    assert_eq!(registry.text(), "");
    take("a", &[("l", "1")], &one).unwrap();
    take("a", &[("l", "2")], &one).unwrap();
    assert_eq!(take("a", &[("l", "3")], &one), Err(Rejection::SourceSeries));
    // Existing series continue to count.
    take("a", &[("l", "1")], &one).unwrap();
    intake.set_source("another");
    let mut take = |name: &str, labels: &[(&str, &str)], input: &InputValue<'_>| {
        intake.take(metric(name), labels, input, Mode::Add, None)
    };
    take("b", &[], &one).unwrap();
    assert_eq!(take("b", &[("x", "y")], &one), Err(Rejection::Series));
    assert_eq!(intake.remove("b", &[]).unwrap(), 1);
    let mut take = |name: &str, labels: &[(&str, &str)], input: &InputValue<'_>| {
        intake.take(metric(name), labels, input, Mode::Add, None)
    };
    take("b", &[("x", "y")], &one).unwrap();
    assert_eq!(take("c", &[], &one), Err(Rejection::Families));
    has(&registry, &["a{l=\"1\"} 2", "a{l=\"2\"} 1", "b{x=\"y\"} 1"]);
    assert_eq!(registry.text().lines().filter(|line| !line.starts_with('#')).count(), 3);
}

#[test]
fn a_name_that_is_reserved_once_escaped_is_refused() {
    let registry = Registry::new();
    let limits = Limits { reserved: Some("quipu_"), ..Limits::default() };
    let mut intake = Intake::new(&registry, limits).unwrap();
    let one = InputValue::Counter(1.0);
    for name in ["quipu.events_total", "quipu events_total", "quipu\u{e9}x"] {
        assert_eq!(intake.take(metric(name), &[], &one, Mode::Add, None), Err(Rejection::Reserved));
    }
    let why = intake.explain(Rejection::Reserved).to_string();
    assert!(why.contains("\"quipu_\"") && why.contains("once escaped"), "{why}");
    for name in ["\u{e9}\u{e9}name__", "quipu.overflow"] {
        let taken = intake.take(metric("x"), &[(name, "1")], &one, Mode::Add, None);
        assert_eq!(taken, Err(Rejection::LabelName), "{name}");
    }
    assert_eq!(registry.text(), "");
    // These names are only alike.
    intake.take(metric("quip.u_x"), &[("\u{e9}\u{e9}", "1")], &one, Mode::Add, None).unwrap();
}

#[test]
fn labels_that_are_one_label_once_escaped_are_refused() {
    let registry = Registry::new();
    let mut intake = intake(&registry);
    let one = InputValue::Gauge(1.0);
    for labels in [[("a b", "1"), ("a_b", "2")], [("a.b", "1"), ("a:b", "1")]] {
        let taken = intake.take(metric("x"), &labels, &one, Mode::Set, None);
        assert_eq!(taken, Err(Rejection::LabelsAlike), "{labels:?}");
        let why = intake.explain(Rejection::LabelsAlike).to_string();
        assert!(labels.iter().all(|(name, _)| why.contains(&format!("{name:?}"))), "{why}");
    }
    let shape = quipu::intake::Shape::Classic(vec![1.0]);
    let labels = [("a b", "1"), ("a_b", "2")];
    let taken =
        intake.take(observed("x", &shape), &labels, &observation(1.0, 1.0), Mode::Add, None);
    assert_eq!(taken, Err(Rejection::LabelsAlike));
    assert_eq!(registry.text(), "");
    intake.take(metric("x"), &[("a b", "1"), ("ab", "2")], &one, Mode::Set, None).unwrap();
}

/// Otherwise formats without UTF-8 names would show two series with the same labels.
#[test]
fn series_of_a_metric_that_differ_only_in_escaped_labels_are_refused() {
    let alike = [&["a b"], &["a_b"], &["a:b"]] as [&[&str]; 3];
    let pairs = [&["a b", "c"], &["a.b", "c"]] as [&[&str]; 2];
    for names in [&alike[..], &pairs] {
        for (i, first) in names.iter().enumerate() {
            let registry = Registry::new();
            let mut intake = intake(&registry);
            let mut take = |names: &[&str]| {
                let labels: Vec<_> = names.iter().map(|name| (*name, "1")).collect();
                intake.take(metric("x"), &labels, &InputValue::Gauge(1.0), Mode::Set, None)
            };
            take(first).unwrap();
            for other in names.iter().enumerate().filter(|(at, _)| *at != i).map(|(_, it)| it) {
                assert_eq!(take(other), Err(Rejection::Collision), "{first:?} {other:?}");
            }
            take(first).unwrap();
            let why = intake.explain(Rejection::Collision).to_string();
            assert!(why.contains(&format!("{:?}", first[0])) && why.contains("spelling"), "{why}");
            // Once this series is removed, another one can take its place.
            let labels: Vec<_> = first.iter().map(|name| (*name, "1")).collect();
            assert_eq!(intake.remove("x", &labels).unwrap(), 1);
            let other = names[(i + 1) % names.len()];
            let labels: Vec<_> = other.iter().map(|name| (*name, "1")).collect();
            intake.take(metric("x"), &labels, &InputValue::Gauge(1.0), Mode::Set, None).unwrap();
        }
    }
}

#[test]
fn metrics_whose_names_differ_only_in_escaped_characters_are_refused() {
    let registry = Registry::new();
    let mut intake = intake(&registry);
    let mut take = |name: &str, input| intake.take(metric(name), &[], &input, Mode::Set, None);
    take("a.b", InputValue::Gauge(1.0)).unwrap();
    for name in ["a_b", "a b", "a-b"] {
        assert_eq!(take(name, InputValue::Gauge(1.0)), Err(Rejection::Collision), "{name}");
    }
    assert_eq!(take("a b_total", InputValue::Counter(1.0)), Err(Rejection::Collision));
    assert_eq!(registry.text().matches("# TYPE").count(), 1);
}

#[test]
fn hidden_series_make_room_as_soon_as_the_limit_is_reached() {
    let registry = Registry::new();
    let limits = Limits { series: 100, ..Limits::default() };
    let mut intake = Intake::new(&registry, limits).unwrap();
    let grouped = Metric { grouped: true, ..metric("g") };
    let one = InputValue::Gauge(1.0);
    for number in 0..100 {
        let (job, expects) = (number.to_string(), Ok(()));
        assert_eq!(intake.take(grouped, &[("job", &job)], &one, Mode::Set, None), expects);
    }
    let take = |intake: &mut Intake, number: u64| {
        intake.take(metric("x"), &[("n", &number.to_string())], &one, Mode::Set, None)
    };
    assert_eq!(take(&mut intake, 0), Err(Rejection::Series));
    for number in 0..70 {
        assert_eq!(intake.hide_grouped("g", &[("job", &number.to_string())]).unwrap(), 1);
    }
    let taken = (0..100).filter(|number| take(&mut intake, *number).is_ok()).count();
    assert_eq!(taken, 70);
    // Only hidden series were removed.
    let text = registry.text();
    assert_eq!(text.matches("g{job=").count(), 30, "{text}");
    assert_eq!(intake.usage().series, 100);
}

/// A scrape removes expired gauges, and another process may remove any series.
#[test]
fn series_that_others_removed_make_room_as_soon_as_the_limit_is_reached() {
    let registry = Registry::new();
    let limits = Limits { series: 10, ..Limits::default() };
    let mut intake = Intake::new(&registry, limits).unwrap();
    let take = |intake: &mut Intake, number: u64| {
        let labels = [("n", &*number.to_string())];
        intake.take(metric("x"), &labels, &InputValue::Gauge(1.0), Mode::Set, None)
    };
    (0..10).for_each(|number| take(&mut intake, number).unwrap());
    assert_eq!(take(&mut intake, 10), Err(Rejection::Series));
    registry.reset().unwrap();
    (10..20).for_each(|number| take(&mut intake, number).unwrap());
    assert_eq!(take(&mut intake, 20), Err(Rejection::Series));
}

#[test]
fn a_source_that_makes_up_names_leaves_room_for_those_of_others() {
    let registry = Registry::new();
    let limits =
        Limits { families: 8, families_per_source: 6, series_per_source: 7, ..Limits::default() };
    let intake = Intake::new(&registry, limits).unwrap();
    let one = InputValue::Counter(1.0);
    let taken = std::sync::atomic::AtomicU64::new(0);
    // The limit applies to the source, not to a thread: clones share the counts.
    for thread in 0..3 {
        let mut intake = intake.clone();
        intake.set_source("flood");
        for number in 0..5 {
            let name = format!("made_up_{thread}_{number}");
            match intake.take(metric(&name), &[], &one, Mode::Add, None) {
                Ok(()) => taken.fetch_add(1, std::sync::atomic::Ordering::Relaxed),
                Err(refused) => {
                    assert_eq!(refused, Rejection::SourceFamilies, "{name}");
                    0
                }
            };
        }
    }
    assert_eq!(taken.into_inner(), 6);
    let mut intake = intake.clone();
    intake.set_source("flood");
    // The source can still update its existing metrics, and add a series.
    let take = |intake: &mut Intake, name: &str, label: &str| {
        intake.take(metric(name), &[("l", label)], &one, Mode::Add, None)
    };
    intake.take(metric("made_up_0_0"), &[], &one, Mode::Add, None).unwrap();
    assert_eq!(take(&mut intake, "another", "1"), Err(Rejection::SourceFamilies));
    intake.set_source("neighbour");
    take(&mut intake, "requests", "1").unwrap();
    intake.set_source("flood");
    take(&mut intake, "requests", "2").unwrap();
    assert_eq!(take(&mut intake, "requests", "3"), Err(Rejection::SourceSeries));
    intake.set_source("neighbour");
    take(&mut intake, "requests", "3").unwrap();
}

#[test]
fn a_later_help_counts_toward_the_families_of_its_source() {
    let registry = Registry::new();
    let limits = Limits { families: 8, families_per_source: 6, ..Limits::default() };
    let mut intake = Intake::new(&registry, limits).unwrap();
    let one = InputValue::Counter(1.0);
    let names: Vec<String> = (0..5).map(|number| format!("made_up_{number}")).collect();
    intake.set_source("flood");
    for help in ["", "Help."] {
        for name in &names {
            intake.take(Metric { help, ..metric(name) }, &[], &one, Mode::Add, None).unwrap();
        }
    }
    assert_eq!(intake.usage().families, 6);
    // Another source still finds room for families, and for a help.
    intake.set_source("neighbour");
    let helped = Metric { help: "Help.", ..metric(&names[4]) };
    intake.take(helped, &[], &one, Mode::Add, None).unwrap();
    intake.take(metric("requests"), &[], &one, Mode::Add, None).unwrap();
    assert_eq!(registry.text().matches("Help.").count(), 2);
}

#[test]
fn hidden_series_give_way_when_there_is_no_room() {
    let registry = Registry::new();
    let limits = Limits { series: 10, ..Limits::default() };
    let mut intake = Intake::new(&registry, limits).unwrap();
    let mut take = |pod: usize| {
        // Long enough that even a busy machine can fill the limit before the first series expires.
        let brief = Metric { expiry: Some(Duration::from_secs(3)), ..metric("c") };
        let pod = pod.to_string();
        let one = InputValue::Counter(1.0);
        let taken = intake.take(brief, &[("pod", &pod)], &one, Mode::Add, None);
        intake.sweep().unwrap();
        taken
    };
    (0..10).for_each(|pod| take(pod).unwrap());
    assert_eq!(take(10), Err(Rejection::Series));
    wait_until(|| take(10).is_ok());
    has(&registry, &["c{pod=\"10\"} 1"]);
}

#[test]
fn names_that_are_no_longer_used_are_freed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.quipu");
    let mut used = 0;
    for round in 0..4 {
        let options = quipu_segment::Options::new().limit(1 << 22);
        let registry = Registry::from_segment(options.open_or_create(&path).unwrap());
        let (freed, kept) = if round == 0 { (0, 0) } else { (4, 4) };
        assert_eq!(Intake::free_unused(&registry, Duration::ZERO).unwrap(), freed);
        let mut intake = intake(&registry);
        assert_eq!((intake.usage().families, intake.freed().unwrap()), (kept, freed));
        let [set, added, both] = ["set", "added", "both"].map(|name| format!("{name}_{round}"));
        let (value, two) = (InputValue::Gauge(1.0), InputValue::Counter(2.0));
        intake.take(metric(&set), &[("a", "b")], &value, Mode::Set, None).unwrap();
        intake.take(metric(&added), &[], &two, Mode::Add, None).unwrap();
        // This family stores the last total of the source next to the sum.
        intake.take(metric(&both), &[], &two, Mode::Add, None).unwrap();
        intake.take(metric(&both), &[], &two, Mode::Follow, None).unwrap();
        // This family stays. Its help arrives later.
        intake.take(metric("kept"), &[], &two, Mode::Add, None).unwrap();
        let kept = Metric { help: "Kept.", ..metric("kept") };
        intake.take(kept, &[], &two, Mode::Add, None).unwrap();
        // A sum, and the last total of its source.
        let total = InputValue::Counter(f64::from(round + 1));
        let followed = intake.follow_into(metric("source"), &[], &total, None, |intake, grown| {
            intake.take(metric("sum"), &[], grown, Mode::Add, None)
        });
        followed.unwrap();
        has(&registry, &[&format!("kept {}", 4 * (round + 1)), &format!("sum {}", round + 1)]);
        has(&registry, &["# HELP kept Kept.", &format!("both_{round} 4")]);
        for (name, labels) in [(&set, &[("a", "b")][..]), (&added, &[]), (&both, &[])] {
            assert_eq!(intake.remove(name, labels).unwrap(), 1);
        }
        let now = registry.segment().used();
        used = if round == 1 { now } else { used };
        assert!(round == 0 || now == used, "{now} after {used}");
    }
}

#[test]
fn exemplars_leave_room_for_series() {
    let segment = quipu_segment::Segment::private(1 << 18).unwrap();
    let registry = Registry::from_segment(segment.clone());
    let mut intake = intake(&registry);
    let hits = Metric { exemplars: true, ..metric("hits") };
    let values: Vec<String> = (0..2000).map(|i| format!("{i:04}")).collect();
    let labels = [("trace_id", "4bf92f3577b34da6")];
    let exemplar = InputExemplar { labels: &labels, value: 1.0, time: None };
    let mut kept = 0;
    for value in &values {
        let pair = [("a", value.as_str())];
        if intake.take(hits, &pair, &InputValue::Counter(1.0), Mode::Follow, None).is_err() {
            break;
        }
        kept += u64::from(intake.exemplify("hits", &pair, &exemplar).unwrap());
    }
    let series = intake.usage().series;
    assert!(kept > 100 && series > kept + 200, "{kept} of {series}");
    assert_eq!(intake.usage().exemplars, series - kept);
    // An existing exemplar is replaced.
    assert!(intake.exemplify("hits", &[("a", "0000")], &exemplar).unwrap());
    assert!(segment.used() > segment.limit() / 8 * 7);
}

#[test]
fn other_records_take_no_room_from_exemplars() {
    let segment = quipu_segment::Segment::private(1 << 20).unwrap();
    // Seven eighths of the segment are another's: windows, for example.
    let kind = quipu_segment::Kind::new(*b"else", 1);
    segment.reserve(kind, "", 7 << 14).unwrap().publish().unwrap();
    let registry = Registry::from_segment(segment);
    let hits = Metric { exemplars: true, ..metric("hits") };
    let labels = [("trace_id", "4bf92f3577b34da6")];
    let exemplar = InputExemplar { labels: &labels, value: 1.0, time: None };
    for (bytes_for_series, is_kept) in [(u64::MAX, false), (1 << 15, true)] {
        let limits = Limits { bytes_for_series, ..Limits::default() };
        let mut intake = Intake::new(&registry, limits).unwrap();
        intake.take(hits, &[], &InputValue::Counter(1.0), Mode::Follow, None).unwrap();
        assert_eq!(intake.exemplify("hits", &[], &exemplar).unwrap(), is_kept);
    }
}
