//! The daemon from start to shutdown: [`run`] opens the state, binds the sockets, starts all
//! threads, serves, and stops them in reverse order.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use quipu_segment::printable;
use tokio::sync::oneshot;
use tracing::{info, warn};

use crate::checkpoint::Checkpoints;
use crate::config::Settings;
use crate::metrics::{Metrics, OwnMetrics};
use crate::recording::{self, Recorder};
use crate::routes::Routes;
use crate::source::Source;
use crate::state::{self, StartGuard, State};
use crate::top::Top;
use quipu_agent::targets::{self, Targets};
use quipu_agent::{self as agent, Agent};
use quipu_http::{self as http, Server};
use quipu_intake::expiry::ExpirySweeper;
use quipu_intake::listeners::{self, BoundInputs};
use quipu_intake::refusals::Refusals;
use quipu_intake::{Inputs, Shared};
use quipu_outputs::{self as outputs, Outputs};
use quipu_process::memory;
use quipu_process::signals::{self, Signals};
use quipu_translate::rules::{self, Rules};

/// The reason why the daemon failed to start or to stop cleanly.
#[derive(Debug)]
pub enum Error {
    /// The state cannot be opened.
    State(state::Error),
    /// The server cannot listen, or cannot start.
    Http(http::Error),
    /// The server failed while it ran.
    Serving(http::Error),
    /// Lines of StatsD or Graphite cannot be received.
    Listeners(listeners::Error),
    /// The rules cannot be used.
    Rules(rules::Error),
    /// An output cannot be started.
    Outputs(outputs::Error),
    /// The targets cannot be scraped.
    Targets(targets::Error),
    /// The daemon's own metrics cannot be created. Contains the address space that the daemon needs
    /// in total, in bytes.
    Metrics(quipu::Error, u64),
    /// The address space is too small for the threads. Contains the address space that the daemon
    /// needs in total, in bytes.
    Addresses(u64),
    /// The system's clock shows a time before 1970.
    Clock,
    /// The system refused a resource of the process: threads, signals, open files.
    System(&'static str, std::io::Error),
    /// The last sync failed, for example because the disk is full. The page cache contains the
    /// counts, but the disk may not.
    Sync(quipu_segment::Error),
}

/// Runs the daemon until a signal ends it.
///
/// # Errors
/// Returns an [`Error`] that names the remedy.
pub fn run(settings: &Settings) -> Result<(), Error> {
    let begun = Instant::now();
    // We refuse such a clock, because hyper panics when it formats the date of the first response.
    if SystemTime::now() < SystemTime::UNIX_EPOCH {
        return Err(Error::Clock);
    }
    memory::share_heap_if_limited();
    memory::spread_tables();
    let signals = Signals::watch().map_err(|error| Error::System("watch signals", error))?;
    let BoundParts { server, listeners, rules, most } = bind(settings)?;
    // We leak these values: they live as long as the process, and requests then need no reference
    // counts.
    let state: &State = Box::leak(Box::new(State::open(settings).map_err(Error::State)?));
    let starting = StartGuard::new(state);
    let addresses = state::addresses(settings);
    let metrics = Metrics::new(state).map_err(|error| Error::Metrics(error, addresses))?;
    let metrics: &Metrics = Box::leak(Box::new(metrics));
    let shared =
        share_inputs(state, metrics, settings, rules).map_err(|e| Error::Metrics(e, addresses))?;
    check_spare(addresses)?;
    let checkpoints = Checkpoints::start(state, settings.checkpoint, metrics)
        .map_err(|error| Error::System("start a thread", error))?;
    let restored = shared.push.restore(state.intake.clone());
    restored.map_err(|error| Error::System("start a thread", error))?;
    let sweeper = ExpirySweeper::start(state.intake.clone(), shared)
        .map_err(|error| Error::System("start a thread", error))?;
    log_listening(&server, settings);
    let listening = listeners.start(&state.intake, shared, metrics.registry());
    let listening = listening.map_err(Error::Listeners)?;
    let targets = Targets::start(settings.targets.clone(), &shared.via);
    let targets = targets.map_err(Error::Targets)?;
    let agent = watch(state, metrics, settings, most, &targets)?;
    let recorder = record(metrics, settings)?;
    let segments = agent.as_ref().map(Agent::readings);
    let source = Arc::new(Source::new(state, shared, segments.clone()));
    let outputs = Outputs::start(&settings.outputs, source, metrics.registry());
    let outputs = outputs.map_err(Error::Outputs)?;
    let top: &Top = Box::leak(Box::default());
    let has_started = AtomicBool::new(false);
    let started = || {
        // Relaxed: the server's threads are joined before the flag is read.
        has_started.store(true, Ordering::Relaxed);
        memory::return_large();
        // We return the memory that only the start needed, for example for the table of settings.
        memory::trim();
        info!(version = env!("CARGO_PKG_VERSION"), took = ?begun.elapsed(), "started");
    };

    let (stopped, ended) = watch_signals(signals, settings.http.limits.drain_timeout)?;
    let stopping = async move {
        let _ = stopped.await;
        info!(
            "stopping: no new connections, running requests finish; a second signal exits at once"
        );
    };
    let routes = |_| {
        Routes::new(
            state,
            metrics,
            top,
            Inputs::new(state.intake.clone(), shared),
            segments.clone(),
        )
    };
    let served = server.serve(routes, started, stopping);
    drop(listening);
    // From here on, each step has a deadline, except the final sync, whose duration depends on the
    // disk.
    drop(ended);
    if has_started.load(Ordering::Relaxed) {
        outputs.stop();
    }

    let begun = Instant::now();
    drop(targets);
    drop(recorder);
    drop(agent);
    drop(sweeper);
    drop(checkpoints);
    let served = match served {
        Err(error) if !has_started.load(Ordering::Relaxed) => return Err(Error::Http(error)),
        served => served,
    };
    while shared.push.continue_parked(&mut state.intake.clone(), &shared.refusals) {}
    starting.done();
    close(state, served)?;
    info!(took = ?begun.elapsed(), "synced the state and stopped");
    Ok(())
}

/// The parts that are created before the state is opened, because a daemon that cannot listen must
/// not change the state.
struct BoundParts {
    server: Server,
    listeners: BoundInputs,
    rules: Option<Rules>,
    /// The maximum number of watched segments.
    most: usize,
}

/// Binds all sockets, and reads the rules.
fn bind(settings: &Settings) -> Result<BoundParts, Error> {
    let files = check_open_files(settings)?;
    let mut http = settings.http.clone();
    let most = settings.segments.most.min(files / 4);
    http.limits.other_files = other_files(settings, files, most);
    http.access.hosts.extend(own_names());
    let server = Server::bind(&settings.listen, &http).map_err(Error::Http)?;
    let rules = settings.rules.as_deref().map(Rules::read).transpose().map_err(Error::Rules)?;
    let listeners = BoundInputs::bind(&settings.inputs, files).map_err(Error::Listeners)?;
    Ok(BoundParts { server, listeners, rules, most })
}

/// Returns the names of this machine: its host name, if the system provides it, and its name in
/// multicast DNS.
fn own_names() -> Vec<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    if name.is_empty() { Vec::new() } else { vec![name.to_owned(), format!("{name}.local")] }
}

/// Closes the state, even after an error of the server.
fn close(state: &State, served: Result<http::ShutdownReport, http::Error>) -> Result<(), Error> {
    let closed = state.segment.check_file().and_then(|()| state.segment.close());
    if let Ok(report) = &served
        && report.cut > 0
    {
        warn!(connections = report.cut, "cut connections that did not end in time");
    }
    served.map_err(Error::Serving)?;
    closed.map_err(Error::Sync)
}

/// Returns the number of files that the daemon needs in addition to the server's files: for
/// listener connections, for connections to receivers and targets, and for at most `most` watched
/// segments.
fn other_files(settings: &Settings, files: usize, most: usize) -> usize {
    let watched = if settings.segments.places.is_empty() { 0 } else { most };
    let outputs = &settings.outputs;
    let receivers = outputs.receivers.len() + outputs.otlp.receivers.len();
    let more_shards = outputs.receivers.len() * usize::from(outputs.shards.saturating_sub(1));
    let clients = (receivers + settings.targets.targets.len()) * FILES_PER_CLIENT
        + more_shards * FILES_PER_SHARD;
    listeners::connections(&settings.inputs, files) + clients + watched
}

/// Starts the agent, if it has any source.
fn watch(
    state: &State,
    metrics: &Metrics,
    settings: &Settings,
    most: usize,
    targets: &Targets,
) -> Result<Option<Agent>, Error> {
    let (has_files, has_targets) =
        (!settings.segments.places.is_empty(), !settings.targets.targets.is_empty());
    if !has_files && !has_targets {
        return Ok(None);
    }
    let options = agent::Options { most, ..settings.segments.clone() };
    let agent = Agent::start(options, targets.others(), state.intake.registry().clone())
        .map_err(|error| Error::System("start a thread", error))?;
    let own = agent::Own::new(agent.readings(), has_files, has_targets);
    let failed = |error| Error::Metrics(error, state::addresses(settings));
    metrics.registry().register_collector(own).map_err(failed)?;
    Ok(Some(agent))
}

/// Starts the recorder, if it is enabled.
fn record(metrics: &Metrics, settings: &Settings) -> Result<Option<Recorder>, Error> {
    let agent::Options { places, record, own, .. } = &settings.segments;
    let Some(count) = record.filter(|_| !places.is_empty()) else { return Ok(None) };
    let options = recording::Options { places: places.clone(), count, except: own.clone() };
    let recorder =
        Recorder::start(options).map_err(|error| Error::System("start a thread", error))?;
    let failed = |error| Error::Metrics(error, state::addresses(settings));
    metrics.registry().register_collector(recorder.metrics()).map_err(failed)?;
    Ok(Some(recorder))
}

/// Handles signals in a separate thread, because the server can be busy. The first signal sends a
/// message. The process then ends at the latest after `time` plus one second, unless the returned
/// sender is dropped before.
fn watch_signals(
    signals: Signals,
    time: Duration,
) -> Result<(oneshot::Receiver<()>, mpsc::Sender<()>), Error> {
    let (stop, stopped) = oneshot::channel();
    let (ended, watched) = mpsc::channel();
    let run = move || {
        signals.first();
        let _ = stop.send(());
        signals::end_after(time.saturating_add(GRACE), &watched);
    };
    let thread = thread::Builder::new().name("signals".into()).spawn(run);
    thread.map_err(|error| Error::System("start a thread", error))?;
    Ok((stopped, ended))
}

/// Creates the state that all inputs share, and makes scrapes of the inputs include the daemon's
/// own metrics.
fn share_inputs(
    state: &'static State,
    metrics: &Metrics,
    settings: &Settings,
    mut rules: Option<Rules>,
) -> Result<&'static Shared, quipu::Error> {
    if let Some(rules) = &mut rules {
        rules.count(metrics.registry())?;
    }
    state.intake.registry().register_collector(OwnMetrics::new(metrics.registry()))?;
    let refusals = Refusals::new(metrics.registry(), &state.taken)?;
    let (access, flags) = (settings.http.access.clone(), settings.flags.shown());
    let shared = Shared::new(settings.inputs.clone(), refusals, rules, access, flags);
    Ok(Box::leak(Box::new(shared)))
}

/// Checks that there is address space for the threads and the heap, because a failed allocation
/// would end the process later.
fn check_spare(addresses: u64) -> Result<(), Error> {
    if memory::has_room(SPARE) { Ok(()) } else { Err(Error::Addresses(addresses)) }
}

/// Logs the addresses, and whether the number of connections is lower than requested.
fn log_listening(server: &Server, settings: &Settings) {
    for address in server.local_addresses() {
        info!(%address, connections = server.connections(), "listening");
    }
    for path in server.local_paths() {
        info!(
            address = format!("unix:{}", printable(path)),
            connections = server.connections(),
            "listening"
        );
    }
    if server.connections() < settings.http.limits.connections {
        warn!(
            connections = server.connections(),
            asked = settings.http.limits.connections,
            "fewer connections than asked for: limited by open files (ulimit -n)"
        );
    }
}

/// Raises the limit on open files, checks that it is sufficient for the daemon, and returns it.
fn check_open_files(settings: &Settings) -> Result<usize, Error> {
    let least = MIN_FILES + settings.http.threads * (MIN_FILES_PER_THREAD + settings.listen.len());
    let files = raise_open_files().and_then(|files| usize::try_from(files).ok());
    match files.unwrap_or(usize::MAX) {
        files if files < least => {
            let message = format!("it may open {files} files and needs {least} (ulimit -n)");
            Err(Error::System("start", std::io::Error::other(message)))
        }
        files => Ok(files),
    }
}

/// Raises the limit on open files to the hard limit, because each connection is an open file.
fn raise_open_files() -> Option<u64> {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Ignore the error, because the server adapts the number of connections to the limit, and logs
    // this.
    let _ = setrlimit(Resource::Nofile, limit);
    getrlimit(Resource::Nofile).current
}

/// The memory that all threads and the heap need after the state and the metrics were created, in
/// bytes.
const SPARE: usize = 32 << 20;
/// The minimum number of open files: the daemon's own files, and some for connections.
const MIN_FILES: usize = 32;
/// The minimum number of open files for each server thread.
const MIN_FILES_PER_THREAD: usize = 8;
/// The number of files for a receiver: a connection, the lookup of its address, and its queue.
const FILES_PER_CLIENT: usize = 8;
/// The number of files for each additional shard of a receiver: a connection, the lookup of its
/// address, and a file with credentials.
const FILES_PER_SHARD: usize = 4;

/// The time to stop after the drain timeout, which the server itself enforces.
const GRACE: Duration = Duration::from_secs(1);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::State(error) => write!(f, "{error}"),
            Self::Http(error) | Self::Serving(error) => write!(f, "{error}"),
            Self::Listeners(error) => write!(f, "{error}"),
            Self::Rules(error) => write!(f, "{error}"),
            Self::Outputs(error) => write!(f, "{error}"),
            Self::Targets(error) => write!(f, "{error}"),
            Self::Metrics(error, addresses) => write!(
                f,
                "cannot make the daemon's own metrics: {error}; the whole daemon needs {} KiB of \
                 addresses (ulimit -v)",
                addresses.div_ceil(1024)
            ),
            Self::Addresses(addresses) => write!(
                f,
                "too little address space is left for its threads; the whole daemon needs {} KiB \
                 of addresses (ulimit -v)",
                addresses.div_ceil(1024)
            ),
            Self::Clock => f.write_str("the system's clock shows a time before 1970; set it"),
            Self::System(action, error) => {
                write!(f, "the system does not let the daemon {action}: {error}; raise its limits")
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
