//! Forks a child while another thread of its parent uses some code for the first time. Lazy
//! initialization must not take a lock then, because this lock would stay locked in the child
//! forever.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, missing_docs)]

use std::sync::atomic::{AtomicBool, Ordering};

use quipu::label::Values;
use quipu::{CounterFamily, Description, Histogram, Registry};
use quipu_segment::Segment;

/// After this time, we assume that a child hangs.
const PATIENCE_SECONDS: u32 = 20;
const FORKS: u32 = 100;

#[test]
fn children_of_forks_during_the_first_use_count() {
    let registry = Registry::from_segment(Segment::anonymous(16 << 20).unwrap());
    let histogram: Histogram = registry.register(Description::new("h", "").native(3)).unwrap();
    let family: CounterFamily<Values<'static>> =
        registry.register(Description::new("c", "").labels(["a"])).unwrap();
    let first_use = |value: f64| {
        histogram.observe(value);
        family.inc(&Values(&["new"]));
        assert!(!registry.text().is_empty());
    };
    // This process itself makes no use of the code, because each child's use must be the first one.
    for trial in 0..FORKS {
        let status = in_child(|| {
            let (is_there, go) = (AtomicBool::new(false), AtomicBool::new(false));
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    is_there.store(true, Ordering::SeqCst);
                    while !go.load(Ordering::SeqCst) {
                        std::hint::spin_loop();
                    }
                    first_use(1.5);
                });
                while !is_there.load(Ordering::SeqCst) {
                    std::hint::spin_loop();
                }
                go.store(true, Ordering::SeqCst);
                (0..trial % 25 * 40).for_each(|_| std::hint::spin_loop());
                let status = in_child(|| {
                    first_use(2.5);
                    0
                });
                i32::from(status != 0)
            })
        });
        assert_eq!(status, 0, "fork {trial}: the child of the child did not end");
    }
}

/// Runs `work` in a child, and returns the status of the ended child.
fn in_child(work: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child only makes calls that this library allows in a child of a threaded process,
    // and exits.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: there is no handler: the signal ends the child.
        unsafe { libc::alarm(PATIENCE_SECONDS) };
        let status = work();
        // SAFETY: the child exits here.
        unsafe { libc::_exit(status) };
    }
    let mut status = -1;
    // SAFETY: the status is an integer that outlives the call.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    status
}
