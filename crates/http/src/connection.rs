//! One connection from accept to close: polls hyper, sends its output, and enforces the deadlines.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use hyper::server::conn::http1;

use super::handler::{CloseReason, Event, Handler};
use super::refusal::Refusal;
use super::service::Service;
use super::wire::{Overdue, Phase, Plug, Wire};

/// The future of one connection. It is polled once before it becomes a task (see `worker`).
pub(super) struct Connection<H: Handler> {
    /// Hyper's state with its buffers, which are most of a connection's memory. Absent while an
    /// idle connection rests to save this memory, and while only the last bytes remain to be sent.
    http: Option<http1::Connection<Plug, Service<H>>>,
    builder: Rc<http1::Builder>,
    wire: Rc<Wire>,
    handler: Rc<H>,
    reason: CloseReason,
    linger: bool,
}

impl<H: Handler> Connection<H> {
    pub(super) fn new(
        builder: &Rc<http1::Builder>,
        handler: &Rc<H>,
        wire: Rc<Wire>,
    ) -> Connection<H> {
        let mut connection = Connection {
            http: None,
            builder: builder.clone(),
            wire,
            handler: handler.clone(),
            reason: CloseReason::Shutdown,
            linger: false,
        };
        connection.begin();
        connection
    }

    fn begin(&mut self) {
        let service = Service { handler: self.handler.clone(), wire: self.wire.clone() };
        self.http = Some(self.builder.serve_connection(Plug(self.wire.clone()), service));
    }

    pub(super) fn wire(&self) -> &Rc<Wire> {
        &self.wire
    }

    /// Sends hyper's output, and checks for a reason to close, whenever hyper waits.
    fn poll_between(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let sent = match self.wire.poll_uncork(cx) {
            Poll::Ready(Err(_)) => return self.end(CloseReason::Broken),
            other => other.is_ready(),
        };
        if sent {
            self.wire.release_sent();
        }
        if self.wire.is_due() {
            cx.waker().wake_by_ref();
        }
        if sent && self.wire.phase() == Phase::Idle {
            if self.wire.connections().draining() {
                return self.end(CloseReason::Shutdown);
            }
            if self.wire.is_tired() {
                return self.rest(cx);
            }
        }
        match self.wire.overdue() {
            None => Poll::Pending,
            Some(Overdue::Idle) => self.end(CloseReason::Idle),
            Some(Overdue::Request) => self.refuse(Refusal::Timeout),
            Some(Overdue::Response) => {
                self.wire.give_up();
                self.end(CloseReason::Stalled)
            }
        }
    }

    /// Frees hyper's state until the client sends again. If hyper already read the beginning of a
    /// request, the connection puts these bytes back, and the deadline of the request begins.
    fn rest(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let unread = self.http.take().map(|http| http.into_parts().read_buf).unwrap_or_default();
        self.wire.shrink();
        if !unread.is_empty() {
            self.wire.put_back(&unread);
            self.begin();
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.wire.resting.set(true);
        self.wire.connections().released();
        // Poll again, because the socket must be awaited.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Waits until a resting connection ends, or gets buffers again because its client sends.
    fn poll_resting(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self.wire.poll_readable(cx) {
            Poll::Ready(Ok(())) => {
                self.wire.resting.set(false);
                self.begin();
                Poll::Ready(())
            }
            Poll::Ready(Err(_)) => self.end(CloseReason::Broken),
            Poll::Pending if self.wire.connections().draining() => self.end(CloseReason::Shutdown),
            Poll::Pending if self.wire.overdue().is_some() => self.end(CloseReason::Idle),
            Poll::Pending => Poll::Pending,
        }
    }

    /// Determines why hyper is done, and whether the client may still be sending.
    fn after_http(&mut self, result: Result<(), hyper::Error>) -> Poll<()> {
        let unread = self.http.take().map(|http| http.into_parts().read_buf).unwrap_or_default();
        match result {
            Err(error) if error.is_parse_too_large() => {
                let limits = &self.wire.connections().limits;
                match too_large(&unread, limits.header_bytes.min(MAX_TARGET_BYTES)) {
                    Refusal::BodyTooLarge => {
                        let text = format!(
                            "the Content-Length is larger than any body can be: {} bytes, or {} if \
                             it brings metrics\n",
                            limits.body_bytes, limits.kept_body_bytes
                        );
                        self.refuse_with(Refusal::BodyTooLarge, &text)
                    }
                    refusal => self.refuse(refusal),
                }
            }
            Err(error) if error.is_parse() && unread.starts_with(HTTP2_PREFACE) => {
                self.refuse_http2()
            }
            Err(error) if error.is_parse() => self.refuse(Refusal::Malformed),
            Err(_) => self.end(CloseReason::Broken),
            Ok(()) if self.wire.refused() => {
                self.linger = true;
                self.end(CloseReason::Refused)
            }
            Ok(()) => {
                self.linger = !unread.is_empty() || self.wire.may_have_unread();
                self.end(CloseReason::Finished)
            }
        }
    }

    /// Ends the connection with a response that the transport writes itself.
    fn refuse(&mut self, refusal: Refusal) -> Poll<()> {
        let text = refusal.text(&self.wire.connections().limits);
        self.refuse_with(refusal, &text)
    }

    fn refuse_with(&mut self, refusal: Refusal, text: &str) -> Poll<()> {
        self.handler.event(Event::Refused(refusal));
        self.wire.append(&refusal.response_with(text));
        self.linger = true;
        self.end(CloseReason::Refused)
    }

    /// Ends the connection of an HTTP/2 client in its own protocol.
    fn refuse_http2(&mut self) -> Poll<()> {
        let client = self.wire.client().map_or_else(String::new, |client| client.to_string());
        self.handler.denied(Refusal::Http2, &client);
        self.handler.event(Event::Refused(Refusal::Http2));
        self.wire.append(&Refusal::http2_frames());
        self.linger = true;
        self.end(CloseReason::Refused)
    }

    fn end(&mut self, reason: CloseReason) -> Poll<()> {
        self.http = None;
        self.reason = reason;
        Poll::Ready(())
    }
}

impl<H: Handler> Future for Connection<H> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        if this.wire.dismissed.get() {
            return this.end(CloseReason::GaveWay);
        }
        this.wire.watch(cx.waker());
        this.wire.begin_turn();
        if this.wire.resting.get() {
            ready!(this.poll_resting(cx));
        }
        if let Some(http) = &mut this.http {
            ready!(match http.poll_without_shutdown(cx) {
                Poll::Pending => this.poll_between(cx),
                Poll::Ready(result) => this.after_http(result),
            });
        }
        match this.wire.poll_uncork(cx) {
            Poll::Ready(Ok(())) => {
                if this.linger {
                    this.wire.connections().linger(this.wire.clone());
                }
            }
            Poll::Ready(Err(_)) => this.reason = CloseReason::Broken,
            Poll::Pending if this.wire.overdue().is_some() => this.reason = CloseReason::Stalled,
            Poll::Pending => return Poll::Pending,
        }
        Poll::Ready(())
    }
}

impl<H: Handler> Drop for Connection<H> {
    fn drop(&mut self) {
        self.wire.connections().remove(&self.wire);
        self.wire.release();
        if self.wire.is_over_limit.get() {
            self.wire.connections().remove_over_limit(&self.wire);
        } else {
            drop(self.wire.place.take());
            self.handler.event(Event::Closed(self.reason));
        }
    }
}

/// Returns the refusal for a request that is too large: its head or its body. If hyper refuses a
/// head for its size, the head is still unread; if it is complete, its request line is valid. Hyper
/// drops a head whose content length it cannot represent. Only the received part of the body is
/// then unread.
fn too_large(unread: &[u8], longest_line: usize) -> Refusal {
    if !begins_like_request(unread) {
        return Refusal::BodyTooLarge;
    }
    let line_breaks = |byte: &&u8| matches!(byte, b'\r' | b'\n');
    let unread = &unread[unread.iter().take_while(line_breaks).count()..];
    let end = unread.iter().position(|&byte| byte == b'\n');
    if end.unwrap_or(unread.len()) >= longest_line {
        return Refusal::TargetTooLong;
    }
    let line = unread[..end.unwrap_or(0)].trim_ascii_end();
    match line.ends_with(b" HTTP/1.0") || line.ends_with(b" HTTP/1.1") {
        true => Refusal::HeadTooLarge,
        false => Refusal::BodyTooLarge,
    }
}

/// Returns whether bytes begin like a head: with a method and a space, or with a part of a method.
/// Otherwise hyper has dropped the head, and the bytes belong to the body.
fn begins_like_request(unread: &[u8]) -> bool {
    let method = unread.trim_ascii_start().split(|byte| *byte == b' ').next().unwrap_or_default();
    (1..=MAX_METHOD_BYTES).contains(&method.len()) && method.iter().all(u8::is_ascii_uppercase)
}

/// The first line of an HTTP/2 connection.
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n";

/// The longest method that [`begins_like_request`] recognizes, in bytes.
const MAX_METHOD_BYTES: usize = 32;

/// The longest request target that hyper accepts.
const MAX_TARGET_BYTES: usize = u16::MAX as usize - 1;
