//! The listeners of StatsD and Graphite. They receive lines over UDP, TCP and unix sockets.
//!
//! Each listener is a thread with a separate intake. The daemon binds the sockets before it opens
//! its state file, and reads them until it stops. The `Reader` of a protocol parses the lines.

mod address;
mod cache;
mod datagrams;
mod labels;
pub mod mapping;
mod metrics;
mod names;
mod receiver;
mod shares;
mod sockets;
mod stop;
mod streams;

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use quipu::intake::Intake;
use quipu::{Registry, Scope};
use quipu_process::settings::{Unusable, in_range};
use quipu_process::size::Size;
use tracing::error;

pub use address::Address;
pub(super) use cache::MissCounter;
pub(super) use labels::{put_labels, recycle};
use mapping::Mapping;
use metrics::ListenerFamilies;
pub(super) use names::NameResolver;
use receiver::Receiver;
pub(super) use receiver::{Common, Reader, Report};
use sockets::{Socket, Transport};
use stop::Stop;
use streams::MAX_CONNECTIONS;

use crate::list::LineInput;
use crate::{self as inputs, LIST, Shared};

/// A line protocol: StatsD or Graphite.
#[derive(Debug, Clone, Copy)]
pub struct Protocol {
    /// The name for log messages.
    pub name: &'static str,
    /// The flag for the addresses of listeners, and the prefix of the other flags and of the
    /// metrics.
    pub flag: &'static str,
}

/// The settings of the listeners of one protocol.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The addresses where listeners receive lines.
    pub addresses: Vec<Address>,
    /// The path of the mapping file.
    pub mapping: Option<PathBuf>,
    /// Whether the names of all counters end in `_total`.
    pub suffixes: bool,
    /// The requested size of the UDP receive buffer, in bytes.
    pub receive_buffer: usize,
}

impl Options {
    /// Returns the number of listeners that accept connections.
    fn streams(&self) -> usize {
        let is_stream =
            |address: &&Address| matches!(address, Address::Tcp(_) | Address::UnixStream(_));
        self.addresses.iter().filter(is_stream).count()
    }
}

/// Returns the requested size of the receive buffer, after checking its range.
///
/// # Errors
/// Fails for a number out of its bounds.
pub(crate) fn receive_buffer(
    flag: &'static str,
    bytes: Option<Size<usize>>,
) -> Result<usize, Unusable> {
    in_range(flag, bytes, 4096, 1 << 30)
}

/// Returns all inputs that read lines, in the order of the list of inputs.
fn all() -> impl Iterator<Item = &'static LineInput> {
    LIST.iter().filter_map(|row| row.lines.as_ref())
}

/// Checks the mapping files of all listeners, without starting them.
///
/// # Errors
/// Returns the error of a file. It names the line and the remedy.
pub fn check_mappings(inputs: &inputs::Options) -> Result<(), mapping::Error> {
    for input in all() {
        if let Some(path) = &(input.options)(inputs).mapping {
            Mapping::read(path, input.protocol.flag)?;
        }
    }
    Ok(())
}

/// Returns the maximum number of connections of all listeners together, if the process can open
/// `files` files.
pub fn connections(inputs: &inputs::Options, files: usize) -> usize {
    let streams = streams(inputs);
    streams * connections_of_each(files, streams)
}

/// Returns the maximum number of connections of each listener.
fn connections_of_each(files: usize, streams: usize) -> usize {
    (files / 4 / streams.max(1)).clamp(1, MAX_CONNECTIONS)
}

/// Returns the number of listeners that accept connections.
fn streams(inputs: &inputs::Options) -> usize {
    all().map(|input| (input.options)(inputs).streams()).sum()
}

/// The bound sockets of all inputs that read lines.
#[derive(Debug)]
pub struct BoundInputs(Vec<(&'static LineInput, Listeners)>);

impl BoundInputs {
    /// Reads the mapping files and binds all sockets. `files` is the number of files that the
    /// process can open.
    ///
    /// # Errors
    /// Returns an [`Error`] that names the flag.
    pub fn bind(inputs: &inputs::Options, files: usize) -> Result<Self, Error> {
        let connections = connections_of_each(files, streams(inputs));
        let bind = |input: &'static LineInput| {
            let options = (input.options)(inputs);
            Ok((input, Listeners::bind(input.protocol, options, connections)?))
        };
        all().map(bind).collect::<Result<_, _>>().map(Self)
    }

    /// Starts a thread for each socket.
    ///
    /// # Errors
    /// Returns an [`Error`] if the system refuses a thread, or memory for the metrics.
    pub fn start(
        self,
        intake: &Intake,
        shared: &'static Shared,
        registry: &Registry,
    ) -> Result<Vec<RunningListeners>, Error> {
        let start = |(input, listeners): (&LineInput, _)| {
            (input.start)(listeners, intake, shared, registry)
        };
        self.0.into_iter().map(start).collect()
    }
}

/// The bound sockets of one protocol, before their threads start.
#[derive(Debug)]
pub struct Listeners {
    protocol: Protocol,
    sockets: Vec<Socket>,
    mapping: Option<Arc<Mapping>>,
    suffixes: bool,
    /// The maximum number of connections of each listener.
    connections: usize,
}

/// The threads of the listeners. Dropping this value stops the threads, after they have read the
/// remaining data from their sockets.
#[derive(Debug)]
pub struct RunningListeners {
    stop: Arc<Stop>,
    threads: Vec<JoinHandle<()>>,
}

/// The reason why listeners cannot start.
#[derive(Debug)]
pub struct Error {
    flag: &'static str,
    kind: ErrorKind,
}

#[derive(Debug)]
enum ErrorKind {
    /// A socket cannot be bound.
    Bind(Address, io::Error),
    /// The mapping file cannot be used.
    Mapping(mapping::Error),
    /// The system refused to create a thread or a pipe.
    System(io::Error),
    /// The listeners' own metrics cannot be created.
    Metrics(quipu::Error),
}

impl Listeners {
    /// Reads the mapping file, and binds all sockets, each for at most `connections` connections.
    ///
    /// # Errors
    /// Returns an [`Error`] that names the flag.
    fn bind(protocol: Protocol, options: &Options, connections: usize) -> Result<Self, Error> {
        let error = |kind| Error { flag: protocol.flag, kind };
        let mapping = options.mapping.as_deref().map(|path| Mapping::read(path, protocol.flag));
        let mapping = mapping.transpose().map_err(|e| error(ErrorKind::Mapping(e)))?.map(Arc::new);
        let bind = |address: &Address| {
            let socket = Socket::bind(address, options.receive_buffer);
            socket.map_err(|e| error(ErrorKind::Bind(address.clone(), e)))
        };
        let sockets = options.addresses.iter().map(bind).collect::<Result<_, _>>()?;
        Ok(Self { protocol, sockets, mapping, suffixes: options.suffixes, connections })
    }

    /// Starts a thread for each socket. If there is any, `prepare` registers the metrics of the
    /// protocol, and returns a function that creates the reader of a listener.
    ///
    /// # Errors
    /// Returns an [`Error`] if the system refuses a thread, or memory for the metrics.
    pub(super) fn start<R: Reader, F: Fn(NameResolver) -> R>(
        self,
        intake: &Intake,
        shared: &'static Shared,
        registry: &Registry,
        prepare: impl FnOnce(&Scope) -> Result<F, quipu::Error>,
    ) -> Result<RunningListeners, Error> {
        let protocol = self.protocol;
        let error = |kind| Error { flag: protocol.flag, kind };
        let stop = Stop::new().map_err(|e| error(ErrorKind::System(e)))?;
        let mut running = RunningListeners { stop: Arc::new(stop), threads: Vec::new() };
        if self.sockets.is_empty() {
            return Ok(running);
        }
        let scope = registry.prefix("quipu").prefix(protocol.flag);
        let registered =
            scope.metrics::<ListenerFamilies>().and_then(|own| Ok((own, prepare(&scope)?)));
        let (families, reader) = registered.map_err(|e| error(ErrorKind::Metrics(e)))?;
        for socket in self.sockets {
            socket.log(protocol);
            let metrics = families.listener(&socket.address);
            if let Transport::Udp(buffer) = socket.transport {
                metrics.receive_buffer.set(i64::try_from(buffer).unwrap_or(i64::MAX));
            }
            let reader = reader(NameResolver::new(self.mapping.clone(), self.suffixes));
            let mut receiver = Receiver::new(intake.clone(), shared, metrics, reader);
            let (stop, most) = (Arc::clone(&running.stop), self.connections);
            let is_of_datagrams =
                matches!(socket.transport, Transport::Udp(_) | Transport::UnixDatagram);
            let room = is_of_datagrams.then(datagrams::PacketMemory::take).transpose();
            let room = room.map_err(|e| error(ErrorKind::System(e)))?;
            let run = move || match room {
                Some(room) => datagrams::run(&socket, &stop, &mut receiver, protocol, room),
                None => {
                    if let Err(error) = streams::run(&socket, &stop, &mut receiver, most) {
                        let Protocol { name, .. } = protocol;
                        error!(%error, address = socket.address, "receiving {name} has ended");
                    }
                }
            };
            let thread = thread::Builder::new().name(protocol.flag.into()).spawn(run);
            running.threads.push(thread.map_err(|e| error(ErrorKind::System(e)))?);
        }
        Ok(running)
    }
}

/// A function that handles packets, for fuzzing.
#[doc(hidden)]
pub type PacketSink = Box<dyn FnMut(&[u8])>;

/// Handles packets like a listener, but without a socket, for fuzzing.
pub(super) fn lines<R: Reader, F: Fn(NameResolver) -> R>(
    protocol: Protocol,
    intake: &Intake,
    shared: &'static Shared,
    registry: &Registry,
    prepare: impl FnOnce(&Scope) -> Result<F, quipu::Error>,
) -> Result<PacketSink, quipu::Error> {
    let scope = registry.prefix("quipu").prefix(protocol.flag);
    let (families, reader): (ListenerFamilies, _) = (scope.metrics()?, prepare(&scope)?);
    let (metrics, reader) = (families.listener("memory"), reader(NameResolver::new(None, false)));
    let mut receiver = Receiver::new(intake.clone(), shared, metrics, reader);
    Ok(Box::new(move |packet| {
        receiver.packet(packet, &"memory".to_owned());
        receiver.flush();
    }))
}

impl Drop for RunningListeners {
    fn drop(&mut self) {
        self.stop.ask();
        for thread in self.threads.drain(..) {
            // We ignore the error, because the thread has already reported its panic.
            let _ = thread.join();
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { flag, kind } = self;
        match kind {
            ErrorKind::Bind(address, error) => {
                write!(f, "cannot use --{flag} {address}: {error}")?;
                let hint = match error.raw_os_error() {
                    Some(libc::EADDRINUSE) => "another process has the port: give another one",
                    Some(libc::EADDRNOTAVAIL) => "give an address of this machine",
                    Some(libc::EACCES) => "give a port over 1023",
                    _ => return Ok(()),
                };
                write!(f, "; {hint}")
            }
            ErrorKind::Mapping(error) => write!(f, "{error}"),
            ErrorKind::System(error) => write!(
                f,
                "the system does not let the daemon start a thread for --{flag}: {error}; raise \
                 its limits"
            ),
            ErrorKind::Metrics(error) => {
                write!(f, "cannot make the metrics of --{flag}: {error}")
            }
        }
    }
}

impl std::error::Error for Error {}
