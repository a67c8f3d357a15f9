//! The flight recorder: a ring inside of the segment that keeps the series of the last ticks.
//! Because the ring is part of the segment, it survives a SIGKILL, and you can read it from outside
//! with [`Inspection::history`](crate::inspect::Inspection::history).
//!
//! ```text
//!  record FREC/1: | head | chunk | chunk | chunk | ... |     a chunk starts over when all are full
//!  chunk:         | head | frame | frame | frame | ... |     COMMITTED says up to where
//!  frame:         | HEAD TIME COUNTS | series | codes  |     the first frame of a chunk is a key
//! ```
//!
//! One process writes (`recorder.rs`), and another one takes over when it dies. A frame
//! (`frame.rs`) is one tick: the changes of the list of series, and a code (`code.rs`) for the
//! change of each cell. `ring.rs` publishes a frame with one store, and `replay.rs` reads the ring.
//! `docs/formats.md` draws all words.

#[cfg(not(loom))]
mod code;
#[cfg(not(loom))]
mod frame;
#[cfg(not(loom))]
mod recorder;
#[cfg(not(loom))]
mod replay;
#[cfg_attr(loom, allow(dead_code, unreachable_pub, reason = "a model uses a part of it"))]
mod ring;

#[cfg(not(loom))]
pub use frame::SeriesId;
#[cfg(not(loom))]
pub use recorder::{Options, Recorder};
#[cfg(not(loom))]
pub use replay::{RecordingInfo, Tick, replay};

#[cfg(all(unix, not(loom)))]
pub(crate) use replay::replay_words;
#[cfg(all(unix, not(loom)))]
pub(crate) use ring::Load;

/// The kind of the flight recorder's record, whose name is empty.
#[cfg(not(loom))]
pub(crate) const HISTORY: crate::layout::Kind = crate::layout::Kind::new(*b"FREC", 1);

#[cfg(loom)]
pub mod model {
    //! The part of the ring that loom checks.
    pub use super::ring::model::Chunks;
}
