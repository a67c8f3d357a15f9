//! The derives: labels at compile time, series by group, and groups of metrics.
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

use quipu::snapshot::Label;
use quipu::{
    Counter, CounterFamily, Description, Histogram, LabelGroup, LabelValue, Metrics, Registry,
    StateSet,
};

#[derive(Debug, Clone, Copy, LabelValue)]
#[label(rename_all = "SCREAMING-KEBAB-CASE")]
enum Kind {
    Plain,
    TwoWords,
    #[label(rename = "5xx")]
    Errors,
}

#[derive(Debug, Clone, Copy, LabelValue)]
struct Port(u16);

#[derive(LabelGroup)]
struct Inner<'t> {
    host: &'t str,
    port: Port,
}

#[derive(LabelGroup)]
struct Outer<'t, V> {
    kind: Kind,
    #[label(rename = "http.ok")]
    ok: bool,
    #[label(flatten)]
    inner: Inner<'t>,
    r#type: V,
}

#[test]
fn labels_are_known_at_compile_time() {
    const LABELS: &[Label<'static>] = <Outer<'static, String> as LabelGroup>::LABELS;
    let names: Vec<_> = LABELS.iter().map(|label| label.name).collect();
    assert_eq!(names, ["kind", "http.ok", "host", "port", "type"]);
    assert_eq!(LABELS[0].values, Some(&["PLAIN", "TWO-WORDS", "5xx"][..]));
    assert_eq!(LABELS[1].values, Some(&["false", "true"][..]));
    assert_eq!(LABELS[2].values, None);
    assert_eq!(Kind::VALUES.unwrap()[Kind::Errors.index().unwrap() as usize], "5xx");
}

#[test]
fn groups_of_any_lifetime_find_their_series() {
    let registry = Registry::new();
    let family: CounterFamily<Outer<String>> =
        registry.register(Description::new("c", "A help.")).unwrap();
    for host in ["a", "b"] {
        let host = host.to_owned();
        let group = |kind| Outer {
            kind,
            ok: true,
            inner: Inner { host: &host, port: Port(80) },
            r#type: "t".to_owned(),
        };
        family.inc(&group(Kind::TwoWords));
        family.bind(&group(Kind::Plain)).inc_by(2);
    }
    let text = registry.text();
    for line in [
        "c_total{kind=\"TWO-WORDS\",http_ok=\"true\",host=\"a\",port=\"80\",type=\"t\"} 1\n",
        "c_total{kind=\"PLAIN\",http_ok=\"true\",host=\"b\",port=\"80\",type=\"t\"} 2\n",
    ] {
        assert!(text.contains(line), "{text}");
    }
}

#[derive(LabelGroup)]
struct ByKind {
    kind: Kind,
}

/// The metrics of a server.
#[derive(Metrics)]
#[metrics(prefix = "http")]
struct Server {
    /// Requests that the server
    /// handled.
    ///
    /// This paragraph is for readers of the code.
    requests: CounterFamily<ByKind>,
    /// Time to handle a request.
    #[metric(unit = "seconds", buckets = [0.1, 1.0])]
    latency: Histogram,
    #[metric(rename = "mode", help = "What it does.")]
    state: StateSet<Kind>,
    #[metrics(flatten, prefix = "db", labels(shard = "1"))]
    database: Database,
}

#[derive(Metrics)]
struct Database {
    /// Queries.
    #[metric(exemplars)]
    queries: Counter,
}

#[test]
fn a_group_of_metrics_registers_itself() {
    let registry = Registry::new();
    let server: Server = registry.metrics().unwrap();
    server.requests.inc(&ByKind { kind: Kind::Errors });
    server.latency.observe(0.5);
    server.state.set(&Kind::TwoWords);
    assert!(server.state.is_on(&Kind::TwoWords) && !server.state.is_on(&Kind::Plain));
    server.database.queries.inc();
    let expected = "\
# HELP http_requests_total Requests that the server handled.
# TYPE http_requests_total counter
http_requests_total{kind=\"5xx\"} 1
# HELP http_latency_seconds Time to handle a request.
# TYPE http_latency_seconds histogram
http_latency_seconds_bucket{le=\"0.1\"} 0
http_latency_seconds_bucket{le=\"1\"} 1
http_latency_seconds_bucket{le=\"+Inf\"} 1
http_latency_seconds_sum 0.5
http_latency_seconds_count 1
# HELP http_mode What it does.
# TYPE http_mode gauge
http_mode{http_mode=\"PLAIN\"} 0
http_mode{http_mode=\"TWO-WORDS\"} 1
http_mode{http_mode=\"5xx\"} 0
# HELP http_db_queries_total Queries.
# TYPE http_db_queries_total counter
http_db_queries_total{shard=\"1\"} 1
";
    assert_eq!(registry.text(), expected);
    assert!(registry.metrics::<Server>().err().unwrap().is_duplicate());
}
