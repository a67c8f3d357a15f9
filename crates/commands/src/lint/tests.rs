//! Tests of each rule of the linter, with expositions that follow or break it.

use super::*;

/// Checks an exposition without unreadable lines. Returns the metrics and rules of the findings.
fn find(text: &str) -> Vec<(String, Rule)> {
    let findings = check(&Text::of_bytes(text.into()), 2, &[]);
    assert!(findings.lines().is_empty(), "{findings:?}");
    findings.all().map(|finding| (finding.metric, finding.rule)).collect()
}

/// Returns samples after the help and the type of their family.
fn family(name: &str, kind: &str, samples: &str) -> String {
    format!("# HELP {name} Help.\n# TYPE {name} {kind}\n{samples}\n")
}

#[track_caller]
fn expect(text: &str, expected: &[(&str, Rule)]) {
    let expected: Vec<_> =
        expected.iter().map(|(name, rule)| ((*name).to_owned(), *rule)).collect();
    assert_eq!(find(text), expected, "{text}");
}

#[test]
fn sound_metrics_have_no_findings() {
    expect(&family("a_total", "counter", "a_total{x=\"1\"} 1\na_total{x=\"2\"} 2"), &[]);
    expect(&family("b", "gauge", "b NaN"), &[]);
    expect(&family("c", "untyped", "c -1"), &[]);
    let buckets = "d_bucket{le=\"1\"} 1\nd_bucket{le=\"+Inf\"} 2\nd_sum 3\nd_count 2";
    expect(&family("d", "histogram", buckets), &[]);
    expect(&family("e", "summary", "e{quantile=\"0.5\"} 1\ne_sum 3\ne_count 2"), &[]);
    let counter = family("f", "counter", "f_total 1\nf_created 7");
    expect(&format!("{counter}{}# EOF\n", family("g", "info", "g_info{v=\"1\"} 1")), &[]);
    let unit =
        "# HELP h_seconds Help.\n# TYPE h_seconds gauge\n# UNIT h_seconds seconds\nh_seconds 1";
    expect(&format!("{unit}\n# EOF\n"), &[]);
}

#[test]
fn values_are_checked_by_the_type_of_their_family() {
    let histogram = |samples: &str| family("h", "histogram", samples);
    let wrong = [("h", Rule::Buckets)];
    expect(&histogram("h_bucket{le=\"1\"} 1\nh_sum 1\nh_count 1"), &wrong);
    expect(&histogram("h_bucket{le=\"1\"} 2\nh_bucket{le=\"+Inf\"} 1\nh_sum 1\nh_count 1"), &wrong);
    expect(&histogram("h_bucket{le=\"+Inf\"} 1\nh_sum 1\nh_count 2"), &wrong);
    expect(&histogram("h_bucket{le=\"+Inf\"} 1\nh_count 1"), &wrong);
    expect(&histogram("h_sum 1\nh_count 2"), &wrong);
    let one = "h_bucket{x=\"1\",le=\"1\"} 1\nh_bucket{x=\"1\",le=\"+Inf\"} 1\nh_sum{x=\"1\"} 1\n";
    let two = "h_bucket{x=\"2\",le=\"2\"} 1\nh_bucket{x=\"2\",le=\"+Inf\"} 1\nh_sum{x=\"2\"} 1";
    expect(&histogram(&format!("{one}{two}")), &wrong);
    expect(
        &histogram("h_bucket{le=\"x\"} 1\nh_bucket{le=\"+Inf\"} 1\nh_sum 1"),
        &[("h_bucket", Rule::Bound)],
    );
    expect(
        &family("s", "summary", "s{quantile=\"95\"} 1\ns_sum 1\ns_count 1"),
        &[("s", Rule::Quantile)],
    );
    expect(&family("s", "summary", "s{quantile=\"0.5\"} 1"), &[("s", Rule::Parts)]);
    expect(&family("a_total", "counter", "a_total -1"), &[("a_total", Rule::CounterValue)]);
    expect(&family("a", "gauge", "a 1 1700000000000"), &[("a", Rule::Timestamp)]);
}

#[test]
fn labels_and_names_are_checked() {
    let gauge = |samples: &str| family("a", "gauge", samples);
    expect(&gauge("a{x=\"\"} 1"), &[("a", Rule::LabelEmpty)]);
    expect(&gauge(&format!("a{{x=\"{}\"}} 1", "v".repeat(257))), &[("a", Rule::LabelLong)]);
    expect(&gauge("a{x=\"\u{1b}[2J\"} 1"), &[("a", Rule::Control)]);
    expect(&gauge("a{x=\"1\"} 1\na{y=\"1\"} 1"), &[("a", Rule::LabelNames)]);
    expect(
        &gauge("a{job=\"x\",__y=\"1\"} 1"),
        &[("a", Rule::LabelReserved), ("a", Rule::LabelReserved)],
    );
    expect(&gauge("a{x=\"1\",y=\"2\"} 1\na{y=\"2\",x=\"1\"} 1"), &[("a", Rule::Duplicate)]);
    expect(&gauge("a{x=\"1\"} 1\na{x=\"2\"} 1\na{x=\"3\"} 1"), &[("a", Rule::Cardinality)]);
    let quoted = "# HELP \"a.b\" Help.\n# TYPE \"a.b\" gauge\n{\"a.b\",\"c d\"=\"1\"} 1\n";
    expect(quoted, &[("a.b", Rule::Quoted), ("a.b", Rule::Quoted)]);
    expect("# TYPE a gauge\na 1\n", &[("a", Rule::Help)]);
    expect("# HELP a Help.\na 1\n", &[("a", Rule::Type)]);
}

#[test]
fn names_and_units_of_all_families_are_compared() {
    let (a, b) = (family("a", "gauge", "a{x=\"1\"} 1"), family("b", "gauge", "b 1"));
    expect(&format!("{a}{b}a{{x=\"2\"}} 1\n"), &[("a", Rule::Split)]);
    expect(&format!("# TYPE a gauge\n{a}"), &[("a", Rule::Misplaced)]);
    let summary = family("x", "summary", "x_sum 1\nx_count 1");
    let other = family("x_count", "untyped", "x_count 2");
    expect(&format!("{other}{summary}"), &[("x", Rule::Collision)]);
    let seconds = family("x_seconds", "gauge", "x_seconds 1");
    let millis = family("x_milliseconds", "gauge", "x_milliseconds 1");
    let expected = [("x_milliseconds", Rule::Unit), ("x_milliseconds", Rule::MixedUnits)];
    expect(&format!("{seconds}{millis}"), &expected);
    let unit = "# HELP h Help.\n# TYPE h gauge\n# UNIT h seconds\nh 1\n# EOF\n";
    expect(unit, &[("h", Rule::UnitSuffix)]);
}

#[test]
fn each_line_that_cannot_be_read_is_listed() {
    let findings = check(&Text::of_bytes(b"a{ 1\nb 1\n\xff 1\nc x\n".into()), 2, &[Rule::Help]);
    let lines: Vec<_> = findings.lines().iter().map(|line| line.line).collect();
    assert_eq!((lines, findings.outcome()), (vec![1, 3, 4], Outcome::Unreadable));
    let rules: Vec<_> = findings.all().map(|finding| finding.rule).collect();
    assert_eq!(rules, [Rule::Type]);
    let mut text = Text::of_bytes(b"# TYPE a gauge\n# HELP a Help.\na 1\n".into());
    assert_eq!(check(&text, 2, &[]).outcome(), Outcome::Sound);
    text.format = TextFormat::OpenMetrics;
    let findings = check(&text, 2, &[]);
    assert!(findings.lines()[0].message.contains("# EOF"), "{findings:?}");
    text.content_type = Some(String::new());
    assert_eq!(
        check(&text, 2, &[]).all().map(|finding| finding.rule).next(),
        Some(Rule::ContentType)
    );
}
