//! A small HTTP client: a connection that is kept for many requests, and a GET by itself.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::time::Duration;

/// The maximum length of a response on a connection that is kept.
const MAX_RESPONSE: usize = 1 << 20;

/// A connection for HTTP/1.1 requests, one after the other.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    /// The length of the response that was returned last.
    used: usize,
}

/// A response.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Response<'a> {
    /// The status code.
    pub status: u16,
    /// The body.
    pub body: &'a [u8],
}

impl Connection {
    /// Opens a connection. No read or write waits longer than `patience`.
    pub fn open(address: SocketAddr, patience: Duration) -> io::Result<Connection> {
        Ok(Connection { stream: open(address, patience)?, buffer: Vec::new(), used: 0 })
    }

    /// Sends a request.
    pub fn send(&mut self, request: &[u8]) -> io::Result<()> {
        self.stream.write_all(request)
    }

    /// Receives the next response.
    pub fn receive(&mut self) -> io::Result<Response<'_>> {
        self.buffer.drain(..self.used);
        self.used = 0;
        let (status, body) = loop {
            if let Some(found) = parse(&self.buffer)? {
                break found;
            }
            if self.buffer.len() > MAX_RESPONSE {
                return Err(invalid("the response is too long"));
            }
            let mut chunk = [0; 4096];
            match self.stream.read(&mut chunk)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => self.buffer.extend_from_slice(&chunk[..read]),
            }
        };
        self.used = body.end;
        Ok(Response { status, body: &self.buffer[body] })
    }
}

/// Returns the body of a successful response to a GET. It is sent as HTTP/1.0, because then no
/// server sends chunks, and the end of the connection is the end of the body.
pub fn get(address: SocketAddr, target: &str, patience: Duration) -> io::Result<Vec<u8>> {
    let mut stream = open(address, patience)?;
    stream.write_all(format!("GET {target} HTTP/1.0\r\nHost: localhost\r\n\r\n").as_bytes())?;
    let (mut bytes, mut chunk) = (Vec::new(), [0; 4096]);
    let (status, length, start) = loop {
        if let Some(found) = head(&bytes)? {
            break found;
        }
        match stream.read(&mut chunk)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            _ if bytes.len() > MAX_RESPONSE => return Err(invalid("the head is too long")),
            read => bytes.extend_from_slice(&chunk[..read]),
        }
    };
    if status != 200 {
        return Err(invalid(&format!("the status is {status}")));
    }
    // A large body is not moved after its arrival.
    let mut body = bytes.split_off(start);
    stream.read_to_end(&mut body)?;
    match length.is_some_and(|length| length != body.len()) {
        true => Err(io::ErrorKind::UnexpectedEof.into()),
        false => Ok(body),
    }
}

fn open(address: SocketAddr, patience: Duration) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, patience)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    Ok(stream)
}

/// The status and the place of the body of a response, or `None` if it is incomplete.
fn parse(bytes: &[u8]) -> io::Result<Option<(u16, Range<usize>)>> {
    let Some((status, length, start)) = head(bytes)? else { return Ok(None) };
    let length = match (status, length) {
        // Responses with these codes contain no body.
        (204 | 304, _) => 0,
        (_, Some(length)) => length,
        (_, None) => return Err(invalid("a response does not say how long it is")),
    };
    let end = start.checked_add(length).filter(|end| *end <= MAX_RESPONSE);
    let end = end.ok_or_else(|| invalid("the response is too long"))?;
    Ok((end <= bytes.len()).then_some((status, start..end)))
}

/// The status, the `Content-Length` and the length of a head, or `None` if it is incomplete.
fn head(bytes: &[u8]) -> io::Result<Option<(u16, Option<usize>, usize)>> {
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
        return Ok(None);
    };
    let head = std::str::from_utf8(&bytes[..end]).map_err(|_| invalid("a head is not UTF-8"))?;
    let mut lines = head.split("\r\n");
    let first = lines.next().unwrap_or_default();
    let status = first.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| invalid(first))?;
    let length = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    });
    Ok(Some((status, length, end + 4)))
}

pub(super) fn invalid(problem: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, problem)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    const GET: &str = "GET / HTTP/1.0\r\nHost: localhost\r\n\r\n";
    const RESPONSE: &str = "HTTP/1.1 200 OK\r\nDate: now\r\ncontent-length: 5\r\n\r\n00042";

    #[test]
    fn reads_a_whole_response_and_no_part_of_it() {
        let bytes = RESPONSE.as_bytes();
        let body = bytes.len() - 5..bytes.len();
        assert_eq!(parse(bytes).unwrap(), Some((200, body.clone())));
        for end in 0..bytes.len() {
            assert_eq!(parse(&bytes[..end]).unwrap(), None, "{end}");
        }
        assert_eq!(parse(RESPONSE.repeat(2).as_bytes()).unwrap(), Some((200, body)));
        let empty = b"HTTP/1.1 204 No Content\r\n\r\n";
        assert_eq!(parse(empty).unwrap(), Some((204, empty.len()..empty.len())));
    }

    #[test]
    fn refuses_what_is_not_a_response_of_a_known_length() {
        for (from, to) in [("200", "2x0"), ("length", "l"), (": 5", ": 5000000")] {
            assert!(parse(RESPONSE.replace(from, to).as_bytes()).is_err(), "{to}");
        }
    }

    #[test]
    fn a_connection_returns_one_response_after_the_other() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(RESPONSE.repeat(2).as_bytes()).unwrap();
            let (mut stream, _) = listener.accept().unwrap();
            stream.read_exact(&mut [0; GET.len()]).unwrap();
            stream.write_all(RESPONSE.as_bytes()).unwrap();
        });
        let patience = Duration::from_secs(5);
        let mut connection = Connection::open(address, patience).unwrap();
        for _ in 0..2 {
            let response = connection.receive().unwrap();
            assert_eq!((response.status, response.body), (200, &b"00042"[..]));
        }
        assert_eq!(get(address, "/", patience).unwrap(), b"00042");
        server.join().unwrap();
    }
}
