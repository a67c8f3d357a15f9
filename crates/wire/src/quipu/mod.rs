//! quipu's own format. If you look for single messages, see `message.rs`; for streams, see
//! `stream`. `docs/formats.md` draws every byte.

mod id;
mod message;
mod number;
mod stream;
mod values;

pub use message::{Quipu, QuipuCompact};
pub use stream::{StreamReader, StreamSeries, StreamWriter};
