//! Damaged, unwritable and shared files and directories: the application can continue to count, and
//! is warned.

#![cfg(all(target_os = "linux", not(miri)))]
#![allow(clippy::unwrap_used)]

mod common;

use std::fs::{self, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

use common::{Child, all, alone, total};
use quipu_store::{Kind, SegmentOptions, SegmentStore, Spec, Store};

/// A function that damages a file.
type Damage<'d> = &'d dyn Fn(&Path);
type Warnings = Arc<Mutex<Vec<String>>>;

fn warned() -> (SegmentOptions, Warnings) {
    let warnings = Warnings::default();
    let told = Arc::clone(&warnings);
    let options = SegmentStore::options().max_bytes(8 << 20);
    (options.on_warning(move |warning| told.lock().unwrap().push(warning.to_owned())), warnings)
}

fn one(warnings: &Warnings) -> String {
    let warnings = warnings.lock().unwrap();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    warnings[0].clone()
}

fn requests() -> Spec {
    Spec::new("requests", Kind::Counter).labels(["code"])
}

fn counts(store: &SegmentStore) {
    let metric = store.metric(&requests()).unwrap();
    let before = metric.get(&["200"]).unwrap_or(0.0);
    metric.add(&["200"], 2.0);
    assert_eq!(metric.get(&["200"]), Some(before + 2.0));
    assert!(store.scrape_registry().text().contains("requests_total{code=\"200\"}"));
}

fn write(path: &Path, at: u64, bytes: &[u8]) {
    let mut file = OpenOptions::new().write(true).open(path).unwrap();
    file.seek(SeekFrom::Start(at)).unwrap();
    file.write_all(bytes).unwrap();
}

#[test]
fn a_file_outlives_its_processes() {
    let directory = tempfile::tempdir().unwrap();
    let inner = directory.path().join("made/as needed");
    for round in 1..4 {
        let (options, warnings) = warned();
        let store = options.open(&inner).unwrap();
        assert_eq!(store.path().unwrap(), inner.join("metrics.quipu"));
        counts(&store);
        assert_eq!(store.metric(&requests()).unwrap().get(&["200"]), Some(2.0 * f64::from(round)));
        assert!(warnings.lock().unwrap().is_empty());
    }
    let file = directory.path().join("own.name");
    assert_eq!(SegmentStore::open(&file).unwrap().path().unwrap(), file);
}

#[test]
fn a_damaged_file_is_set_aside() {
    // In a separate process, because a process that another test starts has all files open for a
    // moment.
    alone("a_damaged_file_is_set_aside", || {
        let damages: [(&str, Damage<'_>); 4] = [
            ("truncated", &|path| {
                let length = fs::metadata(path).unwrap().len();
                OpenOptions::new().write(true).open(path).unwrap().set_len(length - 100).unwrap();
            }),
            ("truncated", &|path| {
                OpenOptions::new().write(true).open(path).unwrap().set_len(20).unwrap();
            }),
            ("layout version 7", &|path| write(path, 8, &7_u32.to_le_bytes())),
            ("damaged", &|path| write(path, 40, &[0xff; 8])),
        ];
        for (why, damage) in damages {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("metrics.quipu");
            counts(&SegmentStore::open(directory.path()).unwrap());
            damage(&path);
            let damaged = fs::read(&path).unwrap();
            let (options, warnings) = warned();
            let store = options.open(directory.path()).unwrap();
            counts(&store);
            assert_eq!(store.path().unwrap(), path);
            let told = one(&warnings);
            assert!(told.contains(why) && told.contains("aside-1"), "{told}");
            // The file that was set aside contains all of the old bytes.
            assert_eq!(fs::read(directory.path().join("metrics.quipu.aside-1")).unwrap(), damaged);
        }
    });
}

#[test]
fn a_file_that_is_not_a_segment_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("letter.txt");
    let text = "Dear reader, ".repeat(1000);
    fs::write(&path, &text).unwrap();
    let (options, warnings) = warned();
    let store = options.open(&path).unwrap();
    counts(&store);
    assert!(store.path().is_none());
    assert!(one(&warnings).contains("not a segment"));
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
}

#[test]
fn a_directory_that_cannot_be_written_is_replaced_by_memory() {
    alone("a_directory_that_cannot_be_written_is_replaced_by_memory", || {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o555)).unwrap();
        let unprivileged = Child::fork(|| {
            // SAFETY: the call takes a number. We need it because root can write regardless of the
            // permissions.
            unsafe { libc::setuid(65_534) };
            for path in [directory.path().to_owned(), directory.path().join("missing/one")] {
                let (options, warnings) = warned();
                let store = options.open(&path).unwrap();
                assert!(store.path().is_none());
                let told = one(&warnings);
                assert!(told.contains("kept in memory"), "{told}");
                let metric = store.metric(&requests()).unwrap();
                // Forked children share the memory.
                assert!(Child::fork(|| counts(&store)).wait());
                assert_eq!(metric.get(&["200"]), Some(2.0));
            }
        });
        assert!(unprivileged.wait());
    });
}

#[test]
fn files_have_the_mode_that_was_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    SegmentStore::open(path("a.quipu")).unwrap();
    SegmentStore::options().mode(0o640).open(path("b.quipu")).unwrap();
    let mode = |name: &str| fs::metadata(path(name)).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode("a.quipu"), mode("b.quipu")), (0o600, 0o640));
}

/// Several processes that find the same damage create only one new file.
#[test]
fn several_processes_agree_on_the_new_file() {
    alone("several_processes_agree_on_the_new_file", || {
        for _ in 0..20 {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("metrics.quipu");
            counts(&SegmentStore::open(directory.path()).unwrap());
            write(&path, 40, &[0xff; 8]);
            let children: Vec<Child> = (0..4)
                .map(|_| {
                    Child::fork(|| {
                        let store = SegmentStore::open(directory.path()).unwrap();
                        store.metric(&requests()).unwrap().add(&["200"], 2.0);
                    })
                })
                .collect();
            assert!(children.into_iter().all(Child::wait));
            let store = SegmentStore::open(directory.path()).unwrap();
            assert_eq!(store.metric(&requests()).unwrap().get(&["200"]), Some(8.0));
            // The processes set the old file aside once, and never set the new one aside.
            assert!(directory.path().join("metrics.quipu.aside-1").exists());
            assert!(!directory.path().join("metrics.quipu.aside-2").exists());
        }
    });
}

#[test]
fn increments_without_room_are_counted_without_labels() {
    let directory = tempfile::tempdir().unwrap();
    let (options, warnings) = warned();
    let store = options.max_bytes(1 << 20).open(directory.path()).unwrap();
    overflow(&store, &warnings, 30_000);
    // The limit of one metric.
    let (options, warnings) = warned();
    let store = options.max_series(10).build_anonymous().unwrap();
    overflow(&store, &warnings, 50);
}

#[test]
fn a_full_disk_stops_no_process() {
    let directory = tempfile::tempdir().unwrap();
    let Some(disk) = Disk::mount(directory.path()) else {
        // Only root can mount. The limit of bytes in the test above takes the same code paths.
        return;
    };
    let (options, warnings) = warned();
    let store = options.max_bytes(64 << 20).open(directory.path()).unwrap();
    assert!(store.path().is_some());
    overflow(&store, &warnings, 30_000);
    // A store that is opened when the disk is already full counts in memory.
    let other = directory.path().join("other");
    let _ = fs::create_dir(&other);
    fs::write(directory.path().join("filler"), vec![1; 1 << 20]).unwrap_err();
    let (options, warnings) = warned();
    let late = options.open(&other).unwrap();
    counts(&late);
    assert!(late.path().is_none());
    let told = one(&warnings);
    assert!(told.contains("kept in memory"), "{told}");
    drop((store, late, disk));
}

/// A file system of 1 MiB.
struct Disk<'p>(&'p Path);

impl<'p> Disk<'p> {
    fn mount(path: &'p Path) -> Option<Self> {
        let output = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"])
            .arg(path)
            .output();
        output.is_ok_and(|output| output.status.success()).then_some(Self(path))
    }
}

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).output();
    }
}

/// Counts more series than there is room for.
fn overflow(store: &SegmentStore, warnings: &Warnings, series: usize) {
    let metric = store.metric(&requests()).unwrap();
    for i in 0..series {
        metric.add(&[&format!("a label value of some length, {i}")], 1.0);
    }
    assert_eq!(total(&*metric), series as f64);
    let apart = all(&*metric);
    let together = apart[&vec!["quipu_overflow".to_owned()]];
    assert!(apart.len() > 5 && together > 5.0);
    assert_eq!(store.dropped() as f64, together);
    store.metric(&Spec::new("other", Kind::Counter)).map(|other| other.add(&[], 1.0)).ok();
    let told = one(warnings);
    assert!(told.contains("without their labels"), "{told}");
}

#[test]
fn two_applications_share_a_directory() {
    let directory = tempfile::tempdir().unwrap();
    let application = |label: &'static str| {
        let (options, warnings) = warned();
        let store = options.open(directory.path()).unwrap();
        let metric = store.metric(&Spec::new("jobs", Kind::Counter).labels([label])).unwrap();
        let same = store.metric(&requests()).unwrap();
        (store, metric, same, warnings)
    };
    // Two processes of each.
    let first = [application("queue"), application("queue")];
    let second = [application("worker"), application("worker")];
    for (i, (_, metric, same, _)) in first.iter().chain(&second).enumerate() {
        metric.add(&["x"], [1.0, 2.0, 10.0, 20.0][i]);
        same.add(&["200"], 1.0);
    }
    // A metric that both describe alike is one sum; one that they describe differently is not.
    for ((store, metric, same, warnings), sum) in first.iter().zip([3.0; 2]) {
        assert_eq!((metric.get(&["x"]), same.get(&["200"])), (Some(sum), Some(4.0)));
        assert!(store.scrape_registry().text().contains("jobs_total{queue=\"x\"} 3\n"));
        assert!(warnings.lock().unwrap().is_empty());
    }
    for (store, metric, same, warnings) in &second {
        assert_eq!(
            (metric.get(&["x"]), total(&**metric), same.get(&["200"])),
            (Some(30.0), 30.0, Some(4.0))
        );
        let registries = store.registries();
        assert_eq!(registries.len(), 2);
        assert!(registries[1].text().contains("jobs_total{worker=\"x\"} 30\n"));
        let told = one(warnings);
        assert!(told.contains("metrics.1.quipu") && told.contains("queue"), "{told}");
    }
}

/// The further file of a directory is as likely to be unusable as the first.
#[test]
fn a_description_without_a_file_is_counted_in_memory() {
    let directory = tempfile::tempdir().unwrap();
    let queue = SegmentStore::open(directory.path()).unwrap();
    queue.metric(&Spec::new("jobs", Kind::Counter).labels(["queue"])).unwrap();
    let file = directory.path().join("metrics.1.quipu");
    let text = "Dear reader, ".repeat(1000);
    fs::write(&file, &text).unwrap();
    let (options, warnings) = warned();
    let store = options.open(directory.path()).unwrap();
    let metric = store.metric(&Spec::new("jobs", Kind::Counter).labels(["worker"])).unwrap();
    metric.add(&["x"], 2.0);
    assert_eq!((metric.get(&["x"]), total(&*metric)), (Some(2.0), 2.0));
    assert!(store.registries()[1].text().contains("jobs_total{worker=\"x\"} 2\n"));
    let told = warnings.lock().unwrap().join("; ");
    assert!(told.contains("metrics.1.quipu") && told.contains("kept in memory"), "{told}");
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
}

/// Views share the files but use separate names.
#[test]
fn a_view_has_its_own_names() {
    type Family = quipu::CounterFamily<quipu::label::Values<'static>>;

    let directory = tempfile::tempdir().unwrap();
    let (options, warnings) = warned();
    let store = options.open(directory.path()).unwrap();
    let (second, third) = (store.view(), store.view());
    let register = |store: &SegmentStore, label| {
        store.register::<Family>(quipu::Description::new("jobs", "Jobs.").labels([label]))
    };
    let labels = quipu::label::Values(&["x"]);
    let all = [(&store, "queue", 1), (&second, "worker", 2), (&third, "worker", 3)];
    for (store, label, by) in all {
        register(store, label).unwrap().0.inc_by(&labels, by);
    }
    for (store, label, _) in all {
        let again = register(store, label).unwrap_err();
        assert!(again.is_duplicate(), "{again}");
        let text: String = store.registries().iter().map(|registry| registry.text()).collect();
        assert!(text.contains("jobs_total{queue=\"x\"} 1\n"), "{text}");
        assert!(text.contains("jobs_total{worker=\"x\"} 5\n"), "{text}");
    }
    // All of them use one further file, and each store that moves there is warned.
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
    let warnings = warnings.lock().unwrap();
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings.iter().all(|told| told.contains("metrics.1.quipu")), "{warnings:?}");
}

/// A process that sets its metrics to 0 when it starts does not change the counts of others.
#[test]
fn a_new_process_resets_nothing() {
    let directory = tempfile::tempdir().unwrap();
    for round in 0..3 {
        let store = SegmentStore::open(directory.path()).unwrap();
        let counter = store.metric(&Spec::new("c", Kind::Counter)).unwrap();
        let sum = store.metric(&Spec::new("h", Kind::Histogram).labels(["le"])).unwrap();
        counter.set(&[], 0.0);
        sum.set(&["sum"], 0.0);
        assert_eq!(
            (counter.get(&[]), sum.get(&["sum"])),
            (Some(f64::from(round)), Some(-f64::from(round)))
        );
        counter.add(&[], 1.0);
        sum.add(&["sum"], -1.0);
    }
}
