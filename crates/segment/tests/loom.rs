//! Every interleaving of publishing a record, of adding to stripes, and of a family's index and
//! records.
//!
//! Run it with `RUSTFLAGS="--cfg loom" cargo test --release -p quipu-segment --test loom`.

#![cfg(loom)]
#![allow(clippy::unwrap_used)]

use loom::sync::Arc;
use loom::thread;
use quipu_segment::model::List;
use quipu_segment::series::model::{Record, Small};
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

/// Runs `writer` on an index with the keys 1 and 2 in the records 0 and 1, and `reader` at the same
/// time.
///
/// The writer has the first thread. Loom remembers one access of each cell: a store behind a load
/// by the same thread would hide that another one had read the cell before.
fn index(records: u32, writer: fn(&Small), reader: fn(&Small)) {
    loom::model(move || {
        let index = Arc::new(Small::new(records));
        index.insert(0, 1);
        index.insert(1, 2);
        let thread = {
            let index = Arc::clone(&index);
            thread::spawn(move || reader(&index))
        };
        writer(&index);
        thread.join().unwrap();
        reader(&index);
    });
}

#[test]
fn a_lookup_finds_what_was_there_while_others_come() {
    index(
        3,
        |index| {
            index.replace();
            index.insert(2, 3);
        },
        |index| {
            assert!([None, Some(2)].contains(&index.find(3)));
            assert_eq!(index.find_surely(1), Some(0));
        },
    );
}

#[test]
fn a_lookup_finds_what_moves() {
    index(
        2,
        |index| {
            index.replace();
            index.migrate(1);
            index.migrate(1);
        },
        |index| {
            assert!([None, Some(0)].contains(&index.find(1)));
            assert_eq!(index.find_surely(2), Some(1));
        },
    );
}

#[test]
fn a_lookup_finds_what_moves_twice_and_into_a_table_that_is_used_again() {
    index(
        2,
        |index| {
            index.replace();
            index.migrate(4);
            index.replace();
            index.migrate(4);
        },
        |index| assert_eq!(index.find_surely(2), Some(1)),
    );
}

#[test]
fn a_lookup_finds_what_stays_while_others_go() {
    index(
        3,
        |index| {
            index.remove(0, 1);
            index.replace();
            index.migrate(1);
            // The same key once more, in another record.
            index.insert(2, 1);
        },
        |index| {
            assert_eq!(index.find_surely(2), Some(1));
            assert!([None, Some(0), Some(2)].contains(&index.find(1)));
        },
    );
}

#[test]
fn nothing_is_lost_by_a_move() {
    loom::model(|| {
        let index = Arc::new(Small::new(3));
        index.insert(0, 1);
        let thread = {
            let index = Arc::clone(&index);
            thread::spawn(move || {
                index.replace();
                index.migrate(4);
            })
        };
        index.insert(1, 2);
        thread.join().unwrap();
        // Nobody is at work any more: no lookup needs the lock, if all has moved.
        index.migrate(4);
        assert_eq!((index.find(1), index.find(2)), (Some(0), Some(1)));
    });
}

#[test]
fn an_addition_to_a_record_that_is_used_again_is_taken_back() {
    loom::model(|| {
        let record = Record::new();
        let adder = {
            let record = record.clone();
            thread::spawn(move || record.find().is_some_and(|found| record.add(found, 3)))
        };
        record.remove();
        let is_used_again = record.use_again();
        let added = adder.join().unwrap();
        // What was added before the removal went with the series; no other one has it.
        if is_used_again {
            assert!(!added);
            assert_eq!(record.sum(), 0);
        }
    });
}

#[test]
fn a_handle_keeps_its_record() {
    loom::model(|| {
        let record = Record::new();
        let binder = {
            let record = record.clone();
            thread::spawn(move || {
                let bound = record.find().is_some_and(|found| record.bind(found));
                if bound {
                    record.add_bound(3);
                    // As long as the handle is there, the record is its own.
                    assert!(record.sum() == 3 && record.is_first());
                    record.release();
                }
                bound
            })
        };
        record.remove();
        let is_used_again = record.use_again();
        let bound = binder.join().unwrap();
        // Freed once, by whoever was the last to have it.
        assert!(is_used_again || bound);
        assert_eq!(record.is_free(), !is_used_again);
    });
}
