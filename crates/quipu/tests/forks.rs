//! Uses of a registry in children that are forked while other threads of their parent are using it.

#![cfg(all(target_os = "linux", not(miri)))]
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use common::{Child, alone, eventually};
use quipu::label::Values;
use quipu::{
    Aggregation, Counter, CounterFamily, Description, ProcessGauge, RecordingOptions, Registry,
};
use quipu_segment::{Options, Segment};

fn registries(test: impl Fn(Registry)) {
    test(Registry::new());
    test(Registry::from_segment(Segment::anonymous(64 << 20).unwrap()));
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("shared");
    let segment = Options::new().limit(64 << 20).shared().open_or_create(path).unwrap();
    test(Registry::from_segment(segment));
}

/// Uses every operation of a registry once.
fn use_all(registry: &Registry, who: &str) -> bool {
    let counter: Counter = registry.register(Description::new(who, "")).unwrap();
    let is_taken = registry.counter(who, "").is_err();
    registry.scope().gauge_fn(Description::new(format!("{who}_asked"), ""), || 7.0).unwrap();
    let process: ProcessGauge = registry
        .register(Description::new(format!("{who}_own"), "").aggregation(Aggregation::Max))
        .unwrap();
    counter.inc();
    process.set(3.0);
    let mut pieces = registry.scrape();
    let is_begun = pieces.next_piece().is_some();
    let text = registry.text();
    let is_shown =
        text.contains(&format!("{who}_asked 7")) && text.contains(&format!("{who}_own 3"));
    drop(pieces);
    let is_released = registry.unregister(who)
        && registry.unregister(&format!("{who}_asked"))
        && registry.unregister(&format!("{who}_own"))
        && !registry.unregister(who);
    let _ = Registry::global().text();
    is_taken && is_begun && is_shown && is_released
}

/// Ends the threads on drop, even if the test panics.
struct Ending<'d>(&'d AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_child_uses_a_registry_that_other_threads_were_in() {
    alone("a_child_uses_a_registry_that_other_threads_were_in", || {
        registries(|registry| {
            let (done, forks) = (AtomicBool::new(false), 60);
            let rounds = AtomicU64::new(0);
            let hits: CounterFamily<Values> =
                registry.register(Description::new("hits", "").labels(["path"])).unwrap();
            std::thread::scope(|scope| {
                for thread in 0..3 {
                    let (registry, done, rounds, hits) = (&registry, &done, &rounds, &hits);
                    scope.spawn(move || {
                        for i in 0.. {
                            assert!(use_all(registry, &format!("thread_{thread}_{}", i % 7)));
                            hits.inc(&Values(&[&format!("{thread} {i}")]));
                            rounds.fetch_add(1, Ordering::Relaxed);
                            if thread == 0 && i % 10 == 9 {
                                // Counts of the other threads may be lost.
                                hits.clear().unwrap();
                            }
                            if done.load(Ordering::Relaxed) {
                                return;
                            }
                        }
                    });
                }
                let _ending = Ending(&done);
                for n in 0..forks {
                    let child = Child::start(|| {
                        hits.inc(&Values(&["child"]));
                        use_all(&registry, &format!("child_{}", n % 5))
                    });
                    assert!(child.wait(), "a child waited for a thread that it does not have");
                }
            });
            assert!(rounds.load(Ordering::Relaxed) > 10);
        });
    });
}

#[test]
fn a_child_records_when_it_asks_and_its_parent_has_ended() {
    alone("a_child_records_when_it_asks_and_its_parent_has_ended", || {
        let registry = Registry::from_segment(Segment::anonymous(64 << 20).unwrap());
        let ready = registry.counter("ready", "").unwrap();
        let options = RecordingOptions::new().interval(std::time::Duration::from_millis(1));
        let mut recording = Some(registry.record(&options).unwrap());
        let is_writing = |recording: &Option<quipu::Recording>| {
            recording.as_ref().is_some_and(quipu::Recording::is_writing)
        };
        eventually("the parent records", || is_writing(&recording));
        let child = Child::start(|| {
            let is_parents = !is_writing(&recording);
            // There is no thread to wait for in this process.
            drop(recording.take());
            let own = registry.record(&options).unwrap();
            let is_first = own.is_writing();
            ready.inc();
            eventually("the child records", || own.is_writing());
            is_parents && !is_first
        });
        eventually("the child is ready", || ready.get() > 0);
        assert!(is_writing(&recording));
        drop(recording);
        assert!(child.wait());
    });
}

#[test]
fn a_recording_continues_after_a_fork_on_both_sides() {
    alone("a_recording_continues_after_a_fork_on_both_sides", || {
        let registry = Registry::from_segment(Segment::anonymous(64 << 20).unwrap());
        let ready = registry.counter("ready", "").unwrap();
        let options = RecordingOptions::new().interval(std::time::Duration::from_millis(1));
        for is_paused in [false, true] {
            let before = ready.get();
            let mut recording = registry.record(&options).unwrap();
            eventually("the parent records", || recording.is_writing());
            if is_paused {
                recording.pause().unwrap();
                eventually("the thread ends", || recorders().is_empty());
            }
            let child = Child::start(|| {
                assert!(!recording.is_writing() && recorders().is_empty());
                recording.resume().unwrap();
                recording.resume().unwrap();
                eventually("the child has a thread", || recorders().len() == 1);
                ready.inc();
                eventually("the child records", || recording.is_writing());
                recording.pause().is_ok() && !recording.is_writing()
            });
            eventually("the child is ready", || ready.get() > before);
            recording.resume().unwrap();
            eventually("the parent kept the lead", || recording.is_writing());
            drop(recording);
            eventually("the thread ends", || recorders().is_empty());
            assert!(child.wait());
        }
    });
}

#[test]
fn a_recorder_takes_no_signals_but_those_of_its_faults() {
    alone("a_recorder_takes_no_signals_but_those_of_its_faults", || {
        let own = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let _recording = Registry::new().record(&RecordingOptions::new()).unwrap();
        eventually("there is a thread", || recorders().len() == 1);
        let status = recorders().remove(0);
        for (signal, is_expected) in
            [(libc::SIGTERM, true), (libc::SIGCHLD, true), (libc::SIGSEGV, false)]
        {
            assert_eq!(is_blocked(&status, signal), is_expected, "{signal}: {status}");
        }
        let now = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        assert_eq!(is_blocked(&own, libc::SIGTERM), is_blocked(&now, libc::SIGTERM));
    });
}

/// Returns the state of each thread of this process that records.
fn recorders() -> Vec<String> {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    let status = |thread: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(thread.unwrap().path().join("status")).ok()
    };
    threads.filter_map(status).filter(|status| status.contains("quipu recorder")).collect()
}

fn is_blocked(status: &str, signal: libc::c_int) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap() >> (signal - 1) & 1 == 1
}
