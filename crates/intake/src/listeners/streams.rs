//! The loop of a listener for connections (TCP and unix streams). One thread serves all
//! connections, and limits their number, the length of a line, and the idle time.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
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
use super::shares::{Client, Peer, Share, Shares, Usage};
use super::sockets::{Socket, Transport};
use super::stop::Stop;
use quipu_process::address;

/// Accepts and reads connections until the stop, and then reads the remaining data. At most `most`
/// connections are open at a time.
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
    /// The maximum number of connections.
    most: usize,
    places: Vec<Option<Connection>>,
    free: Vec<usize>,
    shares: Shares,
    buffer: Vec<u8>,
}

struct Connection {
    descriptor: OwnedFd,
    input: ConnectionInput,
    /// The address of the client; for a unix socket, the address of the listener.
    source: String,
    share: Share,
    last_read: Instant,
}

/// The buffer that splits the data of a connection into lines or packets.
enum ConnectionInput {
    /// No data yet, so the format is unknown.
    Unknown,
    /// Lines that end with a line feed.
    Lines(LineBuffer),
    /// Packets with a length prefix, which Datadog's clients write to unix sockets.
    Frames(FrameBuffer),
}

/// The outcome of a read from a connection.
#[derive(PartialEq, Eq)]
enum ReadOutcome {
    /// Some bytes. More may be available.
    Some,
    /// No bytes are available at the moment.
    Nothing,
    /// The client closed the connection, cleanly or not.
    End,
}

impl<'a> Connections<'a> {
    fn new(socket: &'a Socket, stop: &Stop, most: usize) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let (listener, stopped) =
            (epoll::EventData::new_u64(LISTENER), epoll::EventData::new_u64(STOP));
        epoll::add(&epoll, &socket.descriptor, listener, epoll::EventFlags::IN)?;
        epoll::add(&epoll, stop, stopped, epoll::EventFlags::IN)?;
        Ok(Self {
            socket,
            epoll,
            most,
            places: Vec::new(),
            free: Vec::new(),
            shares: Shares::default(),
            buffer: Vec::with_capacity(READ_BYTES),
        })
    }

    /// Accepts up to [`ACCEPTS`] waiting connections. Returns whether more may be waiting.
    fn accept<R: Reader>(&mut self, receiver: &mut Receiver<R>) -> bool {
        for _ in 0..ACCEPTS {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let accepted = match self.socket.transport {
                Transport::Tcp => acceptfrom_with(&self.socket.descriptor, flags)
                    .map(|(descriptor, address)| (descriptor, address.and_then(identity))),
                _ => {
                    accept_with(&self.socket.descriptor, flags).map(|descriptor| (descriptor, None))
                }
            };
            match accepted {
                Ok((descriptor, address)) => self.add(descriptor, address, receiver),
                Err(Errno::AGAIN) => return false,
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(error) => {
                    // There are no free descriptors or memory. The connection stays in the kernel's
                    // queue.
                    error!(%error, address = self.socket.address, "cannot accept a connection");
                    thread::sleep(PAUSE_AFTER_ERROR);
                    return false;
                }
            }
        }
        true
    }

    fn add<R: Reader>(
        &mut self,
        descriptor: OwnedFd,
        address: Option<IpAddr>,
        receiver: &mut Receiver<R>,
    ) {
        let peer = match self.socket.transport {
            Transport::UnixStream => local_peer(&descriptor),
            _ => Peer { client: Client::Address(address), process: 0 },
        };
        let is_full = self.places.len() - self.free.len() >= self.most;
        if is_full && !self.make_room(peer, receiver) {
            receiver.metrics().refused.inc();
            return;
        }
        let metrics = receiver.metrics();
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
            input: ConnectionInput::Unknown,
            source: address
                .map_or_else(|| self.socket.address.clone(), |address| address.to_string()),
            share: self.shares.enter(peer),
            last_read: Instant::now(),
        });
    }

    /// Closes a connection in favour of a new one from this peer, after handling its buffered
    /// lines. Returns false if no connection can be closed.
    fn make_room<R: Reader>(&mut self, peer: Peer, receiver: &mut Receiver<R>) -> bool {
        let now = Instant::now();
        let connections = self.places.iter().enumerate().filter_map(|(place, connection)| {
            let connection = connection.as_ref()?;
            Some((place, &connection.share, connection.usage(now)))
        });
        let Some(place) = self.shares.choose_victim(peer, connections) else { return false };
        if let Some(connection) = &mut self.places[place] {
            debug!(
                address = self.socket.address,
                client = connection.source,
                "closed a connection to make room for another"
            );
            for _ in 0..MAX_LAST_READS {
                if connection.read(&mut self.buffer, receiver) != ReadOutcome::Some {
                    break;
                }
            }
        }
        self.close(place, receiver.metrics());
        receiver.metrics().gave_way.inc();
        true
    }

    /// Reads once from a connection, because an endless stream must not delay the others.
    fn read<R: Reader>(&mut self, place: u64, receiver: &mut Receiver<R>) {
        let place = place as usize;
        let Some(Some(connection)) = self.places.get_mut(place) else { return };
        if connection.read(&mut self.buffer, receiver) == ReadOutcome::End {
            self.close(place, receiver.metrics());
        }
    }

    fn close(&mut self, place: usize, metrics: &ListenerMetrics) {
        // Closing the descriptor also removes it from the epoll set.
        if let Some(connection) = self.places[place].take() {
            self.shares.leave(&connection.share);
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

    /// Reads the remaining data for a limited time, because clients can continue to send. Drops an
    /// unfinished line, because its client is still writing it.
    fn read_the_rest<R: Reader>(&mut self, receiver: &mut Receiver<R>) {
        let begun = Instant::now();
        // We limit this time, because new clients can connect while we accept.
        while self.accept(receiver) && begun.elapsed() < LAST_READS {}
        for place in 0..self.places.len() {
            while let Some(connection) = &mut self.places[place] {
                let read = connection.read(&mut self.buffer, receiver);
                if read != ReadOutcome::Some || begun.elapsed() > LAST_READS {
                    self.close(place, receiver.metrics());
                }
            }
        }
    }
}

impl Connection {
    fn usage(&self, now: Instant) -> Usage {
        let has_sent_nothing = matches!(self.input, ConnectionInput::Unknown);
        Usage { has_sent_nothing, idle: now.saturating_duration_since(self.last_read) }
    }

    fn read<R: Reader>(&mut self, buffer: &mut Vec<u8>, receiver: &mut Receiver<R>) -> ReadOutcome {
        buffer.clear();
        let ends_in_order = match rustix::io::read(&self.descriptor, spare_capacity(buffer)) {
            Ok(0) => true,
            Ok(_) => {
                self.last_read = Instant::now();
                self.input.push(buffer, receiver, &self.source);
                return ReadOutcome::Some;
            }
            Err(Errno::AGAIN | Errno::INTR) => return ReadOutcome::Nothing,
            Err(_) => false,
        };
        if ends_in_order {
            self.input.finish(receiver, &self.source);
        }
        ReadOutcome::End
    }
}

impl ConnectionInput {
    fn push<R: Reader>(&mut self, bytes: &[u8], receiver: &mut Receiver<R>, source: &dyn Sender) {
        if let Self::Unknown = self {
            // The length prefix has four bytes, and lengths are far below 2^16, so its high bytes
            // are zero. Lines contain no zero bytes.
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

    /// Handles the last line, even without a line feed. An incomplete packet is dropped.
    fn finish<R: Reader>(&mut self, receiver: &mut Receiver<R>, source: &dyn Sender) {
        if let Self::Lines(lines) = self {
            lines.finish(|cut| receiver.cut(cut, source));
        }
    }
}

fn identity(address: rustix::net::SocketAddrAny) -> Option<IpAddr> {
    let address = SocketAddr::try_from(address).ok()?;
    Some(address::identity(address.ip()))
}

/// Returns the user and the process at the other end of a unix socket.
fn local_peer(descriptor: &OwnedFd) -> Peer {
    let mut peer = libc::ucred { pid: 0, uid: libc::uid_t::MAX, gid: libc::gid_t::MAX };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: The descriptor is open while it is borrowed, and the pointers and the length
    // describe `peer`, which outlives the call. If the call fails, `peer` remains a user of no
    // process. rustix would make a process id of a zero, which means that the process is not in
    // the namespace of this one.
    unsafe {
        libc::getsockopt(
            descriptor.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut length,
        );
    }
    Peer { client: Client::User(peer.uid), process: peer.pid }
}

/// The epoll key of the listening socket. Smaller keys are indices of connections.
const LISTENER: u64 = u64::MAX;
/// The epoll key of the stop signal.
const STOP: u64 = u64::MAX - 1;

/// The maximum number of events per `epoll_wait`.
const EVENTS: usize = 64;
/// The maximum number of connections to accept before reading from the others.
const ACCEPTS: usize = 64;
/// The maximum number of open connections of one listener.
pub(super) const MAX_CONNECTIONS: usize = 1024;
/// The maximum length of a line in bytes.
const MAX_LINE: usize = 16_384;
/// The maximum size of a packet on a stream in bytes. Clients send at most 8 KiB.
const MAX_FRAME: usize = 65_535;
/// The time after which a connection without any data is closed.
const IDLE: Duration = Duration::from_secs(600);
/// The time between two checks for idle connections.
const SWEEP: Duration = Duration::from_secs(10);
/// The size of the receive buffer in bytes.
const READ_BYTES: usize = 65_536;
/// The maximum number of reads from a connection before it is closed in favour of another. The
/// kernel buffers at most 6 MiB, unless `net.ipv4.tcp_rmem` was raised.
const MAX_LAST_READS: usize = 128;
/// The pause after a failed accept, because the next one would probably fail too.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(100);
/// The maximum time for the remaining data when the daemon stops.
const LAST_READS: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn the_process_at_the_other_end_of_a_unix_socket_is_its_peer() {
        let (socket, _other) = UnixStream::pair().unwrap();
        let user = rustix::process::getuid().as_raw();
        let process = i32::try_from(std::process::id()).unwrap();
        assert_eq!(local_peer(&socket.into()), Peer { client: Client::User(user), process });
    }
}
