//! The interface between the transport and the daemon. The daemon implements [`Handler`], which
//! handles requests and receives events.

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

/// Handles requests. Each server thread creates a separate handler, and only this thread calls it.
pub trait Handler: 'static {
    /// Handles one request. A panic becomes a 500 and closes the connection. The thread is blocked
    /// during this call, so if a response takes longer than about 100 us, you must compute it in
    /// [`Steps`].
    fn handle(&self, request: &Request) -> Reply;

    /// Returns whether to handle a request even if the maximum number of connections is open. For
    /// example, a health check is vital.
    fn is_vital(&self, _method: &Method, _path: &str) -> bool {
        false
    }

    /// Returns whether to keep a request's body for [`Handler::handle`], up to
    /// [`Limits::kept_body_bytes`](super::Limits::kept_body_bytes). If not, the body is read up to
    /// [`Limits::body_bytes`](super::Limits::body_bytes) and dropped, so no client can make the
    /// server hold it.
    fn keeps_body(&self, _method: &Method, _path: &str) -> bool {
        false
    }

    /// Receives the refused host or origin of a request, or the address of an HTTP/2 client, for
    /// Receives the refused host or origin of a request, or the address of an HTTP/2 client, to be
    /// logged. [`Handler::event`] is called next.
    fn denied(&self, _refusal: Refusal, _name: &str) {}

    /// Receives the events of the transport, for metrics. Your implementation must be as cheap as
    /// an increment and must not panic, because it is called for every request.
    fn event(&self, _event: Event) {}
}

/// The result of a handler.
pub enum Reply {
    /// The response.
    Now(Response),
    /// A response that takes longer to compute.
    Steps(Box<dyn Steps>),
}

/// A response that you compute in steps. Other connections get their turns in between.
pub trait Steps {
    /// Computes for about 100 us at most, and returns the response after the last step. A panic is
    /// treated as in [`Handler::handle`].
    fn step(&mut self) -> Option<Response>;

    /// Returns ready if the next step can make progress. If not, the task is woken when this may
    /// change, and the thread serves others until then.
    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }

    /// Returns the memory of the response so far, in bytes. If all responses together take too
    /// much, the transport ends this one with a 503.
    fn held(&self) -> usize {
        0
    }

    /// Returns whether the last step only waited for another request. The next step then runs in
    /// another turn.
    fn is_waiting(&self) -> bool {
        false
    }
}

impl Reply {
    /// Returns the response of the first step, or the remaining steps.
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

/// A request including its complete body.
#[derive(Debug)]
pub struct Request {
    head: Parts,
    body: Bytes,
    started: Instant,
    client: Option<IpAddr>,
}

impl Request {
    /// Creates a request with this head and body. It arrived from `client` at `started`.
    pub fn new(head: Parts, body: Bytes, started: Instant, client: Option<IpAddr>) -> Request {
        Request { head, body, started, client }
    }

    /// Returns the method.
    pub fn method(&self) -> &Method {
        &self.head.method
    }

    /// Returns the request target.
    pub fn uri(&self) -> &Uri {
        &self.head.uri
    }

    /// Returns the path of the target, `*` for the asterisk form.
    pub fn path(&self) -> &str {
        self.head.uri.path()
    }

    /// Returns the query of the target, without its question mark.
    pub fn query(&self) -> Option<&str> {
        self.head.uri.query()
    }

    /// Returns the header fields.
    pub fn headers(&self) -> &HeaderMap {
        &self.head.headers
    }

    /// Returns the body; empty unless the handler [keeps](Handler::keeps_body) it.
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// Returns the client: its IPv4 address, or the first 64 bits of its IPv6 address.
    pub fn client(&self) -> Option<IpAddr> {
        self.client
    }

    /// Returns the time when the head was parsed.
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
    /// The transport responded by itself. For [`Refusal::Busy`], the connection never counted as
    /// open.
    Refused(Refusal),
    /// The system could not provide a descriptor or memory for a new connection. Accepting pauses
    /// for a moment.
    AcceptPaused,
}

/// The reason why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CloseReason {
    /// One side asked to close after the last response, or the client left between requests.
    Finished,
    /// No request arrived within the idle timeout.
    Idle,
    /// The client did not read its response within the write timeout.
    Stalled,
    /// The transport refused a request.
    Refused,
    /// The client left in the middle of a request or response.
    Broken,
    /// The server needed the connection or its memory for another client.
    GaveWay,
    /// The server stopped.
    Shutdown,
}

/// Creates a plain text response.
pub fn text(status: StatusCode, body: impl Into<Bytes>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(TEXT));
    response
}
