//! quipu's own format. A message that stands alone is in `message.rs`, a stream in `stream`;
//! `docs/formats.md` draws every byte.

mod id;
mod message;
mod number;
mod stream;
mod values;

pub use message::{Quipu, QuipuCompact};
pub use stream::{StreamReader, StreamSeries, StreamWriter};
