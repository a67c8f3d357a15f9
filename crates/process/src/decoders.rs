//! Decoders of compressed bodies, with bounds on their memory.

use std::io::{self, BufRead, Read};

/// The bytes of a body of zstd, whose window is bounded.
pub fn zstd_decoder<R: BufRead>(body: R) -> io::Result<impl Read + use<R>> {
    let mut decoder = zstd::stream::read::Decoder::with_buffer(body)?;
    decoder.window_log_max(ZSTD_WINDOW_LOG)?;
    Ok(decoder)
}

/// The largest window that zstd may have in HTTP: 8 MiB (RFC 9659).
const ZSTD_WINDOW_LOG: u32 = 23;
