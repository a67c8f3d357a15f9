//! The reader of clients' metric files with damaged files of every kind, and the store that writes
//! such files.
#![cfg(all(feature = "files", unix))]
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

mod common;
#[path = "../../quipu/tests/judges/textparse.rs"]
mod textparse;

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

use common::{all, alone};
use quipu::exposition::{Escaping, Format};
use quipu_store::files::{Directories, FileStore, Hint, exposition};
use quipu_store::{Aggregation, Kind, Spec, Store};
use textparse::textparse;

/// A file of the real clients, from the corpus of the fuzz target, without the target's first byte.
fn saved(name: &str) -> Vec<u8> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/store_files");
    fs::read(corpus.join(name)).unwrap().split_off(1)
}

const REAL: [(&str, &str); 5] = [
    ("counter_1.db", "python_counter"),
    ("histogram_1.db", "python_histogram"),
    ("gauge_all_1.db", "python_gauge_all"),
    ("metric_size___1.bin", "ruby_size"),
    ("metric_wait___1.bin", "ruby_wait"),
];

fn text(name: &str, bytes: &[u8]) -> String {
    String::from_utf8(exposition([(name, bytes)], Format::Text).0).unwrap()
}

#[test]
fn a_cut_at_any_byte_shows_what_comes_before() {
    for (name, file) in REAL {
        let whole = saved(file);
        let mut last = 0;
        for cut in 0..whole.len() {
            let (_, sound) = exposition([(name, &whole[..cut])], Format::Text);
            assert_eq!(sound, 0, "{name} cut at {cut}");
            let lines = text(name, &whole[..cut]).lines().count();
            assert!(lines >= last, "{name} cut at {cut}");
            last = lines;
        }
        assert!(text(name, &whole).lines().count() >= last);
    }
}

#[test]
fn the_parsers_of_prometheus_read_every_format() {
    let files = REAL.map(|(name, file)| (name, saved(file)));
    let mut counts = Vec::new();
    for format in [
        Format::Text,
        Format::TextUtf8,
        Format::OpenMetrics,
        Format::OpenMetrics2,
        Format::Protobuf,
    ] {
        let files = files.iter().map(|(name, bytes)| (*name, &bytes[..]));
        let (page, _) = exposition(files, format);
        let samples = textparse(&format.content_type(Escaping::Underscores), &page);
        counts.push(samples.len());
    }
    let text: Vec<_> = files.iter().map(|(name, bytes)| text(name, bytes)).collect();
    let lines = text.iter().flat_map(|text| text.lines()).filter(|line| !line.starts_with('#'));
    assert_eq!(counts, [lines.count(); 5]);
}

#[test]
fn no_flipped_bit_breaks_a_scrape() {
    for (name, file) in REAL {
        let mut bytes = saved(file);
        let sound = saved(file);
        for at in 0..bytes.len() {
            for bit in 0..8 {
                bytes[at] ^= 1 << bit;
                // The sound file next to it is used, whatever the damage to this one.
                let both = [(name, &sound[..]), (name, &bytes[..])];
                let (_, count) = exposition(both, Format::OpenMetrics);
                assert!((1..=2).contains(&count));
                bytes[at] ^= 1 << bit;
            }
        }
    }
}

/// A file of Python's client with these keys.
fn python(keys: &[String]) -> Vec<u8> {
    let mut out = vec![0; 8];
    for key in keys {
        out.extend_from_slice(&u32::try_from(key.len()).unwrap().to_le_bytes());
        out.extend_from_slice(key.as_bytes());
        out.resize(out.len() + 8 - (key.len() + 4) % 8, b' ');
        out.extend_from_slice(&1_f64.to_le_bytes());
        out.extend_from_slice(&0_f64.to_le_bytes());
    }
    let used = u32::try_from(out.len()).unwrap();
    out[..4].copy_from_slice(&used.to_le_bytes());
    out
}

/// Asserts that no series and no family appears twice, and that all can be parsed.
fn assert_once(page: &str, case: &str) {
    let (mut seen, mut families) = (HashSet::new(), HashMap::new());
    let mut family = "";
    for line in page.lines().filter(|line| !line.starts_with("# HELP")) {
        let key = match line.strip_prefix("# TYPE ") {
            Some(rest) => {
                family = rest.split(' ').next().unwrap();
                line
            }
            None => line.rsplit_once(' ').unwrap().0,
        };
        assert!(seen.insert(key), "{case}: {key} twice in\n{page}");
        // No sample uses the name of another family, or of a sample of another family.
        let name = if key == line { family } else { key.split('{').next().unwrap() };
        let other = *families.entry(name).or_insert(family);
        assert_eq!(other, family, "{case}: {name} in\n{page}");
        assert!(!line.contains("{=") && !line.contains(",="), "{case}: {line}");
    }
}

#[test]
fn a_damaged_key_does_not_show_a_series_twice() {
    let key = |metric: &str, sample: &str, labels: &str| {
        format!(r#"["{metric}", "{sample}", {{{labels}}}, "Help."]"#)
    };
    let counters = [
        key("a_b", "a_b_total", r#""k": "1""#),
        key("a_b", "a_b_total", r#""k": "", "l_m": "1""#),
        key("c_total", "c_total", ""),
    ];
    let histograms = [
        key("h", "h_bucket", r#""le": "1.0""#),
        key("h", "h_bucket", r#""le": "+Inf""#),
        key("h", "h_sum", ""),
        key("h", "h_count", ""),
    ];
    let gauges = [key("g_h", "g_h", r#""k": "1""#), key("i_j", "i_j", r#""q": "2""#)];
    for (name, keys) in [
        ("counter_1.db", &counters[..]),
        ("histogram_1.db", &histograms),
        ("gauge_sum_1.db", &gauges),
        ("summary_1.db", &histograms[2..]),
    ] {
        let sound = python(keys);
        let mut bytes = sound.clone();
        for at in 8..bytes.len() {
            for bit in 0..8 {
                bytes[at] ^= 1 << bit;
                let case = format!("{name}, byte {at}, bit {bit}");
                // In either order.
                for both in [[&sound[..], &bytes], [&bytes, &sound]] {
                    let (page, _) = exposition(both.map(|bytes| (name, bytes)), Format::Text);
                    let page = String::from_utf8(page).unwrap();
                    assert_once(&page, &case);
                }
                bytes[at] ^= 1 << bit;
            }
        }
    }
}

#[test]
fn names_that_damage_made_up_are_omitted() {
    let key = |metric: &str, sample: &str, labels: &str| {
        format!(r#"["{metric}", "{sample}", {{{labels}}}, "Help."]"#)
    };
    let directory = tempfile::tempdir().unwrap();
    let keys = [
        // A sample without a family, under the name of a later family.
        key("x", "c_total", r#""k": "1""#),
        key("c", "c_total", r#""k": "1""#),
        key("a-b", "a-b_total", ""),
        key("a_b", "a_b_total", ""),
        // Labels: without a value, without a name, and with a name that is escaped.
        key("c", "c_total", r#""k": "1", "l": """#),
        key("c", "c_total", r#""": "1""#),
        key("c", "c_total", r#""k\u007f": "1""#),
        key("c", "c_total", r#""k_": "2""#),
        key("quipu_scrape_files", "quipu_scrape_files_total", ""),
    ];
    fs::write(directory.path().join("counter_1.db"), python(&keys)).unwrap();
    let warnings = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&warnings);
    let directories = Directories::new([directory.path()])
        .on_warning(move |warning| kept.lock().unwrap().push(warning.to_string()));
    let registry = quipu::Registry::new();
    registry.register_collector(directories).unwrap();
    for times in 1..3 {
        let page = registry.text();
        assert_once(&page, "");
        for line in [
            "c_total{k=\"1\",k_=\"\",l=\"\"} 2",
            "c_total{k=\"\",k_=\"2\",l=\"\"} 1",
            "a_b_total 1",
        ] {
            assert!(page.lines().any(|other| other == line), "{line}\n{page}");
        }
        let skipped = format!("quipu_scrape_entries_skipped_total {}", 5 * times);
        assert!(page.contains(&skipped), "{skipped}\n{page}");
    }
    let warnings = warnings.lock().unwrap();
    assert!(matches!(&warnings[..], [one] if one.contains("5 of its entries")), "{warnings:?}");
}

#[test]
fn files_without_times_are_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("counter_1.db"), saved("old_counter")).unwrap();
    let warnings = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&warnings);
    let directories = Directories::new([directory.path()])
        .on_warning(move |warning| heard.lock().unwrap().push(warning.to_string()));
    let registry = quipu::Registry::new();
    registry.register_collector(directories).unwrap();
    for count in 1..3 {
        let text = registry.text();
        let line = format!("quipu_scrape_files_skipped_total{{reason=\"old_format\"}} {count}\n");
        assert!(text.contains(&line), "{text}");
        assert!(!text.contains("a_total"));
    }
    let warnings = warnings.lock().unwrap();
    assert!(warnings.len() == 1 && warnings[0].contains("before 0.18"), "{warnings:?}");
}

#[test]
fn many_files_are_read_by_several_threads() {
    let directory = tempfile::tempdir().unwrap();
    write_many(directory.path());
    assert_many(directory.path());
}

/// Writes files of a hundred processes.
fn write_many(directory: &Path) {
    for pid in 0..100 {
        for (name, file) in [("counter", "python_counter"), ("histogram", "python_histogram")] {
            fs::write(directory.join(format!("{name}_{pid}.db")), saved(file)).unwrap();
        }
    }
}

/// Scrapes the files of [`write_many`], several times.
fn assert_many(directory: &Path) {
    let registry = quipu::Registry::new();
    registry.register_collector(Directories::new([directory])).unwrap();
    for _ in 0..3 {
        let text = registry.text();
        for line in [
            "requests_total{code=\"200\"} 100",
            "size_bucket{k=\"a\",le=\"2.5\"} 100",
            "size_count{k=\"a\"} 100",
            "size_sum{k=\"a\"} 200",
            "quipu_scrape_files{format=\"client_python\"} 200",
        ] {
            assert!(text.contains(&format!("{line}\n")), "{line}\n{text}");
        }
    }
}

/// If the system refuses to start threads, the scraping thread reads all files.
#[test]
fn files_are_read_where_no_thread_is_to_be_had() {
    // SAFETY: this call requires no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        // Only root can become a user without other processes.
        return;
    }
    alone("files_are_read_where_no_thread_is_to_be_had", || {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
        write_many(directory.path());
        let one = libc::rlimit { rlim_cur: 1, rlim_max: 1 };
        // SAFETY: the limit is valid during the call.
        unsafe {
            assert_eq!(libc::setrlimit(libc::RLIMIT_NPROC, &raw const one), 0);
            assert_eq!(libc::setgid(65534), 0);
            assert_eq!(libc::setuid(65534), 0);
        }
        assert!(std::thread::Builder::new().spawn(|| ()).is_err());
        assert_many(directory.path());
    });
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_store_keeps_its_values() {
    let directory = tempfile::tempdir().unwrap();
    let store = FileStore::open(directory.path().join("new/one")).unwrap();
    let spec = Spec::new("requests_total", Kind::Counter).labels(["path", "code"]);
    let metric = store.metric(&spec).unwrap();
    assert!(Arc::ptr_eq(&metric, &store.metric(&spec).unwrap()));
    let other = Spec::new("requests_total", Kind::Gauge);
    assert!(store.metric(&other).is_err());
    metric.set(&["/", "200"], 0.0);
    metric.add(&["/", "200"], 2.0);
    metric.add(&["/", "200"], 0.5);
    metric.add(&["a b&=\u{82b1}", ""], 1.0);
    metric.set(&["/", "200"], 1.0);
    for bad in [-1.0, f64::NAN] {
        metric.add(&["/", "200"], bad);
    }
    metric.add(&["/"], 1.0);
    assert_eq!(store.dropped(), 3);
    assert_eq!(metric.get(&["/", "200"]), Some(2.5));
    assert_eq!(metric.get(&["/none", "200"]), None);
    let expected =
        [(vec!["/".into(), "200".into()], 2.5), (vec!["a b&=\u{82b1}".into(), String::new()], 1.0)];
    assert_eq!(all(&*metric), expected.into());
    // Nested, with many series: the file grows.
    metric.synchronize(&mut || {
        metric.synchronize(&mut || {
            for i in 0..2000 {
                metric.add(&[&i.to_string(), "x"], f64::from(i));
            }
        });
    });
    assert_eq!(all(&*metric).len(), 2002);
    assert_eq!(all(&*metric)[&vec!["1999".to_owned(), "x".to_owned()]], 1999.0);
    // The reader of files returns the same.
    let registry = quipu::Registry::new();
    registry.register_collector(Directories::new([directory.path().join("new/one")])).unwrap();
    assert!(registry.text().contains("requests_total{code=\"200\",path=\"/\"} 2.5\n"));
}

#[test]
fn settings_that_files_cannot_have_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let store = FileStore::open(directory.path()).unwrap();
    let refuse = |spec: Spec| store.metric(&spec).err().unwrap().to_string();
    let gauge = |aggregation| Spec::new("g", Kind::Gauge).aggregation(aggregation);
    assert!(refuse(gauge(Aggregation::LiveSum)).contains("use sum instead of livesum"));
    let counter = Spec::new("c", Kind::Counter);
    assert!(refuse(counter.aggregation(Aggregation::MostRecent)).contains("only a gauge"));
    assert!(refuse(Spec::new("a/b", Kind::Counter)).contains("no slash"));
    assert!(refuse(Spec::new("g", Kind::Gauge).labels(["pid"])).contains("rename"));
    fs::write(directory.path().join("file"), "").unwrap();
    assert!(FileStore::open(directory.path().join("file")).is_err());
}

#[test]
fn processes_are_aggregated_and_children_have_files_of_their_own() {
    let directory = tempfile::tempdir().unwrap();
    let store = FileStore::open(directory.path()).unwrap();
    let modes = [
        Aggregation::Sum,
        Aggregation::Min,
        Aggregation::Max,
        Aggregation::MostRecent,
        Aggregation::All,
    ];
    let metrics: Vec<_> = modes
        .map(|mode| {
            let spec = Spec::new(format!("g_{mode}"), Kind::Gauge).labels(["k"]).aggregation(mode);
            store.metric(&spec).unwrap()
        })
        .into();
    for metric in &metrics {
        metric.set(&["a"], 5.0);
    }
    for value in [3.0, 9.0] {
        // SAFETY: the child only uses allocation, which the C library keeps usable, and the store.
        // Another thread of the test cannot hold a lock that it needs.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            for metric in &metrics {
                metric.set(&["a"], value);
            }
            let is_own = metrics.iter().all(|metric| metric.get(&["a"]).unwrap_or(0.0) == value);
            // SAFETY: ends the child without running the test's clean-up.
            unsafe { libc::_exit(i32::from(!is_own)) };
        }
        let mut status = 0;
        // SAFETY: the pid belongs to a child, and the pointer to the status is valid.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        assert_eq!(status, 0);
    }
    for (metric, expected) in metrics.iter().zip([17.0, 3.0, 9.0, 9.0]) {
        assert_eq!(all(&**metric), [(vec!["a".to_owned()], expected)].into());
        assert_eq!(metric.get(&["a"]), Some(5.0));
    }
    let each = all(&*metrics[4]);
    assert_eq!(each.len(), 3);
    assert_eq!(each[&vec!["a".to_owned(), std::process::id().to_string()]], 5.0);
    assert_eq!(names(directory.path()).len(), 15);
}

#[test]
fn a_file_of_an_earlier_process_is_continued() {
    let directory = tempfile::tempdir().unwrap();
    let spec = Spec::new("c", Kind::Counter).labels(["k"]);
    let path = directory.path().join(format!("metric_c___{}.bin", std::process::id()));
    {
        let store = FileStore::open(directory.path()).unwrap();
        let metric = store.metric(&spec).unwrap();
        metric.add(&["a"], 1.0);
        metric.add(&["b"], 2.0);
        // A second store of the process, or a process with the same pid in another container.
        let other = FileStore::open(directory.path()).unwrap();
        other.metric(&spec).unwrap().add(&["a"], 10.0);
        assert_eq!(names(directory.path()).len(), 2);
        assert_eq!(all(&*metric)[&vec!["a".to_owned()]], 11.0);
    }
    // The file is truncated within its second entry, which then starts at zero.
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(50).unwrap();
    let store = FileStore::open(directory.path()).unwrap();
    let metric = store.metric(&spec).unwrap();
    metric.add(&["a"], 1.0);
    metric.add(&["b"], 5.0);
    assert_eq!(all(&*metric)[&vec!["a".to_owned()]], 12.0);
    assert_eq!(all(&*metric)[&vec!["b".to_owned()]], 5.0);
    // Truncated while it is in use: no signal, and other updates continue.
    file.set_len(10).unwrap();
    metric.add(&["b"], 1.0);
    file.write_all_at(&[0xff; 10], 0).unwrap();
    metric.add(&["a"], 1.0);
    assert!(metric.for_each(&mut |_, _| {}).is_ok());
}

#[test]
fn a_full_disk_is_a_counted_drop() {
    let directory = tempfile::tempdir().unwrap();
    let size = "size=64k";
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", size, "quipu-test"])
        .arg(directory.path())
        .status()
        .is_ok_and(|status| status.success());
    if !mounted {
        // Only root can mount.
        eprintln!("NOT RUN: a small tmpfs cannot be mounted here");
        return;
    }
    let store = FileStore::open(directory.path()).unwrap();
    let metric = store.metric(&Spec::new("c", Kind::Counter).labels(["k"])).unwrap();
    for i in 0..5000 {
        metric.add(&[&i.to_string()], 1.0);
    }
    let kept = all(&*metric).len();
    // Existing series can still be counted.
    metric.add(&["0"], 1.0);
    let first = metric.get(&["0"]).unwrap();
    let dropped = store.dropped();
    assert!(Command::new("umount").arg("-l").arg(directory.path()).status().unwrap().success());
    assert_eq!(first, 2.0);
    assert!((100..5000).contains(&kept), "{kept}");
    assert_eq!(dropped, 5000 - kept as u64);
}

#[test]
fn hints_add_facts_that_files_lack() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("metric_size___1.bin"), saved("ruby_size")).unwrap();
    fs::write(directory.path().join("metric_level___1.bin"), saved("ruby_without_labels")).unwrap();
    let registry = quipu::Registry::new();
    let hint = Hint::new(Kind::Gauge).aggregation(Aggregation::Max);
    registry.register_collector(Directories::new([directory.path()]).hint("level", hint)).unwrap();
    let text = registry.text();
    assert!(text.contains("# TYPE level gauge\nlevel 2\n"), "{text}");
    assert!(text.contains("size_bucket{kind=\"x\",le=\"+Inf\"} 4\n"), "{text}");
}

#[test]
fn links_in_a_directory_are_not_followed() {
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join("metrics");
    fs::create_dir(&directory).unwrap();
    let key = |name: &str| format!("[\"{name}\", \"{name}\", {{}}, \"\"]");
    fs::write(directory.join("counter_1.db"), python(&[key("seen_total")])).unwrap();
    fs::write(home.path().join("secret"), python(&[key("secret_total")])).unwrap();
    std::os::unix::fs::symlink("../secret", directory.join("counter_2.db")).unwrap();
    let registry = quipu::Registry::new();
    registry.register_collector(Directories::new([&directory])).unwrap();
    let page = registry.text();
    assert!(page.contains("seen_total") && !page.contains("secret"), "{page}");
    assert!(page.contains("quipu_scrape_files_skipped_total{reason=\"unreadable\"} 1"), "{page}");
}
