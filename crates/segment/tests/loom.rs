//! Runs these operations in every interleaving: publishing a record, adding to stripes, adding
//! while a slab earns lanes, using a family's index and records, reading the flight recorder while
//! a chunk starts over, and copying a file while a value is folded into another, a sum is reset or
//! a sequence lock is written.
//!
//! You can run it with `RUSTFLAGS="--cfg loom" cargo test --release -p quipu-segment --test loom`.

#![cfg(loom)]
#![allow(clippy::unwrap_used)]

use loom::sync::Arc;
use loom::thread;
use quipu_segment::history::model::Chunks;
use quipu_segment::model::List;
use quipu_segment::moved_model::WordsCopy;
use quipu_segment::series::model::{ModelRecord, Process, SharedMemory, SmallIndex};
use quipu_segment::sync::Ordering;
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

#[test]
fn a_slab_that_earns_lanes_loses_no_addition_and_doubles_none() {
    loom::model(|| {
        let shared = SharedMemory::default();
        let (mine, other) = (Process::open(&shared), Process::open(&shared));
        let adder = {
            let mine = mine.clone();
            thread::spawn(move || {
                mine.earn();
                mine.add(1);
            })
        };
        let reader = thread::spawn(move || {
            // The second addition is on a CPU without a lane.
            other.add(0);
            let sum = other.sum();
            assert!((1..=2).contains(&sum), "{sum}");
            other.add(7);
            other.sum()
        });
        adder.join().unwrap();
        assert!((2..=3).contains(&reader.join().unwrap()));
        assert_eq!((mine.sum(), Process::open(&shared).sum()), (3, 3));
    });
}

#[test]
fn two_threads_of_a_process_earn_the_same_lanes() {
    loom::model(|| {
        let shared = SharedMemory::default();
        let mine = Process::open(&shared);
        let threads: Vec<_> = [0, 1]
            .into_iter()
            .map(|cpu| {
                let mine = mine.clone();
                thread::spawn(move || {
                    mine.earn();
                    mine.add(cpu);
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(mine.sum(), 2);
    });
}

#[test]
fn a_sum_is_at_least_its_base_while_a_slab_earns_lanes() {
    loom::model(|| {
        let shared = SharedMemory::default();
        let (mine, other) = (Process::open(&shared), Process::open(&shared));
        let adder = thread::spawn(move || {
            mine.earn();
            mine.add(0);
            mine.reset();
        });
        let sum = other.sum();
        assert!(sum <= 1, "{sum}");
        adder.join().unwrap();
        assert_eq!(other.sum(), 0);
    });
}

#[test]
fn a_frame_that_is_read_is_of_its_lap() {
    loom::model(|| {
        let chunks = Chunks::new();
        chunks.write(2, 1);
        let writer = {
            let chunks = chunks.clone();
            thread::spawn(move || chunks.write(2, 2))
        };
        // The chunk of the first lap starts over as the third.
        let frames = chunks.read(1);
        assert!(matches!(frames, None | Some(1)), "{frames:?}");
        let frames = chunks.read(3);
        assert!(matches!(frames, None | Some(0..=2)), "{frames:?}");
        writer.join().unwrap();
        assert_eq!((chunks.read(1), chunks.read(3), chunks.read(4)), (None, Some(2), Some(2)));
    });
}

/// Runs `writer` on an index with the keys 1 and 2 in the records 0 and 1, and `reader` at the same
/// time.
///
/// The writer runs on the first thread, because loom remembers one access to each cell: a store
/// after a load by the same thread would hide that another thread had read the cell before.
fn index(records: u32, writer: fn(&SmallIndex), reader: fn(&SmallIndex)) {
    loom::model(move || {
        let index = Arc::new(SmallIndex::new(records));
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
            // Insert the removed key again, in another record.
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
        let index = Arc::new(SmallIndex::new(3));
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
        // No thread is working any more: after all entries moved, no lookup needs the lock.
        index.migrate(4);
        assert_eq!((index.find(1), index.find(2)), (Some(0), Some(1)));
    });
}

/// A thread adds to a series while another one removes it and reuses its record.
#[test]
fn an_addition_never_goes_to_another_series() {
    loom::model(|| {
        let record = ModelRecord::new();
        let adder = {
            let record = record.clone();
            thread::spawn(move || {
                let word = record.take().unwrap();
                if record.find(word, 1) {
                    record.add(3);
                }
                record.release(word);
            })
        };
        record.remove();
        // Earlier additions were removed with the series, and no other series gets them.
        if record.use_again(2, |_| true) {
            assert_eq!(record.sum(), 0);
            adder.join().unwrap();
            assert_eq!(record.sum(), 0);
        } else {
            adder.join().unwrap();
            assert!(record.use_again(2, |_| true), "no claim is left");
            assert_eq!(record.sum(), 0);
        }
    });
}

/// A claim counts for the series that owns the record by then.
#[test]
fn a_record_that_was_used_again_is_found_as_what_it_is() {
    loom::model(|| {
        let record = ModelRecord::new();
        record.remove();
        let adder = {
            let record = record.clone();
            thread::spawn(move || {
                let word = record.take().unwrap();
                let found = record.find(word, 2);
                if found {
                    record.add(3);
                }
                record.release(word);
                found
            })
        };
        let is_used = record.use_again(2, |_| true);
        let found = adder.join().unwrap();
        assert!(is_used || !found);
        assert_eq!(record.sum(), if found { 3 } else { 0 });
    });
}

/// A process takes over the block of an ended process, while a third one reads the claims.
#[test]
fn claims_in_a_block_that_was_taken_over_are_seen() {
    const SECOND: u64 = 2;
    // Bounded, because one process empties words that another reads: exploring every order would
    // take minutes.
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(3));
    builder.check(|| {
        let record = ModelRecord::new();
        let adder = {
            let record = record.clone();
            thread::spawn(move || {
                let word = record.take_over(SECOND).unwrap();
                if record.find(word, 1) {
                    record.add(3);
                }
                record.release(word);
            })
        };
        record.remove();
        let is_used = record.use_again(2, |token| token == SECOND);
        adder.join().unwrap();
        assert!(!is_used || record.sum() == 0);
    });
}

#[test]
fn no_two_threads_have_the_same_word() {
    loom::model(|| {
        let record = ModelRecord::new();
        let first = record.take().unwrap();
        let other = {
            let record = record.clone();
            thread::spawn(move || {
                let mine = record.take();
                mine.into_iter().for_each(|word| record.give_back(word));
                let again = record.take();
                (mine, again)
            })
        };
        record.give_back(first);
        let mine = record.take();
        let (_, others) = other.join().unwrap();
        assert!(mine.is_some() && others.is_some() && mine != others, "{mine:?} {others:?}");
    });
}

/// Runs `writer` on some words while they are copied.
fn copy_while(
    words: &'static [u64],
    writer: impl Fn(&Cells) + Send + Sync + Copy + 'static,
    check: impl Fn(&Cells, &WordsCopy) + Send + Sync + 'static,
) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(3));
    builder.check(move || {
        let file = Cells::private(words.len());
        for (cell, word) in file.iter().zip(words) {
            cell.store(*word, Ordering::Relaxed);
        }
        let thread = {
            let file = file.slice(0..file.len());
            thread::spawn(move || writer(&file))
        };
        check(&file, &WordsCopy::new(&file));
        thread.join().unwrap();
    });
}

/// A fold of 2 into 1, for example of process gauges: the value, the pending sum and the absorbed
/// process of the first, and the value of the second.
#[test]
fn a_copy_of_a_fold_has_each_value_once() {
    copy_while(
        &[1, 0, 0, 2],
        |file| {
            file[1].store(3, Ordering::Relaxed);
            file[2].store(71, Ordering::Release);
            file[0].store(3, Ordering::Release);
            file[3].store(0, Ordering::Release);
            file[2].store(0, Ordering::Release);
        },
        |_, copied| {
            // Words that moved would be read again by the code above.
            if !copied.has_moved(0..4) {
                let [one, pending, absorbed, other] = [0, 1, 2, 3].map(|at| copied.word(at));
                let sum = if absorbed == 0 { one + other } else { pending };
                assert_eq!(sum, 3, "{one} {pending} {absorbed} {other}");
            }
        },
    );
}

/// A sum in a lane, its base, and its start: 5 are added, it is reset, and 1 is added.
#[test]
fn a_copy_of_a_reset_has_the_sum_before_it_or_after_it() {
    const LANE: usize = 0;
    const BASE: usize = 1;
    const START: usize = 2;
    copy_while(
        &[10, 0, 7],
        |file| {
            file[LANE].fetch_add(5, Ordering::Release);
            let sum = file[LANE].load(Ordering::Acquire);
            file[BASE].store(sum, Ordering::Release);
            file[START].store(8, Ordering::Release);
            file[LANE].fetch_add(1, Ordering::Release);
        },
        |file, copied| {
            if copied.has_moved(BASE as u64..START as u64 + 1) {
                for words in [[START], [BASE], [LANE]] {
                    copied.read_again(file, &words);
                }
            }
            let sum = copied.word(LANE).wrapping_sub(copied.word(BASE));
            assert!([0, 1, 10, 15, 16].contains(&sum), "{sum}");
            assert!(copied.word(START) == 7 || sum < 10, "{sum}");
        },
    );
}

/// A sequence lock with two words, which are equal.
#[test]
fn a_copy_of_a_sequence_lock_is_whole() {
    copy_while(
        &[2, 4, 4],
        |file| {
            file[0].store(3, Ordering::Relaxed);
            file[1].store(5, Ordering::Release);
            file[2].store(5, Ordering::Release);
            file[0].store(4, Ordering::Release);
        },
        |_, copied| {
            let [number, one, other] = [0, 1, 2].map(|at| copied.word(at));
            if !copied.has_moved(0..1) && number % 2 == 0 {
                assert_eq!(one, other, "at {number}");
            }
        },
    );
}
