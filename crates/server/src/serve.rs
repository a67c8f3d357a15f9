//! The daemon from start to end.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tracing::{info, warn};

use crate::checkpoint::Checkpoints;
use crate::config::Settings;
use crate::http::{self, Server};
use crate::metrics::Metrics;
use crate::routes::Routes;
use crate::signals::{self, Signals};
use crate::state::{self, Starting, State};
use crate::top::Top;

/// Why the daemon could not start, or not end in order.
#[derive(Debug)]
pub enum Error {
    /// The state.
    State(state::Error),
    /// The sockets.
    Http(http::Error),
    /// The daemon's own metrics, and the bytes of addresses that it needs in all.
    Metrics(quipu::Error, u64),
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
    let least =
        LEAST_FILES + settings.http.threads * (LEAST_FILES_A_THREAD + settings.listen.len());
    if let Some(files) = raise_open_files().filter(|files| *files < least as u64) {
        let what = format!("it may open {files} files and needs {least} (ulimit -n)");
        return Err(Error::System("start", std::io::Error::other(what)));
    }
    // Before the state: a daemon that cannot listen has no business with it.
    let server = Server::bind(&settings.listen, &settings.http).map_err(Error::Http)?;
    // Both live as long as the process: no answer has to count references.
    let state: &State = Box::leak(Box::new(State::open(settings).map_err(Error::State)?));
    let starting = Starting::new(state);
    let addresses = state::addresses(settings);
    let metrics = Metrics::new(state).map_err(|error| Error::Metrics(error, addresses))?;
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
    let top: &Top = Box::leak(Box::default());
    let has_started = AtomicBool::new(false);
    let started = || {
        // Relaxed: the threads of the server are joined before it is read.
        has_started.store(true, Ordering::Relaxed);
        info!(version = env!("CARGO_PKG_VERSION"), took = ?begun.elapsed(), "started");
    };

    // A thread of its own, so that a signal has attention whatever the server is at.
    let (stop, stopped) = oneshot::channel();
    let (ended, watched) = mpsc::channel();
    let deadline = settings.http.limits.drain_timeout.saturating_add(GRACE);
    let watch = move || {
        signals.first();
        let _ = stop.send(());
        signals::end_after(deadline, &watched);
    };
    let watch = thread::Builder::new().name("signals".into()).spawn(watch);
    watch.map_err(|error| Error::System("start a thread", error))?;
    let stopping = async move {
        let _ = stopped.await;
        info!("stopping: no new connections, running requests end; a second signal ends at once");
    };
    let served = server.serve(|_| Routes::new(state, metrics, top), started, stopping);
    // The last sync may take as long as the disk does.
    drop(ended);

    let begun = Instant::now();
    drop(checkpoints);
    let served = match served {
        Err(error) if !has_started.load(Ordering::Relaxed) => return Err(Error::Http(error)),
        served => served,
    };
    starting.done();
    let closed = state.segment.check_file().and_then(|()| state.segment.close());
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

/// Open files without which nothing can be answered: what the daemon has open by itself, and some
/// connections.
const LEAST_FILES: usize = 32;
const LEAST_FILES_A_THREAD: usize = 8;

/// How long the server has to stop after the drain timeout, which it keeps by itself.
const GRACE: Duration = Duration::from_secs(1);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::State(error) => write!(f, "{error}"),
            Self::Http(error) => write!(f, "{error}"),
            Self::Metrics(error, addresses) => write!(
                f,
                "cannot make the daemon's own metrics: {error}; all of the daemon needs {} KiB",
                addresses.div_ceil(1024)
            ),
            Self::System(what, error) => {
                write!(f, "the system does not let the daemon {what}: {error}; raise its limits")
            }
            Self::Sync(error) => write!(
                f,
                "the last sync failed: {error}; what was counted since the last checkpoint may not \
                 be on the disk"
            ),
        }
    }
}

impl std::error::Error for Error {}
