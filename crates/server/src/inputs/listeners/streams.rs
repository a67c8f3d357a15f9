//! The loop of a listener for connections: all of them on one thread, with bounds on their number,
//! on the length of a line, and on the time without one.

use std::io;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

use quipu_wire::remote::{FrameBuffer, LineBuffer};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with, acceptfrom_with};
use tracing::{debug, error};

use super::metrics::ListenerMetrics;
use super::receiver::{Reader, Receiver, Sender};
use super::sockets::{Socket, Transport};
use super::stop::Stop;
use crate::client;

/// Accepts and reads until it is stopped, and then what the sockets still hold.
/// At most `most` connections are open at a time.
pub(super) fn run<R: Reader>(
    socket: &Socket,
    stop: &Stop,
    receiver: &mut Receiver<R>,
    most: usize,
) -> io::Result<()> {
    let mut connections = Connections::new(socket, stop, most)?;
    let mut events = Vec::with_capacity(EVENTS);
    let sweep = Timespec { tv_sec: SWEEP.as_secs() as i64, tv_nsec: 0 };
    let mut swept = Instant::now();
    while !stop.is_asked() {
        match epoll::wait(&connections.epoll, spare_capacity(&mut events), Some(&sweep)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in events.drain(..) {
            match event.data.u64() {
                STOP => {}
                LISTENER => _ = connections.accept(receiver),
                place => connections.read(place, receiver),
            }
        }
        receiver.flush();
        if swept.elapsed() >= SWEEP {
            swept = Instant::now();
            connections.close_idle(receiver.metrics());
        }
    }
    connections.read_the_rest(receiver);
    receiver.flush();
    Ok(())
}

/// The open connections of a listener.
struct Connections<'a> {
    socket: &'a Socket,
    epoll: OwnedFd,
    /// The most of them.
    most: usize,
    places: Vec<Option<Connection>>,
    free: Vec<usize>,
    buffer: Vec<u8>,
}

struct Connection {
    descriptor: OwnedFd,
    input: Input,
    /// The client; the address of the listener for a unix socket.
    source: String,
    last_read: Instant,
}

/// How the input of a connection is divided.
enum Input {
    /// Nothing has come in yet.
    Unknown,
    /// At line feeds.
    Lines(LineBuffer),
    /// By lengths, as clients of Datadog write to unix sockets.
    Frames(FrameBuffer),
}

/// What came of reading a connection.
#[derive(PartialEq, Eq)]
enum Read {
    /// Some bytes; there may be more.
    Some,
    /// Nothing at the moment.
    Nothing,
    /// The client has ended it, in order or not.
    End,
}

impl<'a> Connections<'a> {
    fn new(socket: &'a Socket, stop: &Stop, most: usize) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let (listener, stopped) =
            (epoll::EventData::new_u64(LISTENER), epoll::EventData::new_u64(STOP));
        epoll::add(&epoll, &socket.descriptor, listener, epoll::EventFlags::IN)?;
        epoll::add(&epoll, stop, stopped, epoll::EventFlags::IN)?;
        let buffer = Vec::with_capacity(READ_BYTES);
        Ok(Self { socket, epoll, most, places: Vec::new(), free: Vec::new(), buffer })
    }

    /// Accepts some of the connections that wait. Returns whether there may be more.
    fn accept<R: Reader>(&mut self, receiver: &Receiver<R>) -> bool {
        for _ in 0..ACCEPTS {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let accepted = match self.socket.transport {
                Transport::Tcp => acceptfrom_with(&self.socket.descriptor, flags)
                    .map(|(descriptor, address)| (descriptor, address.and_then(source))),
                _ => {
                    accept_with(&self.socket.descriptor, flags).map(|descriptor| (descriptor, None))
                }
            };
            match accepted {
                Ok((descriptor, source)) => self.add(descriptor, source, receiver.metrics()),
                Err(Errno::AGAIN) => return false,
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(error) => {
                    // No descriptors or memory are left. The connection waits in the queue.
                    error!(%error, address = self.socket.address, "cannot accept a connection");
                    thread::sleep(PAUSE_AFTER_ERROR);
                    return false;
                }
            }
        }
        true
    }

    fn add(&mut self, descriptor: OwnedFd, source: Option<String>, metrics: &ListenerMetrics) {
        if self.places.len() - self.free.len() >= self.most {
            metrics.refused.inc();
            return;
        }
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() - 1
        });
        let data = epoll::EventData::new_u64(place as u64);
        if let Err(error) = epoll::add(&self.epoll, &descriptor, data, epoll::EventFlags::IN) {
            error!(%error, address = self.socket.address, "cannot watch a connection");
            self.free.push(place);
            return;
        }
        metrics.accepted.inc();
        metrics.open.inc();
        self.places[place] = Some(Connection {
            descriptor,
            input: Input::Unknown,
            source: source.unwrap_or_else(|| self.socket.address.clone()),
            last_read: Instant::now(),
        });
    }

    /// Reads once from a connection, so that one that never ends does not hold up the others.
    fn read<R: Reader>(&mut self, place: u64, receiver: &mut Receiver<R>) {
        let place = place as usize;
        let Some(Some(connection)) = self.places.get_mut(place) else { return };
        if connection.read(&mut self.buffer, receiver) == Read::End {
            self.close(place, receiver.metrics());
        }
    }

    fn close(&mut self, place: usize, metrics: &ListenerMetrics) {
        // Closing the descriptor also ends its watch.
        if self.places[place].take().is_some() {
            self.free.push(place);
            metrics.open.dec();
        }
    }

    fn close_idle(&mut self, metrics: &ListenerMetrics) {
        for place in 0..self.places.len() {
            let is_idle = |connection: &Connection| connection.last_read.elapsed() > IDLE;
            if self.places[place].as_ref().is_some_and(is_idle) {
                debug!(address = self.socket.address, "closed an idle connection");
                self.close(place, metrics);
            }
        }
    }

    /// Reads what is there, for a bounded time, since clients may go on sending. A line that has no
    /// end yet is not taken: its client still writes it.
    fn read_the_rest<R: Reader>(&mut self, receiver: &mut Receiver<R>) {
        let begun = Instant::now();
        // The queue of a listener is bounded, but clients may go on connecting.
        while self.accept(receiver) && begun.elapsed() < LAST_READS {}
        for place in 0..self.places.len() {
            while let Some(connection) = &mut self.places[place] {
                let read = connection.read(&mut self.buffer, receiver);
                if read != Read::Some || begun.elapsed() > LAST_READS {
                    self.close(place, receiver.metrics());
                }
            }
        }
    }
}

impl Connection {
    fn read<R: Reader>(&mut self, buffer: &mut Vec<u8>, receiver: &mut Receiver<R>) -> Read {
        buffer.clear();
        let ends_in_order = match rustix::io::read(&self.descriptor, spare_capacity(buffer)) {
            Ok(0) => true,
            Ok(_) => {
                self.last_read = Instant::now();
                self.input.push(buffer, receiver, &self.source);
                return Read::Some;
            }
            Err(Errno::AGAIN | Errno::INTR) => return Read::Nothing,
            Err(_) => false,
        };
        if ends_in_order {
            self.input.finish(receiver, &self.source);
        }
        Read::End
    }
}

impl Input {
    fn push<R: Reader>(&mut self, bytes: &[u8], receiver: &mut Receiver<R>, source: &dyn Sender) {
        if let Self::Unknown = self {
            // The first four bytes of a frame are its length, which is far below 2^16. Lines have
            // no zeros.
            *self = match bytes {
                [_, _, 0, ..] | [_, 0] | [0] if R::FRAMES => {
                    Self::Frames(FrameBuffer::new(MAX_FRAME))
                }
                _ => Self::Lines(LineBuffer::new(MAX_LINE)),
            };
        }
        match self {
            Self::Unknown => {}
            Self::Lines(lines) => lines.push(bytes, |cut| receiver.cut(cut, source)),
            Self::Frames(frames) => frames.push(bytes, |cut| receiver.cut(cut, source)),
        }
    }

    /// Takes the last line, which may have no line feed. The rest of a frame is incomplete.
    fn finish<R: Reader>(&mut self, receiver: &mut Receiver<R>, source: &dyn Sender) {
        if let Self::Lines(lines) = self {
            lines.finish(|cut| receiver.cut(cut, source));
        }
    }
}

fn source(address: rustix::net::SocketAddrAny) -> Option<String> {
    let address = std::net::SocketAddr::try_from(address).ok()?;
    Some(client::identity(address.ip()).to_string())
}

/// What an event is about; smaller numbers are places of connections.
const LISTENER: u64 = u64::MAX;
const STOP: u64 = u64::MAX - 1;

/// Events of one wait.
const EVENTS: usize = 64;
/// Connections that are accepted before others are read.
const ACCEPTS: usize = 64;
/// The most open connections of one listener.
pub(super) const MAX_CONNECTIONS: usize = 1024;
/// Bytes of a line.
const MAX_LINE: usize = 16_384;
/// Bytes of a packet on a stream; clients send 8 KiB at most.
const MAX_FRAME: usize = 65_535;
/// The time that a connection may stay open without sending anything.
const IDLE: Duration = Duration::from_secs(600);
const SWEEP: Duration = Duration::from_secs(10);
const READ_BYTES: usize = 65_536;
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(100);
/// The time for what connections hold when the daemon stops.
const LAST_READS: Duration = Duration::from_millis(500);
