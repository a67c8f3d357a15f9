//! Limits, misuse, and series that are idle.

use quipu_segment::clock::TestClock;
use quipu_segment::series::{Label, Schema};
use quipu_segment::{Kind, Options, Segment};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::{START, TENTH, dynamic, fixed, schema, shown, total, value_of};

#[test]
fn series_beyond_the_limit_are_counted_in_one_series() {
    let segment = Segment::private(1 << 20).unwrap();
    let schema = Schema { limit: Some(3), ..schema(vec![dynamic("user")]) };
    let family = segment.family(&schema).unwrap();
    let used = (0..1000)
        .map(|i| {
            family.add(|key| key.text(&format!("user {}", i % 10)), 0, 1);
            segment.used()
        })
        .max();
    assert_eq!((family.len(), family.overflowed()), (3, 700));
    assert_eq!(shown(&family)[&Vec::<String>::new()], 700);
    assert_eq!(total(&family), 1000);
    assert_eq!(used, Some(segment.used()));
    assert!(family.remove(|key| key.text("user 1")).unwrap());
    family.add(|key| key.text("user 9"), 0, 5);
    assert_eq!((value_of(&family, "user 9"), family.overflowed()), (5, 700));
}

#[test]
fn too_few_or_too_many_labels_are_counted_in_the_overflow() {
    let segment = Segment::private(1 << 20).unwrap();
    let labels = ["first", "second"].map(|name| Label { name: name.into(), values: None });
    let schema = Schema { name: "c".into(), cells: 1, labels: labels.into(), ..Schema::default() };
    let family = segment.family(&schema).unwrap();
    for texts in [&["a", ""][..], &["a"], &["a", "", ""], &[], &["aaaaaaa"]] {
        family.add(|key| texts.iter().for_each(|text| key.text(text)), 0, 1);
        assert!(!family.remove(|key| key.text("a")).unwrap());
    }
    assert_eq!((family.len(), family.overflowed()), (1, 4));
}

#[test]
fn a_full_segment_counts_in_the_overflow_series() {
    let segment = Segment::private(1 << 16).unwrap();
    let family = segment.family(&schema(vec![dynamic("user")])).unwrap();
    for i in 0..5000 {
        family.add(|key| key.text(&format!("user {i}")), 0, 1);
    }
    assert!(family.len() > 500 && family.overflowed() > 500);
    assert_eq!(family.len() + family.overflowed(), 5000);
    assert_eq!(total(&family), 5000);
    for i in 0..5000 {
        family.add(|key| key.text(&format!("user {i}")), 0, 1);
    }
    assert_eq!(total(&family), 10_000);
    assert_eq!(value_of(&family, "user 0"), 2);
}

#[test]
fn labels_that_no_family_has_go_to_the_overflow() {
    let segment = Segment::private(8 << 20).unwrap();
    let labels = vec![fixed("kind", &["x", "y"]), dynamic("user")];
    let family = segment.family(&schema(labels)).unwrap();
    // Too few, out of range, too many, unknown, and a string that fits into no record.
    family.add(|key| key.text("x"), 0, 1);
    family.add(
        |key| {
            key.index(7, 2);
            key.text("ada");
        },
        0,
        1,
    );
    family.add(|key| (0..4).for_each(|_| key.text("x")), 0, 1);
    family.add(|key| key.text("z"), 0, 1);
    let huge = "x".repeat(600_000);
    family.add(
        |key| {
            key.text("y");
            key.text(&huge);
        },
        0,
        1,
    );
    assert_eq!((family.len(), family.overflowed()), (0, 5));
    assert_eq!(total(&family), 5);
    let large = "x".repeat(250_000);
    let labels = |key: &mut quipu_segment::series::KeyWriter<'_>| {
        key.text("y");
        key.text(&large);
    };
    family.add(labels, 0, 1);
    family.add(labels, 0, 1);
    assert_eq!(family.len(), 1);
    assert_eq!(shown(&family)[&vec!["1".to_owned(), large.clone()]], 2);
}

#[test]
fn a_family_of_another_version_is_refused_with_the_way_out() {
    let segment = Segment::private(1 << 20).unwrap();
    let later = Kind::new(*b"FMLY", 99);
    segment.reserve(later, "requests", 64).unwrap().publish().unwrap();
    let made = Schema { name: "requests".into(), ..schema(vec![]) };
    let error = segment.family(&made).unwrap_err();
    let expected = "its record \"requests\" is of kind FMLY/99 and this program reads only FMLY/";
    assert!(error.is_mismatch() && error.to_string().contains(expected), "{error}");
    assert!(error.to_string().ends_with("use the quipu that wrote it, or name another file"));
}

#[test]
fn a_family_that_contradicts_is_refused() {
    let segment = Segment::private(1 << 20).unwrap();
    let made = schema(vec![dynamic("user")]);
    let family = segment.family(&made).unwrap();
    family.add(|key| key.text("ada"), 0, 1);
    assert_eq!(value_of(&segment.family(&made).unwrap(), "ada"), 1);
    let cases = [
        (Schema { cells: 2, ..made.clone() }, "another kind"),
        (Schema { floats: 1, ..made.clone() }, "another kind"),
        (Schema { settings: vec![1], ..made.clone() }, "other settings"),
        (Schema { unit: "bytes".into(), ..made.clone() }, "its unit is \"\", not \"bytes\""),
        (schema(vec![]), "its labels are (user), not ()"),
        (schema(vec![fixed("user", &["x"])]), "(user), not (user of 1 values)"),
    ];
    for (schema, words) in cases {
        let error = segment.family(&schema).unwrap_err();
        assert!(error.is_mismatch(), "{error}");
        let error = error.to_string();
        let start = "the metric exists with other settings: family \"requests\": ";
        let end = "; rename one, or give both the same settings";
        assert!(error.starts_with(start) && error.ends_with(end), "{error}");
        assert!(error.contains(words), "{error}");
    }
    // Fields that can differ.
    let other = Schema { help: "Other words.".into(), limit: Some(9), ..made };
    assert_eq!(value_of(&segment.family(&other).unwrap(), "ada"), 1);
    // Names that differ only after the bytes that fit into a record's name.
    let long = |end: &str| Schema { name: "n".repeat(60) + end, ..schema(vec![]) };
    let (one, two) = (segment.family(&long("1")).unwrap(), segment.family(&long("2")).unwrap());
    assert_ne!(one.id(), two.id());
    assert_eq!(segment.family(&long("1")).unwrap().id(), one.id());
    assert_eq!(segment.families().unwrap().len(), 3);
}

#[test]
#[cfg_attr(miri, ignore = "it opens a file")]
fn families_of_another_handle_are_found() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("two");
    let open = || Options::new().shared().open_or_create(&path).unwrap();
    let (one, two) = (open(), open());
    let of = |i: u32| Schema { name: format!("{}{i}", "n".repeat(40)), ..schema(vec![]) };
    for i in 0..40 {
        let (maker, finder) = if i % 3 == 0 { (&one, &two) } else { (&two, &one) };
        let made = maker.family(&of(i)).unwrap().id();
        assert_eq!(finder.family(&of(i)).unwrap().id(), made);
        assert_eq!(one.family(&of(i / 2)).unwrap().id(), two.family(&of(i / 2)).unwrap().id());
    }
    assert_eq!(one.families().unwrap().len(), 40);
}

#[test]
fn threads_that_open_the_same_families_make_each_once() {
    let segment = Segment::private(8 << 20).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for i in 0..10 {
                    let name = format!("family {i}");
                    let labels = if i % 2 == 0 { vec![] } else { vec![dynamic("user")] };
                    let family = segment.family(&Schema { name, ..schema(labels) }).unwrap();
                    family.add(
                        |key| {
                            if i % 2 == 1 {
                                key.text("ada")
                            }
                        },
                        0,
                        1,
                    );
                }
            });
        }
    });
    let families = segment.families().unwrap();
    assert_eq!(families.len(), 10);
    assert!(families.iter().all(|family| total(family) == 4));
}

#[test]
fn a_float_that_is_none_goes_with_its_series() {
    let segment = Segment::private(1 << 20).unwrap();
    let schema = Schema { floats: 1, ..schema(vec![fixed("kind", &["x"])]) };
    let family = segment.family(&schema).unwrap();
    let handle = family.bind(|key| key.text("x"));
    for value in [f64::NAN, f64::INFINITY, 2.5] {
        handle.cells().add_float(0, value);
        assert!(family.remove(|key| key.text("x")).unwrap());
        handle.cells().add_float(0, 0.5);
        assert_eq!(handle.cells().sum_float(0), 0.5);
    }
}

#[test]
fn more_handles_than_a_record_counts_keep_it() {
    let segment = Segment::private(1 << 20).unwrap();
    let clock = TestClock::from_nanos(START);
    let family = segment.family_at(&schema(vec![dynamic("user")]), clock.clone()).unwrap();
    let handle = family.bind(|key| key.text("ada"));
    let many: Vec<_> = (0..if cfg!(miri) { 10 } else { 5000 }).map(|_| handle.clone()).collect();
    assert!(family.remove(|key| key.text("ada")).unwrap());
    drop(many);
    clock.advance(Duration::from_secs(5));
    for i in 0..10 {
        family.add(|key| key.text(&format!("{i:03}")), 0, 1);
    }
    handle.cells().add(0, 100);
    assert_eq!(total(&family), 10);
}

/// Additions to a series while a sweep hides it are kept, and the series is shown.
#[test]
fn additions_during_a_sweep_are_kept() {
    let segment = Segment::private(1 << 20).unwrap();
    let clock = TestClock::from_nanos(START);
    let schema = Schema { idle: Some(TENTH), ..schema(vec![dynamic("user")]) };
    let family = segment.family_at(&schema, clock.clone()).unwrap();
    let count = AtomicU64::new(0);
    for total in 1..=3 {
        family.update(
            |key| key.text("ada"),
            |cells| {
                count.fetch_add(1, Ordering::Relaxed);
                clock.advance(TENTH * 2);
                family.sweep().unwrap();
                cells.add(0, 1);
            },
        );
        assert_eq!(count.load(Ordering::Relaxed), total);
        let value = family.read(|key| key.text("ada"), |cells| cells.sum(0));
        assert_eq!(value, Some(total));
        family.sweep().unwrap();
    }
}

#[test]
fn idle_series_make_room_without_a_look_at_all() {
    let segment = Segment::private(64 << 20).unwrap();
    let clock = TestClock::from_nanos(START);
    let count = if cfg!(miri) { 30 } else { 20_000_u32 };
    let schema = Schema {
        limit: Some(count.into()),
        idle: Some(Duration::from_secs(10)),
        ..schema(vec![dynamic("user")])
    };
    let family = segment.family_at(&schema, clock.clone()).unwrap();
    for i in 0..count {
        family.add(|key| key.text(&format!("old {i}")), 0, 1);
    }
    family.sweep().unwrap();
    clock.advance(Duration::from_secs(20));
    family.sweep().unwrap();
    assert_eq!((shown(&family).len(), family.len()), (0, count.into()));
    let begun = Instant::now();
    for i in 0..count {
        family.add(|key| key.text(&format!("new {i}")), 0, 1);
    }
    // Starting from the front each time would read about 200 million records.
    assert!(cfg!(miri) || begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert_eq!((total(&family), family.overflowed()), (count.into(), 0));
}
