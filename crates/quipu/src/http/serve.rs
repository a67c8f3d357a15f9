//! A standalone server for the metrics of a program without an HTTP server, on TCP or at a unix
//! socket: hyper on one thread.
//!
//! Idle connections give way to new ones, and clients that do not read their responses are
//! disconnected. So a client that only holds connections open cannot lock others out.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
#[cfg(target_os = "linux")]
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body::Frame;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use super::Body;
#[cfg(target_os = "linux")]
use super::local_socket::{self, BoundPath};
use super::service::respond;
use crate::registry::Registry;

/// A server that runs until you drop it.
///
/// ```
/// let registry = quipu::Registry::new();
/// // Port 0 selects a free port.
/// let server = quipu::http::serve("127.0.0.1:0", &registry)?;
/// assert_ne!(server.local_addr().port(), 0);
/// # Ok::<(), quipu::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "the server stops when this is dropped"]
pub struct Server {
    address: SocketAddr,
    _running: ServerThread,
}

/// A server at a unix socket, which runs until you drop it.
///
/// ```
/// let registry = quipu::Registry::new();
/// let path = std::env::temp_dir().join(format!("quipu-{}.sock", std::process::id()));
/// let server = quipu::http::serve_unix(&path, &registry)?;
/// assert_eq!(server.path(), path);
/// drop(server);
/// assert!(!path.exists());
/// # Ok::<(), quipu::Error>(())
/// ```
#[cfg(target_os = "linux")]
#[derive(Debug)]
#[must_use = "the server stops when this is dropped"]
pub struct UnixServer {
    /// Must be dropped before the listener is closed, so the field order matters.
    path: BoundPath,
    _running: ServerThread,
}

/// The maximum time that a client can take to send the head of a request, and that it can go
/// without reading any part of a response.
const PATIENCE: Duration = Duration::from_secs(10);
/// The maximum number of connections; a scraper needs one.
const MAX_CONNECTIONS: usize = 64;
/// The maximum number of connections that are being refused at once.
const MAX_REFUSALS: usize = 16;
/// The maximum time that a refused client can take to read the refusal.
const REFUSAL: Duration = Duration::from_secs(1);

/// Serves the metrics of a registry at `/metrics`, on a separate thread. With port 0, the system
/// selects a free port; [`Server::local_addr`] returns it.
///
/// The server keeps up to 64 connections. If all are in use, a new connection replaces the
/// connection that has waited longest for a request. If each of them serves a request, the
/// new connection gets a 503. A client that reads nothing of a response for 10 s is disconnected.
///
/// ```no_run
/// let registry = quipu::Registry::new();
/// let jobs = registry.counter("jobs", "Completed jobs.")?;
/// let _server = quipu::http::serve("127.0.0.1:9184", &registry)?;
/// jobs.inc();
/// # Ok::<(), quipu::Error>(())
/// ```
///
/// # Errors
/// If the server cannot listen on the address, or cannot start its thread.
pub fn serve(address: impl ToSocketAddrs, registry: &Registry) -> Result<Server, crate::Error> {
    let addresses: Vec<SocketAddr> = address.to_socket_addrs()?.collect();
    let listener = TcpListener::bind(&*addresses).map_err(|error| {
        let names: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        let reason = format!("cannot listen on {}: {error}; use a free address", names.join(", "));
        io::Error::new(error.kind(), reason)
    })?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let running = start(registry, || tokio::net::TcpListener::from_std(listener))?;
    Ok(Server { address, _running: running })
}

/// Serves the metrics of a registry at `/metrics`, like [`serve`], at the path of a unix socket.
///
/// A client needs write access to the path. The umask determines this access at first, and you can
/// change the mode afterwards. If an ended process left a socket at the path, this function
/// replaces it. Dropping the server removes the path, unless another file has taken it.
///
/// A child of a fork does not remove the path. Such a child keeps the socket open until it executes
/// another program: if it outlives this process, the path remains in use until the child ends.
///
/// ```no_run
/// let registry = quipu::Registry::new();
/// let _server = quipu::http::serve_unix("/run/app/metrics.sock", &registry)?;
/// # Ok::<(), quipu::Error>(())
/// ```
///
/// # Errors
/// If the path belongs to a file that is not a socket, or to a socket with a listener; or if the
/// server cannot listen there or start its thread.
#[cfg(target_os = "linux")]
pub fn serve_unix(path: impl AsRef<Path>, registry: &Registry) -> Result<UnixServer, crate::Error> {
    let path = path.as_ref();
    let (listener, path) = local_socket::listen_at(path, BACKLOG).map_err(|error| {
        let reason = format!("cannot listen on unix:{}: {error}", quipu_segment::printable(path));
        io::Error::new(error.kind(), reason)
    })?;
    let listener = std::os::unix::net::UnixListener::from(listener);
    let running = start(registry, || tokio::net::UnixListener::from_std(listener))?;
    Ok(UnixServer { path, _running: running })
}

/// The number of connections that the kernel queues for a unix socket. The standard library uses
/// the same number for TCP.
#[cfg(target_os = "linux")]
const BACKLOG: i32 = 128;

/// Starts the thread of a server.
fn start<L: Listener>(
    registry: &Registry,
    listener: impl FnOnce() -> io::Result<L>,
) -> Result<ServerThread, crate::Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let listener = {
        // Registered here, where an error can still be returned.
        let _entered = runtime.enter();
        listener()?
    };
    let (stop, stopped) = oneshot::channel();
    let registry = registry.clone();
    quipu_segment::watch_forks();
    let generation = quipu_segment::generation();
    let thread = std::thread::Builder::new().name("quipu metrics".into()).spawn(move || {
        runtime.block_on(async move {
            tokio::select! {
                () = accept(listener, registry) => {}
                _ = stopped => {}
            }
        });
    })?;
    Ok(ServerThread { stop: Some(stop), thread: Some(thread), generation })
}

/// A source of connections.
trait Listener: Send + 'static {
    type Socket: AsyncRead + AsyncWrite + Send + Unpin + 'static;

    fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<Self::Socket>>;
}

impl Listener for tokio::net::TcpListener {
    type Socket = TcpStream;

    fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<TcpStream>> {
        self.poll_accept(cx).map_ok(|(socket, _)| socket)
    }
}

#[cfg(target_os = "linux")]
impl Listener for tokio::net::UnixListener {
    type Socket = tokio::net::UnixStream;

    fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<Self::Socket>> {
        self.poll_accept(cx).map_ok(|(socket, _)| socket)
    }
}

async fn accept<L: Listener>(listener: L, registry: Registry) {
    let mut open: Vec<(Arc<Progress>, AbortHandle)> = Vec::new();
    let mut refusals: Vec<AbortHandle> = Vec::new();
    loop {
        let Ok(socket) = poll_fn(|cx| Listener::poll_accept(&listener, cx)).await else {
            // Most likely out of descriptors: wait until some are closed.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        open.retain(|(_, task)| !task.is_finished());
        if open.len() >= MAX_CONNECTIONS {
            let waiting = open.iter().enumerate();
            let longest =
                waiting.filter_map(|(i, (progress, _))| Some((progress.idle_since()?, i)));
            let Some((_, longest)) = longest.min() else {
                refusals.retain(|task| !task.is_finished());
                if refusals.len() < MAX_REFUSALS {
                    refusals.push(tokio::spawn(refuse(socket)).abort_handle());
                }
                continue;
            };
            open.remove(longest).1.abort();
        }
        let progress = Arc::new(Progress::new());
        let task = tokio::spawn(connection(socket, registry.clone(), progress.clone()));
        open.push((progress, task.abort_handle()));
    }
}

async fn connection<S>(socket: S, registry: Registry, progress: Arc<Progress>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let service = service_fn(|request: http::Request<hyper::body::Incoming>| {
        progress.note(true);
        let response = match request.uri().path() {
            "/metrics" => respond(&registry, request.method(), request.headers()),
            _ => {
                let mut response = http::Response::new(Body::empty());
                *response.status_mut() = http::StatusCode::NOT_FOUND;
                response
            }
        };
        let response = response.map(|body| WatchedBody { body, progress: progress.clone() });
        std::future::ready(Ok::<_, Infallible>(response))
    });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(PATIENCE);
    tokio::select! {
        // Errors of a connection are the client's problem.
        _ = server.serve_connection(TokioIo::new(socket), service) => {}
        () = progress.stalled() => {}
    }
}

/// Sends a 503, and waits until the client has read it, because closing a socket with unread input
/// would discard the response.
async fn refuse<S: AsyncRead + AsyncWrite + Unpin>(mut socket: S) {
    let talk = async {
        let mut rest = BUSY;
        while !rest.is_empty() {
            let sent = poll_fn(|cx| Pin::new(&mut socket).poll_write(cx, rest)).await?;
            rest = &rest[sent..];
        }
        poll_fn(|cx| Pin::new(&mut socket).poll_shutdown(cx)).await?;
        let mut room = [0; 1024];
        loop {
            let mut unread = ReadBuf::new(&mut room);
            poll_fn(|cx| Pin::new(&mut socket).poll_read(cx, &mut unread)).await?;
            if unread.filled().is_empty() {
                return Ok(());
            }
        }
    };
    let _: Result<std::io::Result<()>, _> = tokio::time::timeout(REFUSAL, talk).await;
}

/// The response to a refused client.
const BUSY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\n\
    content-length: 0\r\n\r\n";

/// The progress of a connection. Only the server's thread accesses this.
#[derive(Debug)]
struct Progress {
    accepted: Instant,
    /// The time of the last request, or of the last part or end of a response that the client
    /// accepted, in nanoseconds since [`Progress::accepted`]; 0 before the first request.
    noted: AtomicU64,
    /// Whether a response is in progress.
    answering: AtomicBool,
}

impl Progress {
    fn new() -> Self {
        let (noted, answering) = (AtomicU64::new(0), AtomicBool::new(false));
        Self { accepted: Instant::now(), noted, answering }
    }

    fn note(&self, answering: bool) {
        let nanos = u64::try_from(self.accepted.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.noted.store(nanos.max(1), Ordering::Relaxed);
        self.answering.store(answering, Ordering::Relaxed);
    }

    /// Returns whether the client ever sent a request, and since when the connection is idle. The
    /// connection with the smallest pair gives way first. `None` while a response is in progress.
    fn idle_since(&self) -> Option<(bool, Instant)> {
        let noted = self.noted.load(Ordering::Relaxed);
        let is_idle = !self.answering.load(Ordering::Relaxed);
        is_idle.then(|| (noted > 0, self.accepted + Duration::from_nanos(noted)))
    }

    /// Completes when the client has not read any part of a response for [`PATIENCE`].
    async fn stalled(&self) {
        loop {
            tokio::time::sleep(PATIENCE / 10).await;
            let noted = Duration::from_nanos(self.noted.load(Ordering::Relaxed));
            let untouched = self.accepted.elapsed().saturating_sub(noted);
            if self.answering.load(Ordering::Relaxed) && untouched > PATIENCE {
                return;
            }
        }
    }
}

/// The body of a response. It records when the client accepts a part.
struct WatchedBody {
    body: Body,
    progress: Arc<Progress>,
}

impl http_body::Body for WatchedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.progress.note(true);
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}

impl Drop for WatchedBody {
    fn drop(&mut self) {
        self.progress.note(false);
    }
}

impl Server {
    /// Returns the address that the server listens on.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }
}

#[cfg(target_os = "linux")]
impl UnixServer {
    /// Returns the path that the server listens on.
    pub fn path(&self) -> &Path {
        self.path.path()
    }
}

/// The thread of a server, which ends when this is dropped.
#[derive(Debug)]
struct ServerThread {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    generation: u32,
}

impl Drop for ServerThread {
    fn drop(&mut self) {
        let (stop, thread) = (self.stop.take(), self.thread.take());
        if self.generation != quipu_segment::generation() {
            // A child of a fork does not own the thread. Waking it would write to the parent's
            // pipe.
            std::mem::forget((stop, thread));
            return;
        }
        if let Some(stop) = stop {
            let _ = stop.send(());
        }
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn an_address_in_use_is_named() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let taken = listener.local_addr().unwrap();
        let error = serve(taken, &Registry::new()).err().unwrap().to_string();
        assert!(error.contains(&format!("cannot listen on {taken}: ")), "{error}");
    }

    #[test]
    fn a_refused_client_gets_a_503() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let socket = listener.accept().unwrap().0;
        socket.set_nonblocking(true).unwrap();
        client.write_all(&[b'x'; 100_000]).unwrap();
        let reader = std::thread::spawn(move || {
            let mut response = String::new();
            client.read_to_string(&mut response).map(|_| response)
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { refuse(TcpStream::from_std(socket).unwrap()).await });
        let response = reader.join().unwrap().unwrap();
        assert!(
            response.starts_with("HTTP/1.1 503 ") && response.ends_with("\r\n\r\n"),
            "{response}"
        );
    }

    #[test]
    fn clients_without_a_request_are_disconnected_first() {
        let (spoke, silent, busy) = (Progress::new(), Progress::new(), Progress::new());
        spoke.note(false);
        busy.note(true);
        assert!(silent.idle_since() < spoke.idle_since() && silent.idle_since().is_some());
        assert_eq!(busy.idle_since(), None);
        busy.note(false);
        assert!(spoke.idle_since() < busy.idle_since());
    }
}
