//! Tests of `quipu record` next to programs in separate processes. These programs are killed,
//! record themselves, or lose their file, and must never notice the command.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use quipu_segment::Options;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::Home;
use super::worker::Worker;

/// The running command, killed on drop.
struct Recorder {
    child: Child,
    output: std::path::PathBuf,
}

impl Recorder {
    fn start(home: &Home, arguments: &[&str]) -> Self {
        let mut command = home.quipu(&["record"]);
        command.args(arguments);
        Self::run(home, command)
    }

    fn run(home: &Home, mut command: Command) -> Self {
        let number = fs::read_dir(home.directory()).unwrap().count();
        let output = home.directory().join(format!("{number}.out"));
        let file = File::create(&output).unwrap();
        command.stdout(file.try_clone().unwrap()).stderr(file).stdin(Stdio::null());
        Self { child: command.spawn().unwrap(), output }
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.output).unwrap()
    }

    #[track_caller]
    fn wait_for(&self, line: &str) {
        until(|| self.said().contains(line), || format!("{line:?} in {:?}", self.said()));
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Ends the command like a user, and returns its messages.
    fn end(self) -> String {
        self.end_with(0)
    }

    fn end_with(mut self, code: i32) -> String {
        self.signal(Signal::INT);
        assert_eq!(self.child.wait().unwrap().code(), Some(code), "{}", self.said());
        self.said()
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[track_caller]
fn until(mut is_so: impl FnMut() -> bool, expectation: impl Fn() -> String) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(60), "waited in vain: {}", expectation());
        thread::sleep(Duration::from_millis(10));
    }
}

/// Returns the recorded history; `None` if the file contains no recording, or an empty one.
fn history(home: &Home, file: &str) -> Option<Value> {
    let output = home.quipu(&["inspect", "--history", "--format", "json", file]).output().unwrap();
    output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
}

fn ticks(home: &Home, file: &str) -> u64 {
    history(home, file).map_or(0, |history| history["held_ticks"].as_u64().unwrap())
}

#[track_caller]
fn wait_for_ticks(home: &Home, file: &str, count: u64) {
    let least = ticks(home, file) + count;
    until(|| ticks(home, file) >= least, || format!("{least} ticks, not {}", ticks(home, file)));
}

/// Returns the last recorded value of a series.
fn last(history: &Value, name: &str) -> Option<f64> {
    let series = history["series"].as_array()?.iter().find(|series| series["name"] == name)?;
    series["values"].as_array()?.last()?.as_f64()
}

fn is_open(path: &Path) -> bool {
    quipu_segment::inspect::is_open(&File::open(path).unwrap()).unwrap()
}

#[test]
fn the_last_seconds_before_a_kill_are_recorded() {
    let home = Home::new();
    let mut program = Worker::start(&home.file());
    program.does("count mail");
    let recorder = Recorder::start(&home, &["app.quipu"]);
    recorder.wait_for("app.quipu: recording\n");
    wait_for_ticks(&home, "app.quipu", 2);
    // A short-lived shell command does not end the recording.
    home.succeed(&["inc", "jobs_total{queue=\"shell\"}"]);
    program.does("count late");
    wait_for_ticks(&home, "app.quipu", 2);
    let writer = history(&home, "app.quipu").unwrap()["writer"].clone();
    assert_eq!(writer["alive"], true, "{writer}");
    program.kill();
    recorder.wait_for("app.quipu: recording stopped: no process has it open\n");
    let recorded = history(&home, "app.quipu").unwrap();
    for queue in ["mail", "shell", "late"] {
        let name = format!("jobs_total{{queue=\"{queue}\"}}");
        assert_eq!(last(&recorded, &name), Some(1.0), "{recorded}");
    }
    assert_eq!(recorded["damage"], Value::Array(Vec::new()));
    // The recorder keeps a file open no longer than the program.
    assert!(!is_open(&home.file()));
    // The next run of the program is recorded too.
    let mut program = Worker::start(&home.file());
    let before = ticks(&home, "app.quipu");
    program.does("count mail");
    until(|| recorder.said().matches(": recording\n").count() == 2, || recorder.said());
    wait_for_ticks(&home, "app.quipu", 2);
    assert!(ticks(&home, "app.quipu") >= before + 2);
    recorder.end();
    let recorded = history(&home, "app.quipu").unwrap();
    assert_eq!(last(&recorded, "jobs_total{queue=\"mail\"}"), Some(2.0), "{recorded}");
    assert_eq!(recorded["writer"], Value::Null);
    assert!(is_open(&home.file()));
    program.does("count mail");
}

#[test]
fn a_recorder_that_is_killed_is_followed_by_the_next_one() {
    let home = Home::new();
    let mut program = Worker::start(&home.file());
    program.does("count mail");
    for _ in 0..2 {
        let mut recorder = Recorder::start(&home, &["."]);
        wait_for_ticks(&home, "app.quipu", 2);
        recorder.child.kill().unwrap();
        recorder.child.wait().unwrap();
        let recorded = history(&home, "app.quipu").unwrap();
        assert_eq!(recorded["writer"]["alive"], false, "{recorded}");
        program.does("count mail");
    }
    // A file accepts only one recorder.
    let recorder = Recorder::start(&home, &["app.quipu"]);
    recorder.wait_for("app.quipu: recording\n");
    let other = Recorder::start(&home, &["app.quipu"]);
    other.wait_for("app.quipu: not recorded: another quipu record records it\n");
    wait_for_ticks(&home, "app.quipu", 2);
    let recorded = history(&home, "app.quipu").unwrap();
    assert_eq!(last(&recorded, "jobs_total{queue=\"mail\"}"), Some(3.0), "{recorded}");
    assert_eq!(recorded["damage"], Value::Array(Vec::new()));
}

#[test]
fn a_program_that_records_itself_leads() {
    let home = Home::new();
    let mut program = Worker::start(&home.file());
    let recorder = Recorder::start(&home, &["app.quipu"]);
    program.does("count mail");
    wait_for_ticks(&home, "app.quipu", 2);
    program.does("record");
    recorder.wait_for("app.quipu: recording stopped: its program records it itself\n");
    program.does("count mail");
    wait_for_ticks(&home, "app.quipu", 2);
    let recorded = history(&home, "app.quipu").unwrap();
    assert_eq!(last(&recorded, "jobs_total{queue=\"mail\"}"), Some(2.0), "{recorded}");
    assert_eq!(recorded["writer"]["alive"], true);
    program.kill();
    let recorded = history(&home, "app.quipu").unwrap();
    assert_eq!(recorded["writer"]["alive"], false, "{recorded}");
}

#[test]
fn a_stopped_recorder_delays_no_program() {
    let home = Home::new();
    let mut program = Worker::start(&home.file());
    let recorder = Recorder::start(&home, &["app.quipu"]);
    program.does("count mail");
    wait_for_ticks(&home, "app.quipu", 2);
    recorder.signal(Signal::STOP);
    // New series need space and locks. None of them may overflow.
    for number in 0..500 {
        program.does(&format!("count {number}"));
    }
    let shown = home.succeed(&["expose", "app.quipu"]);
    assert!(shown.contains("jobs_total{queue=\"499\"} 1\n") && !shown.contains("quipu_overflow"));
    // From its next tick on, the program records itself.
    program.does("record");
    wait_for_ticks(&home, "app.quipu", 2);
    let recorded = history(&home, "app.quipu").unwrap();
    assert_eq!(last(&recorded, "jobs_total{queue=\"499\"}"), Some(1.0), "{recorded}");
    // This file stays open while the recorder is stopped, but the next run of the program does not
    // have to wait.
    program.kill();
    let mut program = Worker::start(&home.file());
    program.does("count mail");
    program.does("record");
    wait_for_ticks(&home, "app.quipu", 2);
    recorder.signal(Signal::CONT);
    recorder.wait_for("its program records it itself");
    let recorded = history(&home, "app.quipu").unwrap();
    assert_eq!(recorded["damage"], Value::Array(Vec::new()));
}

#[test]
fn files_that_cannot_be_recorded_are_left_as_they_are() {
    let home = Home::new();
    let file = |name: &str| home.directory().join(name);
    // A file that no program keeps open.
    home.succeed(&["inc", "--file", "closed.quipu", "jobs_total"]);
    let closed = fs::read(file("closed.quipu")).unwrap();
    // A file that a program opened exclusively, and a file that is nearly full.
    let _own = Options::new().open_or_create(file("own.quipu")).unwrap();
    let _small = Options::new().shared().limit(256 << 10).open_or_create(file("small.quipu"));
    fs::write(file("text.quipu"), "jobs_total 1\n").unwrap();
    let mut program = Worker::start(&home.file());
    let length = fs::metadata(home.file()).unwrap().len();
    // The limit on the size of files acts like a full disk.
    let binary = env!("CARGO_BIN_EXE_quipu");
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -f 1000; exec \"$0\" record .", binary]);
    command.current_dir(home.directory());
    let recorder = Recorder::run(&home, command);
    recorder.wait_for("closed.quipu: not recorded: no process has it open\n");
    recorder.wait_for("text.quipu: not recorded: no process has it open\n");
    recorder.wait_for("own.quipu: not recorded: its program has it open for itself alone\n");
    recorder
        .wait_for("small.quipu: not recorded: its program may need all of the room that is left\n");
    recorder.wait_for("app.quipu: not recorded: this process may not make a file of");
    assert_eq!(fs::metadata(home.file()).unwrap().len(), length);
    assert_eq!(fs::read(file("closed.quipu")).unwrap(), closed);
    program.does("count mail");
    let said = recorder.end_with(1);
    assert!(!said.contains(": recording") && said.contains("nothing was recorded"), "{said}");
    assert!(history(&home, "app.quipu").is_none());
    home.refuse(&["record"], 2, &["<PLACE>"]);
    home.refuse(&["record", "--bytes", "1000", "."], 2, &["--bytes"]);
}

#[test]
fn a_file_that_is_cut_or_removed_ends_only_its_own_recording() {
    let home = Home::new();
    let file = |name: &str| home.directory().join(name);
    let mut programs = ["a.quipu", "b.quipu", "c.quipu"].map(|name| Worker::start(&file(name)));
    programs.iter_mut().for_each(|program| program.does("count mail"));
    let recorder = Recorder::start(&home, &["*.quipu"]);
    for name in ["a.quipu", "b.quipu", "c.quipu"] {
        recorder.wait_for(&format!("{name}: recording\n"));
        wait_for_ticks(&home, name, 1);
    }
    // The program itself does not write to this file any more.
    File::options().write(true).open(file("a.quipu")).unwrap().set_len(0).unwrap();
    recorder.wait_for("a.quipu: recording stopped: it was cut");
    fs::remove_file(file("b.quipu")).unwrap();
    recorder.wait_for("b.quipu: recording stopped: it was removed or replaced\n");
    wait_for_ticks(&home, "c.quipu", 2);
    programs[2].does("count mail");
    assert!(recorder.end().matches("recording stopped").count() == 2);
}

#[test]
fn files_of_others_are_omitted() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;

    let home = Home::new();
    let _program = Worker::start(&home.file());
    if !rustix::process::geteuid().is_root() {
        // This requires root, because only root can act as another user.
        fs::set_permissions(home.file(), PermissionsExt::from_mode(0o400)).unwrap();
    }
    fs::set_permissions(home.directory(), PermissionsExt::from_mode(0o755)).unwrap();
    let other = home.directory().join("other.quipu");
    let _second = Worker::start(&other);
    fs::set_permissions(&other, PermissionsExt::from_mode(0o666)).unwrap();
    let mut command = home.quipu(&["record", "."]);
    if rustix::process::geteuid().is_root() {
        command.uid(65_534).gid(65_534);
        let mut probe = home.quipu(&["--version"]);
        if !probe.uid(65_534).gid(65_534).output().is_ok_and(|output| output.status.success()) {
            // Another user cannot run the binary from this directory.
            return;
        }
    }
    let recorder = Recorder::run(&home, command);
    recorder.wait_for("app.quipu: not recorded: Permission denied");
    recorder.wait_for("other.quipu: recording\n");
}
