//! The only module that atomics are imported from, so that loom can replace them in a model.
//!
//! The lock-free code of every crate here imports its atomics from this module. `--cfg loom` swaps
//! them for loom's, which cannot lie in a mapped file: a model gets its cells from
//! `Cells::private`, which exists only then.

#[cfg(loom)]
pub use loom::sync::Arc;
#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU64, Ordering, fence};

#[cfg(not(loom))]
pub use std::sync::Arc;
#[cfg(not(loom))]
pub use std::sync::atomic::{AtomicU64, Ordering, fence};
