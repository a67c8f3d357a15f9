//! A small HTTP client that counts requests and responses exactly.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The number of threads of a load, each with [`CONNECTIONS`].
pub(super) const THREADS: usize = 2;

/// The number of connections of a thread.
const CONNECTIONS: usize = 16;

/// How long to wait for a response.
const PATIENCE: Duration = Duration::from_secs(5);

/// The maximum length of a response.
const MAX_ANSWER: usize = 4096;

/// The numbers of requests sent, at least in part, and of complete responses of 20 digits.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tally {
    /// Requests that the server may have seen.
    pub sent: u64,
    /// Requests whose response has arrived.
    pub answered: u64,
    /// The highest count in a response: a lower bound on the requests that were counted.
    pub greatest: u64,
}

/// Asks a server for its count, which includes this request.
pub fn ask(address: SocketAddr) -> io::Result<u64> {
    let mut connection = Connection::open(address)?;
    connection.send()?;
    connection.receive()
}

/// Sends requests on keep-alive connections until `stop` is set or all connections have failed.
///
/// It sends a request on each connection, then reads each response: every request in flight is in
/// the tally.
pub(super) fn load(address: SocketAddr, stop: &AtomicBool) -> Tally {
    let mut tally = Tally::default();
    let mut connections: Vec<Connection> =
        (0..CONNECTIONS).filter_map(|_| Connection::open(address).ok()).collect();
    while !connections.is_empty() && !stop.load(Ordering::Relaxed) {
        connections.retain_mut(|connection| {
            tally.sent += 1;
            connection.send().is_ok()
        });
        connections.retain_mut(|connection| {
            let answer = connection.receive();
            if let Ok(count) = answer {
                tally.answered += 1;
                tally.greatest = tally.greatest.max(count);
            }
            answer.is_ok()
        });
    }
    tally
}

struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    fn open(address: SocketAddr) -> io::Result<Connection> {
        let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Connection { stream, buffer: Vec::new() })
    }

    fn send(&mut self) -> io::Result<()> {
        self.stream.write_all(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: */*\r\n\r\n")
    }

    fn receive(&mut self) -> io::Result<u64> {
        loop {
            if let Some((count, length)) = parse(&self.buffer)? {
                self.buffer.drain(..length);
                return Ok(count);
            }
            if self.buffer.len() > MAX_ANSWER {
                return Err(invalid("the answer is too long"));
            }
            let mut chunk = [0; 1024];
            match self.stream.read(&mut chunk)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => self.buffer.extend_from_slice(&chunk[..read]),
            }
        }
    }
}

/// The count in a response and the response's length, or `None` if the response is incomplete.
fn parse(bytes: &[u8]) -> io::Result<Option<(u64, usize)>> {
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
        return Ok(None);
    };
    let head = std::str::from_utf8(&bytes[..end]).map_err(|_| invalid("a head is not UTF-8"))?;
    let mut lines = head.split("\r\n");
    let status = lines.next().unwrap_or_default();
    if status.split(' ').nth(1) != Some("200") {
        return Err(invalid(status));
    }
    let length: Option<usize> = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    });
    if length != Some(20) {
        return Err(invalid("the body is not 20 bytes long"));
    }
    let body_start = end + 4;
    let Some(body) = bytes.get(body_start..body_start + 20) else {
        return Ok(None);
    };
    let digits = std::str::from_utf8(body).ok().filter(|t| t.bytes().all(|b| b.is_ascii_digit()));
    let count = digits.and_then(|text| text.parse().ok());
    let count = count.ok_or_else(|| invalid("the body is not a count of 20 digits"))?;
    Ok(Some((count, body_start + 20)))
}

fn invalid(problem: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, problem)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    const ANSWER: &str = "HTTP/1.1 200 OK\r\nDate: now\r\ncontent-length: 20\r\n\r\n\
                          00000000000000000042";

    #[test]
    fn reads_a_whole_answer_and_no_part_of_it() {
        let bytes = ANSWER.as_bytes();
        assert_eq!(parse(bytes).unwrap(), Some((42, bytes.len())));
        for end in 0..bytes.len() {
            assert_eq!(parse(&bytes[..end]).unwrap(), None, "{end}");
        }
        let two = ANSWER.repeat(2);
        assert_eq!(parse(two.as_bytes()).unwrap(), Some((42, bytes.len())));
    }

    #[test]
    fn refuses_other_answers() {
        for (from, to) in [("200 OK", "503 No"), ("42", "4x"), (": 20", ": 21"), ("length", "l")] {
            assert!(parse(ANSWER.replace(from, to).as_bytes()).is_err(), "{to}");
        }
    }

    #[test]
    fn counts_only_what_was_answered() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        // Responds to one request of each connection, and closes it at the second.
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
