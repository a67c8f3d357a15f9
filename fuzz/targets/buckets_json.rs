//! Loads arbitrary bytes as the JSON of a bucketed counter. Accepted input is saved and loaded
//! again.

#![no_main]

#[path = "../fixed_seed.rs"]
mod fixed_seed;

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use quipu_segment::clock::TestClock;
use quipu_window::{BucketedWindow, SlidingWindow};

fuzz_target!(|input: &[u8]| {
    let clock = TestClock::from_nanos(1_700_000_000_000_000_000);
    let (window, accuracy) = (Duration::from_secs(60), Duration::from_millis(200));
    let mut counter =
        BucketedWindow::options(window, accuracy).build_with_clock(clock).expect("a sound window");
    counter.add(7);
    match counter.load(&mut &input[..]) {
        Err(_) => assert_eq!(counter.count(), 7, "a refused file changes nothing"),
        Ok(loaded) => {
            assert_eq!(counter.count(), loaded.counted);
            let mut saved = Vec::new();
            counter.save(&mut saved).expect("memory takes everything");
            let again = counter.load(&mut &saved[..]).expect("our own form");
            assert_eq!((again.counted, again.expired, again.future), (loaded.counted, 0, 0));
        }
    }
});
