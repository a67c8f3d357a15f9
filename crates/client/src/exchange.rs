//! Requests from this program to others.

use std::io;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_system_are_named_by_their_own_words() {
        let of = |kind: io::ErrorKind| explained(&ureq::Error::Io(kind.into()));
        assert!(of(io::ErrorKind::ConnectionRefused).starts_with("connection refused: is"));
        assert_eq!(of(io::ErrorKind::ConnectionReset), "connection reset");
        assert_eq!(explained(&ureq::Error::HostNotFound), "host not found");
    }
}
