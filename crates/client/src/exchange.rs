//! Explains why a request got no response, and whether the server can have received the request.

use std::fmt;
use std::io;

use ureq::Timeout;

/// The reason why a request has no response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoResponse {
    /// The failure, and a remedy if there is one.
    pub message: String,
    /// Whether the request may have reached the server. This is false if there never was a
    /// connection.
    pub is_sent: bool,
}

impl NoResponse {
    pub(super) fn new(error: &ureq::Error) -> Self {
        Self { message: explained(error), is_sent: !is_unconnected(error) }
    }

    pub(super) fn unsent(message: String) -> Self {
        Self { message, is_sent: false }
    }
}

impl fmt::Display for NoResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for NoResponse {}

/// Describes why there was no response, without the prefix `io: ` of the client's message.
pub(super) fn explained(error: &ureq::Error) -> String {
    let ureq::Error::Io(error) = error else { return error.to_string() };
    match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            "connection refused: is the server running, and is this its address?".to_owned()
        }
        _ => error.to_string(),
    }
}

/// Returns whether an error can only occur before there is a connection.
fn is_unconnected(error: &ureq::Error) -> bool {
    match error {
        ureq::Error::Io(error) => {
            // The standard library has no stable kind for the error of a lookup.
            let is_lookup = || error.to_string().starts_with("failed to lookup address");
            matches!(
                error.kind(),
                io::ErrorKind::ConnectionRefused
                    | io::ErrorKind::HostUnreachable
                    | io::ErrorKind::NetworkUnreachable
            ) || error.raw_os_error().is_none() && is_lookup()
        }
        ureq::Error::Timeout(timeout) => matches!(timeout, Timeout::Resolve | Timeout::Connect),
        ureq::Error::HostNotFound
        | ureq::Error::ConnectionFailed
        | ureq::Error::BadUri(_)
        | ureq::Error::Http(_) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::net::ToSocketAddrs;

    use super::*;

    #[test]
    fn errors_of_the_system_are_named_by_their_own_words() {
        let of = |kind: io::ErrorKind| explained(&ureq::Error::Io(kind.into()));
        assert!(of(io::ErrorKind::ConnectionRefused).starts_with("connection refused: is"));
        assert_eq!(of(io::ErrorKind::ConnectionReset), "connection reset");
        assert_eq!(explained(&ureq::Error::HostNotFound), "host not found");
    }

    #[test]
    fn only_an_error_before_the_connection_means_that_nothing_was_sent() {
        let is_sent = |error: ureq::Error| NoResponse::new(&error).is_sent;
        assert!(!is_sent(ureq::Error::Io(io::ErrorKind::ConnectionRefused.into())));
        assert!(!is_sent(ureq::Error::Io(io::ErrorKind::NetworkUnreachable.into())));
        assert!(!is_sent(ureq::Error::HostNotFound));
        let lookup = ("x".repeat(300).as_str(), 80).to_socket_addrs().unwrap_err();
        assert!(!is_sent(ureq::Error::Io(lookup)));
        assert!(!is_sent(ureq::Error::Timeout(Timeout::Connect)));
        assert!(is_sent(ureq::Error::Io(io::ErrorKind::ConnectionReset.into())));
        assert!(is_sent(ureq::Error::Timeout(Timeout::Global)));
    }
}
