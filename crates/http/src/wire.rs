//! The socket of one connection, as hyper uses it. It differs from a plain `TcpStream` in two ways:
//!
//! * It joins the reactor lazily. A fresh socket is simply tried, and only a call that would block
//!   registers it. For example, a connection that arrives together with its request and is closed
//!   after the response never touches epoll. After a short read, the socket is known to be drained.
//!   It is not tried again until the reactor reports it readable. (Joining at once: 6,500 more
//!   instructions in user space and 2.6 us more of processor time for each connection of `ab
//!   -c100`.)
//! * It is corked. Small writes gather in a buffer, which the connection sends after each poll of
//!   hyper. Pipelined requests therefore share their sends: 468k requests/s instead of 149k with 16
//!   requests in flight, for 50 instructions per request. We cannot use hyper's own
//!   `pipeline_flush`, because it holds a response back while the next request is incomplete, which
//!   can be forever.
//!
//! The wire also tracks the phase of the current request, which determines the deadline, and
//! whether the connection's turn is over. A turn is one poll of hyper, with at most 16 requests. It
//! ends after [`TURN`], or when the client does not read a response.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::{IpAddr, TcpStream as StdTcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use hyper::rt::{Read, ReadBufCursor, Write};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use tokio::io::{AsyncRead, Interest, ReadBuf};
use tokio::net::TcpStream;

use super::access::Reach;
use super::budget::Share;
use super::connections::Connections;
use super::limits::Place;
use quipu_process::address;

/// A nonblocking connected socket, shared by hyper, its connection task and the sweep.
pub(super) struct Wire {
    socket: RefCell<Socket>,
    connections: Rc<Connections>,
    phase: Cell<Phase>,
    /// The time when the phase began; in `Body`, the time when the request's head began.
    since: Cell<u64>,
    /// The time when the client stopped reading responses.
    blocked_since: Cell<Option<u64>>,
    /// Whether a read can find bytes that the reactor did not report.
    untried: Cell<bool>,
    /// Whether the last response is a refusal.
    refused: Cell<bool>,
    /// The time when the first request of this turn was accepted.
    turn: Cell<Option<Instant>>,
    /// Whether a request waits for another turn.
    waiting: Cell<bool>,
    /// Whether hyper must still take a part of the response's body.
    pub(super) more_follows: Cell<bool>,
    /// Whether the client already sent a byte.
    spoken: Cell<bool>,
    /// Whether hyper's state was dropped to save memory.
    pub(super) resting: Cell<bool>,
    /// Whether the connection is beyond the limit. Only its vital requests are then served.
    pub(super) is_over_limit: Cell<bool>,
    /// The connection's slot, until the connection ends or the slot is passed on.
    pub(super) place: Cell<Option<Place>>,
    /// Whether the connection must end, because its slot or memory is needed for another one.
    pub(super) dismissed: Cell<bool>,
    /// Whether the connection ends with the next response, because it is uncertain where the
    /// request ended.
    pub(super) ends: Cell<bool>,
    /// The memory that this connection has reserved for responses.
    share: RefCell<Share>,
    /// The bytes reserved for responses that are being sent.
    sending: Cell<usize>,
    computing: Cell<usize>,
    corked: RefCell<CorkBuffer>,
    /// The beginning of a request, which hyper read before its state was dropped, and will read
    /// again.
    unread: RefCell<Vec<u8>>,
    waker: RefCell<Option<Waker>>,
    /// The index of this wire among the connections.
    pub(super) slot: Cell<usize>,
    /// The number of wires created before this one.
    number: u64,
    client: Option<IpAddr>,
    reach: Reach,
}

/// The progress of the current request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Waiting for a request.
    Idle,
    /// A part of a head was read.
    Head,
    /// The head is complete, but not the body.
    Body,
    /// The request is complete and waits for another turn of its connection.
    Waiting,
    /// The handler is working on the request, or hyper is still writing its response.
    Response,
}

/// An exceeded deadline of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overdue {
    /// No request arrived.
    Idle,
    /// A request did not become complete.
    Request,
    /// The client does not read its response.
    Response,
}

impl Wire {
    /// Creates a wire to the client with this address.
    pub(super) fn new(
        socket: OwnedFd,
        address: Option<IpAddr>,
        connections: Rc<Connections>,
    ) -> Wire {
        let (since, number) = (connections.now(), connections.number());
        let client = address.map(address::identity);
        let share = RefCell::new(Share::new(&connections.responses, client));
        Wire {
            socket: RefCell::new(Socket::Fresh(socket.into())),
            connections,
            phase: Cell::new(Phase::Idle),
            since: Cell::new(since),
            blocked_since: Cell::new(None),
            untried: Cell::new(true),
            refused: Cell::new(false),
            turn: Cell::new(None),
            waiting: Cell::new(false),
            more_follows: Cell::new(false),
            spoken: Cell::new(false),
            resting: Cell::new(false),
            is_over_limit: Cell::new(false),
            place: Cell::new(None),
            dismissed: Cell::new(false),
            ends: Cell::new(false),
            share,
            sending: Cell::new(0),
            computing: Cell::new(0),
            corked: RefCell::default(),
            unread: RefCell::default(),
            waker: RefCell::new(None),
            slot: Cell::new(usize::MAX),
            number,
            client,
            reach: Reach::from_address(address),
        }
    }

    pub(super) fn connections(&self) -> &Connections {
        &self.connections
    }

    pub(super) fn phase(&self) -> Phase {
        self.phase.get()
    }

    /// Enters a phase. The clock keeps running from the first byte of a request to its last.
    pub(super) fn enter(&self, phase: Phase) {
        let before = self.phase.replace(phase);
        if !(before == Phase::Head && phase == Phase::Body) {
            self.restart_clock();
        }
    }

    /// Restarts the clock of the phase.
    pub(super) fn restart_clock(&self) {
        self.since.set(self.connections.now());
    }

    /// Returns whether the socket may contain unread bytes.
    pub(super) fn may_have_unread(&self) -> bool {
        self.untried.get()
    }

    /// Returns whether the last response is a refusal. If so, its client may still be sending.
    pub(super) fn refused(&self) -> bool {
        self.refused.get()
    }

    pub(super) fn set_refused(&self) {
        self.refused.set(true);
    }

    /// Begins a turn, so requests can be accepted again.
    pub(super) fn begin_turn(&self) {
        self.turn.set(None);
    }

    /// Returns whether a request that is complete at time `now` still belongs to this turn. This is
    /// never the case while the client leaves earlier responses unread.
    pub(super) fn takes_turn(&self, now: Instant) -> bool {
        if self.blocked_since.get().is_some() {
            return false;
        }
        match self.turn.get() {
            None => {
                self.turn.set(Some(now));
                true
            }
            Some(begun) => now.saturating_duration_since(begun) < TURN,
        }
    }

    /// Asks for another poll of the connection as soon as all bytes are sent.
    pub(super) fn wait_for_turn(&self) {
        self.waiting.set(true);
    }

    /// Returns whether a request waits for another turn that can begin now.
    pub(super) fn is_due(&self) -> bool {
        self.waiting.get() && self.blocked_since.get().is_none() && self.waiting.replace(false)
    }

    /// Returns whether the connection was idle long enough to drop hyper's state.
    pub(super) fn is_tired(&self) -> bool {
        self.phase.get() == Phase::Idle
            && !self.resting.get()
            && self.waited() > self.connections.deadlines.keep_buffers
    }

    /// Returns the duration of the phase in milliseconds.
    pub(super) fn waited(&self) -> u64 {
        self.connections.now().saturating_sub(self.since.get())
    }

    /// Returns the rank of this connection among those that can be closed in favour of another; the
    /// lowest rank is closed first. Returns `None` if it cannot be closed. `greedy` means that its
    /// client occupies most of the slots.
    pub(super) fn gives_way(&self, greedy: bool) -> Option<(u8, u64, u64)> {
        let (since, number) = (self.since.get(), self.number);
        match (self.phase.get(), self.blocked_since.get()) {
            _ if self.dismissed.get() => None,
            (Phase::Idle, None) if !self.spoken.get() => Some((0, since, number)),
            (Phase::Idle, None) if self.waited() >= self.connections.deadlines.give_way => {
                Some((1, since, number))
            }
            (Phase::Idle | Phase::Head | Phase::Body, None) if greedy => Some((2, since, number)),
            (_, Some(since)) if greedy => Some((2, since, number)),
            _ => None,
        }
    }

    /// Returns the address of the client, if the system knows it.
    pub(super) fn client(&self) -> Option<IpAddr> {
        self.client
    }

    /// Returns the kind of the client's address.
    pub(super) fn reach(&self) -> Reach {
        self.reach
    }

    /// Returns the number of connections that the thread accepted before this one.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Reserves memory for a response that is being computed and takes this number of bytes so far.
    /// Returns false, and changes nothing, if there is not enough memory.
    pub(super) fn hold_computing(&self, bytes: usize) -> bool {
        self.hold(self.sending.get(), bytes)
    }

    /// Reserves memory for a computed response until the client reads it, like
    /// [`Wire::hold_computing`].
    pub(super) fn hold_sending(&self, bytes: usize) -> bool {
        let bytes = if bytes < SMALL { 0 } else { bytes };
        self.hold(self.sending.get() + bytes, 0)
    }

    fn hold(&self, sending: usize, computing: usize) -> bool {
        loop {
            let full = match self.share.borrow_mut().resize(sending + computing) {
                Ok(()) => break,
                Err(full) => full,
            };
            if !self.connections.give_up_unread(self, full) {
                return false;
            }
        }
        self.sending.set(sending);
        self.computing.set(computing);
        true
    }

    /// Frees the memory of responses that were sent.
    pub(super) fn release_sent(&self) {
        let is_sent = self.blocked_since.get().is_none() && !self.more_follows.get();
        if is_sent && self.sending.get() > 0 {
            self.hold(0, self.computing.get());
        }
    }

    /// Frees the memory of all responses.
    pub(super) fn release(&self) {
        self.hold(0, 0);
    }

    /// Returns for how many milliseconds a client has been slow to read a response that takes
    /// memory.
    pub(super) fn slow_for(&self) -> Option<u64> {
        let uses_memory = self.sending.get() + self.computing.get() > 0;
        let since = self.blocked_since.get().filter(|_| uses_memory && !self.dismissed.get())?;
        Some(self.connections.now().saturating_sub(since))
    }

    /// Returns whether the client has sent no byte so far.
    pub(super) fn is_silent(&self) -> bool {
        !self.spoken.get()
    }

    /// Ends the connection at once, closes its descriptor, and returns its slot for another
    /// connection.
    pub(super) fn give_way(&self) -> Option<Place> {
        *self.socket.borrow_mut() = Socket::Lost;
        self.dismiss();
        self.place.take()
    }

    /// Ends the connection without another response.
    pub(super) fn dismiss(&self) {
        if !self.dismissed.replace(true) {
            self.connections.dismissed();
        }
        self.wake();
    }

    /// Returns the exceeded deadline, if any.
    pub(super) fn overdue(&self) -> Option<Overdue> {
        let deadlines = &self.connections.deadlines;
        let (since, limit, overdue) = match (self.blocked_since.get(), self.phase.get()) {
            (Some(since), _) => (since, deadlines.write, Overdue::Response),
            (None, Phase::Idle) => (self.since.get(), deadlines.idle, Overdue::Idle),
            (None, Phase::Head | Phase::Body) => {
                (self.since.get(), deadlines.read, Overdue::Request)
            }
            // The server itself causes this delay.
            (None, Phase::Waiting) => return None,
            (None, Phase::Response) => (self.since.get(), deadlines.write, Overdue::Response),
        };
        (self.connections.now().saturating_sub(since) > limit).then_some(overdue)
    }

    /// Sets the waker that [`wake`](Wire::wake) uses.
    pub(super) fn watch(&self, waker: &Waker) {
        let mut watching = self.waker.borrow_mut();
        match &mut *watching {
            Some(known) if known.will_wake(waker) => {}
            other => *other = Some(waker.clone()),
        }
    }

    /// Wakes the connection to be polled, and makes it try its socket even without a report from
    /// the reactor.
    pub(super) fn wake(&self) {
        self.untried.set(true);
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    /// Appends bytes after all output of hyper.
    pub(super) fn append(&self, bytes: &[u8]) {
        self.corked.borrow_mut().bytes.extend_from_slice(bytes);
    }

    /// Sends the corked bytes.
    pub(super) fn poll_uncork(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut corked = self.corked.borrow_mut();
        if corked.bytes.is_empty() {
            return Poll::Ready(Ok(()));
        }
        while corked.sent < corked.bytes.len() {
            let rest = &corked.bytes[corked.sent..];
            let n = ready!(self.poll_send(cx, rest))?;
            corked.sent += n;
        }
        corked.clear();
        // The deadline applies to a response as a whole, including all of its pieces.
        if !self.more_follows.get() {
            self.blocked_since.set(None);
        }
        Poll::Ready(Ok(()))
    }

    /// Discards the corked bytes.
    pub(super) fn give_up(&self) {
        self.corked.borrow_mut().clear();
    }

    /// Frees the cork buffer.
    pub(super) fn shrink(&self) {
        *self.corked.borrow_mut() = CorkBuffer::default();
    }

    /// Waits for bytes or the end of the stream, without reading.
    pub(super) fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut socket = self.socket.borrow_mut();
        if self.untried.get() {
            match recv(socket.fd()?, &mut [0; 1], RecvFlags::PEEK) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(errno) => return Poll::Ready(Err(errno.into())),
                Ok(_) => return Poll::Ready(Ok(())),
            }
            self.untried.set(false);
        }
        ready!(socket.join()?.poll_read_ready(cx))?;
        self.untried.set(true);
        Poll::Ready(Ok(()))
    }

    /// Returns whether the client closed the connection and no unread bytes remain.
    pub(super) fn has_left(&self) -> bool {
        let socket = self.socket.borrow();
        let peeked = socket.fd().and_then(|fd| recv(fd, &mut [0; 1], RecvFlags::PEEK));
        !matches!(peeked, Ok((1.., _)) | Err(Errno::AGAIN | Errno::INTR))
    }

    /// Sends as much as the socket accepts at once. This is for connections that hyper does not
    /// handle.
    pub(super) fn send_now(&self, bytes: &[u8]) {
        let _ = self.socket.borrow().send(bytes);
    }

    /// Announces the end of the stream to the client.
    pub(super) fn finish_sending(&self) {
        let _ = self.socket.borrow().fd().and_then(|fd| shutdown(fd, Shutdown::Write));
    }

    /// Discards all received bytes. Returns true if the client left.
    pub(super) fn discard(&self) -> bool {
        let mut scratch = self.connections.scratch.borrow_mut();
        for _ in 0..MAX_DISCARDS {
            match self.socket.borrow().receive(&mut scratch) {
                Ok(0) => return true,
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return false,
                Err(_) => return true,
            }
        }
        false
    }

    fn poll_receive(
        &self,
        cx: &mut Context<'_>,
        into: &mut ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if self.read_again(into) {
            return Poll::Ready(Ok(()));
        }
        // Bytes pass through a buffer of the thread. This costs a copy of the request, but we need
        // no unsafe code.
        let mut scratch = self.connections.scratch.borrow_mut();
        let want = into.remaining().min(scratch.len());
        let mut socket = self.socket.borrow_mut();
        let n = match self.receive_untried(&socket, &mut scratch[..want])? {
            Some(n) => n,
            None => {
                let mut buffer = ReadBuf::new(&mut scratch[..want]);
                ready!(Pin::new(socket.join()?).poll_read(cx, &mut buffer))?;
                buffer.filled().len()
            }
        };
        // The reactor is edge-triggered: after a short read, it reports new bytes.
        self.untried.set(n == want);
        into.put_slice(&scratch[..n]);
        self.received(n);
        Poll::Ready(Ok(()))
    }

    fn received(&self, n: usize) {
        if n > 0 && self.phase.get() == Phase::Idle {
            if !self.spoken.replace(true) {
                self.connections.has_spoken(self);
            }
            self.enter(Phase::Head);
        }
    }

    /// Puts bytes back, to be read before all later ones.
    pub(super) fn put_back(&self, bytes: &[u8]) {
        self.unread.borrow_mut().splice(..0, bytes.iter().copied());
    }

    /// Reads bytes that were put back. Returns false if there are none.
    fn read_again(&self, into: &mut ReadBufCursor<'_>) -> bool {
        let mut unread = self.unread.borrow_mut();
        let n = into.remaining().min(unread.len());
        into.put_slice(&unread[..n]);
        unread.drain(..n);
        if unread.is_empty() {
            *unread = Vec::new();
        }
        self.received(n);
        n > 0
    }

    /// Receives bytes before the reactor reports them. Returns `None` if there can be none until
    /// its next report.
    fn receive_untried(&self, socket: &Socket, into: &mut [u8]) -> io::Result<Option<usize>> {
        while self.untried.get() {
            match socket.receive(into) {
                Ok(n) => return Ok(Some(n)),
                Err(Errno::AGAIN) => self.untried.set(false),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(None)
    }

    fn poll_send(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut socket = self.socket.borrow_mut();
        match socket.send(bytes) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            result => return Poll::Ready(Ok(result?)),
        }
        if self.blocked_since.get().is_none() {
            self.blocked_since.set(Some(self.connections.now()));
        }
        let stream = &*socket.join()?;
        loop {
            ready!(stream.poll_write_ready(cx))?;
            let sent = stream.try_io(Interest::WRITABLE, || {
                send(stream, bytes, SendFlags::NOSIGNAL).map_err(io::Error::from)
            });
            match sent {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                sent => return Poll::Ready(sent),
            }
        }
    }
}

/// The handle to a [`Wire`] that hyper holds.
pub(super) struct Plug(pub(super) Rc<Wire>);

impl Read for Plug {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut into: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        self.0.poll_receive(cx, &mut into)
    }
}

impl Write for Plug {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let wire = &self.0;
        if matches!(wire.phase(), Phase::Idle | Phase::Head) {
            // No request is under way, so hyper is writing its own response to a request that it
            // cannot parse. Drop this response, because the connection writes a better one.
            return Poll::Ready(Ok(bytes.len()));
        }
        let gathered = wire.corked.borrow().bytes.len();
        if gathered + bytes.len() <= MAX_CORKED {
            wire.append(bytes);
            return Poll::Ready(Ok(bytes.len()));
        }
        ready!(wire.poll_uncork(cx))?;
        wire.poll_send(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let wire = &self.0;
        if wire.more_follows.get() {
            return Poll::Ready(Ok(()));
        }
        // Hyper wrote the complete response. The connection sends it right after this poll.
        if wire.blocked_since.get().is_some() && wire.corked.borrow().bytes.is_empty() {
            wire.blocked_since.set(None);
        }
        if wire.phase() == Phase::Response {
            wire.enter(Phase::Idle);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Closing the descriptor achieves the same with one call less.
        Poll::Ready(Ok(()))
    }
}

/// The bytes that wait to be sent together.
#[derive(Default)]
struct CorkBuffer {
    bytes: Vec<u8>,
    sent: usize,
}

impl CorkBuffer {
    fn clear(&mut self) {
        self.bytes.clear();
        self.sent = 0;
    }
}

/// A socket that possibly did not join the reactor yet.
enum Socket {
    Fresh(StdTcpStream),
    Joined(TcpStream),
    /// Joining the reactor failed; the connection ends with the error.
    Lost,
}

impl Socket {
    fn receive(&self, into: &mut [u8]) -> Result<usize, Errno> {
        recv(self.fd()?, into, RecvFlags::empty()).map(|(n, _)| n)
    }

    fn send(&self, bytes: &[u8]) -> Result<usize, Errno> {
        send(self.fd()?, bytes, SendFlags::NOSIGNAL)
    }

    fn fd(&self) -> Result<BorrowedFd<'_>, Errno> {
        match self {
            Socket::Fresh(stream) => Ok(stream.as_fd()),
            Socket::Joined(stream) => Ok(stream.as_fd()),
            Socket::Lost => Err(Errno::BADF),
        }
    }

    fn join(&mut self) -> io::Result<&mut TcpStream> {
        if let Socket::Fresh(_) = self
            && let Socket::Fresh(stream) = std::mem::replace(self, Socket::Lost)
        {
            *self = Socket::Joined(TcpStream::from_std(stream)?);
        }
        match self {
            Socket::Joined(stream) => Ok(stream),
            Socket::Fresh(_) | Socket::Lost => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}

/// The time for which requests of one connection are handled while others wait. This is longer than
/// 16 common requests take, and short enough for others to wait for many such turns.
const TURN: Duration = Duration::from_micros(500);

/// Responses below this size reserve no memory.
const SMALL: usize = 4 << 10;

/// Writes above this size are sent without another copy.
const MAX_CORKED: usize = 8 << 10;

/// The maximum number of reads of one [`Wire::discard`]. Without this limit, a fast sender could
/// occupy the thread.
const MAX_DISCARDS: usize = 64;
