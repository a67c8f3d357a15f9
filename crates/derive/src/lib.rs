//! Derive macros of quipu: [`LabelValue`](macro@LabelValue), [`LabelGroup`](macro@LabelGroup),
//! [`Metrics`](macro@Metrics). Use them by way of the crate `quipu`, which re-exports them.
//!
//! What cannot be is an error at the very token: a name that is no name, a label that is there
//! twice, a suffix that formats add by themselves.

mod attributes;
mod case;
mod label_group;
mod label_value;
mod metrics;
mod names;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Makes an enum without fields a label of fixed cardinality: each variant is a value. A struct of
/// one unnamed field is a label like that field.
///
/// | attribute | on | does |
/// |---|---|---|
/// | `#[label(rename_all = "kebab-case")]` | enum | how variants become values; snake_case without it |
/// | `#[label(rename = "5xx")]` | variant | the value of this one |
/// | `#[label(crate = path)]` | type | where the crate `quipu` is |
///
/// `rename_all` takes `lowercase`, `UPPERCASE`, `PascalCase`, `camelCase`, `snake_case`,
/// `SCREAMING_SNAKE_CASE`, `kebab-case` and `SCREAMING-KEBAB-CASE`.
#[proc_macro_derive(LabelValue, attributes(label))]
pub fn derive_label_value(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    label_value::expand(&input).unwrap_or_else(|error| error.to_compile_error()).into()
}

/// Makes a struct with named fields a group of labels: each field is a label, in order.
///
/// | attribute | on | does |
/// |---|---|---|
/// | `#[label(rename = "http.route")]` | field | the name of this label |
/// | `#[label(flatten)]` | field | the labels of another group |
/// | `#[label(crate = path)]` | type | where the crate `quipu` is |
#[proc_macro_derive(LabelGroup, attributes(label))]
pub fn derive_label_group(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    label_group::expand(&input).unwrap_or_else(|error| error.to_compile_error()).into()
}

/// Makes a struct with named fields a group of metrics: each field is an instrument or a family,
/// named like the field; its documentation is its help.
///
/// | attribute | on | does |
/// |---|---|---|
/// | `#[metrics(prefix = "http")]` | struct | begins all names, with an underscore behind it |
/// | `#[metric(rename = "requests")]` | field | the name of this metric |
/// | `#[metric(help = "Requests.")]` | field | its help, in place of its documentation |
/// | `#[metric(unit = "seconds", limit = 100)]` | field | calls `.unit("seconds").limit(100)` of its `Description` |
/// | `#[metric(exemplars)]` | field | calls `.exemplars()` |
/// | `#[metrics(flatten)]` | field | another group of metrics |
/// | `#[metrics(flatten, prefix = "db", labels(shard = "1"))]` | field | the same with a prefix and constant labels |
/// | `#[metrics(crate = path)]` | struct | where the crate `quipu` is |
#[proc_macro_derive(Metrics, attributes(metric, metrics))]
pub fn derive_metrics(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    metrics::expand(&input).unwrap_or_else(|error| error.to_compile_error()).into()
}
