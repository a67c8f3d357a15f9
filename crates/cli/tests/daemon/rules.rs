//! Tests of the rules for received samples.

use std::fs;

use serde_json::json;

use crate::common::{Daemon, Home};

/// Sends an increment of an OTLP counter.
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
    assert_eq!(client.read_response().unwrap().status, 200);
}

#[test]
fn rules_apply_to_all_inputs() {
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

/// Sources send totals, restart, and repeat earlier samples. The daemon is killed in between.
#[test]
fn totals_of_many_sources_are_summed() {
    let home = Home::new();
    let rules =
        "aggregations:\n- {match: 'hits_total|took', without: [instance], outputs: [sum]}\n";
    fs::write(home.path("rules.yml"), rules).unwrap();
    for (a, b, sum) in [(5, 1, 6.0), (7, 1, 8.0), (2, 4, 13.0)] {
        let daemon = home.start(&["--rules", "rules.yml"]);
        let mut text = "# TYPE hits_total counter\n".to_owned();
        for (instance, n) in [("a", a), ("b", b)] {
            text += &format!("hits_total{{instance=\"{instance}\",job=\"j\"}} {n}\n");
        }
        text += "# TYPE took histogram\n";
        for (instance, n) in [("a", a), ("b", b)] {
            for bound in ["1", "+Inf"] {
                text += &format!("took_bucket{{instance=\"{instance}\",le=\"{bound}\"}} {n}\n");
            }
        }
        for _ in 0..2 {
            let response = daemon.post_body("/api/v1/import/prometheus", &[], text.as_bytes());
            assert_eq!(response.status, 204, "{response:?}");
        }
        assert_eq!(daemon.sample("hits_total{job=\"j\"}"), sum);
        assert_eq!(daemon.sample("took_bucket{le=\"1\"}"), sum);
        assert_eq!(daemon.sample("quipu_rule_kept_total{aggregation=\"1\"}"), 0.0);
        let shown = daemon.get("/metrics").text();
        assert!(!shown.contains("instance=") && !shown.contains("not_shown{"), "{shown}");
        daemon.kill();
    }
}

#[test]
fn rules_that_cannot_be_used_are_refused_at_the_start() {
    let home = Home::new();
    fs::write(home.path("rules.yml"), "metric_relabel_configs:\n- action: rename\n").unwrap();
    let parts = ["rules.yml, line 2: key `action`: \"rename\" is unknown; give replace"];
    home.expect_refusal(&["--rules", "rules.yml"], 1, &parts);
    let rules = "aggregations:\n- {match: x, by: [], outputs: ['histogram(2, 1, 2)']}\n";
    fs::write(home.path("rules.yml"), rules).unwrap();
    let parts = ["rules.yml, line 2: key `outputs`: \"histogram(2, 1, 2)\" needs its upper bounds"];
    home.expect_refusal(&["--rules", "rules.yml"], 1, &parts);
    assert_eq!(home.files(), ["rules.yml"]);
}
