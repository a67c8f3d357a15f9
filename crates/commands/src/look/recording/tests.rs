//! Tests of reading a recording: labels of new series, dropped series, and an interrupted read.

#![allow(clippy::unwrap_used)]

use quipu::label::Values;
use quipu::{CounterFamily, Description, Registry};
use quipu_segment::history::{Options, Recorder};

use super::*;

const SECOND: u64 = 1_000_000_000;

/// A file with a counter that has a label.
struct File {
    directory: tempfile::TempDir,
    _registry: Registry,
    jobs: CounterFamily<Values<'static>>,
    recorder: Recorder,
    time: u64,
}

impl File {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let registry = Registry::open(directory.path().join("app.quipu")).unwrap();
        let description = Description::new("jobs", "Jobs.").labels(["queue"]).max_series(10_000);
        let jobs = registry.register(description).unwrap();
        let recorder = Options::new().series(10_000).open(registry.segment()).unwrap();
        Self { directory, _registry: registry, jobs, recorder, time: SECOND }
    }

    fn tick(&mut self) {
        self.time += SECOND;
        assert!(self.recorder.tick_at(self.time, self.time).unwrap());
    }

    fn open(&self) -> Recording {
        Recording::open(&self.directory.path().join("app.quipu")).unwrap()
    }
}

/// Returns the labels of all series at a moment.
fn labels(recording: &mut Recording, place: usize) -> Vec<String> {
    let mut all = Vec::new();
    let is_whole = recording.visit(place..place + 1, &|| false, |_, look| {
        all.extend(look.series().map(|series| series.labels.to_owned()));
    });
    assert!(is_whole);
    all.sort();
    all
}

#[test]
fn a_series_that_is_made_while_the_file_is_read_gets_its_labels() {
    let mut file = File::new();
    file.jobs.inc(&Values(&["first"]));
    file.tick();
    let mut recording = file.open();
    assert_eq!(labels(&mut recording, 0), ["queue=\"first\""]);
    // The family was read, but its tick was not.
    file.jobs.inc(&Values(&["second"]));
    file.tick();
    recording.read_moments(&|| false).unwrap();
    let early = labels(&mut recording, 1);
    assert!(early.iter().any(|labels| labels.starts_with("quipu_removed=")), "{early:?}");
    recording.refresh(&|| false).unwrap();
    assert_eq!(labels(&mut recording, 1), ["queue=\"first\"", "queue=\"second\""]);
}

#[test]
fn series_of_no_recent_moment_are_dropped() {
    let mut file = File::new();
    let names: Vec<String> = (0..=MAX_KNOWN_SERIES).map(|number| number.to_string()).collect();
    names.iter().for_each(|name| file.jobs.inc(&Values(&[name])));
    file.tick();
    for name in &names {
        assert!(file.jobs.remove(&Values(&[name])).unwrap());
    }
    file.jobs.inc(&Values(&["last"]));
    file.tick();
    let mut recording = file.open();
    assert_eq!(labels(&mut recording, 0).len(), names.len());
    assert_eq!(recording.series.len(), names.len());
    assert_eq!(labels(&mut recording, 1), ["queue=\"last\""]);
    assert_eq!(recording.series.len(), 1);
    // The series of earlier ticks are not looked up.
    let mut recording = file.open();
    assert_eq!(labels(&mut recording, 1).len(), 1);
    assert_eq!(recording.series.len(), 1);
}

#[test]
fn reading_ends_when_the_user_stops_it() {
    let mut file = File::new();
    file.jobs.inc(&Values(&["first"]));
    (0..3).for_each(|_| file.tick());
    let mut recording = file.open();
    let mut looks = 0;
    assert!(!recording.visit(0..3, &|| true, |_, _| looks += 1));
    assert_eq!(looks, 0);
    // Between the two walks, and during the second one.
    for polls in 3..6 {
        let left = std::cell::Cell::new(polls);
        let stop = || left.replace(left.get() - 1) == 0;
        let mut looks = 0;
        assert!(!recording.visit(0..3, &stop, |_, _| looks += 1));
        assert_eq!(looks, polls - 3);
    }
    (0..3).for_each(|_| file.tick());
    recording.refresh(&|| true).unwrap();
    assert!(recording.moments().len() < 6);
    recording.refresh(&|| false).unwrap();
    assert_eq!(recording.moments().len(), 6);
}
