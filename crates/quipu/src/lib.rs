//! Metrics that count at the speed of memory.
//!
//! ```
//! let registry = quipu::Registry::new();
//! let jobs = registry.counter("jobs", "Completed jobs.")?;
//! jobs.inc();
//! assert!(registry.text().ends_with("jobs_total 1\n"));
//! # Ok::<(), quipu::Error>(())
//! ```
//!
//! An increment of a counter is one addition to per-CPU memory, however many threads count. On a
//! machine with more than 16 CPUs, this holds once the counter is busy. Finding a series by its
//! labels costs a hash and a comparison. Neither takes a lock, and a scrape holds no lock that they
//! wait for.
//!
//! The instruments are [`Counter`], [`Gauge`], [`Histogram`], [`Summary`], [`Info`], [`StateSet`],
//! [`ProcessGauge`], which has a value for each process, and `Window`, with the feature `window`. A
//! [`Family`] adds labels. A [`Registry`] holds all of them.
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

#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(missing_debug_implementations)]
// A lock could block a child of a fork forever: see clippy.toml.
#![deny(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types)]

// The example of the README is tested, too.
#[cfg(all(doctest, feature = "derive"))]
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
#[doc(hidden)]
pub mod macros;
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

/// Functions and types that only derived code uses.
#[doc(hidden)]
pub mod __private {
    pub use crate::label::concatenated::ConcatenatedLabels;
    pub use crate::names::{assert_label, assert_metric};
}
