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
mod reader;
mod stream;
mod values;

pub use any::{AnyDecoder, AnyEncoder, AnyFormat};
pub use error::Error;
pub use format::Format;
pub use formats::*;
pub use message::{BatchTimer, Counter, Gauge, Kind, Message, Metric, MetricType, MetricUnion};
pub use stream::{Decoder, Encoder, Framing};
