//! Loads arbitrary bytes as the times of an exact counter. They are saved and loaded again.

#![no_main]

#[path = "../fixed_seed.rs"]
mod fixed_seed;

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use quipu_segment::clock::TestClock;
use quipu_window::{ExactWindow, SlidingWindow};

fuzz_target!(|input: &[u8]| {
    let clock = TestClock::from_nanos(1_700_000_000_000_000_000);
    let mut counter =
        ExactWindow::with_clock(Duration::from_secs(60), clock).expect("a sound window");
    let loaded = counter.load(&mut &input[..]).expect("any bytes are times");
    let events = loaded.counted + loaded.expired + loaded.future;
    assert_eq!(events * 8 + loaded.ragged_bytes, input.len() as u64);
    assert_eq!(counter.count(), loaded.counted);
    let mut saved = Vec::new();
    counter.save(&mut saved).expect("memory takes everything");
    assert_eq!(saved.len() as u64, loaded.counted * 8);
    let again = counter.load(&mut &saved[..]).expect("our own form");
    assert_eq!(again.counted, loaded.counted);
});
