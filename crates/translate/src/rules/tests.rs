//! Tests of rules with an intake.

use quipu::intake::{Limits, Mode, Shape};
use quipu::snapshot::{Native, Value};

use super::*;

const RULES: &str = "
metric_relabel_configs:
- {source_labels: [__name__], regex: 'go_.*', action: drop}
- {source_labels: [__name__], regex: 'old_(.*)', target_label: __name__, replacement: 'new_$1'}
- {regex: pod, action: labeldrop}
aggregations:
- {match: 'requests(_total)?', without: [instance], outputs: [sum, count]}
- {match: 'level', by: [job], outputs: [min, max, last], keep_input: true}
- match: took
  by: []
  outputs: [sum, min, max, last, avg, 'histogram(2, 0)', 'quantiles(0, 1)']
- {match: 'level', by: [], outputs: [avg, 'histogram(4)']}
";

/// Rules with their intake.
struct Bench {
    rules: Rules,
    intake: Intake,
}

impl Bench {
    fn new(rules: &str) -> Self {
        let registry = Registry::new();
        let mut rules = Rules::parse(rules).unwrap();
        rules.count(&registry).unwrap();
        Self { rules, intake: Intake::new(&registry, Limits::default()).unwrap() }
    }

    fn take(&mut self, name: &str, labels: &[(&str, &str)], given: InputValue<'_>, mode: Mode) {
        let metric = Metric::new(name);
        self.rules.take(&mut self.intake, metric, labels, &given, mode, None).unwrap();
    }

    /// Returns the samples whose names begin with `quipu_`, or all others.
    fn shown(&self, own: bool) -> Vec<String> {
        let text = self.intake.registry().text();
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines.filter(|line| line.starts_with("quipu_") == own).map(str::to_owned).collect()
    }
}

#[test]
fn samples_are_relabelled_and_counted() {
    let mut bench = Bench::new(RULES);
    bench.take("go_gc", &[], InputValue::Gauge(1.0), Mode::Set);
    bench.take("old_size", &[("pod", "a"), ("x", "y")], InputValue::Gauge(2.0), Mode::Set);
    bench.take("plain", &[("x", "y")], InputValue::Counter(3.0), Mode::Follow);
    assert_eq!(bench.shown(false), ["new_size{x=\"y\"} 2", "plain{x=\"y\"} 3"]);
    let own = bench.shown(true);
    for line in [
        "quipu_rule_dropped_total{rule=\"1\",action=\"drop\"} 1",
        "quipu_rule_changed_total{rule=\"2\",action=\"replace\"} 1",
        "quipu_rule_changed_total{rule=\"3\",action=\"labeldrop\"} 1",
    ] {
        assert!(own.iter().any(|found| found == line), "{own:#?}");
    }
    let labels = [("pod", "b"), ("x", "y")];
    let removed = bench.rules.with_relabelled("old_size", &labels, |name, labels| {
        bench.intake.end(name, labels, None).unwrap()
    });
    assert_eq!(removed, Some(1));
}

#[test]
fn increments_and_growing_totals_are_summed() {
    let mut bench = Bench::new(RULES);
    for instance in ["a", "b", "b"] {
        let labels = [("instance", instance), ("job", "j")];
        bench.take("requests_total", &labels, InputValue::Counter(2.0), Mode::Add);
    }
    let mut follow = |instance: &str, total: f64, sum: &str| {
        let labels = [("instance", instance), ("job", "j")];
        bench.take("requests_total", &labels, InputValue::Counter(total), Mode::Follow);
        let shown = bench.shown(false);
        assert!(shown.contains(&format!("requests_total{{job=\"j\"}} {sum}")), "{shown:#?}");
        assert_eq!(shown.len(), 2, "{shown:#?}");
    };
    follow("a", 7.0, "13");
    follow("b", 1.0, "14");
    // An unchanged total, a larger total, and a total after a restart.
    follow("a", 7.0, "14");
    follow("a", 7.5, "14.5");
    follow("b", 0.5, "15");
    follow("b", 3.0, "17.5");
    let own = bench.shown(true);
    assert!(own.contains(&"quipu_rule_aggregated_total{aggregation=\"1\"} 9".into()), "{own:#?}");
    assert!(!own.iter().any(|line| line.starts_with("quipu_variants_not_shown")), "{own:#?}");
}

#[test]
fn histograms_and_summaries_that_are_followed_are_summed() {
    let mut bench = Bench::new("aggregations: [{match: '.*', without: [pod], outputs: [sum]}]");
    for (pod, low, high, sum) in [("a", 1.0, 2.0, 5.0), ("b", 4.0, 0.0, 2.0), ("a", 2.0, 2.0, 4.0)]
    {
        let labels = [("pod", pod)];
        let buckets = [(1.0, low), (f64::INFINITY, high)];
        let given = InputValue::Histogram { buckets: &buckets, sum };
        bench.take("took", &labels, given, Mode::Follow);
        let quantiles = &[(0.5, 1.0)];
        let given = InputValue::Summary { quantiles, count: low + high, sum };
        bench.take("size", &labels, given, Mode::Follow);
    }
    let expected = [
        "took_bucket{le=\"1\"} 6",
        "took_bucket{le=\"+Inf\"} 8",
        "took_sum 6",
        "took_count 8",
        "size_sum 6",
        "size_count 8",
    ];
    assert_eq!(bench.shown(false), expected);
}

#[test]
fn native_histograms_that_are_followed_are_summed() {
    let mut bench = Bench::new("aggregations: [{match: '.*', without: [pod], outputs: [sum]}]");
    // The restart of a source, and a source that merges its values near zero into the zero bucket.
    for (pod, schema, zero_count, positive, sum, expected) in [
        ("a", 0, 1, &[(1, 2)][..], 3.0, [3, 3]),
        ("b", 3, 0, &[(1, 4), (9, 1)], 5.0, [8, 8]),
        ("a", 0, 1, &[(1, 3)], 4.0, [9, 9]),
        ("a", 0, 1, &[(1, 3)], 4.0, [9, 9]),
        ("b", 3, 0, &[(1, 2)], 1.0, [11, 10]),
        ("a", 0, 3, &[(1, 2)], 5.0, [12, 11]),
    ] {
        let zero_threshold = if pod == "a" { 0.0 } else { 1e-9 };
        let buckets = Native::new(schema).zero(zero_threshold, zero_count).positive(positive);
        bench.take("size", &[("pod", pod)], InputValue::Native { buckets, sum }, Mode::Follow);
        let [count, sum] = expected;
        let shown = bench.shown(false);
        for line in [format!("size_count {count}"), format!("size_sum {sum}")] {
            assert!(shown.contains(&line), "no {line}: {shown:#?}");
        }
    }
    let mut found = None;
    let read = bench.intake.read("size", &[], |taken| {
        if let Value::Histogram(histogram) = taken.value {
            let native = histogram.native.unwrap();
            found = Some((native.schema, native.zero_count, native.positive.to_vec()));
        }
    });
    assert_eq!((read.unwrap(), found), (1, Some((0, 2, vec![(1, 9), (2, 1)]))));
    let own = bench.shown(true);
    assert!(own.contains(&"quipu_rule_aggregated_total{aggregation=\"1\"} 6".into()), "{own:#?}");
}

/// If a sum does not fit, the growth of the total is not counted yet. The next total includes it.
#[test]
fn growth_of_a_total_waits_for_room() {
    let rules = "aggregations: [{match: '.*', by: [job], outputs: [count, sum]}]";
    let registry = Registry::new();
    let rules = Rules::parse(rules).unwrap();
    // The source and a series of another name. The sum would be the third.
    let limits = Limits { series: 2, ..Limits::default() };
    let mut intake = Intake::new(&registry, limits).unwrap();
    intake.take(Metric::new("other"), &[], &InputValue::Gauge(1.0), Mode::Set, None).unwrap();
    let follow = |intake: &mut Intake, total: f64| {
        let given = InputValue::Counter(total);
        let labels = [("job", "a"), ("pod", "b")];
        rules.take(intake, Metric::new("x_total"), &labels, &given, Mode::Follow, None)
    };
    assert_eq!(follow(&mut intake, 5.0), Err(Rejection::Series));
    assert_eq!(intake.remove("other", &[]).unwrap(), 1);
    // The sum fits, but the counter of samples does not. The added growth is not added again.
    assert_eq!(follow(&mut intake, 6.0), Err(Rejection::Series));
    assert_eq!(follow(&mut intake, 8.0), Err(Rejection::Series));
    assert!(registry.text().contains("x_total{job=\"a\"} 8\n"), "{}", registry.text());
}

#[test]
fn gauges_and_observations_are_aggregated() {
    let mut bench = Bench::new(RULES);
    for (instance, value) in [("a", 5.0), ("b", -1.0), ("c", 3.0)] {
        let labels = [("instance", instance), ("job", "j")];
        bench.take("level", &labels, InputValue::Gauge(value), Mode::Set);
        let shape = Shape::Classic(vec![1.0]);
        let metric = Metric { shape: Some(&shape), ..Metric::new("took") };
        let given = InputValue::Observation { value, weight: 1.0 };
        bench.rules.take(&mut bench.intake, metric, &labels, &given, Mode::Add, None).unwrap();
    }
    let shown = bench.shown(false);
    for line in [
        "level_min{job=\"j\"} -1",
        "level_max{job=\"j\"} 5",
        "level_last{job=\"j\"} 3",
        "level{instance=\"c\",job=\"j\"} 3",
        "took_count 3",
        "took_bucket{le=\"1\"} 1",
        "took_min -1",
        "took_max 5",
        "took_last 3",
        "took_histogram_bucket{le=\"0\"} 1",
        "took_histogram_bucket{le=\"2\"} 1",
        "took_histogram_sum 7",
        "took_quantiles_sum 7",
        "took_quantiles_count 3",
        "level_histogram_bucket{le=\"4\"} 2",
    ] {
        assert!(shown.iter().any(|found| found == line), "no {line}: {shown:#?}");
    }
    for name in ["took_avg ", "level_avg "] {
        let avg = shown.iter().find_map(|line| line.strip_prefix(name)).unwrap();
        assert!((avg.parse::<f64>().unwrap() - 7.0 / 3.0).abs() < 1e-12, "{name}{avg}");
    }
    // A value that is not a number affects no mean and no bucket.
    bench.take("level", &[], InputValue::Gauge(f64::NAN), Mode::Set);
    assert!(bench.shown(false).contains(&"level_histogram_count 3".into()));
}

#[test]
fn a_value_that_is_sent_again_is_aggregated_once() {
    let mut bench = Bench::new(RULES);
    let mut take = |pod, value, time| {
        let metric = Metric {
            time: Some(Timestamp::from_nanos(time)),
            order: Order::Strict,
            ..Metric::new("level")
        };
        let (labels, given) = ([("instance", "a"), ("pod", pod)], InputValue::Gauge(value));
        bench.rules.take(&mut bench.intake, metric, &labels, &given, Mode::Set, None).unwrap();
    };
    // A rule merges two pods into one series, whose last value wins.
    for (pod, value, time) in
        [("x", 5.0, 100), ("x", 3.0, 200), ("x", 3.0, 200), ("x", 5.0, 100), ("y", 4.0, 200)]
    {
        take(pod, value, time);
    }
    let shown = bench.shown(false);
    for line in ["level_histogram_count 2", "level{instance=\"a\"} 4"] {
        assert!(shown.iter().any(|found| found == line), "no {line}: {shown:#?}");
    }
}

#[test]
fn files_that_cannot_be_used_name_the_line_and_the_key() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rules.yml");
    for (text, part) in [
        ("metric_relabel_config: []", "metric_relabel_config"),
        ("metric_relabel_configs:\n- {action: keep, regx: a}", "line 2"),
        ("metric_relabel_configs:\n- action: keep\n- action: rename", "line 3: key `action`"),
        ("metric_relabel_configs:\n- {action: drop, regex: '['}", "line 2: key `regex`"),
        ("aggregations:\n- {match: a, outputs: [sum]}", "line 2: keys `by` and `without`"),
        (
            "aggregations:\n- {match: a, by: [], outputs: [median]}",
            "line 2: key `outputs`: \"median\" is unknown; give some of sum",
        ),
        (
            "aggregations:\n- {match: a, by: [], outputs: ['quantiles(0.5, 99)']}",
            "line 2: key `outputs`: \"quantiles(0.5, 99)\" needs quantiles from 0 to 1",
        ),
        (
            "aggregations:\n- {match: a, by: [], outputs: [sum, sum]}",
            "line 2: key `outputs`: sum is there twice",
        ),
        ("aggregations:\n- {match: a, by: [], outputs: []}", "key `outputs`: give one"),
        ("[", "rules.yml"),
    ] {
        std::fs::write(&path, text).unwrap();
        let error = Rules::read(&path).unwrap_err().to_string();
        assert!(error.contains(part) && error.contains("rules.yml"), "{text}: {error}");
    }
    assert!(Rules::read(&directory.path().join("none")).is_err());
    std::fs::write(&path, "").unwrap();
    assert!(Rules::read(&path).is_ok());
}

/// Compares with rules that Prometheus' own package applied. You can run this with `make
/// judge-relabel`.
#[test]
#[ignore = "needs the samples of a program in Go"]
fn prometheus_relabels_alike() {
    type Pairs = std::collections::BTreeMap<String, String>;
    let samples = std::env::var_os("QUIPU_RELABELLED").expect("the file of `make judge-relabel`");
    let samples = std::fs::read_to_string(samples).unwrap();
    let (mut all, mut alike) = (0, 0);
    for line in samples.lines() {
        let (rule, before, mut after): (String, Pairs, Option<Pairs>) =
            serde_json::from_str(line).unwrap();
        // Prometheus' labelmap creates labels without a name, which no format can represent.
        after.as_mut().map(|after| after.remove(""));
        let rules = Rules::parse(&format!("metric_relabel_configs: [{rule}]"));
        let ours = rules.map(|rules| {
            let name = before.get(NAME).map_or("", String::as_str);
            let others = before.iter().filter(|(name, _)| *name != NAME);
            let others: Vec<(&str, &str)> = others.map(|(n, v)| (&**n, &**v)).collect();
            let mut labels = Labels::new(name, &others);
            labels.retain(|name| before.contains_key(name));
            let dropped = !rules.relabel.apply(&mut labels);
            let pairs =
                labels.all().iter().map(|(name, value)| (name.to_string(), value.to_string()));
            (!dropped).then(|| pairs.collect::<Pairs>())
        });
        all += 1;
        if ours.as_ref().is_ok_and(|ours| *ours == after) {
            alike += 1;
        } else {
            eprintln!("{line}: {ours:?}");
        }
    }
    eprintln!("{alike} of {all} samples are alike");
    assert!(all > 0 && alike == all);
}
