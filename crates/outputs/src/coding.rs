//! Compresses and decompresses requests.
//!
//! The specification of remote write requires Snappy. We also support zstd, which needs a fraction
//! of the bytes and is accepted by VictoriaMetrics and other quipu daemons. OTLP uses gzip.

use std::fmt;
use std::io::{self, Read, Write};

use clap::ValueEnum;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use quipu_wire::remote;
use serde::{Deserialize, Serialize};
use zstd::bulk;
use zstd::zstd_safe::compress_bound;

use quipu_process::decoders::zstd_decoder;

/// The compression of requests. The numbers are stored in the files of the queue, so you cannot
/// change them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Coding {
    /// Snappy, which every receiver accepts.
    #[default]
    Snappy = 0,
    /// Zstd, which takes a fraction of the bytes, but which only VictoriaMetrics and other daemons
    /// accept.
    Zstd = 1,
    /// Gzip, only for OTLP.
    #[value(skip)]
    #[serde(skip)]
    Gzip = 2,
    /// No compression, only for OTLP.
    #[value(skip)]
    #[serde(skip)]
    Plain = 3,
}

/// A compressor that reuses its memory for the next request.
#[derive(Default)]
pub(super) struct Compressor {
    coding: Coding,
    snappy: remote::snappy::Compressor,
    /// The zstd compressor, created for the first request.
    zstd: Option<bulk::Compressor<'static>>,
    /// The last compressed request, for zstd.
    block: Vec<u8>,
}

/// The compression level of zstd.
const LEVEL: i32 = 1;

impl Coding {
    /// Returns the name for `Content-Encoding`; `None` if the body is not compressed.
    pub(super) fn name(self) -> Option<&'static str> {
        match self {
            Self::Snappy => Some("snappy"),
            Self::Zstd => Some("zstd"),
            Self::Gzip => Some("gzip"),
            Self::Plain => None,
        }
    }

    /// Decompresses a request of at most `limit` bytes.
    ///
    /// # Errors
    /// Fails if the request is damaged, or larger than `limit`.
    pub(super) fn uncompress(self, request: &[u8], limit: usize) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        let decoder: Box<dyn Read + '_> = match self {
            Self::Snappy => {
                remote::snappy::uncompress(request, limit, &mut out).map_err(io::Error::other)?;
                return Ok(out);
            }
            Self::Zstd => Box::new(zstd_decoder(request)?),
            Self::Gzip => Box::new(GzDecoder::new(request)),
            Self::Plain => Box::new(request),
        };
        let most = u64::try_from(limit).unwrap_or(u64::MAX);
        decoder.take(most.saturating_add(1)).read_to_end(&mut out)?;
        if out.len() > limit {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        Ok(out)
    }
}

impl Compressor {
    pub(super) fn new(coding: Coding) -> Self {
        Self { coding, ..Self::default() }
    }

    pub(super) fn coding(&self) -> Coding {
        self.coding
    }

    /// Compresses the body of a request.
    ///
    /// # Errors
    /// Fails if the request is 4 GiB or larger.
    pub(super) fn compress(&mut self, request: &[u8]) -> io::Result<Vec<u8>> {
        match self.coding {
            Coding::Snappy => {
                let body = self.snappy.compress(request).map_err(io::Error::other)?;
                Ok(body.to_vec())
            }
            Coding::Zstd => {
                let context = match self.zstd.take() {
                    Some(context) => context,
                    None => bulk::Compressor::new(LEVEL)?,
                };
                self.block.clear();
                self.block.reserve(compress_bound(request.len()));
                self.zstd.insert(context).compress_to_buffer(request, &mut self.block)?;
                Ok(self.block.clone())
            }
            Coding::Gzip => {
                let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::fast());
                encoder.write_all(request)?;
                let mut body = encoder.finish()?;
                body.shrink_to_fit();
                Ok(body)
            }
            Coding::Plain => Ok(request.to_vec()),
        }
    }
}

impl fmt::Debug for Compressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compressor").field("coding", &self.coding).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_come_back_up_to_the_limit() {
        // If the zstd window were as large as this request, HTTP readers would not have to support
        // it.
        let long: Vec<u8> = (0..10 << 20_u32).map(|n| (n / 999) as u8).collect();
        for coding in [Coding::Snappy, Coding::Zstd, Coding::Gzip, Coding::Plain] {
            let mut compressor = Compressor::new(coding);
            for request in [&b"abc"[..], &long, b"", &[7; 1000]] {
                let body = compressor.compress(request).unwrap();
                let read = |limit| coding.uncompress(&body, limit);
                assert_eq!(read(request.len()).unwrap(), request);
                assert!(request.is_empty() || read(request.len() - 1).is_err(), "{coding:?}");
                let is_whole = body.is_empty() || coding == Coding::Plain;
                let is_cut = || coding.uncompress(&body[..body.len() - 1], request.len()).is_err();
                assert!(is_whole || is_cut());
            }
        }
    }
}
