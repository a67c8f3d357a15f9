//! One connection from accept to close: polls hyper, sends what it wrote, keeps the deadlines.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use hyper::server::conn::http1;

use super::handler::{Closed, Event, Handler};
use super::limits::Place;
use super::refusal::Refusal;
use super::service::Service;
use super::wire::{Overdue, Phase, Plug, Wire};

/// The future of one connection. It is polled once before it becomes a task, see `worker`.
pub(super) struct Connection<H: Handler> {
    /// Absent once only the last bytes are left to send.
    http: Option<http1::Connection<Plug, Service<H>>>,
    wire: Rc<Wire>,
    handler: Rc<H>,
    closed: Closed,
    linger: bool,
    _place: Place,
}

impl<H: Handler> Connection<H> {
    pub(super) fn new(
        http: &http1::Builder,
        handler: &Rc<H>,
        wire: Rc<Wire>,
        place: Place,
    ) -> Connection<H> {
        let service = Service { handler: handler.clone(), wire: wire.clone() };
        Connection {
            http: Some(http.serve_connection(Plug(wire.clone()), service)),
            wire,
            handler: handler.clone(),
            closed: Closed::Shutdown,
            linger: false,
            _place: place,
        }
    }

    pub(super) fn wire(&self) -> &Rc<Wire> {
        &self.wire
    }

    /// Hyper waits: sends what it wrote and looks for a reason to end.
    fn poll_between(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let sent = match self.wire.poll_uncork(cx) {
            Poll::Ready(Err(_)) => return self.end(Closed::Broken),
            other => other.is_ready(),
        };
        if sent && self.wire.registry().draining() && self.wire.phase() == Phase::Idle {
            return self.end(Closed::Shutdown);
        }
        match self.wire.overdue() {
            None => Poll::Pending,
            Some(Overdue::Idle) => self.end(Closed::Idle),
            Some(Overdue::Request) => self.refuse(Refusal::Timeout),
            Some(Overdue::Answer) => {
                self.wire.give_up();
                self.end(Closed::Stalled)
            }
        }
    }

    /// Hyper is done: finds out why, and whether the client may still be sending.
    fn after_http(&mut self, result: Result<(), hyper::Error>) -> Poll<()> {
        let unread = self.http.take().map(|http| http.into_parts().read_buf).unwrap_or_default();
        match result {
            Err(error) if error.is_parse_too_large() => {
                let line = unread.iter().position(|&byte| byte == b'\n').unwrap_or(usize::MAX);
                let longest = self.wire.registry().limits.header_bytes.min(MAX_TARGET_BYTES);
                self.refuse(if unread.is_empty() {
                    // The head was fine, but announced a body of more bytes than can be counted.
                    Refusal::BodyTooLarge
                } else if line > longest {
                    Refusal::TargetTooLong
                } else {
                    Refusal::HeadTooLarge
                })
            }
            Err(error) if error.is_parse() => self.refuse(Refusal::Malformed),
            Err(_) => self.end(Closed::Broken),
            Ok(()) if self.wire.refused() => {
                self.linger = true;
                self.end(Closed::Refused)
            }
            Ok(()) => {
                self.linger = !unread.is_empty() || self.wire.may_have_unread();
                self.end(Closed::Finished)
            }
        }
    }

    /// Ends with an answer of our own.
    fn refuse(&mut self, refusal: Refusal) -> Poll<()> {
        self.handler.event(Event::Refused(refusal));
        self.wire.append(&refusal.answer(&self.wire.registry().limits));
        self.linger = true;
        self.end(Closed::Refused)
    }

    fn end(&mut self, closed: Closed) -> Poll<()> {
        self.http = None;
        self.closed = closed;
        Poll::Ready(())
    }
}

impl<H: Handler> Future for Connection<H> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        this.wire.watch(cx.waker());
        if let Some(http) = &mut this.http {
            ready!(match http.poll_without_shutdown(cx) {
                Poll::Pending => this.poll_between(cx),
                Poll::Ready(result) => this.after_http(result),
            });
        }
        match this.wire.poll_uncork(cx) {
            Poll::Ready(Ok(())) => {
                if this.linger {
                    this.wire.registry().linger(this.wire.clone());
                }
            }
            Poll::Ready(Err(_)) => this.closed = Closed::Broken,
            Poll::Pending if this.wire.overdue().is_some() => this.closed = Closed::Stalled,
            Poll::Pending => return Poll::Pending,
        }
        Poll::Ready(())
    }
}

impl<H: Handler> Drop for Connection<H> {
    fn drop(&mut self) {
        self.wire.registry().remove(&self.wire);
        self.handler.event(Event::Closed(self.closed));
    }
}

/// The longest request target that hyper takes.
const MAX_TARGET_BYTES: usize = u16::MAX as usize - 1;
