//! Metrics from outside: what is added, followed, set and observed is shown; what cannot be taken
//! is refused with a reason; and all of it is there again when the file is opened again.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use quipu::Registry;
use quipu::exposition::{Escaping, Format};
use quipu::intake::{Followed, Given, Intake, Limits, Metric, Mode, Refused, Shape, Spot};
use quipu::snapshot::{Native, Timestamp};

fn intake(registry: &Registry) -> Intake {
    Intake::new(registry, Limits::default()).unwrap()
}

fn metric(name: &str) -> Metric<'_> {
    Metric::new(name)
}

fn has(registry: &Registry, lines: &[&str]) {
    let text = registry.text();
    for line in lines {
        assert!(text.lines().any(|other| other == *line), "{line} is not in\n{text}");
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
    intake.take(hits, &[("b", "2"), ("a", "1")], &Given::Counter(1.5), Mode::Add, None).unwrap();
    intake.take(hits, &[("a", "1"), ("b", "2")], &Given::Counter(1.0), Mode::Add, None).unwrap();
    let missing = [("a", "1"), ("b", "")];
    intake.take(hits, &missing, &Given::Counter(4.0), Mode::Add, None).unwrap();
    intake.take(metric("done_total"), &[], &Given::Counter(2.0), Mode::Add, None).unwrap();
    intake.take(metric("level"), &[], &Given::Gauge(2.0), Mode::Set, None).unwrap();
    intake.take(metric("level"), &[], &Given::Gauge(-0.5), Mode::Add, None).unwrap();
    intake
        .take(metric("what"), &[("x", "é\"")], &Given::Unknown(f64::NAN), Mode::Set, None)
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
            .take(metric(name), &[], &Given::Histogram { buckets: &buckets, sum }, mode, None)
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
    let summary = |count: f64| Given::Summary { quantiles: &quantiles, count, sum: 2.0 * count };
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
        let buckets = Native {
            schema: 3,
            zero_threshold: 0.0,
            zero_count,
            positive,
            negative: &[],
            exemplars: &[],
        };
        intake.take(metric(name), &[], &Given::Native { buckets, sum: 1.0 }, mode, None).unwrap();
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
    let shapes = [
        ("classic", Shape::Classic(vec![0.5, 1.0])),
        ("native", Shape::Native(3, 160)),
        ("summary", Shape::Summary(vec![0.5], Duration::from_secs(60))),
    ];
    for (name, shape) in &shapes {
        for (value, weight) in [(0.25, 1.0), (0.75, 10.0), (2.0, 1.0)] {
            intake.observe(metric(name), &[("l", "v")], shape, value, weight).unwrap();
        }
        has(
            &registry,
            &[&format!("{name}_count{{l=\"v\"}} 12"), &format!("{name}_sum{{l=\"v\"}} 9.75")],
        );
    }
    has(&registry, &["classic_bucket{l=\"v\",le=\"1\"} 11"]);
    let shape = Shape::Classic(vec![1.0]);
    for _ in 0..10_000 {
        intake.observe(metric("thirds"), &[], &shape, 1.0, 1.0 / 3.0).unwrap();
    }
    let text = registry.text();
    let line = text.lines().find_map(|line| line.strip_prefix("thirds_count ")).unwrap();
    let count: u64 = line.parse().unwrap();
    assert!((3000..3700).contains(&count), "{count}");
}

#[test]
fn what_cannot_be_taken_is_refused_and_changes_nothing() {
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
    };
    let mut intake = Intake::new(&registry, limits).unwrap();
    let one = Given::Counter(1.0);
    let mut take = |name: &str, labels: &[(&str, &str)], given: &Given<'_>| {
        intake.take(metric(name), labels, given, Mode::Add, None)
    };
    for name in ["", "a\nb", "01234567890"] {
        assert_eq!(take(name, &[], &one), Err(Refused::Name), "{name:?}");
    }
    assert_eq!(take("own_x", &[], &one), Err(Refused::Reserved));
    for name in ["", "__name__", "01234567890", "quipu_overflow"] {
        assert_eq!(take("a", &[(name, "x")], &one), Err(Refused::LabelName), "{name:?}");
    }
    let twice = [("a", "x"), ("b", "y"), ("a", "z")];
    assert_eq!(take("a", &twice[..2], &Given::Counter(-1.0)), Err(Refused::Value));
    assert_eq!(take("a", &twice, &one), Err(Refused::Labels));
    assert_eq!(take("a", &[("a", "x"), ("a", "y")], &one), Err(Refused::LabelName));
    assert_eq!(take("a", &[("a", "123456")], &one), Err(Refused::LabelValue));
    assert_eq!(take("a", &[], &Given::Counter(f64::NAN)), Err(Refused::Value));
    let open = Given::Histogram { buckets: &[(1.0, 1.0)], sum: 1.0 };
    assert_eq!(take("a", &[], &open), Err(Refused::Buckets));
    assert_eq!(registry.text(), "");
    take("a", &[("l", "1")], &one).unwrap();
    take("a", &[("l", "2")], &one).unwrap();
    assert_eq!(take("a", &[("l", "3")], &one), Err(Refused::SourceSeries));
    // What is there counts on.
    take("a", &[("l", "1")], &one).unwrap();
    intake.set_source("another");
    let mut take = |name: &str, labels: &[(&str, &str)], given: &Given<'_>| {
        intake.take(metric(name), labels, given, Mode::Add, None)
    };
    take("b", &[], &one).unwrap();
    assert_eq!(take("b", &[("x", "y")], &one), Err(Refused::Series));
    assert_eq!(intake.remove("b", &[]).unwrap(), 1);
    let mut take = |name: &str, labels: &[(&str, &str)], given: &Given<'_>| {
        intake.take(metric(name), labels, given, Mode::Add, None)
    };
    take("b", &[("x", "y")], &one).unwrap();
    assert_eq!(take("c", &[], &one), Err(Refused::Families));
    has(&registry, &["a{l=\"1\"} 2", "a{l=\"2\"} 1", "b{x=\"y\"} 1"]);
    assert_eq!(registry.text().lines().filter(|line| !line.starts_with('#')).count(), 3);
}

#[test]
fn a_source_that_makes_up_names_leaves_room_for_those_of_others() {
    let registry = Registry::new();
    let limits =
        Limits { families: 8, families_per_source: 6, series_per_source: 7, ..Limits::default() };
    let intake = Intake::new(&registry, limits).unwrap();
    let one = Given::Counter(1.0);
    let taken = std::sync::atomic::AtomicU64::new(0);
    // The limit is that of the source, not that of a thread: clones share what is counted.
    for thread in 0..3 {
        let mut intake = intake.clone();
        intake.set_source("flood");
        for number in 0..5 {
            let name = format!("made_up_{thread}_{number}");
            match intake.take(metric(&name), &[], &one, Mode::Add, None) {
                Ok(()) => taken.fetch_add(1, std::sync::atomic::Ordering::Relaxed),
                Err(refused) => {
                    assert_eq!(refused, Refused::SourceFamilies, "{name}");
                    0
                }
            };
        }
    }
    assert_eq!(taken.into_inner(), 6);
    let mut intake = intake.clone();
    intake.set_source("flood");
    // What it has made takes more, also another series.
    let take = |intake: &mut Intake, name: &str, label: &str| {
        intake.take(metric(name), &[("l", label)], &one, Mode::Add, None)
    };
    intake.take(metric("made_up_0_0"), &[], &one, Mode::Add, None).unwrap();
    assert_eq!(take(&mut intake, "another", "1"), Err(Refused::SourceFamilies));
    intake.set_source("neighbour");
    take(&mut intake, "requests", "1").unwrap();
    intake.set_source("flood");
    take(&mut intake, "requests", "2").unwrap();
    assert_eq!(take(&mut intake, "requests", "3"), Err(Refused::SourceSeries));
    intake.set_source("neighbour");
    take(&mut intake, "requests", "3").unwrap();
}

#[test]
fn a_help_that_comes_later_counts_toward_the_families_of_its_source() {
    let registry = Registry::new();
    let limits = Limits { families: 8, families_per_source: 6, ..Limits::default() };
    let mut intake = Intake::new(&registry, limits).unwrap();
    let one = Given::Counter(1.0);
    let names: Vec<String> = (0..5).map(|number| format!("made_up_{number}")).collect();
    intake.set_source("flood");
    for help in ["", "Help."] {
        for name in &names {
            intake.take(Metric { help, ..metric(name) }, &[], &one, Mode::Add, None).unwrap();
        }
    }
    assert_eq!(intake.usage().families, 6);
    // Another source has room for families, and for a help.
    intake.set_source("neighbour");
    let helped = Metric { help: "Help.", ..metric(&names[4]) };
    intake.take(helped, &[], &one, Mode::Add, None).unwrap();
    intake.take(metric("requests"), &[], &one, Mode::Add, None).unwrap();
    assert_eq!(registry.text().matches("Help.").count(), 2);
}

#[test]
fn all_of_it_is_there_again_after_the_file_is_opened_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.quipu");
    let start = Some(Timestamp(7));
    {
        let registry = Registry::open(&path).unwrap();
        let mut intake = intake(&registry);
        intake.take(metric("a"), &[("l", "1")], &Given::Counter(2.0), Mode::Add, None).unwrap();
        intake.take(metric("f"), &[], &Given::Counter(9.0), Mode::Follow, start).unwrap();
        let grouped = Metric { grouped: true, ..metric("g") };
        intake
            .take(grouped, &[("job", "x"), ("a", "")], &Given::Gauge(1.0), Mode::Set, None)
            .unwrap();
        intake.take(grouped, &[], &Given::Gauge(1.0), Mode::Set, None).unwrap();
    }
    let registry = Registry::open(&path).unwrap();
    let mut first = intake(&registry);
    assert_eq!(first.usage().series, 4);
    let mut second = first.clone();
    first.take(metric("a"), &[("l", "1")], &Given::Counter(1.0), Mode::Add, None).unwrap();
    second.take(metric("a"), &[("l", "1")], &Given::Counter(1.0), Mode::Add, None).unwrap();
    // One makes a family that the other then finds.
    first.take(metric("n"), &[("l", "1")], &Given::Counter(1.0), Mode::Add, None).unwrap();
    second.take(metric("n"), &[("l", "1")], &Given::Counter(1.0), Mode::Add, None).unwrap();
    // The same source goes on.
    first.take(metric("f"), &[], &Given::Counter(10.0), Mode::Follow, start).unwrap();
    has(&registry, &["a{l=\"1\"} 4", "n{l=\"1\"} 2", "f 10", "g{a=\"\",job=\"x\"} 1", "g 1"]);
    assert_eq!(second.usage(), quipu::intake::Usage { series: 5, families: 5 });
    let mut seen = Vec::new();
    first.visit_grouped(|taken| seen.push((taken.name.to_owned(), taken.labels.len()))).unwrap();
    assert_eq!(seen, [("g".to_owned(), 2), ("g".to_owned(), 0)]);
    first.take(metric("g"), &[], &Given::Unknown(1.0), Mode::Set, None).unwrap();
    assert_eq!(first.remove_grouped("g", &[]).unwrap(), 1);
    assert_eq!(first.remove("g", &[("job", "x"), ("a", "")]).unwrap(), 0);
    assert_eq!(first.remove_grouped("g", &[("job", "x"), ("a", "")]).unwrap(), 1);
    assert_eq!(first.remove_grouped("g", &[("job", "x")]).unwrap(), 0);
}

#[test]
fn a_gauge_that_is_set_to_the_same_value_does_not_expire() {
    let registry = Registry::new();
    let mut intake = intake(&registry);
    let expiry = Some(Duration::from_millis(300));
    let one = Given::Gauge(1.0);
    let quick = Metric { expiry, ..metric("quick") };
    let mut set = |name| {
        let brief = Metric { expiry, ..metric(name) };
        intake.take(brief, &[], &one, Mode::Set, None).unwrap();
        let prepared = intake.prepare(quick, &[], &one, Mode::Set);
        if !prepared.is_some_and(|it| intake.take_prepared(&it, &[], &one, Mode::Set).unwrap()) {
            intake.take(quick, &[], &one, Mode::Set, None).unwrap();
        }
        intake
            .take(Metric { expiry, ..metric("c") }, &[], &Given::Counter(1.0), Mode::Follow, None)
            .unwrap();
        intake.sweep().unwrap();
    };
    set("once");
    let begun = std::time::Instant::now();
    while begun.elapsed() < Duration::from_millis(600) {
        set("often");
        has(&registry, &["often 1", "quick 1", "c 1"]);
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(!registry.text().contains("once"));
}

#[test]
fn a_group_is_replaced_hidden_and_shown_again() {
    let registry = Registry::new();
    let mut intake = intake(&registry);
    let grouped = |name| Metric { grouped: true, ..metric(name) };
    let labels = [("job", "x")];
    intake.take(grouped("c"), &labels, &Given::Counter(5.0), Mode::Set, None).unwrap();
    intake.take(grouped("c"), &labels, &Given::Counter(2.0), Mode::Set, None).unwrap();
    intake.take(grouped("c"), &labels, &Given::Counter(1.5), Mode::Add, None).unwrap();
    has(&registry, &["c{job=\"x\"} 3.5"]);
    assert_eq!(intake.hide_grouped("c", &labels).unwrap(), 1);
    assert_eq!(registry.text(), "");
    let mut read = Vec::new();
    let count = intake.read("c", &labels, |taken| read.push(format!("{:?}", taken.value))).unwrap();
    assert!(count == 1 && read[0].contains("3.5"), "{read:?}");
    intake.take(grouped("c"), &labels, &Given::Counter(1.0), Mode::Add, None).unwrap();
    has(&registry, &["c{job=\"x\"} 4.5"]);
    // Other buckets replace the old ones, and another group may have the old ones.
    let narrow = [(1.0, 1.0), (f64::INFINITY, 0.0)];
    let wide = [(2.0, 1.0), (f64::INFINITY, 0.0)];
    let mut take = |job: &str, buckets: &[(f64, f64)]| {
        let given = Given::Histogram { buckets, sum: 1.0 };
        intake.take(grouped("h"), &[("job", job)], &given, Mode::Set, None).unwrap();
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
        |name: &str, given: &Given<'_>| intake.take(metric(name), &[], given, Mode::Set, None);
    let histogram = Given::Histogram { buckets: &[(f64::INFINITY, 1.0)], sum: 1.0 };
    set("a_sum", &Given::Gauge(1.0)).unwrap();
    assert_eq!(set("a", &histogram), Err(Refused::Collision));
    set("b", &histogram).unwrap();
    assert_eq!(set("b_bucket", &Given::Counter(1.0)), Err(Refused::Collision));
    set("c_total", &Given::Counter(1.0)).unwrap();
    assert_eq!(set("c_total", &Given::Unknown(1.0)), Err(Refused::Collision));
    set("c_created", &Given::Gauge(1.0)).unwrap();
    assert_eq!(registry.text().matches("# TYPE").count(), 4);
}

#[test]
fn a_metric_changes_its_type_when_its_last_series_is_gone() {
    let registry = Registry::new();
    let mut intake = intake(&registry);
    let mut push = |given: &Given<'_>| {
        let grouped = Metric { grouped: true, ..metric("x") };
        intake.take(grouped, &[("job", "a")], given, Mode::Set, None).unwrap();
    };
    // Each replaces the one before, which is in another family.
    for _ in 0..2 {
        push(&Given::Gauge(1.0));
        has(&registry, &["# TYPE x gauge", "x{job=\"a\"} 1"]);
        push(&Given::Counter(2.0));
        has(&registry, &["# TYPE x counter", "x{job=\"a\"} 2"]);
    }
}

#[test]
fn what_is_sent_again_counts_once_though_the_source_says_no_start() {
    let registry = Registry::new();
    let mut intake = intake(&registry);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let time = |n: u64| Some(Timestamp(now.as_nanos() as u64 - 100 + n));
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
fn hidden_series_give_way_when_there_is_no_room() {
    let registry = Registry::new();
    let limits = Limits { series: 10, ..Limits::default() };
    let mut intake = Intake::new(&registry, limits).unwrap();
    let mut take = |pod: usize| {
        let brief = Metric { expiry: Some(Duration::from_millis(100)), ..metric("c") };
        let pod = pod.to_string();
        let one = Given::Counter(1.0);
        let taken = intake.take(brief, &[("pod", &pod)], &one, Mode::Add, None);
        intake.sweep().unwrap();
        taken
    };
    (0..10).for_each(|pod| take(pod).unwrap());
    assert_eq!(take(10), Err(Refused::Series));
    let begun = std::time::Instant::now();
    while take(10).is_err() {
        assert!(begun.elapsed() < Duration::from_secs(30));
        std::thread::sleep(Duration::from_millis(20));
    }
    has(&registry, &["c{pod=\"10\"} 1"]);
}

#[test]
fn a_prepared_family_follows_what_happens_to_its_series() {
    let registry = Registry::new();
    let limits = Limits { series: 2, ..Limits::default() };
    let mut intake = Intake::new(&registry, limits).unwrap();
    let mut other = intake.clone();
    let (hits, one, add) = (metric("hits"), Given::Counter(1.0), Mode::Add);
    let labels = [("b", "2"), ("a", "1")];
    assert!(intake.prepare(hits, &labels, &one, add).is_none());
    intake.take(hits, &labels, &one, add, None).unwrap();
    let prepared = intake.prepare(hits, &labels, &one, add).unwrap();
    let take =
        |intake: &mut Intake, values: &[&str]| intake.take_prepared(&prepared, values, &one, add);
    assert_eq!(take(&mut intake, &["1", "2"]), Ok(true));
    assert_eq!(take(&mut other, &["1", "2"]), Ok(true));
    for values in [&["2", "1"][..], &["1"], &["1", "2", "3"], &["1", ""], &[]] {
        assert_eq!(take(&mut intake, values), Ok(false), "{values:?}");
    }
    has(&registry, &["hits{a=\"1\",b=\"2\"} 3"]);
    // It is removed, and another series may have its record.
    assert_eq!(other.remove("hits", &labels).unwrap(), 1);
    assert_eq!(take(&mut intake, &["1", "2"]), Ok(false));
    other.take(hits, &[("a", "x"), ("b", "y")], &one, add, None).unwrap();
    assert_eq!(take(&mut intake, &["1", "2"]), Ok(false));
    intake.take(hits, &labels, &one, add, None).unwrap();
    assert_eq!(take(&mut intake, &["1", "2"]), Ok(true));
    // There is no room for a third one.
    assert_eq!(take(&mut intake, &["3", "3"]), Ok(false));
    let third = intake.take(hits, &[("a", "3"), ("b", "3")], &one, add, None);
    assert_eq!(third, Err(Refused::Series));
    let lines = ["hits{a=\"1\",b=\"2\"} 2", "hits{a=\"x\",b=\"y\"} 1"];
    has(&registry, &lines);
    // Values that are not increments of counters are none of this family.
    let mut given =
        |given: Given<'_>, mode| intake.take_prepared(&prepared, &["1", "2"], &given, mode);
    assert_eq!(given(Given::Counter(-1.0), add), Err(Refused::Value));
    assert_eq!(given(Given::Counter(9.0), Mode::Follow), Ok(false));
    assert_eq!(given(Given::Gauge(9.0), Mode::Set), Ok(false));
    assert_eq!(given(Given::Unknown(9.0), Mode::Set), Ok(false));
    assert_eq!(intake.observe_prepared(&prepared, &["1", "2"], 9.0, 1.0), Ok(false));
    has(&registry, &lines);
}

#[test]
fn a_prepared_family_counts_as_others_do() {
    let registry = Registry::new();
    let mut intake = intake(&registry);
    let shapes = [
        ("classic", Shape::Classic(vec![0.5, 1.0])),
        ("native", Shape::Native(3, 160)),
        ("summary", Shape::Summary(vec![0.5], Duration::from_secs(60))),
    ];
    for (name, shape) in &shapes {
        for labels in [&[][..], &[("l", "v")]] {
            let values: Vec<&str> = labels.iter().map(|(_, value)| *value).collect();
            assert!(intake.prepare_observations(metric(name), labels, shape).is_none());
            intake.observe(metric(name), labels, shape, 0.25, 1.0).unwrap();
            let prepared = intake.prepare_observations(metric(name), labels, shape).unwrap();
            for (value, weight) in [(0.75, 10.0), (2.0, 1.0)] {
                let taken = intake.observe_prepared(&prepared, &values, value, weight);
                assert_eq!(taken, Ok(true));
            }
            for (value, weight) in [(f64::NAN, 1.0), (1.0, -1.0), (1.0, f64::NAN)] {
                let taken = intake.observe_prepared(&prepared, &values, value, weight);
                assert_eq!(taken, Err(Refused::Value));
            }
            let shown = if labels.is_empty() { "" } else { "{l=\"v\"}" };
            let lines = [format!("{name}_count{shown} 12"), format!("{name}_sum{shown} 9.75")];
            has(&registry, &lines.each_ref().map(String::as_str));
        }
    }
    let mut gauge = |n: f64, mode| {
        let (given, level) = (Given::Gauge(n), metric("level"));
        match intake.prepare(level, &[], &given, mode) {
            Some(prepared) => assert!(intake.take_prepared(&prepared, &[], &given, mode).unwrap()),
            None => intake.take(level, &[], &given, mode, None).unwrap(),
        }
    };
    gauge(5.0, Mode::Set);
    gauge(-2.0, Mode::Add);
    has(&registry, &["level 3"]);
    gauge(1.0, Mode::Set);
    has(&registry, &["level 1"]);
    // Some values need more than additions to cells.
    let one = Given::Counter(1.0);
    for (metric, given, mode) in [
        (metric("b"), one, Mode::Follow),
        (metric("c"), one, Mode::Set),
        (metric("d"), Given::Summary { quantiles: &[], count: 1.0, sum: 1.0 }, Mode::Add),
    ] {
        intake.take(metric, &[], &given, mode, None).unwrap();
        assert!(intake.prepare(metric, &[], &given, mode).is_none());
    }
}

#[test]
fn a_prepared_family_of_groups_takes_what_its_groups_hold() {
    let registry = Registry::new();
    let mut intake = intake(&registry);
    let labels = [("job", "j"), ("instance", "")];
    let grouped = |name| Metric { grouped: true, help: "Help.", ..metric(name) };
    for (name, given) in
        [("c", Given::Counter(5.0)), ("g", Given::Gauge(5.0)), ("u", Given::Unknown(5.0))]
    {
        assert!(intake.prepare(grouped(name), &labels, &given, Mode::Set).is_none());
        intake.take(grouped(name), &labels, &given, Mode::Set, None).unwrap();
        let prepared = intake.prepare(grouped(name), &labels, &given, Mode::Set).unwrap();
        let take = |intake: &mut Intake, values: &[&str], mode| {
            intake.take_prepared(&prepared, values, &given, mode).unwrap()
        };
        let shown = |n| format!("{name}{{instance=\"\",job=\"j\"}} {n}");
        prepared.fetch(prepared.seek(&["", "j"]));
        assert!(take(&mut intake, &["", "j"], Mode::Set));
        has(&registry, &[&shown(5)]);
        assert!(take(&mut intake, &["", "j"], Mode::Add));
        has(&registry, &[&shown(10)]);
        assert!(!take(&mut intake, &["j", ""], Mode::Set));
        // What is hidden is shown in the usual way, which takes a lock.
        intake.hide_grouped(name, &labels).unwrap();
        assert!(!take(&mut intake, &["", "j"], Mode::Set));
        intake.take(grouped(name), &labels, &given, Mode::Set, None).unwrap();
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
    for (name, given) in
        [("c", Given::Counter(5.0)), ("g", Given::Gauge(5.0)), ("u", Given::Unknown(5.0))]
    {
        intake.take(grouped(name), &labels, &given, Mode::Set, None).unwrap();
        let prepared = intake.prepare(grouped(name), &labels, &given, Mode::Set).unwrap();
        let spot = prepared.spot(&["", "j"]).unwrap();
        for values in [&["", "k"][..], &["j", ""], &["j"], &[], &["", "j", ""]] {
            assert_eq!(prepared.spot(values), None, "{values:?}");
        }
        let take = |intake: &Intake, spot, mode| {
            prepared.prefetch(spot);
            intake.take_prepared_at(&prepared, spot, &given, mode, &intake.moment())
        };
        assert!(take(&intake, spot, Mode::Set) && take(&intake, spot, Mode::Add));
        has(&registry, &[&shown(name, 10.0)]);
        // What is hidden is shown in the usual way; then it is there again.
        intake.hide_grouped(name, &labels).unwrap();
        assert!(!take(&intake, spot, Mode::Set) && prepared.spot(&["", "j"]).is_none());
        intake.take(grouped(name), &labels, &given, Mode::Set, None).unwrap();
        assert!(take(&intake, spot, Mode::Add));
        has(&registry, &[&shown(name, 10.0)]);
        // Another series gets the record, sooner or later, and then the same one again.
        for round in 0..100 {
            intake.remove_grouped(name, &labels).unwrap();
            assert!(!take(&intake, spot, Mode::Set), "{round}");
            let other = [("job", "k"), ("instance", "")];
            let of = if round % 2 == 0 { &other } else { &labels };
            intake.take(grouped(name), of, &given, Mode::Set, None).unwrap();
            assert!(!take(&intake, spot, Mode::Set), "{round}");
            intake.remove_grouped(name, &other).unwrap();
        }
        // Values that are not of this family, or that are refused.
        intake.take(grouped(name), &labels, &given, Mode::Set, None).unwrap();
        let spot = prepared.spot(&["", "j"]).unwrap();
        for (given, mode) in [
            (Given::Counter(-1.0), Mode::Set),
            (Given::Summary { quantiles: &[], count: 1.0, sum: 1.0 }, Mode::Set),
        ] {
            assert!(!intake.take_prepared_at(&prepared, spot, &given, mode, &intake.moment()));
        }
        assert!(!take(&intake, Spot::NOWHERE, Mode::Set));
        has(&registry, &[&shown(name, 5.0)]);
    }
}

#[test]
fn a_prepared_family_finds_a_series_that_expired() {
    let registry = Registry::new();
    let mut intake = intake(&registry);
    let expiry = Some(Duration::from_millis(100));
    let counter = (Metric { expiry, ..metric("c") }, Given::Counter(1.0), Mode::Add);
    let gauge = (Metric { expiry, ..metric("g") }, Given::Gauge(1.0), Mode::Add);
    let prepared = [counter, gauge].map(|(metric, given, mode)| {
        intake.take(metric, &[], &given, mode, None).unwrap();
        intake.prepare(metric, &[], &given, mode).unwrap()
    });
    let begun = std::time::Instant::now();
    while registry.text().lines().any(|line| line.starts_with("c ") || line.starts_with("g ")) {
        assert!(begun.elapsed() < Duration::from_secs(30));
        std::thread::sleep(Duration::from_millis(20));
    }
    let [hidden, gone] = &prepared;
    assert_eq!(intake.take_prepared(hidden, &[], &counter.1, counter.2), Ok(true));
    assert_eq!(intake.take_prepared(gone, &[], &gauge.1, gauge.2), Ok(false));
    intake.take(gauge.0, &[], &gauge.1, gauge.2, None).unwrap();
    has(&registry, &["c 2", "g 1"]);
}

#[test]
fn a_followed_counter_keeps_the_order_of_its_samples() {
    let registry = Registry::new();
    let mut intake = intake(&registry);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let time = |n: u64| Some(Timestamp(now.as_nanos() as u64 - 100 + n));
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
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let sample = Metric { time: Some(Timestamp(now.as_nanos() as u64)), ..metric("c") };
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
        one.observe(metric("took"), &[("a", "b")], &shape, 2.0, 3.0).unwrap();
        one.observe(metric("took"), &[("a", "b")], &shape, 1.0, 1.0).unwrap();
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

#[test]
fn a_help_that_comes_later_is_shown_and_kept() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.quipu");
    let take = |intake: &mut Intake, name: &str, label: &str, help: &str| {
        let metric = Metric { help, ..metric(name) };
        intake.take(metric, &[(label, "1")], &Given::Counter(1.0), Mode::Add, None).unwrap();
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
        // A help of other label sets is that of the name.
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

/// Prometheus knows these as two metrics, unless it reads OpenMetrics.
#[test]
fn a_counter_and_one_with_the_suffix_are_both_shown() {
    let registry = Registry::new();
    let mut intake = intake(&registry);
    let mut take = |name: &str, help: &str, labels: &[(&str, &str)], n: f64| {
        let metric = Metric { help, ..metric(name) };
        intake.take(metric, labels, &Given::Counter(n), Mode::Follow, None).unwrap();
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
