//! The interface between transport and daemon: the daemon handles requests, and is notified of
//! events.

use std::net::IpAddr;
use std::task::{Context, Poll};
use std::time::Instant;

use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, StatusCode, Uri};

use super::refusal::{Refusal, TEXT};

/// A response: status, header fields and the whole body. The transport adds `content-length`,
/// `date` and `connection`.
pub type Response = hyper::Response<Bytes>;

/// Handles requests. Each server thread makes its own handler and calls it from that thread only.
pub trait Handler: 'static {
    /// Handles one request. A panic becomes a 500 and closes the connection. The thread serves
    /// nothing else meanwhile: a response that takes longer than about 100 us must be computed in
    /// [`Steps`].
    fn handle(&self, request: &Request) -> Reply;

    /// Whether a request is handled even when all places for connections are taken, such as that
    /// of a health check.
    fn is_vital(&self, _method: &Method, _path: &str) -> bool {
        false
    }

    /// Whether a request's body is kept for [`Handler::handle`], up to
    /// [`Limits::kept_body_bytes`](super::Limits::kept_body_bytes). If not, it is read up to
    /// [`Limits::body_bytes`](super::Limits::body_bytes) and dropped, so no client can make the
    /// server hold it.
    fn keeps_body(&self, _method: &Method, _path: &str) -> bool {
        false
    }

    /// Receives the host or the origin of a request that is refused because of it, or the address
    /// of a client that speaks HTTP/2, for the log. The event follows.
    fn denied(&self, _refusal: Refusal, _name: &str) {}

    /// Receives the events of the transport, for metrics. It is called for every request, so it
    /// must be as cheap as an increment, and it must not panic.
    fn event(&self, _event: Event) {}
}

/// What a handler returns.
pub enum Reply {
    /// The response.
    Now(Response),
    /// A response that takes longer.
    Steps(Box<dyn Steps>),
}

/// A response that is computed in steps. Other connections get their turns in between.
pub trait Steps {
    /// Computes for about 100 us at most, and returns the response after the last step. A panic
    /// is treated as in [`Handler::handle`].
    fn step(&mut self) -> Option<Response>;

    /// Ready if the next step can do something. If not, the task is woken when that may have
    /// changed, and the thread serves others until then.
    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }

    /// The bytes that the response takes in memory so far. The transport ends it with a 503 if all
    /// responses together take too many.
    fn held(&self) -> usize {
        0
    }

    /// Whether the last step could do nothing but wait for another request. The next step is then
    /// in another turn.
    fn is_waiting(&self) -> bool {
        false
    }
}

impl Reply {
    /// The response of the first step, or the steps that follow it.
    pub fn in_steps(mut steps: impl Steps + 'static) -> Self {
        match steps.step() {
            Some(response) => Self::Now(response),
            None => Self::Steps(Box::new(steps)),
        }
    }
}

impl From<Response> for Reply {
    fn from(response: Response) -> Reply {
        Reply::Now(response)
    }
}

/// A request whose body has been read to its end.
#[derive(Debug)]
pub struct Request {
    head: Parts,
    body: Bytes,
    started: Instant,
    client: Option<IpAddr>,
}

impl Request {
    /// A request with this head and body, that came in at `started` from `client`.
    pub fn new(head: Parts, body: Bytes, started: Instant, client: Option<IpAddr>) -> Request {
        Request { head, body, started, client }
    }

    /// The method.
    pub fn method(&self) -> &Method {
        &self.head.method
    }

    /// The request target.
    pub fn uri(&self) -> &Uri {
        &self.head.uri
    }

    /// The path of the target, `*` for the asterisk form.
    pub fn path(&self) -> &str {
        self.head.uri.path()
    }

    /// The query of the target, without its question mark.
    pub fn query(&self) -> Option<&str> {
        self.head.uri.query()
    }

    /// The header fields.
    pub fn headers(&self) -> &HeaderMap {
        &self.head.headers
    }

    /// The body; empty unless the handler [keeps](Handler::keeps_body) it.
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// The client: its IPv4 address, or the first 64 bits of its IPv6 address.
    pub fn client(&self) -> Option<IpAddr> {
        self.client
    }

    /// When the head was parsed.
    pub fn started(&self) -> Instant {
        self.started
    }
}

/// An event of the transport.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// A connection was accepted and counts as open.
    Accepted,
    /// A connection ended and no longer counts as open.
    Closed(CloseReason),
    /// A handler returned a response.
    Answered {
        /// The status of the response.
        status: StatusCode,
        /// When the head of the request was parsed.
        started: Instant,
    },
    /// The transport responded by itself. With [`Refusal::Busy`] the connection never counted as
    /// open.
    Refused(Refusal),
    /// The system had no descriptor or memory for a new connection; accepting pauses for a moment.
    AcceptPaused,
}

/// The reason for which a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CloseReason {
    /// One side asked to close after the last response, or the client left between requests.
    Finished,
    /// No request within the idle timeout.
    Idle,
    /// The client did not read its response within the write timeout.
    Stalled,
    /// The transport refused a request.
    Refused,
    /// The client left in the middle of a request or response.
    Broken,
    /// All places or all memory for responses were taken, and the connection made room for another
    /// one.
    GaveWay,
    /// The server stopped.
    Shutdown,
}

/// A response with a text body.
pub fn text(status: StatusCode, body: impl Into<Bytes>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(TEXT));
    response
}
