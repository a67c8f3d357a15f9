//! Loom models of the ring: every interleaving of its operations, with up to three preemptions.
//!
//! Run it with `RUSTFLAGS="--cfg loom" cargo test --release -p quipu-window --test loom`.

#![cfg(loom)]

use loom::sync::Arc;
use loom::thread;
use quipu_window::model::Model;

fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    // Three preemptions find all known faults of such algorithms, and take minutes.
    builder.preemption_bound = builder.preemption_bound.or(Some(3));
    builder.check(model);
}

#[test]
fn additions_at_a_border_all_count() {
    check(|| {
        let ring = Arc::new(Model::new(2, 10));
        let threads: Vec<_> = [11, 12]
            .into_iter()
            .map(|now| {
                let ring = Arc::clone(&ring);
                thread::spawn(move || ring.add(now, 1))
            })
            .collect();
        let seen = ring.count(11, 2);
        assert!(seen <= 2);
        for thread in threads {
            thread.join().unwrap();
        }
        // Both are at most two ticks old.
        assert_eq!(ring.count(12, 2), 2);
    });
}

#[test]
fn an_addition_stays_for_its_window() {
    check(|| {
        let ring = Arc::new(Model::new(2, 10));
        let adder = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || ring.add(11, 1))
        };
        let mover = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || ring.count(12, 1))
        };
        adder.join().unwrap();
        mover.join().unwrap();
        assert_eq!(ring.count(13, 2), 1, "too early gone");
    });
}

#[test]
fn an_addition_expires() {
    check(|| {
        let ring = Arc::new(Model::new(1, 10));
        ring.add(10, 1);
        let movers: Vec<_> = [11, 12]
            .into_iter()
            .map(|now| {
                let ring = Arc::clone(&ring);
                thread::spawn(move || ring.count(now, 1))
            })
            .collect();
        for mover in movers {
            assert!(mover.join().unwrap() <= 1);
        }
        assert_eq!(ring.count(12, 1), 0, "too long here");
    });
}

#[test]
fn a_jump_and_a_step_agree() {
    check(|| {
        let ring = Arc::new(Model::new(1, 10));
        ring.add(10, 5);
        let jumper = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || ring.add(20, 1))
        };
        let stepper = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || ring.add(11, 1))
        };
        jumper.join().unwrap();
        stepper.join().unwrap();
        let count = ring.count(20, 1);
        // The event of the thread with the old time counts from when it adds, or is expired.
        assert!(count == 1 || count == 2, "{count}");
        assert_eq!(ring.count(22, 1), 0);
    });
}

#[test]
fn a_filler_that_slept_does_no_harm() {
    check(|| {
        // The ring consists of 8 slots: ticks 11 and 19 share one.
        let ring = Arc::new(Model::new(1, 10));
        let sleeper = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || ring.add(11, 1))
        };
        ring.add(18, 1);
        ring.add(19, 1);
        sleeper.join().unwrap();
        let count = ring.count(20, 1);
        assert!(count == 1 || count == 2, "{count}");
    });
}

#[test]
fn a_filler_that_slept_for_a_lap_does_no_harm() {
    check(|| {
        // The event of tick 10 is expired by tick 12; its sum must not return at tick 19.
        let ring = Arc::new(Model::new(1, 10));
        let sleeper = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || ring.count(11, 1))
        };
        ring.add(10, 1);
        ring.count(11, 1);
        ring.count(19, 1);
        sleeper.join().unwrap();
        assert_eq!(ring.count(20, 1), 0, "an event that has left came back");
    });
}

#[test]
fn each_caller_gets_a_number_of_its_own() {
    check(|| {
        let ring = Arc::new(Model::new(2, 10));
        let other = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || ring.add_and_count(10, 1, 2))
        };
        let mine = ring.add_and_count(10, 1, 2);
        let other = other.join().unwrap();
        assert_eq!(mine + other, 3);
    });
}

#[test]
fn a_reset_forgets_what_came_before_and_nothing_else() {
    check(|| {
        let ring = Arc::new(Model::new(2, 10));
        ring.add(10, 4);
        let resetter = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || ring.reset())
        };
        ring.add(11, 1);
        let seen = ring.count(11, 2);
        assert!([0, 1, 5].contains(&seen), "{seen}");
        resetter.join().unwrap();
        let count = ring.count(11, 2);
        assert!(count <= 1, "{count}");
    });
}

#[test]
fn a_reset_forgets_what_its_caller_added() {
    check(|| {
        let ring = Arc::new(Model::new(1, 10));
        ring.add(10, 1);
        let other = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || ring.reset())
        };
        ring.add(10, 1);
        ring.reset();
        assert_eq!(ring.count(10, 1), 0);
        other.join().unwrap();
    });
}
