//! One server thread: accepts connections, runs them, and drains them at shutdown.
//!
//! A fresh connection is polled once right after `accept4`, before it becomes a task. With
//! `TCP_DEFER_ACCEPT`, its request is already there, so a connection that is closed after one
//! response lives entirely in this poll. (A task for each: 3,300 more instructions in user space
//! and 1 us more of processor time for each connection of `ab -c100`.)

use std::future::{Future, poll_fn};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use hyper::server::conn::http1;
use rustix::io::Errno;
use rustix::net::{SocketFlags, acceptfrom_with};
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;

use super::access::Access;
use super::body::PIECE;
use super::connection::Connection;
use super::connections::Connections;
use super::error::Error;
use super::handler::{Event, Handler};
use super::limits::{DEFAULT_HEADERS, Limits, Places};
use super::listener;
use super::refusal::Refusal;
use super::wire::Wire;

/// The state of a server thread.
pub(super) struct Worker<H> {
    handler: Rc<H>,
    connections: Rc<Connections>,
    http: Rc<http1::Builder>,
    places: Places,
}

impl<H: Handler> Worker<H> {
    pub(super) fn new(handler: H, limits: Limits, access: Access, places: Places) -> Worker<H> {
        let mut http = http1::Builder::new();
        // Clients that closed their sending side still get their responses. Without this, hyper
        // also watches for the end of the stream during a response, so even a short connection
        // joins the reactor: one recv, one epoll_ctl and 2,300 instructions more. Header names stay
        // in lower case, because title case would take 1,000 instructions per request, a tenth of
        // its cost in user space.
        http.half_close(true)
            .header_read_timeout(None)
            .max_header_size(limits.header_bytes)
            .max_buf_size(limits.header_bytes.max(BUFFER_BYTES));
        if limits.headers != DEFAULT_HEADERS {
            http.max_headers(limits.headers);
        }
        let connections = Rc::new(Connections::new(limits, access, &places));
        Worker { handler: Rc::new(handler), connections, http: Rc::new(http), places }
    }

    /// Serves until `stop` turns true, then drains. Calls `ready` once the setup is complete.
    /// Returns the number of connections that were cut at the end of the drain timeout.
    pub(super) async fn run(
        self,
        listeners: Vec<OwnedFd>,
        ready: impl FnOnce(),
        mut stop: watch::Receiver<bool>,
    ) -> Result<usize, Error> {
        let listeners = listeners
            .into_iter()
            .map(listener::watch)
            .collect::<Result<Vec<_>, _>>()
            .map_err(Error::Runtime)?;
        let connections = self.connections.clone();
        let period = connections.limits.sweep_period();
        let sweep = tokio::task::spawn_local({
            let connections = connections.clone();
            async move { connections.sweep_forever(period).await }
        });
        ready();
        tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => {}
            () = self.accept_forever(&listeners) => {}
        }
        connections.drain();
        // Queued clients already see an open connection, so they get their responses too.
        for listener in &listeners {
            for _ in 0..MAX_LAST_ACCEPTS {
                if !matches!(self.accept(listener.get_ref()), AcceptOutcome::Connection) {
                    break;
                }
            }
        }
        drop(listeners);
        let cut = connections.emptied_within(connections.limits.drain_timeout).await;
        sweep.abort();
        Ok(cut)
    }

    async fn accept_forever(&self, listeners: &[AsyncFd<OwnedFd>]) {
        let mut pause = std::pin::pin!(None::<tokio::time::Sleep>);
        poll_fn(|cx| {
            if let Some(sleep) = pause.as_mut().as_pin_mut() {
                if sleep.poll(cx).is_pending() {
                    return Poll::Pending;
                }
                pause.set(None);
            }
            if listeners.iter().any(|listener| self.accept_burst(listener, cx)) {
                self.handler.event(Event::AcceptPaused);
                pause.set(Some(tokio::time::sleep(ACCEPT_PAUSE)));
                cx.waker().wake_by_ref();
            }
            Poll::Pending
        })
        .await
    }

    /// Accepts waiting connections, up to a limit. After it, the open connections get a turn, and
    /// connections that are being closed can end. Returns true if the system is out of resources.
    fn accept_burst(&self, listener: &AsyncFd<OwnedFd>, cx: &mut Context<'_>) -> bool {
        let mut accepted = 0;
        while let Poll::Ready(Ok(mut ready)) = listener.poll_read_ready(cx) {
            loop {
                if accepted == ACCEPT_BURST || self.connections.ending() >= self.places.ending {
                    cx.waker().wake_by_ref();
                    return false;
                }
                match self.accept(listener.get_ref()) {
                    AcceptOutcome::Connection => accepted += 1,
                    AcceptOutcome::Nothing => break,
                    AcceptOutcome::Exhausted => return true,
                }
            }
            ready.clear_ready();
        }
        false
    }

    fn accept(&self, listener: &OwnedFd) -> AcceptOutcome {
        match acceptfrom_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
            Ok((socket, address)) => {
                let address = address.and_then(|address| SocketAddr::try_from(address).ok());
                self.admit(socket, address.map(|address| address.ip()));
                AcceptOutcome::Connection
            }
            Err(Errno::AGAIN) => AcceptOutcome::Nothing,
            // These errors concern a single connection that failed before it was accepted, see
            // accept(2).
            Err(
                Errno::CONNABORTED
                | Errno::INTR
                | Errno::PERM
                | Errno::PROTO
                | Errno::NOPROTOOPT
                | Errno::OPNOTSUPP
                | Errno::NETDOWN
                | Errno::NETUNREACH
                | Errno::HOSTDOWN
                | Errno::HOSTUNREACH
                | Errno::NONET,
            ) => AcceptOutcome::Connection,
            // EMFILE, ENFILE, ENOBUFS, ENOMEM, and any other error that may persist.
            Err(_) => AcceptOutcome::Exhausted,
        }
    }

    fn admit(&self, socket: OwnedFd, address: Option<IpAddr>) {
        let wire = Rc::new(Wire::new(socket, address, self.connections.clone()));
        let mut place = self.places.take();
        if place.is_none() {
            // The client already disconnected, so we close no other connection for it.
            if wire.has_left() {
                return;
            }
            place = self.connections.make_room(&wire);
        }
        let has_place = place.is_some();
        if has_place {
            self.handler.event(Event::Accepted);
        }
        wire.is_over_limit.set(!has_place);
        wire.place.set(place);
        let mut connection = Connection::new(&self.http, &self.handler, wire);
        let mut nobody = Context::from_waker(Waker::noop());
        if Pin::new(&mut connection).poll(&mut nobody).is_ready() {
            return;
        }
        let wire = connection.wire().clone();
        if has_place {
            self.connections.insert(wire);
        } else if let Some(oldest) = self.connections.insert_over_limit(wire) {
            self.turn_away(oldest);
        }
        tokio::task::spawn_local(connection);
    }

    /// Closes a connection beyond the limit that sent no request.
    fn turn_away(&self, wire: Rc<Wire>) {
        self.handler.event(Event::Refused(Refusal::Busy));
        wire.send_now(&Refusal::Busy.response(&self.connections.limits));
        wire.dismiss();
        self.connections.linger(wire);
    }
}

/// The outcome of one `accept4`.
enum AcceptOutcome {
    Connection,
    Nothing,
    /// No descriptors or no memory: an immediate retry would fail again.
    Exhausted,
}

/// The number of connections to accept before the open ones get a turn.
const ACCEPT_BURST: usize = 64;

/// The maximum number of connections to accept at shutdown, from the queue of a closing listener.
const MAX_LAST_ACCEPTS: usize = 4096;

/// How long accepting pauses when the system is out of descriptors or memory. An immediate retry
/// would spin, because the listener stays ready.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The largest read buffer of a connection while a body arrives. From this size on, the write
/// buffer is sent.
const BUFFER_BYTES: usize = PIECE;
