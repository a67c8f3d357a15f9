//! Kills and stops processes that record. Their recording stays readable, and the next process
//! continues it.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use quipu_segment::Segment;
use quipu_segment::history::{Options as Recording, Recorder};
use quipu_segment::inspect::Inspection;
use rustix::process::{Pid, Signal, kill_process};

use super::{add, dense, keyed, options};

/// The number of kills. By hand, 100 of 100 were read, too.
const KILLS: usize = 20;
const INTERVAL: Duration = Duration::from_millis(1);

fn recorder(segment: &Segment) -> Recorder {
    // A small recording, because chunks then start over all the time.
    Recording::new().bytes(64 << 10).interval(INTERVAL).open(segment).unwrap()
}

/// A process that runs until it is killed. It counts to the number of its tick before each tick.
#[test]
fn worker() {
    let Ok(path) = std::env::var("RECORDING_FILE") else { return };
    let segment = options().open_or_create(path).unwrap();
    let (ticks, noise) = (dense(&segment, "ticks".into()), keyed(&segment, "noise".into()));
    let mut recorder = recorder(&segment);
    for number in 0.. {
        ticks.add(|key| key.text("a"), 0, 1);
        add(&noise, number % 50);
        recorder.tick().unwrap();
    }
}

fn start(path: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "recording::worker", "--nocapture", "--test-threads=1"]);
    command.env("RECORDING_FILE", path).stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(Stdio::null()).spawn().unwrap()
}

/// Returns the times of all ticks. These times, and the count of ticks, must ascend.
fn look(path: &Path) -> Vec<u64> {
    let Ok(inspection) = Inspection::of_file(path) else { return Vec::new() };
    let families = &inspection.report().families;
    let ticks = families.iter().find(|family| family.schema.name == "ticks").map(|it| it.at);
    let (mut times, mut counts) = (Vec::new(), Vec::new());
    let replayed = inspection.history(0..=u64::MAX, |tick| {
        times.push(tick.time);
        // Slot 0 is the label's.
        let own = tick.series().find(|(id, _)| Some(id.family) == ticks && id.id == 0);
        counts.extend(own.map(|(_, cells)| cells[0]));
    });
    if let Some(replayed) = replayed {
        assert_eq!(replayed.damage, []);
    }
    assert!(times.is_sorted_by(|one, other| one < other), "{times:?}");
    assert!(counts.is_sorted());
    times
}

fn until(condition: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{condition}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_recording_is_read_after_each_kill() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("recorded.quipu");
    let mut last = 0;
    for kill in 0..KILLS {
        let mut child = start(&path);
        // The recording can also be read while the process writes it.
        until("the process records", || look(&path).last().is_some_and(|&time| time > last));
        std::thread::sleep(Duration::from_millis(kill as u64 % 7));
        child.kill().unwrap();
        child.wait().unwrap();
        let times = look(&path);
        last = *times.last().unwrap();
        assert_eq!(look(&path), times, "it stays as it is");
    }
}

#[test]
fn a_stopped_process_keeps_the_lead_and_a_dead_one_does_not() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("recorded.quipu");
    let mut child = start(&path);
    until("the process records", || !look(&path).is_empty());
    let segment = options().open_or_create(&path).unwrap();
    let mut own = recorder(&segment);
    kill_process(Pid::from_child(&child), Signal::STOP).unwrap();
    for _ in 0..5 {
        assert!(!own.tick().unwrap());
        std::thread::sleep(INTERVAL);
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let before = look(&path);
    until("this process records", || own.tick().unwrap());
    assert!(own.is_leading());
    let after = look(&path);
    assert!(after.ends_with(&before[before.len().max(1) - 1..]) || after.len() > before.len());
}
