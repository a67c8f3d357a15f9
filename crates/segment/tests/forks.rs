//! Forks a process that uses families, in private memory and in a file.
//!
//! Each test starts this program again, because no other test may run in a process that forks.

#![cfg(all(target_os = "linux", not(miri)))]
#![allow(clippy::unwrap_used)]

mod common;

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::{Child, alone};
use quipu_segment::clock::TestClock;
use quipu_segment::series::{Cursor, Family, Label, Schema, SeriesHandle};
use quipu_segment::{Options, Segment};

/// Runs `work` in a child, and returns whether it returned true in time.
fn in_child(work: impl FnOnce() -> bool) -> bool {
    Child::start(work).wait()
}

fn segments(test: impl Fn(Segment, bool)) {
    test(Segment::private(32 << 20).unwrap(), false);
    let directory = tempfile::tempdir().unwrap();
    for (name, options) in [("own", Options::new()), ("shared", Options::new().shared())] {
        let path = directory.path().join(name);
        test(options.limit(32 << 20).open_or_create(path).unwrap(), true);
    }
    test(Segment::anonymous(32 << 20).unwrap(), true);
}

fn schema(name: &str) -> Schema {
    let labels = vec![Label { name: "user".into(), values: None }];
    Schema { name: name.into(), cells: 1, additive: true, labels, ..Schema::default() }
}

fn sum(family: &Family, text: &str) -> u64 {
    let mut sum = 0;
    let _ = family.walk(&mut Cursor::default(), &mut Vec::new(), |view| {
        if &view.texts[1..] == text.as_bytes() {
            sum += view.cells.sum(0);
        }
        ControlFlow::Continue(())
    });
    sum
}

#[test]
fn a_child_counts_in_its_memory_or_in_the_file() {
    alone("a_child_counts_in_its_memory_or_in_the_file", || {
        segments(|segment, in_file| {
            let family = segment.family(&schema("requests")).unwrap();
            let handle = family.bind(|key| key.text("ada"));
            family.add(|key| key.text("ada"), 0, 1);
            assert!(in_child(|| {
                handle.cells().add(0, 10);
                family.add(|key| key.text("ada"), 0, 100);
                family.add(|key| key.text("new"), 0, 5);
                let other = segment.family(&schema("made in the child")).unwrap();
                other.add(|key| key.text("x"), 0, 1);
                sum(&family, "ada") == 111 && sum(&family, "new") == 5 && sum(&other, "x") == 1
            }));
            let expected = if in_file { (111, 5, 2) } else { (1, 0, 1) };
            let families = segment.families().unwrap().len();
            assert_eq!((sum(&family, "ada"), sum(&family, "new"), families), expected);
            family.add(|key| key.text("new"), 0, 1);
            assert_eq!(sum(&family, "new"), expected.1 + 1);
        });
    });
}

#[test]
fn a_child_inserts_whoever_held_the_lock() {
    alone("a_child_inserts_whoever_held_the_lock", || {
        segments(|segment, in_file| {
            let family = segment.family(&schema("requests")).unwrap();
            let (done, forks) = (AtomicBool::new(false), 150);
            let inserted = std::thread::scope(|scope| {
                let thread = scope.spawn(|| {
                    let mut i = 0_u64;
                    while !done.load(Ordering::Relaxed) {
                        let text = format!("parent {}", i % 5000);
                        family.add(|key| key.text(&text), 0, 1);
                        if i.is_multiple_of(2) {
                            // A child that holds the lock may not run for a while.
                            match family.remove(|key| key.text(&text)) {
                                Err(error) if !error.is_held() => panic!("{error}"),
                                _ => {}
                            }
                        }
                        if i.is_multiple_of(1000) {
                            let name = format!("family {}", i / 1000 % 20);
                            segment.family(&schema(&name)).unwrap();
                        }
                        i += 1;
                    }
                    i
                });
                let have_ended = (0..forks).all(|n| {
                    in_child(|| {
                        let text = format!("child {n}");
                        // If the thread that holds the lock does not run for a while, the addition
                        // goes to the overflow series.
                        while sum(&family, &text) == 0 {
                            family.add(|key| key.text(&text), 0, 1);
                        }
                        segment.family(&schema("of children")).unwrap();
                        sum(&family, &text) == 1
                    })
                });
                done.store(true, Ordering::Relaxed);
                assert!(have_ended, "a child waited for a thread that it does not have");
                thread.join().unwrap()
            });
            assert!(inserted > 0);
            let children = (0..forks).map(|n| sum(&family, &format!("child {n}"))).sum::<u64>();
            assert_eq!(children, if in_file { forks } else { 0 });
        });
    });
}

#[test]
fn a_child_that_drops_a_handle_leaves_its_parent_the_record() {
    alone("a_child_that_drops_a_handle_leaves_its_parent_the_record", || {
        segments(|segment, _| {
            let clock = TestClock::from_nanos(1_700_000_000_000_000_000);
            let family = segment.family_at(&schema("requests"), clock.clone()).unwrap();
            let mut handle = Some(family.bind(|key| key.text("ada")));
            assert!(in_child(|| {
                drop(handle.take());
                true
            }));
            assert!(family.remove(|key| key.text("ada")).unwrap());
            clock.advance(Duration::from_secs(10));
            family.add(|key| key.text("bob"), 0, 1);
            handle.as_ref().unwrap().cells().add(0, 100);
            assert_eq!(sum(&family, "bob"), 1);
        });
    });
}

#[test]
fn a_parent_that_drops_a_handle_leaves_its_child_the_record() {
    alone("a_parent_that_drops_a_handle_leaves_its_child_the_record", || {
        segments(|segment, is_shared| {
            if !is_shared {
                return;
            }
            let clock = TestClock::from_nanos(1_700_000_000_000_000_000);
            let family = segment.family_at(&schema("requests"), clock.clone()).unwrap();
            let [handle, go] = ["ada", "go"].map(|text| family.bind(|key| key.text(text)));
            let child = Child::start(|| {
                for _ in 0..20_000 {
                    if go.cells().sum(0) != 0 {
                        handle.cells().add(0, 100);
                        return true;
                    }
                    std::thread::sleep(Duration::from_millis(1));
                }
                false
            });
            drop(handle);
            assert!(family.remove(|key| key.text("ada")).unwrap());
            clock.advance(Duration::from_secs(10));
            family.add(|key| key.text("bob"), 0, 1);
            go.cells().add(0, 1);
            assert!(child.wait());
            assert_eq!(sum(&family, "bob"), 1);
        });
    });
}

/// Children die while they change the index. A reader finds each series, even before it is mended.
#[test]
fn whoever_reads_finds_all_series_whatever_the_dead_were_at() {
    alone("whoever_reads_finds_all_series_whatever_the_dead_were_at", || {
        let segment = Segment::anonymous(64 << 20).unwrap();
        let family = segment.family(&schema("requests")).unwrap();
        let texts: Vec<String> = (0..40).map(|i| format!("stays {i}")).collect();
        texts.iter().for_each(|text| family.add(|key| key.text(text), 0, 7));
        for round in 0..300_u64 {
            let child = Child::start(|| {
                for i in 0_u64.. {
                    let name = |i: u64| format!("{round} {i}");
                    family.add(|key| key.text(&name(i)), 0, 1);
                    if i >= 50 {
                        family.remove(|key| key.text(&name(i - 50))).unwrap();
                    }
                }
                true
            });
            std::thread::sleep(Duration::from_micros(1000 + 37 * (round % 50)));
            child.kill();
            for text in &texts {
                let value = family.read(|key| key.text(text), |cells| cells.sum(0));
                assert_eq!(value, Some(7), "{text} in round {round}");
            }
        }
    });
}

/// Labels with fixed values, too many of them for slots. The keys of these series contain no
/// dynamic values, like the overflow's.
#[test]
fn a_death_takes_no_series_of_many_fixed_values() {
    alone("a_death_takes_no_series_of_many_fixed_values", || {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("shared.quipu");
        let values: Vec<String> = (0..300).map(|i| i.to_string()).collect();
        let label = |name: &str| Label { name: name.into(), values: Some(values.clone()) };
        let schema = Schema { labels: vec![label("from"), label("to")], ..schema("requests") };
        let open = || {
            let segment = Options::new().shared().open_or_create(&path).unwrap();
            segment.family(&schema).unwrap()
        };
        let look = |family: &Family| {
            assert!(!family.is_dense());
            for group in (0..40).map(|i| i * 307) {
                let value = family.read(|key| key.series(group, &[]), |cells| cells.sum(0));
                assert_eq!(value, Some(7), "group {group}");
            }
        };
        let family = open();
        (0..40).for_each(|i| family.add(|key| key.series(i * 307, &[]), 0, 7));
        for round in 0..50_u64 {
            let child = Child::start(|| {
                for i in (0..80_000).cycle().filter(|i| i % 307 != 0) {
                    family.add(|key| key.series(i, &[]), 0, 1);
                    family.remove(|key| key.series(i, &[])).unwrap();
                }
                true
            });
            std::thread::sleep(Duration::from_micros(1000 + 37 * round));
            child.kill();
            // The next owner of the lock mends the half-done work of the dead child.
            family.add(|key| key.series(1, &[]), 0, 1);
            look(&family);
        }
        drop(family);
        look(&open());
    });
}

/// A child must not keep any lock of its parent, whenever it is forked. Otherwise the parent would
/// count as alive after its death, and others would wait for it while the child lives.
#[test]
fn no_child_keeps_its_parent_alive() {
    alone("no_child_keeps_its_parent_alive", || {
        let directory = common::in_memory();
        let path = directory.path().join("shared.quipu");
        let open = || Options::new().shared().open_or_create(&path).unwrap();
        let other = open();
        let began = other.family(&schema("began")).unwrap().bind(|key| key.text("all"));
        for round in 0..300 {
            // With more segments, a fork is more likely to happen while one reopens its file.
            let segments: Vec<_> = (0..30).map(|_| open()).collect();
            let half = AtomicBool::new(false);
            let (child, tokens) = std::thread::scope(|scope| {
                let maker = scope.spawn(|| {
                    let token = |(i, segment): (usize, &Segment)| {
                        half.fetch_or(i > 2, Ordering::SeqCst);
                        segment.process().unwrap()
                    };
                    segments.iter().enumerate().map(token).collect::<Vec<_>>()
                });
                while !half.load(Ordering::SeqCst) && !maker.is_finished() {
                    std::hint::spin_loop();
                }
                let child = Child::start(|| {
                    began.cells().add(0, 1);
                    std::thread::sleep(Duration::from_secs(60));
                    true
                });
                (child, maker.join().unwrap())
            });
            let deadline = Instant::now() + Duration::from_secs(60);
            while began.cells().sum(0) <= round {
                assert!(Instant::now() < deadline, "the child ended by itself");
                std::thread::yield_now();
            }
            drop(segments);
            assert!(!tokens.iter().any(|&token| other.is_alive(token)), "in round {round}");
            child.kill();
        }
    });
}

/// A handle that is created while a fork is under way belongs to the child, too.
#[test]
fn a_handle_that_is_made_in_a_fork_keeps_its_record() {
    use std::sync::Mutex;

    static FAMILY: Mutex<Option<Family>> = Mutex::new(None);
    static HANDLE: Mutex<Option<SeriesHandle>> = Mutex::new(None);

    extern "C" fn make() {
        if let Some(family) = &*FAMILY.lock().unwrap() {
            *HANDLE.lock().unwrap() = Some(family.bind(|key| key.text("ada")));
        }
    }

    alone("a_handle_that_is_made_in_a_fork_keeps_its_record", || {
        // Handlers before a fork are called in reverse order: this one is the last.
        // SAFETY: its calls are allowed before a fork.
        assert_eq!(unsafe { libc::pthread_atfork(Some(make), None, None) }, 0);
        let segment = Segment::anonymous(64 << 20).unwrap();
        let clock = TestClock::from_nanos(1_700_000_000_000_000_000);
        let family = segment.family_at(&schema("requests"), clock.clone()).unwrap();
        let go = family.bind(|key| key.text("go"));
        *FAMILY.lock().unwrap() = Some(family.clone());
        let child = Child::start(|| {
            while go.cells().sum(0) == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            HANDLE.lock().unwrap().as_ref().unwrap().cells().add(0, 100);
            true
        });
        HANDLE.lock().unwrap().take();
        assert!(family.remove(|key| key.text("ada")).unwrap());
        clock.advance(Duration::from_secs(10));
        family.add(|key| key.text("bob"), 0, 1);
        go.cells().add(0, 1);
        assert!(child.wait());
        assert_eq!(sum(&family, "bob"), 1);
    });
}
