//! Two processes with the same file open: each kind, exemplars, removal, expiry, reset, and a full
//! segment.

#![cfg(all(target_os = "linux", not(miri)))]
#![allow(clippy::unwrap_used)]

mod common;

use std::fs::File;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use common::{Child, alone, eventually, lines};
use quipu::exposition::{Escaping, Format};
use quipu::label::Values;
use quipu::{
    Aggregation, Counter, CounterFamily, Description, FloatCounter, Gauge, Histogram,
    HistogramFamily, Info, IntGauge, LabelValue, ProcessGauge, ProcessGaugeFamily, Registry,
    StateSet, Summary, Window,
};
use quipu_segment::{Options, Segment};

#[derive(Debug, Clone, Copy)]
#[allow(dead_code, reason = "states that are never turned on are shown, too")]
enum State {
    Up,
    Down,
}

impl LabelValue for State {
    const VALUES: Option<&'static [&'static str]> = Some(&["up", "down"]);

    fn encode(&self, writer: &mut quipu::label::LabelWriter<'_>) {
        writer.index(*self as u32);
    }

    fn index(&self) -> Option<u32> {
        Some(*self as u32)
    }
}

struct All {
    counter: Counter,
    floats: FloatCounter,
    gauge: Gauge,
    whole: IntGauge,
    classic: Histogram,
    native: Histogram,
    summary: Summary,
    window: Window,
    state: StateSet<State>,
    labelled: CounterFamily<Values<'static>>,
    observed: HistogramFamily<Values<'static>>,
    _info: Info,
}

impl All {
    fn new(registry: &Registry) -> Self {
        let new = |name: &str| Description::new(name, "");
        Self {
            counter: registry.register(new("counter").exemplars()).unwrap(),
            floats: registry.register(new("floats")).unwrap(),
            gauge: registry.register(new("gauge")).unwrap(),
            whole: registry.register(new("whole")).unwrap(),
            classic: registry.register(new("classic").buckets([1.0, 2.0]).exemplars()).unwrap(),
            native: registry.register(new("native").native(3)).unwrap(),
            summary: registry.register(new("summary").quantiles([0.5])).unwrap(),
            window: registry.register(new("window")).unwrap(),
            state: registry.register(new("state")).unwrap(),
            labelled: registry.register(new("labelled").labels(["path"])).unwrap(),
            observed: registry.register(new("observed").labels(["path"]).native(3)).unwrap(),
            _info: registry.register(new("info").values("version", ["1"])).unwrap(),
        }
    }

    fn count(&self, who: &str) {
        self.counter.inc_with_exemplar(1, &[("who", who)]);
        self.floats.inc_by(0.5);
        self.gauge.add(2.0);
        self.whole.add(3);
        self.classic.observe_with_exemplar(1.5, &[("who", who)]);
        self.native.observe(1.0);
        self.summary.observe(100.0);
        self.window.inc();
        self.state.set(&State::Down);
        self.labelled.inc(&Values(&["/x"]));
        self.observed.observe(&Values(&["/x"]), 1.0);
    }

    fn check(&self, times: u64, text: &str) {
        let floats = times as f64;
        assert_eq!(self.counter.get(), times);
        assert_eq!(self.floats.get(), 0.5 * floats);
        assert_eq!(self.gauge.get(), 2.0 * floats);
        assert_eq!(self.whole.get(), 3 * times.cast_signed());
        assert_eq!((self.classic.count(), self.classic.sum()), (times, 1.5 * floats));
        assert_eq!((self.native.count(), self.native.sum()), (times, floats));
        assert_eq!((self.summary.count(), self.summary.sum()), (times, 100.0 * floats));
        assert_eq!(self.window.count(), times);
        assert_eq!(self.state.is_on(&State::Down), times > 0);
        let quantile = self.summary.quantiles()[0].1;
        assert!(if times == 0 { quantile.is_nan() } else { (99.0..101.2).contains(&quantile) });
        let wanted = [
            format!("counter_total {times}"),
            format!("classic_count {times}"),
            format!("native_count {times}"),
            format!("summary_count {times}"),
            "info_info{version=\"1\"} 1".to_owned(),
        ];
        for line in wanted {
            assert!(text.contains(&line), "{line} in {text}");
        }
    }
}

/// Two processes that open the file by its name, one after the other and at once.
#[test]
fn every_kind_counts_in_two_processes() {
    alone("every_kind_counts_in_two_processes", || {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("shared");
        // Both create everything at the same time.
        let work = || {
            let all = All::new(&Registry::open(&path).unwrap());
            (0..50).for_each(|_| all.count("child"));
            true
        };
        let children: Vec<Child> = (0..2).map(|_| Child::start(work)).collect();
        assert!(children.into_iter().all(Child::wait));
        let registry = Registry::open(&path).unwrap();
        let all = All::new(&registry);
        all.check(100, &registry.text());
        all.count("parent");
        all.check(101, &registry.text());
        let mut open = Vec::new();
        let scrape = registry.scrape().format(Format::OpenMetrics, Escaping::default());
        scrape.write_to(&mut open).unwrap();
        let open = String::from_utf8(open).unwrap();
        assert!(open.contains("counter_total 101 # {who=\"parent\"} 1 "), "{open}");
        assert!(open.contains("classic_bucket{le=\"2.0\"} 101 # {who=\"parent\"} 1.5"), "{open}");
        // One process removes the series, the other one counts.
        let remove = || {
            let all = All::new(&Registry::open(&path).unwrap());
            all.labelled.remove(&Values(&["/x"])).unwrap()
                && all.observed.remove(&Values(&["/x"])).unwrap()
        };
        assert!(Child::start(remove).wait());
        assert!(lines(&registry.text(), "labelled").is_empty());
        all.labelled.inc(&Values(&["/x"]));
        assert_eq!(lines(&registry.text(), "labelled"), ["labelled_total{path=\"/x\"} 1"]);
        // One process resets the registry, while the other one holds handles.
        let bound = all.observed.bind(&Values(&["/y"]));
        bound.observe(1.0);
        let reset = || {
            let registry = Registry::open(&path).unwrap();
            let all = All::new(&registry);
            registry.reset().unwrap();
            all.check(0, &registry.text());
            true
        };
        assert!(Child::start(reset).wait());
        all.check(0, &registry.text());
        assert!(!registry.text().contains("who="));
        assert_eq!((all.labelled.len(), bound.count(), bound.sum()), (0, 0, 0.0));
        all.count("parent");
        bound.observe(1.0);
        all.check(1, &registry.text());
        assert_eq!(bound.count(), 1);
        assert!(registry.text().contains("observed_count{path=\"/y\"} 1"));
    });
}

#[test]
fn a_series_that_is_idle_in_all_processes_is_hidden() {
    alone("a_series_that_is_idle_in_all_processes_is_hidden", || {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("shared");
        let open = || -> (Registry, CounterFamily<Values<'static>>) {
            let registry = Registry::open(&path).unwrap();
            let description = Description::new("c", "").labels(["path"]);
            let family = registry.register(description.expire_after(Duration::from_secs(5)));
            (registry, family.unwrap())
        };
        let count = |path: &'static str| {
            let child = Child::start(|| {
                open().1.inc(&Values(&[path]));
                true
            });
            assert!(child.wait());
        };
        let (registry, _family) = open();
        count("/a");
        count("/b");
        assert_eq!(lines(&registry.text(), "c_total").len(), 2);
        eventually("both expire", || lines(&registry.text(), "c_total").is_empty());
        count("/b");
        assert_eq!(lines(&registry.text(), "c_total"), ["c_total{path=\"/b\"} 2"]);
        count("/a");
        assert_eq!(lines(&registry.text(), "c_total").len(), 2);
    });
}

#[test]
fn an_unregistered_metric_is_not_shown_and_its_name_is_free() {
    let registry = Registry::new();
    let counter = registry.counter("c", "").unwrap();
    counter.inc();
    registry.scope().gauge_fn(Description::new("asked", ""), || 1.0).unwrap();
    assert!(registry.unregister("c") && registry.unregister("asked"));
    assert!(!registry.unregister("c") && !registry.unregister("other"));
    assert_eq!(registry.text(), "");
    let again = registry.counter("c", "").unwrap();
    assert_eq!(again.get(), 1);
    assert!(registry.text().contains("c_total 1"));
    registry.scope().gauge_fn(Description::new("asked", ""), || 2.0).unwrap();
    assert!(registry.text().contains("asked 2"));
}

#[test]
fn a_dense_series_that_is_removed_begins_with_empty_buckets() {
    let registry = Registry::new();
    let description = Description::new("h", "").labels(["k"]).values("k", ["a"]).native(3);
    let family: HistogramFamily<Values> = registry.register(description).unwrap();
    family.observe(&Values(&["a"]), 1.0);
    assert!(family.remove(&Values(&["a"])).unwrap());
    family.observe(&Values(&["a"]), 2.0);
    assert_eq!(family.bind(&Values(&["a"])).count(), 1);
}

/// Counts until long after the segment is full. No count is lost, and no call fails.
fn fill(registry: &Registry) {
    let new = |name: &str| Description::new(name, "").labels(["path"]);
    let counters: CounterFamily<Values> = registry.register(new("counters")).unwrap();
    let natives: HistogramFamily<Values> = registry.register(new("natives").native(3)).unwrap();
    let fixed = new("fixed").values("path", ["a", "b"]);
    let fixed: HistogramFamily<Values> = registry.register(fixed.native(3)).unwrap();
    let before = counters.bind(&Values(&["before"]));
    let count = 40_000_u64;
    for i in 0..count {
        let text = format!("{i:0100}");
        counters.inc(&Values(&[&text]));
        natives.observe(&Values(&[&text]), i as f64);
        fixed.observe(&Values(&["a"]), i as f64);
        before.inc();
    }
    let after = counters.bind(&Values(&["after"]));
    after.inc();
    assert!(counters.overflowed() > 0 && natives.overflowed() > 0);
    assert_eq!(before.get(), count);
    let text = registry.text();
    let sum: u64 = lines(&text, "counters_total")
        .iter()
        .map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
        .sum();
    assert_eq!(sum, 2 * count + 1);
    assert!(text.contains(&format!("fixed_count{{path=\"a\"}} {count}\n")));
    assert!(text.contains("quipu_series_overflowed_total{family=\"counters\"}"));
    // Registering a family returns an error.
    let error = (0..10_000)
        .find_map(|i| registry.counter(&format!("more_{i}"), "").err())
        .expect("the segment has no room for 10,000 families");
    assert!(error.to_string().contains("more_"), "{error}");
    assert!(registry.counter("more_again", "").is_err());
    counters.inc(&Values(&["before"]));
}

#[test]
fn a_full_segment_fails_nothing() {
    alone("a_full_segment_fails_nothing", || {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("small");
        let segment = Options::new().limit(1 << 20).shared().open_or_create(path).unwrap();
        fill(&Registry::from_segment(segment));
        fill(&Registry::from_segment(Segment::anonymous(1 << 20).unwrap()));
    });
}

/// A full disk. If no file system can be mounted, only the full segment is tested.
#[test]
fn a_full_disk_fails_nothing() {
    alone("a_full_disk_fails_nothing", || {
        let directory = tempfile::tempdir().unwrap();
        let at = std::ffi::CString::new(directory.path().to_str().unwrap()).unwrap();
        // SAFETY: all arguments are NUL-terminated strings.
        let mounted = unsafe {
            libc::mount(
                c"tmpfs".as_ptr(),
                at.as_ptr(),
                c"tmpfs".as_ptr(),
                0,
                c"size=1m".as_ptr().cast(),
            )
        };
        if mounted != 0 {
            eprintln!("skipped: cannot mount a file system to fill");
            return;
        }
        let registry = Registry::open(directory.path().join("shared")).unwrap();
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| fill(&registry)));
        drop(registry);
        // SAFETY: as above.
        unsafe { libc::umount2(at.as_ptr(), libc::MNT_DETACH) };
        result.unwrap();
    });
}

/// Returns the page of a copy of a file.
fn text_of(copy: Segment) -> String {
    let mut text = Vec::new();
    let registry = Registry::from_segment(copy);
    let scrape = registry.scrape().format(Format::OpenMetrics, Escaping::default());
    scrape.write_to(&mut text).unwrap();
    String::from_utf8(text).unwrap()
}

/// Returns the copy of a file in Prometheus' formats.
fn formats_of(path: &Path) -> Option<[Vec<u8>; 3]> {
    let copy = Segment::copy_of(path, &File::open(path).unwrap(), u64::MAX).ok()?;
    let registry = Registry::from_segment(copy);
    Some([Format::Text, Format::OpenMetrics, Format::Protobuf].map(|format| {
        let mut out = Vec::new();
        registry.scrape().format(format, Escaping::default()).write_to(&mut out).unwrap();
        out
    }))
}

/// Creates a file with a counter and two process gauges with a label of this value.
fn file_with_label(path: &Path, value: &str) {
    let registry = Registry::open(path).unwrap();
    let new = |name: &str| Description::new(name, "").labels(["a"]);
    let counter: CounterFamily<Values<'static>> = registry.register(new("c")).unwrap();
    counter.inc(&Values(&[value]));
    for (name, aggregation) in [("g", Aggregation::Sum), ("all", Aggregation::All)] {
        let gauge = new(name).aggregation(aggregation);
        let gauge: ProcessGaugeFamily<Values<'static>> = registry.register(gauge).unwrap();
        gauge.set(&Values(&[value]), 1.0);
    }
}

#[test]
fn a_file_that_lies_about_its_labels_forges_no_line() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("shared");
    file_with_label(&path, "v\"} 1\nforged 999\nz{q=\"");
    let whole = std::fs::read(&path).unwrap();
    let is_forged = |text: &[u8]| text.windows(8).any(|eight| eight == b"\nforged ");
    // The bit of each word that is set if no string needs an escape. Some word belongs to a series.
    let escape_free = 1_u64 << 19;
    let mut shown = 0;
    for (at, word) in whole.as_chunks::<8>().0.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        if word == 0 || word & escape_free != 0 {
            continue;
        }
        let mut changed = whole.clone();
        changed[at * 8..][..8].copy_from_slice(&(word | escape_free).to_le_bytes());
        std::fs::write(&path, changed).unwrap();
        let Some([text, open_metrics, _]) = formats_of(&path) else { continue };
        assert!(!is_forged(&text), "word {at}: {}", String::from_utf8_lossy(&text));
        assert!(!is_forged(&open_metrics), "word {at}");
        shown += usize::from(text.windows(8).any(|eight| eight == b"nforged "));
    }
    assert!(shown > 0);
}

#[test]
fn a_file_whose_labels_are_not_utf_8_keeps_no_exposition_from_being_utf_8() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("shared");
    file_with_label(&path, "AAAA");
    let mut bytes = std::fs::read(&path).unwrap();
    let places: Vec<_> = (0..bytes.len() - 4).filter(|&at| &bytes[at..at + 4] == b"AAAA").collect();
    assert!(places.len() >= 3, "{places:?}");
    places.iter().for_each(|&at| bytes[at..at + 4].copy_from_slice(b"A\xff\xfeA"));
    std::fs::write(&path, bytes).unwrap();
    let formats = formats_of(&path).unwrap();
    for bytes in &formats {
        assert!(!bytes.contains(&0xff), "{}", String::from_utf8_lossy(bytes));
    }
    let text = String::from_utf8(formats[0].clone()).unwrap();
    for name in ["c_total", "g", "all"] {
        let line = format!("{name}{{a=\"A\u{fffd}\u{fffd}A\"");
        assert!(text.contains(&line), "no {line} in {text}");
    }
}

/// Calls `test` with the page of copies during which `change` is called: at some word of each pass.
fn copy_at_each(path: &Path, mut change: impl FnMut(u64), mut test: impl FnMut(String)) {
    let open = File::open(path).unwrap();
    let mut words = 0;
    let _ = Segment::copy_by_words(path, &open, &mut |_, _| words += 1).unwrap();
    for at in (0..words).step_by((words / 150) as usize) {
        let mut word = 0;
        let copy = Segment::copy_by_words(path, &open, &mut |_, _| {
            // At three moments, some words apart.
            if word >= at && (word - at) % 40 == 0 && word < at + 120 {
                change(word);
            }
            word += 1;
        });
        test(text_of(copy.unwrap()));
    }
}

/// Checks that the labels of each exemplar belong to its value, and returns the number of
/// exemplars.
fn whole_exemplars(text: &str) -> usize {
    let exemplars = text.lines().filter_map(|line| line.split_once(" # "));
    let check = |(line, exemplar): (&str, &str)| {
        let (labels, rest) = exemplar.split_once("} ").unwrap();
        let value = rest.split(' ').next().unwrap();
        let id = labels.strip_prefix("{id=\"").and_then(|labels| labels.split('"').next()).unwrap();
        assert_eq!(id.trim_start_matches('0'), value, "{line} # {exemplar}");
    };
    exemplars.map(check).count()
}

/// Keeps an exemplar whose labels are its value; they are of several lengths.
fn keep(counter: &Counter, n: u64) {
    let id = format!("{n:0width$}", width = 8 + (n % 40) as usize);
    counter.inc_with_exemplar(n, &[("id", &id)]);
}

#[test]
fn an_exemplar_of_a_copy_is_whole() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("shared");
    let registry = Registry::open(&path).unwrap();
    let counter: Counter = registry.register(Description::new("c", "").exemplars()).unwrap();
    keep(&counter, 1);
    let mut n = 1;
    let change = |_| {
        n += 7;
        keep(&counter, n);
    };
    // The last written exemplar stays until the copy is read, so it is never omitted.
    copy_at_each(&path, change, |text| assert_eq!(whole_exemplars(&text), 1, "{text}"));
    // Threads that write all the time.
    let is_over = AtomicBool::new(false);
    let open = File::open(&path).unwrap();
    std::thread::scope(|scope| {
        for first in 1..=2_u64 {
            let (counter, is_over) = (&counter, &is_over);
            scope.spawn(move || {
                let numbers = (first..).step_by(3);
                numbers.take_while(|_| !is_over.load(Relaxed)).for_each(|n| keep(counter, n));
            });
        }
        let check = || {
            for _ in 0..200 {
                whole_exemplars(&text_of(Segment::copy_of(&path, &open, u64::MAX).unwrap()));
            }
        };
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(check));
        is_over.store(true, Relaxed);
        result.unwrap();
    });
}

#[test]
fn a_native_histogram_of_a_copy_has_all_of_its_tables() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("shared");
    let registry = Registry::open(&path).unwrap();
    let new = |name: &str| Description::new(name, "").native(8).labels(["k"]);
    let family: HistogramFamily<Values> = registry.register(new("h")).unwrap();
    let bound = family.bind(&Values(&["a"]));
    bound.observe(1.0);
    let observed = std::cell::Cell::new(1_u64);
    let mut last = 0;
    // New buckets, which soon need another table, and a coarser schema.
    let change = |_| {
        for _ in 0..3 {
            observed.set(observed.get() + 1);
            bound.observe(1.1_f64.powi((observed.get() % 5000) as i32));
        }
    };
    copy_at_each(&path, change, |text| {
        let line = lines(&text, "h_count").remove(0).to_owned();
        let count: u64 = line.rsplit(' ').next().unwrap().parse().unwrap();
        // The copy contains all observations from before the copying.
        assert!((last..=observed.get()).contains(&count), "{line}, and {last} before");
        last = observed.get();
    });
}

/// Series with exemplars and native buckets, which appear and disappear, and whose records other
/// series take over.
#[test]
fn a_copy_shows_no_series_with_the_values_of_another() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("shared");
    let registry = Registry::open(&path).unwrap();
    let new = Description::new("h", "").native(3).exemplars().labels(["k"]);
    let family: HistogramFamily<Values> = registry.register(new).unwrap();
    let observe = |name: u64| {
        let (text, id) = (name.to_string(), format!("{name:010}"));
        family.bind(&Values(&[&text])).observe_with_exemplar(name as f64, &[("id", &id)]);
    };
    (1..=60).for_each(observe);
    let mut next = 61;
    let mut change = |_: u64| {
        // All of them, because this makes the segment reuse records.
        for name in next..next + 60 {
            family.remove(&Values(&[&(name - 60).to_string()])).unwrap();
        }
        (next..next + 60).for_each(observe);
        next += 60;
    };
    (0..3).for_each(&mut change);
    copy_at_each(&path, change, |text| {
        whole_exemplars(&text);
        let counts = lines(&text, "h_count");
        assert!(counts.len() <= 60, "{}", counts.len());
        for line in counts {
            assert!(line.ends_with(" 1"), "{line}");
        }
        for line in lines(&text, "h_sum") {
            let (labels, sum) = line.rsplit_once(' ').unwrap();
            assert!(labels.contains(&format!("\"{}\"", sum.trim_end_matches(".0"))), "{line}");
        }
    });
}

/// Processes set a gauge and end, one after the other, while scrapes fold their values.
#[test]
fn a_copy_shows_the_counts_of_ended_processes_once() {
    alone("a_copy_shows_the_counts_of_ended_processes_once", || {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("shared");
        let description = || Description::new("g", "").aggregation(Aggregation::Sum);
        let registry = Registry::open(&path).unwrap();
        let _gauge: ProcessGauge = registry.register(description()).unwrap();
        let (started, ended) = (AtomicU64::new(0), AtomicU64::new(0));
        let is_over = AtomicBool::new(false);
        let open = File::open(&path).unwrap();
        let check = || {
            let mut shown = 0;
            while ended.load(Relaxed) < 150 {
                let least = ended.load(Relaxed);
                let copy = Segment::copy_of(&path, &open, u64::MAX).unwrap();
                let text = text_of(copy.clone());
                let most = started.load(Relaxed);
                let Some(line) = lines(&text, "g ").pop() else {
                    assert!(least == 0 || copy.omitted() > 0, "{text}");
                    continue;
                };
                let sum: f64 = line.split(' ').nth(1).unwrap().parse().unwrap();
                assert!((least as f64..=most as f64).contains(&sum), "{sum}: {least} to {most}");
                shown += 1;
            }
            assert!(shown > 0);
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Relaxed) {
                    registry.text();
                }
            });
            scope.spawn(|| {
                while !is_over.load(Relaxed) {
                    started.fetch_add(1, Relaxed);
                    let child = Child::start(|| {
                        let registry = Registry::open(&path).unwrap();
                        let gauge: ProcessGauge = registry.register(description()).unwrap();
                        gauge.set(1.0);
                        true
                    });
                    assert!(child.wait());
                    ended.fetch_add(1, Relaxed);
                }
            });
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(check));
            is_over.store(true, Relaxed);
            result.unwrap();
        });
    });
}
