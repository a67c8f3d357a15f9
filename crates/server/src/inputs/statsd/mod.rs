//! StatsD and DogStatsD: lines of metrics that come in over UDP, TCP and unix sockets.

mod forms;
mod metrics;
mod receiver;

use super::Shared;
use super::listeners::{self, Listeners, Options, Protocol, Running};
use crate::metrics::Metrics;
use crate::state::State;
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
    state: &State,
    shared: &'static Shared,
    metrics: &Metrics,
) -> Result<Running, listeners::Error> {
    listeners.start(state, shared, metrics, |scope| {
        let metrics = StatsdMetrics::new(scope)?;
        Ok(move |names| Receiver::new(names, shared, metrics.samples()))
    })
}
