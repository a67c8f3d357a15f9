//! A server whose handler records events, and a client that parses responses strictly.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use hyper::StatusCode;
use hyper::body::Bytes;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use quipu_http::{
    CloseReason, Error, Event, Handler, Limits, Options, Refusal, Reply, Request, Response, Server,
    ShutdownReport, Steps, text,
};
use tokio::sync::oneshot;

/// After this long, a test stops waiting and fails.
const PATIENCE: Duration = Duration::from_secs(120);

/// A server in a thread. Dropping this stops it.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) addresses: Vec<SocketAddr>,
    seen: Arc<Mutex<RecordedEvents>>,
    pub(crate) handlers: Arc<AtomicUsize>,
    stop: Mutex<Option<oneshot::Sender<()>>>,
    thread: Mutex<Option<JoinHandle<Result<ShutdownReport, Error>>>>,
}

impl Running {
    pub(crate) fn start(options: Options) -> Running {
        Running::start_on(&["127.0.0.1:0"], options)
    }

    pub(crate) fn start_with(limits: Limits) -> Running {
        Running::start(Options { limits, ..Options::default() })
    }

    pub(crate) fn start_on(addresses: &[&str], options: Options) -> Running {
        let server = Server::bind(addresses, &options).unwrap();
        let addresses = server.local_addresses().to_vec();
        let seen: Arc<Mutex<RecordedEvents>> = Arc::default();
        let handlers: Arc<AtomicUsize> = Arc::default();
        let (stop, stopped) = oneshot::channel();
        let thread = thread::spawn({
            let (seen, handlers) = (seen.clone(), handlers.clone());
            move || {
                let make = |_| {
                    handlers.fetch_add(1, Ordering::Relaxed);
                    Recorder::new(&seen)
                };
                server.serve(make, || (), async { drop(stopped.await) })
            }
        });
        Running {
            address: addresses[0],
            addresses,
            seen,
            handlers,
            stop: Mutex::new(Some(stop)),
            thread: Mutex::new(Some(thread)),
        }
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.address)
    }

    pub(crate) fn seen(&self) -> RecordedEvents {
        self.seen.lock().unwrap().clone()
    }

    pub(crate) fn wait_until(&self, condition: impl Fn(&RecordedEvents) -> bool) {
        let begin = Instant::now();
        while !condition(&self.seen()) {
            assert!(begin.elapsed() < PATIENCE, "{:?}", self.seen());
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Expects that the request is refused, its connection closed and the refusal counted.
    pub(crate) fn expect_refusal(&self, request: &str, refusal: Refusal, status: u16) {
        let before = self.seen().refused(refusal);
        let mut client = self.connect();
        client.send(request);
        let response = client.response();
        let shown = &request[..request.len().min(60)];
        assert_eq!(response.status(), status, "{shown:?}");
        assert_eq!(response.fields["connection"], "close", "{shown:?}");
        assert!(response.fields.contains_key("date") && !response.body.is_empty(), "{response:?}");
        client.expect_end();
        self.wait_until(|seen| seen.refused(refusal) == before + 1);
    }

    pub(crate) fn expect_service(&self) {
        let mut client = self.connect();
        client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_eq!(client.response().status(), 200);
    }

    pub(crate) fn stop(&self) {
        drop(self.stop.lock().unwrap().take());
    }

    pub(crate) fn stopped(&self) -> ShutdownReport {
        self.thread.lock().unwrap().take().unwrap().join().unwrap().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
        // All connections ended, so each accepted one was also closed.
        if let Some(thread) = self.thread.lock().unwrap().take()
            && !thread::panicking()
        {
            thread.join().unwrap().unwrap();
            let seen = self.seen();
            assert_eq!(seen.accepted, seen.closed.values().sum::<usize>(), "{seen:?}");
        }
    }
}

/// The requests and events of a server.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecordedEvents {
    pub(crate) requests: u64,
    pub(crate) slow: usize,
    /// The steps of each waiting response, the last of these responses, and its steps without
    /// another response's steps in between.
    pub(crate) waits: Vec<usize>,
    pub(crate) waiter: usize,
    pub(crate) alone: usize,
    pub(crate) most_alone: usize,
    pub(crate) changes: usize,
    pub(crate) asleep: bool,
    pub(crate) accepted: usize,
    pub(crate) closed: HashMap<CloseReason, usize>,
    pub(crate) answered: HashMap<u16, usize>,
    pub(crate) refused: HashMap<Refusal, usize>,
}

impl RecordedEvents {
    pub(crate) fn closed(&self, closed: CloseReason) -> usize {
        self.closed.get(&closed).copied().unwrap_or_default()
    }

    pub(crate) fn refused(&self, refusal: Refusal) -> usize {
        self.refused.get(&refusal).copied().unwrap_or_default()
    }
}

pub(crate) struct Recorder(Arc<Mutex<RecordedEvents>>);

impl Recorder {
    pub(crate) fn new(seen: &Arc<Mutex<RecordedEvents>>) -> Recorder {
        Recorder(seen.clone())
    }
}

impl Handler for Recorder {
    fn keeps_body(&self, _method: &hyper::Method, path: &str) -> bool {
        path == "/echo"
    }

    fn is_vital(&self, _method: &hyper::Method, path: &str) -> bool {
        path == "/vital"
    }

    fn handle(&self, request: &Request) -> Reply {
        if request.path() == "/steps" {
            return Reply::Steps(Box::new(Climb(0)));
        }
        if request.path() == "/grows" {
            return Reply::Steps(Box::new(Grows(0)));
        }
        if request.path() == "/waits" {
            let number = self.0.lock().unwrap().waits.len();
            self.0.lock().unwrap().waits.push(0);
            return Reply::Steps(Box::new(Waits { seen: self.0.clone(), number }));
        }
        self.respond(request).into()
    }

    fn event(&self, event: Event) {
        let mut seen = self.0.lock().unwrap();
        match event {
            Event::Accepted => seen.accepted += 1,
            Event::Closed(closed) => *seen.closed.entry(closed).or_default() += 1,
            Event::Answered { status, started } => {
                assert!(started.elapsed() < Duration::from_secs(60));
                *seen.answered.entry(status.as_u16()).or_default() += 1;
            }
            Event::Refused(refusal) => *seen.refused.entry(refusal).or_default() += 1,
            _ => {}
        }
    }
}

/// A response in steps.
struct Climb(usize);

impl Steps for Climb {
    fn step(&mut self) -> Option<Response> {
        self.0 += 1;
        thread::sleep(Duration::from_micros(200));
        (self.0 == STEPS).then(|| text(StatusCode::OK, "done\n"))
    }
}

/// A response that takes another megabyte with each step.
struct Grows(usize);

impl Steps for Grows {
    fn step(&mut self) -> Option<Response> {
        self.0 += 1 << 20;
        (self.0 == 64 << 20).then(|| text(StatusCode::OK, "grown\n"))
    }

    fn held(&self) -> usize {
        self.0
    }
}

/// A response that waits for another request. It records how often it steps without another
/// response in between.
struct Waits {
    seen: Arc<Mutex<RecordedEvents>>,
    number: usize,
}

impl Steps for Waits {
    fn step(&mut self) -> Option<Response> {
        let mut seen = self.seen.lock().unwrap();
        let seen = &mut *seen;
        seen.waits[self.number] += 1;
        if seen.waits.len() == 2 {
            seen.alone += 1;
            if seen.waiter != self.number {
                (seen.waiter, seen.alone) = (self.number, 0);
                seen.changes += 1;
            }
            seen.most_alone = seen.most_alone.max(seen.alone);
        }
        (seen.requests > 0).then(|| text(StatusCode::OK, "done\n"))
    }

    fn is_waiting(&self) -> bool {
        true
    }
}

/// The number of steps of a response.
pub(crate) const STEPS: usize = 500;

impl Recorder {
    fn respond(&self, request: &Request) -> Response {
        assert!(request.started().elapsed() < Duration::from_secs(60));
        match (request.method().as_str(), request.path()) {
            ("GET" | "HEAD", "/") => {
                let mut seen = self.0.lock().unwrap();
                seen.requests += 1;
                let mut response = Response::new(format!("{:020}", seen.requests).into());
                let plain = HeaderValue::from_static("text/plain");
                response.headers_mut().insert(CONTENT_TYPE, plain);
                response
            }
            (_, "/") => {
                let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "use GET, HEAD\n");
                response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
                response
            }
            ("POST", "/echo") => Response::new(request.body().clone()),
            ("GET" | "HEAD", "/large") => {
                let length = request.query().map_or(LARGE, |length| length.parse().unwrap());
                Response::new(large().slice(..length))
            }
            ("GET", "/slow") => {
                thread::sleep(Duration::from_millis(1));
                let mut seen = self.0.lock().unwrap();
                seen.slow += 1;
                text(StatusCode::OK, seen.slow.to_string())
            }
            ("GET", "/vital") => text(StatusCode::OK, "ok\n"),
            ("GET", "/panic") => panic!("a panic that the test asked for"),
            ("GET", "/sleep") => {
                self.0.lock().unwrap().asleep = true;
                thread::sleep(Duration::from_millis(300));
                text(StatusCode::OK, "slept\n")
            }
            _ => {
                assert_eq!(request.query(), Some("a=b"));
                text(StatusCode::NOT_FOUND, "no such path\n")
            }
        }
    }
}

/// Larger than the buffers between two sockets.
pub(crate) const LARGE: usize = 16 << 20;

/// Returns a body of [`LARGE`] bytes in which each part is different. `/large?N` returns its first
/// N bytes.
pub(crate) fn large() -> Bytes {
    static BODY: LazyLock<Bytes> =
        LazyLock::new(|| (0..LARGE as u64 / 8).flat_map(|word| word.to_le_bytes()).collect());
    BODY.clone()
}

pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    unread: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct ClientResponse {
    pub(crate) line: String,
    pub(crate) fields: HashMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl ClientResponse {
    pub(crate) fn status(&self) -> u16 {
        self.line.split(' ').nth(1).unwrap().parse().unwrap()
    }
}

impl Client {
    /// Connects with a receive buffer that the kernel does not enlarge.
    pub(crate) fn connect_narrow(address: SocketAddr) -> Client {
        use rustix::net::{AddressFamily, SocketType, connect, socket, sockopt};
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        sockopt::set_socket_recv_buffer_size(&socket, 32 << 10).unwrap();
        connect(&socket, &address).unwrap();
        Client::new(socket.into())
    }

    pub(crate) fn connect(address: SocketAddr) -> Client {
        Client::new(TcpStream::connect(address).unwrap())
    }

    /// Connects from a local address that the caller chooses.
    pub(crate) fn connect_from(host: &str, address: SocketAddr) -> Client {
        use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
        let from = SocketAddr::new(host.parse().unwrap(), 0);
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&socket, &from).unwrap();
        connect(&socket, &address).unwrap();
        Client::new(socket.into())
    }

    fn new(stream: TcpStream) -> Client {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Client { stream, unread: Vec::new() }
    }

    pub(crate) fn send(&mut self, bytes: &str) {
        self.stream.write_all(bytes.as_bytes()).unwrap();
    }

    pub(crate) fn response(&mut self) -> ClientResponse {
        let mut response = self.response_without_body();
        let length: usize = response.fields["content-length"].parse().unwrap();
        while self.unread.len() < length {
            assert_ne!(self.receive(), 0, "the connection ended in a body");
        }
        response.body = self.unread.drain(..length).collect();
        response
    }

    pub(crate) fn response_without_body(&mut self) -> ClientResponse {
        let end = loop {
            if let Some(end) = self.unread.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                break end;
            }
            assert_ne!(self.receive(), 0, "the connection ended before a response");
        };
        let head: Vec<u8> = self.unread.drain(..end + 4).collect();
        let head = String::from_utf8(head).unwrap();
        let mut lines = head.trim_end().lines();
        let line = lines.next().unwrap().to_owned();
        let fields = lines
            .map(|line| line.split_once(": ").unwrap())
            .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
            .collect();
        ClientResponse { line, fields, body: Vec::new() }
    }

    /// Expects the server to close cleanly: no more bytes, and no reset.
    pub(crate) fn expect_end(&mut self) {
        assert_eq!(self.receive(), 0);
        assert_eq!(self.unread, b"");
    }

    fn receive(&mut self) -> usize {
        let mut buffer = vec![0; 64 << 10];
        let n = self.stream.read(&mut buffer).unwrap();
        self.unread.extend_from_slice(&buffer[..n]);
        n
    }
}
