//! A load that counts its requests and responses exactly.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::http::{Connection, Response, invalid};

/// The number of threads of a load, each with [`CONNECTIONS`].
pub(super) const THREADS: usize = 2;

/// The number of connections of a thread.
const CONNECTIONS: usize = 16;

/// The longest wait for a response.
const PATIENCE: Duration = Duration::from_secs(5);

/// The numbers of requests sent, at least in part, and of complete responses of 20 digits.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tally {
    /// Requests that may have reached the server.
    pub sent: u64,
    /// Requests with a response.
    pub answered: u64,
    /// The highest count in a response: a lower bound on the requests that were counted.
    pub greatest: u64,
}

/// Asks a server for its count, which includes this request.
pub fn ask(address: SocketAddr) -> io::Result<u64> {
    let mut connection = Connection::open(address, PATIENCE)?;
    send(&mut connection)?;
    receive(&mut connection)
}

/// Sends requests on keep-alive connections until `stop` is set or all connections failed.
///
/// Each round sends a request on every connection, then reads every response, so that the tally
/// includes the requests in flight.
pub(super) fn load(address: SocketAddr, stop: &AtomicBool) -> Tally {
    let mut tally = Tally::default();
    let open = |_| Connection::open(address, PATIENCE).ok();
    let mut connections: Vec<Connection> = (0..CONNECTIONS).filter_map(open).collect();
    while !connections.is_empty() && !stop.load(Ordering::Relaxed) {
        connections.retain_mut(|connection| {
            tally.sent += 1;
            send(connection).is_ok()
        });
        connections.retain_mut(|connection| {
            let answer = receive(connection);
            if let Ok(count) = answer {
                tally.answered += 1;
                tally.greatest = tally.greatest.max(count);
            }
            answer.is_ok()
        });
    }
    tally
}

fn send(connection: &mut Connection) -> io::Result<()> {
    connection.send(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: */*\r\n\r\n")
}

fn receive(connection: &mut Connection) -> io::Result<u64> {
    count(connection.receive()?)
}

/// The count in a response.
fn count(response: Response<'_>) -> io::Result<u64> {
    if response.status != 200 {
        return Err(invalid(&format!("the status is {}", response.status)));
    }
    let body = std::str::from_utf8(response.body).ok();
    let digits = body.filter(|text| text.len() == 20 && text.bytes().all(|b| b.is_ascii_digit()));
    let count = digits.and_then(|text| text.parse().ok());
    count.ok_or_else(|| invalid("the body is not a count of 20 digits"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    const ANSWER: &str = "HTTP/1.1 200 OK\r\nDate: now\r\ncontent-length: 20\r\n\r\n\
                          00000000000000000042";

    #[test]
    fn a_count_is_the_20_digits_of_a_successful_response() {
        let counted = |status, body: &[u8]| count(Response { status, body }).ok();
        assert_eq!(counted(200, b"00000000000000000042"), Some(42));
        assert_eq!(counted(503, b"00000000000000000042"), None);
        assert_eq!(counted(200, b"0000000000000000004x"), None);
        assert_eq!(counted(200, b"42"), None);
    }

    #[test]
    fn counts_only_what_was_answered() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        // Responds to one request of each connection, and closes the connection at the second.
        let server = std::thread::spawn(move || {
            for _ in 0..CONNECTIONS {
                let (mut stream, _) = listener.accept().unwrap();
                std::thread::spawn(move || {
                    let mut buffer = [0; 1024];
                    let _ = stream.read(&mut buffer).unwrap();
                    stream.write_all(ANSWER.as_bytes()).unwrap();
                    let _ = stream.read(&mut buffer);
                });
            }
        });
        let tally = load(address, &AtomicBool::new(false));
        server.join().unwrap();
        let connections = CONNECTIONS as u64;
        let answered = connections;
        assert_eq!(tally, Tally { sent: 2 * connections, answered, greatest: 42 });
    }
}
