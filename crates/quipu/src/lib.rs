//! Metrics that count at the speed of memory: counters, gauges, histograms and summaries with typed
//! labels, for Prometheus and OpenMetrics.
//!
#![cfg_attr(all(feature = "derive", feature = "serve"), doc = "```no_run")]
#![cfg_attr(not(all(feature = "derive", feature = "serve")), doc = "```ignore")]
//! use quipu::{CounterFamily, Histogram, LabelGroup, LabelValue, Metrics, Registry};
//!
//! #[derive(LabelValue)]
//! enum Method { Get, Post }
//!
//! #[derive(LabelGroup)]
//! struct Request<'a> { method: Method, path: &'a str }
//!
//! #[derive(Metrics)]
//! #[metrics(prefix = "http")]
//! struct HttpMetrics {
//!     /// Handled requests.
//!     requests: CounterFamily<Request<'static>>,
//!     /// Time to handle a request.
//!     #[metric(unit = "seconds")]
//!     duration: Histogram,
//! }
//!
//! let registry = Registry::new();
//! let metrics: HttpMetrics = registry.metrics()?;
//! // The feature `serve`: curl http://127.0.0.1:9184/metrics
//! let _server = quipu::http::serve("127.0.0.1:9184", &registry)?;
//!
//! let _timer = metrics.duration.start_timer();
//! metrics.requests.inc(&Request { method: Method::Get, path: "/cart" });
//! # Ok::<(), quipu::Error>(())
//! ```
//!
//! An increment of a counter is one addition to per-CPU memory, however many threads count. On a
//! machine with more than 16 CPUs, this holds once the counter is busy. Finding a series by its
//! labels costs a hash and a comparison. Neither takes a lock, and a scrape holds no lock that they
//! wait for.
//!
//! # When to use what
//!
//! **Instruments.** Count events with a [`Counter`], and add up seconds with a [`FloatCounter`].
//! Show a value that rises and falls with a [`Gauge`], or with an [`IntGauge`] if it is whole.
//! Observe durations and sizes with a [`Histogram`], because servers can add its buckets over
//! machines. A [`Summary`] shows quantiles of one machine, [`Window`] shows the events within a
//! time, and [`Info`] and [`StateSet`] show text and states.
//!
//! **Labels.** A [`Family`], such as [`CounterFamily`], has one series for each set of labels.
//! Derive [`LabelGroup`] for a struct of labels. If you know the names only at run time, use arrays
//! or [`label::Values`]. [`Family::bind`] finds a series once, for the hottest paths.
//!
//! **Registries.** Register metrics in a [`Registry`]. [`Registry::new`] is for one process.
//! [`Registry::open`] keeps the counts in a file: they survive the death of the process, and
//! several processes count in the same cells. Use a [`ProcessGauge`] there if each process has its
//! own value. A library accepts a [`Scope`], so that the program chooses the registry and a prefix.
//! Macros such as [`counter!`] count in [`Registry::global`] without a handle.
//!
//! **Values from elsewhere.** [`Scope::gauge_fn`] shows the result of a function. A
//! [`Collector`](collector::Collector) shows families with labels, and [`collector`] contains
//! collectors for the process, arenas and tokio.
//!
//! **Exposition.** The module [`http`] has a server on its own thread, a service for hyper, tower
//! and axum, and pushes for batch jobs. [`Registry::scrape`] and [`exposition`] write a page for any
//! other transport. [`Registry::value`] reads one sample, for tests.
//!
//! # Tests
//!
//! [`Registry::value`] reads a sample by the name on the page: a counter `jobs` is `jobs_total`. Give
//! each test a separate registry. The macros count in one registry for the whole process, so a test
//! of code with macros compares values before and after, with label values that only this test uses.
//! If you want to isolate such tests, pass the code a [`Scope`] or a struct that derives [`Metrics`].
//!
//! # Coming from other crates
//!
//! [Coming from another tool](https://github.com/quipu-metrics/quipu/blob/main/docs/coming-from.md)
//! shows whole programs next to each other, and [the guide of the
//! library](https://github.com/quipu-metrics/quipu/blob/main/docs/library.md) explains all parts.
//!
//! | prometheus-client | quipu |
//! |---|---|
//! | `Family<Labels, Counter>` | `Family<Counter, Labels>`, or [`CounterFamily<Labels>`](CounterFamily) |
//! | `Family::default()`, and `register(name, help, metric.clone())` | `let metric = registry.register(Description::new(name, help))?` |
//! | `family.get_or_create(&labels).inc()` | `family.inc(&labels)`, or `family.bind(&labels)` for a handle |
//! | `Family<Vec<(String, String)>, Counter>` | `CounterFamily<Values>`, with [`Description::labels`] |
//! | `encode(&mut text, &registry)` | `registry.text()`; to serve it, `http::Service` or `http::serve` |
//! | `Method::Get` is shown as `Get` | it is shown as `get`, unless `rename_all` says otherwise |
//!
//! | metrics | quipu |
//! |---|---|
//! | `counter!("jobs", "queue" => q).increment(n)` | `counter!("jobs", "Help.", "queue" => q).inc_by(n)` |
//! | `gauge!(..).increment(n)`, `decrement(n)` | `gauge!(..).add(n)`, `sub(n)` |
//! | `histogram!(..).record(duration)` | `histogram!(..).observe_duration(duration)` |
//! | `counter!(..).absolute(n)` | [`Scope::counter_fn`] |
//! | `describe_counter!` | the help in the macro |
//! | `recorder.install()` | [`Registry::set_global`], or no call: [`Registry::global`] always exists |
//! | names and labels that are known at run time | [`CounterFamily`] of [`label::Values`] |
//! | one name with several sets of labels | one set, in one order: `quipu_registration_errors_total` counts others |
//! | a timer or a guard in a task | [`Histogram::start_timer_owned`], [`Histogram::time_future`], `#[timed]` |
//!
//! # Features
//!
//! | feature | contains |
//! |---|---|
//! | `derive` (default) | the macros that derive [`LabelValue`], [`LabelGroup`] and [`Metrics`], and `timed` |
//! | `window` | [`Window`]: sliding windows, shown as gauges |
//! | `serve` | `http::serve`: a server on its own thread |
//! | `tower` | `http::Service`, for hyper, tower and axum |
//! | `push` | `http::Push`: pushes to a Pushgateway |
//! | `gzip`, `zstd` | compressed responses |
//! | `http` | methods and status codes of the crate http as label values |
//! | `tokio` | `collector::Tokio`: metrics of a tokio runtime |
//! | `arena` | `collector::Arenas`: the memory of arenas |
//!
//! # Threads, signal handlers, and forks
//!
//! - **Threads**: everything can be shared between threads.
//! - **Signal handlers**: a bound instrument, and a family's method for labels that already have a
//!   series, only touch memory. The first use of new labels takes a lock and is not safe.
//! - **Fork**: a registry in private memory is copied with the process; parent and child each use
//!   their own copy. A registry in a file ([`Registry::open`]) is shared: both count in the same
//!   cells. A fork while another thread creates a series does not block the child.
//! - **Increments** never return an error, panic, or wait for a scrape.
//!
#![cfg_attr(feature = "window", doc = "[`Window`]: Window")]
#![cfg_attr(not(feature = "window"), doc = "[`Window`]: #features")]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(missing_debug_implementations)]
// A lock could block a child of a fork forever: see clippy.toml.
#![deny(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types)]

// The example of the README is tested, too.
#[cfg(all(doctest, feature = "derive", feature = "serve"))]
#[doc = include_str!("../README.md")]
mod readme {}

#[doc(hidden)]
pub mod binding;
pub mod collector;
mod description;
mod error;
pub mod exposition;
pub mod http;
#[doc(hidden)]
pub mod intake;
mod kind;
pub mod label;
mod macros;
mod name_set;
mod names;
mod recording;
mod registry;
mod registry_options;
mod sample_search;
mod scope;
mod scrape;
pub mod snapshot;
mod test_clock;

pub use description::Description;
pub use error::{Error, UnknownName};
pub use kind::*;
pub use label::{LabelGroup, LabelValue};
pub use macros::LabeledMetric;
#[cfg(feature = "derive")]
pub use quipu_derive::{LabelGroup, LabelValue, Metrics, timed};
pub use recording::{Recording, RecordingOptions};
pub use registry::Registry;
pub use registry_options::RegistryOptions;
pub use scope::{Metrics, Register, Scope};
pub use scrape::Scrape;
pub use test_clock::TestClock;

/// Functions and types that only derived code and macros use.
#[doc(hidden)]
pub mod __private {
    pub use crate::label::concatenated::ConcatenatedLabels;
    pub use crate::macros::{LabelTexts, LazyMetric, TextLabels};
    pub use crate::names::{assert_label, assert_labels, assert_metric};
}
