//! quipu's own format. See `message.rs` for single messages and `stream` for streams.
//! `docs/formats.md` draws every byte.

mod id;
mod message;
mod number;
mod stream;
mod values;

pub use message::{Quipu, QuipuCompact};
pub use stream::{StreamReader, StreamSeries, StreamWriter};
