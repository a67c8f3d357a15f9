//! Checks that `quipu check metrics` reports the same findings, messages and exit codes as
//! promtool.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use super::Home;

/// The rules of promlint, each broken at least once.
const BROKEN: &str = "\
# TYPE no_help gauge
no_help 1
# HELP took_milliseconds H.
# TYPE took_milliseconds gauge
took_milliseconds 1
# HELP size_kibibits H.
# TYPE size_kibibits gauge
size_kibibits 1
# HELP hits H.
# TYPE hits counter
hits 1
# HELP level_total H.
# TYPE level_total gauge
level_total 1
# HELP free_total H.
# TYPE free_total untyped
free_total 1
# HELP a_bucket H.
# TYPE a_bucket gauge
a_bucket{le=\"1\"} 1
# HELP b_count H.
# TYPE b_count gauge
b_count{quantile=\"1\"} 1
# HELP b_sum H.
# TYPE b_sum counter
b_sum 1
# HELP s_count H.
# TYPE s_count summary
s_count_sum{le=\"1\"} 1
s_count_count{le=\"1\"} 1
# HELP a_gauge_level H.
# TYPE a_gauge_level gauge
a_gauge_level 1
# HELP a_counter H.
# TYPE a_counter counter
a_counter 1
# HELP x:y H.
# TYPE x:y gauge
x:y 1
# HELP camelCase H.
# TYPE camelCase gauge
camelCase{labelName=\"1\"} 1
# HELP wait_ms H.
# TYPE wait_ms gauge
wait_ms 1
# HELP wait_s_max H.
# TYPE wait_s_max gauge
wait_s_max 1
# HELP d H.
# TYPE d gauge
d 1
# HELP good_seconds H.
# TYPE good_seconds histogram
good_seconds_bucket{le=\"1\"} 1
good_seconds_bucket{le=\"+Inf\"} 1
good_seconds_sum 1
good_seconds_count 1
";

/// Returns the output of `promtool check metrics`, each line once, and its exit code.
fn promtool(text: &str) -> (BTreeSet<String>, Option<i32>) {
    let mut command = Command::new("promtool");
    command.args(["check", "metrics"]).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.stdout(Stdio::piped()).spawn().expect("promtool: make tools");
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let Output { status, stderr, .. } = child.wait_with_output().unwrap();
    let lines = String::from_utf8(stderr).unwrap();
    (lines.lines().map(str::to_owned).collect(), status.code())
}

/// Returns our findings for the rules of promlint, in promtool's form, and the exit code.
fn ours(home: &Home, text: &str) -> (BTreeSet<String>, Option<i32>) {
    const RULES: [&str; 8] = [
        "help",
        "unit",
        "total",
        "reserved",
        "type-in-name",
        "colon",
        "camel-case",
        "abbreviation",
    ];
    fs::write(home.directory().join("text"), text).unwrap();
    let output = home.quipu(&["check", "metrics", "--format", "json", "text"]).output().unwrap();
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let found = json["findings"].as_array().unwrap().iter();
    let found = found.filter(|finding| RULES.contains(&finding["rule"].as_str().unwrap()));
    let line = |finding: &Value| {
        format!("{} {}", finding["metric"].as_str().unwrap(), finding["what"].as_str().unwrap())
    };
    (found.map(line).collect(), output.status.code())
}

#[test]
fn promtool_reports_the_same_findings() {
    let home = Home::new();
    let (theirs, code) = promtool(BROKEN);
    assert!(theirs.len() >= 20 && code == Some(3), "{theirs:?}");
    assert_eq!(ours(&home, BROKEN), (theirs, code));
    // Check each family separately, because no finding may depend on another family.
    for part in BROKEN.split("# HELP").skip(1).map(|part| format!("# HELP{part}")) {
        let ours = ours(&home, &part);
        let theirs = promtool(&part);
        assert_eq!(ours.0, theirs.0, "{part}");
        // The exit code can differ, because we check more rules.
        assert!(ours.1 == theirs.1 || ours.1 == Some(3), "{part}");
    }
    // An unreadable line.
    assert_eq!((promtool("a{\n").1, ours(&home, "a{\n").1), (Some(1), Some(1)));
}

#[test]
fn findings_are_named_by_line_rule_and_reason() {
    let home = Home::new();
    let path = home.directory().join("text");
    let check = |text: &str, more: &[&str], code: i32| {
        fs::write(&path, text).unwrap();
        let arguments = [&["check", "metrics", "text"], more].concat();
        let output = home.quipu(&arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let sound = "# HELP a_total H.\n# TYPE a_total counter\na_total{x=\"1\"} 1\n";
    assert_eq!(check(sound, &[], 0), "families: 1, series: 1, nothing found\n");
    let text = check(&format!("{sound}a_total{{x=\"1\"}} 2\n"), &[], 3);
    assert!(text.starts_with("line 4: a_total: metric not unique (duplicate)\n"), "{text}");
    let text = check(&format!("{sound}a_total{{x=\"2\"}} 2\n"), &["--max-series", "1"], 3);
    assert!(
        text.contains("2 series, more than 1; the label \"x\" has 2 values (cardinality)"),
        "{text}"
    );
    check(&format!("{sound}a_total{{x=\"1\"}} 2\n"), &["--ignore", "duplicate"], 0);
    let text = check(&format!("{sound}b{{ 1\nb x\n"), &[], 1);
    assert!(text.contains("text: line 4, byte") && text.contains("text: line 5, byte"), "{text}");
    let text = check(sound, &["--read-as", "openmetrics"], 1);
    assert!(text.contains("expected `# EOF` at the end"), "{text}");
    // A line of up to 1 MiB is read. A longer line is a finding, and the others are still checked.
    let line = |bytes: usize| {
        let rest = "a_total{x=\"\"} 3".len();
        format!("{sound}a_total{{x=\"{}\"}} 3\na_total{{x=\"1\"}} 2\n", "y".repeat(bytes - rest))
    };
    let text = check(&line(1 << 20), &["--ignore", "label-long"], 3);
    assert!(text.contains("line 5: a_total: metric not unique (duplicate)"), "{text}");
    assert!(text.ends_with("series: 2, lines that cannot be read: 0, findings: 1\n"), "{text}");
    let text = check(&line((1 << 20) + 1), &["--ignore", "line-long"], 3);
    assert!(text.contains("line 5") && !text.contains("line 4"), "{text}");
    let text = check(&line((1 << 20) + 1), &["--ignore", "line-long", "--ignore", "duplicate"], 3);
    let message = "series: 1, lines that were not checked: 1, nothing found\n";
    assert!(text.ends_with(message), "{text}");
    let text = check(&line((1 << 20) + 1), &[], 1);
    let message = "line 4: the line has more than 1 MiB, and was not checked (line-long)";
    assert!(
        text.contains(message) && text.contains("line 5: a_total: metric not unique"),
        "{text}"
    );
    // The same holds for a series with many labels.
    let labels = |count: usize| (0..count).map(|n| format!("l{n}=\"x\",")).collect::<String>();
    check(&format!("{sound}b_total{{{}}} 3\n", labels(64)), &["--ignore", "help"], 3);
    let many = format!("{sound}b_total{{{}}} 3\n{{\"c d\",{}}} 3\n", labels(65), labels(65));
    let text = check(&many, &[], 1);
    let message =
        "the series or its exemplar has more than 64 labels, and was not checked (labels-many)\n";
    assert_eq!(text.matches(message).count(), 2, "{text}");
    assert!(text.contains(&format!("line 4: b_total: {message}line 5: c d: {message}")), "{text}");
    let text = check(&many, &["--ignore", "labels-many"], 3);
    assert!(text.ends_with("lines that were not checked: 2, nothing found\n"), "{text}");
    home.refuse(&["check", "metrics", "none"], 1, &["none: No such file"]);
    // The page of such a file is sound, except for facts that the file cannot contain.
    home.succeed(&["inc", "--help-text", "Jobs.", "jobs_total{queue=\"mail\"}"]);
    let text = home.succeed(&["expose", "app.quipu"]);
    fs::write(&path, text).unwrap();
    assert!(home.succeed(&["check", "metrics", "text"]).ends_with("nothing found\n"));
}
