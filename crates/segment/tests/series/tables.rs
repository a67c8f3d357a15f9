//! Tests for known faults of other series tables, while series are added, removed, moved, and
//! reused.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use quipu_segment::Segment;
use quipu_segment::clock::TestClock;
use quipu_segment::series::Cursor;

use super::{START, TENTH, dynamic, fixed, schema, shown, texts, total, value_of};

#[test]
fn shifted_texts_stay_two_series() {
    let segment = Segment::private(1 << 16).unwrap();
    let family = segment.family(&schema(vec![dynamic("a"), dynamic("b")])).unwrap();
    for (a, b, n) in [("ab", "c", 1), ("a", "bc", 2), ("", "abc", 4), ("abc", "", 8)] {
        family.add(
            |key| {
                key.text(a);
                key.text(b);
            },
            0,
            n,
        );
    }
    assert_eq!(family.len(), 4);
    assert_eq!(shown(&family).into_values().collect::<BTreeSet<_>>(), BTreeSet::from([1, 2, 4, 8]));
}

#[test]
fn labels_are_told_apart_by_their_order() {
    let segment = Segment::private(1 << 16).unwrap();
    let labels = vec![dynamic("from"), fixed("kind", &["x", "y"]), dynamic("to")];
    let family = segment.family(&schema(labels)).unwrap();
    for (from, kind, to) in [("p", "x", "q"), ("q", "x", "p"), ("p", "y", "q"), ("p", "x", "q")] {
        family.add(
            |key| {
                key.text(from);
                key.text(kind);
                key.text(to);
            },
            0,
            1,
        );
    }
    let expected = [(["0", "p", "q"], 2), (["0", "q", "p"], 1), (["1", "p", "q"], 1)];
    let expected = expected.map(|(labels, n)| (labels.map(str::to_owned).to_vec(), n));
    assert_eq!(shown(&family), BTreeMap::from(expected));
}

/// Returns the bytes in use after each round of adding and removing series.
fn used_after_rounds(text: impl Fn(u32, u32) -> String, count: u32, rounds: u32) -> Vec<u64> {
    let segment = Segment::private(256 << 20).unwrap();
    let clock = TestClock::from_nanos(START);
    let family = segment.family_at(&schema(vec![dynamic("user")]), clock.clone()).unwrap();
    (0..rounds)
        .map(|round| {
            for i in 0..count {
                family.add(|key| key.text(&text(round, i)), 0, 1);
            }
            assert_eq!(family.len(), count.into());
            assert_eq!(family.clear().unwrap(), count.into());
            assert!(family.is_empty() && shown(&family).is_empty());
            clock.advance(Duration::from_secs(2));
            segment.used()
        })
        .collect()
}

#[test]
fn memory_of_removed_series_is_used_again() {
    let count = if cfg!(miri) { 60 } else { 60_000 };
    let used = used_after_rounds(|round, i| format!("round {round} number {i:08}"), count, 6);
    // The second round may need a separate table; after that, everything exists.
    assert!(used[1..].windows(2).all(|pair| pair[0] == pair[1]), "{used:?}");
    assert!(used[1] - used[0] <= 8 * (4 * u64::from(count)).next_power_of_two(), "{used:?}");
}

#[test]
fn memory_of_removed_series_with_long_texts_is_used_again() {
    let count = if cfg!(miri) { 10 } else { 300 };
    // Up to about 600 bytes: many classes of lengths, and several lengths of the same class.
    let text = |round, i: u32| format!("{round} {i} {}", "x".repeat((i as usize * 8) % 600));
    let used = used_after_rounds(text, count, 6);
    assert!(used[2..].windows(2).all(|pair| pair[0] == pair[1]), "{used:?}");
}

#[test]
fn tables_are_used_again_however_their_sizes_follow() {
    let segment = Segment::private(64 << 20).unwrap();
    let clock = TestClock::from_nanos(START);
    let family = segment.family_at(&schema(vec![dynamic("user")]), clock.clone()).unwrap();
    let most = if cfg!(miri) { 40_u32 } else { 3000 };
    let mut used = Vec::new();
    for round in 0..if cfg!(miri) { 6 } else { 60_u32 } {
        for i in 0..[most, most / 8, most / 2, most / 16][round as usize % 4] {
            family.add(|key| key.text(&format!("{round:4} {i:8}")), 0, 1);
        }
        family.clear().unwrap();
        clock.advance(Duration::from_secs(2));
        used.push(segment.used());
    }
    let half = used.len() / 2;
    assert_eq!(used[half], used[used.len() - 1], "{used:?}");
}

#[test]
fn a_walk_sees_each_series_once_while_others_come_and_go() {
    let segment = Segment::private(64 << 20).unwrap();
    let clock = TestClock::from_nanos(START);
    let labels = vec![dynamic("a"), dynamic("b")];
    let family = segment.family_at(&schema(labels), clock.clone()).unwrap();
    // The second value is a function of the first, so that you can see a torn series.
    let pair = |name: String| {
        let second: String = name.bytes().map(|byte| char::from(byte ^ 1)).collect();
        (name, second)
    };
    let lasting = if cfg!(miri) { 10 } else { 500 };
    let add = |name: String, n| {
        let (a, b) = pair(name);
        family.add(
            |key| {
                key.text(&a);
                key.text(&b);
            },
            0,
            n,
        );
        (a, b)
    };
    for i in 0..lasting {
        add(format!("lasting {i:04}"), 7);
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (done, add, family) = (&done, &add, &family);
            scope.spawn(move || {
                for i in 0.. {
                    // Use the same lengths as for the lasting ones, because records of both are
                    // then interchangeable.
                    let (a, b) = add(format!("passing{thread}{:04}", i % 3000), 1);
                    let (a, b) = (&a, &b);
                    let removed = family.remove(|key| {
                        key.text(a);
                        key.text(b);
                    });
                    assert!(removed.unwrap());
                    if done.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
        }
        for _ in 0..if cfg!(miri) { 2 } else { 300 } {
            let mut seen = BTreeSet::new();
            let (mut cursor, mut buffer) = (Cursor::default(), Vec::new());
            let _ = family.walk(&mut cursor, &mut buffer, |view| {
                let texts = texts(view);
                assert_eq!(pair(texts[0].clone()), (texts[0].clone(), texts[1].clone()));
                if texts[0].starts_with("lasting") {
                    assert_eq!(view.cells.sum(0), 7);
                    assert!(seen.insert(texts[0].clone()), "{} twice", texts[0]);
                }
                ControlFlow::Continue(())
            });
            assert_eq!(seen.len(), lasting);
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(family.len(), lasting as u64);
    assert_eq!(total(&family), 7 * lasting as u64);
}

#[test]
fn an_insertion_does_not_wait_for_a_walk() {
    let segment = Segment::private(1 << 20).unwrap();
    let family = segment.family(&schema(vec![dynamic("user")])).unwrap();
    for i in 0..20 {
        family.add(|key| key.text(&format!("{i}")), 0, 1);
    }
    let (mut cursor, mut buffer) = (Cursor::default(), Vec::new());
    let mut seen = 0;
    let _ = family.walk(&mut cursor, &mut buffer, |_| {
        seen += 1;
        // The reader of the scrape is slow: other threads insert and remove, and end.
        std::thread::scope(|scope| {
            scope.spawn(|| family.add(|key| key.text(&format!("new {seen}")), 0, 1));
        });
        family.remove(|key| key.text("never there")).unwrap();
        if seen == 10 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert_eq!((seen, family.len()), (10, 30));
    let mut rest = 0;
    let _ = family.walk(&mut cursor, &mut buffer, |_| {
        rest += 1;
        ControlFlow::Continue(())
    });
    assert_eq!(rest, 20);
}

#[test]
fn a_retain_callback_can_use_handles_and_create_series() {
    let segment = Segment::private(1 << 20).unwrap();
    let family = segment.family(&schema(vec![dynamic("user")])).unwrap();
    let mut handles: Vec<_> =
        (0..50).map(|i| family.bind(|key| key.text(&format!("{i}")))).collect();
    let removed = family.retain(|view| {
        // During the call, you can drop, bind and use handles, and create series.
        family.add(|key| key.text("another"), 0, 1);
        handles.pop();
        let _bound = family.bind(|key| key.text("one more"));
        texts(view)[0].starts_with('a')
    });
    // "one more" was created during a call; it is visited last, and removed, too.
    assert_eq!(removed.unwrap(), 51);
    assert_eq!(family.len(), 1);
    assert_eq!(value_of(&family, "another"), 51 + 1);
}

#[test]
fn threads_that_make_the_same_series_make_one() {
    let segment = Segment::private(64 << 20).unwrap();
    let family = segment.family(&schema(vec![dynamic("user")])).unwrap();
    let (count, threads) = if cfg!(miri) { (20, 2) } else { (5000, 8) };
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let family = &family;
            scope.spawn(move || {
                for i in 0..count {
                    // Half of the threads start from the other end.
                    let i = if thread % 2 == 0 { i } else { count - 1 - i };
                    family.add(|key| key.text(&format!("user {i}")), 0, 1);
                }
            });
        }
    });
    let shown = shown(&family);
    assert_eq!((shown.len(), family.len()), (count, count as u64));
    assert!(shown.values().all(|&n| n == threads));
}

/// A reader finds a series while the index moves to a larger table.
#[test]
fn a_look_finds_what_moves() {
    let segment = Segment::private(64 << 20).unwrap();
    let family = segment.family(&schema(vec![dynamic("user")])).unwrap();
    let rounds = if cfg!(miri) { 60 } else { 3000 };
    for i in 0..rounds {
        family.add(|key| key.text(&i.to_string()), 0, 1);
        for j in (i % 10..=i).step_by(10) {
            let value = family.read(|key| key.text(&j.to_string()), |cells| cells.sum(0));
            assert_eq!(value, Some(1), "{j} of {i}");
        }
    }
    assert_eq!(family.read(|key| key.text("none"), |_| ()), None);
}

#[test]
fn growth_keeps_every_count() {
    let segment = Segment::private(256 << 20).unwrap();
    let family = segment.family(&schema(vec![dynamic("user")])).unwrap();
    let count = if cfg!(miri) { 100 } else { 300_000_u64 };
    let made = AtomicU64::new(1);
    family.add(|key| key.text("user 0"), 0, 1);
    let added: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2)
            .map(|thread| {
                let (family, made) = (&family, &made);
                scope.spawn(move || {
                    let (mut added, mut random) = (0, 17 + thread);
                    loop {
                        let there = made.load(Ordering::Acquire);
                        for _ in 0..if cfg!(miri) { 10 } else { 1000 } {
                            random = u64::wrapping_mul(random, 6_364_136_223_846_793_005) + 1;
                            let i = (random >> 33) % there;
                            family.add(|key| key.text(&format!("user {i}")), 0, 1);
                            added += 1;
                        }
                        if there == count {
                            return added;
                        }
                    }
                })
            })
            .collect();
        for i in 1..count {
            family.add(|key| key.text(&format!("user {i}")), 0, 1);
            made.store(i + 1, Ordering::Release);
        }
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(family.len(), count);
    assert_eq!(family.overflowed(), 0);
    assert_eq!(total(&family), count + added);
}

#[test]
fn threads_that_add_and_remove_lose_nothing_that_stays() {
    let segment = Segment::private(64 << 20).unwrap();
    let clock = TestClock::from_nanos(START);
    let family = segment.family_at(&schema(vec![dynamic("user")]), clock.clone()).unwrap();
    let rounds = if cfg!(miri) { 20 } else { 20_000 };
    let gone = Mutex::new(0_u64);
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (family, clock, gone) = (&family, &clock, &gone);
            scope.spawn(move || {
                for i in 0..rounds {
                    let own = format!("own {thread} {}", i % 10);
                    family.add(|key| key.text(&own), 0, 3);
                    family.add(|key| key.text("all"), 0, 1);
                    let handle = family.bind(|key| key.text(&own));
                    if i % 7 == thread {
                        // No other thread adds to it: its current count gets lost.
                        *gone.lock().unwrap() += handle.cells().sum(0);
                        assert!(family.remove(|key| key.text(&own)).unwrap());
                        handle.cells().add(0, 1_000_000);
                        clock.advance(TENTH);
                    }
                }
            });
        }
    });
    assert_eq!(value_of(&family, "all"), 4 * rounds);
    let own = total(&family) - 4 * rounds;
    assert_eq!(own + *gone.lock().unwrap(), 4 * 3 * rounds);
}
