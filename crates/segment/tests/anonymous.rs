//! Segments without a file, which a process shares with the children that it forks.
//!
//! Each test starts this program again, because no other test may run in a process that forks.

#![cfg(all(target_os = "linux", not(miri)))]
#![allow(clippy::unwrap_used)]

mod common;

use std::ops::ControlFlow;

use common::{Child, alone};
use quipu_segment::series::{Cursor, Family, Label, Schema};
use quipu_segment::{Options, Segment};

const LIMIT: u64 = 64 << 20;

fn family(segment: &Segment, name: &str) -> Family {
    let labels = vec![Label { name: "user".into(), values: None }];
    let schema =
        Schema { name: name.into(), cells: 1, additive: true, labels, ..Schema::default() };
    segment.family(&schema).unwrap()
}

fn total(family: &Family) -> u64 {
    let mut sum = 0;
    let _ = family.walk(&mut Cursor::default(), &mut Vec::new(), |view| {
        assert!(!view.overflow, "all series fit");
        sum += view.cells.sum(0);
        ControlFlow::Continue(())
    });
    sum
}

#[test]
fn children_count_in_the_same_cells() {
    alone("children_count_in_the_same_cells", || {
        let segment = Segment::anonymous(LIMIT).unwrap();
        assert!(segment.path().is_none());
        let before = segment.size();
        let counts = family(&segment, "counts");
        let bound = counts.bind(|key| key.text("all"));
        let children: Vec<_> = (0..8_u64)
            .map(|child| {
                let (counts, bound) = (&counts, &bound);
                let segment = &segment;
                Child::start(move || {
                    for i in 0..2000 {
                        bound.cells().add(0, 1);
                        counts.add(|key| key.text(&format!("{child} {i}")), 0, 1);
                    }
                    family(segment, &format!("family of {child}")).add(|key| key.text("x"), 0, 1);
                    family(segment, "family of all").add(|key| key.text("x"), 0, 1);
                    true
                })
            })
            .collect();
        assert!(children.into_iter().all(Child::wait));
        assert_eq!((bound.cells().sum(0), total(&counts)), (16_000, 32_000));
        assert_eq!(total(&family(&segment, "family of all")), 8);
        assert_eq!(total(&family(&segment, "family of 3")), 1);
        assert!(segment.size() > before, "it has grown in place, in a child");
        // Without a disk, a sync returns at once.
        segment.sync().unwrap();
        segment.close().unwrap();
    });
}

/// Children that create the same families at the same moment create each once.
#[test]
fn children_make_each_family_once() {
    alone("children_make_each_family_once", || {
        const CHILDREN: u64 = 4;
        const FAMILIES: u64 = 100;
        let directory = common::in_memory();
        let path = directory.path().join("exclusive.quipu");
        for segment in [Segment::anonymous(LIMIT), Segment::open_or_create(&path)] {
            let segment = segment.unwrap();
            let turn = family(&segment, "turn").bind(|key| key.text("all"));
            let children: Vec<_> = (0..CHILDREN)
                .map(|_| {
                    Child::start(|| {
                        for i in 1..=FAMILIES {
                            turn.cells().add(0, 1);
                            while turn.cells().sum(0) < i * CHILDREN {
                                std::thread::yield_now();
                            }
                            let of_all = family(&segment, &format!("family {i}"));
                            of_all.add(|key| key.text("x"), 0, 1);
                        }
                        true
                    })
                })
                .collect();
            assert!(children.into_iter().all(Child::wait));
            assert_eq!(segment.families().unwrap().len() as u64, 1 + FAMILIES);
            for i in 1..=FAMILIES {
                assert_eq!(total(&family(&segment, &format!("family {i}"))), CHILDREN);
            }
        }
    });
}

#[test]
fn children_of_children_share_it() {
    alone("children_of_children_share_it", || {
        let segment = Segment::anonymous(LIMIT).unwrap();
        let counts = family(&segment, "counts");
        let child = Child::start(|| {
            counts.add(|key| key.text("child"), 0, 1);
            let grandchild = Child::start(|| {
                family(&segment, "of the grandchild").add(|key| key.text("x"), 0, 7);
                counts.add(|key| key.text("child"), 0, 10);
                counts.add(|key| key.text("grandchild"), 0, 100);
                true
            });
            grandchild.wait()
        });
        assert!(child.wait());
        assert_eq!(total(&counts), 111);
        assert_eq!(total(&family(&segment, "of the grandchild")), 7);
    });
}

#[test]
fn a_killed_child_loses_nothing_and_keeps_nobody_waiting() {
    alone("a_killed_child_loses_nothing_and_keeps_nobody_waiting", || {
        let segment = Segment::anonymous(LIMIT).unwrap();
        let (churn, counts) = (family(&segment, "churn"), family(&segment, "counts"));
        let acknowledged = counts.bind(|key| key.text("acknowledged"));
        for round in 0..40_u64 {
            let child = Child::start(|| {
                for i in 0_u64.. {
                    // The child holds locks most of the time.
                    let text = format!("{}", i % 300);
                    churn.add(|key| key.text(&text), 0, 1);
                    churn.remove(|key| key.text(&text)).unwrap();
                    counts.add(|key| key.text(&format!("{round} {}", i % 5000)), 0, 1);
                    acknowledged.cells().add(0, 1);
                }
                true
            });
            std::thread::sleep(std::time::Duration::from_millis(2 + round % 5));
            child.kill();
            let own = format!("after {round}");
            churn.add(|key| key.text(&own), 0, 1);
            assert!(churn.remove(|key| key.text(&own)).unwrap());
        }
        let (all, acknowledged) = (total(&counts), acknowledged.cells().sum(0));
        // The killed child may have counted without an acknowledgement.
        assert!((2 * acknowledged..=2 * acknowledged + 40).contains(&all), "{all} {acknowledged}");
        assert!(acknowledged > 0);
    });
}

#[test]
fn a_limit_that_cannot_be_is_refused_and_one_that_is_reached_is_kept() {
    alone("a_limit_that_cannot_be_is_refused_and_one_that_is_reached_is_kept", || {
        let error = Segment::anonymous(1).unwrap_err();
        assert_eq!(
            error.to_string(),
            "segment without a file: its limit must be 256 to 1099511627776 bytes"
        );
        assert!(Segment::anonymous(u64::MAX).is_err());
        let segment = Segment::anonymous(256 << 10).unwrap();
        let counts = family(&segment, "counts");
        let child = Child::start(|| {
            (0..100_000).for_each(|i| counts.add(|key| key.text(&format!("{i}")), 0, 1));
            counts.overflowed() > 0
        });
        assert!(child.wait());
        assert!(segment.size() <= 256 << 10);
        assert!(counts.overflowed() > 0);
    });
}

/// A server can start as root, for example, and run its workers as another user.
#[test]
fn workers_that_give_up_rights_still_know_who_lives() {
    // SAFETY: the call has no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        // Only root can become another user.
        return;
    }
    alone("workers_that_give_up_rights_still_know_who_lives", || {
        let directory = tempfile::tempdir().unwrap();
        for mode in [0o644, 0o600] {
            let path = directory.path().join(format!("{mode:o}"));
            let segment = Options::new().limit(LIMIT).shared().open_or_create(&path).unwrap();
            let permissions = std::os::unix::fs::PermissionsExt::from_mode(mode);
            std::fs::set_permissions(&path, permissions).unwrap();
            check(&segment);
        }
        check(&Segment::anonymous(LIMIT).unwrap());
    });
}

/// Workers without rights insert and remove at the same time. No worker takes a lock from a living
/// one, and all of them can take it from a killed one.
fn check(segment: &Segment) {
    let counts = family(segment, "counts");
    let worker = |number: u64, rounds: u64| {
        let (counts, segment) = (&counts, segment);
        Child::start(move || {
            // SAFETY: the calls have no preconditions.
            let is_nobody = unsafe { libc::setgid(65534) == 0 && libc::setuid(65534) == 0 };
            for i in 0..rounds {
                // Bounded, because all series must fit, even if the signal is late.
                counts.add(|key| key.text(&format!("{number} {}", i % 5000)), 0, 1);
            }
            family(segment, &format!("of {number}"));
            is_nobody
        })
    };
    for round in 0..10 {
        let killed = worker(1000 + round, u64::MAX);
        std::thread::sleep(std::time::Duration::from_millis(5));
        killed.kill();
    }
    let before = total(&counts);
    let workers: Vec<_> = (0..4).map(|number| worker(number, 3000)).collect();
    assert!(workers.into_iter().all(Child::wait));
    assert_eq!(total(&counts) - before, 4 * 3000);
}
