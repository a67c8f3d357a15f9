//! Listening sockets: from an address such as `127.0.0.1:8081` to a socket that accepts
//! connections.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, getsockname, listen, socket_with, sockopt,
};
use tokio::io::unix::AsyncFd;

use super::access::Access;
use super::error::Error;
use super::limits::Limits;
use crate::local_socket::{self, BoundPath};

/// Settings of a server's sockets and threads.
#[derive(Clone, Debug)]
pub struct Options {
    /// Server threads. If you use several, they share each port with `SO_REUSEPORT`.
    pub threads: usize,
    /// Connections that the kernel queues for the server, bounded by `net.core.somaxconn`.
    pub backlog: i32,
    /// `TCP_DEFER_ACCEPT` (Linux): the kernel hands over a connection when its first bytes arrive,
    /// or after about a second. Silent connections cost no descriptor during this time, and a short
    /// connection is served in one go (4 us less processor time with `ab -c100`). A server that
    /// stops does not see silent connections.
    pub defer_accept: bool,
    /// The limits on clients.
    pub limits: Limits,
    /// The hosts and origins that requests may name.
    pub access: Access,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            threads: 1,
            backlog: 4096,
            defer_accept: true,
            limits: Limits::default(),
            access: Access::default(),
        }
    }
}

/// Resolves `host:port`. An empty host means all interfaces, IPv6 and IPv4. If a name yields
/// several addresses, this returns the first IPv4 address, or else the first address.
pub(super) fn resolve(text: &str) -> Result<SocketAddr, Error> {
    let error = |source| Error::Address { address: text.to_owned(), source };
    let text_with_host = match text.strip_prefix(':') {
        Some(port) => format!("[::]:{port}"),
        None => text.to_owned(),
    };
    let found: Vec<SocketAddr> = text_with_host.to_socket_addrs().map_err(error)?.collect();
    found
        .iter()
        .find(|address| address.is_ipv4())
        .or(found.first())
        .copied()
        .ok_or_else(|| error(io::Error::new(io::ErrorKind::NotFound, "the host has no address")))
}

/// Opens one listening socket per thread on `address`. Port 0 is chosen once for all threads.
pub(super) fn open(address: SocketAddr, options: &Options) -> Result<Vec<OwnedFd>, Error> {
    let error = |source: io::Error| Error::Listen { address, source };
    let share = options.threads > 1;
    let mut bound = address;
    if share {
        // A second server of the same user could join a shared port unnoticed. Because of this, a
        // socket that does not share first checks that the port is free, and picks one for port 0.
        let probe = create(address, false).map_err(error)?;
        bound.set_port(local_address(&probe).map_err(error)?.port());
    }
    (0..options.threads.max(1))
        .map(|_| {
            let socket = create(bound, share)?;
            if options.defer_accept {
                defer_accept(&socket)?;
            }
            listen(&socket, options.backlog)?;
            Ok(socket)
        })
        .collect::<io::Result<_>>()
        .map_err(error)
}

/// Opens a listening socket at a path, with a descriptor for each thread. Sockets cannot share a
/// path like a port.
///
/// The transport treats its connections like TCP, because it makes the same calls on both.
pub(super) fn open_local(
    path: &Path,
    options: &Options,
) -> Result<(Vec<OwnedFd>, BoundPath), Error> {
    let error = |source: io::Error| Error::Local { path: path.to_owned(), source };
    let (socket, bound) = local_socket::listen_at(path, options.backlog).map_err(error)?;
    let others = (1..options.threads.max(1)).map(|_| socket.try_clone());
    let mut sockets = others.collect::<io::Result<Vec<_>>>().map_err(error)?;
    sockets.push(socket);
    Ok((sockets, bound))
}

/// Returns the address of a listening socket.
pub(super) fn local_address(socket: &OwnedFd) -> io::Result<SocketAddr> {
    SocketAddr::try_from(getsockname(socket)?)
        .map_err(|_| io::Error::other("the socket has no internet address"))
}

/// Registers a listening socket with the reactor. This is not a `TcpListener`, because that would
/// also register every accepted connection.
pub(super) fn watch(socket: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: An `OwnedFd` owns an open descriptor that stays the same until it is dropped, and the
    // `AsyncFd` takes ownership.
    unsafe { AsyncFd::register(socket) }.map_err(io::Error::from)
}

fn create(address: SocketAddr, share: bool) -> io::Result<OwnedFd> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if share {
        sockopt::set_socket_reuseport(&socket, true)?;
    }
    // Accepted sockets inherit the option, which saves a call per connection. Without it, a second
    // response would wait until the client acknowledges the first.
    sockopt::set_tcp_nodelay(&socket, true)?;
    bind(&socket, &address)?;
    Ok(socket)
}

fn defer_accept(socket: &OwnedFd) -> io::Result<()> {
    let seconds: libc::c_int = 1;
    // SAFETY: The descriptor is open for as long as `socket` is borrowed, and the pointer and the
    // length describe `seconds`, which outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_DEFER_ACCEPT,
            (&raw const seconds).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_addresses_are_resolved() {
        assert_eq!(resolve("127.0.0.1:80").unwrap(), "127.0.0.1:80".parse::<SocketAddr>().unwrap());
        assert_eq!(resolve(":8081").unwrap(), "[::]:8081".parse::<SocketAddr>().unwrap());
        assert_eq!(resolve("[::1]:0").unwrap(), "[::1]:0".parse::<SocketAddr>().unwrap());
        for wrong in ["", "8081", "127.0.0.1", "127.0.0.1:99999", "[::1:80"] {
            let error = resolve(wrong).unwrap_err().to_string();
            assert!(
                error.contains(&format!("{wrong:?}")) && error.contains("host:port"),
                "{error}"
            );
        }
    }
}
