//! How requests are compressed.
//!
//! The specification of remote write has Snappy alone. With zstd, a request has a fraction of these
//! bytes: VictoriaMetrics takes it from its agents, and the daemon from other daemons.

use std::fmt;
use std::io::{self, Read};

use clap::ValueEnum;
use quipu_wire::remote;
use serde::{Deserialize, Serialize};
use zstd::bulk;
use zstd::zstd_safe::compress_bound;

use quipu_process::decoders::zstd_decoder;

/// How requests are compressed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Coding {
    /// With Snappy, as every receiver takes it.
    #[default]
    Snappy,
    /// With zstd, as VictoriaMetrics and other daemons take it.
    Zstd,
}

/// Compresses one request after the other. It keeps its memory for the next one.
#[derive(Default)]
pub(super) struct Compressor {
    coding: Coding,
    snappy: remote::Compressor,
    /// Is made for the first request.
    zstd: Option<bulk::Compressor<'static>>,
    /// The last request that was compressed with zstd.
    block: Vec<u8>,
}

/// The level of zstd.
const LEVEL: i32 = 1;

impl Coding {
    /// Its name in `Content-Encoding`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Snappy => "snappy",
            Self::Zstd => "zstd",
        }
    }

    /// The bytes that a request was compressed from, at most `limit`.
    ///
    /// # Errors
    /// If there are more, or if the request is damaged.
    pub(super) fn uncompress(self, request: &[u8], limit: usize) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        match self {
            Self::Snappy => {
                remote::uncompress(request, limit, &mut out).map_err(io::Error::other)?;
            }
            Self::Zstd => {
                let most = u64::try_from(limit).unwrap_or(u64::MAX);
                zstd_decoder(request)?.take(most.saturating_add(1)).read_to_end(&mut out)?;
                if out.len() > limit {
                    return Err(io::ErrorKind::FileTooLarge.into());
                }
            }
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

    /// The body of a request.
    ///
    /// # Errors
    /// If there are 4 GiB or more.
    pub(super) fn compress(&mut self, request: &[u8]) -> io::Result<&[u8]> {
        if self.coding == Coding::Snappy {
            return self.snappy.compress(request).map_err(io::Error::other);
        }
        let context = match self.zstd.take() {
            Some(context) => context,
            None => bulk::Compressor::new(LEVEL)?,
        };
        self.block.clear();
        self.block.reserve(compress_bound(request.len()));
        self.zstd.insert(context).compress_to_buffer(request, &mut self.block)?;
        Ok(&self.block)
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
        // Of a window that readers of zstd in HTTP need not have, if it were that of the request.
        let long: Vec<u8> = (0..10 << 20_u32).map(|n| (n / 999) as u8).collect();
        for coding in [Coding::Snappy, Coding::Zstd] {
            let mut compressor = Compressor::new(coding);
            for request in [&b"abc"[..], &long, b"", &[7; 1000]] {
                let body = compressor.compress(request).unwrap();
                let read = |limit| coding.uncompress(body, limit);
                assert_eq!(read(request.len()).unwrap(), request);
                assert!(request.is_empty() || read(request.len() - 1).is_err(), "{coding:?}");
                let cut = &body[..body.len() - 1];
                assert!(cut.is_empty() || coding.uncompress(cut, request.len()).is_err());
            }
        }
    }
}
