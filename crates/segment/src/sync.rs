//! The module from which code with a loom model imports its atomics, in all crates but the arena,
//! which has its own.
//!
//! `--cfg loom` swaps them for loom's. Those cannot lie in a mapped file, so a model gets its cells
//! from `Cells::private`, which exists only under loom.

#[cfg(loom)]
pub use loom::sync::Arc;
#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU64, Ordering, fence};

#[cfg(not(loom))]
pub use std::sync::Arc;
#[cfg(not(loom))]
pub use std::sync::atomic::{AtomicU64, Ordering, fence};
