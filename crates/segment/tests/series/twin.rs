//! Compares a family with its twin, a simple model made of a list and a map. Random sequences of
//! operations change both, and must lead to the same series.

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;

use proptest::prelude::*;
use quipu_segment::clock::{Clock, TestClock};
use quipu_segment::series::{Cursor, Family, Schema, SeriesHandle, View};
use quipu_segment::{Options, Segment};

use super::{START, TENTH, dynamic, fixed, schema, texts};

/// An operation on a family and on its twin.
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

/// Returns the values of a key: a kind, and a fixed or dynamic value.
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
    /// Whether the family contains the series, even if it is hidden.
    live: bool,
    hidden: bool,
    /// Whether a series of a dense family is shown although it is zero.
    marked: bool,
    /// The cells at the last sweep, and the time of the last change that a sweep saw, in tenths of
    /// a second.
    noted: [u64; CELLS],
    since: u64,
}

impl Series {
    /// Returns whether it was changed since the last sweep.
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

    /// Returns the series of a key, and creates it if necessary. `still_there` returns the keys of
    /// the family afterwards, and whether their series are shown. This is needed because several
    /// hidden series may be removed, and changed ones that the search met before are shown again.
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
    clock: TestClock,
    segment: Option<Segment>,
    family: Option<Family>,
    path: Option<std::path::PathBuf>,
    _directory: Option<tempfile::TempDir>,
    twin: Twin,
    handles: Vec<(SeriesHandle, usize)>,
}

impl Pair {
    fn new(setting: Setting) -> Self {
        let clock = TestClock::from_nanos(START);
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

    /// Returns the keys of the family, and whether their series are shown.
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
                handle.cells().add(cell, n);
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
            let cells = [0, 1, 2].map(|cell| view.cells.sum(cell));
            assert!(seen.insert(number, (cells, view.start)).is_none(), "twice: {number}");
            let has_quote = view.texts.contains(&b'"');
            assert!(view.overflow || view.escape_free != has_quote);
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
            let cells = [0, 1, 2].map(|cell| handle.cells().sum(cell));
            assert_eq!(cells, twin.series[*at].cells, "a handle's cells");
        }
    }
}

/// Returns the number of a key, from the view of its series.
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

/// The search for a hidden series to remove shows one that a handle changed. The twin must allow
/// for this.
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
