//! Tests of totals in Redis, with real servers: each test starts its own.

#![cfg(all(feature = "redis", target_os = "linux"))]
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

mod faults;
mod kills;
mod server;
mod totals;

use std::path::Path;
use std::time::{Duration, Instant};

use quipu::Registry;
use quipu_store::redis::{RedisOptions, RedisStore};

/// The timeout after which a test fails.
const PATIENCE: Duration = Duration::from_secs(120);

/// Options with short intervals, but long timeouts, because a busy machine can respond late.
fn options(url: &str) -> RedisOptions {
    RedisOptions::new(url)
        .interval(Duration::from_millis(20))
        .dead_after(Duration::from_secs(30))
        .timeout(PATIENCE)
        .max_backoff(Duration::from_millis(100))
}

/// Opens a store whose counts are in this file.
fn machine(options: RedisOptions, path: &Path) -> RedisStore {
    options.open_with_registry(Registry::open(path).unwrap()).unwrap()
}

fn flush(store: &RedisStore) {
    store.flush(PATIENCE).unwrap();
}

/// Returns the sum over all series of a metric, of all instances.
fn total(store: &RedisStore, name: &str) -> f64 {
    let total = store.totals().read_one(name).unwrap();
    let parts = total.map(|total| total.samples).unwrap_or_default();
    parts.iter().map(|part| part.value.as_f64()).sum()
}

/// Waits until a condition holds.
#[track_caller]
fn eventually(condition: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "not within {PATIENCE:?}: {condition}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
