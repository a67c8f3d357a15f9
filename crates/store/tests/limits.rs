//! Stores in a process with a limit on file sizes (`ulimit -f`). The process reaches the limit at
//! an increment or when it opens the store; no signal ends the application.

#![cfg(all(target_os = "linux", not(miri)))]
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::{Arc, Mutex};

use common::{Child, all, total};
use quipu_store::{Kind, Metric, SegmentStore, Spec, Store};

const SERIES: usize = 4000;

fn spec() -> Spec {
    Spec::new("requests", Kind::Counter).labels(["path"])
}

/// Counts more series than there is room for, and then two existing ones again.
fn count(metric: &dyn Metric) {
    for path in (0..SERIES).chain([0, 1]) {
        metric.add(&[&format!("a path of some length, {path}")], 1.0);
    }
}

/// Does `work` in a child whose files are limited to `bytes` bytes.
fn limited(bytes: u64, work: impl FnOnce()) {
    let child = Child::fork(|| {
        let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
        // SAFETY: the limit is valid for the call.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) }, 0);
        work();
    });
    assert!(child.wait(), "it panicked, or a signal ended it");
}

#[test]
fn a_segment_counts_on_without_labels() {
    let directory = tempfile::tempdir().unwrap();
    let store = SegmentStore::open(directory.path()).unwrap();
    let metric = store.metric(&spec()).unwrap();
    limited(128 << 10, || count(&*metric));
    assert_eq!(total(&*metric), (SERIES + 2) as f64);
    let overflow = all(&*metric)[&vec!["quipu_overflow".to_owned()]];
    assert!((1.0..SERIES as f64).contains(&overflow), "{overflow}");
    // A store that cannot even create its file is in memory.
    let warnings = Arc::new(Mutex::new(Vec::new()));
    limited(100, || {
        let told = Arc::clone(&warnings);
        let options =
            SegmentStore::options().on_warning(move |text| told.lock().unwrap().push(text.into()));
        let store = options.open(directory.path().join("more")).unwrap();
        count(&*store.metric(&spec()).unwrap());
        assert_eq!(total(&*store.metric(&spec()).unwrap()), (SERIES + 2) as f64);
        let warnings: Vec<String> = std::mem::take(&mut warnings.lock().unwrap());
        assert!(warnings[0].contains("raise that limit (ulimit -f)"), "{warnings:?}");
        assert!(warnings[0].contains("metrics are kept in memory"), "{warnings:?}");
    });
}

#[cfg(feature = "files")]
#[test]
fn files_drop_what_has_no_room() {
    use quipu_store::files::FileStore;

    let directory = tempfile::tempdir().unwrap();
    limited(64 << 10, || {
        let store = FileStore::open(directory.path()).unwrap();
        let metric = store.metric(&spec()).unwrap();
        count(&*metric);
        let kept = total(&*metric);
        assert!(kept > 10.0 && store.dropped() > 0);
        assert_eq!(kept + store.dropped() as f64, (SERIES + 2) as f64);
    });
}

#[cfg(feature = "lmdb")]
#[test]
fn a_database_drops_what_has_no_room() {
    use quipu_store::EmbeddedStore;

    let directory = tempfile::tempdir().unwrap();
    limited(64 << 10, || {
        let store = EmbeddedStore::open(directory.path()).unwrap();
        let metric = store.metric(&spec()).unwrap();
        count(&*metric);
        let kept = total(&*metric);
        assert!(kept > 10.0 && store.dropped() > 0);
        assert_eq!(kept + store.dropped() as f64, (SERIES + 2) as f64);
    });
}
