//! The records of benchmarks, and the pages that are generated from them.
//!
//! A benchmark writes one [`record::Record`] per figure to `docs/benchmarks/NAME.jsonl` through
//! [`output::Output`], and the [`machine::Machine`] to a separate file. Only these two files, the
//! [`counts`] of instructions and `bench/reports/NAME.md` are the input of [`report`], because each
//! figure in a page must have a record.
//!
//! This crate does not depend on the peers, because `make lint` compares all pages with their
//! records.

pub mod counts;
pub mod error;
pub mod machine;
pub mod output;
pub mod profile;
pub mod record;
pub mod report;

pub use error::{Error, Result};

/// The root of the repository that this crate was built from.
pub fn root() -> &'static std::path::Path {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    folder.ancestors().nth(2).unwrap_or(folder)
}
