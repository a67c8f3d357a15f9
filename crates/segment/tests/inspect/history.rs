//! Tests the flight recorder: a reader gets all recorded ticks, even if the recorder was killed or
//! replaced, and finishes for any bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use proptest::prelude::*;
use quipu_segment::history::{Options as Recording, Recorder, RecordingInfo, SeriesId, replay};
use quipu_segment::inspect::Inspection;
use quipu_segment::series::{Family, Schema};
use quipu_segment::{Options, Segment};

use super::{add, label, schema};

const SECOND: u64 = 1_000_000_000;
/// The time of the first tick; a multiple of a second.
const START: u64 = 1_700_000_000 * SECOND;

/// The series of a tick by their family and ID.
type Seen = BTreeMap<(u64, u64), Vec<u64>>;

fn see(segment: &Segment, since: u64) -> (Vec<(u64, Seen)>, RecordingInfo) {
    let mut ticks = Vec::new();
    let replayed = replay(segment, since, |tick| {
        let series = tick.series();
        let series = series.map(|(SeriesId { family, id }, cells)| ((family, id), cells.to_vec()));
        ticks.push((tick.time, series.collect()));
    });
    (ticks, replayed.unwrap().unwrap())
}

/// Returns the series that a walk shows now.
fn now(families: &[&Family]) -> Seen {
    let mut seen = Seen::new();
    for family in families {
        let schema = family.schema();
        let flow = family.walk(&mut Default::default(), &mut Vec::new(), |view| {
            let cell = |at: usize| match (schema.additive, schema.floats >> at & 1) {
                (true, 0) => view.cells.sum(at),
                (true, _) => view.cells.sum_float(at).to_bits(),
                _ => view.cells.plain(at).load(std::sync::atomic::Ordering::Relaxed),
            };
            // The cells of a family's record begin 64 bytes after it.
            let key = (family.id() - 64, view.id);
            assert!(seen.insert(key, (0..view.cells.len()).map(cell).collect()).is_none());
            std::ops::ControlFlow::Continue(())
        });
        assert!(flow.is_continue());
    }
    seen
}

fn private() -> Segment {
    Segment::private(16 << 20).unwrap()
}

/// Returns a recorder with as few bytes as possible.
fn small(segment: &Segment) -> Recorder {
    Recording::new().bytes(64 << 10).open(segment).unwrap()
}

fn counter(segment: &Segment, name: &str) -> Family {
    let schema = Schema { name: name.to_owned(), cells: 1, additive: true, ..Schema::default() };
    segment.family(&schema).unwrap()
}

/// An event between two ticks.
#[derive(Debug, Clone)]
enum Step {
    Add(u8, u64),
    Remove(u8),
    Set(u64),
    /// The recorder ends, and another one begins.
    Restart,
    /// Seconds until the next tick.
    Tick(u16),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0_u8..12, 1_u64..1000).prop_map(|(name, n)| Step::Add(name, n)),
        1 => (0_u8..12).prop_map(Step::Remove),
        1 => any::<u64>().prop_map(Step::Set),
        1 => Just(Step::Restart),
        6 => (1_u16..5).prop_map(Step::Tick),
        1 => any::<u16>().prop_map(|seconds| Step::Tick(seconds.max(1))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 40 }))]

    #[test]
    fn recorded_values_equal_the_segment_at_that_time(steps in prop::collection::vec(step(), 1..300)) {
        let segment = private();
        let mut recorder = small(&segment);
        let keyed = segment.family(&schema("keyed", vec![label("name", None)])).unwrap();
        let dense = schema("dense", vec![label("name", Some(&["0", "1", "2", "3"]))]);
        let dense = segment.family(&dense).unwrap();
        let plain = Schema { additive: false, floats: 1, ..schema("plain", vec![]) };
        let mut plain_family = None;
        let (mut expected, mut time) = (Vec::new(), START);
        for step in steps {
            match step {
                Step::Add(name, n) => {
                    add(&keyed, &[&name.to_string()], n);
                    // The names from 4 on go to the overflow series.
                    add(&dense, &[&name.to_string()], n);
                }
                Step::Remove(name) => {
                    let name = name.to_string();
                    keyed.remove(|key| key.text(&name)).unwrap();
                    dense.remove(|key| key.text(&name)).unwrap();
                }
                Step::Set(bits) => {
                    // The family is created after the recorder.
                    let family = plain_family.get_or_insert_with(|| segment.family(&plain).unwrap());
                    let set = |cells: quipu_segment::series::SeriesCells<'_>| {
                        cells.plain(0).store(bits, std::sync::atomic::Ordering::Relaxed);
                    };
                    family.update_shown(|_| {}, set);
                }
                Step::Restart => {
                    drop(recorder);
                    recorder = small(&segment);
                }
                Step::Tick(seconds) => {
                    time += u64::from(seconds) * SECOND;
                    prop_assert!(recorder.tick_at(time + 5, time + 7).unwrap());
                    prop_assert!(!recorder.tick_at(time + 9, time).unwrap());
                    let families = [Some(&keyed), Some(&dense), plain_family.as_ref()];
                    let families: Vec<_> = families.into_iter().flatten().collect();
                    expected.push((time, now(&families)));
                }
            }
        }
        prop_assume!(!expected.is_empty());
        let (seen, replayed) = see(&segment, 0);
        // All ticks fit.
        prop_assert_eq!(&seen, &expected);
        prop_assert_eq!(replayed.ticks, expected.len() as u64);
        prop_assert_eq!((replayed.interval, replayed.dropped, replayed.damage.len()), (SECOND, 0, 0));
        let since = expected[expected.len() / 2].0;
        let (seen, _) = see(&segment, since);
        prop_assert!(seen.len() >= expected.len() - expected.len() / 2);
        prop_assert!(expected.ends_with(&seen));
    }
}

#[test]
fn the_sums_of_pairs_are_recorded_as_one() {
    let segment = private();
    let mut recorder = small(&segment);
    let paired = Schema { cells: 6, pairs: 2, floats: 0b0101, ..schema("paired", vec![]) };
    let family = segment.family(&paired).unwrap();
    let handle = family.bind(|_| {});
    handle.cells().add_pair(0, 1, 0.5);
    handle.cells().add_pair(1, 2, 3.0);
    handle.cells().add(4, 7);
    assert!(recorder.tick_at(START, START).unwrap());
    let [(_, tick)] = see(&segment, 0).0.try_into().unwrap();
    let cells: Vec<_> = tick.into_values().collect();
    assert_eq!(cells, [[3.5_f64.to_bits(), 1, 2, 7, 0]]);
}

#[test]
fn the_oldest_ticks_make_room() {
    let segment = private();
    let mut recorder = small(&segment);
    let keyed = segment.family(&schema("keyed", vec![label("name", None)])).unwrap();
    let mut expected = Vec::new();
    let mut random = 1_u64;
    for tick in 0..if cfg!(miri) { 60 } else { 3000 } {
        for name in 0..20 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            add(&keyed, &[&name.to_string()], random >> 40);
        }
        let time = START + tick * SECOND;
        assert!(recorder.tick_at(time, time).unwrap());
        expected.push((time, now(&[&keyed])));
    }
    let (seen, replayed) = see(&segment, 0);
    assert!(expected.ends_with(&seen));
    // 3 cells of 20 series take about 250 bytes a tick, and fifteen sixteenths are full.
    assert!(seen.len() >= expected.len().min(150), "{} of {}", seen.len(), expected.len());
    assert!(replayed.damage.is_empty());
}

#[test]
fn the_next_series_in_a_record_is_another_one() {
    let segment = private();
    let mut recorder = small(&segment);
    let keyed = segment.family(&schema("keyed", vec![label("name", None)])).unwrap();
    let rounds = 200;
    for round in 0..rounds {
        let name = format!("{round:03}");
        add(&keyed, &[&name], round + 1);
        let time = START + round * SECOND;
        assert!(recorder.tick_at(time, time).unwrap());
        keyed.remove(|key| key.text(&name)).unwrap();
    }
    let (mut ids, mut records) = (BTreeSet::new(), BTreeSet::new());
    for ((_, series), round) in see(&segment, 0).0.into_iter().zip(0..) {
        let [((_, id), cells)] = series.into_iter().collect::<Vec<_>>().try_into().unwrap();
        assert_eq!(cells[0], round + 1);
        ids.insert(id);
        // The lower half.
        records.insert(id as u32);
    }
    assert_eq!(ids.len() as u64, rounds);
    assert!(records.len() < ids.len(), "no record was used again");
}

#[test]
fn one_writes_and_the_next_one_takes_over() {
    let segment = private();
    let family = counter(&segment, "ticks");
    let (mut first, mut second) = (small(&segment), small(&segment));
    let mut expected = Vec::new();
    for tick in 0..20 {
        let time = START + tick * SECOND;
        family.add(|_| {}, 0, 1);
        let wrote = (first.tick_at(time, time).unwrap(), second.tick_at(time, time).unwrap());
        assert_eq!(wrote, (tick < 10, tick >= 10));
        assert_eq!((first.is_leading(), second.is_leading()), wrote);
        expected.push((time, now(&[&family])));
        if tick == 9 {
            drop(first);
            // The first recorder does not get the lead back.
            first = small(&segment);
            assert!(!second.tick_at(time, time).unwrap(), "that tick is there");
        }
    }
    assert_eq!(see(&segment, 0).0, expected);
    assert_ne!(see(&segment, 0).1.owner, 0);
    drop((first, second));
    assert_eq!(see(&segment, 0).1.owner, 0);
}

#[test]
fn omitted_series_are_counted() {
    let segment = private();
    let families = ["a", "b", "c"].map(|name| {
        let keyed = segment.family(&schema(name, vec![label("name", None)])).unwrap();
        (0..10).for_each(|i| add(&keyed, &[&i.to_string()], 1));
        keyed
    });
    let recorded = |options: Recording| {
        let mut recorder = options.bytes(64 << 10).open(&segment).unwrap();
        static TICKS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
        let time = START + TICKS.fetch_add(1, std::sync::atomic::Ordering::Relaxed) * SECOND;
        assert!(recorder.tick_at(time, time).unwrap());
        let (seen, replayed) = see(&segment, time);
        assert_eq!(recorder.dropped(), replayed.dropped);
        let names = seen.last().unwrap().1.keys().map(|(family, _)| {
            let is_it = |one: &&Family| one.id() - 64 == *family;
            families.iter().find(is_it).unwrap().schema().name.clone()
        });
        let mut counts = BTreeMap::<String, usize>::new();
        names.for_each(|name| *counts.entry(name).or_default() += 1);
        (counts.into_values().collect::<Vec<_>>(), replayed.dropped)
    };
    let shown = now(&families.each_ref()).len();
    assert_eq!(recorded(Recording::new()).0.iter().sum::<usize>(), shown);
    assert_eq!(recorded(Recording::new().series(15)), (vec![10, 5], 15));
    assert_eq!(recorded(Recording::new().families(["b", "none"])), (vec![10], 0));
    assert_eq!(recorded(Recording::new().families(["c", "b"]).series(12)), (vec![10, 2], 8));
    assert_eq!(recorded(Recording::new().filter(|schema| schema.name != "a")), (vec![10, 10], 0));
}

#[test]
fn a_tick_that_could_not_fit_has_fewer_series() {
    let segment = private();
    let wide = Schema { cells: 512, ..schema("wide", vec![label("name", None)]) };
    let wide = segment.family(&wide).unwrap();
    let mut recorder = small(&segment);
    for tick in 0..10 {
        (0..10).for_each(|i| add(&wide, &[&i.to_string()], u64::MAX >> tick));
        let time = START + tick * SECOND;
        assert!(recorder.tick_at(time, time).unwrap());
    }
    // A sixteenth of 64 KiB cannot hold ten bytes for each cell of a series.
    let (seen, replayed) = see(&segment, 0);
    assert!(seen.iter().all(|(_, series)| series.is_empty()));
    assert_eq!((seen.len(), replayed.dropped), (10, 10));
}

#[test]
fn options_and_segments_without_room_are_refused() {
    let segment = private();
    let fails = |options: Recording, expected: &str| {
        let error = options.open(&segment).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    fails(Recording::new().bytes(100), "100 bytes");
    fails(Recording::new().bytes(1 << 40), "use 16384 to");
    fails(Recording::new().series(0), "0 series");
    fails(Recording::new().interval(std::time::Duration::ZERO), "1 ms to an hour");
    assert!(replay(&segment, 0, |_| {}).unwrap().is_none());
    let full = Segment::private(1 << 20).unwrap();
    let family = counter(&full, "goes_on");
    let error = Recording::new().open(&full).unwrap_err().to_string();
    assert!(error.contains("full") || error.contains("limit"), "{error}");
    family.add(|_| {}, 0, 1);
    assert_eq!(now(&[&family]).into_values().next(), Some(vec![1]));
    // An existing recorder is used, with its bytes.
    drop(small(&segment));
    Recording::new().open(&segment).unwrap();
}

/// Returns a file with a recorder: its bytes in use.
fn bytes() -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("seg");
    let segment = Options::new().limit(1 << 20).open_or_create(&path).unwrap();
    let keyed = segment.family(&schema("keyed", vec![label("name", None)])).unwrap();
    let mut recorder = small(&segment);
    for tick in 0..40 {
        (0..6).for_each(|i| add(&keyed, &[&(i + tick % 3).to_string()], i + tick));
        let time = START + tick * SECOND;
        assert!(recorder.tick_at(time, time).unwrap());
    }
    let mut bytes = std::fs::read(&path).unwrap();
    bytes.truncate(usize::try_from(segment.used()).unwrap());
    bytes
}

/// Returns the number of ticks, and whether there is damage.
fn look(bytes: Vec<u8>) -> Option<(u64, bool)> {
    let inspection = Inspection::of_bytes(bytes);
    let mut ticks = 0;
    let replayed = inspection.history(0..=u64::MAX, |tick| {
        ticks += 1;
        assert!(tick.series().all(|(_, cells)| !cells.is_empty()));
    })?;
    assert_eq!(replayed.ticks, ticks);
    Some((ticks, !replayed.damage.is_empty()))
}

#[test]
#[cfg_attr(miri, ignore = "slow")]
fn damage_ends_what_is_read() {
    let whole = bytes();
    assert_eq!(look(whole.clone()), Some((40, false)));
    let record = whole.windows(4).position(|bytes| bytes == b"FREC").unwrap() - 8;
    let end = record + u64::from_le_bytes(whole[record..record + 8].try_into().unwrap()) as usize;
    for at in (record + 64..record + 4096).step_by(3) {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        let (ticks, _) = look(bytes).unwrap();
        assert!(ticks <= 40);
    }
    for length in (record + 64..end).step_by(101) {
        let (ticks, is_damaged) = look(whole[..length].to_vec()).unwrap();
        assert!(ticks <= 40 && is_damaged);
    }
    assert_eq!(look(whole[..record].to_vec()), None);
}

/// Returns the times of all ticks, by the segment and by the wall clock.
fn times(bytes: &[u8], since: u64) -> (Vec<(u64, u64)>, RecordingInfo) {
    let mut times = Vec::new();
    let inspection = Inspection::of_bytes(bytes.to_vec());
    let replayed =
        inspection.history(since..=u64::MAX, |tick| times.push((tick.time, tick.unix))).unwrap();
    (times, replayed)
}

#[test]
#[cfg_attr(miri, ignore = "slow")]
fn a_damaged_time_of_a_chunk_hides_no_tick() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("seg");
    let segment = Options::new().limit(1 << 20).open_or_create(&path).unwrap();
    let keyed = segment.family(&schema("keyed", vec![label("name", None)])).unwrap();
    let mut recorder = Recording::new().bytes(16 << 10).open(&segment).unwrap();
    for tick in 0..600 {
        add(&keyed, &["a"], (tick * 7919) % 5000);
        let time = START + tick * SECOND;
        assert!(recorder.tick_at(time, time).unwrap());
    }
    let mut whole = std::fs::read(&path).unwrap();
    whole.truncate(usize::try_from(segment.used()).unwrap());
    let cells = whole.windows(4).position(|bytes| bytes == b"FREC").unwrap() - 8 + 64;
    let half = |at: usize| u32::from_le_bytes(whole[at..at + 4].try_into().unwrap()) as usize;
    let (chunks, words) = (half(cells), half(cells + 4));
    let (expected, replayed) = times(&whole, 0);
    assert_eq!((replayed.begun, replayed.damage), (expected[0].0, Vec::new()));
    assert!(expected.len() > 4 * chunks && expected.len() < 600, "all chunks are used");
    for chunk in 0..chunks {
        for bit in [2, 40, 60, 62] {
            let at = cells + (8 + chunk * words + 2) * 8;
            let mut bytes = whole.clone();
            bytes[at + bit / 8] ^= 1 << (bit % 8);
            for first in [0, expected.len() / 3, expected.len() - 1] {
                let (seen, replayed) = times(&bytes, expected[first].0);
                assert!(seen.ends_with(&expected[first..]), "chunk {chunk}, bit {bit}, {first}");
                assert!(replayed.begun <= expected[0].0, "chunk {chunk}, bit {bit}");
                assert!(replayed.damage.iter().any(|(place, _)| *place == at as u64));
            }
        }
    }
}

#[test]
fn a_visit_that_breaks_is_the_last() {
    let mut ticks = 0;
    let replayed = Inspection::of_bytes(bytes()).history_while(0..=u64::MAX, |tick| {
        assert_eq!(tick.cells(), tick.series().map(|(_, cells)| cells.len()).sum::<usize>());
        ticks += 1;
        if ticks == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    let replayed = replayed.unwrap();
    assert_eq!((ticks, replayed.ticks, replayed.damage.len()), (3, 3, 0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 60 }))]

    #[test]
    fn any_words_in_the_recorder_give_a_report(
        words in prop::collection::vec((0_usize..700, any::<u64>()), 1..20),
    ) {
        let mut bytes = bytes();
        let record = bytes.windows(4).position(|bytes| bytes == b"FREC").unwrap() + 56;
        for (at, word) in words {
            // Half of them are small: counts, and lengths.
            let word = if word % 2 == 0 { word >> 50 } else { word };
            let at = record + at * 8;
            bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        prop_assert!(look(bytes).is_some());
    }
}
