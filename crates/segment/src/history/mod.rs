//! The flight recorder: what the series of a segment were, tick by tick, in a ring inside of the
//! segment. It is there after a SIGKILL, and is read from outside, by
//! [`Inspection::history`](crate::inspect::Inspection::history).
//!
//! ```text
//!  record FREC/1: | head | chunk | chunk | chunk | ... |     a chunk starts over when all are full
//!  chunk:         | head | frame | frame | frame | ... |     COMMITTED says up to where
//!  frame:         | HEAD TIME COUNTS | series | codes  |     the first frame of a chunk is a key
//! ```
//!
//! One process writes (`recorder.rs`), others take over when it dies. A frame (`frame.rs`) is a
//! tick: the changes of the list of series, and the codes (`code.rs`) of how each cell changed.
//! `ring.rs` publishes it by one store; `replay.rs` reads. `docs/formats.md` draws all of it.

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

/// The record of the flight recorder; its name is empty.
#[cfg(not(loom))]
pub(crate) const HISTORY: crate::layout::Kind = crate::layout::Kind::new(*b"FREC", 1);

#[cfg(loom)]
pub mod model {
    //! The part that loom checks.
    pub use super::ring::model::Chunks;
}
