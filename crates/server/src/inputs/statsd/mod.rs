//! StatsD and DogStatsD: lines of metrics that come in over UDP, TCP and unix sockets.
//!
//! Each listener is a thread with an intake of its own. The sockets are bound before the daemon
//! opens its state, and read until it stops.

mod address;
mod datagrams;
mod forms;
pub mod mapping;
mod metrics;
mod names;
mod receiver;
mod recent;
mod sockets;
mod stop;
mod streams;

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use tracing::error;

pub use address::Address;
use mapping::Mapping;
use metrics::StatsdMetrics;
use names::Names;
use receiver::Receiver;
use sockets::{Socket, Transport};
use stop::Stop;
use streams::MAX_CONNECTIONS;

use crate::inputs::Shared;
use crate::metrics::Metrics;
use crate::state::State;

/// The settings of StatsD.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Where lines come in.
    pub addresses: Vec<Address>,
    /// The mapping file.
    pub mapping: Option<PathBuf>,
    /// Whether all counters end in `_total`.
    pub suffixes: bool,
    /// The receive buffer of UDP to ask for, in bytes.
    pub receive_buffer: usize,
}

impl Options {
    /// The most connections of each listener, in a process that may open that many files.
    pub fn connections(&self, files: usize) -> usize {
        (files / 4 / self.streams().max(1)).clamp(1, MAX_CONNECTIONS)
    }

    /// The number of listeners with connections.
    pub fn streams(&self) -> usize {
        let is_stream =
            |address: &&Address| matches!(address, Address::Tcp(_) | Address::UnixStream(_));
        self.addresses.iter().filter(is_stream).count()
    }
}

/// Bound sockets, which nothing reads yet.
#[derive(Debug)]
pub struct Listeners {
    sockets: Vec<Socket>,
    mapping: Option<Arc<Mapping>>,
    suffixes: bool,
    /// The most connections of each listener.
    connections: usize,
}

/// Listeners at work. Dropping this stops them, after they have read what their sockets hold.
#[derive(Debug)]
pub struct Running {
    stop: Arc<Stop>,
    threads: Vec<JoinHandle<()>>,
}

/// Why there is no StatsD.
#[derive(Debug)]
pub enum Error {
    /// A socket cannot be bound.
    Bind(Address, io::Error),
    /// The mapping file cannot be used.
    Mapping(mapping::Error),
    /// The system refused a thread or a pipe.
    System(io::Error),
    /// The listeners' own metrics cannot be created.
    Metrics(quipu::Error),
}

impl Listeners {
    /// Reads the mapping file, and binds all sockets. The process may open `files` files.
    ///
    /// # Errors
    /// [`Error`], which names the flag.
    pub fn bind(options: &Options, files: usize) -> Result<Self, Error> {
        let mapping = options.mapping.as_deref().map(Mapping::read);
        let mapping = mapping.transpose().map_err(Error::Mapping)?.map(Arc::new);
        let bind = |address: &Address| {
            let socket = Socket::bind(address, options.receive_buffer);
            socket.map_err(|error| Error::Bind(address.clone(), error))
        };
        let sockets = options.addresses.iter().map(bind).collect::<Result<_, _>>()?;
        let connections = options.connections(files);
        Ok(Self { sockets, mapping, suffixes: options.suffixes, connections })
    }

    /// Starts a thread for each socket.
    ///
    /// # Errors
    /// [`Error`]: the system refuses a thread, or memory for the metrics.
    pub fn start(
        self,
        state: &State,
        shared: &'static Shared,
        metrics: &Metrics,
    ) -> Result<Running, Error> {
        let stop = Arc::new(Stop::new().map_err(Error::System)?);
        let mut running = Running { stop, threads: Vec::new() };
        if self.sockets.is_empty() {
            return Ok(running);
        }
        let metrics =
            StatsdMetrics::new(&metrics.registry().prefix("quipu")).map_err(Error::Metrics)?;
        for socket in self.sockets {
            socket.log();
            let metrics = metrics.listener(&socket.address);
            if let Transport::Udp(buffer) = socket.transport {
                metrics.receive_buffer.set(i64::try_from(buffer).unwrap_or(i64::MAX));
            }
            let names = Names::new(self.mapping.clone(), self.suffixes);
            let mut receiver = Receiver::new(state.intake.clone(), names, shared, metrics);
            let (stop, most) = (Arc::clone(&running.stop), self.connections);
            let run = move || match socket.transport {
                Transport::Udp(_) | Transport::UnixDatagram => {
                    datagrams::run(&socket, &stop, &mut receiver);
                }
                Transport::Tcp | Transport::UnixStream => {
                    if let Err(error) = streams::run(&socket, &stop, &mut receiver, most) {
                        error!(%error, address = socket.address, "receiving StatsD has ended");
                    }
                }
            };
            let thread = thread::Builder::new().name("statsd".into()).spawn(run);
            running.threads.push(thread.map_err(Error::System)?);
        }
        Ok(running)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.ask();
        for thread in self.threads.drain(..) {
            // The thread has already reported its panic.
            let _ = thread.join();
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bind(address, error) => {
                write!(f, "cannot use --statsd {address}: {error}")?;
                let hint = match error.raw_os_error() {
                    Some(libc::EADDRINUSE) => "another process has the port: give another one",
                    Some(libc::EADDRNOTAVAIL) => "give an address of this machine",
                    Some(libc::EACCES) => {
                        "give a port over 1023, or a path in a directory that \
                                           this user may write to"
                    }
                    Some(libc::ENOENT) => "create its directory",
                    _ => return Ok(()),
                };
                write!(f, "; {hint}")
            }
            Self::Mapping(error) => write!(f, "{error}"),
            Self::System(error) => write!(
                f,
                "the system does not let the daemon start a thread for --statsd: {error}; raise \
                 its limits"
            ),
            Self::Metrics(error) => write!(f, "cannot make the metrics of --statsd: {error}"),
        }
    }
}

impl std::error::Error for Error {}
