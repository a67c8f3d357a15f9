//! The server: binds its listeners, runs its threads, and stops them.

use std::future::Future;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::watch;

use super::access::Access;
use super::error::Error;
use super::handler::Handler;
use super::limits::{Limits, Places};
use super::listener::{self, Options};
use super::worker::Worker;
use crate::local_socket::BoundPath;

/// A server that is bound to its addresses. Call [`serve`](Server::serve) to make your server
/// handle requests.
#[derive(Debug)]
pub struct Server {
    /// The listeners of each thread.
    threads: Vec<Vec<OwnedFd>>,
    addresses: Vec<SocketAddr>,
    /// The paths of unix sockets. They are removed when the server stops listening.
    paths: Vec<BoundPath>,
    limits: Limits,
    access: Access,
    places: Places,
}

/// The result of a stopped server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShutdownReport {
    /// Connections that were cut at the end of the drain timeout.
    pub cut: usize,
}

impl Server {
    /// Listens on every address, given as `host:port`, `[ipv6]:port`, `:port` or `unix:path`.
    pub fn bind<A: AsRef<str>>(addresses: &[A], options: &Options) -> Result<Server, Error> {
        let mut threads: Vec<Vec<OwnedFd>> = Vec::new();
        threads.resize_with(options.threads.max(1), Vec::new);
        let (mut bound, mut paths) = (Vec::new(), Vec::new());
        for text in addresses {
            if let Some(path) = text.as_ref().strip_prefix(UNIX) {
                let (sockets, path) = listener::open_local(Path::new(path), options)?;
                threads.iter_mut().zip(sockets).for_each(|(all, socket)| all.push(socket));
                paths.push(path);
                continue;
            }
            let address = listener::resolve(text.as_ref())?;
            let sockets = listener::open(address, options)?;
            let local = listener::local_address(&sockets[0]);
            bound.push(local.map_err(|source| Error::Listen { address, source })?);
            for (listeners, socket) in threads.iter_mut().zip(sockets) {
                listeners.push(socket);
            }
        }
        if bound.is_empty() && paths.is_empty() {
            return Err(Error::NoAddress);
        }
        Ok(Server {
            threads,
            addresses: bound,
            paths,
            limits: options.limits.clone(),
            access: options.access.clone(),
            places: Places::new(&options.limits, options.threads),
        })
    }

    /// Returns the addresses that the server listens on, in the given order, with the ports chosen
    /// for 0.
    pub fn local_addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns the paths of the unix sockets that the server listens on, in the given order.
    pub fn local_paths(&self) -> impl Iterator<Item = &Path> {
        self.paths.iter().map(BoundPath::path)
    }

    /// Returns the most connections that can be open at a time: [`Limits::connections`], or fewer
    /// if the limit on open files (`ulimit -n`) is lower.
    pub fn connections(&self) -> usize {
        self.places.limit()
    }

    /// Serves until `shutdown` completes. Calls `ready` once every thread serves. At shutdown, this
    /// stops listening, closes idle connections, gives running requests the drain timeout to
    /// finish, and returns.
    ///
    /// The calling thread is the first server thread and runs `shutdown` in its runtime. Each
    /// thread calls `handler` once, with its number. If a thread cannot start, the others end, and
    /// `ready` is never called.
    pub fn serve<H, F, R, S>(
        self,
        handler: F,
        ready: R,
        shutdown: S,
    ) -> Result<ShutdownReport, Error>
    where
        H: Handler,
        F: Fn(usize) -> H + Sync,
        R: FnOnce() + Send,
        S: Future<Output = ()> + 'static,
    {
        let (stop, stopping) = watch::channel(false);
        let starting = AtomicUsize::new(self.threads.len());
        let ready = Mutex::new(Some(ready));
        let started = || {
            // Relaxed is enough, because the lock orders the following accesses.
            if starting.fetch_sub(1, Ordering::Relaxed) == 1 {
                let ready = ready.lock().unwrap_or_else(PoisonError::into_inner).take();
                ready.into_iter().for_each(|ready| ready());
            }
        };
        let run =
            |number: usize, listeners: Vec<OwnedFd>, shutdown: Option<(S, Vec<BoundPath>)>| {
                // A thread that cannot start or panics stops the others.
                let stop = StopOthers(stop.clone());
                let stopping = stopping.clone();
                let (limits, access) = (self.limits.clone(), self.access.clone());
                let worker = Worker::new(handler(number), limits, access, self.places.clone());
                Builder::new_current_thread()
                    .enable_io()
                    .enable_time()
                    .event_interval(POLLS_BETWEEN_EVENTS)
                    .build_local(LocalOptions::default())
                    .map_err(Error::Runtime)
                    .and_then(|runtime| {
                        runtime.block_on(async {
                            if let Some((shutdown, paths)) = shutdown {
                                let stop = stop.0.clone();
                                tokio::task::spawn_local(async move {
                                    shutdown.await;
                                    // Paths must be removed before the sockets are closed.
                                    drop(paths);
                                    stop.send_replace(true);
                                });
                            }
                            worker.run(listeners, &started, stopping).await
                        })
                    })
            };
        let mut threads = self.threads.into_iter().enumerate();
        let first = threads.next().map(|(_, listeners)| listeners).unwrap_or_default();
        thread::scope(|scope| {
            let others: Vec<_> = threads
                .map(|(number, listeners)| scope.spawn(move || run(number, listeners, None)))
                .collect();
            let mut cut = run(0, first, Some((shutdown, self.paths)))?;
            for thread in others {
                cut += thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            }
            Ok(ShutdownReport { cut })
        })
    }
}

/// The prefix of the address of a unix socket; the path follows.
const UNIX: &str = "unix:";

/// The number of polls of connections between two polls of the reactor for new connections, bytes
/// and timers. If each connection uses its whole turn, the reactor is polled every 8 ms. (Polling
/// the reactor costs 0.3 us, which 16 turns share.)
const POLLS_BETWEEN_EVENTS: u32 = 16;

/// Tells all threads to stop when it is dropped.
struct StopOthers(watch::Sender<bool>);

impl Drop for StopOthers {
    fn drop(&mut self) {
        self.0.send_replace(true);
    }
}
