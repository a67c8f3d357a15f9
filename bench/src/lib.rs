//! Benchmarks of quipu and its peers.
//!
//! A benchmark is a binary of this crate. It times subjects with [`measure`] (code in this
//! process), [`peer`] (programs in other languages) or [`server`] (HTTP servers under load). It
//! writes one [`record::Record`] per figure to `docs/benchmarks/NAME.jsonl` through
//! [`output::Output`], and the [`machine::Machine`] to a file next to it. [`report`] generates the
//! tables and plots of `docs/benchmarks/NAME.md` from these two files and the text of
//! `bench/reports/NAME.md`, and from nothing else: the figures of every table can be looked up.

pub mod agent;
pub mod arena;
pub mod counting;
pub mod daemon;
pub mod divan_table;
pub mod error;
pub mod machine;
pub mod measure;
pub mod memory;
pub mod output;
pub mod peer;
pub mod profile;
pub mod progress;
pub mod record;
pub mod report;
pub mod scale;
pub mod server;
pub mod stores;
pub mod turns;
pub mod wire;

pub use error::{Error, Result};

/// The root of the repository that this crate was built from.
pub fn root() -> &'static std::path::Path {
    let bench = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    bench.parent().unwrap_or(bench)
}

/// The exit code of a benchmark. An error is written to standard error.
pub fn end(name: &str, result: Result<()>) -> std::process::ExitCode {
    match result {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{name}: {error}");
            std::process::ExitCode::FAILURE
        }
    }
}
