//! What a fork does to families, in private memory and in a file.
//!
//! Each test starts this program again, so that nothing else runs in the process that forks.

#![cfg(all(target_os = "linux", not(miri)))]
#![allow(clippy::unwrap_used)]

use std::ops::ControlFlow;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use quipu_segment::clock::Manual;
use quipu_segment::series::{Cursor, Family, Label, Schema};
use quipu_segment::{Options, Segment};

/// Runs `work` in a process of its own: the test of that name, started again.
fn alone(name: &str, work: impl FnOnce()) {
    if std::env::var("FORKS_ALONE").is_ok() {
        return work();
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env("FORKS_ALONE", "1")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// Runs `work` in a child, which ends when it returns; whether it returned true, in time.
fn in_child(work: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child uses families, which is what is tested, and memory, which the C library
    // keeps in order across forks; and it ends without the clean-up of its parent.
    unsafe {
        let child = libc::fork();
        assert!(child >= 0);
        if child == 0 {
            // Whoever waits for ever is ended by the signal.
            libc::alarm(20);
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            libc::_exit(i32::from(!matches!(result, Ok(true))));
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
    }
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
            sum += view.place.sum(0);
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
                handle.place().add(0, 10);
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
                            family.remove(|key| key.text(&text)).unwrap();
                        }
                        if i.is_multiple_of(1000) {
                            let name = format!("family {}", i / 1000 % 20);
                            segment.family(&schema(&name)).unwrap();
                        }
                        i += 1;
                    }
                    i
                });
                for n in 0..forks {
                    let ended = in_child(|| {
                        let text = format!("child {n}");
                        family.add(|key| key.text(&text), 0, 1);
                        segment.family(&schema("of children")).unwrap();
                        sum(&family, &text) == 1
                    });
                    assert!(ended, "the child waited for a thread that it does not have");
                }
                done.store(true, Ordering::Relaxed);
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
            let clock = Manual::new(1_700_000_000_000_000_000);
            let family = segment.family_at(&schema("requests"), clock.clone()).unwrap();
            let mut handle = Some(family.bind(|key| key.text("ada")));
            assert!(in_child(|| {
                drop(handle.take());
                true
            }));
            assert!(family.remove(|key| key.text("ada")).unwrap());
            clock.advance(Duration::from_secs(10));
            family.add(|key| key.text("bob"), 0, 1);
            handle.as_ref().unwrap().place().add(0, 100);
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
            let clock = Manual::new(1_700_000_000_000_000_000);
            let family = segment.family_at(&schema("requests"), clock.clone()).unwrap();
            let [handle, go] = ["ada", "go"].map(|text| family.bind(|key| key.text(text)));
            // SAFETY: as in `in_child`; this child only waits, and adds.
            let child = unsafe { libc::fork() };
            if child == 0 {
                for _ in 0..20_000 {
                    if go.place().sum(0) != 0 {
                        handle.place().add(0, 100);
                        // SAFETY: as in `in_child`.
                        unsafe { libc::_exit(0) };
                    }
                    std::thread::sleep(Duration::from_millis(1));
                }
                // SAFETY: as in `in_child`.
                unsafe { libc::_exit(1) };
            }
            drop(handle);
            assert!(family.remove(|key| key.text("ada")).unwrap());
            clock.advance(Duration::from_secs(10));
            family.add(|key| key.text("bob"), 0, 1);
            go.place().add(0, 1);
            let mut status = 0;
            // SAFETY: it is this process' child.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert_eq!((status, sum(&family, "bob")), (0, 1));
        });
    });
}
