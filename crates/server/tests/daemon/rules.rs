//! Rules for samples that come in.

use std::fs;

use serde_json::json;

use crate::common::{Daemon, Home};

/// A counter of OTLP, with an increment.
fn count(daemon: &Daemon, name: &str, instance: &str) {
    let body = json!({"resourceMetrics": [{
        "resource": {"attributes": [
            {"key": "service.name", "value": {"stringValue": "cart"}},
            {"key": "service.instance.id", "value": {"stringValue": instance}}]},
        "scopeMetrics": [{"metrics": [{"name": name, "sum": {"isMonotonic": true,
            "aggregationTemporality": 1, "dataPoints": [{"asInt": 2}]}}]}]}]})
    .to_string();
    let head = "POST /v1/metrics HTTP/1.1\r\nHost: quipu\r\nContent-Type: application/json";
    let mut client = daemon.connect();
    client.send(format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len())).unwrap();
    assert_eq!(client.answer().unwrap().status, 200);
}

#[test]
fn rules_apply_to_what_comes_in() {
    let home = Home::new();
    let rules = "
metric_relabel_configs:
- {source_labels: [__name__], regex: 'debug_.*', action: drop}
- {source_labels: [__name__], regex: 'hits(.*)', target_label: __name__, replacement: 'visits$1'}
aggregations:
- {match: 'visits_total', without: [instance], outputs: [sum]}
";
    fs::write(home.path("rules.yml"), rules).unwrap();
    let daemon = home.start(&["--rules", "rules.yml"]);
    for instance in ["a", "b"] {
        count(&daemon, "hits", instance);
        count(&daemon, "debug.hits", instance);
    }
    assert_eq!(daemon.sample("visits_total{job=\"cart\"}"), 4.0);
    let text = daemon.get("/metrics").text();
    assert!(!text.contains("debug_") && !text.contains("hits_total{i"), "{text}");
    assert_eq!(daemon.sample("quipu_rule_dropped_total{rule=\"1\",action=\"drop\"}"), 2.0);
    assert_eq!(daemon.sample("quipu_rule_changed_total{rule=\"2\",action=\"replace\"}"), 2.0);
    assert_eq!(daemon.sample("quipu_rule_aggregated_total{aggregation=\"1\"}"), 2.0);
    daemon.kill();
    let daemon = home.start(&["--rules", "rules.yml"]);
    count(&daemon, "hits", "c");
    assert_eq!(daemon.sample("visits_total{job=\"cart\"}"), 6.0);
}

#[test]
fn rules_that_cannot_be_used_are_refused_at_the_start() {
    let home = Home::new();
    fs::write(home.path("rules.yml"), "metric_relabel_configs:\n- action: rename\n").unwrap();
    let parts = ["rules.yml, line 2: key `action`: \"rename\" is unknown; give replace"];
    home.expect_refusal(&["--rules", "rules.yml"], 1, &parts);
    assert_eq!(home.files(), ["rules.yml"]);
}
