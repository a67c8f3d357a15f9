//! Tests of `quipu top --replay`: the history of a segment, as one frame and in a real terminal.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use quipu::label::Values;
use quipu::{CounterFamily, Description, Gauge, Histogram, Recording, RecordingOptions, Registry};
use quipu_segment::history::{Options, Recorder};

use super::Home;
use super::top::{Tmux, line};

const SECOND: u64 = 1_000_000_000;
/// The time of the first tick: 2023-11-14T22:13:20Z.
const START: u64 = 1_700_000_000;

/// Records thirty ticks, a second apart, with a gap of a minute before the last ten. Each tick adds
/// ten jobs, sets the depth to its own number, and observes 0.5 seconds, or 5 seconds in the last
/// ten ticks.
fn record(home: &Home) -> (Registry, Recorder) {
    let registry = Registry::open(home.file()).unwrap();
    let jobs: CounterFamily<Values> =
        registry.register(Description::new("jobs", "Jobs.").labels(["queue"])).unwrap();
    let depth: Gauge = registry.register(Description::new("depth", "")).unwrap();
    let took = Description::new("took", "").buckets([1.0, 10.0]);
    let took: Histogram = registry.register(took).unwrap();
    let mut recorder = Options::new().bytes(64 << 10).open(registry.segment()).unwrap();
    for tick in 0..30 {
        jobs.inc_by(&Values(&["mail"]), 10);
        if tick == 10 {
            jobs.inc(&Values(&["gone"]));
        }
        depth.set(tick as f64);
        took.observe(if tick < 20 { 0.5 } else { 5.0 });
        let time = (START + tick + if tick < 20 { 0 } else { 60 }) * SECOND;
        assert!(recorder.tick_at(time, time).unwrap());
        if tick == 15 {
            assert!(jobs.remove(&Values(&["gone"])).unwrap());
        }
    }
    (registry, recorder)
}

fn frame(home: &Home, more: &[&str]) -> String {
    let arguments = [&["top", "--replay", "--once", "app.quipu"], more].concat();
    let output = home.quipu(&arguments).env("LC_ALL", "C").output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn one_frame_shows_a_moment() {
    let home = Home::new();
    let (_registry, recorder) = record(&home);
    let last = frame(&home, &[]);
    let mut lines = last.lines();
    assert_eq!(lines.next(), Some("quipu top  app.quipu  3 families  3 series  paused"));
    assert_eq!(lines.next(), Some("2023-11-14T22:14:49Z  the last tick so far"));
    assert_eq!(line(&last, "jobs_total")[1..4], ["counter", "10", "300"], "{last}");
    assert_eq!(line(&last, "depth")[2..4], ["-", "29"], "{last}");
    let took = line(&last, "took");
    // Quantiles use only the last tick: 5 seconds, in the bucket from 1 to 10.
    assert_eq!(took[2..6], ["1", "30", "5.5", "9.91"], "{last}");
    // All rates are 1, except the rate over the gap.
    assert_eq!(took[6].chars().filter(|c| *c == '_').count(), 1, "{last}");

    // A time before the gap. You can write this time in several ways.
    for at in ["2023-11-14T22:13:39Z", "1700000019", "1700000050.5", "-1m 10s"] {
        let earlier = frame(&home, &["--at", at]);
        assert!(earlier.contains("2023-11-14T22:13:39Z  -1m 10s"), "{earlier}");
        assert_eq!(line(&earlier, "jobs_total")[2..4], ["10", "200"], "{earlier}");
        assert_eq!(line(&earlier, "took")[4], "0.5", "{earlier}");
    }
    let after = frame(&home, &["--at", "-9s"]);
    assert!(after.contains("  -9s  after a gap of 1m 1s"), "{after}");
    // The rate is unknown at the first tick.
    let first = frame(&home, &["--at", "2023-11-15T00:13:20+02:00"]);
    assert_eq!(line(&first, "jobs_total")[2..4], ["-", "10"], "{first}");
    // A removed series shows a number instead of its labels.
    let removed = frame(&home, &["--at", "1700000012", "--family", "jobs_total"]);
    assert!(removed.contains("quipu_removed=") && removed.contains("queue=\"mail\""), "{removed}");

    home.refuse(
        &["top", "--replay", "--once", "--at", "1600000000", "app.quipu"],
        1,
        &["app.quipu: --at: nothing was recorded then: it has 2023-11-14T22:13:20Z to"],
    );
    home.refuse(&["top", "--replay", "--at", "soon", "app.quipu"], 2, &["-30s for 30 seconds"]);
    home.refuse(&["top", "--at", "-1s", "app.quipu"], 2, &["--replay"]);
    home.refuse(&["top", "--replay", "--interval", "1s", "app.quipu"], 2, &["--interval"]);
    drop(recorder);
    assert!(frame(&home, &[]).contains("the last tick: the recording was ended"));
}

#[test]
fn files_without_a_recording_are_refused() {
    let home = Home::new();
    let refuse = |parts: &[&str]| {
        home.refuse(&["top", "--replay", "--once", "app.quipu"], 1, parts);
    };
    refuse(&["app.quipu: No such file"]);
    fs::write(home.file(), "a 1\n".repeat(100)).unwrap();
    refuse(&["app.quipu: it is not a segment, but an exposition"]);
    fs::remove_file(home.file()).unwrap();
    let registry = Registry::open(home.file()).unwrap();
    refuse(&[
        "app.quipu: the file has no flight recorder; a program starts it with Registry::record",
    ]);
    let _recorder = Options::new().bytes(64 << 10).open(registry.segment()).unwrap();
    refuse(&["app.quipu: its flight recorder has recorded nothing yet"]);
}

#[test]
fn a_damaged_file_is_shown_as_far_as_it_goes() {
    let home = Home::new();
    drop(record(&home));
    let whole = fs::read(home.file()).unwrap();
    let record = whole.windows(4).position(|bytes| bytes == b"FREC").unwrap() - 8;
    let show = |bytes: &[u8]| {
        fs::write(home.file(), bytes).unwrap();
        home.quipu(&["top", "--replay", "--once", "--all", "app.quipu"]).output().unwrap()
    };
    let total =
        |text: &str| line(text, "jobs_total{queue=\"mail\"}").get(3).map(|it| it.to_string());
    // A flipped bit in the chunks can result in the same frame or an earlier one, but never in a
    // new one.
    let mut lengths = std::collections::BTreeSet::new();
    for at in (record + 128..record + 4096).step_by(8) {
        let mut bytes = whole.clone();
        bytes[at] ^= 4;
        let output = show(&bytes);
        let text = String::from_utf8(output.stdout).unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        match output.status.code() {
            Some(3) if errors.contains("app.quipu: damaged at byte") => {
                lengths.insert(total(&text));
            }
            Some(0) => assert_eq!(total(&text).as_deref(), Some("300"), "{text}"),
            code => {
                let parts = ["no tick can be read", "has recorded nothing yet"];
                assert!(parts.iter().any(|part| errors.contains(part)), "{errors}");
                assert_eq!(code, Some(1));
            }
        }
    }
    assert!(lengths.len() > 10, "{lengths:?}");
    // Cut after the description of the recorder.
    let output = show(&whole[..record + 128]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

/// The environment variable with the path of the file to record in.
const RECORDED: &str = "QUIPU_TEST_RECORDED";

#[test]
#[ignore = "a process that another test starts"]
fn a_program_records() {
    let Some(path) = std::env::var_os(RECORDED) else { return };
    let registry = Registry::open(path).unwrap();
    let jobs = registry.counter("jobs", "").unwrap();
    let options = RecordingOptions::new().interval(Duration::from_millis(10));
    let _recording: Recording = registry.record(&options).unwrap();
    loop {
        jobs.inc();
        thread::sleep(Duration::from_millis(1));
    }
}

/// A process that is killed on drop.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_last_seconds_before_a_kill_are_shown() {
    let home = Home::new();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "--nocapture", "replay::a_program_records"]);
    command.env(RECORDED, home.file()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut program = Killed(command.spawn().unwrap());
    // Show the file while it is written.
    let begun = Instant::now();
    loop {
        let output = home.quipu(&["top", "--replay", "--once", "app.quipu"]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let rate = line(&text, "jobs_total").get(2).and_then(|rate| rate.parse::<f64>().ok());
        if rate.is_some_and(|rate| rate > 0.0) && text.contains("the last tick so far") {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{text}");
        thread::sleep(Duration::from_millis(20));
    }
    program.0.kill().unwrap();
    program.0.wait().unwrap();
    let text = frame(&home, &[]);
    assert!(text.contains("the last tick: the process died"), "{text}");
    assert!(line(&text, "jobs_total")[3].parse::<f64>().unwrap() > 0.0, "{text}");
    assert_eq!(frame(&home, &[]), text);
}

#[test]
fn a_terminal_steps_and_plays() {
    let home = Home::new();
    drop(record(&home));
    let tmux = Tmux::start(&home, "--replay --at -20m app.quipu");
    tmux.wait_for("ended with 1");
    let tmux = Tmux::start(&home, "--replay app.quipu");
    let screen = tmux.wait_for("22:14:49Z  the last tick: the recording was ended");
    assert_eq!(line(&screen, "jobs_total")[2..4], ["10", "300"], "{screen}");
    let shows = |keys: &[&str], title: &str, total: &str| {
        tmux.press(keys);
        let is_so = |screen: &str| {
            screen.contains(title) && line(screen, "jobs_total").get(3) == Some(&total)
        };
        tmux.wait(is_so)
    };
    shows(&["Left", "Left"], "22:14:47Z  -2s", "280");
    shows(&["Right"], "22:14:48Z  -1s", "290");
    shows(&["PageUp"], "  -1m 10s", "200");
    shows(&["PageDown"], "  -9s  after a gap of 1m 1s", "210");
    shows(&["Home"], "22:13:20Z  -1m 29s", "10");
    shows(&["Left"], "22:13:20Z", "10");
    shows(&["End", "Right"], "the last tick", "300");
    // The selection and the opened page stay while the moment changes.
    tmux.press(&["Down", "Enter"]);
    tmux.wait_for("value     300");
    tmux.press(&["Left"]);
    tmux.wait_for("value     290");
    tmux.press(&["Escape"]);
    tmux.wait_for("depth");
    // Play from the start to the end across the gap, at high speed.
    tmux.press(&["Home"]);
    tmux.wait_for("22:13:20Z  -");
    tmux.press(&["+", "+", "+", "+", "+", "+"]);
    tmux.wait_for("paused, 60x");
    tmux.press(&["Space"]);
    tmux.wait_for("  60x");
    tmux.wait_for("  the last tick: the recording was ended");
    // Playing starts again at the beginning.
    tmux.press(&["-", "-", "-", "-", "-", "-", "Space"]);
    tmux.wait_for("  1x");
    tmux.press(&["p"]);
    tmux.wait(|screen| screen.contains("Z  -1m 2") && screen.contains("paused"));
    tmux.press(&["?"]);
    tmux.wait_for("a minute back, forward");
    tmux.press(&["q"]);
    tmux.wait_for("ended with 0");
    tmux.is_as_before();
}

#[test]
fn a_terminal_follows_a_program_that_records() {
    let home = Home::new();
    let registry = Registry::open(home.file()).unwrap();
    let jobs = registry.counter("jobs", "").unwrap();
    let mut recorder = Options::new().bytes(64 << 10).open(registry.segment()).unwrap();
    let mut time = START * SECOND;
    let mut tick = || {
        time += SECOND;
        jobs.inc_by(5);
        assert!(recorder.tick_at(time, time).unwrap());
    };
    (0..3).for_each(|_| tick());
    let tmux = Tmux::start(&home, "--replay app.quipu");
    tmux.wait_for("22:13:23Z  the last tick so far");
    // The shown moment stays while the recording continues.
    tick();
    tmux.wait_for("22:13:23Z  -1s");
    tmux.press(&["End"]);
    tmux.wait_for("22:13:24Z  the last tick so far");
    tmux.press(&["Space"]);
    tmux.wait_for("  1x");
    tick();
    let screen = tmux.wait_for("22:13:25Z  the last tick so far");
    assert_eq!(line(&screen, "jobs_total")[2..4], ["5", "25"], "{screen}");
    // If the file vanishes, the known data stays.
    fs::remove_file(home.file()).unwrap();
    let screen = tmux.wait_for("app.quipu: No such file");
    assert_eq!(line(&screen, "jobs_total")[3], "25", "{screen}");
    tmux.press(&["q"]);
    tmux.wait_for("ended with 0");
}
