//! Connects the HTTP client to a unix socket, within the client's time limits.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport,
};
use ureq::{Error, Timeout};

/// Connects to the socket at this path, and ignores the host in the URL.
#[derive(Debug)]
pub(super) struct UnixConnector(pub(super) PathBuf);

/// Resolves no name, because a unix socket has no host.
#[derive(Debug)]
pub(super) struct NoHost;

/// A connection to the socket.
#[derive(Debug)]
pub(super) struct UnixTransport {
    stream: UnixStream,
    buffers: LazyBuffers,
}

/// The pause before another attempt to connect, if the queue of the socket is full.
const PAUSE: Duration = Duration::from_millis(10);

impl<In: Transport> Connector<In> for UnixConnector {
    type Out = UnixTransport;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        _: Option<In>,
    ) -> Result<Option<UnixTransport>, Error> {
        let begun = Instant::now();
        let address = SocketAddrUnix::new(&self.0).map_err(io::Error::from)?;
        // A blocking call would wait for space in the queue without a time limit.
        let flags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
            .map_err(io::Error::from)?;
        loop {
            match connect(&socket, &address) {
                Ok(()) => break,
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(error) => return Err(io::Error::from(error).into()),
            }
            if details.timeout.not_zero().is_some_and(|time| begun.elapsed() >= *time) {
                return Err(Error::Timeout(details.timeout.reason));
            }
            thread::sleep(PAUSE);
        }
        let stream = UnixStream::from(socket);
        stream.set_nonblocking(false)?;
        let config = details.config;
        let buffers = LazyBuffers::new(config.input_buffer_size(), config.output_buffer_size());
        Ok(Some(UnixTransport { stream, buffers }))
    }
}

impl Transport for UnixTransport {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        let timeout = timeout.for_write();
        self.stream.set_write_timeout(timeout.not_zero().map(|time| *time))?;
        let written = self.stream.write_all(&self.buffers.output()[..amount]);
        written.map_err(|error| failed(error, timeout.reason))
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        let timeout = timeout.for_read();
        self.stream.set_read_timeout(timeout.not_zero().map(|time| *time))?;
        let read = loop {
            match self.stream.read(self.buffers.input_append_buf()) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => break read,
            }
        };
        let count = read.map_err(|error| failed(error, timeout.reason))?;
        self.buffers.input_appended(count);
        Ok(count > 0)
    }

    fn is_open(&mut self) -> bool {
        // Connections are never reused.
        false
    }
}

impl Resolver for NoHost {
    fn resolve(&self, _: &Uri, _: &Config, _: NextTimeout) -> Result<ResolvedSocketAddrs, Error> {
        let mut addresses = self.empty();
        // The client requires an address, but does not use it.
        addresses.push(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)));
        Ok(addresses)
    }
}

fn failed(error: io::Error, reason: Timeout) -> Error {
    match error.kind() {
        ErrorKind::TimedOut | ErrorKind::WouldBlock => Error::Timeout(reason),
        _ => error.into(),
    }
}
