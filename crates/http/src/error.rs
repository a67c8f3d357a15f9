//! The reasons why a server cannot start.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use quipu_segment::printable;

/// The error of listening or starting. The message contains a remedy and, if possible, the address.
#[derive(Debug)]
pub enum Error {
    /// The address is not `host:port`, or its host cannot be resolved.
    Address {
        /// The unparsed address.
        address: String,
        /// The error of the resolver.
        source: io::Error,
    },
    /// The operating system refused to listen on the address.
    Listen {
        /// The address after resolution.
        address: SocketAddr,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A unix socket cannot be opened.
    Local {
        /// The path of the socket.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// No address was given.
    NoAddress,
    /// The runtime of a thread could not be built.
    Runtime(io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Address { address, source } => write!(
                f,
                "cannot use {address:?} as a listening address: {source}; \
                 write host:port, such as 127.0.0.1:8081, [::1]:8081 or :8081, or unix:PATH"
            ),
            Error::Listen { address, source } => {
                write!(f, "cannot listen on {address}: {source}; {}", way_out(*address, source))
            }
            Error::Local { path, source } => {
                write!(f, "cannot listen on unix:{}: {source}", printable(path))
            }
            Error::NoAddress => {
                write!(f, "no address to listen on; give at least one, such as 127.0.0.1:8081")
            }
            Error::Runtime(source) => write!(
                f,
                "cannot start a server thread: {source}; \
                 check the limits on open files (ulimit -n) and on memory"
            ),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Address { source, .. }
            | Error::Listen { source, .. }
            | Error::Local { source, .. } => Some(source),
            Error::NoAddress => None,
            Error::Runtime(source) => Some(source),
        }
    }
}

fn way_out(address: SocketAddr, source: &io::Error) -> String {
    let port = address.port();
    match source.kind() {
        io::ErrorKind::AddrInUse => format!(
            "another process has port {port} (ss -ltnp 'sport = :{port}' names it): \
             stop it or choose another port"
        ),
        io::ErrorKind::PermissionDenied if port < 1024 => format!(
            "port {port} is privileged: choose one from 1024 up or grant CAP_NET_BIND_SERVICE"
        ),
        io::ErrorKind::PermissionDenied => "the system's security policy (SELinux, AppArmor, \
             seccomp) forbids it: allow the address there or choose another"
            .to_owned(),
        io::ErrorKind::AddrNotAvailable => format!(
            "no interface of this machine has the address {}: use one of its own, or 0.0.0.0 \
             or [::] for all of them",
            address.ip()
        ),
        _ if source.raw_os_error() == Some(libc::EAFNOSUPPORT) => {
            format!("this machine does not support the protocol: without IPv6 use 0.0.0.0:{port}")
        }
        _ => "check the address and the limit on open files (ulimit -n)".to_owned(),
    }
}
