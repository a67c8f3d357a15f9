//! The daemon from start to end.

use std::fmt;
use std::time::Instant;

use tracing::{info, warn};

use crate::checkpoint::Checkpoints;
use crate::config::Settings;
use crate::http::{self, Server};
use crate::metrics::Metrics;
use crate::routes::Routes;
use crate::signals::Signals;
use crate::state::{self, State};

/// Why the daemon could not start, or not end in order.
#[derive(Debug)]
pub enum Error {
    /// The state.
    State(state::Error),
    /// The sockets.
    Http(http::Error),
    /// The daemon's own metrics.
    Metrics(quipu::Error),
    /// What the system gives a process: threads, signals.
    System(&'static str, std::io::Error),
    /// The last sync: counts are in the file, but not surely on the disk.
    Sync(quipu_segment::Error),
}

/// Runs the daemon until a signal ends it.
///
/// # Errors
/// [`Error`], with the way out.
pub fn run(settings: &Settings) -> Result<(), Error> {
    let begun = Instant::now();
    let signals = Signals::watch().map_err(|error| Error::System("watch signals", error))?;
    let files = raise_open_files();
    if files.is_some_and(|files| files < LEAST_FILES) {
        let error = std::io::Error::other("it may open too few files (ulimit -n)");
        return Err(Error::System("start", error));
    }
    // Before the state: a daemon that cannot listen has no business with it.
    let server = Server::bind(&settings.listen, &settings.http).map_err(Error::Http)?;
    // Both live as long as the process: no answer has to count references.
    let state: &State = Box::leak(Box::new(State::open(settings).map_err(Error::State)?));
    let metrics = Metrics::new(state).map_err(Error::Metrics)?;
    let metrics: &Metrics = Box::leak(Box::new(metrics));
    let checkpoints = Checkpoints::start(state, settings.checkpoint, metrics)
        .map_err(|error| Error::System("start a thread", error))?;
    for address in server.local_addresses() {
        info!(%address, connections = server.connections(), "listening");
    }
    if server.connections() < settings.http.limits.connections {
        warn!(
            connections = server.connections(),
            asked = settings.http.limits.connections,
            "fewer connections than asked for, by the limit on open files (ulimit -n)"
        );
    }
    info!(version = env!("CARGO_PKG_VERSION"), took = ?begun.elapsed(), "started");

    let stopping = async move {
        signals.first().await;
        info!("stopping: no new connections, running requests end; a second signal ends at once");
    };
    let served = server.serve(|_| Routes::new(state, metrics), stopping);

    let begun = Instant::now();
    drop(checkpoints);
    let closed = state.segment.close();
    match &served {
        Ok(stopped) if stopped.cut > 0 => {
            warn!(connections = stopped.cut, "cut connections that did not end in time");
        }
        _ => {}
    }
    served.map_err(Error::Http)?;
    closed.map_err(Error::Sync)?;
    info!(took = ?begun.elapsed(), "synced the state and stopped");
    Ok(())
}

/// Takes as many open files as the system grants: each connection is one.
fn raise_open_files() -> Option<u64> {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Where it is refused, the server bounds its connections by what there is, and logs that.
    let _ = setrlimit(Resource::Nofile, limit);
    getrlimit(Resource::Nofile).current
}

/// Open files without which nothing can be answered.
const LEAST_FILES: u64 = 32;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::State(error) => write!(f, "{error}"),
            Self::Http(error) => write!(f, "{error}"),
            Self::Metrics(error) => write!(f, "{error}"),
            Self::System(what, error) => {
                write!(f, "the system does not let the daemon {what}: {error}; raise its limits")
            }
            Self::Sync(error) => write!(
                f,
                "the last sync failed: {error}; the counts are in the file, but a power loss now \
                 may take the newest"
            ),
        }
    }
}

impl std::error::Error for Error {}
