//! A blocking HTTP/1.1 client for tests. You can send any bytes through it, and it parses the
//! responses strictly.

use std::collections::HashMap;
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use super::DEADLINE;

/// A connection.
pub(crate) struct Client {
    stream: TcpStream,
    unread: Vec<u8>,
}

/// A response, with the names of header fields in lower case.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) fields: HashMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Result<Client> {
        let stream = TcpStream::connect_timeout(&address, DEADLINE)?;
        stream.set_read_timeout(Some(DEADLINE))?;
        stream.set_write_timeout(Some(DEADLINE))?;
        stream.set_nodelay(true)?;
        Ok(Client { stream, unread: Vec::new() })
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) -> Result<()> {
        self.stream.write_all(bytes.as_ref())
    }

    /// Sends a request without a body and reads the response. The connection stays open.
    pub(crate) fn request(&mut self, method: &str, target: &str) -> Result<Response> {
        self.send(format!("{method} {target} HTTP/1.1\r\nHost: quipu\r\n\r\n"))?;
        let mut response = self.head()?;
        if method != "HEAD" {
            self.body(&mut response)?;
        }
        Ok(response)
    }

    /// Sends a body with these header fields, and reads the response.
    pub(crate) fn post(
        &mut self,
        target: &str,
        fields: &[(&str, &str)],
        body: &[u8],
    ) -> Result<Response> {
        let mut head = format!("POST {target} HTTP/1.1\r\nHost: quipu\r\n");
        for (name, value) in fields {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        self.send(format!("{head}Content-Length: {}\r\n\r\n", body.len()))?;
        self.send(body)?;
        self.read_response()
    }

    /// Reads the next response.
    pub(crate) fn read_response(&mut self) -> Result<Response> {
        let mut response = self.head()?;
        self.body(&mut response)?;
        Ok(response)
    }

    /// Expects the server to close cleanly, without more bytes and without a reset.
    pub(crate) fn expect_end(&mut self) {
        let mut rest = std::mem::take(&mut self.unread);
        self.stream.read_to_end(&mut rest).unwrap();
        assert_eq!(rest, b"", "bytes after the last response");
    }

    /// Closes the sending side. We can still read responses, but we cannot send another request.
    pub(crate) fn finish(&mut self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }

    /// Reads the head of a response, but not its body.
    fn head(&mut self) -> Result<Response> {
        let end = loop {
            if let Some(end) = self.unread.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                break end;
            }
            self.receive()?;
        };
        let head: Vec<u8> = self.unread.drain(..end + 4).collect();
        let head = String::from_utf8(head).unwrap();
        let mut lines = head[..end].split("\r\n");
        // A response to HTTP/1.0 can name either version.
        let line = lines.next().unwrap();
        let status = line.strip_prefix("HTTP/1.1 ").or(line.strip_prefix("HTTP/1.0 ")).unwrap();
        let mut fields = HashMap::new();
        for line in lines {
            let (name, value) = line.split_once(": ").unwrap();
            let before = fields.insert(name.to_lowercase(), value.to_owned());
            assert!(before.is_none(), "two fields {name} in {head}");
        }
        Ok(Response { status: status[..3].parse().unwrap(), fields, body: Vec::new() })
    }

    fn body(&mut self, response: &mut Response) -> Result<()> {
        // A response with status 204 contains no body.
        let length = response.fields.get("content-length").map_or("0", String::as_str);
        let length: usize = length.parse().unwrap();
        while self.unread.len() < length {
            self.receive()?;
        }
        response.body = self.unread.drain(..length).collect();
        Ok(())
    }

    fn receive(&mut self) -> Result<()> {
        let mut buffer = [0; 16 << 10];
        let count = loop {
            match self.stream.read(&mut buffer) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                other => break other?,
            }
        };
        if count == 0 {
            return Err(Error::from(ErrorKind::UnexpectedEof));
        }
        self.unread.extend_from_slice(&buffer[..count]);
        Ok(())
    }
}

impl Response {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    /// Parses the count in a response, which must contain exactly 20 digits.
    pub(crate) fn count(&self) -> u64 {
        assert_eq!(self.status, 200, "{self:?}");
        let text = self.text();
        assert!(text.len() == 20 && text.bytes().all(|byte| byte.is_ascii_digit()), "{self:?}");
        text.parse().unwrap()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        assert_eq!(self.status, 200, "{self:?}");
        assert_eq!(self.fields["content-type"], "application/json");
        serde_json::from_slice(&self.body).unwrap()
    }

    /// Expects a refusal with this status and a message that contains `part`.
    #[track_caller]
    pub(crate) fn expect_refusal(&self, status: u16, part: &str) {
        assert_eq!(self.status, status, "{self:?}");
        assert!(self.text().contains(part), "no {part:?} in {:?}", self.text());
    }
}
