//! The additional rules about a family: values, labels, the number of series.

use std::collections::{BTreeMap, HashSet};

use quipu_wire::remote::exposition::{Family, FamilyMetric, Histogram, MetricValue};

use super::findings::Rule;

/// Checks a family.
pub(super) fn check(
    name: &str,
    family: Family<'_>,
    max_series: usize,
    add: &mut impl FnMut(Rule, String),
) {
    if !is_plain(name) {
        let message = "its name needs quotes, which only Prometheus 3 and OpenMetrics 2 read";
        add(Rule::Quoted, message.into());
    }
    if family.help().contains(|c: char| c.is_control() && c != '\n') {
        add(Rule::Control, "its help text has control characters".into());
    }
    if !family.unit().is_empty() && !family.name().ends_with(&format!("_{}", family.unit())) {
        let unit = family.unit();
        add(
            Rule::UnitSuffix,
            format!("its unit is {unit:?}, so its name should end in \"_{unit}\""),
        );
    }
    label_names(family, add);
    if family.metrics().len() > max_series {
        cardinality(family, max_series, add);
    }
    let mut bounds = None;
    for metric in family.metrics() {
        match metric.value() {
            MetricValue::Counter { total, .. } if total.is_nan() || total < 0.0 => {
                add(Rule::CounterValue, format!("a counter should not be {total}"));
            }
            MetricValue::Histogram(histogram) => {
                let metric_bounds: Vec<u64> =
                    histogram.buckets().map(|bucket| bucket.upper_bound.to_bits()).collect();
                if *bounds.get_or_insert_with(|| metric_bounds.clone()) != metric_bounds {
                    let message = "its series have different buckets, and cannot be added up";
                    add(Rule::Buckets, message.into());
                }
                buckets(histogram, add);
            }
            MetricValue::Summary(summary) => {
                if summary.quantiles().any(|(quantile, _)| !(0.0..=1.0).contains(&quantile)) {
                    add(Rule::Quantile, "a quantile should be from 0 to 1".into());
                }
                if summary.count.is_none() || summary.sum.is_none() {
                    add(Rule::Parts, "a summary should have a _sum and a _count".into());
                }
            }
            _ => {}
        }
    }
}

fn buckets(histogram: Histogram<'_>, add: &mut impl FnMut(Rule, String)) {
    let mut add = |message: &str| add(Rule::Buckets, message.to_owned());
    if histogram.sum.is_none() && histogram.native.is_none() {
        add("it has no _sum, so that averages are not known");
    }
    let mut before = 0.0;
    for bucket in histogram.buckets() {
        if bucket.cumulative_count.is_nan() || bucket.cumulative_count < before {
            add("the counts of its buckets fall with rising bounds, but each has all those below");
        }
        before = bucket.cumulative_count;
    }
    match histogram.buckets().last() {
        Some(last) if last.upper_bound == f64::INFINITY => {
            if histogram.count.is_some_and(|count| count != last.cumulative_count) {
                add("its _count differs from its bucket le=\"+Inf\"");
            }
        }
        None if histogram.native.is_some() => {}
        _ => add("it has no bucket le=\"+Inf\""),
    }
}

fn label_names(family: Family<'_>, add: &mut impl FnMut(Rule, String)) {
    let names = |metric: FamilyMetric<'_>| {
        metric.labels().map(|(name, _)| name.to_owned()).collect::<Vec<_>>()
    };
    let mut first: Option<Vec<String>> = None;
    let mut seen = HashSet::new();
    for metric in family.metrics() {
        for (name, _) in metric.labels() {
            if !seen.contains(name) {
                seen.insert(name.to_owned());
                label_name(name, add);
            }
        }
        let expected = first.get_or_insert_with(|| names(metric));
        let is_same = expected.len() == metric.labels().len()
            && expected.iter().zip(metric.labels()).all(|(expected, (name, _))| expected == name);
        if !is_same {
            let list = |names: &[String]| match names {
                [] => "none".to_owned(),
                names => names.join(", "),
            };
            let message = "its series have different labels";
            add(
                Rule::LabelNames,
                format!("{message}: {}; {}", list(expected), list(&names(metric))),
            );
            return;
        }
    }
}

fn label_name(name: &str, add: &mut impl FnMut(Rule, String)) {
    if name.starts_with("__") {
        add(Rule::LabelReserved, format!("labels that begin with \"__\" are removed: {name:?}"));
    }
    if matches!(name, "job" | "instance") {
        let message = "a scraper sets this label, and renames that of the metric";
        add(Rule::LabelReserved, format!("{message} to \"exported_{name}\": {name:?}"));
    }
    if !is_plain(name) {
        let message = "a label's name needs quotes, which only Prometheus 3 reads";
        add(Rule::Quoted, format!("{message}: {name:?}"));
    }
}

/// Adds a finding that names the label with the most values.
fn cardinality(family: Family<'_>, max_series: usize, add: &mut impl FnMut(Rule, String)) {
    let mut values: BTreeMap<&str, HashSet<&str>> = BTreeMap::new();
    for (name, value) in family.metrics().flat_map(FamilyMetric::labels) {
        values.entry(name).or_default().insert(value);
    }
    let most = values.iter().max_by_key(|(_, values)| values.len());
    let largest = most.map_or_else(String::new, |(name, values)| {
        format!("; the label {name:?} has {} values", values.len())
    });
    let count = family.metrics().len();
    add(Rule::Cardinality, format!("{count} series, more than {max_series}{largest}"));
}

/// Returns whether a name contains only characters that were allowed before Prometheus 3.
fn is_plain(name: &str) -> bool {
    let is_first = name.as_bytes().first().is_some_and(|byte| !byte.is_ascii_digit());
    is_first && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_:".contains(&byte))
}
