//! Frees families, and creates new ones in their memory. No test in this program starts another
//! process, because a process that has forked frees no families. The tests with kills are in
//! `freed_kills.rs`.

#![cfg(all(unix, not(miri)))]
#![allow(clippy::unwrap_used)]

use std::fs;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use quipu_segment::clock::TestClock;
use quipu_segment::series::{Cursor, Family, Identity, KeyWriter, Label, Schema};
use quipu_segment::{Kind, Options, Readings, Segment};

const START: u64 = 1_700_000_000_000_000_000;
const SECOND: u64 = 1_000_000_000;

fn schema(name: &str) -> Schema {
    Schema {
        name: name.into(),
        kind: 1,
        cells: 2,
        additive: true,
        labels: vec![Label { name: "host".into(), values: None }],
        idle: Some(Duration::from_secs(1)),
        settings: vec![1, 2, 3],
        identity: Identity::Variant,
        ..Schema::default()
    }
}

fn add(family: &Family, host: &str, n: u64) {
    family.add(|key| key.text(host), 0, n);
}

/// Returns the names of the families with the sums of their shown series.
fn shown(segment: &Segment) -> Vec<(String, Vec<(String, u64)>)> {
    let mut all = Vec::new();
    for family in segment.families().unwrap() {
        let mut series = Vec::new();
        let _ = family.walk(&mut Cursor::default(), &mut Vec::new(), |view| {
            let host = String::from_utf8(view.texts.get(1..).unwrap_or_default().to_vec());
            series.push((host.unwrap(), view.cells.sum(0)));
            ControlFlow::Continue(())
        });
        series.sort();
        all.push((family.schema().name.clone(), series));
    }
    all
}

fn named(name: &str, series: &[(&str, u64)]) -> (String, Vec<(String, u64)>) {
    (name.into(), series.iter().map(|(host, n)| ((*host).to_owned(), *n)).collect())
}

/// Frees the families with these names.
fn free(segment: &Segment, names: &[&str]) -> u64 {
    let families = segment.families().unwrap();
    let is_one = |family: &&Family| names.contains(&&*family.schema().name);
    let unused: Vec<Family> = families.iter().filter(is_one).cloned().collect();
    segment.free_families(&unused).unwrap()
}

#[test]
fn a_new_family_gets_the_memory_of_a_freed_one() {
    let segment = Segment::private(1 << 20).unwrap();
    for name in ["a", "b", "c", "d"] {
        let family = segment.family(&schema(name)).unwrap();
        (0..50).for_each(|i| add(&family, &format!("host {i}"), 1));
    }
    // The newest, the oldest, and one in between.
    assert_eq!(free(&segment, &["d", "b", "a"]), 3);
    assert_eq!(segment.freed_families().unwrap(), 3);
    assert_eq!(shown(&segment).len(), 1);
    let used = segment.used();
    for (i, name) in ["x", "y", "a"].into_iter().enumerate() {
        let family = segment.family(&Schema { help: "New.".into(), ..schema(name) }).unwrap();
        assert!(family.is_empty() && family.overflowed() == 0);
        (0..50).for_each(|i| add(&family, &format!("{name} {i}"), 2));
        assert_eq!(family.len(), 50);
        assert_eq!(family.read(|key| key.text("host 3"), |cells| cells.sum(0)), None);
        assert_eq!(segment.freed_families().unwrap(), 2 - i as u64);
        // The name leads to the family.
        assert_eq!(segment.family(&schema(name)).unwrap().id(), family.id());
    }
    assert_eq!(segment.used(), used, "their memory suffices");
    let names: Vec<String> = shown(&segment).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["c", "x", "y", "a"]);
    // All freed families are in use again.
    segment.family(&schema("z")).unwrap();
    assert!(segment.used() > used);
}

#[test]
fn only_a_family_of_the_same_shape_that_fits_gets_the_memory() {
    let segment = Segment::private(1 << 20).unwrap();
    segment.family(&schema("a")).unwrap();
    assert_eq!(free(&segment, &["a"]), 1);
    let others = [
        Schema { kind: 2, ..schema("kind") },
        Schema { cells: 3, ..schema("cells") },
        Schema { floats: 1, ..schema("floats") },
        Schema { settings: vec![1, 2], ..schema("settings") },
        Schema { idle: None, ..schema("idle") },
        Schema { labels: Vec::new(), ..schema("labels") },
        schema(&"long ".repeat(40)),
    ];
    for other in others {
        segment.family(&other).unwrap();
        assert_eq!(segment.freed_families().unwrap(), 1, "{}", other.name);
    }
    // The names of the labels and their number do not matter.
    let labels = ["x", "y"].map(|name| Label { name: name.into(), values: None }).to_vec();
    let family = segment.family(&Schema { labels, ..schema("b") }).unwrap();
    assert_eq!(segment.freed_families().unwrap(), 0);
    let key = |key: &mut KeyWriter<'_>| {
        key.text("1");
        key.text("2");
    };
    family.add(key, 1, 7);
    assert_eq!(family.len(), 1);
}

#[test]
fn families_that_may_be_used_are_not_freed() {
    let segment = Segment::private(1 << 20).unwrap();
    let bound = segment.family(&schema("bound")).unwrap();
    let handle = bound.bind(|key| key.text("a"));
    let limited = Schema { limit: Some(1), ..schema("limited") };
    let limited = segment.family(&limited).unwrap();
    ["a", "b"].iter().for_each(|host| add(&limited, host, 1));
    let fixed = Label { name: "fixed".into(), values: Some(vec!["1".into()]) };
    segment.family(&Schema { labels: vec![fixed], ..schema("dense") }).unwrap();
    let names = ["bound", "limited", "dense"];
    assert_eq!((free(&segment, &names), segment.families().unwrap().len()), (0, 3));
    drop(handle);
    assert_eq!(free(&segment, &names), 1);
    // A family without labels contains no records.
    let alone = Schema { labels: Vec::new(), ..schema("alone") };
    segment.family(&alone).unwrap();
    assert_eq!(free(&segment, &["alone"]), 1);
    let used = segment.used();
    let other = segment.family(&Schema { name: "other".into(), ..alone }).unwrap();
    other.add(|_| (), 0, 3);
    assert_eq!((segment.used(), other.read(|_| (), |cells| cells.sum(0))), (used, Some(3)));
}

#[test]
fn a_family_is_unused_when_no_series_changed_for_long() {
    let segment = Segment::private(1 << 20).unwrap();
    let clock = TestClock::from_nanos(START);
    let family = segment.family_at(&schema("a"), clock.clone()).unwrap();
    let minute = Duration::from_secs(60);
    assert!(family.is_unused(minute));
    add(&family, "x", 1);
    family.sweep().unwrap();
    let second = Duration::from_secs(1);
    assert!(!family.is_unused(Duration::ZERO), "it is idle for less than a second");
    clock.set(START + 1000 * SECOND);
    assert!(!family.is_unused(second), "no sweep has hidden it");
    family.sweep().unwrap();
    assert_eq!(family.hidden(), 1);
    assert!(family.is_unused(minute) && !family.is_unused(minute * 20));
    // A clock that was set back.
    clock.set(START - 100 * SECOND);
    assert!(!family.is_unused(second));
    clock.set(START + 1060 * SECOND);
    // The series changed, and no sweep has noticed yet.
    add(&family, "x", 1);
    assert!(!family.is_unused(minute));
    let kept = segment.family_at(&Schema { idle: None, ..schema("b") }, clock.clone()).unwrap();
    add(&kept, "x", 1);
    clock.set(START + 2000 * SECOND);
    assert!(!kept.is_unused(Duration::ZERO));
}

#[test]
fn a_wrong_clock_at_boot_makes_no_family_unused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.quipu");
    let day = Duration::from_secs(24 * 60 * 60);
    let start = Duration::from_nanos(START);
    let readings = |boot: u8, wall: Duration| Readings {
        boot: [boot; 16],
        since_boot: Duration::from_secs(100),
        wall,
    };
    let open = |readings| Options::new().limit(1 << 20).readings(readings).open(&path).unwrap();
    let names = ["live", "hidden"];
    let options = Options::new().limit(1 << 20).readings(readings(1, start));
    let segment = options.open_or_create(&path).unwrap();
    // The last sync is an hour before the last updates.
    let clock = TestClock::from_nanos(START + 3600 * SECOND);
    let [live, hidden] = names.map(|name| segment.family_at(&schema(name), clock.clone()).unwrap());
    add(&hidden, "x", 1);
    hidden.sweep().unwrap();
    clock.advance(Duration::from_secs(5));
    hidden.sweep().unwrap();
    assert_eq!(hidden.hidden(), 1);
    add(&live, "x", 1);
    live.sweep().unwrap();
    segment.sync_at(&readings(1, start)).unwrap();
    drop((segment, live, hidden));
    let bytes = fs::read(&path).unwrap();
    // The clock is ahead, was set back, or is right.
    for wall in [start + day * 3, start - day * 3, start + Duration::from_secs(3700)] {
        fs::write(&path, &bytes).unwrap();
        let segment = open(readings(2, wall));
        for family in segment.families().unwrap() {
            let name = &family.schema().name;
            assert!(!family.is_unused(day), "{name} at {wall:?}");
            assert!(!family.is_unused(Duration::from_secs(1)), "{name} at {wall:?}");
            assert_eq!(family.is_unused(Duration::ZERO), name == "hidden", "{name} at {wall:?}");
        }
    }
}

#[test]
fn a_freed_family_is_used_again_only_after_a_sync() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.quipu");
    let options = Options::new().limit(1 << 20);
    let segment = options.open_or_create(&path).unwrap();
    for name in ["a", "b", "c"] {
        segment.family(&schema(name)).unwrap();
    }
    assert_eq!(free(&segment, &["a", "b", "c"]), 3);
    // SEEN_TIME, which each sync stores.
    let seen = || {
        let bytes = fs::read(&path).unwrap();
        u64::from_le_bytes(bytes[152..160].try_into().unwrap())
    };
    let before = seen();
    segment.family(&schema("d")).unwrap();
    assert_eq!(seen(), before, "the disk knew it already");
    drop(segment);
    // A killed process may not have synced its changes, so the next one does.
    let segment = options.open_or_create(&path).unwrap();
    assert_eq!(seen(), before);
    segment.family(&Schema { kind: 2, ..schema("e") }).unwrap();
    segment.family(&schema("f")).unwrap();
    assert_eq!(segment.freed_families().unwrap(), 1);
    let after = seen();
    assert!(after > before);
    segment.family(&schema("g")).unwrap();
    assert_eq!((seen(), segment.freed_families().unwrap()), (after, 0));
}

#[test]
fn records_that_others_publish_meanwhile_stay() {
    const RECORD: Kind = Kind::new(*b"test", 1);
    let segment = Segment::private(64 << 20).unwrap();
    let is_done = AtomicBool::new(false);
    let published = thread::scope(|scope| {
        let publisher = scope.spawn(|| {
            let mut count = 0;
            while !is_done.load(Ordering::Relaxed) && count < 2000 {
                segment.reserve(RECORD, "", 1).unwrap().publish().unwrap();
                count += 1;
                if count % 4 == 0 {
                    thread::yield_now();
                }
            }
            count
        });
        for _ in 0..200 {
            segment.family(&schema("a")).unwrap();
            let _ = free(&segment, &["a"]);
        }
        is_done.store(true, Ordering::Relaxed);
        publisher.join().unwrap()
    });
    let records = segment.records().map(Result::unwrap);
    assert_eq!(records.filter(|record| record.kind() == RECORD).count(), published);
}

#[test]
fn a_file_keeps_what_was_freed_and_does_not_grow() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.quipu");
    let options = Options::new().limit(1 << 20);
    let mut most = 0;
    for round in 1..20_u64 {
        let segment = options.open_or_create(&path).unwrap();
        let before: Vec<String> = (0..5).map(|i| format!("{} {i}", round - 1)).collect();
        let before: Vec<&str> = before.iter().map(String::as_str).collect();
        assert_eq!(free(&segment, &before), if round == 1 { 0 } else { 5 });
        drop(segment);
        // Free families are still free for another process.
        let segment = options.open_or_create(&path).unwrap();
        assert_eq!(segment.freed_families().unwrap(), if round == 1 { 0 } else { 5 });
        for i in 0..5 {
            let family = segment.family(&schema(&format!("{round} {i}"))).unwrap();
            (0..20).for_each(|host| add(&family, &format!("{round} {host}"), round + 1));
        }
        let all = shown(&segment);
        assert_eq!(all.len(), 5);
        for (name, series) in all {
            assert!(name.starts_with(&format!("{round} ")) && series.len() == 20);
            assert!(series.iter().all(|(_, sum)| *sum == round + 1));
        }
        if round == 2 {
            most = segment.used();
        }
        assert!(round < 3 || segment.used() <= most, "{} after {round}", segment.used());
    }
}

#[test]
fn a_shared_file_frees_nothing_and_uses_nothing_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.quipu");
    let segment = Options::new().limit(1 << 20).open_or_create(&path).unwrap();
    segment.family(&schema("a")).unwrap();
    assert_eq!(free(&segment, &["a"]), 1);
    drop(segment);
    let shared = Options::new().shared().open_or_create(&path).unwrap();
    let family = shared.family(&schema("b")).unwrap();
    let error = shared.free_families(&[family]).unwrap_err().to_string();
    assert!(error.contains("one process alone: open it without sharing it"), "{error}");
    assert_eq!(shown(&shared), [named("b", &[])]);
    drop(shared);
    let segment = Options::new().open_or_create(&path).unwrap();
    assert_eq!(segment.freed_families().unwrap(), 1);
}

#[test]
fn a_list_that_contradicts_the_file_is_not_used() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.quipu");
    let options = Options::new().limit(1 << 20);
    let segment = options.open_or_create(&path).unwrap();
    for name in ["a", "b", "c"] {
        add(&segment.family(&schema(name)).unwrap(), "x", 3);
    }
    assert_eq!(free(&segment, &["a", "b"]), 2);
    let in_use = segment.families().unwrap()[0].id() - 64;
    drop(segment);
    let bytes = fs::read(&path).unwrap();
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    // FREED, and the link of the first family.
    let first = word(224) as usize;
    let link = first + 64 + 15 * 8;
    let words = [
        (224, 8),
        (224, u64::MAX),
        (224, in_use),
        (224, first as u64 + 64),
        (link, first as u64),
        (link, in_use),
        // The length of its description, and the kind of its record.
        (first + 64, 1 << 20),
        (first + 8, 0),
        // Another boot, because power may have been lost.
        (128, !word(128)),
    ];
    for (at, value) in words {
        let mut bytes = bytes.clone();
        bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        fs::write(&path, bytes).unwrap();
        let segment = options.open_or_create(&path).unwrap();
        assert_eq!(segment.freed_families().unwrap(), 0, "{value:#x} at {at}");
        assert_eq!(shown(&segment), [named("c", &[("x", 3)])], "{value:#x} at {at}");
        add(&segment.family(&schema("d")).unwrap(), "y", 4);
        assert_eq!(free(&segment, &["c"]), 1);
        drop(segment);
        let segment = options.open_or_create(&path).unwrap();
        assert_eq!(segment.freed_families().unwrap(), 1);
        assert_eq!(shown(&segment), [named("d", &[("y", 4)])]);
    }
    // Without any change, both are reused.
    fs::write(&path, &bytes).unwrap();
    let segment = options.open_or_create(&path).unwrap();
    assert_eq!(segment.freed_families().unwrap(), 2);
}

#[test]
fn a_copy_shows_no_family_that_was_freed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.quipu");
    let segment = Options::new().limit(1 << 20).open_or_create(&path).unwrap();
    for name in ["a", "b"] {
        add(&segment.family(&schema(name)).unwrap(), "x", 3);
    }
    assert_eq!(free(&segment, &["a"]), 1);
    let copy = || {
        let file = fs::File::open(&path).unwrap();
        let copy = Segment::copy_of(&path, &file, 1 << 20).unwrap();
        assert_eq!(copy.freed_families().unwrap(), 0);
        shown(&copy)
    };
    assert_eq!(copy(), [named("b", &[("x", 3)])]);
    add(&segment.family(&schema("c")).unwrap(), "y", 4);
    assert_eq!(copy(), [named("b", &[("x", 3)]), named("c", &[("y", 4)])]);
}
