//! Writes invalid words into a file while another process uses it.

#![cfg(all(target_os = "linux", not(miri)))]
#![allow(clippy::unwrap_used)]

#[path = "common/neighbour.rs"]
mod neighbour;

use std::fs::{File, OpenOptions};
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;

use quipu_segment::series::{Cursor, Family, Label, Schema};
use quipu_segment::{Cells, Options, Segment};

/// Pseudorandom numbers (xorshift64*, Marsaglia 2003 and Vigna 2016), the same ones each time.
fn programs(count: usize) -> impl Iterator<Item = Vec<u8>> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move || {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 56) as u8
    };
    (0..count).map(move |_| (0..400).map(|_| next()).collect())
}

#[test]
fn nonsense_of_a_neighbour_ends_nobody_and_keeps_nobody() {
    let world = neighbour::World::new();
    for program in programs(20) {
        world.run(&program, &mut |_| ());
    }
}

/// Indexes into a family's head.
const LANES: usize = 1;
const OVERFLOW: usize = 4;
const FIRST_BLOCK: usize = 16;
/// The byte offset of the segment's size in the header.
const SIZE: u64 = 64;
/// The byte offset of the cursor, the end of the bytes in use.
const CURSOR: u64 = 72;

/// A file that is shorter than its mapping, and a neighbour's access to the file.
struct Shared {
    _directory: tempfile::TempDir,
    file: File,
    segment: Segment,
}

impl Shared {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("metrics.quipu");
        let segment = Options::new().limit(1 << 20).shared().open_or_create(&path).unwrap();
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        Self { _directory: directory, file, segment }
    }

    fn family(&self, labels: &[&str], limit: Option<u64>) -> Family {
        let label = |name: &&str| Label { name: (*name).into(), values: None };
        let labels = labels.iter().map(label).collect();
        let name = "requests".into();
        let schema = Schema { name, cells: 1, additive: true, labels, limit, ..Schema::default() };
        self.segment.family(&schema).unwrap()
    }

    fn head(&self) -> Cells {
        let mut records = self.segment.records().map(Result::unwrap);
        records.find(|record| record.name() == "requests").unwrap().cells().clone()
    }

    fn word(&self, at: u64) -> u64 {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, at).unwrap();
        u64::from_le_bytes(bytes)
    }

    fn set(&self, at: u64, value: u64) {
        self.file.write_all_at(&value.to_le_bytes(), at).unwrap();
    }
}

fn count(family: &Family) -> u64 {
    let mut count = 0;
    let _ = family.walk(&mut Cursor::default(), &mut Vec::new(), |_| {
        count += 1;
        ControlFlow::Continue(())
    });
    count
}

#[test]
fn memory_beyond_the_end_of_the_file_is_not_touched() {
    let shared = Shared::new();
    drop(shared.family(&[], None));
    let used = shared.segment.used();
    let head = shared.head();
    let lanes = head[LANES].load(Ordering::Relaxed);
    // Inside the mapping but beyond the end of the file; and the last word of the mapping.
    for first in [(shared.file.metadata().unwrap().len() + 8192) / 8, (1 << 20) / 8 - 1] {
        shared.set(CURSOR, 1 << 40);
        shared.set(SIZE, 1 << 40);
        head[LANES].store(lanes >> 32 << 32 | first, Ordering::Relaxed);
        assert!(shared.segment.used() <= 1 << 20);
        let schema =
            Schema { name: "requests".into(), cells: 1, additive: true, ..Schema::default() };
        assert!(shared.segment.family(&schema).is_err());
        assert!(shared.segment.families().is_err());
    }
    head[LANES].store(lanes, Ordering::Relaxed);
    shared.set(CURSOR, used);
    shared.family(&[], None).add(|_| (), 0, 1);
}

#[test]
fn a_block_that_is_its_own_next_one_ends_a_walk() {
    let shared = Shared::new();
    let family = shared.family(&["user"], None);
    (0..3).for_each(|i| family.add(|key| key.text(&i.to_string()), 0, 1));
    let block = shared.head()[FIRST_BLOCK].load(Ordering::Relaxed);
    let link = shared.word(block * 8);
    shared.set(block * 8, link | block);
    assert_eq!(count(&family), 3);
    family.retain(|_| true).unwrap();
}

#[test]
fn without_an_overflow_series_nothing_else_is_counted_in() {
    let shared = Shared::new();
    let family = shared.family(&["user"], Some(1));
    family.add(|key| key.text("ada"), 0, 1);
    let head: Vec<u64> = (0..8).map(|i| shared.word(8 * i)).collect();
    for nonsense in [0, 1, 7, u64::MAX, u64::from(u32::MAX), (1 << 20) / 8 - 1] {
        shared.head()[OVERFLOW].store(nonsense, Ordering::Relaxed);
        let before = family.overflowed();
        family.add(|key| key.text("bob"), 0, 1);
        assert_eq!(family.overflowed(), before + 1);
        let bound = family.bind(|key| key.text("bob"));
        bound.cells().add(0, 1);
        drop(bound);
    }
    assert_eq!(head, (0..8).map(|i| shared.word(8 * i)).collect::<Vec<_>>());
    assert_eq!(count(&family), 1);
}
