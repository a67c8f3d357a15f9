//! Inspects files from outside: a report shows the contents of the segment, and for any bytes, the
//! inspection ends with a report.

#![cfg(unix)]
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::ControlFlow;
use std::time::Duration;

use proptest::prelude::*;
use quipu_segment::inspect::{Inspection, SeriesSeen};
use quipu_segment::series::{Cursor, Family, Identity, Label, Schema};
use quipu_segment::{Options, Readings, Segment};

#[path = "inspect/copies.rs"]
mod copies;
#[path = "inspect/history.rs"]
mod history;

fn label(name: &str, values: Option<&[&str]>) -> Label {
    let values = values.map(|values| values.iter().map(|&value| value.to_owned()).collect());
    Label { name: name.to_owned(), values }
}

fn schema(name: &str, labels: Vec<Label>) -> Schema {
    let name = name.to_owned();
    Schema { name, cells: 3, floats: 2, additive: true, labels, ..Schema::default() }
}

/// Series by their labels: the cells, and whether they are hidden.
type Seen = BTreeMap<String, (Vec<u64>, bool)>;

fn see(series: &SeriesSeen<'_>, seen: &mut Seen) {
    let text = |(name, value): &(&str, &str)| format!("{name}={value:?}");
    let name = match series.is_overflow {
        true => "overflow".to_owned(),
        false => series.labels.iter().map(text).collect::<Vec<_>>().join(","),
    };
    assert!(seen.insert(name, (series.cells.to_vec(), series.is_hidden)).is_none());
}

fn all(inspection: &Inspection) -> BTreeMap<String, Seen> {
    let families = inspection.report().families.iter().map(|family| {
        let mut seen = Seen::new();
        let damage = inspection.series(family, |series| see(series, &mut seen));
        assert_eq!(damage, []);
        (family.schema.name.clone(), seen)
    });
    families.collect()
}

fn add(family: &Family, texts: &[&str], n: u64) {
    family.update(
        |key| texts.iter().for_each(|text| key.text(text)),
        |cells| {
            cells.add(0, n);
            cells.add_float(1, n as f64 / 2.0);
        },
    );
}

/// Fills a segment with families of all layouts.
fn fill(segment: &Segment) {
    let fixed = label("method", Some(&["get", "put"]));
    let dense = segment.family(&schema("dense", vec![fixed.clone()])).unwrap();
    add(&dense, &["put"], 3);
    add(&dense, &["other"], 5);
    let mixed = vec![label("user", None), fixed, label("path", None)];
    let mixed = Schema { limit: Some(3), ..schema("mixed", mixed) };
    let mixed = segment.family(&mixed).unwrap();
    let long = "long ".repeat(80);
    for (user, path) in [("ada", "/"), ("", &*long), ("é\"", "\n"), ("beyond", "")] {
        add(&mixed, &[user, "get", path], 7);
    }
    let set = Schema { additive: false, identity: Identity::Variant, ..schema("set", vec![]) };
    let set = segment.family(&set).unwrap();
    set.update_shown(|_| {}, |cells| cells.plain(2).store(9, std::sync::atomic::Ordering::Relaxed));
    let idle = Some(Duration::from_secs(60));
    let keyed = Schema { idle, ..schema("keyed", vec![label("a", None)]) };
    let keyed = segment.family(&keyed).unwrap();
    let names: Vec<String> = (0..40).map(|i| format!("name {i}")).collect();
    names.iter().for_each(|name| add(&keyed, &[name], 1));
    keyed.set_shown(|key| key.text("name 3"), false).unwrap();
    for name in &names[10..20] {
        keyed.remove(|key| key.text(name)).unwrap();
    }
}

fn file() -> (tempfile::TempDir, Segment) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("seg");
    let segment = Options::new().shared().limit(1 << 20).open_or_create(path).unwrap();
    (directory, segment)
}

#[test]
fn an_inspection_shows_the_contents_of_a_segment() {
    let (_directory, segment) = file();
    fill(&segment);
    let inspection = Inspection::of_file(segment.path().unwrap()).unwrap();
    let report = inspection.report();
    assert_eq!(report.damage, []);
    let header = report.header.unwrap();
    assert_eq!((header.size, header.used, header.version), (segment.size(), segment.used(), 3));
    assert_eq!((report.is_open, header.is_clean, header.tokens), (Some(true), false, 1));
    assert_eq!(inspection.is_alive(1), Some(true));
    assert_eq!(inspection.is_alive(2), Some(false));
    let seen = all(&inspection);
    let cells = |n: u64| vec![n, (n as f64 / 2.0).to_bits(), 0];
    let dense = [("method=\"put\"", cells(3)), ("overflow", cells(5))];
    let dense = dense.map(|(name, cells)| (name.to_owned(), (cells, false)));
    assert_eq!(seen["dense"], dense.into());
    assert_eq!(seen["mixed"]["user=\"é\\\"\",method=\"get\",path=\"\\n\""].0, cells(7));
    assert_eq!(seen["mixed"]["overflow"].0, cells(7));
    assert_eq!((seen["mixed"].len(), seen["keyed"].len()), (4, 30));
    assert_eq!(seen["set"][""].0, [0, 0, 9]);
    assert_eq!(seen["keyed"]["a=\"name 3\""], (cells(1), true));
    for (found, family) in report.families.iter().zip(segment.families().unwrap()) {
        assert_eq!(&found.schema, family.schema());
        assert_eq!(found.created, family.created());
        assert_eq!(found.hidden, family.hidden());
        assert_eq!(found.overflowed, family.overflowed());
        let overflow = u64::from(found.is_dense && found.overflowed > 0);
        assert_eq!(found.series + found.hidden + overflow, family.len(), "{found:?}");
    }
    assert!(report.families.iter().all(|family| family.bytes() > 0));
    assert!(report.other_bytes() < 2048, "{} of {}", report.other_bytes(), header.used);
    segment.close().unwrap();
    drop(segment);
}

#[test]
fn a_closed_and_an_abandoned_file_are_told_apart() {
    let (directory, segment) = file();
    fill(&segment);
    let path = directory.path().join("seg");
    drop(segment);
    let look = || Inspection::of_file(&path).unwrap();
    let before = std::fs::read(&path).unwrap();
    let left = look();
    assert_eq!(left.report().is_open, Some(false));
    assert!(!left.report().header.unwrap().is_clean);
    let owners = &left.report().owners;
    assert!(!owners.is_empty() && owners.iter().all(|owner| owner.is_alive == Some(false)));
    let shown = all(&left);
    assert_eq!(std::fs::read(&path).unwrap(), before);
    Options::new().shared().open_or_create(&path).unwrap().close().unwrap();
    let closed = look();
    let header = closed.report().header.unwrap();
    assert!(header.is_clean && !header.is_left);
    assert_eq!(all(&closed), shown);
    // The last of two processes leaves the file in order, although the first asked for this first.
    let open = || Options::new().shared().open_or_create(&path).unwrap();
    let (first, second) = (open(), open());
    second.leave_in_order();
    drop(second);
    assert!(!look().report().header.unwrap().is_left);
    first.leave_in_order();
    let other = first.clone();
    drop(first);
    assert!(!look().report().header.unwrap().is_left);
    drop(other);
    let header = look().report().header.unwrap();
    assert!(header.is_left && !header.is_clean);
    // The file does not count as left open, and opening it removes the mark.
    let again = open();
    assert!(!again.was_left_open());
    assert!(!look().report().header.unwrap().is_left);
    drop(again);
    assert!(open().was_left_open());
    assert!(Inspection::of_file(directory.path()).is_err());
}

#[test]
fn a_file_that_was_left_in_order_counts_as_left_open_after_a_reboot() {
    let directory = tempfile::tempdir().unwrap();
    let time = std::time::Duration::from_secs(1000);
    let open = |boot: u8| {
        let readings = Readings { boot: [boot; 16], since_boot: time, wall: time * 2 };
        let options = Options::new().shared().readings(readings);
        let segment = options.open_or_create(directory.path().join("left.quipu")).unwrap();
        segment.leave_in_order();
        segment
    };
    drop(open(1));
    assert!(!open(1).was_left_open());
    // Power may have been lost, and with it everything that no sync wrote.
    let after = open(2);
    assert!(after.was_left_open() && after.may_have_lost_power());
    drop(after);
    assert!(!open(2).was_left_open());
}

/// Returns the bytes in use of a valid file.
fn bytes() -> Vec<u8> {
    let (_directory, segment) = file();
    fill(&segment);
    let mut bytes = std::fs::read(segment.path().unwrap()).unwrap();
    bytes.truncate(usize::try_from(segment.used()).unwrap());
    bytes
}

/// Inspects everything, and returns the number of series and of damages.
fn look(bytes: Vec<u8>) -> (u64, usize) {
    let inspection = Inspection::of_bytes(bytes);
    let report = inspection.report();
    report.other_bytes();
    let (mut series, mut damages) = (0, report.damage.len());
    for family in &report.families {
        damages += inspection.series(family, |_| series += 1).len();
    }
    (series, damages)
}

#[test]
fn every_truncation_gives_a_report() {
    let bytes = bytes();
    let (whole, _) = look(bytes.clone());
    let mut last = 0;
    for length in (0..bytes.len()).step_by(24) {
        let (series, damages) = look(bytes[..length].to_vec());
        assert!(damages > 0, "{length}");
        assert!(series <= whole);
        last = last.max(series);
    }
    // The existing part is shown.
    assert!(last > whole / 2, "{last} of {whole}");
}

#[test]
fn records_are_found_though_their_list_is_broken() {
    let mut bytes = bytes();
    let (whole, damages) = look(bytes.clone());
    // The header states a larger size, because the file was truncated.
    assert_eq!(damages, 1);
    bytes[80] ^= 1;
    assert_eq!(look(bytes.clone()).0, whole);
    bytes[..256].fill(0);
    assert_eq!(look(bytes.clone()).0, 0);
    assert_eq!(look(vec![0; 4096]), (0, 1));
}

/// Returns the memory of this process, in KiB.
#[cfg(all(target_os = "linux", not(miri)))]
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim_end_matches("kB").trim().parse().unwrap()
}

#[test]
#[cfg(all(target_os = "linux", not(miri)))]
fn a_copy_takes_memory_in_proportion_to_the_file_whatever_its_header_states() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("forged.quipu");
    let options = Options::new().limit(1 << 40).shared();
    let segment = options.open_or_create(&path).unwrap();
    let schema = Schema { name: "hits".into(), cells: 1, additive: true, ..Schema::default() };
    segment.family(&schema).unwrap().add(|_| {}, 0, 7);
    drop(segment);
    let mut bytes = std::fs::read(&path).unwrap();
    // Half a terabyte in use, and another boot of the machine: power may have been lost since.
    for (at, word) in [(64, 1 << 40), (72, 1 << 39), (128, 5), (136, 5), (208, 0_u64)] {
        bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }
    std::fs::write(&path, bytes).unwrap();
    let (file, before) = (File::open(&path).unwrap(), resident());
    let copy = Segment::copy_of(&path, &file, u64::MAX).unwrap();
    assert_eq!(walked(&copy)["hits"], (1, 7));
    assert!(resident() < before + (1 << 20), "{} KiB, {before} before", resident());
}

/// Returns the number of series of each family, and the sum of their first cells, from a scrape's
/// walk.
fn walked(segment: &Segment) -> BTreeMap<String, (u64, u64)> {
    let mut all = BTreeMap::new();
    for family in segment.families().unwrap_or_default() {
        let (mut series, mut sum) = (0, 0_u64);
        let _ = family.walk(&mut Cursor::default(), &mut Vec::new(), |view| {
            series += 1;
            sum = sum.wrapping_add(view.cells.sum(0));
            ControlFlow::Continue(())
        });
        all.insert(family.schema().name.clone(), (series, sum));
    }
    all
}

#[test]
fn a_copy_shows_the_same_and_what_is_counted_there_stays_there() {
    let (_directory, segment) = file();
    fill(&segment);
    let path = segment.path().unwrap().to_owned();
    let shown = walked(&segment);
    let before = std::fs::read(&path).unwrap();
    let open = File::open(&path).unwrap();
    let copy = Segment::copy_of(&path, &open, 1 << 20).unwrap();
    assert_eq!(walked(&copy), shown);
    assert_eq!((copy.created_ns(), copy.instance()), (segment.created_ns(), segment.instance()));
    for family in copy.families().unwrap() {
        let texts = family.schema().labels.iter().map(|_| "get").collect::<Vec<_>>();
        add(&family, &texts, 1);
    }
    assert_ne!(walked(&copy), shown);
    assert_eq!(std::fs::read(&path).unwrap(), before);
    // The copy knows the processes of the file.
    assert!(copy.is_alive(1) && !copy.is_alive(2));
    drop(segment);
    assert!(!copy.is_alive(1));
    assert_eq!(walked(&Segment::copy_of(&path, &open, 1 << 20).unwrap()), shown);
    let error = Segment::copy_of(&path, &open, 1000).unwrap_err().to_string();
    assert!(error.contains("at most 1000 are read"), "{error}");
    // A truncated file is an error, and ends no process.
    File::options().write(true).open(&path).unwrap().set_len(5000).unwrap();
    assert!(Segment::copy_of(&path, &open, 1 << 20).is_err());
    assert_eq!(walked(&copy).len(), shown.len());
}

#[test]
fn copies_of_a_file_in_use_are_whole() {
    const COUNT: u64 = 20_000;
    let (_directory, segment) = file();
    let family = segment.family(&schema("keyed", vec![label("a", None)])).unwrap();
    let path = segment.path().unwrap();
    let open = File::open(path).unwrap();
    let total = || walked(&Segment::copy_of(path, &open, 1 << 20).unwrap())["keyed"].1;
    std::thread::scope(|scope| {
        let counter = scope.spawn(|| {
            (0..COUNT).for_each(|i| add(&family, &[&format!("name {}", i % 500)], 1));
        });
        let mut last = 0;
        while !counter.is_finished() {
            let now = total();
            assert!((last..=COUNT).contains(&now), "{now} after {last}");
            last = now;
        }
    });
    assert_eq!(total(), COUNT);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn every_flipped_byte_gives_a_report(offset in 0_usize..97, bit in 0_u8..8) {
        let bytes = bytes();
        let used = bytes.len();
        for at in (offset..used).step_by(97) {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << bit;
            look(changed);
        }
    }

    #[test]
    fn any_words_give_a_report(words in prop::collection::vec((0_usize..4000, any::<u64>()), 1..40)) {
        let mut bytes = bytes();
        for (at, word) in words {
            // Half of them are small: offsets, counts and lengths.
            let word = if word % 2 == 0 { word >> 50 } else { word };
            let at = at * 8 % (bytes.len() - 8);
            bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        look(bytes.clone());
        // Extend the file to the size in its header.
        bytes.resize(1 << 20, 0);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &bytes).unwrap();
        let open = File::open(file.path()).unwrap();
        if let Ok(copy) = Segment::copy_of(file.path(), &open, 1 << 20) {
            walked(&copy);
        }
        prop_assert_eq!(std::fs::read(file.path()).unwrap(), bytes);
    }
}
