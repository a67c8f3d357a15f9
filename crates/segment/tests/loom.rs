//! Every interleaving of publishing a record, and of adding to stripes.
//!
//! Run it with `RUSTFLAGS="--cfg loom" cargo test --release -p quipu-segment --test loom`.

#![cfg(loom)]
#![allow(clippy::unwrap_used)]

use loom::sync::Arc;
use loom::thread;
use quipu_segment::model::List;
use quipu_segment::{Cells, Stripes};

#[test]
fn a_record_that_is_found_is_whole() {
    loom::model(|| {
        let list = Arc::new(List::new(2));
        let threads: Vec<_> = [1, 2]
            .into_iter()
            .map(|n| {
                let list = Arc::clone(&list);
                thread::spawn(move || list.publish(n, n * 100))
            })
            .collect();
        let seen = list.values();
        assert!(seen.iter().all(|value| [100, 200].contains(value)), "{seen:?}");
        for thread in threads {
            thread.join().unwrap();
        }
        let mut all = list.values();
        all.sort_unstable();
        assert_eq!(all, [100, 200]);
    });
}

#[test]
fn an_addition_that_is_seen_brings_what_came_before_it() {
    loom::model(|| {
        let stripes = Stripes::new(Cells::private(Stripes::cells(0, 2)), 0, 2);
        let flag = Cells::private(1);
        let adder = {
            let (stripes, flag) = (stripes.clone(), flag.clone());
            thread::spawn(move || {
                flag[0].store(1, quipu_segment::sync::Ordering::Relaxed);
                stripes.add(5);
            })
        };
        if stripes.sum() == 5 {
            assert_eq!(flag[0].load(quipu_segment::sync::Ordering::Relaxed), 1);
        }
        adder.join().unwrap();
        assert_eq!(stripes.sum(), 5);
    });
}

#[test]
fn one_line_gives_every_caller_a_sum_of_its_own() {
    loom::model(|| {
        let stripes = Stripes::new(Cells::private(Stripes::cells(0, 1)), 0, 1);
        let other = {
            let stripes = stripes.clone();
            thread::spawn(move || stripes.add_and_sum(1))
        };
        let mine = stripes.add_and_sum(1);
        assert_eq!(mine + other.join().unwrap(), 3);
    });
}
