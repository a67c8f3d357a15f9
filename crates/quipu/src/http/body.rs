//! The body of a response: a scrape, encoded piece by piece as the connection accepts it.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http_body::Frame;

use crate::exposition::{Compression, Compressor};
use crate::scrape::Scrape;

/// A scrape as an HTTP body. This body encodes a piece only when the connection is ready to send
/// it, so a slow reader costs the memory of one piece. A fast reader does not starve other tasks,
/// because the body yields after each piece.
///
/// ```
/// use http_body::Body as _;
///
/// let registry = quipu::Registry::new();
/// let (method, headers) = (http::Method::GET, http::HeaderMap::new());
/// let response = quipu::http::respond(&registry, &method, &headers);
/// assert_eq!(response.status(), 200);
/// let body: quipu::http::Body = response.into_body();
/// assert!(!body.is_end_stream());
/// ```
pub struct Body {
    scrape: Option<Scrape>,
    compressor: Option<Compressor>,
    /// The buffer of pieces; the memory of sent pieces is reused.
    memory: BytesMut,
    compressed: Vec<u8>,
    /// Whether a piece was encoded since the last yield.
    tired: bool,
}

impl Body {
    pub(super) fn new(scrape: Scrape, compression: Compression) -> Self {
        let compressor = Compressor::new(compression);
        Self { scrape: Some(scrape), compressor, ..Self::empty() }
    }

    pub(super) fn empty() -> Self {
        let (memory, compressed) = (BytesMut::new(), Vec::new());
        Self { scrape: None, compressor: None, memory, compressed, tired: false }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = &mut *self;
        loop {
            let Some(scrape) = &mut this.scrape else { return Poll::Ready(None) };
            if std::mem::take(&mut this.tired) {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            this.tired = true;
            let piece = scrape.next_piece();
            let is_last = piece.is_none();
            match &mut this.compressor {
                None => this.memory.extend_from_slice(piece.unwrap_or_default()),
                Some(compressor) => {
                    this.compressed.clear();
                    match piece {
                        Some(piece) => compressor.write(piece, &mut this.compressed),
                        None => compressor.finish(&mut this.compressed),
                    }
                    this.memory.extend_from_slice(&this.compressed);
                }
            }
            if is_last {
                this.scrape = None;
            }
            // A compressor may buffer a whole piece.
            if !this.memory.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(this.memory.split().freeze()))));
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.scrape.is_none()
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Body").field("scrape", &self.scrape).finish_non_exhaustive()
    }
}
