//! A server for the metrics of a program that has none of its own: hyper on one thread.

use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::thread::JoinHandle;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::oneshot;

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

/// How long a client may take for the head of a request.
const PATIENCE: Duration = Duration::from_secs(10);
/// The most connections at a time: a scraper needs one.
const MOST_CONNECTIONS: usize = 64;

/// Serves the metrics of a registry at `/metrics`, on a thread of its own. Port 0 takes any that is
/// free.
///
/// ```no_run
/// let registry = quipu::Registry::new();
/// let jobs = registry.counter("jobs", "Jobs that were done.")?;
/// let _server = quipu::http::serve("127.0.0.1:9184", &registry)?;
/// jobs.inc();
/// # Ok::<(), quipu::Error>(())
/// ```
///
/// # Errors
/// An address that cannot be listened on.
pub fn serve(address: impl ToSocketAddrs, registry: &Registry) -> Result<Server, crate::Error> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (stop, stopped) = oneshot::channel();
    let registry = registry.clone();
    let thread = std::thread::Builder::new().name("quipu metrics".into()).spawn(move || {
        runtime.block_on(async move {
            tokio::select! {
                _ = accept(listener, registry) => {}
                _ = stopped => {}
            }
        });
    })?;
    Ok(Server { address, stop: Some(stop), thread: Some(thread) })
}

async fn accept(listener: TcpListener, registry: Registry) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let places = std::sync::Arc::new(tokio::sync::Semaphore::new(MOST_CONNECTIONS));
    loop {
        let Ok(place) = std::sync::Arc::clone(&places).acquire_owned().await else {
            return Ok(());
        };
        let Ok((socket, _)) = listener.accept().await else {
            // Out of descriptors, most likely: others have to close some first.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let registry = registry.clone();
        tokio::spawn(async move {
            let answer = service_fn(|request: http::Request<hyper::body::Incoming>| {
                let response = match request.uri().path() {
                    "/metrics" => respond(&registry, request.method(), request.headers()),
                    _ => {
                        let mut response = http::Response::new(super::Body::empty());
                        *response.status_mut() = http::StatusCode::NOT_FOUND;
                        response
                    }
                };
                std::future::ready(Ok::<_, std::convert::Infallible>(response))
            });
            let mut server = http1::Builder::new();
            server.timer(TokioTimer::new()).header_read_timeout(PATIENCE);
            // A connection that breaks is the client's matter.
            let _ = server.serve_connection(TokioIo::new(socket), answer).await;
            drop(place);
        });
    }
}

impl Server {
    /// The address that it listens on.
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
