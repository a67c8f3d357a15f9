//! StatsD and DogStatsD: lines of metrics that come in over UDP, TCP and unix sockets.

mod forms;
mod metrics;
mod receiver;
pub mod settings;

use quipu::intake::Intake;
use quipu::{Registry, Scope};

use super::Shared;
use super::listeners::{self, Listeners, Names, Options, Protocol, Running};
use metrics::StatsdMetrics;
use receiver::Receiver;

/// The protocol.
pub const STATSD: Protocol = Protocol { name: "StatsD", flag: "statsd" };

/// Reads the mapping file, and binds all sockets, each for at most that many connections.
///
/// # Errors
/// [`listeners::Error`], which names the flag.
pub fn bind(options: &Options, connections: usize) -> Result<Listeners, listeners::Error> {
    Listeners::bind(STATSD, options, connections)
}

/// Starts a thread for each socket.
///
/// # Errors
/// [`listeners::Error`]: the system refuses a thread, or memory for the metrics.
pub fn start(
    listeners: Listeners,
    intake: &Intake,
    shared: &'static Shared,
    registry: &Registry,
) -> Result<Running, listeners::Error> {
    listeners.start(intake, shared, registry, |scope| prepare(scope, shared))
}

/// Takes packets without a socket.
#[doc(hidden)]
pub fn lines(
    intake: &Intake,
    shared: &'static Shared,
    registry: &Registry,
) -> Result<listeners::TakePacket, quipu::Error> {
    listeners::lines(STATSD, intake, shared, registry, |scope| prepare(scope, shared))
}

/// Registers the metrics. The result makes the reader of a listener.
fn prepare(
    scope: &Scope<'_>,
    shared: &'static Shared,
) -> Result<impl Fn(Names) -> Receiver + use<>, quipu::Error> {
    let metrics = StatsdMetrics::new(scope)?;
    Ok(move |names| Receiver::new(names, shared, metrics.samples()))
}
