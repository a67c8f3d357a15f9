//! Binds the sockets of listeners. This happens before the daemon opens its state file, because a
//! daemon that cannot listen must not change this file.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, getsockname, listen, socket_with, sockopt,
};
use tracing::{info, warn};

use super::Protocol;
use super::address::{Address, resolve};
use quipu_http::local_socket::{self, BoundPath};

/// A bound socket.
#[derive(Debug)]
pub(super) struct Socket {
    /// The path of a unix socket. Dropping it deletes the socket file. It is declared first,
    /// because the file must be deleted before the descriptor is closed.
    _path: Option<BoundPath>,
    /// The address, with the actual port.
    pub(super) address: String,
    pub(super) descriptor: OwnedFd,
    pub(super) transport: Transport,
}

/// The transport of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transport {
    /// UDP, with the size of the receive buffer as the kernel counts it.
    Udp(usize),
    UnixDatagram,
    Tcp,
    UnixStream,
}

impl Socket {
    /// Binds a socket. `buffer` is the requested size of the receive buffer in bytes, for UDP.
    pub(super) fn bind(address: &Address, buffer: usize) -> io::Result<Self> {
        let none =
            |(descriptor, address, transport)| Self { address, descriptor, transport, _path: None };
        match address {
            Address::Udp(place) => udp(resolve(place)?, buffer).map(none),
            Address::Tcp(place) => tcp(resolve(place)?).map(none),
            Address::UnixDatagram(path) | Address::UnixStream(path) => {
                let transport = match address {
                    Address::UnixDatagram(_) => Transport::UnixDatagram,
                    _ => Transport::UnixStream,
                };
                let (descriptor, path) = match transport {
                    Transport::UnixStream => local_socket::listen_at(path, BACKLOG)?,
                    _ => local_socket::receive_at(path)?,
                };
                let (address, path) = (address.to_string(), Some(path));
                Ok(Self { address, descriptor, transport, _path: path })
            }
        }
    }

    pub(super) fn log(&self, Protocol { name, .. }: Protocol) {
        match self.transport {
            Transport::Udp(buffer) => {
                info!(address = %self.address, receive_buffer = buffer, "receiving {name}");
            }
            _ => info!(address = %self.address, "receiving {name}"),
        }
    }
}

/// Returns the number of packets that the kernel has dropped at this socket since its creation.
///
/// This is the ninth word of `SO_MEMINFO`. The control message `SO_RXQ_OVFL` contains the same
/// count, but it arrives only with a packet, and contains the count of the time when this packet
/// was queued. With this message, drops at the end of a burst would stay unnoticed until the next
/// packet.
pub(super) fn kernel_drops(socket: &OwnedFd) -> Option<u32> {
    let mut words = [0_u32; 9];
    let mut length = size_of_val(&words) as libc::socklen_t;
    // SAFETY: The descriptor is open for as long as `socket` is borrowed. The pointer and the
    // length describe `words`, which the kernel fills with at most that many bytes.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            (&raw mut words).cast(),
            &raw mut length,
        )
    };
    (result == 0 && length as usize == size_of_val(&words)).then_some(words[8])
}

fn udp(address: SocketAddr, buffer: usize) -> io::Result<(OwnedFd, String, Transport)> {
    let socket = socket_with(family(address), SocketType::DGRAM, FLAGS, None)?;
    // Only a process with CAP_NET_ADMIN can exceed net.core.rmem_max.
    if sockopt::set_socket_recv_buffer_size_force(&socket, buffer).is_err() {
        sockopt::set_socket_recv_buffer_size(&socket, buffer)?;
    }
    bind(&socket, &address)?;
    let bound = format!("udp://{}", local_address(&socket)?);
    // The kernel doubles the requested size for its own needs, and limits it without an error.
    let got = sockopt::socket_recv_buffer_size(&socket)?;
    if got < buffer.saturating_mul(2) {
        warn!(
            address = bound,
            asked = buffer,
            got = got / 2,
            "the receive buffer is smaller than asked for: raise net.core.rmem_max (sysctl), or \
             give the daemon CAP_NET_ADMIN"
        );
    }
    Ok((socket, bound, Transport::Udp(got)))
}

fn tcp(address: SocketAddr) -> io::Result<(OwnedFd, String, Transport)> {
    let socket = socket_with(family(address), SocketType::STREAM, FLAGS, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    bind(&socket, &address)?;
    listen(&socket, BACKLOG)?;
    let bound = format!("tcp://{}", local_address(&socket)?);
    Ok((socket, bound, Transport::Tcp))
}

fn family(address: SocketAddr) -> AddressFamily {
    match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    }
}

fn local_address(socket: impl AsFd) -> io::Result<SocketAddr> {
    SocketAddr::try_from(getsockname(socket)?)
        .map_err(|_| io::Error::other("the socket has no internet address"))
}

const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);
/// The number of connections that the kernel queues, unless `net.core.somaxconn` is smaller.
const BACKLOG: i32 = 1024;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::net::UnixDatagram;

    use rustix::io::Errno;
    use rustix::net::{SocketAddrUnix, connect};

    use super::*;

    #[test]
    fn a_path_of_another_socket_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        let address: Address = format!("unix:{}", path.display()).parse().unwrap();
        let first = Socket::bind(&address, 0).unwrap();
        // Another process has removed the path, and bound its socket there.
        fs::rename(&path, directory.path().join("b")).unwrap();
        let second = Socket::bind(&address, 0).unwrap();
        drop(first);
        assert!(path.exists());
        drop(second);
        assert!(!path.exists());
    }

    #[test]
    fn a_process_whose_queue_is_full_listens() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        let local = SocketAddrUnix::new(&path).unwrap();
        let open = || socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None).unwrap();
        let busy = open();
        bind(&busy, &local).unwrap();
        listen(&busy, 0).unwrap();
        let mut clients = Vec::new();
        loop {
            let client = open();
            let connected = connect(&client, &local);
            clients.push(client);
            match connected {
                Ok(()) => continue,
                connected => break assert_eq!(connected, Err(Errno::AGAIN)),
            }
        }
        let address: Address = format!("unix:{}", path.display()).parse().unwrap();
        let error = Socket::bind(&address, 0).unwrap_err().to_string();
        assert!(error.contains("another process listens on it"), "{error}");
    }

    #[test]
    fn a_path_is_taken_over_only_if_nothing_listens_on_it() {
        let directory = tempfile::tempdir().unwrap();
        for (name, kind) in [("unix", "a"), ("unixgram", "b")] {
            let path = directory.path().join(kind);
            let address: Address = format!("{name}:{}", path.display()).parse().unwrap();
            let first = Socket::bind(&address, 0).unwrap();
            let error = Socket::bind(&address, 0).unwrap_err().to_string();
            assert!(error.contains("another process listens on it"), "{error}");
            drop(first);
            assert!(!path.exists());

            // A killed process does not remove its path.
            match kind {
                "a" => drop(std::os::unix::net::UnixListener::bind(&path).unwrap()),
                _ => drop(UnixDatagram::bind(&path).unwrap()),
            }
            assert!(path.exists());
            drop(Socket::bind(&address, 0).unwrap());

            fs::write(&path, "precious").unwrap();
            let error = Socket::bind(&address, 0).unwrap_err().to_string();
            assert!(error.contains("not a socket"), "{error}");
            assert_eq!(fs::read(&path).unwrap(), b"precious");
        }
    }

    #[test]
    fn the_kernel_tells_the_receive_buffer_and_the_drops() {
        let address: Address = "udp://127.0.0.1:0".parse().unwrap();
        let socket = Socket::bind(&address, 4096).unwrap();
        let Transport::Udp(buffer) = socket.transport else { panic!() };
        assert_eq!(buffer, 8192);
        assert_eq!(kernel_drops(&socket.descriptor), Some(0));
        let sender = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let target = socket.address.strip_prefix("udp://").unwrap();
        for _ in 0..100 {
            sender.send_to(b"a:1|c", target).unwrap();
        }
        let drops = kernel_drops(&socket.descriptor).unwrap();
        assert!((50..100).contains(&drops), "{drops}");
    }
}
