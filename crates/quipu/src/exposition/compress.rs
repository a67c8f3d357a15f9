//! Compression of responses, piece by piece.

#[cfg(any(feature = "gzip", feature = "zstd"))]
use std::io::Write;

use crate::error::named;

/// The compression of a response. Later variants compress better.
///
/// ```
/// use quipu::exposition::{Compression, negotiate_compression};
///
/// assert_eq!(negotiate_compression("br"), Compression::Identity);
/// assert_eq!(Compression::Zstd.as_str(), "zstd");
/// assert_eq!("identity".parse(), Ok(Compression::Identity));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[non_exhaustive]
pub enum Compression {
    /// No compression.
    #[default]
    Identity,
    /// gzip (RFC 1952).
    Gzip,
    /// Zstandard (RFC 8878).
    Zstd,
}

impl Compression {
    /// The compressions that the crate was built with.
    const ALL: &'static [Self] = &[
        Self::Identity,
        #[cfg(feature = "gzip")]
        Self::Gzip,
        #[cfg(feature = "zstd")]
        Self::Zstd,
    ];

    /// Returns the name in headers. Only a compression that the crate was built with can be parsed
    /// from its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        }
    }

    pub(super) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|compression| compression.as_str() == name)
    }
}

named!(Compression, "compression", Compression::ALL);

/// Compresses pieces one after the other.
pub struct Compressor(CompressionStream);

enum CompressionStream {
    #[cfg(not(any(feature = "gzip", feature = "zstd")))]
    #[expect(dead_code, reason = "there is no compressor to make")]
    Never(std::convert::Infallible),
    #[cfg(feature = "gzip")]
    Gzip(flate2::write::GzEncoder<Vec<u8>>),
    #[cfg(feature = "zstd")]
    Zstd(zstd::stream::write::Encoder<'static, Vec<u8>>),
}

impl Compressor {
    /// Creates a compressor; `None` for no compression, or if it cannot be allocated.
    pub fn new(compression: Compression) -> Option<Self> {
        match compression {
            // A low level, because scrapes are frequent and their pages repetitive.
            #[cfg(feature = "gzip")]
            Compression::Gzip => Some(Self(CompressionStream::Gzip(
                flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()),
            ))),
            #[cfg(feature = "zstd")]
            Compression::Zstd => zstd::stream::write::Encoder::new(Vec::new(), 1)
                .ok()
                .map(CompressionStream::Zstd)
                .map(Self),
            _ => None,
        }
    }

    /// Compresses a piece, and appends the available output.
    pub fn write(&mut self, piece: &[u8], out: &mut Vec<u8>) {
        let _ = (piece, &out);
        // Writing to memory does not fail.
        match &mut self.0 {
            #[cfg(not(any(feature = "gzip", feature = "zstd")))]
            CompressionStream::Never(never) => match *never {},
            #[cfg(feature = "gzip")]
            CompressionStream::Gzip(encoder) => {
                let _ = encoder.write_all(piece);
                out.append(encoder.get_mut());
            }
            #[cfg(feature = "zstd")]
            CompressionStream::Zstd(encoder) => {
                let _ = encoder.write_all(piece);
                out.append(encoder.get_mut());
            }
        }
    }

    /// Ends the stream, and appends the rest of the output.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        let _ = &out;
        match &mut self.0 {
            #[cfg(not(any(feature = "gzip", feature = "zstd")))]
            CompressionStream::Never(never) => match *never {},
            #[cfg(feature = "gzip")]
            CompressionStream::Gzip(encoder) => {
                let _ = encoder.try_finish();
                out.append(encoder.get_mut());
            }
            #[cfg(feature = "zstd")]
            CompressionStream::Zstd(encoder) => {
                let _ = encoder.do_finish();
                out.append(encoder.get_mut());
            }
        }
    }
}

impl std::fmt::Debug for Compressor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Compressor").finish_non_exhaustive()
    }
}
