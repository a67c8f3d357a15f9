//! Tests of the resources in the OTLP output. Each program is a resource, and another daemon
//! converts it back to the same labels.

use std::collections::BTreeSet;

use serde_json::json;

use crate::common::{Daemon, Home, wait_until};
use crate::otlp_output::{Point, Receiver, Reply, Request, shown, text};

/// Labels, the labels that stay with the points, and the resource.
const SERIES: [(&str, &str, &str); 7] = [
    ("job=\"app\",n=\"1\"", "{n=\"1\"}", "service.name=\"app\""),
    ("instance=\"h:1\",job=\"app\"", "", "service.name=\"app\",service.instance.id=\"h:1\""),
    (
        "a=\"2\",instance=\"h:1\",job=\"app\",z=\"2\"",
        "{a=\"2\",z=\"2\"}",
        "service.name=\"app\",service.instance.id=\"h:1\"",
    ),
    ("job=\"shop/cart/a\"", "", "service.namespace=\"shop\",service.name=\"cart/a\""),
    ("job=\"/a\",n=\"2\"", "{n=\"2\"}", "service.name=\"/a\""),
    ("instance=\"h:2\"", "", "service.instance.id=\"h:2\""),
    ("n=\"3\"", "{n=\"3\"}", ""),
];

/// Returns the first matching point.
fn find(requests: &[Request], is_it: impl Fn(&Point) -> bool) -> Option<Point> {
    let mut points = requests.iter().flat_map(|request| &request.points);
    points.find(|point| is_it(point)).cloned()
}

#[test]
fn each_program_is_a_resource_and_its_labels_come_back() {
    for temporality in ["cumulative", "delta"] {
        let home = Home::new();
        let other = home.start(&["--state", "other.quipu"]);
        let url = format!("http://{}", other.address());
        let receiver = Receiver::start(&home, |_, _| Reply::Taken);
        let flags = ["--otlp", &receiver.url, "--otlp", &url, "--otlp-interval", "100ms"];
        let daemon = home.start(&[&flags[..], &["--otlp-temporality", temporality]].concat());
        let import = |factor: usize| {
            let mut all = String::from("# TYPE level gauge\n# TYPE hits_total counter\n");
            for (n, (labels, ..)) in SERIES.iter().enumerate() {
                let value = factor * (n + 1);
                all += &format!("level{{{labels}}} {value}\nhits_total{{{labels}}} {value}\n");
            }
            text(&daemon, &all);
        };
        for factor in [1, 1000] {
            import(factor);
            add_of_programs(&daemon);
            wait_until("the same series", || shown(&other) == shown(&daemon));
        }
        let lines = shown(&other);
        let all = SERIES.iter().flat_map(|(labels, ..)| {
            ["level", "hits_total"].map(|name| format!("{name}{{{labels}}} "))
        });
        let has = |start: &String| lines.iter().any(|line| line.starts_with(start));
        assert!(all.clone().all(|start| has(&start)), "{lines:#?}");
        // Two of the programs also expose a counter, and a histogram of three lines and two
        // buckets.
        assert_eq!(lines.len(), all.count() + 2 * (1 + 4), "{lines:#?}");
        for (n, (_, labels, resource)) in SERIES.iter().enumerate() {
            let (series, value) = (format!("level{labels}"), format!("gauge {}.0", 1000 * (n + 1)));
            let is_it = |point: &Point| point.series == series && point.value == value;
            let mut point = None;
            wait_until(&value, || {
                point = receiver.see(|requests| find(requests, is_it));
                point.is_some()
            });
            assert_eq!(point.unwrap().resource, *resource);
        }
        // The daemon's own series do not belong to a program.
        receiver.see(|requests| {
            let points = requests.iter().flat_map(|request| &request.points);
            let mut own = points.filter(|point| point.series.starts_with("quipu_")).peekable();
            assert!(own.peek().is_some() && own.all(|point| point.resource.is_empty()));
        });
        daemon.stop();
        other.stop();
    }
}

/// Adds to the counters and histograms of two programs.
pub(crate) fn add_of_programs(daemon: &Daemon) {
    let attribute = |key: &str, text: &str| json!({"key": key, "value": {"stringValue": text}});
    let of_program = |name: &str| {
        let program = [
            attribute("service.namespace", "shop"),
            attribute("service.name", name),
            attribute("service.instance.id", "i-1"),
        ];
        let sold = json!({"asInt": 2, "attributes": [attribute("kind", "tea")]});
        let waited = json!({"count": 3, "sum": 1.5, "bucketCounts": [1, 2],
            "explicitBounds": [0.5], "attributes": [attribute("path", "/")]});
        let metrics = json!([
            {"name": "sold", "sum": {"aggregationTemporality": 1, "isMonotonic": true,
                "dataPoints": [sold]}},
            {"name": "waited", "unit": "s",
                "histogram": {"aggregationTemporality": 1, "dataPoints": [waited]}},
        ]);
        json!({"resource": {"attributes": program}, "scopeMetrics": [{"metrics": metrics}]})
    };
    let request = json!({"resourceMetrics": [of_program("cart"), of_program("till")]});
    let fields = [("Content-Type", "application/json")];
    let response = daemon.post_body("/v1/metrics", &fields, request.to_string().as_bytes());
    assert_eq!((response.status, response.text().as_str()), (200, "{}"));
}

#[test]
fn labels_take_precedence_over_common_attributes() {
    let home = Home::new();
    let other = home.start(&["--state", "other.quipu", "--otlp-promote", "deployment.zone"]);
    let receiver = Receiver::start(&home, |_, _| Reply::Taken);
    let url = format!("http://{}", other.address());
    let mut flags = vec!["--otlp", &url, "--otlp", &receiver.url, "--otlp-interval", "100ms"];
    for attribute in ["deployment.zone=a, b", "service.namespace=east", "service.name=shop"] {
        flags.extend(["--otlp-resource", attribute]);
    }
    let daemon = home.start(&flags);
    // If the receiver would merge two series, only one is sent.
    text(
        &daemon,
        "# TYPE level gauge\nlevel{job=\"own\",instance=\"i\"} 1\n\
         level{job=\"east/shop\",n=\"1\"} 2\nlevel{n=\"1\"} 2\nlevel{instance=\"i\"} 3\n",
    );
    let zone = "deployment_zone=\"a, b\"";
    let expected: BTreeSet<String> = [
        format!("level{{{zone},instance=\"i\",job=\"own\"}} 1"),
        format!("level{{{zone},job=\"east/shop\",n=\"1\"}} 2"),
        format!("level{{{zone},instance=\"i\",job=\"east/shop\"}} 3"),
        // The `target_info` of each program.
        format!("target_info{{{zone},instance=\"i\",job=\"own\"}} 1"),
        format!("target_info{{{zone},job=\"east/shop\"}} 1"),
        format!("target_info{{{zone},instance=\"i\",job=\"east/shop\"}} 1"),
    ]
    .into();
    wait_until("all series", || shown(&other) == expected);
    for receiver in [&url, &receiver.url] {
        let labels = format!("receiver=\"{receiver}/v1/metrics\",reason=\"invalid\"");
        let name = format!("quipu_otlp_output_points_dropped_total{{{labels}}}");
        wait_until("one is omitted", || daemon.sample(&name) > 0.0);
    }
    let given = "deployment.zone=\"a, b\"";
    let east = "service.namespace=\"east\",service.name=\"shop\"";
    for (value, resource) in [
        ("gauge 1.0", format!("{given},service.name=\"own\",service.instance.id=\"i\"")),
        ("gauge 2.0", format!("{given},{east}")),
        ("gauge 3.0", format!("{given},{east},service.instance.id=\"i\"")),
    ] {
        let is_it = |point: &Point| point.series.starts_with("level") && point.value == value;
        let mut point = None;
        wait_until(value, || {
            point = receiver.see(|requests| find(requests, is_it));
            point.is_some()
        });
        assert_eq!(point.unwrap().resource, resource);
    }
}

#[test]
fn a_request_has_each_of_many_programs_once() {
    let home = Home::new();
    // The receiver asserts that a request contains each resource once.
    let receiver = Receiver::start(&home, |_, _| Reply::Taken);
    let other = home.start(&["--state", "other.quipu"]);
    let url = format!("http://{}", other.address());
    let daemon = home.start(&["--otlp", &receiver.url, "--otlp", &url, "--otlp-interval", "100ms"]);
    let mut all = String::new();
    for name in ["a", "b", "c", "d"] {
        all += &format!("# TYPE {name}_total counter\n");
        for n in 0..900 {
            all += &format!("{name}_total{{instance=\"h{n}\",job=\"app\"}} {}\n", n + 1);
        }
    }
    text(&daemon, &all);
    let is_full = |request: &Request| request.points.len() == 2000;
    wait_until("full requests", || {
        receiver.see(|requests| requests.iter().filter(|request| is_full(request)).count() > 1)
    });
    wait_until("the same series", || shown(&other) == shown(&daemon));
    assert_eq!(shown(&other).len(), 3600);
    receiver.see(|requests| {
        let points = requests.iter().flat_map(|request| &request.points);
        let mut points = points.filter(|point| point.series == "c_total");
        assert!(points.all(|point| {
            let n = point.number as usize - 1;
            let instance = format!("service.instance.id=\"h{n}\"");
            point.resource == format!("service.name=\"app\",{instance}")
        }));
    });
}
