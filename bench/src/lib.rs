//! Benchmarks of quipu and its peers.
//!
//! A benchmark is a binary of this crate, for example `counting`. You can time subjects with
//! [`measure`] (code in this process), [`peer`] (programs in other languages) or [`server`] (HTTP
//! servers under load). The crate `quipu-bench-report` stores the figures, and generates the pages
//! of `docs/benchmarks`.

pub mod agent;
pub mod arena;
pub mod counting;
pub mod daemon;
pub mod divan_table;
pub mod measure;
pub mod memory;
pub mod peer;
pub mod progress;
pub mod scale;
pub mod server;
pub mod stores;
pub mod turns;
pub mod wire;

pub use quipu_bench_report::{Error, Result, error, machine, output, profile, record, root};

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
