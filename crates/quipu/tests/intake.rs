//! Metrics that other programs send: values that are added, followed, set and observed are shown;
//! values that cannot be stored are refused with a reason; and a reopened file still contains all
//! of them.

#![allow(clippy::unwrap_used)]

#[path = "intake/exemplars.rs"]
mod exemplars;
#[path = "intake/followed.rs"]
mod followed;
#[path = "intake/handles.rs"]
mod handles;
#[path = "intake/limits.rs"]
mod limits;
#[path = "intake/senders.rs"]
mod senders;

use std::time::Duration;

use quipu::Registry;
use quipu::exposition::{Escaping, Format};
use quipu::intake::{InputValue, Intake, Limits, Metric, Mode, Rejection, Shape};
use quipu::snapshot::{Native, Timestamp};

fn intake(registry: &Registry) -> Intake {
    Intake::new(registry, Limits::default()).unwrap()
}

fn metric(name: &str) -> Metric<'_> {
    Metric::new(name)
}

fn observed<'a>(name: &'a str, shape: &'a Shape) -> Metric<'a> {
    Metric { shape: Some(shape), ..metric(name) }
}

fn observation(value: f64, weight: f64) -> InputValue<'static> {
    InputValue::Observation { value, weight }
}

fn has(registry: &Registry, lines: &[&str]) {
    let text = registry.text();
    for line in lines {
        assert!(text.lines().any(|other| other == *line), "{line} is not in\n{text}");
    }
}

/// Names, and shapes of observations.
fn shapes() -> [(&'static str, Shape); 3] {
    [
        ("classic", Shape::Classic(vec![0.5, 1.0])),
        ("native", Shape::Native(3, 160)),
        ("summary", Shape::Summary(vec![0.5], Duration::from_secs(60))),
    ]
}

/// Waits until a condition becomes true.
fn wait_until(mut condition: impl FnMut() -> bool) {
    let begun = std::time::Instant::now();
    while !condition() {
        assert!(begun.elapsed() < Duration::from_secs(120));
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn open_metrics(registry: &Registry) -> String {
    let mut out = Vec::new();
    let scrape = registry.scrape();
    scrape.format(Format::OpenMetrics, Escaping::default()).append_to(&mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn increments_add_up_whatever_the_order_of_labels() {
    let registry = Registry::new();
    let mut intake = intake(&registry);
    let hits = metric("hits");
    intake
        .take(hits, &[("b", "2"), ("a", "1")], &InputValue::Counter(1.5), Mode::Add, None)
        .unwrap();
    intake
        .take(hits, &[("a", "1"), ("b", "2")], &InputValue::Counter(1.0), Mode::Add, None)
        .unwrap();
    let missing = [("a", "1"), ("b", "")];
    intake.take(hits, &missing, &InputValue::Counter(4.0), Mode::Add, None).unwrap();
    intake.take(metric("done_total"), &[], &InputValue::Counter(2.0), Mode::Add, None).unwrap();
    intake.take(metric("level"), &[], &InputValue::Gauge(2.0), Mode::Set, None).unwrap();
    intake.take(metric("level"), &[], &InputValue::Gauge(-0.5), Mode::Add, None).unwrap();
    intake
        .take(metric("what"), &[("x", "é\"")], &InputValue::Unknown(f64::NAN), Mode::Set, None)
        .unwrap();
    let lines = [
        "# TYPE hits counter",
        "hits{a=\"1\",b=\"2\"} 2.5",
        "hits{a=\"1\"} 4",
        "# TYPE done_total counter",
        "done_total 2",
        "level 1.5",
        "# TYPE what untyped",
        "what{x=\"é\\\"\"} NaN",
    ];
    has(&registry, &lines);
    let text = open_metrics(&registry);
    for line in ["# TYPE hits unknown\n", "\nhits{a=\"1\"} 4", "done_total 2", "level 1.5\n"] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
}

#[test]
fn ready_histograms_and_summaries_are_added_followed_and_set() {
    let registry = Registry::new();
    let mut intake = intake(&registry);
    let buckets = |counts: [f64; 3]| {
        let bounds = [0.5, 1.0, f64::INFINITY];
        [(bounds[0], counts[0]), (bounds[1], counts[1]), (bounds[2], counts[2])]
    };
    let mut take = |name: &str, counts: [f64; 3], sum: f64, mode: Mode| {
        let buckets = buckets(counts);
        intake
            .take(metric(name), &[], &InputValue::Histogram { buckets: &buckets, sum }, mode, None)
            .unwrap();
    };
    take("added", [1.0, 2.0, 3.0], 10.0, Mode::Add);
    take("added", [1.0, 0.0, 0.0], -1.0, Mode::Add);
    take("followed", [1.0, 2.0, 3.0], 10.0, Mode::Follow);
    // The sum may decrease, the counts may not: this is a restart.
    take("followed", [2.0, 2.0, 3.0], 9.0, Mode::Follow);
    take("followed", [0.0, 1.0, 0.0], 0.75, Mode::Follow);
    take("replaced", [1.0, 2.0, 3.0], 10.0, Mode::Set);
    take("replaced", [0.0, 1.0, 0.0], 0.75, Mode::Set);
    let quantiles = [(0.5, 1.25), (0.9, 2.5)];
    let summary =
        |count: f64| InputValue::Summary { quantiles: &quantiles, count, sum: 2.0 * count };
    for count in [3.0, 4.0, 1.0] {
        intake.take(metric("s"), &[("a", "b")], &summary(count), Mode::Follow, None).unwrap();
    }
    let lines = [
        "added_bucket{le=\"0.5\"} 2",
        "added_bucket{le=\"1\"} 4",
        "added_bucket{le=\"+Inf\"} 7",
        "added_sum 9",
        "followed_bucket{le=\"0.5\"} 2",
        "followed_bucket{le=\"1\"} 5",
        "followed_bucket{le=\"+Inf\"} 8",
        "followed_sum 9.75",
        "followed_count 8",
        "replaced_count 1",
        "replaced_sum 0.75",
        "s{a=\"b\",quantile=\"0.9\"} 2.5",
        "s_count{a=\"b\"} 5",
        "s_sum{a=\"b\"} 10",
    ];
    has(&registry, &lines);
}

#[test]
fn native_histograms_are_added_and_followed() {
    let registry = Registry::new();
    let mut intake = intake(&registry);
    let mut take = |name: &str, positive: &[(i32, u64)], zero_count: u64, mode: Mode| {
        let buckets = Native::new(3).zero(0.0, zero_count).positive(positive);
        intake
            .take(metric(name), &[], &InputValue::Native { buckets, sum: 1.0 }, mode, None)
            .unwrap();
    };
    take("added", &[(1, 2), (5, 1)], 1, Mode::Add);
    take("added", &[(5, 1)], 0, Mode::Add);
    take("followed", &[(1, 2), (5, 1)], 1, Mode::Follow);
    take("followed", &[(1, 2), (5, 4), (9, 1)], 1, Mode::Follow);
    // More buckets than fit: the table becomes coarser, and the counts stay right.
    let many: Vec<(i32, u64)> = (0..2000).map(|i| (i, 1)).collect();
    take("many", &many, 0, Mode::Follow);
    let more: Vec<(i32, u64)> = (0..2000).map(|i| (i, 2)).collect();
    take("many", &more, 0, Mode::Follow);
    has(&registry, &["added_count 5", "followed_count 8", "many_count 4000"]);
    // The source restarts: so does the series.
    take("followed", &[(1, 1)], 0, Mode::Follow);
    has(&registry, &["followed_count 1", "followed_sum 1"]);
}

#[test]
fn observations_have_weights() {
    let registry = Registry::new();
    let mut intake = intake(&registry);
    for (name, shape) in &shapes() {
        for (value, weight) in [(0.25, 1.0), (0.75, 10.0), (2.0, 1.0)] {
            let input = observation(value, weight);
            intake.take(observed(name, shape), &[("l", "v")], &input, Mode::Add, None).unwrap();
        }
        has(
            &registry,
            &[&format!("{name}_count{{l=\"v\"}} 12"), &format!("{name}_sum{{l=\"v\"}} 9.75")],
        );
    }
    has(&registry, &["classic_bucket{l=\"v\",le=\"1\"} 11"]);
    let shape = Shape::Classic(vec![1.0]);
    for _ in 0..10_000 {
        let input = observation(1.0, 1.0 / 3.0);
        intake.take(observed("thirds", &shape), &[], &input, Mode::Add, None).unwrap();
    }
    let text = registry.text();
    let line = text.lines().find_map(|line| line.strip_prefix("thirds_count ")).unwrap();
    let count: u64 = line.parse().unwrap();
    assert!((3000..3700).contains(&count), "{count}");
}

#[test]
fn a_reopened_file_has_all_series() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.quipu");
    let start = Some(Timestamp::from_nanos(7));
    {
        let registry = Registry::open(&path).unwrap();
        let mut intake = intake(&registry);
        intake
            .take(metric("a"), &[("l", "1")], &InputValue::Counter(2.0), Mode::Add, None)
            .unwrap();
        intake.take(metric("f"), &[], &InputValue::Counter(9.0), Mode::Follow, start).unwrap();
        let grouped = Metric { grouped: true, ..metric("g") };
        intake
            .take(grouped, &[("job", "x"), ("a", "")], &InputValue::Gauge(1.0), Mode::Set, None)
            .unwrap();
        intake.take(grouped, &[], &InputValue::Gauge(1.0), Mode::Set, None).unwrap();
    }
    let registry = Registry::open(&path).unwrap();
    let mut first = intake(&registry);
    assert_eq!(first.usage().series, 4);
    let mut second = first.clone();
    first.take(metric("a"), &[("l", "1")], &InputValue::Counter(1.0), Mode::Add, None).unwrap();
    second.take(metric("a"), &[("l", "1")], &InputValue::Counter(1.0), Mode::Add, None).unwrap();
    // One makes a family that the other then finds.
    first.take(metric("n"), &[("l", "1")], &InputValue::Counter(1.0), Mode::Add, None).unwrap();
    second.take(metric("n"), &[("l", "1")], &InputValue::Counter(1.0), Mode::Add, None).unwrap();
    // The same source continues.
    first.take(metric("f"), &[], &InputValue::Counter(10.0), Mode::Follow, start).unwrap();
    has(&registry, &["a{l=\"1\"} 4", "n{l=\"1\"} 2", "f 10", "g{a=\"\",job=\"x\"} 1", "g 1"]);
    assert_eq!((second.usage().series, second.usage().families), (5, 5));
    let mut seen = Vec::new();
    first.visit_grouped(|taken| seen.push((taken.name.to_owned(), taken.labels.len()))).unwrap();
    assert_eq!(seen, [("g".to_owned(), 2), ("g".to_owned(), 0)]);
    first.take(metric("g"), &[], &InputValue::Unknown(1.0), Mode::Set, None).unwrap();
    assert_eq!(first.remove_grouped("g", &[]).unwrap(), 1);
    assert_eq!(first.remove("g", &[("job", "x"), ("a", "")]).unwrap(), 0);
    assert_eq!(first.remove_grouped("g", &[("job", "x"), ("a", "")]).unwrap(), 1);
    assert_eq!(first.remove_grouped("g", &[("job", "x")]).unwrap(), 0);
}

#[test]
fn a_gauge_that_is_set_to_the_same_value_does_not_expire() {
    // If the machine stops this process for longer than the expiry, we learn nothing: start again.
    while !set_until_another_expires(Duration::from_millis(300)) {}
}

/// Sets gauges and a counter until the series that is set only once expires, and checks that the
/// others are shown. Returns false if the time between two calls was as long as the expiry.
fn set_until_another_expires(expiry: Duration) -> bool {
    let registry = Registry::new();
    let mut intake = intake(&registry);
    let longest = expiry;
    let expiry = Some(expiry);
    let one = InputValue::Gauge(1.0);
    let quick = Metric { expiry, ..metric("quick") };
    let mut set = |name| {
        let brief = Metric { expiry, ..metric(name) };
        intake.take(brief, &[], &one, Mode::Set, None).unwrap();
        let handle = intake.handle(quick, &[], &one, Mode::Set);
        if !handle.is_some_and(|it| intake.take_in(&it, &[], &one, Mode::Set).unwrap()) {
            intake.take(quick, &[], &one, Mode::Set, None).unwrap();
        }
        intake
            .take(
                Metric { expiry, ..metric("c") },
                &[],
                &InputValue::Counter(1.0),
                Mode::Follow,
                None,
            )
            .unwrap();
        intake.sweep().unwrap();
    };
    set("once");
    let mut before = std::time::Instant::now();
    while registry.text().contains("once") {
        set("often");
        let text = registry.text();
        if before.elapsed() >= longest {
            return false;
        }
        assert!(["often 1", "quick 1", "c 1"].iter().all(|line| text.contains(line)), "{text}");
        before = std::time::Instant::now();
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}

#[test]
fn a_group_is_replaced_hidden_and_shown_again() {
    let registry = Registry::new();
    let mut intake = intake(&registry);
    let grouped = |name| Metric { grouped: true, ..metric(name) };
    let labels = [("job", "x")];
    intake.take(grouped("c"), &labels, &InputValue::Counter(5.0), Mode::Set, None).unwrap();
    intake.take(grouped("c"), &labels, &InputValue::Counter(2.0), Mode::Set, None).unwrap();
    intake.take(grouped("c"), &labels, &InputValue::Counter(1.5), Mode::Add, None).unwrap();
    has(&registry, &["c{job=\"x\"} 3.5"]);
    assert_eq!(intake.hide_grouped("c", &labels).unwrap(), 1);
    assert_eq!(registry.text(), "");
    let mut read = Vec::new();
    let count = intake.read("c", &labels, |taken| read.push(format!("{:?}", taken.value))).unwrap();
    assert!(count == 1 && read[0].contains("3.5"), "{read:?}");
    intake.take(grouped("c"), &labels, &InputValue::Counter(1.0), Mode::Add, None).unwrap();
    has(&registry, &["c{job=\"x\"} 4.5"]);
    // Other buckets replace the old ones, but another group can use the old ones.
    let narrow = [(1.0, 1.0), (f64::INFINITY, 0.0)];
    let wide = [(2.0, 1.0), (f64::INFINITY, 0.0)];
    let mut take = |job: &str, buckets: &[(f64, f64)]| {
        let input = InputValue::Histogram { buckets, sum: 1.0 };
        intake.take(grouped("h"), &[("job", job)], &input, Mode::Set, None).unwrap();
    };
    take("x", &narrow);
    take("y", &narrow);
    take("x", &wide);
    has(&registry, &["h_bucket{job=\"x\",le=\"2\"} 1", "h_bucket{job=\"y\",le=\"1\"} 1"]);
    assert!(!registry.text().contains("h_bucket{job=\"x\",le=\"1\"}"));
    assert_eq!(intake.kind_of("h").unwrap(), Some(quipu::snapshot::Kind::Histogram));
    assert_eq!(intake.kind_of("i").unwrap(), None);
}

#[test]
fn no_two_metrics_have_samples_of_one_name() {
    let registry = Registry::new();
    let mut intake = intake(&registry);
    let mut set =
        |name: &str, input: &InputValue<'_>| intake.take(metric(name), &[], input, Mode::Set, None);
    let histogram = InputValue::Histogram { buckets: &[(f64::INFINITY, 1.0)], sum: 1.0 };
    set("a_sum", &InputValue::Gauge(1.0)).unwrap();
    assert_eq!(set("a", &histogram), Err(Rejection::Collision));
    set("b", &histogram).unwrap();
    assert_eq!(set("b_bucket", &InputValue::Counter(1.0)), Err(Rejection::Collision));
    set("c_total", &InputValue::Counter(1.0)).unwrap();
    assert_eq!(set("c_total", &InputValue::Unknown(1.0)), Err(Rejection::Collision));
    set("c_created", &InputValue::Gauge(1.0)).unwrap();
    assert_eq!(registry.text().matches("# TYPE").count(), 4);
    // The error names the other metric, and belongs to the last refusal.
    let why = |intake: &Intake, rejection| intake.explain(rejection).to_string();
    for (name, input, other) in [
        ("a", &histogram, "\"a_sum\" (gauge), has samples named \"a_sum\""),
        (
            "b_bucket",
            &InputValue::Counter(1.0),
            "\"b\" (histogram), has samples named \"b_bucket\"",
        ),
        ("c_total", &InputValue::Unknown(1.0), "(counter), has samples named \"c_total\""),
    ] {
        let rejection = intake.take(metric(name), &[], input, Mode::Set, None).unwrap_err();
        let why = why(&intake, rejection);
        assert!(why.contains(other) && why.contains("rename one of the two"), "{why}");
    }
    assert_eq!(why(&intake, Rejection::Labels), Rejection::Labels.to_string());
}

#[test]
fn a_metric_changes_its_type_when_its_last_series_is_gone() {
    let registry = Registry::new();
    let mut intake = intake(&registry);
    let mut push = |input: &InputValue<'_>| {
        let grouped = Metric { grouped: true, ..metric("x") };
        intake.take(grouped, &[("job", "a")], input, Mode::Set, None).unwrap();
    };
    // Each replaces the one before, which is in another family.
    for _ in 0..2 {
        push(&InputValue::Gauge(1.0));
        has(&registry, &["# TYPE x gauge", "x{job=\"a\"} 1"]);
        push(&InputValue::Counter(2.0));
        has(&registry, &["# TYPE x counter", "x{job=\"a\"} 2"]);
    }
}

#[test]
fn a_later_help_is_shown_and_kept() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.quipu");
    let take = |intake: &mut Intake, name: &str, label: &str, help: &str| {
        let metric = Metric { help, ..metric(name) };
        intake.take(metric, &[(label, "1")], &InputValue::Counter(1.0), Mode::Add, None).unwrap();
    };
    {
        let registry = Registry::open(&path).unwrap();
        let (mut one, mut other) = (intake(&registry), intake(&registry));
        take(&mut one, "c_total", "a", "");
        assert!(!registry.text().contains("HELP"), "{}", registry.text());
        take(&mut one, "c_total", "a", "The c.");
        has(&registry, &["# HELP c_total The c."]);
        let usage = one.usage();
        // The first help stays.
        take(&mut other, "c_total", "a", "Other.");
        take(&mut one, "c_total", "a", "Other.");
        has(&registry, &["# HELP c_total The c.", "c_total{a=\"1\"} 4"]);
        assert_eq!((one.usage(), usage.series, usage.families), (usage, 1, 2));
        // If other label sets provide a help, the name gets this help.
        take(&mut one, "d_total", "a", "");
        take(&mut one, "d_total", "b", "The d.");
        has(&registry, &["# HELP d_total The d."]);
    }
    let registry = Registry::open(&path).unwrap();
    has(&registry, &["# HELP c_total The c.", "# HELP d_total The d."]);
    let mut again = intake(&registry);
    take(&mut again, "c_total", "a", "Other.");
    let text = registry.text();
    assert_eq!(text.matches("# HELP").count(), 2, "{text}");
    assert_eq!(again.usage().families, 4);
}

/// A suffix without a stem is the whole name.
#[test]
fn a_counter_may_be_called_like_the_suffix() {
    let registry = Registry::new();
    let (mut one, mut other) = (intake(&registry), intake(&registry));
    let counter = InputValue::Counter(1.0);
    one.take(metric("_total"), &[], &counter, Mode::Add, None).unwrap();
    other.take(metric("_total"), &[], &counter, Mode::Add, None).unwrap();
    assert_eq!(registry.text(), "# TYPE _total counter\n_total 2\n");
    assert_eq!(open_metrics(&registry), "# TYPE _total unknown\n_total 2\n# EOF\n");
    other.take(metric("_total"), &[], &InputValue::Gauge(1.0), Mode::Set, None).unwrap();
    let text = registry.text();
    assert!(text.starts_with("# TYPE _total counter\n_total 2\n"), "{text}");
    assert!(text.contains("quipu_variants_not_shown{family=\"_total\"} 1\n"), "{text}");
}

/// Prometheus knows these as two metrics, unless it reads OpenMetrics.
#[test]
fn a_counter_and_one_with_the_suffix_are_both_shown() {
    let registry = Registry::new();
    let mut intake = intake(&registry);
    let mut take = |name: &str, help: &str, labels: &[(&str, &str)], n: f64| {
        let metric = Metric { help, ..metric(name) };
        intake.take(metric, labels, &InputValue::Counter(n), Mode::Follow, None).unwrap();
    };
    take("x", "Plain.", &[("a", "1")], 1.0);
    take("x_total", "With suffix.", &[("a", "1")], 2.0);
    take("x", "", &[], 4.0);
    take("x_total", "", &[], 8.0);
    let expected = "# HELP x_total With suffix.\n# TYPE x_total counter\n\
                    x_total{a=\"1\"} 2\nx_total 8\n\
                    # HELP x Plain.\n# TYPE x counter\nx{a=\"1\"} 1\nx 4\n";
    assert_eq!(registry.text(), expected);
    let expected = "# TYPE x counter\n# HELP x With suffix.\nx_total{a=\"1\"} 2.0\nx_total 8.0\n\
                    x_total{quipu_name=\"x\",a=\"1\"} 1.0\nx_total{quipu_name=\"x\"} 4.0\n# EOF\n";
    let sorted = |text: &str| {
        let mut lines: Vec<_> = text.lines().map(|line| line.replace(".0", "")).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&open_metrics(&registry)), sorted(expected));
    let mut out = Vec::new();
    let scrape = registry.scrape();
    scrape.format(Format::Protobuf, Escaping::default()).append_to(&mut out);
    for name in [&b"\x0a\x01x"[..], b"\x0a\x07x_total"] {
        assert_eq!(out.windows(name.len()).filter(|bytes| *bytes == name).count(), 1);
    }
}

/// A count that wraps around looks like a restart of its source.
#[test]
fn counts_do_not_wrap_around() {
    const HUGE: f64 = 9_223_372_036_854_775_808.0; // 2^63
    let registry = Registry::new();
    let mut intake = intake(&registry);
    let mut add = |name: &str, input: &InputValue<'_>| {
        intake.take(metric(name), &[], input, Mode::Add, None).unwrap();
    };
    let buckets = |count: f64| [(1.0, count), (f64::INFINITY, count)];
    let native = |count: u64| Native::new(0).zero(0.0, count);
    for count in [5.0, HUGE, HUGE, HUGE - 20_000.0] {
        add("classic", &InputValue::Histogram { buckets: &buckets(count), sum: 1.0 });
        add("native", &InputValue::Native { buckets: native(count as u64), sum: 1.0 });
        let positive = [(1, count as u64), (2, count as u64)];
        let buckets = native(0).positive(&positive);
        add("sides", &InputValue::Native { buckets, sum: 1.0 });
        add("summary", &InputValue::Summary { quantiles: &[], count, sum: 1.0 });
        add("counter_total", &InputValue::Counter(count));
        add("gaps_total", &InputValue::Counter(9_007_199_254_740_992.0));
    }
    for name in ["classic_count", "native_count", "sides_count", "summary_count", "counter_total"] {
        let count = sample(&registry, name);
        assert!(count >= HUGE, "{name} {count}");
    }
    assert_eq!(sample(&registry, "gaps_total"), 4.0 * 9_007_199_254_740_992.0);
    for _ in 0..2 {
        add("classic", &InputValue::Histogram { buckets: &buckets(1.0), sum: 1.0 });
    }
    assert!(sample(&registry, "classic_count") >= HUGE);
    // Observations of a weight count in the same way.
    let registry = Registry::new();
    let mut intake = Intake::new(&registry, Limits::default()).unwrap();
    for (name, shape) in shapes() {
        let mut observe = |weight| {
            let input = observation(0.75, weight);
            intake.take(observed(name, &shape), &[], &input, Mode::Add, None).unwrap();
        };
        (0..20_000).for_each(|_| observe(1e15));
        let count = sample(&registry, &format!("{name}_count"));
        assert!(count >= HUGE, "{name} {count}");
        observe(1.0);
        assert!(sample(&registry, &format!("{name}_count")) >= count);
    }
}

/// The value of a sample without labels.
fn sample(registry: &Registry, name: &str) -> f64 {
    let text = registry.text();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{name} is not in\n{text}")).parse().unwrap()
}
