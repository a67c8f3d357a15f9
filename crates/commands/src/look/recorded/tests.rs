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
        let description = Description::new("jobs", "Jobs.").labels(["queue"]).limit(10_000);
        let jobs = registry.register(description).unwrap();
        let recorder = Options::new().series(10_000).open(registry.segment()).unwrap();
        Self { directory, _registry: registry, jobs, recorder, time: SECOND }
    }

    fn tick(&mut self) {
        self.time += SECOND;
        assert!(self.recorder.tick_at(self.time, self.time).unwrap());
    }

    fn open(&self) -> Recorded {
        Recorded::open(&self.directory.path().join("app.quipu")).unwrap()
    }
}

/// The labels of all series at a moment.
fn labels(recorded: &mut Recorded, place: usize) -> Vec<String> {
    let mut all = Vec::new();
    let is_whole = recorded.looks(place..place + 1, &|| false, |_, look| {
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
    let mut recorded = file.open();
    assert_eq!(labels(&mut recorded, 0), ["queue=\"first\""]);
    // Its family was read, and its tick was not.
    file.jobs.inc(&Values(&["second"]));
    file.tick();
    recorded.read_moments(&|| false).unwrap();
    let early = labels(&mut recorded, 1);
    assert!(early.iter().any(|labels| labels.starts_with("quipu_removed=")), "{early:?}");
    recorded.refresh(&|| false).unwrap();
    assert_eq!(labels(&mut recorded, 1), ["queue=\"first\"", "queue=\"second\""]);
}

#[test]
fn names_that_the_moments_do_not_have_are_dropped() {
    let mut file = File::new();
    let names: Vec<String> = (0..=MAX_NAMES).map(|number| number.to_string()).collect();
    names.iter().for_each(|name| file.jobs.inc(&Values(&[name])));
    file.tick();
    for name in &names {
        assert!(file.jobs.remove(&Values(&[name])).unwrap());
    }
    file.jobs.inc(&Values(&["last"]));
    file.tick();
    let mut recorded = file.open();
    assert_eq!(labels(&mut recorded, 0).len(), names.len());
    assert_eq!(recorded.names.len(), names.len());
    assert_eq!(labels(&mut recorded, 1), ["queue=\"last\""]);
    assert_eq!(recorded.names.len(), 1);
    // Of ticks that only come before, no name is looked up.
    let mut recorded = file.open();
    assert_eq!(labels(&mut recorded, 1).len(), 1);
    assert_eq!(recorded.names.len(), 1);
}

#[test]
fn what_is_read_ends_when_it_must() {
    let mut file = File::new();
    file.jobs.inc(&Values(&["first"]));
    (0..3).for_each(|_| file.tick());
    let mut recorded = file.open();
    let mut looks = 0;
    assert!(!recorded.looks(0..3, &|| true, |_, _| looks += 1));
    assert_eq!(looks, 0);
    // Between the two walks, and in the second one.
    for polls in 3..6 {
        let left = std::cell::Cell::new(polls);
        let stop = || left.replace(left.get() - 1) == 0;
        let mut looks = 0;
        assert!(!recorded.looks(0..3, &stop, |_, _| looks += 1));
        assert_eq!(looks, polls - 3);
    }
    (0..3).for_each(|_| file.tick());
    recorded.refresh(&|| true).unwrap();
    assert!(recorded.moments().len() < 6);
    recorded.refresh(&|| false).unwrap();
    assert_eq!(recorded.moments().len(), 6);
}
