//! The StatsD and DogStatsD input: lines over UDP, TCP and unix sockets, for example
//! `page.views:1|c|#country:fr`.

mod forms;
mod metrics;
mod reader;
mod settings;

use quipu::intake::Intake;
use quipu::{Registry, Scope};

use super::Shared;
use super::list::LineInput;
use super::listeners::{self, Listeners, NameResolver, Protocol, RunningListeners};
use metrics::StatsdMetrics;
use reader::StatsdReader;
pub use settings::StatsdFlags;

const STATSD: Protocol = Protocol { name: "StatsD", flag: "statsd" };

/// The row in the list of inputs.
pub(super) const LINES: LineInput =
    LineInput { protocol: STATSD, options: |options| &options.statsd, start };

/// Starts a thread for each socket.
fn start(
    listeners: Listeners,
    intake: &Intake,
    shared: &'static Shared,
    registry: &Registry,
) -> Result<RunningListeners, listeners::Error> {
    listeners.start(intake, shared, registry, |scope| prepare(scope, shared))
}

/// Handles packets without a socket, for fuzzing.
#[doc(hidden)]
pub fn lines(
    intake: &Intake,
    shared: &'static Shared,
    registry: &Registry,
) -> Result<listeners::PacketSink, quipu::Error> {
    listeners::lines(STATSD, intake, shared, registry, |scope| prepare(scope, shared))
}

/// Registers the metrics. Returns a function that creates the reader of a listener.
fn prepare(
    scope: &Scope,
    shared: &'static Shared,
) -> Result<impl Fn(NameResolver) -> StatsdReader + use<>, quipu::Error> {
    let metrics = StatsdMetrics::new(scope)?;
    Ok(move |names| StatsdReader::new(names, shared, metrics.samples()))
}
