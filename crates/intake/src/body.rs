//! Bodies of requests as they were before compression: whole, or piece by piece.
//!
//! `Content-Encoding` names one coding: `identity`, `gzip`, `deflate`, `zstd` or `snappy` (the
//! block format, as remote write has it, or the framing format, as Pushgateway has it). What a body
//! expands to is bounded by the caller's limit before it is held, so a compression bomb costs no
//! more than a body of that size.

use std::cell::Cell;
use std::io::{self, BufRead, Cursor, ErrorKind, Read};
use std::mem::take;
use std::rc::Rc;

use hyper::StatusCode;
use hyper::body::Bytes;
use hyper::header::{ACCEPT_ENCODING, CONTENT_ENCODING, HeaderValue};
use quipu_wire::remote;

use quipu_http::{Request, Response, text};
use quipu_process::decoders::zstd_decoder;
use quipu_process::text::cut;

/// The coding in the header of a request, in lower case; empty without one.
///
/// # Errors
///
/// The response that refuses several codings.
#[expect(clippy::result_large_err, reason = "the response to send, once for each request")]
fn coding(request: &Request) -> Result<String, Response> {
    let codings = request.headers().get_all(CONTENT_ENCODING).iter();
    let codings: Vec<_> = codings.map(HeaderValue::as_bytes).collect();
    let coding = match codings[..] {
        [] => b"",
        [coding] => coding,
        _ => return Err(unsupported("several codings")),
    };
    Ok(String::from_utf8_lossy(coding.trim_ascii()).to_ascii_lowercase())
}

/// A body that is expanded piece by piece, so that a large one takes many steps, and is in memory
/// as a whole only if that is asked for.
pub struct Pieces {
    /// The body as it came, until its first piece is asked for: only then it takes more memory.
    body: Bytes,
    reader: Option<Box<dyn Read>>,
    /// How many bytes of the body the reader may take for this piece.
    ration: Rc<Cell<usize>>,
    coding: String,
    limit: usize,
    left: usize,
    /// What [`Pieces::gather`] has so far.
    gathered: Vec<u8>,
}

/// The outcome of [`Pieces::next`].
#[derive(Debug, PartialEq, Eq)]
pub enum Piece {
    /// Some bytes, at least one: how many.
    Bytes(usize),
    /// None yet: the part of the body that was read expands to nothing.
    Nothing,
    /// The end of the body.
    End,
}

impl Pieces {
    /// The body of a request.
    ///
    /// # Errors
    ///
    /// The response that refuses the request: 415 for a coding that is not supported.
    #[expect(clippy::result_large_err, reason = "the response to send, once for each request")]
    pub fn new(request: &Request, limit: usize) -> Result<Self, Response> {
        Self::of(coding(request)?, request.body(), limit)
    }

    #[expect(clippy::result_large_err, reason = "the response to send, once for each request")]
    fn of(coding: String, body: &Bytes, limit: usize) -> Result<Self, Response> {
        match coding.as_str() {
            "" | "identity" | "gzip" | "x-gzip" | "deflate" | "zstd" | "snappy" => {
                let (body, reader, ration) = (body.clone(), None, Rc::default());
                let (left, gathered) = (limit, Vec::new());
                Ok(Self { body, reader, ration, coding, limit, left, gathered })
            }
            other => Err(unknown(other)),
        }
    }

    #[expect(clippy::result_large_err, reason = "the response to send, once for each request")]
    fn open(&self, body: Bytes) -> Result<Box<dyn Read>, Response> {
        let rationed = |body| Rationed { body: Cursor::new(body), ration: Rc::clone(&self.ration) };
        Ok(match self.coding.as_str() {
            "gzip" | "x-gzip" => Box::new(flate2::bufread::MultiGzDecoder::new(rationed(body))),
            "deflate" => Box::new(flate2::bufread::ZlibDecoder::new(rationed(body))),
            "zstd" => match zstd_decoder(rationed(body)) {
                Ok(decoder) => Box::new(decoder),
                Err(error) => return Err(damaged(&self.coding, &error)),
            },
            "snappy" if body.starts_with(FRAMED) => {
                let body = Cursor::new(body);
                let chunks = Chunks { body, ration: Rc::clone(&self.ration), left: 0 };
                Box::new(snap::read::FrameDecoder::new(chunks))
            }
            "snappy" => Box::new(Cursor::new(expand_block(&body, self.limit)?)),
            _ => Box::new(Cursor::new(body)),
        })
    }

    /// The body of which nothing was read, if it is not encoded, and not larger than the limit.
    pub fn plain(&self) -> Option<&[u8]> {
        let is_plain = matches!(self.coding.as_str(), "" | "identity");
        (is_plain && self.reader.is_none() && self.body.len() <= self.limit).then_some(&self.body)
    }

    /// Fills the buffer with the next bytes of the body. Reads a bounded part of the body for it,
    /// whatever the body expands to.
    ///
    /// # Errors
    ///
    /// The response that refuses the request: 413 for a body that expands to more than the limit,
    /// 400 for one that its coding does not allow. What came before remains valid.
    #[expect(clippy::result_large_err, reason = "the response to send, once for each request")]
    pub fn next(&mut self, buffer: &mut [u8]) -> Result<Piece, Response> {
        self.ration.set(RATION);
        let mut reader = match self.reader.take() {
            Some(reader) => reader,
            None => {
                let body = take(&mut self.body);
                self.open(body)?
            }
        };
        let read = reader.read(buffer);
        self.reader = Some(reader);
        match read {
            Ok(0) => Ok(Piece::End),
            Ok(len) => {
                self.left = self.left.checked_sub(len).ok_or_else(|| too_large(self.limit))?;
                Ok(Piece::Bytes(len))
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(Piece::Nothing),
            Err(error) => Err(damaged(&self.coding, &error)),
        }
    }

    /// Expands the next piece, and returns all bytes after the end. A body that is not compressed
    /// is shared, not copied.
    ///
    /// # Errors
    ///
    /// Those of [`Pieces::next`].
    #[expect(clippy::result_large_err, reason = "the response to send, once for each request")]
    pub(super) fn gather(&mut self) -> Result<Option<Bytes>, Response> {
        if matches!(&*self.coding, "" | "identity") {
            let Self { body, limit, .. } = self;
            let is_too_large = body.len() > *limit;
            return if is_too_large { Err(too_large(*limit)) } else { Ok(Some(take(body))) };
        }
        let mut gathered = take(&mut self.gathered);
        let len = gathered.len();
        gathered.resize(len + PIECE, 0);
        let piece = self.next(&mut gathered[len..]);
        let new = if let Ok(Piece::Bytes(new)) = piece { new } else { 0 };
        gathered.truncate(len + new);
        if piece? == Piece::End {
            return Ok(Some(gathered.into()));
        }
        self.gathered = gathered;
        Ok(None)
    }
}

/// The part of a body that is read for one piece. Without a bound, a body of many parts that expand
/// to nothing would be read in one step.
const RATION: usize = 64 << 10;

/// A body of which a decoder gets a ration at a time, and then [`ErrorKind::WouldBlock`].
struct Rationed {
    body: Cursor<Bytes>,
    ration: Rc<Cell<usize>>,
}

impl BufRead for Rationed {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        let rest = self.body.fill_buf()?;
        match self.ration.get() {
            0 if !rest.is_empty() => Err(ErrorKind::WouldBlock.into()),
            ration => Ok(&rest[..rest.len().min(ration)]),
        }
    }

    fn consume(&mut self, len: usize) {
        self.body.consume(len);
        self.ration.set(self.ration.get().saturating_sub(len));
    }
}

impl Read for Rationed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.fill_buf()?.read(buffer)?;
        self.consume(len);
        Ok(len)
    }
}

/// The chunks of Snappy's framing format, of which a decoder gets some at a time, and then
/// [`ErrorKind::WouldBlock`]. It gets a chunk whole, since its decoder does not go on in the
/// middle.
struct Chunks {
    body: Cursor<Bytes>,
    ration: Rc<Cell<usize>>,
    /// The bytes of the current chunk that are left.
    left: usize,
}

impl Read for Chunks {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let rest = self.body.fill_buf()?;
        if self.left == 0 && !rest.is_empty() {
            if self.ration.get() == 0 {
                return Err(ErrorKind::WouldBlock.into());
            }
            // A type, and a length of three bytes.
            self.left = match *rest {
                [_, low, middle, high, ..] => {
                    4 + u32::from_le_bytes([low, middle, high, 0]) as usize
                }
                _ => rest.len(),
            };
        }
        let len = (&rest[..rest.len().min(self.left)]).read(buffer)?;
        self.body.consume(len);
        self.left -= len;
        self.ration.set(self.ration.get().saturating_sub(len));
        Ok(len)
    }
}

/// The bytes that one step of [`Pieces::gather`] expands to.
const PIECE: usize = 32 << 10;

/// The bytes of a Snappy block, at most `limit` of them. A block can only be expanded as a whole.
///
/// # Errors
///
/// The response that refuses the request: 413 for a block that expands to more than the limit, 400
/// for one that the format does not allow.
#[expect(clippy::result_large_err, reason = "the response to send, once for each request")]
pub(super) fn expand_block(block: &[u8], limit: usize) -> Result<Bytes, Response> {
    let mut out = Vec::new();
    match remote::uncompress(block, limit, &mut out) {
        Ok(()) => Ok(out.into()),
        Err(error) if error.is_too_large() => Err(too_large(limit)),
        Err(error) => Err(damaged("snappy", &error)),
    }
}

/// Whether a Snappy body says that it expands to more than this many bytes.
pub(super) fn may_exceed(body: &[u8], bytes: usize) -> bool {
    // Without a length, it is refused, or it has the framing format.
    snap::raw::decompress_len(body).is_ok_and(|len| len > bytes) || body.starts_with(FRAMED)
}

/// What the framing format of Snappy begins with.
const FRAMED: &[u8] = b"\xff\x06\0\0sNaPpY";

fn too_large(limit: usize) -> Response {
    let text_body = format!(
        "the body has more than {limit} bytes without its compression; send less at a time\n"
    );
    text(StatusCode::PAYLOAD_TOO_LARGE, text_body)
}

fn unknown(coding: &str) -> Response {
    unsupported(&format!("the coding {:?}", cut(coding, 40)))
}

fn unsupported(what: &str) -> Response {
    let supported = "gzip, deflate, zstd, snappy";
    let body = format!(
        "the body has {what} in Content-Encoding; send one of {supported}, or leave it out\n"
    );
    let mut response = text(StatusCode::UNSUPPORTED_MEDIA_TYPE, body);
    response.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static(supported));
    response
}

fn damaged(coding: &str, error: &dyn std::fmt::Display) -> Response {
    let body = format!(
        "the body is not what Content-Encoding says, {coding}: {error}; send it whole, or correct \
         the header\n"
    );
    text(StatusCode::BAD_REQUEST, body)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn compressed(coding: &str, bytes: &[u8]) -> Bytes {
        let mut out = Vec::new();
        match coding {
            "gzip" => {
                let mut encoder = flate2::write::GzEncoder::new(&mut out, Default::default());
                encoder.write_all(bytes).unwrap();
                encoder.finish().unwrap();
            }
            "deflate" => {
                let mut encoder = flate2::write::ZlibEncoder::new(&mut out, Default::default());
                encoder.write_all(bytes).unwrap();
                encoder.finish().unwrap();
            }
            "zstd" => out = zstd::stream::encode_all(bytes, 1).unwrap(),
            "snappy" => remote::compress(bytes, &mut out).unwrap(),
            _ => out.extend_from_slice(bytes),
        }
        out.into()
    }

    #[expect(clippy::result_large_err, reason = "as the function under test")]
    fn pieces(coding: &str, body: &Bytes, limit: usize) -> Result<Bytes, Response> {
        let mut pieces = Pieces::of(coding.into(), body, limit)?;
        let (mut all, mut buffer) = (Vec::new(), [0; 777]);
        loop {
            match pieces.next(&mut buffer)? {
                Piece::End => return Ok(all.into()),
                Piece::Bytes(len) => all.extend_from_slice(&buffer[..len]),
                Piece::Nothing => {}
            }
        }
    }

    #[expect(clippy::result_large_err, reason = "as the function under test")]
    fn whole(coding: &str, body: &Bytes, limit: usize) -> Result<Bytes, Response> {
        let mut pieces = Pieces::of(coding.into(), body, limit)?;
        loop {
            if let Some(bytes) = pieces.gather()? {
                return Ok(bytes);
            }
        }
    }

    #[test]
    fn what_expands_to_nothing_is_read_in_rations() {
        const PARTS: usize = 10_000;
        let gzip = compressed("gzip", b"").repeat(PARTS);
        let deflate = [&b"\x78\x9c"[..], &b"\0\0\0\xff\xff".repeat(PARTS * 4)].concat();
        let zstd = compressed("zstd", b"").repeat(PARTS * 2);
        let snappy = [FRAMED, &b"\xfe\0\0\0".repeat(PARTS * 4)].concat();
        let bodies = [("gzip", gzip), ("deflate", deflate), ("zstd", zstd), ("snappy", snappy)];
        for (coding, body) in bodies {
            let mut pieces = Pieces::of(coding.into(), &body.into(), 100).unwrap();
            // The stream of deflate has no end.
            let has_end = coding != "deflate";
            let (mut rations, mut buffer) = (0, [0; 10]);
            loop {
                match pieces.next(&mut buffer) {
                    Ok(Piece::Nothing) => rations += 1,
                    Ok(other) => break assert!(has_end && other == Piece::End, "{coding}"),
                    Err(error) => break assert!(!has_end && error.status() == 400, "{coding}"),
                }
            }
            assert!(rations >= 1, "{coding} {rations}");
        }
    }

    #[test]
    fn snappy_may_be_framed() {
        let mut encoder = snap::write::FrameEncoder::new(Vec::new());
        encoder.write_all(&[7; 100_000]).unwrap();
        let body = Bytes::from(encoder.into_inner().unwrap());
        assert_eq!(whole("snappy", &body, 100_000).unwrap().len(), 100_000);
        assert_eq!(status(whole("snappy", &body, 99_999)), 413);
        assert_eq!(status(whole("snappy", &body.slice(..body.len() - 1), 100_000)), 400);
    }

    #[test]
    fn a_body_is_not_expanded_before_its_first_piece() {
        let block = compressed("snappy", &[7; 1000]);
        for body in [block.slice(..block.len() - 1), block] {
            let mut pieces = Pieces::of("snappy".into(), &body, 999).unwrap();
            assert!(pieces.next(&mut [0; 10]).is_err());
        }
    }

    fn status(result: Result<Bytes, Response>) -> u16 {
        result.unwrap_err().status().as_u16()
    }

    const CODINGS: [&str; 5] = ["identity", "gzip", "deflate", "zstd", "snappy"];

    #[test]
    fn every_coding_is_undone_up_to_the_limit() {
        let bytes: Vec<u8> = (0..100_000_u32).map(|n| (n / 7) as u8).collect();
        for coding in CODINGS {
            let body = compressed(coding, &bytes);
            assert_eq!(whole(coding, &body, bytes.len()).unwrap(), bytes, "{coding}");
            assert_eq!(status(whole(coding, &body, bytes.len() - 1)), 413, "{coding}");
            assert_eq!(pieces(coding, &body, bytes.len()).unwrap(), bytes, "{coding}");
            assert_eq!(status(pieces(coding, &body, bytes.len() - 1)), 413, "{coding}");
        }
        assert_eq!(whole("", &Bytes::from_static(b"x"), 1).unwrap(), "x");
        let two = [compressed("gzip", b"a"), compressed("gzip", b"b")].concat();
        assert_eq!(whole("x-gzip", &two.into(), 2).unwrap(), "ab");
    }

    #[test]
    fn damaged_bodies_and_unknown_codings_are_refused() {
        let bytes = vec![b'a'; 1000];
        for coding in &CODINGS[1..] {
            let body = compressed(coding, &bytes);
            for len in 0..body.len() {
                let part = body.slice(..len);
                // No frame at all is a valid zstd stream of no bytes.
                let outs = [whole(coding, &part, 2000), pieces(coding, &part, 2000)];
                for out in outs.into_iter().flatten() {
                    assert!(len == 0 && out.is_empty(), "{coding} {len}");
                }
            }
            // As a snappy block, it states a length of two.
            let garbage = Bytes::from_static(b"\x02\xff\xff garbage");
            assert_eq!(status(whole(coding, &garbage, 1 << 20)), 400, "{coding}");
        }
        let body = Bytes::from_static(b"x");
        for coding in ["br", "gzip, zstd", "\u{e9}\u{e9}".repeat(40).as_str()] {
            let response = whole(coding, &body, 10).unwrap_err();
            assert_eq!(response.status(), 415);
            assert!(response.headers().contains_key(ACCEPT_ENCODING));
        }
    }

    #[test]
    fn a_large_window_of_zstd_is_not_allocated() {
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
        encoder.window_log(27).unwrap();
        encoder.include_contentsize(false).unwrap();
        encoder.write_all(b"x").unwrap();
        let body: Bytes = encoder.finish().unwrap().into();
        assert_eq!(status(whole("zstd", &body, 100)), 400);
    }
}
