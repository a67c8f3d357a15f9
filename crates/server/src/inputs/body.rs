//! Bodies of requests as they were before compression: whole, or piece by piece.
//!
//! `Content-Encoding` names one coding: `identity`, `gzip`, `deflate`, `zstd` or `snappy` (the block
//! format, as remote write has it, or the framing format, as Pushgateway has it). What a body expands
//! to is bounded by the caller's limit before it is held, so a compression bomb costs no more than a
//! body of that size.

use std::io::{self, BufRead, Cursor, Read};

use hyper::StatusCode;
use hyper::body::Bytes;
use hyper::header::{ACCEPT_ENCODING, CONTENT_ENCODING, HeaderValue};
use quipu_wire::remote;

use crate::http::{Request, Response, text};

/// The coding in the header of a request, in lower case; empty without one.
///
/// # Errors
///
/// The response that refuses several codings.
#[expect(clippy::result_large_err, reason = "the response to send, once for each request")]
pub(super) fn coding(request: &Request) -> Result<String, Response> {
    let codings = request.headers().get_all(CONTENT_ENCODING).iter();
    let codings: Vec<_> = codings.map(HeaderValue::as_bytes).collect();
    let coding = match codings[..] {
        [] => b"",
        [coding] => coding,
        _ => return Err(unsupported("several codings")),
    };
    Ok(String::from_utf8_lossy(coding.trim_ascii()).to_ascii_lowercase())
}

/// A body that is expanded piece by piece, so that a large one takes many steps, and is never in
/// memory as a whole.
pub struct Pieces {
    /// The body as it came, until its first piece is asked for: only then it takes more memory.
    body: Bytes,
    reader: Option<Box<dyn Read>>,
    coding: String,
    limit: usize,
    left: usize,
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
                Ok(Self { body: body.clone(), reader: None, coding, limit, left: limit })
            }
            other => Err(unknown(other)),
        }
    }

    #[expect(clippy::result_large_err, reason = "the response to send, once for each request")]
    fn open(coding: &str, body: Bytes, limit: usize) -> Result<Box<dyn Read>, Response> {
        Ok(match coding {
            "gzip" | "x-gzip" => Box::new(flate2::bufread::MultiGzDecoder::new(Cursor::new(body))),
            "deflate" => Box::new(flate2::bufread::ZlibDecoder::new(Cursor::new(body))),
            "zstd" => match zstd_decoder(Cursor::new(body)) {
                Ok(decoder) => Box::new(decoder),
                Err(error) => return Err(damaged(coding, &error)),
            },
            // A block of Snappy can only be expanded as a whole.
            _ => Box::new(Cursor::new(uncompress(coding, &body, limit)?)),
        })
    }

    /// Fills the buffer with the next bytes of the body, at least one; returns how many. 0 is the
    /// end.
    ///
    /// # Errors
    ///
    /// The response that refuses the request: 413 for a body that expands to more than the limit, 400
    /// for one that its coding does not allow. What came before remains valid.
    #[expect(clippy::result_large_err, reason = "the response to send, once for each request")]
    pub fn next(&mut self, buffer: &mut [u8]) -> Result<usize, Response> {
        let reader = match &mut self.reader {
            Some(reader) => reader,
            None => {
                let body = std::mem::take(&mut self.body);
                self.reader.insert(Self::open(&self.coding, body, self.limit)?)
            }
        };
        let len = reader.read(buffer).map_err(|error| damaged(&self.coding, &error))?;
        self.left = self.left.checked_sub(len).ok_or_else(|| too_large(self.limit))?;
        Ok(len)
    }
}

/// The bytes of a body without this coding, at most `limit` of them. A body that is not compressed is
/// shared, not copied.
///
/// # Errors
///
/// The response that refuses the request: 413 for a body that expands to more than the limit, 415
/// for a coding that is not supported, 400 for a body that its coding does not allow.
#[expect(clippy::result_large_err, reason = "the response to send, once for each request")]
pub(super) fn uncompress(coding: &str, body: &Bytes, limit: usize) -> Result<Bytes, Response> {
    let expanded = match coding {
        "" | "identity" => Ok(body.clone()),
        "gzip" | "x-gzip" => read(flate2::read::MultiGzDecoder::new(&body[..]), limit),
        "deflate" => read(flate2::read::ZlibDecoder::new(&body[..]), limit),
        "zstd" => zstd_decoder(&body[..]).and_then(|decoder| read(decoder, limit)),
        "snappy" if body.starts_with(FRAMED) => {
            read(snap::read::FrameDecoder::new(&body[..]), limit)
        }
        "snappy" => {
            let mut out = Vec::new();
            match remote::uncompress(body, limit, &mut out) {
                Ok(()) => Ok(out.into()),
                Err(error) if error.is_too_large() => return Err(too_large(limit)),
                Err(error) => return Err(damaged(coding, &error)),
            }
        }
        other => return Err(unknown(other)),
    };
    match expanded {
        Ok(bytes) if bytes.len() > limit => Err(too_large(limit)),
        Ok(bytes) => Ok(bytes),
        Err(error) => Err(damaged(coding, &error)),
    }
}

/// Whether a Snappy body says that it expands to more than this many bytes.
pub(super) fn may_exceed(body: &[u8], bytes: usize) -> bool {
    // Without a length, it is refused, or it has the framing format.
    snap::raw::decompress_len(body).is_ok_and(|len| len > bytes) || body.starts_with(FRAMED)
}

/// What the framing format of Snappy begins with.
const FRAMED: &[u8] = b"\xff\x06\0\0sNaPpY";

/// Reads to the end, or to one byte more than the limit.
fn read(decoder: impl Read, limit: usize) -> io::Result<Bytes> {
    let mut out = Vec::new();
    decoder.take(limit as u64 + 1).read_to_end(&mut out)?;
    Ok(out.into())
}

fn zstd_decoder<R: BufRead>(body: R) -> io::Result<impl Read + use<R>> {
    let mut decoder = zstd::stream::read::Decoder::with_buffer(body)?;
    decoder.window_log_max(ZSTD_WINDOW_LOG)?;
    Ok(decoder)
}

/// The largest window that zstd may have in HTTP: 8 MiB (RFC 9659).
const ZSTD_WINDOW_LOG: u32 = 23;

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

/// The beginning of a text that a client sent, short enough for a message: at most this many bytes.
pub(super) fn cut(text: &str, bytes: usize) -> &str {
    let mut ends = (0..=bytes.min(text.len())).rev();
    &text[..ends.find(|end| text.is_char_boundary(*end)).unwrap_or(0)]
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
                0 => return Ok(all.into()),
                len => all.extend_from_slice(&buffer[..len]),
            }
        }
    }

    #[test]
    fn snappy_may_be_framed() {
        let mut encoder = snap::write::FrameEncoder::new(Vec::new());
        encoder.write_all(&[7; 100_000]).unwrap();
        let body = Bytes::from(encoder.into_inner().unwrap());
        assert_eq!(uncompress("snappy", &body, 100_000).unwrap().len(), 100_000);
        assert_eq!(status(uncompress("snappy", &body, 99_999)), 413);
        assert_eq!(status(uncompress("snappy", &body.slice(..body.len() - 1), 100_000)), 400);
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
            assert_eq!(uncompress(coding, &body, bytes.len()).unwrap(), bytes, "{coding}");
            assert_eq!(status(uncompress(coding, &body, bytes.len() - 1)), 413, "{coding}");
            assert_eq!(pieces(coding, &body, bytes.len()).unwrap(), bytes, "{coding}");
            assert_eq!(status(pieces(coding, &body, bytes.len() - 1)), 413, "{coding}");
        }
        assert_eq!(uncompress("", &Bytes::from_static(b"x"), 1).unwrap(), "x");
        let two = [compressed("gzip", b"a"), compressed("gzip", b"b")].concat();
        assert_eq!(uncompress("x-gzip", &two.into(), 2).unwrap(), "ab");
    }

    #[test]
    fn damaged_bodies_and_unknown_codings_are_refused() {
        let bytes = vec![b'a'; 1000];
        for coding in &CODINGS[1..] {
            let body = compressed(coding, &bytes);
            for len in 0..body.len() {
                let part = body.slice(..len);
                // No frame at all is a valid zstd stream of no bytes.
                let outs = [uncompress(coding, &part, 2000), pieces(coding, &part, 2000)];
                for out in outs.into_iter().flatten() {
                    assert!(len == 0 && out.is_empty(), "{coding} {len}");
                }
            }
            // As a snappy block, it states a length of two.
            let garbage = Bytes::from_static(b"\x02\xff\xff garbage");
            assert_eq!(status(uncompress(coding, &garbage, 1 << 20)), 400, "{coding}");
        }
        let body = Bytes::from_static(b"x");
        for coding in ["br", "gzip, zstd", "\u{e9}\u{e9}".repeat(40).as_str()] {
            let response = uncompress(coding, &body, 10).unwrap_err();
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
        assert_eq!(status(uncompress("zstd", &body, 100)), 400);
    }
}
