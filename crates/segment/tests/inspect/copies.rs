//! Copies a file where others count, remove, reuse and reset: at every moment of the copying, and
//! from threads that do so all the time.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;
use quipu_segment::inspect::Inspection;
use quipu_segment::series::{Cursor, Family, KeyWriter, Schema};
use quipu_segment::{Options, Segment};

use super::{label, schema};

/// Returns a directory with a file, the path of the file, and its segment.
fn file() -> (tempfile::TempDir, PathBuf, Segment) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("seg");
    let segment = Options::new().shared().limit(1 << 22).open_or_create(&path).unwrap();
    (directory, path, segment)
}

/// Returns a family of that name with one cell.
fn family(segment: &Segment, name: &str, labels: &[&str]) -> Family {
    let labels = labels.iter().map(|name| label(name, None)).collect();
    segment.family(&Schema { cells: 1, floats: 0, ..schema(name, labels) }).unwrap()
}

/// Returns the dynamic values and the sum of each series of a family.
fn shown(segment: &Segment, name: &str) -> BTreeMap<Vec<u8>, u64> {
    let mut all = BTreeMap::new();
    for family in segment.families().unwrap() {
        if family.schema().name == name {
            let _ = family.walk(&mut Cursor::default(), &mut Vec::new(), |view| {
                let is_new = all.insert(view.texts.to_vec(), view.cells.sum(0)).is_none();
                assert!(is_new, "{:?} is there twice", String::from_utf8_lossy(view.texts));
                ControlFlow::Continue(())
            });
        }
    }
    all
}

/// Like [`shown`], inspected from outside.
fn looked_at(path: &Path, segment: &Segment, name: &str) -> BTreeMap<Vec<u8>, u64> {
    let inspection = Inspection::on_copy(&File::open(path).unwrap(), segment.clone()).unwrap();
    assert_eq!(inspection.report().damage, []);
    let mut all = BTreeMap::new();
    let families = inspection.report().families.iter();
    for family in families.filter(|family| family.schema.name == name) {
        let damage = inspection.series(family, |series| {
            let text = |text: &str| [&[text.len() as u8][..], text.as_bytes()].concat();
            let texts = series.labels.iter().flat_map(|(_, value)| text(value)).collect();
            assert!(all.insert(texts, series.cells[0]).is_none());
        });
        assert_eq!(damage, []);
    }
    all
}

/// Calls `test` with copies; calls `change` during each copy, at each `step`th word of each pass.
fn copy_at_each(
    path: &Path,
    step: u64,
    mut change: impl FnMut(u64),
    mut test: impl FnMut(&Segment, u64),
) {
    let open = File::open(path).unwrap();
    let mut words = 0;
    let _ = Segment::copy_by_words(path, &open, &mut |_, _| words += 1).unwrap();
    for at in (0..words + step).step_by(step as usize) {
        let mut word = 0;
        let copy = Segment::copy_by_words(path, &open, &mut |_, _| {
            if word == at {
                change(at);
            }
            word += 1;
        });
        test(&copy.unwrap(), at);
    }
}

/// Returns a value for a series that encodes its name.
fn value_of(texts: &[u8]) -> u64 {
    texts.iter().fold(7, |value: u64, byte| value.wrapping_mul(31).wrapping_add(u64::from(*byte)))
}

fn put(family: &Family, name: &str) {
    let mut texts = vec![name.len() as u8];
    texts.extend_from_slice(name.as_bytes());
    let value = value_of(&texts);
    family.update(
        |key| key.text(name),
        |cells| {
            // Add the value, because it is then right only if the record was zero.
            if cells.sum(0) != value {
                cells.add(0, value);
            }
        },
    );
}

fn assert_right(shown: &BTreeMap<Vec<u8>, u64>, place: impl std::fmt::Display) {
    for (texts, value) in shown {
        let is_right = *value == value_of(texts) || *value == 0;
        assert!(is_right, "{:?} has {value} at {place}", String::from_utf8_lossy(texts));
    }
}

#[test]
fn a_record_that_is_used_again_has_the_cells_of_its_series() {
    let (_directory, path, segment) = file();
    let family = family(&segment, "keyed", &["name"]);
    (0..20).for_each(|i| put(&family, &format!("stays {i}")));
    let mut round = 0;
    let mut change = |_: u64| {
        // We need more than the records in limbo that trigger a read of the claims.
        for i in 0..40 {
            let name = format!("round {round} has {i}");
            family.remove(|key| key.text(&name)).unwrap();
        }
        round += 1;
        (0..40).for_each(|i| put(&family, &format!("round {round} has {i}")));
    };
    (0..3).for_each(&mut change);
    copy_at_each(&path, 29, change, |copy, at| {
        let shown = shown(copy, "keyed");
        assert_right(&shown, at);
        let stay = shown.keys().filter(|texts| texts[1..].starts_with(b"stays")).count();
        assert_eq!((stay, copy.omitted()), (20, 0), "at {at}");
        assert!(shown.len() <= 60, "at {at}");
        assert_eq!(looked_at(&path, copy, "keyed"), shown, "at {at}");
    });
}

#[test]
fn a_reset_family_shows_sums_from_before_or_after() {
    let (_directory, path, segment) = file();
    let schema = Schema { cells: 1, floats: 0, ..schema("dense", vec![]) };
    let family = segment.family(&schema).unwrap();
    family.add(|_| {}, 0, 1000);
    let sum = std::cell::Cell::new(1000);
    let change = |_| {
        family.add(|_| {}, 0, 500);
        family.reset().unwrap();
        family.add(|_| {}, 0, 3);
        sum.set(3);
    };
    copy_at_each(&path, 61, change, |copy, at| {
        let looked_at = looked_at(&path, copy, "dense");
        let shown = shown(copy, "dense");
        assert_eq!(looked_at, shown, "at {at}");
        let shown = shown.into_values().next().unwrap_or(0);
        // Each change begins with the sums of the last one.
        assert!([0, 3, 503, 506, 1000, 1500].contains(&shown), "{shown} at {at}");
    });
    assert_eq!(sum.get(), 3);
}

/// The budget ends the repeated reads at any place.
#[test]
fn a_reset_family_that_is_read_again_in_part_is_omitted() {
    let (_directory, path, segment) = file();
    let schema = Schema { cells: 1, floats: 0, ..schema("dense", vec![]) };
    let family = segment.family(&schema).unwrap();
    family.add(|_| {}, 0, 1000);
    let open = File::open(&path).unwrap();
    let (mut first, mut last) = (u64::MAX, 0);
    let find = &mut |_, at: u64| (first, last) = (first.min(at), last.max(at));
    let _ = Segment::copy_by_words(&path, &open, find).unwrap();
    let is_shown = |budget: u64| {
        let copy = Segment::copy_within(&path, &open, budget, &mut |pass, at| {
            // First the family moves. It moves once more after it was read three times.
            if (pass, at) == (1, first) || (pass, at) == (2, last) {
                family.add(|_| {}, 0, 500);
                family.reset().unwrap();
                family.add(|_| {}, 0, 3);
            }
        });
        let copy = copy.unwrap();
        let looked_at = looked_at(&path, &copy, "dense");
        let omitted = copy.omitted();
        let shown: Vec<u64> = shown(&copy, "dense").into_values().collect();
        assert_eq!(looked_at.into_values().collect::<Vec<_>>(), shown);
        assert_eq!(omitted * 2, copy.omitted());
        assert!(if shown.is_empty() { copy.omitted() > 0 } else { shown == [3] }, "{shown:?}");
        !shown.is_empty()
    };
    // Find the least budget that suffices.
    let (mut least, mut enough) = (0, 1 << 20);
    assert!(!is_shown(least) && is_shown(enough));
    while least + 1 < enough {
        let middle = least.midpoint(enough);
        *(if is_shown(middle) { &mut enough } else { &mut least }) = middle;
    }
    // Each reading costs at least 64 words: these budgets end in each of the small ones.
    let ends = (0..10).map(|i| i * 60).chain((1..10).map(|i| least.saturating_sub(i * 60)));
    for budget in ends.chain((0..least).step_by((least / 20) as usize)) {
        assert!(budget >= enough || !is_shown(budget), "{budget} of {enough}");
    }
}

#[test]
fn a_series_with_a_side_allocation_that_is_not_read_again_is_not_there() {
    let (_directory, path, segment) = file();
    for (name, labels) in [("dense", &[][..]), ("keyed", &["name"])] {
        let family = family(&segment, name, labels);
        let handle = family.bind(|key| labels.iter().for_each(|label| key.text(label)));
        let at = family.allocate_side(handle.cells(), 8, 0).unwrap();
        handle.cells().plain(0).store(at.into(), Ordering::Relaxed);
        let side = family.side(handle.cells(), at).unwrap();
        let open = File::open(&path).unwrap();
        for budget in [0, 1 << 20] {
            let mut is_changed = false;
            let copy = Segment::copy_within(&path, &open, budget, &mut |pass, _| {
                if pass == 1 && !std::mem::replace(&mut is_changed, true) {
                    side.words()[3].fetch_add(1, Ordering::Relaxed);
                }
            });
            let copy = copy.unwrap();
            let copy = copy.families().unwrap().pop().unwrap();
            assert_eq!(copy.schema().name, name);
            let mut shown = 0;
            let _ = copy.walk(&mut Cursor::default(), &mut Vec::new(), |view| {
                let readings = copy.readings();
                assert!(copy.side(&view.cells, at).is_some() && copy.readings() > readings);
                assert_eq!(copy.is_there(view.id), budget > 0, "{name}");
                shown += 1;
                ControlFlow::Continue(())
            });
            assert_eq!(shown, 1);
        }
    }
}

/// Side allocations with too large sizes, which therefore overlap.
#[test]
fn side_allocations_are_not_added_up_without_end() {
    const SERIES: u64 = 50;
    const LINKS: usize = 64;
    let (_directory, path, segment) = file();
    let keyed = family(&segment, "keyed", &["name"]);
    for i in 0..SERIES {
        let handle = keyed.bind(|key| key.text(&i.to_string()));
        let at = keyed.allocate_side(handle.cells(), 8, 8).unwrap();
        handle.cells().add(0, at.into());
    }
    let open = File::options().read(true).write(true).open(&path).unwrap();
    let visit = || {
        let copy = Segment::copy_of(&path, &open, 1 << 22).unwrap();
        let (mut found, mut omitted) = (0, 0);
        let family = copy.families().unwrap().remove(0);
        let _ = family.walk(&mut Cursor::default(), &mut Vec::new(), |view| {
            let at = u32::try_from(view.cells.sum(0)).unwrap();
            let (readings, sides) = (family.readings(), (0..LINKS).map(|_| at));
            let count = sides.filter(|&at| family.side(&view.cells, at).is_some()).count();
            let is_whole = family.readings() == readings || family.is_there(view.id);
            assert_eq!(is_whole, count == LINKS);
            (found, omitted) = (found + count as u64, omitted + u64::from(!is_whole));
            ControlFlow::Continue(())
        });
        (found, omitted)
    };
    assert_eq!(visit(), (SERIES * LINKS as u64, 0));
    for at in shown(&segment, "keyed").into_values() {
        // Words and cells.
        let sizes = 1 << 15 | 512_u64 << 32;
        open.write_all_at(&sizes.to_le_bytes(), (at + 2) * 8).unwrap();
    }
    let (found, omitted) = visit();
    // Each states 2^15 words. In total, this is a few times the words of the copy.
    assert!(found << 15 < (1 << 20) + 20 * (1 << 22) / 8, "{found}");
    assert!(omitted > SERIES / 2, "{omitted}");
}

#[test]
fn series_that_are_added_meanwhile_hide_none() {
    let (_directory, path, segment) = file();
    let family = family(&segment, "keyed", &["name"]);
    (0..20).for_each(|i| put(&family, &format!("stays {i}")));
    let mut made = 0;
    let change = |_| {
        (0..10).for_each(|i| put(&family, &format!("made {}", made + i)));
        made += 10;
    };
    copy_at_each(&path, 301, change, |copy, at| {
        let shown = shown(copy, "keyed");
        assert_right(&shown, at);
        assert_eq!(copy.omitted(), 0);
        let stay = shown.keys().filter(|texts| texts[1..].starts_with(b"stays")).count();
        assert_eq!(stay, 20, "at {at}");
        assert_eq!(looked_at(&path, copy, "keyed"), shown, "at {at}");
    });
}

/// Cells that must be read together: the first one is their sequence word.
#[test]
fn cells_that_settle_are_of_one_moment() {
    const CELLS: u16 = 16;
    let (_directory, path, segment) = file();
    let families =
        [("dense", vec![]), ("keyed", vec![label("name", None)])].map(|(name, labels)| {
            let schema =
                Schema { cells: CELLS, floats: 0, additive: false, ..schema(name, labels) };
            segment.family(&schema).unwrap()
        });
    let mut n = 0;
    let mut change = |_| {
        n += 1;
        for family in &families {
            let key = |key: &mut KeyWriter<'_>| {
                family.schema().labels.iter().for_each(|_| key.text("x"));
            };
            family.update(key, |cells| {
                cells.plain(0).store(2 * n - 1, Ordering::Relaxed);
                (1..usize::from(CELLS)).for_each(|i| cells.plain(i).store(n, Ordering::Relaxed));
                cells.plain(0).store(2 * n, Ordering::Release);
            });
        }
    };
    change(0);
    let open = File::open(&path).unwrap();
    let mut torn = 0;
    copy_at_each(&path, 5, change, |copy, at| {
        let inspection = Inspection::on_copy(&open, copy.clone()).unwrap();
        for family in &inspection.report().families {
            inspection.series(family, |series| {
                torn += u32::from(series.cells[1] != series.cells[CELLS as usize - 1]);
            });
            let mut count = 0;
            inspection.series_that_settle(family, |series| {
                let [phase, values @ ..] = series.cells else { panic!("it has no cells") };
                assert!(values.iter().all(|n| n * 2 == *phase), "{:?} at {at}", series.cells);
                count += 1;
            });
            assert_eq!((count, inspection.omitted()), (1, 0), "at {at}");
        }
    });
    assert!(torn > 0, "the test has torn no series");
}

#[test]
fn copies_are_right_while_threads_remove_reuse_and_reset() {
    const COPIES: usize = 200;
    let (_directory, path, segment) = file();
    let churned = family(&segment, "churned", &["name"]);
    let counted = family(&segment, "counted", &["name"]);
    let dense = Schema { cells: 1, floats: 0, ..schema("dense", vec![]) };
    let dense = segment.family(&dense).unwrap();
    let is_over = AtomicBool::new(false);
    let open = File::open(&path).unwrap();
    let stop = Stop(&is_over);
    std::thread::scope(|scope| {
        let _stop = stop;
        scope.spawn(|| {
            until(&is_over, |i| {
                let name = |i: u64| format!("{} {i}", "long ".repeat((i % 7) as usize));
                put(&churned, &name(i));
                if i >= 50 {
                    churned.remove(|key| key.text(&name(i - 50))).unwrap();
                }
            });
        });
        scope.spawn(|| {
            until(&is_over, |i| counted.add(|key| key.text(&(i % 300).to_string()), 0, 1))
        });
        scope.spawn(|| {
            until(&is_over, |i| {
                dense.add(|_| {}, 0, 10);
                if i % 10 == 0 {
                    dense.reset().unwrap();
                }
            });
        });
        let mut before = BTreeMap::new();
        for round in 0..COPIES {
            let copy = Segment::copy_of(&path, &open, 1 << 22).unwrap();
            assert_right(&looked_at(&path, &copy, "churned"), format!("copy {round}"));
            assert_right(&shown(&copy, "churned"), format!("copy {round}"));
            let sum = shown(&copy, "dense").into_values().next().unwrap_or(0);
            // The sum may span several resets, if this thread is suspended.
            let is_sum = sum < u64::MAX / 2 && sum.is_multiple_of(10);
            assert!(is_sum, "{sum} in copy {round}");
            let now = shown(&copy, "counted");
            for (texts, count) in &before {
                assert!(now.get(texts) >= Some(count), "{texts:?} in copy {round}");
            }
            before = now;
        }
    });
}

fn until(is_over: &AtomicBool, work: impl Fn(u64)) {
    (0..).take_while(|_| !is_over.load(Ordering::Relaxed)).for_each(work);
}

/// Ends the threads, even if an assertion fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// Another process writes any words while the file is copied. The copy ends even so, and so do
    /// walks.
    #[test]
    fn any_words_that_are_written_meanwhile_do_no_harm(
        words in prop::collection::vec((0_u64..4000, any::<u64>(), 0_usize..8000), 1..60),
    ) {
        let (_directory, path, segment) = file();
        super::fill(&segment);
        let open = File::options().read(true).write(true).open(&path).unwrap();
        let mut moment = 0;
        let copy = Segment::copy_by_words(&path, &open, &mut |_, _| {
            for (at, word, _) in words.iter().filter(|(_, _, when)| *when == moment) {
                // Half of them are small: offsets, counts and lengths.
                let word = if word % 2 == 0 { word >> 50 } else { *word };
                open.write_all_at(&word.to_le_bytes(), at * 8).unwrap();
            }
            moment += 1;
        });
        if let Ok(copy) = copy {
            super::walked(&copy);
            for family in copy.families().unwrap_or_default() {
                family.read_again();
            }
            super::walked(&copy);
            let inspection = Inspection::on_copy(&open, copy).unwrap();
            for family in &inspection.report().families {
                inspection.series_that_settle(family, |_| {});
            }
        }
    }
}

#[test]
fn a_recording_is_read_once() {
    let (_directory, path, segment) = file();
    let family = family(&segment, "keyed", &["name"]);
    put(&family, "a");
    let recording = quipu_segment::history::Options::new().bytes(64 << 10);
    let mut recorder = recording.open(&segment).unwrap();
    assert!(recorder.tick().unwrap());
    let inspection = quipu_segment::inspect::Inspection::of_file(&path).unwrap();
    let records = &inspection.report().records;
    let record = records.iter().find(|record| record.bytes > 60_000).unwrap();
    let (mut first, mut later) = (0, 0);
    let open = File::open(&path).unwrap();
    let copy = Segment::copy_by_words(&path, &open, &mut |pass, offset| {
        // Count after the header of the record, which is the same for every record.
        if (record.at + 64..record.at + record.bytes).contains(&offset) {
            *if pass == 0 { &mut first } else { &mut later } += 1;
        }
    });
    assert_eq!((first, later), ((record.bytes - 64) / 8, 0));
    assert_right(&shown(&copy.unwrap(), "keyed"), "the copy");
}
