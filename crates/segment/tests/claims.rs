//! Checks that records are reused, but never while a thread may still write there. For example, the
//! thread can be stopped or killed, fork, or keep handles.

#![cfg(not(miri))]
#![allow(clippy::unwrap_used)]

#[cfg(target_os = "linux")]
mod common;

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::time::Duration;

use quipu_segment::Segment;
use quipu_segment::clock::TestClock;
use quipu_segment::series::{Cursor, Family, Label, Schema, SeriesHandle};

const START: u64 = 1_700_000_000_000_000_000;

fn schema() -> Schema {
    let labels = vec![Label { name: "user".into(), values: None }];
    Schema { name: "requests".into(), cells: 1, additive: true, labels, ..Schema::default() }
}

fn add(family: &Family, user: &str, n: u64) {
    family.add(|key| key.text(user), 0, n);
}

fn remove(family: &Family, user: &str) {
    assert!(family.remove(|key| key.text(user)).unwrap(), "{user}");
}

/// Creates and removes series whose records have the same length: more than can be in limbo before
/// the claims are read.
fn churn(family: &Family) {
    for i in 0..400 {
        let user = format!("{i:03}");
        add(family, &user, 1);
        remove(family, &user);
    }
}

/// Creates series whose records have the same length. The sum of each is 1.
fn make_others(family: &Family) {
    (0..400).for_each(|i| add(family, &format!("{i:03}"), 1));
}

/// Returns whether the family contains only these series, each with its sum.
fn are_whole(family: &Family) -> bool {
    let mut count = 0;
    let flow = family.walk(&mut Cursor::default(), &mut Vec::new(), |view| {
        count += 1;
        if view.cells.sum(0) == 1 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    flow.is_continue() && count == 400
}

#[test]
fn an_update_keeps_its_record_however_long_it_takes() {
    let segment = Segment::private(1 << 20).unwrap();
    let family = segment.family(&schema()).unwrap();
    add(&family, "ada", 1);
    family.update(
        |key| key.text("ada"),
        |cells| {
            remove(&family, "ada");
            churn(&family);
            make_others(&family);
            cells.add(0, 100);
        },
    );
    assert!(are_whole(&family));
}

#[test]
fn updates_inside_of_updates_keep_theirs() {
    fn nest(family: &Family, depth: u64) {
        let user = format!("x{depth:02}");
        family.update(
            |key| key.text(&user),
            |cells| {
                remove(family, &user);
                // We need more than the claims in a thread's line.
                if depth < 20 {
                    nest(family, depth + 1);
                } else {
                    churn(family);
                    make_others(family);
                }
                cells.add(0, 100);
            },
        );
    }
    let segment = Segment::private(1 << 20).unwrap();
    let family = segment.family(&schema()).unwrap();
    nest(&family, 0);
    assert!(are_whole(&family));
}

#[test]
fn a_visitor_reads_the_series_that_it_is_shown() {
    let segment = Segment::private(1 << 20).unwrap();
    let family = segment.family(&schema()).unwrap();
    add(&family, "ada", 7);
    let _ = family.walk(&mut Cursor::default(), &mut Vec::new(), |view| {
        remove(&family, "ada");
        churn(&family);
        make_others(&family);
        assert_eq!((&view.texts[1..], view.cells.sum(0)), (&b"ada"[..], 7));
        ControlFlow::Break(())
    });
    assert!(are_whole(&family));
}

#[test]
fn a_handle_and_its_clones_keep_their_record() {
    let segment = Segment::private(1 << 20).unwrap();
    let family = segment.family(&schema()).unwrap();
    let first = family.bind(|key| key.text("ada"));
    let second = first.clone();
    remove(&family, "ada");
    let third = second.clone();
    for handle in [first, second, third] {
        assert!(handle.is_removed());
        churn(&family);
        make_others(&family);
        handle.cells().add(0, 100);
        assert!(are_whole(&family));
        family.clear().unwrap();
    }
}

/// Threads and handles return the words that they took.
#[test]
fn threads_and_handles_come_and_go_without_new_memory() {
    let segment = Segment::private(1 << 20).unwrap();
    let family = segment.family(&schema()).unwrap();
    let mut used = Vec::new();
    for _ in 0..100 {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let handles: Vec<_> = (0..50).map(|_| family.bind(|key| key.text("ada"))).collect();
                handles.iter().for_each(|handle| handle.cells().add(0, 1));
                add(&family, "ada", 1);
            });
        });
        used.push(segment.used());
    }
    assert_eq!(used[0], used[99]);
    assert_eq!(family.bind(|key| key.text("ada")).cells().sum(0), 5100);
}

/// A thread that is ending owns no claim any more.
#[test]
fn a_thread_counts_while_it_ends() {
    struct Ends(Family);
    impl Drop for Ends {
        fn drop(&mut self) {
            add(&self.0, "ada", 1);
        }
    }
    thread_local!(static BEFORE: RefCell<Option<Ends>> = const { RefCell::new(None) });
    thread_local!(static AFTER: RefCell<Option<Ends>> = const { RefCell::new(None) });
    let segment = Segment::private(1 << 20).unwrap();
    let family = segment.family(&schema()).unwrap();
    for _ in 0..50 {
        let family = family.clone();
        let count = move || {
            BEFORE.with(|ends| *ends.borrow_mut() = Some(Ends(family.clone())));
            add(&family, "ada", 1);
            AFTER.with(|ends| *ends.borrow_mut() = Some(Ends(family.clone())));
        };
        std::thread::spawn(count).join().unwrap();
    }
    assert_eq!(family.read(|key| key.text("ada"), |cells| cells.sum(0)), Some(150));
}

/// A clock that was ahead when the family was created once kept all records from being reused.
#[test]
fn no_clock_keeps_a_record_from_being_used_again() {
    let clock = TestClock::from_nanos(START + 3_600_000_000_000);
    let segment = Segment::private(1 << 22).unwrap();
    let family = segment.family_at(&schema(), clock.clone()).unwrap();
    clock.set(START);
    let mut used = Vec::new();
    for _ in 0..10 {
        make_others(&family);
        family.clear().unwrap();
        used.push(segment.used());
    }
    assert_eq!(used[1], used[9], "{used:?}");
}

/// The wall clock can jump in either direction, because idleness is measured in the segment's time.
#[test]
fn no_wall_clock_hides_a_series() {
    let clock = TestClock::from_nanos(START);
    let segment = Segment::private(1 << 20).unwrap();
    let idle = Some(Duration::from_secs(60));
    let family = segment.family_at(&Schema { idle, ..schema() }, clock.clone()).unwrap();
    let is_shown = || {
        family.sweep().unwrap();
        family.read(|key| key.text("ada"), |_| ()).is_some()
    };
    add(&family, "ada", 1);
    for unix in [START + 1_000_000_000_000_000, 0, START] {
        clock.set_unix(unix);
        assert!(is_shown(), "the wall clock shows {unix}");
    }
    clock.advance(Duration::from_secs(61));
    clock.set_unix(START);
    assert!(!is_shown());
}

/// A removed record of another length at the front of a list once made all records after it
/// unusable.
#[test]
fn records_of_all_lengths_are_used_again() {
    let segment = Segment::private(1 << 24).unwrap();
    let family = segment.family(&schema()).unwrap();
    let mut used = Vec::new();
    for round in 0..6 {
        for length in [255, 3, 700, 20, 511, 8000] {
            (0..60).for_each(|i| add(&family, &format!("{i:0length$}"), 1));
            // Slightly shorter ones fit into the same records.
            let shorter = length - length / 8 * (round % 2);
            (60..100).for_each(|i| add(&family, &format!("{i:0shorter$}"), 1));
            assert_eq!(family.clear().unwrap(), 100);
        }
        used.push(segment.used());
    }
    assert_eq!(used[2], used[5], "{used:?}");
}

/// Returns a family with the series "ada" in a segment without room for another series, or for
/// another thread's claim; and the handles that own the claims.
fn without_room() -> (Family, Vec<SeriesHandle>) {
    let segment = Segment::private(8 << 10).unwrap();
    let family = segment.family(&schema()).unwrap();
    add(&family, "ada", 1);
    let handles = (0..1000).map(|_| family.bind(|key| key.text("ada"))).collect();
    let mut i = 0;
    while family.overflowed() < 1000 {
        add(&family, &format!("{i}"), 1);
        i += 1;
    }
    (family, handles)
}

/// A thread counts even if there is no room for its claim.
#[test]
fn a_thread_counts_where_there_is_no_room_for_its_claim() {
    let (family, handles) = without_room();
    let before = family.overflowed();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            add(&family, "ada", 1);
            let value = family.read(|key| key.text("ada"), |cells| cells.sum(0));
            assert_eq!((value, family.overflowed()), (Some(2), before));
            // The inner call would wait for this thread.
            family.update(|key| key.text("ada"), |_| add(&family, "ada", 1));
            assert_eq!(family.overflowed(), before + 1);
        });
    });
    drop(handles);
}

/// A thread without room for a claim reads every series, and the series' record is not reused in
/// the meantime.
#[test]
fn a_thread_reads_where_there_is_no_room_for_its_claim() {
    let (family, handles) = without_room();
    let try_remove = || family.try_remove(|key| key.text("ada"));
    let is_kept = || {
        let removed = std::thread::scope(|scope| scope.spawn(try_remove).join().unwrap());
        assert!(removed.unwrap_err().is_held(), "a reader without a claim has the lock");
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let found = family.find(|key| key.text("ada")).unwrap().unwrap();
            assert_eq!(found.sum(0), 1);
            is_kept();
            drop(found);
            assert!(family.find(|key| key.text("bert")).unwrap().is_none());
            let (mut sums, mut overflows) = (Vec::new(), 0);
            let _ = family.walk(&mut Cursor::default(), &mut Vec::new(), |view| {
                is_kept();
                match view.overflow {
                    true => overflows += 1,
                    false => sums.push(view.cells.sum(0)),
                }
                ControlFlow::Continue(())
            });
            assert_eq!((sums, overflows), (vec![1; family.len() as usize], 1));
        });
    });
    drop(handles);
    assert!(try_remove().unwrap());
}

#[cfg(target_os = "linux")]
mod processes {
    use super::common::{Child, alone};
    use super::*;

    /// A pipe for processes that wait for each other.
    struct Pipe([i32; 2]);

    impl Pipe {
        fn new() -> Self {
            let mut ends = [0; 2];
            // SAFETY: the call stores two descriptors there.
            assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
            Self(ends)
        }

        fn tell(&self) {
            // SAFETY: the call reads an existing byte.
            assert_eq!(unsafe { libc::write(self.0[1], (&raw const *b"!").cast(), 1) }, 1);
        }

        fn wait(&self) {
            let mut byte = 0_u8;
            // SAFETY: the call stores a byte, for which there is room.
            assert_eq!(unsafe { libc::read(self.0[0], (&raw mut byte).cast(), 1) }, 1);
        }
    }

    /// A worker is stopped in the middle of an update. The others remove the series, and reuse its
    /// record if they can. The worker then continues.
    #[test]
    fn a_worker_that_was_stopped_counts_in_no_other_series() {
        alone("processes::a_worker_that_was_stopped_counts_in_no_other_series", || {
            let segment = Segment::anonymous(16 << 20).unwrap();
            let family = segment.family(&schema()).unwrap();
            add(&family, "ada", 1);
            let (stopped, go_on) = (Pipe::new(), Pipe::new());
            let worker = Child::start(|| {
                family.update(
                    |key| key.text("ada"),
                    |cells| {
                        stopped.tell();
                        go_on.wait();
                        cells.add(0, 100);
                    },
                );
                true
            });
            stopped.wait();
            remove(&family, "ada");
            churn(&family);
            make_others(&family);
            assert!(are_whole(&family));
            go_on.tell();
            assert!(worker.wait());
            assert!(are_whole(&family));
        });
    }

    /// Workers that are killed in an update, or with a handle, leave no growing memory.
    #[test]
    fn workers_that_are_killed_keep_no_record() {
        alone("processes::workers_that_are_killed_keep_no_record", || {
            let segment = Segment::anonymous(16 << 20).unwrap();
            let family = segment.family(&schema()).unwrap();
            let mut used = Vec::new();
            for round in 0..150 {
                let ready = Pipe::new();
                let worker = Child::start(|| {
                    let handle = family.bind(|key| key.text(&format!("bound {}", round % 10)));
                    handle.cells().add(0, 1);
                    family.update(
                        |key| key.text(&format!("added {}", round % 10)),
                        |_| {
                            ready.tell();
                            Pipe::new().wait();
                        },
                    );
                    true
                });
                ready.wait();
                worker.kill();
                // SAFETY: there are no other users of the descriptors.
                ready.0.iter().for_each(|end| assert_eq!(unsafe { libc::close(*end) }, 0));
                assert_eq!(family.clear().unwrap(), 2);
                used.push(segment.used());
            }
            assert_eq!(used[74], used[149], "{used:?}");
        });
    }

    /// Handles that are dropped after a fork, by the parent or in the child, leave none either.
    #[test]
    fn handles_that_children_inherit_keep_no_record() {
        alone("processes::handles_that_children_inherit_keep_no_record", || {
            let segment = Segment::anonymous(16 << 20).unwrap();
            let family = segment.family(&schema()).unwrap();
            let mut used = Vec::new();
            for round in 0..150 {
                let handle = family.bind(|key| key.text(&format!("user {}", round % 10)));
                let mut inherited = Some(handle.clone());
                assert!(
                    Child::start(|| {
                        handle.cells().add(0, 1);
                        drop(inherited.take());
                        true
                    })
                    .wait()
                );
                assert_eq!(handle.cells().sum(0), 1);
                drop((handle, inherited));
                assert_eq!(family.clear().unwrap(), 1);
                used.push(segment.used());
            }
            assert_eq!(used[74], used[149], "{used:?}");
        });
    }

    /// A child first uses a handle after its series was removed and its record was reused.
    #[test]
    fn a_handle_whose_series_went_before_the_child_used_it_counts_nowhere() {
        alone(
            "processes::a_handle_whose_series_went_before_the_child_used_it_counts_nowhere",
            || {
                let segment = Segment::anonymous(16 << 20).unwrap();
                let family = segment.family(&schema()).unwrap();
                let handle = family.bind(|key| key.text("ada"));
                let go_on = Pipe::new();
                let child = Child::start(|| {
                    go_on.wait();
                    let copy = handle.clone();
                    handle.cells().add(0, 100);
                    copy.cells().add(0, 100);
                    handle.is_removed() && copy.is_removed() && handle.cells().sum(0) == 100
                });
                drop(handle);
                remove(&family, "ada");
                churn(&family);
                make_others(&family);
                go_on.tell();
                assert!(child.wait());
                assert!(are_whole(&family));
            },
        );
    }
}

/// The record of a removed series is on a list of free records. A handle must not overwrite its
/// link.
#[test]
fn a_handle_of_a_removed_series_restarts_nothing() {
    let segment = Segment::private(1 << 20).unwrap();
    let clock = TestClock::from_nanos(1_700_000_000_000_000_000);
    let labels = vec![Label { name: "user".into(), values: None }];
    let schema =
        Schema { name: "requests".into(), cells: 1, additive: true, labels, ..Schema::default() };
    let family = segment.family_at(&schema, clock.clone()).unwrap();
    clock.advance(Duration::from_secs(600));
    let bound = family.bind(|key| key.text("gone"));
    family.remove(|key| key.text("gone")).unwrap();
    bound.restart();
    // This adds and removes enough series to use the lists.
    for round in 0..20 {
        let name = |i: u32| format!("{round} {i}");
        (0..50).for_each(|i| family.add(|key| key.text(&name(i)), 0, 1));
        let mut seen = 0;
        let _ = family.walk(&mut Cursor::default(), &mut Vec::new(), |view| {
            seen += u64::from(!view.overflow) * view.cells.sum(0);
            ControlFlow::Continue(())
        });
        assert_eq!(seen, 50);
        (0..50).for_each(|i| assert!(family.remove(|key| key.text(&name(i))).unwrap()));
    }
    drop(bound);
}

/// A series that counted while hidden is not removed for a new one.
#[test]
fn a_hidden_series_that_counted_makes_no_room() {
    let segment = Segment::private(1 << 20).unwrap();
    let clock = TestClock::from_nanos(1_700_000_000_000_000_000);
    let labels = vec![Label { name: "user".into(), values: None }];
    let schema = Schema {
        name: "requests".into(),
        cells: 1,
        additive: true,
        labels,
        limit: Some(1),
        idle: Some(Duration::from_secs(60)),
        ..Schema::default()
    };
    let family = segment.family_at(&schema, clock.clone()).unwrap();
    let bound = family.bind(|key| key.text("ada"));
    bound.cells().add(0, 1);
    family.sweep().unwrap();
    clock.advance(Duration::from_secs(120));
    family.sweep().unwrap();
    bound.cells().add(0, 1);
    family.add(|key| key.text("bob"), 0, 1);
    assert_eq!(family.read(|key| key.text("ada"), |cells| cells.sum(0)), Some(2));
    assert!(!bound.is_removed());
    assert_eq!(family.overflowed(), 1);
}
