//! Regression tests for faults of earlier counters, which must not happen here:
//! `derlaft/ratecounter`, `paulbellamy/ratecounter` and `pingora-limits`.
//!
//! In the comments, *there* means in one of those counters.

#![cfg(not(loom))]
#![allow(clippy::unwrap_used)]

use std::fs;
use std::time::Duration;

use quipu_window::clock::{Clock, CoarseClock, TestClock};
use quipu_window::{
    BucketedWindow, ConstantWindow, ExactWindow, SlidingWindow, load_file, save_file,
};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const ACCURACY: Duration = Duration::from_millis(200);
const START: u64 = 1_700_000_000_000_000_000;

fn minute() -> (BucketedWindow<TestClock>, TestClock) {
    let clock = TestClock::from_nanos(START);
    (BucketedWindow::options(MINUTE, ACCURACY).build_with_clock(clock.clone()).unwrap(), clock)
}

/// The number of events in a full window.
const FILLED: u64 = if cfg!(miri) { 3_000 } else { 30_000 };

/// Fills every bucket of the minute with a hundred events.
fn filled() -> (BucketedWindow<TestClock>, TestClock) {
    let (counter, clock) = minute();
    for _ in 0..FILLED / 100 {
        clock.advance(ACCURACY);
        counter.add(100);
    }
    (counter, clock)
}

#[test]
fn all_expired_buckets_leave_at_once() {
    // There, a count removed only every second expired bucket: 150 stayed, then 75, then 37.
    let (counter, clock) = filled();
    assert_eq!(counter.count(), FILLED);
    clock.advance(MINUTE + ACCURACY);
    assert_eq!(counter.count(), 0);
}

#[test]
fn a_restart_after_a_day_begins_at_nothing() {
    // There, the first request got the count 7501.
    let (counter, clock) = filled();
    let mut saved = Vec::new();
    counter.save(&mut saved).unwrap();
    clock.advance(SECOND * 86_400);
    let mut restarted =
        BucketedWindow::options(MINUTE, ACCURACY).build_with_clock(clock.clone()).unwrap();
    let loaded = restarted.load(&mut &saved[..]).unwrap();
    assert_eq!((loaded.counted, loaded.expired), (0, FILLED));
    assert_eq!(restarted.add_and_count(1), 1);
    assert_eq!(restarted.add_and_count(1), 2);
}

#[test]
fn an_empty_window_is_saved_as_one() {
    // There, the old file stayed, with its events.
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state");
    let (mut counter, clock) = filled();
    save_file(&counter, &path).unwrap();
    clock.advance(MINUTE * 2);
    save_file(&counter, &path).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"[]");
    assert_eq!(load_file(&mut counter, &path).unwrap().counted, 0);
}

#[test]
fn the_wall_clock_may_be_set_back() {
    // There, no event expired until the wall clock caught up.
    let (counter, clock) = filled();
    clock.set_unix(START - 3_600_000_000_000);
    clock.advance(MINUTE + ACCURACY);
    assert_eq!(counter.count(), 0);
    assert_eq!(counter.add_and_count(1), 1);
}

#[test]
fn events_of_the_future_are_omitted_and_named() {
    // There, a saved state that was an hour ahead froze 30,000 events for an hour.
    let (counter, clock) = filled();
    let mut saved = Vec::new();
    counter.save(&mut saved).unwrap();
    clock.set_unix(START - 3_600_000_000_000);
    let mut restarted =
        BucketedWindow::options(MINUTE, ACCURACY).build_with_clock(clock.clone()).unwrap();
    let loaded = restarted.load(&mut &saved[..]).unwrap();
    assert_eq!((loaded.counted, loaded.future), (0, FILLED));
    assert_eq!(restarted.count(), 0);
}

#[test]
fn loading_twice_does_not_double() {
    let (mut counter, _) = minute();
    counter.inc();
    let mut saved = Vec::new();
    counter.save(&mut saved).unwrap();
    for _ in 0..2 {
        counter.load(&mut &saved[..]).unwrap();
        assert_eq!(counter.count(), 1);
    }
}

#[test]
fn another_accuracy_is_noticed() {
    // There, a file saved with 200 ms and loaded with 400 ms was 57 years ahead, permanently.
    let (counter, clock) = filled();
    let mut saved = Vec::new();
    counter.save(&mut saved).unwrap();
    for (accuracy, side) in [(ACCURACY * 2, "after"), (ACCURACY / 2, "before")] {
        let mut other =
            BucketedWindow::options(MINUTE, accuracy).build_with_clock(clock.clone()).unwrap();
        other.add(5);
        let message = other.load(&mut &saved[..]).unwrap_err().to_string();
        assert!(message.contains(side), "{message}");
        assert!(message.contains("load it with the accuracy that it was saved with"), "{message}");
        assert_eq!(other.count(), 5, "a refused file must change nothing");
    }
}

#[test]
fn torn_and_foreign_files_are_errors_that_name_the_file() {
    // There, `[null]` caused a panic, and half a file made the start fail.
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state");
    let (mut counter, _) = filled();
    save_file(&counter, &path).unwrap();
    let whole = fs::read(&path).unwrap();
    let torn = &whole[..whole.len() / 2];
    let cases: [&[u8]; 8] = [
        torn,
        b"[null]",
        b"{}",
        b"[{\"Timeint\":-5,\"Count\":1}]",
        b"[{\"Timeint\":5,\"Count\":-1}]",
        b"[{\"Timeint\":5}]",
        b"\xff\xff",
        b"[{\"Timeint\":18446744073709551616,\"Count\":1}]",
    ];
    for bytes in cases {
        fs::write(&path, bytes).unwrap();
        let error = load_file(&mut counter, &path).unwrap_err();
        assert!(error.is_malformed() && error.path() == Some(path.as_path()));
        let message = error.to_string();
        assert!(message.contains(&path.display().to_string()), "{message}");
        assert!(message.contains("not a saved counter"), "{message}");
        assert_eq!(counter.count(), FILLED);
        assert_eq!(fs::read(&path).unwrap(), bytes);
    }
    // Counts whose sum overflows are an error too, not a wrong number.
    let tick = START / 200_000_000;
    let huge = format!(
        "[{{\"Timeint\":{tick},\"Count\":18446744073709551615}},{{\"Timeint\":{tick},\"Count\":1}}]"
    );
    assert!(counter.load(&mut huge.as_bytes()).unwrap_err().to_string().contains("2^64"));
}

#[test]
fn a_missing_or_empty_file_holds_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state");
    let (mut counter, _) = filled();
    assert_eq!(load_file(&mut counter, &path).unwrap().counted, 0);
    assert_eq!(counter.count(), 0);
    fs::write(&path, "").unwrap();
    assert_eq!(load_file(&mut counter, &path).unwrap().counted, 0);
}

#[test]
fn negative_and_senseless_durations_are_errors() {
    // There, a negative window was accepted, and panicked later.
    for (window, accuracy) in [
        (Duration::ZERO, ACCURACY),
        (MINUTE, Duration::ZERO),
        (ACCURACY, MINUTE),
        (SECOND, Duration::from_millis(300)),
        (Duration::MAX, ACCURACY),
        (MINUTE, Duration::from_nanos(1)),
    ] {
        assert!(BucketedWindow::new(window, accuracy).is_err(), "{window:?} {accuracy:?}");
    }
    assert!(ConstantWindow::new(Duration::ZERO).is_err());
    assert!(ConstantWindow::new(Duration::from_nanos(19)).is_err());
    assert!(ConstantWindow::with_clock(SECOND, 0, CoarseClock::new()).is_err());
    assert!(ExactWindow::new(Duration::ZERO).is_err());
    assert!(ExactWindow::new(Duration::MAX).is_err());
    let over = BucketedWindow::new(SECOND, ACCURACY).unwrap().count_over(MINUTE).unwrap_err();
    assert!(over.is_over_span(), "{over}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_write_error_is_reported() {
    // There, saving to a full device succeeded.
    let exact = ExactWindow::new(MINUTE).unwrap();
    exact.add(100_000);
    let mut full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    assert!(exact.save(&mut full).unwrap_err().is_io());
    let (bucketed, _) = filled();
    assert!(bucketed.save(&mut full).unwrap_err().is_io());
}

#[cfg(not(miri))]
#[test]
fn memory_shrinks_when_events_expire() {
    // There, 17 MB stayed allocated at a count of zero.
    let clock = TestClock::from_nanos(START);
    let exact = ExactWindow::with_clock(SECOND, clock.clone()).unwrap();
    for _ in 0..200_000 {
        clock.advance(Duration::from_nanos(1000));
        exact.inc();
    }
    let full = exact.bytes();
    clock.advance(MINUTE);
    assert_eq!(exact.count(), 0);
    assert!(exact.bytes() < full / 5, "{} of {full} bytes", exact.bytes());
}

#[test]
fn times_that_are_not_in_order_are_sorted() {
    // There, a clock that went back broke the binary search.
    let clock = TestClock::from_nanos(START);
    let mut exact = ExactWindow::with_clock(MINUTE, clock.clone()).unwrap();
    let offsets: [i64; 5] = [-3_000_000_000, -1, -5_000_000_000, 7_000, -61_000_000_000];
    let saved: Vec<u8> = offsets
        .iter()
        .flat_map(|offset| (START as i64 + offset).to_le_bytes())
        .chain([1, 2, 3])
        .collect();
    let loaded = exact.load(&mut &saved[..]).unwrap();
    assert_eq!((loaded.counted, loaded.expired, loaded.future, loaded.ragged_bytes), (3, 1, 1, 3));
    assert_eq!(exact.count_over(SECOND * 4).unwrap(), 2);
    let mut again = Vec::new();
    exact.save(&mut again).unwrap();
    let times: Vec<i64> = again
        .chunks_exact(8)
        .map(|bytes| i64::from_le_bytes(bytes.try_into().unwrap()) - START as i64)
        .collect();
    assert_eq!(times, [-5_000_000_000, -3_000_000_000, -1]);
}

#[test]
fn each_caller_gets_a_number_of_its_own() {
    // There, two requests could get the same number, and a number could be skipped.
    let counter = BucketedWindow::options(MINUTE, ACCURACY).tickets().build().unwrap();
    let mut numbers: Vec<u64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    (0..if cfg!(miri) { 20 } else { 5000 })
                        .map(|_| counter.add_and_count(1))
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    numbers.sort_unstable();
    let all = numbers.len() as u64;
    assert_eq!(numbers, (1..=all).collect::<Vec<_>>());
}

#[test]
fn a_window_as_wide_as_its_accuracy_works() {
    // There, each call allocated; in another of them, windows of one bucket panicked.
    let clock = TestClock::from_nanos(START);
    let counter = BucketedWindow::options(SECOND, SECOND).build_with_clock(clock.clone()).unwrap();
    counter.add(3);
    clock.advance(SECOND);
    assert_eq!(counter.add_and_count(1), 4);
    clock.advance(SECOND);
    assert_eq!(counter.count(), 1);
    clock.advance(SECOND);
    assert_eq!(counter.count(), 0);
}

#[test]
fn a_total_comes_back_to_nothing() {
    // There, a race between value and reset left up to 21 events in the total permanently.
    let clock = TestClock::from_nanos(START);
    let counter = ConstantWindow::with_clock(Duration::from_nanos(20), 20, clock.clone()).unwrap();
    let rounds = if cfg!(miri) { 20 } else { 20_000 };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| (0..rounds).for_each(|_| counter.inc()));
        }
        for _ in 0..rounds {
            clock.advance(Duration::from_nanos(1));
            counter.count();
        }
    });
    clock.advance(Duration::from_nanos(21));
    assert_eq!(counter.count(), 0);
}

#[test]
fn no_threads_are_started() {
    // There, each active counter used a goroutine.
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        let threads = || fs::read_dir("/proc/self/task").unwrap().count();
        let before = threads();
        let counters: Vec<_> = (0..1000).map(|_| ConstantWindow::new(SECOND).unwrap()).collect();
        counters.iter().for_each(|counter| counter.inc());
        // Other tests of this binary start threads too, but not hundreds.
        assert!(threads() < before + 100);
    }
}

#[test]
fn a_clock_that_is_read_before_another_thread_moves_on_does_no_harm() {
    // There, the difference of two clock readings in the wrong order underflowed.
    let (counter, clock) = filled();
    let early = clock.now();
    clock.advance(MINUTE * 5);
    counter.add_at(clock.now(), 7);
    counter.add_at(early, 1);
    assert_eq!(counter.count_at(early), 8);
    assert_eq!(counter.count(), 8);
}
