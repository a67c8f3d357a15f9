//! Decompresses the bodies of requests, as a whole or piece by piece.
//!
//! The header `Content-Encoding` can name one coding: `identity`, `gzip`, `deflate`, `zstd` or
//! `snappy` (the block format of remote write, or the framing format of Pushgateway). The
//! decompressed size is checked against the caller's limit before memory is allocated, so a
//! compression bomb costs no more than a body of the maximum size.

use std::cell::Cell;
use std::io::{self, BufRead, Cursor, ErrorKind, Read};
use std::mem::take;
use std::rc::Rc;
use std::time::Instant;

use hyper::StatusCode;
use hyper::body::Bytes;
use hyper::header::{ACCEPT_ENCODING, CONTENT_ENCODING, HeaderValue};
use quipu_wire::remote;

use super::permits::SMALL;
use super::refusal::{Refusal, Result};
use super::requests::STEP;
use quipu_http::Request;
use quipu_process::decoders::zstd_decoder;
use quipu_process::text::cut;

/// Returns the coding in `Content-Encoding`, in lower case; empty without this header.
///
/// # Errors
/// Fails if there are several codings.
fn coding(request: &Request) -> Result<String> {
    let codings = request.headers().get_all(CONTENT_ENCODING).iter();
    let codings: Vec<_> = codings.map(HeaderValue::as_bytes).collect();
    let coding = match codings[..] {
        [] => b"",
        [coding] => coding,
        _ => return Err(unsupported("several codings")),
    };
    Ok(String::from_utf8_lossy(coding.trim_ascii()).to_ascii_lowercase())
}

/// A body that is decompressed piece by piece. A large body is therefore handled in many steps, and
/// is only in memory as a whole if you call [`Pieces::gather`].
pub struct Pieces {
    /// The received body, until the first piece is read. The decoder allocates its memory only
    /// then.
    body: Bytes,
    reader: Option<Box<dyn Read>>,
    /// The number of bytes of the body that the decoder may still read for this piece.
    ration: Rc<Cell<usize>>,
    coding: Coding,
    limit: usize,
    left: usize,
    /// The bytes that [`Pieces::gather`] has decompressed so far.
    gathered: Vec<u8>,
}

/// The name of a coding, in lower case.
type Coding = &'static str;

/// The supported codings. The empty name means that the request has no `Content-Encoding`.
const CODINGS: [Coding; 7] = ["", "identity", "gzip", "x-gzip", "deflate", "zstd", "snappy"];
/// The block format of Snappy. In contrast, `snappy` detects the framing format by its first bytes.
const BLOCK: Coding = "block";

/// The outcome of [`Pieces::next`].
#[derive(Debug, PartialEq, Eq)]
pub enum Piece {
    /// Some bytes; at least one.
    Bytes(usize),
    /// No bytes yet: the part of the body that was read decompresses to zero bytes. Call again.
    Nothing,
    /// The end of the body.
    End,
}

impl Pieces {
    /// Creates a decoder for the body of a request.
    ///
    /// # Errors
    /// Returns 415 for an unsupported coding.
    pub fn new(request: &Request, limit: usize) -> Result<Self> {
        Self::with_coding(&coding(request)?, request.body(), limit)
    }

    /// Creates a decoder for a Snappy block.
    pub fn block(body: &Bytes, limit: usize) -> Self {
        let (body, reader, ration) = (body.clone(), None, Rc::default());
        Self { body, reader, ration, coding: BLOCK, limit, left: limit, gathered: Vec::new() }
    }

    fn with_coding(coding: &str, body: &Bytes, limit: usize) -> Result<Self> {
        let block = Self::block(body, limit);
        let known = CODINGS.into_iter().find(|known| *known == coding);
        Ok(match known.ok_or_else(|| unknown(coding))? {
            "snappy" if !body.starts_with(FRAMED) => block,
            coding => Self { coding, ..block },
        })
    }

    /// Returns whether decompressing the body can take much memory, because the body is large, or
    /// because its decompressed size is large or unknown.
    pub fn is_large(&self) -> bool {
        match self.coding {
            "" | "identity" => self.body.len() > SMALL,
            // A block without a length is valid here, and refused later.
            BLOCK => snap::raw::decompress_len(&self.body).is_ok_and(|len| len > SMALL),
            _ => true,
        }
    }

    fn open(&mut self) -> Result<Box<dyn Read>> {
        if self.coding == BLOCK {
            return Ok(Box::new(Cursor::new(self.expand_block()?)));
        }
        let (body, ration) = (Cursor::new(take(&mut self.body)), Rc::clone(&self.ration));
        Ok(match self.coding {
            "" | "identity" => Box::new(body),
            "snappy" => Box::new(snap::read::FrameDecoder::new(Chunks { body, ration, left: 0 })),
            coding => {
                let body = RationedBody { body, ration };
                match coding {
                    "deflate" => Box::new(flate2::bufread::ZlibDecoder::new(body)),
                    "zstd" => {
                        Box::new(zstd_decoder(body).map_err(|error| damaged(coding, &error))?)
                    }
                    _ => Box::new(flate2::bufread::MultiGzDecoder::new(body)),
                }
            }
        })
    }

    /// Decompresses a Snappy block. This is only possible as a whole.
    fn expand_block(&mut self) -> Result<Bytes> {
        let mut out = Vec::new();
        match remote::snappy::uncompress(&take(&mut self.body), self.limit, &mut out) {
            Ok(()) => Ok(out.into()),
            Err(error) if error.is_too_large() => Err(too_large(self.limit)),
            Err(error) => Err(damaged("snappy", &error)),
        }
    }

    /// Returns the whole body without copying, if it is uncompressed, unread and within the limit.
    pub fn plain(&self) -> Option<&[u8]> {
        let is_plain = matches!(self.coding, "" | "identity");
        (is_plain && self.reader.is_none() && self.body.len() <= self.limit).then_some(&self.body)
    }

    /// Fills the buffer with the next bytes. One call reads only a bounded part of the body, even
    /// if this part decompresses to few bytes or none.
    ///
    /// # Errors
    /// Returns 413 if the decompressed body exceeds the limit, and 400 for invalid data. The bytes
    /// before the error remain valid.
    pub fn next(&mut self, buffer: &mut [u8]) -> Result<Piece> {
        self.ration.set(RATION);
        let mut reader = match self.reader.take() {
            Some(reader) => reader,
            None => self.open()?,
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
            Err(error) => Err(damaged(self.coding, &error)),
        }
    }

    /// Calls `take` with the next bytes until the time slice of the step, which began at `begun`,
    /// is over. Returns whether the body has ended.
    ///
    /// # Errors
    /// Returns the errors of [`Pieces::next`].
    pub fn each(&mut self, begun: Instant, mut take: impl FnMut(&[u8])) -> Result<bool> {
        let mut buffer = [0; PIECE];
        loop {
            match self.next(&mut buffer)? {
                Piece::End => return Ok(true),
                Piece::Nothing => return Ok(false),
                Piece::Bytes(len) => take(&buffer[..len]),
            }
            if begun.elapsed() >= STEP {
                return Ok(false);
            }
        }
    }

    /// Decompresses the body until the time slice of the step, which began at `begun`, is over.
    /// Returns the whole body after its last byte. An uncompressed body is shared, not copied.
    ///
    /// # Errors
    /// Returns the errors of [`Pieces::next`].
    pub fn gather(&mut self, begun: Instant) -> Result<Option<Bytes>> {
        if matches!(self.coding, "" | "identity") {
            let Self { body, limit, .. } = self;
            let is_too_large = body.len() > *limit;
            return if is_too_large { Err(too_large(*limit)) } else { Ok(Some(take(body))) };
        }
        if self.coding == BLOCK {
            return self.expand_block().map(Some);
        }
        let mut gathered = take(&mut self.gathered);
        loop {
            let len = gathered.len();
            gathered.resize(len + GATHERED, 0);
            let piece = self.next(&mut gathered[len..])?;
            let new = if let Piece::Bytes(new) = piece { new } else { 0 };
            gathered.truncate(len + new);
            if piece == Piece::End {
                return Ok(Some(gathered.into()));
            }
            if begun.elapsed() >= STEP {
                self.gathered = gathered;
                return Ok(None);
            }
        }
    }
}

/// The size of a piece in bytes.
pub const PIECE: usize = 16 << 10;
/// The number of bytes that [`Pieces::gather`] decompresses at a time.
const GATHERED: usize = 32 << 10;

/// The number of bytes that a decoder may read for one piece. Without this limit, one step would
/// read a whole body whose parts all decompress to zero bytes.
const RATION: usize = 64 << 10;

/// A body that returns [`ErrorKind::WouldBlock`] to its decoder whenever [`RATION`] bytes were
/// read.
struct RationedBody {
    body: Cursor<Bytes>,
    ration: Rc<Cell<usize>>,
}

impl BufRead for RationedBody {
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

impl Read for RationedBody {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.fill_buf()?.read(buffer)?;
        self.consume(len);
        Ok(len)
    }
}

/// A reader of Snappy's framing format. The decoder cannot continue in the middle of a chunk, so
/// this reader returns whole chunks, and [`ErrorKind::WouldBlock`] after some chunks.
struct Chunks {
    body: Cursor<Bytes>,
    ration: Rc<Cell<usize>>,
    /// The remaining bytes of the current chunk.
    left: usize,
}

impl Read for Chunks {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let rest = self.body.fill_buf()?;
        if self.left == 0 && !rest.is_empty() {
            if self.ration.get() == 0 {
                return Err(ErrorKind::WouldBlock.into());
            }
            // A chunk begins with a type, and a length of three bytes.
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

/// The first bytes of Snappy's framing format.
const FRAMED: &[u8] = b"\xff\x06\0\0sNaPpY";

fn too_large(limit: usize) -> Box<Refusal> {
    let detail = format!(
        "the body has more than {limit} bytes without its compression; send less at a time"
    );
    Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, detail).named(REASON)
}

fn unknown(coding: &str) -> Box<Refusal> {
    unsupported(&format!("the coding {:?}", cut(coding, 40)))
}

fn unsupported(detail: &str) -> Box<Refusal> {
    let supported = "gzip, deflate, zstd, snappy";
    let detail = format!(
        "the body has {detail} in Content-Encoding; send one of {supported}, or leave it out"
    );
    Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail)
        .named(REASON)
        .with(ACCEPT_ENCODING, HeaderValue::from_static(supported))
}

fn damaged(coding: &str, error: &dyn std::fmt::Display) -> Box<Refusal> {
    let detail = format!(
        "the body is not what Content-Encoding says, {coding}: {error}; send it whole, or correct \
         the header"
    );
    Refusal::new(StatusCode::BAD_REQUEST, detail).named(REASON)
}

/// The `reason` label of all refused bodies.
const REASON: &str = "body";

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
            "snappy" => remote::snappy::compress(bytes, &mut out).unwrap(),
            _ => out.extend_from_slice(bytes),
        }
        out.into()
    }

    fn pieces(coding: &str, body: &Bytes, limit: usize) -> Result<Bytes> {
        let mut pieces = Pieces::with_coding(coding, body, limit)?;
        let (mut all, mut buffer) = (Vec::new(), [0; 777]);
        loop {
            match pieces.next(&mut buffer)? {
                Piece::End => return Ok(all.into()),
                Piece::Bytes(len) => all.extend_from_slice(&buffer[..len]),
                Piece::Nothing => {}
            }
        }
    }

    fn whole(coding: &str, body: &Bytes, limit: usize) -> Result<Bytes> {
        let mut pieces = Pieces::with_coding(coding, body, limit)?;
        loop {
            if let Some(bytes) = pieces.gather(Instant::now())? {
                return Ok(bytes);
            }
        }
    }

    #[test]
    fn a_body_that_expands_to_nothing_is_read_in_rations() {
        const PARTS: usize = 10_000;
        let gzip = compressed("gzip", b"").repeat(PARTS);
        let deflate = [&b"\x78\x9c"[..], &b"\0\0\0\xff\xff".repeat(PARTS * 4)].concat();
        let zstd = compressed("zstd", b"").repeat(PARTS * 2);
        let snappy = [FRAMED, &b"\xfe\0\0\0".repeat(PARTS * 4)].concat();
        let bodies = [("gzip", gzip), ("deflate", deflate), ("zstd", zstd), ("snappy", snappy)];
        for (coding, body) in bodies {
            let mut pieces = Pieces::with_coding(coding, &body.into(), 100).unwrap();
            // A deflate stream does not mark its end.
            let has_end = coding != "deflate";
            let (mut rations, mut buffer) = (0, [0; 10]);
            loop {
                match pieces.next(&mut buffer) {
                    Ok(Piece::Nothing) => rations += 1,
                    Ok(other) => break assert!(has_end && other == Piece::End, "{coding}"),
                    Err(error) => break assert!(!has_end && error.status == 400, "{coding}"),
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
            let mut pieces = Pieces::with_coding("snappy", &body, 999).unwrap();
            assert!(pieces.next(&mut [0; 10]).is_err());
        }
    }

    fn status(result: Result<Bytes>) -> u16 {
        result.unwrap_err().status.as_u16()
    }

    const ALL: [&str; 5] = ["identity", "gzip", "deflate", "zstd", "snappy"];

    #[test]
    fn bodies_are_decoded_up_to_the_limit() {
        let bytes: Vec<u8> = (0..100_000_u32).map(|n| (n / 7) as u8).collect();
        for coding in ALL {
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
        for coding in &ALL[1..] {
            let body = compressed(coding, &bytes);
            for len in 0..body.len() {
                let part = body.slice(..len);
                // A zstd stream without frames is valid and empty.
                let outs = [whole(coding, &part, 2000), pieces(coding, &part, 2000)];
                for out in outs.into_iter().flatten() {
                    assert!(len == 0 && out.is_empty(), "{coding} {len}");
                }
            }
            // As a Snappy block, this states a length of two.
            let garbage = Bytes::from_static(b"\x02\xff\xff garbage");
            assert_eq!(status(whole(coding, &garbage, 1 << 20)), 400, "{coding}");
        }
        let body = Bytes::from_static(b"x");
        for coding in ["br", "gzip, zstd", "\u{e9}\u{e9}".repeat(40).as_str()] {
            let refusal = whole(coding, &body, 10).unwrap_err();
            assert_eq!(refusal.status, 415);
            assert!(refusal.field.is_some_and(|(name, _)| name == ACCEPT_ENCODING));
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
