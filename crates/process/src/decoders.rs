//! Decoders of compressed bodies, with limits on their memory.

use std::io::{self, BufRead, Read};

/// Decompresses a zstd body, with a limit on the window and therefore on the memory.
pub fn zstd_decoder<R: BufRead>(body: R) -> io::Result<impl Read + use<R>> {
    let mut decoder = zstd::stream::read::Decoder::with_buffer(body)?;
    decoder.window_log_max(ZSTD_WINDOW_LOG)?;
    Ok(decoder)
}

/// The largest zstd window in HTTP: 8 MiB (RFC 9659).
const ZSTD_WINDOW_LOG: u32 = 23;
