//! The recorded instruction counts, and their tables. The crate `quipu-bench-counts` counts.
//!
//! The counts of the arena and its peers are in `arena-counts.jsonl`, and the counts of
//! quipu's hottest operations in `hottest.jsonl`.

pub mod figures;
pub mod hottest;
pub mod table;

use std::path::{Path, PathBuf};

/// The path of the arena's counts.
pub fn arena_path(folder: &Path) -> PathBuf {
    folder.join("arena-counts.jsonl")
}

/// The path of the counts of the hottest operations.
pub fn hottest_path(folder: &Path) -> PathBuf {
    folder.join("hottest.jsonl")
}
