//! Pairs of a float sum and a count.

#[cfg(all(target_os = "linux", not(miri)))]
#[path = "../common/affinity.rs"]
mod affinity;

use quipu_segment::Segment;
use quipu_segment::series::{Family, Label, Schema};

use super::{dynamic, fixed, schema};

/// Returns a schema whose cells are all in pairs.
fn paired(name: &str, pairs: u8, labels: Vec<Label>) -> Schema {
    let floats = (0..pairs).fold(0, |floats, pair| floats | 1 << (2 * pair));
    let cells = u16::from(pairs) * 2;
    Schema { name: name.into(), cells, pairs, floats, ..schema(labels) }
}

/// Returns the sums and counts of the first group.
fn sums(family: &Family) -> Vec<(f64, u64)> {
    let handle = family.bind(|_| {});
    let cells = handle.cells();
    let pairs = 0..=cells.last_pair().unwrap();
    pairs.map(|pair| (cells.sum_float(2 * pair), cells.sum(2 * pair + 1))).collect()
}

#[test]
fn an_addition_changes_the_sum_and_the_count_of_one_pair() {
    let segment = Segment::private(1 << 20).unwrap();
    let family = segment.family(&paired("requests", 3, vec![])).unwrap();
    let handle = family.bind(|_| {});
    handle.cells().add_pair(1, 1, 0.25);
    handle.cells().add_pair(0, 2, -3.0);
    // There is no such pair, so this adds to the last.
    handle.cells().add_pair(usize::MAX, u64::MAX, f64::INFINITY);
    handle.cells().add_pair(3, 3, 1.0);
    assert_eq!(sums(&family), [(-3.0, 2), (0.25, 1), (f64::INFINITY, 2)]);
    assert_eq!(handle.cells().sum_of_pairs(), f64::INFINITY);
    family.reset().unwrap();
    assert_eq!(sums(&family), [(0.0, 0); 3]);
    handle.cells().add_pair(1, 1, 0.5);
    assert_eq!((sums(&family)[1], handle.cells().sum_of_pairs()), ((0.5, 1), 0.5));
}

#[test]
#[should_panic(expected = "there are pairs")]
fn cells_without_pairs_take_no_pair() {
    let segment = Segment::private(1 << 20).unwrap();
    let family = segment.family(&schema(vec![])).unwrap();
    family.bind(|_| {}).cells().add_pair(0, 1, 1.0);
}

#[test]
fn a_series_with_pairs_begins_at_a_multiple_of_16_bytes() {
    let segment = Segment::private(4 << 20).unwrap();
    let kinds = fixed("kind", &["a", "b", "c"]);
    let many: Vec<String> = (0..600).map(|i| i.to_string()).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    for (number, pairs) in [1, 5, 12].into_iter().enumerate() {
        let counter = Schema { name: format!("counter_{number}"), ..schema(vec![]) };
        segment.family(&counter).unwrap().add(|_| {}, 0, 1);
        for (name, label) in [("few", kinds.clone()), ("many", fixed("number", &many))] {
            let family = segment.family(&paired(&format!("{name}_{number}"), pairs, vec![label]));
            let family = family.unwrap();
            for group in 0..family.groups() {
                let handle = family.bind(|key| key.index(group, family.groups()));
                let first = std::ptr::from_ref(handle.cells().plain(0));
                assert_eq!(first.addr() % 16, 0, "group {group} of {name} with {pairs} pairs");
            }
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "it takes minutes, and has no unsafe code to look at")]
fn pairs_that_contradict_the_rest_of_the_schema_are_refused() {
    let segment = Segment::private(1 << 20).unwrap();
    let good = paired("requests", 3, vec![fixed("kind", &["a", "b"])]);
    let many: Vec<String> = (0..20_000).map(|i| i.to_string()).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let wrong = [
        Schema { pairs: 4, ..good.clone() },
        Schema { cells: 7, ..good.clone() },
        Schema { floats: 0b01_0111, ..good.clone() },
        Schema { floats: 0b01_0001, ..good.clone() },
        Schema { additive: false, ..good.clone() },
        Schema { labels: vec![dynamic("user")], ..good.clone() },
        // Too many groups for a dense family.
        Schema { labels: vec![fixed("kind", &many)], ..good.clone() },
        Schema { cells: 512, pairs: 33, ..good.clone() },
        Schema { cells: 512, pairs: 255, ..good.clone() },
    ];
    for schema in wrong {
        let error = segment.family(&schema).unwrap_err().to_string();
        assert!(error.contains("pairs of a sum and a count do not fit"), "{error}");
    }
    segment.family(&good).unwrap();
    let apart = Schema { cells: 8, ..good };
    assert!(segment.family(&apart).is_err(), "the family has 6 cells");
}

/// A thread moves the others from CPU to CPU, because this interrupts sequences at any instruction.
#[cfg(all(target_os = "linux", not(miri)))]
#[test]
fn threads_that_are_moved_between_cpus_lose_no_half_of_a_pair() {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;
    use std::thread;

    const THREADS: usize = 4;
    const TURNS: u64 = 400_000;
    let segment = Segment::private(1 << 20).unwrap();
    let family = segment.family(&paired("requests", 2, vec![])).unwrap();
    let is_over = AtomicBool::new(false);
    let (ids, movers) = mpsc::channel();
    let moves = thread::scope(|scope| {
        let (family, is_over) = (&family, &is_over);
        let mover = scope.spawn(move || {
            let threads: Vec<i32> = movers.iter().take(THREADS).collect();
            let mut moves = 0_usize;
            while !is_over.load(Ordering::Relaxed) {
                for (i, thread) in threads.iter().enumerate() {
                    affinity::pin(*thread, moves + i);
                }
                moves += 1;
            }
            moves
        });
        let adders: Vec<_> = (0..THREADS)
            .map(|_| {
                let ids = ids.clone();
                scope.spawn(move || {
                    // SAFETY: the call has no preconditions.
                    ids.send(unsafe { libc::gettid() }).unwrap();
                    let handle = family.bind(|_| {});
                    for i in 0..TURNS {
                        handle.cells().add_pair((i % 3 == 0).into(), 1, (i % 8) as f64);
                    }
                })
            })
            .collect();
        adders.into_iter().for_each(|adder| adder.join().unwrap());
        is_over.store(true, Ordering::Relaxed);
        mover.join().unwrap()
    });
    let mut expected = [(0.0, 0); 2];
    for i in 0..TURNS {
        let (sum, count) = &mut expected[usize::from(i % 3 == 0)];
        *sum += (i % 8) as f64 * THREADS as f64;
        *count += THREADS as u64;
    }
    assert_eq!(sums(&family), expected, "after {moves} moves");
}
