//! Metrics that count at the speed of memory.
//!
//! ```
//! let registry = quipu::Registry::new();
//! let jobs = registry.counter("jobs", "Jobs that were done.")?;
//! jobs.inc();
//! assert!(registry.text().ends_with("jobs_total 1\n"));
//! # Ok::<(), quipu::Error>(())
//! ```
//!
//! A counter costs one addition to memory of the CPU's own, however many threads count; a series
//! that is found by its labels costs a hash and a comparison; neither takes a lock, and a scrape
//! takes none that they wait for. See [`Counter`], [`Gauge`], [`Histogram`], [`Summary`],
//! [`Window`], [`Info`], [`StateSet`], and [`ProcessGauge`] for a value of each process; [`Family`]
//! for labels; [`Registry`] for where they are.
//!
//! # What is safe where
//!
//! - **Threads**: everything.
//! - **Signal handlers**: an instrument that is bound, and a family's method for labels that are
//!   there already, touch memory alone. The first use of new labels takes a lock and is not safe.
//! - **Fork**: a registry in private memory is copied with the process, and both go on. A registry
//!   in a file ([`Registry::open`]) is shared: both count in the same cells. A fork while another
//!   thread makes a series does not block the child.
//! - **Never at an increment**: an error, a panic, or a wait for a scrape.

// A child of a fork would wait for ever: see clippy.toml.
#![deny(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types)]

pub mod collector;
mod description;
mod error;
pub mod exposition;
pub mod http;
mod instrument;
pub mod label;
mod names;
mod processes;
mod read;
mod registry;
mod scrape;
pub mod snapshot;
mod visit;

pub use description::Description;
pub use error::Error;
pub use instrument::{
    Aggregation, Counter, CounterFamily, Family, FloatCounter, FloatCounterFamily, Gauge,
    GaugeFamily, Histogram, HistogramFamily, InProgress, Info, Instrument, IntGauge,
    IntGaugeFamily, KeptExemplar, MixedCounter, MixedCounterFamily, ProcessGauge,
    ProcessGaugeFamily, StateSet, StateSetFamily, Summary, SummaryFamily, Timer,
    UnknownAggregation, Window,
};
pub use label::{LabelGroup, LabelValue};
#[cfg(feature = "derive")]
pub use quipu_derive::{LabelGroup, LabelValue, Metrics};
#[doc(hidden)]
pub use quipu_segment::series::KeyWriter;
pub use registry::{Metrics, Register, Registry, Scope};
pub use scrape::Scrape;
