//! Families and series: the second storey of a segment.

mod key;
mod strings;

pub use key::KeyWriter;
pub use strings::StringSet;
