//! Tests of the documented error bounds, and of clocks that behave oddly.

#![cfg(not(any(loom, miri)))]
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use quipu_window::clock::{CachedClock, Clock, TestClock};
use quipu_window::{
    BucketedWindow, ConstantWindow, ExactWindow, KeyedWindows, MAX_EVENTS, SlidingWindow,
};

const START: u64 = 1_700_000_000_000_000_000;

/// A cheap pseudo-random number generator.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Returns a random distance to the next event, exponentially distributed with this mean.
    fn distance(&mut self, mean: f64) -> u64 {
        let uniform = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        (-mean * (1.0 - uniform).ln()) as u64
    }
}

/// Runs three minutes of events through a counter of one minute. Regularly calls `check` with the
/// exact count, the count of the bucket that is leaving, and the time.
fn traffic(
    mean: impl Fn(u64) -> f64,
    mut add: impl FnMut(u64),
    mut check: impl FnMut(u64, u64, u64),
) {
    let mut random = Random(88_172_645_463_325_252);
    let (mut times, mut now, mut tail) = (Vec::new(), START, 0);
    let window = 60_000_000_000;
    let end = START + if cfg!(miri) { window / 1000 } else { 3 * window };
    while now < end {
        now += random.distance(mean(now));
        times.push(now);
        add(now);
        if times.len().is_multiple_of(997) {
            while times[tail] + window <= now {
                tail += 1;
            }
            let exact = (times.len() - tail) as u64;
            let first = (now - window) / 200_000_000;
            let from = |bucket: u64| times.partition_point(|time| *time < bucket * 200_000_000);
            let leaving = from(first + 1) - from(first);
            check(exact, leaving as u64, now);
        }
    }
}

#[test]
fn bucketed_is_never_too_small_and_at_most_a_bucket_too_great() {
    let clock = TestClock::from_nanos(START);
    let minute = Duration::from_secs(60);
    let counter = BucketedWindow::options(minute, Duration::from_millis(200))
        .build_with_clock(clock.clone())
        .unwrap();
    let bursts = |now: u64| {
        if (now / 1_000_000_000).is_multiple_of(7) { 20_000.0 } else { 2_000_000.0 }
    };
    traffic(
        bursts,
        |now| {
            clock.set(now);
            counter.inc();
        },
        |exact, leaving, _| {
            let count = counter.count();
            assert!(count >= exact && count <= exact + leaving, "{exact} {count} {leaving}");
            let error = (counter.estimate() - exact as f64).abs();
            assert!(error <= leaving as f64 + 1e-6, "{exact} {error} {leaving}");
        },
    );
}

#[test]
fn estimates_of_steady_traffic_are_a_hundred_times_better() {
    let clock = TestClock::from_nanos(START);
    let counter = BucketedWindow::options(Duration::from_secs(60), Duration::from_millis(200))
        .build_with_clock(clock.clone())
        .unwrap();
    let (mut worst, mut worst_count) = (0.0f64, 0.0f64);
    traffic(
        |_| 60_000.0,
        |now| {
            clock.set(now);
            counter.inc();
        },
        |exact, _, now| {
            if now > START + 60_000_000_000 {
                let exact = exact as f64;
                worst = worst.max((counter.estimate() - exact).abs() / exact);
                worst_count = worst_count.max((counter.count() as f64 - exact) / exact);
            }
        },
    );
    assert!(worst < 0.000_3, "{worst}");
    assert!(worst_count < 0.004, "{worst_count}");
}

#[test]
fn exact_is_exact() {
    let clock = TestClock::from_nanos(START);
    let counter = ExactWindow::with_clock(Duration::from_secs(60), clock.clone()).unwrap();
    traffic(
        |_| 500_000.0,
        |now| {
            clock.set(now);
            counter.inc();
        },
        |exact, _, _| assert_eq!(counter.count(), exact),
    );
}

#[test]
fn constant_is_never_too_small_and_at_most_a_twentieth_of_the_window_late() {
    for phase in 0..5_000_000u64 / 499_979 {
        let born = START + phase * 499_979;
        let clock = TestClock::from_nanos(born);
        let counter =
            ConstantWindow::with_clock(Duration::from_millis(100), 20, clock.clone()).unwrap();
        assert_eq!(counter.accuracy(), Duration::from_millis(5));
        counter.inc();
        clock.set(born + 99_999_999);
        assert_eq!(counter.count(), 1);
        clock.set(born + 105_000_000);
        assert_eq!(counter.count(), 0);
    }
}

#[test]
fn constant_is_as_late_as_its_note() {
    let counter = ConstantWindow::new(Duration::from_millis(20)).unwrap();
    counter.add(4);
    std::thread::sleep(Duration::from_millis(60));
    assert_eq!(counter.count(), 4);
    counter.clock().note();
    assert_eq!(counter.count(), 0);
    let noted = CachedClock::new();
    assert!(noted.note() >= noted.now());
}

#[test]
fn windows_share_the_price_of_one_add() {
    let clock = TestClock::from_nanos(START);
    let (second, minute, hour) =
        (Duration::from_secs(1), Duration::from_secs(60), Duration::from_secs(3600));
    let counter = BucketedWindow::options(minute, Duration::from_millis(200))
        .span(hour)
        .build_with_clock(clock.clone())
        .unwrap();
    let windows = [second, minute, hour];
    for _ in 0..3600 {
        clock.advance(second);
        counter.add(2);
    }
    assert_eq!(windows.map(|window| counter.count_over(window).unwrap()), [4, 122, 7200]);
    assert_eq!(counter.max_over(minute).unwrap(), 2);
    assert!((counter.max_rate_over(minute).unwrap() - 10.0).abs() < 1e-9);
    assert!((counter.max_rate() - 10.0).abs() < 1e-9);
    assert!((counter.rate() - 2.0).abs() < 0.1);
    counter.add(50);
    assert_eq!(counter.max_over(second).unwrap(), 52);
    // A search in steps of any size finds the same peak.
    for window in windows {
        for buckets in [1, 7, 511, 512, 513] {
            let mut search = counter.peak_over(window).unwrap();
            let found = (0..).find_map(|_| counter.peak_step(&mut search, buckets));
            assert_eq!(found, Some(52), "{window:?} in steps of {buckets}");
        }
    }
    assert_eq!(counter.span(), hour);
    // A silence of a minute empties two of the windows, and one of an hour all three.
    clock.advance(minute + second);
    assert_eq!(windows.map(|window| counter.count_over(window).unwrap()), [0, 0, 7250 - 120]);
    clock.advance(hour);
    assert_eq!(windows.map(|window| counter.count_over(window).unwrap()), [0, 0, 0]);
}

#[test]
fn a_suspended_machine_is_a_silence() {
    /// A clock that notices a suspend only when it settles.
    #[derive(Clone)]
    struct Sleepy {
        running: TestClock,
        settled: TestClock,
    }
    impl Clock for Sleepy {
        fn now(&self) -> u64 {
            self.running.now().max(self.settled.now())
        }
        fn settle(&self) -> u64 {
            self.running.set(self.running.now().max(self.settled.now()));
            self.running.now()
        }
    }
    let clock = Sleepy { running: TestClock::from_nanos(START), settled: TestClock::from_nanos(0) };
    let counter = BucketedWindow::options(Duration::from_secs(60), Duration::from_millis(200))
        .build_with_clock(clock.clone())
        .unwrap();
    counter.add(10);
    clock.settled.set(START + 7_200_000_000_000);
    assert_eq!(counter.count(), 0);
}

#[test]
fn counts_near_the_end_of_the_range_are_exact() {
    let clock = TestClock::from_nanos(START);
    let second = Duration::from_secs(1);
    let counter =
        BucketedWindow::options(second * 3, second).build_with_clock(clock.clone()).unwrap();
    for _ in 0..10 {
        counter.add(i64::MAX as u64);
        assert_eq!(counter.count(), i64::MAX as u64);
        assert_eq!(counter.add_and_count(7), i64::MAX as u64 + 7);
        clock.advance(second * 4);
        assert_eq!(counter.count(), 0);
    }
    // A time at the end of its range does no harm either.
    clock.set(u64::MAX);
    counter.add(3);
    assert_eq!(counter.count(), 3);
}

#[test]
fn keys_are_bounded_and_their_errors_name_the_bound() {
    let (minute, second) = (Duration::from_secs(60), Duration::from_secs(1));
    let table = KeyedWindows::options(minute, second, 3).max_key_bytes(4).build().unwrap();
    for key in ["", "12345"] {
        let error = table.add_and_count(key.as_bytes(), 1).unwrap_err();
        assert!(error.is_invalid_key() && !error.is_too_many_events());
        assert!(error.to_string().contains("a key has 1 to 4 bytes"), "{error}");
    }
    assert!(table.add_and_count(b"1", MAX_EVENTS + 1).unwrap_err().is_too_many_events());
    for i in 0..100 {
        table.add_and_count(format!("{i}").as_bytes(), 1).unwrap();
    }
    assert_eq!((table.len(), table.capacity(), table.evicted()), (3, 3, 97));
    assert!(table.count_over(b"99", minute * 2).unwrap_err().is_over_span());
    assert_eq!(table.count_over(b"99", second).unwrap(), Some(1));
    assert!(table.count_and_rate_over(b"99", minute).unwrap().is_some());
    for capacity in [0, usize::MAX] {
        let error = KeyedWindows::options(minute, second, capacity).build().unwrap_err();
        assert!(error.is_invalid_capacity(), "{error}");
    }
}

#[test]
fn a_bound_on_memory_drops_the_oldest_and_counts_them() {
    let clock = TestClock::from_nanos(START);
    let events = 300_000;
    let counter = ExactWindow::with_clock(Duration::from_secs(3600), clock.clone())
        .unwrap()
        .max_bytes(40_000);
    for _ in 0..events {
        clock.advance(Duration::from_micros(60));
        counter.inc();
    }
    assert_eq!(counter.count() + counter.dropped(), events);
    assert!(counter.bytes() < 60_000);
    assert!(counter.dropped() > 200_000);
}
