//! Streams in quipu's own format: frames, in which an id is sent once, and then a number for it.
//!
//! ```text
//! frame    0  fc 71 77   begins a frame
//!          3  version    1
//!          4  flags      1: the dictionary restarts; a reader can join here. Others are 0.
//!          5  00 00 00
//!          8  sequence   u32, one more than in the frame before; 0 begins a stream
//!         12  length     u32, of the messages in bytes
//!         16  count      u32, of messages
//!         20  checksum   u32, CRC-32 (IEEE) of the bytes 4 to 19 and of the messages
//!         24  messages
//!
//! message  number of the series, a whole number; the next unused one defines a series:
//!            kind (1 byte), length of the prefix shared with the id defined before (1 byte),
//!            length of the rest of the id (varint), the rest
//!          body
//! ```
//!
//! A series has one kind, and remembers its last value: 0 with 0 places when it is defined.
//!
//! ```text
//! counter      00..bf, c0..cf  the difference from the last value, as a whole number
//!              e0..e7, e8..ef  the value itself, positive or negative, as c0..cf
//! gauge        00..bf, c0..c7  with the places of the last value: the difference of the whole
//!                              numbers, 0, -1, 1, -2, ... as 0, 1, 2, 3, ...
//!              d0..d8          0 to 8 places, and the whole number that follows
//!              f0..f8          the top bytes of the double; the last value stays
//! batch timer  values
//! union        as in a message that stands alone
//! ```
//!
//! A dictionary has at most 2^20 series and 64 MiB of ids; a writer restarts it before that.

mod body;
mod frame;
mod reader;
mod writer;

pub use reader::StreamReader;
pub use writer::{Series, StreamWriter};

/// The most series of a dictionary.
const MAX_SERIES: usize = 1 << 20;
/// The most bytes of its ids.
const MAX_IDS: usize = 64 << 20;
