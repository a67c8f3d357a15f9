//! A process that is stopped while it holds a lock, and a thread that is interrupted while it holds
//! one. An update waits for a stated time and then counts in the overflow series. A scrape does not
//! wait.
//!
//! The lock's word contains the token of another opener of the file, which lives and stays idle.

#![cfg(all(target_os = "linux", not(miri)))]
#![allow(clippy::unwrap_used)]

use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use quipu_segment::series::{
    Cursor, Family, Label, Schema, SeriesCells, SeriesHandle, SideAllocations,
};
use quipu_segment::{Options, Segment};

/// The index of the lock word in a family's head.
const LOCK: usize = 8;
/// The byte offset of the growth lock in the header.
const GROWING: u64 = 184;
/// Enough for some of the waits, but not for one in each update, because these would take 100 s.
const SOON: Duration = Duration::from_secs(20);

fn open(path: &Path) -> Segment {
    Options::new().shared().open_or_create(path).unwrap()
}

fn family(segment: &Segment) -> Family {
    let labels = vec![Label { name: "user".into(), values: None }];
    let (name, idle) = ("requests".into(), Some(Duration::from_secs(60)));
    let schema = Schema { name, cells: 1, additive: true, labels, idle, ..Schema::default() };
    segment.family(&schema).unwrap()
}

/// Sets the word of the family's lock to `value`.
fn set_lock(segment: &Segment, value: u64) {
    let mut records = segment.records().map(Result::unwrap);
    let record = records.find(|record| record.name() == "requests").unwrap();
    record.cells()[LOCK].store(value, Ordering::Relaxed);
}

/// Returns the sum of the overflow series, and the sum of all others.
fn sums(family: &Family) -> (u64, u64) {
    let mut sums = (0, 0);
    let _ = family.walk(&mut Cursor::default(), &mut Vec::new(), |view| {
        let sum = if view.overflow { &mut sums.0 } else { &mut sums.1 };
        *sum += view.cells.sum(0);
        ControlFlow::Continue(())
    });
    sums
}

fn add(family: &Family, user: &str) {
    family.add(|key| key.text(user), 0, 1);
}

#[test]
fn nobody_waits_for_long_for_who_was_stopped_with_a_familys_lock() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("metrics.quipu");
    let (segment, stopped) = (open(&path), open(&path));
    let family = family(&segment);
    add(&family, "known");
    set_lock(&segment, stopped.process().unwrap());
    let begun = Instant::now();
    (0..1000).for_each(|i| add(&family, &i.to_string()));
    add(&family, "known");
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    assert_eq!((family.overflowed(), sums(&family)), (1000, (1000, 2)));
    // A scrape and reads can do without the lock.
    family.sweep().unwrap();
    assert_eq!(family.read(|key| key.text("known"), |cells| cells.sum(0)), Some(2));
    assert_eq!(family.read(|key| key.text("none"), |cells| cells.sum(0)), None);
    let error = family.try_remove(|key| key.text("known")).unwrap_err();
    assert!(error.is_held() && error.to_string().contains("resume it or end it"), "{error}");
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    // The owner continues, and everything is as before.
    set_lock(&segment, 0);
    add(&family, "new");
    assert!(family.remove(|key| key.text("known")).unwrap());
    assert_eq!((family.overflowed(), sums(&family)), (1000, (1000, 1)));
}

#[test]
fn the_death_of_who_was_stopped_releases_the_lock() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("metrics.quipu");
    let (segment, stopped) = (open(&path), open(&path));
    let family = family(&segment);
    set_lock(&segment, stopped.process().unwrap());
    add(&family, "one");
    drop(stopped);
    add(&family, "two");
    assert_eq!((family.overflowed(), sums(&family)), (1, (1, 1)));
}

#[test]
fn nobody_waits_for_long_for_who_was_stopped_while_the_file_grows() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("metrics.quipu");
    let (segment, stopped) = (open(&path), open(&path));
    let family = family(&segment);
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    let lock = |value: u64| file.write_all_at(&value.to_le_bytes(), GROWING).unwrap();
    lock(stopped.process().unwrap());
    let size = segment.size();
    let begun = Instant::now();
    let user = |i: usize| format!("{i} {}", "-".repeat(100));
    let added = (1..).find(|&i| {
        add(&family, &user(i));
        family.overflowed() == 100
    });
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    assert_eq!((segment.size(), sums(&family)), (size, (100, added.unwrap() as u64 - 100)));
    lock(0);
    (0..100).for_each(|i| add(&family, &user(added.unwrap() + i)));
    assert_eq!((family.overflowed(), segment.size() > size), (100, true));
}

/// Updates a family like a signal handler that interrupts the thread with the lock.
#[derive(Default)]
struct Handler {
    bound: OnceLock<SeriesHandle>,
}

impl SideAllocations for Handler {
    fn is_offset(&self, _: usize) -> bool {
        true
    }

    /// A reset calls this with the lock held.
    fn clear(&self, family: &Family, cells: &SeriesCells<'_>) {
        add(family, "new");
        add(family, "bound");
        family.sweep().unwrap();
        assert_eq!(family.read(|key| key.text("none"), |cells| cells.sum(0)), None);
        assert!(family.remove(|key| key.text("bound")).unwrap_err().is_held());
        assert!(self.bound.get().unwrap().clone().cells().sum(0) > 0);
        assert!(cells.sum(0) > 0);
    }

    fn renew(&self, _: &Family, _: &SeriesCells<'_>) {}
}

#[test]
fn an_update_under_the_lock_of_its_own_thread_counts_in_the_overflow() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("metrics.quipu");
    for segment in [open(&path), Segment::private(1 << 20).unwrap()] {
        let family = family(&segment);
        let handler = Arc::new(Handler::default());
        family.set_side_allocations(Arc::<Handler>::clone(&handler));
        let bound = handler.bound.get_or_init(|| family.bind(|key| key.text("bound")));
        let begun = Instant::now();
        family.reset().unwrap();
        assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
        assert!(bound.cells().sum(0) > 0);
        assert!(family.overflowed() > 0);
    }
}
