//! The address of a listener: a transport with a host and port, or a path. For example,
//! `udp://:8125`.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;

use quipu_segment::printable;
use serde::{Deserialize, Serialize};

/// An address where a listener receives lines.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub enum Address {
    /// `udp://HOST:PORT`.
    Udp(String),
    /// `tcp://HOST:PORT`.
    Tcp(String),
    /// `unixgram:PATH`: datagrams.
    UnixDatagram(PathBuf),
    /// `unix:PATH`: connections.
    UnixStream(PathBuf),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let network = |rest: &str| match rest.rsplit_once(':') {
            Some((_, port)) if port.parse::<u16>().is_ok() => Ok(rest.to_owned()),
            _ => Err(format!("{rest:?} has no port; write {EXAMPLES}")),
        };
        let local = |rest: &str| match rest {
            "" => Err(format!("the path is empty; write {EXAMPLES}")),
            path if path.len() > MAX_PATH => Err(format!(
                "the path has {} bytes; the path of a socket has at most {MAX_PATH}",
                path.len()
            )),
            path => Ok(PathBuf::from(path)),
        };
        if let Some(rest) = text.strip_prefix("udp://") {
            network(rest).map(Self::Udp)
        } else if let Some(rest) = text.strip_prefix("tcp://") {
            network(rest).map(Self::Tcp)
        } else if let Some(rest) = text.strip_prefix("unixgram:") {
            local(rest).map(Self::UnixDatagram)
        } else if let Some(rest) = text.strip_prefix("unix:") {
            local(rest).map(Self::UnixStream)
        } else {
            Err(format!("{text:?} names no transport; write {EXAMPLES}"))
        }
    }
}

impl TryFrom<String> for Address {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Address> for String {
    fn from(address: Address) -> Self {
        address.to_string()
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Udp(place) => write!(f, "udp://{place}"),
            Self::Tcp(place) => write!(f, "tcp://{place}"),
            Self::UnixDatagram(path) => write!(f, "unixgram:{}", printable(path)),
            Self::UnixStream(path) => write!(f, "unix:{}", printable(path)),
        }
    }
}

/// Resolves `host:port`. An empty host means all interfaces, both IPv6 and IPv4. If a name has
/// several addresses, the first IPv4 address is preferred.
pub(super) fn resolve(place: &str) -> std::io::Result<SocketAddr> {
    let place = match place.strip_prefix(':') {
        Some(port) => format!("[::]:{port}"),
        None => place.to_owned(),
    };
    let found: Vec<SocketAddr> = place.to_socket_addrs()?.collect();
    let first = found.iter().find(|address| address.is_ipv4()).or(found.first());
    first.copied().ok_or_else(|| std::io::Error::other("the host has no address"))
}

const EXAMPLES: &str = "udp://HOST:PORT, tcp://HOST:PORT, unixgram:PATH, or unix:PATH";

/// The maximum length of a path in `sun_path`, which ends with a NUL.
const MAX_PATH: usize = 107;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written() {
        for text in [
            "udp://127.0.0.1:9125",
            "udp://:9125",
            "tcp://[::1]:0",
            "unixgram:/run/statsd.sock",
            "unix:statsd.sock",
        ] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        for (text, part) in [
            ("", "names no transport"),
            ("127.0.0.1:9125", "udp://HOST:PORT"),
            ("udp://127.0.0.1", "has no port"),
            ("tcp://a:99999", "has no port"),
            ("unix:", "the path is empty"),
            ("unixgram:", "the path is empty"),
        ] {
            let error = text.parse::<Address>().unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
        let long = format!("unix:/{}", "a".repeat(107));
        assert!(long.parse::<Address>().unwrap_err().contains("at most 107"));
        assert_eq!(resolve(":80").unwrap().to_string(), "[::]:80");
    }
}
