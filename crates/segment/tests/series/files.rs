//! Reopens files with families after a clean close, a kill and a power loss.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quipu_segment::clock::TestClock;
use quipu_segment::series::{Family, Schema, SeriesCells, SideAllocations};
use quipu_segment::{Options, Readings, Segment};

use super::{START, TENTH, dynamic, fixed, schema, shown, texts, total, value_of};

fn readings(boot: u8) -> Readings {
    let since_boot = Duration::from_secs(1000);
    Readings { boot: [boot; 16], since_boot, wall: Duration::from_nanos(START) }
}

fn open(path: &Path) -> Segment {
    Options::new().limit(4 << 20).open_or_create(path).unwrap()
}

/// Creates a file that was in use when its process ended. It contains a keyed and two dense
/// families, with some series removed or hidden.
fn sample(directory: &Path) -> PathBuf {
    let path = directory.join("sample.quipu");
    let options = Options::new().limit(4 << 20).readings(readings(1));
    let segment = options.open_or_create(&path).unwrap();
    let clock = TestClock::from_nanos(START);
    let keyed = Schema { idle: Some(TENTH), ..schema(vec![dynamic("user")]) };
    let keyed = segment.family_at(&keyed, clock.clone()).unwrap();
    for i in 0..300 {
        keyed.add(|key| key.text(&format!("user {i}")), 0, i);
    }
    keyed.retain(|view| !texts(view)[0].ends_with('7')).unwrap();
    keyed.sweep().unwrap();
    clock.advance(Duration::from_secs(1));
    keyed.add(|key| key.text("user 1"), 0, 1000);
    keyed.sweep().unwrap();
    for name in ["one", "two"] {
        let schema = Schema { name: name.into(), ..schema(vec![fixed("kind", &["x", "y", "z"])]) };
        let dense = segment.family_at(&schema, clock.clone()).unwrap();
        dense.add(|key| key.text("y"), 0, 5);
    }
    segment.sync().unwrap();
    path
}

#[test]
fn a_process_that_ends_leaves_everything() {
    let directory = tempfile::tempdir().unwrap();
    let path = sample(directory.path());
    for _ in 0..2 {
        let segment = Options::new().readings(readings(1)).open_or_create(&path).unwrap();
        assert!(segment.was_left_open() && !segment.may_have_lost_power());
        let families = segment.families().unwrap();
        let names: Vec<_> = families.iter().map(|family| &family.schema().name).collect();
        assert_eq!(names, ["requests", "one", "two"]);
        assert_eq!(families[0].len(), 270);
        assert_eq!(shown(&families[0]).into_values().collect::<Vec<_>>(), [1001]);
        assert_eq!((total(&families[1]), total(&families[2])), (5, 5));
    }
    let segment = Options::new().readings(readings(1)).open_or_create(&path).unwrap();
    let family = segment.families().unwrap().remove(0);
    // A hidden series continues from its last total; a removed one starts again.
    family.add(|key| key.text("user 299"), 0, 1);
    family.add(|key| key.text("user 17"), 0, 1);
    assert_eq!((value_of(&family, "user 299"), value_of(&family, "user 17")), (300, 1));
}

#[test]
fn opening_again_and_again_takes_no_memory() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("again.quipu");
    let used = (0..10).map(|round| {
        let segment = open(&path);
        let family = segment.family(&schema(vec![dynamic("user")])).unwrap();
        for i in 0..if round == 0 { 3000 } else { 10 } {
            family.add(|key| key.text(&format!("user {i}")), 0, 1);
        }
        segment.used()
    });
    let used: Vec<_> = used.collect();
    assert!(used.windows(2).all(|pair| pair[0] == pair[1]), "{used:?}");
}

#[test]
fn a_full_file_is_opened_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("full.quipu");
    let options = Options::new().limit(1 << 17);
    let mut rounds = 0;
    // This works for any number of series, because a filler takes up some of the space.
    for filler in [0, 1000, 5000, 9000] {
        let segment = options.open_or_create(&path).unwrap();
        if filler > 0 {
            let kind = quipu_segment::Kind::new(*b"FILL", 1);
            segment.reserve(kind, "filler", filler).unwrap().publish().unwrap();
        }
        let family = segment.family(&schema(vec![dynamic("user")])).unwrap();
        for i in 0..5000 {
            family.add(|key| key.text(&format!("user {i}")), 0, 1);
        }
        let total = total(&family);
        assert_eq!(total, 5000);
        drop((family, segment));
        for _ in 0..3 {
            let segment = options.open_or_create(&path).unwrap();
            let family = segment.families().unwrap().remove(0);
            assert_eq!(super::total(&family), total);
            assert_eq!(value_of(&family, "user 0"), 1);
            rounds += 1;
        }
        fs::remove_file(&path).unwrap();
    }
    assert_eq!(rounds, 12);
}

#[test]
fn bytes_lost_in_a_power_loss_are_cut_off() {
    let directory = tempfile::tempdir().unwrap();
    let path = sample(directory.path());
    let whole = fs::read(&path).unwrap();
    let used = usize::try_from(u64::from_le_bytes(whole[72..80].try_into().unwrap())).unwrap();
    let lost = directory.path().join("lost.quipu");
    let mut opened = 0;
    // A zeroed line, or one from another time: each line of the file except the header's.
    for at in (256..used).step_by(64) {
        for fill in [0, 0xff, 0x03] {
            let mut bytes = whole.clone();
            bytes[at..at + 64].fill(fill);
            fs::write(&lost, &bytes).unwrap();
            let options = Options::new().readings(readings(2));
            let Ok(segment) = options.open_or_create(&lost) else {
                assert_eq!(fs::read(&lost).unwrap(), bytes, "what is refused stays");
                continue;
            };
            assert!(segment.may_have_lost_power());
            opened += 1;
            for family in segment.families().unwrap() {
                let before = total(&family);
                family.add(|key| key.text("y"), 0, 1);
                assert_eq!(total(&family), before.wrapping_add(1));
                family.sweep().unwrap();
                family.clear().unwrap();
            }
            drop(segment);
            // The file is in order again for the next opener.
            let segment = Options::new().readings(readings(2)).open_or_create(&lost).unwrap();
            assert!(!segment.may_have_lost_power());
            assert_eq!(segment.families().unwrap().len(), 3);
        }
    }
    assert!(opened > used / 64 * 3 / 2, "{opened} of {}", used / 64 * 3);
}

#[test]
fn a_word_that_a_power_loss_tore_is_mended_for_good() {
    // We use memory, because a disk would sync each of thousands of openings.
    let memory = Path::new("/dev/shm");
    let directory = if memory.is_dir() {
        tempfile::tempdir_in(memory).unwrap()
    } else {
        tempfile::tempdir().unwrap()
    };
    let path = sample(directory.path());
    let whole = fs::read(&path).unwrap();
    let used = usize::try_from(u64::from_le_bytes(whole[72..80].try_into().unwrap())).unwrap();
    let lost = directory.path().join("lost.quipu");
    let open = || Options::new().readings(readings(2)).open_or_create(&lost);
    let mut untouched = 0;
    let expected = {
        let segment = Options::new().readings(readings(1)).open_or_create(&path).unwrap();
        total(&segment.families().unwrap()[0])
    };
    for at in (256..used).step_by(16) {
        let word = u64::from_le_bytes(whole[at..at + 8].try_into().unwrap());
        for torn in [0, word ^ 1 << 32] {
            let mut bytes = whole.clone();
            bytes[at..at + 8].copy_from_slice(&torn.to_le_bytes());
            fs::write(&lost, &bytes).unwrap();
            let Ok(segment) = open() else { continue };
            for family in segment.families().unwrap() {
                family.add(|key| key.text("y"), 0, 0);
            }
            drop(segment);
            let segment = open().unwrap_or_else(|error| panic!("{at}, {torn:#x}: {error}"));
            let families = segment.families().unwrap();
            untouched += usize::from(families.iter().any(|family| total(family) == expected));
        }
    }
    // In most cases, a lost word costs only one series, or can be restored.
    assert!(untouched > used / 16, "{untouched} of {}", used / 8);
}

/// After a power loss, the words after a block's used words belong to no series. No new series may
/// take them for the offset of a side allocation.
#[test]
fn a_series_after_a_power_loss_owns_no_other_side_allocation() {
    struct Seen(Mutex<Vec<u64>>);

    impl SideAllocations for Seen {
        fn is_offset(&self, _: usize) -> bool {
            true
        }

        fn clear(&self, _: &Family, _: &SeriesCells<'_>) {}

        fn renew(&self, _: &Family, cells: &SeriesCells<'_>) {
            self.0.lock().unwrap().push(cells.plain(0).load(Ordering::Relaxed));
        }
    }

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("torn.quipu");
    let open = |boot: u8| {
        let segment = Options::new().readings(readings(boot)).open_or_create(&path).unwrap();
        let family = segment.family(&schema(vec![dynamic("user")])).unwrap();
        (segment, family)
    };
    let (segment, family) = open(1);
    family.add(|key| key.text("ada"), 0, 1);
    let before = fs::read(&path).unwrap();
    family.add(|key| key.text("bob"), 0, 77);
    let mut after = fs::read(&path).unwrap();
    drop((segment, family));
    let word = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    // The words of the record: a head of two, the cells, and a key of one.
    let words = 3 + u64::from(schema(vec![]).cells);
    let is_in_use = |at: &usize| word(&after, *at).wrapping_sub(word(&before, *at)) == words;
    let found: Vec<usize> = (256..before.len()).step_by(8).filter(is_in_use).collect();
    let [used] = found[..] else { panic!("{found:?}") };
    after[used..used + 8].copy_from_slice(&before[used..used + 8]);
    fs::write(&path, after).unwrap();
    let (_segment, family) = open(2);
    let seen = Arc::new(Seen(Mutex::default()));
    family.set_side_allocations(Arc::<Seen>::clone(&seen));
    family.add(|key| key.text("eve"), 0, 1);
    assert_eq!(*seen.0.lock().unwrap(), [0]);
}

/// The sectors of a record are written one by one. If a label is not on the disk, or two records
/// share a label, only this series is lost, and not the series after it.
#[test]
fn a_power_loss_takes_no_whole_series_with_a_torn_one() {
    let directory = tempfile::tempdir().unwrap();
    for (text, becomes) in [(&b"user bob"[..], &[0; 8][..]), (b"user bob", b"user ada")] {
        let path = directory.path().join("torn.quipu");
        let open = |boot: u8| {
            let options = Options::new().readings(readings(boot));
            let segment = options.open_or_create(&path)?;
            let family = segment.family(&schema(vec![dynamic("user")]))?;
            Ok::<_, quipu_segment::Error>((segment, family))
        };
        let (segment, family) = open(1).unwrap();
        for (user, n) in [("user ada", 1), ("user bob", 2), ("user eve", 3)] {
            family.add(|key| key.text(user), 0, n);
        }
        let mut bytes = fs::read(&path).unwrap();
        drop((segment, family));
        let at = bytes.windows(8).position(|window| window == text).unwrap();
        bytes[at..at + 8].copy_from_slice(becomes);
        fs::write(&path, &bytes).unwrap();
        // If no power was lost, the file is damaged.
        assert!(open(1).unwrap_err().is_damage());
        let (_segment, family) = open(2).unwrap();
        let count = |user: &str| family.read(|key| key.text(user), |cells| cells.sum(0));
        assert_eq!([count("user ada"), count("user eve")], [Some(1), Some(3)]);
        assert_eq!(family.len(), 2);
        family.add(|key| key.text("user bob"), 0, 5);
        assert_eq!(count("user bob"), Some(5));
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn a_family_after_a_power_loss_gets_no_words_of_another() {
    let directory = tempfile::tempdir().unwrap();
    let path = sample(directory.path());
    let mut bytes = fs::read(&path).unwrap();
    // The record of the slab: its used words are set back to the first family's.
    let slab = bytes.windows(4).position(|tag| tag == b"LANE").unwrap() - 8;
    bytes[slab + 64..slab + 72].copy_from_slice(&4_u64.to_le_bytes());
    fs::write(&path, &bytes).unwrap();
    let segment = Options::new().readings(readings(2)).open_or_create(&path).unwrap();
    let new = Schema { name: "three".into(), ..schema(vec![fixed("kind", &["x", "y", "z"])]) };
    let new = segment.family(&new).unwrap();
    assert!(shown(&new).is_empty());
    new.add(|key| key.text("y"), 0, 1);
    let families = segment.families().unwrap();
    assert_eq!((total(&families[1]), total(&families[2]), total(&new)), (5, 5, 1));
}

#[test]
fn nonsense_is_refused_and_left_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let path = sample(directory.path());
    let whole = fs::read(&path).unwrap();
    let used = usize::try_from(u64::from_le_bytes(whole[72..80].try_into().unwrap())).unwrap();
    let bent = directory.path().join("bent.quipu");
    let mut refused = 0;
    for at in (256..used).step_by(8) {
        for value in [u64::MAX, 1, 0x0000_0010_0000_0020, 0x0123_4567_0002_0004] {
            let mut bytes = whole.clone();
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
            if bytes == whole {
                continue;
            }
            fs::write(&bent, &bytes).unwrap();
            let options = Options::new().readings(readings(1));
            let Ok(segment) = options.open_or_create(&bent) else {
                assert_eq!(fs::read(&bent).unwrap(), bytes);
                refused += 1;
                continue;
            };
            for family in segment.families().unwrap() {
                family.add(|key| key.text("y"), 0, 1);
                family.bind(|key| key.text("user 5")).cells().add(0, 1);
                let _ = shown(&family);
                family.sweep().unwrap();
                family.remove(|key| key.text("user 3")).unwrap();
            }
        }
    }
    assert!(refused > 300, "{refused}");
}

#[test]
fn an_unmarked_file_stays_as_it_is_until_a_family_is_opened() {
    let directory = tempfile::tempdir().unwrap();
    let path = sample(directory.path());
    let before = fs::read(&path).unwrap();
    let options = Options::new().unmarked().readings(readings(1));
    let segment = options.open_or_create(&path).unwrap();
    assert_eq!(fs::read(&path).unwrap(), before);
    let family = segment.families().unwrap().remove(0);
    family.add(|key| key.text("user 1"), 0, 1);
    assert_eq!(value_of(&family, "user 1"), 1002);
}

#[test]
fn handles_that_share_a_file_count_in_the_same_cells() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("shared.quipu");
    let options = Options::new().limit(4 << 20).shared();
    let segments: Vec<_> = (0..3).map(|_| options.open_or_create(&path).unwrap()).collect();
    let error = Segment::open_or_create(&path).unwrap_err();
    assert!(error.is_locked(), "{error}");
    std::thread::scope(|scope| {
        for segment in &segments {
            scope.spawn(|| {
                let family = segment.family(&schema(vec![dynamic("user")])).unwrap();
                for i in 0..2000 {
                    family.add(|key| key.text(&format!("user {i}")), 0, 1);
                }
            });
        }
    });
    for segment in &segments {
        let family = segment.family(&schema(vec![dynamic("user")])).unwrap();
        let shown = shown(&family);
        assert_eq!(shown.len(), 2000);
        assert!(shown.values().all(|&n| n == 3));
    }
    // Only the last one marks the segment as closed.
    let mut segments = segments.into_iter();
    let first = segments.next().unwrap();
    first.close().unwrap();
    drop(first);
    let late = options.open_or_create(&path).unwrap();
    assert!(late.was_left_open());
    drop((late, segments.next()));
    segments.next().unwrap().close().unwrap();
    assert!(!options.open_or_create(&path).unwrap().was_left_open());
}
