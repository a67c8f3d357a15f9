//! Snappy's block format: <https://github.com/google/snappy/blob/main/format_description.txt>.

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use snap::raw;

use crate::error::{Error, Fault};

const FORMAT: &str = "snappy";
const LIMIT: Fault = Fault::unwritable("a block must have less than 4 GiB");

/// Compresses the bytes and appends the result, for example the body of a remote write.
///
/// # Errors
///
/// When there are 4 GiB or more. The buffer is then unchanged.
pub fn compress(bytes: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
    out.extend_from_slice(Compressor::default().compress(bytes)?);
    Ok(())
}

/// Compresses blocks one after another, and reuses its memory.
pub struct Compressor {
    encoder: raw::Encoder,
    /// A buffer of at least the size of the last block.
    block: Vec<u8>,
}

impl Compressor {
    /// Compresses the bytes and returns the result, for example the body of a remote write.
    ///
    /// # Errors
    ///
    /// When there are 4 GiB or more.
    pub fn compress(&mut self, bytes: &[u8]) -> Result<&[u8], Error> {
        let wrong = || Error::writing(FORMAT, LIMIT);
        let bound = match raw::max_compress_len(bytes.len()) {
            0 => return Err(wrong()),
            bound => bound,
        };
        if self.block.len() < bound {
            self.block = vec![0; bound];
        }
        let len = self.encoder.compress(bytes, &mut self.block);
        let len = len.map_err(|_| wrong())?;
        Ok(&self.block[..len])
    }
}

impl Default for Compressor {
    fn default() -> Compressor {
        Compressor { encoder: raw::Encoder::new(), block: Vec::new() }
    }
}

impl fmt::Debug for Compressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compressor").field("room", &self.block.len()).finish()
    }
}

/// Uncompresses a block and appends the result, at most `limit` bytes. The block's length field is
/// checked before any allocation.
///
/// # Errors
///
/// When the length field exceeds the limit, or the bytes are not a block. The buffer is then
/// unchanged.
pub fn uncompress(block: &[u8], limit: usize, out: &mut Vec<u8>) -> Result<(), Error> {
    let wrong = |fault| Err(Error::reading(FORMAT, 0, fault));
    let Ok(len) = raw::decompress_len(block) else {
        return wrong(Fault::malformed("the length of a Snappy block"));
    };
    if len > limit {
        return wrong(Fault::too_large("a block that is not longer than the limit"));
    }
    // Three bytes expand to at most 64.
    if len / 22 > block.len() {
        return wrong(Fault::malformed("a length that the block can have"));
    }
    let start = out.len();
    if out.try_reserve(len).is_err() {
        return wrong(Fault::memory());
    }
    out.resize(start + len, 0);
    match raw::Decoder::new().decompress(block, &mut out[start..]) {
        Ok(written) if written == len => Ok(()),
        _ => {
            out.truncate(start);
            wrong(Fault::malformed("a Snappy block of the length that it states"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compressed_bytes_are_restored() {
        let mut compressor = Compressor::default();
        for bytes in [vec![], b"abc".to_vec(), vec![7; 1 << 20], (0..=255).collect::<Vec<u8>>()] {
            let mut block = b"x".to_vec();
            compress(&bytes, &mut block).unwrap();
            // A used compressor produces the same bytes.
            assert_eq!(compressor.compress(&bytes).unwrap(), &block[1..]);
            let mut out = b"y".to_vec();
            uncompress(&block[1..], bytes.len(), &mut out).unwrap();
            assert_eq!((&out[..1], &out[1..]), (&b"y"[..], &bytes[..]));
            if !bytes.is_empty() {
                let error = uncompress(&block[1..], bytes.len() - 1, &mut out).unwrap_err();
                assert!(std::string::ToString::to_string(&error).contains("too large"), "{error}");
            }
            for len in 0..(block.len() - 1).min(100) {
                assert!(uncompress(&block[1..1 + len], usize::MAX, &mut out).is_err());
            }
            assert_eq!(out.len(), 1 + bytes.len());
        }
    }

    #[test]
    fn lengths_are_checked_before_anything_is_allocated() {
        let mut out = Vec::new();
        let huge = b"\xff\xff\xff\xff\x0f\x00a";
        assert!(uncompress(huge, usize::MAX, &mut out).is_err());
        assert!(uncompress(b"\xff\xff\xff\xff\xff\xff\x01", usize::MAX, &mut out).is_err());
        assert_eq!(out.capacity(), 0);
    }
}
