//! The kinds of metrics: counters, gauges, histograms and so on.
//!
//! Each kind is a file with a writing end and a reading end. The writing end is the instrument,
//! which you update; it implements [`Instrument`]. The reading end implements [`MetricKind`], and a
//! scrape uses it to read the cells. All counters share the reading end in `total.rs`.
//!
//! An instrument is bound to one series: it is looked up once, and an update only costs the
//! addition. A [`Family`] contains a series for each label set. [`Family::bind`] binds an
//! instrument to a series; the methods of a family, such as
//! [`Family::inc`](crate::CounterFamily::inc), find the series on every call, without a lock and
//! without allocating a key.
//!
//! To add a kind, write its file, and add it to the three lists below: the modules, the exports,
//! and the kinds.

mod aggregation;
mod counter;
mod exemplar;
mod family;
mod float_counter;
mod gauge;
mod histogram;
mod in_progress;
mod info;
mod int_gauge;
mod metric_kind;
mod mixed;
mod native;
mod process_gauge;
mod relay;
mod sample_time;
mod state_set;
mod summary;
mod timer;
mod total;
mod unknown;
#[cfg(feature = "window")]
mod window;

pub use aggregation::Aggregation;
pub use counter::{Counter, CounterFamily};
pub use exemplar::OwnedExemplar;
pub(crate) use exemplar::{keep_at as keep_exemplar, takes_memory as exemplar_takes_memory};
pub(crate) use family::sealed;
pub use family::{Family, Instrument};
pub use float_counter::{FloatCounter, FloatCounterFamily};
pub use gauge::{Gauge, GaugeFamily};
pub use histogram::{Histogram, HistogramFamily};
pub use in_progress::InProgress;
pub use info::Info;
pub use int_gauge::{IntGauge, IntGaugeFamily};
pub use mixed::{MixedCounter, MixedCounterFamily};
pub use process_gauge::{ProcessGauge, ProcessGaugeFamily};
pub use state_set::{StateSet, StateSetFamily};
pub use summary::{Summary, SummaryFamily};
pub use timer::Timer;
#[cfg(feature = "window")]
pub use window::Window;

pub(crate) use gauge::{
    EXEMPLAR as GAUGE_EXEMPLAR, GaugeKind, TIME as GAUGE_TIME, VALUE as GAUGE_VALUE,
};
pub(crate) use histogram::{HistogramLayout, KEEPS_EXEMPLARS, KEEPS_TIMES, MAX_BOUNDS};
pub(crate) use info::InfoKind;
pub(crate) use metric_kind::{MetricKind, Scratch};
pub(crate) use native::{FINEST, NativeGrowth, SCHEMAS, last_index};
pub(crate) use process_gauge::{ProcessGaugeLayout, Processes, process_of};
pub(crate) use relay::{
    FollowResult, Growth, LastTotal, Relay, RelayCounter, RelayHistogram, RelaySummary, Times,
};
pub(crate) use sample_time::SampleTime;
pub(crate) use summary::{COUNT as SUMMARY_COUNT, SUM as SUMMARY_SUM, SummaryLayout};
pub(crate) use total::Total;
pub(crate) use unknown::UnknownKind;

metric_kind::kinds! {
    Counter, "counter": total::TotalKind<Counter>,
    FloatCounter, "float counter": total::TotalKind<FloatCounter>,
    Gauge, "gauge": gauge::GaugeKind,
    IntGauge, "whole gauge": int_gauge::IntGaugeKind,
    Histogram, "histogram": histogram::HistogramLayout,
    Summary, "summary": summary::SummaryLayout,
    Info, "info": info::InfoKind,
    StateSet, "state set": state_set::StateSetKind,
    ProcessGauge, "process gauge": process_gauge::ProcessGaugeLayout,
    MixedCounter, "mixed counter": total::TotalKind<MixedCounter>,
    Unknown, "unknown": unknown::UnknownKind,
    RelayCounter, "relayed counter": relay::RelayCounter,
    RelayHistogram, "relayed histogram": relay::RelayHistogram,
    RelaySummary, "relayed summary": relay::RelaySummary,
}
