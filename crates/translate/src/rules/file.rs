//! The YAML schema of rule files. Relabelling uses the same keys as Prometheus.

use serde::Deserialize;
use serde_saphyr::Spanned;

/// A file with rules for received samples. An unknown key is an error.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) metric_relabel_configs: Option<Vec<Spanned<RelabelConfig>>>,
    pub(super) aggregations: Option<Vec<Spanned<AggregationConfig>>>,
}

/// A file with rules for sent samples.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WriteFile {
    pub(super) write_relabel_configs: Option<Vec<Spanned<RelabelConfig>>>,
}

/// An entry of `metric_relabel_configs` or `write_relabel_configs`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RelabelConfig {
    pub(super) source_labels: Option<Vec<String>>,
    pub(super) separator: Option<String>,
    pub(super) regex: Option<String>,
    pub(super) modulus: Option<u64>,
    pub(super) target_label: Option<String>,
    pub(super) replacement: Option<String>,
    pub(super) action: Option<String>,
}

/// An entry of `aggregations`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AggregationConfig {
    /// A regular expression that must match the whole name.
    #[serde(rename = "match")]
    pub(super) pattern: String,
    pub(super) by: Option<Vec<String>>,
    pub(super) without: Option<Vec<String>>,
    pub(super) outputs: Vec<String>,
    #[serde(default)]
    pub(super) keep_input: bool,
}
