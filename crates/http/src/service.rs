//! Handles each request that hyper parsed: validates its head, collects its body, calls the
//! handler, and returns the response, in steps if it takes long.

use std::error::Error as _;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use hyper::body::{Body, Bytes, Incoming};
use hyper::header::{CONNECTION, HOST, HeaderValue, RETRY_AFTER, TRANSFER_ENCODING};
use hyper::http::request::Parts;
use hyper::{StatusCode, Version};

use super::body::Pieces;
use super::budget::Share;
use super::handler::{Event, Handler, Reply, Request, Response, Steps, text};
use super::host::is_host;
use super::refusal::Refusal;
use super::wire::{Phase, Wire};
use quipu_process::memory;

/// The service that hyper calls for each request of one connection.
pub(super) struct Service<H> {
    pub(super) handler: Rc<H>,
    pub(super) wire: Rc<Wire>,
}

impl<H: Handler> hyper::service::Service<hyper::Request<Incoming>> for Service<H> {
    type Response = hyper::Response<Pieces>;
    type Error = IncompleteRequest;
    type Future = ResponseFuture<H>;

    fn call(&self, request: hyper::Request<Incoming>) -> ResponseFuture<H> {
        let started = Instant::now();
        let (head, incoming) = request.into_parts();
        if !names_its_host(&head) {
            return self.refusal(Refusal::Malformed);
        }
        if let Err(denial) = self.wire.connections().access.check(&head, self.wire.reach()) {
            self.wire.enter(Phase::Response);
            let (refusal, name) = (denial.refusal(), denial.name());
            self.handler.denied(refusal, &name);
            return self.now(self.refuse_with(refusal, denial.text()));
        }
        if self.wire.is_over_limit.get() && !self.handler.is_vital(&head.method, head.uri.path()) {
            return self.refusal(Refusal::Busy);
        }
        if incoming.is_end_stream() {
            let request = Request::new(head, Bytes::new(), started, self.wire.client());
            if !self.wire.takes_turn(started) {
                self.wire.enter(Phase::Waiting);
                return self.later(Stage::Queued(Some(request)));
            }
            return match self.handle(&request) {
                Ok(response) => self.now(response),
                Err(steps) => {
                    self.wire.enter(Phase::Waiting);
                    self.later(Stage::Steps(steps, started))
                }
            };
        }
        if let Err(refusal) = check_codings(&head) {
            return self.refusal(refusal);
        }
        let connections = self.wire.connections();
        let keeps = self.handler.keeps_body(&head.method, head.uri.path());
        let (limit, too_large) = match keeps {
            true => (connections.limits.kept_body_bytes, Refusal::KeptBodyTooLarge),
            false => (connections.limits.body_bytes, Refusal::BodyTooLarge),
        };
        if incoming.size_hint().lower() > limit as u64 {
            return self.refusal(too_large);
        }
        let collecting = BodyCollector {
            head: Some(head),
            incoming,
            body: if keeps { BodyBuffer::Nothing } else { BodyBuffer::Dropped(0) },
            limit,
            too_large,
            client: self.wire.client(),
            share: Share::new(&connections.kept, self.wire.client()),
            has_trailers: false,
            started,
        };
        self.wire.enter(Phase::Body);
        self.later(Stage::BodyCollector(collecting))
    }
}

impl<H: Handler> Service<H> {
    /// Calls the handler. Returns its response or its steps.
    fn handle(&self, request: &Request) -> Result<Response, Box<dyn Steps>> {
        self.wire.enter(Phase::Response);
        match catch_unwind(AssertUnwindSafe(|| self.handler.handle(request))) {
            Ok(Reply::Now(response)) => Ok(self.finish(response, request.started())),
            Ok(Reply::Steps(steps)) => Err(steps),
            Err(_) => Ok(self.refuse(Refusal::Panicked)),
        }
    }

    /// Runs one step. Returns the response if it was the last step.
    fn step(&self, steps: &mut Box<dyn Steps>, started: Instant) -> Option<Response> {
        let response = match catch_unwind(AssertUnwindSafe(|| steps.step())) {
            Ok(response) => self.finish(response?, started),
            Err(_) => self.refuse(Refusal::Panicked),
        };
        self.wire.enter(Phase::Response);
        Some(response)
    }

    fn finish(&self, mut response: Response, started: Instant) -> Response {
        if !self.wire.hold_sending(response.body().len()) {
            return self.refuse(Refusal::Unread);
        }
        self.handler.event(Event::Answered { status: response.status(), started });
        let wire = &self.wire;
        if wire.connections().draining() || wire.is_over_limit.get() || wire.ends.get() {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    fn refuse(&self, refusal: Refusal) -> Response {
        self.refuse_with(refusal, refusal.text(&self.wire.connections().limits))
    }

    fn refuse_with(&self, refusal: Refusal, body: String) -> Response {
        self.handler.event(Event::Refused(refusal));
        self.wire.set_refused();
        let mut response = text(refusal.status(), body);
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        if refusal.status() == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }

    fn refusal(&self, refusal: Refusal) -> ResponseFuture<H> {
        self.wire.enter(Phase::Response);
        self.now(self.refuse(refusal))
    }

    fn now(&self, response: Response) -> ResponseFuture<H> {
        ResponseFuture::Ready(Some(self.in_pieces(response)))
    }

    fn in_pieces(&self, response: Response) -> hyper::Response<Pieces> {
        response.map(|body| Pieces::new(body, &self.wire))
    }

    fn later(&self, stage: Stage) -> ResponseFuture<H> {
        let service = Service { handler: self.handler.clone(), wire: self.wire.clone() };
        ResponseFuture::Later(Box::new(Later { service, stage, share: None }))
    }
}

/// The future of one response. It is boxed only if the request must wait.
pub(super) enum ResponseFuture<H> {
    Ready(Option<hyper::Response<Pieces>>),
    Later(Box<Later<H>>),
}

impl<H: Handler> Future for ResponseFuture<H> {
    type Output = Result<hyper::Response<Pieces>, IncompleteRequest>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            ResponseFuture::Ready(response) => {
                Poll::Ready(response.take().ok_or(IncompleteRequest))
            }
            ResponseFuture::Later(later) => {
                later.poll_response(cx).map_ok(|response| later.service.in_pieces(response))
            }
        }
    }
}

/// A request that waits for its body, for its connection's turn, or for its response.
pub(super) struct Later<H> {
    service: Service<H>,
    stage: Stage,
    /// The memory of its body, reserved until the response is complete.
    share: Option<Share>,
}

enum Stage {
    BodyCollector(BodyCollector),
    /// A complete request; `None` once its turn begins.
    Queued(Option<Request>),
    Steps(Box<dyn Steps>, Instant),
}

impl<H: Handler> Later<H> {
    fn poll_response(&mut self, cx: &mut Context<'_>) -> Poll<Result<Response, IncompleteRequest>> {
        let service = &self.service;
        loop {
            self.stage = match &mut self.stage {
                Stage::BodyCollector(collecting) => match ready!(collecting.poll_request(cx)) {
                    Ok(request) => {
                        service.wire.ends.set(collecting.has_trailers);
                        self.share = Some(collecting.share.hand_over());
                        service.wire.enter(Phase::Waiting);
                        Stage::Queued(Some(request))
                    }
                    Err(Some(refusal)) => {
                        service.wire.enter(Phase::Response);
                        return Poll::Ready(Ok(service.refuse(refusal)));
                    }
                    Err(None) => return Poll::Ready(Err(IncompleteRequest)),
                },
                _ if !service.wire.takes_turn(Instant::now()) => {
                    service.wire.wait_for_turn();
                    return Poll::Pending;
                }
                Stage::Queued(request) => {
                    let Some(request) = request.take() else {
                        return Poll::Ready(Err(IncompleteRequest));
                    };
                    match service.handle(&request) {
                        Ok(response) => return Poll::Ready(Ok(response)),
                        Err(steps) => {
                            service.wire.enter(Phase::Waiting);
                            Stage::Steps(steps, request.started())
                        }
                    }
                }
                Stage::Steps(steps, started) => {
                    ready!(steps.poll_ready(cx));
                    match service.step(steps, *started) {
                        Some(response) => return Poll::Ready(Ok(response)),
                        None if !service.wire.hold_computing(steps.held()) => {
                            service.wire.enter(Phase::Response);
                            service.wire.hold_computing(0);
                            return Poll::Ready(Ok(service.refuse(Refusal::Unread)));
                        }
                        None if steps.is_waiting() => {
                            service.wire.wait_for_turn();
                            return Poll::Pending;
                        }
                        None => continue,
                    }
                }
            }
        }
    }
}

/// Collects the body of a request.
struct BodyCollector {
    /// `None` once the body is complete.
    head: Option<Parts>,
    incoming: Incoming,
    body: BodyBuffer,
    /// The maximum size of the body in bytes.
    limit: usize,
    /// The refusal for a larger body.
    too_large: Refusal,
    share: Share,
    /// Whether the body included trailers.
    has_trailers: bool,
    client: Option<IpAddr>,
    started: Instant,
}

impl BodyCollector {
    /// Returns the request with its whole body, if the body fits. An error without a refusal means
    /// that the client disconnected.
    fn poll_request(&mut self, cx: &mut Context<'_>) -> Poll<Result<Request, Option<Refusal>>> {
        Poll::Ready(loop {
            match ready!(Pin::new(&mut self.incoming).poll_frame(cx)) {
                Some(Ok(frame)) => {
                    // Trailers are dropped, because no handler uses them. Hyper expects CR LF at
                    // the end of a line, but accepts LF later on. Because of this, it can take the
                    // next request for a part of the trailers. So the connection ends with this
                    // response, and the client sends its next request again.
                    let Ok(data) = frame.into_data() else {
                        self.has_trailers = true;
                        continue;
                    };
                    if self.body.len() + data.len() > self.limit {
                        break Err(Some(self.too_large));
                    }
                    if !self.body.is_dropped() {
                        let bytes = self.share.bytes() + data.len();
                        if self.share.resize(bytes).is_err() {
                            break Err(Some(Refusal::NoRoom));
                        }
                    }
                    if !self.body.push(data) {
                        break Err(Some(Refusal::NoRoom));
                    }
                }
                Some(Err(error)) if is_malformed(&error) => break Err(Some(Refusal::Malformed)),
                Some(Err(_)) => break Err(None),
                None => {
                    let body = std::mem::take(&mut self.body).into_bytes();
                    let head = self.head.take().ok_or(None);
                    break head.map(|head| Request::new(head, body, self.started, self.client));
                }
            }
        })
    }
}

/// The received parts of a body. A single part is not copied. The memory grows with the received
/// bytes, and never with the announced length.
#[derive(Default)]
enum BodyBuffer {
    #[default]
    Nothing,
    /// A body that the handler does not need: only its bytes are counted.
    Dropped(usize),
    One(Bytes),
    Many(Vec<u8>),
}

impl BodyBuffer {
    fn len(&self) -> usize {
        match self {
            BodyBuffer::Nothing => 0,
            BodyBuffer::Dropped(bytes) => *bytes,
            BodyBuffer::One(bytes) => bytes.len(),
            BodyBuffer::Many(bytes) => bytes.len(),
        }
    }

    fn is_dropped(&self) -> bool {
        matches!(self, BodyBuffer::Dropped(_))
    }

    /// Appends bytes. Returns false if there is not enough memory.
    fn push(&mut self, data: Bytes) -> bool {
        match self {
            BodyBuffer::Nothing => *self = BodyBuffer::One(data),
            BodyBuffer::Dropped(bytes) => *bytes += data.len(),
            BodyBuffer::One(first) => *self = BodyBuffer::Many([&first[..], &data[..]].concat()),
            BodyBuffer::Many(bytes) => {
                if !memory::reserve(bytes, data.len()) {
                    return false;
                }
                bytes.extend_from_slice(&data);
            }
        }
        true
    }

    fn into_bytes(self) -> Bytes {
        match self {
            BodyBuffer::Nothing | BodyBuffer::Dropped(_) => Bytes::new(),
            BodyBuffer::One(bytes) => bytes,
            BodyBuffer::Many(bytes) => bytes.into(),
        }
    }
}

/// The error of a client that disconnected before its request was complete.
#[derive(Debug)]
pub(super) struct IncompleteRequest;

impl std::fmt::Display for IncompleteRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the client left before its request was complete")
    }
}

impl std::error::Error for IncompleteRequest {}

/// Checks RFC 9112, 3.2: an HTTP/1.1 request contains a `Host`; any request contains at most one,
/// and it must be valid.
fn names_its_host(head: &Parts) -> bool {
    let mut hosts = head.headers.get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (None, _) => head.version != Version::HTTP_11,
        (Some(host), None) => is_host(host.as_bytes()),
        (Some(_), Some(_)) => false,
    }
}

/// Checks RFC 9112, 6.1: a body in an unknown transfer coding gets 501, and `chunked` must not be
/// applied twice. Hyper already checked that it is the last coding.
fn check_codings(head: &Parts) -> Result<(), Refusal> {
    let fields = head.headers.get_all(TRANSFER_ENCODING).iter();
    let codings = fields.flat_map(|field| field.as_bytes().split(|&byte| byte == b','));
    let codings = codings.map(<[u8]>::trim_ascii).filter(|coding| !coding.is_empty());
    let mut chunked = 0;
    for coding in codings {
        if !coding.eq_ignore_ascii_case(b"chunked") {
            return Err(Refusal::Coding);
        }
        chunked += 1;
    }
    if chunked > 1 { Err(Refusal::Malformed) } else { Ok(()) }
}

/// Returns whether a body is malformed. Otherwise it ended too early.
fn is_malformed(error: &hyper::Error) -> bool {
    let source = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    source.is_some_and(|source| {
        matches!(source.kind(), io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput)
    })
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::{SocketAddr, TcpStream};
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::sync::{Arc, Mutex};
    use std::task::Waker;
    use std::thread;
    use std::time::Duration;

    use hyper::Method;
    use tokio::sync::oneshot;

    use super::*;
    use crate::{Limits, Options, Server};

    /// A handler that counts its requests, steps and events.
    #[derive(Clone, Default)]
    struct CountingHandler {
        held: Arc<AtomicUsize>,
        ended: Arc<AtomicUsize>,
        steps: Arc<AtomicUsize>,
        /// Whether steps wait to be woken.
        is_asleep: bool,
        waker: Arc<Mutex<Option<Waker>>>,
    }

    /// Steps that end once another request ended.
    impl Steps for CountingHandler {
        fn step(&mut self) -> Option<Response> {
            self.steps.fetch_add(1, SeqCst);
            (self.ended.load(SeqCst) > 0).then(|| text(StatusCode::OK, "held"))
        }

        fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
            let mut waker = self.waker.lock().unwrap();
            if !self.is_asleep || self.ended.load(SeqCst) > 0 {
                return Poll::Ready(());
            }
            *waker = Some(cx.waker().clone());
            Poll::Pending
        }
    }

    impl Handler for CountingHandler {
        fn handle(&self, request: &Request) -> Reply {
            if request.path() == "/held" {
                self.held.fetch_add(1, SeqCst);
                return Reply::Steps(Box::new(self.clone()));
            }
            text(StatusCode::OK, "").into()
        }

        fn keeps_body(&self, _: &Method, _: &str) -> bool {
            true
        }

        fn event(&self, event: Event) {
            if matches!(event, Event::Answered { .. } | Event::Refused(_)) {
                let mut waker = self.waker.lock().unwrap();
                self.ended.fetch_add(1, SeqCst);
                waker.take().into_iter().for_each(Waker::wake);
            }
        }
    }

    fn post(address: SocketAddr, path: &str) -> TcpStream {
        let mut stream = TcpStream::connect(address).unwrap();
        let head = format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n");
        stream.write_all(&[head.as_bytes(), &[b'x'; 1000]].concat()).unwrap();
        stream
    }

    fn status(stream: TcpStream) -> String {
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        line["HTTP/1.1 ".len()..][..3].to_owned()
    }

    /// Serves while the client runs.
    fn serve(seen: &CountingHandler, limits: Limits, client: impl FnOnce(SocketAddr)) {
        let options = Options { limits, ..Options::default() };
        let server = Server::bind(&["127.0.0.1:0"], &options).unwrap();
        let address = server.local_addresses()[0];
        let (stop, stopped) = oneshot::channel::<()>();
        let made = seen.clone();
        let make = move |_| made.clone();
        let thread =
            thread::spawn(move || server.serve(make, || (), async { drop(stopped.await) }));
        client(address);
        drop(stop);
        thread.join().unwrap().unwrap();
    }

    fn wait_until(is_so: impl Fn() -> bool) {
        while !is_so() {
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_body_counts_until_its_steps_end() {
        let seen = CountingHandler::default();
        serve(&seen, Limits { kept_bytes: 1500, ..Limits::default() }, |address| {
            let held = post(address, "/held");
            wait_until(|| seen.held.load(SeqCst) > 0);
            assert_eq!(status(post(address, "/")), "503");
            assert_eq!(status(held), "200");
            assert_eq!(status(post(address, "/")), "200");
        });
    }

    #[test]
    fn steps_that_wait_are_not_taken_until_they_are_woken() {
        let seen = CountingHandler { is_asleep: true, ..CountingHandler::default() };
        serve(&seen, Limits::default(), |address| {
            let held = post(address, "/held");
            wait_until(|| seen.waker.lock().unwrap().is_some());
            assert_eq!(seen.steps.load(SeqCst), 0);
            assert_eq!(status(post(address, "/")), "200");
            assert_eq!(status(held), "200");
            assert_eq!(seen.steps.load(SeqCst), 1);
        });
    }
}
