//! Metrics that count at the speed of memory.

pub mod snapshot;
