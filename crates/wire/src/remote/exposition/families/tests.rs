//! Families of each type, complete and incomplete, and lines that belong to none.

use std::format;
use std::string::{String, ToString};
use std::vec::Vec;

use super::*;
use crate::remote::exposition::MetricValue;
use crate::remote::exposition::text::{Options, TextFormat, TextReader};

/// Formats a family on one line.
fn show(family: Family<'_>) -> String {
    let mut text = format!("{} {:?}", family.name(), family.kind());
    if !family.help().is_empty() {
        text += &format!(" '{}'", family.help());
    }
    if !family.unit().is_empty() {
        text += &format!(" in {}", family.unit());
    }
    for metric in family.metrics() {
        let labels: Vec<_> =
            metric.labels().map(|(name, value)| format!("{name}={value}")).collect();
        text += &format!(" {{{}}}", labels.join(","));
        text += &match metric.value() {
            MetricValue::Counter { total, exemplar } => format!("{total}{}", shown(exemplar)),
            MetricValue::Gauge(value) | MetricValue::Unknown(value) => value.to_string(),
            MetricValue::Histogram(histogram) => {
                let buckets: Vec<_> = histogram
                    .buckets()
                    .map(|b| {
                        format!("{}:{}{}", b.upper_bound, b.cumulative_count, shown(b.exemplar))
                    })
                    .collect();
                format!("{:?} {:?} [{}]", histogram.count, histogram.sum, buckets.join(" "))
            }
            MetricValue::Summary(summary) => {
                let quantiles: Vec<_> = summary.quantiles().collect();
                format!("{:?} {:?} {quantiles:?}", summary.count, summary.sum)
            }
        };
        if let Some(time) = metric.timestamp_ms() {
            text += &format!("@{time}");
        }
        if let Some(time) = metric.created_ms() {
            text += &format!("^{time}");
        }
    }
    text.replace("Some", "")
}

fn shown(exemplar: Option<crate::remote::exposition::Exemplar<'_>>) -> String {
    exemplar.map_or_else(String::new, |exemplar| {
        let labels: Vec<_> =
            exemplar.labels().map(|(name, value)| format!("{name}={value}")).collect();
        format!("#{{{}}}{}", labels.join(","), exemplar.value)
    })
}

/// Returns the families and the errors of these lines.
fn read_limited(input: &str, format: TextFormat, limits: Limits) -> Vec<String> {
    let mut reader = TextReader::new(input.as_bytes(), Options::new(format));
    let mut families = Families::new(format, limits);
    let mut all = Vec::new();
    while let Some(item) = reader.next() {
        let item = item.unwrap();
        let error = families.push(&item, |family| all.push(show(family)));
        if let Err(error) = error {
            all.push(error.as_str().into());
        }
    }
    families.finish(|family| all.push(show(family)));
    families.finish(|family| panic!("{family:?}"));
    all
}

fn prometheus(input: &str) -> Vec<String> {
    read_limited(input, TextFormat::Prometheus, Limits::default())
}

fn openmetrics(input: &str) -> Vec<String> {
    read_limited(&format!("{input}# EOF\n"), TextFormat::OpenMetrics, Limits::default())
}

#[test]
fn families_of_each_type() {
    let text = "# HELP hits_total All\\n of them.\n# TYPE hits_total counter\n\
        hits_total{b=\"2\",a=\"1\"} 3 1000\nhits_total{a=\"1\",b=\"\"} 4\n\
        # TYPE level gauge\nlevel -1\n\
        # some words\n\
        # TYPE other untyped\nother 5\nno_type{x=\"y\"} 6\nno_type 7\nhits_created 8\n";
    assert_eq!(
        prometheus(text),
        [
            "hits_total Counter 'All\n of them.' {a=1,b=2}3@1000 {a=1}4",
            "level Gauge {}-1",
            "other Unknown {}5",
            "no_type Unknown {x=y}6 {}7",
            "hits_created Unknown {}8",
        ]
    );
    let text = "# TYPE hits counter\n# UNIT hits \nhits_total 3 # {id=\"a\"} 1\nhits_created 1.5\n\
        hits_total{k=\"v\"} 4\n\
        # TYPE build info\nbuild_info{version=\"1\"} 1\n\
        # TYPE mode stateset\nmode{mode=\"on\"} 1\nmode{mode=\"off\"} 0\n\
        # TYPE size_bytes gaugehistogram\n# UNIT size_bytes bytes\n\
        size_bytes_bucket{le=\"1\"} 1\nsize_bytes_bucket{le=\"+Inf\"} 2\n\
        size_bytes_gcount 2\nsize_bytes_gsum 5\n";
    assert_eq!(
        openmetrics(text),
        [
            "hits Counter {}3#{id=a}1^1500 {k=v}4",
            "build Info {version=1}1",
            "mode StateSet {mode=on}1 {mode=off}0",
            "size_bytes GaugeHistogram in bytes {}(2.0) (5.0) [1:1 inf:2]",
        ]
    );
}

#[test]
fn histograms_and_summaries_are_put_together() {
    // Two metrics whose samples are interleaved and in any order.
    let text = "# TYPE took histogram\n\
        took_sum{p=\"a\"} 1.5\ntook_bucket{le=\"+Inf\",p=\"a\"} 3\ntook_bucket{p=\"b\",le=\"5\"} 1\n\
        took_bucket{p=\"a\",le=\"0.5\"} 2\ntook_count{p=\"b\"} 1\ntook_bucket{p=\"b\",le=\"1e1\"} 1\n\
        took_bucket{p=\"a\",le=\"0.50\"} 9\ntook_bucket{p=\"a\",le=\"-1\"} 0\n\
        # TYPE size summary\nsize{quantile=\"0.9\"} 7\nsize{quantile=\"0.5\"} 3\n\
        size_count 10\nsize_sum 33\nsize_count{x=\"y\"} 1\nsize_created 5\n";
    assert_eq!(
        prometheus(text),
        [
            "took Histogram {p=a}(3.0) (1.5) [-1:0 0.5:2 inf:3] {p=b}(1.0) None [5:1 10:1]",
            "size Summary {}(10.0) (33.0) [(0.5, 3.0), (0.9, 7.0)]^5000 {x=y}(1.0) None []",
        ]
    );
    let text = "# TYPE took histogram\ntook_bucket{le=\"1.0\"} 2 # {id=\"x\"} 0.5\n\
        took_bucket{le=\"+Inf\"} 3\ntook_created 7\n";
    assert_eq!(openmetrics(text), ["took Histogram {}(3.0) None [1:2#{id=x}0.5 inf:3]^7000"]);
}

#[test]
fn many_metrics_are_found_again() {
    let mut text = String::from("# TYPE took histogram\n");
    for part in ["_sum", "_count"] {
        for n in 0..100 {
            text += &format!("took{part}{{n=\"{n}\",c=\"x\"}} {n}\n");
        }
    }
    let shown = prometheus(&text);
    assert_eq!(shown.len(), 1);
    for n in 0..100 {
        assert!(shown[0].contains(&format!(" {{c=x,n={n}}}({n}.0) ({n}.0) []")), "{n}");
    }
}

#[test]
fn names_and_labels_in_quotes() {
    let text = "# TYPE \"my.hits\" counter\n# HELP \"my.hits\" x\n\
        {\"my.hits\",\"a \\\"b\\\"\"=\"c\\nd\"} 1\n{\"my.hits\"} 2\n";
    assert_eq!(prometheus(text), ["my.hits Counter 'x' {a \"b\"=c\nd}1 {}2"]);
}

#[test]
fn lines_that_do_not_belong() {
    for (text, expected) in [
        ("a 1\na 2\n", &["duplicate", "a Unknown {}1"][..]),
        ("a{b=\"\"} 1\na 2\n", &["duplicate", "a Unknown {}1"]),
        ("# TYPE a gauge\n# TYPE a counter\na 1\n", &["duplicate", "a Gauge {}1"]),
        ("# HELP a x\n# HELP a y\na 1\n", &["duplicate", "a Unknown 'x' {}1"]),
        ("a 1\n# TYPE a gauge\na 2\n", &["misplaced", "duplicate", "a Unknown {}1"]),
        ("# TYPE a histogram\na 1\na_sum 2\n", &["unexpected", "a Histogram {}None (2.0) []"]),
        ("# TYPE a histogram\na_bucket 1\n", &["malformed_bound"]),
        ("# TYPE a histogram\na_bucket{le=\"x\"} 1\n", &["malformed_bound"]),
        ("# TYPE a summary\na 1\na{quantile=\"NaN\"} 1\n", &["malformed_bound", "malformed_bound"]),
        ("# TYPE a histogram\na_sum 1\na_sum 2\n", &["duplicate", "a Histogram {}None (1.0) []"]),
        ("# TYPE a counter\na_created 1\n", &["a_created Unknown {}1"]),
        ("# TYPE a counter\n# TYPE b gauge\nb 1\n", &["b Gauge {}1"]),
        ("# TYPE a counter\na 1\nb 2\na 3\n", &["a Counter {}1", "b Unknown {}2", "a Unknown {}3"]),
        ("a{b=\"1\",\"b\\\\\"=\"2\",\"b\\x\"=\"\"} 1\n", &["a Unknown {b=1,b\\=2}1"]),
        ("", &[]),
    ] {
        assert_eq!(prometheus(text), expected, "{text}");
    }
}

#[test]
fn limits_are_kept() {
    let limited = |text, samples, bytes| {
        read_limited(text, TextFormat::Prometheus, Limits { samples, bytes })
    };
    let text = "a{x=\"1\"} 1\na{x=\"2\"} 2\na{x=\"3\"} 3\nb 4\n";
    assert_eq!(limited(text, 2, 100), ["too_large", "a Unknown {x=1}1 {x=2}2", "b Unknown {}4"]);
    assert_eq!(limited(text, 9, 5), ["too_large", "a Unknown {x=1}1 {x=2}2", "b Unknown {}4"]);
    // A metric that is found again needs no more room, but its labels are read once more.
    let text = "# TYPE a summary\na_sum{x=\"1\"} 1\na_count{x=\"1\"} 2\n";
    assert_eq!(limited(text, 2, 5), ["a Summary {x=1}(2.0) (1.0) []"]);
    assert_eq!(limited("long_name 1\nb 2\n", 9, 3), ["too_large", "b Unknown {}2"]);
}

#[test]
fn the_splits_of_a_text_into_labels_have_different_hashes() {
    let text = "abcdefgh";
    let secrets = Secrets::default();
    let mut store = Store::new(Limits::default());
    let splits = (1..text.len()).map(|at| [text.split_at(at), ("x", "y")]);
    let orders = [[("a", "b"), ("c", "d")], [("c", "d"), ("a", "b")], [("a", "d"), ("c", "b")]];
    let mut hashes: Vec<_> = splits
        .chain(orders)
        .map(|labels| {
            let start = store.pairs.len();
            for (name, value) in labels {
                let pair = (store.add_str(name).unwrap(), store.add_str(value).unwrap());
                store.pairs.push(pair);
            }
            hash(&store, &secrets, Span::since(start, &store.pairs))
        })
        .collect();
    let count = hashes.len();
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), count);
}

#[test]
fn a_line_that_is_omitted_changes_nothing() {
    assert_eq!(prometheus("a 1 100\na 2 200\n"), ["duplicate", "a Unknown {}1@100"]);
    let text = "# TYPE a counter\na_total 1 # {t=\"b\"} 1\na_total 2 9 # {t=\"c\"} 2\n\
        a_created 4\na_created 5 6\n";
    assert_eq!(openmetrics(text), ["duplicate", "duplicate", "a Counter {}1#{t=b}1^4000"]);
    // An exemplar beyond the limit drops its line, and its room is free for the next one.
    let limited = |text: &str, bytes| {
        read_limited(text, TextFormat::OpenMetrics, Limits { samples: 9, bytes })
    };
    let text = "# TYPE a counter\na_total 1 7 # {t=\"long\"} 1\na_total 2\n# EOF\n";
    assert_eq!(limited(text, 5), ["too_large", "a Counter {}2"]);
    let text = "# TYPE a histogram\na_bucket{le=\"1\"} 1 # {t=\"long\"} 1\n# EOF\n";
    assert_eq!(limited(text, 5), ["too_large"]);
    let text = "# TYPE a counter\na_total 1\na_total 2 # {t=\"b\"} 1\n\
        a_total{c=\"d\"} 3 # {t=\"e\"} 1\n# EOF\n";
    assert_eq!(limited(text, 5), ["duplicate", "a Counter {}1 {c=d}3#{t=e}1"]);
}

#[test]
fn zero_is_one_bound() {
    let text = "# TYPE a histogram\na_bucket{le=\"0\"} 5\na_bucket{le=\"-0\"} 6\n";
    assert_eq!(prometheus(text), ["a Histogram {}None None [0:5]"]);
    let text = "# TYPE a histogram\na_bucket{le=\"-0.0\"} 5\n";
    assert_eq!(prometheus(text), ["a Histogram {}None None [0:5]"]);
}

#[test]
fn suffixes_of_counters_are_of_openmetrics_alone() {
    let text = "# TYPE a counter\na 1\na_total 2\na_created 3\n";
    let apart = ["a Counter {}1", "a_total Unknown {}2", "a_created Unknown {}3"];
    assert_eq!(prometheus(text), apart);
    assert_eq!(openmetrics(text), ["duplicate", "a Counter {}1^3000"]);
    assert_eq!(openmetrics("# TYPE a counter\na_created 1\n"), [""; 0]);
    assert_eq!(prometheus("# TYPE a_total counter\na_total 2\n"), ["a_total Counter {}2"]);
}

#[test]
fn a_creation_that_is_not_a_number_is_omitted() {
    let text = "# TYPE a counter\na_total 1\na_created NaN\n";
    assert_eq!(openmetrics(text), ["a Counter {}1"]);
    assert_eq!(openmetrics("# TYPE a histogram\na_created NaN\n"), [""; 0]);
}
