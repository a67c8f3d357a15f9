//! From hyper's request, whose body is still on the wire, to the handler's answer.

use std::error::Error as _;
use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use http_body_util::Full;
use hyper::Version;
use hyper::body::{Body, Bytes, Incoming};
use hyper::header::{CONNECTION, HOST, HeaderValue};
use hyper::http::request::Parts;

use super::handler::{Event, Handler, Request, Response, text};
use super::refusal::Refusal;
use super::wire::{Phase, Wire};

/// What hyper calls for each request of one connection.
pub(super) struct Service<H> {
    pub(super) handler: Rc<H>,
    pub(super) wire: Rc<Wire>,
}

impl<H: Handler> hyper::service::Service<hyper::Request<Incoming>> for Service<H> {
    type Response = hyper::Response<Full<Bytes>>;
    type Error = Abandoned;
    type Future = Answer<H>;

    fn call(&self, request: hyper::Request<Incoming>) -> Answer<H> {
        let started = Instant::now();
        let (head, incoming) = request.into_parts();
        if !names_its_host(&head) {
            self.wire.enter(Phase::Answer);
            return Answer::Ready(Some(self.refuse(Refusal::Malformed)));
        }
        if incoming.is_end_stream() {
            self.wire.enter(Phase::Answer);
            let response = self.answer(head, Bytes::new(), started);
            return Answer::Ready(Some(response));
        }
        let limit = self.wire.registry().limits.body_bytes;
        if incoming.size_hint().lower() > limit as u64 {
            self.wire.enter(Phase::Answer);
            return Answer::Ready(Some(self.refuse(Refusal::BodyTooLarge)));
        }
        self.wire.enter(Phase::Body);
        let keeps = self.handler.keeps_body(&head.method, head.uri.path());
        Answer::Collecting(Box::new(Collecting {
            service: Service { handler: self.handler.clone(), wire: self.wire.clone() },
            head: Some(head),
            incoming,
            body: if keeps { Collected::Nothing } else { Collected::Dropped(0) },
            started,
        }))
    }
}

impl<H: Handler> Service<H> {
    fn answer(&self, head: Parts, body: Bytes, started: Instant) -> Response {
        let request = Request::new(head, body, started);
        let handled = catch_unwind(AssertUnwindSafe(|| self.handler.handle(&request)));
        let Ok(mut response) = handled else {
            return self.refuse(Refusal::Panicked);
        };
        self.handler.event(Event::Answered { status: response.status(), started });
        if self.wire.registry().draining() {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    fn refuse(&self, refusal: Refusal) -> Response {
        self.handler.event(Event::Refused(refusal));
        self.wire.set_refused();
        let mut response = text(refusal.status(), refusal.text(&self.wire.registry().limits));
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        response
    }
}

/// The future of one answer. Only a request with a body has to wait, and is boxed.
pub(super) enum Answer<H> {
    Ready(Option<Response>),
    Collecting(Box<Collecting<H>>),
}

impl<H: Handler> Future for Answer<H> {
    type Output = Result<hyper::Response<Full<Bytes>>, Abandoned>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let response = match self.get_mut() {
            Answer::Ready(response) => response.take().ok_or(Abandoned),
            Answer::Collecting(collecting) => ready!(collecting.poll_answer(cx)),
        };
        Poll::Ready(response.map(|response| response.map(Full::new)))
    }
}

/// A request whose body is arriving.
pub(super) struct Collecting<H> {
    service: Service<H>,
    /// Taken when the body is complete.
    head: Option<Parts>,
    incoming: Incoming,
    body: Collected,
    started: Instant,
}

impl<H: Handler> Collecting<H> {
    fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<Result<Response, Abandoned>> {
        let refusal = loop {
            match ready!(Pin::new(&mut self.incoming).poll_frame(cx)) {
                Some(Ok(frame)) => {
                    // Trailers are dropped: no handler has a use for them.
                    let Ok(data) = frame.into_data() else {
                        continue;
                    };
                    let limit = self.service.wire.registry().limits.body_bytes;
                    if self.body.len() + data.len() > limit {
                        break Refusal::BodyTooLarge;
                    }
                    self.body.push(data);
                }
                Some(Err(error)) if is_malformed(&error) => break Refusal::Malformed,
                Some(Err(_)) => return Poll::Ready(Err(Abandoned)),
                None => {
                    let Some(head) = self.head.take() else {
                        return Poll::Ready(Err(Abandoned));
                    };
                    let body = std::mem::take(&mut self.body).into_bytes();
                    self.service.wire.enter(Phase::Answer);
                    return Poll::Ready(Ok(self.service.answer(head, body, self.started)));
                }
            }
        };
        self.service.wire.enter(Phase::Answer);
        Poll::Ready(Ok(self.service.refuse(refusal)))
    }
}

/// The parts of a body. One that came in one piece is not copied, and memory grows with what has
/// come, never with what was announced.
#[derive(Default)]
enum Collected {
    #[default]
    Nothing,
    /// Nobody wants it: its bytes are counted alone.
    Dropped(usize),
    One(Bytes),
    Many(Vec<u8>),
}

impl Collected {
    fn len(&self) -> usize {
        match self {
            Collected::Nothing => 0,
            Collected::Dropped(bytes) => *bytes,
            Collected::One(bytes) => bytes.len(),
            Collected::Many(bytes) => bytes.len(),
        }
    }

    fn push(&mut self, data: Bytes) {
        match self {
            Collected::Nothing => *self = Collected::One(data),
            Collected::Dropped(bytes) => *bytes += data.len(),
            Collected::One(first) => *self = Collected::Many([&first[..], &data[..]].concat()),
            Collected::Many(bytes) => bytes.extend_from_slice(&data),
        }
    }

    fn into_bytes(self) -> Bytes {
        match self {
            Collected::Nothing | Collected::Dropped(_) => Bytes::new(),
            Collected::One(bytes) => bytes,
            Collected::Many(bytes) => bytes.into(),
        }
    }
}

/// The client left before its request was complete.
#[derive(Debug)]
pub(super) struct Abandoned;

impl std::fmt::Display for Abandoned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the client left before its request was complete")
    }
}

impl std::error::Error for Abandoned {}

/// RFC 9112, 3.2: a server answers 400 to an HTTP/1.1 request without a host, or with several.
fn names_its_host(head: &Parts) -> bool {
    if head.version != Version::HTTP_11 {
        return true;
    }
    let mut hosts = head.headers.get_all(HOST).iter();
    hosts.next().is_some() && hosts.next().is_none()
}

/// Whether a body failed because of what it says rather than because it ended early.
fn is_malformed(error: &hyper::Error) -> bool {
    let source = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    source.is_some_and(|source| {
        matches!(source.kind(), io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput)
    })
}
