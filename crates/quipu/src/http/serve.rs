//! A standalone server for the metrics of a program without an HTTP server: hyper on one thread.
//!
//! Idle connections give way to new ones, and clients that do not read their responses are
//! disconnected: a client that only holds connections open cannot lock others out.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
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
use tokio::io::AsyncWrite;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use super::Body;
use super::service::respond;
use crate::registry::Registry;

/// A server that runs until it is dropped.
#[derive(Debug)]
#[must_use = "the server stops when this is dropped"]
pub struct Server {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// How long a client may take to send the head of a request, and how long it may go without reading
/// any of a response.
const PATIENCE: Duration = Duration::from_secs(10);
/// The maximum number of connections; a scraper needs one.
const MAX_CONNECTIONS: usize = 64;
/// The maximum number of connections that are being refused at once.
const MAX_REFUSALS: usize = 16;
/// How long a refused client may take to read the refusal.
const REFUSAL: Duration = Duration::from_secs(1);

/// Serves the metrics of a registry at `/metrics`, on a separate thread. Port 0 selects any free
/// port.
///
/// The server keeps up to 64 connections. If all are in use, a new connection replaces the one that
/// has been without a request for the longest time. If all have a request in progress, the new
/// connection gets a 503. A client that reads nothing of a response for 10 s is disconnected.
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
        let what = format!("cannot listen on {}: {error}; use a free address", names.join(", "));
        io::Error::new(error.kind(), what)
    })?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let listener = {
        // Registered here, where an error can still be returned.
        let _entered = runtime.enter();
        tokio::net::TcpListener::from_std(listener)?
    };
    let (stop, stopped) = oneshot::channel();
    let registry = registry.clone();
    let thread = std::thread::Builder::new().name("quipu metrics".into()).spawn(move || {
        runtime.block_on(async move {
            tokio::select! {
                () = accept(listener, registry) => {}
                _ = stopped => {}
            }
        });
    })?;
    Ok(Server { address, stop: Some(stop), thread: Some(thread) })
}

async fn accept(listener: tokio::net::TcpListener, registry: Registry) {
    let mut open: Vec<(Arc<Progress>, AbortHandle)> = Vec::new();
    let mut refusals: Vec<AbortHandle> = Vec::new();
    loop {
        let Ok((socket, _)) = listener.accept().await else {
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

async fn connection(socket: TcpStream, registry: Registry, progress: Arc<Progress>) {
    let answer = service_fn(|request: http::Request<hyper::body::Incoming>| {
        progress.note(true);
        let response = match request.uri().path() {
            "/metrics" => respond(&registry, request.method(), request.headers()),
            _ => {
                let mut response = http::Response::new(Body::empty());
                *response.status_mut() = http::StatusCode::NOT_FOUND;
                response
            }
        };
        let response = response.map(|body| Watched { body, progress: progress.clone() });
        std::future::ready(Ok::<_, Infallible>(response))
    });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(PATIENCE);
    tokio::select! {
        // Errors of a connection are the client's problem.
        _ = server.serve_connection(TokioIo::new(socket), answer) => {}
        () = progress.stalled() => {}
    }
}

/// Sends a 503, and waits until the client has read it: closing a socket with unread input would
/// discard what was sent.
async fn refuse(mut socket: TcpStream) {
    let talk = async {
        let mut rest = BUSY;
        while !rest.is_empty() {
            let sent = poll_fn(|cx| Pin::new(&mut socket).poll_write(cx, rest)).await?;
            rest = &rest[sent..];
        }
        poll_fn(|cx| Pin::new(&mut socket).poll_shutdown(cx)).await?;
        let mut unread = [0; 1024];
        loop {
            socket.readable().await?;
            match socket.try_read(&mut unread) {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    };
    let _: Result<std::io::Result<()>, _> = tokio::time::timeout(REFUSAL, talk).await;
}

/// The response to a refused client.
const BUSY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\n\
    content-length: 0\r\n\r\n";

/// The progress of a connection. Only the server's thread accesses it.
#[derive(Debug)]
struct Progress {
    accepted: Instant,
    /// When it last sent a request, or accepted a part or the end of a response, in nanoseconds
    /// since [`Progress::accepted`]; 0 before the first request.
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

    /// Whether the client has ever sent a request, and since when the connection has been idle. The
    /// connection with the smallest pair gives way first. `None` while a response is in progress.
    fn idle_since(&self) -> Option<(bool, Instant)> {
        let noted = self.noted.load(Ordering::Relaxed);
        let is_idle = !self.answering.load(Ordering::Relaxed);
        is_idle.then(|| (noted > 0, self.accepted + Duration::from_nanos(noted)))
    }

    /// Completes when the client has read nothing of a response for [`PATIENCE`].
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

/// The body of a response, which notes when the client accepts a part of it.
struct Watched {
    body: Body,
    progress: Arc<Progress>,
}

impl http_body::Body for Watched {
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

impl Drop for Watched {
    fn drop(&mut self) {
        self.progress.note(false);
    }
}

impl Server {
    /// The address that the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
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
            let mut answer = String::new();
            client.read_to_string(&mut answer).map(|_| answer)
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { refuse(TcpStream::from_std(socket).unwrap()).await });
        let answer = reader.join().unwrap().unwrap();
        assert!(answer.starts_with("HTTP/1.1 503 ") && answer.ends_with("\r\n\r\n"), "{answer}");
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
