#![doc = include_str!("../README.md")]
#![no_std]

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
pub use quipu::{Quipu, QuipuCompact, Series, StreamReader, StreamWriter};
pub use stream::{Decoder, Encoder, Framing};
