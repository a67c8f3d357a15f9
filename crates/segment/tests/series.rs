//! Families, compared with a slow twin, and the faults of other series tables, which must not occur
//! here.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use quipu_segment::clock::{Clock, Manual};
use quipu_segment::series::{Cursor, Family, Label, Schema, SeriesHandle, View};
use quipu_segment::{Options, Segment};

const START: u64 = 1_700_000_000_000_000_000;
const TENTH: Duration = Duration::from_millis(100);

fn dynamic(name: &str) -> Label {
    Label { name: name.into(), values: None }
}

fn fixed(name: &str, values: &[&str]) -> Label {
    let values = values.iter().map(|&value| value.into()).collect();
    Label { name: name.into(), values: Some(values) }
}

/// A schema with one additive cell.
fn schema(labels: Vec<Label>) -> Schema {
    Schema { name: "requests".into(), cells: 1, additive: true, labels, ..Schema::default() }
}

/// The texts of a view.
fn texts(view: &View<'_>) -> Vec<String> {
    let mut rest = view.texts;
    let mut texts = Vec::new();
    while let Some((&first, behind)) = rest.split_first() {
        let (length, behind) = match first {
            255 => {
                let (length, behind) = behind.split_first_chunk().unwrap();
                (u32::from_le_bytes(*length) as usize, behind)
            }
            length => (usize::from(length), behind),
        };
        texts.push(String::from_utf8(behind[..length].to_vec()).unwrap());
        rest = &behind[length..];
    }
    texts
}

/// All series that are shown: the first cell by labels. The overflow series has no labels.
fn shown(family: &Family) -> BTreeMap<Vec<String>, u64> {
    let mut all = BTreeMap::new();
    let mut cursor = Cursor::default();
    let flow = family.walk(&mut cursor, &mut Vec::new(), |view| {
        let mut labels = texts(view);
        if !view.overflow {
            labels.insert(0, view.group.to_string());
        }
        assert!(all.insert(labels, view.place.sum(0)).is_none(), "a series is there twice");
        ControlFlow::Continue(())
    });
    assert_eq!(flow, ControlFlow::Continue(()));
    all
}

fn one(family: &Family, text: &str) -> u64 {
    shown(family).get(&vec!["0".to_owned(), text.to_owned()]).copied().unwrap_or(0)
}

fn total(family: &Family) -> u64 {
    shown(family).values().fold(0, |sum, n| sum.wrapping_add(*n))
}

// ---- the twin ----

/// What a program does to a family and to its twin.
#[derive(Debug, Clone)]
enum Step {
    Add { key: usize, cell: usize, n: u64 },
    AddUnknown { n: u64 },
    Bind { key: usize },
    AddBound { handle: usize, cell: usize, n: u64 },
    Copy { handle: usize },
    Drop { handle: usize },
    Remove { key: usize },
    Retain { mask: u32 },
    Clear,
    Sweep,
    Advance { tenths: u32 },
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let key = 0..KEYS;
    let (handle, cell, n) = (0..8_usize, 0..CELLS, 0..100_u64);
    prop_oneof![
        8 => (key.clone(), cell.clone(), n.clone())
            .prop_map(|(key, cell, n)| Step::Add { key, cell, n }),
        1 => n.clone().prop_map(|n| Step::AddUnknown { n }),
        3 => key.clone().prop_map(|key| Step::Bind { key }),
        4 => (handle.clone(), cell, n).prop_map(|(handle, cell, n)| {
            Step::AddBound { handle, cell, n }
        }),
        1 => handle.clone().prop_map(|handle| Step::Copy { handle }),
        2 => handle.prop_map(|handle| Step::Drop { handle }),
        3 => key.prop_map(|key| Step::Remove { key }),
        1 => any::<u32>().prop_map(|mask| Step::Retain { mask }),
        1 => Just(Step::Clear),
        4 => Just(Step::Sweep),
        4 => (1..15_u32).prop_map(|tenths| Step::Advance { tenths }),
        1 => Just(Step::Reopen),
    ]
}

#[derive(Debug, Clone, Copy)]
struct Setting {
    is_dense: bool,
    additive: bool,
    limit: Option<u64>,
    idle: Option<u32>,
    in_file: bool,
}

fn setting() -> impl Strategy<Value = Setting> {
    let limit = prop_oneof![Just(None), (0..6_u64).prop_map(Some)];
    let idle = prop_oneof![Just(None), (1..20_u32).prop_map(Some)];
    let in_file = cfg!(all(unix, not(miri)));
    (any::<bool>(), any::<bool>(), limit, idle, any::<bool>()).prop_map(
        move |(is_dense, additive, limit, idle, file)| Setting {
            is_dense,
            additive,
            limit,
            idle,
            in_file: file && in_file,
        },
    )
}

const KEYS: usize = 12;
const CELLS: usize = 3;
const KINDS: [&str; 3] = ["a", "b", "a longer one"];

/// The texts of a key: a kind, and a fixed value or a dynamic text.
fn key(setting: Setting, key: usize) -> (&'static str, String) {
    let kind = KINDS[key % 3];
    let rest = key / 3;
    match (setting.is_dense, rest) {
        (true, _) => (kind, ["w", "x", "y", "z"][rest].into()),
        (false, 0) => (kind, String::new()),
        (false, 1) => (kind, "a \"name\"".into()),
        (false, 2) => (kind, "\u{e9}".repeat(200)),
        (false, _) => (kind, "sixteen bytes ok".into()),
    }
}

fn twin_schema(setting: Setting) -> Schema {
    let other = if setting.is_dense { fixed("x", &["w", "x", "y", "z"]) } else { dynamic("x") };
    Schema {
        cells: CELLS as u16,
        additive: setting.additive,
        limit: setting.limit,
        idle: setting.idle.map(|tenths| TENTH * tenths),
        ..schema(vec![fixed("kind", &KINDS), other])
    }
}

/// A series that exists or existed.
#[derive(Debug, Clone, Default)]
struct Series {
    cells: [u64; CELLS],
    start: u64,
    /// Whether the family has it, shown or not.
    live: bool,
    hidden: bool,
    /// For dense families: shown although it is zero.
    marked: bool,
    /// The cells at the last sweep, and when a sweep last saw a change, in tenths of a second.
    noted: [u64; CELLS],
    since: u64,
}

impl Series {
    /// Whether it was changed since the last sweep.
    fn has_changed(&self) -> bool {
        self.cells != self.noted
    }
}

/// The twin: everything is a list or a map.
struct Twin {
    setting: Setting,
    created: u64,
    series: Vec<Series>,
    /// The indices in `series` by key; the overflow series has index 0.
    by_key: HashMap<usize, usize>,
    overflowed: u64,
}

impl Twin {
    fn new(setting: Setting, now: u64) -> Self {
        let overflow = Series { start: now, hidden: !setting.is_dense, ..Series::default() };
        let mut twin = Self {
            setting,
            created: now,
            series: vec![overflow],
            by_key: HashMap::new(),
            overflowed: 0,
        };
        if setting.is_dense {
            for key in 0..KEYS {
                twin.by_key.insert(key, twin.series.len());
                twin.series.push(Series { start: now, live: true, ..Series::default() });
            }
        }
        twin
    }

    fn tenth(&self, now: u64) -> u64 {
        (now - self.created) / TENTH.as_nanos() as u64
    }

    fn live(&self) -> u64 {
        self.series[1..].iter().filter(|series| series.live).count() as u64
    }

    /// The series of a key, which is made if there is none. `still_there` returns the keys that the
    /// family has afterwards, and whether their series are shown: several hidden series may be
    /// removed, and those that were changed, and searched before, are shown again.
    fn find(
        &mut self,
        key: usize,
        now: u64,
        still_there: impl Fn() -> BTreeMap<usize, bool>,
    ) -> usize {
        if let Some(&at) = self.by_key.get(&key) {
            self.series[at].hidden = false;
            return at;
        }
        if self.setting.limit.is_some_and(|limit| self.live() >= limit) {
            let there = still_there();
            let mut gone = None;
            for (key, &at) in &self.by_key {
                let series = &mut self.series[at];
                match there.get(key) {
                    Some(is_shown) if series.has_changed() => series.hidden &= !is_shown,
                    Some(_) => {}
                    None => gone = Some((*key, at)),
                }
            }
            let Some((gone, at)) = gone else {
                assert!(self.series.iter().skip(1).all(|series| !series.live || !series.hidden));
                return self.overflow();
            };
            let series = &self.series[at];
            assert!(series.hidden && !series.has_changed(), "only a hidden series may go");
            self.series[at].live = false;
            self.by_key.remove(&gone);
        }
        let tenth = self.tenth(now);
        let start = self.created + tenth * TENTH.as_nanos() as u64;
        let series = Series { start, live: true, since: tenth, ..Series::default() };
        self.series.push(series);
        self.by_key.insert(key, self.series.len() - 1);
        self.series.len() - 1
    }

    fn overflow(&mut self) -> usize {
        self.overflowed += 1;
        self.series[0].hidden = false;
        0
    }

    fn is_shown(&self, at: usize) -> bool {
        let series = &self.series[at];
        match self.setting.is_dense {
            true => series.marked || series.cells != [0; CELLS],
            false => (series.live || at == 0) && !series.hidden,
        }
    }

    fn remove(&mut self, key: usize, now: u64) -> bool {
        let Some(&at) = self.by_key.get(&key) else { return false };
        if self.setting.is_dense {
            let was_shown = self.is_shown(at);
            let series = &mut self.series[at];
            (series.cells, series.start, series.marked) = ([0; CELLS], now, false);
            return was_shown;
        }
        self.series[at].live = false;
        self.by_key.remove(&key);
        true
    }

    fn sweep(&mut self, now: u64) {
        let Some(idle) = self.setting.idle.filter(|_| !self.setting.is_dense) else { return };
        let tenth = self.tenth(now);
        for (key, at) in self.by_key.clone() {
            let series = &mut self.series[at];
            if series.cells != series.noted {
                (series.noted, series.since, series.hidden) = (series.cells, tenth, false);
            } else if !series.hidden && tenth - series.since >= idle.into() {
                if self.setting.additive {
                    series.hidden = true;
                } else {
                    series.live = false;
                    self.by_key.remove(&key);
                }
            }
        }
    }
}

/// The family, next to its twin.
struct Pair {
    setting: Setting,
    clock: Manual,
    segment: Option<Segment>,
    family: Option<Family>,
    path: Option<std::path::PathBuf>,
    _directory: Option<tempfile::TempDir>,
    twin: Twin,
    handles: Vec<(SeriesHandle, usize)>,
}

impl Pair {
    fn new(setting: Setting) -> Self {
        let clock = Manual::new(START);
        let directory = setting.in_file.then(|| tempfile::tempdir().unwrap());
        let path = directory.as_ref().map(|directory| directory.path().join("twin.quipu"));
        let twin = Twin::new(setting, START);
        let (segment, family) = (None, None);
        let handles = Vec::new();
        let _directory = directory;
        let mut pair = Self { setting, clock, segment, family, path, _directory, twin, handles };
        pair.open();
        pair
    }

    fn open(&mut self) {
        let segment = match &self.path {
            Some(path) => Options::new().limit(4 << 20).open_or_create(path).unwrap(),
            None => Segment::private(4 << 20).unwrap(),
        };
        let family = segment.family_at(&twin_schema(self.setting), self.clock.clone());
        self.family = Some(family.unwrap());
        self.segment = Some(segment);
    }

    fn family(&self) -> &Family {
        self.family.as_ref().unwrap()
    }

    /// The keys that the family has, and whether their series are shown.
    fn keys(setting: Setting, family: &Family) -> BTreeMap<usize, bool> {
        let mut keys = BTreeMap::new();
        let removed = family.retain(|view| {
            keys.insert(key_of(setting, view), false);
            true
        });
        assert_eq!(removed.unwrap(), 0);
        let (mut cursor, mut buffer) = (Cursor::default(), Vec::new());
        let _ = family.walk(&mut cursor, &mut buffer, |view| {
            if !view.overflow {
                keys.insert(key_of(setting, view), true);
            }
            ControlFlow::Continue(())
        });
        keys
    }

    fn twin_of(&mut self, key: usize) -> usize {
        let (setting, now) = (self.setting, self.clock.now());
        let family = self.family.clone().unwrap();
        self.twin.find(key, now, || Self::keys(setting, &family))
    }

    fn run(&mut self, step: &Step) {
        let now = self.clock.now();
        match *step {
            Step::Add { key: number, cell, n } => {
                let (kind, text) = key(self.setting, number);
                let labels = |writer: &mut quipu_segment::series::KeyWriter<'_>| {
                    writer.text(kind);
                    writer.text(&text);
                };
                self.family().add(labels, cell, n);
                let at = self.twin_of(number);
                self.twin.series[at].cells[cell] += n;
            }
            Step::AddUnknown { n } => {
                self.family().add(
                    |writer| {
                        writer.text("unheard of");
                        writer.text("x");
                    },
                    0,
                    n,
                );
                let at = self.twin.overflow();
                self.twin.series[at].cells[0] += n;
            }
            Step::Bind { key: number } => {
                if self.handles.len() == 8 {
                    return;
                }
                let (kind, text) = key(self.setting, number);
                let handle = self.family().bind(|writer| {
                    writer.text(kind);
                    writer.text(&text);
                });
                let at = self.twin_of(number);
                self.twin.series[at].marked = true;
                self.handles.push((handle, at));
            }
            Step::AddBound { handle, cell, n } => {
                let Some((handle, at)) = self.handles.get(handle) else { return };
                handle.place().add(cell, n);
                self.twin.series[*at].cells[cell] += n;
            }
            Step::Copy { handle } => {
                if let Some((handle, at)) = self.handles.get(handle)
                    && self.handles.len() < 8
                {
                    self.handles.push((handle.clone(), *at));
                }
            }
            Step::Drop { handle } => {
                if handle < self.handles.len() {
                    self.handles.swap_remove(handle);
                }
            }
            Step::Remove { key: number } => {
                let (kind, text) = key(self.setting, number);
                let removed = self.family().remove(|writer| {
                    writer.text(kind);
                    writer.text(&text);
                });
                assert_eq!(removed.unwrap(), self.twin.remove(number, now));
            }
            Step::Retain { mask } => self.retain(mask),
            Step::Clear => self.retain(0),
            Step::Sweep => {
                self.family().sweep().unwrap();
                self.twin.sweep(now);
            }
            Step::Advance { tenths } => self.clock.advance(TENTH * tenths),
            Step::Reopen => {
                if self.path.is_some() {
                    self.handles.clear();
                    (self.family, self.segment) = (None, None);
                    self.open();
                }
            }
        }
    }

    fn retain(&mut self, mask: u32) {
        let setting = self.setting;
        let keeps = |key: usize| mask >> key & 1 == 1;
        let removed = self.family().retain(|view| keeps(key_of(setting, view))).unwrap();
        let mut expected = 0;
        for number in 0..KEYS {
            let is_there = self
                .twin
                .by_key
                .get(&number)
                .is_some_and(|&at| !setting.is_dense || self.twin.is_shown(at));
            if is_there && !keeps(number) {
                assert!(self.twin.remove(number, self.clock.now()));
                expected += 1;
            }
        }
        assert_eq!(removed, expected);
    }

    fn compare(&self) {
        let (family, twin) = (self.family(), &self.twin);
        let mut seen = BTreeMap::new();
        let (mut cursor, mut buffer) = (Cursor::default(), Vec::new());
        let _ = family.walk(&mut cursor, &mut buffer, |view| {
            let number = if view.overflow { KEYS } else { key_of(self.setting, view) };
            let cells = [0, 1, 2].map(|cell| view.place.sum(cell));
            assert!(seen.insert(number, (cells, view.start)).is_none(), "twice: {number}");
            let has_quote = view.texts.contains(&b'"');
            assert!(view.overflow || view.plain != has_quote);
            ControlFlow::Continue(())
        });
        let all = twin.by_key.iter().map(|(&key, &at)| (key, at)).chain([(KEYS, 0)]);
        let expected: BTreeMap<_, _> = all
            .filter(|&(_, at)| twin.is_shown(at))
            .map(|(key, at)| (key, (twin.series[at].cells, twin.series[at].start)))
            .collect();
        assert_eq!(seen, expected);
        assert_eq!(family.overflowed(), twin.overflowed);
        let count = match self.setting.is_dense {
            true => expected.len() as u64,
            false => twin.live(),
        };
        assert_eq!(family.len(), count);
        for (handle, at) in &self.handles {
            let cells = [0, 1, 2].map(|cell| handle.place().sum(cell));
            assert_eq!(cells, twin.series[*at].cells, "a handle's cells");
        }
    }
}

/// The number of a key, from the view of its series.
fn key_of(setting: Setting, view: &View<'_>) -> usize {
    if setting.is_dense {
        let (kind, rest) = (view.group as usize / 4, view.group as usize % 4);
        return kind + 3 * rest;
    }
    let texts = texts(view);
    assert_eq!(texts.len(), 1);
    (0..4)
        .map(|rest| view.group as usize + 3 * rest)
        .find(|&number| key(setting, number).1 == texts[0])
        .expect("a key that was never written")
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 4 } else { 400 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_family_is_what_its_twin_is(
        setting in setting(),
        steps in prop::collection::vec(step(), 1..if cfg!(miri) { 25 } else { 120 }),
    ) {
        let mut pair = Pair::new(setting);
        for step in &steps {
            pair.run(step);
            pair.compare();
        }
    }
}

/// The search for a hidden series to remove shows one that a handle changed, which the twin must
/// allow for.
#[test]
fn the_limit_shows_a_hidden_series_that_changed() {
    let (limit, idle) = (Some(3), Some(1));
    let setting = Setting { is_dense: false, additive: true, limit, idle, in_file: false };
    let add = |key| Step::Add { key, cell: 0, n: 0 };
    let mut pair = Pair::new(setting);
    for step in [
        Step::Bind { key: 0 },
        Step::Advance { tenths: 1 },
        Step::Sweep,
        add(1),
        Step::AddBound { handle: 0, cell: 0, n: 1 },
        add(2),
        add(3),
    ] {
        pair.run(&step);
        pair.compare();
    }
    assert!(pair.family().overflowed() == 1 && pair.twin.is_shown(1));
}

// ---- faults of other tables ----

#[test]
fn shifted_texts_stay_two_series() {
    let segment = Segment::private(1 << 16).unwrap();
    let family = segment.family(&schema(vec![dynamic("a"), dynamic("b")])).unwrap();
    for (a, b, n) in [("ab", "c", 1), ("a", "bc", 2), ("", "abc", 4), ("abc", "", 8)] {
        family.add(
            |key| {
                key.text(a);
                key.text(b);
            },
            0,
            n,
        );
    }
    assert_eq!(family.len(), 4);
    assert_eq!(shown(&family).into_values().collect::<BTreeSet<_>>(), BTreeSet::from([1, 2, 4, 8]));
}

#[test]
fn labels_are_told_apart_by_their_order() {
    let segment = Segment::private(1 << 16).unwrap();
    let labels = vec![dynamic("from"), fixed("kind", &["x", "y"]), dynamic("to")];
    let family = segment.family(&schema(labels)).unwrap();
    for (from, kind, to) in [("p", "x", "q"), ("q", "x", "p"), ("p", "y", "q"), ("p", "x", "q")] {
        family.add(
            |key| {
                key.text(from);
                key.text(kind);
                key.text(to);
            },
            0,
            1,
        );
    }
    let expected = [(["0", "p", "q"], 2), (["0", "q", "p"], 1), (["1", "p", "q"], 1)];
    let expected = expected.map(|(labels, n)| (labels.map(str::to_owned).to_vec(), n));
    assert_eq!(shown(&family), BTreeMap::from(expected));
}

/// Returns the bytes in use after each round of series that come and go.
fn used_after_rounds(text: impl Fn(u32, u32) -> String, count: u32, rounds: u32) -> Vec<u64> {
    let segment = Segment::private(256 << 20).unwrap();
    let clock = Manual::new(START);
    let family = segment.family_at(&schema(vec![dynamic("user")]), clock.clone()).unwrap();
    (0..rounds)
        .map(|round| {
            for i in 0..count {
                family.add(|key| key.text(&text(round, i)), 0, 1);
            }
            assert_eq!(family.len(), count.into());
            assert_eq!(family.clear().unwrap(), count.into());
            assert!(family.is_empty() && shown(&family).is_empty());
            clock.advance(Duration::from_secs(2));
            segment.used()
        })
        .collect()
}

#[test]
fn memory_of_removed_series_is_used_again() {
    let count = if cfg!(miri) { 60 } else { 60_000 };
    let used = used_after_rounds(|round, i| format!("round {round} number {i:08}"), count, 6);
    // The second round may need a table of its own; after that, everything exists.
    assert!(used[1..].windows(2).all(|pair| pair[0] == pair[1]), "{used:?}");
    assert!(used[1] - used[0] <= 8 * (4 * u64::from(count)).next_power_of_two(), "{used:?}");
}

#[test]
fn memory_of_removed_series_with_long_texts_is_used_again() {
    let count = if cfg!(miri) { 10 } else { 300 };
    // Up to some 600 bytes: many classes of lengths, and several lengths of the same class.
    let text = |round, i: u32| format!("{round} {i} {}", "x".repeat((i as usize * 8) % 600));
    let used = used_after_rounds(text, count, 6);
    assert!(used[2..].windows(2).all(|pair| pair[0] == pair[1]), "{used:?}");
}

#[test]
fn tables_are_used_again_however_their_sizes_follow() {
    let segment = Segment::private(64 << 20).unwrap();
    let clock = Manual::new(START);
    let family = segment.family_at(&schema(vec![dynamic("user")]), clock.clone()).unwrap();
    let most = if cfg!(miri) { 40_u32 } else { 3000 };
    let mut used = Vec::new();
    for round in 0..if cfg!(miri) { 6 } else { 60_u32 } {
        for i in 0..[most, most / 8, most / 2, most / 16][round as usize % 4] {
            family.add(|key| key.text(&format!("{round:4} {i:8}")), 0, 1);
        }
        family.clear().unwrap();
        clock.advance(Duration::from_secs(2));
        used.push(segment.used());
    }
    let half = used.len() / 2;
    assert_eq!(used[half], used[used.len() - 1], "{used:?}");
}

#[test]
fn a_walk_sees_each_series_once_while_others_come_and_go() {
    let segment = Segment::private(64 << 20).unwrap();
    let clock = Manual::new(START);
    let labels = vec![dynamic("a"), dynamic("b")];
    let family = segment.family_at(&schema(labels), clock.clone()).unwrap();
    // The second text is a function of the first, so that a torn series shows.
    let pair = |name: String| {
        let second: String = name.bytes().map(|byte| char::from(byte ^ 1)).collect();
        (name, second)
    };
    let lasting = if cfg!(miri) { 10 } else { 500 };
    let add = |name: String, n| {
        let (a, b) = pair(name);
        family.add(
            |key| {
                key.text(&a);
                key.text(&b);
            },
            0,
            n,
        );
        (a, b)
    };
    for i in 0..lasting {
        add(format!("lasting {i:04}"), 7);
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (done, add, family) = (&done, &add, &family);
            scope.spawn(move || {
                for i in 0.. {
                    // The same lengths as those of the lasting ones, so that records of both are
                    // interchangeable.
                    let (a, b) = add(format!("passing{thread}{:04}", i % 3000), 1);
                    let (a, b) = (&a, &b);
                    let removed = family.remove(|key| {
                        key.text(a);
                        key.text(b);
                    });
                    assert!(removed.unwrap());
                    if done.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
        }
        for _ in 0..if cfg!(miri) { 2 } else { 300 } {
            let mut seen = BTreeSet::new();
            let (mut cursor, mut buffer) = (Cursor::default(), Vec::new());
            let _ = family.walk(&mut cursor, &mut buffer, |view| {
                let texts = texts(view);
                assert_eq!(pair(texts[0].clone()), (texts[0].clone(), texts[1].clone()));
                if texts[0].starts_with("lasting") {
                    assert_eq!(view.place.sum(0), 7);
                    assert!(seen.insert(texts[0].clone()), "{} twice", texts[0]);
                }
                ControlFlow::Continue(())
            });
            assert_eq!(seen.len(), lasting);
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(family.len(), lasting as u64);
    assert_eq!(total(&family), 7 * lasting as u64);
}

#[test]
fn an_insertion_does_not_wait_for_a_walk() {
    let segment = Segment::private(1 << 20).unwrap();
    let family = segment.family(&schema(vec![dynamic("user")])).unwrap();
    for i in 0..20 {
        family.add(|key| key.text(&format!("{i}")), 0, 1);
    }
    let (mut cursor, mut buffer) = (Cursor::default(), Vec::new());
    let mut seen = 0;
    let _ = family.walk(&mut cursor, &mut buffer, |_| {
        seen += 1;
        // The reader of the scrape is slow: other threads insert and remove, and end.
        std::thread::scope(|scope| {
            scope.spawn(|| family.add(|key| key.text(&format!("new {seen}")), 0, 1));
        });
        family.remove(|key| key.text("never there")).unwrap();
        if seen == 10 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert_eq!((seen, family.len()), (10, 30));
    let mut rest = 0;
    let _ = family.walk(&mut cursor, &mut buffer, |_| {
        rest += 1;
        ControlFlow::Continue(())
    });
    assert_eq!(rest, 20);
}

#[test]
fn who_holds_handles_may_do_anything() {
    let segment = Segment::private(1 << 20).unwrap();
    let family = segment.family(&schema(vec![dynamic("user")])).unwrap();
    let mut handles: Vec<_> =
        (0..50).map(|i| family.bind(|key| key.text(&format!("{i}")))).collect();
    let removed = family.retain(|view| {
        // Handles may be dropped, bound and used, and series made, during the call.
        family.add(|key| key.text("another"), 0, 1);
        handles.pop();
        let _bound = family.bind(|key| key.text("one more"));
        texts(view)[0].starts_with('a')
    });
    // "one more" was made during a call; it comes last, and is not kept either.
    assert_eq!(removed.unwrap(), 51);
    assert_eq!(family.len(), 1);
    assert_eq!(one(&family, "another"), 51 + 1);
}

#[test]
fn threads_that_make_the_same_series_make_one() {
    let segment = Segment::private(64 << 20).unwrap();
    let family = segment.family(&schema(vec![dynamic("user")])).unwrap();
    let (count, threads) = if cfg!(miri) { (20, 2) } else { (5000, 8) };
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let family = &family;
            scope.spawn(move || {
                for i in 0..count {
                    // Half of the threads start from the other end.
                    let i = if thread % 2 == 0 { i } else { count - 1 - i };
                    family.add(|key| key.text(&format!("user {i}")), 0, 1);
                }
            });
        }
    });
    let shown = shown(&family);
    assert_eq!((shown.len(), family.len()), (count, count as u64));
    assert!(shown.values().all(|&n| n == threads));
}

/// A series that a reader looks for is found while the index moves to a larger table.
#[test]
fn a_look_finds_what_moves() {
    let segment = Segment::private(64 << 20).unwrap();
    let family = segment.family(&schema(vec![dynamic("user")])).unwrap();
    let rounds = if cfg!(miri) { 60 } else { 3000 };
    for i in 0..rounds {
        family.add(|key| key.text(&i.to_string()), 0, 1);
        for j in (i % 10..=i).step_by(10) {
            let value = family.read(|key| key.text(&j.to_string()), |place| place.sum(0));
            assert_eq!(value, Some(1), "{j} of {i}");
        }
    }
    assert_eq!(family.read(|key| key.text("none"), |_| ()), None);
}

#[test]
fn growth_keeps_every_count() {
    let segment = Segment::private(256 << 20).unwrap();
    let family = segment.family(&schema(vec![dynamic("user")])).unwrap();
    let count = if cfg!(miri) { 100 } else { 300_000_u64 };
    let made = AtomicU64::new(1);
    family.add(|key| key.text("user 0"), 0, 1);
    let added: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2)
            .map(|thread| {
                let (family, made) = (&family, &made);
                scope.spawn(move || {
                    let (mut added, mut random) = (0, 17 + thread);
                    loop {
                        let there = made.load(Ordering::Acquire);
                        for _ in 0..if cfg!(miri) { 10 } else { 1000 } {
                            random = u64::wrapping_mul(random, 6_364_136_223_846_793_005) + 1;
                            let i = (random >> 33) % there;
                            family.add(|key| key.text(&format!("user {i}")), 0, 1);
                            added += 1;
                        }
                        if there == count {
                            return added;
                        }
                    }
                })
            })
            .collect();
        for i in 1..count {
            family.add(|key| key.text(&format!("user {i}")), 0, 1);
            made.store(i + 1, Ordering::Release);
        }
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(family.len(), count);
    assert_eq!(family.overflowed(), 0);
    assert_eq!(total(&family), count + added);
}

#[test]
fn threads_that_add_and_remove_lose_nothing_that_stays() {
    let segment = Segment::private(64 << 20).unwrap();
    let clock = Manual::new(START);
    let family = segment.family_at(&schema(vec![dynamic("user")]), clock.clone()).unwrap();
    let rounds = if cfg!(miri) { 20 } else { 20_000 };
    let gone = Mutex::new(0_u64);
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (family, clock, gone) = (&family, &clock, &gone);
            scope.spawn(move || {
                for i in 0..rounds {
                    let own = format!("own {thread} {}", i % 10);
                    family.add(|key| key.text(&own), 0, 3);
                    family.add(|key| key.text("all"), 0, 1);
                    let handle = family.bind(|key| key.text(&own));
                    if i % 7 == thread {
                        // No other thread adds to it: what it has now is what gets lost.
                        *gone.lock().unwrap() += handle.place().sum(0);
                        assert!(family.remove(|key| key.text(&own)).unwrap());
                        handle.place().add(0, 1_000_000);
                        clock.advance(TENTH);
                    }
                }
            });
        }
    });
    assert_eq!(one(&family, "all"), 4 * rounds);
    let own = total(&family) - 4 * rounds;
    assert_eq!(own + *gone.lock().unwrap(), 4 * 3 * rounds);
}

// ---- limits and misuse ----

#[test]
fn what_is_beyond_the_limit_is_counted_in_one_series() {
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
    assert_eq!((one(&family, "user 9"), family.overflowed()), (5, 700));
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
fn a_full_segment_goes_on_counting_in_the_overflow() {
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
    assert_eq!(one(&family, "user 0"), 2);
}

#[test]
fn labels_that_no_family_has_go_to_the_overflow() {
    let segment = Segment::private(8 << 20).unwrap();
    let labels = vec![fixed("kind", &["x", "y"]), dynamic("user")];
    let family = segment.family(&schema(labels)).unwrap();
    // Too few, out of range, too many, unknown, and a text that fits into no record.
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
fn a_family_that_contradicts_is_refused() {
    let segment = Segment::private(1 << 20).unwrap();
    let made = schema(vec![dynamic("user")]);
    let family = segment.family(&made).unwrap();
    family.add(|key| key.text("ada"), 0, 1);
    assert_eq!(one(&segment.family(&made).unwrap(), "ada"), 1);
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
        assert!(error.is_mismatch() && error.to_string().contains(words), "{error}");
    }
    // Fields that may differ.
    let other = Schema { help: "Other words.".into(), limit: Some(9), ..made };
    assert_eq!(one(&segment.family(&other).unwrap(), "ada"), 1);
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
        handle.place().add_float(0, value);
        assert!(family.remove(|key| key.text("x")).unwrap());
        handle.place().add_float(0, 0.5);
        assert_eq!(handle.place().sum_float(0), 0.5);
    }
}

#[test]
fn more_handles_than_a_record_counts_keep_it() {
    let segment = Segment::private(1 << 20).unwrap();
    let clock = Manual::new(START);
    let family = segment.family_at(&schema(vec![dynamic("user")]), clock.clone()).unwrap();
    let handle = family.bind(|key| key.text("ada"));
    let many: Vec<_> = (0..if cfg!(miri) { 10 } else { 5000 }).map(|_| handle.clone()).collect();
    assert!(family.remove(|key| key.text("ada")).unwrap());
    drop(many);
    clock.advance(Duration::from_secs(5));
    for i in 0..10 {
        family.add(|key| key.text(&format!("{i:03}")), 0, 1);
    }
    handle.place().add(0, 100);
    assert_eq!(total(&family), 10);
}

/// What is added to a series while a sweep hides it stays, and is shown.
#[test]
fn what_is_added_to_what_is_hidden_meanwhile_stays() {
    let segment = Segment::private(1 << 20).unwrap();
    let clock = Manual::new(START);
    let schema = Schema { idle: Some(TENTH), ..schema(vec![dynamic("user")]) };
    let family = segment.family_at(&schema, clock.clone()).unwrap();
    let count = AtomicU64::new(0);
    for total in 1..=3 {
        family.update(
            |key| key.text("ada"),
            |place| {
                count.fetch_add(1, Ordering::Relaxed);
                clock.advance(TENTH * 2);
                family.sweep().unwrap();
                place.add(0, 1);
            },
        );
        assert_eq!(count.load(Ordering::Relaxed), total);
        let value = family.read(|key| key.text("ada"), |place| place.sum(0));
        assert_eq!(value, Some(total));
        family.sweep().unwrap();
    }
}

#[test]
fn idle_series_make_room_without_a_look_at_all() {
    let segment = Segment::private(64 << 20).unwrap();
    let clock = Manual::new(START);
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
    // Starting from the front each time would read some 200 million records.
    assert!(cfg!(miri) || begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert_eq!((total(&family), family.overflowed()), (count.into(), 0));
}

#[cfg(all(unix, not(miri)))]
mod files {
    //! Families in files: what reopening finds, and what a power loss leaves.

    use std::fs;
    use std::path::{Path, PathBuf};
    use std::sync::Arc;

    use super::*;
    use quipu_segment::Readings;
    use quipu_segment::series::{SeriesCells, SideAllocations};

    fn readings(boot: u8) -> Readings {
        let since_boot = Duration::from_secs(1000);
        Readings { boot: [boot; 16], since_boot, wall: Duration::from_nanos(START) }
    }

    fn open(path: &Path) -> Segment {
        Options::new().limit(4 << 20).open_or_create(path).unwrap()
    }

    /// A file that was in use when its process ended. It has a keyed and two dense families, with
    /// some series removed or hidden.
    fn sample(directory: &Path) -> PathBuf {
        let path = directory.join("sample.quipu");
        let options = Options::new().limit(4 << 20).readings(readings(1));
        let segment = options.open_or_create(&path).unwrap();
        let clock = Manual::new(START);
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
            let schema =
                Schema { name: name.into(), ..schema(vec![fixed("kind", &["x", "y", "z"])]) };
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
        assert_eq!((one(&family, "user 299"), one(&family, "user 17")), (300, 1));
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
        // Regardless of the number of series that fill it: a record takes up some of the space.
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
                assert_eq!(one(&family, "user 0"), 1);
                rounds += 1;
            }
            fs::remove_file(&path).unwrap();
        }
        assert_eq!(rounds, 12);
    }

    #[test]
    fn what_a_power_loss_takes_is_cut_off() {
        let directory = tempfile::tempdir().unwrap();
        let path = sample(directory.path());
        let whole = fs::read(&path).unwrap();
        let used = usize::try_from(u64::from_le_bytes(whole[72..80].try_into().unwrap())).unwrap();
        let lost = directory.path().join("lost.quipu");
        let mut opened = 0;
        // A line that is zeroed, or of another time: each line of the file except the header's.
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
        // Thousands of openings, each of which a disk would sync.
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

    /// What a family's block has after its words in use, after a power loss, belongs to no series:
    /// no new series takes it for the offset of a side allocation.
    #[test]
    fn a_series_after_a_power_loss_has_nothing_of_another_beside_it() {
        struct Seen(Mutex<Vec<u64>>);

        impl SideAllocations for Seen {
            fn is_offset(&self, _: usize) -> bool {
                true
            }

            fn clear(&self, _: &Family, _: &SeriesCells<'_>) {}

            fn renew(&self, _: &Family, place: &SeriesCells<'_>) {
                self.0.lock().unwrap().push(place.plain(0).load(Ordering::Relaxed));
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
        let word =
            |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
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

    /// The sectors of a record are written one by one. A label that is not on the disk, or one that
    /// two records have, costs only that series, and not those after it.
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
            let count = |user: &str| family.read(|key| key.text(user), |place| place.sum(0));
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
        // The record of the slab: its words in use are set back to what the first family took.
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
                    family.bind(|key| key.text("user 5")).place().add(0, 1);
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
        assert_eq!(one(&family, "user 1"), 1002);
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
}
