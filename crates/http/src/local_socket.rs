//! Unix sockets with a path, as the library has them. What they replace is logged.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use quipu::http::local_socket;
pub use quipu::http::local_socket::BoundPath;
use quipu_segment::printable;
use tracing::info;

/// A socket for connections, of which the kernel queues `backlog`.
pub fn listen_at(path: &Path, backlog: i32) -> io::Result<(OwnedFd, BoundPath)> {
    local_socket::listen_at(path, backlog).inspect(log)
}

/// A socket for datagrams.
pub fn receive_at(path: &Path) -> io::Result<(OwnedFd, BoundPath)> {
    local_socket::receive_at(path).inspect(log)
}

fn log((_, bound): &(OwnedFd, BoundPath)) {
    if bound.has_replaced() {
        info!(path = %printable(bound.path()), "removed the socket of a process that has ended");
    }
}
