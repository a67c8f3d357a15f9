//! Opens arbitrary bytes as a segment file, and uses the counters and families that it claims to
//! hold.
//!
//! The first byte selects whether to correct the checksum of the header, because the code after
//! this check would otherwise never be reached. A refused file must stay unchanged.

#![no_main]

#[path = "../fixed_seed.rs"]
mod fixed_seed;

use std::io::Write;
use std::ops::ControlFlow;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use quipu_segment::series::{Cursor, Family, KeyWriter, Label, Schema};
use quipu_segment::{ErrorKind, Segment};
use quipu_window::{BucketedWindow, KeyedWindows, SlidingWindow};

fuzz_target!(|input: &[u8]| {
    let Some((&mode, bytes)) = input.split_first() else { return };
    let mut bytes = bytes.to_vec();
    if mode & 1 == 1 && bytes.len() >= 56 {
        let sum = quipu_segment::hash::fnv1a(&bytes[..48]);
        bytes[48..56].copy_from_slice(&sum.to_le_bytes());
    }
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(&bytes).expect("a small file");
    // A copy is refused or walked to its end, whatever labels its series use.
    if let Ok(copy) = Segment::copy_of(file.path(), file.as_file(), 1 << 26) {
        for family in copy.families().unwrap_or_default() {
            let _ = family.walk(&mut Cursor::default(), &mut Vec::new(), |view| {
                (0..view.cells.len()).for_each(|cell| _ = view.cells.sum(cell));
                ControlFlow::Continue(())
            });
        }
    }
    let segment = match Segment::open_or_create(file.path()) {
        Ok(segment) => segment,
        Err(error) => {
            assert!(error.to_string().contains(&file.path().display().to_string()));
            // After a power loss, a file is repaired first. If this runs out of room, the file
            // stays half repaired.
            if !matches!(error.kind(), ErrorKind::Full { .. }) {
                assert_eq!(std::fs::read(file.path()).expect("it is still there"), bytes);
            }
            return;
        }
    };
    for record in segment.records() {
        let record = record.expect("opening has checked it");
        assert!(record.cells().len() as u64 * 8 <= segment.used());
    }
    let (minute, second) = (Duration::from_secs(60), Duration::from_secs(1));
    if let Ok(counter) =
        BucketedWindow::options(minute, second).tickets().build_in(&segment, "requests")
    {
        counter.add(1);
        counter.count();
        counter.buckets_over(minute).expect("within the span");
    }
    if let Ok(keys) =
        KeyedWindows::options(minute, second, 3).max_key_bytes(16).build_in(&segment, "keys")
    {
        for key in [&b"a"[..], b"one", b"two", b"three"] {
            keys.add_and_count(key, 1).expect("short enough");
        }
        assert!(keys.len() <= 3 && keys.top(9).len() == keys.len());
    }
    for family in segment.families().expect("opening has checked them") {
        count(&family);
    }
    // Registers one more family, unless it exists or does not fit.
    let labels = vec![Label { name: "user".into(), values: None }];
    let schema = Schema { name: "keyed".into(), cells: 1, labels, ..Schema::default() };
    if let Ok(family) = segment.family(&schema) {
        count(&family);
    }
    // The next opener reads the counts again.
    drop(segment);
    let segment = Segment::open_or_create(file.path()).expect("it was in order");
    segment.families().expect("they were in order").iter().for_each(|family| {
        walk(family);
    });
});

/// Uses a family in every way.
fn count(family: &Family) {
    let schema = family.schema();
    let labels = |text: &'static str| {
        move |key: &mut KeyWriter<'_>| {
            for label in &schema.labels {
                match &label.values {
                    Some(values) => key.text(values.first().map_or("", String::as_str)),
                    None => key.text(text),
                }
            }
        }
    };
    let before = walk(family);
    family.add(labels("ada"), 0, 1);
    // The increment can reset a series' cell to zero, so this series is no longer shown.
    assert!(walk(family) + 1 >= before);
    let bound = family.bind(labels("ada"));
    bound.cells().add(usize::from(schema.cells) - 1, 1);
    for text in ["bob", "eve", "a text of more than one word", "\"quoted\""] {
        family.add(labels(text), 0, 1);
    }
    family.sweep().expect("private to this process");
    family.remove(labels("bob")).expect("private to this process");
    drop(bound);
    let mut turn = false;
    let removed = family.retain(|_| {
        turn = !turn;
        turn
    });
    removed.expect("private to this process");
    family.add(labels("bob"), 0, 1);
    walk(family);
}

/// Reads all series of a family and returns their number.
fn walk(family: &Family) -> u64 {
    let (mut cursor, mut buffer, mut count) = (Cursor::default(), Vec::new(), 0);
    let _ = family.walk(&mut cursor, &mut buffer, |view| {
        assert!(view.overflow || view.group < family.groups());
        let mut rest = view.texts;
        while let Some((&first, behind)) = rest.split_first() {
            let (length, behind) = match (first, behind.split_first_chunk()) {
                (255, Some((length, behind))) => (u32::from_le_bytes(*length) as usize, behind),
                (length, _) => (usize::from(length), behind),
            };
            let (text, behind) = behind.split_at(length);
            let text = std::str::from_utf8(text).expect("opening has checked it");
            assert!(!view.escape_free || !text.contains(['"', '\\', '\n']));
            rest = behind;
        }
        (0..view.cells.len()).for_each(|cell| {
            view.cells.sum(cell);
            view.cells.sum_float(cell);
        });
        count += 1;
        ControlFlow::Continue(())
    });
    count
}
