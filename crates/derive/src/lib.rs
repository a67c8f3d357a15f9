//! Macros of quipu: the derives [`LabelValue`](macro@LabelValue), [`LabelGroup`](macro@LabelGroup)
//! and [`Metrics`](macro@Metrics), and the attribute [`timed`](macro@timed). You can use them
//! through the crate `quipu`, which re-exports them.
//!
//! Mistakes are compile errors at the offending token: for example, an invalid name, a duplicate
//! label, or a suffix that the formats add.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(missing_debug_implementations)]

mod attributes;
mod case;
mod label_group;
mod label_value;
mod metrics;
mod timed;

use proc_macro::TokenStream;
use syn::{DeriveInput, ItemFn, parse_macro_input};

/// Makes an enum without fields a label value of fixed cardinality: each variant is a value. A
/// struct with one unnamed field becomes a label value like that field.
///
/// ```
/// use quipu::LabelValue;
///
/// #[derive(LabelValue)]
/// enum Outcome {
///     Done,
///     NotFound,
///     #[label(rename = "5xx")]
///     Failed,
/// }
///
/// assert_eq!(Outcome::VALUES, Some(&["done", "not_found", "5xx"][..]));
/// ```
///
/// | attribute | on | effect |
/// |---|---|---|
/// | `#[label(rename_all = "kebab-case")]` | enum | the case of the values; snake_case by default |
/// | `#[label(rename = "5xx")]` | variant | the value of this variant |
/// | `#[label(crate = path)]` | type | the path of the crate `quipu` |
///
/// `rename_all` takes `lowercase`, `UPPERCASE`, `PascalCase`, `camelCase`, `snake_case`,
/// `SCREAMING_SNAKE_CASE`, `kebab-case` and `SCREAMING-KEBAB-CASE`.
#[proc_macro_derive(LabelValue, attributes(label))]
pub fn derive_label_value(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    label_value::expand(&input).unwrap_or_else(|error| error.to_compile_error()).into()
}

/// Makes a struct with named fields a label group: each field is a label. A response shows the
/// labels of fixed cardinality first, then the others, each in the order of the fields.
///
/// Declare text labels as `&'a str`, because a `String` costs an allocation for each update. A
/// struct that keeps the family declares it with `'static`, such as
/// `requests: CounterFamily<Request<'static>>`, and you can still pass labels of any lifetime.
///
/// ```
/// use quipu::{CounterFamily, Description, LabelGroup, LabelValue, Registry};
///
/// #[derive(LabelValue)]
/// enum Method { Get, Post }
///
/// #[derive(LabelGroup)]
/// struct Request<'a> {
///     method: Method,
///     #[label(rename = "http.route")]
///     route: &'a str,
///     status: u16,
/// }
///
/// let registry = Registry::new();
/// let requests: CounterFamily<Request<'static>> =
///     registry.register(Description::new("requests", "Requests that got a response."))?;
/// requests.inc(&Request { method: Method::Get, route: "/", status: 200 });
/// let labels = [("method", "get"), ("http.route", "/"), ("status", "200")];
/// assert_eq!(registry.value("requests_total", &labels), Some(1.0));
/// # Ok::<(), quipu::Error>(())
/// ```
///
/// | attribute | on | effect |
/// |---|---|---|
/// | `#[label(rename = "http.route")]` | field | the name of this label |
/// | `#[label(flatten)]` | field | inserts the labels of another group |
/// | `#[label(crate = path)]` | type | the path of the crate `quipu` |
#[proc_macro_derive(LabelGroup, attributes(label))]
pub fn derive_label_group(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    label_group::expand(&input).unwrap_or_else(|error| error.to_compile_error()).into()
}

/// Makes a struct with named fields a group of metrics. Each field is an instrument or a family:
/// its name is the metric's name, and the first paragraph of its doc comment is the help.
///
/// ```
/// use std::time::Duration;
/// use quipu::{CounterFamily, IntGauge, Metrics, Registry};
///
/// #[derive(Metrics)]
/// #[metrics(prefix = "http")]
/// struct HttpMetrics {
///     /// Requests that got a response.
///     #[metric(labels = ["route"], max_series = 10_000, expire_after = Duration::from_secs(60))]
///     requests: CounterFamily<[&'static str; 1]>,
///     /// Requests under way.
///     in_progress: IntGauge,
/// }
///
/// let registry = Registry::new();
/// let metrics: HttpMetrics = registry.metrics()?;
/// let _guard = metrics.in_progress.in_progress();
/// assert_eq!(registry.value("http_in_progress", &[]), Some(1.0));
/// # Ok::<(), quipu::Error>(())
/// ```
///
/// | attribute | on | effect |
/// |---|---|---|
/// | `#[metrics(prefix = "http")]` | struct | prefixes all names with `http_` |
/// | `#[metric(rename = "requests")]` | field | the name of this metric |
/// | `#[metric(help = "Requests.")]` | field | the help, instead of the doc comment |
/// | `#[metric(unit = "seconds", max_series = 100)]` | field | calls `.unit("seconds").max_series(100)` of its `Description`; a value is any Rust expression, such as `expire_after = Duration::from_secs(60)` |
/// | `#[metric(exemplars)]` | field | calls `.exemplars()` |
/// | `#[metrics(flatten)]` | field | registers another group of metrics |
/// | `#[metrics(flatten, prefix = "db", labels(shard = "1"))]` | field | the same, with a prefix and constant labels |
/// | `#[metrics(crate = path)]` | struct | the path of the crate `quipu` |
#[proc_macro_derive(Metrics, attributes(metric, metrics))]
pub fn derive_metrics(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    metrics::expand(&input).unwrap_or_else(|error| error.to_compile_error()).into()
}

/// Observes the duration of a function in a histogram of the global registry.
///
/// You pass the same arguments as to the macro `histogram!`: the name and the help, then settings,
/// then labels, whose values can use the function's arguments. `crate = path` is the path of the
/// crate `quipu`.
///
/// ```
/// use quipu::{Registry, timed};
///
/// #[timed("job_duration_seconds", "Duration of a job.", buckets = [0.1, 1.0], "queue" => queue)]
/// fn run(queue: &str) {}
///
/// run("mail");
/// let count = Registry::global().value("job_duration_seconds_count", &[("queue", "mail")]);
/// assert_eq!(count, Some(1.0));
/// ```
///
/// The duration is observed when the function returns or panics. The duration of an `async fn` is
/// the time from the first poll until its future is ready, or until you drop the future, like for
/// `Histogram::time_future`.
#[proc_macro_attribute]
pub fn timed(arguments: TokenStream, function: TokenStream) -> TokenStream {
    let arguments = parse_macro_input!(arguments as timed::Arguments);
    let function = parse_macro_input!(function as ItemFn);
    timed::expand(arguments, function).unwrap_or_else(|error| error.to_compile_error()).into()
}
