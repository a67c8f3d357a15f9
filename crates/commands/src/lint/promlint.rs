//! The rules of Prometheus' promlint, with its messages. The caller checks whether a family
//! declares a help, and whether its series are unique.
//!
//! <https://github.com/prometheus/client_golang/tree/main/prometheus/testutil/promlint>

use quipu_wire::remote::exposition::{Family, FamilyType};

use super::findings::Rule;
use super::units::{ABBREVIATIONS, find_unit};

/// Checks a family.
pub(super) fn check(name: &str, family: Family<'_>, add: &mut impl FnMut(Rule, &str)) {
    let kind = family.kind();
    if let Some((unit, base)) = find_unit(name).filter(|(unit, base)| unit != base) {
        add(Rule::Unit, &format!("use base unit {base:?} instead of {unit:?}"));
    }
    let is_typed = kind != FamilyType::Unknown;
    match (kind, name.ends_with("_total")) {
        (FamilyType::Counter, false) => {
            add(Rule::Total, "counter metrics should have \"_total\" suffix");
        }
        (FamilyType::Counter | FamilyType::Unknown, _) | (_, false) => {}
        (_, true) => add(Rule::Total, "non-counter metrics should not have \"_total\" suffix"),
    }
    if is_typed {
        reserved(name, family, add);
    }
    let lower = name.to_ascii_lowercase();
    let has =
        |word: &str| lower.contains(&format!("_{word}_")) || lower.ends_with(&format!("_{word}"));
    if let Some(word) = type_name(kind).filter(|word| has(word)) {
        add(Rule::TypeInName, &format!("metric name should not include type '{word}'"));
    }
    if name.contains(':') {
        add(Rule::Colon, "metric names should not contain ':'");
    }
    if is_camel(name) {
        add(Rule::CamelCase, "metric names should be written in 'snake_case' not 'camelCase'");
    }
    let mut labels = family.metrics().flat_map(|metric| metric.labels());
    if labels.any(|(name, _)| is_camel(name)) {
        add(Rule::CamelCase, "label names should be written in 'snake_case' not 'camelCase'");
    }
    if ABBREVIATIONS.iter().any(|word| has(word)) {
        add(Rule::Abbreviation, "metric names should not contain abbreviated units");
    }
}

fn reserved(name: &str, family: Family<'_>, add: &mut impl FnMut(Rule, &str)) {
    let is_histogram = matches!(family.kind(), FamilyType::Histogram);
    let is_summary = family.kind() == FamilyType::Summary;
    if !is_histogram && name.ends_with("_bucket") {
        add(Rule::Reserved, "non-histogram metrics should not have \"_bucket\" suffix");
    }
    for suffix in ["_count", "_sum"] {
        if !is_histogram && !is_summary && name.ends_with(suffix) {
            let message = "non-histogram and non-summary metrics should not have";
            add(Rule::Reserved, &format!("{message} {suffix:?} suffix"));
        }
    }
    let has = |label: &str| {
        let mut labels = family.metrics().flat_map(|metric| metric.labels());
        labels.any(|(name, _)| name == label)
    };
    if !is_histogram && has("le") {
        add(Rule::Reserved, "non-histogram metrics should not have \"le\" label");
    }
    if !is_summary && has("quantile") {
        add(Rule::Reserved, "non-summary metrics should not have \"quantile\" label");
    }
}

/// Returns the word for a type in names of metrics. Only OpenMetrics supports infos and state sets.
fn type_name(kind: FamilyType) -> Option<&'static str> {
    match kind {
        FamilyType::Counter => Some("counter"),
        FamilyType::Gauge => Some("gauge"),
        FamilyType::Histogram => Some("histogram"),
        FamilyType::GaugeHistogram => Some("gauge_histogram"),
        FamilyType::Summary => Some("summary"),
        _ => None,
    }
}

/// Returns whether an upper case letter follows a lower case letter.
fn is_camel(name: &str) -> bool {
    name.as_bytes()
        .windows(2)
        .any(|pair| pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase())
}
