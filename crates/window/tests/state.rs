//! Counters in a segment's file: restarts, other settings, and records with wrong contents.

#![cfg(all(unix, not(loom), not(miri)))]
#![allow(clippy::unwrap_used)]

use std::sync::atomic::Ordering;
use std::time::Duration;

use quipu_segment::{Kind, Segment};
use quipu_window::clock::{Clock, TestClock};
use quipu_window::{BucketedWindow, KeyedWindows, SlidingWindow};

const MINUTE: Duration = Duration::from_secs(60);
const ACCURACY: Duration = Duration::from_millis(200);
const START: u64 = 1_700_000_000_000_000_000;
const RING: Kind = Kind::new(*b"RING", 1);

fn counter(segment: &Segment, clock: &TestClock) -> BucketedWindow<TestClock> {
    BucketedWindow::options(MINUTE, ACCURACY)
        .build_in_with_clock(segment, "requests", clock.clone())
        .unwrap()
}

#[test]
fn a_counter_in_a_file_continues_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.quipu");
    let clock = TestClock::from_nanos(START);
    for i in 1..=5 {
        let segment = Segment::open_or_create(&path).unwrap();
        assert_eq!(segment.was_left_open(), i > 1);
        let counter = counter(&segment, &clock);
        assert_eq!(counter.add_and_count(1), i);
        clock.advance(MINUTE / 10);
    }
    let segment = Segment::open_or_create(&path).unwrap();
    clock.advance(MINUTE / 2);
    assert_eq!(counter(&segment, &clock).count(), 5);
    clock.advance(MINUTE / 3);
    assert_eq!(counter(&segment, &clock).count(), 1);
    clock.advance(MINUTE);
    assert_eq!(counter(&segment, &clock).count(), 0);
}

#[test]
fn two_handles_count_in_the_same_cells() {
    let segment = Segment::private(1 << 20).unwrap();
    let clock = TestClock::from_nanos(START);
    let (a, b) = (counter(&segment, &clock), counter(&segment, &clock));
    a.add(3);
    b.add(4);
    assert_eq!((a.count(), b.count()), (7, 7));
    a.reset();
    assert_eq!(b.count(), 0);
}

#[test]
fn other_settings_are_refused() {
    let segment = Segment::private(1 << 20).unwrap();
    let clock = TestClock::from_nanos(START);
    counter(&segment, &clock);
    for (options, message) in [
        (BucketedWindow::options(MINUTE, ACCURACY * 2), "has an accuracy of 200ms"),
        (
            BucketedWindow::options(MINUTE, ACCURACY).span(MINUTE * 2),
            "a span of 60s, not 200ms and 120s",
        ),
    ] {
        let error = options
            .build_in_with_clock(&segment, "requests", clock.clone())
            .unwrap_err()
            .to_string();
        assert!(error.contains(message), "{error}");
        assert!(error.contains("give both the same settings"), "{error}");
    }
    // A shorter window can use the same ring.
    let shorter = BucketedWindow::options(MINUTE / 2, ACCURACY).span(MINUTE);
    shorter.build_in_with_clock(&segment, "requests", clock.clone()).unwrap();
    let keys = |n| KeyedWindows::options(MINUTE, ACCURACY * 5, n).build_in(&segment, "keys");
    keys(3).unwrap();
    let error = keys(4).unwrap_err();
    assert!(error.is_mismatch() && !error.is_damage());
    let error = error.to_string();
    assert!(error.contains("was made with a capacity of 3, not 4"), "{error}");
}

#[test]
fn a_record_that_lies_is_refused() {
    let clock = TestClock::from_nanos(START);
    // The cell, its wrong value, and a part of the message.
    for (cell, value, message) in [
        (0, 7, "accuracy"),
        (1, u64::MAX, "span"),
        (2, 1 << 40, "lines"),
        (3, 0, "lines"),
        (2, 1, "cells"),
    ] {
        let segment = Segment::private(1 << 20).unwrap();
        BucketedWindow::options(MINUTE, ACCURACY)
            .tickets()
            .build_in_with_clock(&segment, "requests", clock.clone())
            .unwrap();
        let record = segment.find(RING, "requests").unwrap().unwrap();
        record.cells()[cell].store(value, Ordering::Relaxed);
        let error = BucketedWindow::options(MINUTE, ACCURACY)
            .build_in_with_clock(&segment, "requests", clock.clone())
            .unwrap_err();
        assert!(error.to_string().contains(message), "{error}");
    }
}

#[test]
fn a_window_ahead_of_its_clock_is_damage() {
    let clock = TestClock::from_nanos(START);
    let segment = Segment::private(1 << 20).unwrap();
    counter(&segment, &clock).add(1);
    let record = segment.find(RING, "requests").unwrap().unwrap();
    // A reboot with a clock that was set back can leave a ring a little ahead, but not a year.
    for (ahead, refused) in [(300, false), (158_000_000, true), (u64::MAX >> 20, true)] {
        record.cells()[8].store(START / 200_000_000 + ahead, Ordering::Relaxed);
        let options = BucketedWindow::options(MINUTE, ACCURACY);
        match options.build_in_with_clock(&segment, "requests", clock.clone()) {
            Ok(_) => assert!(!refused),
            Err(error) => assert!(refused && error.to_string().contains("ahead of the clock")),
        }
    }
}

#[test]
fn a_key_table_with_nonsense_in_it_is_cleaned() {
    let segment = Segment::private(1 << 20).unwrap();
    let options = KeyedWindows::options(MINUTE, ACCURACY * 5, 4).max_key_bytes(16);
    let table = options.build_in(&segment, "keys").unwrap();
    for key in [&b"one"[..], b"two", b"three"] {
        table.add_and_count(key, 1).unwrap();
    }
    drop(table);
    let record = segment.find(Kind::new(*b"KEYS", 1), "keys").unwrap().unwrap();
    let cells = record.cells();
    let step = (cells.len() - 8) / 4;
    // "one" gets a length that does not fit a slot; "three" becomes a second, older "two".
    cells[8].store(1 << 60, Ordering::Relaxed);
    let (two, three) = (8 + step, 8 + 2 * step);
    for i in [0, 8] {
        cells[three + i].store(cells[two + i].load(Ordering::Relaxed), Ordering::Relaxed);
    }
    cells[three + 1].store(0, Ordering::Relaxed);
    let table = options.build_in(&segment, "keys").unwrap();
    assert_eq!((table.len(), table.count(b"two")), (1, Some(1)));
    for key in [&b"a"[..], b"b", b"c"] {
        table.add_and_count(key, 1).unwrap();
    }
    assert_eq!((table.len(), table.evicted()), (4, 0));
}

#[test]
fn a_segments_clock_serves_all_its_counters() {
    let segment = Segment::private(1 << 20).unwrap();
    let counter = BucketedWindow::options(MINUTE, ACCURACY).build_in(&segment, "requests").unwrap();
    counter.add(3);
    let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let (begun, count) = *counter.buckets_over(MINUTE).unwrap().last().unwrap();
    assert_eq!(count, 3);
    assert!(wall.abs_diff(Duration::from_nanos(begun)) < Duration::from_secs(5));
    assert!(quipu_window::clock::CoarseClock::anchored(segment.anchor()).now() > begun);
}
