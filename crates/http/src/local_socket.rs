//! Binds unix sockets like the library, and logs if a socket replaces an existing file.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use quipu::http::local_socket;
pub use quipu::http::local_socket::BoundPath;
use quipu_segment::printable;
use tracing::info;

/// Binds a listening socket. The kernel queues up to `backlog` connections.
pub fn listen_at(path: &Path, backlog: i32) -> io::Result<(OwnedFd, BoundPath)> {
    local_socket::listen_at(path, backlog).inspect(log)
}

/// Binds a datagram socket.
pub fn receive_at(path: &Path) -> io::Result<(OwnedFd, BoundPath)> {
    local_socket::receive_at(path).inspect(log)
}

fn log((_, bound): &(OwnedFd, BoundPath)) {
    if bound.has_replaced() {
        info!(path = %printable(bound.path()), "removed the socket of a process that has ended");
    }
}
