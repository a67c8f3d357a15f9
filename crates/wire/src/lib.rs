// The examples in the README use quipu's own format.
#![cfg_attr(feature = "quipu", doc = include_str!("../README.md"))]
#![cfg_attr(not(feature = "quipu"), doc = "Metrics on the wire.")]
#![no_std]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(missing_debug_implementations)]
// A build with few formats does not use all of the shared code.
#![cfg_attr(not(feature = "all"), allow(dead_code, unreachable_pub, unused_imports, unused_macros))]

extern crate alloc;
#[cfg(any(feature = "std", test))]
extern crate std;

mod any;
#[cfg(feature = "json")]
mod base64;
mod copy;
mod error;
mod format;
mod formats;
#[cfg(any(feature = "exposition", feature = "quipu", feature = "remote-write"))]
mod hash;
mod message;
#[cfg(any(feature = "hprose", feature = "json"))]
mod number;
mod pieces;
#[cfg(any(
    feature = "exposition",
    feature = "otlp",
    feature = "protobuf",
    feature = "remote-write"
))]
mod protobuf;
#[cfg(feature = "quipu")]
mod quipu;
mod reader;
#[cfg(any(
    feature = "exposition",
    feature = "graphite",
    feature = "influx",
    feature = "otlp",
    feature = "remote-write",
    feature = "snappy",
    feature = "statsd"
))]
pub mod remote;
mod stream;
mod values;

pub use any::{AnyDecoder, AnyEncoder, AnyFormat, UnknownName};
pub use error::Error;
pub use format::Format;
pub use formats::*;
pub use message::{BatchTimer, Counter, Gauge, Kind, Message, Metric, MetricType, MetricUnion};
#[cfg(feature = "quipu")]
pub use quipu::{StreamReader, StreamSeries, StreamWriter};
/// The arena for decoded messages.
pub use quipu_arena as arena;
pub use stream::{Decoder, Encoder, Framing};
