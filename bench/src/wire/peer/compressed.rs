//! Formats of quipu with a general-purpose compressor for each block of messages: the usual choice
//! to save bytes without a format for streams.
//!
//! Each block is compressed by itself, except with `zstd-1 (one stream)`, whose compressor
//! continues from block to block and can refer to earlier ones, like on a connection.

use std::io::Write;

use quipu_wire::{Format, Kind, Message};

use crate::wire::contender::{Block, Stream};
use crate::wire::ours::OurStream;
use crate::wire::sink::Sink;

/// A compressor.
pub(in super::super) trait Compressor: Default {
    /// Its name in the labels.
    const NAME: &'static str;

    /// Appends a compressed block to a buffer.
    fn compress(&mut self, block: &[u8], out: &mut Vec<u8>);

    /// Decompresses a block to an empty buffer.
    fn decompress(&mut self, input: &[u8], out: &mut Vec<u8>);
}

/// A format with a compressor.
pub(in super::super) struct Compressed<F: Format, C> {
    stream: OurStream<F>,
    compressor: C,
    block: Vec<u8>,
}

impl<F: Format, C: Compressor> Compressed<F, C> {
    /// Its name in the labels.
    pub(in super::super) fn subject() -> String {
        format!("{}+{}", F::NAME, C::NAME)
    }

    pub(in super::super) fn new(kind: Kind) -> Self {
        Compressed { stream: OurStream::new(kind), compressor: C::default(), block: Vec::new() }
    }
}

impl<F: Format, C: Compressor> Stream for Compressed<F, C> {
    type Messages<'m> = Vec<Message<'m>>;

    fn prepare<'m>(&mut self, block: &Block<'m>) -> Vec<Message<'m>> {
        self.stream.prepare(block)
    }

    fn write(&mut self, messages: &Vec<Message<'_>>, out: &mut Vec<u8>) {
        self.block.clear();
        self.stream.write(messages, &mut self.block);
        self.compressor.compress(&self.block, out);
    }

    fn read(&mut self, input: &[u8], sink: &mut impl Sink) {
        self.block.clear();
        self.compressor.decompress(input, &mut self.block);
        self.stream.read(&self.block, sink);
    }
}

/// More bytes than in any block here.
const ROOM: usize = 1 << 20;

/// zstd at level 1, for single blocks.
pub(in super::super) struct Zstd {
    compressor: zstd::bulk::Compressor<'static>,
    decompressor: zstd::bulk::Decompressor<'static>,
}

impl Default for Zstd {
    fn default() -> Self {
        Zstd {
            compressor: zstd::bulk::Compressor::new(1).expect("zstd has memory"),
            decompressor: zstd::bulk::Decompressor::new().expect("zstd has memory"),
        }
    }
}

impl Compressor for Zstd {
    const NAME: &'static str = "zstd-1";

    fn compress(&mut self, block: &[u8], out: &mut Vec<u8>) {
        out.reserve(zstd::zstd_safe::compress_bound(block.len()));
        self.compressor.compress_to_buffer(block, out).expect("there is room");
    }

    fn decompress(&mut self, input: &[u8], out: &mut Vec<u8>) {
        out.reserve(ROOM);
        self.decompressor.decompress_to_buffer(input, out).expect("it was compressed");
    }
}

/// zstd at level 1, for one stream that is flushed at the end of each block.
pub(in super::super) struct ZstdStream {
    compressor: zstd::stream::write::Encoder<'static, Vec<u8>>,
    decompressor: zstd::stream::write::Decoder<'static, Vec<u8>>,
}

impl Default for ZstdStream {
    fn default() -> Self {
        let (compressor, decompressor) = (
            zstd::stream::write::Encoder::new(Vec::new(), 1),
            zstd::stream::write::Decoder::new(Vec::new()),
        );
        ZstdStream {
            compressor: compressor.expect("zstd has memory"),
            decompressor: decompressor.expect("zstd has memory"),
        }
    }
}

impl Compressor for ZstdStream {
    const NAME: &'static str = "zstd-1 (one stream)";

    fn compress(&mut self, block: &[u8], out: &mut Vec<u8>) {
        std::mem::swap(self.compressor.get_mut(), out);
        self.compressor.write_all(block).and_then(|()| self.compressor.flush()).expect("it fits");
        std::mem::swap(self.compressor.get_mut(), out);
    }

    fn decompress(&mut self, input: &[u8], out: &mut Vec<u8>) {
        std::mem::swap(self.decompressor.get_mut(), out);
        self.decompressor
            .write_all(input)
            .and_then(|()| self.decompressor.flush())
            .expect("it fits");
        std::mem::swap(self.decompressor.get_mut(), out);
    }
}

/// LZ4, for single blocks.
#[derive(Default)]
pub(in super::super) struct Lz4;

impl Compressor for Lz4 {
    const NAME: &'static str = "lz4";

    fn compress(&mut self, block: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + lz4_flex::block::get_maximum_output_size(block.len()), 0);
        let len = lz4_flex::block::compress_into(block, &mut out[start..]).expect("there is room");
        out.truncate(start + len);
    }

    fn decompress(&mut self, input: &[u8], out: &mut Vec<u8>) {
        out.resize(ROOM, 0);
        let len = lz4_flex::block::decompress_into(input, out).expect("it was compressed");
        out.truncate(len);
    }
}

/// Snappy, for single blocks.
pub(in super::super) struct Snappy {
    compressor: snap::raw::Encoder,
    decompressor: snap::raw::Decoder,
}

impl Default for Snappy {
    fn default() -> Self {
        let (compressor, decompressor) = (snap::raw::Encoder::new(), snap::raw::Decoder::new());
        Snappy { compressor, decompressor }
    }
}

impl Compressor for Snappy {
    const NAME: &'static str = "snappy";

    fn compress(&mut self, block: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + snap::raw::max_compress_len(block.len()), 0);
        let len = self.compressor.compress(block, &mut out[start..]).expect("there is room");
        out.truncate(start + len);
    }

    fn decompress(&mut self, input: &[u8], out: &mut Vec<u8>) {
        out.resize(snap::raw::decompress_len(input).expect("it was compressed"), 0);
        self.decompressor.decompress(input, out).expect("it was compressed");
    }
}
