//! Property tests: random sequences of operations, on each counter and on a simple, slow model.

#![cfg(not(loom))]
#![allow(clippy::unwrap_used)]

use std::collections::HashMap;
use std::time::Duration;

use proptest::prelude::*;
use quipu_window::clock::{Clock, TestClock};
use quipu_window::{
    BucketedWindow, ConstantWindow, ExactWindow, KeyedWindows, Ranking, SlidingWindow,
};

const START: u64 = 1_700_000_000_000_000_123;

/// A list of all events, with the times when they count.
#[derive(Debug, Default)]
struct Model {
    events: Vec<(u64, u64)>,
    /// The latest time seen so far, which earlier readings of the clock do not change.
    now: u64,
}

impl Model {
    fn see(&mut self, now: u64) {
        self.now = self.now.max(now);
    }

    fn add(&mut self, n: u64) {
        self.events.push((self.now, n));
    }

    /// Returns the events of the last `ticks` whole buckets, and of the current one.
    fn count(&self, accuracy: u64, ticks: u64) -> u64 {
        let first = (self.now / accuracy).saturating_sub(ticks);
        self.sum(|time| time / accuracy >= first)
    }

    /// Returns the events that are younger than the window.
    fn exact(&self, window: u64) -> u64 {
        self.sum(|time| self.now < window || time > self.now - window)
    }

    fn sum(&self, counts: impl Fn(u64) -> bool) -> u64 {
        let counted = self.events.iter().filter(|(time, _)| counts(*time));
        counted.fold(0, |sum, (_, n)| sum.wrapping_add(*n))
    }
}

#[derive(Debug, Clone)]
enum Step {
    /// Advances the clock.
    Wait(u64),
    /// Sets the clock back.
    Back(u64),
    Add(u64),
    AddAndCount(u64),
    Count,
    Over(u64),
    Reset,
    SaveAndLoad,
}

/// Steps for a window of `ticks` buckets, with waits within a bucket, over some, and over all.
fn steps(accuracy: u64, ticks: u64) -> impl Strategy<Value = Vec<Step>> {
    let n = prop_oneof![8 => 0..100u64, 1 => Just(1 << 62), 1 => Just((1 << 63) - 50)];
    let wait = prop_oneof![
        4 => 0..accuracy * 2,
        2 => 0..accuracy * (ticks + 3),
        1 => 0..accuracy * ticks * 10,
        1 => Just(86_400_000_000_000),
    ];
    let step = prop_oneof![
        6 => wait.prop_map(Step::Wait),
        1 => (0..accuracy * 5).prop_map(Step::Back),
        6 => n.clone().prop_map(Step::Add),
        3 => n.prop_map(Step::AddAndCount),
        3 => Just(Step::Count),
        2 => (1..=ticks).prop_map(Step::Over),
        1 => Just(Step::Reset),
        1 => Just(Step::SaveAndLoad),
    ];
    prop::collection::vec(step, 1..if cfg!(miri) { 30 } else { 60 })
}

fn config() -> ProptestConfig {
    ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 600 })
}

fn saved(window: &impl SlidingWindow) -> Vec<u8> {
    let mut bytes = Vec::new();
    window.save(&mut bytes).unwrap();
    bytes
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn bucketed(
        (accuracy, ticks, steps) in (1..1000u64, 1..40u64)
            .prop_flat_map(|(a, t)| (Just(a), Just(t), steps(a, t))),
        tickets: bool,
        start in prop_oneof![Just(START), 0..100u64],
    ) {
        let clock = TestClock::from_nanos(start);
        let nanos = Duration::from_nanos;
        let mut options = BucketedWindow::options(nanos(accuracy * ticks), nanos(accuracy));
        if tickets {
            options = options.tickets();
        }
        let mut counter = options.build_with_clock(clock.clone()).unwrap();
        let mut model = Model { now: start, ..Model::default() };
        for step in steps {
            match step {
                Step::Wait(by) => clock.advance(nanos(by)),
                Step::Back(by) => clock.set(clock.now().saturating_sub(by)),
                Step::Add(n) => {
                    counter.add(n);
                    model.see(clock.now());
                    model.add(n);
                }
                Step::AddAndCount(n) => {
                    model.see(clock.now());
                    model.add(n);
                    prop_assert_eq!(counter.add_and_count(n), model.count(accuracy, ticks));
                }
                Step::Count => {}
                Step::Over(ticks) => {
                    let window = nanos(accuracy * ticks);
                    model.see(clock.now());
                    let count = model.count(accuracy, ticks);
                    prop_assert_eq!(counter.count_over(window).unwrap(), count);
                    let mut all = model.events.iter();
                    let whole = all.try_fold(0u64, |sum, (_, n)| sum.checked_add(*n));
                    if whole.is_none() {
                        // Single buckets are only correct if the sum did not wrap.
                        continue;
                    }
                    let buckets = counter.buckets_over(window).unwrap();
                    let sum = buckets.iter().fold(0, |sum: u64, (_, n)| sum.wrapping_add(*n));
                    prop_assert_eq!(sum, count);
                    for (time, n) in buckets {
                        let found = model.sum(|t| t / accuracy * accuracy == time);
                        prop_assert_eq!(n, found);
                    }
                    let estimate = counter.estimate_over(window).unwrap();
                    prop_assert!(estimate <= count as f64 && estimate >= 0.0);
                }
                Step::Reset => {
                    counter.reset();
                    model.see(clock.now());
                    model.events.clear();
                }
                Step::SaveAndLoad => {
                    model.see(clock.now());
                    let sum = model.events.iter()
                        .filter(|(time, _)| time / accuracy + ticks >= model.now / accuracy)
                        .try_fold(0u64, |sum, (_, n)| sum.checked_add(*n));
                    // A clock that is before the last bucket would save that as the future.
                    if sum.is_some() && clock.now() >= model.now {
                        let bytes = saved(&counter);
                        let loaded = counter.load(&mut &bytes[..]).unwrap();
                        prop_assert_eq!(loaded.counted, model.count(accuracy, ticks));
                        prop_assert_eq!((loaded.expired, loaded.future), (0, 0));
                    }
                }
            }
            model.see(clock.now());
            prop_assert_eq!(counter.count(), model.count(accuracy, ticks));
        }
    }

    #[test]
    fn constant(steps in steps(50, 20)) {
        let clock = TestClock::from_nanos(START);
        let nanos = Duration::from_nanos;
        let counter = ConstantWindow::with_clock(nanos(1000), 20, clock.clone()).unwrap();
        let mut model = Model { now: START, ..Model::default() };
        for step in steps {
            match step {
                Step::Wait(by) => clock.advance(nanos(by)),
                Step::Add(n) => {
                    counter.add(n);
                    model.see(clock.now());
                    model.add(n);
                }
                Step::AddAndCount(n) => {
                    model.see(clock.now());
                    model.add(n);
                    prop_assert_eq!(counter.add_and_count(n), model.count(50, 20));
                }
                Step::Reset => {
                    counter.reset();
                    model.events.clear();
                }
                _ => {}
            }
            model.see(clock.now());
            prop_assert_eq!(counter.count(), model.count(50, 20));
        }
    }

    #[test]
    fn exact((window, steps) in (1..5000u64).prop_flat_map(|w| (Just(w), steps(w, 3)))) {
        let clock = TestClock::from_nanos(START);
        let nanos = Duration::from_nanos;
        let mut counter = ExactWindow::with_clock(nanos(window), clock.clone()).unwrap();
        let mut model = Model { now: START, ..Model::default() };
        let mut all: u64 = 0;
        // The time of the newest event, even if this event is expired. Time never goes back before
        // it, but the clock can go back between two reads.
        let mut last = 0;
        let forget = |model: &mut Model| {
            let now = model.now;
            model.events.retain(|(time, n)| *time + window > now && *n > 0);
        };
        for step in steps {
            match step {
                Step::Wait(by) => clock.advance(nanos(by)),
                Step::Back(by) => clock.set(clock.now().saturating_sub(by)),
                // A log holds fewer than 2^64 events.
                Step::Add(n) | Step::AddAndCount(n) if all.checked_add(n).is_none() => {}
                Step::Add(n) | Step::AddAndCount(n) => {
                    all += n;
                    if n > 0 {
                        last = last.max(clock.now());
                    }
                    model.now = clock.now().max(last);
                    model.add(n);
                    prop_assert_eq!(counter.add_and_count(n), model.exact(window));
                    forget(&mut model);
                }
                Step::Over(part) => {
                    let part = (window / part).max(1);
                    model.now = clock.now().max(last);
                    prop_assert_eq!(counter.count_over(nanos(part)).unwrap(), model.exact(part));
                    forget(&mut model);
                }
                Step::Reset => {
                    counter.reset();
                    model.events.clear();
                }
                Step::SaveAndLoad if clock.now() >= last && model.exact(window) < 10_000 => {
                    model.now = clock.now();
                    let bytes = saved(&counter);
                    let loaded = counter.load(&mut &bytes[..]).unwrap();
                    prop_assert_eq!(loaded.counted, model.exact(window));
                    prop_assert_eq!(bytes.len() as u64, model.exact(window) * 8);
                    forget(&mut model);
                    last = model.events.last().map_or(0, |(time, _)| *time);
                }
                Step::Count | Step::SaveAndLoad => {}
            }
        }
        model.now = clock.now().max(last);
        prop_assert_eq!(counter.count(), model.exact(window));
    }

    #[test]
    fn keyed(
        capacity in 1..6usize,
        steps in prop::collection::vec((0..9u8, 0..3u64, 0..400u64, 0..20u8), 1..120),
    ) {
        let nanos = Duration::from_nanos;
        let clock = TestClock::from_nanos(START);
        let options = KeyedWindows::options(nanos(1000), nanos(100), capacity).max_key_bytes(9);
        let segment = quipu_segment::Segment::private(1 << 20).unwrap();
        let mut table = options.build_in_with_clock(&segment, "keys", clock.clone()).unwrap();
        // Keys by their last use, and a model of each.
        let mut order: Vec<u8> = Vec::new();
        let mut models: HashMap<u8, Model> = HashMap::new();
        let mut evicted = 0;
        for (key, n, wait, step) in steps {
            clock.advance(nanos(wait));
            match step {
                0 => table.reset(),
                // A table that is opened again finds everything in the segment.
                1 => table = options.build_in_with_clock(&segment, "keys", clock.clone()).unwrap(),
                _ => {}
            }
            if step == 0 {
                order.clear();
                models.clear();
            }
            let name = vec![b'k'; usize::from(key) + 1];
            if step == 2 {
                let count = models.get_mut(&key).map(|model| {
                    model.see(clock.now());
                    model.count(100, 10)
                });
                prop_assert_eq!(table.count(&name), count);
                continue;
            }
            if !models.contains_key(&key) && models.len() == capacity {
                models.remove(&order.remove(0));
                evicted += 1;
            }
            order.retain(|other| *other != key);
            order.push(key);
            let model = models.entry(key).or_default();
            model.see(clock.now());
            model.add(n);
            prop_assert_eq!(table.add_and_count(&name, n).unwrap(), model.count(100, 10));
            prop_assert_eq!((table.len(), table.evicted()), (models.len(), evicted));
        }
        let mut top: Vec<u64> = models
            .values_mut()
            .map(|model| {
                model.see(clock.now());
                model.count(100, 10)
            })
            .collect();
        top.sort_unstable_by(|a, b| b.cmp(a));
        let found: Vec<u64> = table.top(capacity).into_iter().map(|(_, count)| count).collect();
        prop_assert_eq!(&found, &top);
        let mut ranking = Ranking::new(capacity / 2);
        while !table.rank(&mut ranking, 1) {}
        let found: Vec<u64> = ranking.finish().into_iter().map(|(_, count)| count).collect();
        top.truncate(capacity / 2);
        prop_assert_eq!(found, top);
    }
}

// Miri refuses the system call that parking_lot uses to wait.
#[cfg(not(miri))]
#[test]
fn windows_are_exact_while_threads_add() {
    const WINDOW: u64 = 50_000;
    let (threads, rounds, steps) = (4, 20, 2000);
    let clock = TestClock::from_nanos(START);
    let counter = ExactWindow::with_clock(Duration::from_nanos(WINDOW), clock.clone()).unwrap();
    // All events, each with the time before and after the call that counted it.
    let mut events: Vec<(u64, u64)> = Vec::new();
    for _ in 0..rounds {
        std::thread::scope(|scope| {
            let adders: Vec<_> = (0..threads)
                .map(|_| {
                    scope.spawn(|| {
                        let mut own = Vec::new();
                        for step in 0..steps {
                            clock.advance(Duration::from_nanos(1));
                            let before = clock.now();
                            if step % 64 == 0 {
                                assert!(counter.add_and_count(1) >= 1);
                            } else {
                                counter.add(1);
                            }
                            own.push((before, clock.now()));
                        }
                        own
                    })
                })
                .collect();
            for _ in 0..steps / 20 {
                assert!(counter.count() <= (threads * steps * rounds) as u64);
            }
            for adder in adders {
                events.extend(adder.join().unwrap());
            }
        });
        // Now that no thread adds, the window must contain all events that are certainly inside,
        // and none that is certainly outside.
        let mut check = |now: u64| {
            let certain = events.iter().filter(|(before, _)| *before > now - WINDOW).count();
            let possible = events.iter().filter(|(_, after)| *after > now - WINDOW).count();
            let count = counter.count() as usize;
            assert!((certain..=possible).contains(&count), "{certain} {count} {possible}");
            let times: Vec<u64> = saved(&counter)
                .chunks_exact(8)
                .map(|time| u64::from_le_bytes(time.try_into().unwrap()))
                .collect();
            assert!(times.len() == count && times.is_sorted());
            assert!(times.iter().all(|time| *time > now - WINDOW));
            events.retain(|(_, after)| *after > now - WINDOW);
        };
        check(clock.now());
        clock.advance(Duration::from_nanos(WINDOW / 3));
        check(clock.now());
    }
    clock.advance(Duration::from_nanos(WINDOW));
    assert_eq!(counter.count(), 0);
}

// Miri refuses the system call that parking_lot uses to wait.
#[cfg(not(miri))]
#[test]
fn exact_numbers_its_callers_while_others_add() {
    let each = 20_000;
    let counter = ExactWindow::new(Duration::from_secs(3600)).unwrap();
    let mut numbers: Vec<u64> = std::thread::scope(|scope| {
        let adders: Vec<_> =
            (0..2).map(|_| scope.spawn(|| (0..each).for_each(|_| counter.add(1)))).collect();
        let callers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| (0..each).map(|_| counter.add_and_count(1)).collect::<Vec<_>>())
            })
            .collect();
        adders.into_iter().for_each(|adder| adder.join().unwrap());
        let numbers: Vec<Vec<u64>> =
            callers.into_iter().map(|caller| caller.join().unwrap()).collect();
        assert!(numbers.iter().all(|own| own.is_sorted()));
        numbers.concat()
    });
    numbers.sort_unstable();
    assert!(numbers.windows(2).all(|two| two[0] < two[1]));
    assert!(numbers[0] >= 1 && numbers[2 * each - 1] <= 4 * each as u64);
    assert_eq!(counter.count(), 4 * each as u64);
}
