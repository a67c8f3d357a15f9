//! The module that code with a loom model imports its atomics from. All crates use it except the
//! arena, which has a separate one.
//!
//! `--cfg loom` swaps the atomics for loom's, which cannot be in a mapped file. A model therefore
//! gets its cells from `Cells::private`, which exists only under loom.

#[cfg(loom)]
pub use loom::sync::Arc;
#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU64, Ordering, fence};

#[cfg(not(loom))]
pub use std::sync::Arc;
#[cfg(not(loom))]
pub use std::sync::atomic::{AtomicU64, Ordering, fence};
