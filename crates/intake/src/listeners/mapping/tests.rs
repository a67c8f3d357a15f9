//! Tests of mapping files, from their contents to the names and labels of metrics.

use super::*;

fn parse(text: &str) -> Mapping {
    Mapping::parse(text).unwrap_or_else(|(line, detail)| panic!("line {line:?}: {detail}\n{text}"))
}

/// Returns the result for a name: `name label=value ...`, `dropped`, or the name itself.
fn show(mapping: &Mapping, name: &str, class: MetricClass) -> String {
    let Some(rule_match) = mapping.find(name, class) else { return name.to_owned() };
    if mapping.drops(&rule_match) {
        return "dropped".to_owned();
    }
    let labels = rule_match.labels.iter().map(|(label, value)| format!(" {label}={value}"));
    rule_match.name.clone() + &labels.collect::<String>()
}

#[test]
fn rules_give_names_and_labels() {
    let mapping = parse(
        r#"
mappings:
- match: test.dispatcher.*.*.*
  name: "dispatcher_events_total"
  labels:
    processor: "$1"
    action: "$2"
    outcome: "$3"
    job: test_dispatcher
    code: 200
- match: "*.signup.*.*"
  name: "signup_events_total"
  labels: {provider: "$2", outcome: "$3", job: "${1}_server"}
- match: "test\\.(\\w+)\\.(?P<kind>\\w+)\\.counter"
  match_type: regex
  name: "${2}_total"
  labels:
    provider: "$1"
    kind: "$kind-$$-$9"
- match: "test.*.b.counter"
  name: glob_first
- match: "internal\\..*"
  match_type: regex
  action: drop
  name: dropped
- match: "^typed"
  match_type: regex
  match_metric_type: observer
  name: only_observers
"#,
    );
    assert_eq!(mapping.len(), 6);
    let counter = |name| show(&mapping, name, MetricClass::Counter);
    assert_eq!(
        counter("test.dispatcher.Foo.send.success"),
        "dispatcher_events_total action=send code=200 job=test_dispatcher outcome=success \
         processor=Foo"
    );
    assert_eq!(
        counter("foo.signup.facebook.failure"),
        "signup_events_total job=foo_server outcome=failure provider=facebook"
    );
    assert_eq!(counter("test.a.b.counter"), "glob_first");
    assert_eq!(counter("test.a.c.counter"), "c_total kind=c-$- provider=a");
    assert_eq!(counter("my.internal.x"), "dropped");
    assert_eq!(counter("test.web-server.foo.bar"), "test.web-server.foo.bar");
    assert_eq!(counter("typed"), "typed");
    assert_eq!(show(&mapping, "typed", MetricClass::Observer), "only_observers");
}

#[test]
fn shapes_and_times_come_from_the_rule_or_else_the_defaults() {
    let mapping = parse(
        "
defaults:
  observer_type: histogram
  histogram_options: {buckets: [.005, 1, 2.5e0, .inf]}
  summary_options: {quantiles: [{quantile: 0.9, error: 0.01}], max_age: 1m30s, age_buckets: 3}
  ttl: 1h
  match_type: regex
mappings:
- {match: a, name: a, scale: 1e-3, help: Some help., ttl: 30s}
- {match: b, name: b, observer_type: summary}
- {match: c, name: c, timer_type: histogram, buckets: [1, 2]}
- match: d
  name: d
  histogram_options: {native_histogram_bucket_factor: 1.1, native_histogram_max_buckets: 1000}
- match: e
  name: e
  observer_type: summary
  summary_options:
    quantiles:
    - {quantile: 0.99, error: 0.001}
    - {quantile: 0.5, error: 0.05}
",
    );
    let treatment =
        |name| mapping.treatment(&mapping.find(name, MetricClass::Observer).unwrap()).clone();
    let classic = Shape::Classic(vec![0.005, 1.0, 2.5]);
    assert_eq!(mapping.unmapped().shape, classic);
    assert_eq!(mapping.unmapped().expiry, Some(Duration::from_secs(3600)));
    let a = treatment("a");
    assert_eq!((a.shape, a.scale, a.help.as_str()), (classic, Some(0.001), "Some help."));
    assert_eq!(a.expiry, Some(Duration::from_secs(30)));
    let age = Duration::from_secs(90);
    assert_eq!(treatment("b").shape, Shape::Summary(vec![0.9], age));
    assert_eq!(treatment("b").expiry, Some(Duration::from_secs(3600)));
    assert_eq!(treatment("c").shape, Shape::Classic(vec![1.0, 2.0]));
    assert_eq!(treatment("d").shape, Shape::Native(3, 384));
    assert_eq!(treatment("e").shape, Shape::Summary(vec![0.5, 0.99], age));

    for empty in ["", "# nothing\n", "---\n", "mappings:\n", "{}\n", "defaults:\nmappings: []\n"] {
        let mapping = parse(empty);
        assert!(mapping.is_empty());
        assert_eq!(mapping.unmapped().shape, Treatment::default().shape);
        assert_eq!(show(&mapping, "a.b", MetricClass::Gauge), "a.b");
    }
}

#[test]
fn schemas_are_chosen_like_in_client_golang() {
    for (factor, expected) in
        [(1.1, 3), (1.0001, 8), (2.0, 0), (1.5, 1), (4.0, -1), (65536.0, -4), (1e300, -4)]
    {
        assert_eq!(schema(factor), expected, "{factor}");
    }
}

#[test]
fn anchors_and_merges_are_followed() {
    let mapping = parse(
        "
mappings:
- &base
  match: a.*
  name: a
  labels: &labels {kind: $1}
- match: b.*
  name: b
  labels: *labels
",
    );
    assert_eq!(show(&mapping, "b.x", MetricClass::Gauge), "b kind=x");
}

#[test]
fn faults_name_the_line_and_the_key() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("mapping.yml");
    for (text, parts) in [
        ("mapings: []", &["line 1", "unknown field", "mapings"][..]),
        ("mappings:\n- match: a\n  nam: b", &["line 3", "`nam: b`"]),
        ("mappings:\n- match: a", &["line 2", "`name`"]),
        ("mappings:\n- match: a.b*\n  name: a", &["line 2", "key `match`", "match_type: regex"]),
        ("mappings:\n- match: a\n  name: a b", &["line 3", "key `name`"]),
        ("mappings:\n- match: a\n  name: a\n  labels:\n    a-b: c", &["line 5", "\"a-b\""]),
        ("mappings:\n- match: (\n  match_type: regex\n  name: a", &["line 2", "unclosed group"]),
        ("mappings:\n- match: a\n  name: a\n  observer_type: histo", &["line 4", "observer_type"]),
        ("mappings:\n- match: a\n  name: a\n  ttl: 1d", &["line 4", "ttl: 1d", "30s"]),
        ("mappings:\n- match: a\n  name: a\n  ttl: -1", &["line 4", "30s"]),
        ("mappings:\n- match: a\n  name: a\n  scale: big", &["line 4", "scale: big"]),
        ("mappings:\n- match: a\n  name: a\n  scale: .inf", &["line 4", "finite"]),
        ("mappings:\n- match: a\n  name: a\n  match: b", &["line 4", "match"]),
        ("defaults:\n  observer_type: histogram\n  buckets: [2, 1]", &["line 3", "ascending"]),
        (
            "mappings:\n- match: a\n  name: a\n  observer_type: histogram\n  summary_options: {}",
            &["line 5", "summary_options"],
        ),
        (
            "mappings:\n- match: a\n  name: a\n  summary_options: {quantiles: [{quantile: 99}]}",
            &["line 4", "0 to 1"],
        ),
        ("mappings: [", &["mapping.yml"]),
        ("- a", &["line 1"]),
        ("mappings:\n- match: \"a\\.b\"\n  name: a", &["line 2"]),
    ] {
        std::fs::write(&path, text).unwrap();
        let error = Mapping::read(&path, "statsd").unwrap_err().to_string();
        assert!(error.starts_with("cannot use --statsd-mapping "), "{error}");
        for part in parts {
            assert!(error.contains(part), "no {part:?} in {error:?} of {text}");
        }
    }
    let missing =
        Mapping::read(&directory.path().join("none"), "graphite").unwrap_err().to_string();
    assert!(missing.contains("none") && missing.contains("No such file"), "{missing}");
}

#[test]
fn a_file_that_is_cut_anywhere_does_not_panic() {
    let text = "defaults:\n  ttl: 1h\n  summary_options: {max_age: 10s}\nmappings:\n- match: \
                \"a.*\"\n  name: \"x_$1\"\n  labels: {a: \"${1}\", b: &x y, c: *x}\n  scale: 1e3\n";
    for end in 0..text.len() {
        let _ = Mapping::parse(&text[..end]);
    }
}
