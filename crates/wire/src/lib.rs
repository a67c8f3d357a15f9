#![doc = include_str!("../README.md")]
#![no_std]
// Each format takes some of what they share.
#![cfg_attr(not(feature = "all"), allow(dead_code, unused_imports, unused_macros))]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod any;
mod copy;
mod error;
mod format;
mod formats;
mod message;
mod pieces;
#[cfg(feature = "quipu")]
mod quipu;
mod reader;
mod stream;
mod values;

pub use any::{AnyDecoder, AnyEncoder, AnyFormat};
pub use error::Error;
pub use format::Format;
pub use formats::*;
pub use message::{BatchTimer, Counter, Gauge, Kind, Message, Metric, MetricType, MetricUnion};
#[cfg(feature = "quipu")]
pub use quipu::{Series, StreamReader, StreamWriter};
pub use stream::{Decoder, Encoder, Framing};
