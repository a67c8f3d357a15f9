//! Tests of `--segments-record`. A separate process records the segments of other programs for the
//! daemon. This process is killed and stopped, and it must end with the daemon.

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::common::{Daemon, Home, wait_until};
use crate::worker::Worker;

fn recorded(daemon: &Daemon, state: &str) -> f64 {
    daemon.sample(&format!("quipu_segments_recorded{{state=\"{state}\"}}"))
}

/// Returns the recorder processes from the log. Only the last one can be running.
fn recorders(daemon: &Daemon) -> Vec<Pid> {
    let events = daemon.log().into_iter().filter_map(|line| {
        let event: Value = serde_json::from_str(&line).ok()?;
        let is_it = event["message"].as_str()?.starts_with("recording the watched segments in");
        is_it.then(|| event["process"].as_i64())?
    });
    events.filter_map(|id| Pid::from_raw(i32::try_from(id).ok()?)).collect()
}

fn lives(pid: Pid) -> bool {
    // A zombie does not count, because the parent reaps it soon.
    let path = PathBuf::from(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    fs::read_to_string(path).is_ok_and(|stat| !stat.contains(") Z "))
}

fn ticks(home: &Home) -> u64 {
    let mut command = home.command();
    command.args(["inspect", "--history", "--format", "json", "run/app.quipu"]);
    let ended = home.finish(command);
    let history: Option<Value> = serde_json::from_str(&ended.stdout).ok();
    history.map_or(0, |history| history["held_ticks"].as_u64().unwrap())
}

#[test]
fn watched_segments_are_recorded() {
    let home = Home::new();
    fs::create_dir(home.path("run")).unwrap();
    let daemon = home.start(&["--segments", "run", "--segments-record"]);
    let mut program = Worker::start(&home.path("run/app.quipu"));
    program.does("count mail");
    daemon.wait_for("recording a watched segment");
    wait_until("it is recorded", || recorded(&daemon, "recorded") == 1.0);
    assert_eq!(daemon.sample("quipu_segments_recorder_up"), 1.0);
    wait_until("there are ticks", || ticks(&home) >= 2);
    program.does("count late");
    let before = ticks(&home);
    wait_until("there are more", || ticks(&home) > before + 1);
    program.kill();
    daemon.wait_for("a watched segment is no longer recorded");
    wait_until("it is closed", || recorded(&daemon, "closed") == 1.0);
    // The recorder does not count as a process that keeps the segment open.
    assert_eq!(daemon.sample("quipu_segments_open{segment=\"app\"}"), 0.0);
    assert_eq!(daemon.sample("jobs_total{segment=\"app\",queue=\"late\"}"), 1.0);
    // The recorder ends with the daemon.
    let recorder = recorders(&daemon)[0];
    assert!(lives(recorder));
    let name = fs::read_to_string(format!("/proc/{}/comm", recorder.as_raw_nonzero())).unwrap();
    assert_eq!(name, "quipu\n");
    daemon.stop();
    assert!(!lives(recorder));
}

/// Starts a daemon that records a program, and this program.
fn start_recorded(home: &Home) -> (Daemon, Worker) {
    fs::create_dir(home.path("run")).unwrap();
    let daemon = home.start(&["--segments", "run", "--segments-record", "on"]);
    let mut program = Worker::start(&home.path("run/app.quipu"));
    program.does("count mail");
    wait_until("it is recorded", || recorded(&daemon, "recorded") == 1.0);
    (daemon, program)
}

#[test]
fn a_recorder_that_dies_or_is_stopped_is_started_again() {
    let home = Home::new();
    let (daemon, mut program) = start_recorded(&home);
    for (round, signal) in [Signal::KILL, Signal::STOP].into_iter().enumerate() {
        let old = *recorders(&daemon).last().unwrap();
        kill_process(old, signal).unwrap();
        // A stopped recorder sends no heartbeat for ten seconds.
        wait_until("another one runs", || recorders(&daemon).len() == round + 2);
        assert!(!lives(old));
        assert_eq!(daemon.sample("quipu_segments_recorder_restarts_total"), round as f64 + 1.0);
        let before = ticks(&home);
        wait_until("it goes on", || ticks(&home) > before + 1);
        program.does("count mail");
    }
    // The recorder ends when the daemon dies, even if the recorder is stopped.
    let last = *recorders(&daemon).last().unwrap();
    kill_process(last, Signal::STOP).unwrap();
    daemon.kill();
    wait_until("it ends with the daemon", || !lives(last));
    program.does("count mail");
}

#[test]
fn a_recorder_outlives_signals_to_the_unit_and_a_pause_of_all() {
    let home = Home::new();
    let (daemon, _program) = start_recorded(&home);
    let recorder = recorders(&daemon)[0];
    let goes_on = || {
        let before = ticks(&home);
        wait_until("it goes on", || ticks(&home) > before + 1);
        assert!(lives(recorder) && recorders(&daemon).len() == 1);
        assert_eq!(daemon.sample("quipu_segments_recorder_restarts_total"), 0.0);
    };
    // Only the daemon can end the recorder.
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        kill_process(recorder, signal).unwrap();
    }
    goes_on();
    // A container can be paused for longer than the time limit of heartbeats. The daemon resumes
    // first.
    kill_process(recorder, Signal::STOP).unwrap();
    daemon.signal(Signal::STOP);
    thread::sleep(Duration::from_secs(11));
    daemon.signal(Signal::CONT);
    assert_eq!(daemon.sample("quipu_segments_recorder_restarts_total"), 0.0);
    kill_process(recorder, Signal::CONT).unwrap();
    goes_on();
    daemon.stop();
    assert!(!lives(recorder));
}

#[test]
fn nothing_is_recorded_unless_it_is_asked_for() {
    let home = Home::new();
    fs::create_dir(home.path("run")).unwrap();
    let daemon = home.start(&["--segments", "run"]);
    assert!(!daemon.get("/metrics").text().contains("quipu_segments_record"));
    assert!(recorders(&daemon).is_empty());
    home.expect_refusal(
        &["--segments-record-count", "0"],
        2,
        &["cannot use --segments-record-count: 0 is out of range; give 1 to 1000"],
    );
}
