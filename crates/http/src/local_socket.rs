//! Unix sockets with a path, as in the library, with a log line if they replace a file.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use quipu::http::local_socket;
pub use quipu::http::local_socket::BoundPath;
use quipu_segment::printable;
use tracing::info;

/// Opens a socket for connections. The kernel queues up to `backlog` connections.
pub fn listen_at(path: &Path, backlog: i32) -> io::Result<(OwnedFd, BoundPath)> {
    local_socket::listen_at(path, backlog).inspect(log)
}

/// Opens a socket for datagrams.
pub fn receive_at(path: &Path) -> io::Result<(OwnedFd, BoundPath)> {
    local_socket::receive_at(path).inspect(log)
}

fn log((_, bound): &(OwnedFd, BoundPath)) {
    if bound.has_replaced() {
        info!(path = %printable(bound.path()), "removed the socket of a process that has ended");
    }
}
