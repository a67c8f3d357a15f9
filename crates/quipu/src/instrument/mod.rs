//! Instruments: the counters, gauges, histograms and so on that a program updates.
//!
//! An instrument is bound to one series: its lookup is done once, and an update costs the addition
//! alone. A [`Family`] has a series for each label set. [`Family::with`] binds an instrument to one
//! of them; the methods of a family ([`Family::inc`](crate::CounterFamily::inc) and the like) find
//! the series on every call, without a lock and without allocating a key.

mod aggregation;
mod counter;
mod exemplar;
mod family;
mod gauge;
mod histogram;
mod info;
mod kind;
mod mixed;
mod native;
pub(crate) mod process_gauge;
mod state_set;
mod summary;
mod timer;
mod window;

pub use aggregation::{Aggregation, UnknownAggregation};
pub use counter::{Counter, CounterFamily, FloatCounter, FloatCounterFamily};
pub use exemplar::KeptExemplar;
pub use family::{Family, Instrument};
pub use gauge::{Gauge, GaugeFamily, InProgress, IntGauge, IntGaugeFamily};
pub use histogram::{Histogram, HistogramFamily};
pub use info::Info;
pub use mixed::{MixedCounter, MixedCounterFamily};
pub use process_gauge::{ProcessGauge, ProcessGaugeFamily};
pub use state_set::{StateSet, StateSetFamily};
pub use summary::{Summary, SummaryFamily};
pub use timer::Timer;
pub use window::Window;

pub(crate) use counter::EXEMPLAR;
pub(crate) use exemplar::{Slot, clear as clear_exemplars, slots_of};
pub(crate) use histogram::Layout as HistogramLayout;
pub(crate) use kind::MetricKind;
pub(crate) use mixed::{EXEMPLAR as MIXED_EXEMPLAR, total as mixed_total};
pub(crate) use native::gather;
pub(crate) use summary::Layout as SummaryLayout;
